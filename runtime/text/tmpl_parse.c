// tmpl_parse.c: statements of a template as a tree. Refuses unknown tags, tags that do not close, and what is nested
// too deep; what would read another template fails when it is reached, as it does where there is no loader.
#include "runtime/text/tmpl.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool statements(lq_tparser *p, const char *const *ends, lq_tnode **out);

// --- what may be assigned to ---

static bool assignable(lq_tparser *p, lq_tnode *n, int depth) {
    static const char *const kinds[] = {"const", "name", "list", "tuple", "dict"};
    if (n->kind == LQ_TN_TUPLE && depth < LQ_TM_HEIGHT) {
        for (size_t i = 0; i < n->kids; i++)
            if (!assignable(p, n->kid[i], depth + 1)) return false;
        return true;
    }
    if (n->kind == LQ_TN_NAME) n->flag = true;
    return n->kind == LQ_TN_NAME || n->kind == LQ_TN_NSREF ||
           lq_tp_fail(p, n->line, "can't assign to '%s'", n->kind <= LQ_TN_DICT ? kinds[n->kind] : "expression");
}

static lq_tnode *target(lq_tparser *p, const char *end, bool space) {
    lq_tnode *n = lq_tp_tuple(p, true, true, end, false, space);
    return n && assignable(p, n, 0) ? n : NULL;
}

static lq_tnode *target_name(lq_tparser *p) {
    const lq_ttoken *t;
    lq_tnode *n = lq_tp_expect(p, LQ_TT_NAME, &t) ? lq_tnode_new(p, LQ_TN_NAME, t->line) : NULL;
    if (!n) return NULL;
    n->name = t->value.s;
    return assignable(p, n, 0) ? n : NULL;
}

// --- bodies ---

#define ENDS(...) (const char *const[]){__VA_ARGS__, NULL}

static bool tag_fails(lq_tparser *p, const char *name, int line) {
    char text[360];
    size_t n = 0;
    bool known = false;
    for (int i = 0; i < p->end_n && name; i++)
        for (const char *const *e = p->ends[i]; *e; e++) known = known || !strcmp(*e, name);
    n += (size_t)(name ? snprintf(text, sizeof text, "Encountered unknown tag '%.60s'.", name)
                       : snprintf(text, sizeof text, "Unexpected end of template."));
    if (p->end_n) {
        n += (size_t)snprintf(text + n, sizeof text - n, known
                              ? " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for "
                              : " Jinja was looking for the following tags: ");
        for (const char *const *e = p->ends[p->end_n - 1]; *e && n < sizeof text; e++)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s'%s'", e == p->ends[p->end_n - 1] ? "" : " or ", *e);
        if (n < sizeof text) n += (size_t)snprintf(text + n, sizeof text - n, ".");
    }
    if (p->tag_n && n < sizeof text)
        snprintf(text + n, sizeof text - n, " The innermost block that needs to be closed is '%s'.",
            p->tags[p->tag_n - 1]);
    return lq_tp_fail(p, line, "%s", text);
}

// Statements up to one of the tags, whose name is the next token.
static bool body(lq_tparser *p, const char *const *ends, lq_tnode **out) {
    lq_tp_skip_kind(p, LQ_TT_COLON);
    if (!lq_tp_expect(p, LQ_TT_BLOCK_END, NULL)) return false;
    if (p->end_n == LQ_TM_HEIGHT) return lq_tp_fail(p, p->at->line, "statements are nested too deep");
    p->ends[p->end_n++] = ends;
    if (!statements(p, ends, out)) return false;
    if (p->at->kind == LQ_TT_EOF) return tag_fails(p, NULL, p->at->line);
    p->end_n--;
    return true;
}

static bool body_to(lq_tparser *p, const char *end, lq_tnode **out) {
    return body(p, ENDS(end), out) && lq_tp_expect_name(p, end);
}

// --- statements; each stands behind its name and leaves the end of its last tag ---

static bool parse_set(lq_tparser *p, lq_tnode *n) {
    lq_tnode *to = target(p, NULL, true), *value;
    if (!to || !lq_tnode_add(p, n, to, NULL)) return false;
    if (lq_tp_skip_kind(p, LQ_TT_ASSIGN)) {
        n->kind = LQ_TN_SET;
        return (value = lq_tp_tuple(p, false, true, NULL, false, false)) && lq_tnode_add(p, n, value, NULL);
    }
    n->kind = LQ_TN_SETBLOCK;
    value = lq_tp_filter(p, NULL, false);
    if (!value && p->m->err->code) return false;
    return lq_tnode_add(p, n, value, NULL) && body_to(p, "endset", &n->body);
}

static bool parse_for(lq_tparser *p, lq_tnode *n) {
    lq_tnode *to = target(p, "in", false), *of, *test = NULL;
    n->kind = LQ_TN_FOR;
    if (!to || !lq_tp_expect_name(p, "in") || !(of = lq_tp_tuple(p, false, false, "recursive", false, false)))
        return false;
    if (lq_tp_skip(p, "if") && !(test = lq_tp_expr(p, true))) return false;
    n->flag = lq_tp_skip(p, "recursive");
    if (!lq_tnode_add(p, n, to, NULL) || !lq_tnode_add(p, n, of, NULL) || !lq_tnode_add(p, n, test, NULL)) return false;
    if (!body(p, ENDS("endfor", "else"), &n->body)) return false;
    if (lq_tp_skip(p, "endfor")) return true;
    return lq_tp_expect_name(p, "else") && body_to(p, "endfor", &n->other);
}

// An `elif` is an IF in `other`, marked by its flag: the chain is not nested.
static bool parse_if(lq_tparser *p, lq_tnode *n) {
    for (;;) {
        n->kind = LQ_TN_IF;
        lq_tnode *test = lq_tp_tuple(p, false, false, NULL, false, false);
        if (!test || !lq_tnode_add(p, n, test, NULL)) return false;
        if (!body(p, ENDS("elif", "else", "endif"), &n->body)) return false;
        if (lq_tp_skip(p, "endif")) return true;
        if (lq_tp_skip(p, "else")) return body_to(p, "endif", &n->other);
        if (!lq_tp_expect_name(p, "elif")) return false;
        lq_tnode *more = lq_tnode_new(p, LQ_TN_IF, p->at->line);
        if (!more) return false;
        more->flag = true;
        n->other = more;
        n = more;
    }
}

static bool signature(lq_tparser *p, lq_tnode *n) {
    lq_tnode *defaults = lq_tnode_new(p, LQ_TN_TUPLE, n->line), *one;
    if (!defaults || !lq_tp_expect(p, LQ_TT_LPAREN, NULL)) return false;
    while (p->at->kind != LQ_TT_RPAREN) {
        if (n->params && !lq_tp_expect(p, LQ_TT_COMMA, NULL)) return false;
        if (!(one = target_name(p)) || !lq_tnode_add(p, n, one, NULL)) return false;
        n->params++;
        if (lq_tp_skip_kind(p, LQ_TT_ASSIGN)) {
            if (!(one = lq_tp_expr(p, true)) || !lq_tnode_add(p, defaults, one, NULL)) return false;
        } else if (defaults->kids) return lq_tp_fail(p, p->at->line, "non-default argument follows default argument");
    }
    for (size_t i = 0; i < defaults->kids; i++)
        if (!lq_tnode_add(p, n, defaults->kid[i], NULL)) return false;
    return lq_tp_expect(p, LQ_TT_RPAREN, NULL);
}

static bool parse_macro(lq_tparser *p, lq_tnode *n) {
    const lq_ttoken *t;
    n->kind = LQ_TN_MACRO;
    if (!lq_tp_expect(p, LQ_TT_NAME, &t)) return false;
    n->name = t->value.s;
    return signature(p, n) && body_to(p, "endmacro", &n->body);
}

static bool parse_call(lq_tparser *p, lq_tnode *n) {
    n->kind = LQ_TN_CALLBLOCK;
    if (!lq_tnode_add(p, n, NULL, NULL) || (p->at->kind == LQ_TT_LPAREN && !signature(p, n))) return false;
    lq_tnode *call = lq_tp_expr(p, true);
    if (!call) return false;
    if (call->kind != LQ_TN_CALL) return lq_tp_fail(p, n->line, "expected call");
    n->kid[0] = call;
    if (call->height >= n->height) n->height = call->height + 1;
    return body_to(p, "endcall", &n->body);
}

static bool parse_generation(lq_tparser *p, lq_tnode *n) {
    n->kind = LQ_TN_GENERATION;
    return lq_tnode_add(p, n, NULL, NULL) && body_to(p, "endgeneration", &n->body);
}

static bool parse_filter(lq_tparser *p, lq_tnode *n) {
    n->kind = LQ_TN_FILTERBLOCK;
    lq_tnode *filter = lq_tp_filter(p, NULL, true);
    return filter && lq_tnode_add(p, n, filter, NULL) && body_to(p, "endfilter", &n->body);
}

static bool parse_with(lq_tparser *p, lq_tnode *n) {
    lq_tnode *values = lq_tnode_new(p, LQ_TN_TUPLE, n->line), *one;
    n->kind = LQ_TN_WITH;
    while (values && p->at->kind != LQ_TT_BLOCK_END && p->at->kind > LQ_TT_ERROR) {
        if (n->params && !lq_tp_expect(p, LQ_TT_COMMA, NULL)) return false;
        if (!(one = target(p, NULL, false)) || !lq_tnode_add(p, n, one, NULL)) return false;
        n->params++;
        if (!lq_tp_expect(p, LQ_TT_ASSIGN, NULL) || !(one = lq_tp_expr(p, true)) || !lq_tnode_add(p, values, one, NULL))
            return false;
    }
    for (size_t i = 0; values && i < values->kids; i++)
        if (!lq_tnode_add(p, n, values->kid[i], NULL)) return false;
    return values && body_to(p, "endwith", &n->body);
}

static bool parse_block(lq_tparser *p, lq_tnode *n) {
    const lq_ttoken *t;
    n->kind = LQ_TN_BLOCK;
    if (!lq_tp_expect(p, LQ_TT_NAME, &t)) return false;
    n->name = t->value.s;
    lq_tp_skip(p, "scoped");
    lq_tp_skip(p, "required");
    if (!body_to(p, "endblock", &n->body)) return false;
    if (p->at->kind == LQ_TT_NAME && lq_tstr_same(p->at->value.s, n->name)) p->at++;
    return true;
}

// {% print a, b %}: a tuple whose items are printed one after the other.
static bool parse_print(lq_tparser *p, lq_tnode *n) {
    n->kind = LQ_TN_PRINT;
    while (p->at->kind != LQ_TT_BLOCK_END) {
        if (n->kids && !lq_tp_expect(p, LQ_TT_COMMA, NULL)) return false;
        lq_tnode *one = lq_tp_expr(p, true);
        if (!one || !lq_tnode_add(p, n, one, NULL)) return false;
    }
    return true;
}

static bool parse_loader(lq_tparser *p, lq_tnode *n) {
    n->kind = LQ_TN_LOADER;
    while (p->at->kind != LQ_TT_BLOCK_END && p->at->kind > LQ_TT_ERROR) p->at++;
    return true;
}

static bool parse_break(lq_tparser *p, lq_tnode *n) {
    (void)p;
    n->kind = LQ_TN_BREAK;
    return true;
}

static bool parse_continue(lq_tparser *p, lq_tnode *n) {
    (void)p;
    n->kind = LQ_TN_CONTINUE;
    return true;
}

static const struct { const char *name; bool (*parse)(lq_tparser *p, lq_tnode *n); } tags[] = {
    {"for", parse_for}, {"if", parse_if}, {"set", parse_set}, {"macro", parse_macro}, {"call", parse_call},
    {"filter", parse_filter}, {"with", parse_with}, {"generation", parse_generation}, {"break", parse_break},
    {"continue", parse_continue}, {"block", parse_block}, {"print", parse_print}, {"include", parse_loader},
    {"import", parse_loader}, {"from", parse_loader}, {"extends", parse_loader}};

static bool statement(lq_tparser *p, lq_tnode *n) {
    const lq_ttoken *t = p->at;
    char buf[64];
    if (t->kind != LQ_TT_NAME) return lq_tp_fail(p, t->line, "tag name expected");
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!lq_tp_skip(p, tags[i].name)) continue;
        if (p->tag_n == LQ_TM_HEIGHT) return lq_tp_fail(p, t->line, "statements are nested too deep");
        p->tags[p->tag_n++] = tags[i].name;
        if (!tags[i].parse(p, n)) return false;
        p->tag_n--;
        return true;
    }
    return tag_fails(p, lq_tp_told(t, buf), t->line);
}

static bool statements(lq_tparser *p, const char *const *ends, lq_tnode **out) {
    for (*out = NULL; p->at->kind != LQ_TT_EOF; ) {
        const lq_ttoken *t = p->at;
        lq_tnode *n = lq_tnode_new(p, LQ_TN_DATA, t->line), *one;
        if (!n) return false;
        if (t->kind == LQ_TT_DATA) {
            n->value = t->value;
            p->at++;
        } else if (lq_tp_skip_kind(p, LQ_TT_VAR_BEGIN)) {
            n->kind = LQ_TN_PRINT;
            if (!(one = lq_tp_tuple(p, false, true, NULL, false, false)) || !lq_tnode_add(p, n, one, NULL) ||
                !lq_tp_expect(p, LQ_TT_VAR_END, NULL)) return false;
        } else if (lq_tp_skip_kind(p, LQ_TT_BLOCK_BEGIN)) {
            for (const char *const *e = ends; e && *e; e++)
                if (lq_tp_is(p, *e)) return true;
            if (!statement(p, n) || !lq_tp_expect(p, LQ_TT_BLOCK_END, NULL)) return false;
        } else return lq_tp_fail(p, t->line, "unexpected '%s'", lq_ttoken_names[t->kind]);
        *out = n;
        out = &n->next;
    }
    return true;
}

bool lq_tparse(lq_tm *m, const char *text, size_t n, lq_tnode **out, lq_tscope **scope) {
    lq_ttoken *tokens;
    lq_err lex_error = {0};
    lq_tparser p = {.m = m, .lex_error = &lex_error};
    if (!lq_tlex(m, text, n, &tokens, &lex_error)) return false;
    p.at = tokens;
    return statements(&p, NULL, out) && lq_tscope_make(m, *out, scope);
}
