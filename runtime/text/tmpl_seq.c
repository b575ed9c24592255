// tmpl_seq.c: filters of sequences. What Jinja reads item by item (map, select, unique ...) is made at once here, and
// is read once; an error that an item makes is told where reading gets to that item.
#include "runtime/text/tmpl.h"
#include <string.h>

#define FILTER(name) static bool name(lq_tm *m, lq_tv v, const lq_targs *a, lq_tv *out)

static bool nothing(lq_tm *m, const lq_targs *a, const char *what) {
    return (!a->n && !a->named) || lq_tm_fail(m, "%s takes no arguments", what);
}

// --- attributes, "a.b.0" ---

typedef struct getter { lq_tv part[16]; size_t n; bool fold; lq_tv otherwise; } getter;

static bool getter_make(lq_tm *m, lq_tv attr, bool fold, lq_tv otherwise, getter *g) {
    *g = (getter){.fold = fold, .otherwise = otherwise};
    if (attr.kind == LQ_TV_MISSING || attr.kind == LQ_TV_NONE) return true;
    if (attr.kind != LQ_TV_STR) return g->part[g->n++] = attr, true;
    const char *p = attr.s->p, *end = p + attr.s->n;
    for (;;) {
        const char *dot = memchr(p, '.', (size_t)(end - p)), *q = dot ? dot : end;
        int64_t i = 0;
        bool digits = q > p && q - p < 18;
        for (const char *c = p; c < q && digits; c++) digits = *c >= '0' && *c <= '9', i = i * 10 + (*c - '0');
        if (g->n == 16) return lq_tm_fail(m, "an attribute of more than 16 parts");
        if (digits) g->part[g->n++] = lq_tv_int(i);
        else if (!lq_tstr_part(m, p, (size_t)(q - p), &g->part[g->n++])) return false;
        if (!dot) return true;
        p = q + 1;
    }
}

static bool getter_get(lq_tm *m, const getter *g, lq_tv item, lq_tv *out) {
    *out = item;
    for (size_t i = 0; i < g->n; i++) {
        if (!lq_tm_item(m, *out, g->part[i], out)) return false;
        if (out->kind == LQ_TV_UNDEFINED && g->otherwise.kind != LQ_TV_MISSING && g->otherwise.kind != LQ_TV_NONE)
            *out = g->otherwise;
    }
    return !g->fold || out->kind != LQ_TV_STR || lq_tstr_case(m, *out, LQ_TO_LOWER, out);
}

// --- filters that are read item by item ---

// The state to which an error that is told later goes back.
typedef struct later { int depth, macros, values; size_t out_n; } later;

static later later_begin(const lq_tm *m) { return (later){m->depth, m->macros, m->values, m->out_n}; }

// Turns a failure into the end of the items: true where it can wait. A limit is told at once.
static bool later_fail(lq_tm *m, const later *l, lq_err **error) {
    if (m->err->code == LQ_E_LIMIT || !(*error = lq_tm_take(m, 1, sizeof **error))) return false;
    **error = *m->err;
    *m->err = (lq_err){0};
    m->depth = l->depth;
    m->macros = l->macros;
    m->values = l->values;
    m->out_n = l->out_n;
    return true;
}

typedef bool step(lq_tm *m, void *arg, lq_tv item, lq_tlist *to);

// Runs `each` over the items of v, which may be false: then there are none.
static bool lazily(lq_tm *m, lq_tv v, step *each, void *arg, lq_tv *out) {
    const later l = later_begin(m);
    lq_err *error = NULL;
    lq_tv list, *p;
    size_t n;
    if (!lq_tv_list_new(m, LQ_TV_LIST, 0, &list)) return false;
    if (lq_tv_true(v)) {
        if (!lq_tv_items(m, v, &p, &n, &error)) {
            if (!later_fail(m, &l, &error)) return false;
            n = 0;
        }
        for (size_t i = 0; i < n; i++) {
            if (each(m, arg, p[i], list.l)) continue;
            if (!later_fail(m, &l, &error)) return false;
            break;
        }
    }
    return lq_tv_iter_new(m, "generator", list.l, error, out);
}

typedef struct mapper { getter g; bool by_attr; const lq_tfunc *f; lq_tv name; lq_targs a; const char *fails; } mapper;

static bool map_one(lq_tm *m, void *arg, lq_tv item, lq_tlist *to) {
    const mapper *p = arg;
    lq_tv v;
    if (p->fails) return lq_tm_fail(m, "%s", p->fails);
    if (!p->by_attr && !p->f) {
        const lq_tstr *s = p->name.kind == LQ_TV_STR ? p->name.s : NULL;
        return lq_tm_fail(m, "No filter named '%.*s'.", s ? (int)(s->n < 100 ? s->n : 100) : 0, s ? s->p : "");
    }
    return (p->by_attr ? getter_get(m, &p->g, item, &v) : p->f->fn(m, item, &p->a, &v)) && lq_tv_list_add(m, to, v);
}

FILTER(map) {
    mapper p = {.by_attr = false};
    lq_tv attr = {0}, otherwise = {0};
    for (size_t i = 0; i < a->named && !a->n; i++)
        if (lq_tstr_is(a->name[i], "attribute")) p.by_attr = true, attr = a->value[i];
    for (size_t i = 0; i < a->named && p.by_attr; i++) {
        if (lq_tstr_is(a->name[i], "default")) otherwise = a->value[i];
        else if (!lq_tstr_is(a->name[i], "attribute")) p.fails = "Unexpected keyword argument";
    }
    if (p.by_attr && !getter_make(m, attr, false, otherwise, &p.g)) return false;
    if (!p.by_attr && !a->n) p.fails = "map requires a filter argument";
    if (!p.by_attr && a->n) {
        p.name = a->pos[0];
        p.f = p.name.kind == LQ_TV_STR ? lq_tfilter_find(p.name.s) : NULL;
        p.a = (lq_targs){a->pos + 1, a->n - 1, a->name, a->value, a->named};
    }
    return lazily(m, v, map_one, &p, out);
}

typedef struct chooser { getter g; const lq_tfunc *f; lq_tv name; lq_targs a; bool reject, missing; } chooser;

static bool choose_one(lq_tm *m, void *arg, lq_tv item, lq_tlist *to) {
    const chooser *c = arg;
    lq_tv v, yes;
    if (c->missing) return lq_tm_fail(m, "Missing parameter for attribute name");
    if (!getter_get(m, &c->g, item, &v)) return false;
    if (c->name.kind != LQ_TV_MISSING) {
        const lq_tstr *s = c->name.kind == LQ_TV_STR ? c->name.s : NULL;
        if (!c->f) return lq_tm_fail(m, "No test named '%.*s'.", s ? (int)(s->n < 100 ? s->n : 100) : 0, s ? s->p : "");
        if (!c->f->fn(m, v, &c->a, &yes)) return false;
    } else yes = v;
    return lq_tv_true(yes) == c->reject || lq_tv_list_add(m, to, item);
}

static bool choose(lq_tm *m, lq_tv v, const lq_targs *a, bool by_attr, bool reject, lq_tv *out) {
    chooser c = {.reject = reject, .missing = by_attr && !a->n};
    const size_t off = by_attr && a->n;
    if (off && !getter_make(m, a->pos[0], false, (lq_tv){0}, &c.g)) return false;
    if (a->n > off) {
        c.name = a->pos[off];
        c.f = c.name.kind == LQ_TV_STR ? lq_tfunc_find(lq_ttests, c.name.s) : NULL;
        c.a = (lq_targs){a->pos + off + 1, a->n - off - 1, a->name, a->value, a->named};
    }
    return lazily(m, v, choose_one, &c, out);
}

FILTER(select) { return choose(m, v, a, false, false, out); }
FILTER(reject) { return choose(m, v, a, false, true, out); }
FILTER(selectattr) { return choose(m, v, a, true, false, out); }
FILTER(rejectattr) { return choose(m, v, a, true, true, out); }

typedef struct uniquer { getter g; lq_tdict *seen; } uniquer;

static bool unique_one(lq_tm *m, void *arg, lq_tv item, lq_tlist *to) {
    uniquer *u = arg;
    lq_tv key, got;
    if (!getter_get(m, &u->g, item, &key) || !lq_tv_dict_get(m, u->seen, key, &got)) return false;
    if (got.kind != LQ_TV_MISSING) return true;
    return lq_tv_dict_set(m, u->seen, key, lq_tv_none()) && lq_tv_list_add(m, to, item);
}

FILTER(unique) {
    lq_tv x[2], seen;
    uniquer u;
    if (!LQ_BIND(m, a, "unique", 0, x, "case_sensitive", "attribute") ||
        !getter_make(m, x[1], !lq_tv_true(x[0]), (lq_tv){0}, &u.g) || !lq_tv_dict_new(m, 0, &seen)) return false;
    u.seen = seen.d;
    if (!lq_tv_iterable(v)) v = lq_tv_bool(true); // an error in the first item
    else if (!lq_tv_true(v)) return lq_tv_iter_new(m, "generator", NULL, NULL, out);
    return lazily(m, v, unique_one, &u, out);
}

static bool items_one(lq_tm *m, void *arg, lq_tv item, lq_tlist *to) {
    (void)arg;
    return lq_tv_list_add(m, to, item);
}

FILTER(items) {
    lq_tview view = {v.d, LQ_TV_ITEMS};
    if (!nothing(m, a, "items")) return false;
    if (v.kind == LQ_TV_UNDEFINED) return lq_tv_iter_new(m, "generator", NULL, NULL, out);
    if (v.kind == LQ_TV_DICT) return lazily(m, LQ_TV_OF(LQ_TV_VIEW, .v = &view), items_one, NULL, out);
    const later l = later_begin(m);
    lq_err *error;
    lq_tm_fail(m, "Can only get item pairs from a mapping.");
    return later_fail(m, &l, &error) && lq_tv_iter_new(m, "generator", NULL, error, out);
}

// Lists of items, of so many items each, or so many lists.
FILTER(batches) {
    lq_tv x[2], all, *p, one = {0};
    size_t n;
    if (!LQ_BIND(m, a, "batch", 1, x, "linecount", "fill_with") || !lq_tv_items(m, v, &p, &n, NULL) ||
        !lq_tv_list_new(m, LQ_TV_LIST, 0, &all)) return false;
    if (!lq_tv_is_int(x[0])) return lq_tm_fail(m, "batch: linecount is no integer");
    const int64_t each = lq_tv_as_int(x[0]);
    for (size_t i = 0; i < n; i++) {
        if ((!i || (int64_t)one.l->n == each) && (!lq_tv_list_new(m, LQ_TV_LIST, 0, &one) ||
            !lq_tv_list_add(m, all.l, one)))
            return false;
        if (!lq_tv_list_add(m, one.l, p[i])) return false;
    }
    const bool fill = n && x[1].kind != LQ_TV_MISSING && x[1].kind != LQ_TV_NONE;
    while (fill && (int64_t)one.l->n < each)
        if (!lq_tv_list_add(m, one.l, x[1])) return false;
    return lq_tv_iter_new(m, "generator", all.l, NULL, out);
}

FILTER(slices) {
    lq_tv x[2], all, *p;
    size_t n, at = 0;
    if (!LQ_BIND(m, a, "slice", 1, x, "slices", "fill_with") || !lq_tv_items(m, v, &p, &n, NULL) ||
        !lq_tv_list_new(m, LQ_TV_LIST, 0, &all)) return false;
    if (!lq_tv_is_int(x[0])) return lq_tm_fail(m, "slice: slices is no integer");
    const int64_t count = lq_tv_as_int(x[0]);
    if (!count) return lq_tm_fail(m, "integer division or modulo by zero");
    for (int64_t k = 0; k < count; k++) {
        const size_t extra = n % (size_t)count, take = n / (size_t)count + ((size_t)k < extra);
        lq_tv one;
        if (!lq_tv_list_new(m, LQ_TV_LIST, take, &one)) return false;
        for (size_t i = 0; i < take; i++)
            if (!lq_tv_list_add(m, one.l, p[at++])) return false;
        if (x[1].kind != LQ_TV_MISSING && x[1].kind != LQ_TV_NONE && (size_t)k >= extra &&
            !lq_tv_list_add(m, one.l, x[1]))
            return false;
        if (!lq_tv_list_add(m, all.l, one)) return false;
    }
    return lq_tv_iter_new(m, "generator", all.l, NULL, out);
}

// The same, where an error waits until it is read.
static bool waiting(lq_tm *m, lq_tfn *f, lq_tv v, const lq_targs *a, lq_tv *out) {
    const later l = later_begin(m);
    lq_err *error;
    return f(m, v, a, out) || (later_fail(m, &l, &error) && lq_tv_iter_new(m, "generator", NULL, error, out));
}

FILTER(batch) { return waiting(m, batches, v, a, out); }
FILTER(slice) { return waiting(m, slices, v, a, out); }

// --- one of them, all of them ---

FILTER(first) {
    if (!nothing(m, a, "first")) return false;
    if (!lq_tv_iterable(v)) return lq_tm_fail(m, "'%s' object is not iterable", lq_tv_type(v));
    if (!lq_tv_next(m, v, out)) return false;
    return out->kind != LQ_TV_MISSING || lq_tv_undefined_why(m, "No first item, sequence was empty.", out);
}

static bool reversible(lq_tm *m, lq_tv v) {
    if (v.kind == LQ_TV_UNDEFINED) return true;
    return (v.kind >= LQ_TV_STR && v.kind <= LQ_TV_RANGE) ||
           lq_tm_fail(m, "'%s' object is not reversible", lq_tv_type(v));
}

FILTER(last) {
    lq_tv *p;
    size_t n;
    if (!nothing(m, a, "last") || !reversible(m, v) || !lq_tv_items(m, v, &p, &n, NULL)) return false;
    if (!n) return lq_tv_undefined_why(m, "No last item, sequence was empty.", out);
    *out = p[n - 1];
    return true;
}

static bool copied(lq_tm *m, lq_tv v, lq_tv *out) {
    lq_tv *p;
    size_t n;
    if (!lq_tv_items(m, v, &p, &n, NULL) || !lq_tv_list_new(m, LQ_TV_LIST, n, out)) return false;
    if (n) memcpy(out->l->p, p, n * sizeof *p);
    out->l->n = n;
    return true;
}

FILTER(list) { return nothing(m, a, "list") && copied(m, v, out); }

FILTER(reverse) {
    const lq_tv back[3] = {lq_tv_none(), lq_tv_none(), lq_tv_int(-1)};
    lq_tv all;
    if (!nothing(m, a, "reverse")) return false;
    if (v.kind == LQ_TV_STR) {
        if (!lq_tm_slice(m, v, back, out)) return false;
        out->safe = v.safe;
        return true;
    }
    if (!lq_tv_iterable(v)) return lq_tm_fail(m, "argument must be iterable");
    if (!copied(m, v, &all) || !lq_tm_slice(m, all, back, out)) return false;
    return v.kind == LQ_TV_ITER || lq_tv_iter_new(m, "list_reverseiterator", out->l, NULL, out);
}

FILTER(join) {
    lq_tv x[2], *p, by, one;
    size_t n;
    getter g;
    const size_t from = m->out_n;
    if (!LQ_BIND(m, a, "join", 0, x, "d", "attribute") || !getter_make(m, x[1], false, (lq_tv){0}, &g)) return false;
    if (x[0].kind == LQ_TV_MISSING ? !lq_tstr_const(m, "", &by) : !lq_tv_show(m, x[0], &by)) return false;
    if (!lq_tv_items(m, v, &p, &n, NULL)) return false;
    for (size_t i = 0; i < n; i++)
        if ((i && !lq_tm_put(m, by.s->p, by.s->n)) || !getter_get(m, &g, p[i], &one) || !lq_tv_put(m, one))
            return false;
    return lq_tm_cut(m, from, out);
}

FILTER(sum) {
    lq_tv x[2], *p, one;
    size_t n;
    getter g;
    if (!LQ_BIND(m, a, "sum", 0, x, "attribute", "start") || !getter_make(m, x[0], false, (lq_tv){0}, &g) ||
        !lq_tv_items(m, v, &p, &n, NULL)) return false;
    *out = x[1].kind == LQ_TV_MISSING ? lq_tv_int(0) : x[1];
    if (out->kind == LQ_TV_STR) return lq_tm_fail(m, "sum() can't sum strings [use ''.join(seq) instead]");
    for (size_t i = 0; i < n; i++)
        if (!getter_get(m, &g, p[i], &one) || !lq_tm_binary(m, LQ_TN_ADD, *out, one, out)) return false;
    return true;
}

static bool extreme(lq_tm *m, lq_tv v, const lq_targs *a, lq_tn_op better, lq_tv *out) {
    lq_tv x[2], *p, best = {0}, key;
    size_t n;
    getter g;
    bool yes;
    if (!LQ_BIND(m, a, better == LQ_OP_LT ? "min" : "max", 0, x, "case_sensitive", "attribute") ||
        !getter_make(m, x[1], !lq_tv_true(x[0]), (lq_tv){0}, &g) || !lq_tv_items(m, v, &p, &n, NULL)) return false;
    if (!n) return lq_tv_undefined_why(m, "No aggregated item, sequence was empty.", out);
    for (size_t i = 0; i < n; i++) {
        yes = !i;
        if (!getter_get(m, &g, p[i], &key) || (i && !lq_tv_compare(m, better, key, best, &yes))) return false;
        if (yes) best = key, *out = p[i];
    }
    return true;
}

FILTER(min) { return extreme(m, v, a, LQ_OP_LT, out); }
FILTER(max) { return extreme(m, v, a, LQ_OP_GT, out); }

// --- sorting ---

// The keys of a sort are lists of attributes, "a,b": what is equal is not asked for its order.
static bool sort_keys(lq_tm *m, lq_tv attr, bool fold, const lq_tv *p, size_t n, lq_tv *key) {
    const char *comma = attr.kind == LQ_TV_STR ? memchr(attr.s->p, ',', attr.s->n) : NULL;
    getter g;
    if (!comma && !getter_make(m, attr, fold, (lq_tv){0}, &g)) return false;
    for (size_t i = 0; i < n; i++) {
        lq_tv one;
        if (!lq_tv_list_new(m, LQ_TV_LIST, 1, &key[i])) return false;
        if (!comma) {
            if (!getter_get(m, &g, p[i], &one) || !lq_tv_list_add(m, key[i].l, one)) return false;
            continue;
        }
        for (const char *q = attr.s->p, *end = q + attr.s->n; q <= end; q++) {
            const char *to = memchr(q, ',', (size_t)(end - q));
            lq_tv name;
            if (!to) to = end;
            if (!lq_tstr_part(m, q, (size_t)(to - q), &name) || !getter_make(m, name, fold, (lq_tv){0}, &g) ||
                !getter_get(m, &g, p[i], &one) || !lq_tv_list_add(m, key[i].l, one)) return false;
            q = to;
        }
    }
    return true;
}

FILTER(sort) {
    lq_tv x[3], *key;
    if (!LQ_BIND(m, a, "sort", 0, x, "reverse", "case_sensitive", "attribute") || !copied(m, v, out)) return false;
    const size_t n = out->l->n;
    return (key = lq_tm_take(m, n, sizeof *key)) && sort_keys(m, x[2], !lq_tv_true(x[1]), out->l->p, n, key) &&
           lq_tv_sort(m, out->l->p, key, n, lq_tv_true(x[0]));
}

FILTER(dictsort) {
    lq_tv x[3];
    if (!LQ_BIND(m, a, "dictsort", 0, x, "case_sensitive", "by", "reverse")) return false;
    const bool by_value = x[1].kind == LQ_TV_STR && lq_tstr_is(x[1].s, "value");
    if (x[1].kind != LQ_TV_MISSING && !by_value && !(x[1].kind == LQ_TV_STR && lq_tstr_is(x[1].s, "key")))
        return lq_tm_fail(m, "You can only sort by either \"key\" or \"value\"");
    if (v.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, v);
    if (v.kind != LQ_TV_DICT) return lq_tm_fail(m, "'%s' object has no attribute 'items'", lq_tv_type(v));
    lq_tview view = {v.d, LQ_TV_ITEMS};
    lq_tv *key = lq_tm_take(m, v.d->n, sizeof *key);
    if (!key || !copied(m, LQ_TV_OF(LQ_TV_VIEW, .v = &view), out)) return false;
    for (size_t i = 0; i < v.d->n; i++) {
        key[i] = out->l->p[i].l->p[by_value];
        if (!lq_tv_true(x[0]) && key[i].kind == LQ_TV_STR && !lq_tstr_case(m, key[i], LQ_TO_LOWER, &key[i]))
            return false;
    }
    return lq_tv_sort(m, out->l->p, key, v.d->n, lq_tv_true(x[2]));
}

FILTER(groupby) {
    lq_tv x[3], all, *key, group = {0};
    getter g;
    if (!LQ_BIND(m, a, "groupby", 1, x, "attribute", "default", "case_sensitive") || !copied(m, v, &all)) return false;
    const size_t n = all.l->n;
    const bool fold = !lq_tv_true(x[2]);
    if (!getter_make(m, x[0], fold, x[1], &g) || !(key = lq_tm_take(m, n, sizeof *key))) return false;
    for (size_t i = 0; i < n; i++)
        if (!getter_get(m, &g, all.l->p[i], &key[i])) return false;
    if (!lq_tv_sort(m, all.l->p, key, n, false) || !lq_tv_list_new(m, LQ_TV_LIST, 0, out)) return false;
    g.fold = false;
    for (size_t i = 0; i < n; i++) {
        bool same = i > 0;
        lq_tv name, list;
        if (i && !lq_tv_equal(m, key[i - 1], key[i], &same)) return false;
        if (!same) { // the group's name is as its first item has it
            if (!getter_get(m, &g, all.l->p[i], &name) || !lq_tv_list_new(m, LQ_TV_TUPLE, 2, &group) ||
                !lq_tv_list_new(m, LQ_TV_LIST, 0, &list) || !lq_tv_list_add(m, group.l, name) ||
                !lq_tv_list_add(m, group.l, list)) return false;
            group.safe = true;
            if (!lq_tv_list_add(m, out->l, group)) return false;
        }
        if (!lq_tv_list_add(m, group.l->p[1].l, all.l->p[i])) return false;
    }
    return true;
}

const lq_tfunc lq_tfilters_seq[] = {
    {"batch", batch}, {"dictsort", dictsort}, {"first", first}, {"groupby", groupby}, {"items", items}, {"join", join},
    {"last", last}, {"list", list}, {"map", map}, {"max", max}, {"min", min}, {"reject", reject},
    {"rejectattr", rejectattr}, {"reverse", reverse}, {"select", select}, {"selectattr", selectattr}, {"slice", slice},
    {"sort", sort}, {"sum", sum}, {"unique", unique}, {NULL, NULL}};
