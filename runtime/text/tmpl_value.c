// tmpl_value.c: the machine's memory and limits, and what values are: lists, dicts, truth, equality, order, iteration.
// Owns the pools and the text that is being written. Refuses what passes a limit of tmpl.h.
#include "runtime/text/tmpl.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

// --- the machine ---

struct lq_tchunk { struct lq_tchunk *next; };
enum { CHUNK = 1 << 16, FEW = 8 };

bool lq_tm_fail(lq_tm *m, const char *fmt, ...) {
    char text[480];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return lq_fail(m->err, LQ_E_FORMAT, "line %d: %s", m->line, text);
}

bool lq_tm_steps(lq_tm *m, size_t n) {
    m->steps += n;
    return m->steps <= LQ_TM_STEPS || lq_fail(m->err, LQ_E_LIMIT, "line %d: the template takes more than %llu steps",
                                              m->line, (unsigned long long)LQ_TM_STEPS);
}

static void *pool_take(lq_tm *m, lq_tpool *p, size_t n, size_t align) {
    const size_t skip = p->at ? -(uintptr_t)p->at & (align - 1) : 0;
    if (!p->at || (size_t)(p->end - p->at) < n + skip) {
        // room behind a large one lets it grow
        const size_t size = sizeof(struct lq_tchunk) + 16 + (n > CHUNK / 4 ? n + n / 2 : CHUNK);
        struct lq_tchunk *c = m->used + size <= LQ_TM_MEMORY ? malloc(size) : NULL;
        if (!c) {
            lq_fail(m->err, LQ_E_LIMIT, "line %d: the template takes more than %d MB of memory", m->line,
                    LQ_TM_MEMORY >> 20);
            return NULL;
        }
        m->used += size;
        c->next = p->chunk;
        p->chunk = c;
        p->at = (char *)c + ((sizeof *c + 15) & ~(size_t)15);
        p->end = (char *)c + size;
        return pool_take(m, p, n, align);
    }
    void *at = p->at + skip;
    p->at += skip + n;
    return at;
}

void *lq_tm_take(lq_tm *m, size_t count, size_t size) {
    size_t n;
    if (!lq_mul_size(count, size, &n) || n > LQ_TM_MEMORY) n = LQ_TM_MEMORY; // refused below
    void *p = pool_take(m, &m->objects, n, 16);
    return p ? memset(p, 0, n) : NULL;
}

char *lq_tm_take_bytes(lq_tm *m, size_t n) {
    return pool_take(m, &m->bytes, n < LQ_TM_MEMORY ? n : LQ_TM_MEMORY, 1);
}

static void pool_end(lq_tpool *p) {
    while (p->chunk) {
        struct lq_tchunk *next = p->chunk->next;
        free(p->chunk);
        p->chunk = next;
    }
}

void lq_tm_end(lq_tm *m) {
    pool_end(&m->objects);
    pool_end(&m->bytes);
    free(m->out);
    *m = (lq_tm){0};
}

bool lq_tm_put(lq_tm *m, const char *p, size_t n) {
    if (n > m->out_cap - m->out_n) {
        size_t cap = m->out_cap ? 2 * m->out_cap : 4096;
        while (cap - m->out_n < n && cap <= LQ_TM_OUTPUT) cap *= 2;
        char *to = cap <= LQ_TM_OUTPUT ? realloc(m->out, cap) : NULL;
        if (!to)
            return lq_fail(m->err, LQ_E_LIMIT, "line %d: the template writes more than %d MB", m->line,
                           LQ_TM_OUTPUT >> 20);
        m->out = to;
        m->out_cap = cap;
    }
    if (n) memcpy(m->out + m->out_n, p, n);
    m->out_n += n;
    return lq_tm_steps(m, n / 16);
}

bool lq_tm_puts(lq_tm *m, const char *s) { return lq_tm_put(m, s, strlen(s)); }

bool lq_tm_cut(lq_tm *m, size_t from, lq_tv *out) {
    const size_t n = m->out_n - from;
    m->out_n = from;
    return lq_tstr_new(m, n ? m->out + from : "", n, out);
}

// --- making values ---

const char *lq_tv_type(lq_tv v) {
    static const char *const names[] = {"missing", "Undefined", "NoneType", "bool", "int", "float", "str", "list",
        "tuple", "dict", "dict_keys", "range", "generator", "TemplateNamespace", "LoopContext", "Macro", "function"};
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    if (v.kind == LQ_TV_VIEW) return views[v.v->kind];
    if (v.kind == LQ_TV_ITER) return v.it->type;
    return v.kind == LQ_TV_STR && v.safe ? "Markup" : names[v.large ? LQ_TV_INT : v.kind];
}

bool lq_tv_undefined(lq_tm *m, lq_tv obj, lq_tv name, lq_tv *out) {
    lq_tundef *u = lq_tm_take(m, 1, sizeof *u);
    if (!u) return false;
    *u = (lq_tundef){.obj = obj, .name = name};
    *out = LQ_TV_OF(LQ_TV_UNDEFINED, .u = u);
    return true;
}

bool lq_tv_undefined_why(lq_tm *m, const char *why, lq_tv *out) {
    if (!lq_tv_undefined(m, (lq_tv){0}, (lq_tv){0}, out)) return false;
    out->u->why = why;
    return true;
}

bool lq_tv_fail_undefined(lq_tm *m, lq_tv v) {
    const lq_tundef *u = v.u;
    const bool str = u->name.kind == LQ_TV_STR;
    const char *type = u->obj.kind == LQ_TV_NONE ? "None" : u->obj.kind == LQ_TV_SPACE ? "namespace object" : NULL;
    char text[64];
    if (u->why) return lq_tm_fail(m, "%s", u->why);
    if (!type) {
        snprintf(text, sizeof text, "%s object", lq_tv_type(u->obj));
        type = text;
    }
    const int n = str ? (int)(u->name.s->n < 200 ? u->name.s->n : 200) : 0;
    if (u->unsafe)
        return lq_tm_fail(m, "access to attribute '%.*s' of '%s' object is unsafe.", n, u->name.s->p,
                          lq_tv_type(u->obj));
    if (u->obj.kind == LQ_TV_MISSING) return lq_tm_fail(m, "'%.*s' is undefined", n, u->name.s->p);
    if (str) return lq_tm_fail(m, "'%s' has no attribute '%.*s'", type, n, u->name.s->p);
    const size_t from = m->out_n;
    if (!lq_tm_puts(m, type) || !lq_tm_puts(m, " has no element ") || !lq_tv_put_repr(m, u->name)) return false;
    lq_tm_fail(m, "%.*s", (int)(m->out_n - from < 400 ? m->out_n - from : 400), m->out + from);
    m->out_n = from;
    return false;
}

bool lq_tv_list_new(lq_tm *m, lq_tv_kind kind, size_t cap, lq_tv *out) {
    lq_tlist *l = lq_tm_take(m, 1, sizeof *l);
    if (!l || (cap && !(l->p = lq_tm_take(m, cap, sizeof *l->p)))) return false;
    l->cap = cap;
    *out = LQ_TV_OF(kind, .l = l);
    return true;
}

bool lq_tv_list_add(lq_tm *m, lq_tlist *l, lq_tv v) {
    if (l->n == l->cap) {
        const size_t cap = l->cap ? 2 * l->cap : 4;
        lq_tv *p = lq_tm_take(m, cap, sizeof *p);
        if (!p) return false;
        if (l->n) memcpy(p, l->p, l->n * sizeof *p);
        l->p = p;
        l->cap = cap;
    }
    l->p[l->n++] = v;
    return lq_tm_steps(m, 1);
}

bool lq_tv_bind(lq_tm *m, const lq_tfunc *f, lq_tv self, lq_tv *out) {
    lq_tbound *b = lq_tm_take(m, 1, sizeof *b);
    if (!b) return false;
    *b = (lq_tbound){f, self};
    *out = LQ_TV_OF(LQ_TV_FUNC, .fn = b);
    return true;
}

bool lq_tv_iter_new(lq_tm *m, const char *type, lq_tlist *items, lq_err *error, lq_tv *out) {
    lq_titer *it = lq_tm_take(m, 1, sizeof *it);
    if (!it) return false;
    *it = (lq_titer){.type = type, .p = items ? items->p : NULL, .n = items ? items->n : 0, .error = error};
    *out = LQ_TV_OF(LQ_TV_ITER, .it = it);
    return true;
}

// --- dicts ---

// Equal values have equal hashes: 1, 1.0 and true are one key.
static bool hash_of(lq_tm *m, lq_tv v, uint64_t *h) {
    double whole;
    switch ((lq_tv_kind)v.kind) {
    case LQ_TV_STR:
        *h = XXH3_64bits(v.s->p, v.s->n);
        return lq_tm_steps(m, v.s->n / 64);
    case LQ_TV_BOOL:
    case LQ_TV_INT: *h = XXH3_64bits(&(int64_t){lq_tv_as_int(v)}, sizeof(int64_t)); return true;
    case LQ_TV_FLOAT:
        if (modf(v.f, &whole) == 0 && fabs(whole) < 9.2e18) return hash_of(m, lq_tv_int((int64_t)whole), h);
        *h = XXH3_64bits(&v.f, sizeof v.f);
        return true;
    case LQ_TV_TUPLE:
        *h = v.l->n;
        if (++m->values > LQ_TM_NESTED) return lq_tm_fail(m, "values are nested too deep");
        for (size_t i = 0; i < v.l->n; i++) {
            uint64_t one;
            if (!hash_of(m, v.l->p[i], &one)) return false;
            *h = (*h ^ one) * 0x9e3779b97f4a7c15u;
        }
        m->values--;
        return lq_tm_steps(m, v.l->n);
    case LQ_TV_LIST:
    case LQ_TV_DICT: return lq_tm_fail(m, "unhashable type: '%s'", lq_tv_type(v));
    case LQ_TV_NONE:
    case LQ_TV_UNDEFINED: *h = v.kind; return true;
    default: *h = XXH3_64bits(&v.d, sizeof v.d); return true;
    }
}

bool lq_tv_dict_new(lq_tm *m, size_t cap, lq_tv *out) {
    lq_tdict *d = lq_tm_take(m, 1, sizeof *d);
    if (!d) return false;
    *out = LQ_TV_OF(LQ_TV_DICT, .d = d);
    if (!cap) return true;
    d->cap = cap;
    return (d->key = lq_tm_take(m, cap, sizeof *d->key)) && (d->value = lq_tm_take(m, cap, sizeof *d->value)) &&
           (d->hash = lq_tm_take(m, cap, sizeof *d->hash));
}

// The place of a key, d->n where it is not there; where its index entry is (or goes) in *slot.
static bool dict_place(lq_tm *m, const lq_tdict *d, lq_tv key, uint64_t h, size_t *place, size_t *slot) {
    bool same = false;
    *place = d->n;
    if (!d->index) {
        for (size_t i = 0; i < d->n && !same; i++) {
            if (d->hash[i] != h) continue;
            if (!lq_tv_equal(m, d->key[i], key, &same)) return false;
            if (same) *place = i;
        }
        return lq_tm_steps(m, 1);
    }
    for (size_t at = h & (d->slots - 1);; at = (at + 1) & (d->slots - 1)) {
        const uint32_t i = d->index[at];
        *slot = at;
        if (!i) return true;
        if (!lq_tm_steps(m, 1)) return false;
        if (d->hash[i - 1] != h) continue;
        if (!lq_tv_equal(m, d->key[i - 1], key, &same)) return false;
        if (same) return *place = i - 1, true;
    }
}

bool lq_tv_dict_get(lq_tm *m, const lq_tdict *d, lq_tv key, lq_tv *out) {
    uint64_t h;
    size_t place, slot;
    *out = (lq_tv){0};
    if (!hash_of(m, key, &h) || !dict_place(m, d, key, h, &place, &slot)) return false;
    if (place < d->n) *out = d->value[place];
    return true;
}

bool lq_tv_dict_str(lq_tm *m, const lq_tdict *d, const char *key, lq_tv *out) {
    const lq_tstr s = {key, strlen(key), strlen(key)};
    return lq_tv_dict_get(m, d, lq_tv_str(&s), out);
}

static bool dict_index(lq_tm *m, lq_tdict *d, size_t slots) {
    uint32_t *index = lq_tm_take(m, slots, sizeof *index);
    if (!index || !lq_tm_steps(m, d->n)) return false;
    for (size_t i = 0; i < d->n; i++) {
        size_t at = d->hash[i] & (slots - 1);
        while (index[at]) at = (at + 1) & (slots - 1);
        index[at] = (uint32_t)i + 1;
    }
    d->index = index;
    d->slots = slots;
    return true;
}

static bool dict_room(lq_tm *m, lq_tdict *d) {
    if (d->n < d->cap) return true;
    const size_t cap = d->cap ? 2 * d->cap : 4;
    lq_tv *key = lq_tm_take(m, cap, sizeof *key), *value = lq_tm_take(m, cap, sizeof *value);
    uint64_t *hash = lq_tm_take(m, cap, sizeof *hash);
    if (!key || !value || !hash) return false;
    if (d->n) {
        memcpy(key, d->key, d->n * sizeof *key);
        memcpy(value, d->value, d->n * sizeof *value);
        memcpy(hash, d->hash, d->n * sizeof *hash);
    }
    d->key = key;
    d->value = value;
    d->hash = hash;
    d->cap = cap;
    return true;
}

bool lq_tv_dict_set(lq_tm *m, lq_tdict *d, lq_tv key, lq_tv value) {
    uint64_t h;
    size_t place, slot;
    if (!hash_of(m, key, &h) || !dict_place(m, d, key, h, &place, &slot)) return false;
    if (place < d->n) {
        d->value[place] = value;
        return true;
    }
    if (!dict_room(m, d)) return false;
    d->key[d->n] = key;
    d->value[d->n] = value;
    d->hash[d->n] = h;
    if (d->index) d->index[slot] = (uint32_t)d->n + 1;
    d->n++;
    if (d->n > FEW && 2 * d->n > d->slots) return dict_index(m, d, d->slots ? 2 * d->slots : 4 * FEW);
    return true;
}

// --- truth, equality, order ---

bool lq_tv_true(lq_tv v) {
    switch ((lq_tv_kind)v.kind) {
    case LQ_TV_MISSING:
    case LQ_TV_UNDEFINED:
    case LQ_TV_NONE: return false;
    case LQ_TV_BOOL: return v.b;
    case LQ_TV_INT: return v.i != 0;
    case LQ_TV_FLOAT: return v.f != 0;
    case LQ_TV_STR: return v.s->n > 0;
    case LQ_TV_LIST:
    case LQ_TV_TUPLE: return v.l->n > 0;
    case LQ_TV_DICT: return v.d->n > 0;
    case LQ_TV_VIEW: return v.v->d->n > 0;
    case LQ_TV_RANGE: return v.r->n > 0;
    case LQ_TV_LOOP: return v.loop->n > 0;
    default: return true;
    }
}

// -1, 0, 1; 2: one of them is not a number.
static int num_order(lq_tv a, lq_tv b) {
    if (a.kind != LQ_TV_FLOAT && b.kind != LQ_TV_FLOAT) {
        const int64_t x = lq_tv_as_int(a), y = lq_tv_as_int(b);
        return (x > y) - (x < y);
    }
    if (a.kind == LQ_TV_FLOAT && b.kind == LQ_TV_FLOAT)
        return isnan(a.f) || isnan(b.f) ? 2 : (a.f > b.f) - (a.f < b.f);
    if (a.kind == LQ_TV_FLOAT) {
        const int c = num_order(b, a);
        return c == 2 ? 2 : -c;
    }
    const int64_t x = lq_tv_as_int(a); // b is the float: its whole part has 64 bits, or decides
    if (isnan(b.f)) return 2;
    if (b.f >= 9223372036854775808.0) return -1;
    if (b.f < -9223372036854775808.0) return 1;
    const double whole = floor(b.f);
    if (x != (int64_t)whole) return x < (int64_t)whole ? -1 : 1;
    return b.f > whole ? -1 : 0;
}

static bool list_equal(lq_tm *m, const lq_tlist *a, const lq_tlist *b, bool *yes) {
    *yes = a->n == b->n;
    for (size_t i = 0; i < a->n && *yes; i++)
        if (!lq_tv_equal(m, a->p[i], b->p[i], yes)) return false;
    return true;
}

static bool dict_equal(lq_tm *m, const lq_tdict *a, const lq_tdict *b, bool *yes) {
    *yes = a->n == b->n;
    for (size_t i = 0; i < a->n && *yes; i++) {
        lq_tv other;
        if (!lq_tv_dict_get(m, b, a->key[i], &other)) return false;
        *yes = other.kind != LQ_TV_MISSING;
        if (*yes && !lq_tv_equal(m, a->value[i], other, yes)) return false;
    }
    return true;
}

bool lq_tv_equal(lq_tm *m, lq_tv a, lq_tv b, bool *yes) {
    bool done = true;
    *yes = false;
    if (lq_tv_is_num(a) && lq_tv_is_num(b)) return *yes = num_order(a, b) == 0, true;
    if (a.kind != b.kind) return true;
    if (!lq_tm_steps(m, 1)) return false;
    if (++m->values > LQ_TM_NESTED) return lq_tm_fail(m, "values are nested too deep");
    switch ((lq_tv_kind)a.kind) {
    case LQ_TV_NONE:
    case LQ_TV_UNDEFINED: *yes = true; break;
    case LQ_TV_STR: *yes = lq_tstr_same(a.s, b.s), done = lq_tm_steps(m, *yes ? a.s->n / 64 : 0); break;
    case LQ_TV_LIST:
    case LQ_TV_TUPLE: done = a.l == b.l ? (*yes = true) : list_equal(m, a.l, b.l, yes); break;
    case LQ_TV_DICT: done = a.d == b.d ? (*yes = true) : dict_equal(m, a.d, b.d, yes); break;
    case LQ_TV_VIEW:
        *yes = a.v == b.v || (a.v->kind != LQ_TV_VALUES && a.v->kind == b.v->kind && a.v->d == b.v->d);
        break;
    case LQ_TV_RANGE:
        *yes = a.r->n == b.r->n && (!a.r->n || (a.r->start == b.r->start && (a.r->n == 1 || a.r->step == b.r->step)));
        break;
    case LQ_TV_FUNC: // methods of one object are equal
        *yes = a.fn->f == b.fn->f;
        if (*yes && a.fn->self.kind) done = lq_tv_equal(m, a.fn->self, b.fn->self, yes);
        break;
    default: *yes = a.d == b.d;
    }
    m->values--;
    return done;
}

static bool order_of(lq_tm *m, lq_tv a, lq_tv b, bool *known, int *order) {
    *known = true;
    if (lq_tv_is_num(a) && lq_tv_is_num(b)) return *order = num_order(a, b), true;
    if (a.kind == LQ_TV_STR && b.kind == LQ_TV_STR) {
        const size_t n = a.s->n < b.s->n ? a.s->n : b.s->n;
        const int c = n ? memcmp(a.s->p, b.s->p, n) : 0;
        *order = c ? (c > 0) - (c < 0) : (a.s->n > b.s->n) - (a.s->n < b.s->n);
        return lq_tm_steps(m, n / 64);
    }
    *known = a.kind == b.kind && (a.kind == LQ_TV_LIST || a.kind == LQ_TV_TUPLE);
    if (!*known) return true;
    if (++m->values > LQ_TM_NESTED) return lq_tm_fail(m, "values are nested too deep");
    const lq_tlist *x = a.l, *y = b.l;
    *order = (x->n > y->n) - (x->n < y->n);
    for (size_t i = 0; i < x->n && i < y->n; i++) {
        bool same;
        if (!lq_tv_equal(m, x->p[i], y->p[i], &same)) return false;
        if (same) continue;
        if (!order_of(m, x->p[i], y->p[i], known, order)) return false;
        if (!*known)
            return lq_tm_fail(m, "'<' not supported between instances of '%s' and '%s'", lq_tv_type(x->p[i]),
                              lq_tv_type(y->p[i]));
        break;
    }
    m->values--;
    return true;
}

bool lq_tv_compare(lq_tm *m, lq_tn_op op, lq_tv a, lq_tv b, bool *yes) {
    static const char *const names[] = {"==", "!=", "<", "<=", ">", ">="};
    bool known;
    int order = 0;
    if (op == LQ_OP_EQ || op == LQ_OP_NE) {
        if (!lq_tv_equal(m, a, b, yes)) return false;
        *yes ^= op == LQ_OP_NE;
        return true;
    }
    if (op == LQ_OP_IN || op == LQ_OP_NOTIN) {
        if (!lq_tv_contains(m, b, a, yes)) return false;
        *yes ^= op == LQ_OP_NOTIN;
        return true;
    }
    if (a.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, a);
    if (b.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, b);
    if (!order_of(m, a, b, &known, &order)) return false;
    if (!known)
        return lq_tm_fail(m, "'%s' not supported between instances of '%s' and '%s'", names[op], lq_tv_type(a),
                          lq_tv_type(b));
    const bool below = op == LQ_OP_LT || op == LQ_OP_LE, same = op == LQ_OP_LE || op == LQ_OP_GE;
    *yes = order != 2 && (order ? (order < 0) == below : same);
    return true;
}

// Merges runs, so that equal ones keep their order.
bool lq_tv_sort(lq_tm *m, lq_tv *p, lq_tv *key, size_t n, bool reverse) {
    lq_tv *p2 = lq_tm_take(m, n, sizeof *p), *key2 = lq_tm_take(m, n, sizeof *key);
    if (!p2 || !key2) return false;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from < n; from += 2 * width) {
            const size_t mid = from + width < n ? from + width : n, end = mid + width < n ? mid + width : n;
            for (size_t i = from, j = mid, k = from; k < end; k++) {
                bool second = i == mid;
                if (i < mid && j < end && !lq_tv_compare(m, LQ_OP_LT, reverse ? key[i] : key[j],
                                                         reverse ? key[j] : key[i], &second)) return false;
                const size_t at = second ? j++ : i++;
                p2[k] = p[at];
                key2[k] = key[at];
            }
        }
        memcpy(p, p2, n * sizeof *p);
        memcpy(key, key2, n * sizeof *key);
        if (!lq_tm_steps(m, n)) return false;
    }
    return true;
}

// --- iteration ---

bool lq_tv_iterable(lq_tv v) {
    return v.kind == LQ_TV_UNDEFINED || (v.kind >= LQ_TV_STR && v.kind <= LQ_TV_ITER) || v.kind == LQ_TV_LOOP;
}

bool lq_tv_has_len(lq_tv v) {
    return v.kind == LQ_TV_UNDEFINED || (v.kind >= LQ_TV_STR && v.kind <= LQ_TV_RANGE) || v.kind == LQ_TV_LOOP;
}

bool lq_tv_len(lq_tm *m, lq_tv v, int64_t *out) {
    switch ((lq_tv_kind)v.kind) {
    case LQ_TV_UNDEFINED: *out = 0; return true;
    case LQ_TV_STR: *out = (int64_t)v.s->chars; return true;
    case LQ_TV_LIST:
    case LQ_TV_TUPLE: *out = (int64_t)v.l->n; return true;
    case LQ_TV_DICT: *out = (int64_t)v.d->n; return true;
    case LQ_TV_VIEW: *out = (int64_t)v.v->d->n; return true;
    case LQ_TV_RANGE: *out = (int64_t)v.r->n; return true;
    case LQ_TV_LOOP:
        if (!lq_tm_loop_fill(m, v.loop, SIZE_MAX)) return false;
        *out = (int64_t)v.loop->n;
        return true;
    default: return lq_tm_fail(m, "object of type '%s' has no len()", lq_tv_type(v));
    }
}

static bool str_items(lq_tm *m, const lq_tstr *s, lq_tv *p) {
    lq_tstr *one = lq_tm_take(m, s->chars, sizeof *one);
    if (!one) return false;
    for (size_t i = 0, at = 0; i < s->chars; i++) {
        size_t len;
        lq_tstr_char(s->p + at, &len);
        one[i] = (lq_tstr){s->p + at, len, 1};
        p[i] = lq_tv_str(&one[i]);
        at += len;
    }
    return true;
}

static bool view_items(lq_tm *m, const lq_tview *v, lq_tv *p) {
    for (size_t i = 0; i < v->d->n; i++) {
        if (v->kind != LQ_TV_ITEMS) p[i] = v->kind == LQ_TV_KEYS ? v->d->key[i] : v->d->value[i];
        else if (!lq_tv_list_new(m, LQ_TV_TUPLE, 2, &p[i]) || !lq_tv_list_add(m, p[i].l, v->d->key[i]) ||
                 !lq_tv_list_add(m, p[i].l, v->d->value[i])) return false;
    }
    return true;
}

bool lq_tv_items(lq_tm *m, lq_tv v, lq_tv **p, size_t *n, lq_err **error) {
    if (error) *error = NULL;
    *p = NULL;
    *n = 0;
    if (v.kind == LQ_TV_UNDEFINED) return true;
    if (v.kind == LQ_TV_LIST || v.kind == LQ_TV_TUPLE) {
        *p = v.l->p;
        *n = v.l->n;
        return lq_tm_steps(m, *n);
    }
    if (v.kind == LQ_TV_ITER) {
        *p = v.it->n ? v.it->p + v.it->at : NULL;
        *n = v.it->n - v.it->at;
        v.it->at = v.it->n;
        if (error) *error = v.it->error;
        else if (v.it->error) return *m->err = *v.it->error, false;
        v.it->error = NULL;
        return lq_tm_steps(m, *n);
    }
    int64_t len;
    if (v.kind == LQ_TV_LOOP) return lq_tm_fail(m, "a loop cannot be read inside of itself");
    if (!lq_tv_iterable(v)) return lq_tm_fail(m, "'%s' object is not iterable", lq_tv_type(v));
    if (!lq_tv_len(m, v, &len) || !lq_tm_steps(m, (size_t)len)) return false;
    lq_tv *to = lq_tm_take(m, (size_t)len, sizeof *to);
    if (!to) return false;
    *p = to;
    *n = (size_t)len;
    if (v.kind == LQ_TV_STR) return str_items(m, v.s, to);
    if (v.kind == LQ_TV_VIEW) return view_items(m, v.v, to);
    if (v.kind == LQ_TV_DICT && len) memcpy(to, v.d->key, *n * sizeof *to);
    else if (v.kind != LQ_TV_DICT)
        for (size_t i = 0; i < *n; i++) to[i] = lq_tv_int(v.r->start + (int64_t)i * v.r->step);
    return true;
}

bool lq_tv_next(lq_tm *m, lq_tv v, lq_tv *out) {
    lq_tv *p;
    size_t n;
    *out = (lq_tv){0};
    if (v.kind == LQ_TV_ITER) {
        lq_titer *it = v.it;
        if (it->at < it->n) *out = it->p[it->at++];
        else if (it->error) {
            *m->err = *it->error;
            it->error = NULL;
            return false;
        }
        return true;
    }
    if (!lq_tv_items(m, v, &p, &n, NULL)) return false;
    if (n) *out = p[0];
    return true;
}

bool lq_tv_contains(lq_tm *m, lq_tv in, lq_tv what, bool *yes) {
    lq_tv got, *p;
    size_t n;
    lq_err *error;
    *yes = false;
    if (in.kind == LQ_TV_STR) {
        if (what.kind != LQ_TV_STR)
            return lq_tm_fail(m, "'in <string>' requires string as left operand, not %s", lq_tv_type(what));
        *yes = lq_tstr_find(in.s->p, in.s->n, what.s->p, what.s->n) != NULL;
        return lq_tm_steps(m, in.s->n / 16);
    }
    if (in.kind == LQ_TV_DICT || (in.kind == LQ_TV_VIEW && in.v->kind == LQ_TV_KEYS)) {
        if (!lq_tv_dict_get(m, in.kind == LQ_TV_DICT ? in.d : in.v->d, what, &got)) return false;
        *yes = got.kind != LQ_TV_MISSING;
        return true;
    }
    if (!lq_tv_iterable(in)) return lq_tm_fail(m, "argument of type '%s' is not iterable", lq_tv_type(in));
    const size_t at = in.kind == LQ_TV_ITER ? in.it->at : 0;
    if (!lq_tv_items(m, in, &p, &n, &error)) return false;
    for (size_t i = 0; i < n; i++) {
        if (!lq_tv_equal(m, p[i], what, yes)) return false;
        if (!*yes) continue;
        if (in.kind == LQ_TV_ITER) in.it->at = at + i + 1, in.it->error = error; // what is behind it may still be read
        return true;
    }
    if (error) *m->err = *error;
    return !error;
}
