/* The threads of an OpenMP that this file was not compiled with; see threads.py. After common.h. */

typedef struct {
    void (*work)(const void *, int64_t, REAL *);
    const void *arguments;
    REAL *const *scratch; /* of each thread */
    int64_t threads, started;
    int (*number)(void), (*size)(void); /* of this thread, of the team */
} Team;

void run_team(void *data) {
    Team *team = data;
    /* They wait for one another, so fewer would wait for ever. */
    if (team->size() != team->threads) return;
    int number = team->number();
    if (number == 0) team->started = 1;
    team->work(team->arguments, number, team->scratch[number]);
}
