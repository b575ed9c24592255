// verb.h: a verb of the program as data. The same table parses, prints help, completes in the shell and makes the man page.
// To add a verb: write lq_<verb>.c with its struct of arguments, its option table and one lq_verb, and name it in lq.c.
#ifndef LQ_VERB_H
#define LQ_VERB_H
#include "formats/err.h"
#include <stdio.h>

typedef enum lq_opt_kind {
    LQ_OPT_FLAG,   // bool
    LQ_OPT_INT,    // int64_t within [min, max]
    LQ_OPT_SIZE,   // size_t: 512M, 4G, 1.5GiB
    LQ_OPT_NUM,    // double within [min, max]
    LQ_OPT_TEXT,   // const char *
    LQ_OPT_FILE,   // const char *, completed as a file
    LQ_OPT_CHOICE, // const char *, one of `choices`
    LQ_OPT_LIST    // lq_list *, may be given again
} lq_opt_kind;

typedef struct lq_list { const char **p; size_t n; } lq_list;

typedef struct lq_opt {
    const char *name;    // "threads": --threads N, --threads=N
    char letter;         // 't': -t N, or 0
    lq_opt_kind kind;
    size_t offset;       // of the field in the verb's struct
    const char *value;   // what the help calls the value: "N"
    const char *help;    // one line
    const char *choices; // "auto|c|avx2|avx512"
    double min, max;     // both 0: no limits
} lq_opt;

typedef struct lq_verb {
    const char *name;
    const char *synopsis;   // "MODEL OUT"
    const char *summary;    // one line, for `lq help`
    const char *detail;     // paragraphs, may be NULL
    const char *const *examples; // command line, then what it does, NULL-terminated
    const lq_opt *opts;
    size_t opt_count;
    size_t size;            // of the verb's struct, which starts with lq_common and is zeroed before parsing
    int min_args, max_args; // words that are not options; max -1: any number
    int (*run)(void *args, int argc, char **argv); // exit status: 0 done, 1 failed, 2 wrong usage
} lq_verb;

// First member of every verb's struct. --json, --quiet, --help are parsed for every verb.
typedef struct lq_common { bool json, quiet; } lq_common;

// Options every verb that opens a model shares; use LQ_MODEL_OPTS(struct, member) in the table.
typedef struct lq_model_args { const char *device, *isa, *kv; int64_t threads, ctx; bool exact; } lq_model_args;
#define LQ_MODEL_OPTS(T, m)                                                                                                        \
    {"device", 'd', LQ_OPT_TEXT, offsetof(T, m.device), "DEV", "where to run: cpu, cuda, cuda:1", NULL, 0, 0},                      \
    {"isa", 0, LQ_OPT_CHOICE, offsetof(T, m.isa), "ISA", "no better instructions than these", "auto|c|avx2|avx512", 0, 0},         \
    {"threads", 't', LQ_OPT_INT, offsetof(T, m.threads), "N", "CPU threads (default: one per core)", NULL, 1, 1024},                \
    {"ctx", 'c', LQ_OPT_INT, offsetof(T, m.ctx), "N", "longest sequence (default: the model's)", NULL, 1, 1 << 24},                 \
    {"kv", 0, LQ_OPT_CHOICE, offsetof(T, m.kv), "TYPE", "element type of the KV cache", "auto|f32|f16|bf16", 0, 0},                 \
    {"exact", 0, LQ_OPT_FLAG, offsetof(T, m.exact), NULL, "f32 activations, residual and KV: slower, for comparison", NULL, 0, 0}

// --- what every verb prints with (say.c) ---
// Prints "lq: <text>" to stderr and returns 1: the last line of a failed verb.
int lq_say_error(const lq_err *err);
// Usage error: "lq <verb>: <text>", a hint at --help; returns 2.
int lq_say_usage(const char *verb, const char *fmt, ...) LQ_PRINTF(2, 3);
// "1.23 GB", "4m 05s", "12.3k": into one of a few static buffers.
const char *lq_say_bytes(double bytes);
const char *lq_say_time(double seconds);
const char *lq_say_count(double n);
// A bar with rate and time left on a terminal, a plain line now and then otherwise, nothing with --quiet. On stderr.
typedef struct lq_bar { const char *what, *unit; double start, last; bool tty, quiet; size_t total; int percent; } lq_bar;
void lq_bar_begin(lq_bar *b, const char *what, const char *unit, size_t total, bool quiet);
void lq_bar_at(lq_bar *b, size_t done, const char *note);
void lq_bar_end(lq_bar *b);
// A table whose columns line up: cells are texts; the first row is the head. Numbers are aligned to the right.
typedef struct lq_table lq_table;
lq_table *lq_table_new(int columns, const char *const *head);
void lq_table_row(lq_table *t, const char *const *cells);
void lq_table_print(lq_table *t, FILE *f); // and frees
#endif
