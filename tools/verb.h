// verb.h: a verb of the program as data. The same table parses, prints help, completes in the shell and makes the man
// page. To add a verb: write lq_<verb>.c with its struct of arguments, its option table and one `const lq_verb
// lq_verb_<verb>`, declare that below and name it in lq.c's table.
#ifndef LQ_VERB_H
#define LQ_VERB_H
#include "formats/json.h"
#include "runtime/lq.h"
#include <stdio.h>

typedef enum lq_opt_kind {
    LQ_OPT_FLAG,   // bool
    LQ_OPT_INT,    // int64_t within [min, max]
    LQ_OPT_INT32,  // int32_t within [min, max]
    LQ_OPT_SIZE,   // size_t: 512M, 4G, 1.5GiB
    LQ_OPT_NUM,    // double within [min, max]
    LQ_OPT_FLOAT,  // float within [min, max]
    LQ_OPT_TEXT,   // const char *
    LQ_OPT_FILE,   // const char *, completed as a file
    LQ_OPT_CHOICE, // const char *, one of what `choice` tells
    LQ_OPT_LIST    // lq_list, one more text each time it is given
} lq_opt_kind;

typedef struct lq_list { const char **p; size_t n; } lq_list;

// The i-th value that an option may have, NULL past the last: read from the table of those who know it, so that a new
// row there is parsed, explained and completed.
typedef const char *lq_choice(size_t i);

typedef struct lq_opt {
    const char *name;    // "threads": --threads N, --threads=N
    char letter;         // 't': -t N, or 0
    lq_opt_kind kind;
    size_t offset;       // of the field in the verb's struct
    const char *value;   // what the help calls the value: "N"
    const char *help;    // one line
    lq_choice *choice;
    double min, max;     // both 0: no limits
} lq_opt;

typedef struct lq_verb {
    const char *name;       // "bench serve": a verb below another, whose words it would otherwise get
    const char *synopsis;   // its words, "MODEL [PROMPT]"; the shell completes VERB as a verb, "bash|zsh" as a choice
    const char *summary;    // one line, for `lq help`
    const char *detail;     // paragraphs, may be NULL
    const char *const *examples; // command line, then what it does, NULL-terminated
    const lq_opt *opts;
    size_t opt_count;
    size_t size;            // of the verb's struct, which starts with lq_common
    const void *init;       // what it is before parsing; NULL: zeros
    int min_args, max_args; // words that are not options; max -1: any number
    bool plain;             // what it prints is text as it is: it takes neither --json nor --quiet
    // argv: the words alone. Exit status: 0 done, 1 failed, 2 wrong usage.
    int (*run)(void *args, int argc, char **argv);
} lq_verb;
extern const lq_verb lq_verb_inspect, lq_verb_quantize, lq_verb_run, lq_verb_eval, lq_verb_serve, lq_verb_batch,
    lq_verb_bench, lq_verb_bench_serve, lq_verb_template, lq_verb_tokenize, lq_verb_version, lq_verb_completion,
    lq_verb_man, lq_verb_help;
extern const lq_verb *const lq_verbs[]; // in the order of `lq help`, NULL-terminated
// The verb that the first one or two words name, which are then taken. NULL: there is none.
const lq_verb *lq_verb_take(int *count, char ***words);
int lq_verb_unknown(const char *word);         // the usage error, with the nearest verb; returns 2

// First member of every verb's struct. --help is parsed for every verb, --json and --quiet
// for those that are not `plain`.
typedef struct lq_common { bool json, quiet; } lq_common;

// Options every verb that opens a model shares; use LQ_MODEL_OPTS(struct, member) in the table.
typedef struct lq_model_args {
    const char *device, *isa, *kv, *numerics;
    int64_t threads, ctx;
    bool exact;
} lq_model_args;
#define LQ_MODEL_OPTS(T, m)                                                                                                        \
    {"device", 'd', LQ_OPT_TEXT, offsetof(T, m.device), "DEV", "where to run: cpu, cuda, cuda:1", NULL, 0, 0},                      \
    {"isa", 0, LQ_OPT_CHOICE, offsetof(T, m.isa), "ISA", "no better instructions than these", lq_isa_name, 0, 0},                  \
    {"threads", 't', LQ_OPT_INT, offsetof(T, m.threads), "N", "CPU threads (default: one per core)", NULL, 1, 1024},                \
    LQ_MODEL_NUMERICS(T, m)
// Those of them that say nothing of where it runs.
#define LQ_MODEL_NUMERICS(T, m)                                                                                                    \
    {"ctx", 'c', LQ_OPT_INT, offsetof(T, m.ctx), "N", "longest sequence (default: the model's)", NULL, 1, 1 << 24},                 \
    {"kv-dtype", 0, LQ_OPT_CHOICE, offsetof(T, m.kv), "TYPE", "element type of the KV cache (default: f16 or bf16, exact f32)", lq_kv_name, 0, 0},                          \
    {"numerics", 0, LQ_OPT_CHOICE, offsetof(T, m.numerics), "HOW", "arithmetic (fast: on a GPU results may depend on their batch)",                     \
     lq_numerics_name, 0, 0},                                                                                                      \
    {"exact", 0, LQ_OPT_FLAG, offsetof(T, m.exact), NULL, "--numerics exact: f32 activations and residual, and KV unless said: slower, for comparison", NULL, 0, 0}

// What the shared options say to lq_model_open.
lq_model_opts lq_model_args_opts(const lq_model_args *a);
// 0, or the exit status of what was said of --exact beside other --numerics.
int lq_model_args_check(const char *verb, const lq_model_args *a);

// Options that verbs share which answer requests of others, for one struct member of this type.
typedef struct lq_answer_args {
    const char *name, *chat_template;
    int64_t max_seqs, max_batch, max_prefill, kv_block;
    size_t kv_memory, swap_memory, max_body;
    bool no_prefix, no_swap;
} lq_answer_args;
#define LQ_ANSWER_OPTS(T, m)                                                                                                       \
    {"name", 0, LQ_OPT_TEXT, offsetof(T, m.name), "NAME", "what requests call the model (default: from the file's name)",           \
     NULL, 0, 0},                                                                                                                  \
    {"chat-template", 0, LQ_OPT_FILE, offsetof(T, m.chat_template), "FILE",                                                         \
     "the chat template, in place of the model's own: a file, or the text of one", NULL, 0, 0},                                     \
    {"max-seqs", 0, LQ_OPT_INT, offsetof(T, m.max_seqs), "N", "sequences in one step (default: 64)", NULL, 1, 4096},               \
    {"max-batch-tokens", 0, LQ_OPT_INT, offsetof(T, m.max_batch), "N", "tokens in one step (default: 512)", NULL, 1, 65536},              \
    {"max-prefill-tokens", 0, LQ_OPT_INT, offsetof(T, m.max_prefill), "N",                                                                 \
     "of these, tokens of prompts: fewer keep streams even, more answer sooner (default: all that fit, on a CPU 128 while anyone decodes)", NULL, 1, 65536},                    \
    {"kv-block", 0, LQ_OPT_INT, offsetof(T, m.kv_block), "N", "tokens in a block of the KV cache: 16, 32 (default) or 64",         \
     NULL, 16, 64},                                                                                                                \
    {"kv-memory", 0, LQ_OPT_SIZE, offsetof(T, m.kv_memory), "SIZE",                                                                \
     "memory for the KV cache (default: by the model and the machine)", NULL, 0, 0},                                               \
    {"swap-memory", 0, LQ_OPT_SIZE, offsetof(T, m.swap_memory), "SIZE",                                                            \
     "the host's memory for sequences that a GPU's KV cache has no room for (default: 4G)", NULL, 0, 0},                           \
    {"no-swap", 0, LQ_OPT_FLAG, offsetof(T, m.no_swap), NULL, "compute what they had again instead", NULL, 0, 0},                  \
    {"no-prefix-cache", 0, LQ_OPT_FLAG, offsetof(T, m.no_prefix), NULL,                                                             \
     "compute every prompt whole, also what the KV cache still holds of its beginning", NULL, 0, 0},                                \
    {"max-body", 0, LQ_OPT_SIZE, offsetof(T, m.max_body), "SIZE", "largest request (default: 4M)", NULL, 0, 0}

// What they say to lq_engine_open.
lq_engine_opts lq_answer_args_opts(const lq_answer_args *a);
// 0, or the exit status of what was said of them.
int lq_answer_args_check(const char *verb, const lq_answer_args *a);
// Tells of a --ctx beyond what the model was trained for.
void lq_ctx_warn(const char *verb, const lq_model *m);
// Fills in the name by which the model at `path` goes where none was given, and makes of a template's file its text.
// texts are to be freed, also after a failure.
bool lq_answer_args_read(lq_answer_args *a, const char *path, char *texts[2], lq_err *err);

// --- options (opts.c) ---

// The i-th option of a verb, its own ones first, then --json, --quiet, --help; NULL past the last.
const lq_opt *lq_verb_opt(const lq_verb *v, size_t i);
// Fills args (zeroed) and moves the words that are not options to words[0..*count). Returns 0, or 2 after lq_say_usage;
// *help: the user asked for the help. lq_opts_free gives back the lists.
int lq_opts_parse(const lq_verb *v, int argc, char **argv, void *args, char **words, int *count, bool *help);
void lq_opts_free(const lq_verb *v, void *args);
// The candidate nearest to `word` by edit distance, or NULL if none is near. `next` returns the i-th candidate or NULL.
const char *lq_opts_nearest(const char *word, const char *(*next)(const void *of, size_t i), const void *of);
// The help of one verb, or (v NULL) of the program (help.c).
void lq_help_print(const lq_verb *v, FILE *f);

// --seed as a number of at most `most`. 0, or the exit status of what was said.
int lq_opts_seed(const char *verb, const char *text, uint64_t most, uint64_t *out);
// NAME=JSON of --var as a variable of a template: its name is a copy (free). 0, or the exit status of what was said.
int lq_opts_var(const char *verb, const char *text, lq_template_var *out);

// --- what comes in from outside (input.c) ---

// A whole file ("-": standard input), allocated, NUL-terminated (the NUL is not counted).
bool lq_input_read(const char *path, size_t limit, char **text, size_t *n, lq_err *err);
double lq_seconds(void); // of a clock that nobody sets
// Once, at the start: a mapped file that becomes shorter ends the program with a line, a limit on file
// sizes is an error of the write.
void lq_input_guard(void);
// From here on Ctrl-C does not kill the program but makes lq_input_stopped true; a second one kills, and so does the
// first where nobody asks for a second. For verbs that leave nothing half done when they are killed.
void lq_input_catch(void);
bool lq_input_stopped(void);
// What was heard is over. From here on signals kill, or (deaf, for who reads Ctrl-C as a key) SIGINT does nothing.
void lq_input_forget(bool deaf);
size_t lq_input_memory(void); // bytes of this process that are no file's; 0: nobody knows
void lq_machine_name(char *out, size_t size); // the processor's own (lq_version.c)

// --- what every verb prints with (say.c) ---

// Text of a file or of the command line goes through one of these five (or a table's cells): a terminal
// shows it and obeys nothing in it. Controls, marks that turn the direction of writing and bytes that are
// not UTF-8 become \n, \x1b, \u{202e}.
void lq_say_text(FILE *f, const char *text, size_t n, bool lines); // lines: line feeds and tabs stay as they are
char *lq_say_shown(const char *text);                              // such a text, allocated; NULL: no memory
void lq_say(FILE *f, const char *fmt, ...) LQ_PRINTF(2, 3);        // what printf makes of it, fmt's line feeds too
void lq_say_line(FILE *f, const char *fmt, ...) LQ_PRINTF(2, 3);   // the same, and then a line feed
// A number of JSON: null where it is no number or has no end.
void lq_say_number(lq_text *t, double x, int digits);
// Prints such a text and a line feed, and frees it. The exit status: 1 and an error where there was no memory for it.
int lq_say_json(lq_text *t);
// Prints "lq: <text>" to stderr and returns 1: the last line of a failed verb.
int lq_say_error(const lq_err *err);
// Usage error: "lq <verb>: <text>", a hint at --help; returns 2.
int lq_say_usage(const char *verb, const char *fmt, ...) LQ_PRINTF(2, 3);
bool lq_say_cursor(FILE *f); // a terminal that obeys escape sequences
bool lq_say_color(FILE *f);  // such a one, and NO_COLOR is not set
// Starts a style on such a file ("1" bold, "2" dim, "31" red), "" ends it; elsewhere writes nothing.
void lq_say_style(FILE *f, const char *code);
// "1.23 GB", "4m 05s", "12.3k": into one of a few static buffers.
const char *lq_say_bytes(double bytes);
const char *lq_say_time(double seconds);
const char *lq_say_count(double n);
// A bar with rate and time left on a terminal, a plain line now and then otherwise, nothing with --quiet. On stderr.
// A total of 0 is not known: how much is done is told, and how fast it goes.
typedef struct lq_bar {
    const char *what, *unit;
    double start, last;
    double from; // how much was there before the start, which tells nothing of how fast it goes
    bool tty, quiet;
    size_t total;
    int percent;
} lq_bar;
void lq_bar_begin(lq_bar *b, const char *what, const char *unit, size_t total, bool quiet);
void lq_bar_at(lq_bar *b, size_t done, const char *note);
void lq_bar_share(lq_bar *b, double done, const char *note); // the same of what is not whole
void lq_bar_end(lq_bar *b);
// A table whose columns line up: cells are texts; the first row is the head. Numbers are aligned to the right.
typedef struct lq_table lq_table;
lq_table *lq_table_new(int columns, const char *const *head);
void lq_table_row(lq_table *t, const char *const *cells);
void lq_table_trim(lq_table *t); // columns that have a head and nothing below it go
void lq_table_print(lq_table *t, FILE *f); // and frees
void lq_table_markdown(lq_table *t, FILE *f); // the same as markdown
int lq_say_width(const char *text); // columns that a UTF-8 text takes on a terminal
#endif
