// fuzz_config.c: the texts beside a model's weights from strangers. Parts stand one behind the other with a NUL between
// them: config.json, generation_config.json, tokenizer_config.json, and how the weights are, which are those that the
// config asks for: a byte of whose names they bear, then what is wrong with them. Or one part that has a "weight_map":
// the index of two shards. What does not open is refused in one line that begins with the path; what opens is planned
// for quantizing and run for a few tokens of its vocabulary.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "formats/json.h"
#include "quant/quant.h"
#include "runtime/lq.h"
#include "runtime/model/arch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { TENSORS = 1024, FILE_MAX = 4 << 20, LAYERS = 12 };
typedef enum fill { NOISE, ZEROS, NANS, INFS, HUGES, TINIES, ONES, BYTES, FILLS } fill;
typedef struct tensor {
    char name[LQ_NAME];
    int rank;
    int64_t shape[LQ_RANK];
    lq_dtype type;
    fill fill;
} tensor;
typedef struct part { const char *p; size_t n; } part;

static char folder[64];
static const char *const files[] = {"config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json",
                                    "model.safetensors", "a.safetensors", "b.safetensors",
                                    "model.safetensors.index.json"};
enum { GIVEN = 3, INDEX = 7, FILES = 8 }; // the first are parts of the input

static void must(bool cond) {
    if (!cond) abort();
}

static const char *at(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const void *p, size_t n) {
    FILE *f = fopen(at(name), "wb");
    must(f && fwrite(p, 1, n, f) == n && !fclose(f));
}

static void drop(void) {
    for (size_t i = 0; i < FILES; i++) unlink(at(files[i]));
}

static void drop_all(void) {
    drop();
    rmdir(folder);
}

static void begin(void) {
    static const char tokenizer[] = "{\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"model\":{\"type\":\"WordLevel\","
                                    "\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2}}}";
    if (!*folder) {
        snprintf(folder, sizeof folder, "%s/lq-fuzz-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
        must(mkdtemp(folder) && !atexit(drop_all));
    }
    put("tokenizer.json", tokenizer, sizeof tokenizer - 1);
}

static void told(const lq_err *err) { must(err->code != LQ_E_NONE && *err->text && !strchr(err->text, '\n')); }
static void told_where(const lq_err *err) {
    told(err);
    must(!strncmp(err->text, folder, strlen(folder)));
}

// --- weights ---

static float value(fill f, size_t i) {
    switch (f) {
    case ZEROS: return 0;
    case NANS: return i % 7 ? 0.1f : __builtin_nanf("");
    case INFS: return i % 5 ? 0.1f : i % 2 ? __builtin_inff() : -__builtin_inff();
    case HUGES: return i % 2 ? 3e38f : -3e38f;
    case TINIES: return 1e-42f;
    case ONES: return 1;
    default: return (float)((int)(i * 2654435761u >> 20 & 255) - 128) / 256;
    }
}

static size_t count_of(const tensor *t) {
    size_t n = 1;
    for (int i = 0; i < t->rank; i++)
        if (!lq_mul_size(n, (size_t)t->shape[i], &n)) return SIZE_MAX;
    return n;
}

// A safetensors file of these; false: it would be too large.
static bool weights_put(const char *file, const tensor *t, size_t count) {
    lq_text head = {0};
    size_t data = 0;
    lq_text_fmt(&head, "        {");
    for (size_t i = 0; i < count; i++) {
        const size_t n = count_of(&t[i]), bytes = n > FILE_MAX ? SIZE_MAX / 2 : n * lq_dtype_size(t[i].type);
        if (bytes > FILE_MAX - data) return lq_text_free(&head), false;
        lq_text_fmt(&head, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", t[i].name,
                    lq_dtypes[t[i].type].safetensors);
        for (int k = 0; k < t[i].rank; k++) lq_text_fmt(&head, "%s%lld", k ? "," : "", (long long)t[i].shape[k]);
        lq_text_fmt(&head, "],\"data_offsets\":[%zu,%zu]}", data, data + bytes);
        data += bytes;
    }
    lq_text_fmt(&head, "}");
    const uint64_t len = head.n - 8;
    char *all = calloc(1, head.n + data), *to = all + head.n;
    must(!head.failed && all);
    memcpy(all, head.p, head.n);
    memcpy(all, &len, 8);
    for (size_t i = 0; i < count; i++) {
        const lq_dtype_row *row = &lq_dtypes[t[i].type];
        const size_t n = count_of(&t[i]);
        for (size_t k = 0; k < n; k++, to += row->bytes) {
            const float f = value(t[i].fill, k);
            if (row->from_f32 && t[i].fill != BYTES) row->from_f32(&f, to, 1);
            else memset(to, (int)(k * 37 % 251), (size_t)row->bytes);
        }
    }
    put(file, all, head.n + data);
    free(all);
    lq_text_free(&head);
    return true;
}

static bool weight_add(tensor *t, size_t *count, const lq_pick *p, int64_t n, int64_t k) {
    size_t i = 0;
    int64_t rows = p->first + n;
    if (p->run && p->step) rows = p->first + (n - 1) / p->run * p->step + (n - 1) % p->run + 1;
    else if (p->run) rows = p->first + p->run;
    while (i < *count && strcmp(t[i].name, p->name) != 0) i++;
    if (i == *count && ++*count > TENSORS) return false;
    tensor *o = &t[i];
    const bool across = p->across && k;
    const int row = (p->stack > 0) + across;
    if (o->rank && o->shape[row] > rows) rows = o->shape[row]; // several slots have their rows of it
    *o = (tensor){.rank = (p->stack > 0) + (k ? 2 : 1)};
    snprintf(o->name, sizeof o->name, "%s", p->name);
    if (p->stack) o->shape[0] = p->stack;
    o->shape[row] = rows;
    if (k) o->shape[row + (across ? -1 : 1)] = k;
    return true;
}

// All that a description asks for, under the names of other people's files or lq's; false: that is too much.
static bool weights_of(const lq_desc *d, bool own, tensor *t, size_t *count) {
    bool all = true;
    if (d->layers > LAYERS) return false;
    for (int l = -1; l < d->layers && all; l++) {
        int n;
        lq_slot *slots = lq_desc_slots(d, l, &n);
        must(slots || !n);
        for (int i = 0; i < n && all; i++) {
            const lq_slot *s = &slots[i];
            lq_pick pick = {.stack = s->count};
            must(s->n > 0 && s->k >= 0 && s->count >= 0 && strlen(s->name) < sizeof s->name);
            memcpy(pick.name, s->name, sizeof pick.name);
            for (int at = 0; at < (s->count && !own ? s->count : 1) && all; at++)
                if (own || lq_slot_pick(s, at, &pick)) all = weight_add(t, count, &pick, s->n, s->k);
        }
        free(slots);
    }
    return all;
}

// A matrix becomes one of 8 bits, with scales beside it: one, one a row, or those of blocks.
static void scales_add(tensor *t, size_t *count, tensor *o, uint8_t by) {
    const char *tail = by & 1 ? "_scale" : "_scale_inv";
    if (*count == TENSORS || o->rank < 2 || strlen(o->name) + 16 > sizeof o->name) return;
    tensor *s = &t[(*count)++];
    *s = *o;
    o->type = by & 16 ? LQ_I8 : LQ_E4M3;
    strcat(s->name, tail);
    s->type = by & 2 ? LQ_BF16 : LQ_F32;
    s->fill = (fill)(by >> 5);
    int64_t *size = s->shape + s->rank - 2;
    if (by & 4) size[0] = (size[0] + 31) / 32, size[1] = (size[1] + 15) / 16;
    else if (by & 8) size[1] = 1;
    else s->shape[0] = 1, s->rank = 1;
}

// Three bytes are one thing that is wrong: with which tensor, what, and by how much.
static void weights_spoil(tensor *t, size_t *count, part edits) {
    const uint8_t *e = (const uint8_t *)edits.p;
    for (size_t i = 1; i + 2 < edits.n && *count; i += 3) {
        const size_t which = e[i] < 250 ? e[i] % *count : *count - 1;
        tensor *o = &t[which];
        int64_t *size = &o->shape[e[i + 2] % (o->rank ? o->rank : 1)];
        switch (e[i + 1] % 9) {
        case 0: *o = t[--*count]; break;
        case 1: *size += e[i + 2] & 64 ? -1 : 1; break;
        case 2: *size = e[i + 2] & 64 ? 0 : *size * 2; break;
        case 3: o->type = (lq_dtype)(e[i + 2] % LQ_DTYPES); break;
        case 4: o->rank = e[i + 2] % 5; break;
        case 5: o->fill = (fill)(e[i + 2] % FILLS); break;
        case 6: o->name[strlen(o->name) - 1] = (char)('a' + e[i + 2] % 26); break;
        case 7: scales_add(t, count, o, e[i + 2]); break;
        default:
            if (o->rank > 1) *size = o->shape[0], o->shape[0] = o->shape[1], o->shape[1] = *size;
        }
        if (*size < 0) *size = 0;
        if (!lq_dtypes[o->type].safetensors) o->type = LQ_F32;
        for (int k = 0; k < o->rank; k++)
            if (!o->shape[k] && o->type != LQ_F64) o->shape[k] = 1; // one of F64 may be empty
    }
}

// --- models ---

typedef struct seen { int vocab, ends; } seen;
static bool on_event(void *arg, const lq_event *e) {
    seen *s = arg;
    for (int i = 0; i < e->count; i++) must(e->tokens[i] >= 0 && e->tokens[i] < s->vocab);
    s->ends += e->finish != LQ_RUNNING;
    return true;
}

static void model_run(lq_model *m) {
    lq_model_info info;
    lq_engine *e;
    lq_work work;
    lq_err err = {0};
    lq_model_describe(m, &info);
    lq_model_work(m, 2, 5, 2, &work);
    must(info.vocab > 0 && info.layers > 0 && info.ctx > 0 && *info.arch && *info.quant && work.bytes >= 0);
    if (!lq_engine_open(m, &(lq_engine_opts){.max_seqs = 2, .max_batch = 8, .kv_bytes = 2 << 20}, &e, &err)) {
        told(&err);
        return;
    }
    const int32_t prompt[] = {0, info.vocab - 1};
    for (int i = 0; i < 2; i++) {
        seen s = {.vocab = info.vocab};
        const lq_request r = {.prompt = prompt, .prompt_len = 2, .max_tokens = 3, .n = 1 + i, .logprobs = true,
                              .top_n = 2, .on_event = on_event, .arg = &s, .prompt_logprobs = i,
                              .sampling = {.temperature = (float)i, .seeded = true, .top_p = 0.9f}};
        if (!lq_generate(e, &r, &err)) told(&err);
        else must(s.ends == r.n);
    }
    lq_engine_close(e);
}

static bool on_tick(void *arg, double done, size_t blocks, const char *what) {
    (void)arg, (void)what;
    must(done <= (double)blocks);
    return true;
}

static void model_plan(void) {
    char out[100];
    lq_quant_result result;
    lq_err err = {0};
    snprintf(out, sizeof out, "%s/out.lq", folder);
    const lq_quant_opts o = {.in = folder, .out = out, .type = "int4 g32", .threads = 1, .report = "-",
                             .tick = on_tick, .dry_run = true};
    if (lq_quantize(&o, &result, &err)) lq_quant_result_free(&result);
    else told(&err);
}

// Whether the config is one: then the weights that it asks for are written.
static bool describe(part edits) {
    // The name of a tensor may say what others are called.
    static const char *const hints[8] = {
        NULL, "model.layers.0.mlp.experts.gate_up_proj", "language_model.model.x", "model.language_model.x",
        "wte.weight", "word_embeddings.weight", "model.layers.0.block_sparse_moe.experts.gate_up_proj", "lm_head.weight"
    };
    static tensor t[TENSORS];
    lq_ckpt *c;
    lq_desc d;
    size_t count = 0;
    lq_err err = {0};
    const uint8_t form = edits.n ? (uint8_t)*edits.p : 0;
    const char *hint = hints[form % 8];
    memset(t, 0, sizeof t);
    t->rank = 1;
    snprintf(t->name, sizeof t->name, "%s", hint ? hint : "");
    must(weights_put("model.safetensors", t, hint != NULL));
    must(lq_ckpt_open(folder, &c, &err));
    const bool done = lq_desc_read(c, &d, &err);
    lq_ckpt_close(c);
    if (!done) return told_where(&err), false;
    must(d.layers > 0 && d.vocab > 0 && d.dim > 0 && d.ctx > 0 && d.bos < d.vocab && d.groups <= LQ_KV_GROUPS);
    for (int l = 0; l < d.layers; l += d.layers > LAYERS ? d.layers / LAYERS : 1) {
        lq_input in[LQ_INPUTS];
        must(lq_desc_inputs(&d, l, in) > 0);
    }
    *t = (tensor){.rank = 0};
    if (weights_of(&d, form & 128, t, &count)) {
        weights_spoil(t, &count, edits);
        weights_put("model.safetensors", t, count);
    }
    lq_desc_free(&d);
    return true;
}

static void index_try(part text) {
    static const tensor a[] = {{.name = "x", .rank = 1, .shape = {2}}, {.name = "y.z", .rank = 1, .shape = {3}}},
                        b[] = {{.name = "\xc3\xbc", .rank = 2, .shape = {1, 2}}};
    lq_ckpt *c;
    lq_err err = {0};
    must(weights_put("a.safetensors", a, 2) && weights_put("b.safetensors", b, 1));
    put(files[INDEX], text.p, text.n);
    if (!lq_ckpt_open(folder, &c, &err)) return told_where(&err);
    must(lq_ckpt_count(c) <= 3);
    for (size_t i = 0; i < lq_ckpt_count(c); i++) must(lq_ckpt_find(c, lq_ckpt_at(c, i)->name) == lq_ckpt_at(c, i));
    lq_ckpt_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    part parts[GIVEN + 1] = {{NULL, 0}};
    const char *p = (const char *)data, *end = p + n;
    lq_model *m;
    lq_template *chat;
    lq_err err = {0};
    if (!n || n > 1 << 16) return 0;
    begin();
    for (size_t i = 0; i <= GIVEN && p < end; i++) {
        const char *nul = i < GIVEN ? memchr(p, 0, (size_t)(end - p)) : NULL;
        parts[i] = (part){p, (size_t)((nul ? nul : end) - p)};
        if (i < GIVEN && parts[i].n) put(files[i], p, parts[i].n);
        p = nul ? nul + 1 : end;
    }
    if (memmem(data, n, "weight_map", 10)) index_try(parts[0]);
    else if (describe(parts[GIVEN])) {
        if (lq_model_open(folder, &(lq_model_opts){.threads = 1}, &m, &err)) {
            model_run(m);
            lq_model_close(m);
        } else told_where(&err);
        model_plan();
        if (lq_template_open(folder, NULL, &chat, &err)) lq_template_close(chat);
        else told(&err);
    }
    drop();
    return 0;
}
