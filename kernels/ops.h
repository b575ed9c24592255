// ops.h: everything a device can do, as one struct of function pointers. No file here knows what a model is.
//
// kernels/cpu/ fills every slot in portable C: that is the reference, and each line of it is the definition of its
// slot. Each ISA overwrites what it does better; CUDA is another table. A slot is never NULL. A fused argument (norm's
// `delta`, any `act`) is defined as the composition of the plain slots.
//
// Every slot takes one struct of arguments, zero-initialised by the caller: a later field means "off" when it is zero,
// so adding one changes no caller. Slots cannot fail: arguments are checked where a model is bound; a device that
// breaks says so in `sync`. All pointers inside arguments are device pointers unless marked [host].
//
// Invariance (docs/KERNELS.md): a row of any result is a function of that row's inputs alone, bit for bit, whatever
// else is in the batch and however many threads work. Sums over K and over KV positions have one order on one ISA.
// Only products of LQ_NUM_FAST may break this.
//
// Slots run in the order they are called. `put` has read its source when it returns, and so has every slot its
// [host] arrays; what `get` and `sample` write to the host is there after `sync`. Inside a recording (`record`)
// arguments are frozen: slots with [host] arrays (kv_copy, sample) may not be called there, and max_at is a
// bound that holds for every replay.
#ifndef LQ_OPS_H
#define LQ_OPS_H
#include "formats/block.h"
#include "kernels/pack.h"
#include "kernels/pool.h"

typedef struct lq_dev lq_dev;

// A row-major view. CPU activations are always F32.
typedef struct lq_mat {
    void *p;       // [rows][stride], the first `cols` of each row are ours
    lq_dtype type;
    int rows, cols;
    size_t stride; // elements from row to row
} lq_mat;

// Activations as a matmul reads them, and how they are made: by `quant`, or by whoever makes x (norm's and glu's
// `act`). v[j] = x[c] * smooth[c], c = perm[j]: the stored order of the weight's columns. Where x.p here is set and is
// not where x comes from, v is also written there. Then v is rounded as `type` says (below); of what is rounded the
// stored columns `outlier` count as 0.
//   F32   nothing: a matmul reads x
//   I8    q int8 [cell][row][q_row], scale and sum (of q) [cell][row]. A cell is q_row of k, what stands behind k is 0
//   E4M3  q, the rounded values as f32, or where x is BF16 their codes, [row][q_row]; scale [cell][row], a cell is
//         q_group of k
// Cells are `apart` rows from one another, of which x's are the first.
// x.p may be NULL unless it is F32 or a weight keeps outlier columns apart: those are read from x.
typedef struct lq_act {
    lq_atype type;
    lq_mat x;                // [rows][k]
    void *q;
    float *scale;
    int32_t *sum, *zero;     // zero [row]: asym
    size_t q_row, q_group;   // elements from row to row, and columns of a cell: the device's choice
    int apart;               // rows from cell to cell
    const float *smooth;     // [k] or NULL
    const int32_t *perm;     // [k] or NULL
    const int32_t *outlier;  // [outliers]
    int outliers;
    const float *fixed;      // [1] type.fixed
    const int32_t *fixed_zero; // [1] type.fixed and .asym
    bool halves;             // E4M3 on a CPU: q has the codes' numbers as bf16 (lq_act_halves), not as f32
    bool more;               // of a part of K within a matmul: y has the sums of the columns before it
    size_t w_row;            // within a matmul: elements from row to row of an f32 weight of layout any; 0: its k
} lq_act;

// --- rows of a batch ---
// Rows are ordered by sequence; a sequence may have none. Row r is token `pos[r]` of sequence `seq[r]`; `at[r]` is
// where its K and V stand in the cache (at == pos but in a speculative tree). It sees cache positions 0..at[r], less
// what a window or the tree hides: a window and a chunk hide by pos and only positions before tree_base, the tree
// decides from there on. Rows from first[seqs] on are padding (a batch of fixed size): of no sequence, their seq, pos
// and at are not read, they are written to no cache and no state, and their results mean nothing: rope leaves them as
// they are, attn, conv and scan make them 0.
typedef struct lq_rows {
    int n, seqs;
    const int32_t *seq;    // [n], index into first, slot and tree_base
    const int32_t *pos;    // [n] position for rope
    const int32_t *at;     // [n] position in the cache
    const int32_t *first;  // [seqs + 1] first row of each sequence, then the end of the last
    const int32_t *slot;   // [seqs] its row of `tables`, its state in conv and scan, no two alike; NULL: its number
    const int32_t *tables; // [slots][table_stride] block ids, kept from step to step; -1: freed behind the window
    int table_stride;
    const uint64_t *tree;  // [n] or NULL: bit i = cache position tree_base[seq] + i is visible
    const int32_t *tree_base; // [seqs]
} lq_rows;

// The K and V of one layer: pages [block][kv_head][K, V][page][dk or dv] of `type`. MLA: v_in_k, pages are
// [block][kv_head][page][dk], V is the first dv of K with K's scale, and kv_write takes no V. NaN and infinity become
// NaN in I8; E4M3 saturates.
typedef struct lq_cache {
    lq_dtype type;         // F32, F16, BF16; I8 and E4M3 with scales
    void *data;
    float *scale;          // I8: [block][kv_head][2][page], written with the codes; E4M3: [kv_head][2], NULL: 1
    int page, kv_heads, dk, dv;
    size_t block_stride;   // bytes from block to block
    bool v_in_k;
} lq_cache;

// --- arguments ---
typedef struct lq_embed_args {
    const lq_weight *w;
    const int32_t *ids; /* [n] */
    float scale; /* 0: 1 */
    lq_mat y;
} lq_embed_args;

// RMS: x / sqrt(mean(x^2) + eps); LAYER: (x - mean) / sqrt(variance + eps); L2: x /
// sqrt(sum(x^2) + eps); then gamma, beta.
typedef enum lq_norm_kind { LQ_NORM_RMS, LQ_NORM_LAYER, LQ_NORM_L2 } lq_norm_kind;
typedef struct lq_norm_args {
    lq_norm_kind kind;
    float eps;
    bool plus_one;          // (1 + gamma)
    lq_mat x;
    const lq_mat *delta;    // x += delta first, x is written back
    const float *gamma, *beta; // [cols] or NULL
    int gammas;             // both are [gammas][cols], for row r its r % gammas; 0: one
    lq_mat y;
    lq_act *act;            // also y in this form
} lq_norm_args;

typedef struct lq_quant_args { lq_mat x; lq_act *act; } lq_quant_args; // act = x in the form it says

enum { LQ_MATS = 4 }; // matrices that share an input in one call
typedef struct lq_matmul_args {
    const lq_act *x;
    int count;
    const lq_weight *w[LQ_MATS];   // [n][k]
    const float *bias[LQ_MATS];    // [n] or NULL
    lq_mat y[LQ_MATS];             // [rows][n] = x w^T + bias
} lq_matmul_args;

// SOFTMAX_TOPK: over the chosen. MIXER: top_k times the best that is left, weighed by its part in the softmax over
// those that are left and near it: (best - x) / max(|x|, best) is at most 2 * jitter.
typedef enum lq_route_kind {
    LQ_ROUTE_SOFTMAX, LQ_ROUTE_SIGMOID, LQ_ROUTE_SOFTMAX_TOPK, LQ_ROUTE_MIXER
} lq_route_kind;
enum { LQ_EXPERTS = 1024 }; // most experts of a layer
typedef struct lq_route_args {
    lq_route_kind kind;
    lq_mat logits;           // [rows][experts]
    const float *bias;       // [experts] added for choosing only
    int top_k, groups, top_groups; // groups 0: all. A group's score: SIGMOID its two best together, else its best
    bool renorm;
    float scale;             // 0: 1
    float jitter;            // of MIXER
    int32_t *expert;         // [rows][top_k], best first; ties to the lower index
    float *weight;           // [rows][top_k]
    int32_t *order, *start;  // [rows * top_k] slots sorted by expert (stable), [experts + 1] borders
} lq_route_args;

// y[slot] = x[slot / top_k] w[expert of slot]^T; `x_by_slot`: x has a row per slot already. order NULL: slot s belongs
// to expert s % experts. Experts' matrices are of one type and shape but for the type of their scales.
typedef struct lq_moe_args {
    const lq_act *x;
    bool x_by_slot;
    int slots, top_k, experts;
    const int32_t *order, *start;
    int count;
    const lq_weight *w[2];   // each [experts]
    const float *const *bias[2]; // [experts] or NULL
    lq_mat y[2];             // [slots][n]
} lq_moe_args;
// y[row] += sum over its slots, in slot order, of weight[slot] * x[slot]; fresh: y is the sum alone. weight NULL: 1.
// Where top_k is 1, y may be x
typedef struct lq_mix_args { lq_mat x; const float *weight; int top_k; lq_mat y; bool fresh; } lq_mix_args;

typedef struct lq_rope_args {
    const lq_rows *rows;
    const float *inv_freq;  // [dim / 2], every scaling already in it
    int dim;                // rotated leading part of a head
    float mscale;           // 0: 1
    bool interleaved;       // pairs (2i, 2i+1) instead of (i, i + dim/2)
    int head_dim;
    float q_beta;           // what is rotated of q is also times 1 + q_beta * ln(1 + floor(position / q_every)); 0: not
    int q_every, q_ahead;   // of position + q_ahead
    lq_mat q, k;            // [rows][heads * head_dim], in place; either's p may be NULL
} lq_rope_args;

typedef struct lq_kv_write_args {
    const lq_rows *rows;
    lq_mat k, v;
    lq_cache cache;
    const lq_rope_args *rope; // this first, of the same rows and k; NULL: nothing
} lq_kv_write_args;
typedef struct lq_kv_copy_args {
    lq_cache cache;
    int n;
    const int32_t *src, *dst; /* [host][n] blocks */
} lq_kv_copy_args;

enum { LQ_SPLIT = 512 }; // cache positions per partial result of attention, from absolute position 0
typedef struct lq_attn_args {
    const lq_rows *rows;
    lq_mat q;               // [rows][heads * dk]
    lq_cache cache;
    int heads;
    float scale, softcap;   // softcap 0: none
    int window;             // sees at most this many last positions, its own included; 0: all
    int chunk;              // sees only positions of its own chunk; 0: all
    const float *sinks;     // [heads] extra logit
    // [heads] ALiBi's slopes: position j adds slope * (j - at) to a score; coarse, as in Falcon: scale *
    // b(slope * b(j)), where b rounds to BF16. Positions are those of the cache, also in a tree. NULL: nothing
    const float *alibi;
    bool alibi_coarse;
    lq_mat y;               // [rows][heads * dv]
    int max_at;             // [host] no at[] is larger: a bound, it decides no bit
} lq_attn_args;

typedef enum lq_unary { LQ_SILU, LQ_GELU, LQ_GELU_TANH, LQ_RELU, LQ_RELU2, LQ_SIGMOID, LQ_TANH, LQ_XIELU } lq_unary;
typedef struct lq_glu_args {
    lq_unary fn;
    lq_mat gate, up;        // y = fn(gate) * (up + up_add); up.p NULL: fn(gate). y may be gate
    float alpha, up_add, clamp; // SILU: gate * sigmoid(alpha * gate), 0: 1; gate <= clamp and |up| <= clamp, 0: none
    // XIELU: beta x + alpha x^2 above 0, beta x + below (exp(min(x, least)) - 1 - x) below it
    float below, beta, least;
    lq_mat y;
    lq_act *act;
} lq_glu_args;

// y = tanh(x * scale / cap) * cap (cap 0: x * scale), then held to -limit..limit (0: not; NaN stays); x may be y. `by`:
// x is times these first.
typedef struct lq_scale_args {
    lq_mat x, y;
    float scale, cap, limit;
    const float *by;        // [cols] or NULL
} lq_scale_args;
typedef struct lq_add_args { lq_mat x, y; float scale; } lq_add_args; // y += scale * x (0: 1)

// Causal depthwise convolution over a sequence's rows, with the state of the last width-1 inputs.
typedef struct lq_conv_args {
    const lq_rows *rows;
    lq_mat x, y;
    const float *w, *bias;  // [cols][width]
    int width;
    bool silu;
    float *state;           // [slots][width - 1][cols]
} lq_conv_args;

// A linear recurrence per head: S = a S + beta k u^T, u = v, or with `delta` v - k^T (a S);  y = q^T S.  S is [dk][dv],
// f32. Mamba-2: a per head, beta is dt. Mamba-1: heads = channels, dv = 1, a per dk. Gated delta net: with delta. RWKV,
// GLA: a per dk.
typedef struct lq_scan_args {
    const lq_rows *rows;
    int heads, groups, dk, dv; // q, k: [rows][groups * dk], v, y: [rows][heads * dv]
    lq_mat q, k, v, y;
    lq_mat decay;           // [rows][heads] or [rows][heads * dk], log space
    bool decay_per_k;
    lq_mat beta;            // [rows][heads], p NULL: 1
    bool delta;
    float *state;           // [slots][heads][dk][dv]
} lq_scan_args;

// One row's wishes, in the order they are applied. All zero: greedy, no logprobs. All pointers are [host].
typedef struct lq_draw {
    const uint32_t *mask;   // [ceil(vocab/32)] 1 = allowed, or NULL
    const int32_t *bias_id; const float *bias; int biases;
    const int32_t *seen; int seens;      // [seens] distinct tokens so far,
    const uint16_t *seen_n, *prompt_n;   // and how often each was generated, and stands in the prompt
    float repetition, presence, frequency; // repetition 0: 1
    float temperature;      // 0: greedy
    float min_p, top_p, typical; // 0: off
    int top_k;
    uint64_t seed; uint32_t choice; uint32_t position; // keys of Philox
    int top_n;              // logprobs of this many best tokens
    bool given;             // nothing is drawn: the logprob of `token` is asked for
    bool no_logprob;        // nobody asks for the drawn token's: 0 will do
    int32_t token;
} lq_draw;
// bad: nothing was allowed, or a logit was NaN or +infinity; token is -1 then.
typedef struct lq_drawn { int32_t token; float logprob; int bad; } lq_drawn;
enum { LQ_TOP = 32 };
typedef struct lq_sample_args {
    lq_mat logits;          // [rows][vocab], left as they are; within the limits of `reserve`
    const lq_draw *draw;    // [host][rows]
    lq_drawn *out;          // [host][rows]
    int32_t *top_id; float *top_logprob; // [host][rows][LQ_TOP]; of the raw logits, best first, ties to the lower id
} lq_sample_args;

// Calibration and solving.
// Of each column of x: the least and the largest so far (what is no number is passed over), and the sums of magnitudes
// and of squares, row after row. Any may be NULL.
typedef struct lq_tally_args { lq_mat x; float *lo, *hi; double *sum, *square; /* [cols] */ } lq_tally_args;
typedef struct lq_gram_args {
    lq_mat x;
    const lq_mat *with; // as many rows: the whole of h += x^T with; NULL: x, and the upper half
    double *h;          // [x's cols][with's cols]
    float *work;        // the same
} lq_gram_args;
// In: the upper half of h, symmetric positive definite, [n][n]. Out: upper U with h^-1 = U^T U (index order as stored),
// below it 0. ok [host] = false: not definite, h is spoilt.
typedef struct lq_factor_args { double *h; int n; bool *ok; } lq_factor_args;
typedef struct lq_solve_args { const double *u; int n; double *b; int cols; } lq_solve_args; // b [n][cols] = u^T u b

// A matrix to codes, scales and zero points in layout any. docs/QUANT.md states the rules;
// kernels/cpu/round.c defines them.
typedef enum lq_fit {
    LQ_FIT_RANGE,           // a group's scale from its range
    LQ_FIT_SEARCH           // from the share of the range that loses least, in squares
} lq_fit;
typedef struct lq_round_args {
    lq_mat w;               // [n][k] in stored order; with `u`: F32, and spoilt
    lq_wtype type;
    const float *table;     // [2^bits] of LQ_W_TABLE
    float scale2;           // of scales in E4M3: what all of them are times
    // Of type.dq: scales are what codes can stand for. NULL: any number of f32.
    const float *scale_by, *scale_map; // [n][groups], each scale's `scale2`; [256], which does not fall
    float scale_offset;
    lq_fit fit;
    int steps; float least; // SEARCH: so many shares, evenly from 1 down to `least`; of equal ones the larger
    const float *weight;    // [k] of a column's error in SEARCH; NULL: all equal
    // Of `factor`: w[l] -= (w[j] - q[j]) / u[j][j] * u[j][l] for each column j in turn, in f32. NULL: to the nearest. A
    // type whose rows share scales then wants given ones.
    const double *u;        // [k][k]
    // These scales and zero points, as the type stores them. NULL: found, with `u` at a group's first column.
    const void *given_scale, *given_zero;
    void *q, *scale, *zero; // layout any; q NULL: only the scales
    float *back;            // [n][k] dequantized, or NULL
    double *error, *norm;   // [n] sums of squares of w - q and of w; with `u` as w was when its column was reached
    double *worst;          // [n] largest |w - q|, or NULL
    // Of `refine`: codes, and scales that a row has for itself, are changed where that makes the row's
    // (w - q) (h + damp) (w - q)^T less: column by column in stored order, then group by group, `sweeps` times.
    const float *h;         // [k][k], the whole
    float damp;
    int sweeps;
    float *slope;           // [n][k] (w - q) (h + damp), which goes along
    // Where one of these is set, nothing else of the result means anything.
    int64_t *bad;           // [2] row and column of the first element that cannot be coded, or -1
    bool *wide;             // a scale left F16's normal range: round again with F32 scales
} lq_round_args;

// Rows by the moments of what they are multiplied with: to the nearest, and with errors spread, and each row has of the
// two the codes by which it loses less. docs/QUANT.md states it; kernels/cpu/choose.c defines it.
typedef struct lq_choose_args {
    // As for round and refine, but: w [n][k] as it stands, of any type that is a number (on a CPU F32, and spoilt);
    // u, h and weight are in `order`, u NULL: to the nearest alone, of which `back` then tells; q, scale, zero and
    // scale_by are as they are stored; error, norm and worst of the codes that a row has; given_scale, given_zero and
    // slope are not read.
    lq_round_args a;
    const int32_t *order;   // [k] column order[j] is the j-th to be rounded; NULL: as they stand
    bool stays;             // codes, scales and zero points are stored where their columns stand in w, else in order
    const float *repay;     // [k][k] rows are added to by row repay^T first; NULL: nothing
    const int32_t *apart;   // [aparts] columns that count as 0
    int aparts;
    double *loss, *plain;   // [n] (w - q) h (w - q)^T of the codes that a row has, of those to the nearest
    double *size;           // [n] w h w^T, or NULL
    void *work;             // lq_choose_bytes
} lq_choose_args;

// Of moments what the rounding by them reads. Results that are NULL are not made.
typedef struct lq_arrange_args {
    int k;
    double rows;            // that were summed
    const double *h;        // [k][k] sums of x^T x, the upper half
    const double *g;        // [k][k] sums of x^T x'
    const int32_t *order;   // [k] column order[j] is the j-th
    double *diagonal;       // [k] of h as it stands
    float *mean;            // [k][k] h / rows in order, the whole
    double *u;              // the same, 0 below the diagonal, with `added` on it
    float added;
    double *owed;           // [k][k] (g - h) / rows, its rows in order; g NULL: it is read
    float *repay;           // [k][k] share * owed, its rows where they stood
    float share;
} lq_arrange_args;

// What rounding a matrix would lose, to the nearest and by the whole range of its groups, in each of some tries: its
// columns are times the try's factors, and what reads them is divided by these. Nothing is kept but the losses; NaN
// where an element cannot be coded. Waits for its work.
typedef struct lq_tries_args {
    lq_mat w;               // [n][k] of a plain type
    int tries;
    const float *by;        // [tries][k] above 0
    lq_wtype type;          // coded
    const float *table;     // [2^bits] of LQ_W_TABLE
    const float *scale2;    // [host][tries] of scales in E4M3: what all of them are times
    // As in `round`, of type.dq: [tries][n][groups], [256], [host][tries].
    const float *scale_by, *scale_map, *scale_offset;
    // With h: loss[try][row] = d h d^T, where d = (w by - q) / by.
    const float *h;         // [k][k] symmetric; NULL: by rows of the text
    // Without: to loss[try] is added |x' q^T - y|^2, where x' is x / by rounded as `act` says.
    lq_mat x, y;            // [rows][k], [rows][n] of F32
    lq_atype act;           // lq_act_type of the device that is to serve
    const float *fixed;     // [host][tries] act.fixed: its scale,
    const int32_t *fixed_zero; // and act.asym: its zero point
    double *loss;           // [host]
    bool *wide;             // [host][tries] a scale left F16's normal range: no loss was found, try F32 scales
} lq_tries_args;

// Among the ranks of a tensor-parallel group; one rank: nothing to do.
typedef struct lq_reduce_args { lq_mat x; } lq_reduce_args;         // sum, in rank order
typedef struct lq_gather_args { lq_mat part, whole; } lq_gather_args; // columns side by side

typedef struct lq_span { const void *p; size_t n; } lq_span;
typedef void lq_record_fn(void *arg);
typedef struct lq_graph lq_graph;

// The largest batch that will be asked for; seqs <= rows. outs: rows of logits; slots: of moe.
typedef struct lq_dev_limits { int rows, outs, k, n, heads, dv, max_at, vocab, slots; } lq_dev_limits;

// Raised with every change of this file, pack.h, block.h or pool.c: a plug-in is another binary and shares these
// structs, and the struct of its threads, by layout.
enum { LQ_OPS_VERSION = 15 };

typedef struct lq_ops {
    // what a model asks when it is bound
    bool (*can)(lq_dev *, const lq_wtype *, lq_layout, lq_err *); // multiply with such a matrix; false: *err says why
    bool (*reserve)(lq_dev *, const lq_dev_limits *, lq_err *);   // scratch, so that no slot allocates; never shrinks
    size_t (*room)(lq_dev *);                                     // bytes of memory that are left, for the KV cache
    // memory and control
    bool (*alloc)(lq_dev *, size_t bytes, void **out, lq_err *);  // 64-byte aligned, zero; memory only once it is used
    void (*free)(lq_dev *, void *);
    void (*put)(lq_dev *, void *dst, const void *src /* [host] */, size_t);
    void (*get)(lq_dev *, void *dst /* [host] */, const void *src, size_t);
    void (*copy)(lq_dev *, void *dst, const void *src, size_t);   // within the device; they do not overlap
    bool (*sync)(lq_dev *, lq_err *);
    // CPU: remembers fn; CUDA: captures it
    bool (*record)(lq_dev *, lq_record_fn *, void *arg, lq_graph **out, lq_err *);
    void (*replay)(lq_dev *, lq_graph *);
    void (*forget)(lq_dev *, lq_graph *);
    // what it can do at most, measured now: seconds to read these bytes of it once and do nothing with them; multiply-
    // adds a second by the instruction that products with such activations stand on. 0: there is nothing to measure
    double (*read_time)(lq_dev *, const lq_span *, size_t count);
    double (*peak)(lq_dev *, lq_dtype act);
    // one layer after another
    void (*embed)(lq_dev *, const lq_embed_args *);
    void (*norm)(lq_dev *, const lq_norm_args *);
    void (*quant)(lq_dev *, const lq_quant_args *);
    void (*matmul)(lq_dev *, const lq_matmul_args *);
    void (*rope)(lq_dev *, const lq_rope_args *);
    void (*kv_write)(lq_dev *, const lq_kv_write_args *);
    void (*kv_copy)(lq_dev *, const lq_kv_copy_args *);
    void (*attn)(lq_dev *, const lq_attn_args *);
    void (*glu)(lq_dev *, const lq_glu_args *);
    void (*scale)(lq_dev *, const lq_scale_args *);
    void (*add)(lq_dev *, const lq_add_args *);
    void (*route)(lq_dev *, const lq_route_args *);
    void (*moe)(lq_dev *, const lq_moe_args *);
    void (*mix)(lq_dev *, const lq_mix_args *);
    void (*conv)(lq_dev *, const lq_conv_args *);
    void (*scan)(lq_dev *, const lq_scan_args *);
    void (*sample)(lq_dev *, const lq_sample_args *);
    // quantization
    // What the bits of gram, factor and solve depend on, in words: interrupted work must find it again. false: as sync
    bool (*solver)(lq_dev *, char *out, size_t size, lq_err *);
    void (*tally)(lq_dev *, const lq_tally_args *);
    void (*gram)(lq_dev *, const lq_gram_args *);
    void (*factor)(lq_dev *, const lq_factor_args *);
    void (*solve)(lq_dev *, const lq_solve_args *);
    void (*round)(lq_dev *, const lq_round_args *);
    void (*refine)(lq_dev *, const lq_round_args *); // of what `round` made: reads w, q, scale, zero; writes back too
    void (*choose)(lq_dev *, const lq_choose_args *);
    void (*arrange)(lq_dev *, const lq_arrange_args *);
    void (*tries)(lq_dev *, const lq_tries_args *);
    // ranks
    void (*reduce)(lq_dev *, const lq_reduce_args *);
    void (*gather)(lq_dev *, const lq_gather_args *);
} lq_ops;

// --- devices ---
typedef enum lq_numerics {
    LQ_NUM_DEFAULT, // a CPU rounds activations as lq_act_type says
    LQ_NUM_EXACT,   // f32 activations, residual and KV cache: what `lq eval` reports first
    LQ_NUM_FAST     // as default, but a row's bits may depend on its batch where that is faster; on a CPU: default
} lq_numerics;

typedef struct lq_dev_opts {
    int threads;           // CPU: 0 = all cores of this process
    const char *isa;       // NULL or "auto"; "c", "avx2", "avxvnni", "avx512", "avx512bf16", "amx": no better
    lq_numerics numerics;
    bool rough;            // `matmul` may take f32 as two numbers of bf16 where that is faster: 2^-15 off at most;
                           // plain weights stay rows
} lq_dev_opts;
const char *lq_cpu_isa(size_t i); // the words that isa may be, one by one; NULL past the last

struct lq_dev {
    lq_ops ops;            // by value: the one table that this machine runs
    const char *name;      // "cpu"
    char isa[64];          // "avx512 vnni": for lq version and reports
    lq_layout layout;      // what weights are packed to at load
    lq_numerics numerics;
    lq_dtype act;          // of x, of the residual and of what layers hand each other: F32 on a CPU
    bool host;             // device pointers are host pointers: weights may stay mapped
    bool q8;               // int weights and named tables want int8 activations unless they say otherwise
    bool bf16;             // and weights of bf16 and 8-bit floats bf16 ones, as attention does
    lq_pool *pool;         // threads of the host: a CPU's own; of another device they load and pack
    int rank, ranks;
    int users;             // lq_dev_open and each lq_dev_use; not counted from two threads at once
    void *self;
};

bool lq_dev_open(const char *name /* "cpu", "cuda", "cuda:1" */, const lq_dev_opts *o, lq_dev **out, lq_err *err);
// Another user of an open device: threads, stream and scratch are shared, so one calls slots at a
// time. lq_dev_close counts down.
lq_dev *lq_dev_use(lq_dev *d);
// Where a device wants the parts of such a weight to lie: in its own layout, if it has a kernel for that, or as rows.
lq_layout lq_dev_layout(lq_dev *d, const lq_wtype *t, int64_t n, int64_t k);
void lq_dev_close(lq_dev *d);

// --- activations (act.c) ---
// How v becomes codes, the same bits on every ISA; absmax is of the weight's or the row's k that share a scale:
//   I8    s = absmax / 127, q = rint(v * (127 / absmax)), ties to even; fixed: q = rint(v * (1 / s)), held to
//         -127..127; asym: rint(v * (1 / s)) + zero, held to -128..127
//   E4M3  s = absmax / 448, q = e4m3(v * (448 / absmax)), ties to even; fixed: e4m3(v * (1 / s)), held to 448
//   BF16  v to the nearest, ties to even; there is no s
// An absmax below 2^-100 makes s and q 0; one that is not finite makes s not finite and q 0
// (fixed: s is NaN for that row).

// THE rule: what activations a weight wants. What its type says, in every mode; else, not in exact mode, on a device
// with q8 ints and tables that have a name want I8 with their own group, LQ_ROW_GROUP where a row has one scale (groups
// over LQ_GROUP_MAX: none), and on a device with bf16 plain BF16 weights want BF16, as 8-bit floats do whose scales
// hold for a multiple of 128 columns, or are shifts; all others F32.
lq_atype lq_act_type(const lq_dev *d, const lq_wtype *w);
// Whether scales of 8-bit floats are powers of two for multiples of 32 columns (mxfp8): elements times these are bf16
// as well, but for what is below its normal range, 0, and above it, infinite or NaN.
static inline bool lq_fp8_shifts(const lq_wtype *t) {
    return t->kind == LQ_W_FLOAT && t->scale == LQ_E8M0 && t->group && t->group % 32 == 0;
}

// Whether products with w are of bf16: such activations, or E4M3 that a CPU holds so.
bool lq_act_halves(const lq_dev *d, const lq_weight *w);
// What attention rounds to before it multiplies: BF16 on a device with bf16, not in exact mode, nor where the cache is
// F32 (whoever wants that does not want it rounded), nor with heads of less than 32 (few numbers average no error).
lq_dtype lq_attn_type(const lq_dev *d, lq_dtype cache, int dk);
// Whether two weights that read the same x can be given one lq_act.
bool lq_act_same(const lq_dev *d, const lq_weight *a, const lq_weight *b);
// Bytes of q, scale, sum and zero for `rows` rows of the input of w; binds them inside `base` and sets
// everything but x.p and x.stride. The rows of a batch are part of the addresses: bind again when their
// number changes (it costs nothing).
size_t lq_act_bytes(const lq_dev *d, const lq_weight *w, int rows);
void lq_act_bind(const lq_dev *d, lq_act *a, const lq_weight *w, int rows, void *base);

// Bytes of `work` of choose, by the shapes and type alone; the sum of products in f64, by eight lanes (choose.c).
size_t lq_choose_bytes(const lq_choose_args *a);
double lq_dot(const float *x, const float *y, size_t n);
#endif
