// embeddings.c: POST /v1/embeddings of OpenAI, with what vLLM adds to it: texts, tokens or a conversation in, a vector
// for each out. How states become a vector is the model's to say (lq_model_pooling).
#include "runtime/serve/protocol.h"
#include <inttypes.h>
#include <string.h>

// --- fields ---

static bool read_word(const lq_place *at, const lq_field *f, const cJSON *v, const char *const *words, int *out) {
    for (*out = 0; words[*out]; ++*out)
        if (cJSON_IsString(v) && !strcmp(v->valuestring, words[*out])) return true;
    return lq_field_refuse(at, f, "expected \"%s\"%s%s%s", words[0], words[1] ? " or \"" : "", words[1] ? words[1] : "",
                           words[1] ? "\"" : "");
}

static bool read_format(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    static const char *const words[] = {"float", "base64", NULL};
    int which;
    if (!read_word(at, f, v, words, &which)) return false;
    ((lq_completion *)base)->base64 = which == 1;
    return true;
}

static bool read_type(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    static const char *const types[] = {"float32", NULL}, *const orders[] = {"native", "little", NULL};
    int which;
    (void)base;
    return read_word(at, f, v, strcmp(f->name, "endianness") ? types : orders, &which);
}

static bool read_dimensions(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    lq_field row = *f;
    row.min = 1, row.max = at->api->embedding ? at->api->embedding : INT_MAX;
    return lq_read_int(at, &row, v, base);
}

static bool read_normalize(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    if (!cJSON_IsBool(v)) return lq_field_refuse(at, f, "expected true or false");
    ((lq_completion *)base)->ask.pool_raw = cJSON_IsFalse(v);
    return true;
}

static bool read_keep(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    if (cJSON_IsNumber(v) && v->valuedouble == 0) return lq_field_refuse(at, f, "expected -1 or more than 0");
    return lq_read_int(at, f, v, base);
}

static const lq_field rows[] = {
    {"input", LQ_F_READ, 0, 0, 0, lq_read_prompt},
    {"encoding_format", LQ_F_READ, 0, 0, 0, read_format},
    {"dimensions", LQ_F_READ, LQ_AT(ask.pool_dims), 0, 0, read_dimensions},
    {"normalize", LQ_F_READ, 0, 0, 0, read_normalize},
    {"use_activation", LQ_F_READ, 0, 0, 0, read_normalize},
    {"truncate_prompt_tokens", LQ_F_READ, LQ_AT(keep), -1, INT_MAX, read_keep},
    {"embed_dtype", LQ_F_READ, 0, 0, 0, read_type},
    {"endianness", LQ_F_READ, 0, 0, 0, read_type},
    {"user", LQ_F_READ, 0, 0, 0, lq_is_text},
    {NULL, LQ_F_OFF, 0, 0, 0, NULL},
};

static bool read_embeddings(const lq_api *api, lq_completion *c, lq_refusal *no) {
    static const char *const shared[] = {"model", "add_special_tokens", "priority", "cache_salt"};
    enum { SHARED = sizeof shared / sizeof *shared };
    lq_field others[SHARED + 1] = {0};
    const lq_field *const tables[] = {rows, others, lq_talk_fields, NULL};
    lq_fields_named(shared, SHARED, others);
    c->special = !cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(c->tree, "messages")); // a template writes its own
    c->talk.add_prompt = false;
    c->ask.pool_raw = api->pool_raw;
    if (!lq_fields_read(&(lq_place){api, c->tree, "", no}, tables, c)) return false;
    if (api->no_pool.code) return lq_refuse(no, 400, "model", "unsupported_value", "model: %s", api->no_pool.text);
    if (c->talk.messages && c->prompt_count)
        return lq_refuse(no, 400, "messages", NULL, "messages: expected either these or an input");
    if (c->talk.messages && !lq_talk_prompt(api, c, "messages", no)) return false;
    if (!c->prompt_count)
        return lq_refuse(no, 400, "input", NULL, "input: expected a text, an array of texts, or tokens");
    c->ask.score_only = true;
    c->ask.pool = api->pool ? api->pool : LQ_POOL_LAST;
    return true;
}

// --- the answer ---

static void base64_write(lq_text *out, const unsigned char *p, size_t n) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const size_t have = n - i < 3 ? n - i : 3;
        uint32_t bits = 0;
        char four[4];
        for (size_t k = 0; k < 3; k++) bits = bits << 8 | (k < have ? p[i + k] : 0u);
        for (size_t k = 0; k < 4; k++) four[k] = k > have ? '=' : letters[bits >> (18 - 6 * k) & 63];
        lq_text_add(out, four, sizeof four);
    }
}

// Each f32 so that it reads back the same, or its bytes, lowest first.
static void vector_add(lq_answer *a, lq_choice *c, const lq_event *e) {
    lq_text *out = &c->tokens;
    if (a->base64) {
        lq_text_add(out, "\"", 1);
        base64_write(out, (const unsigned char *)e->embedding, (size_t)e->dims * sizeof *e->embedding);
        lq_text_add(out, "\"", 1);
        return;
    }
    for (int i = 0; i < e->dims; i++) lq_text_fmt(out, "%c%.9g", i ? ',' : '[', (double)e->embedding[i]);
    lq_text_add(out, "]", 1);
}

static void body(lq_answer *a) {
    lq_text *out = &a->out;
    lq_text_fmt(out, "{\"id\":\"%s\",\"object\":\"list\",\"created\":%" PRId64 ",\"model\":", a->id, a->created);
    lq_json_write(out, a->api->name);
    lq_text_fmt(out, ",\"data\":[");
    for (int64_t i = 0; i < a->prompt_count; i++) {
        const lq_text *vector = &a->choices[i].tokens;
        lq_text_fmt(out, "%s{\"object\":\"embedding\",\"index\":%" PRId64 ",\"embedding\":", LQ_LIST_COMMA(i), i);
        lq_text_add(out, vector->n ? vector->p : "null", vector->n ? vector->n : 4);
        lq_text_fmt(out, "}");
    }
    lq_text_fmt(out, "],\"usage\":{\"prompt_tokens\":%" PRId64 ",\"total_tokens\":%" PRId64 "}}", a->prompt_tokens,
                a->prompt_tokens);
}

const lq_dialect lq_dialect_embeddings = {
    .path = "/v1/embeddings", .id = "embd-", .param = "input", .read = read_embeddings, .tokens = vector_add,
    .body = body};
