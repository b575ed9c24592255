// tmpl_method.c: attributes of values: the methods of strings, lists and dicts, and what `loop` and macros tell. A
// method that would change a value is there, and the sandbox keeps it from being called.
#include "runtime/text/tmpl.h"
#include <string.h>
#include <utf8proc.h>

// --- arguments of methods of strings ---

static bool is_str(lq_tm *m, lq_tv v, const char *what) {
    return v.kind == LQ_TV_STR || lq_tm_fail(m, "%s must be str, not %s", what, lq_tv_type(v));
}

static bool is_int(lq_tm *m, lq_tv v, int64_t *out) {
    if (!lq_tv_is_int(v)) return lq_tm_fail(m, "'%s' object cannot be interpreted as an integer", lq_tv_type(v));
    *out = lq_tv_as_int(v);
    return true;
}

// The bytes between two places that may be counted from the end; false in *is where there is nothing, not even an
// empty string.
static bool range_of(lq_tm *m, const lq_tstr *s, const lq_tv at[2], size_t *from, size_t *to, bool *is) {
    int64_t first = 0, last = (int64_t)s->chars;
    const int64_t n = last;
    for (int i = 0; i < 2; i++) {
        int64_t *v = i ? &last : &first;
        if (at[i].kind == LQ_TV_MISSING || at[i].kind == LQ_TV_NONE) continue;
        if (!is_int(m, at[i], v)) return false;
        if (*v < 0) *v = *v + n < 0 ? 0 : *v + n;
    }
    *is = first <= n && first <= last;
    if (last > n) last = n;
    if (!*is) return true;
    *from = lq_tstr_at(s, (size_t)first);
    *to = lq_tstr_at(s, (size_t)last);
    return lq_tm_steps(m, s->n / 16);
}

static size_t chars_of(const char *p, size_t n) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++) k += (p[i] & 0xc0) != 0x80;
    return k;
}

// --- finding ---

static bool find_in(lq_tm *m, lq_tv self, const lq_targs *a, const char *what, bool last, int64_t *out) {
    lq_tv v[3];
    size_t from, to;
    bool is;
    *out = -1;
    if (!LQ_BIND(m, a, what, 1, v, "sub", "start", "end") || !is_str(m, v[0], what) ||
        !range_of(m, self.s, v + 1, &from, &to, &is)) return false;
    const lq_tstr *w = v[0].s;
    if (!is || w->n > to - from) return true;
    if (last && !lq_tm_steps(m, (to - from) / 64 * w->n)) return false;
    const char *p = self.s->p, *at = last ? lq_tstr_rfind(p + from, to - from, w->p, w->n)
                                          : lq_tstr_find(p + from, to - from, w->p, w->n);
    if (at) *out = (int64_t)chars_of(p, (size_t)(at - p));
    return true;
}

#define FIND(name, last, must)                                                              \
    static bool str_##name(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {           \
        int64_t at;                                                                         \
        if (!find_in(m, self, a, #name "()", last, &at)) return false;                      \
        *out = lq_tv_int(at);                                                               \
        return at >= 0 || !(must) || lq_tm_fail(m, "substring not found");                  \
    }
FIND(find, false, false)
FIND(index, false, true)
FIND(rfind, true, false)
FIND(rindex, true, true)

static bool str_count(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    lq_tv v[3];
    size_t from, to;
    int64_t n = 0;
    bool is;
    if (!LQ_BIND(m, a, "count()", 1, v, "sub", "start", "end") || !is_str(m, v[0], "count()") ||
        !range_of(m, self.s, v + 1, &from, &to, &is)) return false;
    const char *p = self.s->p + from, *end = self.s->p + to;
    const lq_tstr *w = v[0].s;
    if (is && !w->n) n = (int64_t)chars_of(p, (size_t)(end - p)) + 1;
    for (; is && w->n && (p = lq_tstr_find(p, (size_t)(end - p), w->p, w->n)); p += w->n) n++;
    *out = lq_tv_int(n);
    return lq_tm_steps(m, (size_t)n);
}

static bool fits(lq_tm *m, lq_tv self, const lq_targs *a, bool at_end, lq_tv *out) {
    const char *what = at_end ? "endswith" : "startswith";
    lq_tv v[3], *p = v;
    size_t from = 0, to = 0, n = 1;
    bool is;
    if (!LQ_BIND(m, a, what, 1, v, "prefix", "start", "end") || !range_of(m, self.s, v + 1, &from, &to, &is))
        return false;
    if (v[0].kind == LQ_TV_TUPLE) p = v[0].l->p, n = v[0].l->n;
    *out = lq_tv_bool(false);
    for (size_t i = 0; i < n; i++) {
        if (p[i].kind != LQ_TV_STR && p != v)
            return lq_tm_fail(m, "tuple for %s must only contain str, not %s", what, lq_tv_type(p[i]));
        if (p[i].kind != LQ_TV_STR)
            return lq_tm_fail(m, "%s first arg must be str or a tuple of str, not %s", what, lq_tv_type(p[i]));
        const lq_tstr *w = p[i].s;
        if (!is || w->n > to - from || memcmp(self.s->p + (at_end ? to - w->n : from), w->p, w->n)) continue;
        *out = lq_tv_bool(true);
        break;
    }
    return lq_tm_steps(m, n);
}

static bool str_startswith(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) { return fits(m, self, a, false, out); }
static bool str_endswith(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) { return fits(m, self, a, true, out); }

// --- cutting ---

static bool strip(lq_tm *m, lq_tv self, const lq_targs *a, const char *what, int sides, lq_tv *out) {
    lq_tv of;
    if (!LQ_BIND(m, a, what, 0, &of, "chars")) return false;
    if (of.kind != LQ_TV_MISSING && of.kind != LQ_TV_NONE && of.kind != LQ_TV_STR)
        return lq_tm_fail(m, "%s arg must be None or str", what);
    return lq_tstr_strip(m, self, of.kind == LQ_TV_STR ? of.s : NULL, sides, out);
}

static bool str_strip(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    return strip(m, self, a, "strip", LQ_STRIP_LEFT | LQ_STRIP_RIGHT, out);
}

static bool str_lstrip(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    return strip(m, self, a, "lstrip", LQ_STRIP_LEFT, out);
}

static bool str_rstrip(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    return strip(m, self, a, "rstrip", LQ_STRIP_RIGHT, out);
}

static bool add_part(lq_tm *m, lq_tlist *l, lq_tv self, size_t from, size_t to) {
    lq_tv part;
    if (!lq_tstr_part(m, self.s->p + from, to - from, &part)) return false;
    part.safe = self.safe;
    return lq_tv_list_add(m, l, part);
}

static bool split_space(lq_tm *m, lq_tv self, int64_t most, lq_tlist *l) {
    const lq_tstr *s = self.s;
    size_t at = 0, len = 0;
    for (;;) {
        while (at < s->n && lq_tchar_is_space(lq_tstr_char(s->p + at, &len))) at += len;
        if (at == s->n) return true;
        const size_t from = at;
        if (most-- == 0) return add_part(m, l, self, from, s->n);
        while (at < s->n && !lq_tchar_is_space(lq_tstr_char(s->p + at, &len))) at += len;
        if (!add_part(m, l, self, from, at)) return false;
    }
}

static void turn(lq_tlist *l) {
    for (size_t i = 0; i < l->n / 2; i++) {
        const lq_tv v = l->p[i];
        l->p[i] = l->p[l->n - 1 - i];
        l->p[l->n - 1 - i] = v;
    }
}

// From the end; the parts come in that order.
static bool rsplit_space(lq_tm *m, lq_tv self, int64_t most, lq_tlist *l) {
    const lq_tstr *s = self.s;
    size_t end = s->n, len;
    for (;;) {
        lq_tv rest = self;
        if (!lq_tstr_part(m, s->p, end, &rest) || !lq_tstr_strip(m, rest, NULL, LQ_STRIP_RIGHT, &rest)) return false;
        end = rest.s->n;
        if (!end) return true;
        size_t at = end;
        while (at) {
            size_t c = at - 1;
            while (c && (s->p[c] & 0xc0) == 0x80) c--;
            if (lq_tchar_is_space(lq_tstr_char(s->p + c, &len))) break;
            at = c;
        }
        if (most-- == 0) return add_part(m, l, self, 0, end);
        if (!add_part(m, l, self, at, end)) return false;
        end = at;
    }
}

static bool split(lq_tm *m, lq_tv self, const lq_targs *a, const char *what, bool last, lq_tv *out) {
    lq_tv v[2];
    int64_t most = -1;
    if (!LQ_BIND(m, a, what, 0, v, "sep", "maxsplit") || (v[1].kind != LQ_TV_MISSING && !is_int(m, v[1], &most)) ||
        !lq_tv_list_new(m, LQ_TV_LIST, 0, out) || !lq_tm_steps(m, self.s->n / 16)) return false;
    lq_tlist *l = out->l;
    if (v[0].kind == LQ_TV_MISSING || v[0].kind == LQ_TV_NONE) {
        if (!last) return split_space(m, self, most, l);
        if (!rsplit_space(m, self, most, l)) return false;
        return turn(l), true;
    }
    if (v[0].kind != LQ_TV_STR) return lq_tm_fail(m, "must be str or None, not %s", lq_tv_type(v[0]));
    const lq_tstr *w = v[0].s;
    if (!w->n) return lq_tm_fail(m, "empty separator");
    const char *p = self.s->p;
    size_t from = 0, to = self.s->n;
    while (most-- != 0) {
        if (last && !lq_tm_steps(m, to / 64 * w->n)) return false;
        const char *at = last ? lq_tstr_rfind(p, to, w->p, w->n) : lq_tstr_find(p + from, to - from, w->p, w->n);
        if (!at) break;
        const size_t k = (size_t)(at - p);
        if (!(last ? add_part(m, l, self, k + w->n, to) : add_part(m, l, self, from, k))) return false;
        if (last) to = k;
        else from = k + w->n;
    }
    if (!add_part(m, l, self, from, to)) return false;
    if (last) turn(l);
    return true;
}

static bool str_split(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    return split(m, self, a, "split()", false, out);
}

static bool str_rsplit(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    return split(m, self, a, "rsplit()", true, out);
}

static bool part(lq_tm *m, lq_tv self, const lq_targs *a, bool last, lq_tv *out) {
    lq_tv sep;
    if (!LQ_BIND(m, a, "partition()", 1, &sep, "sep") || !is_str(m, sep, "partition()")) return false;
    if (!sep.s->n) return lq_tm_fail(m, "empty separator");
    const lq_tstr *s = self.s, *w = sep.s;
    if (!lq_tm_steps(m, s->n / 16 + (last ? s->n / 64 * w->n : 0)) || !lq_tv_list_new(m, LQ_TV_TUPLE, 3, out))
        return false;
    const char *at = last ? lq_tstr_rfind(s->p, s->n, w->p, w->n) : lq_tstr_find(s->p, s->n, w->p, w->n);
    const size_t from = at ? (size_t)(at - s->p) : last ? 0 : s->n, to = at ? from + w->n : from;
    return add_part(m, out->l, self, 0, from) && add_part(m, out->l, self, from, to) &&
           add_part(m, out->l, self, to, s->n);
}

static bool str_partition(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) { return part(m, self, a, false, out); }
static bool str_rpartition(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) { return part(m, self, a, true, out); }

static bool str_splitlines(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    lq_tv keep;
    if (!LQ_BIND(m, a, "splitlines()", 0, &keep, "keepends") || !lq_tv_list_new(m, LQ_TV_LIST, 0, out)) return false;
    for (size_t at = 0, mark; at < self.s->n;) {
        const size_t n = lq_tstr_line_end(self.s->p + at, self.s->n - at, &mark);
        if (!add_part(m, out->l, self, at, at + n + (lq_tv_true(keep) ? mark : 0))) return false;
        at += n + mark;
    }
    return lq_tm_steps(m, self.s->n / 8);
}

static bool cut(lq_tm *m, lq_tv self, const lq_targs *a, bool suffix, lq_tv *out) {
    lq_tv v;
    if (!LQ_BIND(m, a, suffix ? "removesuffix()" : "removeprefix()", 1, &v, "prefix") ||
        !is_str(m, v, suffix ? "removesuffix() argument" : "removeprefix() argument")) return false;
    const lq_tstr *s = self.s, *w = v.s;
    *out = self;
    if (w->n > s->n || memcmp(suffix ? s->p + s->n - w->n : s->p, w->p, w->n)) return true;
    if (!lq_tstr_part(m, suffix ? s->p : s->p + w->n, s->n - w->n, out)) return false;
    out->safe = self.safe;
    return true;
}

static bool str_removeprefix(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    return cut(m, self, a, false, out);
}

static bool str_removesuffix(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) { return cut(m, self, a, true, out); }

// --- joining, changing ---

static bool str_replace(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    lq_tv v[3];
    int64_t count = -1;
    if (!LQ_BIND(m, a, "replace()", 2, v, "old", "new", "count") || !is_str(m, v[0], "replace() argument 1") ||
        !is_str(m, v[1], "replace() argument 2")) return false;
    if (v[2].kind != LQ_TV_MISSING && !is_int(m, v[2], &count)) return false;
    if (self.safe && !lq_tstr_escape(m, v[1], &v[1])) return false;
    return lq_tstr_replace(m, self, v[0].s, v[1].s, count, out);
}

static bool str_join(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    lq_tv of, *p;
    size_t n;
    const size_t from = m->out_n;
    if (!LQ_BIND(m, a, "join()", 1, &of, "iterable")) return false;
    if (!lq_tv_iterable(of)) return lq_tm_fail(m, "can only join an iterable");
    if (!lq_tv_items(m, of, &p, &n, NULL)) return false;
    for (size_t i = 0; i < n; i++) {
        lq_tv one = p[i];
        if (self.safe && one.kind != LQ_TV_STR && !lq_tv_show(m, one, &one)) return false;
        if (one.kind != LQ_TV_STR)
            return lq_tm_fail(m, "sequence item %zu: expected str instance, %s found", i, lq_tv_type(one));
        if (self.safe && !lq_tstr_escape(m, one, &one)) return false;
        if ((i && !lq_tm_put(m, self.s->p, self.s->n)) || !lq_tm_put(m, one.s->p, one.s->n)) return false;
    }
    if (!lq_tm_cut(m, from, out)) return false;
    out->safe = self.safe;
    return true;
}

static bool pad(lq_tm *m, lq_tv self, const lq_targs *a, const char *what, lq_tv *out) {
    lq_tv v[2];
    int64_t width = 0;
    const size_t from = m->out_n;
    const lq_tstr *s = self.s;
    if (!LQ_BIND(m, a, what, 1, v, "width", "fillchar") || !is_int(m, v[0], &width)) return false;
    if (v[1].kind != LQ_TV_MISSING && (v[1].kind != LQ_TV_STR || v[1].s->chars != 1))
        return lq_tm_fail(m, "The fill character must be exactly one character long");
    const lq_tstr space = {" ", 1, 1}, *fill = v[1].kind == LQ_TV_STR ? v[1].s : &space;
    const int64_t more = width > (int64_t)s->chars ? width - (int64_t)s->chars : 0;
    int64_t left = *what == 'r' ? more : *what == 'l' ? 0 : more / 2 + (more & width & 1);
    for (int64_t i = 0; i < left; i++)
        if (!lq_tm_put(m, fill->p, fill->n)) return false;
    if (!lq_tm_put(m, s->p, s->n)) return false;
    for (int64_t i = left; i < more; i++)
        if (!lq_tm_put(m, fill->p, fill->n)) return false;
    if (!lq_tm_cut(m, from, out)) return false;
    out->safe = self.safe;
    return true;
}

static bool str_center(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) { return pad(m, self, a, "center()", out); }
static bool str_ljust(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) { return pad(m, self, a, "ljust()", out); }
static bool str_rjust(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) { return pad(m, self, a, "rjust()", out); }

static bool str_zfill(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    lq_tv v;
    int64_t width = 0;
    const size_t from = m->out_n;
    const lq_tstr *s = self.s;
    if (!LQ_BIND(m, a, "zfill()", 1, &v, "width") || !is_int(m, v, &width)) return false;
    const bool sign = s->n && (*s->p == '-' || *s->p == '+');
    if (!lq_tm_put(m, s->p, sign)) return false;
    for (int64_t i = (int64_t)s->chars; i < width; i++)
        if (!lq_tm_put(m, "0", 1)) return false;
    if (!lq_tm_put(m, s->p + sign, s->n - sign) || !lq_tm_cut(m, from, out)) return false;
    out->safe = self.safe;
    return true;
}

static bool str_expandtabs(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    lq_tv v;
    int64_t size = 8, column = 0;
    const size_t from = m->out_n;
    if (!LQ_BIND(m, a, "expandtabs()", 0, &v, "tabsize") || (v.kind != LQ_TV_MISSING && !is_int(m, v, &size)))
        return false;
    if (size > 1000) return lq_tm_fail(m, "expandtabs(): a tabsize of %lld", (long long)size);
    for (size_t at = 0, len; at < self.s->n; at += len) {
        const uint32_t c = lq_tstr_char(self.s->p + at, &len);
        const int64_t spaces = c == '\t' && size > 0 ? size - column % size : 0;
        for (int64_t i = 0; i < spaces; i++)
            if (!lq_tm_put(m, " ", 1)) return false;
        if (c != '\t' && !lq_tm_put(m, self.s->p + at, len)) return false;
        column = c == '\n' || c == '\r' ? 0 : column + (c == '\t' ? spaces : 1);
    }
    if (!lq_tm_steps(m, self.s->n / 8) || !lq_tm_cut(m, from, out)) return false;
    out->safe = self.safe;
    return true;
}

static bool str_format(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) { return lq_tv_format(m, self, a, out); }

static bool nothing(lq_tm *m, const lq_targs *a, const char *what) {
    return (!a->n && !a->named) || lq_tm_fail(m, "%s takes no arguments (%zu given)", what, a->n + a->named);
}

#define CASE(name, to)                                                                      \
    static bool str_##name(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {           \
        return nothing(m, a, #name "()") && lq_tstr_case(m, self, to, out);                 \
    }
CASE(upper, LQ_TO_UPPER)
CASE(lower, LQ_TO_LOWER)
CASE(title, LQ_TO_TITLE)
CASE(capitalize, LQ_TO_CAPITAL)
CASE(swapcase, LQ_TO_SWAPPED)

// --- asking ---

typedef enum { OF_ALPHA, OF_DECIMAL, OF_DIGIT, OF_NUMERIC, OF_ALNUM, OF_SPACE, OF_PRINT, OF_ASCII } of_kind;

static bool char_is(uint32_t c, of_kind k) {
    const utf8proc_category_t cat = utf8proc_category((int32_t)c);
    const bool alpha = cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
    switch (k) {
    case OF_ALPHA: return alpha;
    case OF_DIGIT:
        return cat == UTF8PROC_CATEGORY_ND || c == 0xb2 || c == 0xb3 || c == 0xb9 || (c >= 0x2070 && c <= 0x2089);
    case OF_DECIMAL: return cat == UTF8PROC_CATEGORY_ND;
    case OF_NUMERIC: return cat >= UTF8PROC_CATEGORY_ND && cat <= UTF8PROC_CATEGORY_NO;
    case OF_ALNUM: return alpha || (cat >= UTF8PROC_CATEGORY_ND && cat <= UTF8PROC_CATEGORY_NO);
    case OF_SPACE: return lq_tchar_is_space(c);
    case OF_PRINT: return lq_tchar_is_print(c);
    default: return c < 0x80;
    }
}

static bool ask(lq_tm *m, lq_tv self, const lq_targs *a, of_kind k, lq_tv *out) {
    bool yes = self.s->n || k == OF_PRINT || k == OF_ASCII;
    for (size_t at = 0, len; at < self.s->n && yes; at += len) yes = char_is(lq_tstr_char(self.s->p + at, &len), k);
    *out = lq_tv_bool(yes);
    return nothing(m, a, "a method") && lq_tm_steps(m, self.s->n / 8);
}

#define ASK(name, kind)                                                                     \
    static bool str_##name(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {           \
        return ask(m, self, a, kind, out);                                                  \
    }
ASK(isalpha, OF_ALPHA)
ASK(isdecimal, OF_DECIMAL)
ASK(isdigit, OF_DIGIT)
ASK(isnumeric, OF_NUMERIC)
ASK(isalnum, OF_ALNUM)
ASK(isspace, OF_SPACE)
ASK(isprintable, OF_PRINT)
ASK(isascii, OF_ASCII)

static bool str_isupper(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    *out = lq_tv_bool(lq_tstr_is_case(self.s, true));
    return nothing(m, a, "isupper()");
}

static bool str_islower(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    *out = lq_tv_bool(lq_tstr_is_case(self.s, false));
    return nothing(m, a, "islower()");
}

// --- lists and dicts ---

static bool list_count(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    lq_tv v, *p;
    size_t n, found = 0;
    bool same;
    if (!LQ_BIND(m, a, "count()", 1, &v, "value") || !lq_tv_items(m, self, &p, &n, NULL)) return false;
    for (size_t i = 0; i < n; i++) {
        if (!lq_tv_equal(m, p[i], v, &same)) return false;
        found += same;
    }
    *out = lq_tv_int((int64_t)found);
    return true;
}

static bool list_index(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    lq_tv v, *p;
    size_t n;
    bool same;
    if (!LQ_BIND(m, a, "index()", 1, &v, "value") || !lq_tv_items(m, self, &p, &n, NULL)) return false;
    for (size_t i = 0; i < n; i++) {
        if (!lq_tv_equal(m, p[i], v, &same)) return false;
        *out = lq_tv_int((int64_t)i);
        if (same) return true;
    }
    return lq_tm_fail(m, self.kind == LQ_TV_TUPLE ? "tuple.index(x): x not in tuple" : "the value is not in list");
}

static bool copy(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    *out = self; // nothing can change it
    return nothing(m, a, "copy()");
}

static bool dict_get(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    lq_tv v[2];
    if (!LQ_BIND(m, a, "get()", 1, v, "key", "default") || !lq_tv_dict_get(m, self.d, v[0], out)) return false;
    if (out->kind == LQ_TV_MISSING) *out = v[1].kind == LQ_TV_MISSING ? lq_tv_none() : v[1];
    return true;
}

static bool view(lq_tm *m, lq_tv self, const lq_targs *a, lq_tview_kind kind, lq_tv *out) {
    lq_tview *v = lq_tm_take(m, 1, sizeof *v);
    if (!v || !nothing(m, a, "a method")) return false;
    *v = (lq_tview){self.d, kind};
    *out = LQ_TV_OF(LQ_TV_VIEW, .v = v);
    return true;
}

static bool dict_keys(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) { return view(m, self, a, LQ_TV_KEYS, out); }

static bool dict_values(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    return view(m, self, a, LQ_TV_VALUES, out);
}

static bool dict_items(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    return view(m, self, a, LQ_TV_ITEMS, out);
}

static bool loop_cycle(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    if (!a->n) return lq_tm_fail(m, "no items for cycling given");
    *out = a->pos[(self.loop->at - 1) % a->n];
    return true;
}

static bool loop_changed(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out) {
    lq_tv now;
    bool same = false;
    if (!lq_tv_list_new(m, LQ_TV_TUPLE, a->n, &now)) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!lq_tv_list_add(m, now.l, a->pos[i])) return false;
    if (self.loop->changed.kind && !lq_tv_equal(m, self.loop->changed, now, &same)) return false;
    self.loop->changed = now;
    *out = lq_tv_bool(!same);
    return true;
}

// --- tables; a row without a function changes the value ---

static const lq_tfunc str_methods[] = {
    {"capitalize", str_capitalize}, {"center", str_center}, {"count", str_count}, {"endswith", str_endswith},
    {"expandtabs", str_expandtabs}, {"find", str_find}, {"format", str_format}, {"index", str_index},
    {"isalnum", str_isalnum}, {"isalpha", str_isalpha},
    {"isascii", str_isascii}, {"isdecimal", str_isdecimal}, {"isdigit", str_isdigit}, {"islower", str_islower},
    {"isnumeric", str_isnumeric}, {"isprintable", str_isprintable}, {"isspace", str_isspace}, {"isupper", str_isupper},
    {"join", str_join}, {"ljust", str_ljust}, {"lower", str_lower}, {"lstrip", str_lstrip},
    {"partition", str_partition},
    {"removeprefix", str_removeprefix}, {"removesuffix", str_removesuffix}, {"replace", str_replace},
    {"rfind", str_rfind},
    {"rindex", str_rindex}, {"rjust", str_rjust}, {"rpartition", str_rpartition}, {"rsplit", str_rsplit},
    {"rstrip", str_rstrip}, {"split", str_split}, {"splitlines", str_splitlines}, {"startswith", str_startswith},
    {"strip", str_strip}, {"swapcase", str_swapcase}, {"title", str_title}, {"upper", str_upper}, {"zfill", str_zfill},
    {NULL, NULL}};
static const lq_tfunc list_methods[] = {
    {"count", list_count}, {"index", list_index}, {"copy", copy}, {"append", NULL}, {"clear", NULL}, {"extend", NULL},
    {"insert", NULL}, {"pop", NULL}, {"remove", NULL}, {"reverse", NULL}, {"sort", NULL}, {NULL, NULL}};
static const lq_tfunc tuple_methods[] = {{"count", list_count}, {"index", list_index}, {NULL, NULL}};
static const lq_tfunc dict_methods[] = {
    {"get", dict_get}, {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}, {"copy", copy},
    {"clear", NULL}, {"pop", NULL}, {"popitem", NULL}, {"setdefault", NULL}, {"update", NULL}, {NULL, NULL}};
static const lq_tfunc loop_methods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}, {NULL, NULL}};

static bool loop_attr(lq_tm *m, lq_tloop *loop, const lq_tstr *name, lq_tv *out) {
    static const char *const names[] = {"index", "index0", "first", "last", "length", "revindex", "revindex0", "depth",
        "depth0", "previtem", "nextitem"};
    int k = 0;
    const int64_t at = (int64_t)loop->at;
    while (k < 11 && !lq_tstr_is(name, names[k])) k++;
    if (k == 11) return true;
    const size_t want = k >= 4 && k <= 6 ? SIZE_MAX : k == 3 || k == 10 ? loop->at + 1 : 0;
    if (want && !lq_tm_loop_fill(m, loop, want)) return false;
    const int64_t n = (int64_t)loop->n;
    const int64_t numbers[] = {at, at - 1, 0, 0, n, n - at + 1, n - at, loop->depth + 1, loop->depth};
    if (k == 2 || k == 3) *out = lq_tv_bool(k == 2 ? at == 1 : at == n);
    else if (k < 9) *out = lq_tv_int(numbers[k]);
    else if (k == 9)
        return at > 1 ? (*out = loop->p[at - 2], true) : lq_tv_undefined_why(m, "there is no previous item", out);
    else return at < n ? (*out = loop->p[at], true) : lq_tv_undefined_why(m, "there is no next item", out);
    return true;
}

static bool macro_attr(lq_tm *m, const lq_tmacro *macro, const lq_tstr *name, lq_tv *out) {
    const lq_tnode *n = macro->node;
    if (lq_tstr_is(name, "name")) *out = macro->name ? lq_tv_str(macro->name) : lq_tv_none();
    else if (lq_tstr_is(name, "caller")) *out = lq_tv_bool(macro->caller);
    else if (lq_tstr_is(name, "catch_kwargs")) *out = lq_tv_bool(macro->kwargs);
    else if (lq_tstr_is(name, "catch_varargs")) *out = lq_tv_bool(macro->varargs);
    else if (lq_tstr_is(name, "arguments")) {
        if (!lq_tv_list_new(m, LQ_TV_TUPLE, n->params, out)) return false;
        for (size_t i = 0; i < n->params; i++)
            if (!lq_tv_list_add(m, out->l, lq_tv_str(n->kid[i + (n->kind != LQ_TN_MACRO)]->name))) return false;
    }
    return true;
}

bool lq_tv_method(lq_tm *m, lq_tv obj, const lq_tstr *name, lq_tv *out) {
    const lq_tfunc *table = NULL;
    *out = (lq_tv){0};
    switch ((lq_tv_kind)obj.kind) {
    case LQ_TV_STR: table = str_methods; break;
    case LQ_TV_LIST: table = list_methods; break;
    case LQ_TV_TUPLE:
        if (obj.safe && obj.l->n == 2 && lq_tstr_is(name, "grouper")) return *out = obj.l->p[0], true;
        if (obj.safe && obj.l->n == 2 && lq_tstr_is(name, "list")) return *out = obj.l->p[1], true;
        table = tuple_methods;
        break;
    case LQ_TV_RANGE: table = tuple_methods; break;
    case LQ_TV_DICT: table = dict_methods; break;
    case LQ_TV_SPACE: return lq_tv_dict_get(m, obj.d, lq_tv_str(name), out);
    case LQ_TV_MACRO: return macro_attr(m, obj.m, name, out);
    case LQ_TV_LOOP:
        if (!loop_attr(m, obj.loop, name, out)) return false;
        table = out->kind == LQ_TV_MISSING ? loop_methods : NULL;
        break;
    default: break;
    }
    const lq_tfunc *f = table ? lq_tfunc_find(table, name) : NULL;
    if (!f) return true;
    if (f->fn) return lq_tv_bind(m, f, obj, out);
    if (!lq_tv_undefined(m, obj, lq_tv_str(name), out)) return false;
    out->u->unsafe = true;
    return true;
}
