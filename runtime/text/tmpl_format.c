// tmpl_format.c: Python's two ways to format: "%05.1f" % x and "{:>8}".format(x). Refuses widths and
// precisions that nobody can read.
#include "runtime/text/tmpl.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDEST = 1 << 20, PRECISEST = 300 };

typedef struct spec {
    lq_tstr fill;
    char align, sign, group, type; // 0: not given
    bool alt, zero;
    int width, precision;          // -1: not given
} spec;

static bool put_fill(lq_tm *m, const spec *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!lq_tm_put(m, s->fill.p, s->fill.n)) return false;
    return true;
}

// A sign or prefix, then the rest, in the width.
static bool put_field(lq_tm *m, const spec *s, const char *sign, const char *p, size_t n, size_t chars, char align) {
    const size_t head = strlen(sign), width = s->width > 0 ? (size_t)s->width : 0;
    const size_t more = width > chars + head ? width - chars - head : 0;
    const char a = s->align ? s->align : align;
    const size_t left = a == '>' ? more : a == '^' ? more / 2 : 0;
    return put_fill(m, s, left) && lq_tm_puts(m, sign) && put_fill(m, s, a == '=' ? more : 0) && lq_tm_put(m, p, n) &&
           put_fill(m, s, a == '=' ? 0 : more - left);
}

static bool put_str(lq_tm *m, const lq_tstr *t, const spec *s, char align) {
    size_t n = t->n, chars = t->chars;
    if (s->precision >= 0 && (size_t)s->precision < chars) {
        chars = (size_t)s->precision;
        n = lq_tstr_at(t, chars);
    }
    return put_field(m, s, "", t->p, n, chars, align);
}

// Digits in groups of three (four, of a hexadecimal number).
static size_t group(const char *p, size_t n, char mark, size_t by, char *to) {
    size_t whole = 0, k = 0;
    while (whole < n && ((p[whole] >= '0' && p[whole] <= '9') || (by == 4 && p[whole] >= 'A'))) whole++;
    for (size_t i = 0; i < n; i++) {
        if (i && i < whole && (whole - i) % by == 0) to[k++] = mark;
        to[k++] = p[i];
    }
    return k;
}

static bool put_digits(lq_tm *m, const spec *s, bool negative, const char *prefix, const char *p, size_t n,
    bool plain) {
    char sign[8], grouped[1024];
    spec with = *s;
    snprintf(sign, sizeof sign, "%s%s", negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "", prefix);
    if (s->group && n < sizeof grouped / 2) {
        n = group(p, n, s->group, plain ? 3 : 4, grouped);
        p = grouped;
    }
    if (s->zero && !s->align) {
        with.fill = (lq_tstr){"0", 1, 1};
        with.align = '=';
    }
    return put_field(m, &with, sign, p, n, n, '>');
}

static bool put_int(lq_tm *m, int64_t v, const spec *s) {
    char text[80], *end = text + sizeof text, *p = end;
    const unsigned base = s->type == 'x' || s->type == 'X' ? 16 : s->type == 'o' ? 8 : s->type == 'b' ? 2 : 10;
    const char *prefix = !s->alt || base == 10 ? "" : base == 8 ? "0o" : base == 2 ? "0b" : "0x";
    if (*prefix && s->type == 'X') prefix = "0X";
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    if (s->type == 'c') {
        char c[4];
        if (v < 0 || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
            return lq_tm_fail(m, "%%c arg not in range(0x110000)");
        return put_field(m, s, "", c, lq_tstr_put_char((uint32_t)v, c), 1, '>');
    }
    do *--p = (s->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
    while (u /= base);
    while (end - p < s->precision && p > text) *--p = '0';
    return put_digits(m, s, v < 0, prefix, p, (size_t)(end - p), base == 10);
}

// A precision without a type: as "g", but a number that is not whole to the last digit but one has an exponent.
static size_t general(double v, int precision, char *text, size_t size) {
    const int digits = precision ? precision : 1;
    size_t n = (size_t)snprintf(text, size, "%.*e", digits - 1, v);
    const char *e = strchr(text, 'e');
    const int ten = atoi(e + 1);
    if (ten >= -4 && ten < digits - 1) {
        n = (size_t)snprintf(text, size, "%.*g", digits, v);
        if (!strchr(text, '.')) n += (size_t)snprintf(text + n, size - n, ".0");
        return n;
    }
    size_t keep = (size_t)(e - text);
    while (digits > 1 && text[keep - 1] == '0') keep--;
    if (text[keep - 1] == '.') keep--;
    memmove(text + keep, e, strlen(e) + 1);
    return strlen(text);
}

static bool put_float(lq_tm *m, double v, const spec *s) {
    char text[800], form[16];
    const bool percent = s->type == '%', small = s->type != 'E' && s->type != 'F' && s->type != 'G';
    const char type = percent || s->type == 'F' ? 'f' : s->type == 'n' ? 'g' : s->type ? s->type : 'g';
    size_t n;
    if (s->precision > PRECISEST) return lq_tm_fail(m, "a precision of more than %d", PRECISEST);
    if (percent) v *= 100;
    const bool negative = signbit(v) && !isnan(v);
    v = fabs(v);
    const char *word = isnan(v) ? (small ? "nan" : "NAN") : small ? "inf" : "INF";
    if (isnan(v) || isinf(v)) n = (size_t)snprintf(text, sizeof text, "%s", word);
    else if (!s->type && s->precision < 0) n = lq_tv_float_text(v, text);
    else if (!s->type) n = general(v, s->precision, text, sizeof text - 8);
    else {
        snprintf(form, sizeof form, "%%%s.*%c", s->alt ? "#" : "", type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        n = (size_t)snprintf(text, sizeof text - 8, form, s->precision < 0 ? 6 : s->precision, v);
#pragma GCC diagnostic pop
    }
    if (percent) text[n++] = '%';
    return put_digits(m, s, negative, "", text, n, true);
}

// --- "..." % x ---

typedef struct percent {
    lq_tm *m;
    const char *p, *end;
    const lq_tv *arg;
    size_t n, at;
    lq_tv args;
    bool safe; // markup: what is put into it is escaped
} percent;

static bool next_arg(percent *f, lq_tv *out) {
    if (f->at >= f->n) return lq_tm_fail(f->m, "not enough arguments for format string");
    *out = f->arg[f->at++];
    return true;
}

// A width or precision: digits or "*".
static bool read_number(percent *f, int *out) {
    lq_tv v;
    *out = 0;
    if (f->p < f->end && *f->p == '*') {
        f->p++;
        if (!next_arg(f, &v)) return false;
        if (!lq_tv_is_int(v)) return lq_tm_fail(f->m, "* wants int");
        const int64_t i = lq_tv_as_int(v);
        if (i > WIDEST || i < -WIDEST) return lq_tm_fail(f->m, "a width of more than %d", WIDEST);
        *out = (int)i;
        return true;
    }
    for (; f->p < f->end && *f->p >= '0' && *f->p <= '9'; f->p++)
        if ((*out = *out * 10 + (*f->p - '0')) > WIDEST) return lq_tm_fail(f->m, "a width of more than %d", WIDEST);
    return true;
}

static bool percent_one(percent *f, const spec *s, lq_tv v) {
    lq_tm *m = f->m;
    const size_t from = m->out_n;
    lq_tv text;
    if (strchr("sra", s->type)) {
        if (!(s->type == 's' ? lq_tv_put(m, v) : lq_tv_put_repr(m, v)) || !lq_tm_cut(m, from, &text)) return false;
        text.safe = s->type == 's' && v.kind == LQ_TV_STR && v.safe;
        if (f->safe && !lq_tstr_escape(m, text, &text)) return false;
        return put_str(m, text.s, s, '>');
    }
    if (s->type == 'c' && v.kind == LQ_TV_STR && v.s->chars == 1) return put_field(m, s, "", v.s->p, v.s->n, 1, '>');
    if (v.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, v);
    if (strchr("eEfFgG", s->type)) {
        if (!lq_tv_is_num(v)) return lq_tm_fail(m, "must be real number, not %s", lq_tv_type(v));
        return put_float(m, lq_tv_as_float(v), s);
    }
    if (!lq_tv_is_num(v) || (v.kind == LQ_TV_FLOAT && s->type != 'd'))
        return lq_tm_fail(m, "%%%c format: %s is required, not %s", s->type,
                          s->type == 'd' ? "a real number" : "an integer", lq_tv_type(v));
    if (v.kind == LQ_TV_FLOAT && !(fabs(v.f) < 9.2e18)) return lq_tm_fail(m, "cannot convert float to integer");
    return put_int(m, v.kind == LQ_TV_FLOAT ? (int64_t)v.f : lq_tv_as_int(v), s);
}

static bool percent_spec(percent *f, const char *begin) {
    lq_tm *m = f->m;
    spec s = {.fill = {" ", 1, 1}, .width = -1, .precision = -1, .align = 0};
    lq_tv v = {0};
    bool left = false;
    if (f->p < f->end && *f->p == '(') {
        const char *key = ++f->p;
        int depth = 1;
        while (f->p < f->end && (depth += *f->p == '(' ? 1 : *f->p == ')' ? -1 : 0) > 0) f->p++;
        if (f->p == f->end) return lq_tm_fail(m, "incomplete format key");
        if (f->args.kind != LQ_TV_DICT) return lq_tm_fail(m, "format requires a mapping");
        const lq_tstr name = {key, (size_t)(f->p - key), 0};
        if (!lq_tv_dict_get(m, f->args.d, lq_tv_str(&name), &v)) return false;
        if (v.kind == LQ_TV_MISSING) return lq_tm_fail(m, "'%.*s'", (int)(name.n < 100 ? name.n : 100), key);
        f->p++;
    }
    for (; f->p < f->end && strchr("-+ #0", *f->p) && *f->p; f->p++) {
        if (*f->p == '-') left = true;
        else if (*f->p == '+' || (*f->p == ' ' && !s.sign)) s.sign = *f->p;
        else if (*f->p == '#') s.alt = true;
        else if (*f->p == '0') s.zero = true;
    }
    if (!read_number(f, &s.width)) return false;
    if (s.width < 0) left = true, s.width = -s.width;
    if (f->p < f->end && *f->p == '.') {
        f->p++;
        if (!read_number(f, &s.precision)) return false;
        if (s.precision < 0) s.precision = 0;
    }
    while (f->p < f->end && strchr("hlL", *f->p) && *f->p) f->p++;
    if (f->p == f->end) return lq_tm_fail(m, "incomplete format");
    s.type = *f->p++;
    if (s.type == '%') return lq_tm_put(m, "%", 1);
    if (!s.type || !strchr("diuxXoeEfFgGcrsa", s.type))
        return lq_tm_fail(m, "unsupported format character '%c' (0x%x) at index %d", s.type, (unsigned char)s.type,
                          (int)(f->p - 1 - begin));
    if (s.type == 'i' || s.type == 'u') s.type = 'd';
    if (left) s.align = '<';
    if (v.kind == LQ_TV_MISSING && !next_arg(f, &v)) return false;
    return percent_one(f, &s, v);
}

bool lq_tv_percent(lq_tm *m, lq_tv format, lq_tv args, lq_tv *out) {
    const char *begin = format.s->p;
    const size_t from = m->out_n;
    percent f = {m, begin, begin + format.s->n, &args, 1, 0, args, format.safe};
    if (args.kind == LQ_TV_TUPLE) f.arg = args.l->p, f.n = args.l->n;
    while (f.p < f.end) {
        const char *q = memchr(f.p, '%', (size_t)(f.end - f.p));
        if (!q) q = f.end;
        if (!lq_tm_steps(m, 1) || !lq_tm_put(m, f.p, (size_t)(q - f.p))) return false;
        f.p = q == f.end ? q : q + 1;
        if (q < f.end && !percent_spec(&f, begin)) return false;
    }
    if (f.at < f.n && args.kind != LQ_TV_DICT && args.kind != LQ_TV_LIST && args.kind != LQ_TV_RANGE &&
        args.kind != LQ_TV_UNDEFINED)
        return lq_tm_fail(m, "not all arguments converted during string formatting");
    if (!lq_tm_cut(m, from, out)) return false;
    out->safe = format.safe;
    return true;
}

// --- "...".format(x) ---

typedef struct braces {
    lq_tm *m;
    const lq_targs *a;
    int64_t at; // the next place; -1: they are given
    bool safe;  // markup: what is put into it is escaped
} braces;

static bool spec_read(lq_tm *m, const char *p, size_t n, spec *s) {
    const char *end = p + n;
    size_t len = 0;
    *s = (spec){.fill = {" ", 1, 1}, .width = -1, .precision = -1};
    if (p < end) lq_tstr_char(p, &len);
    if (p < end && p + len < end && strchr("<>=^", p[len]) && p[len])
        s->fill = (lq_tstr){p, len, 1}, s->align = p[len], p += len + 1;
    else if (p < end && strchr("<>=^", *p) && *p) s->align = *p++;
    if (p < end && strchr("+- ", *p) && *p) s->sign = *p++;
    if (p < end && *p == 'z') p++;
    if (p < end && *p == '#') s->alt = true, p++;
    if (p < end && *p == '0') s->zero = true, p++;
    for (int *to = &s->width;; to = &s->precision) {
        for (; p < end && *p >= '0' && *p <= '9'; p++)
            if ((*to = (*to < 0 ? 0 : *to) * 10 + (*p - '0')) > WIDEST)
                return lq_tm_fail(m, "Too many decimal digits in format string");
        if (to == &s->precision) break;
        if (p < end && (*p == ',' || *p == '_')) s->group = *p++;
        if (p == end || *p != '.') break;
        if (++p == end || *p < '0' || *p > '9') return lq_tm_fail(m, "Format specifier missing precision");
    }
    if (p < end) s->type = *p++;
    return p == end || lq_tm_fail(m, "Invalid format specifier");
}

static bool spec_suits_str(lq_tm *m, const spec *s) {
    if (s->group) return lq_tm_fail(m, "Cannot specify '%c' with 's'.", s->group);
    if (s->sign) return lq_tm_fail(m, "%s not allowed in string format specifier", s->sign == ' ' ? "Space" : "Sign");
    if (s->alt) return lq_tm_fail(m, "Alternate form (#) not allowed in string format specifier");
    return s->align != '=' || lq_tm_fail(m, "'=' alignment not allowed in string format specifier");
}

static bool put_formatted(lq_tm *m, lq_tv v, const char *p, size_t n) {
    spec s;
    if (!n) return lq_tv_put(m, v);
    if (!spec_read(m, p, n, &s)) return false;
    const char type = s.type;
    const bool of_int = type && strchr("bcdoxXn", type), of_float = type && strchr("eEfFgG%", type);
    if (v.kind == LQ_TV_STR) {
        if (!spec_suits_str(m, &s)) return false;
        if (type && type != 's') return lq_tm_fail(m, "Unknown format code '%c' for object of type 'str'", type);
        if (s.zero && !s.align) s.fill = (lq_tstr){"0", 1, 1};
        return put_str(m, v.s, &s, '<');
    }
    if (!lq_tv_is_num(v)) return lq_tm_fail(m, "unsupported format string passed to %s.__format__", lq_tv_type(v));
    if (v.kind != LQ_TV_FLOAT && (of_int || !type)) {
        if (s.precision >= 0) return lq_tm_fail(m, "Precision not allowed in integer format specifier");
        return put_int(m, lq_tv_as_int(v), &s);
    }
    if (type && !of_float && type != 'n')
        return lq_tm_fail(m, "Unknown format code '%c' for object of type '%s'", type, lq_tv_type(v));
    return put_float(m, lq_tv_as_float(v), &s);
}

// "name.attr[key]": what it is.
static bool field_value(braces *b, const char *p, const char *end, lq_tv *out) {
    lq_tm *m = b->m;
    const char *name = p;
    int64_t at = 0;
    while (p < end && *p != '.' && *p != '[') p++;
    bool number = true;
    for (const char *c = name; c < p; c++) {
        number = number && *c >= '0' && *c <= '9';
        if (number && (at = at * 10 + (*c - '0')) > WIDEST)
            return lq_tm_fail(m, "Too many decimal digits in format string");
    }
    if (number) {
        if ((name == p) != (b->at >= 0) && b->at > 0)
            return lq_tm_fail(m, "cannot switch from automatic field numbering to manual field specification");
        if (name == p && b->at < 0)
            return lq_tm_fail(m, "cannot switch from manual field specification to automatic field numbering");
        if (name == p) at = b->at++;
        else b->at = -1;
        if (at >= (int64_t)b->a->n)
            return lq_tm_fail(m, "Replacement index %d out of range for positional args tuple", (int)at);
        *out = b->a->pos[at];
    } else {
        const lq_tstr key = {name, (size_t)(p - name), 0};
        size_t k = 0;
        while (k < b->a->named && !lq_tstr_same(b->a->name[k], &key)) k++;
        if (k == b->a->named) return lq_tm_fail(m, "'%.*s'", (int)(key.n < 100 ? key.n : 100), name);
        *out = b->a->value[k];
    }
    while (p < end) {
        const bool item = *p++ == '[';
        const char *from = p;
        while (p < end && (item ? *p != ']' : *p != '.' && *p != '[')) p++;
        lq_tv key;
        if (item && p == end) return lq_tm_fail(m, "Missing ']' in format string");
        if (from == p) return lq_tm_fail(m, "Empty attribute in format string");
        if (!lq_tstr_part(m, from, (size_t)(p - from), &key)) return false;
        bool digits = item && p - from < 10;
        int64_t i = 0;
        for (const char *c = from; c < p && digits; c++) digits = *c >= '0' && *c <= '9', i = i * 10 + (*c - '0');
        if (!(item ? lq_tm_item(m, *out, digits ? lq_tv_int(i) : key, out) : lq_tm_attr(m, *out, key.s, out)))
            return false;
        p += item;
    }
    return true;
}

static bool put_braces(braces *b, const char *p, size_t n, int depth);

static bool put_replacement(braces *b, const char *p, const char *end, int depth) {
    lq_tm *m = b->m;
    const char *name = p, *conv;
    const size_t from = m->out_n;
    lq_tv v, spec_text;
    while (p < end && *p != '!' && *p != ':') {
        const char *shut = *p == '[' ? memchr(p, ']', (size_t)(end - p)) : NULL; // a key may hold any character
        p = shut ? shut : p + 1;
    }
    conv = p;
    if (!field_value(b, name, p, &v)) return false;
    if (p < end && *p == '!') {
        if (end - p < 2 || !strchr("rsa", p[1])) return lq_tm_fail(m, "Unknown conversion specifier");
        conv = p + 1;
        p += 2;
        if (p < end && *p != ':') return lq_tm_fail(m, "expected ':' after conversion specifier");
    }
    if (conv < p && *conv != 's' && (!lq_tv_put_repr(m, v) || !lq_tm_cut(m, from, &v))) return false;
    if (conv < p && *conv == 's' && !lq_tv_show(m, v, &v)) return false;
    if (p < end) p++;
    if (!put_braces(b, p, (size_t)(end - p), depth + 1) || !lq_tm_cut(m, from, &spec_text)) return false;
    if (!b->safe || depth) return put_formatted(m, v, spec_text.s->p, spec_text.s->n);
    lq_tv text;
    const bool markup = v.kind == LQ_TV_STR && v.safe;
    if (markup && spec_text.s->n)
        return lq_tm_fail(m, "Unsupported format specification for Markup.");
    if (!put_formatted(m, v, spec_text.s->p, spec_text.s->n) || !lq_tm_cut(m, from, &text)) return false;
    text.safe = markup;
    return lq_tstr_escape(m, text, &text) && lq_tm_put(m, text.s->p, text.s->n);
}

static bool put_braces(braces *b, const char *p, size_t n, int depth) {
    lq_tm *m = b->m;
    const char *end = p + n;
    if (depth > 2) return lq_tm_fail(m, "Max string recursion exceeded");
    while (p < end) {
        const char *q = p;
        while (q < end && *q != '{' && *q != '}') q++;
        if (!lq_tm_steps(m, 1) || !lq_tm_put(m, p, (size_t)(q - p))) return false;
        if (q == end) return true;
        if (q + 1 < end && q[1] == *q && !depth) {
            if (!lq_tm_put(m, q, 1)) return false;
            p = q + 2;
            continue;
        }
        if (*q == '}') return lq_tm_fail(m, "Single '}' encountered in format string");
        int open = 1;
        for (p = ++q; q < end && (open += *q == '{' ? 1 : *q == '}' ? -1 : 0) > 0;) q++;
        if (q == end && p == end) return lq_tm_fail(m, "Single '{' encountered in format string");
        if (q == end) return lq_tm_fail(m, "expected '}' before end of string");
        if (!put_replacement(b, p, q, depth)) return false;
        p = q + 1;
    }
    return true;
}

bool lq_tv_format(lq_tm *m, lq_tv format, const lq_targs *a, lq_tv *out) {
    const size_t from = m->out_n;
    braces b = {m, a, 0, format.safe};
    if (!put_braces(&b, format.s->p, format.s->n, 0) || !lq_tm_cut(m, from, out)) return false;
    out->safe = format.safe;
    return true;
}
