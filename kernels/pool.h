// pool.h: the threads of a CPU device. Tasks are claimed from an atomic counter, so who does what never decides a bit:
// a task's borders are fixed by the caller and each output element belongs to one task.
#ifndef LQ_POOL_H
#define LQ_POOL_H
#include "formats/err.h"

typedef struct lq_pool lq_pool;
typedef void lq_task(void *arg, int task, int worker);

// threads: 0 = one per core that this process may use, by its affinity and its control groups. The caller of
// lq_pool_run is worker 0.
bool lq_pool_open(int threads, lq_pool **out, lq_err *err);
void lq_pool_close(lq_pool *p);
int lq_pool_threads(const lq_pool *p);
// Runs fn(arg, 0..tasks-1, worker) and returns when all are done. Not reentrant; allocates nothing.
void lq_pool_run(lq_pool *p, lq_task *fn, void *arg, int tasks);
// The same of rows that may write to one cache line: up to 16 neighbours, a line of f32, go to one worker, in order, as
// long as each worker has four turns.
void lq_pool_rows(lq_pool *p, lq_task *fn, void *arg, int rows);
#endif
