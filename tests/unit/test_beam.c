// test_beam.c: beam search against the same search written down plainly: every beginning asked for by itself, in an
// engine that remembers nothing. Alone, in company, with pools that are too small; whatever ends it, every block comes
// back.
#include "tests/unit/engine.h"
#include "tests/unit/tiny.h"
#include <math.h>
#include <unistd.h>

enum { MOST = 12, WIDE = 32, PROMPT = 40 };

typedef struct answer { // of one choice
    int32_t tokens[MOST], tops[MOST][2];
    float logprobs[MOST];
    int count, prompts, top_n;
    uint64_t id;
    lq_finish finish;
} answer;

static bool on_event(void *arg, const lq_event *e) {
    answer *a = (answer *)arg + e->choice;
    a->id = e->id;
    a->prompts += e->prompt ? e->count : 0;
    for (int i = 0; i < e->count && !e->prompt; i++) {
        a->top_n = e->top_n;
        for (int k = 0; k < e->top_n; k++) a->tops[a->count][k] = e->top[i * e->top_n + k].id;
        a->tokens[a->count] = e->tokens[i];
        a->logprobs[a->count++] = e->logprobs[i];
    }
    a->finish = e->finish;
    return true;
}

// --- the plain search ---

typedef struct text { int32_t ids[PROMPT + MOST]; float logprobs[MOST]; int n; double sum, worth; } text;
typedef struct likely { lq_top top[WIDE]; int n; } likely;

static bool on_likely(void *arg, const lq_event *e) {
    likely *l = arg;
    if (e->count) l->n = e->top_n, memcpy(l->top, e->top, (size_t)e->top_n * sizeof *l->top);
    return true;
}

static bool ends(const lq_request *r, int32_t id) {
    for (int i = 0; i < r->stop_id_count; i++)
        if (r->stop_ids[i] == id) return true;
    return false;
}

static int by_sum(const void *a, const void *b) {
    const double x = ((const text *)a)->sum, y = ((const text *)b)->sum;
    return x > y ? -1 : x < y;
}

static int by_worth(const void *a, const void *b) {
    const double x = ((const text *)a)->worth, y = ((const text *)b)->worth;
    return x > y ? -1 : x < y;
}

// Goes to the end whatever was found on the way. Returns how many answers there are, best first.
static int plain(lq_engine *e, const lq_request *r, text *out) {
    static text live[16], next[16 * WIDE];
    const double penalty = r->length_penalty == 0 ? 1 : (double)r->length_penalty;
    int lives = 1, done = 0;
    live[0] = (text){.n = 0};
    memcpy(live[0].ids, r->prompt, r->prompt_len * sizeof *r->prompt);
    for (int step = 1; step <= r->max_tokens; step++) {
        int nexts = 0, kept = 0;
        for (int i = 0; i < lives; i++) {
            likely l = {.n = 0};
            const lq_request one = {.prompt = live[i].ids, .prompt_len = r->prompt_len + (size_t)live[i].n,
                                    .max_tokens = 1, .logprobs = true, .top_n = WIDE, .ignore_eos = true,
                                    .on_event = on_likely, .arg = &l};
            lq_err err = {0};
            CHECK(lq_generate(e, &one, &err), "%s", err.text);
            for (int k = 0; k < l.n; k++) {
                text *t = &next[nexts++];
                *t = live[i];
                t->ids[r->prompt_len + (size_t)t->n] = l.top[k].id;
                t->logprobs[t->n++] = l.top[k].logprob;
                t->sum += (double)l.top[k].logprob;
                t->worth = t->sum / pow(t->n, penalty);
            }
        }
        qsort(next, (size_t)nexts, sizeof *next, by_sum);
        for (int i = 0; i < nexts && kept < r->beams; i++) {
            if (!ends(r, next[i].ids[r->prompt_len + (size_t)next[i].n - 1])) live[kept++] = next[i];
            else if (i < r->beams) out[done++] = next[i];
        }
        lives = kept;
    }
    for (int i = 0; i < lives; i++) out[done++] = live[i];
    qsort(out, (size_t)done, sizeof *out, by_worth);
    return done;
}

// --- the tests ---

static int32_t prompts[4][PROMPT];
static int32_t stops[3]; // tokens that answers like

static lq_request search(int which, int beams, int n, float penalty, answer *a) {
    return (lq_request){.prompt = prompts[which], .prompt_len = (size_t)(5 + 11 * which), .max_tokens = MOST, .n = n,
                        .beams = beams, .length_penalty = penalty, .ignore_eos = true, .stop_ids = stops,
                        .stop_id_count = which, .logprobs = true, .top_n = 2, .on_event = on_event, .arg = a};
}

static void run(lq_engine *e) {
    bool busy = true;
    lq_err err = {0};
    for (int i = 0; busy && i < 20000; i++) CHECK(lq_engine_step(e, &busy, &err), "%s", err.text);
    check_empty(e);
}

static const struct { int beams, n; float penalty; } kinds[] = {
    {1, 1, 1}, {2, 2, 1}, {4, 1, 2}, {4, 4, 0.001f}, {8, 3, -1}, {16, 16, 1}};
enum { KINDS = sizeof kinds / sizeof *kinds };
static text plainly[4][KINDS][16 * (MOST + 1)];
static int wants[4][KINDS];

static void same(const answer *a, int which, int kind, const char *how) {
    for (int c = 0; c < kinds[kind].n; c++) {
        const text *t = &plainly[which][kind][c];
        const size_t prompt = (size_t)(5 + 11 * which);
        CHECK(c < wants[which][kind] && a[c].count == t->n && !memcmp(a[c].tokens, t->ids + prompt, (size_t)t->n * 4) &&
                  !memcmp(a[c].logprobs, t->logprobs, (size_t)t->n * 4) && a[c].top_n == 2,
              "%s: prompt %d, %d beams, choice %d: %d tokens, %d in the plain search", how, which, kinds[kind].beams, c,
              a[c].count, t->n);
        CHECK(a[c].finish == (t->n < MOST || ends(&(lq_request){.stop_ids = stops, .stop_id_count = which},
                                                  t->ids[prompt + (size_t)t->n - 1]) ? LQ_STOP : LQ_LENGTH),
              "%s: finish %d", how, a[c].finish);
    }
}

// All at once, with drawn ones among them.
static void together(lq_model *m, const char *how, lq_engine_opts o) {
    static answer a[4][KINDS][16], others[6];
    memset(a, 0, sizeof a);
    memset(others, 0, sizeof others);
    lq_engine *e = engine(m, o);
    for (int w = 0; w < 4; w++)
        for (int k = 0; k < KINDS; k++) {
            const lq_request r = search(w, kinds[k].beams, kinds[k].n, kinds[k].penalty, a[w][k]);
            submit(e, &r);
        }
    for (int i = 0; i < 6; i++) {
        lq_request r = search(i % 4, 0, 1, 0, &others[i]);
        r.sampling.temperature = 1;
        submit(e, &r);
    }
    run(e);
    for (int w = 0; w < 4; w++)
        for (int k = 0; k < KINDS; k++) same(a[w][k], w, k, how);
    lq_engine_close(e);
}

static void cuts(lq_model *m) {
    static answer a[3][16];
    memset(a, 0, sizeof a);
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 8});
    uint64_t id = 0;
    lq_err err = {0};
    bool busy;
    for (int steps = 0; steps < 6; steps++) {
        memset(a, 0, sizeof a);
        const lq_request r = search(0, 6, 3, 1, a[0]);
        CHECK(lq_submit(e, &r, &id, &err), "%s", err.text);
        for (int i = 0; i < steps; i++) CHECK(lq_engine_step(e, &busy, &err), "%s", err.text);
        lq_cancel(e, id);
        run(e);
        for (int c = 0; c < 3; c++)
            CHECK(a[0][c].finish == LQ_ABORTED && !a[0][c].count, "cancelled after %d steps: %d", steps,
                  a[0][c].finish);
        CHECK(a[0]->id == id, "an event of %llu", (unsigned long long)a[0]->id);
    }
    lq_request r = search(1, 4, 2, 1, a[1]);
    r.deadline_ms = 1;
    submit(e, &r);
    usleep(3000);
    run(e);
    CHECK(a[1][0].finish == LQ_LATE, "a deadline: %d", a[1][0].finish);
    r = search(1, 4, 2, 1, a[2]);
    r.prompt_logprobs = true;
    submit(e, &r);
    CHECK(lq_engine_step(e, &busy, &err) && lq_engine_step(e, &busy, &err), "%s", err.text);
    CHECK(a[2][0].prompts == 16, "%d prompt tokens were told", a[2][0].prompts);
    lq_engine_close(e);
    CHECK(a[2][0].finish == LQ_ABORTED && a[2][1].finish == LQ_ABORTED, "the close was not told");
}

static void refusals(lq_model *m) {
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 4});
    answer a[16];
    lq_err err = {0};
    const char *stop = "x";
    lq_request r = search(0, 17, 1, 1, a);
    CHECK(!lq_submit(e, &r, NULL, &err) && err.code == LQ_E_USAGE, "17 beams");
    r = search(0, 2, 3, 1, a);
    CHECK(!lq_submit(e, &r, NULL, &err) && err.code == LQ_E_USAGE, "3 of 2 beams");
    r = search(0, 2, 1, 1, a);
    r.stop = &stop, r.stops = 1;
    CHECK(!lq_submit(e, &r, NULL, &err) && err.code == LQ_E_USAGE, "a stop string");
    r = search(0, 2, 1, NAN, a);
    CHECK(!lq_submit(e, &r, NULL, &err) && err.code == LQ_E_USAGE, "no number");
    lq_engine_close(e);
}

int main(void) {
    char dir[] = "/tmp/lq-test-beam-XXXXXX", path[200];
    lq_err err = {0};
    lq_model *m = NULL;
    if (!mkdtemp(dir)) return 1;
    uint64_t seed = 42;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < PROMPT; k++)
            prompts[i][k] = k ? (int32_t)((seed = seed * 6364136223846793005u + 1) >> 40) % 250 : 256;
    CHECK(tiny_model(dir, false, &err), "%s", err.text);
    CHECK(lq_model_open(dir, &(lq_model_opts){.threads = 1}, &m, &err), "%s", err.text);
    if (!m) return test_end();
    lq_engine *e = engine(m, (lq_engine_opts){.max_seqs = 4, .no_prefix = true});
    answer first[4] = {{.count = 0}};
    lq_request r = search(1, 4, 4, 1, first);
    r.stop_id_count = 0;
    CHECK(lq_generate(e, &r, &err), "%s", err.text);
    stops[0] = first[0].tokens[4], stops[1] = first[1].tokens[7], stops[2] = first[3].tokens[2];
    int early = 0;
    for (int w = 0; w < 4; w++)
        for (int k = 0; k < KINDS; k++) {
            r = search(w, kinds[k].beams, kinds[k].n, kinds[k].penalty, NULL);
            wants[w][k] = plain(e, &r, plainly[w][k]);
            for (int c = 0; c < kinds[k].n; c++) early += plainly[w][k][c].n < MOST;
        }
    CHECK(early > 10, "%d answers have an end", early);
    lq_engine_close(e);
    together(m, "at once", (lq_engine_opts){.max_seqs = 64});
    together(m, "few places", (lq_engine_opts){.max_seqs = 5, .kv_page = 16});
    const size_t bytes = 20 * 16 * lq_kv_token_bytes(m, -1);
    together(m, "few blocks", (lq_engine_opts){.max_seqs = 24, .kv_page = 16, .kv_bytes = bytes});
    together(m, "no prefix cache", (lq_engine_opts){.max_seqs = 16, .max_batch = 40, .no_prefix = true});
    cuts(m);
    refusals(m);
    lq_model_close(m);
    snprintf(path, sizeof path, "rm -rf %s", dir);
    if (system(path)) return 1;
    return test_end();
}
