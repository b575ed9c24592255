// tmpl_lex.c: a template's text as tokens, with Jinja's rules for the white space around tags: "-" takes all of it,
// a tag alone on its line takes its indent and its newline (lstrip_blocks, trim_blocks), "+" forbids that. Refuses what
// Jinja refuses, integers of more than 63 bits, and escapes that are no character.
#include "runtime/text/tmpl.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const lq_ttoken_names[] = {
    "end of template", "error", "template data / text", "begin of statement block", "end of statement block",
    "begin of print statement", "end of print statement", "name", "string", "integer", "float", "+", "-", "/", "//",
    "*", "%", "**", "~", "[", "]", "(", ")", "{", "}", "==", "!=", ">", ">=", "<", "<=", "=", ".", ":", "|", ",", ";"};

typedef struct lexer {
    lq_tm *m;
    const char *begin, *p, *end; // all of it, and what is left
    int line;
    bool line_begins;      // what was taken last ended in a newline
    lq_ttoken *token;
    size_t n, cap;
    char open[LQ_TM_HEIGHT]; // brackets
    int opened;
    lq_err *error;
} lexer;

static bool add(lexer *x, lq_tok_kind kind, lq_tv value) {
    if (x->n == x->cap) {
        const size_t cap = x->cap ? 2 * x->cap : 256;
        lq_ttoken *t = lq_tm_take(x->m, cap, sizeof *t);
        if (!t) return false;
        if (x->n) memcpy(t, x->token, x->n * sizeof *t);
        x->token = t;
        x->cap = cap;
    }
    x->token[x->n++] = (lq_ttoken){kind, x->line, value};
    return true;
}

// The text ends in an error that the parser tells when it gets there: what stands before it may be wrong as well.
LQ_PRINTF(2, 3)
static bool fail(lexer *x, const char *fmt, ...) {
    char text[200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    lq_fail(x->error, LQ_E_FORMAT, "line %d: %s", x->line, text);
    x->p = x->end;
    return add(x, LQ_TT_ERROR, lq_tv_none());
}

static bool unexpected(lexer *x) {
    const char *quote = *x->p == '\'' ? "\"" : "'";
    size_t at = 0, len;
    lq_tstr_char(x->p, &len);
    for (const char *p = x->begin; p < x->p; p++) at += (*p & 0xc0) != 0x80;
    return fail(x, "unexpected char %s%.*s%s at %zu", quote, (int)len, x->p, quote, at);
}

static void take(lexer *x, size_t n) {
    for (const char *p = x->p; p < x->p + n; p++) x->line += *p == '\n';
    if (n) x->line_begins = x->p[n - 1] == '\n';
    x->p += n;
}

static size_t space_at(const char *p, const char *end) {
    const char *from = p;
    while (p < end) {
        size_t len;
        if (!lq_tchar_is_space(lq_tstr_char(p, &len))) break;
        p += len;
    }
    return (size_t)(p - from);
}

static bool begins(const char *p, const char *end, const char *with) {
    const size_t n = strlen(with);
    return (size_t)(end - p) >= n && !memcmp(p, with, n);
}

// The length of "{% raw %}" at p, its sign in *sign; 0: it is none. For "endraw" what is behind it is taken as well.
static size_t raw_tag(const char *p, const char *end, const char *name, char *sign) {
    const char *from = p;
    if (!begins(p, end, "{%")) return 0;
    p += 2;
    *sign = p < end && (*p == '-' || *p == '+') ? *p++ : '\0';
    p += space_at(p, end);
    if (!begins(p, end, name)) return 0;
    p += strlen(name);
    p += space_at(p, end);
    if (begins(p, end, "-%}")) return (size_t)(p + 3 - from) + space_at(p + 3, end);
    if (*name == 'e' && begins(p, end, "+%}")) return (size_t)(p + 3 - from);
    if (!begins(p, end, "%}")) return 0;
    p += 2;
    return (size_t)(p - from) + (*name == 'e' && p < end && *p == '\n');
}

// Text before a tag with this sign, without the white space that the tag takes.
static bool add_data(lexer *x, const char *p, size_t n, char sign, bool variable) {
    if (sign == '-') {
        while (n) {
            size_t at = n - 1, len;
            while (at && (p[at] & 0xc0) == 0x80) at--;
            if (!lq_tchar_is_space(lq_tstr_char(p + at, &len))) break;
            n = at;
        }
    } else if (sign != '+' && !variable) {
        size_t at = n;
        while (at && p[at - 1] != '\n') at--;
        if ((at || x->line_begins) && at < n && space_at(p + at, p + n) == n - at) n = at;
    }
    lq_tv text;
    if (!n) return true;
    return lq_tstr_part(x->m, p, n, &text) && add(x, LQ_TT_DATA, text);
}

// --- inside of tags ---

static bool is_name(unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c >= 0x80;
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

// Digits that "_" may separate; behind `first` one may stand before the first digit as well.
static const char *digits(const char *p, const char *end, int base, bool first) {
    const char *done = p;
    while (p < end) {
        if (*p == '_' && (p > done || first) && p + 1 < end && digit_of(p[1]) < base) p++;
        if (digit_of(*p) >= base) break;
        done = ++p;
        first = true;
    }
    return done;
}

static bool number(lexer *x) {
    const char *p = x->p, *q = digits(p, x->end, 10, false), *f = q;
    const bool after_dot = p[-1] == '.';
    char text[400];
    size_t n = 0;
    if (q + 1 < x->end && *q == '.' && digit_of(q[1]) < 10) f = digits(q + 1, x->end, 10, false);
    const char *e = f;
    if (e < x->end && (*e == 'e' || *e == 'E')) {
        const char *s = e + 1 + (e + 1 < x->end && (e[1] == '+' || e[1] == '-'));
        if (s < x->end && digit_of(*s) < 10) e = digits(s, x->end, 10, false);
    }
    if (e > q && !after_dot) {
        for (const char *c = p; c < e && n + 1 < sizeof text; c++)
            if (*c != '_') text[n++] = *c;
        text[n] = '\0';
        const bool done = add(x, LQ_TT_FLOAT, lq_tv_float(strtod(text, NULL)));
        return take(x, (size_t)(e - p)), done;
    }
    int base = 10;
    if (*p == '0') {
        const char c = p + 1 < x->end ? (char)(p[1] | 32) : '\0';
        base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
        if (base != 10 && (q = digits(p + 2, x->end, base, true)) == p + 2) base = 10;
        if (base == 10) q = digits(p, x->end, 1, false);
    }
    int64_t v = 0;
    for (const char *c = p + (base == 10 ? 0 : 2); c < q; c++)
        if (*c != '_' && (__builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, digit_of(*c), &v)))
            return fail(x, "an integer of more than 63 bits");
    const bool done = add(x, LQ_TT_INTEGER, lq_tv_int(v));
    return take(x, (size_t)(q - p)), done;
}

// One escape at p, behind its backslash, as a character in *c; its length, 0 where it is none.
static size_t escape(const char *p, const char *end, uint32_t *c) {
    static const char names[] = "\\'\"abfnrtv", codes[] = "\\'\"\a\b\f\n\r\t\v";
    const char *at = strchr(names, *p);
    if (at && *p) return *c = (unsigned char)codes[at - names], 1;
    size_t n = 0;
    *c = 0;
    if (*p >= '0' && *p <= '7') {
        while (n < 3 && p + n < end && p[n] >= '0' && p[n] <= '7') *c = *c * 8 + (uint32_t)(p[n++] - '0');
        return n;
    }
    const size_t want = *p == 'x' ? 2 : *p == 'u' ? 4 : 8;
    for (n = 1; n <= want && p + n < end && digit_of(p[n]) < 16; n++) *c = *c * 16 + (uint32_t)digit_of(p[n]);
    return n == want + 1 && *c <= 0x10ffff && (*c < 0xd800 || *c > 0xdfff) ? n : 0;
}

static bool string(lexer *x) {
    const char quote = *x->p, *p = x->p + 1;
    while (p < x->end && *p != quote) p += *p == '\\' && p + 1 < x->end ? 2 : 1;
    if (p >= x->end) return unexpected(x);
    const char *end = p;
    char *to = lq_tm_take_bytes(x->m, (size_t)(end - x->p)), *at = to;
    if (!to) return false;
    for (p = x->p + 1; p < end;) {
        uint32_t c;
        if (*p != '\\') {
            *at++ = *p++;
            continue;
        }
        if (*++p == '\n') p++;
        else if (!strchr("\\'\"abfnrtv01234567xuUN", *p)) *at++ = '\\', *at++ = *p++;
        else {
            const size_t n = *p == 'N' ? 0 : escape(p, end, &c);
            if (!n) return fail(x, "an escape in a string is no character: \\%c", *p);
            p += n;
            at += lq_tstr_put_char(c, at);
        }
    }
    lq_tv v;
    const bool done = lq_tstr_part(x->m, to, (size_t)(at - to), &v) && add(x, LQ_TT_STRING, v);
    take(x, (size_t)(end + 1 - x->p));
    return done;
}

static bool operator(lexer *x) {
    static const char shut[] = "}])", opens[] = "{[(";
    const char *p = x->p;
    int kind = 0;
    size_t n = 0;
    for (int k = LQ_TT_ADD; k <= LQ_TT_SEMICOLON; k++)
        if (strlen(lq_ttoken_names[k]) > n && begins(p, x->end, lq_ttoken_names[k]))
            kind = k, n = strlen(lq_ttoken_names[k]);
    if (!n) {
        return unexpected(x);
    }
    const char *in = strchr(opens, *p), *out = strchr(shut, *p);
    if (in) {
        if (x->opened == LQ_TM_HEIGHT) return fail(x, "brackets are nested too deep");
        x->open[x->opened++] = shut[in - opens];
    } else if (out) {
        if (!x->opened) return fail(x, "unexpected '%c'", *p);
        if (x->open[--x->opened] != *p) return fail(x, "unexpected '%c', expected '%c'", *p, x->open[x->opened]);
    }
    const bool done = add(x, (lq_tok_kind)kind, lq_tv_none());
    return take(x, n), done;
}

static bool name(lexer *x) {
    const char *p = x->p;
    lq_tv v;
    while (p < x->end && is_name((unsigned char)*p)) p++;
    const bool done = lq_tstr_part(x->m, x->p, (size_t)(p - x->p), &v) && add(x, LQ_TT_NAME, v);
    return take(x, (size_t)(p - x->p)), done;
}

// The end of a tag at p: its length, 0 where it is none.
static size_t tag_end(const lexer *x, bool variable) {
    const char *p = x->p, *mark = variable ? "}}" : "%}";
    if (x->opened) return 0;
    if (begins(p, x->end, "-") && begins(p + 1, x->end, mark)) return 3 + space_at(p + 3, x->end);
    if (!variable && begins(p, x->end, "+%}")) return 3;
    if (!begins(p, x->end, mark)) return 0;
    return 2 + (size_t)(!variable && p + 2 < x->end && p[2] == '\n');
}

static bool tag(lexer *x, bool variable) {
    if (!add(x, variable ? LQ_TT_VAR_BEGIN : LQ_TT_BLOCK_BEGIN, lq_tv_none())) return false;
    while (x->p < x->end) {
        size_t n = tag_end(x, variable);
        bool done = true;
        if (n) {
            done = add(x, variable ? LQ_TT_VAR_END : LQ_TT_BLOCK_END, lq_tv_none());
            return take(x, n), done;
        }
        if ((n = space_at(x->p, x->end))) take(x, n);
        else if (*x->p >= '0' && *x->p <= '9') done = number(x);
        else if (is_name((unsigned char)*x->p)) done = name(x);
        else if (*x->p == '"' || *x->p == '\'') done = string(x);
        else done = operator(x);
        if (!done) return false;
    }
    return true;
}

static bool comment(lexer *x) {
    for (const char *p = x->p; p < x->end; p++) {
        if (begins(p, x->end, "+#}")) return take(x, (size_t)(p + 3 - x->p)), true;
        if (begins(p, x->end, "-#}")) return take(x, (size_t)(p + 3 - x->p) + space_at(p + 3, x->end)), true;
        if (begins(p, x->end, "#}"))
            return take(x, (size_t)(p + 2 - x->p) + (p + 2 < x->end && p[2] == '\n')), true;
    }
    return x->p == x->end || fail(x, "Missing end of comment tag"); // at the end of the text Jinja lets it pass
}

static bool raw(lexer *x) {
    for (const char *p = x->p; p < x->end; p++) {
        char sign;
        const size_t n = raw_tag(p, x->end, "endraw", &sign);
        if (!n) continue;
        const char *from = x->p;
        const bool done = add_data(x, from, (size_t)(p - from), sign, false);
        return take(x, (size_t)(p - from) + n), done;
    }
    return x->p == x->end || fail(x, "Missing end of raw directive");
}

static bool root(lexer *x) {
    const char *p = x->p;
    while (p < x->end && !(*p == '{' && p + 1 < x->end && (p[1] == '%' || p[1] == '{' || p[1] == '#'))) p++;
    if (p == x->end) {
        const bool done = add_data(x, x->p, (size_t)(p - x->p), '+', true);
        return take(x, (size_t)(p - x->p)), done;
    }
    const char kind = p[1];
    char sign = p + 2 < x->end && (p[2] == '-' || p[2] == '+') ? p[2] : '\0';
    size_t n = raw_tag(p, x->end, "raw", &sign);
    const bool is_raw = n > 0;
    if (!n) n = 2 + (sign != '\0');
    if (!add_data(x, x->p, (size_t)(p - x->p), sign, kind == '{')) return false;
    take(x, (size_t)(p - x->p) + n);
    return is_raw ? raw(x) : kind == '#' ? comment(x) : tag(x, kind == '{');
}

// Newlines become "\n"; one at the end of the template is dropped.
static bool newlines(lq_tm *m, const char *p, size_t n, const char **to, size_t *len) {
    char *at = lq_tm_take_bytes(m, n + 1);
    if (!at) return false;
    *to = at;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\r' && i + 1 < n && p[i + 1] == '\n') continue;
        *at++ = p[i] == '\r' ? '\n' : p[i];
    }
    if (at > *to && at[-1] == '\n') at--;
    *len = (size_t)(at - *to);
    return true;
}

bool lq_tlex(lq_tm *m, const char *p, size_t n, lq_ttoken **out, lq_err *error) {
    lexer x = {.m = m, .line = 1, .line_begins = true, .error = error};
    if (!newlines(m, p, n, &x.p, &n)) return false;
    x.begin = x.p;
    x.end = x.p + n;
    while (x.p < x.end)
        if (!root(&x)) return false;
    if (!add(&x, LQ_TT_EOF, lq_tv_none())) return false;
    *out = x.token;
    return true;
}
