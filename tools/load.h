// load.h: what the files of `lq bench serve` share: lq_bench_serve.c what is asked, load_data.c what is sent,
// load_ask.c what is asked of the server before, load_run.c the load, load_http.c and load_chunk.c how answers are
// read, load_say.c what is printed.
#ifndef LQ_LOAD_H
#define LQ_LOAD_H
#include "tools/verb.h"

// --- an answer of HTTP/1.1, in any pieces (load_http.c) ---

typedef enum lq_load_part {
    LQ_LOAD_STATUS, LQ_LOAD_HEADER, LQ_LOAD_SIZED, LQ_LOAD_TO_END, LQ_LOAD_SIZE, LQ_LOAD_CHUNK, LQ_LOAD_CHUNK_END,
    LQ_LOAD_TRAILER, LQ_LOAD_DONE
} lq_load_part;

typedef struct lq_load_http {
    lq_load_part part;
    int status;
    bool chunked, sized, events; // events: the body is text/event-stream
    bool keep;                   // the connection may serve another request
    size_t left;                 // bytes of the body or of the chunk at hand
    lq_text line;                // the beginning of a line that has not ended
} lq_load_http;

typedef bool lq_load_sink(void *arg, const char *p, size_t n, lq_err *err);
void lq_load_http_begin(lq_load_http *h); // of the next answer; keeps its memory
bool lq_load_http_read(lq_load_http *h, const char *p, size_t n, lq_load_sink *body, void *arg, lq_err *err);
bool lq_load_http_end(lq_load_http *h, lq_err *err); // the connection ended: false where the answer had not

// Server-sent events out of a body: the sink gets the data of each.
typedef struct lq_load_events { lq_text line, data; bool any; } lq_load_events;
bool lq_load_events_read(lq_load_events *e, const char *p, size_t n, lq_load_sink *data, void *arg, lq_err *err);

// --- what a chunk says (load_chunk.c) ---

typedef struct lq_load_chunk {
    bool choice, content;   // it is of the answer; and has text, or a token whose text is held back
    int64_t input, output;  // tokens by usage, -1: not said
    bool failed;            // it is an error, which `error` tells
    char error[256];
} lq_load_chunk;
bool lq_load_chunk_read(const char *text, size_t n, lq_load_chunk *c, lq_err *err);
void lq_load_message(const char *body, size_t n, char *out, size_t size); // what a refusal says, one line

// --- requests ---

typedef struct lq_load_request {
    uint64_t draw;          // its own beginning of what is random in it
    double due;             // seconds after the start
    int input, output;      // tokens that it is to have; output is also the most that it may
    char *text;             // its prompt, NULL: made up
    int64_t *blocks;        // names of its blocks of LQ_LOAD_BLOCK tokens: the same name, the same tokens
    int block_count;
    // What came of it. Times as `due`, zero for never.
    double sent, first, last;
    double *gaps;           // between chunks
    size_t gap_count, gap_cap;
    int64_t input_said, output_said; // by usage; -1: not said
    int status;             // of HTTP
    bool over, good;
    const char *kind;       // of a failure
} lq_load_request;
enum { LQ_LOAD_BLOCK = 512, LQ_LOAD_KINDS = 24, LQ_LOAD_TOKENS = 1 << 20 };

typedef enum lq_load_baseline { LQ_LOAD_NONE, LQ_LOAD_STATIC, LQ_LOAD_DYNAMIC } lq_load_baseline;

typedef struct lq_load {
    // where
    char host[256], port[8], base[512]; // base: the path before /completions
    const char *model, *key;
    char *model_told;                   // by the server
    struct sockaddr *address;
    size_t address_size;
    int family;
    bool chat, quiet, closed;           // closed: who is answered asks again, none comes by a clock
    // what
    int prefix, vocab;                  // tokens that all begin with; ids below vocab, 0: words
    double words, beside;               // words for a token; tokens that a prompt has beside its words
    double temperature;
    bool ignore_eos;
    uint64_t seed;
    // how
    lq_load_request *q;
    size_t n;
    size_t most;                        // requests at a time
    lq_load_baseline baseline;
    double wait, timeout;               // seconds
    // what came of it
    double seconds, cpu;
    size_t peak;
    struct { char name[48]; size_t n; } kinds[LQ_LOAD_KINDS];
    char error[400];                    // the first one
    bool stopped;
} lq_load;

// load_data.c
typedef struct lq_load_plan { // of requests that are made up, and of when each is due
    const char *dataset;      // "random" or a file
    size_t count;             // 0: all of a file
    int input, output;        // output 0: a file's own
    double range, rate, speed; // rate 0: a trace's times, INFINITY: all at once
} lq_load_plan;
bool lq_load_make(lq_load *l, const lq_load_plan *p, lq_err *err);
void lq_load_body(const lq_load *l, const lq_load_request *q, lq_text *out); // as JSON
uint64_t lq_load_draw(uint64_t *state);

// load_ask.c
bool lq_load_url(lq_load *l, const char *url, lq_err *err);
// Finds an address that answers, the model's name, and what a prompt is to be made of.
bool lq_load_meet(lq_load *l, lq_err *err);
void lq_load_head(const lq_load *l, const char *method, const char *path, size_t body, lq_text *out);

// load_run.c
bool lq_load_run(lq_load *l, size_t warm, lq_err *err);
void lq_load_free(lq_load *l);

// load_say.c
typedef struct lq_load_goal { double ttft, tpot, itl, e2el; } lq_load_goal; // ms, 0: none
int lq_load_print(const lq_load *l, const lq_load_plan *p, const lq_load_goal *goal, bool json);
bool lq_load_save(const lq_load *l, const char *path, lq_err *err);
#endif
