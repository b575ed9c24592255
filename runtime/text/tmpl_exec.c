// tmpl_exec.c: runs statements: loops, macros, captures. Owns the frames, which live as long as the render, since a
// macro may outlive the statement that made it.
#include "runtime/text/tmpl.h"
#include <string.h>

typedef enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_FAILED } flow;

static flow run(lq_tm *m, const lq_tnode *n, lq_tenv *env);

// --- frames ---

static bool resolve(lq_tm *m, const lq_tstr *name, bool block, lq_tv *out) {
    *out = (lq_tv){0};
    if (block) { // what the template has set by now
        for (size_t i = 0; i < m->root->scope->n && out->kind == LQ_TV_MISSING; i++)
            if (lq_tstr_same(m->root->scope->slot[i].name, name)) *out = m->root->slot[i];
        if (out->kind != LQ_TV_MISSING) return true;
    }
    if (!lq_tv_dict_get(m, m->vars, lq_tv_str(name), out)) return false;
    const lq_tfunc *f = out->kind == LQ_TV_MISSING ? lq_tfunc_find(lq_tglobals, name) : NULL;
    return !f || lq_tv_bind(m, f, (lq_tv){0}, out);
}

// Names that are not handed in get what they begin with.
static bool enter(lq_tm *m, lq_tenv *env) {
    const lq_tscope *s = env->scope;
    if (!lq_tm_steps(m, s->n)) return false;
    for (size_t i = 0; i < s->n; i++) {
        const lq_tslot *slot = &s->slot[i];
        lq_tenv *from = env->up;
        switch (slot->load) {
        case LQ_LOAD_GIVEN: break;
        case LQ_LOAD_NOTHING: env->slot[i] = (lq_tv){0}; break;
        case LQ_LOAD_RESOLVE:
            if (!resolve(m, slot->name, s->block, &env->slot[i])) return false;
            break;
        case LQ_LOAD_ALIAS:
            for (int k = 0; k < slot->hops; k++) from = from->up;
            env->slot[i] = from->slot[slot->slot];
        }
    }
    return true;
}

static lq_tenv *frame(lq_tm *m, const lq_tscope *s, lq_tenv *up) {
    lq_tenv *env = lq_tm_take(m, 1, sizeof *env + s->n * sizeof *env->slot);
    if (!env) return NULL;
    env->up = up;
    env->scope = s;
    return env;
}

static bool unpack(lq_tm *m, size_t want, lq_tv v, lq_tv **p) {
    size_t n;
    if (!lq_tv_iterable(v)) return lq_tm_fail(m, "cannot unpack non-iterable %s object", lq_tv_type(v));
    if (!lq_tv_items(m, v, p, &n, NULL)) return false;
    if (n < want) return lq_tm_fail(m, "not enough values to unpack (expected %zu, got %zu)", want, n);
    return n == want || lq_tm_fail(m, "too many values to unpack (expected %zu)", want);
}

static bool assign(lq_tm *m, const lq_tnode *to, lq_tenv *env, lq_tv v) {
    if (to->kind == LQ_TN_TUPLE) {
        lq_tv *p;
        if (!unpack(m, to->kids, v, &p)) return false;
        for (size_t i = 0; i < to->kids; i++)
            if (!assign(m, to->kid[i], env, p[i])) return false;
        return true;
    }
    for (int i = 0; i < to->hops; i++) env = env->up;
    if (to->kind == LQ_TN_NAME) {
        env->slot[to->slot] = v;
        return lq_tm_steps(m, 1);
    }
    const lq_tstr *name = to->value.s;
    if (name->n && name->p[0] == '_')
        return lq_tm_fail(m, "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '%.*s'. "
                             "Please rename the attribute.", (int)(name->n < 100 ? name->n : 100), name->p);
    return lq_tv_dict_set(m, env->slot[to->slot].d, to->value, v);
}

// That what is assigned to as a.b is a namespace is asked before the value is computed.
static bool spaces_only(lq_tm *m, const lq_tnode *to, lq_tenv *env) {
    if (to->kind == LQ_TN_TUPLE)
        for (size_t i = 0; i < to->kids; i++)
            if (!spaces_only(m, to->kid[i], env)) return false;
    if (to->kind != LQ_TN_NSREF) return true;
    for (int i = 0; i < to->hops; i++) env = env->up;
    return env->slot[to->slot].kind == LQ_TV_SPACE || lq_tm_fail(m, "cannot assign attribute on non-namespace object");
}

// --- loops ---

bool lq_tm_loop_fill(lq_tm *m, lq_tloop *loop, size_t want) {
    const lq_tnode *n = loop->node;
    while (loop->n < want && loop->left) {
        lq_tv yes, item = *loop->source++;
        loop->left--;
        if (!assign(m, n->kid[0], loop->test, item) || !lq_tm_eval(m, n->kid[2], loop->test, &yes)) return false;
        if (lq_tv_true(yes)) loop->p[loop->n++] = item;
    }
    if (loop->n >= want || !loop->error) return true;
    *m->err = *loop->error;
    return false;
}

static lq_tloop *loop_of(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv of, int depth) {
    lq_tloop *loop = lq_tm_take(m, 1, sizeof *loop);
    if (!loop || !lq_tv_items(m, of, &loop->p, &loop->n, &loop->error)) return NULL;
    loop->depth = depth;
    loop->node = n;
    loop->env = env;
    if (!n->kid[2]) return loop;
    loop->source = loop->p;
    loop->left = loop->n;
    loop->n = 0;
    loop->p = lq_tm_take(m, loop->left, sizeof *loop->p);
    loop->test = frame(m, n->test_scope, env);
    return loop->p && loop->test && enter(m, loop->test) ? loop : NULL;
}

static flow run_loop(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv of, int depth) {
    lq_tloop *loop = loop_of(m, n, env, of, depth);
    lq_tenv *in = loop ? frame(m, n->scope, env) : NULL;
    bool completed = false; // an iteration: one that `continue` left is none
    if (!in) return FLOW_FAILED;
    in->slot[n->loop_slot] = LQ_TV_OF(LQ_TV_LOOP, .loop = loop);
    for (flow f = FLOW_NEXT; f != FLOW_BREAK;) {
        if (!lq_tm_loop_fill(m, loop, loop->at + 1)) return FLOW_FAILED;
        if (loop->at == loop->n) break;
        m->line = n->line;
        if (!assign(m, n->kid[0], in, loop->p[loop->at++]) || !enter(m, in)) return FLOW_FAILED;
        f = run(m, n->body, in);
        if (f == FLOW_FAILED) return f;
        if (f == FLOW_NEXT) completed = true;
    }
    if (!n->else_scope || completed) return FLOW_NEXT;
    lq_tenv *other = frame(m, n->else_scope, env);
    return other && enter(m, other) ? run(m, n->other, other) : FLOW_FAILED;
}

static flow run_for(lq_tm *m, const lq_tnode *n, lq_tenv *env) {
    lq_tv of;
    if (!lq_tm_eval(m, n->kid[1], env, &of)) return FLOW_FAILED;
    m->line = n->line;
    const flow f = run_loop(m, n, env, of, 0);
    return n->flag && f != FLOW_FAILED ? FLOW_NEXT : f;
}

bool lq_tm_loop(lq_tm *m, lq_tv v, const lq_targs *a, lq_tv *out) {
    const lq_tloop *loop = v.loop;
    const size_t from = m->out_n;
    lq_tv of;
    if (!LQ_BIND(m, a, "loop()", 1, &of, "iterable")) return false;
    if (!loop->node->flag)
        return lq_tm_fail(m, "The loop must have the 'recursive' marker to be called recursively.");
    if (++m->macros > LQ_TM_MACROS) return lq_tm_fail(m, "maximum recursion depth exceeded");
    if (run_loop(m, loop->node, loop->env, of, loop->depth + 1) == FLOW_FAILED) return false;
    m->macros--;
    return lq_tm_cut(m, from, out);
}

// --- macros ---

static bool macro_of(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv *out) {
    lq_tmacro *macro = lq_tm_take(m, 1, sizeof *macro);
    if (!macro) return false;
    *macro = (lq_tmacro){n, env, n->name, n->caller, n->kwargs, n->varargs};
    *out = LQ_TV_OF(LQ_TV_MACRO, .m = macro);
    return true;
}

// Arguments that no parameter takes: caller, kwargs and varargs, where the macro asks for them.
static bool macro_rest(lq_tm *m, const lq_tmacro *macro, const lq_targs *a, const bool *used, lq_tenv *in) {
    const lq_tnode *n = macro->node;
    const char *name = macro->name ? macro->name->p : "None";
    const int len = macro->name ? (int)(macro->name->n < 100 ? macro->name->n : 100) : 4;
    const char *mark = macro->name ? "'" : "";
    lq_tv kwargs, varargs;
    for (size_t k = 0; k < a->named && n->caller_slot < 0 && !macro->kwargs; k++)
        if (!used[k] && lq_tstr_is(a->name[k], "caller"))
            return lq_tm_fail(m, "macro %s%.*s%s was invoked with two values for the special caller argument. This is "
                                 "most likely a bug.", mark, len, name, mark);
    if (n->caller_slot >= 0 &&
        !lq_tv_undefined_why(m, "No caller defined", &in->slot[n->caller_slot])) return false;
    if (!lq_tv_dict_new(m, 0, &kwargs) || !lq_tv_list_new(m, LQ_TV_TUPLE, 0, &varargs)) return false;
    for (size_t k = 0; k < a->named; k++) {
        const lq_tstr *as = a->name[k];
        if (used[k]) continue;
        if (n->caller_slot >= 0 && lq_tstr_is(as, "caller")) {
            if (a->value[k].kind != LQ_TV_NONE) in->slot[n->caller_slot] = a->value[k];
        } else if (macro->kwargs) {
            if (!lq_tv_dict_set(m, kwargs.d, lq_tv_str(as), a->value[k])) return false;
        } else
            return lq_tm_fail(m, "macro %s%.*s%s takes no keyword argument '%.*s'", mark, len, name, mark,
                              (int)(as->n < 100 ? as->n : 100), as->p);
    }
    for (size_t i = n->params; i < a->n; i++) {
        if (!macro->varargs)
            return lq_tm_fail(m, "macro %s%.*s%s takes not more than %zu argument(s)", mark, len, name, mark,
                n->params);
        if (!lq_tv_list_add(m, varargs.l, a->pos[i])) return false;
    }
    if (n->kwargs_slot >= 0) in->slot[n->kwargs_slot] = kwargs;
    if (n->varargs_slot >= 0) in->slot[n->varargs_slot] = varargs;
    return true;
}

static bool macro_defaults(lq_tm *m, const lq_tnode *n, lq_tenv *in) {
    const size_t first = n->kind == LQ_TN_MACRO ? 0 : 1, defaults = n->kids - first - n->params;
    for (size_t i = 0; i < n->params; i++) {
        lq_tv *slot = &in->slot[n->kid[first + i]->slot];
        if (slot->kind != LQ_TV_MISSING) continue;
        if (i + defaults >= n->params) {
            lq_tv v;
            if (!lq_tm_eval(m, n->kid[first + i + defaults], in, &v)) return false;
            *slot = v;
            continue;
        }
        const lq_tstr *name = n->kid[first + i]->name;
        const size_t from = m->out_n;
        lq_tv why;
        if (!lq_tm_puts(m, "parameter '") || !lq_tm_put(m, name->p, name->n) ||
            !lq_tm_put(m, "' was not provided", 19) || !lq_tm_cut(m, from, &why) ||
            !lq_tv_undefined_why(m, why.s->p, slot)) return false;
    }
    return true;
}

bool lq_tm_macro(lq_tm *m, lq_tv v, const lq_targs *a, lq_tv *out) {
    const lq_tmacro *macro = v.m;
    const lq_tnode *n = macro->node;
    const size_t first = n->kind == LQ_TN_MACRO ? 0 : 1, from = m->out_n;
    lq_tenv *in = frame(m, n->scope, macro->env);
    bool *used = in ? lq_tm_take(m, a->named + 1, sizeof *used) : NULL;
    if (!used) return false;
    if (++m->macros > LQ_TM_MACROS) return lq_tm_fail(m, "maximum recursion depth exceeded");
    for (size_t i = 0; i < n->params; i++) {
        lq_tv *slot = &in->slot[n->kid[first + i]->slot];
        if (i < a->n) *slot = a->pos[i];
        for (size_t k = 0; k < a->named && i >= a->n; k++) {
            if (used[k] || !lq_tstr_same(a->name[k], n->kid[first + i]->name)) continue;
            *slot = a->value[k];
            used[k] = true;
            break;
        }
    }
    if (!macro_rest(m, macro, a, used, in) || !enter(m, in) || !macro_defaults(m, n, in)) return false;
    if (run(m, n->body, in) == FLOW_FAILED) return false;
    m->macros--;
    return lq_tm_cut(m, from, out);
}

// What a call or a filter makes of a block is written as it is: it has to be a string.
static bool put_str(lq_tm *m, lq_tv v) {
    return v.kind == LQ_TV_STR ? lq_tm_put(m, v.s->p, v.s->n)
                               : lq_tm_fail(m, "sequence item 0: expected str instance, %s found", lq_tv_type(v));
}

static bool call_block(lq_tm *m, const lq_tnode *n, lq_tenv *env) {
    lq_tv caller, callee, out;
    lq_targs a;
    if (!macro_of(m, n, env, &caller)) return false;
    if (n->kind == LQ_TN_GENERATION) return lq_tm_macro(m, caller, &(lq_targs){0}, &out) && lq_tv_put(m, out);
    const lq_tnode *call = n->kid[0];
    if (!lq_tm_eval(m, call->kid[0], env, &callee) || !lq_tm_args(m, call, env, 1, &caller, &a)) return false;
    m->line = call->line;
    return lq_tm_call(m, callee, &a, &out) && put_str(m, out);
}

// --- the others ---

// What a block writes, through its filter.
static flow capture(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv *out) {
    const lq_tnode *filter = n->kid[n->kind == LQ_TN_SETBLOCK], *chain[LQ_TM_HEIGHT];
    const size_t from = m->out_n;
    size_t filters = 0;
    lq_tenv *in = frame(m, n->scope, env);
    if (!in || !enter(m, in)) return FLOW_FAILED;
    const flow f = run(m, n->body, in);
    if (f != FLOW_NEXT) {
        if (f != FLOW_FAILED) m->out_n = from;
        return f;
    }
    if (!lq_tm_cut(m, from, out)) return FLOW_FAILED;
    for (; filter; filter = filter->kid[0]) chain[filters++] = filter; // the first one lies deepest
    while (filters--)
        if (!lq_tm_filter(m, chain[filters], in, *out, out)) return FLOW_FAILED;
    return FLOW_NEXT;
}

static flow run_with(lq_tm *m, const lq_tnode *n, lq_tenv *env) {
    lq_tenv *in = frame(m, n->scope, env);
    if (!in || !enter(m, in)) return FLOW_FAILED;
    for (size_t i = 0; i < n->params; i++) {
        lq_tv v;
        if (!lq_tm_eval(m, n->kid[n->params + i], env, &v) || !assign(m, n->kid[i], in, v)) return FLOW_FAILED;
    }
    return run(m, n->body, in);
}

static flow run_if(lq_tm *m, const lq_tnode *n, lq_tenv *env) {
    for (;;) {
        lq_tv test;
        if (!lq_tm_eval(m, n->kid[0], env, &test)) return FLOW_FAILED;
        if (lq_tv_true(test)) return run(m, n->body, env);
        const lq_tnode *other = n->other;
        if (!other || other->kind != LQ_TN_IF || !other->flag) return run(m, other, env);
        n = other;
    }
}

static bool print(lq_tm *m, const lq_tnode *n, lq_tenv *env) {
    for (size_t i = 0; i < n->kids; i++) {
        lq_tv v;
        if (!lq_tm_eval(m, n->kid[i], env, &v) || !lq_tv_put(m, v)) return false;
    }
    return true;
}

static flow run_one(lq_tm *m, const lq_tnode *n, lq_tenv *env) {
    lq_tv v;
    flow f;
    lq_tenv *in;
    m->line = n->line;
    switch (n->kind) {
    case LQ_TN_DATA: return lq_tm_put(m, n->value.s->p, n->value.s->n) ? FLOW_NEXT : FLOW_FAILED;
    case LQ_TN_PRINT: return print(m, n, env) ? FLOW_NEXT : FLOW_FAILED;
    case LQ_TN_FOR: return run_for(m, n, env);
    case LQ_TN_IF: return run_if(m, n, env);
    case LQ_TN_SET:
        if (!spaces_only(m, n->kid[0], env) || !lq_tm_eval(m, n->kid[1], env, &v)) return FLOW_FAILED;
        return assign(m, n->kid[0], env, v) ? FLOW_NEXT : FLOW_FAILED;
    case LQ_TN_SETBLOCK:
        if (!spaces_only(m, n->kid[0], env)) return FLOW_FAILED;
        if ((f = capture(m, n, env, &v)) != FLOW_NEXT) return f;
        return assign(m, n->kid[0], env, v) ? FLOW_NEXT : FLOW_FAILED;
    case LQ_TN_FILTERBLOCK:
        if ((f = capture(m, n, env, &v)) != FLOW_NEXT) return f;
        return put_str(m, v) ? FLOW_NEXT : FLOW_FAILED;
    case LQ_TN_MACRO:
        if (!macro_of(m, n, env, &v)) return FLOW_FAILED;
        for (int i = 0; i < n->hops; i++) env = env->up;
        env->slot[n->slot] = v;
        return FLOW_NEXT;
    case LQ_TN_CALLBLOCK:
    case LQ_TN_GENERATION: return call_block(m, n, env) ? FLOW_NEXT : FLOW_FAILED;
    case LQ_TN_WITH: return run_with(m, n, env);
    case LQ_TN_BLOCK:
        in = frame(m, n->scope, NULL);
        return in && enter(m, in) ? run(m, n->body, in) : FLOW_FAILED;
    case LQ_TN_BREAK: return FLOW_BREAK;
    case LQ_TN_CONTINUE: return FLOW_CONTINUE;
    default: return lq_tm_fail(m, "no loader for this environment specified"), FLOW_FAILED;
    }
}

static flow run(lq_tm *m, const lq_tnode *n, lq_tenv *env) {
    if (++m->depth > LQ_TM_DEPTH) return lq_tm_fail(m, "maximum recursion depth exceeded"), FLOW_FAILED;
    for (; n; n = n->next) {
        if (!lq_tm_steps(m, 1)) return FLOW_FAILED;
        const flow f = run_one(m, n, env);
        if (f == FLOW_FAILED) return f;
        if (f != FLOW_NEXT) return m->depth--, f;
    }
    m->depth--;
    return FLOW_NEXT;
}

bool lq_tm_render(lq_tm *m, const lq_tnode *body, const lq_tscope *scope) {
    m->root = frame(m, scope, NULL);
    return m->root && enter(m, m->root) && run(m, body, m->root) != FLOW_FAILED;
}
