// sample.c: the slot sample of a CUDA device: what rows wish for goes over as one block of words, three kernels make
// tokens of logits, tokens come back. Owns the memory of all that, which `reserve` takes. Refuses more rows than were
// reserved, and wishes of one row that the block does not hold.
#include "kernels/cuda/sample.h"
#include "kernels/cuda/fast.h"
#include <stdlib.h>
#include <string.h>

void lq_sample_best(void);
void lq_sample_sums(void);
void lq_sample_rows(void);

// A row may wish for whole vocabularies; as many rows go at a time as the block holds.
enum { BLOCK_WORDS = 1 << 20, WORK_ROWS = 132 };
struct lq_cuda_sampler {
    uint32_t *words; // [host][room]
    void *mine[6];   // on the device: the block, best, sums, work, out, the best ones
    size_t room;
    int rows, vocab, work_rows;
};

bool lq_cuda_sample_open(lq_dev *d, lq_err *err) {
    lq_cuda *c = lq_cuda_of(d);
    c->sampler = calloc(1, sizeof *c->sampler);
    if (!c->sampler) return lq_fail(err, LQ_E_MEMORY, "device %s: no memory", d->name);
    return lq_gpu_prepare(c->gpu, lq_entry(lq_sample_best), 0, err) &&
           lq_gpu_prepare(c->gpu, lq_entry(lq_sample_sums), 0, err) &&
           lq_gpu_prepare(c->gpu, lq_entry(lq_sample_rows), LQ_SAMPLE_SHARED, err);
}

static void give_back(lq_cuda *c) {
    struct lq_cuda_sampler *s = c->sampler;
    for (size_t i = 0; i < sizeof s->mine / sizeof *s->mine; i++)
        if (s->mine[i]) lq_gpu_free(c->gpu, s->mine[i]);
    free(s->words);
    memset(s, 0, sizeof *s);
}

void lq_cuda_sample_close(lq_dev *d) {
    lq_cuda *c = lq_cuda_of(d);
    if (c->sampler) give_back(c);
    free(c->sampler);
}

bool lq_cuda_sample_reserve(lq_dev *d, const lq_dev_limits *l, lq_err *err) {
    lq_cuda *c = lq_cuda_of(d);
    struct lq_cuda_sampler *s = c->sampler;
    const int outs = l->outs > s->rows ? l->outs : s->rows, vocab = l->vocab > s->vocab ? l->vocab : s->vocab;
    if (outs == s->rows && vocab == s->vocab) return true;
    if (vocab > LQ_SAMPLE_VOCAB)
        return lq_fail(err, LQ_E_LIMIT, "device %s: a vocabulary of %d, at most %d", d->name, vocab, LQ_SAMPLE_VOCAB);
    give_back(c);
    const size_t n = (size_t)outs, blocks = n * (size_t)lq_sample_blocks(vocab);
    s->work_rows = outs < WORK_ROWS ? outs : WORK_ROWS;
    s->room = BLOCK_WORDS + 4 * (size_t)vocab + n * sizeof(lq_sample_row) / 4;
    const size_t bytes[6] = {s->room * 4, blocks * 8, blocks * 8, (size_t)s->work_rows * (size_t)vocab * sizeof(float),
                             n * sizeof(lq_drawn), n * LQ_TOP * 8};
    for (int i = 0; i < 6; i++)
        if (!lq_gpu_alloc(c->gpu, bytes[i], &s->mine[i], err)) return false;
    if (!(s->words = malloc(s->room * 4)))
        return lq_fail(err, LQ_E_MEMORY, "device %s: no memory for what rows wish for", d->name);
    s->rows = outs, s->vocab = vocab;
    return true;
}

// How many rows from the first on the block holds; their words are put in it.
static int packed(struct lq_cuda_sampler *s, const lq_draw *draw, int rows, int vocab, size_t *used) {
    size_t words = 0;
    int n = 0;
    for (; n < rows; n++) {
        const size_t more = sizeof(lq_sample_row) / 4 + lq_sample_words(draw + n, vocab);
        if (words + more > s->room) break;
        words += more;
    }
    *used = (size_t)n * sizeof(lq_sample_row) / 4;
    for (int i = 0; i < n; i++) lq_sample_pack(s->words, used, i, draw + i, vocab);
    return n;
}

static void launch(const lq_dev *d, const lq_sample_of *a) {
    lq_gpu_grid grid = {.blocks = (unsigned)(a->rows * a->parts), .threads = LQ_SAMPLE_THREADS};
    lq_fast_launch(d, lq_sample_best, a, sizeof *a, grid);
    grid.shared = 128;
    lq_fast_launch(d, lq_sample_sums, a, sizeof *a, grid);
    grid.blocks = (unsigned)(a->rows < a->work_rows ? a->rows : a->work_rows);
    grid.threads = LQ_SAMPLE_CHOOSERS, grid.shared = LQ_SAMPLE_SHARED;
    lq_fast_launch(d, lq_sample_rows, a, sizeof *a, grid);
}

// Lists of the best come back from the first row that asks to the last.
static void lists_get(lq_gpu *g, const lq_sample_args *a, const lq_sample_of *of) {
    int from = 0, end = a->logits.rows;
    while (from < end && a->draw[from].top_n <= 0) from++;
    while (end > from && a->draw[end - 1].top_n <= 0) end--;
    const size_t at = (size_t)from * LQ_TOP, bytes = (size_t)(end - from) * LQ_TOP * 4;
    if (!bytes) return;
    lq_gpu_get(g, a->top_id + at, of->top_id + at, bytes);
    lq_gpu_get(g, a->top_logprob + at, of->top_logprob + at, bytes);
}

static void sample(lq_dev *d, const lq_sample_args *a) {
    lq_cuda *c = lq_cuda_of(d);
    struct lq_cuda_sampler *s = c->sampler;
    const int rows = a->logits.rows, vocab = a->logits.cols;
    lq_err err;
    if (rows > s->rows || vocab > s->vocab) {
        lq_fail(&err, LQ_E_LIMIT, "device cuda: %d rows of %d logits, more than were reserved", rows, vocab);
        lq_cuda_break(d, &err);
        return;
    }
    lq_sample_of of = {.logits = a->logits.p, .stride = (int64_t)a->logits.stride, .vocab = vocab,
                       .parts = lq_sample_parts(vocab), .work_rows = s->work_rows, .wishes = s->mine[0],
                       .best = s->mine[1], .sums = s->mine[2], .work = s->mine[3], .out = s->mine[4],
                       .top_id = s->mine[5]};
    of.top_logprob = (float *)(void *)(of.top_id + (size_t)s->rows * LQ_TOP);
    const lq_sample_of whole = of;
    for (int row = 0, n; row < rows; row += n) {
        size_t used;
        n = packed(s, a->draw + row, rows - row, vocab, &used);
        if (!n) {
            lq_fail(&err, LQ_E_LIMIT, "device cuda: row %d wishes for more than was reserved", row);
            lq_cuda_break(d, &err);
            return;
        }
        lq_gpu_put(c->gpu, s->mine[0], s->words, used * 4);
        of.rows = n;
        of.logits = whole.logits + (size_t)row * a->logits.stride;
        of.out = whole.out + row;
        of.top_id = whole.top_id + (size_t)row * LQ_TOP;
        of.top_logprob = whole.top_logprob + (size_t)row * LQ_TOP;
        launch(d, &of);
    }
    if (!rows) return;
    lq_gpu_get(c->gpu, a->out, whole.out, (size_t)rows * sizeof *a->out);
    lists_get(c->gpu, a, &whole);
}

void lq_cuda_sample_slots(lq_ops *o) { o->sample = sample; }
