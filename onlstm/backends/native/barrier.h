/* A barrier for the threads of a team: two numbers, initialized with zeros. */

#include <sched.h>

enum { WAITING, ROUND, SPINS = 4000 }; /* spins before a thread yields the processor */

/* Wait for all threads. What they wrote before the barrier is visible after it. */
static void wait_for_all(int64_t *barrier, int64_t threads) {
    if (threads == 1) return;
    int64_t round = __atomic_load_n(barrier + ROUND, __ATOMIC_SEQ_CST);
    if (__atomic_add_fetch(barrier + WAITING, 1, __ATOMIC_SEQ_CST) == threads) {
        __atomic_store_n(barrier + WAITING, 0, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(barrier + ROUND, 1, __ATOMIC_SEQ_CST);
        return;
    }
    for (int64_t spins = 0; __atomic_load_n(barrier + ROUND, __ATOMIC_SEQ_CST) == round; spins++)
        if (spins > SPINS) sched_yield();
}
