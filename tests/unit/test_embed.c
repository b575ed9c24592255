// test_embed.c: embeddings. The state of token i is the vector of the first i tokens pooled by the last, and of all
// these states each pooling is computed once more here. Then what files beside a model say of it, in its folder and in
// what lq quantize makes of it, and what is refused.
#include "tests/unit/engine.h"
#include "tests/unit/tiny.h"
#include <unistd.h>

enum { WIDE = 64, LEN = 50 };

typedef struct vector { float v[WIDE]; int dims, events; lq_finish finish; } vector;
static bool on_event(void *arg, const lq_event *e) {
    vector *a = arg;
    a->events++;
    a->finish = e->finish;
    a->dims = e->dims;
    if (e->embedding) memcpy(a->v, e->embedding, (size_t)e->dims * sizeof *a->v);
    return !e->count;
}

static int32_t ids[LEN];

static vector embed(lq_engine *e, int n, lq_pooling pool, int dims, bool raw) {
    vector a = {0};
    submit(e, &(lq_request){.prompt = ids, .prompt_len = (size_t)n, .pool = pool, .pool_dims = dims, .pool_raw = raw,
                            .on_event = on_event, .arg = &a});
    for (bool busy = true; busy;) CHECK(lq_engine_step(e, &busy, NULL), "a step failed");
    CHECK(a.events == 1 && a.finish == LQ_STOP && a.dims == (dims ? dims : WIDE),
          "pool %d: %d events, finish %d, %d numbers", pool, a.events, a.finish, a.dims);
    return a;
}

// In the same order and precision as it says it is done.
static void by_hand(lq_pooling pool, float states[LEN][WIDE], float *out) {
    for (int i = 0; i < WIDE; i++) {
        double sum = 0, most = (double)states[0][i];
        for (int t = 0; t < LEN; t++) {
            const double x = (double)states[t][i];
            sum += pool == LQ_POOL_WEIGHTED ? (t + 1) * x : x;
            if (x > most) most = x;
        }
        out[i] = (float)(pool == LQ_POOL_MEAN ? sum / LEN : pool == LQ_POOL_WEIGHTED ? sum / (LEN * (LEN + 1) / 2)
                         : pool == LQ_POOL_ROOT ? sum / sqrt((double)LEN) : pool == LQ_POOL_MAX ? most
                         : (double)states[pool == LQ_POOL_FIRST ? 0 : LEN - 1][i]);
    }
}

static void check_length(const vector *unit, const float *raw, lq_pooling pool) {
    double square = 0, all = 0;
    for (int i = 0; i < unit->dims; i++) {
        square += (double)unit->v[i] * (double)unit->v[i];
        all += (double)raw[i] * (double)raw[i];
    }
    CHECK(fabs(square - 1) < 1e-6, "pool %d: length %.9f", pool, sqrt(square));
    for (int i = 0; i < unit->dims; i++)
        CHECK(fabs((double)raw[i] / sqrt(all) - (double)unit->v[i]) < 1e-6, "pool %d of %d: number %d", pool,
              unit->dims, i);
}

// As one chunk and as many, with what the cache has and without.
static void poolings(lq_model *m) {
    static float states[LEN][WIDE];
    float by_rule[WIDE];
    lq_engine_stats s;
    lq_engine *e = engine(m, (lq_engine_opts){.max_batch = 7, .max_seqs = 2, .kv_page = 16});
    for (int i = 0; i < LEN; i++) memcpy(states[i], embed(e, i + 1, LQ_POOL_LAST, 0, true).v, sizeof states[i]);
    lq_engine_describe(e, &s);
    CHECK(s.prefix_hits > 500, "%d tokens were found: the last state needs no others", (int)s.prefix_hits);
    for (lq_pooling pool = LQ_POOL_LAST; pool <= LQ_POOL_MAX; pool++) {
        by_hand(pool, states, by_rule);
        const vector raw = embed(e, LEN, pool, 0, true), unit = embed(e, LEN, pool, 0, false);
        const vector cut = embed(e, LEN, pool, 10, false);
        CHECK(!memcmp(raw.v, by_rule, sizeof by_rule), "pool %d is another vector", pool);
        check_length(&unit, by_rule, pool);
        check_length(&cut, by_rule, pool);
    }
    check_empty(e);
    lq_engine_close(e);
}

static void refused(lq_model *m) {
    static const struct { lq_request r; const char *why; } rows[] = {
        {{.pool = 9}, "pool is 9"}, {{.pool = LQ_POOL_MEAN, .pool_dims = 65}, "dimensions is 65, an embedding of this model has 64"},
        {{.pool = LQ_POOL_MEAN, .pool_dims = -1}, "dimensions is -1"}, {{.pool = LQ_POOL_LAST, .n = 2}, "n is 2"},
    };
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 2});
    lq_err err = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lq_request r = rows[i].r;
        r.prompt = ids, r.prompt_len = 3;
        CHECK(!lq_submit(e, &r, NULL, &err) && strstr(err.text, rows[i].why), "%s: %s", rows[i].why, err.text);
    }
    lq_engine_close(e);
}

// --- files ---

#define MODULE(i, path, name) "{\"idx\":" i ",\"path\":\"" path "\",\"type\":\"sentence_transformers.models." name "\"}"
#define CHAIN(more) "[" MODULE("0", "", "Transformer") "," MODULE("1", "1_Pooling", "Pooling") more "]"
#define UNIT "," MODULE("2", "2_Normalize", "Normalize")
#define DENSE "," MODULE("2", "2_Dense", "Dense")
static const struct { const char *chain, *kind; lq_pooling pool; bool raw; const char *why; } said[] = {
    {NULL, NULL, LQ_POOL_LAST, false, NULL},
    {CHAIN(UNIT), "{\"pooling_mode_cls_token\":false,\"pooling_mode_lasttoken\":true}", LQ_POOL_LAST, false, NULL},
    {CHAIN(""), "{\"pooling_mode_mean_tokens\":true}", LQ_POOL_MEAN, true, NULL},
    {CHAIN(UNIT), "{\"pooling_mode_cls_token\":true}", LQ_POOL_FIRST, false, NULL},
    {CHAIN(UNIT), "{\"pooling_mode_weightedmean_tokens\":true}", LQ_POOL_WEIGHTED, false, NULL},
    {CHAIN(UNIT), "{\"pooling_mode_mean_sqrt_len_tokens\":true}", LQ_POOL_ROOT, false, NULL},
    {CHAIN(UNIT), "{\"pooling_mode_max_tokens\":true,\"pooling_mode_mean_tokens\":false}", LQ_POOL_MAX, false, NULL},
    {NULL, "{\"pooling_mode\":\"mean\"}", LQ_POOL_MEAN, false, NULL},
    {CHAIN(UNIT), "{\"pooling_mode_max_tokens\":true,\"pooling_mode_mean_tokens\":true}", 0, false, "several poolings"},
    {CHAIN(UNIT), "{\"pooling_mode\":\"sum\"}", 0, false, "unknown pooling"},
    {CHAIN(DENSE), "{\"pooling_mode_mean_tokens\":true}", 0, false, "entry 2 is a Dense"},
    {CHAIN(UNIT DENSE), "{\"pooling_mode_mean_tokens\":true}", 0, false, "entry 3 is a Dense"},
    {"{}", NULL, 0, false, "modules.json is not an array"},
    {CHAIN(UNIT), "{\"pooling_mode_mean_tokens\":1}", 0, false, "pooling_mode_mean_tokens"},
};

static bool write_or_remove(const char *dir, const char *name, const char *text) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!text) return unlink(path) == 0 || access(path, F_OK) != 0;
    return tiny_text(dir, name, text);
}

static void read_back(const char *path, size_t i) {
    lq_model *m;
    lq_pooling pool;
    lq_err err = {0};
    bool raw;
    if (!lq_model_open(path, &(lq_model_opts){.threads = 1}, &m, &err)) {
        CHECK(false, "%s", err.text);
        return;
    }
    const bool done = lq_model_pooling(m, &pool, &raw, &err);
    if (said[i].why) CHECK(!done && strstr(err.text, said[i].why), "row %zu of %s: %s", i, path, err.text);
    else CHECK(done && pool == said[i].pool && raw == said[i].raw, "row %zu of %s: pool %d, raw %d: %s", i, path,
               (int)pool, raw, err.text);
    lq_model_close(m);
}

static void files(const char *dir) {
    char inner[100], packed[200];
    lq_err err = {0};
    snprintf(inner, sizeof inner, "%s/1_Pooling", dir);
    mkdir(inner, 0777);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        CHECK(write_or_remove(dir, "modules.json", said[i].chain), "row %zu", i);
        CHECK(write_or_remove(inner, "config.json", said[i].kind), "row %zu", i);
        read_back(dir, i);
        if (i % 3) continue;
        const bool made = tiny_quantize(dir, "int8 g32", packed, sizeof packed, &err);
        CHECK(made, "%s", err.text);
        if (made) read_back(packed, i);
        unlink(packed);
        strcat(packed, ".report.json");
        unlink(packed);
    }
}

// Its head reads another basis: the vector would be another too.
static void rotated(const char *dir) {
    char out[200];
    lq_quant_result r = {0};
    lq_err err = {0};
    lq_model *m = NULL;
    lq_pooling pool;
    bool raw;
    snprintf(out, sizeof out, "%s.turned.lq", dir);
    const lq_quant_opts o = {.in = dir, .out = out, .method = "hadamard", .type = "int8 g32", .threads = 2};
    CHECK(lq_quantize(&o, &r, &err), "%s", err.text);
    lq_quant_result_free(&r);
    CHECK(lq_model_open(out, &(lq_model_opts){.threads = 1}, &m, &err), "%s", err.text);
    const bool done = m && lq_model_pooling(m, &pool, &raw, &err);
    CHECK(!done && err.code == LQ_E_UNSUPPORTED && strstr(err.text, "rotated"), "%s", err.text);
    lq_model_close(m);
}

int main(void) {
    char dir[] = "/tmp/lq-test-embed-XXXXXX", command[100];
    lq_err err = {0};
    lq_model *m = NULL;
    if (!mkdtemp(dir)) return 1;
    for (int i = 0; i < LEN; i++) ids[i] = i * 37 % 250;
    for (int exact = 0; exact < 2; exact++) {
        const lq_model_opts o = {.threads = 2, .exact = exact};
        CHECK(tiny_model(dir, !exact, &err) && lq_model_open(dir, &o, &m, &err), "%s", err.text);
        if (m) poolings(m), refused(m);
        lq_model_close(m);
        m = NULL;
    }
    files(dir);
    write_or_remove(dir, "modules.json", NULL);
    rotated(dir);
    snprintf(command, sizeof command, "rm -rf %s %s.*", dir, dir);
    return system(command) ? 1 : test_end();
}
