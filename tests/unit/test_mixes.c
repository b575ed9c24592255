// test_mixes.c: what requests share changes nothing of them. Requests that begin alike, in random company: places,
// chunks, block sizes, threads, pools that are too small, cancelled ones, choices, logprobs of prompts, embeddings.
// Every token, logprob and vector has the bits of the same request alone in an engine without a prefix cache. Then what
// sharing saves: requests that come together compute one prefix once, others go by meanwhile, and nobody waits for one
// that is gone.
#include "tests/unit/engine.h"
#include "tests/unit/tiny.h"
#include <unistd.h>

enum { MIXES = 200, POOL = 30, PROMPT = 130, TOKENS = 24, CHOICES = 3, LONG = 1000, MANY = 100, WIDE = 64 };

typedef struct answer { // of one choice
    int32_t tokens[TOKENS];
    float logprobs[TOKENS], prompt[PROMPT], vector[WIDE];
    int count, prompts, cached, cancel_at, dims;
    lq_finish finish;
} answer;

static bool on_event(void *arg, const lq_event *e) {
    answer *a = (answer *)arg + e->choice;
    for (int i = 0; i < e->count; i++)
        if (e->prompt) a->prompt[a->prompts++] = e->logprobs[i];
        else {
            a->tokens[a->count] = e->tokens[i];
            a->logprobs[a->count++] = e->logprobs[i];
        }
    if (e->embedding) memcpy(a->vector, e->embedding, (size_t)(a->dims = e->dims) * sizeof *a->vector);
    a->finish = e->finish;
    a->cached = e->cached_tokens;
    return !a->cancel_at || a->count + a->prompts < a->cancel_at;
}

static uint64_t seed = 42;
static int draw(int n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

static int32_t family[3][PROMPT];
static int32_t prompts[POOL][PROMPT];
static lq_request pool[POOL];

// Each begins as its family does, up to somewhere.
static void make_pool(void) {
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < PROMPT; i++) family[f][i] = i < 20 ? (f < 2) * 7 + i : draw(250);
    for (int i = 0; i < POOL; i++) {
        int n = i < 3 ? PROMPT - 5 : draw(4) ? 30 + draw(80) : draw(8);
        memcpy(prompts[i], family[i % 3], (size_t)n * sizeof **prompts);
        for (int more = 1 + draw(5); more > 0; more--) prompts[i][n++] = draw(250);
        pool[i] = (lq_request){.prompt = prompts[i], .prompt_len = (size_t)n, .max_tokens = 1 + draw(TOKENS),
                               .n = draw(4) ? 1 : CHOICES, .ignore_eos = true, .logprobs = true, .top_n = 2,
                               .sampling = {.temperature = i % 2 ? 0.9f : 0, .seeded = true, .seed = (uint64_t)i},
                               .on_event = on_event};
        pool[i].prompt_logprobs = draw(4) == 0;
        pool[i].prompt_from = pool[i].prompt_logprobs ? draw(n) * draw(2) : 0;
        if (pool[i].prompt_logprobs && draw(2)) pool[i].score_only = true, pool[i].n = 1;
        if (!pool[i].prompt_logprobs && i % 2) {
            pool[i].pool = (lq_pooling)(1 + i / 2 % LQ_POOL_MAX), pool[i].n = 1;
            pool[i].pool_dims = draw(2) * 20, pool[i].pool_raw = draw(2);
        }
    }
}

static void submit_to(lq_engine *e, const lq_request *like, answer *a, uint64_t *id) {
    lq_request r = *like;
    lq_err err = {0};
    r.arg = a;
    CHECK(lq_submit(e, &r, id, &err), "%s", err.text);
}

static bool step(lq_engine *e) {
    lq_err err = {0};
    bool busy = false;
    CHECK(lq_engine_step(e, &busy, &err), "%s", err.text);
    return busy;
}

static void finish(lq_engine *e) {
    for (int i = 0; step(e); i++)
        if (i > 5000) {
            CHECK(false, "the engine does not come to an end");
            return;
        }
    check_empty(e);
}

// Bits, as far as it came: NaN is the first prompt token's.
static bool same(const answer *a, const answer *b, bool all) {
    return (!all || (a->count == b->count && a->prompts == b->prompts)) && a->count <= b->count &&
           a->prompts <= b->prompts && (!all || a->dims == b->dims) &&
           !memcmp(a->vector, b->vector, (size_t)a->dims * sizeof *a->vector) &&
           !memcmp(a->tokens, b->tokens, (size_t)a->count * sizeof *a->tokens) &&
           !memcmp(a->logprobs, b->logprobs, (size_t)a->count * sizeof *a->logprobs) &&
           !memcmp(a->prompt, b->prompt, (size_t)a->prompts * sizeof *a->prompt);
}

typedef struct sums { uint64_t hits, preempted, swapped, cancelled, tight, vectors; } sums;

// One engine, some requests at some steps of it.
static void mix(lq_model *m, answer alone[POOL][CHOICES], int which, sums *all) {
    enum { ASKS = 16 };
    static const int pages[] = {16, 32, 64}, chunks[] = {1, 5, 16, 50, 512};
    static answer got[ASKS][CHOICES];
    uint64_t id[ASKS];
    int asked[ASKS], asks = 2 + draw(ASKS - 1), at = 0, step_count = 0;
    lq_model_info info;
    lq_engine_stats s;
    lq_model_describe(m, &info);
    memset(got, 0, sizeof got);
    const int page = pages[draw(3)], least = (PROMPT + TOKENS + page - 1) / page, tight = draw(2);
    lq_engine *e = engine(m, (lq_engine_opts){
        .max_seqs = 1 + draw(8), .max_batch = chunks[draw(5)], .max_prefill = draw(3) ? 0 : 1 + draw(30),
        .kv_page = page, .no_prefix = draw(10) == 0,
        .swap_bytes = (size_t)(which % 3) * info.kv_token_bytes * (size_t)page * (size_t)least * 2,
        .kv_bytes = info.kv_token_bytes * (size_t)page * (size_t)(tight ? least + draw(2) : 20 * least)});
    for (bool busy = true; busy || at < asks; step_count++) {
        for (int now = step_count ? draw(3) / 2 * draw(6) : draw(6); now > 0 && at < asks; now--, at++) {
            asked[at] = draw(POOL);
            got[at][0].cancel_at = draw(8) ? 0 : 1 + draw(20);
            submit_to(e, &pool[asked[at]], got[at], &id[at]);
        }
        if (at && draw(30) == 0) lq_cancel(e, id[draw(at)]);
        busy = step(e);
        if (step_count < 20000) continue;
        CHECK(false, "mix %d does not come to an end", which);
        break;
    }
    check_empty(e);
    lq_engine_describe(e, &s);
    for (int i = 0; i < asks; i++)
        for (int c = 0; c < (pool[asked[i]].n ? pool[asked[i]].n : 1); c++) {
            const answer *a = &got[i][c];
            const bool embeds = pool[asked[i]].pool, ended = a->finish == (embeds ? LQ_STOP : LQ_LENGTH);
            // One that wanted no more hears nothing of the rest of the step in which it ended.
            const bool whole = ended && !(a->cancel_at && a->count + a->prompts >= a->cancel_at);
            all->vectors += a->dims > 0;
            all->cancelled += a->finish == LQ_ABORTED;
            CHECK((ended || a->finish == LQ_ABORTED) && embeds * ended == (a->dims > 0) &&
                  same(a, &alone[asked[i]][c], whole),
                  "mix %d, request %d, choice %d: %d tokens, %d of the prompt, finish %d: not what it is alone", which,
                  asked[i], c, a->count, a->prompts, a->finish);
        }
    all->hits += s.prefix_hits, all->preempted += s.preempted, all->swapped += s.swapped, all->tight += (uint64_t)tight;
    lq_engine_close(e);
}

static void mixes(lq_model *const *m, int models, const char *what) {
    static answer alone[POOL][CHOICES];
    sums all = {0};
    memset(alone, 0, sizeof alone);
    for (int i = 0; i < POOL; i++) {
        lq_engine *e = engine(m[0], (lq_engine_opts){.max_seqs = CHOICES, .no_prefix = true});
        submit_to(e, &pool[i], alone[i], NULL);
        finish(e);
        lq_engine_close(e);
    }
    for (int i = 0; i < MIXES / 4; i++) mix(m[i % models], alone, i, &all);
    CHECK(all.hits > 5000 && all.preempted > 5 && all.swapped && all.cancelled > 20 && all.tight > 10 &&
          all.vectors > 50, "%s: %d tokens found, %d preempted, %d of them put aside, %d cancelled, %d vectors: the "
          "mixes do not mix", what, (int)all.hits, (int)all.preempted, (int)all.swapped, (int)all.cancelled,
          (int)all.vectors);
    printf("%s: %d preempted, %d of them put aside\n", what, (int)all.preempted, (int)all.swapped);
}

// --- what it saves ---

// The same model for longer texts.
static bool lengthen(const char *dir) {
    char path[200], text[2000], *at;
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    static const char from[] = "\"max_position_embeddings\":256";
    if (!(at = strstr(text, from))) return false;
    char longer[2100];
    snprintf(longer, sizeof longer, "%.*s\"max_position_embeddings\":2048%s", (int)(at - text), text, at + strlen(from));
    return tiny_text(dir, "config.json", longer);
}

static int32_t texts[MANY][LONG + 6];

static lq_request of_many(int i) {
    return (lq_request){.prompt = texts[i], .prompt_len = LONG + 6, .max_tokens = 4, .ignore_eos = true,
                        .logprobs = true, .sampling = {.temperature = 0.9f, .seeded = true, .seed = (uint64_t)i},
                        .on_event = on_event};
}

// A thousand tokens that a hundred requests begin with: all at once, or `apart` each behind the one before it.
static void hundred(lq_model *m, bool apart, const char *what) {
    static answer got[MANY], one;
    lq_engine_stats s;
    memset(got, 0, sizeof got);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 40, .max_batch = 128});
    for (int i = 0; i < MANY; i++) {
        const lq_request r = of_many(i);
        submit_to(e, &r, &got[i], NULL);
        if (apart) finish(e);
    }
    finish(e);
    lq_engine_describe(e, &s);
    const int all = MANY * (LONG + 6);
    printf("%s, %s: %d of %d prompt tokens computed, %.1f %% saved\n", what, apart ? "apart" : "together",
           (int)s.prompt_tokens, all, 100 - 100.0 * (double)s.prompt_tokens / all);
    CHECK(s.prompt_tokens + s.prefix_hits == (uint64_t)all && s.prefix_queries == (uint64_t)all,
          "%d computed and %d found of %d", (int)s.prompt_tokens, (int)s.prefix_hits, all);
    CHECK(s.prompt_tokens * 20 <= (uint64_t)all, "%s: %d of %d prompt tokens were computed", what,
          (int)s.prompt_tokens, all);
    lq_engine_close(e);
    for (int i = 0; i < MANY; i += 33) {
        const lq_request r = of_many(i);
        memset(&one, 0, sizeof one);
        e = engine(m, (lq_engine_opts){.max_seqs = 1, .no_prefix = true});
        submit_to(e, &r, &one, NULL);
        finish(e);
        CHECK(same(&got[i], &one, true) && one.count == 4, "%s: request %d of a hundred differs", what, i);
        lq_engine_close(e);
    }
}

// While one computes what others need, those wait and one that needs something else goes by. Where it is cancelled, the
// next one does it.
static void awaits(lq_model *m) {
    static answer got[10], other;
    lq_engine_stats s;
    uint64_t first;
    memset(got, 0, sizeof got);
    memset(&other, 0, sizeof other);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 16, .max_batch = 64});
    for (int i = 0; i < 10; i++) {
        const lq_request r = of_many(i);
        submit_to(e, &r, &got[i], i ? NULL : &first);
    }
    lq_request r = of_many(0);
    r.prompt = texts[0] + 100, r.prompt_len = 20;
    submit_to(e, &r, &other, NULL);
    for (int i = 0; i < 8; i++) step(e);
    lq_engine_describe(e, &s);
    CHECK(other.finish == LQ_LENGTH && s.running == 1 && s.waiting == 9 && !got[0].count,
          "%d run, %d wait, %d tokens of the one that goes by", s.running, s.waiting, other.count);
    lq_cancel(e, first);
    step(e);
    lq_engine_describe(e, &s);
    CHECK(s.running == 1 && s.waiting == 8, "the first is gone: %d run, %d wait", s.running, s.waiting);
    const uint64_t before = s.prompt_tokens;
    finish(e);
    lq_engine_describe(e, &s);
    CHECK(before > 400 && s.prompt_tokens < LONG + 20 + 10 * 40, "%d of %d tokens were computed twice",
          (int)s.prompt_tokens - LONG - 20, (int)before);
    for (int i = 1; i < 10; i++) CHECK(got[i].finish == LQ_LENGTH && got[i].count == 4, "request %d never ran", i);
    // Of another salt nothing is found, of the same one all; the first time what the one that was cancelled shared.
    static const int there[] = {LONG, LONG + 5, 0, LONG + 5};
    r = of_many(0);
    for (int i = 0; i < 4; i++) {
        memset(&got[0], 0, sizeof got[0]);
        r.salt = (uint64_t)i / 2 * 3;
        submit_to(e, &r, &got[0], NULL);
        finish(e);
        CHECK(got[0].cached == there[i], "salt %d: %d tokens found", (int)r.salt, got[0].cached);
    }
    lq_engine_close(e);
}

// Logits are of an empty cache, whatever stands in it, and take the place of what is kept.
static bool on_logits(void *arg, size_t position, const float *logits) {
    return memcpy((float *)arg + position * 260, logits, 260 * sizeof(float)) != NULL;
}

static void logits(lq_model *m) {
    static float rows[2][150 * 260];
    static answer a;
    lq_err err = {0};
    lq_engine_stats s;
    lq_model_info info;
    lq_model_describe(m, &info);
    for (int warm = 0; warm < 2; warm++) {
        lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 1, .kv_page = 16, .kv_bytes = info.kv_token_bytes * 160});
        lq_request r = of_many(0);
        r.prompt_len = 140;
        memset(&a, 0, sizeof a);
        for (int i = 0; warm && i < 2; i++) submit_to(e, &r, &a, NULL), finish(e);
        CHECK(lq_logits(e, texts[0], 150, 0, on_logits, rows[warm], &err), "%s", err.text);
        lq_engine_describe(e, &s);
        CHECK(s.prefix_hits == (warm ? 139u : 0u), "%d", (int)s.prefix_hits);
        finish(e);
        lq_engine_close(e);
    }
    CHECK(!memcmp(rows[0], rows[1], sizeof rows[0]), "logits behind what stands in the cache are others");
}

int main(void) {
    static const struct { const char *name, *arch, *more, *kv; } kinds[] = {
        {"full attention", "LlamaForCausalLM", "", NULL},
        {"a window in the second layer", "MistralForCausalLM",
         ",\"sliding_window\":33,\"layer_types\":[\"full_attention\",\"sliding_attention\"]", NULL},
        {"windows", "MistralForCausalLM", ",\"sliding_window\":40", NULL},
        {"int8", "LlamaForCausalLM", "", "int8"},
    };
    char dir[] = "/tmp/lq-test-mixes-XXXXXX", command[80];
    lq_err err = {0};
    if (!mkdtemp(dir)) return 1;
    make_pool();
    for (int i = 0; i < MANY; i++)
        for (int k = 0; k < LONG + 6; k++) texts[i][k] = k < LONG ? (k * 31 + k / 9) % 250 : draw(250);
    CHECK(tiny_model(dir, false, &err), "%s", err.text);
    for (int k = 0; k < (int)(sizeof kinds / sizeof *kinds); k++) {
        lq_model *m[3] = {0};
        bool open = tiny_config(dir, kinds[k].arch, false, kinds[k].more);
        for (int t = 0; t < 3 && open; t++)
            open = lq_model_open(dir, &(lq_model_opts){.threads = 1 + t, .kv = kinds[k].kv}, &m[t], &err);
        CHECK(open, "%s", err.text);
        if (open) mixes(m, 3, kinds[k].name);
        for (int t = 0; t < 3; t++) lq_model_close(m[t]);
        m[0] = NULL;
        CHECK(lengthen(dir) && lq_model_open(dir, &(lq_model_opts){.threads = 2, .kv = kinds[k].kv}, &m[0], &err), "%s",
              err.text);
        if (!m[0]) continue;
        hundred(m[0], false, kinds[k].name);
        hundred(m[0], true, kinds[k].name);
        awaits(m[0]);
        logits(m[0]);
        lq_model_close(m[0]);
    }
    snprintf(command, sizeof command, "rm -rf %s", dir);
    if (system(command)) return 1;
    return test_end();
}
