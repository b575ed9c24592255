// lq_template.c: lq template: what a model is given for a conversation. Rendering is the library's; here its inputs are
// read and the text is printed as it is.
#include "tools/verb.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct template_args {
    lq_common common;
    const char *messages, *tools, *documents, *name;
    bool prompt;
    lq_list vars;
} template_args;

enum { FIXED = 4, MOST = 16 << 20 };

typedef struct inputs {
    lq_template_var *var;
    size_t count;
    char *owned[FIXED + 1]; // files that were read
    size_t owned_n;
} inputs;

static bool is_jinja(const char *path) {
    const size_t n = strlen(path);
    return n > 6 && !strcmp(path + n - 6, ".jinja");
}

static bool read_var(inputs *in, const char *name, const char *path, lq_err *err) {
    char **to = &in->owned[in->owned_n];
    lq_template_var *v = &in->var[in->count];
    if (!path) return true;
    v->name = name;
    if (!lq_input_read(path, MOST, to, &v->n, err)) return false;
    v->json = *to;
    in->owned_n++;
    in->count++;
    return true;
}

static bool open_template(const char *path, const char *name, lq_template **out, lq_err *err) {
    char *text = NULL;
    size_t n;
    if (!is_jinja(path)) return lq_template_open(path, name, out, err);
    const bool done = lq_input_read(path, MOST, &text, &n, err) && lq_template_parse(text, n, path, out, err);
    free(text);
    return done;
}

static int print(const template_args *a, const char *text, size_t n) {
    lq_text t = {0};
    if (a->common.json) {
        lq_text_fmt(&t, "{\"text\":");
        lq_text_json(&t, text, n);
        lq_text_fmt(&t, "}");
        return lq_say_json(&t);
    }
    if (isatty(STDOUT_FILENO)) lq_say_text(stdout, text, n, true);
    else fwrite(text, 1, n, stdout);
    return 0;
}

static int render(const template_args *a, const char *path, const inputs *in) {
    lq_err err = {0};
    lq_template *t = NULL;
    char *text = NULL;
    size_t n;
    const bool done = open_template(path, a->name, &t, &err) &&
                      lq_template_render(t, in->var, in->count, &text, &n, &err);
    const int status = done ? print(a, text, n) : lq_say_error(&err);
    lq_free(text);
    lq_template_close(t);
    return status;
}

static int run(void *args, int argc, char **argv) {
    (void)argc;
    const template_args *a = args;
    lq_err err = {0};
    inputs in = {0};
    int status = 0;
    if (!a->messages) return lq_say_usage("template", "--messages FILE is missing");
    if (a->name && is_jinja(argv[0])) return lq_say_usage("template", "--name: %s is one template", argv[0]);
    in.var = calloc(a->vars.n + FIXED, sizeof *in.var);
    if (!in.var) lq_fail(&err, LQ_E_MEMORY, "no memory for %zu variables", a->vars.n);
    else if (!read_var(&in, "messages", a->messages, &err) || !read_var(&in, "tools", a->tools, &err) ||
             !read_var(&in, "documents", a->documents, &err)) status = 1;
    if (err.code) status = lq_say_error(&err);
    if (!status && a->prompt) in.var[in.count++] = (lq_template_var){"add_generation_prompt", "true", 4};
    const size_t given = in.count; // the names of those behind are ours
    for (size_t i = 0; i < a->vars.n && !status; i++)
        status = lq_opts_var("template", a->vars.p[i], &in.var[in.count++]);
    if (!status) status = render(a, argv[0], &in);
    for (size_t i = given; i < in.count; i++) free((char *)(uintptr_t)in.var[i].name);
    for (size_t i = 0; i < in.owned_n; i++) free(in.owned[i]);
    free(in.var);
    return status;
}

static const lq_opt opts[] = {
    {"messages", 'm', LQ_OPT_FILE, offsetof(template_args, messages), "FILE",
     "the conversation, a JSON list of {\"role\": ..., \"content\": ...}; -: standard input", NULL, 0, 0},
    {"tools", 0, LQ_OPT_FILE, offsetof(template_args, tools), "FILE", "a JSON list of the tools it may call", NULL, 0,
     0},
    {"documents", 0, LQ_OPT_FILE, offsetof(template_args, documents), "FILE", "a JSON list of documents", NULL, 0, 0},
    {"add-generation-prompt", 'g', LQ_OPT_FLAG, offsetof(template_args, prompt), NULL,
     "end where the model's answer begins", NULL, 0, 0},
    {"var", 0, LQ_OPT_LIST, offsetof(template_args, vars), "NAME=JSON",
     "a variable of the template, enable_thinking=false say; may be given again", NULL, 0, 0},
    {"name", 0, LQ_OPT_TEXT, offsetof(template_args, name), "NAME",
     "which template, where a model has several (default: tool_use with --tools, else default)", NULL, 0, 0},
};
static const char *const examples[] = {
    "lq template demo.lq --messages chat.json", "the conversation as the model was trained on it",
    "lq template demo.lq -m chat.json -g --var date_string='\"1 May\"'", "up to where its answer begins; what else it asks for",
    "lq template my.jinja -m chat.json --tools tools.json --var bos_token='\"<s>\"'", "try a template of one's own", NULL};
const lq_verb lq_verb_template = {
    .name = "template", .synopsis = "MODEL", .summary = "Render a model's chat template",
    .detail = "Prints a conversation as the text that MODEL was trained on, by the Jinja template that came with it; a file whose name ends in "
              ".jinja is a template alone. The result is that of transformers' apply_chat_template, byte for byte; what the template refuses is "
              "an error with its line.\n\nKeys of a message that are null are left out, and what it thought (reasoning_content) is found under "
              "thinking too, as there.",
    .examples = examples, .opts = opts, .opt_count = sizeof opts / sizeof *opts, .size = sizeof(template_args),
    .min_args = 1, .max_args = 1,
    .run = run};
