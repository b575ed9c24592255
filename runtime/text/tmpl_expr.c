// tmpl_expr.c: expressions of a template as a tree, with Jinja's grammar and precedence (a filter binds tighter than
// any operator, "**" is left-associative). Refuses what Jinja refuses, with its words, and what is nested too deep.
#include "runtime/text/tmpl.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const lq_tstr star = {"*", 1, 1}, stars = {"**", 2, 2};
const lq_tstr *const lq_tn_star = &star, *const lq_tn_stars = &stars;

// --- tokens ---

bool lq_tp_fail(lq_tparser *p, int line, const char *fmt, ...) {
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (p->at->kind == LQ_TT_ERROR) return *p->m->err = *p->lex_error, false;
    p->m->line = line;
    return lq_tm_fail(p->m, "%s", text);
}

static void next(lq_tparser *p) { p->at += p->at->kind > LQ_TT_ERROR; }

bool lq_tp_is(const lq_tparser *p, const char *name) {
    return p->at->kind == LQ_TT_NAME && lq_tstr_is(p->at->value.s, name);
}

bool lq_tp_skip(lq_tparser *p, const char *name) {
    if (!lq_tp_is(p, name)) return false;
    next(p);
    return true;
}

bool lq_tp_skip_kind(lq_tparser *p, lq_tok_kind kind) {
    if (p->at->kind != kind) return false;
    next(p);
    return true;
}

const char *lq_tp_told(const lq_ttoken *t, char buf[64]) {
    if (t->kind != LQ_TT_NAME) return lq_ttoken_names[t->kind];
    snprintf(buf, 64, "%.*s", (int)(t->value.s->n < 60 ? t->value.s->n : 60), t->value.s->p);
    return buf;
}

static bool expected(lq_tparser *p, const char *what) {
    char buf[64];
    if (p->at->kind == LQ_TT_EOF)
        return lq_tp_fail(p, p->at->line, "unexpected end of template, expected '%s'.", what);
    return lq_tp_fail(p, p->at->line, "expected token '%s', got '%s'", what, lq_tp_told(p->at, buf));
}

bool lq_tp_expect(lq_tparser *p, lq_tok_kind kind, const lq_ttoken **out) {
    if (out) *out = p->at;
    return lq_tp_skip_kind(p, kind) || expected(p, lq_ttoken_names[kind]);
}

bool lq_tp_expect_name(lq_tparser *p, const char *name) { return lq_tp_skip(p, name) || expected(p, name); }

// --- nodes ---

lq_tnode *lq_tnode_new(lq_tparser *p, lq_tn_kind kind, int line) {
    lq_tnode *n = lq_tm_take(p->m, 1, sizeof *n);
    if (!n) return NULL;
    *n = (lq_tnode){.kind = kind, .line = line, .height = 1, .caller_slot = -1, .kwargs_slot = -1, .varargs_slot = -1,
                    .loop_slot = -1};
    return n;
}

bool lq_tnode_add(lq_tparser *p, lq_tnode *n, lq_tnode *kid, const lq_tstr *name) {
    if (!(n->kids & (n->kids - 1))) { // a power of two: full
        const size_t cap = n->kids ? 2 * n->kids : 1;
        lq_tnode **kids = lq_tm_take(p->m, cap, sizeof *kids);
        const lq_tstr **names = lq_tm_take(p->m, cap, sizeof *names);
        if (!kids || !names) return false;
        if (n->kids) {
            memcpy(kids, n->kid, n->kids * sizeof *kids);
            memcpy(names, n->names, n->kids * sizeof *names);
        }
        n->kid = kids;
        n->names = names;
    }
    n->kid[n->kids] = kid;
    n->names[n->kids++] = name;
    if (kid && kid->height >= n->height) n->height = kid->height + 1;
    return n->height <= LQ_TM_HEIGHT || lq_tp_fail(p, n->line, "an expression is nested too deep");
}

// A node of two children, or none where one of them is missing: then something failed already.
static lq_tnode *pair(lq_tparser *p, lq_tn_kind kind, int line, lq_tnode *a, lq_tnode *b) {
    lq_tnode *n = a && b ? lq_tnode_new(p, kind, line) : NULL;
    return n && lq_tnode_add(p, n, a, NULL) && lq_tnode_add(p, n, b, NULL) ? n : NULL;
}

static lq_tnode *single(lq_tparser *p, lq_tn_kind kind, int line, lq_tnode *a) {
    lq_tnode *n = a ? lq_tnode_new(p, kind, line) : NULL;
    return n && lq_tnode_add(p, n, a, NULL) ? n : NULL;
}

static bool deeper(lq_tparser *p) {
    return ++p->nested <= LQ_TM_HEIGHT || lq_tp_fail(p, p->at->line, "an expression is nested too deep");
}

// --- operators ---

static lq_tnode *unary(lq_tparser *p, bool filters);

static lq_tnode *power(lq_tparser *p) {
    int line = p->at->line;
    lq_tnode *left = unary(p, true);
    while (left && lq_tp_skip_kind(p, LQ_TT_POW)) {
        left = pair(p, LQ_TN_POW, line, left, unary(p, true));
        line = p->at->line;
    }
    return left;
}

static lq_tnode *product(lq_tparser *p) {
    int line = p->at->line;
    lq_tnode *left = power(p);
    while (left) {
        const lq_tok_kind t = p->at->kind;
        const lq_tn_kind op = t == LQ_TT_MUL   ? LQ_TN_MUL
                              : t == LQ_TT_DIV ? LQ_TN_DIV
                              : t == LQ_TT_MOD ? LQ_TN_MOD : LQ_TN_FLOORDIV;
        if (t != LQ_TT_MUL && t != LQ_TT_DIV && t != LQ_TT_MOD && t != LQ_TT_FLOORDIV) break;
        next(p);
        left = pair(p, op, line, left, power(p));
        line = p->at->line;
    }
    return left;
}

static lq_tnode *concat(lq_tparser *p) {
    const int line = p->at->line;
    lq_tnode *left = product(p);
    if (!left || p->at->kind != LQ_TT_TILDE) return left;
    lq_tnode *n = single(p, LQ_TN_CONCAT, line, left);
    while (n && lq_tp_skip_kind(p, LQ_TT_TILDE)) {
        lq_tnode *right = product(p);
        if (!right || !lq_tnode_add(p, n, right, NULL)) return NULL;
    }
    return n;
}

static lq_tnode *sum(lq_tparser *p) {
    int line = p->at->line;
    lq_tnode *left = concat(p);
    while (left && (p->at->kind == LQ_TT_ADD || p->at->kind == LQ_TT_SUB)) {
        const lq_tn_kind op = p->at->kind == LQ_TT_ADD ? LQ_TN_ADD : LQ_TN_SUB;
        next(p);
        left = pair(p, op, line, left, concat(p));
        line = p->at->line;
    }
    return left;
}

static bool compare_op(lq_tparser *p, uint8_t *op) {
    static const uint8_t ops[] = {LQ_OP_EQ, LQ_OP_NE, LQ_OP_GT, LQ_OP_GE, LQ_OP_LT, LQ_OP_LE};
    if (p->at->kind >= LQ_TT_EQ && p->at->kind <= LQ_TT_LE) *op = ops[p->at->kind - LQ_TT_EQ];
    else if (lq_tp_is(p, "in")) *op = LQ_OP_IN;
    else if (lq_tp_is(p, "not") && p->at[1].kind == LQ_TT_NAME && lq_tstr_is(p->at[1].value.s, "in"))
        *op = LQ_OP_NOTIN, next(p);
    else return false;
    next(p);
    return true;
}

static lq_tnode *compare(lq_tparser *p) {
    const int line = p->at->line;
    uint8_t op;
    lq_tnode *left = sum(p);
    if (!left || !compare_op(p, &op)) return left;
    lq_tnode *n = single(p, LQ_TN_COMPARE, line, left);
    if (!n) return NULL;
    do {
        uint8_t *ops = lq_tm_take(p->m, n->kids, 1);
        lq_tnode *right = ops ? sum(p) : NULL;
        if (!right) return NULL;
        if (n->kids > 1) memcpy(ops, n->op, n->kids - 1);
        ops[n->kids - 1] = op;
        n->op = ops;
        if (!lq_tnode_add(p, n, right, NULL)) return NULL;
    } while (n->kids < LQ_TM_HEIGHT && compare_op(p, &op));
    return n;
}

static lq_tnode *negation(lq_tparser *p) {
    const int line = p->at->line;
    if (!lq_tp_is(p, "not")) return compare(p);
    next(p);
    if (!deeper(p)) return NULL;
    lq_tnode *n = single(p, LQ_TN_NOT, line, negation(p));
    p->nested--;
    return n;
}

static lq_tnode *both(lq_tparser *p) {
    int line = p->at->line;
    lq_tnode *left = negation(p);
    while (left && lq_tp_skip(p, "and")) {
        left = pair(p, LQ_TN_AND, line, left, negation(p));
        line = p->at->line;
    }
    return left;
}

static lq_tnode *either(lq_tparser *p) {
    int line = p->at->line;
    lq_tnode *left = both(p);
    while (left && lq_tp_skip(p, "or")) {
        left = pair(p, LQ_TN_OR, line, left, both(p));
        line = p->at->line;
    }
    return left;
}

lq_tnode *lq_tp_expr(lq_tparser *p, bool cond) {
    int line = p->at->line;
    if (!deeper(p)) return NULL;
    lq_tnode *n = either(p);
    while (n && cond && lq_tp_skip(p, "if")) {
        lq_tnode *test = either(p), *other = NULL;
        if (!test || (lq_tp_skip(p, "else") && !(other = lq_tp_expr(p, true)))) return NULL;
        n = pair(p, LQ_TN_COND, line, test, n);
        if (!n || !lq_tnode_add(p, n, other, NULL)) return NULL;
        line = p->at->line;
    }
    p->nested--;
    return n;
}

// --- what stands behind an operand ---

// The arguments of a call are added to n.
static bool arguments(lq_tparser *p, lq_tnode *n) {
    const int line = p->at->line;
    bool dyn = false, dyns = false, keyword = false, comma = false;
    if (!lq_tp_expect(p, LQ_TT_LPAREN, NULL)) return false;
    while (p->at->kind != LQ_TT_RPAREN) {
        const lq_tstr *name = NULL;
        if (comma) {
            if (!lq_tp_expect(p, LQ_TT_COMMA, NULL)) return false;
            if (p->at->kind == LQ_TT_RPAREN) break;
        }
        bool right = true;
        if (p->at->kind == LQ_TT_MUL) right = !dyn && !dyns, dyn = true, name = lq_tn_star, next(p);
        else if (p->at->kind == LQ_TT_POW) right = !dyns, dyns = true, name = lq_tn_stars, next(p);
        else if (p->at->kind == LQ_TT_NAME && p->at[1].kind == LQ_TT_ASSIGN) {
            right = !dyns;
            keyword = true;
            name = p->at->value.s;
            next(p), next(p);
        } else right = !dyn && !dyns && !keyword;
        if (!right) return lq_tp_fail(p, line, "invalid syntax for function call expression");
        lq_tnode *value = lq_tp_expr(p, true);
        if (!value || !lq_tnode_add(p, n, value, name)) return false;
        comma = true;
    }
    return lq_tp_expect(p, LQ_TT_RPAREN, NULL);
}

static lq_tnode *subscribed(lq_tparser *p, lq_tnode *of, int line) {
    lq_tnode *at[3] = {NULL};
    if (p->at->kind != LQ_TT_COLON && !(at[0] = lq_tp_expr(p, true))) return NULL;
    if (p->at->kind != LQ_TT_COLON) return pair(p, LQ_TN_ITEM, line, of, at[0]);
    next(p);
    for (int i = 1; i < 3; i++) {
        const lq_tok_kind t = p->at->kind;
        if (t != LQ_TT_COLON && t != LQ_TT_RBRACKET && t != LQ_TT_COMMA && !(at[i] = lq_tp_expr(p, true))) return NULL;
        if (i == 2 || !lq_tp_skip_kind(p, LQ_TT_COLON)) break;
    }
    lq_tnode *n = single(p, LQ_TN_SLICE, line, of);
    for (int i = 0; i < 3 && n; i++)
        if (!lq_tnode_add(p, n, at[i], NULL)) return NULL;
    return n;
}

static lq_tnode *subscript(lq_tparser *p, lq_tnode *of) {
    const int line = p->at->line;
    lq_tnode *n;
    if (lq_tp_skip_kind(p, LQ_TT_DOT)) {
        const lq_ttoken *t = p->at;
        next(p);
        if (t->kind == LQ_TT_NAME) {
            if ((n = single(p, LQ_TN_ATTR, line, of))) n->name = t->value.s;
            return n;
        }
        if (t->kind != LQ_TT_INTEGER) return lq_tp_fail(p, t->line, "expected name or number"), NULL;
        lq_tnode *at = lq_tnode_new(p, LQ_TN_CONST, t->line);
        if (at) at->value = t->value;
        return pair(p, LQ_TN_ITEM, line, of, at);
    }
    next(p);
    if (p->at->kind == LQ_TT_RBRACKET) { // the key is the empty tuple
        next(p);
        return pair(p, LQ_TN_ITEM, line, of, lq_tnode_new(p, LQ_TN_TUPLE, line));
    }
    if (!(n = subscribed(p, of, line))) return NULL;
    if (p->at->kind == LQ_TT_COMMA && n->kind == LQ_TN_ITEM) {
        lq_tnode *keys = single(p, LQ_TN_TUPLE, line, n->kid[1]);
        while (keys && lq_tp_skip_kind(p, LQ_TT_COMMA) && p->at->kind != LQ_TT_RBRACKET) {
            lq_tnode *key = lq_tp_expr(p, true);
            if (!key || !lq_tnode_add(p, keys, key, NULL)) return NULL;
        }
        if (!(n = pair(p, LQ_TN_ITEM, line, of, keys))) return NULL;
    }
    return lq_tp_expect(p, LQ_TT_RBRACKET, NULL) ? n : NULL;
}

static lq_tnode *call(lq_tparser *p, lq_tnode *of) {
    lq_tnode *n = single(p, LQ_TN_CALL, p->at->line, of);
    return n && arguments(p, n) ? n : NULL;
}

static lq_tnode *postfix(lq_tparser *p, lq_tnode *n) {
    while (n) {
        if (p->at->kind == LQ_TT_DOT || p->at->kind == LQ_TT_LBRACKET) n = subscript(p, n);
        else if (p->at->kind == LQ_TT_LPAREN) n = call(p, n);
        else break;
    }
    return n;
}

// "name" or "name.name"
static const lq_tstr *dotted(lq_tparser *p) {
    const lq_ttoken *t;
    lq_tv name;
    if (!lq_tp_expect(p, LQ_TT_NAME, &t)) return NULL;
    name = t->value;
    while (lq_tp_skip_kind(p, LQ_TT_DOT)) {
        if (!lq_tp_expect(p, LQ_TT_NAME, &t) || !lq_tstr_add(p->m, name.s, &(lq_tstr){".", 1, 1}, &name) ||
            !lq_tstr_add(p->m, name.s, t->value.s, &name)) return NULL;
    }
    return name.s;
}

lq_tnode *lq_tp_filter(lq_tparser *p, lq_tnode *of, bool begun) {
    while (begun || p->at->kind == LQ_TT_PIPE) {
        if (!begun) next(p);
        begun = false;
        lq_tnode *n = lq_tnode_new(p, LQ_TN_FILTER, p->at->line);
        if (!n || !lq_tnode_add(p, n, of, NULL) || !(n->name = dotted(p))) return NULL;
        n->fn = lq_tfilter_find(n->name);
        if (p->at->kind == LQ_TT_LPAREN && !arguments(p, n)) return NULL;
        of = n;
    }
    return of;
}

static lq_tnode *test(lq_tparser *p, lq_tnode *of) {
    const int line = p->at->line;
    next(p);
    const bool negated = lq_tp_skip(p, "not");
    lq_tnode *n = single(p, LQ_TN_TEST, line, of);
    if (!n || !(n->name = dotted(p))) return NULL;
    n->fn = lq_tfunc_find(lq_ttests, n->name);
    const lq_tok_kind t = p->at->kind;
    const bool word = lq_tp_is(p, "else") || lq_tp_is(p, "or") || lq_tp_is(p, "and");
    if (t == LQ_TT_LPAREN) {
        if (!arguments(p, n)) return NULL;
    } else if (t == LQ_TT_LBRACKET || t == LQ_TT_LBRACE || (t >= LQ_TT_NAME && t <= LQ_TT_FLOAT && !word)) {
        if (lq_tp_is(p, "is")) return lq_tp_fail(p, p->at->line, "You cannot chain multiple tests with is"), NULL;
        lq_tnode *arg = postfix(p, lq_tp_primary(p, false));
        if (!arg || !lq_tnode_add(p, n, arg, NULL)) return NULL;
    }
    return negated ? single(p, LQ_TN_NOT, line, n) : n;
}

static lq_tnode *unary(lq_tparser *p, bool filters) {
    const int line = p->at->line;
    const lq_tok_kind t = p->at->kind;
    lq_tnode *n;
    if (!deeper(p)) return NULL;
    if (t == LQ_TT_SUB || t == LQ_TT_ADD) {
        next(p);
        n = single(p, t == LQ_TT_SUB ? LQ_TN_NEG : LQ_TN_POS, line, unary(p, false));
    } else n = lq_tp_primary(p, false);
    n = postfix(p, n);
    while (n && filters) {
        if (p->at->kind == LQ_TT_PIPE) n = lq_tp_filter(p, n, false);
        else if (lq_tp_is(p, "is")) n = test(p, n);
        else if (p->at->kind == LQ_TT_LPAREN) n = call(p, n);
        else break;
    }
    p->nested--;
    return n;
}

// --- operands ---

static lq_tnode *name_or_word(lq_tparser *p, bool space) {
    const lq_ttoken *t = p->at;
    const bool yes = lq_tp_is(p, "true") || lq_tp_is(p, "True"), no = lq_tp_is(p, "false") || lq_tp_is(p, "False");
    const bool none = lq_tp_is(p, "none") || lq_tp_is(p, "None");
    next(p);
    const bool dot = space && p->at->kind == LQ_TT_DOT;
    lq_tnode *n = lq_tnode_new(p, yes || no || none ? LQ_TN_CONST : dot ? LQ_TN_NSREF : LQ_TN_NAME, t->line);
    if (!n) return NULL;
    if (n->kind == LQ_TN_CONST) n->value = none ? lq_tv_none() : lq_tv_bool(yes);
    else n->name = t->value.s;
    if (n->kind != LQ_TN_NSREF) return n;
    next(p);
    if (!lq_tp_expect(p, LQ_TT_NAME, &t)) return NULL;
    n->value = t->value;
    return n;
}

static lq_tnode *strings(lq_tparser *p) {
    lq_tnode *n = lq_tnode_new(p, LQ_TN_CONST, p->at->line);
    if (!n) return NULL;
    n->value = p->at->value;
    next(p);
    for (; p->at->kind == LQ_TT_STRING; next(p))
        if (!lq_tstr_add(p->m, n->value.s, p->at->value.s, &n->value)) return NULL;
    return n;
}

static lq_tnode *items(lq_tparser *p, lq_tn_kind kind, lq_tok_kind end) {
    lq_tnode *n = lq_tnode_new(p, kind, p->at->line);
    next(p);
    while (n && p->at->kind != end) {
        if (n->kids && !lq_tp_expect(p, LQ_TT_COMMA, NULL)) return NULL;
        if (p->at->kind == end) break;
        lq_tnode *one = lq_tp_expr(p, true);
        if (!one || !lq_tnode_add(p, n, one, NULL)) return NULL;
        if (kind == LQ_TN_LIST) continue;
        if (!lq_tp_expect(p, LQ_TT_COLON, NULL) || !(one = lq_tp_expr(p, true)) || !lq_tnode_add(p, n, one, NULL))
            return NULL;
    }
    return n && lq_tp_expect(p, end, NULL) ? n : NULL;
}

lq_tnode *lq_tp_primary(lq_tparser *p, bool space) {
    const lq_ttoken *t = p->at;
    char buf[64];
    lq_tnode *n;
    switch (t->kind) {
    case LQ_TT_NAME: return name_or_word(p, space);
    case LQ_TT_STRING: return strings(p);
    case LQ_TT_INTEGER:
    case LQ_TT_FLOAT:
        if (!(n = lq_tnode_new(p, LQ_TN_CONST, t->line))) return NULL;
        n->value = t->value;
        next(p);
        return n;
    case LQ_TT_LPAREN:
        next(p);
        n = lq_tp_tuple(p, false, true, NULL, true, false);
        return n && lq_tp_expect(p, LQ_TT_RPAREN, NULL) ? n : NULL;
    case LQ_TT_LBRACKET: return items(p, LQ_TN_LIST, LQ_TT_RBRACKET);
    case LQ_TT_LBRACE: return items(p, LQ_TN_DICT, LQ_TT_RBRACE);
    default: return lq_tp_fail(p, t->line, "unexpected '%s'", lq_tp_told(t, buf)), NULL;
    }
}

static bool tuple_ends(const lq_tparser *p, const char *end) {
    const lq_tok_kind t = p->at->kind;
    return t == LQ_TT_VAR_END || t == LQ_TT_BLOCK_END || t == LQ_TT_RPAREN || (end && lq_tp_is(p, end));
}

lq_tnode *lq_tp_tuple(lq_tparser *p, bool simple, bool cond, const char *end, bool parens, bool space) {
    char buf[64];
    bool comma = false;
    lq_tnode *n = lq_tnode_new(p, LQ_TN_TUPLE, p->at->line);
    while (n) {
        if (n->kids && !lq_tp_expect(p, LQ_TT_COMMA, NULL)) return NULL;
        if (tuple_ends(p, end)) break;
        lq_tnode *one = simple ? lq_tp_primary(p, space) : lq_tp_expr(p, cond);
        if (!one || !lq_tnode_add(p, n, one, NULL)) return NULL;
        if (p->at->kind != LQ_TT_COMMA) break;
        comma = true;
    }
    if (!n || comma) return n;
    if (n->kids) return n->kid[0];
    if (!parens) return lq_tp_fail(p, p->at->line, "Expected an expression, got '%s'", lq_tp_told(p->at, buf)), NULL;
    return n;
}
