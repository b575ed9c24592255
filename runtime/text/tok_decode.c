// tok_decode.c: decoders: the bytes of a token, and the text of a sequence that grows token by token.
//
// What a decoder does to a token by itself is done once, at open. What depends on the place (the first token, a word's
// end) is done by lq_detok_next. Refuses decoders that need the whole text, by name.
#include <stdlib.h>
#include <string.h>
#include "runtime/text/tok.h"

// A token that is the first of a text may be longer by the prefix of WordPiece than LQ_DETOK_ROOM counts, which is 12.
enum { OVER = 255, STRIP_MAX = 100, BYTES_MAX = 1 << 30, PREFIX_MAX = 8 };

// --- reading ---

static lq_tok_dec *dec_add(lq_tokenizer *t, lq_tok_dec_kind kind, lq_err *err) {
    if (!lq_tok_step_fits(t->decs, "decoders", err)) return NULL;
    t->dec[t->decs].kind = kind;
    return &t->dec[t->decs++];
}

static bool plain_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    (void)json;
    return dec_add(t, (lq_tok_dec_kind)how, err) != NULL;
}

static bool text_read(const cJSON *json, const char *key, const char *absent, lq_tok_dec *o, lq_err *err) {
    const char *s = lq_json_str(json, key);
    if (!s) s = absent;
    if (!s) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: decoder: no string \"%s\"", key);
    o->n = strlen(s);
    o->text = lq_tok_text_copy(s, o->n, err);
    return o->text != NULL;
}

static bool one_char(const lq_tok_dec *o) {
    size_t len;
    if (!o->n) return false;
    lq_tok_char_get(o->text, &len);
    return len == o->n;
}

static bool replace_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    lq_tok_dec *o = dec_add(t, LQ_TOK_D_REPLACE, err);
    (void)how;
    return o && text_read(json, "content", NULL, o, err) &&
           lq_tok_pattern_parse(cJSON_GetObjectItemCaseSensitive(json, "pattern"), "decoder Replace", &o->pattern, err);
}

static bool strip_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    lq_tok_dec *o = dec_add(t, LQ_TOK_D_STRIP, err);
    int64_t start = 0, stop = 0;
    static const char what[] = "tokenizer.json: decoder Strip";
    (void)how;
    if (!o || !text_read(json, "content", NULL, o, err) ||
        !lq_json_int(json, "start", 0, STRIP_MAX, &start, what, err) ||
        !lq_json_int(json, "stop", 0, STRIP_MAX, &stop, what, err)) {
        return false;
    }
    o->start = (int)start;
    o->stop = (int)stop;
    return one_char(o) || lq_fail(err, LQ_E_FORMAT, "%s: content is not one character", what);
}

static bool metaspace_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    lq_tok_dec *o = dec_add(t, LQ_TOK_D_METASPACE, err);
    const char *scheme = lq_json_str(json, "prepend_scheme");
    bool prefix = true;
    (void)how;
    if (!o || !text_read(json, "replacement", "\xe2\x96\x81", o, err) ||
        !lq_json_bool(json, "add_prefix_space", &prefix, "tokenizer.json: decoder Metaspace", err)) {
        return false;
    }
    o->scheme = !prefix || (scheme && !strcmp(scheme, "never")) ? LQ_TOK_NEVER : LQ_TOK_ALWAYS;
    return one_char(o) || lq_fail(err, LQ_E_FORMAT,
                                  "tokenizer.json: decoder Metaspace: replacement is not one character");
}

static bool suffix_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    lq_tok_dec *o = dec_add(t, LQ_TOK_D_SUFFIX, err);
    (void)how;
    return o && text_read(json, "suffix", "</w>", o, err);
}

static bool wordpiece_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    lq_tok_dec *o = dec_add(t, LQ_TOK_D_WORDPIECE, err);
    (void)how;
    if (!o || !text_read(json, "prefix", "##", o, err)) return false;
    if (o->n > PREFIX_MAX)
        return lq_fail(err, LQ_E_LIMIT, "tokenizer.json: decoder WordPiece: a prefix of more than %d bytes", PREFIX_MAX);
    o->cleanup = true;
    return lq_json_bool(json, "cleanup", &o->cleanup, "tokenizer.json: decoder WordPiece", err);
}

static const lq_tok_step rows[] = {
    {"Replace", 0, replace_read}, {"ByteLevel", LQ_TOK_D_BYTES, plain_read},
    {"ByteFallback", LQ_TOK_D_FALLBACK, plain_read}, {"Fuse", LQ_TOK_D_FUSE, plain_read}, {"Strip", 0, strip_read},
    {"Metaspace", 0, metaspace_read}, {"BPEDecoder", 0, suffix_read}, {"WordPiece", 0, wordpiece_read},
};
static const lq_tok_steps steps = {"decoder", "decoders", rows, sizeof rows / sizeof *rows};

// Behind a step that joins the tokens into one text, only the text's beginning can be known while it grows.
static bool dec_place(lq_tokenizer *t, lq_err *err) {
    bool joined = false, fell = false;
    for (int i = 0; i < t->decs; i++) {
        const lq_tok_dec *o = &t->dec[i];
        if (joined && o->kind == LQ_TOK_D_STRIP && !o->stop && !t->strip_n) {
            memcpy(t->strip, o->text, o->n);
            t->strip_n = o->n;
            t->strip_count = o->start;
        } else if (joined && o->kind != LQ_TOK_D_FUSE) {
            return lq_fail(err, LQ_E_UNSUPPORTED,
                           "tokenizer.json: decoder %d works on the whole text, which cannot be streamed", i);
        }
        if (fell && !joined && o->kind != LQ_TOK_D_FUSE)
            return lq_fail(err, LQ_E_UNSUPPORTED, "tokenizer.json: decoder %d stands behind ByteFallback, where tokens of "
                           "bytes are one text, which cannot be streamed", i);
        if (o->kind == LQ_TOK_D_FUSE || o->kind == LQ_TOK_D_BYTES) joined = true;
        if (o->kind == LQ_TOK_D_FALLBACK) fell = t->bytewise = t->fallback = true;
        if (o->kind == LQ_TOK_D_SUFFIX) t->suffixed = true;
        if (o->kind == LQ_TOK_D_METASPACE && o->scheme != LQ_TOK_NEVER) t->marked = true;
        if (o->kind == LQ_TOK_D_WORDPIECE) t->marked = true;
    }
    return true;
}

bool lq_tok_dec_parse(const cJSON *json, lq_tokenizer *t, lq_err *err) {
    t->dec = calloc(LQ_TOK_MAX_OPS, sizeof *t->dec);
    if (!t->dec) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory");
    t->spaced = !json || cJSON_IsNull(json);
    return lq_tok_steps_read(json, &steps, t, err) && dec_place(t, err);
}

bool lq_tok_dec_pieces(lq_tokenizer *t, bool bytes, bool once, bool all, lq_err *err) {
    t->dec = calloc(LQ_TOK_MAX_OPS, sizeof *t->dec);
    if (!t->dec) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory");
    t->bytewise = bytes;
    t->marked = once;
    t->begins = all;
    if (bytes) t->dec[t->decs++].kind = LQ_TOK_D_FALLBACK;
    t->dec[t->decs++].kind = LQ_TOK_D_PIECES;
    return true;
}

// --- the bytes of a token ---

static bool replace_all(const lq_tok_pattern *p, const char *by, size_t by_n, lq_tok_work *w, lq_err *err) {
    w->spans.n = 0;
    if (!lq_tok_pattern_find(p, &w->matcher, w->a.p, w->a.n, &w->spans, err)) return false;
    for (size_t i = 0; i < w->spans.n; i++) {
        const lq_tok_span *s = &w->spans.p[i];
        const char *from = s->hit ? by : w->a.p + s->at;
        if (!lq_tok_buf_add(&w->b, from, s->hit ? by_n : s->end - s->at, err)) return false;
    }
    return true;
}

static bool literal_replace(const char *what, size_t n, const char *by, lq_tok_work *w, lq_err *err) {
    char *text = lq_tok_text_copy(what, n, err);
    lq_tok_pattern p = {.kind = LQ_TOK_P_LITERAL, .text = text, .n = n};
    bool ok = text && replace_all(&p, by, strlen(by), w, err);
    free(text);
    return ok;
}

static bool chars_to_bytes(lq_tok_work *w, lq_err *err) {
    for (size_t i = 0, len; i < w->a.n; i += len) {
        int b = lq_tok_char_byte(lq_tok_char_get(w->a.p + i, &len));
        char c = (char)b;
        if (b < 0) { // the text of an added token, then
            w->b.n = 0;
            return lq_tok_buf_add(&w->b, w->a.p, w->a.n, err);
        }
        if (!lq_tok_buf_add(&w->b, &c, 1, err)) return false;
    }
    return true;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int fallback_byte(const char *p, size_t n) { // of "<0xNN>"; -1: it is something else
    if (n != 6 || memcmp(p, "<0x", 3) || p[5] != '>') return -1;
    int h = hex_digit(p[3]), l = hex_digit(p[4]);
    return h < 0 || l < 0 ? -1 : h * 16 + l;
}

static bool strip_token(const lq_tok_dec *o, lq_tok_work *w, lq_err *err) {
    const char *p = w->a.p;
    size_t at = 0, end = w->a.n;
    for (int i = 0; i < o->start && end - at >= o->n && !memcmp(p + at, o->text, o->n); i++) at += o->n;
    for (int i = 0; i < o->stop && end - at >= o->n && !memcmp(p + end - o->n, o->text, o->n); i++) end -= o->n;
    return lq_tok_buf_add(&w->b, p + at, end - at, err);
}

// What the library calls cleanup: blanks and pairs of words that English writes as one.
static bool cleanup_run(lq_tok_work *w, lq_err *err) {
    static const char *const pairs[][2] = {{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"},
                                           {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        w->b.n = 0;
        if (!literal_replace(pairs[i][0], strlen(pairs[i][0]), pairs[i][1], w, err)) return false;
        lq_tok_buf swap = w->a;
        w->a = w->b;
        w->b = swap;
    }
    w->b.n = 0;
    return lq_tok_buf_add(&w->b, w->a.p, w->a.n, err);
}

static bool wordpiece_token(const lq_tok_dec *o, bool first, lq_tok_work *w, lq_err *err) {
    const bool within = w->a.n >= o->n && !memcmp(w->a.p, o->text, o->n);
    const size_t at = !first && within ? o->n : 0;
    if (!first && !within && !lq_tok_buf_add(&w->b, " ", 1, err)) return false;
    if (!lq_tok_buf_add(&w->b, w->a.p + at, w->a.n - at, err)) return false;
    if (!o->cleanup) return true;
    lq_tok_buf swap = w->a;
    w->a = w->b;
    w->b = swap;
    return cleanup_run(w, err);
}

// A mark is a space; the first token of a text has one less.
static bool piece_token(bool first, lq_tok_work *w, lq_err *err) {
    if (first && w->a.n >= 3 && !memcmp(w->a.p, "\xe2\x96\x81", 3)) {
        memmove(w->a.p, w->a.p + 3, w->a.n - 3);
        w->a.n -= 3;
    }
    return literal_replace("\xe2\x96\x81", 3, " ", w, err);
}

// Steps up to the first one that joins tokens. The content is in w->a, and so is the result; *is_byte: it is one.
// `first`: of a text, where Metaspace drops its marks; `last`: where BPEDecoder writes no space.
static bool token_decode(const lq_tokenizer *t, bool first, bool last, lq_tok_work *w, bool *is_byte, lq_err *err) {
    *is_byte = false;
    for (int i = 0; i < t->decs && t->dec[i].kind != LQ_TOK_D_FUSE; i++) {
        const lq_tok_dec *o = &t->dec[i];
        int byte;
        char c;
        bool ok = true;
        w->b.n = 0;
        switch (o->kind) {
        case LQ_TOK_D_REPLACE: ok = replace_all(&o->pattern, o->text, o->n, w, err); break;
        case LQ_TOK_D_BYTES: ok = chars_to_bytes(w, err); break;
        case LQ_TOK_D_STRIP: ok = strip_token(o, w, err); break;
        case LQ_TOK_D_WORDPIECE: ok = wordpiece_token(o, first, w, err); break;
        case LQ_TOK_D_PIECES: ok = piece_token(first, w, err); break;
        case LQ_TOK_D_METASPACE:
            ok = literal_replace(o->text, o->n, first && o->scheme != LQ_TOK_NEVER ? "" : " ", w, err);
            break;
        case LQ_TOK_D_SUFFIX: ok = literal_replace(o->text, o->n, last ? "" : " ", w, err); break;
        default:
            byte = fallback_byte(w->a.p, w->a.n);
            c = (char)byte;
            if (byte < 0) continue;
            w->a.n = 0;
            *is_byte = true;
            return lq_tok_buf_add(&w->a, &c, 1, err); // it is no character, nothing else looks at it
        }
        if (!ok) return false;
        lq_tok_buf swap = w->a;
        w->a = w->b;
        w->b = swap;
        if (o->kind == LQ_TOK_D_BYTES) break;
    }
    return true;
}

// What a token ends with at the end of a text may differ by one space from what it does within (`text`).
static bool gap_find(lq_tokenizer *t, int32_t id, bool first, lq_bytes text, lq_tok_work *w, lq_err *err) {
    const lq_bytes raw = lq_tok_written(t, id);
    const char *within = text.p;
    bool is_byte;
    w->a.n = 0;
    if (!lq_tok_buf_add(&w->a, raw.p, raw.n, err) || !token_decode(t, first, true, w, &is_byte, err)) return false;
    const bool begins = w->a.n <= text.n && !memcmp(w->a.p, within, w->a.n);
    const bool gap = begins && text.n == w->a.n + 1 && within[w->a.n] == ' ';
    if (!first && gap) t->trait[id] |= LQ_TOK_T_GAP;
    return (begins && (gap || text.n == w->a.n) && gap == ((t->trait[id] & LQ_TOK_T_GAP) != 0)) ||
           lq_fail(err, LQ_E_UNSUPPORTED, "tokenizer.json: decoder BPEDecoder: what token %d is depends on the one behind "
                   "it, which cannot be streamed", (int)id);
}

// The bytes of every token, in the middle of a text or as its first.
static bool table_fill(lq_tokenizer *t, bool first, lq_tok_bytes *out, lq_tok_work *w, lq_err *err) {
    const lq_tok_vocab *v = &t->vocab;
    lq_tok_buf all = {0};
    out->at = malloc(((size_t)v->count + 1) * sizeof *out->at);
    bool ok = out->at || lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %d tokens", (int)v->count);
    ok = ok && lq_tok_buf_room(&w->a, 1, err) && lq_tok_buf_room(&w->b, 1, err) && // never NULL, for empty tokens
         lq_tok_buf_room(&all, 1, err);
    for (int32_t id = 0; ok && id < v->count; id++) {
        out->at[id] = (uint32_t)all.n;
        if (!v->kind[id]) continue;
        const lq_bytes text = lq_tok_written(t, id);
        w->a.n = 0;
        w->a.max = w->b.max = LQ_TOK_GROWTH * text.n + LQ_TOK_GROWTH_TOKEN;
        const bool unknown = id == v->unk && t->unk_text;
        bool is_byte = false;
        ok = (!t->spaced || lq_tok_buf_add(&all, " ", 1, err)) &&
             (unknown ? lq_tok_buf_add(&w->a, t->unk_text, strlen(t->unk_text), err)
                      : lq_tok_buf_add(&w->a, text.p, text.n, err) &&
                        token_decode(t, first, false, w, &is_byte, err)) &&
             lq_tok_buf_add(&all, w->a.p, w->a.n, err);
        if (is_byte && t->fallback) t->trait[id] |= first ? LQ_TOK_T_BYTE_FIRST : LQ_TOK_T_BYTE;
        if (ok && t->suffixed)
            ok = gap_find(t, id, first, (lq_bytes){all.p + out->at[id], all.n - out->at[id]}, w, err);
        if (ok && all.n > BYTES_MAX)
            ok = lq_fail(err, LQ_E_LIMIT, "tokenizer: the decoder makes more than %d bytes of the vocabulary",
                         BYTES_MAX);
        if (all.n - out->at[id] > t->longest) t->longest = all.n - out->at[id];
    }
    if (ok) out->at[v->count] = (uint32_t)all.n;
    out->p = all.p;
    return ok;
}

bool lq_tok_dec_index(lq_tokenizer *t, lq_err *err) {
    lq_tok_work w = {.t = t};
    const size_t n = (size_t)t->vocab.count;
    if ((t->suffixed || t->fallback) && !(t->trait = calloc(n + 1, 1)))
        return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu tokens", n);
    bool ok = table_fill(t, false, &t->bytes, &w, err) && (!t->marked || table_fill(t, true, &t->first, &w, err));
    lq_tok_work_free(&w);
    return ok;
}

static lq_bytes bytes_of(const lq_tok_bytes *b, int32_t id) {
    return b->at[id] == b->at[id + 1] ? (lq_bytes){"", 0} : (lq_bytes){b->p + b->at[id], b->at[id + 1] - b->at[id]};
}

lq_bytes lq_tokenizer_bytes(const lq_tokenizer *t, int32_t id) {
    return id < 0 || id >= t->vocab.count ? (lq_bytes){"", 0} : bytes_of(&t->bytes, id);
}

size_t lq_tokenizer_longest(const lq_tokenizer *t) { return t->longest; }

// --- a growing text ---

// A whole character, unless it is one that is dropped at the beginning.
static size_t char_write(const lq_tokenizer *t, lq_detok *d, const char *p, size_t n, char *buf) {
    if (d->begun != OVER) {
        if (d->begun <= t->strip_count && n == t->strip_n && !memcmp(p, t->strip, n)) {
            d->begun++;
            return 0;
        }
        d->begun = OVER;
    }
    memcpy(buf, p, n);
    return n;
}

static size_t broken_write(const lq_tokenizer *t, lq_detok *d, size_t bytes, char *buf) {
    size_t n = 0;
    for (size_t i = 0; i < (t->bytewise ? bytes : 1); i++) n += char_write(t, d, "\xef\xbf\xbd", 3, buf + n);
    return n;
}

// Adds one byte to what is held and writes what became certain.
static size_t byte_write(const lq_tokenizer *t, lq_detok *d, uint8_t byte, char *buf) {
    size_t n = 0;
    d->held[d->holds++] = byte;
    while (d->holds) {
        bool valid;
        size_t len = lq_tok_char_check(d->held, d->holds, &valid);
        if (!valid && len == d->holds && d->held[0] >= 0xc2 && d->held[0] <= 0xf4) break; // it may still become one
        n += valid ? char_write(t, d, (const char *)d->held, len, buf + n) : broken_write(t, d, len, buf + n);
        memmove(d->held, d->held + len, d->holds - len);
        d->holds = (uint8_t)(d->holds - len);
    }
    return n;
}

static size_t bytes_write(const lq_tokenizer *t, lq_detok *d, const char *p, size_t n, char *buf) {
    size_t done = 0;
    for (size_t i = 0, len; i < n; i += len) {
        bool valid = false;
        len = 1;
        if (!d->holds) len = lq_tok_char_check((const uint8_t *)p + i, n - i, &valid);
        if (valid) done += char_write(t, d, p + i, len, buf + done);
        else done += byte_write(t, d, (uint8_t)p[i], buf + done), len = 1;
    }
    return done;
}

static bool is_shown(const lq_tokenizer *t, const lq_detok *d, int32_t id) {
    return id >= 0 && id < t->vocab.count && t->vocab.kind[id] && (d->special || !lq_tok_is_special(&t->vocab, id));
}

size_t lq_detok_run(const lq_tokenizer *t, const lq_detok *d, const int32_t *ids, size_t count, size_t *broken) {
    uint8_t part[4];
    size_t bytes = 0, parts = 0, i = 0;
    bool whole = true, first = t->marked && !d->begun;
    for (; t->fallback && i < count; i++) {
        if (!is_shown(t, d, ids[i])) continue;
        if (!(t->trait[ids[i]] & (first ? LQ_TOK_T_BYTE_FIRST : LQ_TOK_T_BYTE))) break;
        bytes++;
        part[parts++] = (uint8_t)*bytes_of(first ? &t->first : &t->bytes, ids[i]).p;
        first = false;
        bool valid;
        const size_t len = lq_tok_char_check(part, parts, &valid);
        if (!valid && len == parts && part[0] >= 0xc2 && part[0] <= 0xf4) continue; // it may still become one
        whole = whole && valid;
        parts = 0;
    }
    *broken = whole && !parts ? 0 : bytes;
    return i;
}

size_t lq_detok_broken(const lq_tokenizer *t, lq_detok *d, size_t bytes, char *buf) {
    if (!d->begun) d->begun = t->strip_n ? 1 : OVER;
    return broken_write(t, d, bytes, buf);
}

size_t lq_detok_next(const lq_tokenizer *t, lq_detok *d, int32_t id, char *buf) {
    if (!is_shown(t, d, id)) return 0;
    lq_bytes b = lq_tokenizer_bytes(t, id);
    bool first = d->begun == 0;
    size_t n = 0;
    if (first) {
        d->begun = t->strip_n ? 1 : OVER;
        d->bytewise = t->bytewise;
        if (t->marked) b = bytes_of(&t->first, id);
        if (t->spaced) b.p++, b.n--;
    }
    if (d->space) {
        d->space = false;
        n += bytes_write(t, d, " ", 1, buf);
    }
    if (t->trait && (t->trait[id] & LQ_TOK_T_GAP)) {
        d->space = true;
        b.n--;
    }
    n += bytes_write(t, d, b.p, b.n, buf + n);
    if (first && t->begins && !n && !d->holds) d->begun = 0;
    return n;
}

size_t lq_detok_end(lq_detok *d, char *buf) {
    size_t n = d->holds ? (d->bytewise ? d->holds : 1u) : 0;
    for (size_t i = 0; i < n; i++) memcpy(buf + 3 * i, "\xef\xbf\xbd", 3);
    d->holds = 0;
    d->space = false;
    return 3 * n;
}
