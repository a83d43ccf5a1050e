/* Runs a C function on the threads of PyTorch's OpenMP, without being compiled with OpenMP; see threads.py.
   Include after common.h. */

typedef void (*team_work_t)(const void *arguments, int64_t thread, int64_t threads);
typedef int (*team_query_t)(void);
typedef int (*set_blas_threads_t)(int);

typedef struct {
    team_work_t work;
    const void *arguments;
    team_query_t thread_number, team_size; /* functions of OpenMP; null: run on the calling thread only */
    set_blas_threads_t set_blas_threads;   /* function of MKL; null without MKL */
} Team;
EXPORT_SIZE(Team)

/* Flush denormal operands and results to zero in this thread. Returns the previous mode. */
static unsigned flush_denormals(void) {
#ifdef __SSE__
    enum { DENORMALS_ARE_ZERO = 0x0040, FLUSH_TO_ZERO = 0x8000 }; /* bits of the register MXCSR */
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | DENORMALS_ARE_ZERO | FLUSH_TO_ZERO);
    return before;
#else
    return 0;
#endif
}

static void restore_denormals(unsigned before) {
#ifdef __SSE__
    _mm_setcsr(before);
#else
    (void)before;
#endif
}

/* Called by every thread of the team: does the work with BLAS limited to one thread and denormals flushed to zero. */
void run_team(void *data) {
    const Team *team = data;
    int blas_threads = team->set_blas_threads ? team->set_blas_threads(1) : 0;
    unsigned denormals = flush_denormals();
    if (team->team_size)
        team->work(team->arguments, team->thread_number(), team->team_size());
    else
        team->work(team->arguments, 0, 1);
    restore_denormals(denormals);
    if (team->set_blas_threads) team->set_blas_threads(blas_threads);
}
