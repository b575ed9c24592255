// bench.h: what the files of `lq bench` share: lq_bench.c what is asked, bench_run.c the measuring, bench_say.c what is
// printed.
#ifndef LQ_BENCH_H
#define LQ_BENCH_H
#include "kernels/meter.h"
#include "tools/verb.h"
#include <pthread.h>

enum { LQ_BENCH_LIST = 16, LQ_BENCH_REPEATS = LQ_METER_MOST };
typedef struct lq_bench_list { int at[LQ_BENCH_LIST], n; } lq_bench_list;

typedef enum lq_bench_format { LQ_BENCH_MD, LQ_BENCH_CSV, LQ_BENCH_JSON } lq_bench_format;

// `batch` sequences that have `depth` tokens in the cache read `prompt` more and then make `tokens`; either may be 0.
typedef struct lq_bench_test { int prompt, tokens, depth, batch; } lq_bench_test;

typedef struct lq_bench_row { // one test by one model and number of threads
    int runner;
    lq_bench_test test;
    lq_work work;         // what it asks for; bytes 0: it reads more than weights, or reads them seldom
    int count;            // repetitions that are done
    double seconds[LQ_BENCH_REPEATS];
    lq_work ceiling[LQ_BENCH_REPEATS]; // a second, measured before and after each; the better one
} lq_bench_row;

typedef struct lq_bench_runner { // a model opened for a number of threads
    const char *path;
    int model, threads;   // model: of those that were named
    lq_model *m;
    lq_engine *e;
    lq_model_info info;
} lq_bench_runner;

typedef struct lq_bench_line { int threads; lq_meter_line at; } lq_bench_line; // of a micro-kernel

typedef struct lq_bench {
    // what is asked
    const char *const *paths;
    int models, repeats;
    lq_bench_list threads;
    lq_bench_test *tests;
    int test_count;
    bool kernels, quiet;
    const char *name;     // of kernels
    lq_model_opts opts;
    lq_bench_format format;
    char machine[64];
    // what was measured: rows [tests][runners]
    lq_bench_runner *runners;
    int runner_count;
    lq_bench_row *rows;
    lq_bench_line *lines;
    size_t line_count, line_cap;
    size_t peak;          // bytes of memory that the process has held
    pthread_mutex_t lock; // of what follows, and of every count above
    pthread_cond_t bell;
    bool over, stopped;   // the measuring has ended; nobody waits for it any more
    bool done;            // and was not in vain
    lq_err err;
} lq_bench;

// Opens every model and engine. Refuses a test that does not fit a context, and what does not fit memory.
bool lq_bench_open(lq_bench *b, lq_err *err);
bool lq_bench_measure(lq_bench *b, lq_err *err); // repetition by repetition; LQ_E_CANCELLED after Ctrl-C
bool lq_bench_kernels(lq_bench *b, lq_err *err);
void lq_bench_close(lq_bench *b);

int lq_bench_print(lq_bench *b); // what there is; returns the exit status
#endif
