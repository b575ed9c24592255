// tok_norm.c: normalizers: what happens to a section of text before it is cut into words.
// Refuses the types it does not know, by name.
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "runtime/text/tok.h"

// --- reading ---

lq_tok_norm *lq_tok_norm_add(lq_tokenizer *t, lq_tok_norm_kind kind, lq_err *err) {
    if (!lq_tok_step_fits(t->norms, "normalizers", err)) return NULL;
    t->norm[t->norms].kind = kind;
    return &t->norm[t->norms++];
}

static bool plain_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    (void)json;
    return lq_tok_norm_add(t, (lq_tok_norm_kind)how, err) != NULL;
}

enum { COMPOSE = 1, COMPAT = 2 };
static bool form_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    lq_tok_norm *o = lq_tok_norm_add(t, LQ_TOK_N_FORM, err);
    (void)json;
    if (!o) return false;
    o->compose = how & COMPOSE;
    o->compat = how & COMPAT;
    return true;
}

static bool strip_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    lq_tok_norm *o = lq_tok_norm_add(t, LQ_TOK_N_STRIP, err);
    (void)how;
    if (!o) return false;
    o->left = o->right = true;
    return lq_json_bool(json, "strip_left", &o->left, "tokenizer.json: normalizer Strip", err) &&
           lq_json_bool(json, "strip_right", &o->right, "tokenizer.json: normalizer Strip", err);
}

static bool text_read(const cJSON *json, const char *key, lq_tok_norm *o, lq_err *err) {
    const char *s = lq_json_str(json, key);
    if (!s) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: normalizer: no string \"%s\"", key);
    o->n = strlen(s);
    o->text = lq_tok_text_copy(s, o->n, err);
    return o->text != NULL;
}

static bool prepend_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    lq_tok_norm *o = lq_tok_norm_add(t, LQ_TOK_N_PREPEND, err);
    (void)how;
    return o && text_read(json, "prepend", o, err);
}

static bool replace_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    lq_tok_norm *o = lq_tok_norm_add(t, LQ_TOK_N_REPLACE, err);
    (void)how;
    return o && text_read(json, "content", o, err) &&
           lq_tok_pattern_parse(cJSON_GetObjectItemCaseSensitive(json, "pattern"), "normalizer Replace", &o->pattern,
                                err);
}

// A few steps in this order.
static bool bert_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    static const char what[] = "tokenizer.json: normalizer BertNormalizer";
    bool clean = true, cjk = true, lower = true;
    (void)how;
    if (!lq_json_bool(json, "clean_text", &clean, what, err) || !lq_json_bool(json, "lowercase", &lower, what, err) ||
        !lq_json_bool(json, "handle_chinese_chars", &cjk, what, err)) return false;
    bool accents = lower; // null: as lowercase says
    if (!lq_json_bool(json, "strip_accents", &accents, what, err)) return false;
    return (!clean || lq_tok_norm_add(t, LQ_TOK_N_CLEAN, err)) && (!cjk || lq_tok_norm_add(t, LQ_TOK_N_CJK, err)) &&
           (!accents || (lq_tok_norm_add(t, LQ_TOK_N_FORM, err) && lq_tok_norm_add(t, LQ_TOK_N_STRIP_MARKS, err))) &&
           (!lower || lq_tok_norm_add(t, LQ_TOK_N_LOWER, err));
}

static bool charsmap_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    static const char what[] = "tokenizer.json: normalizer Precompiled";
    const char *s = lq_json_str(json, "precompiled_charsmap");
    lq_tok_norm *o = lq_tok_norm_add(t, LQ_TOK_N_CHARSMAP, err);
    lq_tok_buf bytes = {0};
    (void)how;
    if (!o) return false;
    if (!s) return lq_fail(err, LQ_E_FORMAT, "%s: no string \"precompiled_charsmap\"", what);
    bool ok = lq_tok_base64(s, strlen(s), &bytes, err) ||
              lq_fail(err, LQ_E_FORMAT, "%s: precompiled_charsmap is not base64", what);
    ok = ok && lq_tok_charsmap_read(bytes.p, bytes.n, &o->map, what, err);
    free(bytes.p);
    return ok;
}

static const lq_tok_step rows[] = {
    {"NFC", COMPOSE, form_read}, {"NFD", 0, form_read}, {"NFKC", COMPOSE | COMPAT, form_read},
    {"NFKD", COMPAT, form_read}, {"Lowercase", LQ_TOK_N_LOWER, plain_read},
    {"StripAccents", LQ_TOK_N_STRIP_ACCENTS, plain_read}, {"ByteLevel", LQ_TOK_N_BYTES, plain_read},
    {"Nmt", LQ_TOK_N_NMT, plain_read}, {"BertNormalizer", 0, bert_read}, {"Precompiled", 0, charsmap_read},
    {"Strip", 0, strip_read}, {"Prepend", 0, prepend_read}, {"Replace", 0, replace_read},
};
static const lq_tok_steps steps = {"normalizer", "normalizers", rows, sizeof rows / sizeof *rows};

bool lq_tok_norm_parse(const cJSON *json, lq_tokenizer *t, lq_err *err) {
    t->norm = calloc(LQ_TOK_MAX_OPS, sizeof *t->norm);
    if (!t->norm) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory");
    return lq_tok_steps_read(json, &steps, t, err);
}

// --- normal forms ---

typedef struct chars { utf8proc_int32_t *p; size_t n, cap; } chars;

static bool chars_room(chars *c, size_t more, lq_err *err) {
    if (c->n + more <= c->cap) return true;
    size_t to = (c->n + more) * 2;
    void *p = realloc(c->p, to * sizeof *c->p);
    if (!p) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for a normal form");
    c->p = p;
    c->cap = to;
    return true;
}

static int char_order(utf8proc_int32_t c, bool today) {
    int k = utf8proc_get_property(c)->combining_class & 255;
    return k && !today && lq_tok_char_is_later((uint32_t)c) ? 0 : k;
}

// Marks are put in the order of their combining class, stably: by counting, since a text may be all marks.
static bool marks_sort(utf8proc_int32_t *p, size_t n, bool today, lq_err *err) {
    size_t count[257] = {0};
    utf8proc_int32_t *to = malloc(n * sizeof *to);
    if (!to) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for a normal form");
    for (size_t i = 0; i < n; i++) count[char_order(p[i], today) + 1]++;
    for (size_t i = 1; i < 257; i++) count[i] += count[i - 1];
    for (size_t i = 0; i < n; i++) to[count[char_order(p[i], today)]++] = p[i];
    memcpy(p, to, n * sizeof *p);
    free(to);
    return true;
}

static bool chars_order(chars *c, bool today, lq_err *err) {
    for (size_t i = 0; i < c->n;) {
        size_t end = i;
        bool sorted = true;
        int last = 0;
        while (end < c->n) {
            int k = char_order(c->p[end], today);
            if (!k) break;
            if (k < last) sorted = false;
            last = k;
            end++;
        }
        if (!sorted && !marks_sort(c->p + i, end - i, today, err)) return false;
        i = end + (end == i);
    }
    return true;
}

// One stretch that begins and ends where nothing combines across.
static bool form_stretch(const lq_tok_norm *o, const char *p, size_t n, chars *c, lq_tok_buf *out, lq_err *err) {
    utf8proc_option_t how = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (o->compat ? UTF8PROC_COMPAT : 0);
    c->n = 0;
    for (size_t i = 0, len; i < n; i += len) {
        utf8proc_int32_t ch = (utf8proc_int32_t)lq_tok_char_get(p + i, &len);
        if (!chars_room(c, 32, err)) return false; // the longest decomposition has 18
        if (!o->today && lq_tok_char_is_later((uint32_t)ch)) {
            c->p[c->n++] = ch;
            continue;
        }
        utf8proc_ssize_t k = utf8proc_decompose_char(ch, c->p + c->n, 32, how, NULL);
        if (k < 0 || k > 32) return lq_fail(err, LQ_E_FORMAT, "tokenizer: U+%04X has no decomposition", (unsigned)ch);
        c->n += (size_t)k;
    }
    if (!chars_order(c, o->today, err)) return false;
    if (o->compose) {
        utf8proc_ssize_t k = utf8proc_normalize_utf32(c->p, (utf8proc_ssize_t)c->n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (k >= 0) c->n = (size_t)k;
    }
    if (!lq_tok_buf_room(out, 4 * c->n, err)) return false;
    for (size_t i = 0; i < c->n; i++) out->n += lq_tok_char_put((uint32_t)c->p[i], out->p + out->n);
    return true;
}

// Most text is in its normal form already: only what begins at a character that may change and ends before the next
// ASCII one (which never combines with what is before it) is looked at. Below U+0300 everything is NFC.
static bool form_make(const lq_tok_norm *o, const char *p, size_t n, lq_tok_buf *out, lq_err *err) {
    uint8_t quiet = o->compose && !o->compat ? 0xcc : 0x80;
    chars c = {0};
    bool ok = true;
    size_t done = 0;
    for (size_t i = 0; ok && i < n; i++) {
        if ((uint8_t)p[i] < quiet) continue;
        size_t at = i, end = i;
        if (at > done) { // the character before may combine with this one
            at--;
            while (at > done && ((uint8_t)p[at] & 0xc0) == 0x80) at--;
        }
        while (end < n && (uint8_t)p[end] >= 0x80) end++;
        ok = lq_tok_buf_add(out, p + done, at - done, err) && form_stretch(o, p + at, end - at, &c, out, err);
        done = i = end;
    }
    free(c.p);
    return ok && lq_tok_buf_add(out, p + done, n - done, err);
}

// What the lead becomes by itself is its length, but for marks behind it that become a part of its last character.
static bool form_run(const lq_tok_norm *o, const char *p, size_t n, lq_tok_buf *out, size_t *lead, lq_err *err) {
    lq_tok_buf alone = {0};
    bool ok = form_make(o, p, n, out, err), plain = true;
    for (size_t i = 0; plain && i < n && i <= *lead; i++) plain = (uint8_t)p[i] < 0x80;
    if (plain) return ok;
    ok = ok && form_make(o, p, *lead, &alone, err);
    if (alone.n > out->n) alone.n = out->n;
    while (alone.n && alone.n < out->n && ((uint8_t)out->p[alone.n] & 0xc0) == 0x80) alone.n++;
    *lead = alone.n;
    free(alone.p);
    return ok;
}

// --- the others ---
//
// Each reads what `lead` says of its text and leaves there what it is of the text it wrote.

static bool lower_run(const char *p, size_t n, lq_tok_buf *out, size_t *lead, lq_err *err) {
    const size_t had = *lead;
    if (!lq_tok_buf_room(out, 2 * n + 4, err)) return false;
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t c = lq_tok_char_get(p + i, &len);
        char *to = out->p + out->n;
        if (c < 0x80) *to = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c), out->n++;
        else if (c == 0x130) memcpy(to, "i\xcc\x87", 3), out->n += 3; // the one letter that becomes two characters
        else out->n += lq_tok_char_put((uint32_t)utf8proc_tolower((utf8proc_int32_t)c), to);
        if (i < had) *lead = out->n;
    }
    return true;
}

// Blocks of ideographs as BERT lists them.
static bool char_is_cjk(uint32_t c) {
    static const uint32_t blocks[][2] = {
        {0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xf900, 0xfaff}, {0x20000, 0x2a6df},
        {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f},
    };
    for (size_t i = 0; c >= 0x3400 && i < sizeof blocks / sizeof *blocks; i++)
        if (c >= blocks[i][0] && c <= blocks[i][1]) return true;
    return false;
}

// Whether a step takes a character away.
static bool char_goes(lq_tok_norm_kind kind, uint32_t c) {
    switch (kind) {
    case LQ_TOK_N_STRIP_ACCENTS: return c >= 0x80 && lq_tok_char_is(c, LQ_TOK_MARK);
    case LQ_TOK_N_STRIP_MARKS: return c >= 0x80 && lq_tok_char_is(c, LQ_TOK_MARK_NONSPACING);
    case LQ_TOK_N_CLEAN:
        return c == 0 || c == 0xfffd || (c != '\t' && c != '\n' && c != '\r' && lq_tok_char_is(c, LQ_TOK_OTHER));
    case LQ_TOK_N_NMT:
        return (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
    default: return false;
    }
}

static bool char_spaces(lq_tok_norm_kind kind, uint32_t c) {
    if (kind == LQ_TOK_N_CLEAN) return lq_tok_char_is(c, LQ_TOK_SPACE);
    return kind == LQ_TOK_N_NMT && (c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || c == 0x2028 ||
                                    c == 0x2029 || (c >= 0x200b && c <= 0x200f) || c == 0x2581 || c == 0xfeff ||
                                    c == 0xfffd);
}

// Steps that look at each character by itself.
static bool chars_run(lq_tok_norm_kind kind, const char *p, size_t n, lq_tok_buf *out, size_t *lead, lq_err *err) {
    const size_t had = *lead;
    size_t done = 0;
    for (size_t i = 0, len; i < n; i += len) {
        if (i == had) *lead = out->n + i - done;
        const uint32_t c = lq_tok_char_get(p + i, &len);
        const bool goes = char_goes(kind, c), space = !goes && char_spaces(kind, c);
        const bool cjk = kind == LQ_TOK_N_CJK && char_is_cjk(c);
        if (!goes && !space && !cjk) continue;
        if (!lq_tok_buf_add(out, p + done, i - done, err)) return false;
        if ((space || cjk) && !lq_tok_buf_add(out, " ", 1, err)) return false;
        if (cjk && (!lq_tok_buf_add(out, p + i, len, err) || !lq_tok_buf_add(out, " ", 1, err))) return false;
        done = i + len;
    }
    if (had == n) *lead = out->n + n - done;
    return lq_tok_buf_add(out, p + done, n - done, err);
}

static bool strip_run(const lq_tok_norm *o, const char *p, size_t n, lq_tok_buf *out, size_t *lead, lq_err *err) {
    size_t at = 0, len;
    while (o->left && at < n && lq_tok_char_is(lq_tok_char_get(p + at, &len), LQ_TOK_SPACE)) at += len;
    *lead -= at < *lead ? at : *lead;
    while (o->right && n > at) {
        size_t back = n - 1;
        while (back > at && ((uint8_t)p[back] & 0xc0) == 0x80) back--;
        if (!lq_tok_char_is(lq_tok_char_get(p + back, &len), LQ_TOK_SPACE)) break;
        n = back;
    }
    if (*lead > n - at) *lead = n - at;
    return lq_tok_buf_add(out, p + at, n - at, err);
}

// What is put in place of a match stands for the match's last character, or for the one before an empty match.
static bool replace_run(const lq_tok_norm *o, lq_tok_work *w, const char *p, size_t n, lq_tok_buf *out,
                        lq_tok_lead *lead, lq_err *err) {
    const size_t had = lead->n;
    if (o->pattern.kind == LQ_TOK_P_LITERAL && o->pattern.n == 1) { // " " to U+2581, mostly
        for (size_t i = 0; i < n;) {
            const char *q = memchr(p + i, o->pattern.text[0], n - i);
            size_t end = q ? (size_t)(q - p) : n;
            if (i < had) lead->n = out->n + (end < had ? end : had) - i;
            if (!lq_tok_buf_add(out, p + i, end - i, err)) return false;
            if (!q) break;
            if (!lq_tok_buf_add(out, o->text, o->n, err)) return false;
            if (end < had) lead->n = out->n;
            i = end + 1;
        }
        return true;
    }
    w->spans.n = 0;
    if (!lq_tok_pattern_find(&o->pattern, &w->matcher, p, n, &w->spans, err)) return false;
    if (w->spans.n) lead->n = 0;
    for (size_t i = 0; i < w->spans.n; i++) {
        const lq_tok_span *s = &w->spans.p[i];
        const char *by = s->hit ? o->text : p + s->at;
        if (!s->hit && s->at < had) lead->n = out->n + (s->end < had ? s->end : had) - s->at;
        if (!lq_tok_buf_add(out, by, s->hit ? o->n : s->end - s->at, err)) return false;
        if (s->hit && (s->end ? s->end <= had : lead->whole)) lead->n = out->n;
    }
    return true;
}

// An empty text in front takes the first character out of its place, as the library has it.
static bool prepend_run(const lq_tok_norm *o, const char *p, size_t n, lq_tok_buf *out, lq_tok_lead *lead,
                        lq_err *err) {
    size_t len = 0;
    if (!n) return true;
    lq_tok_char_get(p, &len);
    if (lead->n) lead->n += o->n;
    else if (!o->n && lead->whole) lead->n = len;
    return lq_tok_buf_add(out, o->text, o->n, err) && lq_tok_buf_add(out, p, n, err);
}

static bool norm_apply(const lq_tokenizer *t, const lq_tok_norm *o, lq_tok_work *w, lq_tok_lead *lead, lq_err *err) {
    const char *p = w->a.p;
    const size_t n = w->a.n;
    lq_tok_buf *out = &w->b;
    switch (o->kind) {
    case LQ_TOK_N_FORM: return form_run(o, p, n, out, &lead->n, err);
    case LQ_TOK_N_LOWER: return lower_run(p, n, out, &lead->n, err);
    case LQ_TOK_N_STRIP: return strip_run(o, p, n, out, &lead->n, err);
    case LQ_TOK_N_STRIP_ACCENTS: case LQ_TOK_N_STRIP_MARKS: case LQ_TOK_N_CLEAN: case LQ_TOK_N_CJK: case LQ_TOK_N_NMT:
        return chars_run(o->kind, p, n, out, &lead->n, err);
    case LQ_TOK_N_PREPEND: return prepend_run(o, p, n, out, lead, err);
    case LQ_TOK_N_REPLACE: return replace_run(o, w, p, n, out, lead, err);
    case LQ_TOK_N_BYTES:
        if (!lq_tok_bytes_map(p, n, out, err)) return false;
        lead->n = lq_tok_chars_size(out->p, lead->n);
        return true;
    case LQ_TOK_N_CHARSMAP: return lq_tok_charsmap_run(&o->map, p, n, out, &lead->n, err);
    case LQ_TOK_N_PIECES: return lq_tok_pieces_run(o, &t->vocab.user, p, n, lead->whole, out, err);
    }
    return true;
}

bool lq_tok_norm_run(const lq_tokenizer *t, lq_tok_work *w, lq_tok_lead *lead, lq_err *err) {
    size_t most = 0;
    for (int i = 0; i < t->norms; i++) {
        lq_tok_step_begin(w, w->norm_left);
        if (!norm_apply(t, &t->norm[i], w, lead, err) || !lq_tok_step_end(w, w->norm_left, &most, err)) return false;
    }
    w->norm_left -= most;
    return true;
}
