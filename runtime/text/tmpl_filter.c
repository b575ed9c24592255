// tmpl_filter.c: filters of strings and numbers, and the table of them; those of sequences are in tmpl_seq.c.
#include "runtime/text/tmpl.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define FILTER(name) static bool name(lq_tm *m, lq_tv v, const lq_targs *a, lq_tv *out)

static bool wants_int(lq_tm *m, lq_tv v, int64_t otherwise, int64_t *out) {
    *out = otherwise;
    if (v.kind == LQ_TV_MISSING) return true;
    if (v.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, v);
    if (!lq_tv_is_int(v)) return lq_tm_fail(m, "'%s' object cannot be interpreted as an integer", lq_tv_type(v));
    *out = lq_tv_as_int(v);
    return true;
}

// As a string; what is one already stays markup, if it is that.
static bool soft_str(lq_tm *m, lq_tv v, lq_tv *out) {
    if (v.kind != LQ_TV_STR) return lq_tv_show(m, v, out);
    *out = v;
    return true;
}

// --- case, space ---

#define CASE(name, to)                                                                          \
    FILTER(name) {                                                                              \
        if (a->n || a->named) return lq_tm_fail(m, #name " takes no arguments");                \
        return soft_str(m, v, &v) && lq_tstr_case(m, v, to, out);                               \
    }
CASE(upper, LQ_TO_UPPER)
CASE(lower, LQ_TO_LOWER)
CASE(capitalize, LQ_TO_CAPITAL)

static bool begins_word(uint32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || lq_tchar_is_space(c);
}

FILTER(title) {
    const size_t from = m->out_n;
    if (a->n || a->named) return lq_tm_fail(m, "title takes no arguments");
    if (!soft_str(m, v, &v)) return false;
    for (size_t at = 0, len = 0; at < v.s->n;) { // runs of separators, and of what is between them
        const bool word = !begins_word(lq_tstr_char(v.s->p + at, &len));
        const size_t head = at, first = len;
        lq_tv one, rest;
        for (at += len; at < v.s->n && word == !begins_word(lq_tstr_char(v.s->p + at, &len));) at += len;
        if (!lq_tstr_part(m, v.s->p + head, first, &one) ||
            !lq_tstr_part(m, v.s->p + head + first, at - head - first, &rest) ||
            !lq_tstr_case(m, one, LQ_TO_UPPER, &one) || !lq_tm_put(m, one.s->p, one.s->n) ||
            !lq_tstr_case(m, rest, LQ_TO_LOWER, &rest) || !lq_tm_put(m, rest.s->p, rest.s->n)) return false;
    }
    return lq_tm_cut(m, from, out);
}

FILTER(trim) {
    lq_tv of;
    if (!LQ_BIND(m, a, "trim", 0, &of, "chars") || !soft_str(m, v, &v)) return false;
    if (of.kind != LQ_TV_MISSING && of.kind != LQ_TV_NONE && of.kind != LQ_TV_STR)
        return lq_tm_fail(m, "strip arg must be None or str");
    return lq_tstr_strip(m, v, of.kind == LQ_TV_STR ? of.s : NULL, LQ_STRIP_LEFT | LQ_STRIP_RIGHT, out);
}

FILTER(center) {
    lq_tv width;
    int64_t n;
    const size_t from = m->out_n;
    if (!LQ_BIND(m, a, "center", 0, &width, "width") || !wants_int(m, width, 80, &n) || !soft_str(m, v, &v))
        return false;
    const int64_t more = n > (int64_t)v.s->chars ? n - (int64_t)v.s->chars : 0, left = more / 2 + (more & n & 1);
    for (int64_t i = 0; i <= more; i++) {
        if (i == left && !lq_tm_put(m, v.s->p, v.s->n)) return false;
        if (i < more && !lq_tm_put(m, " ", 1)) return false;
    }
    if (!lq_tm_cut(m, from, out)) return false;
    out->safe = v.safe;
    return true;
}

FILTER(indent) {
    lq_tv x[3], by;
    int64_t width = 0;
    const size_t from = m->out_n;
    if (!LQ_BIND(m, a, "indent", 0, x, "width", "first", "blank")) return false;
    if (v.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, v);
    if (v.kind != LQ_TV_STR) return lq_tm_fail(m, "unsupported operand type(s) for +=: '%s' and 'str'", lq_tv_type(v));
    if (x[0].kind != LQ_TV_STR) {
        if (!wants_int(m, x[0], 4, &width)) return false;
        if (width > 1 << 20) return lq_tm_fail(m, "indent: a width of %lld", (long long)width);
        if (width < 0) width = 0;
    }
    for (int64_t i = 0; i < width; i++)
        if (!lq_tm_put(m, " ", 1)) return false;
    if (x[0].kind == LQ_TV_STR) by = x[0], m->out_n = from;
    else if (!lq_tm_cut(m, from, &by)) return false;
    const char *p = v.s->p, *end = p + v.s->n;
    for (bool first = true; first || p <= end; first = false) {
        size_t mark = 0;
        const size_t n = p < end ? lq_tstr_line_end(p, (size_t)(end - p), &mark) : 0;
        if (!first && !lq_tm_put(m, "\n", 1)) return false;
        if ((first ? lq_tv_true(x[1]) : n || lq_tv_true(x[2])) && !lq_tm_put(m, by.s->p, by.s->n)) return false;
        if (!lq_tm_put(m, p, n)) return false;
        if (!mark) break; // the text ends without a newline, or behind one: that is an empty line
        p += n + mark;
    }
    if (!lq_tm_steps(m, v.s->n / 8) || !lq_tm_cut(m, from, out)) return false;
    out->safe = v.safe;
    return true;
}

FILTER(truncate) {
    lq_tv x[4];
    int64_t length, leeway, chars;
    lq_tv end;
    if (!LQ_BIND(m, a, "truncate", 0, x, "length", "killwords", "end", "leeway") || !wants_int(m, x[0], 255, &length) ||
        !wants_int(m, x[3].kind == LQ_TV_NONE ? (lq_tv){0} : x[3], 5, &leeway)) return false;
    if (x[2].kind == LQ_TV_STR) end = x[2];
    else if (!lq_tstr_const(m, "...", &end)) return false;
    const int64_t tail = (int64_t)end.s->chars;
    if (length < tail) return lq_tm_fail(m, "expected length >= %lld, got %lld", (long long)tail, (long long)length);
    if (leeway < 0) return lq_tm_fail(m, "expected leeway >= 0, got %lld", (long long)leeway);
    *out = v;
    if (!lq_tv_len(m, v, &chars)) return false;
    if (chars - leeway <= length) return true;
    if (v.kind != LQ_TV_STR) return lq_tm_fail(m, "truncate: '%s' is no string", lq_tv_type(v));
    size_t n = lq_tstr_at(v.s, (size_t)(length - tail));
    const char *space = lq_tv_true(x[1]) ? NULL : memrchr(v.s->p, ' ', n);
    lq_tv cut;
    if (space) n = (size_t)(space - v.s->p);
    if (v.safe && !lq_tstr_escape(m, end, &end)) return false;
    if (!lq_tstr_part(m, v.s->p, n, &cut) || !lq_tstr_add(m, cut.s, end.s, out)) return false;
    out->safe = v.safe;
    return true;
}

FILTER(wordcount) {
    int64_t n = 0;
    bool inside = false;
    if (a->n || a->named) return lq_tm_fail(m, "wordcount takes no arguments");
    if (!soft_str(m, v, &v)) return false;
    for (size_t at = 0, len; at < v.s->n; at += len) {
        const uint32_t c = lq_tstr_char(v.s->p + at, &len);
        const utf8proc_category_t k = utf8proc_category((int32_t)c);
        const bool word = c == '_' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
                          (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
        n += word && !inside;
        inside = word;
    }
    *out = lq_tv_int(n);
    return lq_tm_steps(m, v.s->n / 8);
}

FILTER(replace) {
    lq_tv x[3];
    int64_t count;
    if (!LQ_BIND(m, a, "replace", 2, x, "old", "new", "count") || !lq_tv_show(m, v, &v) ||
        !lq_tv_show(m, x[0], &x[0]) || !lq_tv_show(m, x[1], &x[1])) return false;
    if (x[2].kind == LQ_TV_NONE) x[2].kind = LQ_TV_MISSING;
    if (!wants_int(m, x[2], -1, &count)) return false;
    return lq_tstr_replace(m, v, x[0].s, x[1].s, count, out);
}

FILTER(format) {
    lq_tv args;
    if (a->n && a->named) return lq_tm_fail(m, "can't handle positional and keyword arguments at the same time");
    if (!soft_str(m, v, &v)) return false;
    if (a->named) {
        if (!lq_tv_dict_new(m, a->named, &args)) return false;
        for (size_t i = 0; i < a->named; i++)
            if (!lq_tv_dict_set(m, args.d, lq_tv_str(a->name[i]), a->value[i])) return false;
    } else {
        if (!lq_tv_list_new(m, LQ_TV_TUPLE, a->n, &args)) return false;
        for (size_t i = 0; i < a->n; i++)
            if (!lq_tv_list_add(m, args.l, a->pos[i])) return false;
    }
    return lq_tv_percent(m, v, args, out);
}

// --- markup ---

FILTER(escape) {
    if (a->n || a->named) return lq_tm_fail(m, "escape takes no arguments");
    return soft_str(m, v, &v) && lq_tstr_escape(m, v, out);
}

FILTER(forceescape) {
    if (a->n || a->named) return lq_tm_fail(m, "forceescape takes no arguments");
    return lq_tv_show(m, v, &v) && lq_tstr_escape(m, v, out);
}

FILTER(safe) {
    if (a->n || a->named) return lq_tm_fail(m, "safe takes no arguments");
    if (!soft_str(m, v, out)) return false;
    out->safe = true;
    return true;
}

FILTER(string) {
    if (a->n || a->named) return lq_tm_fail(m, "string takes no arguments");
    return soft_str(m, v, out);
}

static bool put_quoted(lq_tm *m, lq_tv v, bool query) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-~/";
    if (!lq_tv_show(m, v, &v)) return false;
    for (size_t i = 0; i < v.s->n; i++) {
        const char c = v.s->p[i];
        char text[8] = {c};
        if (query && c == ' ') text[0] = '+';
        else if (!c || !strchr(plain, c) || (query && c == '/'))
            snprintf(text, sizeof text, "%%%02X", (unsigned char)c);
        if (!lq_tm_puts(m, text)) return false;
    }
    return lq_tm_steps(m, v.s->n);
}

FILTER(urlencode) {
    const size_t from = m->out_n;
    lq_tv *p, *pair;
    size_t n, two;
    if (a->n || a->named) return lq_tm_fail(m, "urlencode takes no arguments");
    if (v.kind == LQ_TV_STR || !lq_tv_iterable(v)) return put_quoted(m, v, false) && lq_tm_cut(m, from, out);
    lq_tview items = {v.d, LQ_TV_ITEMS};
    if (!lq_tv_items(m, v.kind == LQ_TV_DICT ? LQ_TV_OF(LQ_TV_VIEW, .v = &items) : v, &p, &n, NULL)) return false;
    for (size_t i = 0; i < n; i++) {
        if (!lq_tv_items(m, p[i], &pair, &two, NULL)) return false;
        if (two != 2) return lq_tm_fail(m, "urlencode: an item is no pair");
        if ((i && !lq_tm_put(m, "&", 1)) || !put_quoted(m, pair[0], true) || !lq_tm_put(m, "=", 1) ||
            !put_quoted(m, pair[1], true)) return false;
    }
    return lq_tm_cut(m, from, out);
}

// --- JSON ---

FILTER(tojson) {
    lq_tv x[4], *p, by;
    size_t n;
    const size_t from = m->out_n;
    if (!LQ_BIND(m, a, "tojson", 0, x, "ensure_ascii", "indent", "separators", "sort_keys")) return false;
    const lq_tstr comma = {",", 1, 1}, wide = {", ", 2, 2}, colon = {": ", 2, 2};
    lq_tjson how = {.ascii = lq_tv_true(x[0]), .sort = lq_tv_true(x[3]), .comma = &wide, .colon = &colon};
    if (x[1].kind != LQ_TV_MISSING && x[1].kind != LQ_TV_NONE) {
        int64_t spaces;
        if (x[1].kind != LQ_TV_STR) {
            if (!wants_int(m, x[1], 0, &spaces)) return false;
            if (spaces > 1000) return lq_tm_fail(m, "tojson: an indent of %lld", (long long)spaces);
            for (int64_t i = 0; i < spaces; i++)
                if (!lq_tm_put(m, " ", 1)) return false;
            if (!lq_tm_cut(m, from, &by)) return false;
        } else by = x[1];
        how.spread = true;
        how.indent = by.s;
        how.comma = &comma;
    }
    if (x[2].kind != LQ_TV_MISSING && x[2].kind != LQ_TV_NONE) {
        if (!lq_tv_items(m, x[2], &p, &n, NULL)) return false;
        if (n != 2 || p[0].kind != LQ_TV_STR || p[1].kind != LQ_TV_STR)
            return lq_tm_fail(m, "tojson: separators are two strings");
        how.comma = p[0].s;
        how.colon = p[1].s;
    }
    return lq_tv_put_json(m, v, &how) && lq_tm_cut(m, from, out);
}

// --- numbers ---

FILTER(absolute) {
    if (a->n || a->named) return lq_tm_fail(m, "abs takes no arguments");
    if (v.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, v);
    if (!lq_tv_is_num(v)) return lq_tm_fail(m, "bad operand type for abs(): '%s'", lq_tv_type(v));
    const bool negative = v.kind == LQ_TV_FLOAT ? signbit(v.f) : lq_tv_as_int(v) < 0;
    return lq_tm_unary(m, negative ? LQ_TN_NEG : LQ_TN_POS, v, out);
}

// A number's text without the space around it and without "_" between digits; false: it cannot be one.
static bool number_text(const lq_tstr *s, char buf[400]) {
    const char *p = s->p, *end = p + s->n;
    size_t n = 0;
    while (p < end && lq_tchar_is_space((unsigned char)*p)) p++;
    while (end > p && lq_tchar_is_space((unsigned char)end[-1])) end--;
    for (; p < end && n < 399; p++) {
        const bool digits = n && p + 1 < end && p[-1] >= '0' && p[1] >= '0';
        if (*p == '_' && digits) continue;
        if (!*p || *p == '_' || (unsigned char)*p >= 0x80) return false;
        buf[n++] = *p;
    }
    buf[n] = '\0';
    return n && p == end;
}

static bool read_float(const lq_tstr *s, double *out) {
    char text[400], *end;
    if (!number_text(s, text) || strpbrk(text, "xXpP(")) return false;
    *out = strtod(text, &end);
    return !*end;
}

// 1: read, 0: no integer, -1: too large
static int read_int(const lq_tstr *s, int64_t base, int64_t *out) {
    char text[400], *p = text, *end;
    if (!number_text(s, text) || base < 0 || base == 1 || base > 36) return 0;
    const bool minus = *p == '-';
    if (*p == '-' || *p == '+') p++;
    if (*p == '0' && p[1]) {
        const int of = (p[1] | 32) == 'x' ? 16 : (p[1] | 32) == 'o' ? 8 : (p[1] | 32) == 'b' ? 2 : 0;
        if (of && (base == of || !base)) p += 2, base = of;
    }
    if (!base) base = 10;
    if (!((*p >= '0' && *p <= '9') || (base > 10 && ((*p | 32) >= 'a' && (*p | 32) <= 'z')))) return 0;
    if (base == 16 && *p == '0' && (p[1] | 32) == 'x') return 0;
    errno = 0;
    *out = strtoll(p, &end, (int)base);
    if (*end) return 0;
    if (errno) return -1;
    if (minus) *out = -*out;
    return 1;
}

FILTER(integer) {
    lq_tv x[2];
    int64_t base;
    double f = 0;
    if (!LQ_BIND(m, a, "int", 0, x, "default", "base") || !wants_int(m, x[1], 10, &base)) return false;
    if (v.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, v);
    *out = x[0].kind == LQ_TV_MISSING ? lq_tv_int(0) : x[0];
    if (v.large) return *out = v, true;
    if (lq_tv_is_int(v)) return *out = lq_tv_int(lq_tv_as_int(v)), true;
    if (v.kind == LQ_TV_STR) {
        int64_t i;
        const int read = read_int(v.s, base, &i);
        if (read < 0) return lq_tm_fail(m, "an integer has more than 64 bits");
        if (read) return *out = lq_tv_int(i), true;
        if (!read_float(v.s, &f)) return true;
    } else if (v.kind == LQ_TV_FLOAT) f = v.f;
    else return true;
    if (!isfinite(f))
        return v.kind == LQ_TV_STR || isnan(f) || lq_tm_fail(m, "cannot convert float infinity to integer");
    if (!(fabs(f) < 9.2e18)) return lq_tm_fail(m, "an integer has more than 64 bits");
    *out = lq_tv_int((int64_t)f);
    return true;
}

FILTER(floating) {
    lq_tv x;
    double f;
    if (!LQ_BIND(m, a, "float", 0, &x, "default")) return false;
    if (v.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, v);
    if (lq_tv_is_num(v)) *out = lq_tv_float(lq_tv_as_float(v));
    else if (v.kind == LQ_TV_STR && read_float(v.s, &f)) *out = lq_tv_float(f);
    else *out = x.kind == LQ_TV_MISSING ? lq_tv_float(0) : x;
    return true;
}

// To the nearest, halves of the exact value to the even digit.
static double round_to(double f, int64_t digits) {
    char text[800];
    if (!isfinite(f) || digits > 300) return f;
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)digits, f);
        return strtod(text, NULL);
    }
    if (digits < -308) return 0 * f;
    const double by = pow(10, (double)-digits);
    return rint(f / by) * by;
}

FILTER(rounded) {
    lq_tv x[2];
    int64_t digits;
    if (!LQ_BIND(m, a, "round", 0, x, "precision", "method") || !wants_int(m, x[0], 0, &digits)) return false;
    const lq_tstr common = {"common", 6, 6}, *method = x[1].kind == LQ_TV_STR ? x[1].s : &common;
    const bool ceiling = lq_tstr_is(method, "ceil"), flooring = lq_tstr_is(method, "floor");
    if ((x[1].kind != LQ_TV_MISSING && x[1].kind != LQ_TV_STR) ||
        (!ceiling && !flooring && !lq_tstr_is(method, "common")))
        return lq_tm_fail(m, "method must be common, ceil or floor");
    if (!lq_tv_is_num(v) && (ceiling || flooring)) return lq_tm_binary(m, LQ_TN_MUL, v, lq_tv_int(1), out) &&
        lq_tm_fail(m, "must be real number, not %s", lq_tv_type(v));
    if (!lq_tv_is_num(v)) return lq_tm_fail(m, "type %s doesn't define __round__ method", lq_tv_type(v));
    if (ceiling || flooring) {
        const double by = pow(10, (double)digits), f = lq_tv_as_float(v) * by;
        if (!isfinite(f)) return lq_tm_fail(m, "cannot convert float to integer");
        const double whole = ceiling ? ceil(f) : floor(f);
        *out = lq_tv_float(whole == 0 ? 0 : whole / by); // an integer: it has no negative zero
        return true;
    }
    if (v.kind == LQ_TV_FLOAT) return *out = lq_tv_float(round_to(v.f, digits)), true;
    int64_t i = lq_tv_as_int(v), by = 1;
    for (; digits < 0; digits++)
        if (__builtin_mul_overflow(by, 10, &by)) return *out = lq_tv_int(0), true;
    const int64_t rest = ((i % by) + by) % by, down = i - rest;
    const bool up = 2 * rest > by || (2 * rest == by && (down / by) % 2 != 0);
    *out = lq_tv_int(by == 1 ? i : up ? down + by : down);
    return true;
}

FILTER(filesizeformat) {
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
    static const char *const binaries[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
    lq_tv x;
    char text[400];
    double n;
    if (!LQ_BIND(m, a, "filesizeformat", 0, &x, "binary")) return false;
    if (v.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, v);
    if (lq_tv_is_num(v)) n = lq_tv_as_float(v);
    else if (v.kind != LQ_TV_STR || !read_float(v.s, &n))
        return lq_tm_fail(m, "could not convert to float: '%s'", lq_tv_type(v));
    const double base = lq_tv_true(x) ? 1024 : 1000;
    double unit = base * base;
    int i = 0;
    if (!isfinite(n)) return lq_tm_fail(m, "cannot convert float to integer");
    if (n == 1) snprintf(text, sizeof text, "1 Byte");
    else if (n < base) snprintf(text, sizeof text, "%.0f Bytes", trunc(n) + 0.0);
    else {
        while (i < 7 && n >= unit) unit *= base, i++;
        snprintf(text, sizeof text, "%.1f %s", base * n / unit, (base == 1024 ? binaries : units)[i]);
    }
    return lq_tstr_new(m, text, strlen(text), out);
}

// --- the others ---

FILTER(otherwise) {
    lq_tv x[2];
    if (!LQ_BIND(m, a, "default", 0, x, "default_value", "boolean")) return false;
    *out = v;
    if (v.kind != LQ_TV_UNDEFINED && !(lq_tv_true(x[1]) && !lq_tv_true(v))) return true;
    *out = x[0];
    return x[0].kind != LQ_TV_MISSING || lq_tstr_const(m, "", out);
}

FILTER(length) {
    int64_t n;
    if (a->n || a->named) return lq_tm_fail(m, "len() takes exactly one argument");
    if (!lq_tv_len(m, v, &n)) return false;
    *out = lq_tv_int(n);
    return true;
}

FILTER(attr) {
    lq_tv name;
    if (!LQ_BIND(m, a, "attr", 1, &name, "name")) return false;
    if (name.kind != LQ_TV_STR) return lq_tm_fail(m, "attribute name must be string, not '%s'", lq_tv_type(name));
    if (v.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, v);
    if (!lq_tv_method(m, v, name.s, out)) return false;
    return out->kind != LQ_TV_MISSING || lq_tv_undefined(m, v, name, out);
}

const lq_tfunc lq_tfilters[] = {
    {"abs", absolute}, {"attr", attr}, {"capitalize", capitalize}, {"center", center}, {"count", length},
    {"d", otherwise}, {"default", otherwise}, {"e", escape}, {"escape", escape}, {"filesizeformat", filesizeformat},
    {"float", floating}, {"forceescape", forceescape}, {"format", format}, {"indent", indent}, {"int", integer},
    {"length", length}, {"lower", lower}, {"pprint", lq_tmpl_pprint}, {"replace", replace}, {"round", rounded},
    {"safe", safe},
    {"string", string}, {"striptags", lq_tmpl_striptags}, {"title", title}, {"tojson", tojson}, {"trim", trim},
    {"truncate", truncate}, {"upper", upper}, {"urlencode", urlencode}, {"wordcount", wordcount},
    {"wordwrap", lq_tmpl_wordwrap}, {NULL, NULL}};

const lq_tfunc *lq_tfilter_find(const lq_tstr *name) {
    const lq_tfunc *f = lq_tfunc_find(lq_tfilters, name);
    return f ? f : lq_tfunc_find(lq_tfilters_seq, name);
}
