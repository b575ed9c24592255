// tok_spm.c: sentencepiece's tokenizer.model: a protobuf message of pieces with scores, of what was trained and of how
// text is normalized. Owns nothing past reading.
// Refuses what is no such message, models of words, texts that are not UTF-8, two pieces of one text,
// scores that are no numbers, and bytes that have no piece where the model falls back to them.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/text/tok.h"

static const char what[] = "tokenizer.model";

// --- the message ---

// A field: a number (`value`), or bytes.
typedef struct field { uint32_t number, wire; uint64_t value; const uint8_t *p; size_t n; } field;
typedef struct message { const uint8_t *p, *end; } message;
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static bool varint_take(message *m, uint64_t *out) {
    *out = 0;
    for (int shift = 0; m->p < m->end && shift < 64; shift += 7) {
        const uint8_t b = *m->p++;
        *out |= (uint64_t)(b & 127) << shift;
        if (b < 128) return true;
    }
    return false;
}

static bool field_take(message *m, field *f) {
    uint64_t key, n = 0;
    if (!varint_take(m, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX) return false;
    *f = (field){.number = (uint32_t)(key >> 3), .wire = (uint32_t)key & 7};
    switch (f->wire) {
    case VARINT: return varint_take(m, &f->value);
    case FIXED64: n = 8; break;
    case FIXED32: n = 4; break;
    case BYTES: if (!varint_take(m, &n)) return false; break;
    default: return false;
    }
    if (n > (uint64_t)(m->end - m->p)) return false;
    f->p = m->p;
    f->n = (size_t)n;
    m->p += n;
    for (size_t i = 0; f->wire == FIXED32 && i < 4; i++) f->value |= (uint64_t)f->p[i] << (8 * i);
    return true;
}

// --- what it says ---

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };
typedef struct model {
    lq_tok_entries pieces;
    uint8_t *type;      // [pieces.n]
    size_t types;
    int64_t kind;       // 1 Unigram, 2 BPE
    int64_t bos, eos;   // ids; -1: none
    bool byte_fallback, suffix, dummy, squeeze, escape, denormalizes;
    const uint8_t *map, *unk_text;
    size_t map_n, unk_n;
} model;

static bool broken(lq_err *err, const char *part) {
    return lq_fail(err, LQ_E_FORMAT, "%s: %s is cut short or is no message of sentencepiece", what, part);
}

static bool piece_read(message m, model *out, lq_err *err) {
    lq_tok_entry e = {"", 0, (int32_t)out->pieces.n, LQ_TOK_K_THERE, 0};
    uint64_t type = NORMAL;
    field f;
    while (m.p < m.end) {
        if (!field_take(&m, &f)) return broken(err, "a piece");
        if (f.number == 1 && f.wire == BYTES) e.text = (const char *)f.p, e.n = f.n;
        if (f.number == 2 && f.wire == FIXED32) {
            const uint32_t bits = (uint32_t)f.value;
            float score;
            memcpy(&score, &bits, 4);
            e.score = score;
        }
        if (f.number == 3 && f.wire == VARINT) type = f.value;
    }
    if (out->pieces.n == LQ_TOK_MAX_ID)
        return lq_fail(err, LQ_E_LIMIT, "%s: more than %d pieces", what, LQ_TOK_MAX_ID);
    if (type < NORMAL || type > BYTE || !e.n || !isfinite(e.score))
        return lq_fail(err, LQ_E_FORMAT, "%s: piece %zu has no text, no finite score or no known type", what,
                       out->pieces.n);
    bool valid = true;
    for (size_t i = 0; valid && i < e.n;) i += lq_tok_char_check((const uint8_t *)e.text + i, e.n - i, &valid);
    if (!valid) return lq_fail(err, LQ_E_FORMAT, "%s: piece %zu is not UTF-8", what, out->pieces.n);
    if (type == NORMAL || type == USER || type == UNUSED) e.kind = LQ_TOK_K_MODEL;
    if (type == USER) e.kind |= LQ_TOK_K_USER;
    if (type == UNUSED) e.kind |= LQ_TOK_K_UNUSED;
    if (!lq_grow((void **)&out->type, out->pieces.n, &out->types, 1))
        return lq_fail(err, LQ_E_MEMORY, "%s: no memory for its pieces", what);
    out->type[out->pieces.n] = (uint8_t)type;
    return lq_tok_entry_add(&out->pieces, e, err);
}

static bool trainer_read(message m, model *out, lq_err *err) {
    field f;
    while (m.p < m.end) {
        if (!field_take(&m, &f)) return broken(err, "trainer_spec");
        if (f.wire == VARINT) {
            if (f.number == 3) out->kind = (int64_t)f.value;
            if (f.number == 24) out->suffix = f.value != 0;
            if (f.number == 35) out->byte_fallback = f.value != 0;
            if (f.number == 41) out->bos = (int64_t)f.value;
            if (f.number == 42) out->eos = (int64_t)f.value;
        }
        if (f.number == 44 && f.wire == BYTES) out->unk_text = f.p, out->unk_n = f.n;
    }
    return true;
}

static bool normalizer_read(message m, model *out, lq_err *err) {
    field f;
    while (m.p < m.end) {
        if (!field_take(&m, &f)) return broken(err, "normalizer_spec");
        if (f.number == 2 && f.wire == BYTES) out->map = f.p, out->map_n = f.n;
        if (f.wire != VARINT) continue;
        if (f.number == 3) out->dummy = f.value != 0;
        if (f.number == 4) out->squeeze = f.value != 0;
        if (f.number == 5) out->escape = f.value != 0;
    }
    return true;
}

static bool denormalizer_read(message m, model *out, lq_err *err) {
    field f;
    while (m.p < m.end) {
        if (!field_take(&m, &f)) return broken(err, "denormalizer_spec");
        if (f.number == 2 && f.n) out->denormalizes = true;
    }
    return true;
}

static bool model_read(lq_bytes file, model *out, lq_err *err) {
    message m = {(const uint8_t *)file.p, (const uint8_t *)file.p + file.n};
    field f;
    while (m.p < m.end) {
        if (!field_take(&m, &f)) return broken(err, "the file");
        if (f.wire != BYTES) continue;
        const message in = {f.p, f.p + f.n};
        bool ok = true;
        if (f.number == 1) ok = piece_read(in, out, err);
        if (f.number == 2) ok = trainer_read(in, out, err);
        if (f.number == 3) ok = normalizer_read(in, out, err);
        if (f.number == 5) ok = denormalizer_read(in, out, err);
        if (!ok) return false;
    }
    if (!out->pieces.n) return lq_fail(err, LQ_E_FORMAT, "%s: no pieces", what);
    if (out->kind == 4) out->kind = 2; // characters: BPE without a piece that two others make
    if (out->kind != 1 && out->kind != 2)
        return lq_fail(err, LQ_E_UNSUPPORTED, "%s: a model of %s, only BPE, Unigram and characters are known", what,
                       out->kind == 3 ? "words" : "an unknown type");
    return !out->denormalizes || lq_fail(err, LQ_E_UNSUPPORTED,
                                         "%s: denormalizes whole texts, which cannot be streamed", what);
}

// --- the tokenizer ---

static int hex_value(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; }

static bool bytes_find(const model *m, lq_tok_vocab *v, lq_err *err) {
    for (int b = 0; b < 256; b++) v->byte_id[b] = -1;
    for (size_t i = 0; i < m->pieces.n; i++) {
        const lq_tok_entry *e = &m->pieces.p[i];
        if (m->type[i] != BYTE) continue;
        const int h = e->n == 6 ? hex_value(e->text[3]) : -1, l = e->n == 6 ? hex_value(e->text[4]) : -1;
        if (h < 0 || l < 0 || memcmp(e->text, "<0x", 3) != 0 || e->text[5] != '>')
            return lq_fail(err, LQ_E_FORMAT, "%s: piece %zu is of a byte, but not <0xNN>", what, i);
        v->byte_id[h * 16 + l] = (int32_t)i;
    }
    for (int b = 0; m->byte_fallback && b < 256; b++)
        if (v->byte_id[b] < 0)
            return lq_fail(err, LQ_E_FORMAT, "%s: byte_fallback without a piece of byte %d", what, b);
    v->byte_fallback = m->byte_fallback;
    return true;
}

static bool scores_find(const model *m, lq_tok_vocab *v, lq_err *err) {
    float least = FLT_MAX;
    v->unk = -1;
    for (size_t i = 0; i < m->pieces.n; i++) {
        const float score = (float)m->pieces.p[i].score;
        if (m->type[i] == NORMAL && score < least) least = score;
        if (m->type[i] == UNUSED) v->unused = true;
        if (m->type[i] != UNKNOWN) continue;
        if (v->unk >= 0) return lq_fail(err, LQ_E_FORMAT, "%s: pieces %d and %zu are both the unknown one", what,
                                        (int)v->unk, i);
        v->unk = (int32_t)i;
    }
    v->unk_score = least - 10.0f;
    return v->unk >= 0 || lq_fail(err, LQ_E_FORMAT, "%s: no piece is the unknown one", what);
}

static bool pieces_check(const model *m, const lq_tok_vocab *v, lq_err *err) {
    for (size_t i = 0; i < m->pieces.n; i++) {
        const lq_tok_entry *e = &m->pieces.p[i];
        if (v->kind[i] & LQ_TOK_K_MODEL && lq_tok_vocab_find(v, e->text, e->n) != (int32_t)i)
            return lq_fail(err, LQ_E_FORMAT, "%s: piece %zu has the text of another", what, i);
        if (m->type[i] == USER && e->n > LQ_TOK_MAX_CONTENT)
            return lq_fail(err, LQ_E_LIMIT, "%s: piece %zu has %zu bytes, more than %d", what, i, e->n,
                           LQ_TOK_MAX_CONTENT);
    }
    return true;
}

// What a text may name: control pieces and the unknown one, unless a config says more of them.
static bool controls_list(const model *m, cJSON *added, lq_err *err) {
    for (size_t i = 0; i < m->pieces.n; i++) {
        const lq_tok_entry *e = &m->pieces.p[i];
        if (m->type[i] != CONTROL && m->type[i] != UNKNOWN) continue;
        if (memchr(e->text, 0, e->n) || e->n > LQ_TOK_MAX_CONTENT) continue;
        char *text = lq_tok_text_copy(e->text, e->n, err);
        cJSON *item = text ? cJSON_CreateObject() : NULL;
        const bool ok = item && cJSON_AddStringToObject(item, "content", text) &&
                        cJSON_AddNumberToObject(item, "id", (double)i) && cJSON_AddTrueToObject(item, "special") &&
                        cJSON_AddItemToArray(added, item);
        free(text);
        if (!ok) return cJSON_Delete(item), lq_fail(err, LQ_E_MEMORY, "%s: no memory for its pieces", what);
    }
    return true;
}

static bool vocab_make(const model *m, const cJSON *added, lq_tok_vocab *v, lq_err *err) {
    v->model = m->kind == 1 ? LQ_TOK_UNIGRAM : LQ_TOK_BPE;
    v->pieces = true;
    if (!bytes_find(m, v, err) || !scores_find(m, v, err)) return false;
    return lq_tok_vocab_make(v, &m->pieces, added, true, what, err) && pieces_check(m, v, err) &&
           lq_tok_tree_make(&v->user, v, LQ_TOK_K_USER, 0, err) &&
           (v->model == LQ_TOK_UNIGRAM || lq_tok_merges_join(v, what, err));
}

// tokenizer_config.json may say otherwise of the space before a text; `legacy`: before each stretch between tokens.
static bool steps_make(const model *m, const cJSON *config, lq_tokenizer *t, lq_err *err) {
    static const char of[] = "tokenizer_config.json";
    lq_tok_norm *o = lq_tok_norm_add(t, LQ_TOK_N_PIECES, err);
    if (!o) return false;
    o->dummy = m->dummy;
    o->squeeze = m->squeeze;
    o->escape = m->escape;
    o->behind = m->suffix;
    if (config && (!lq_json_bool(config, "add_prefix_space", &o->dummy, of, err) ||
                   !lq_json_bool(config, "legacy", &o->always, of, err))) return false;
    if (!lq_tok_charsmap_read((const char *)m->map, m->map_n, &o->map, what, err)) return false;
    t->unk_text = lq_tok_text_copy(m->unk_text ? (const char *)m->unk_text : " \xe2\x81\x87 ",
                                   m->unk_text ? m->unk_n : 5, err);
    return t->unk_text && lq_tok_dec_pieces(t, m->byte_fallback, o->dummy || m->squeeze, m->squeeze, err);
}

bool lq_tok_spm_parse(lq_bytes file, const cJSON *config, cJSON *added, lq_tokenizer *t, lq_err *err) {
    model m = {.kind = 1, .bos = 1, .eos = 2, .dummy = true, .squeeze = true, .escape = true};
    cJSON *own = cJSON_CreateArray();
    bool ok = own || lq_fail(err, LQ_E_MEMORY, "%s: no memory", what);
    ok = ok && model_read(file, &m, err) && controls_list(&m, own, err) && lq_tok_added_merge(added, own, err) &&
         vocab_make(&m, added, &t->vocab, err) && lq_tok_norm_parse(NULL, t, err) && lq_tok_pre_parse(NULL, t, err) &&
         steps_make(&m, config, t, err) && lq_tok_added_parse(added, t, err);
    const int64_t last = (int64_t)m.pieces.n - 1;
    ok = ok && lq_tok_around(config, true, false, m.bos <= last ? (int32_t)m.bos : -1,
                             m.eos <= last ? (int32_t)m.eos : -1, t, err);
    cJSON_Delete(own);
    free(m.pieces.p);
    free(m.type);
    return ok;
}
