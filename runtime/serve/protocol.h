// protocol.h: what the protocols share among themselves: tables of fields, dialects, and the words that answers are
// written with. A dialect is a row of lq_dialects[] (dialect.c): how a body is read and how an answer to it is told.
#ifndef LQ_PROTOCOL_H
#define LQ_PROTOCOL_H
#include "runtime/serve/server.h"
#include <limits.h>

enum { LQ_MAX_TOP = 20, LQ_MAX_CHOICES = 2048 };
enum { LQ_MAX_ANSWER = 64 << 20 }; // bytes

// --- fields ---

typedef enum lq_field_kind {
    LQ_F_INT, LQ_F_LONG, LQ_F_NUM, LQ_F_BOOL, // int, int64_t, float, bool
    LQ_F_TEXT,  // const char *, borrowed from the tree
    LQ_F_READ,  // by a function
    LQ_F_OFF, LQ_F_TRUE, LQ_F_ONE // what others offer and lq does not: taken where it asks for nothing
} lq_field_kind;

// Where a field was found.
typedef struct lq_place {
    const lq_api *api;
    cJSON *obj;     // what it is a member of
    const char *in; // "parameters."
    lq_refusal *no;
} lq_place;

typedef struct lq_field lq_field;
typedef bool lq_field_read(const lq_place *at, const lq_field *f, cJSON *v, void *base);
struct lq_field {
    const char *name; // NULL: the table's end
    lq_field_kind kind;
    size_t offset;
    double min, max;  // both 0: whatever the type holds
    lq_field_read *read;
};

#define LQ_AT(member) offsetof(lq_completion, member)

// What is in none of the tables (the last is NULL) is ignored, and null is the same as absent, in every field.
bool lq_fields_read(const lq_place *at, const lq_field *const *tables, void *base);
bool lq_field_refuse(const lq_place *at, const lq_field *f, const char *fmt, ...) LQ_PRINTF(3, 4) LQ_COLD;
// The body as a tree: an object.
bool lq_body_parse(const lq_api *api, const char *body, size_t n, cJSON **out, lq_refusal *no);

// lq_read_int fills an int, and of LQ_F_LONG an int64_t.
lq_field_read lq_read_model, lq_read_prompt, lq_read_stop, lq_read_format, lq_read_int, lq_read_seed,
    lq_read_tool_choice, lq_read_metadata;
lq_field_read lq_is_text, lq_is_bool, lq_is_object, lq_is_count; // of what has no effect here
extern const lq_field lq_sampling_fields[]; // what every dialect of OpenAI's kind has, vLLM's included
void lq_fields_named(const char *const *names, size_t n, lq_field *rows); // those of them with these names
extern const lq_field lq_talk_fields[];     // what makes a conversation, of its dialects
extern const lq_field lq_idle_fields[];     // what OpenAI's clients may say and has no effect here
extern const lq_field lq_never_fields[];    // what others offer and this server cannot honour
bool lq_ids_read(const lq_place *at, const lq_field *f, const cJSON *list, size_t max, int32_t **ids, size_t *count);

// --- conversations ---

// The messages of c->talk, which stand in the field `param`, become its only prompt.
bool lq_talk_prompt(const lq_api *api, lq_completion *c, const char *param, lq_refusal *no);
// A tool, and a call of one, as OpenAI's conversations have them; what is given as a tree is moved. NULL: no memory.
cJSON *lq_talk_tool(cJSON *flat, const char *schema);
cJSON *lq_talk_call(const char *id, const char *name, cJSON *arguments);
// Puts an item into an object or (key NULL) at the end of a list, and owns it from then on. False: no memory.
bool lq_json_move(cJSON *to, const char *key, cJSON *item);
cJSON *lq_talk_message(cJSON *list, const char *role, cJSON *content); // a new last one; content may be NULL
bool lq_talk_render(const lq_api *api, lq_talk *talk, const char *param, char **text, size_t *n, lq_refusal *no);

// --- dialects ---

struct lq_dialect {
    const char *path, *id, *param; // id: how ids begin; param: the field of the prompt
    bool (*read)(const lq_api *api, lq_completion *c, lq_refusal *no); // c->tree -> *c
    void (*tokens)(lq_answer *a, lq_choice *c, const lq_event *e); // what was asked for
    void (*body)(lq_answer *a);                                        // the whole answer
    void (*chunk)(lq_answer *a, int64_t choice);                       // of a stream: what is new of a choice
    void (*end)(lq_answer *a);
    void (*fail)(lq_answer *a);                                        // of a stream: a->failure
    int invalid; // the status of what is no request; 0: 400
    bool whole;  // a stream's choices keep their text to the end
};
extern const lq_dialect lq_dialect_completions, lq_dialect_chat, lq_dialect_responses, lq_dialect_messages,
    lq_dialect_generate, lq_dialect_generate_stream, lq_dialect_generate_either, lq_dialect_embeddings;

// A parsed body: what all dialects begin with, before their fields are read.
void lq_completion_begin(const lq_api *api, lq_completion *c);
// What one field says about another, and the engine's words for it.
bool lq_completion_settle(lq_completion *c, lq_refusal *no);

// --- writing ---

#define LQ_LIST_COMMA(i) ((i) ? "," : "")
typedef struct lq_token_text { char p[512]; size_t n; } lq_token_text;
lq_token_text lq_token_get(const lq_model *m, int32_t id);
bool lq_token_is_text(const lq_token_text *t); // else part of a character
void lq_token_write(lq_text *out, const lq_token_text *t); // "bytes:\xe2\x80" where it is no text
void lq_logprob_write(lq_text *out, float v);
void lq_json_write(lq_text *out, const char *s); // NULL: null
// One JSON string of two texts.
void lq_json_pair(lq_text *out, const char *a, size_t an, const char *b, size_t bn);
// [{"token","logprob","bytes","top_logprobs"}] of OpenAI's conversations, into c->tokens.
void lq_tokens_chat(lq_answer *a, lq_choice *c, const lq_event *e);
// "prompt_tokens" and the like, an object.
void lq_usage_write(lq_answer *a);
const char *lq_finish_name(lq_finish f); // with quotes; or null
void lq_fail_openai(lq_answer *a); // a stream's end: the error, then [DONE]
void lq_choice_said(lq_choice *c); // what was told of it is over
int64_t lq_characters(const char *p, size_t n);
bool lq_is_blank(char c);
void lq_refusal_openai(const lq_refusal *no, lq_text *out);
#endif
