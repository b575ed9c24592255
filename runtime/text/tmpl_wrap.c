// tmpl_wrap.c: the filter `wordwrap`: a text in lines of a width, cut as Python's textwrap does it: between words,
// behind hyphens, before dashes. Refuses widths below 1.
#include "runtime/text/tmpl.h"
#include <string.h>
#include <utf8proc.h>

// A line while it is cut: places are counted in characters.
typedef struct line {
    const char *p;
    const size_t *at;  // [n + 1] the byte where each begins
    const uint32_t *c; // [n]
    size_t n;
    int64_t width;
    bool breaks, hyphens;
} line;

// --- parts: words, the space between them ---

static bool is_blank(uint32_t c) { return c == ' ' || (c >= 9 && c <= 13); }

static bool is_letter(uint32_t c) {
    const utf8proc_category_t k = utf8proc_category((int32_t)c);
    return c == '_' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) || k == UTF8PROC_CATEGORY_NL ||
           k == UTF8PROC_CATEGORY_NO;
}

static bool is_word(uint32_t c) { return is_letter(c) || utf8proc_category((int32_t)c) == UTF8PROC_CATEGORY_ND; }
static bool is_near(uint32_t c) { return is_word(c) || (c && c < 0x80 && strchr("!\"'&.,?", (int)c)); }

static bool letter_at(const line *l, size_t i) { return i < l->n && is_letter(l->c[i]); }
static bool hyphen_at(const line *l, size_t i) { return i < l->n && l->c[i] == '-'; }

// Two hyphens or more between words; the place behind them, or 0.
static size_t dash_end(const line *l, size_t i) {
    size_t end = i;
    while (hyphen_at(l, end)) end++;
    return i && is_near(l->c[i - 1]) && end >= i + 2 && end < l->n && is_word(l->c[end]) ? end : 0;
}

// Whether a word may end behind the hyphen at i: letters are on both sides of it.
static bool hyphen_cuts(const line *l, size_t i) {
    const bool before = (i >= 2 && letter_at(l, i - 1) && letter_at(l, i - 2)) ||
                        (i >= 3 && letter_at(l, i - 1) && hyphen_at(l, i - 2) && letter_at(l, i - 3));
    return before && letter_at(l, i + 1) && letter_at(l, i + 2 + hyphen_at(l, i + 2));
}

static size_t part_end(const line *l, size_t i) {
    size_t end = i;
    if (is_blank(l->c[i])) {
        while (end < l->n && is_blank(l->c[end])) end++;
        return end;
    }
    if (l->hyphens && (end = dash_end(l, i)) > 0) return end;
    for (end = i + 1; end < l->n && !is_blank(l->c[end]); end++) {
        if (l->hyphens && hyphen_at(l, end) && hyphen_cuts(l, end)) return end + 1;
        if (l->hyphens && dash_end(l, end)) return end;
    }
    return end;
}

static bool is_space(const line *l, size_t from, size_t to) {
    while (from < to && lq_tchar_is_space(l->c[from])) from++;
    return from == to;
}

// --- lines of them ---

// As much of a word that is longer than a line as fits into `room`, up to its last hyphen if it has one.
static size_t word_cut(const line *l, size_t from, size_t to, size_t room) {
    size_t cut = from + room, hyphen = cut;
    if (!l->hyphens || cut >= to) return cut < to ? cut : to;
    while (hyphen > from && l->c[hyphen - 1] != '-') hyphen--;
    for (size_t i = from; i + 1 < hyphen; i++)
        if (l->c[i] != '-') return hyphen;
    return cut;
}

static bool line_wrap(lq_tm *m, const line *l, const lq_tstr *by) {
    const size_t width = (size_t)l->width;
    bool begun = false; // a line is out
    for (size_t at = 0, end = l->n ? part_end(l, 0) : 0; at < l->n;) {
        if (begun && is_space(l, at, end)) {
            if ((at = end) == l->n) break;
            end = part_end(l, at);
        }
        const size_t from = at;
        size_t last = at; // where the last part of this line begins
        while (at < l->n && end - from <= width) {
            last = at;
            at = end;
            if (at < l->n) end = part_end(l, at);
        }
        if (at < l->n && end - at > width && (l->breaks || at == from)) { // too long for any line
            last = at;
            at = l->breaks ? word_cut(l, at, end, width - (at - from)) : end;
            if (at == end && at < l->n) end = part_end(l, at);
        }
        const size_t to = is_space(l, last, at) ? last : at;
        if (to == from) continue;
        if ((begun && !lq_tm_put(m, by->p, by->n)) || !lq_tm_put(m, l->p + l->at[from], l->at[to] - l->at[from]))
            return false;
        begun = true;
    }
    return lq_tm_steps(m, l->n);
}

bool lq_tmpl_wordwrap(lq_tm *m, lq_tv v, const lq_targs *a, lq_tv *out) {
    lq_tv x[4], by;
    const size_t from = m->out_n;
    if (!LQ_BIND(m, a, "wordwrap", 0, x, "width", "break_long_words", "wrapstring", "break_on_hyphens")) return false;
    if (v.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, v);
    if (v.kind != LQ_TV_STR) return lq_tm_fail(m, "'%s' object has no attribute 'splitlines'", lq_tv_type(v));
    if (x[0].kind != LQ_TV_MISSING && !lq_tv_is_int(x[0]))
        return lq_tm_fail(m, "wordwrap: a width of '%s'", lq_tv_type(x[0]));
    if (x[2].kind == LQ_TV_STR) by = x[2];
    else if (!lq_tstr_const(m, "\n", &by)) return false;
    size_t *at = lq_tm_take(m, v.s->chars + 1, sizeof *at);
    uint32_t *c = lq_tm_take(m, v.s->chars + 1, sizeof *c);
    if (!at || !c) return false;
    line l = {.at = at, .c = c, .width = x[0].kind == LQ_TV_MISSING ? 79 : lq_tv_as_int(x[0])};
    l.breaks = x[1].kind == LQ_TV_MISSING || lq_tv_true(x[1]);
    l.hyphens = x[3].kind == LQ_TV_MISSING || lq_tv_true(x[3]);
    if (l.width < 1 && v.s->n) return lq_tm_fail(m, "invalid width %lld (must be > 0)", (long long)l.width);
    for (size_t i = 0, mark; i < v.s->n; i += mark) {
        const size_t n = lq_tstr_line_end(v.s->p + i, v.s->n - i, &mark);
        l.p = v.s->p + i;
        l.n = 0;
        for (size_t k = 0, len; k < n; k += len) {
            at[l.n] = k;
            c[l.n++] = lq_tstr_char(l.p + k, &len);
        }
        at[l.n] = n;
        if ((i && !lq_tm_put(m, by.s->p, by.s->n)) || !line_wrap(m, &l, by.s)) return false;
        i += n;
    }
    return lq_tm_cut(m, from, out);
}
