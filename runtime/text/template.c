// template.c: chat templates: where a checkpoint has them, what a render is given (the conversation as transformers'
// apply_chat_template hands it on, the special tokens), and its result. Owns parsed templates, which any number of
// threads may render at once. Refuses a checkpoint without one, and conversations that are none.
#include "runtime/text/template.h"
#include "formats/json.h"
#include "runtime/text/tmpl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// One of the named templates of a checkpoint. One that is broken harms only who asks for it.
typedef struct entry { char *name; lq_tm m; lq_tnode *body; lq_tscope *scope; lq_err err; } entry;

struct lq_template {
    char *what;          // begins errors: the file
    const char *told;    // begins those of a render
    const char *only;    // the one that was asked for
    entry *entry;
    size_t count, cap;
    lq_text tokens;      // special tokens, a JSON object
};

static const lq_json_limits limits = {16 << 20, 64};

static char *copy(const char *s) {
    char *p = malloc(strlen(s) + 1);
    return p ? strcpy(p, s) : NULL;
}

void lq_template_close(lq_template *t) {
    if (!t) return;
    for (size_t i = 0; i < t->count; i++) {
        free(t->entry[i].name);
        lq_tm_end(&t->entry[i].m);
    }
    free(t->entry);
    free(t->what);
    lq_text_free(&t->tokens);
    free(t);
}

static bool is_text(const char *p, size_t n) {
    const unsigned char *u = (const unsigned char *)p, *end = u + n;
    while (u < end) {
        const size_t len = lq_utf8_len(u, end);
        if (!len) return false;
        u += len;
    }
    return true;
}

static bool add(lq_template *t, const char *name, const char *text, size_t n, lq_err *err) {
    void *p = t->entry;
    if (!lq_grow(&p, t->count, &t->cap, sizeof *t->entry)) return lq_fail(err, LQ_E_MEMORY, "%s: no memory", t->what);
    t->entry = p;
    entry *e = &t->entry[t->count++];
    *e = (entry){.name = copy(name)};
    if (!e->name) return lq_fail(err, LQ_E_MEMORY, "%s: no memory", t->what);
    if (n > LQ_TM_SOURCE)
        return lq_fail(err, LQ_E_LIMIT, "%s: %zu bytes, more than %d MB", t->what, n, LQ_TM_SOURCE >> 20);
    if (!is_text(text, n)) return lq_fail(err, LQ_E_FORMAT, "%s: it is not UTF-8", t->what);
    e->m.err = &e->err;
    e->m.line = 1;
    lq_tparse(&e->m, text, n, &e->body, &e->scope);
    e->m.err = NULL;
    return true;
}

static lq_template *make(const char *what, lq_err *err) {
    lq_template *t = calloc(1, sizeof *t);
    if (t && (t->what = copy(what))) {
        t->told = t->what;
        return t;
    }
    free(t);
    lq_fail(err, LQ_E_MEMORY, "%s: no memory for its template", what);
    return NULL;
}

bool lq_template_parse(const char *text, size_t n, const char *what, lq_template **out, lq_err *err) {
    lq_template *t = *out = make(what, err);
    if (!t) return false;
    if (add(t, "default", text, n, err)) {
        if (!t->entry->err.code) return true;
        if (err) *err = t->entry->err;
        lq_fail_in(err, "%s", what);
    }
    lq_template_close(t);
    *out = NULL;
    return false;
}

// --- from a checkpoint ---

// "chat_template": a template, a list of named ones, or an object of them.
static bool add_json(lq_template *t, const cJSON *x, lq_err *err) {
    const cJSON *one;
    if (cJSON_IsString(x)) return add(t, "default", x->valuestring, strlen(x->valuestring), err);
    if (cJSON_IsNull(x) || !x) return true;
    if (!cJSON_IsArray(x) && !cJSON_IsObject(x))
        return lq_fail(err, LQ_E_FORMAT, "%s: it is neither a text nor a list of them", t->what);
    cJSON_ArrayForEach(one, x) {
        const char *name = cJSON_IsObject(x) ? one->string : lq_json_str(one, "name");
        const char *text = cJSON_IsObject(x) ? cJSON_GetStringValue(one) : lq_json_str(one, "template");
        if (!name || !text) return lq_fail(err, LQ_E_FORMAT, "%s: one of them has no name or no text", t->what);
        if (!add(t, name, text, strlen(text), err)) return false;
    }
    return true;
}

static bool read_json(lq_ckpt *c, const char *name, cJSON **out, lq_err *err) {
    lq_bytes b;
    *out = NULL;
    return lq_ckpt_file(c, name, &b, err) &&
           (!b.p || lq_json_parse(b.p, b.n, limits, name, out, err) || lq_fail_in(err, "%s", lq_ckpt_path(c)));
}

static void add_tokens(lq_template *t, const cJSON *config, const cJSON *map) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
                                        "mask_token"};
    const char *comma = "";
    lq_text_fmt(&t->tokens, "{");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *s = NULL;
        for (int k = 0; k < 2 && !s; k++) {
            const cJSON *x = cJSON_GetObjectItemCaseSensitive(k ? map : config, names[i]);
            s = cJSON_IsObject(x) ? lq_json_str(x, "content") : cJSON_GetStringValue(x);
        }
        if (!s) continue;
        lq_text_fmt(&t->tokens, "%s\"%s\":", comma, names[i]);
        lq_text_json(&t->tokens, s, strlen(s));
        comma = ",";
    }
    lq_text_fmt(&t->tokens, "}");
}

static bool from_ckpt(lq_template *t, lq_ckpt *c, const cJSON *config, const cJSON *old, lq_err *err) {
    lq_bytes text;
    if (!lq_ckpt_file(c, "chat_template.jinja", &text, err)) return false;
    if (text.p && !add(t, "default", text.p, text.n, err)) return false;
    if (!t->count && !add_json(t, cJSON_GetObjectItemCaseSensitive(config, "chat_template"), err)) return false;
    if (!t->count && !add_json(t, cJSON_GetObjectItemCaseSensitive(old, "chat_template"), err)) return false;
    if (!t->count) return lq_fail(err, LQ_E_UNSUPPORTED, "%s: there is none", t->what);
    for (size_t i = 0; i < t->count && t->only; i++)
        if (!strcmp(t->entry[i].name, t->only)) {
            t->only = t->entry[i].name;
            return true;
        }
    return !t->only || lq_fail(err, LQ_E_USAGE, "%s: there is none named %s", t->what, t->only);
}

bool lq_template_from(lq_ckpt *c, const char *name, const char *told, lq_template **out, lq_err *err) {
    cJSON *config = NULL, *map = NULL, *old = NULL;
    char what[512];
    snprintf(what, sizeof what, "%s: chat template", lq_ckpt_path(c));
    lq_template *t = make(what, err);
    *out = NULL;
    bool done = t && read_json(c, "tokenizer_config.json", &config, err) &&
                read_json(c, "special_tokens_map.json", &map, err) && read_json(c, "chat_template.json", &old, err);
    if (done) {
        t->only = name;
        if (told) t->told = told;
        add_tokens(t, config, map);
        done = from_ckpt(t, c, config, old, err);
        if (done && t->tokens.failed) done = lq_fail(err, LQ_E_MEMORY, "%s: no memory", t->what);
    }
    cJSON_Delete(config);
    cJSON_Delete(map);
    cJSON_Delete(old);
    if (done) *out = t;
    else lq_template_close(t);
    return done;
}

bool lq_template_open(const char *path, const char *name, lq_template **out, lq_err *err) {
    lq_ckpt *c;
    *out = NULL;
    if (!lq_ckpt_open(path, &c, err)) return false;
    const bool done = lq_template_from(c, name, NULL, out, err);
    lq_ckpt_close(c);
    return done;
}

// --- what a render is given ---

// Without keys that are null, and with what it thought under all the names that templates ask for.
static bool message(lq_tm *m, lq_tv in, lq_tv *out) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    lq_tv thought = {0}, key;
    if (!lq_tv_dict_new(m, in.d->n + 2, out)) return false;
    for (int i = 0; i < 3 && thought.kind <= LQ_TV_NONE; i++)
        if (!lq_tv_dict_str(m, in.d, names[i], &thought)) return false;
    const bool thinks = thought.kind > LQ_TV_NONE;
    if (thinks && (!lq_tstr_const(m, "thinking", &key) || !lq_tv_dict_set(m, out->d, key, thought))) return false;
    for (size_t i = 0; i < in.d->n; i++)
        if (in.d->value[i].kind != LQ_TV_NONE && !lq_tv_dict_set(m, out->d, in.d->key[i], in.d->value[i])) return false;
    return !thinks || (lq_tstr_const(m, "reasoning_content", &key) && lq_tv_dict_set(m, out->d, key, thought));
}

static bool messages(lq_tm *m, lq_tv in, lq_tv *out) {
    if (in.kind != LQ_TV_LIST || !in.l->n)
        return lq_fail(m->err, LQ_E_USAGE, "messages: a list of at least one message is expected");
    if (!lq_tv_list_new(m, LQ_TV_LIST, in.l->n, out)) return false;
    for (size_t i = 0; i < in.l->n; i++) {
        lq_tv one;
        if (in.l->p[i].kind != LQ_TV_DICT) return lq_fail(m->err, LQ_E_USAGE, "messages: message %zu is no object", i);
        if (!message(m, in.l->p[i], &one) || !lq_tv_list_add(m, out->l, one)) return false;
    }
    return true;
}

static bool objects(lq_tm *m, const char *name, lq_tv in) {
    if (in.kind == LQ_TV_NONE) return true;
    bool right = in.kind == LQ_TV_LIST;
    for (size_t i = 0; right && i < in.l->n; i++) right = in.l->p[i].kind == LQ_TV_DICT;
    return right || lq_fail(m->err, LQ_E_USAGE, "%s: a list of objects is expected", name);
}

static bool variables(lq_tm *m, const lq_template *t, const lq_template_var *vars, size_t count) {
    static const char *const always[] = {"tools", "documents", "add_generation_prompt"};
    lq_tv all, name, v;
    if (t->tokens.n ? !lq_tv_from_json(m, t->tokens.p, t->tokens.n, "special tokens", &all)
        : !lq_tv_dict_new(m, 8, &all))
        return false;
    m->vars = all.d;
    for (size_t i = 0; i < 3; i++)
        if (!lq_tstr_const(m, always[i], &name) ||
            !lq_tv_dict_set(m, all.d, name, i < 2 ? lq_tv_none() : lq_tv_bool(false))) return false;
    for (size_t i = 0; i < count; i++) {
        const char *what = vars[i].name;
        if (!lq_tv_from_json(m, vars[i].json, vars[i].n, what, &v) || !lq_tstr_const(m, what, &name)) return false;
        if (!strcmp(what, "messages") && !messages(m, v, &v)) return false;
        if ((!strcmp(what, "tools") || !strcmp(what, "documents")) && !objects(m, what, v)) return false;
        if (!lq_tv_dict_set(m, all.d, name, v)) return false;
    }
    return true;
}

// --- rendering ---

static const entry *entry_for(const lq_template *t, const lq_tdict *vars, lq_tm *m) {
    const entry *found = t->count == 1 ? t->entry : NULL;
    lq_tv tools;
    if (!lq_tv_dict_str(m, vars, "tools", &tools)) return NULL;
    const bool tool_use = tools.kind != LQ_TV_NONE;
    for (int k = 0; k < 2; k++) {
        const char *want = t->only ? t->only : k ? "default" : "tool_use";
        for (size_t i = 0; i < t->count && !found && (k || tool_use || t->only); i++)
            if (!strcmp(t->entry[i].name, want)) found = &t->entry[i];
    }
    if (!found)
        lq_fail(m->err, LQ_E_USAGE, "%s: none of %zu is the default one; name one", t->told, t->count);
    return found;
}

bool lq_template_render(const lq_template *t, const lq_template_var *vars, size_t count, char **text, size_t *n,
                        lq_err *err) {
    lq_err own = {0};
    lq_tm m = {.err = &own, .now = time(NULL)};
    *text = NULL;
    *n = 0;
    bool done = variables(&m, t, vars, count);
    const entry *e = done ? entry_for(t, m.vars, &m) : NULL;
    if (e && e->err.code) own = e->err;
    done = e && ((!own.code && lq_tm_render(&m, e->body, e->scope)) || lq_fail_in(&own, "%s", t->told));
    if (done) done = lq_tm_put(&m, "", 1);
    if (done) {
        *text = m.out;
        *n = m.out_n - 1;
        m.out = NULL;
    } else if (err) *err = own;
    lq_tm_end(&m);
    return done;
}
