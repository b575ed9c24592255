// tmpl_ops.c: arithmetic, slices and looking things up, as Python does them. Refuses integers of more than 64 bits and
// results that would pass a limit of memory.
#include "runtime/text/tmpl.h"
#include <math.h>
#include <string.h>

// --- numbers ---

static bool too_large(lq_tm *m) { return lq_tm_fail(m, "an integer has more than 64 bits"); }

static bool int_pow(lq_tm *m, int64_t a, int64_t b, lq_tv *out) {
    int64_t r = 1;
    for (; b; b >>= 1) {
        if ((b & 1) && __builtin_mul_overflow(r, a, &r)) return too_large(m);
        if (b > 1 && __builtin_mul_overflow(a, a, &a)) return too_large(m);
    }
    *out = lq_tv_int(r);
    return true;
}

static bool float_op(lq_tm *m, lq_tn_kind op, double a, double b, lq_tv *out) {
    double r = 0, mod;
    switch (op) {
    case LQ_TN_ADD: r = a + b; break;
    case LQ_TN_SUB: r = a - b; break;
    case LQ_TN_MUL: r = a * b; break;
    case LQ_TN_DIV:
        if (b == 0) return lq_tm_fail(m, "float division by zero");
        r = a / b;
        break;
    case LQ_TN_POW:
        if (a == 0 && b < 0) return lq_tm_fail(m, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b)) return lq_tm_fail(m, "a power is a complex number");
        r = pow(a, b);
        if (isinf(r) && isfinite(a) && isfinite(b)) return lq_tm_fail(m, "(34, 'Numerical result out of range')");
        break;
    default: // the remainder has the sign of b
        if (b == 0) return lq_tm_fail(m, op == LQ_TN_MOD ? "float modulo" : "float floor division by zero");
        mod = fmod(a, b);
        r = (a - mod) / b;
        if (mod != 0 && (b < 0) != (mod < 0)) mod += b, r -= 1;
        else if (mod == 0) mod = copysign(0.0, b);
        if (op == LQ_TN_MOD) r = mod;
        else if (r == 0) r = copysign(0.0, a / b);
        else r = r - floor(r) > 0.5 ? floor(r) + 1 : floor(r);
    }
    *out = lq_tv_float(r);
    return true;
}

static bool int_op(lq_tm *m, lq_tn_kind op, int64_t a, int64_t b, lq_tv *out) {
    int64_t r = 0;
    bool large = false;
    if (op == LQ_TN_POW) return b < 0 ? float_op(m, op, (double)a, (double)b, out) : int_pow(m, a, b, out);
    if (op == LQ_TN_ADD) large = __builtin_add_overflow(a, b, &r);
    else if (op == LQ_TN_SUB) large = __builtin_sub_overflow(a, b, &r);
    else if (op == LQ_TN_MUL) large = __builtin_mul_overflow(a, b, &r);
    else if (!b)
        return lq_tm_fail(m, op == LQ_TN_DIV ? "division by zero" : op == LQ_TN_MOD ? "integer modulo by zero"
                                                                  : "integer division or modulo by zero");
    else if (op == LQ_TN_DIV) return *out = lq_tv_float((double)((long double)a / (long double)b)), true;
    else if (b == -1) large = op == LQ_TN_FLOORDIV && __builtin_sub_overflow(0, a, &r);
    else {
        const int64_t q = a / b, mod = a % b;
        const bool down = mod && (mod < 0) != (b < 0);
        r = op == LQ_TN_MOD ? mod + (down ? b : 0) : q - down;
    }
    *out = lq_tv_int(r);
    return !large || too_large(m);
}

// --- sequences ---

static bool join_lists(lq_tm *m, lq_tv a, lq_tv b, lq_tv *out) {
    if (!lq_tv_list_new(m, a.kind, a.l->n + b.l->n, out)) return false;
    lq_tlist *l = out->l;
    l->n = l->cap;
    if (a.l->n) memcpy(l->p, a.l->p, a.l->n * sizeof *l->p);
    if (b.l->n) memcpy(l->p + a.l->n, b.l->p, b.l->n * sizeof *l->p);
    return lq_tm_steps(m, l->n);
}

static bool repeat(lq_tm *m, lq_tv of, int64_t times, lq_tv *out) {
    const size_t one = of.kind == LQ_TV_STR ? of.s->n : of.l->n, k = times > 0 ? (size_t)times : 0;
    size_t n;
    if (!lq_mul_size(one, k, &n) || n > LQ_TM_MEMORY)
        return lq_tm_fail(m, "a sequence would be repeated to more than %d MB", LQ_TM_MEMORY >> 20);
    if (!lq_tm_steps(m, of.kind == LQ_TV_STR ? n / 16 + (one ? k : 0) : n)) return false;
    if (of.kind == LQ_TV_STR) {
        char *p = lq_tm_take_bytes(m, n);
        if (!p) return false;
        for (size_t i = 0; i < k && one; i++) memcpy(p + i * one, of.s->p, one);
        if (!lq_tstr_part(m, p, n, out)) return false;
        out->safe = of.safe;
        return true;
    }
    if (!lq_tv_list_new(m, of.kind, n, out)) return false;
    for (size_t i = 0; i < k && one; i++) memcpy(out->l->p + i * one, of.l->p, one * sizeof(lq_tv));
    out->l->n = n;
    return true;
}

static bool add(lq_tm *m, lq_tv a, lq_tv b, lq_tv *out) {
    if (a.kind == LQ_TV_STR && b.kind == LQ_TV_STR) {
        const bool safe = a.safe || b.safe;
        if (safe && (!lq_tstr_escape(m, a, &a) || !lq_tstr_escape(m, b, &b))) return false;
        if (!lq_tstr_add(m, a.s, b.s, out)) return false;
        out->safe = safe;
        return true;
    }
    if (a.kind == b.kind && (a.kind == LQ_TV_LIST || a.kind == LQ_TV_TUPLE)) return join_lists(m, a, b, out);
    if (a.kind == LQ_TV_STR || a.kind == LQ_TV_LIST || a.kind == LQ_TV_TUPLE)
        return lq_tm_fail(m, "can only concatenate %s (not \"%s\") to %s", lq_tv_type(a), lq_tv_type(b), lq_tv_type(a));
    return lq_tm_fail(m, "unsupported operand type(s) for +: '%s' and '%s'", lq_tv_type(a), lq_tv_type(b));
}

static bool repeats(lq_tv v) { return v.kind >= LQ_TV_STR && v.kind <= LQ_TV_TUPLE; }

bool lq_tm_binary(lq_tm *m, lq_tn_kind op, lq_tv a, lq_tv b, lq_tv *out) {
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
    if (lq_tv_is_int(a) && lq_tv_is_int(b)) return int_op(m, op, lq_tv_as_int(a), lq_tv_as_int(b), out);
    if (lq_tv_is_num(a) && lq_tv_is_num(b)) return float_op(m, op, lq_tv_as_float(a), lq_tv_as_float(b), out);
    if (op == LQ_TN_MOD && a.kind == LQ_TV_STR) return lq_tv_percent(m, a, b, out);
    if (a.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, a);
    if (b.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, b);
    if (op == LQ_TN_ADD) return add(m, a, b, out);
    if (op == LQ_TN_MUL && repeats(a) && lq_tv_is_int(b)) return repeat(m, a, lq_tv_as_int(b), out);
    if (op == LQ_TN_MUL && repeats(b) && lq_tv_is_int(a)) return repeat(m, b, lq_tv_as_int(a), out);
    if (op == LQ_TN_MUL && (repeats(a) || repeats(b)))
        return lq_tm_fail(m, "can't multiply sequence by non-int of type '%s'", lq_tv_type(repeats(a) ? b : a));
    return lq_tm_fail(m, "unsupported operand type(s) for %s: '%s' and '%s'", names[op - LQ_TN_ADD], lq_tv_type(a),
                      lq_tv_type(b));
}

bool lq_tm_unary(lq_tm *m, lq_tn_kind op, lq_tv a, lq_tv *out) {
    int64_t r;
    if (a.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, a);
    if (!lq_tv_is_num(a))
        return lq_tm_fail(m, "bad operand type for unary %c: '%s'", op == LQ_TN_NEG ? '-' : '+', lq_tv_type(a));
    if (a.kind == LQ_TV_FLOAT) {
        *out = lq_tv_float(op == LQ_TN_NEG ? -a.f : a.f);
        return true;
    }
    r = lq_tv_as_int(a);
    if (op == LQ_TN_NEG && __builtin_sub_overflow(0, r, &r)) return too_large(m);
    *out = lq_tv_int(r);
    return true;
}

// --- slices ---

static bool slice_at(lq_tm *m, lq_tv v, bool *given, int64_t *at) {
    *given = v.kind != LQ_TV_NONE && v.kind != LQ_TV_MISSING;
    if (!*given) return true;
    if (!lq_tv_is_int(v))
        return lq_tm_fail(m, "slice indices must be integers or None or have an __index__ method");
    *at = lq_tv_as_int(v);
    return true;
}

// Where a slice of n begins, how it steps and how many it takes.
static bool slice_of(lq_tm *m, const lq_tv at[3], int64_t n, int64_t *first, int64_t *step, int64_t *count) {
    bool has[3];
    int64_t start = 0, stop = 0;
    *step = 1;
    if (!slice_at(m, at[0], &has[0], &start) || !slice_at(m, at[1], &has[1], &stop) ||
        !slice_at(m, at[2], &has[2], step))
        return false;
    if (!*step) return lq_tm_fail(m, "slice step cannot be zero");
    if (*step == INT64_MIN) *step = -INT64_MAX;
    const int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? n - 1 : n;
    if (!has[0]) start = *step < 0 ? high : low;
    else if (start < 0) start = start + n < low ? low : start + n;
    else if (start > high) start = high;
    if (!has[1]) stop = *step < 0 ? low : high;
    else if (stop < 0) stop = stop + n < low ? low : stop + n;
    else if (stop > high) stop = high;
    *first = start;
    *count = 0;
    if (*step > 0 && start < stop) *count = (stop - start - 1) / *step + 1;
    if (*step < 0 && stop < start) *count = (start - stop - 1) / -*step + 1;
    return true;
}

static bool slice_str(lq_tm *m, lq_tv v, int64_t first, int64_t step, int64_t count, lq_tv *out) {
    const lq_tstr *s = v.s;
    if (step == 1 || !count) {
        const size_t from = count ? lq_tstr_at(s, (size_t)first) : 0;
        const size_t to = count ? lq_tstr_at(s, (size_t)(first + count)) : 0;
        if (!lq_tm_steps(m, s->n / 16) || !lq_tstr_part(m, s->p + from, to - from, out)) return false;
    } else {
        const size_t mark = m->out_n;
        lq_tv *chars;
        size_t n;
        if (!lq_tv_items(m, v, &chars, &n, NULL)) return false;
        for (int64_t i = 0; i < count; i++) {
            const lq_tstr *c = chars[first + i * step].s;
            if (!lq_tm_steps(m, 1) || !lq_tm_put(m, c->p, c->n)) return false;
        }
        if (!lq_tm_cut(m, mark, out)) return false;
    }
    out->safe = v.safe;
    return true;
}

bool lq_tm_slice(lq_tm *m, lq_tv obj, const lq_tv at[3], lq_tv *out) {
    int64_t n, first = 0, step = 1, count = 0;
    if (obj.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, obj);
    if (obj.kind == LQ_TV_DICT) return lq_tm_fail(m, "unhashable type: 'slice'");
    if (obj.kind < LQ_TV_STR || obj.kind > LQ_TV_RANGE || obj.kind == LQ_TV_VIEW)
        return lq_tm_fail(m, "'%s' object is not subscriptable", lq_tv_type(obj));
    if (!lq_tv_len(m, obj, &n) || !slice_of(m, at, n, &first, &step, &count)) return false;
    if (obj.kind == LQ_TV_STR) return slice_str(m, obj, first, step, count, out);
    if (obj.kind == LQ_TV_RANGE) {
        lq_trange *r = lq_tm_take(m, 1, sizeof *r);
        if (!r) return false;
        const int64_t start = obj.r->start + first * obj.r->step;
        *r = (lq_trange){start, start + count * step * obj.r->step, obj.r->step * step, (size_t)count};
        *out = LQ_TV_OF(LQ_TV_RANGE, .r = r);
        return true;
    }
    if (!lq_tm_steps(m, (size_t)count) || !lq_tv_list_new(m, obj.kind, (size_t)count, out)) return false;
    for (int64_t i = 0; i < count; i++) out->l->p[i] = obj.l->p[first + i * step];
    out->l->n = (size_t)count;
    return true;
}

// --- obj.name, obj[key] ---

static bool undefined_unsafe(lq_tm *m, lq_tv obj, const lq_tstr *name, lq_tv *out) {
    if (!lq_tv_undefined(m, obj, lq_tv_str(name), out)) return false;
    out->u->unsafe = true;
    return true;
}

static bool is_private(const lq_tstr *name) {
    return name->n > 4 && !memcmp(name->p, "__", 2) && !memcmp(name->p + name->n - 2, "__", 2);
}

bool lq_tm_attr(lq_tm *m, lq_tv obj, const lq_tstr *name, lq_tv *out) {
    if (is_private(name)) return undefined_unsafe(m, obj, name, out);
    if (obj.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, obj);
    if (!lq_tv_method(m, obj, name, out)) return false;
    if (out->kind != LQ_TV_MISSING) return true;
    if (obj.kind == LQ_TV_DICT && !lq_tv_dict_get(m, obj.d, lq_tv_str(name), out)) return false;
    return out->kind != LQ_TV_MISSING || lq_tv_undefined(m, obj, lq_tv_str(name), out);
}

static bool hashable(lq_tv v, int depth) {
    if (v.kind == LQ_TV_TUPLE)
        for (size_t i = 0; i < v.l->n && depth < LQ_TM_NESTED; i++)
            if (!hashable(v.l->p[i], depth + 1)) return false;
    return v.kind != LQ_TV_LIST && v.kind != LQ_TV_DICT;
}

static bool index_of(lq_tm *m, lq_tv obj, int64_t at, lq_tv *out) {
    int64_t n;
    if (!lq_tv_len(m, obj, &n)) return false;
    if (at < 0) at += n;
    if (at < 0 || at >= n) return true;
    if (obj.kind == LQ_TV_RANGE) *out = lq_tv_int(obj.r->start + at * obj.r->step);
    else if (obj.kind != LQ_TV_STR) *out = obj.l->p[at];
    else return slice_str(m, obj, at, 1, 1, out);
    return true;
}

bool lq_tm_item(lq_tm *m, lq_tv obj, lq_tv key, lq_tv *out) {
    *out = (lq_tv){0};
    if (obj.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, obj);
    if (obj.kind == LQ_TV_DICT) {
        if (hashable(key, 0) && !lq_tv_dict_get(m, obj.d, key, out)) return false;
    } else if (lq_tv_is_int(key) && obj.kind >= LQ_TV_STR && obj.kind <= LQ_TV_RANGE && obj.kind != LQ_TV_VIEW) {
        if (!index_of(m, obj, lq_tv_as_int(key), out)) return false;
    }
    if (out->kind != LQ_TV_MISSING) return true;
    if (key.kind == LQ_TV_STR) {
        if (is_private(key.s)) return undefined_unsafe(m, obj, key.s, out);
        if (!lq_tv_method(m, obj, key.s, out)) return false;
        if (out->kind != LQ_TV_MISSING) return true;
    }
    return lq_tv_undefined(m, obj, key, out);
}
