// server.h: what http.c and openai.c share: the requests and the answers of the OpenAI protocol as data, with no socket
// in sight. openai.c knows nothing of HTTP but status codes; http.c owns connections, threads and time.
#ifndef LQ_SERVER_H
#define LQ_SERVER_H
#include "runtime/lq.h"
#include "formats/json.h"

// What a client is told instead of an answer.
typedef struct lq_refusal {
    int status;       // of HTTP
    const char *code; // "context_length_exceeded"; NULL: none
    char param[64];   // the field at fault, or ""
    char text[432];
} lq_refusal;
// Fills *no and returns false. `param` may be NULL. Control characters of the text are replaced by '?'.
bool lq_refuse(lq_refusal *no, int status, const char *param, const char *code, const char *fmt, ...)
    LQ_PRINTF(5, 6) LQ_COLD;
// {"error":{"message","type","param","code"}}
void lq_refusal_write(const lq_refusal *no, lq_text *out);

// What requests are checked against.
typedef struct lq_api {
    const lq_model *model; // NULL only where nothing is tokenized
    const char *name;      // of the model, as clients say it
    int vocab, ctx;
    size_t max_body;
    bool priorities;       // may be asked for
} lq_api;

typedef struct lq_prompt {
    const char *text; // NULL: given as tokens; borrowed from the tree
    size_t len;
    int32_t *ids;     // [count]
    size_t count;
} lq_prompt;

// A parsed POST /v1/completions.
typedef struct lq_completion {
    lq_prompt *prompts; // [prompt_count]
    int64_t prompt_count;
    lq_request ask;    // for each of them: what the engine is asked, as the fields say it
    int64_t best_of, logprobs /* -1: none */;
    bool stream, stream_options, usage, echo, special;
    const char **stop; // what `ask` points to; the texts are borrowed from the tree
    int32_t *stop_ids, *bias_id;
    float *bias;
    cJSON *tree;
} lq_completion;

// Reads, checks every field and refuses by name. Needs no model: prompts given as text stay text.
bool lq_openai_parse(const lq_api *api, const char *body, size_t n, lq_completion *c, lq_refusal *no);
// Turns texts into tokens and holds lengths against the context.
bool lq_openai_encode(const lq_api *api, lq_completion *c, lq_refusal *no);
// The engine's request for one of the prompts; borrows from *c. on_event and arg are the caller's to fill in.
lq_request lq_openai_request(const lq_completion *c, int64_t prompt);
void lq_completion_free(lq_completion *c);

// One choice being collected. The texts but the first are the insides of JSON arrays, filled
// where logprobs were asked for.
typedef struct lq_choice {
    lq_text text, tokens, values, tops, offsets;
    int64_t echoed; // characters of the prompt that stand before the answer
    lq_finish finish;
} lq_choice;

// The answer to a completion, fed by events: a stream's bytes grow in `out`, a whole answer stands in it when `open`
// is 0.
typedef struct lq_answer {
    const lq_api *api;
    char id[32];
    int64_t created;
    bool stream, usage, echo, logprobs;
    int top_n;
    int64_t prompt_count, n;
    lq_choice *choices; // [prompt_count][n]
    int64_t open;       // choices that have not ended
    int64_t prompt_tokens, cached_tokens, sampled_tokens;
    size_t bytes;       // held in the choices
    lq_text out;
    lq_refusal failure; // status 0: none
} lq_answer;

bool lq_answer_begin(lq_answer *a, const lq_api *api, const lq_completion *c, uint64_t number, int64_t now);
void lq_answer_event(lq_answer *a, int64_t prompt, const lq_event *e);
void lq_answer_fail(lq_answer *a, int status, const char *text); // ends it, unless it has ended
void lq_answer_free(lq_answer *a);

// POST /tokenize and /detokenize; GET /v1/models (`list`) and /v1/models/{id}.
bool lq_openai_tokenize(const lq_api *api, const char *body, size_t n, lq_text *out, lq_refusal *no);
bool lq_openai_detokenize(const lq_api *api, const char *body, size_t n, lq_text *out, lq_refusal *no);
void lq_openai_model(const lq_api *api, bool list, int64_t created, lq_text *out);
#endif
