// test_engine.c: what the engine promises: a request's tokens and logprobs are the same bits alone, in any batch and
// for any chunk of its prefill; a step allocates nothing; whatever ends a request, every block comes back; stop
// strings, choices, preemption, limits.
#include "tests/unit/engine.h"
#include "tests/unit/tiny.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

// --- the allocation guard: while it is up, any allocation ends the program ---
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GUARDED 1
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);
static atomic_bool guard;
static void guarded(void) {
    if (!atomic_load(&guard)) return;
    static const char text[] = "test_engine: FAILED: an allocation during lq_engine_step\n";
    if (write(1, text, sizeof text - 1)) {}
    abort();
}

void *malloc(size_t n) { return guarded(), __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return guarded(), __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return guarded(), __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { return guarded(), __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { return guarded(), (*p = __libc_memalign(a, n)) ? 0 : 12; }
#else
static atomic_bool guard;
#endif

// --- a request and what came of it ---
typedef struct answer {
    int32_t tokens[256];
    float logprobs[256];
    char text[1024];
    int count, prompts, cached;
    size_t len;
    lq_finish finish;
    int cancel_at; // cancel when this many tokens, or tokens of the prompt, have come; 0: never
} answer;
static bool on_event(void *arg, const lq_event *e) {
    answer *a = (answer *)arg + e->choice;
    if (e->prompt) {
        a->prompts += e->count;
        return !a->cancel_at || a->prompts < a->cancel_at;
    }
    for (int i = 0; i < e->count; i++) {
        a->tokens[a->count] = e->tokens[i];
        a->logprobs[a->count++] = e->logprobs ? e->logprobs[i] : 0;
    }
    memcpy(a->text + a->len, e->text, e->text_len);
    a->text[a->len += e->text_len] = 0;
    a->finish = e->finish;
    a->cached = e->cached_tokens;
    return !a->cancel_at || a->count < a->cancel_at;
}

static int32_t prompt_ids[5][100];
static const int prompt_len[5] = {1, 5, 33, 70, 100};

static lq_request request(int which, answer *a) {
    return (lq_request){.prompt = prompt_ids[which], .prompt_len = (size_t)prompt_len[which], .max_tokens = 24,
                        .logprobs = true, .top_n = 3, .ignore_eos = true,
                        .sampling = {.temperature = which % 2 ? 0.9f : 0, .top_p = 0.95f, .top_k = 50, .seeded = true,
                                     .seed = 7 + (uint64_t)which},
                        .on_event = on_event, .arg = a};
}

static void step_all(lq_engine *e) {
    lq_err err = {0};
    bool busy = true;
    for (int i = 0; busy && i < 5000; i++) {
        atomic_store(&guard, true);
        const bool done = lq_engine_step(e, &busy, &err);
        atomic_store(&guard, false);
        CHECK(done, "%s", err.text);
    }
    CHECK(!busy, "the engine does not come to an end");
}

static void run_all(lq_engine *e) {
    step_all(e);
    check_empty(e);
}

static bool same(const answer *a, const answer *b) {
    return a->count == b->count && a->count > 0 && a->len == b->len &&
           !memcmp(a->tokens, b->tokens, (size_t)a->count * 4) &&
           !memcmp(a->logprobs, b->logprobs, (size_t)a->count * 4) && !memcmp(a->text, b->text, a->len);
}

// --- the tests ---
static void invariance(lq_model *m, const char *what) {
    static answer alone[5], batch[5];
    memset(alone, 0, sizeof alone);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 8, .max_batch = 256});
    for (int i = 0; i < 5; i++) {
        const lq_request r = request(i, &alone[i]);
        submit(e, &r);
        run_all(e);
        CHECK(alone[i].count == 24 && alone[i].finish == LQ_LENGTH, "%s: request %d gave %d tokens", what, i,
              alone[i].count);
    }
    lq_engine_close(e);
    static const int chunks[] = {256, 64, 8, 5};
    static const int pages[] = {32, 16, 64, 32};
    for (size_t c = 0; c < 4; c++) {
        memset(batch, 0, sizeof batch);
        e = engine(m, (lq_engine_opts){.max_seqs = 5, .max_batch = chunks[c], .kv_page = pages[c]});
        for (int i = 0; i < 5; i++) {
            const lq_request r = request(i, &batch[i]);
            submit(e, &r);
        }
        run_all(e);
        for (int i = 0; i < 5; i++)
            CHECK(same(&alone[i], &batch[i]), "%s: request %d differs in a batch of 5 with steps of %d tokens", what, i,
                  chunks[c]);
        lq_engine_close(e);
    }
    static const int alone_chunks[] = {1, 7, 64};
    for (size_t c = 0; c < 3; c++)
        for (int i = 0; i < 5; i++) {
            memset(batch, 0, sizeof batch);
            e = engine(m, (lq_engine_opts){.max_seqs = 1, .max_batch = alone_chunks[c]});
            const lq_request r = request(i, &batch[i]);
            submit(e, &r);
            run_all(e);
            CHECK(same(&alone[i], &batch[i]), "%s: request %d differs when its prefill is cut at %d", what, i,
                  alone_chunks[c]);
            lq_engine_close(e);
        }
}

// Held prompts wait where they were told to, those that are no longer do not, and nothing of a result changes.
static void holds(lq_model *m) {
    enum { AT = 40 };
    static answer alone[5], held[5];
    lq_engine_stats s;
    lq_err err = {0};
    memset(alone, 0, sizeof alone);
    memset(held, 0, sizeof held);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 5, .max_batch = 16});
    for (int i = 0; i < 5; i++) {
        const lq_request r = request(i, &alone[i]);
        submit(e, &r);
        run_all(e);
    }
    lq_engine_close(e);
    e = engine(m, (lq_engine_opts){.max_seqs = 5, .max_batch = 16});
    lq_engine_hold(e, AT);
    int fed = 0;
    for (int i = 0; i < 5; i++) {
        const lq_request r = request(i, &held[i]);
        submit(e, &r);
        fed += prompt_len[i] < AT ? prompt_len[i] : AT;
    }
    for (int i = 0; i < 100; i++) CHECK(lq_engine_step(e, NULL, &err), "%s", err.text);
    lq_engine_describe(e, &s);
    CHECK((int)s.prompt_tokens == fed && s.running == 2, "%d tokens of prompts were fed, not %d, %d sequences wait",
          (int)s.prompt_tokens, fed, s.running);
    for (int i = 0; i < 5; i++)
        CHECK(held[i].count == (prompt_len[i] > AT ? 0 : 24), "request %d made %d tokens while prompts were held", i,
              held[i].count);
    lq_engine_hold(e, 0);
    run_all(e);
    for (int i = 0; i < 5; i++) CHECK(same(&alone[i], &held[i]), "request %d differs after its prompt was held", i);
    lq_engine_close(e);
}

// Too few blocks for all: some wait, or are preempted (`must`: that happens) and recomputed, or put aside where so many
// blocks of the host's are enough for what they have; with the same result.
static void preemption(lq_model *m, bool must, size_t aside) {
    static answer alone[5], batch[5];
    memset(alone, 0, sizeof alone);
    memset(batch, 0, sizeof batch);
    lq_model_info info;
    lq_engine_stats s;
    lq_model_describe(m, &info);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 5});
    for (int i = 0; i < 5; i++) {
        lq_request r = request(i, &alone[i]);
        r.max_tokens = 120;
        submit(e, &r);
        run_all(e);
    }
    lq_engine_close(e);
    e = engine(m, (lq_engine_opts){.max_seqs = 5, .kv_page = 16, .kv_bytes = info.kv_token_bytes * 16 * 18,
                                   .swap_bytes = info.kv_token_bytes * 16 * aside});
    for (int i = 0; i < 5; i++) {
        lq_request r = request(i, &batch[i]);
        r.max_tokens = 120;
        submit(e, &r);
    }
    run_all(e);
    lq_engine_describe(e, &s);
    CHECK(s.prompt_tokens + s.prefix_hits == 1 + 5 + 33 + 70 + 100 && s.prefix_queries == 209,
          "%d prompt tokens were computed, %d of %d found", (int)s.prompt_tokens, (int)s.prefix_hits,
          (int)s.prefix_queries);
    CHECK(!must || s.preempted > 0, "nothing was preempted: the test does not test");
    CHECK(aside < 30 ? s.swapped <= s.preempted : s.swapped == s.preempted,
          "%d of %d preempted came back, of %zu blocks", (int)s.swapped, (int)s.preempted, aside);
    CHECK(!s.swap_used, "%d blocks are aside still", s.swap_used);
    for (int i = 0; i < 5; i++) CHECK(same(&alone[i], &batch[i]), "request %d differs after a preemption", i);
    lq_engine_close(e);
}

static void choices(lq_model *m) {
    static answer one[4], four[4];
    memset(one, 0, sizeof one);
    memset(four, 0, sizeof four);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 4});
    lq_request r = request(3, four);
    r.n = 4;
    submit(e, &r);
    run_all(e);
    r = request(3, one);
    submit(e, &r);
    run_all(e);
    CHECK(same(&one[0], &four[0]), "the first of 4 choices is not what n = 1 gives");
    for (int i = 1; i < 4; i++)
        CHECK(four[i].count == 24 && !same(&four[0], &four[i]), "choice %d is a copy of the first, or short (%d)", i,
              four[i].count);
    lq_engine_close(e);
}

// What blocks are for: four choices share the two blocks that their prompt of 70 tokens fills and have one each of what
// goes on from there; the prefix cache keeps them. Another thread looks all the time.
typedef struct watch { lq_engine *e; atomic_bool over; int looks, wrong; } watch;
static void *look_on(void *arg) {
    watch *w = arg;
    lq_block_map map;
    while (!atomic_load(&w->over)) {
        int all = 0;
        lq_engine_blocks(w->e, &map);
        for (int i = 0; i < LQ_BLOCK_USES; i++) all += map.count[i];
        w->wrong += all != map.blocks || map.cells != map.blocks || map.each != 1;
        w->looks++;
    }
    return NULL;
}

static bool look_within(void *arg, const lq_event *e) { // in a step, which moves nothing while this waits
    (void)e;
    lq_block_map map;
    lq_engine_blocks(arg, &map);
    return true;
}

static void uses(lq_model *m, bool keeps) {
    static answer a[4];
    memset(a, 0, sizeof a);
    lq_err err = {0};
    lq_block_map map;
    bool busy = true;
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 4, .no_prefix = !keeps});
    watch w = {.e = e};
    pthread_t other;
    CHECK(!pthread_create(&other, NULL, look_on, &w), "no thread");
    lq_engine_blocks(e, &map);
    CHECK(map.count[LQ_BLOCK_FREE] == map.blocks && map.page == 32 && !map.cell[0], "%d of %d blocks are free",
          map.count[LQ_BLOCK_FREE], map.blocks);
    lq_request r = request(3, a);
    r.n = 4;
    submit(e, &r);
    while (busy && a[0].count < 3) CHECK(lq_engine_step(e, &busy, &err), "%s", err.text);
    lq_engine_blocks(e, &map);
    int cells[LQ_BLOCK_USES] = {0};
    for (int i = 0; i < map.cells; i++) cells[map.cell[i]]++;
    CHECK(map.count[LQ_BLOCK_SHARED] == 2 && map.count[LQ_BLOCK_HELD] == 4 && !map.count[LQ_BLOCK_CACHED] &&
          !memcmp(cells, map.count, sizeof cells), "%d blocks are shared, %d held, %d cached",
          map.count[LQ_BLOCK_SHARED], map.count[LQ_BLOCK_HELD], map.count[LQ_BLOCK_CACHED]);
    run_all(e);
    lq_engine_blocks(e, &map);
    CHECK(keeps == (map.count[LQ_BLOCK_CACHED] > 2), "%d blocks are cached", map.count[LQ_BLOCK_CACHED]);
    const lq_request within = {.prompt = prompt_ids[3], .prompt_len = 70, .max_tokens = 3, .ignore_eos = true,
                               .on_event = look_within, .arg = e};
    submit(e, &within);
    run_all(e);
    atomic_store(&w.over, true);
    pthread_join(other, NULL);
    CHECK(w.looks && !w.wrong, "%d of %d looks found another number of blocks", w.wrong, w.looks);
    lq_engine_close(e);
}

static void stops(lq_model *m) {
    static answer whole, cut[1];
    lq_engine *e = engine(m, (lq_engine_opts){0});
    memset(&whole, 0, sizeof whole);
    lq_request r = request(2, &whole);
    submit(e, &r);
    run_all(e);
    // every stop string that occurs in the text, of 1 to 6 bytes, cuts it right before its first occurrence
    for (size_t n = 1; n <= 6; n++)
        for (size_t at = 0; at + n <= whole.len; at += 3) {
            char stop[8] = {0};
            memcpy(stop, whole.text + at, n);
            if (strlen(stop) != n) continue; // a token of byte 0
            const char *first = memmem(whole.text, whole.len, stop, n);
            memset(cut, 0, sizeof cut);
            r = request(2, cut);
            r.stop = (const char *const[]){"never in it \x01", stop};
            r.stops = 2;
            submit(e, &r);
            run_all(e);
            CHECK(cut->len == (size_t)(first - whole.text) && !memcmp(cut->text, whole.text, cut->len) &&
                  cut->finish == LQ_STOP,
                  "stop of %zu bytes at %zu: %zu bytes, finish %d", n, (size_t)(first - whole.text), cut->len,
                  cut->finish);
        }
    // an end token ends it, is counted and not printed; min_tokens keeps it away
    for (int min = 0; min <= 10; min += 10) {
        memset(cut, 0, sizeof cut);
        r = request(2, cut);
        r.stop_ids = &whole.tokens[4];
        r.stop_id_count = 1;
        r.min_tokens = min;
        submit(e, &r);
        run_all(e);
        if (!min) CHECK(cut->finish == LQ_STOP && cut->count <= 5 && cut->tokens[cut->count - 1] == whole.tokens[4],
                        "%d tokens, finish %d", cut->count, cut->finish);
        else CHECK(cut->count > 10 || cut->finish == LQ_LENGTH, "min_tokens 10 gave %d", cut->count);
    }
    lq_engine_close(e);
}

static void cancels(lq_model *m) {
    static answer a[40];
    memset(a, 0, sizeof a);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 6, .max_batch = 48});
    uint64_t id[40];
    lq_err err;
    for (int i = 0; i < 40; i++) {
        lq_request r = request(i % 5, &a[i]);
        a[i].cancel_at = i % 4 == 1 ? 1 + i % 7 : 0;
        CHECK(lq_submit(e, &r, &id[i], &err), "%s", err.text);
    }
    bool busy = true;
    for (int i = 0; i < 40 && busy; i++) {
        if (i % 4 == 2) lq_cancel(e, id[i]);
        CHECK(lq_engine_step(e, &busy, &err), "%s", err.text);
    }
    run_all(e);
    for (int i = 0; i < 40; i++) {
        CHECK(a[i].finish != LQ_RUNNING, "request %d never ended", i);
        if (i % 4 == 0 || i % 4 == 3)
            CHECK(a[i].finish == LQ_LENGTH && a[i].count == 24, "request %d: %d tokens, finish %d", i, a[i].count,
                  a[i].finish);
        if (i % 4 == 1) CHECK(a[i].finish == LQ_ABORTED && a[i].count == a[i].cancel_at,
                              "request %d: %d tokens, finish %d", i, a[i].count, a[i].finish);
    }
    for (int i = 0; i < 3; i++) { // closing with work open tells everybody
        memset(&a[i], 0, sizeof a[i]);
        lq_request r = request(i, &a[i]);
        submit(e, &r);
    }
    CHECK(lq_engine_step(e, &busy, &err), "%s", err.text);
    lq_engine_close(e);
    for (int i = 0; i < 3; i++) CHECK(a[i].finish == LQ_ABORTED, "request %d heard nothing of the close", i);
}

// The text of an answer is that of prompt and answer less the prompt's, also where the prompt ends inside a character.
static void texts(lq_model *m) {
    static answer a;
    static int32_t ids[2][130];
    lq_err err;
    lq_engine *e = engine(m, (lq_engine_opts){0});
    for (int i = 0; i < 5; i++) {
        const int n = prompt_len[i];
        char *text[2] = {NULL};
        size_t len[2];
        memset(&a, 0, sizeof a);
        memcpy(ids[0], prompt_ids[i], (size_t)n * 4);
        ids[0][n - 1] = 0xc3; // of "\u00e9" the first byte, which the answer's first token ends
        lq_request r = request(i, &a);
        r.prompt = ids[0];
        r.sampling.bias_id = (int32_t[]){0xa9};
        r.sampling.bias = (float[]){1000};
        r.sampling.biases = 1;
        r.max_tokens = 1 + i * 6;
        submit(e, &r);
        run_all(e);
        memcpy(ids[1], ids[0], (size_t)n * 4);
        memcpy(ids[1] + n, a.tokens, (size_t)a.count * 4);
        CHECK(lq_detokenize(m, ids[0], (size_t)n - 1, false, &text[0], &len[0], &err), "%s", err.text);
        CHECK(lq_detokenize(m, ids[1], (size_t)(n + a.count), false, &text[1], &len[1], &err), "%s", err.text);
        CHECK(a.len == len[1] - len[0] && !memcmp(a.text, text[1] + len[0], a.len) && !memcmp(a.text, "\xc3\xa9", 2),
              "prompt %d, then \"%s\"", i, a.text);
        lq_free(text[0]);
        lq_free(text[1]);
    }
    lq_engine_close(e);
}

static void prompts(lq_model *m) {
    static answer a;
    memset(&a, 0, sizeof a);
    lq_engine *e = engine(m, (lq_engine_opts){.max_batch = 16});
    lq_request r = request(3, &a);
    r.prompt_logprobs = true;
    submit(e, &r);
    run_all(e);
    CHECK(a.prompts == prompt_len[3], "%d of %d prompt tokens were told", a.prompts, prompt_len[3]);
    memset(&a, 0, sizeof a);
    r = request(0, &a);
    r.prompt_logprobs = true;
    submit(e, &r);
    run_all(e);
    CHECK(a.prompts == 1, "%d of 1 prompt token was told", a.prompts);
    lq_engine_close(e);
}

// A prompt that fills the context to its last token can still be scored; its logprobs are
// those of a request that goes on.
static void scores(lq_model *m) {
    static answer a;
    static int32_t ids[256];
    lq_engine *e = engine(m, (lq_engine_opts){.max_batch = 50});
    for (int i = 0; i < 256; i++) ids[i] = i;
    for (int n = 1; n <= 256; n += 85) {
        memset(&a, 0, sizeof a);
        lq_request r = {.prompt = ids, .prompt_len = (size_t)n, .prompt_logprobs = true, .score_only = true,
                        .on_event = on_event, .arg = &a};
        submit(e, &r);
        run_all(e);
        CHECK(a.prompts == n && a.count == 0 && a.finish == LQ_LENGTH,
              "%d of %d prompt tokens were told, %d sampled, finish %d", a.prompts, n, a.count, a.finish);
        for (int from = 0; from <= n; from += n > 1 ? n / 2 : 1) {
            memset(&a, 0, sizeof a);
            r.prompt_from = from;
            submit(e, &r);
            run_all(e);
            CHECK(a.prompts == n - from && a.finish == LQ_LENGTH, "%d prompt tokens from %d of %d were told", a.prompts,
                  from, n);
        }
        memset(&a, 0, sizeof a); // who wants no more in the last step has not come to the end
        a.cancel_at = n;
        r.prompt_from = 0;
        submit(e, &r);
        run_all(e);
        CHECK(a.prompts == n && a.finish == LQ_ABORTED, "%d of %d prompt tokens were told, finish %d", a.prompts, n,
              a.finish);
        lq_err err;
        r.prompt_from = n + 1;
        CHECK(!lq_submit(e, &r, NULL, &err) && err.code == LQ_E_USAGE, "logprobs from behind the prompt");
    }
    lq_engine_close(e);
}

// With room for one, the lowest number runs first, whoever came first.
static void priorities(lq_model *m) {
    static answer a[3];
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 1});
    lq_err err;
    bool busy = true;
    memset(a, 0, sizeof a);
    for (int i = 0; i < 3; i++) {
        lq_request r = request(i, &a[i]);
        r.priority = -i;
        submit(e, &r);
    }
    for (int i = 2; i >= 0; i--)
        while (busy && a[i].finish == LQ_RUNNING) {
            CHECK(lq_engine_step(e, &busy, &err), "%s", err.text);
            for (int k = 0; k < i; k++) CHECK(a[k].count == 0, "priority %d ran before %d was through", k, i);
        }
    run_all(e);
    lq_engine_close(e);
}

static void refusals(lq_model *m) {
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 2, .max_queue = 3}), *second;
    static answer a[6];
    lq_err err;
    CHECK(!lq_engine_open(m, NULL, &second, &err) && !second, "two engines on one model");
    lq_request r;
    const int32_t bad = 260;
#define REFUSED(change) r = request(1, a); change; err.text[0] = 0; CHECK(!lq_submit(e, &r, NULL, &err) && err.text[0], #change)
    REFUSED(r.prompt_len = 0);
    REFUSED(r.prompt = &bad; r.prompt_len = 1);
    REFUSED(r.n = 129);
    REFUSED(r.sampling.temperature = -1);
    REFUSED(r.sampling.temperature = NAN);
    REFUSED(r.sampling.top_p = 1.5f);
    REFUSED(r.top_n = LQ_TOP + 1);
    REFUSED(r.prompt = NULL);
    REFUSED(r.stops = -1);
    REFUSED(r.stop_id_count = -1);
    REFUSED(r.sampling.biases = -1);
    REFUSED(r.sampling.biases = 1);
    REFUSED(r.sampling.repetition = 1e-9f);
    REFUSED(r.stop = (const char *const[]){""}; r.stops = 1);
    REFUSED(r.sampling.bias_id = &bad; r.sampling.bias = &r.sampling.top_p; r.sampling.biases = 1);
    for (int i = 0; i < 5; i++) {
        r = request(i, &a[i]);
        submit(e, &r);
    }
    r = request(0, &a[5]);
    CHECK(!lq_submit(e, &r, NULL, &err) && err.code == LQ_E_BUSY, "the fourth of a queue of three, behind two places");
    r.beside = true;
    submit(e, &r);
    run_all(e);
    lq_engine_close(e);
}

// --- windows ---

static bool on_logits(void *arg, size_t position, const float *logits) {
    int32_t *best = (int32_t *)arg + position;
    *best = 0;
    for (int i = 1; i < 260; i++)
        if (logits[i] > logits[*best]) *best = i;
    return true;
}

// A group with a window has the blocks that windows can fill and a step can feed, not those of whole contexts; what it
// does not take, a group without one has.
static void window_bytes(lq_model *m, int window, bool all, const char *what) {
    lq_model_info info;
    lq_engine_stats s;
    lq_model_describe(m, &info);
    const int each = (window - 1 + 15) / 16 + 2, most = 2 * each + 1; // a sequence, one that is scored, 16 tokens
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 1, .max_batch = 16, .kv_page = 16,
                                              .kv_bytes = info.kv_token_bytes * 16 * 14});
    lq_engine_describe(e, &s);
    const bool kept = most + each <= 14; // there is room for what a sequence leaves, too
    CHECK(all ? s.kv_blocks == most + (kept ? each : 0) && s.ctx == info.ctx : s.kv_blocks == 14 + (14 - most),
          "%s: %d blocks, a context of %d", what, s.kv_blocks, s.ctx);
    static answer a;
    memset(&a, 0, sizeof a);
    lq_request r = request(4, &a);
    r.max_tokens = all ? 150 : 100;
    submit(e, &r);
    run_all(e);
    CHECK(a.count == r.max_tokens, "%s: %d tokens out of so few blocks", what, a.count);
    lq_engine_close(e);
}

// Blocks behind the window are given back while a sequence grows, and what is left gives the tokens that the whole
// sequence gives when it is read at once and keeps all its blocks. `all`: every layer has the window.
static void windows(lq_model *m, const int32_t *unbounded, int window, bool all, const char *what) {
    static answer a;
    static int32_t ids[256], best[256];
    lq_err err = {0};
    lq_engine_stats s;
    bool busy = true;
    int most = 0;
    memset(&a, 0, sizeof a);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 1, .max_batch = 64, .kv_page = 16});
    lq_request r = request(4, &a);
    r.max_tokens = 150;
    submit(e, &r);
    while (busy && a.finish == LQ_RUNNING) {
        CHECK(lq_engine_step(e, &busy, &err), "%s", err.text);
        lq_engine_describe(e, &s);
        if (a.count > 1 && s.kv_blocks - s.kv_free > most) most = s.kv_blocks - s.kv_free;
    }
    run_all(e);
    CHECK(a.count == 150 && memcmp(a.tokens, unbounded, sizeof ids[0] * 150) != 0, "%s: %d tokens, as without a window",
          what, a.count);
    // The window's tokens lie in one block more than they fill, the next token may begin another. (The
    // figure is of the first group.)
    CHECK(all ? most <= (window + 15) / 16 + 2 : most == (100 + 150 + 15) / 16 || most == (100 + 149 + 15) / 16,
          "%s: %d blocks at most", what, most);
    memcpy(ids, prompt_ids[4], 100 * sizeof *ids);
    memcpy(ids + 100, a.tokens, 150 * sizeof *ids);
    lq_engine_close(e);
    e = engine(m, (lq_engine_opts){.max_seqs = 1}); // in one step: nothing is left behind before the end
    CHECK(lq_logits(e, ids, 250, 99, on_logits, best, &err), "%s", err.text);
    CHECK(!memcmp(best + 99, a.tokens, 150 * sizeof *ids), "%s: the tokens are others than those of the whole sequence",
          what);
    lq_engine_close(e);
    window_bytes(m, window, all, what);
}

// A conversation: each prompt goes on from the answer before it or from a part of that, or has nothing to do with it.
// What stands in the cache already, as the longest beginning that it shares with any sequence before, is not read
// again, and the answers are those of an engine without a prefix cache. In windows too: these prompts depart from where
// one before ended, or its answer.
enum { TURNS = 8 };
static void conversation(lq_model *m, const char *what) {
    static const struct { int prompt, answer, more; } turns[TURNS] = { // tokens of those before, and others
        {0, 0, 70}, {70, 24, 9}, {103, 20, 30}, {103, 0, 5}, {0, 0, 40}, {40, 0, 0}, {40, 24, 100}, {164, 23, 1},
    };
    static answer fresh[TURNS], kept[TURNS];
    static int32_t ids[TURNS][400];
    lq_model_info info;
    int n[TURNS];
    memset(fresh, 0, sizeof fresh);
    memset(kept, 0, sizeof kept);
    lq_model_describe(m, &info);
    for (int keep = 0; keep < 2; keep++) {
        lq_engine_stats s = {0};
        uint64_t hits = 0;
        lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 1, .kv_page = 16, .no_prefix = !keep,
                                                  .kv_bytes = info.kv_token_bytes * 16 * 100});
        for (int t = 0; t < TURNS; t++) {
            answer *a = keep ? &kept[t] : &fresh[t];
            const int from = turns[t].prompt + turns[t].answer;
            int cached = 0;
            n[t] = from + turns[t].more;
            if (t) memcpy(ids[t], ids[t - 1], (size_t)turns[t].prompt * sizeof **ids);
            if (t) memcpy(ids[t] + turns[t].prompt, fresh[t - 1].tokens, (size_t)turns[t].answer * sizeof **ids);
            for (int i = from; i < n[t]; i++) ids[t][i] = (i * 31 + t * 7 + 5) % 250;
            lq_request r = request(1, a);
            r.prompt = ids[t];
            r.prompt_len = (size_t)n[t];
            r.prompt_logprobs = t == 6;
            submit(e, &r);
            run_all(e);
            memcpy(ids[t] + n[t], a->tokens, 23 * sizeof **ids);
            for (int b = 0, k; keep && b < t && t != 6; b++) {
                for (k = 0; k < n[t] - 1 && k < n[b] + 23 && ids[b][k] == ids[t][k];) k++;
                cached = k > cached ? k : cached;
            }
            hits += (uint64_t)cached;
            CHECK(a->cached == cached, "%s: turn %d: %d tokens were there, not %d", what, t, a->cached, cached);
        }
        lq_engine_describe(e, &s);
        CHECK(s.prefix_hits == hits && (s.kv_cached > 0) == keep, "%s: %d hits, not %d; %d blocks are kept", what,
              (int)s.prefix_hits, (int)hits, s.kv_cached);
        lq_engine_close(e);
    }
    for (int t = 0; t < TURNS; t++)
        CHECK(same(&fresh[t], &kept[t]) && fresh[t].prompts == kept[t].prompts, "%s: turn %d: another answer", what, t);
}

static void windowed(const char *dir) {
    static const struct { const char *name, *more; int window; bool all; } kinds[] = {
        {"a window of 40", ",\"sliding_window\":40", 40, true}, {"a window of 1", ",\"sliding_window\":1", 1, true},
        {"a window in the second layer",
         ",\"sliding_window\":33,\"layer_types\":[\"full_attention\",\"sliding_attention\"]", 33, false},
    };
    static answer plain;
    lq_err err = {0};
    for (int i = -1; i < (int)(sizeof kinds / sizeof *kinds); i++) {
        lq_model *m = NULL;
        CHECK(tiny_config(dir, "MistralForCausalLM", false, i < 0 ? ",\"sliding_window\":null" : kinds[i].more),
              "%s: config.json", dir);
        CHECK(lq_model_open(dir, &(lq_model_opts){.threads = 2}, &m, &err), "%s", err.text);
        if (!m) return;
        if (i < 0) {
            lq_engine *e = engine(m, (lq_engine_opts){0});
            lq_request r = request(4, &plain);
            r.max_tokens = 150;
            submit(e, &r);
            run_all(e);
            lq_engine_close(e);
        } else {
            windows(m, plain.tokens, kinds[i].window, kinds[i].all, kinds[i].name);
            invariance(m, kinds[i].name);
            for (size_t aside = 0; aside <= 40; aside += 10) preemption(m, !kinds[i].all, aside);
            choices(m);
            conversation(m, kinds[i].name);
        }
        lq_model_close(m);
    }
}

// What the public API says of tokens: bytes are ids 0 to 255, <s> is 256, </s> 257, and nothing is put around a text.
static void tokens(const lq_model *m) {
    static const char text[] = "a<s>\xc3\xa9";
    const int32_t plain[] = {'a', '<', 's', '>', 0xc3, 0xa9}, parsed[] = {'a', 256, 0xc3, 0xa9};
    lq_err err = {0};
    char byte[2] = {0}, *back = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    CHECK(lq_tokenize(m, text, 6, LQ_TOK_SPECIAL, &ids, &n, &err), "%s", err.text);
    CHECK(n == 6 && !memcmp(ids, plain, sizeof plain), "text");
    lq_free(ids);
    CHECK(lq_tokenize(m, text, 6, LQ_TOK_PARSE, &ids, &n, &err), "%s", err.text);
    CHECK(n == 4 && !memcmp(ids, parsed, sizeof parsed), "parsed");
    lq_free(ids);
    CHECK(lq_detokenize(m, parsed, 4, true, &back, &n, &err) && n == 6 && !strcmp(back, text), "shown");
    lq_free(back);
    CHECK(lq_detokenize(m, parsed, 4, false, &back, &n, &err) && !strcmp(back, "a\xc3\xa9"), "hidden");
    lq_free(back);
    const int32_t strange = 260;
    CHECK(!lq_detokenize(m, &strange, 1, true, &back, &n, &err) && strstr(err.text, "260"), "%s", err.text);
    CHECK(lq_token_bytes(m, 0xc3, byte, 1) == 1 && byte[0] == '\xc3' && lq_token_bytes(m, 260, byte, 1) == 0, "bytes");
    CHECK(lq_token_bytes(m, 256, byte, 1) == 3 && byte[0] == '<' && byte[1] == 0, "what does not fit is cut");
    CHECK(lq_token_id(m, "</s>", 4) == 257 && lq_token_id(m, "</s>", 3) == -1, "by content");
    CHECK(lq_token_bos(m) == -1 && lq_token_is_end(m, 257) && !lq_token_is_end(m, 256), "ends");
}

// What the config names, what tokenizer_config.json does, what is called so.
static void ends(const char *dir) {
    char path[200];
    lq_model *m = NULL;
    lq_err err = {0};
    CHECK(tiny_text(dir, "tokenizer_config.json", "{\"eos_token\":{\"content\":\"<s>\"},"
                    "\"added_tokens_decoder\":{\"258\":{\"content\":\"<|im_end|>\"},\"259\":{\"content\":\"<|im|>\"}}}"), "a file");
    if (lq_model_open(dir, NULL, &m, &err)) {
        for (int32_t id = 0; id < 260; id++)
            CHECK(lq_token_is_end(m, id) == (id >= 256 && id < 259), "token %d and the end", (int)id);
        lq_model_close(m);
    } else CHECK(false, "%s", err.text);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    CHECK(!remove(path), "%s", path);
}

int main(void) {
    char dir[] = "/tmp/lq-test-engine-XXXXXX", quantized[80], path[200];
    lq_err err = {0};
    lq_model *m = NULL;
    if (!mkdtemp(dir)) return 1;
    uint64_t seed = 42;
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < prompt_len[i]; k++)
            prompt_ids[i][k] = k ? (int32_t)((seed = seed * 6364136223846793005u + 1) >> 40) % 250 : 256;
    CHECK(tiny_model(dir, false, &err), "%s", err.text);
    CHECK(lq_model_open(dir, &(lq_model_opts){.threads = 2}, &m, &err), "%s", err.text);
    if (!m) return test_end();
#ifndef GUARDED
    SKIP("the allocation guard: a sanitizer owns malloc");
#endif
    tokens(m);
    invariance(m, "bf16");
    holds(m);
    for (size_t aside = 0; aside <= 40; aside += 10) preemption(m, true, aside);
    choices(m);
    uses(m, true);
    uses(m, false);
    stops(m);
    cancels(m);
    texts(m);
    prompts(m);
    scores(m);
    priorities(m);
    refusals(m);
    conversation(m, "bf16");
    lq_model_close(m);
    CHECK(tiny_quantize(dir, "int4 g32", quantized, sizeof quantized, &err), "%s", err.text);
    if (lq_model_open(quantized, &(lq_model_opts){.threads = 2}, &m, &err)) {
        invariance(m, "int4");
        lq_model_close(m);
    } else CHECK(false, "%s", err.text);
    if (lq_model_open(quantized, &(lq_model_opts){.threads = 2, .exact = true}, &m, &err)) {
        invariance(m, "int4 exact");
        lq_model_close(m);
    } else CHECK(false, "%s", err.text);
    static const char *const caches[] = {"int8", "fp8"};
    for (int i = 0; i < 2; i++) {
        if (lq_model_open(quantized, &(lq_model_opts){.threads = 2, .kv = caches[i]}, &m, &err)) {
            invariance(m, caches[i]);
            for (size_t aside = 0; aside <= 40; aside += 10) preemption(m, true, aside);
            choices(m);
            lq_model_close(m);
        } else CHECK(false, "%s", err.text);
    }
    ends(dir);
    windowed(dir);
    CHECK(tiny_model_of(dir, "MixtralForCausalLM", false, tiny_experts, &err), "%s", err.text);
    if (lq_model_open(dir, &(lq_model_opts){.threads = 2}, &m, &err)) {
        invariance(m, "experts");
        lq_model_close(m);
    } else CHECK(false, "%s", err.text);
    snprintf(path, sizeof path, "rm -rf %s %s.lq %s.lq.report.json", dir, dir, dir);
    if (system(path)) return 1;
    return test_end();
}
