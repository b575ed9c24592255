// tmpl_test.c: tests, what stands behind `is`, and the functions that every template has.
#include "runtime/text/tmpl.h"
#include <string.h>

#define TEST(name) static bool name(lq_tm *m, lq_tv v, const lq_targs *a, lq_tv *out)

static bool nothing(lq_tm *m, const lq_targs *a) {
    return (!a->n && !a->named) || lq_tm_fail(m, "the test takes no arguments (%zu given)", a->n + a->named);
}

#define KIND(name, is)                      \
    TEST(name) {                            \
        *out = lq_tv_bool(is);              \
        return nothing(m, a);               \
    }
KIND(defined, v.kind != LQ_TV_UNDEFINED)
KIND(undefined, v.kind == LQ_TV_UNDEFINED)
KIND(none, v.kind == LQ_TV_NONE)
KIND(boolean, v.kind == LQ_TV_BOOL)
KIND(yes, v.kind == LQ_TV_BOOL && v.b)
KIND(no, v.kind == LQ_TV_BOOL && !v.b)
KIND(integer, v.kind == LQ_TV_INT || v.large)
KIND(floating, v.kind == LQ_TV_FLOAT && !v.large)
KIND(number, lq_tv_is_num(v))
KIND(string, v.kind == LQ_TV_STR)
KIND(mapping, v.kind == LQ_TV_DICT)
KIND(iterable, lq_tv_iterable(v))
KIND(sequence, lq_tv_has_len(v) && v.kind != LQ_TV_VIEW && v.kind != LQ_TV_LOOP)
KIND(callable, v.kind == LQ_TV_MACRO || v.kind == LQ_TV_FUNC || v.kind == LQ_TV_LOOP || v.kind == LQ_TV_UNDEFINED)
KIND(escaped, v.kind == LQ_TV_STR && v.safe)

static bool is_case(lq_tm *m, lq_tv v, const lq_targs *a, bool upper, lq_tv *out) {
    if (!nothing(m, a) || !lq_tv_show(m, v, &v)) return false;
    *out = lq_tv_bool(lq_tstr_is_case(v.s, upper));
    return lq_tm_steps(m, v.s->n / 8);
}

TEST(lower) { return is_case(m, v, a, false, out); }
TEST(upper) { return is_case(m, v, a, true, out); }

static bool remainder_is(lq_tm *m, lq_tv v, lq_tv by, int64_t want, lq_tv *out) {
    bool same;
    if (v.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, v);
    if (!lq_tm_binary(m, LQ_TN_MOD, v, by, &v) || !lq_tv_equal(m, v, lq_tv_int(want), &same)) return false;
    *out = lq_tv_bool(same);
    return true;
}

TEST(odd) { return nothing(m, a) && remainder_is(m, v, lq_tv_int(2), 1, out); }
TEST(even) { return nothing(m, a) && remainder_is(m, v, lq_tv_int(2), 0, out); }

TEST(divisibleby) {
    lq_tv by;
    return LQ_BIND(m, a, "divisibleby", 1, &by, "num") && remainder_is(m, v, by, 0, out);
}

TEST(sameas) {
    lq_tv x;
    bool same;
    if (!LQ_BIND(m, a, "sameas", 1, &x, "other")) return false;
    if (v.kind < LQ_TV_LIST || v.kind == LQ_TV_FUNC) { // constants, and what is equal in all it is
        if (v.kind == x.kind && !lq_tv_equal(m, v, x, &same)) return false;
        *out = lq_tv_bool(v.kind == x.kind && same);
    } else *out = lq_tv_bool(v.kind == x.kind && v.d == x.d);
    return true;
}

static bool is_key(lq_tm *m, lq_tv v) {
    return (v.kind != LQ_TV_LIST && v.kind != LQ_TV_DICT) || lq_tm_fail(m, "unhashable type: '%s'", lq_tv_type(v));
}

TEST(is_filter) {
    *out = lq_tv_bool(v.kind == LQ_TV_STR && lq_tfilter_find(v.s));
    return nothing(m, a) && is_key(m, v);
}

TEST(is_test) {
    *out = lq_tv_bool(v.kind == LQ_TV_STR && lq_tfunc_find(lq_ttests, v.s));
    return nothing(m, a) && is_key(m, v);
}

static bool compare(lq_tm *m, lq_tv v, const lq_targs *a, lq_tn_op op, lq_tv *out) {
    lq_tv x;
    bool is;
    if (!LQ_BIND(m, a, "the test", 1, &x, "b") || !lq_tv_compare(m, op, v, x, &is)) return false;
    *out = lq_tv_bool(is);
    return true;
}

TEST(eq) { return compare(m, v, a, LQ_OP_EQ, out); }
TEST(ne) { return compare(m, v, a, LQ_OP_NE, out); }
TEST(lt) { return compare(m, v, a, LQ_OP_LT, out); }
TEST(le) { return compare(m, v, a, LQ_OP_LE, out); }
TEST(gt) { return compare(m, v, a, LQ_OP_GT, out); }
TEST(ge) { return compare(m, v, a, LQ_OP_GE, out); }
TEST(in) { return compare(m, v, a, LQ_OP_IN, out); }

const lq_tfunc lq_ttests[] = {
    {"!=", ne}, {"<", lt}, {"<=", le}, {"==", eq}, {">", gt}, {">=", ge}, {"boolean", boolean}, {"callable", callable},
    {"defined", defined}, {"divisibleby", divisibleby}, {"eq", eq}, {"equalto", eq}, {"escaped", escaped},
    {"even", even},
    {"false", no}, {"filter", is_filter}, {"float", floating}, {"ge", ge}, {"greaterthan", gt}, {"gt", gt}, {"in", in},
    {"integer", integer}, {"iterable", iterable}, {"le", le}, {"lessthan", lt}, {"lower", lower}, {"lt", lt},
    {"mapping", mapping}, {"ne", ne}, {"none", none}, {"number", number}, {"odd", odd}, {"sameas", sameas},
    {"sequence", sequence}, {"string", string}, {"test", is_test}, {"true", yes}, {"undefined", undefined},
    {"upper", upper}, {NULL, NULL}};

// --- functions ---

TEST(range) {
    (void)v;
    int64_t x[3] = {0, 0, 1}, span;
    if (a->named) return lq_tm_fail(m, "range() takes no keyword arguments");
    if (!a->n || a->n > 3) return lq_tm_fail(m, "range expected 1 to 3 arguments, got %zu", a->n);
    for (size_t i = 0; i < a->n; i++) {
        if (a->pos[i].kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, a->pos[i]);
        if (!lq_tv_is_int(a->pos[i]))
            return lq_tm_fail(m, "'%s' object cannot be interpreted as an integer", lq_tv_type(a->pos[i]));
        x[i] = lq_tv_as_int(a->pos[i]);
    }
    if (a->n == 1) x[1] = x[0], x[0] = 0;
    if (!x[2]) return lq_tm_fail(m, "range() arg 3 must not be zero");
    const bool up = x[2] > 0, some = up ? x[0] < x[1] : x[0] > x[1];
    uint64_t n = 0;
    if (some) {
        if (__builtin_sub_overflow(x[up], x[!up], &span)) span = INT64_MAX;
        n = (uint64_t)(span - 1) / (up ? (uint64_t)x[2] : 0 - (uint64_t)x[2]) + 1;
    }
    if (n > LQ_TM_RANGE)
        return lq_tm_fail(m, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", LQ_TM_RANGE);
    lq_trange *r = lq_tm_take(m, 1, sizeof *r);
    if (!r) return false;
    *r = (lq_trange){x[0], x[1], x[2], (size_t)n};
    *out = LQ_TV_OF(LQ_TV_RANGE, .r = r);
    return true;
}

// A mapping or pairs, then keywords.
static bool dict_of(lq_tm *m, const lq_targs *a, lq_tv *out) {
    lq_tv *p, *pair;
    size_t n = 0, two;
    if (a->n > 1) return lq_tm_fail(m, "dict expected at most 1 argument, got %zu", a->n);
    if (!lq_tv_dict_new(m, 0, out)) return false;
    if (a->n && a->pos[0].kind == LQ_TV_DICT) {
        const lq_tdict *d = a->pos[0].d;
        for (size_t i = 0; i < d->n; i++)
            if (!lq_tv_dict_set(m, out->d, d->key[i], d->value[i])) return false;
    } else if (a->n && !lq_tv_items(m, a->pos[0], &p, &n, NULL)) return false;
    for (size_t i = 0; i < n; i++) {
        if (!lq_tv_iterable(p[i]))
            return lq_tm_fail(m, "cannot convert dictionary update sequence element #%zu to a sequence", i);
        if (!lq_tv_items(m, p[i], &pair, &two, NULL)) return false;
        if (two != 2)
            return lq_tm_fail(m, "dictionary update sequence element #%zu has length %zu; 2 is required", i, two);
        if (!lq_tv_dict_set(m, out->d, pair[0], pair[1])) return false;
    }
    for (size_t i = 0; i < a->named; i++)
        if (!lq_tv_dict_set(m, out->d, lq_tv_str(a->name[i]), a->value[i])) return false;
    return true;
}

TEST(dict) {
    (void)v;
    return dict_of(m, a, out);
}

TEST(space) {
    (void)v;
    if (!dict_of(m, a, out)) return false;
    for (size_t i = 0; i < out->d->n; i++) {
        const lq_tstr *name = out->d->key[i].kind == LQ_TV_STR ? out->d->key[i].s : NULL;
        if (name && name->n && name->p[0] == '_')
            return lq_tm_fail(m, "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '%.*s'. "
                                 "Please rename the attribute.", (int)(name->n < 100 ? name->n : 100), name->p);
    }
    out->kind = LQ_TV_SPACE;
    return true;
}

TEST(raise_exception) {
    (void)v;
    lq_tv text;
    if (!LQ_BIND(m, a, "raise_exception()", 1, &text, "message") || !lq_tv_show(m, text, &text)) return false;
    *out = text;
    return lq_tm_fail(m, "%.*s", (int)(text.s->n < 480 ? text.s->n : 480), text.s->p);
}

TEST(strftime_now) {
    (void)v;
    lq_tv form;
    struct tm now;
    char text[256], one[8] = "%";
    const size_t from = m->out_n;
    if (!LQ_BIND(m, a, "strftime_now()", 1, &form, "format")) return false;
    if (form.kind != LQ_TV_STR) return lq_tm_fail(m, "strftime() argument 1 must be str, not %s", lq_tv_type(form));
    if (!localtime_r(&m->now, &now)) return lq_tm_fail(m, "there is no local time");
    for (const char *p = form.s->p, *end = p + form.s->n; p < end;) {
        size_t n = 1;
        if (*p != '%' || p + 1 == end) {
            if (!lq_tm_put(m, p++, 1)) return false;
            continue;
        }
        if (p[1] == '-' || p[1] == '_' || p[1] == '0' || p[1] == '^' || p[1] == '#') one[n++] = *++p;
        if (p + 1 == end) break;
        one[n++] = p[1];
        one[n] = '\0';
        p += 2;
        if (one[1] == 'z' || one[1] == 'Z') continue; // a time without a zone
        if (one[1] == 'f' && !lq_tm_puts(m, "000000")) return false;
        if (one[1] == 'f') continue;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        n = strftime(text, sizeof text, one, &now);
#pragma GCC diagnostic pop
        if (!lq_tm_put(m, text, n)) return false;
    }
    return lq_tm_cut(m, from, out);
}

const lq_tfunc lq_tglobals[] = {{"dict", dict}, {"namespace", space}, {"raise_exception", raise_exception},
    {"range", range},
    {"strftime_now", strftime_now}, {NULL, NULL}};
