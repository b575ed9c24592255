// test_cost.c: what a step asks for (lq_model_work), against counts by hand from the configuration of tiny.h's model:
// plain, with windows, a mixture, quantized; its shapes; and that the machine's ceilings are measured.
#include "runtime/lq.h"
#include "tests/unit/test.h"
#include "tests/unit/tiny.h"
#include <unistd.h>

// Of tiny.h: 64 wide, 160 in the MLP, 2 layers, 4 heads, 2 KV heads, 260 words.
enum { DIM = 64, FFN = 160, LAYERS = 2, HEADS = 4, KV_HEADS = 2, VOCAB = 260, HEAD = DIM / HEADS };
static const double attention = 2.0 * DIM * DIM + 2.0 * KV_HEADS * HEAD * DIM; // q and o, k and v
static const double mlp = 3.0 * DIM * FFN, head = (double)DIM * VOCAB;
static const double by_position = LAYERS * HEADS * 2.0 * HEAD; // multiply-adds of a row for each position it sees
static const double kv_position = LAYERS * KV_HEADS * 2.0 * HEAD * 2; // bytes, in f16

static bool near(double x, double y) { return fabs(x - y) <= 1e-9 * fabs(y); }

#define WORK(M, SEQS, AT, ROWS, BYTES, DOTS, FMAS)                                                              \
    do {                                                                                                        \
        lq_work w_;                                                                                             \
        lq_model_work(M, SEQS, AT, ROWS, &w_);                                                                  \
        CHECK(near(w_.bytes, BYTES) && near(w_.dots, DOTS) && near(w_.halves + w_.fmas, FMAS),                              \
              "%d sequences of %d at %d: %.0f bytes, %.0f dots, %.0f fmas; expected %.0f, %.0f, %.0f", SEQS, ROWS, AT, \
              w_.bytes, w_.dots, w_.halves + w_.fmas, (double)(BYTES), (double)(DOTS), (double)(FMAS));                     \
    } while (0)

static lq_model *opened(const char *path) {
    lq_model *m = NULL;
    lq_err err = {0};
    CHECK(lq_model_open(path, &(lq_model_opts){.threads = 2}, &m, &err), "%s", err.text);
    return m;
}

static void shapes(const lq_model *m) {
    static const int64_t want[][2] = {{64, 64}, {32, 64}, {160, 64}, {64, 160}, {260, 64}};
    int64_t n, k;
    size_t count = 0, found = 0;
    for (; lq_model_shape(m, count, &n, &k); count++)
        for (size_t i = 0; i < 5; i++) found += want[i][0] == n && want[i][1] == k;
    CHECK(count == 5 && found == 5, "%zu shapes, %zu of the five", count, found);
}

static void plain(lq_model *m) {
    const double matrices = LAYERS * (attention + mlp);
    WORK(m, 1, 0, 1, 2 * (matrices + head) + kv_position, 0, matrices + head + by_position);
    WORK(m, 3, 10, 1, 2 * (matrices + head) + 3 * 11 * kv_position, 0, 3 * (matrices + head + 11 * by_position));
    // Rows 20..24 see 21 to 25 positions: 115 in all; the cache is read once, up to its last row.
    WORK(m, 1, 20, 5, 2 * (matrices + head) + 25 * kv_position, 0, 5 * matrices + head + 115 * by_position);
    lq_model_info info;
    lq_model_describe(m, &info);
    CHECK(near((double)info.weight_bytes, 2 * (matrices + head)) && info.threads == 2 && info.file_bytes > 0,
          "%zu bytes of weights, %zu of the file, %d threads", info.weight_bytes, info.file_bytes, info.threads);
    shapes(m);
}

static void ceilings(lq_model *m) {
    lq_work w;
    lq_model_ceiling(m, &w);
    lq_model_info info;
    lq_model_describe(m, &info);
    const bool vectors = strstr(info.device, "avx");
    CHECK(w.bytes > 1e6 && w.bytes < 1e14, "a plain read of %g bytes a second", w.bytes);
    CHECK(vectors ? w.dots > 1e6 && w.fmas > 1e6 : w.dots == 0 && w.fmas == 0, "%g dots, %g fmas", w.dots, w.fmas);
    CHECK((w.halves > 0) == (strstr(info.device, "bf16") != NULL), "%g of bf16 on %s", w.halves, info.device);
    CHECK(lq_model_room(m) > 1 << 20, "%zu bytes of room", lq_model_room(m));
}

int main(void) {
    char dir[] = "/tmp/lq-test-cost-XXXXXX", quantized[80], line[200];
    lq_err err = {0};
    if (!mkdtemp(dir)) return 1;
    const double matrices = LAYERS * (attention + mlp);
    CHECK(tiny_model(dir, false, &err), "%s", err.text);
    lq_model *m = opened(dir);
    if (!m) return test_end();
    plain(m);
    ceilings(m);
    lq_model_close(m);
    CHECK(tiny_quantize(dir, "int4 g32", quantized, sizeof quantized, &err), "%s", err.text);
    if ((m = opened(quantized))) {
        lq_model_info info;
        lq_model_describe(m, &info);
        WORK(m, 2, 7, 1, (double)info.weight_bytes + 2 * 8 * kv_position, 2 * (matrices + head), 2 * 8 * by_position);
        CHECK((double)info.weight_bytes < 1.2 * (matrices + head), "%zu bytes of weights", info.weight_bytes);
        lq_model_close(m);
    }
    // A window of 40: rows 0..59 see 1 to 40 positions and then 40 each, a decode at 100 reads 40.
    CHECK(tiny_model_of(dir, "MistralForCausalLM", false, ",\"sliding_window\":40", &err), "%s", err.text);
    if ((m = opened(dir))) {
        WORK(m, 1, 100, 1, 2 * (matrices + head) + 40 * kv_position, 0, matrices + head + 40 * by_position);
        lq_work w;
        lq_model_work(m, 1, 0, 60, &w);
        // In the last layer all leave K and V, and one row goes on.
        const double seen = (40 * 41 / 2 + 20 * 40 + 40) * by_position / LAYERS;
        const double rest = 60 * 2.0 * KV_HEADS * HEAD * DIM + DIM * DIM * 2.0 + mlp;
        CHECK(near(w.halves + w.fmas, 60 * (attention + mlp) + rest + head + seen), "%.0f fmas", w.halves + w.fmas);
        lq_model_close(m);
    }
    // Four experts, two for each row: one row reads half of them, two rows three quarters if they choose evenly.
    CHECK(tiny_model_of(dir, "MixtralForCausalLM", false, tiny_experts, &err), "%s", err.text);
    if ((m = opened(dir))) {
        const double router = LAYERS * 4 * DIM, dense = LAYERS * attention + router, experts = LAYERS * mlp;
        WORK(m, 1, 0, 1, 2 * (dense + head + 2 * experts) + kv_position, 0, dense + head + 2 * experts + by_position);
        WORK(m, 2, 0, 1, 2 * (dense + head + 3 * experts) + 2 * kv_position, 0,
             2 * (dense + head + 2 * experts + by_position));
        lq_model_close(m);
    }
    snprintf(line, sizeof line, "rm -rf %s %s.lq %s.lq.report.json", dir, dir, dir);
    if (system(line)) return 1;
    return test_end();
}
