// test_pool.c: every task runs once, on a valid worker, before lq_pool_run returns, rows by lines of neighbours; late
// workers, sleeping workers, more threads than cores; a fork and join is short while the threads are hot.
#include "kernels/pool.h"
#include "tests/unit/test.h"
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 5000 };
typedef struct job { atomic_int ran[MOST], by[MOST], bad; int threads, tasks; uint64_t made; } job;

static void count(void *arg, int task, int worker) {
    job *j = arg;
    if (task < 0 || task >= j->tasks || worker < 0 || worker >= j->threads) atomic_fetch_add(&j->bad, 1);
    else {
        atomic_fetch_add_explicit(&j->ran[task], 1, memory_order_relaxed);
        j->by[task] = worker;
    }
}

static void sum(void *arg, int task, int worker) { // unsynchronised writes of one task each: run must make them visible
    (void)worker;
    ((uint64_t *)arg)[task] += (uint64_t)task + 1;
}

static void meet(void *arg, int task, int worker) { // ends when both threads are in it
    (void)task;
    (void)worker;
    atomic_int *here = arg;
    const int mine = atomic_fetch_add(here, 1);
    while (atomic_load_explicit(here, memory_order_relaxed) < (mine | 1) + 1) {}
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void test_threads(int threads) {
    static job j;
    static uint64_t sums[97];
    lq_err err;
    lq_pool *p;
    CHECK(lq_pool_open(threads, &p, &err), "%s", err.text);
    if (!p) return;
    CHECK(lq_pool_threads(p) == threads || !threads, "asked for %d threads, got %d", threads, lq_pool_threads(p));
    j.threads = lq_pool_threads(p);
    static const int sizes[] = {0, 1, 2, 3, 7, 64, MOST};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        memset(&j.ran, 0, sizeof j.ran);
        j.bad = 0;
        j.tasks = sizes[s];
        lq_pool_run(p, count, &j, j.tasks);
        bool once = j.bad == 0;
        for (int i = 0; i < MOST; i++) once &= j.ran[i] == (i < j.tasks);
        CHECK(once, "%d threads, %d tasks: not each once", threads, sizes[s]);
        memset(&j.ran, 0, sizeof j.ran);
        lq_pool_rows(p, count, &j, j.tasks);
        once = j.bad == 0;
        for (int i = 0; i < MOST; i++) once &= j.ran[i] == (i < j.tasks);
        CHECK(once, "%d threads, %d rows: not each once", threads, sizes[s]);
        bool near = true;
        for (int i = 0; i < j.tasks; i++) near &= j.by[i] == j.by[i / 16 * 16];
        CHECK(near || j.tasks < 16 * 4 * j.threads, "%d threads, %d rows: a line of neighbours has several workers",
              threads, sizes[s]);
    }
    memset(sums, 0, sizeof sums);
    const int runs = 3000;
    for (int i = 0; i < runs; i++) {
        // The number of tasks changes: a late worker must not take one of the next run.
        lq_pool_run(p, sum, sums, 1 + i % 97);
        if (i % 1000 == 999) usleep(2000); // long enough to fall asleep
    }
    bool right = true;
    for (int i = 0; i < 97; i++) {
        uint64_t want = 0;
        for (int r = 0; r < runs; r++) want += r % 97 >= i ? (uint64_t)i + 1 : 0;
        right &= sums[i] == want;
    }
    CHECK(right, "%d threads: a task of many runs was lost or done twice", threads);
    lq_pool_close(p);
}

static void test_meet(void) { // both workers are in the run at once, or it would not end; the time is told, not tested
    lq_err err;
    lq_pool *p;
    if (!lq_pool_open(2, &p, &err)) {
        CHECK(false, "%s", err.text);
        return;
    }
    double best = 1;
    atomic_int here = 0;
    for (int round = 0; round < 200; round++) {
        const double t = now();
        for (int i = 0; i < 20; i++) lq_pool_run(p, meet, &here, 2);
        const double one = (now() - t) / 20;
        best = one < best ? one : best;
    }
    printf("fork, meet and join of 2 threads: %.2f us\n", best * 1e6);
    lq_pool_close(p);
}

int main(void) {
    static const int threads[] = {0, 1, 2, 3, 16};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) test_threads(threads[i]);
    lq_err err;
    lq_pool *p;
    CHECK(!lq_pool_open(-1, &p, &err) && !p && err.code == LQ_E_USAGE, "a negative number of threads was taken");
    CHECK(!lq_pool_open(1 << 20, &p, &err) && !p, "a million threads were taken");
    if (sysconf(_SC_NPROCESSORS_ONLN) >= 2) test_meet();
    else SKIP("fork and join: one core");
    return test_end();
}
