// tmpl_show.c: what a value is printed as: Python's str() and repr(), and the JSON of json.dumps. Writes to the
// machine's text. Refuses what is nested too deep and, as JSON, what is no JSON.
#include "runtime/text/tmpl.h"
#include "formats/json.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The shortest decimal that is this number: 1.0, 1e-05, 1e+16, inf.
size_t lq_tv_float_text(double f, char buf[32]) {
    char digits[40], *to = buf;
    int digit_n = 0, ten;
    if (isnan(f)) return memcpy(buf, "nan", 4), 3;
    if (isinf(f)) return (size_t)snprintf(buf, 32, "%sinf", f < 0 ? "-" : "");
    for (int precision = 14; precision <= 16; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision, f);
        if (strtod(digits, NULL) == f) break;
    }
    const char *p = digits;
    if (*p == '-') *to++ = *p++;
    char only[20];
    for (; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') only[digit_n++] = *p;
    ten = atoi(p + 1);
    while (digit_n > 1 && only[digit_n - 1] == '0') digit_n--;
    if (ten < -4 || ten >= 16) {
        *to++ = only[0];
        if (digit_n > 1) *to++ = '.';
        for (int i = 1; i < digit_n; i++) *to++ = only[i];
        const char sign = ten < 0 ? '-' : '+';
        return (size_t)(to - buf) + (size_t)snprintf(to, (size_t)(buf + 32 - to), "e%c%02d", sign, abs(ten));
    }
    if (ten < 0) {
        *to++ = '0';
        *to++ = '.';
        for (int i = -1; i > ten; i--) *to++ = '0';
    }
    for (int i = 0; i < digit_n || i <= ten; i++) {
        *to++ = i < digit_n ? only[i] : '0';
        if (i == ten) {
            *to++ = '.';
            if (i + 1 >= digit_n) *to++ = '0';
        }
    }
    *to = '\0';
    return (size_t)(to - buf);
}

static bool put_num(lq_tm *m, lq_tv v) {
    char text[48];
    const lq_tstr *digits = v.large ? m->large.l->p[v.large - 1].s : NULL;
    if (digits) return lq_tm_put(m, digits->p, digits->n);
    if (v.kind == LQ_TV_FLOAT) lq_tv_float_text(v.f, text);
    else snprintf(text, sizeof text, "%" PRId64, lq_tv_as_int(v));
    return lq_tm_puts(m, text);
}

// --- repr ---

static bool put_str_repr(lq_tm *m, const lq_tstr *s) {
    const bool twice = memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n);
    const char quote = twice ? '"' : '\'', *p = s->p, *end = p + s->n;
    if (!lq_tm_put(m, &quote, 1)) return false;
    while (p < end) {
        size_t len;
        char text[16] = {'\\', *p};
        const uint32_t c = lq_tstr_char(p, &len);
        if (c == '\n' || c == '\r' || c == '\t') text[1] = c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
        else if (c == (unsigned char)quote || c == '\\') text[1] = *p;
        else if (lq_tchar_is_print(c)) memcpy(text, p, len), text[len] = '\0';
        else snprintf(text, sizeof text, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        if (!lq_tm_put(m, text, c ? strlen(text) : 4)) return false;
        p += len;
    }
    return lq_tm_put(m, &quote, 1) && lq_tm_steps(m, s->n / 8);
}

static bool put_items(lq_tm *m, const lq_tv *p, size_t n, const char *open, const char *shut) {
    bool done = lq_tm_puts(m, open);
    for (size_t i = 0; i < n && done; i++) done = (!i || lq_tm_puts(m, ", ")) && lq_tv_put_repr(m, p[i]);
    return done && lq_tm_puts(m, shut);
}

static bool put_dict(lq_tm *m, const lq_tdict *d, const char *open, const char *shut) {
    bool done = lq_tm_puts(m, open);
    for (size_t i = 0; i < d->n && done; i++)
        done = (!i || lq_tm_puts(m, ", ")) && lq_tv_put_repr(m, d->key[i]) && lq_tm_puts(m, ": ") &&
               lq_tv_put_repr(m, d->value[i]);
    return done && lq_tm_puts(m, shut);
}

static bool put_view(lq_tm *m, const lq_tview *v) {
    static const char *const open[] = {"dict_keys([", "dict_values([", "dict_items(["};
    bool done = lq_tm_puts(m, open[v->kind]);
    for (size_t i = 0; i < v->d->n && done; i++) {
        done = !i || lq_tm_puts(m, ", ");
        if (v->kind != LQ_TV_ITEMS)
            done = done && lq_tv_put_repr(m, v->kind == LQ_TV_KEYS ? v->d->key[i] : v->d->value[i]);
        else
            done = done && put_items(m, (lq_tv[]){v->d->key[i], v->d->value[i]}, 2, "(", ")");
    }
    return done && lq_tm_puts(m, "])");
}

static bool put_named(lq_tm *m, const char *before, const lq_tstr *name, const char *behind) {
    return lq_tm_puts(m, before) && lq_tm_put(m, name->p, name->n) && lq_tm_puts(m, behind);
}

static bool put_other(lq_tm *m, lq_tv v) {
    char text[96];
    switch ((lq_tv_kind)v.kind) {
    case LQ_TV_RANGE:
        if (v.r->step == 1) snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ")", v.r->start, v.r->stop);
        else
            snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", v.r->start, v.r->stop,
                     v.r->step);
        break;
    case LQ_TV_LOOP:
        if (!lq_tm_loop_fill(m, v.loop, SIZE_MAX)) return false;
        snprintf(text, sizeof text, "<LoopContext %zu/%zu>", v.loop->at, v.loop->n);
        break;
    case LQ_TV_MACRO:
        return v.m->name ? put_named(m, "<Macro '", v.m->name, "'>") : lq_tm_puts(m, "<Macro anonymous>");
    case LQ_TV_FUNC: snprintf(text, sizeof text, "<function %s>", v.fn->f->name); break;
    default: snprintf(text, sizeof text, "<%s object>", lq_tv_type(v));
    }
    return lq_tm_puts(m, text);
}

bool lq_tv_put_repr(lq_tm *m, lq_tv v) {
    bool done;
    if (!lq_tm_steps(m, 1)) return false;
    if (++m->values > LQ_TM_NESTED) return lq_tm_fail(m, "values are nested too deep");
    switch ((lq_tv_kind)v.kind) {
    case LQ_TV_UNDEFINED: done = lq_tm_puts(m, "Undefined"); break;
    case LQ_TV_NONE: done = lq_tm_puts(m, "None"); break;
    case LQ_TV_BOOL: done = lq_tm_puts(m, v.b ? "True" : "False"); break;
    case LQ_TV_INT:
    case LQ_TV_FLOAT: done = put_num(m, v); break;
    case LQ_TV_STR:
        done = (!v.safe || lq_tm_puts(m, "Markup(")) && put_str_repr(m, v.s) && (!v.safe || lq_tm_puts(m, ")"));
        break;
    case LQ_TV_LIST: done = put_items(m, v.l->p, v.l->n, "[", "]"); break;
    case LQ_TV_TUPLE: done = put_items(m, v.l->p, v.l->n, "(", v.l->n == 1 ? ",)" : ")"); break;
    case LQ_TV_DICT: done = put_dict(m, v.d, "{", "}"); break;
    case LQ_TV_SPACE:
        if (v.d->shown) done = lq_tm_puts(m, "<Namespace {...}>");
        else {
            v.d->shown = true;
            done = put_dict(m, v.d, "<Namespace {", "}>");
            v.d->shown = false;
        }
        break;
    case LQ_TV_VIEW: done = put_view(m, v.v); break;
    default: done = put_other(m, v);
    }
    m->values--;
    return done;
}

bool lq_tv_put(lq_tm *m, lq_tv v) {
    if (v.kind == LQ_TV_STR) return lq_tm_put(m, v.s->p, v.s->n);
    return v.kind == LQ_TV_UNDEFINED || lq_tv_put_repr(m, v);
}

bool lq_tv_show(lq_tm *m, lq_tv v, lq_tv *out) {
    if (v.kind == LQ_TV_STR) {
        *out = v;
        out->safe = false;
        return true;
    }
    const size_t from = m->out_n;
    return lq_tv_put(m, v) && lq_tm_cut(m, from, out);
}

// --- JSON ---

static bool put_json_str(lq_tm *m, const lq_tstr *s, bool ascii) {
    static const char marks[] = "\"\\\n\r\t\f\b", as[] = "\"\\nrtfb";
    const char *p = s->p, *end = p + s->n;
    if (!lq_tm_put(m, "\"", 1)) return false;
    while (p < end) {
        const char *plain = p;
        while (p < end && (unsigned char)*p >= ' ' && *p != '"' && *p != '\\' &&
            (!ascii || (unsigned char)*p < 0x7f)) p++;
        if (p > plain && !lq_tm_put(m, plain, (size_t)(p - plain))) return false;
        if (p == end) break;
        size_t len;
        char text[16];
        uint32_t c = lq_tstr_char(p, &len);
        const char *mark = c && c < 0x80 ? strchr(marks, (int)c) : NULL;
        if (mark) snprintf(text, sizeof text, "\\%c", as[mark - marks]);
        else if (c < 0x10000) snprintf(text, sizeof text, "\\u%04x", c);
        else c -= 0x10000, snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 | c >> 10, 0xdc00 | (c & 0x3ff));
        if (!lq_tm_puts(m, text)) return false;
        p += len;
    }
    return lq_tm_put(m, "\"", 1) && lq_tm_steps(m, s->n / 8);
}

static bool put_json_line(lq_tm *m, const lq_tjson *how, int depth) {
    if (!how->spread) return true;
    bool done = lq_tm_puts(m, "\n");
    for (int i = 0; i < depth && done; i++) done = lq_tm_put(m, how->indent->p, how->indent->n);
    return done;
}

static bool put_json(lq_tm *m, lq_tv v, const lq_tjson *how, int depth);

static bool put_json_key(lq_tm *m, lq_tv key, const lq_tjson *how) {
    if (key.kind == LQ_TV_STR) return put_json_str(m, key.s, how->ascii);
    if (key.kind < LQ_TV_NONE || key.kind > LQ_TV_FLOAT)
        return lq_tm_fail(m, "keys must be str, int, float, bool or None, not %s", lq_tv_type(key));
    return lq_tm_puts(m, "\"") && put_json(m, key, how, 0) && lq_tm_puts(m, "\"");
}

static bool put_json_dict(lq_tm *m, const lq_tdict *d, const lq_tjson *how, int depth) {
    lq_tv *key = d->key, *value = d->value;
    if (!d->n) return lq_tm_puts(m, "{}");
    if (how->sort) {
        key = lq_tm_take(m, d->n, sizeof *key);
        value = lq_tm_take(m, d->n, sizeof *value);
        if (!key || !value) return false;
        memcpy(key, d->key, d->n * sizeof *key);
        memcpy(value, d->value, d->n * sizeof *value);
        if (!lq_tv_sort(m, value, key, d->n, false)) return false;
    }
    bool done = lq_tm_puts(m, "{");
    for (size_t i = 0; i < d->n && done; i++)
        done = (!i || lq_tm_put(m, how->comma->p, how->comma->n)) && put_json_line(m, how, depth + 1) &&
               put_json_key(m, key[i], how) && lq_tm_put(m, how->colon->p, how->colon->n) &&
               put_json(m, value[i], how, depth + 1);
    return done && put_json_line(m, how, depth) && lq_tm_puts(m, "}");
}

static bool put_json_list(lq_tm *m, const lq_tlist *l, const lq_tjson *how, int depth) {
    if (!l->n) return lq_tm_puts(m, "[]");
    bool done = lq_tm_puts(m, "[");
    for (size_t i = 0; i < l->n && done; i++)
        done = (!i || lq_tm_put(m, how->comma->p, how->comma->n)) && put_json_line(m, how, depth + 1) &&
               put_json(m, l->p[i], how, depth + 1);
    return done && put_json_line(m, how, depth) && lq_tm_puts(m, "]");
}

static bool put_json(lq_tm *m, lq_tv v, const lq_tjson *how, int depth) {
    if (!lq_tm_steps(m, 1)) return false;
    if (depth > LQ_TM_NESTED) return lq_tm_fail(m, "values are nested too deep");
    switch ((lq_tv_kind)v.kind) {
    case LQ_TV_NONE: return lq_tm_puts(m, "null");
    case LQ_TV_BOOL: return lq_tm_puts(m, v.b ? "true" : "false");
    case LQ_TV_INT: return put_num(m, v);
    case LQ_TV_FLOAT:
        if (isnan(v.f)) return lq_tm_puts(m, "NaN");
        return isinf(v.f) && !v.large ? lq_tm_puts(m, v.f < 0 ? "-Infinity" : "Infinity") : put_num(m, v);
    case LQ_TV_STR: return put_json_str(m, v.s, how->ascii);
    case LQ_TV_LIST:
    case LQ_TV_TUPLE: return put_json_list(m, v.l, how, depth);
    case LQ_TV_DICT: return put_json_dict(m, v.d, how, depth);
    default: return lq_tm_fail(m, "Object of type %s is not JSON serializable", lq_tv_type(v));
    }
}

bool lq_tv_put_json(lq_tm *m, lq_tv v, const lq_tjson *how) { return put_json(m, v, how, 0); }

// --- JSON that comes in ---

static bool read_value(lq_tm *m, lq_json_walk *w, const char *what, lq_tv *out);

static bool read_str(lq_tm *m, lq_json_walk *w, lq_tv *out) {
    const lq_json_walk from = *w;
    lq_json_skip(w);
    char *to = lq_tm_take_bytes(m, (size_t)(w->p - from.p));
    if (!to) return false;
    *w = from;
    return lq_tstr_part(m, to, lq_json_take_str(w, to), out);
}

// Python has integers of any size; of more digits than these it reads none either.
static bool read_large(lq_tm *m, const char *digits, size_t n, const char *what, lq_tv *out) {
    lq_tv text;
    const size_t most = LQ_TM_DIGITS + (*digits == '-');
    if (n > most)
        return lq_fail(m->err, LQ_E_LIMIT, "%s: an integer of %zu digits, expected at most %d", what, n, LQ_TM_DIGITS);
    if (!m->large.kind && !lq_tv_list_new(m, LQ_TV_LIST, 0, &m->large)) return false;
    if (!lq_tstr_part(m, digits, n, &text) || !lq_tv_list_add(m, m->large.l, text)) return false;
    *out = lq_tv_float(strtod(digits, NULL));
    out->large = (uint32_t)m->large.l->n;
    return true;
}

static bool read_num(lq_tm *m, lq_json_walk *w, const char *what, lq_tv *out) {
    const char *p = w->p;
    size_t n = 0;
    bool whole = true;
    for (; p + n < w->end && p[n] && strchr("+-.0123456789eE", p[n]); n++) whole = whole && !strchr(".eE", p[n]);
    lq_json_skip(w);
    int64_t v = 0;
    bool fits = whole;
    for (size_t i = *p == '-'; fits && i < n; i++)
        fits = !__builtin_mul_overflow(v, 10, &v) && !__builtin_sub_overflow(v, p[i] - '0', &v);
    if (fits && (*p == '-' || !__builtin_sub_overflow(0, v, &v))) return *out = lq_tv_int(v), true;
    char *text = lq_tm_take_bytes(m, n + 1);
    if (!text) return false;
    memcpy(text, p, n);
    text[n] = '\0';
    if (whole) return read_large(m, text, n, what, out);
    *out = lq_tv_float(strtod(text, NULL));
    return true;
}

static bool read_list(lq_tm *m, lq_json_walk *w, const char *what, lq_tv *out) {
    if (!lq_tv_list_new(m, LQ_TV_LIST, 0, out)) return false;
    lq_json_take(w);
    while (lq_json_next(w) != ']') {
        lq_tv v;
        if (!read_value(m, w, what, &v) || !lq_tv_list_add(m, out->l, v)) return false;
    }
    lq_json_take(w);
    return true;
}

static bool read_dict(lq_tm *m, lq_json_walk *w, const char *what, lq_tv *out) {
    if (!lq_tv_dict_new(m, 0, out)) return false;
    lq_json_take(w);
    while (lq_json_next(w) != '}') {
        lq_tv key, v;
        if (!read_str(m, w, &key)) return false;
        lq_json_next(w);
        if (!read_value(m, w, what, &v) || !lq_tv_dict_set(m, out->d, key, v)) return false;
    }
    lq_json_take(w);
    return true;
}

static bool read_value(lq_tm *m, lq_json_walk *w, const char *what, lq_tv *out) {
    const char c = lq_json_next(w);
    if (c == '{') return read_dict(m, w, what, out);
    if (c == '[') return read_list(m, w, what, out);
    if (c == '"') return read_str(m, w, out);
    if (c == '-' || (c >= '0' && c <= '9')) return read_num(m, w, what, out);
    lq_json_skip(w);
    *out = c == 'n' ? lq_tv_none() : lq_tv_bool(c == 't');
    return true;
}

bool lq_tv_from_json(lq_tm *m, const char *p, size_t n, const char *what, lq_tv *out) {
    lq_json_walk w = {p, p + n};
    if (!lq_json_check(p, n, (lq_json_limits){LQ_TM_OUTPUT, LQ_TM_NESTED / 2}, what, m->err)) return false;
    return read_value(m, &w, what, out);
}
