/* A barrier for the threads of a team: two numbers, initialized with zeros. */

#include <sched.h>

enum { ARRIVED, GENERATION }; /* number of threads that wait; number of times that all have arrived */
enum { MAX_SPINS = 4000 };    /* tests of the barrier before a thread yields the processor */

/* Wait for all threads. What they wrote before the barrier is visible after it. */
static void wait_for_all(int64_t *barrier, int64_t threads) {
    if (threads == 1) return;
    int64_t generation = __atomic_load_n(barrier + GENERATION, __ATOMIC_SEQ_CST);
    if (__atomic_add_fetch(barrier + ARRIVED, 1, __ATOMIC_SEQ_CST) == threads) {
        __atomic_store_n(barrier + ARRIVED, 0, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(barrier + GENERATION, 1, __ATOMIC_SEQ_CST);
        return;
    }
    for (int64_t spins = 0; __atomic_load_n(barrier + GENERATION, __ATOMIC_SEQ_CST) == generation; spins++)
        if (spins > MAX_SPINS) sched_yield();
}
