// server.h: what the server and the protocols share: requests and answers as data, with no socket in sight. The
// protocols know nothing of HTTP but status codes and paths; connections, threads and time are serve.h's.
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
// What the engine said of a request that it does not take.
bool lq_refuse_error(lq_refusal *no, const char *param, const lq_err *err) LQ_COLD;
// In the shape of the protocol that is spoken at `path` (NULL: OpenAI's): {"error":{"message","type","param","code"}},
// say. `id` is the request's; may be NULL.
void lq_refusal_write(const lq_refusal *no, const char *path, const char *id, lq_text *out);

// What requests are checked against.
typedef struct lq_api {
    const lq_model *model;   // NULL only where nothing is tokenized
    const char *name;        // of the model, as clients say it
    int vocab, ctx, longest; // longest: bytes of a token; 0: not known
    size_t max_body;
    bool priorities;         // may be asked for
    int deadline_ms;         // of any request; 0: none
    lq_sampling defaults;    // of a request that does not say
    lq_pooling pool;         // of embeddings, and whether they keep their length
    bool pool_raw;
    lq_err no_pool;          // why there are none; code LQ_E_NONE: there are
    int embedding;           // numbers of one
    lq_template *tmpl;       // NULL: this model has none
    lq_template_var special[8]; // what a template that is not the model's own knows of its tokens
    size_t special_count;
    char *info;              // tokenizer_config.json with tokens as texts, or NULL
} lq_api;

// Name, limits and what else is of o are the caller's to fill in before. Reads what the model says of sampling, its
// chat template (o->chat_template instead, where that is given) and its tokenizer_config.json.
bool lq_api_open(lq_api *api, const lq_serve_opts *o, lq_err *err);
void lq_api_close(lq_api *api);

typedef struct lq_prompt {
    const char *text; // NULL: given as tokens; borrowed
    size_t len;
    int32_t *ids;     // [count]
    size_t count;
    const char *echo; // what stands before the answer where that is asked for; NULL: `text`. Borrowed
    size_t echo_len;
} lq_prompt;

// A conversation as a body has it; all borrowed from the tree.
typedef struct lq_talk {
    cJSON *messages, *tools, *documents, *vars, *first; // first: what the system says before the messages
    const char *effort;         // reasoning_effort
    bool opened, add_prompt, go_on; // opened: add_prompt was said
    bool begun;                 // go_on, as the protocol has it: no field says so
    bool no_tools;              // they are not to be used
    int before;                 // messages that stand before those of the body
} lq_talk;

typedef struct lq_dialect lq_dialect;

// A parsed request for text, in whichever dialect.
typedef struct lq_completion {
    const lq_dialect *dialect;
    lq_prompt *prompts; // [prompt_count]
    int64_t prompt_count;
    lq_request ask;     // for each of them: what the engine is asked, as the fields say it
    int64_t best_of, logprobs /* -1: none */, tops /* -1: not said */, n;
    int most;           // max_completion_tokens, before which max_tokens has no say; 0: none
    bool stream, stream_options, usage, usage_each, echo, special, details, draw, beam, base64;
    int keep;           // tokens of a prompt at most, others are left out; 0: all; -1: as many as the context holds
    lq_talk talk;
    char *rendered;     // the conversation as the template has it
    const char **stop;  // what `ask` points to; the texts are borrowed from the tree
    int32_t *stop_ids, *bias_id;
    float *bias;
    cJSON *tree, *made; // made: messages and tools in the form that talk.c reads
    cJSON *kept;        // of the tree, what the answer says again
} lq_completion;

// The dialect that is spoken at a path; NULL: none is.
const lq_dialect *lq_dialect_at(const char *path);
// Reads, checks every field and refuses by name. Needs no model: prompts given as text stay text.
bool lq_completion_parse(const lq_api *api, const lq_dialect *d, const char *body, size_t n, lq_completion *c,
                         lq_refusal *no);
// Turns texts into tokens and holds lengths against the context.
bool lq_completion_encode(const lq_api *api, lq_completion *c, lq_refusal *no);
// The engine's request for one of the prompts; borrows from *c. on_event and arg are the caller's to fill in.
lq_request lq_completion_request(const lq_completion *c, int64_t prompt);
// The field that holds what is too long where the engine says so.
const char *lq_completion_param(const lq_completion *c);
void lq_completion_free(lq_completion *c);

// One choice being collected: its text and, where they were asked for, its tokens as the dialect tells them. Of a
// stream what came since the last chunk, unless the dialect ends with all of it.
typedef struct lq_choice {
    lq_text text, tokens, values, tops, offsets; // those but the first: the insides of JSON arrays
    size_t sent, told; // bytes of the text, and of its tokens, that were told
    int64_t count;  // of tokens
    bool begun;     // its first chunk was written
    int sampled, cached, stop_index;
    size_t echo_at, missed; // where in the echo its prompt's next token is looked for; bytes of tokens not found there
    int64_t echo_chars;     // of the echo, before echo_at
    double logprob; // of all tokens together
    lq_finish finish;
} lq_choice;

typedef struct lq_echo { char *text; size_t n; int64_t chars; bool given; } lq_echo; // given: not what tokens read

// The answer to a completion, fed by events: a stream's bytes grow in `out`, a whole answer stands in it when `open`
// is 0.
typedef struct lq_answer {
    const lq_api *api;
    const lq_dialect *dialect;
    char id[40];
    int64_t created;
    bool stream, usage, usage_each, echo, logprobs, details, base64;
    int top_n;
    int64_t prompt_count, n, shown; // n: choices that are sampled for each prompt; shown: told of them
    lq_choice *choices; // [prompt_count][n]
    lq_echo *echoes;    // [prompt_count]
    cJSON *kept;
    int64_t open;       // choices that have not ended
    int64_t prompt_tokens, cached_tokens, sampled_tokens;
    int64_t events;     // of a stream, that were written
    size_t bytes;       // held in the choices
    lq_text out;
    lq_refusal failure; // status 0: none
} lq_answer;

// Takes over what of *c it needs.
bool lq_answer_begin(lq_answer *a, const lq_api *api, lq_completion *c, uint64_t number, int64_t now);
void lq_answer_event(lq_answer *a, int64_t prompt, const lq_event *e);
void lq_answer_fail(lq_answer *a, int status, const char *text); // ends it, unless it has ended
void lq_answer_free(lq_answer *a);

// Endpoints that answer at once.
typedef bool lq_replier(const lq_api *api, const char *body, size_t n, lq_text *out, lq_refusal *no);
lq_replier lq_tokenize_reply, lq_detokenize_reply, lq_tokenizer_info_reply, lq_count_reply;
// GET /v1/models (`list`) and /v1/models/{id}.
void lq_models_reply(const lq_api *api, bool list, int64_t created, lq_text *out);
#endif
