// tmpl.h: what the files of the template interpreter share: values, the nodes of a parsed template, and the machine
// that renders one. The language is Jinja2's as transformers sets it up for chat templates: trim_blocks, lstrip_blocks,
// the immutable sandbox, loop controls and its own tojson.
//
//     tmpl_lex.c    text -> tokens              tmpl_value.c   lists, dicts, equality, order, iteration
//     tmpl_parse.c  tokens -> statements        tmpl_str.c     strings and characters as Python has them
//     tmpl_expr.c   tokens -> expressions       tmpl_show.c    str(), repr() and JSON of a value
//     tmpl_scope.c  names -> slots of frames    tmpl_format.c  "%d" % x and "{:>8}".format(x)
//     tmpl_exec.c   runs statements             tmpl_filter.c, tmpl_seq.c, tmpl_test.c, tmpl_method.c:
//     tmpl_eval.c   computes expressions                       what a template may call, as tables
//     tmpl_ops.c    arithmetic, slices          template.c     templates of checkpoints, what a render is given
//
// Everything a render makes lives in its pools until it ends. Steps, depth and memory have limits; a template has no
// other way to touch the world than its output and the clock.
#ifndef LQ_TMPL_H
#define LQ_TMPL_H
#include "formats/err.h"
#include <time.h>

enum {
    LQ_TM_HEIGHT = 250,         // of an expression, and of statements in statements
    LQ_TM_DEPTH = 1500,         // nodes that wait for one another, macros included
    LQ_TM_MACROS = 190,         // calls of macros within one another
    LQ_TM_NESTED = 200,         // values in values, where they are compared or printed
    LQ_TM_RANGE = 100000,       // numbers of a range, as the sandbox has it
    LQ_TM_DIGITS = 4300,        // of an integer that comes in, as Python has it
    LQ_TM_SOURCE = 4 << 20,     // bytes of a template
    LQ_TM_OUTPUT = 64 << 20,    // bytes of text that is being written
    LQ_TM_MEMORY = 256 << 20    // bytes of everything else
};
#define LQ_TM_STEPS (UINT64_C(1) << 27)

// --- values ---

typedef enum lq_tv_kind {
    LQ_TV_MISSING, // a variable that is not set; templates never see it
    LQ_TV_UNDEFINED, LQ_TV_NONE, LQ_TV_BOOL, LQ_TV_INT, LQ_TV_FLOAT, LQ_TV_STR, LQ_TV_LIST, LQ_TV_TUPLE, LQ_TV_DICT,
    LQ_TV_VIEW, LQ_TV_RANGE, LQ_TV_ITER, LQ_TV_SPACE, LQ_TV_LOOP, LQ_TV_MACRO, LQ_TV_FUNC
} lq_tv_kind;

typedef struct lq_tstr {
    const char *p;    // UTF-8
    size_t n, chars;  // bytes, characters
} lq_tstr;

typedef struct lq_tv {
    uint8_t kind;
    bool safe;        // of a string: markup, which escapes what is added to it; of a tuple: a group of `groupby`
    uint32_t large;   // of a float: 1 + its place in lq_tm.large: an integer of more than 63 bits that came in
    union {
        bool b;
        int64_t i;
        double f;
        const lq_tstr *s;
        struct lq_tundef *u;
        struct lq_tlist *l;   // list, tuple
        struct lq_tdict *d;   // dict, namespace
        struct lq_tview *v;
        struct lq_trange *r;
        struct lq_titer *it;
        struct lq_tloop *loop;
        struct lq_tmacro *m;
        struct lq_tbound *fn;
    };
} lq_tv;

// Why it is undefined: a line of its own, or a name that was looked up in nothing or in obj.
typedef struct lq_tundef {
    const char *why;
    lq_tv obj, name; // obj LQ_TV_MISSING: a variable
    bool unsafe;     // the sandbox keeps it from templates
} lq_tundef;

typedef struct lq_tlist { lq_tv *p; size_t n, cap; } lq_tlist;
typedef struct lq_tdict {
    lq_tv *key, *value;  // [n], in the order of insertion
    uint64_t *hash;
    uint32_t *index;     // [slots], a power of two: 1 + the place; NULL while there are few
    size_t n, cap, slots;
    bool shown;          // is being printed: a namespace may hold itself
} lq_tdict;
typedef enum lq_tview_kind { LQ_TV_KEYS, LQ_TV_VALUES, LQ_TV_ITEMS } lq_tview_kind;
typedef struct lq_tview { lq_tdict *d; lq_tview_kind kind; } lq_tview;
typedef struct lq_trange { int64_t start, stop, step; size_t n; } lq_trange;
// What a lazy filter gives: it is read once. An error that was met while it was made is told where reading gets there.
typedef struct lq_titer { const char *type; lq_tv *p; size_t n, at; lq_err *error; } lq_titer;

typedef struct lq_tm lq_tm;
typedef struct lq_tnode lq_tnode;
typedef struct lq_tenv lq_tenv;

// Items that a filter of the loop lets through are found as they are needed: it may see what the body did.
typedef struct lq_tloop {
    lq_tv *p;             // the items, [n] of them are known
    size_t n, at;         // at: items taken; the current one is p[at - 1]
    lq_tv *source;        // what is not looked at yet
    size_t left;
    lq_err *error;        // behind the last item
    int depth;
    lq_tv changed;        // what loop.changed was called with
    const lq_tnode *node;
    lq_tenv *env, *test;
} lq_tloop;
typedef struct lq_tmacro {
    const lq_tnode *node;
    lq_tenv *env;
    const lq_tstr *name; // NULL: of a call block
    bool caller, kwargs, varargs;
} lq_tmacro;

// Arguments of a call. In tables of parameters a name stands for each place.
typedef struct lq_targs {
    const lq_tv *pos;
    size_t n;
    const lq_tstr *const *name; // [named]
    const lq_tv *value;
    size_t named;
} lq_targs;
typedef bool lq_tfn(lq_tm *m, lq_tv self, const lq_targs *a, lq_tv *out);
typedef struct lq_tfunc { const char *name; lq_tfn *fn; } lq_tfunc;
typedef struct lq_tbound { const lq_tfunc *f; lq_tv self; } lq_tbound; // a function with what it is a method of

#define LQ_TV_OF(K, ...) ((lq_tv){.kind = (K), __VA_ARGS__})
static inline lq_tv lq_tv_none(void) { return (lq_tv){.kind = LQ_TV_NONE}; }
static inline lq_tv lq_tv_bool(bool b) { return (lq_tv){.kind = LQ_TV_BOOL, .b = b}; }
static inline lq_tv lq_tv_int(int64_t i) { return (lq_tv){.kind = LQ_TV_INT, .i = i}; }
static inline lq_tv lq_tv_float(double f) { return (lq_tv){.kind = LQ_TV_FLOAT, .f = f}; }
static inline lq_tv lq_tv_str(const lq_tstr *s) { return (lq_tv){.kind = LQ_TV_STR, .s = s}; }
static inline bool lq_tv_is_num(lq_tv v) { return v.kind >= LQ_TV_BOOL && v.kind <= LQ_TV_FLOAT; }
static inline bool lq_tv_is_int(lq_tv v) { return v.kind == LQ_TV_BOOL || v.kind == LQ_TV_INT; }
static inline int64_t lq_tv_as_int(lq_tv v) { return v.kind == LQ_TV_BOOL ? v.b : v.i; }
static inline double lq_tv_as_float(lq_tv v) { return v.kind == LQ_TV_FLOAT ? v.f : (double)lq_tv_as_int(v); }

// --- nodes ---

typedef enum lq_tn_kind {
    // expressions
    LQ_TN_CONST, LQ_TN_NAME, LQ_TN_LIST, LQ_TN_TUPLE, LQ_TN_DICT, LQ_TN_COND, LQ_TN_OR, LQ_TN_AND, LQ_TN_NOT,
    LQ_TN_COMPARE, LQ_TN_ADD, LQ_TN_SUB, LQ_TN_MUL, LQ_TN_DIV, LQ_TN_FLOORDIV, LQ_TN_MOD, LQ_TN_POW, LQ_TN_NEG,
    LQ_TN_POS, LQ_TN_CONCAT, LQ_TN_ATTR, LQ_TN_ITEM, LQ_TN_SLICE, LQ_TN_CALL, LQ_TN_FILTER, LQ_TN_TEST, LQ_TN_NSREF,
    // statements
    LQ_TN_DATA, LQ_TN_PRINT, LQ_TN_FOR, LQ_TN_IF, LQ_TN_SET, LQ_TN_SETBLOCK, LQ_TN_MACRO, LQ_TN_CALLBLOCK,
    LQ_TN_GENERATION, LQ_TN_FILTERBLOCK, LQ_TN_WITH, LQ_TN_BLOCK, LQ_TN_BREAK, LQ_TN_CONTINUE, LQ_TN_LOADER
} lq_tn_kind;

typedef enum lq_tn_op { LQ_OP_EQ, LQ_OP_NE, LQ_OP_LT, LQ_OP_LE, LQ_OP_GT, LQ_OP_GE, LQ_OP_IN, LQ_OP_NOTIN } lq_tn_op;

// What the names of a frame begin with: a value handed in, a variable of the render, one of a frame around it, nothing.
typedef enum lq_tload { LQ_LOAD_GIVEN, LQ_LOAD_RESOLVE, LQ_LOAD_ALIAS, LQ_LOAD_NOTHING } lq_tload;
typedef struct lq_tslot { const lq_tstr *name; lq_tload load; int hops, slot; } lq_tslot;
typedef struct lq_tscope {
    struct lq_tscope *up;
    lq_tslot *slot;
    size_t n, cap;
    bool block; // of a block, or in one: it sees what the template has set
} lq_tscope;

// Which child is what:
//     COND       test, then, else (may be NULL)    SET        target, value
//     COMPARE    operands; op[i] before kid[i + 1] SETBLOCK   target, filter or NULL
//     DICT       key, value, key, value ...        MACRO      parameters, then their defaults (the last ones have one)
//     SLICE      subject, start, stop, step        CALLBLOCK  the call, parameters, defaults
//     CALL       callee, arguments                 FOR        target, iterable, test or NULL
//     FILTER     subject or NULL, arguments        WITH       targets, then values
//     TEST       subject, arguments                FILTERBLOCK  the filter
struct lq_tnode {
    lq_tn_kind kind;
    int line, height;
    size_t kids;
    lq_tnode **kid;
    const lq_tstr **names;  // of arguments: NULL for one by place, lq_tn_star, lq_tn_stars, else the keyword
    uint8_t *op;            // COMPARE
    const lq_tstr *name;    // NAME, ATTR, FILTER, TEST, MACRO, NSREF
    lq_tv value;            // CONST, DATA
    const lq_tfunc *fn;     // FILTER, TEST; NULL: there is none of this name
    lq_tnode *body, *other, *next; // statements inside, of `else`, behind this one
    lq_tscope *scope, *test_scope, *else_scope;
    int hops, slot;         // NAME, NSREF, MACRO
    size_t params;          // MACRO, CALLBLOCK
    bool flag;              // FOR: recursive; NAME: a target
    bool caller, kwargs, varargs; // MACRO, CALLBLOCK: the body asks for it
    int caller_slot, kwargs_slot, varargs_slot, loop_slot; // -1: none
};
extern const lq_tstr *const lq_tn_star, *const lq_tn_stars;

// --- memory ---

// Room behind a string, into which it may grow.
typedef struct lq_troom { char *at, *end; } lq_troom;
enum { LQ_TM_ROOMS = 4 };

// Blocks that live until the pool ends.
typedef struct lq_tpool { struct lq_tchunk *chunk; char *at, *end; } lq_tpool;

struct lq_tenv { lq_tenv *up; const lq_tscope *scope; lq_tv slot[]; };

struct lq_tm {
    lq_tpool objects, bytes; // bytes: of strings, so that the last one may grow where it lies
    lq_troom room[LQ_TM_ROOMS]; // behind the long ones that grew last
    unsigned rooms;          // that were made
    size_t used;
    char *out;               // text that is being written; captures and long strings stand behind it for a while
    size_t out_n, out_cap;
    lq_err *err;
    int line, depth, macros, values;
    uint64_t steps;
    lq_tdict *vars;          // what the render was given
    lq_tv large;             // the digits of its large integers: they are shown, and computed with as floats
    lq_tenv *root;
    time_t now;
};

// --- the machine: tmpl_value.c ---

bool lq_tm_fail(lq_tm *m, const char *fmt, ...) LQ_PRINTF(2, 3) LQ_COLD; // "line 3: ..."
bool lq_tm_steps(lq_tm *m, size_t n);
void *lq_tm_take(lq_tm *m, size_t count, size_t size); // zeroed; NULL: it failed and said so
char *lq_tm_take_bytes(lq_tm *m, size_t n);
void lq_tm_end(lq_tm *m);
bool lq_tm_put(lq_tm *m, const char *p, size_t n);     // writes text
bool lq_tm_puts(lq_tm *m, const char *s);
bool lq_tm_cut(lq_tm *m, size_t from, lq_tv *out);     // takes back what was written since, as a string

// --- values: tmpl_value.c ---

const char *lq_tv_type(lq_tv v);       // "str", "NoneType"
bool lq_tv_undefined(lq_tm *m, lq_tv obj, lq_tv name, lq_tv *out);
bool lq_tv_undefined_why(lq_tm *m, const char *why, lq_tv *out);
bool lq_tv_fail_undefined(lq_tm *m, lq_tv v); // "'x' is undefined"; false
bool lq_tv_list_new(lq_tm *m, lq_tv_kind kind, size_t cap, lq_tv *out);
bool lq_tv_list_add(lq_tm *m, lq_tlist *l, lq_tv v);
bool lq_tv_dict_new(lq_tm *m, size_t cap, lq_tv *out);
bool lq_tv_dict_get(lq_tm *m, const lq_tdict *d, lq_tv key, lq_tv *out); // LQ_TV_MISSING: there is none
bool lq_tv_dict_str(lq_tm *m, const lq_tdict *d, const char *key, lq_tv *out);
bool lq_tv_dict_set(lq_tm *m, lq_tdict *d, lq_tv key, lq_tv value);
bool lq_tv_bind(lq_tm *m, const lq_tfunc *f, lq_tv self, lq_tv *out);

bool lq_tv_true(lq_tv v);
bool lq_tv_equal(lq_tm *m, lq_tv a, lq_tv b, bool *yes);
bool lq_tv_compare(lq_tm *m, lq_tn_op op, lq_tv a, lq_tv b, bool *yes);
bool lq_tv_contains(lq_tm *m, lq_tv in, lq_tv what, bool *yes);
bool lq_tv_len(lq_tm *m, lq_tv v, int64_t *out);
bool lq_tv_has_len(lq_tv v);
bool lq_tv_iterable(lq_tv v);
// All items of an iterable, which is read; the array is not the caller's to change. An error behind the last of them
// that could be had comes in *error, or, where that is NULL, fails.
bool lq_tv_items(lq_tm *m, lq_tv v, lq_tv **p, size_t *n, lq_err **error);
bool lq_tv_next(lq_tm *m, lq_tv v, lq_tv *out); // the first one only; LQ_TV_MISSING: none
bool lq_tv_iter_new(lq_tm *m, const char *type, lq_tlist *items, lq_err *error, lq_tv *out);
bool lq_tv_sort(lq_tm *m, lq_tv *p, lq_tv *key, size_t n, bool reverse);

// --- strings: tmpl_str.c ---

bool lq_tstr_new(lq_tm *m, const char *p, size_t n, lq_tv *out);       // copied
bool lq_tstr_part(lq_tm *m, const char *p, size_t n, lq_tv *out);      // borrowed: bytes of a string that is there
bool lq_tstr_const(lq_tm *m, const char *s, lq_tv *out);               // borrowed
bool lq_tstr_add(lq_tm *m, const lq_tstr *a, const lq_tstr *b, lq_tv *out);
bool lq_tstr_is(const lq_tstr *s, const char *what);
bool lq_tstr_same(const lq_tstr *a, const lq_tstr *b);
size_t lq_tstr_at(const lq_tstr *s, size_t chars);                     // the byte at which so many characters end
uint32_t lq_tstr_char(const char *p, size_t *len);
size_t lq_tstr_put_char(uint32_t c, char *p);
bool lq_tchar_is_space(uint32_t c);
bool lq_tchar_is_print(uint32_t c);
const char *lq_tstr_find(const char *p, size_t n, const char *what, size_t w);
const char *lq_tstr_rfind(const char *p, size_t n, const char *what, size_t w);
size_t lq_tstr_line_end(const char *p, size_t n, size_t *mark);        // bytes before the end of the line, and of it
typedef enum lq_tcase { LQ_TO_LOWER, LQ_TO_UPPER, LQ_TO_TITLE, LQ_TO_CAPITAL, LQ_TO_SWAPPED } lq_tcase;
bool lq_tstr_case(lq_tm *m, lq_tv s, lq_tcase to, lq_tv *out);
bool lq_tstr_is_case(const lq_tstr *s, bool upper);
enum { LQ_STRIP_LEFT = 1, LQ_STRIP_RIGHT = 2 };
bool lq_tstr_strip(lq_tm *m, lq_tv s, const lq_tstr *of, int sides, lq_tv *out); // of NULL: space
bool lq_tstr_replace(lq_tm *m, lq_tv s, const lq_tstr *old, const lq_tstr *by, int64_t count, lq_tv *out);
bool lq_tstr_escape(lq_tm *m, lq_tv s, lq_tv *out);                    // as HTML; markup stays as it is

// --- tmpl_show.c, tmpl_json.c, tmpl_format.c ---

bool lq_tv_show(lq_tm *m, lq_tv v, lq_tv *out);            // str(v)
bool lq_tv_put(lq_tm *m, lq_tv v);                         // writes str(v)
bool lq_tv_put_repr(lq_tm *m, lq_tv v);
size_t lq_tv_float_text(double f, char buf[32]);
typedef struct lq_tjson { bool ascii, sort, spread; const lq_tstr *indent, *comma, *colon; } lq_tjson;
bool lq_tv_put_json(lq_tm *m, lq_tv v, const lq_tjson *how);
bool lq_tv_from_json(lq_tm *m, const char *p, size_t n, const char *what, lq_tv *out);
bool lq_tv_percent(lq_tm *m, lq_tv format, lq_tv args, lq_tv *out);
bool lq_tv_format(lq_tm *m, lq_tv format, const lq_targs *a, lq_tv *out);

// --- calls ---

// Puts arguments in their places: `names` are the parameters of `what`, the first `needed` of which must be given.
// LQ_TV_MISSING in out: it was not.
bool lq_targs_bind(lq_tm *m, const lq_targs *a, const char *what, const char *const *names, size_t n, size_t needed,
                   lq_tv *out);
#define LQ_BIND(m, a, what, needed, out, ...)                                                                \
    lq_targs_bind(m, a, what, (const char *const[]){__VA_ARGS__},                                            \
                  sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *), needed, out)
const lq_tfunc *lq_tfunc_find(const lq_tfunc *table, const lq_tstr *name); // a table ends in a row without a name
const lq_tfunc *lq_tfilter_find(const lq_tstr *name);
lq_tfn lq_tmpl_wordwrap, lq_tmpl_striptags, lq_tmpl_pprint;
extern const lq_tfunc lq_tfilters[], lq_tfilters_seq[], lq_ttests[], lq_tglobals[];
bool lq_tv_method(lq_tm *m, lq_tv obj, const lq_tstr *name, lq_tv *out);   // LQ_TV_MISSING: there is none
bool lq_tm_call(lq_tm *m, lq_tv callee, const lq_targs *a, lq_tv *out);
bool lq_tm_macro(lq_tm *m, lq_tv macro, const lq_targs *a, lq_tv *out);    // tmpl_exec.c
bool lq_tm_loop(lq_tm *m, lq_tv loop, const lq_targs *a, lq_tv *out);
// Finds out about so many items, or all there are.
bool lq_tm_loop_fill(lq_tm *m, lq_tloop *loop, size_t want);

bool lq_tm_attr(lq_tm *m, lq_tv obj, const lq_tstr *name, lq_tv *out);     // obj.name
bool lq_tm_item(lq_tm *m, lq_tv obj, lq_tv key, lq_tv *out);               // obj[key]
bool lq_tm_slice(lq_tm *m, lq_tv obj, const lq_tv at[3], lq_tv *out);
bool lq_tm_binary(lq_tm *m, lq_tn_kind op, lq_tv a, lq_tv b, lq_tv *out);
bool lq_tm_unary(lq_tm *m, lq_tn_kind op, lq_tv a, lq_tv *out);
bool lq_tm_eval(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv *out);
bool lq_tm_filter(lq_tm *m, const lq_tnode *n, lq_tenv *env, lq_tv subject, lq_tv *out);
bool lq_tm_args(lq_tm *m, const lq_tnode *n, lq_tenv *env, size_t first, const lq_tv *caller, lq_targs *out);
bool lq_tm_render(lq_tm *m, const lq_tnode *body, const lq_tscope *scope); // to m->out

// --- parsing ---

typedef enum lq_tok_kind {
    LQ_TT_EOF, LQ_TT_ERROR, LQ_TT_DATA, LQ_TT_BLOCK_BEGIN, LQ_TT_BLOCK_END, LQ_TT_VAR_BEGIN, LQ_TT_VAR_END, LQ_TT_NAME,
    LQ_TT_STRING, LQ_TT_INTEGER, LQ_TT_FLOAT, LQ_TT_ADD, LQ_TT_SUB, LQ_TT_DIV, LQ_TT_FLOORDIV, LQ_TT_MUL, LQ_TT_MOD,
    LQ_TT_POW, LQ_TT_TILDE, LQ_TT_LBRACKET, LQ_TT_RBRACKET, LQ_TT_LPAREN, LQ_TT_RPAREN, LQ_TT_LBRACE, LQ_TT_RBRACE,
    LQ_TT_EQ, LQ_TT_NE, LQ_TT_GT, LQ_TT_GE, LQ_TT_LT, LQ_TT_LE, LQ_TT_ASSIGN, LQ_TT_DOT, LQ_TT_COLON, LQ_TT_PIPE,
    LQ_TT_COMMA, LQ_TT_SEMICOLON
} lq_tok_kind;
typedef struct lq_ttoken { lq_tok_kind kind; int line; lq_tv value; } lq_ttoken;
extern const char *const lq_ttoken_names[]; // as errors call them

typedef struct lq_tparser {
    lq_tm *m;
    const lq_ttoken *at;
    lq_err *lex_error;      // what a token LQ_TT_ERROR stands for
    int nested;
    const char *tags[LQ_TM_HEIGHT];  // the statements we are in
    const char *const *ends[LQ_TM_HEIGHT]; // the tags that would end them
    int tag_n, end_n;
} lq_tparser;

// Tokens up to LQ_TT_EOF or LQ_TT_ERROR; the latter's line is in *error.
bool lq_tlex(lq_tm *m, const char *p, size_t n, lq_ttoken **out, lq_err *error);
bool lq_tparse(lq_tm *m, const char *p, size_t n, lq_tnode **body, lq_tscope **scope);
bool lq_tscope_make(lq_tm *m, lq_tnode *body, lq_tscope **out);

// of tmpl_expr.c and tmpl_parse.c, for one another
lq_tnode *lq_tnode_new(lq_tparser *p, lq_tn_kind kind, int line);
bool lq_tnode_add(lq_tparser *p, lq_tnode *n, lq_tnode *kid, const lq_tstr *name); // kid and name may be NULL
bool lq_tp_fail(lq_tparser *p, int line, const char *fmt, ...) LQ_PRINTF(3, 4);
bool lq_tp_is(const lq_tparser *p, const char *name);    // the token is this name
bool lq_tp_skip(lq_tparser *p, const char *name);
bool lq_tp_skip_kind(lq_tparser *p, lq_tok_kind kind);
bool lq_tp_expect(lq_tparser *p, lq_tok_kind kind, const lq_ttoken **out);
bool lq_tp_expect_name(lq_tparser *p, const char *name);
const char *lq_tp_told(const lq_ttoken *t, char buf[64]);
lq_tnode *lq_tp_expr(lq_tparser *p, bool cond);
lq_tnode *lq_tp_primary(lq_tparser *p, bool space);
lq_tnode *lq_tp_tuple(lq_tparser *p, bool simple, bool cond, const char *end, bool parens, bool space);
lq_tnode *lq_tp_filter(lq_tparser *p, lq_tnode *of, bool begun);
#endif
