// request.h: a request on its way through the engine, and the text that comes out of it. Everything a request will ever
// need is allocated when it is submitted (in the caller's thread), so that a step allocates nothing.
#ifndef LQ_REQUEST_H
#define LQ_REQUEST_H
#include "runtime/model/model.h"

typedef struct lq_req lq_req;

// One choice of a request: a sequence of tokens, and how far the cache holds them.
typedef struct lq_seq {
    lq_req *req;
    struct lq_seq *next;  // among those that wait for a place
    int choice;
    bool late;            // it never had one
    int kv;               // slot of lq_kv; -1: not in the cache
    struct { int tokens; int32_t first[LQ_KV_GROUPS]; } aside; // of aside.h; 0 tokens: nothing
    int len, done;        // tokens known; of which `done` stand in the cache
    int prompt;           // tokens before the first sampled one
    int fed;              // of them, those that the cache has held: computing them again is no news
    int32_t *ids;         // [prompt + max_tokens]
    lq_finish finish;
    lq_detok detok;       // begun with the prompt: the answer goes on in its text
    int chars;            // of the answer's text, delivered or held
    char *held;           // text not yet delivered: it may be the beginning of a stop string
    size_t holds, held_cap;
    int32_t *seen;        // distinct tokens and their counts, for penalties
    uint16_t *seen_n, *prompt_n;
    int32_t *seen_slot;   // [seen_cap] open addressing: index into seen, -1: free
    int seens, seen_cap;
} lq_seq;

struct lq_req {
    uint64_t id;
    struct lq_beam *beam; // the search that it is a round of; NULL: none
    lq_request r;         // with the pointers below
    lq_req *next;         // in the queue
    lq_seq *seq;          // [r.n]
    int prompt, max_tokens;
    uint64_t seed, order; // order: of arrival
    uint64_t round;       // its turn among those of its rank
    double arrived, until; // until: its deadline; 0: none
    bool aged;            // it has waited long
    char **stop;
    size_t *stop_len, longest_stop;
    int32_t *bias_id;     // the caller's, then the end tokens with -inf for min_tokens
    float *bias;
    int32_t *stop_ids;
    int live;             // choices not finished
    size_t bytes;         // all that was allocated for it
    int cached;           // prompt tokens that came from the cache
    _Atomic bool cancelled;
    bool received;        // a step has seen it
    bool entered;         // it has had a place
    bool dropped;         // the callback wants no more but the end
    int reported;         // prompt tokens whose logprobs were delivered
    double *sum;          // [wide] of an embedding: of the states so far
    float *vector;        // [dims] what becomes of it
    int wide, dims;
    int pooled, pool_end; // prompt tokens whose states are still to come: [pooled, pool_end)
    lq_detok told;        // of those, for where the next one begins
    int told_chars;
};

bool lq_req_new(const lq_model *m, const lq_request *r, int ctx, lq_req **out, lq_err *err);
void lq_req_free(lq_req *q);

// Tells the caller of the prompt's next token.
void lq_req_prompt(const lq_model *m, lq_req *q, const float *logprob, const lq_top *top, int top_n, char *work);
// What the sampler is to do for the next token of a sequence.
void lq_seq_draw(const lq_model *m, const lq_seq *s, lq_draw *out);
// Takes a sampled token: counts it, turns it into text, finds ends and stop strings, and tells the caller.
void lq_seq_take(const lq_model *m, lq_seq *s, const lq_drawn *d, const lq_top *top, char *work);
// Ends a choice with a last event.
void lq_seq_end(lq_seq *s, lq_finish why, const char *error, char *work);
// Whether a token ends an answer.
bool lq_req_ends(const lq_model *m, const lq_req *q, int32_t id);
// Room for one token's text, for lq_seq_take's `work`.
size_t lq_seq_work(const lq_model *m);

// embed.c. What an embedding asks for, and its room; the state of the token `pooled`; the vector of all of them, false:
// it is no number. Nothing to do where none is asked for.
bool lq_embed_check(const lq_model *m, const lq_request *r, lq_err *err);
bool lq_embed_open(const lq_model *m, lq_req *q);
void lq_embed_add(lq_req *q, const float *h);
bool lq_embed_end(lq_req *q);

// engine.c
lq_model *lq_engine_model(lq_engine *e);
double lq_engine_clock(void); // seconds of a clock that nobody sets
#endif
