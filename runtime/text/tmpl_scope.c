// tmpl_scope.c: gives each name of a template a slot in a frame. A template, the body of a loop, of a macro, of a call,
// of a block that is set or filtered and of `with` are frames; `if` is none. What a name means is known before anything
// runs: a name that a frame stores is its own, with the value it has outside when the frame is entered; a name that it
// only loads is that of the frame around it, or a variable of the render. Refuses filters and tests that do not exist,
// unless an `if` may keep them from being reached.
#include "runtime/text/tmpl.h"

// soft: inside of an `if`; in_for: of a loop; breaks: of one that `break` can leave.
typedef struct walk { lq_tm *m; bool soft, in_for, breaks; } walk;

static lq_tslot *own(const lq_tscope *s, const lq_tstr *name) {
    for (size_t i = 0; i < s->n; i++)
        if (lq_tstr_same(s->slot[i].name, name)) return &s->slot[i];
    return NULL;
}

static bool find(walk *w, const lq_tscope *s, const lq_tstr *name, int *hops, int *slot) {
    *hops = 0;
    for (; s; s = s->up, ++*hops) {
        const lq_tslot *t = own(s, name);
        w->m->steps += s->n / 8;
        if (t) return *slot = (int)(t - s->slot), true;
    }
    return false;
}

static bool define(walk *w, lq_tscope *s, const lq_tstr *name, lq_tload load, int hops, int slot) {
    lq_tslot *at = own(s, name);
    if (!at && s->n == s->cap) {
        const size_t cap = s->cap ? 2 * s->cap : 8;
        lq_tslot *to = lq_tm_take(w->m, cap, sizeof *to);
        if (!to) return false;
        for (size_t i = 0; i < s->n; i++) to[i] = s->slot[i];
        s->slot = to;
        s->cap = cap;
    }
    if (!at) at = &s->slot[s->n++];
    *at = (lq_tslot){name, load, hops, slot};
    return lq_tm_steps(w->m, s->n);
}

static bool given(walk *w, lq_tscope *s, const lq_tstr *name, int *slot) {
    if (!define(w, s, name, LQ_LOAD_GIVEN, 0, 0)) return false;
    if (slot) *slot = (int)(own(s, name) - s->slot);
    return true;
}

static bool load(walk *w, lq_tscope *s, const lq_tstr *name) {
    int hops, slot;
    return find(w, s, name, &hops, &slot) || define(w, s, name, LQ_LOAD_RESOLVE, 0, 0);
}

// What is stored in an `if` only may not be stored at all: then it is what it would be without.
static bool store(walk *w, lq_tscope *s, const lq_tstr *name, bool in_if) {
    int hops, slot;
    if (own(s, name)) return true;
    if (find(w, s->up, name, &hops, &slot)) return define(w, s, name, LQ_LOAD_ALIAS, hops, slot);
    return define(w, s, name, in_if ? LQ_LOAD_RESOLVE : LQ_LOAD_NOTHING, 0, 0);
}

// --- which names a frame has ---

static bool load_all(walk *w, lq_tscope *s, const lq_tnode *n) {
    if (!n) return true;
    if ((n->kind == LQ_TN_NAME || n->kind == LQ_TN_NSREF) && !load(w, s, n->name)) return false;
    for (size_t i = 0; i < n->kids; i++)
        if (!load_all(w, s, n->kid[i])) return false;
    return true;
}

static bool store_all(walk *w, lq_tscope *s, const lq_tnode *n, bool in_if) {
    if (n->kind == LQ_TN_NSREF) return load(w, s, n->name);
    if (n->kind == LQ_TN_NAME) return store(w, s, n->name, in_if);
    for (size_t i = 0; i < n->kids; i++)
        if (!store_all(w, s, n->kid[i], in_if)) return false;
    return true;
}

static bool give_all(walk *w, lq_tscope *s, const lq_tnode *n) {
    if (n->kind == LQ_TN_NAME) return given(w, s, n->name, NULL);
    for (size_t i = 0; i < n->kids; i++)
        if (!give_all(w, s, n->kid[i])) return false;
    return true;
}

static bool declare(walk *w, lq_tscope *s, const lq_tnode *n, bool in_if) {
    for (; n; n = n->next) {
        bool done = true;
        switch (n->kind) {
        case LQ_TN_PRINT: done = load_all(w, s, n); break;
        case LQ_TN_FOR: done = load_all(w, s, n->kid[1]); break;
        case LQ_TN_SET: done = load_all(w, s, n->kid[1]) && store_all(w, s, n->kid[0], in_if); break;
        case LQ_TN_SETBLOCK: done = store_all(w, s, n->kid[0], in_if); break;
        case LQ_TN_MACRO: done = store(w, s, n->name, in_if); break;
        case LQ_TN_CALLBLOCK:
        case LQ_TN_FILTERBLOCK: done = load_all(w, s, n->kid[0]); break;
        case LQ_TN_WITH:
            for (size_t i = n->params; i < n->kids && done; i++) done = load_all(w, s, n->kid[i]);
            break;
        case LQ_TN_IF:
            for (const lq_tnode *one = n; one && done;) { // and its `elif`s
                const lq_tnode *other = one->other;
                done = load_all(w, s, one->kid[0]) && declare(w, s, one->body, true);
                one = other && other->kind == LQ_TN_IF && other->flag ? other : NULL;
                if (!one && done) done = declare(w, s, other, true);
            }
            break;
        default: break;
        }
        if (!done) return false;
    }
    return true;
}

// Whether a name is loaded anywhere in there.
static bool mentions(walk *w, const lq_tnode *n, const char *name) {
    for (; n; n = n->next) {
        w->m->steps++;
        if (n->kind == LQ_TN_NAME && !n->flag && lq_tstr_is(n->name, name)) return true;
        for (size_t i = 0; i < n->kids; i++)
            if (n->kid[i] && mentions(w, n->kid[i], name)) return true;
        if (n->kind != LQ_TN_BLOCK && (mentions(w, n->body, name) || mentions(w, n->other, name))) return true;
    }
    return false;
}

// --- which slot a name is ---

static bool resolve(walk *w, lq_tscope *s, lq_tnode *n);

static bool resolve_expr(walk *w, const lq_tscope *s, lq_tnode *n) {
    if (!n) return true;
    const bool soft = w->soft;
    w->m->line = n->line;
    if (n->kind == LQ_TN_NAME || n->kind == LQ_TN_NSREF) {
        if (!find(w, s, n->name, &n->hops, &n->slot))
            return lq_tm_fail(w->m, "'%.*s' has no frame", (int)n->name->n, n->name->p);
        if (n->flag && w->in_for && lq_tstr_is(n->name, "loop"))
            return lq_tm_fail(w->m, "Can't assign to special loop variable in for-loop target");
    }
    if ((n->kind == LQ_TN_FILTER || n->kind == LQ_TN_TEST) && !n->fn && !soft)
        return lq_tm_fail(w->m, "No %s named '%.*s'.", n->kind == LQ_TN_FILTER ? "filter" : "test",
                          (int)(n->name->n < 100 ? n->name->n : 100), n->name->p);
    if (n->kind == LQ_TN_COND) w->soft = true;
    for (size_t i = 0; i < n->kids; i++)
        if (!resolve_expr(w, s, n->kid[i])) return false;
    w->soft = soft;
    return lq_tm_steps(w->m, 1);
}

static bool scope_new(walk *w, lq_tscope *up, lq_tscope **out) {
    if (!(*out = lq_tm_take(w->m, 1, sizeof **out))) return false;
    (*out)->up = up;
    (*out)->block = up && up->block;
    return true;
}

// Names of the body, then what they are.
static bool inside(walk *w, lq_tscope *s, lq_tnode *body) {
    const bool soft = w->soft;
    w->soft = false;
    if (!declare(w, s, body, false) || !resolve(w, s, body)) return false;
    w->soft = soft;
    return true;
}

static bool resolve_for(walk *w, lq_tscope *s, lq_tnode *n) {
    static const lq_tstr loop = {"loop", 4, 4};
    lq_tscope *test;
    const bool in_for = w->in_for, breaks = w->breaks;
    if (!resolve_expr(w, s, n->kid[1])) return false;
    w->in_for = w->breaks = true;
    if (!scope_new(w, s, &n->scope) || !give_all(w, n->scope, n->kid[0])) return false;
    if (n->kid[2]) { // its targets have the slots that they have in the body
        if (!scope_new(w, s, &test) || !give_all(w, test, n->kid[0]) || !load_all(w, test, n->kid[2]) ||
            !resolve_expr(w, test, n->kid[2])) return false;
        n->test_scope = test;
    }
    if (!resolve_expr(w, n->scope, n->kid[0]) || !given(w, n->scope, &loop, &n->loop_slot) ||
        !inside(w, n->scope, n->body))
        return false;
    w->in_for = in_for;
    w->breaks = breaks;
    return !n->other || (scope_new(w, s, &n->else_scope) && inside(w, n->else_scope, n->other));
}

// A parameter that a macro's body asks for without having it.
static bool special(walk *w, lq_tnode *n, const char *name, const lq_tstr *as, bool *asked, int *slot) {
    const lq_tslot *have = own(n->scope, as);
    if (!mentions(w, n->body, name)) return true;
    if (have && have->load == LQ_LOAD_GIVEN) {
        if (lq_tstr_is(as, "caller")) {
            *asked = true;
            const size_t first = n->kind == LQ_TN_MACRO ? 0 : 1, defaults = n->kids - first - n->params;
            if ((size_t)(have - n->scope->slot) < n->params - defaults)
                return lq_tm_fail(w->m, "When defining macros or call blocks the special \"caller\" argument must be "
                                        "omitted or be given a default.");
        }
        return true;
    }
    *asked = true;
    return given(w, n->scope, as, slot);
}

static bool resolve_macro(walk *w, lq_tscope *s, lq_tnode *n) {
    static const lq_tstr caller = {"caller", 6, 6}, kwargs = {"kwargs", 6, 6}, varargs = {"varargs", 7, 7};
    const size_t first = n->kind == LQ_TN_MACRO ? 0 : 1;
    const bool soft = w->soft, breaks = w->breaks;
    if (first && !resolve_expr(w, s, n->kid[0])) return false;
    w->soft = w->breaks = false;
    if (!scope_new(w, s, &n->scope)) return false;
    for (size_t i = 0; i < n->params; i++)
        if (!given(w, n->scope, n->kid[first + i]->name, NULL)) return false;
    for (size_t i = first + n->params; i < n->kids; i++)
        if (!load_all(w, n->scope, n->kid[i])) return false;
    if (!special(w, n, "caller", &caller, &n->caller, &n->caller_slot) ||
        !special(w, n, "kwargs", &kwargs, &n->kwargs, &n->kwargs_slot) ||
        !special(w, n, "varargs", &varargs, &n->varargs, &n->varargs_slot)) return false;
    for (size_t i = first; i < n->kids; i++)
        if (!resolve_expr(w, n->scope, n->kid[i])) return false;
    if (!inside(w, n->scope, n->body)) return false;
    w->soft = soft;
    w->breaks = breaks;
    if (n->kind == LQ_TN_MACRO) find(w, s, n->name, &n->hops, &n->slot);
    return true;
}

static bool resolve_with(walk *w, lq_tscope *s, lq_tnode *n) {
    if (!scope_new(w, s, &n->scope)) return false;
    for (size_t i = 0; i < n->kids; i++) {
        if (i < n->params ? !give_all(w, n->scope, n->kid[i]) || !resolve_expr(w, n->scope, n->kid[i])
                          : !resolve_expr(w, s, n->kid[i])) return false;
    }
    return inside(w, n->scope, n->body);
}

// A block that is captured, and a filter that its text goes through.
static bool resolve_capture(walk *w, lq_tscope *s, lq_tnode *n) {
    lq_tnode *filter = n->kid[n->kind == LQ_TN_SETBLOCK];
    const bool soft = w->soft;
    if (n->kind == LQ_TN_SETBLOCK && !resolve_expr(w, s, n->kid[0])) return false;
    if (!scope_new(w, s, &n->scope) || !declare(w, n->scope, n->body, false) || !load_all(w, n->scope, filter))
        return false;
    w->soft = false;
    if (!resolve_expr(w, n->scope, filter) || !resolve(w, n->scope, n->body)) return false;
    w->soft = soft;
    return true;
}

static bool resolve_if(walk *w, lq_tscope *s, lq_tnode *n) {
    const bool soft = w->soft;
    w->soft = true;
    while (n) {
        lq_tnode *other = n->other;
        if (!resolve_expr(w, s, n->kid[0]) || !resolve(w, s, n->body)) return false;
        n = other && other->kind == LQ_TN_IF && other->flag ? other : NULL;
        if (!n && !resolve(w, s, other)) return false;
    }
    w->soft = soft;
    return true;
}

// A block sees the variables of the template, and none of the frame that it stands in.
static bool resolve_block(walk *w, lq_tnode *n) {
    const bool breaks = w->breaks;
    w->breaks = false;
    if (!scope_new(w, NULL, &n->scope)) return false;
    n->scope->block = true;
    if (!inside(w, n->scope, n->body)) return false;
    w->breaks = breaks;
    return true;
}

static bool resolve(walk *w, lq_tscope *s, lq_tnode *n) {
    for (; n; n = n->next) {
        bool done = true;
        w->m->line = n->line;
        switch (n->kind) {
        case LQ_TN_PRINT:
        case LQ_TN_SET: done = resolve_expr(w, s, n); break;
        case LQ_TN_FOR: done = resolve_for(w, s, n); break;
        case LQ_TN_IF: done = resolve_if(w, s, n); break;
        case LQ_TN_MACRO:
        case LQ_TN_CALLBLOCK:
        case LQ_TN_GENERATION: done = resolve_macro(w, s, n); break;
        case LQ_TN_SETBLOCK:
        case LQ_TN_FILTERBLOCK: done = resolve_capture(w, s, n); break;
        case LQ_TN_WITH: done = resolve_with(w, s, n); break;
        case LQ_TN_BLOCK: done = resolve_block(w, n); break;
        case LQ_TN_BREAK:
        case LQ_TN_CONTINUE:
            if (!w->breaks) done = lq_tm_fail(w->m, "'%s' outside loop", n->kind == LQ_TN_BREAK ? "break" : "continue");
            break;
        default: break;
        }
        if (!done) return false;
    }
    return true;
}

bool lq_tscope_make(lq_tm *m, lq_tnode *body, lq_tscope **out) {
    walk w = {.m = m};
    return scope_new(&w, NULL, out) && inside(&w, *out, body);
}
