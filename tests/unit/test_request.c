// test_request.c: what a request says reaches the sampler: each number of lq_sampling and of lq_request that is about
// drawing is set alone and seen in what the engine draws with; no number of lq_sampling is left without a row here.
#include "runtime/engine/request.h"
#include "tests/unit/test.h"
#include "tests/unit/tiny.h"

enum { FLOAT, INT, WORD }; // WORD: 64 bits
#define SAMPLING(name, kind, value) {#name, kind, offsetof(lq_request, sampling.name), offsetof(lq_draw, name), value}
static const struct row { const char *name; int kind; size_t from, to; double value; } rows[] = {
    SAMPLING(temperature, FLOAT, 0.75), SAMPLING(top_p, FLOAT, 0.5), SAMPLING(min_p, FLOAT, 0.125),
        SAMPLING(typical, FLOAT, 0.25),
    SAMPLING(top_k, INT, 11), SAMPLING(repetition, FLOAT, 1.5), SAMPLING(presence, FLOAT, -3.5),
    SAMPLING(frequency, FLOAT, 2.25),
    SAMPLING(seed, WORD, 123456789), SAMPLING(biases, INT, 2),
    {"top_n", INT, offsetof(lq_request, top_n), offsetof(lq_draw, top_n), 7},
};
enum { ROWS = sizeof rows / sizeof *rows };
static const size_t sizes[] = {sizeof(float), sizeof(int), sizeof(uint64_t)};

static void put(void *base, const struct row *r, size_t at) {
    const float f = (float)r->value;
    const int i = (int)r->value;
    const uint64_t w = (uint64_t)r->value;
    const void *const from[] = {&f, &i, &w};
    memcpy((char *)base + at, from[r->kind], sizes[r->kind]);
}

static const int32_t prompt[] = {256, 'a', 'b', 'a', 300 % 256};
static const int32_t bias_id[] = {5, 9};
static const float bias[] = {1.5f, -2.5f};

static lq_request plain(void) {
    return (lq_request){.prompt = prompt, .prompt_len = 5, .max_tokens = 4, .logprobs = true,
                        .sampling = {.seeded = true, .bias_id = bias_id, .bias = bias}};
}

static lq_draw drawn(const lq_model *m, const lq_request *r, int choice, lq_req **q) {
    lq_err err = {0};
    lq_draw d = {0};
    CHECK(lq_req_new(m, r, 100, q, &err), "%s", err.text);
    if (*q) lq_seq_draw(m, &(*q)->seq[choice], &d);
    return d;
}

static void each_alone(const lq_model *m) {
    lq_req *q;
    const lq_request none = plain();
    const lq_draw base = drawn(m, &none, 0, &q);
    lq_req_free(q);
    for (int i = 0; i < ROWS; i++) {
        lq_request r = plain();
        put(&r, &rows[i], rows[i].from);
        lq_draw want = base, d = drawn(m, &r, 0, &q);
        put(&want, &rows[i], rows[i].to);
        for (int k = 0; k < ROWS; k++)
            CHECK(!memcmp((char *)&d + rows[k].to, (char *)&want + rows[k].to, sizes[rows[k].kind]), "%s set, %s drawn",
                  rows[i].name, rows[k].name);
        if (!strcmp(rows[i].name, "biases"))
            CHECK(!memcmp(d.bias_id, bias_id, sizeof bias_id) && !memcmp(d.bias, bias, sizeof bias),
                  "the biases are others");
        lq_req_free(q);
    }
}

// Penalties count the prompt; min_tokens forbids the ends, which stand behind the caller's biases; choices draw apart.
static void the_others(const lq_model *m) {
    static const int32_t stop_ids[] = {77};
    lq_req *q;
    lq_request r = plain();
    r.sampling.presence = 1;
    lq_draw d = drawn(m, &r, 0, &q);
    CHECK(d.seens == 4 && d.seen[1] == 'a' && d.prompt_n[1] == 2 && d.seen_n[1] == 0 && d.position == 5,
          "%d tokens were seen", d.seens);
    lq_req_free(q);
    r = plain();
    r.sampling.biases = 2;
    r.min_tokens = 1;
    r.stop_ids = stop_ids;
    r.stop_id_count = 1;
    d = drawn(m, &r, 0, &q);
    CHECK(d.biases == 4 && d.bias_id[2] == 257 && d.bias_id[3] == 77 && isinf(d.bias[2]) && isinf(d.bias[3]) &&
          d.bias[3] < 0, "%d biases", d.biases);
    q->seq[0].len++;
    lq_seq_draw(m, &q->seq[0], &d);
    CHECK(d.biases == 2, "min_tokens of 1 still forbids the second to end");
    lq_req_free(q);
    r = plain();
    r.n = 3;
    d = drawn(m, &r, 2, &q);
    CHECK(d.choice == 2, "choice %u", d.choice);
    lq_req_free(q);
    r = plain();
    r.sampling.seeded = false;
    d = drawn(m, &r, 0, &q);
    lq_req_free(q);
    const lq_draw other = drawn(m, &r, 0, &q);
    CHECK(d.seed != other.seed, "two requests without a seed drew the same");
    lq_req_free(q);
    r.logprobs = false;
    r.top_n = 5;
    d = drawn(m, &r, 0, &q);
    CHECK(d.top_n == 0, "no logprobs were asked for");
    lq_req_free(q);
}

// A number that is added to lq_sampling has to come into `rows`.
static void nothing_forgotten(void) {
    char known[sizeof(lq_sampling)] = {0};
    size_t left = 0;
    for (int i = 0; i < ROWS; i++) {
        const size_t at = rows[i].from - offsetof(lq_request, sampling);
        if (at < sizeof known) memset(known + at, 1, sizes[rows[i].kind]);
    }
    memset(known + offsetof(lq_sampling, seeded), 1, sizeof(bool));
    memset(known + offsetof(lq_sampling, bias_id), 1, sizeof(void *));
    memset(known + offsetof(lq_sampling, bias), 1, sizeof(void *));
    // there is no padding of 4 bytes in it
    for (size_t i = 0; i < sizeof known; i += 4) left += !memcmp(known + i, "\0\0\0", 4);
    CHECK(left == 0, "%zu words of lq_sampling have no row", left);
}

int main(void) {
    char dir[] = "/tmp/lq-test-request-XXXXXX", command[100];
    lq_err err = {0};
    lq_model *m = NULL;
    if (!mkdtemp(dir)) return 1;
    CHECK(tiny_model(dir, false, &err) && lq_model_open(dir, &(lq_model_opts){.threads = 1}, &m, &err), "%s", err.text);
    if (m) {
        each_alone(m);
        the_others(m);
        nothing_forgotten();
        lq_model_close(m);
    }
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) ? 1 : test_end();
}
