// pool.c: the threads of a CPU device: a fork and join of about a microsecond while they are hot, asleep when they are
// not. Owns its threads. Refuses nothing at run time: fewer cores than threads only makes it slower.
//
// One 64-bit word holds the number of the run and how many tasks wait. A task is claimed by
// compare-and-swap on the whole word, so a worker that comes late cannot take a task of another run, and
// nobody waits for a worker that has not woken up.
#include "kernels/pool.h"
#include "kernels/groups.h"
#include "kernels/nodes.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 1024, SPIN_US = 100, LINE = 64, TURNS = 4 };

typedef struct worker { pthread_t thread; lq_pool *pool; int id; } worker;

struct lq_pool {
    _Alignas(LINE) _Atomic uint64_t claim; // run << 32 | tasks not claimed yet
    _Alignas(LINE) _Atomic uint32_t run;   // what sleeping workers wait on; follows claim
    _Alignas(LINE) _Atomic uint32_t left;  // tasks of this run that are not done
    _Alignas(LINE) _Atomic uint32_t asleep, joining;
    _Atomic uint32_t tasks, each; // each: how many are claimed at once
    _Atomic(lq_task *) fn;
    _Atomic(void *) arg;
    atomic_bool stop;
    int threads, wanted; // wanted: those there will be
    bool spin;
    worker *workers; // [threads], [0] unused
};

static void futex_wait(_Atomic uint32_t *at, uint32_t value) {
    syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *at) { syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

// Waits, awake for a while, until *at is not `value`; false: it still is.
static bool spin_while(const lq_pool *p, _Atomic uint32_t *at, uint32_t value) {
    if (!p->spin) return atomic_load_explicit(at, memory_order_acquire) != value;
    for (int64_t end = 0;;) {
        for (int i = 0; i < 64; i++, relax())
            if (atomic_load_explicit(at, memory_order_acquire) != value) return true;
        int64_t t = now_us();
        if (!end) end = t + SPIN_US;
        else if (t > end) return false;
    }
}

// Takes tasks of run `run`, in order, until none waits. fn and so on are read before a claim succeeds: its success
// proves that a task of this run still waited, so that they had not been replaced.
static void work(lq_pool *p, uint32_t run, int id) {
    uint64_t c = atomic_load_explicit(&p->claim, memory_order_acquire);
    while ((uint32_t)(c >> 32) == run && (uint32_t)c > 0) {
        lq_task *fn = atomic_load_explicit(&p->fn, memory_order_relaxed);
        void *arg = atomic_load_explicit(&p->arg, memory_order_relaxed);
        uint32_t task = atomic_load_explicit(&p->tasks, memory_order_relaxed) - (uint32_t)c;
        uint32_t n = atomic_load_explicit(&p->each, memory_order_relaxed);
        if (n > (uint32_t)c) n = (uint32_t)c;
        if (!atomic_compare_exchange_weak_explicit(&p->claim, &c, c - n, memory_order_acq_rel, memory_order_acquire))
            continue;
        for (uint32_t i = 0; i < n; i++) fn(arg, (int)(task + i), id);
        if (atomic_fetch_sub(&p->left, n) == n && atomic_load(&p->joining)) futex_wake(&p->left);
        c = atomic_load_explicit(&p->claim, memory_order_acquire);
    }
}

static void *worker_main(void *arg) {
    const worker *w = arg;
    lq_pool *p = w->pool;
    if (p->spin) lq_nodes_bind(LQ_NODES_ROOT, w->id, p->wanted);
    for (uint32_t seen = 0;;) {
        if (!spin_while(p, &p->run, seen)) {
            atomic_fetch_add(&p->asleep, 1);
            while (atomic_load(&p->run) == seen) futex_wait(&p->run, seen);
            atomic_fetch_sub(&p->asleep, 1);
        }
        seen = atomic_load_explicit(&p->run, memory_order_acquire);
        if (atomic_load_explicit(&p->stop, memory_order_relaxed)) return NULL;
        work(p, seen, w->id);
    }
}

static int cores(void) {
    cpu_set_t set;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    int n = online > 0 ? (int)online : 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
    const int most = lq_groups_cores(LQ_GROUPS_SELF, LQ_GROUPS_ROOT);
    return n < most ? n : most;
}

// Makes the next run known to everybody. Sequentially consistent with `asleep`: a worker that is about to sleep either
// is counted here or sees the new number.
static uint32_t announce(lq_pool *p, uint32_t tasks) {
    uint32_t run = atomic_load_explicit(&p->run, memory_order_relaxed) + 1;
    atomic_store_explicit(&p->claim, (uint64_t)run << 32 | tasks, memory_order_release);
    atomic_store(&p->run, run);
    if (atomic_load(&p->asleep)) futex_wake(&p->run);
    return run;
}

static void run_by(lq_pool *p, lq_task *fn, void *arg, int tasks, int each) {
    if (tasks <= 0) return;
    if (tasks == 1 || p->threads == 1) {
        for (int i = 0; i < tasks; i++) fn(arg, i, 0);
        return;
    }
    atomic_store_explicit(&p->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&p->arg, arg, memory_order_relaxed);
    atomic_store_explicit(&p->tasks, (uint32_t)tasks, memory_order_relaxed);
    atomic_store_explicit(&p->each, (uint32_t)each, memory_order_relaxed);
    atomic_store_explicit(&p->left, (uint32_t)tasks, memory_order_relaxed);
    work(p, announce(p, (uint32_t)tasks), 0);
    for (uint32_t left; (left = atomic_load_explicit(&p->left, memory_order_acquire)) != 0;) {
        if (spin_while(p, &p->left, left)) continue;
        atomic_store(&p->joining, 1);
        if ((left = atomic_load(&p->left)) != 0) futex_wait(&p->left, left);
        atomic_store(&p->joining, 0);
    }
}

void lq_pool_run(lq_pool *p, lq_task *fn, void *arg, int tasks) { run_by(p, fn, arg, tasks, 1); }

void lq_pool_rows(lq_pool *p, lq_task *fn, void *arg, int rows) {
    int each = 1;
    while (each < LINE / (int)sizeof(float) && rows / (each * 2) >= p->threads * TURNS) each *= 2;
    run_by(p, fn, arg, rows, each);
}

int lq_pool_threads(const lq_pool *p) { return p->threads; }

void lq_pool_close(lq_pool *p) {
    if (!p) return;
    atomic_store(&p->stop, true);
    announce(p, 0);
    for (int i = 1; i < p->threads; i++) pthread_join(p->workers[i].thread, NULL);
    free(p->workers);
    free(p);
}

bool lq_pool_open(int threads, lq_pool **out, lq_err *err) {
    *out = NULL;
    int have = cores();
    if (threads == 0) threads = have;
    if (threads < 1 || threads > MAX_THREADS)
        return lq_fail(err, LQ_E_USAGE, "threads: found %d, expected 1 to %d", threads, MAX_THREADS);
    lq_pool *p = aligned_alloc(LINE, (sizeof *p + LINE - 1) / LINE * LINE);
    worker *workers = calloc((size_t)threads, sizeof *workers);
    if (!p || !workers) {
        free(p);
        free(workers);
        return lq_fail(err, LQ_E_MEMORY, "threads: no memory for %d", threads);
    }
    *p = (lq_pool){.threads = 1, .wanted = threads, .spin = threads <= have, .workers = workers};
    for (int i = 1; i < threads; i++) {
        workers[i] = (worker){.pool = p, .id = i};
        int e = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
        if (e) {
            lq_pool_close(p);
            return lq_fail(err, LQ_E_MEMORY, "threads: the system gave %d of %d", i, threads);
        }
        p->threads = i + 1;
    }
    *out = p;
    return true;
}
