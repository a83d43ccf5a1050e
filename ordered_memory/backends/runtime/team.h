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

/* The mode in which the processor computes for this thread. FLUSH_DENORMALS: denormal operands and results are zero. */
#if defined(__SSE__)
enum { DENORMALS_ARE_ZERO = 0x0040, FLUSH_TO_ZERO = 0x8000 }; /* bits of the register MXCSR */
enum { FLUSH_DENORMALS = DENORMALS_ARE_ZERO | FLUSH_TO_ZERO };

static uint64_t floating_point_mode(void) { return _mm_getcsr(); }

static void set_floating_point_mode(uint64_t mode) { _mm_setcsr((unsigned)mode); }
#elif defined(__aarch64__)
enum { FLUSH_DENORMALS = 1 << 24 }; /* bit FZ of the register FPCR */

static uint64_t floating_point_mode(void) {
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}

static void set_floating_point_mode(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
#else
enum { FLUSH_DENORMALS = 0 };

static uint64_t floating_point_mode(void) { return 0; }

static void set_floating_point_mode(uint64_t mode) { (void)mode; }
#endif

/* Called by every thread of the team: does the work with BLAS limited to one thread and denormals flushed to zero. */
void run_team(void *data) {
    const Team *team = data;
    int blas_threads = team->set_blas_threads ? team->set_blas_threads(1) : 0;
    uint64_t mode = floating_point_mode();
    set_floating_point_mode(mode | FLUSH_DENORMALS);
    if (team->team_size)
        team->work(team->arguments, team->thread_number(), team->team_size());
    else
        team->work(team->arguments, 0, 1);
    set_floating_point_mode(mode);
    if (team->set_blas_threads) team->set_blas_threads(blas_threads);
}
