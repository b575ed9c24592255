// sample.h: from logits to tokens on the device, as the host sees it: arguments, grids, and what many rows wish for as
// one block of words. Plain C. Three kernels in this order: the best logit of each 512 ids, the sum of exp(l - best) of
// each 512 ids, then a block of threads for each row. Results are portable C's (kernels/cpu/sample.c) bit for bit.
#ifndef LQ_CUDA_SAMPLE_H
#define LQ_CUDA_SAMPLE_H
#include "kernels/ops.h"
#include <string.h>

enum {
    LQ_SAMPLE_IDS = 512,       // LQ_DRAW_BLOCK
    LQ_SAMPLE_PART = 16,       // of these a block of threads of the first two kernels has
    LQ_SAMPLE_THREADS = 256,   // of the first two kernels
    LQ_SAMPLE_CHOOSERS = 512,  // of the third
    LQ_SAMPLE_VOCAB = 1 << 20, // at most
    LQ_SAMPLE_LIST = 2048,     // candidates that are looked at in shared memory
    LQ_SAMPLE_SHARED = LQ_SAMPLE_LIST * 16 + 2048
};

// What one row wishes for. Arrays are words of the block, counted from its start; 0: there is none.
typedef struct lq_sample_row {
    uint64_t seed;
    uint32_t choice, position, mask, bias_id, bias, seen, seen_n;
    int32_t biases, seens, top_k, top_n, given, token;
    float repetition, presence, frequency, temperature, min_p, top_p, typical;
} lq_sample_row;

typedef struct lq_sample_of {
    const float *logits;          // [rows][stride]
    int64_t stride;
    int rows, vocab, parts, work_rows; // parts: lq_sample_parts(vocab)
    const uint32_t *wishes;       // lq_sample_row [rows], then the words that they name
    uint64_t *best;               // [rows][blocks] the best logit of 512 ids and its id, as one ordered number
    double *sums;                 // [rows][blocks]
    float *work;                  // [work_rows][vocab]: as many blocks of threads has the third kernel
    lq_drawn *out;                // [rows]
    int32_t *top_id;              // [rows][LQ_TOP], what is not asked for is -1; NULL: no row asks
    float *top_logprob;           // [rows][LQ_TOP]
} lq_sample_of;

static inline int lq_sample_blocks(int vocab) { return (vocab + LQ_SAMPLE_IDS - 1) / LQ_SAMPLE_IDS; }
static inline int lq_sample_parts(int vocab) {
    return (lq_sample_blocks(vocab) + LQ_SAMPLE_PART - 1) / LQ_SAMPLE_PART;
}

// Words of the block that the wishes of a row take at most beside its lq_sample_row.
static inline size_t lq_sample_words(const lq_draw *d, int vocab) {
    return (d->mask ? ((size_t)vocab + 31) / 32 : 0) + 2 * (size_t)d->biases + (size_t)d->seens +
           ((size_t)d->seens + 1) / 2;
}

static inline uint32_t lq_sample_put(uint32_t *block, size_t *at, const void *words, size_t bytes) {
    const size_t from = *at;
    if (!bytes) return 0;
    memcpy(block + from, words, bytes);
    *at += (bytes + 3) / 4;
    return (uint32_t)from;
}

// Row `row` of the block; *at: the first word that is still free, at first behind the rows.
static inline void lq_sample_pack(uint32_t *block, size_t *at, int row, const lq_draw *d, int vocab) {
    lq_sample_row r;
    memset(&r, 0, sizeof r);
    r.seed = d->seed, r.choice = d->choice, r.position = d->position;
    if (d->mask) r.mask = lq_sample_put(block, at, d->mask, ((size_t)vocab + 31) / 32 * 4);
    r.bias_id = lq_sample_put(block, at, d->bias_id, (size_t)d->biases * 4);
    r.bias = lq_sample_put(block, at, d->bias, (size_t)d->biases * 4);
    r.seen = lq_sample_put(block, at, d->seen, (size_t)d->seens * 4);
    r.seen_n = lq_sample_put(block, at, d->seen_n, (size_t)d->seens * 2);
    r.biases = d->biases, r.seens = d->seens, r.top_k = d->top_k;
    r.top_n = d->top_n < LQ_TOP ? d->top_n : LQ_TOP;
    r.given = d->given, r.token = d->token;
    r.repetition = d->repetition, r.presence = d->presence, r.frequency = d->frequency;
    r.temperature = d->temperature, r.min_p = d->min_p, r.top_p = d->top_p, r.typical = d->typical;
    memcpy((char *)block + (size_t)row * sizeof r, &r, sizeof r);
}
#endif
