// test_schedule.c: who runs: a short prompt beside a long one, choices without a place, requests that go by one that
// waits for blocks, who has waited long. Whoever runs when, a request's tokens are the same.
#include "tests/unit/engine.h"
#include "tests/unit/tiny.h"
#include <unistd.h>

enum { MOST = 260 };

typedef struct answer { // of one choice
    int32_t tokens[MOST];
    float logprobs[MOST];
    int count;
    bool ended;
} answer;

static bool on_event(void *arg, const lq_event *e) {
    answer *a = (answer *)arg + e->choice;
    for (int i = 0; i < e->count; i++) {
        a->tokens[a->count] = e->tokens[i];
        a->logprobs[a->count++] = e->logprobs[i];
    }
    a->ended = e->finish != LQ_RUNNING;
    return true;
}

static int32_t prompt[MOST];

static lq_request request(int from, int len, int tokens, answer *a) {
    return (lq_request){.prompt = prompt + from, .prompt_len = (size_t)len, .max_tokens = tokens, .ignore_eos = true,
                        .logprobs = true, .sampling = {.temperature = 0.8f, .seeded = true, .seed = 5},
                        .on_event = on_event, .arg = a};
}

static bool step(lq_engine *e) {
    lq_err err = {0};
    bool busy = false;
    CHECK(lq_engine_step(e, &busy, &err), "%s", err.text);
    return busy;
}

static void close_empty(lq_engine *e) {
    for (int i = 0; step(e) && i < 20000; i++) {}
    check_empty(e);
    lq_engine_close(e);
}

static bool same(const answer *a, const answer *b) {
    return a->ended && b->ended && a->count == b->count && a->count > 0 &&
           !memcmp(a->tokens, b->tokens, (size_t)a->count * sizeof *a->tokens) &&
           !memcmp(a->logprobs, b->logprobs, (size_t)a->count * sizeof *a->logprobs);
}

// --- the tests ---

// Beside two long prompts a short one is through in its first step; the first of the long ones is not slower for the
// second.
static void shares(lq_model *m) {
    static answer a[3];
    int steps = 0, first = 0;
    memset(a, 0, sizeof a);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 4, .max_batch = 32});
    for (int i = 0; i < 2; i++) {
        const lq_request r = request(i, 250, 2, &a[i]);
        submit(e, &r);
    }
    for (; steps < 3; steps++) step(e);
    const lq_request r = request(0, 7, 1, &a[2]);
    submit(e, &r);
    step(e), steps++;
    CHECK(a[2].ended, "a short prompt waits for long ones");
    for (; !a[0].count; steps++) step(e);
    first = steps;
    for (; !a[1].count; steps++) step(e);
    CHECK(first <= 250 / 32 + 2 && steps >= 500 / 32, "the long prompts took %d and %d steps", first, steps);
    close_empty(e);
}

// Of prompts no more than so many tokens a step, however few others there are.
static void prefills(lq_model *m) {
    static answer a;
    int steps = 0;
    memset(&a, 0, sizeof a);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 4, .max_batch = 64, .max_prefill = 10});
    const lq_request r = request(0, 95, 1, &a);
    submit(e, &r);
    for (; !a.count && steps < 99; steps++) step(e);
    CHECK(steps == 10, "95 tokens, 10 a step, took %d steps", steps);
    close_empty(e);
}

// Where nothing else is said a long prompt does not hold up who decodes for more than 128 tokens; alone it has all.
static void beside(lq_model *m) {
    static answer stream, alone, late;
    int steps = 0;
    memset(&stream, 0, sizeof stream);
    memset(&alone, 0, sizeof alone);
    memset(&late, 0, sizeof late);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 4, .max_batch = 256});
    lq_request r = request(0, 250, 1, &alone);
    submit(e, &r);
    for (; !alone.count && steps < 99; steps++) step(e);
    CHECK(steps == 1, "250 tokens alone took %d steps", steps);
    r = request(1, 3, 50, &stream);
    submit(e, &r);
    step(e);
    r = request(2, 250, 1, &late);
    submit(e, &r);
    for (steps = 0; !late.count && steps < 99; steps++) step(e);
    CHECK(steps == 2 && stream.count == 3, "250 tokens beside one that decodes took %d steps, %d of its tokens", steps,
          (int)stream.count);
    close_empty(e);
}

// More choices than places: they are drawn one after another, and are what they would be side by side. Others have
// their turn meanwhile.
static void choices(lq_model *m) {
    static answer wide[8], tight[8], other;
    int ended = 0;
    memset(wide, 0, sizeof wide);
    memset(tight, 0, sizeof tight);
    memset(&other, 0, sizeof other);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 8});
    lq_request r = request(3, 40, 20, wide);
    r.n = 8;
    submit(e, &r);
    close_empty(e);
    e = engine(m, (lq_engine_opts){.max_seqs = 2});
    r.arg = tight;
    submit(e, &r);
    step(e);
    r = request(0, 9, 3, &other);
    submit(e, &r);
    while (!other.ended) step(e);
    for (int i = 0; i < 8; i++) ended += tight[i].ended;
    CHECK(ended < 6, "another request waited for %d of 8 choices", ended);
    close_empty(e);
    for (int i = 0; i < 8; i++) CHECK(same(&wide[i], &tight[i]), "choice %d differs where it had to wait", i);
}

// A request that has not the blocks it needs lets smaller ones by, but not without end.
static void passes(lq_model *m) {
    static answer runs, waits, small[100];
    lq_model_info info;
    memset(&runs, 0, sizeof runs);
    memset(&waits, 0, sizeof waits);
    memset(small, 0, sizeof small);
    lq_model_describe(m, &info);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 8, .kv_page = 16,
                                              .kv_bytes = info.kv_token_bytes * 16 * 20});
    lq_request r = request(0, 150, 90, &runs);
    submit(e, &r);
    step(e);
    r = request(1, 200, 2, &waits);
    submit(e, &r);
    for (int i = 0; i < 100; i++) {
        r = request(2, 5, 1, &small[i]);
        submit(e, &r);
    }
    int ended = 0, before = -1;
    while (!waits.count && !runs.ended) {
        step(e);
        before = ended, ended = 0;
        for (int i = 0; i < 100; i++) ended += small[i].ended;
    }
    CHECK(before == 64 && runs.ended && !waits.count, "%d requests went by one that waits, which had %d tokens", before,
          waits.count);
    close_empty(e);
    CHECK(waits.ended && small[99].ended, "somebody never ran");
}

// One client's many requests and another's: they take turns, whoever came first.
static void turns(lq_model *m) {
    static answer many[40], one[2];
    int ended = 0;
    memset(many, 0, sizeof many);
    memset(one, 0, sizeof one);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 2});
    for (int i = 0; i < 40; i++) {
        lq_request r = request(i, 5, 4, &many[i]);
        r.client = 7, r.beside = i > 0;
        submit(e, &r);
    }
    for (int i = 0; i < 6; i++) step(e);
    for (int i = 0; i < 2; i++) {
        lq_request r = request(i, 5, 4, &one[i]);
        r.client = 8;
        submit(e, &r);
    }
    while (!one[1].ended) step(e);
    for (int i = 0; i < 40; i++) ended += many[i].ended;
    CHECK(ended > 2 && ended < 10, "two requests ended behind %d of another client's", ended);
    close_empty(e);
}

// With a place for one and others of a better priority coming all the time, who has waited long runs.
static void ages(lq_model *m) {
    static answer low, high[400];
    int at = 0;
    memset(&low, 0, sizeof low);
    memset(high, 0, sizeof high);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 1, .age_ms = 150});
    lq_request r = request(0, 5, 1, &low);
    submit(e, &r);
    for (; at < 400 && (!at || !low.ended); at++) {
        r = request(0, 5, 3, &high[at]);
        r.priority = -7;
        submit(e, &r);
        if (at < 2) continue;
        step(e);
        usleep(2000);
    }
    CHECK(low.ended && at > 20, "one of the last priority %s", low.ended ? "did not wait" : "never ran");
    close_empty(e);
}

int main(void) {
    char dir[] = "/tmp/lq-test-schedule-XXXXXX", command[80];
    lq_err err = {0};
    lq_model *m = NULL;
    uint64_t seed = 42;
    if (!mkdtemp(dir)) return 1;
    for (int i = 0; i < MOST; i++) prompt[i] = (int32_t)((seed = seed * 6364136223846793005u + 1) >> 40) % 250;
    CHECK(tiny_model(dir, false, &err) && lq_model_open(dir, &(lq_model_opts){.threads = 2}, &m, &err), "%s", err.text);
    if (!m) return test_end();
    shares(m);
    prefills(m);
    beside(m);
    choices(m);
    passes(m);
    turns(m);
    ages(m);
    lq_model_close(m);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    if (system(command)) return 1;
    return test_end();
}
