// tmpl_eval.c: computes expressions. Owns the order in which things are evaluated, calls, and the
// count of how deep it is in them.
#include "runtime/text/tmpl.h"
#include <stdio.h>
#include <string.h>

// --- arguments ---

static bool spread(lq_tm *m, lq_tv v, lq_tv *pos, size_t *n, size_t cap) {
    lq_tv *p;
    size_t k;
    if (!lq_tv_items(m, v, &p, &k, NULL)) return false;
    if (k > cap - *n) return lq_tm_fail(m, "a call has more than %zu arguments", cap);
    if (k) memcpy(pos + *n, p, k * sizeof *pos);
    *n += k;
    return true;
}

static bool spread_named(lq_tm *m, lq_tv v, const lq_tstr **name, lq_tv *value, size_t *n, size_t cap) {
    if (v.kind == LQ_TV_UNDEFINED) return true;
    if (v.kind != LQ_TV_DICT) return lq_tm_fail(m, "argument after ** must be a mapping, not %s", lq_tv_type(v));
    for (size_t i = 0; i < v.d->n; i++) {
        if (v.d->key[i].kind != LQ_TV_STR) return lq_tm_fail(m, "keywords must be strings");
        if (*n == cap) return lq_tm_fail(m, "a call has more than %zu arguments", cap);
        for (size_t k = 0; k < *n; k++)
            if (lq_tstr_same(name[k], v.d->key[i].s))
                return lq_tm_fail(m, "got multiple values for keyword argument '%.*s'", (int)name[k]->n, name[k]->p);
        name[*n] = v.d->key[i].s;
        value[(*n)++] = v.d->value[i];
    }
    return true;
}

bool lq_tm_args(lq_tm *m, const lq_tnode *n, lq_tenv *env, size_t first, const lq_tv *caller, lq_targs *out) {
    static const lq_tstr caller_name = {"caller", 6, 6};
    size_t cap = n->kids - first + (caller != NULL);
    bool dynamic = false;
    *out = (lq_targs){0};
    for (size_t i = first; i < n->kids; i++)
        dynamic = dynamic || n->names[i] == lq_tn_star || n->names[i] == lq_tn_stars;
    if (!cap) return true;
    if (dynamic) cap += 1000;
    lq_tv *pos = lq_tm_take(m, cap, sizeof *pos), *value = pos;
    const lq_tstr **name = NULL;
    bool named = caller != NULL;
    for (size_t i = first; i < n->kids; i++) named = named || n->names[i];
    if (!pos) return false;
    if (named && (!(name = lq_tm_take(m, cap, sizeof *name)) || !(value = lq_tm_take(m, cap, sizeof *value))))
        return false;
    size_t k = 0, kn = 0;
    for (size_t i = first; i < n->kids; i++) {
        const lq_tstr *as = n->names[i];
        lq_tv v;
        if (!lq_tm_eval(m, n->kid[i], env, &v)) return false;
        if (!as) pos[k++] = v;
        else if (as == lq_tn_star) {
            if (!spread(m, v, pos, &k, cap)) return false;
        } else if (as == lq_tn_stars) {
            if (!spread_named(m, v, name, value, &kn, cap)) return false;
        } else name[kn] = as, value[kn++] = v;
    }
    if (caller) name[kn] = &caller_name, value[kn++] = *caller;
    *out = (lq_targs){pos, k, name, value, kn};
    return true;
}

bool lq_targs_bind(lq_tm *m, const lq_targs *a, const char *what, const char *const *names, size_t n, size_t needed,
                   lq_tv *out) {
    if (a->n > n) return lq_tm_fail(m, "%s takes at most %zu arguments, %zu were given", what, n, a->n);
    for (size_t i = 0; i < n; i++) out[i] = i < a->n ? a->pos[i] : (lq_tv){0};
    for (size_t k = 0; k < a->named; k++) {
        size_t i = 0;
        const int len = (int)(a->name[k]->n < 100 ? a->name[k]->n : 100);
        while (i < n && !lq_tstr_is(a->name[k], names[i])) i++;
        if (i == n) return lq_tm_fail(m, "%s got an unexpected keyword argument '%.*s'", what, len, a->name[k]->p);
        if (out[i].kind != LQ_TV_MISSING)
            return lq_tm_fail(m, "%s got multiple values for argument '%s'", what, names[i]);
        out[i] = a->value[k];
    }
    for (size_t i = 0; i < needed; i++)
        if (out[i].kind == LQ_TV_MISSING) return lq_tm_fail(m, "%s is missing its argument '%s'", what, names[i]);
    return true;
}

const lq_tfunc *lq_tfunc_find(const lq_tfunc *table, const lq_tstr *name) {
    for (; table->name; table++)
        if (lq_tstr_is(name, table->name)) return table;
    return NULL;
}

bool lq_tm_call(lq_tm *m, lq_tv callee, const lq_targs *a, lq_tv *out) {
    if (callee.kind == LQ_TV_FUNC) return callee.fn->f->fn(m, callee.fn->self, a, out);
    if (callee.kind == LQ_TV_MACRO) return lq_tm_macro(m, callee, a, out);
    if (callee.kind == LQ_TV_LOOP) return lq_tm_loop(m, callee, a, out);
    if (callee.kind == LQ_TV_UNDEFINED) return lq_tv_fail_undefined(m, callee);
    return lq_tm_fail(m, "'%s' object is not callable", lq_tv_type(callee));
}

// --- nodes ---

static bool eval_name(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv *out) {
    for (int i = 0; i < n->hops; i++) env = env->up;
    *out = env->slot[n->slot];
    return out->kind != LQ_TV_MISSING || lq_tv_undefined(m, (lq_tv){0}, lq_tv_str(n->name), out);
}

static bool eval_items(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv *out) {
    if (!lq_tv_list_new(m, n->kind == LQ_TN_LIST ? LQ_TV_LIST : LQ_TV_TUPLE, n->kids, out)) return false;
    for (size_t i = 0; i < n->kids; i++) {
        lq_tv v;
        if (!lq_tm_eval(m, n->kid[i], env, &v) || !lq_tv_list_add(m, out->l, v)) return false;
    }
    return true;
}

static bool eval_dict(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv *out) {
    if (!lq_tv_dict_new(m, n->kids / 2, out)) return false;
    for (size_t i = 0; i < n->kids; i += 2) {
        lq_tv key, value;
        if (!lq_tm_eval(m, n->kid[i], env, &key) || !lq_tm_eval(m, n->kid[i + 1], env, &value) ||
            !lq_tv_dict_set(m, out->d, key, value)) return false;
    }
    return true;
}

static bool eval_cond(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv *out) {
    lq_tv test;
    if (!lq_tm_eval(m, n->kid[0], env, &test)) return false;
    if (lq_tv_true(test)) return lq_tm_eval(m, n->kid[1], env, out);
    if (n->kid[2]) return lq_tm_eval(m, n->kid[2], env, out);
    const size_t from = m->out_n;
    char text[128];
    snprintf(text, sizeof text, "the inline if-expression on line %d evaluated to false and no else section was defined.",
             n->line);
    return lq_tm_put(m, text, strlen(text) + 1) && lq_tm_cut(m, from, out) && lq_tv_undefined_why(m, out->s->p, out);
}

static bool eval_compare(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv *out) {
    lq_tv left, right;
    bool yes = true;
    if (!lq_tm_eval(m, n->kid[0], env, &left)) return false;
    for (size_t i = 1; i < n->kids && yes; i++, left = right)
        if (!lq_tm_eval(m, n->kid[i], env, &right) || !lq_tv_compare(m, n->op[i - 1], left, right, &yes)) return false;
    *out = lq_tv_bool(yes);
    return true;
}

static bool eval_concat(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv *out) {
    lq_tv v;
    for (size_t i = 0; i < n->kids; i++) {
        if (!lq_tm_eval(m, n->kid[i], env, &v) || !lq_tv_show(m, v, &v)) return false;
        if (!i) *out = v;
        else if (!lq_tstr_add(m, out->s, v.s, out)) return false;
    }
    return true;
}

static bool eval_slice(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv *out) {
    lq_tv obj, at[3];
    if (!lq_tm_eval(m, n->kid[0], env, &obj)) return false;
    for (int i = 0; i < 3; i++) {
        at[i] = lq_tv_none();
        if (n->kid[i + 1] && !lq_tm_eval(m, n->kid[i + 1], env, &at[i])) return false;
    }
    return lq_tm_slice(m, obj, at, out);
}

bool lq_tm_filter(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv subject, lq_tv *out) {
    lq_targs a;
    if (!lq_tm_args(m, n, env, 1, NULL, &a)) return false;
    m->line = n->line;
    if (!n->fn)
        return lq_tm_fail(m, "No %s named '%.*s' found.", n->kind == LQ_TN_FILTER ? "filter" : "test",
                          (int)(n->name->n < 100 ? n->name->n : 100), n->name->p);
    return n->fn->fn(m, subject, &a, out);
}

static bool eval_two(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv *out) {
    lq_tv a, b;
    if (!lq_tm_eval(m, n->kid[0], env, &a) || !lq_tm_eval(m, n->kid[1], env, &b)) return false;
    m->line = n->line;
    return n->kind == LQ_TN_ITEM ? lq_tm_item(m, a, b, out) : lq_tm_binary(m, n->kind, a, b, out);
}

static bool eval_one(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv *out) {
    lq_tv a;
    lq_targs args;
    if (!lq_tm_eval(m, n->kid[0], env, &a)) return false;
    switch (n->kind) {
    case LQ_TN_NOT: *out = lq_tv_bool(!lq_tv_true(a)); return true;
    case LQ_TN_OR: return lq_tv_true(a) ? (*out = a, true) : lq_tm_eval(m, n->kid[1], env, out);
    case LQ_TN_AND: return lq_tv_true(a) ? lq_tm_eval(m, n->kid[1], env, out) : (*out = a, true);
    case LQ_TN_ATTR: m->line = n->line; return lq_tm_attr(m, a, n->name, out);
    case LQ_TN_CALL:
        if (!lq_tm_args(m, n, env, 1, NULL, &args)) return false;
        m->line = n->line;
        return lq_tm_call(m, a, &args, out);
    default: m->line = n->line; return lq_tm_unary(m, n->kind, a, out);
    }
}

bool lq_tm_eval(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv *out) {
    bool done;
    lq_tv a = {0};
    if (!lq_tm_steps(m, 1)) return false;
    if (++m->depth > LQ_TM_DEPTH) return lq_tm_fail(m, "maximum recursion depth exceeded");
    switch (n->kind) {
    case LQ_TN_CONST: *out = n->value, done = true; break;
    case LQ_TN_NAME: done = eval_name(m, n, env, out); break;
    case LQ_TN_LIST:
    case LQ_TN_TUPLE: done = eval_items(m, n, env, out); break;
    case LQ_TN_DICT: done = eval_dict(m, n, env, out); break;
    case LQ_TN_COND: done = eval_cond(m, n, env, out); break;
    case LQ_TN_COMPARE: done = eval_compare(m, n, env, out); break;
    case LQ_TN_CONCAT: done = eval_concat(m, n, env, out); break;
    case LQ_TN_SLICE: done = eval_slice(m, n, env, out); break;
    case LQ_TN_FILTER:
    case LQ_TN_TEST:
        done = (!n->kid[0] || lq_tm_eval(m, n->kid[0], env, &a)) && lq_tm_filter(m, n, env, a, out);
        break;
    case LQ_TN_OR: case LQ_TN_AND: case LQ_TN_NOT: case LQ_TN_ATTR: case LQ_TN_CALL: case LQ_TN_NEG: case LQ_TN_POS:
        done = eval_one(m, n, env, out);
        break;
    default: done = eval_two(m, n, env, out);
    }
    m->depth--;
    return done;
}
