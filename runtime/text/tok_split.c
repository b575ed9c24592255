// tok_split.c: pre-tokenizers: a normalized section of text is cut into the words that BPE sees.
// A component of tokenizer.json becomes one to three simple steps. Refuses the types it does not know, by name.
#include <stdlib.h>
#include <string.h>
#include "runtime/text/tok.h"

// \w of the Rust library has the joiners too, and the letters of Unicode 15 and 16.
#define RUST_WORDS \
    "\\w\\x{200c}\\x{200d}" \
    "\\x{897}\\x{cf3}\\x{ece}\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}" \
    "\\x{10d40}-\\x{10d65}\\x{10d69}-\\x{10d6d}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{10efc}-\\x{10eff}" \
    "\\x{1123f}-\\x{11241}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}-\\x{113c0}\\x{113c2}" \
    "\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d3}\\x{113e1}-\\x{113e2}\\x{116d0}-\\x{116e3}\\x{11bc0}-\\x{11be0}" \
    "\\x{11bf0}-\\x{11bf9}\\x{11f00}-\\x{11f10}\\x{11f12}-\\x{11f3a}\\x{11f3e}-\\x{11f42}\\x{11f50}-\\x{11f5a}\\x{1342f}" \
    "\\x{13440}-\\x{13455}\\x{13460}-\\x{143fa}\\x{16100}-\\x{16139}\\x{16d40}-\\x{16d6c}\\x{16d70}-\\x{16d79}\\x{18cff}" \
    "\\x{1b132}\\x{1b155}\\x{1ccf0}-\\x{1ccf9}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e08f}\\x{1e4d0}-\\x{1e4f9}" \
    "\\x{1e5d0}-\\x{1e5fa}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
static const char plain_words[] = "[" RUST_WORDS "]+|[^" RUST_WORDS "\\s]+";

// --- reading ---

static lq_tok_pre *step_add(lq_tokenizer *t, lq_tok_pre_kind kind, lq_err *err) {
    if (!lq_tok_step_fits(t->pres, "steps of pre-tokenizers", err)) return NULL;
    t->pre[t->pres].kind = kind;
    return &t->pre[t->pres++];
}

static bool class_split_add(lq_tokenizer *t, lq_tok_class k, lq_tok_behavior b, lq_err *err) {
    lq_tok_pre *o = step_add(t, LQ_TOK_SPLIT, err);
    if (!o) return false;
    o->pattern.kind = LQ_TOK_P_CLASS;
    o->pattern.cls = k;
    o->behavior = b;
    return true;
}

static bool regex_split_add(lq_tokenizer *t, const char *regex, lq_tok_behavior b, bool invert, lq_err *err) {
    lq_tok_pre *o = step_add(t, LQ_TOK_SPLIT, err);
    if (!o) return false;
    o->behavior = b;
    o->invert = invert;
    return lq_tok_regex_compile(&o->pattern, regex, err);
}

static bool behavior_read(const cJSON *json, const char *absent, lq_tok_behavior *b, lq_err *err) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *s = lq_json_str(json, "behavior");
    if (!s) s = absent ? absent : "";
    for (int i = 0; i < 5; i++) {
        if (!strcmp(s, names[i])) return *b = (lq_tok_behavior)i, true;
    }
    return lq_fail(err, LQ_E_UNSUPPORTED, "tokenizer.json: pre_tokenizer: behavior \"%s\" is not known", s);
}

static bool byte_level_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    (void)how;
    static const char what[] = "tokenizer.json: pre_tokenizer ByteLevel";
    bool prefix = true, regex = true;
    if (!lq_json_bool(json, "add_prefix_space", &prefix, what, err) ||
        !lq_json_bool(json, "use_regex", &regex, what, err)) return false;
    if (prefix && !step_add(t, LQ_TOK_PREFIX_SPACE, err)) return false;
    if (regex && !regex_split_add(t, lq_tok_words_gpt2, LQ_TOK_ISOLATED, false, err)) return false;
    return step_add(t, LQ_TOK_BYTES, err) != NULL;
}

static bool split_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    (void)how;
    lq_tok_pre *o = step_add(t, LQ_TOK_SPLIT, err);
    return o && behavior_read(json, NULL, &o->behavior, err) &&
           lq_json_bool(json, "invert", &o->invert, "tokenizer.json: pre_tokenizer Split", err) &&
           lq_tok_pattern_parse(cJSON_GetObjectItemCaseSensitive(json, "pattern"), "pre_tokenizer Split", &o->pattern,
                                err);
}

static bool metaspace_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    (void)how;
    static const char what[] = "tokenizer.json: pre_tokenizer Metaspace";
    const char *mark = lq_json_str(json, "replacement"), *scheme = lq_json_str(json, "prepend_scheme");
    bool prefix = true, split = true;
    if (!lq_json_bool(json, "add_prefix_space", &prefix, what, err) || !lq_json_bool(json, "split", &split, what, err))
        return false;
    lq_tok_pre *o = step_add(t, LQ_TOK_METASPACE, err);
    if (!o) return false;
    if (!mark) mark = "\xe2\x96\x81";
    size_t len;
    lq_tok_char_get(mark, &len);
    if (!*mark || mark[len])
        return lq_fail(err, LQ_E_FORMAT, "%s: replacement \"%.20s\" is not one character", what, mark);
    memcpy(o->mark, mark, len);
    o->mark_n = len;
    if (!prefix) scheme = "never";
    if (!scheme || !strcmp(scheme, "always")) o->scheme = LQ_TOK_ALWAYS;
    else if (!strcmp(scheme, "first")) o->scheme = LQ_TOK_FIRST;
    else if (!strcmp(scheme, "never")) o->scheme = LQ_TOK_NEVER;
    else return lq_fail(err, LQ_E_UNSUPPORTED, "%s: prepend_scheme \"%.40s\" is not known", what, scheme);
    if (!split) return true;
    char text[8] = {0};
    memcpy(text, mark, len);
    o = step_add(t, LQ_TOK_SPLIT, err);
    if (!o) return false;
    o->behavior = LQ_TOK_MERGED_NEXT;
    o->pattern.n = len;
    o->pattern.text = lq_tok_text_copy(text, len, err);
    return o->pattern.text != NULL;
}

static bool delimiter_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    const char *s = lq_json_str(json, "delimiter");
    size_t len = 0;
    (void)how;
    if (s && *s) lq_tok_char_get(s, &len);
    if (!len || s[len])
        return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: pre_tokenizer CharDelimiterSplit: delimiter is not one character");
    lq_tok_pre *o = step_add(t, LQ_TOK_SPLIT, err);
    if (!o) return false;
    o->behavior = LQ_TOK_REMOVED;
    o->pattern.n = len;
    o->pattern.text = lq_tok_text_copy(s, len, err);
    return o->pattern.text != NULL;
}

static bool chunks_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    int64_t n = 5;
    (void)how;
    lq_tok_pre *o = step_add(t, LQ_TOK_CHUNKS, err);
    if (!o || !lq_json_int(json, "length", 1, LQ_TOK_MAX_TEXT, &n, "tokenizer.json: pre_tokenizer FixedLength", err))
        return false;
    o->chunk = (size_t)n;
    return true;
}

static bool digits_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    bool single = false;
    (void)how;
    return lq_json_bool(json, "individual_digits", &single, "tokenizer.json: pre_tokenizer Digits", err) &&
           class_split_add(t, LQ_TOK_NUMERIC, single ? LQ_TOK_ISOLATED : LQ_TOK_CONTIGUOUS, err);
}

static bool punctuation_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    lq_tok_behavior b = LQ_TOK_ISOLATED;
    (void)how;
    return behavior_read(json, "Isolated", &b, err) && class_split_add(t, LQ_TOK_PUNCTUATION, b, err);
}

enum { SPACES, WORDS, SPACES_AND_PUNCTUATION };
static bool spaces_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    (void)json;
    if (how == WORDS) return regex_split_add(t, plain_words, LQ_TOK_REMOVED, true, err);
    return class_split_add(t, LQ_TOK_SPACE, LQ_TOK_REMOVED, err) &&
           (how == SPACES || class_split_add(t, LQ_TOK_PUNCTUATION, LQ_TOK_ISOLATED, err));
}

static const lq_tok_step rows[] = {
    {"ByteLevel", 0, byte_level_read}, {"Split", 0, split_read}, {"Metaspace", 0, metaspace_read},
    {"Digits", 0, digits_read}, {"Punctuation", 0, punctuation_read}, {"WhitespaceSplit", SPACES, spaces_read},
    {"Whitespace", WORDS, spaces_read}, {"BertPreTokenizer", SPACES_AND_PUNCTUATION, spaces_read},
    {"CharDelimiterSplit", 0, delimiter_read}, {"FixedLength", 0, chunks_read},
};
static const lq_tok_steps steps = {"pre_tokenizer", "pretokenizers", rows, sizeof rows / sizeof *rows};

// As the last step, bytes need not become characters: BPE looks them up as they are. But where a character that is no
// token falls back to the tokens of its bytes, it must be seen as the character.
static bool bytes_suffice(const lq_tok_vocab *v) {
    bool all = !v->byte_fallback || (!v->prefix && !v->suffix);
    for (int b = 0; all && v->byte_fallback && b < 256; b++) {
        char c[4];
        all = lq_tok_vocab_find(v, c, lq_tok_char_put(lq_tok_byte_char((uint8_t)b), c)) >= 0;
    }
    return all && v->model == LQ_TOK_BPE;
}

bool lq_tok_pre_parse(const cJSON *json, lq_tokenizer *t, lq_err *err) {
    t->pre = calloc(LQ_TOK_MAX_OPS, sizeof *t->pre);
    if (!t->pre) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory");
    if (!lq_tok_steps_read(json, &steps, t, err)) return false;
    if (t->pres && t->pre[t->pres - 1].kind == LQ_TOK_BYTES && bytes_suffice(&t->vocab)) {
        t->pres--;
        t->vocab.byte_level = true;
    }
    return true;
}

// --- cutting ---

bool lq_tok_words_add(lq_tok_words *w, size_t at, size_t end, size_t lead, lq_err *err) {
    if (at == end) return true;
    if (!lq_grow((void **)&w->p, w->n, &w->cap, sizeof *w->p))
        return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu words", w->n);
    w->p[w->n++] = (lq_tok_word){at, end, lead < end - at ? lead : end - at};
    return true;
}

// A part of a word, which begins there in it.
static bool part_add(lq_tok_words *w, const lq_tok_word *in, size_t at, size_t end, lq_err *err) {
    return lq_tok_words_add(w, in->at + at, in->at + end, in->lead > at ? in->lead - at : 0, err);
}

// Whether a span goes on with the word of the span before it.
static bool span_joins(lq_tok_behavior b, bool before, bool hit) {
    switch (b) {
    case LQ_TOK_CONTIGUOUS: return hit == before;
    case LQ_TOK_MERGED_PREVIOUS: return hit && !before;
    case LQ_TOK_MERGED_NEXT: return before && !hit;
    default: return false;
    }
}

static bool word_cut(const lq_tok_pre *o, const lq_tok_word *in, const lq_tok_spans *spans, lq_tok_words *out,
                     lq_err *err) {
    bool before = false;
    size_t at = 0, end = 0; // the word that is growing
    for (size_t i = 0; i < spans->n; i++) {
        const lq_tok_span *s = &spans->p[i];
        bool hit = s->hit != o->invert;
        if (i && !span_joins(o->behavior, before, hit)) {
            if (!part_add(out, in, at, end, err)) return false;
            at = s->at;
        }
        end = s->end;
        if (o->behavior == LQ_TOK_REMOVED && hit) at = end;
        before = hit;
    }
    return part_add(out, in, at, end, err);
}

static bool split_run(const lq_tok_pre *o, lq_tok_work *w, lq_err *err) {
    w->next.n = 0;
    for (size_t i = 0; i < w->words.n; i++) {
        const lq_tok_word *in = &w->words.p[i];
        w->spans.n = 0;
        if (!lq_tok_pattern_find(&o->pattern, &w->matcher, w->a.p + in->at, in->end - in->at, &w->spans, err))
            return false;
        if (!word_cut(o, in, &w->spans, &w->next, err)) return false;
    }
    return true;
}

static bool chunks_run(const lq_tok_pre *o, lq_tok_work *w, lq_err *err) {
    w->next.n = 0;
    for (size_t i = 0; i < w->words.n; i++) {
        const lq_tok_word *in = &w->words.p[i];
        const size_t n = in->end - in->at;
        size_t chars = 0, at = 0, len;
        for (size_t k = 0; k < n; k += len) {
            lq_tok_char_get(w->a.p + in->at + k, &len);
            if (++chars % o->chunk && k + len < n) continue;
            if (!part_add(&w->next, in, at, k + len, err)) return false;
            at = k + len;
        }
    }
    return true;
}

// *lead: of the word, then of what is written for it.
static bool metaspace_run(const lq_tok_pre *o, const char *p, size_t n, size_t *lead, lq_tok_buf *out, lq_err *err) {
    const size_t had = *lead;
    bool marked = p[0] == ' ' || (n >= o->mark_n && !memcmp(p, o->mark, o->mark_n));
    bool prepend = o->scheme == LQ_TOK_ALWAYS || (o->scheme == LQ_TOK_FIRST && had);
    if (!marked && prepend && !lq_tok_buf_add(out, o->mark, o->mark_n, err)) return false;
    if (!marked && prepend && had) *lead += o->mark_n;
    for (size_t i = 0; i < n;) {
        const char *q = memchr(p + i, ' ', n - i);
        size_t end = q ? (size_t)(q - p) : n;
        if (!lq_tok_buf_add(out, p + i, end - i, err) || (q && !lq_tok_buf_add(out, o->mark, o->mark_n, err)))
            return false;
        if (q && end < had) *lead += o->mark_n - 1;
        i = end + (q != NULL);
    }
    return true;
}

// Steps that change the text write all words anew.
static bool rewrite_run(const lq_tok_pre *o, lq_tok_work *w, lq_err *err) {
    w->next.n = 0;
    for (size_t i = 0; i < w->words.n; i++) {
        const lq_tok_word *in = &w->words.p[i];
        const char *p = w->a.p + in->at;
        size_t n = in->end - in->at, at = w->b.n, lead = in->lead;
        bool ok;
        if (o->kind == LQ_TOK_PREFIX_SPACE) {
            ok = (*p == ' ' || lq_tok_buf_add(&w->b, " ", 1, err)) && lq_tok_buf_add(&w->b, p, n, err);
            if (lead && *p != ' ') lead++;
        } else if (o->kind == LQ_TOK_METASPACE) ok = metaspace_run(o, p, n, &lead, &w->b, err);
        else {
            ok = lq_tok_bytes_map(p, n, &w->b, err);
            if (ok) lead = lq_tok_chars_size(w->b.p + at, lead);
        }
        if (!ok || !lq_tok_words_add(&w->next, at, w->b.n, lead, err)) return false;
    }
    return true;
}

bool lq_tok_pre_run(const lq_tokenizer *t, lq_tok_work *w, lq_err *err) {
    size_t most = 0;
    for (int i = 0; i < t->pres; i++) {
        const lq_tok_pre *o = &t->pre[i];
        const bool writes = o->kind != LQ_TOK_SPLIT && o->kind != LQ_TOK_CHUNKS;
        if (writes) lq_tok_step_begin(w, w->pre_left);
        bool ok = writes ? rewrite_run(o, w, err) && lq_tok_step_end(w, w->pre_left, &most, err)
                  : o->kind == LQ_TOK_SPLIT ? split_run(o, w, err) : chunks_run(o, w, err);
        if (!ok) return false;
        lq_tok_words swap = w->words;
        w->words = w->next;
        w->next = swap;
    }
    w->pre_left -= most;
    return true;
}
