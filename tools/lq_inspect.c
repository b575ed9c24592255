// lq_inspect.c: lq inspect: what a checkpoint is, without loading it as a model: container, architecture, types, sizes,
// tensors, metadata, side files. Owns the opened checkpoint; changes nothing.
#include "formats/ckpt.h"
#include "formats/parts.h"
#include "tools/verb.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct inspect_args {
    lq_common common;
    bool tensors, meta, verify;
    const char *file;
} inspect_args;

// All weights of one type: plain tensors by element, coded ones by what a writer called the type.
typedef struct kind {
    char name[64];
    size_t count, bytes;
    double params;
} kind;

typedef struct summary {
    kind *kinds; // [count], by bytes
    size_t count, bytes;
    double params;
    char arch[64], dims[160];
    lq_err config; // why config.json could not be read; LQ_E_NONE where it could
    lq_layout layout;
    bool coded, verified;
} summary;

static int by_bytes(const void *a, const void *b) {
    const kind *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static int by_name(const void *a, const void *b) { return strcmp(((const kind *)a)->name, ((const kind *)b)->name); }

static double tensor_elements(const lq_tensor *t) {
    double n = 1;
    for (int i = 0; i < t->rank; i++) n *= (double)t->shape[i];
    return n;
}

// Kinds of one name become one.
static void kinds_join(summary *s) {
    size_t n = 0;
    if (s->count) qsort(s->kinds, s->count, sizeof *s->kinds, by_name);
    for (size_t i = 0; i < s->count; i++) {
        const kind one = s->kinds[i];
        kind *k = n ? &s->kinds[n - 1] : NULL;
        if (!k || strcmp(k->name, one.name) != 0) s->kinds[n++] = one;
        else k->count += one.count, k->bytes += one.bytes, k->params += one.params;
    }
    s->count = n;
    if (n) qsort(s->kinds, n, sizeof *s->kinds, by_bytes);
}

static bool count_types(const lq_ckpt *c, summary *s, lq_err *err) {
    s->kinds = calloc(lq_ckpt_count(c) + 1, sizeof *s->kinds);
    if (!s->kinds) return lq_fail(err, LQ_E_MEMORY, "%s: no memory to count its types", lq_ckpt_path(c));
    for (size_t i = 0; i < lq_ckpt_count(c); i++) {
        const lq_tensor *t = lq_ckpt_at(c, i);
        bool codes = false;
        const lq_typed *w = lq_ckpt_part_of(c, t->name, &codes);
        kind *k = &s->kinds[s->count++];
        if (w) lq_wtype_name(&w->type, k->name, sizeof k->name);
        else snprintf(k->name, sizeof k->name, "%s", lq_dtypes[t->type].name);
        double params = w ? (codes ? (double)w->n * (double)w->k * (double)(w->count ? w->count : 1) : 0)
            : tensor_elements(t);
        k->count = !w || codes;
        k->bytes = t->bytes;
        k->params = params;
        s->bytes += t->bytes;
        s->params += params;
        if (codes) s->coded = true, s->layout = w->layout > s->layout ? w->layout : s->layout;
    }
    kinds_join(s);
    return true;
}

// What a config has under one of some names.
static const cJSON *any_of(const cJSON *root, const char *const keys[4]) {
    const cJSON *x = NULL;
    for (int i = 0; i < 4 && keys[i] && !cJSON_IsNumber(x); i++)
        x = cJSON_GetObjectItemCaseSensitive(root, keys[i]);
    return cJSON_IsNumber(x) ? x : NULL;
}

static void read_config(lq_ckpt *c, summary *s) {
    static const struct { const char *what, *key[4]; } dims[] = {
        {"layers", {"num_hidden_layers", "n_layer", "n_layers", "num_layers"}},
        {"wide", {"hidden_size", "n_embd", "d_model", "n_embed"}},
        {"in the MLP", {"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"}},
        {"heads", {"num_attention_heads", "n_head", "n_heads", "num_heads"}},
        {"KV heads", {"num_key_value_heads", "num_kv_heads"}},
        {"words", {"vocab_size"}},
        {"tokens of context", {"max_position_embeddings", "n_positions", "max_seq_len", "seq_length"}},
    };
    lq_bytes text;
    cJSON *root = NULL;
    if (!lq_ckpt_file(c, "config.json", &text, &s->config)) return;
    if (!text.p) {
        snprintf(s->config.text, sizeof s->config.text, "there is no config.json");
        return;
    }
    if (!lq_json_parse(text.p, text.n, (lq_json_limits){16 << 20, 64}, "config.json", &root, &s->config)) return;
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "architectures"), 0);
    if (cJSON_IsString(first)) snprintf(s->arch, sizeof s->arch, "%s", first->valuestring);
    else snprintf(s->config.text, sizeof s->config.text, "config.json names none");
    const cJSON *text_config = cJSON_GetObjectItemCaseSensitive(root, "text_config"); // of a larger model
    size_t n = 0;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        const cJSON *x = any_of(cJSON_IsObject(text_config) ? text_config : root, dims[i].key);
        if (!x || n >= sizeof s->dims) continue;
        n += (size_t)snprintf(s->dims + n, sizeof s->dims - n, "%s%.0f %s", n ? ", " : "", x->valuedouble,
                              dims[i].what);
    }
    cJSON_Delete(root);
}

static double bits(double bytes, double params) { return params > 0 ? bytes * 8 / params : 0; }

// --- text ---

static void shape_text(const lq_tensor *t, char *buf, size_t size) {
    size_t n = 0;
    *buf = '\0';
    for (int i = 0; i < t->rank && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%" PRId64, i ? "x" : "", t->shape[i]);
    if (!t->rank) snprintf(buf, size, "scalar");
}

static void print_files(lq_ckpt *c) {
    const char *comma = "";
    printf("files         ");
    for (size_t i = 0; lq_side_files[i]; i++) {
        size_t n;
        if (!lq_ckpt_file_size(c, lq_side_files[i], &n)) continue;
        printf("%s%s", comma, lq_side_files[i]);
        comma = ", ";
    }
    printf("%s\n", *comma ? "" : "none");
}

static void print_types(const summary *s) {
    lq_table *t = lq_table_new(5, (const char *[]){"type", "weights", "parameters", "bytes", "bits"});
    for (size_t i = 0; i < s->count; i++) {
        const kind *k = &s->kinds[i];
        char count[24], per[24];
        snprintf(count, sizeof count, "%zu", k->count);
        snprintf(per, sizeof per, "%.2f", bits((double)k->bytes, k->params));
        lq_table_row(t, (const char *[]){k->name, count, lq_say_count(k->params), lq_say_bytes((double)k->bytes), per});
    }
    lq_table_print(t, stdout);
}

static void print_tensors(const lq_ckpt *c) {
    lq_table *t = lq_table_new(4, (const char *[]){"tensor", "type", "shape", "bytes"});
    for (size_t i = 0; i < lq_ckpt_count(c); i++) {
        const lq_tensor *x = lq_ckpt_at(c, i);
        char shape[192], bytes[24];
        shape_text(x, shape, sizeof shape);
        snprintf(bytes, sizeof bytes, "%zu", x->bytes);
        lq_table_row(t, (const char *[]){x->name, lq_dtypes[x->type].name, shape, bytes});
    }
    lq_table_print(t, stdout);
}

// Metadata may be long (a checksum of every tensor): its beginning is shown, --json has it whole.
static void print_meta(const lq_ckpt *c) {
    const char *key, *value;
    for (size_t i = 0; lq_ckpt_meta_at(c, i, &key, &value); i++) {
        size_t n = strlen(value), shown = n;
        if (n > 100)
            for (shown = 100; shown && ((unsigned char)value[shown] & 0xc0) == 0x80;) shown--; // whole characters
        lq_say(stdout, "%-13s %.*s", key, (int)shown, value);
        if (n > shown) printf("... (%zu bytes)", n);
        putchar('\n');
    }
}

static void print_text(lq_ckpt *c, const inspect_args *a, const summary *s) {
    const char *recipe = lq_ckpt_meta(c, "lq.recipe");
    bool lq = !strcmp(lq_ckpt_container(c), "lq");
    lq_say_line(stdout, "%s: %s, %s", lq_ckpt_path(c), lq_ckpt_container(c),
                lq_say_bytes((double)lq_ckpt_file_bytes(c)));
    putchar('\n');
    if (*s->arch) lq_say_line(stdout, "architecture  %s", s->arch);
    else lq_say_line(stdout, "architecture  not told: %s", s->config.text);
    if (*s->dims) printf("dimensions    %s\n", s->dims);
    printf("parameters    %s in %zu tensors, %.2f bits per weight\n", lq_say_count(s->params), lq_ckpt_count(c),
           bits((double)s->bytes, s->params));
    if (recipe) lq_say_line(stdout, "recipe        %s", recipe);
    if (s->coded) printf("layout        %s\n", lq_layout_names[s->layout]);
    print_files(c);
    if (s->verified) printf("checksums     %s\n", lq ? "all agree" : "this container has none; every byte was read");
    putchar('\n');
    print_types(s);
    if (a->meta) putchar('\n'), print_meta(c);
    if (a->tensors) putchar('\n'), print_tensors(c);
}

// --- JSON ---

static void json_text(lq_text *t, const char *key, const char *value) {
    lq_text_fmt(t, ",\"%s\":", key);
    lq_text_json(t, value, strlen(value));
}

static void json_types(lq_text *t, const summary *s) {
    lq_text_fmt(t, ",\"types\":[");
    for (size_t i = 0; i < s->count; i++) {
        const kind *k = &s->kinds[i];
        lq_text_fmt(t, "%s{\"type\":\"%s\",\"weights\":%zu,\"parameters\":%.0f,\"bytes\":%zu,\"bits\":%.4f}",
                    i ? "," : "", k->name, k->count, k->params, k->bytes, bits((double)k->bytes, k->params));
    }
    lq_text_fmt(t, "]");
}

static void json_tensors(lq_text *t, const lq_ckpt *c) {
    lq_text_fmt(t, ",\"tensors\":[");
    for (size_t i = 0; i < lq_ckpt_count(c); i++) {
        const lq_tensor *x = lq_ckpt_at(c, i);
        lq_text_fmt(t, "%s{\"name\":", i ? "," : "");
        lq_text_json(t, x->name, strlen(x->name));
        lq_text_fmt(t, ",\"type\":\"%s\",\"shape\":[", lq_dtypes[x->type].name);
        for (int d = 0; d < x->rank; d++) lq_text_fmt(t, "%s%" PRId64, d ? "," : "", x->shape[d]);
        lq_text_fmt(t, "],\"bytes\":%zu,\"file\":%d}", x->bytes, x->file);
    }
    lq_text_fmt(t, "]");
}

static void json_meta(lq_text *t, const lq_ckpt *c) {
    const char *key, *value;
    lq_text_fmt(t, ",\"metadata\":{");
    for (size_t i = 0; lq_ckpt_meta_at(c, i, &key, &value); i++) {
        if (i) lq_text_add(t, ",", 1);
        lq_text_json(t, key, strlen(key));
        lq_text_add(t, ":", 1);
        lq_text_json(t, value, strlen(value));
    }
    lq_text_fmt(t, "}");
}

static int print_json(lq_ckpt *c, const inspect_args *a, const summary *s) {
    lq_text t = {0};
    const char *recipe = lq_ckpt_meta(c, "lq.recipe"), *comma = "";
    lq_text_fmt(&t, "{\"container\":\"%s\"", lq_ckpt_container(c));
    json_text(&t, "path", lq_ckpt_path(c));
    json_text(&t, "architecture", s->arch);
    if (s->config.code) json_text(&t, "config_error", s->config.text);
    if (recipe) json_text(&t, "recipe", recipe);
    if (s->coded) json_text(&t, "layout", lq_layout_names[s->layout]);
    lq_text_fmt(&t, ",\"file_bytes\":%zu,\"weight_bytes\":%zu,\"parameters\":%.0f,\"bits\":%.4f,\"files\":{",
                lq_ckpt_file_bytes(c), s->bytes, s->params, bits((double)s->bytes, s->params));
    for (size_t i = 0; lq_side_files[i]; i++) {
        size_t n;
        if (!lq_ckpt_file_size(c, lq_side_files[i], &n)) continue;
        lq_text_fmt(&t, "%s\"%s\":%zu", comma, lq_side_files[i], n);
        comma = ",";
    }
    lq_text_fmt(&t, "}");
    json_types(&t, s);
    if (a->verify) lq_text_fmt(&t, ",\"verified\":%s", s->verified ? "true" : "false");
    if (a->meta) json_meta(&t, c);
    if (a->tensors) json_tensors(&t, c);
    lq_text_fmt(&t, "}");
    return lq_say_json(&t);
}

// --- the verb ---

static bool print_file(lq_ckpt *c, const char *name, lq_err *err) {
    lq_bytes b;
    if (!lq_ckpt_file(c, name, &b, err)) return false;
    if (!b.p) return lq_fail(err, LQ_E_USAGE, "%s: has no file %s", lq_ckpt_path(c), name);
    if (isatty(STDOUT_FILENO)) lq_say_text(stdout, b.p, b.n, true);
    else fwrite(b.p, 1, b.n, stdout);
    return true;
}

static bool tick(void *arg, size_t done, size_t total) {
    lq_bar *b = arg;
    b->total = total;
    lq_bar_at(b, done, NULL);
    return !lq_input_stopped();
}

static bool verify(lq_ckpt *c, const inspect_args *a, lq_err *err) {
    lq_bar bar;
    lq_input_catch();
    lq_bar_begin(&bar, "checksums", "B", 1, a->common.quiet);
    bool done = lq_ckpt_verify(c, tick, &bar, err);
    lq_bar_end(&bar);
    return done;
}

static int inspect(lq_ckpt *c, const inspect_args *a) {
    lq_err err = {0};
    if (a->file) return print_file(c, a->file, &err) ? 0 : lq_say_error(&err);
    summary s = {0};
    int status = 0;
    bool done = count_types(c, &s, &err) && (!a->verify || verify(c, a, &err));
    s.verified = done && a->verify;
    if (done) {
        read_config(c, &s);
        if (a->common.json) status = print_json(c, a, &s);
        else print_text(c, a, &s);
        // What could be told was told; a config.json that is there and cannot be read is a failure all the same.
        if (s.config.code) status = (lq_fail_in(&s.config, "%s", lq_ckpt_path(c)), lq_say_error(&s.config));
    } else status = lq_say_error(&err);
    free(s.kinds);
    return status;
}

static int run(void *args, int argc, char **argv) {
    (void)argc;
    lq_err err = {0};
    lq_ckpt *c = NULL;
    if (!lq_ckpt_open(argv[0], &c, &err)) return lq_say_error(&err);
    const int status = inspect(c, args);
    lq_ckpt_close(c);
    return status;
}

static const lq_opt opts[] = {
    {"tensors", 0, LQ_OPT_FLAG, offsetof(inspect_args, tensors), NULL,
     "list every tensor with its type, shape and bytes", NULL, 0, 0},
    {"meta", 0, LQ_OPT_FLAG, offsetof(inspect_args, meta), NULL, "list the header's metadata", NULL, 0, 0},
    {"verify", 0, LQ_OPT_FLAG, offsetof(inspect_args, verify), NULL,
     "read everything and compare the checksums of a .lq file", NULL, 0, 0},
    {"file", 0, LQ_OPT_TEXT, offsetof(inspect_args, file), "NAME",
     "print a side file, config.json say, and nothing else", NULL, 0, 0},
};
static const char *const examples[] = {"lq inspect demo.lq", "what it is, its types and its size",
                                       "lq inspect demo.lq --verify", "is it whole?",
                                       "lq inspect demo.lq --file tokenizer.json > tokenizer.json",
                                       "take a side file out",
                                       "lq inspect models/llama --tensors --json", "everything, for a script", NULL};
const lq_verb lq_verb_inspect = {
    .name = "inspect", .synopsis = "MODEL", .summary = "Tell what a checkpoint is",
    .detail = "MODEL is a .lq or .safetensors file, a model.safetensors.index.json, or a directory that holds one of them. Opening checks "
              "every claim the file makes about itself; --verify reads the data too.",
    .examples = examples, .opts = opts, .opt_count = sizeof opts / sizeof *opts, .size = sizeof(inspect_args),
    .min_args = 1, .max_args = 1, .run = run};
