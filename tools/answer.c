// answer.c: what verbs share that answer requests of others: the model's name, its chat template, the engine. Owns
// nothing; what it makes of the arguments is the caller's.
#include "tools/verb.h"
#include <stdlib.h>
#include <string.h>

lq_engine_opts lq_answer_args_opts(const lq_answer_args *a) {
    return (lq_engine_opts){.max_seqs = (int)a->max_seqs, .max_batch = (int)a->max_batch,
                            .max_prefill = (int)a->max_prefill, .kv_bytes = a->kv_memory,
                            .kv_page = (int)a->kv_block, .no_prefix = a->no_prefix,
                            .swap_bytes = a->swap_memory, .no_swap = a->no_swap};
}

int lq_answer_args_check(const char *verb, const lq_answer_args *a) {
    if (a->kv_block && a->kv_block != 16 && a->kv_block != 32 && a->kv_block != 64)
        return lq_say_usage(verb, "--kv-block: %d is none of 16|32|64", (int)a->kv_block);
    return a->name && !*a->name ? lq_say_usage(verb, "--name: expected a name that is not empty") : 0;
}

void lq_ctx_warn(const char *verb, const lq_model *m) {
    lq_model_info info;
    lq_model_describe(m, &info);
    if (info.ctx > info.trained)
        lq_say_line(stderr, "lq %s: --ctx %d: this model was trained for %d positions, what it says beyond them may be noise",
                    verb, info.ctx, info.trained);
}

// "models/demo.lq" is called demo, and so is "models/demo/".
static char *name_of(const char *path) {
    char *full = realpath(path, NULL), *name = NULL;
    if (full) {
        const char *base = strrchr(full, '/');
        name = strdup(base && base[1] ? base + 1 : full);
    } else name = strdup(path);
    free(full);
    char *dot = name ? strrchr(name, '.') : NULL;
    if (dot && dot > name && (!strcmp(dot, ".lq") || !strcmp(dot, ".safetensors") || !strcmp(dot, ".gguf")))
        *dot = '\0';
    return name;
}

// A file's, or the word itself where that is one. *text is to be freed.
static bool template_read(const char *word, char **text, lq_err *err) {
    size_t n;
    *text = NULL;
    if (!word) return true;
    if (!strstr(word, "{{") && !strstr(word, "{%")) return lq_input_read(word, 16 << 20, text, &n, err);
    return (*text = strdup(word)) || lq_fail(err, LQ_E_MEMORY, "out of memory");
}

bool lq_answer_args_read(lq_answer_args *a, const char *path, char *texts[2], lq_err *err) {
    texts[0] = a->name ? NULL : name_of(path);
    texts[1] = NULL;
    if (!a->name && !(a->name = texts[0])) return lq_fail(err, LQ_E_MEMORY, "out of memory");
    if (!template_read(a->chat_template, &texts[1], err)) return false;
    a->chat_template = texts[1];
    return true;
}
