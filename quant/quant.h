// quant.h: a checkpoint in, a quantized .lq file out. The pass streams: block by block is transformed, rounded,
// written, let go.
//
// lq_methods[] is one of the four tables of lq. A method is a composition (transforms x rounding x salient weights x
// type); the statistics it needs follow from its parts. docs/QUANT.md says how each is defined.
#ifndef LQ_QUANT_H
#define LQ_QUANT_H
#include "formats/block.h"
#include "formats/ckpt.h"
#include "kernels/ops.h"

enum { LQ_T_ROTATE = 1, LQ_T_SMOOTH = 2, LQ_T_AWQ = 4, LQ_T_CLIP = 8 }; // rows of lq_transforms[], in this order
enum { LQ_STAT_ABSMAX = 1, LQ_STAT_ABSMEAN = 2, LQ_STAT_HESSIAN = 4, LQ_STAT_KV = 8, LQ_STAT_SQUARE = 16 };
typedef enum lq_rounding { LQ_ROUND_NEAREST, LQ_ROUND_GPTQ } lq_rounding;
// What a group's scale spans: all that is in it; the share of that with the least squares of errors; the same, each
// column's counted by the mean square of its input.
typedef enum lq_range { LQ_RANGE_FULL, LQ_RANGE_MSE, LQ_RANGE_WEIGHTED, LQ_RANGES } lq_range;
typedef enum lq_salient { LQ_SALIENT_NONE, LQ_SALIENT_OUTLIER, LQ_SALIENT_COLUMNS } lq_salient;

// The order in which GPTQ rounds columns: as they stand; the largest input first, and stored so (`perm`); the group
// with the largest inputs first and in it the largest input, stored as they stand.
typedef enum lq_order { LQ_ORDER_NONE, LQ_ORDER_COLUMNS, LQ_ORDER_GROUPS } lq_order;

// What shares one alpha of SMOOTH, where it is searched.
typedef enum lq_alpha_of { LQ_ALPHA_MODEL, LQ_ALPHA_LAYER, LQ_ALPHA_INPUT } lq_alpha_of;

// What one matrix is to become. A method's own numbers are fields behind `type`; zero is off or the default, so a new
// one changes no row.
typedef struct lq_recipe {
    unsigned transform;   // LQ_T_ bits
    lq_rounding rounding;
    lq_salient salient;
    lq_wtype type;
    lq_range range;
    int steps;            // shares of the range that are tried; 0: 50
    float least;          // and the smallest of them, 0: 0.5
    lq_order order;       // GPTQ
    float damp;           // GPTQ: what is added to the diagonal, of its mean; 0: 0.01
    int refine;           // GPTQ: sweeps over the codes it chose
    float repay;          // GPTQ: the share of earlier layers' errors that is made good; 0: none
    float alpha;          // SMOOTH: how much of what is large goes into the weights; 0: searched
    lq_alpha_of alpha_of; // one for all inputs, one for those of a layer, for each its own
    float threshold;      // OUTLIER: the magnitude from which on a column is kept in 16 bits; 0: 6
    float share;          // and the share of columns that may be, the largest ones; 0: 1/16, COLUMNS: 0.01
    bool kv_scales;       // of the model: scales of a KV cache in fp8 are measured
    bool as_cut;          // of the model: what pruning leaves of it is not refitted
} lq_recipe;
unsigned lq_recipe_needs(const lq_recipe *r); // LQ_STAT_ bits: what must be seen of a layer before it can be rounded
bool lq_recipe_solves(const lq_recipe *r);     // whether the rounding itself reads what was seen

typedef struct lq_method {
    const char *name;     // "rtn"
    const char *help;     // one line
    lq_recipe recipe;     // with the default type
} lq_method;
extern const lq_method lq_methods[];
extern const size_t lq_method_count;
const lq_method *lq_method_find(const char *name); // NULL: there is none
const char *lq_method_name(size_t i);              // NULL past the last
// The layouts that a file can be written in, by name: `any`, and those in which the integer types have a form. NULL
// past the last.
const char *lq_quant_layout(size_t i);
// The words of a recipe's parts, as lq.recipe and the report have them: of bit i, of value i.
extern const char *const lq_stat_names[5], *const lq_rounding_names[2], *const lq_salient_names[3];
const char *lq_range_name(size_t i); // NULL past the last

typedef struct lq_quant_row lq_quant_row;
typedef struct lq_quant_opts {
    const char *in, *out;
    const char *method;   // a row of lq_methods[]
    // "int4 g128" ...: of the decoder's matrices, "keep" = as they are; NULL: the method's, or of a checkpoint that
    // others packed (lq_ckpt_packed) "keep"
    const char *type;
    const char *head, *embed; // types of these two, "keep" = as they are; NULL: "int8 row"
    const char *layout;   // "any" (default), "x86", "cuda": one of lq_quant_layout's
    int threads;          // 0: one per core
    const char *device;   // where text goes through the model and matrices are rounded, "cuda"; NULL: a CPU
    bool exact;           // there in f32 as on a CPU, not as that device serves
    size_t max_ram;       // 0: no limit given
    bool overwrite, fresh; // fresh: ignore what an interrupted run left
    bool keep_unknown;    // tensors the architecture does not know are carried over; else they are an error
    bool dry_run;         // ends after the plan
    double target_bits;   // auto: a weight of all matrices, scales and zero points counted; 0: not said
    size_t target_size;   // auto: of the output; 0: not said
    bool kv_scales;       // what a KV cache in fp8 divides K and V by is measured and stored
    double salient;       // the share of columns that stay in 16 bits, those with the largest inputs; 0: the method's
    const char *prune;    // what goes before anything is quantized, "depth:4,mlp:0.75"; NULL: nothing
    const struct lq_pruned *pruned; // lq_quantize's own: NULL
    struct lq_lent *lent; // likewise
    const char *alpha;    // smoothquant: a number, "input", "layer" or "model"; NULL: the recipe's
    const char *range;    // one of lq_range_name's; NULL: the method's
    const char *recipe;   // JSON that overrides parts of the method; NULL: nothing
    const char *calib;    // text that methods with statistics look at: a .txt, a .jsonl or a folder; NULL: built in
    size_t samples;       // sequences of it, 0: 128
    int seqlen;           // tokens of each, 0: 512, no more than the model's context
    bool seeded;          // `seed` is said, also where it is 0; else the recipe's, or 0
    uint64_t seed;        // which ones
    bool all_experts;     // what is known of an expert's input comes from all rows, not those that its router sends it
    const char *report;   // JSON report; NULL: OUT.report.json beside OUT; "-": only in the result
    void (*plan)(void *arg, const char *line);   // told before the work starts, line by line
    // Several times a second: how far the work is, by the time that the plan thinks it takes, as a part of `blocks`;
    // false stops. May be NULL.
    bool (*tick)(void *arg, double done, size_t blocks, const char *what);
    void (*module)(void *arg, const lq_quant_row *row); // told of each that is finished. May be NULL
    void *arg;
} lq_quant_opts;

// What happened to one matrix, or to a stack of them (the experts of a mixture).
struct lq_quant_row {
    char *name;
    char type[64];
    int count;            // matrices of a stack; 0: it is one
    int layer;            // -1: of the model
    const char *kind;     // of lq_quant_kinds
    int64_t n, k;
    double bits;          // per weight, all parts
    double before;        // and what it took in the checkpoint
    double error, norm;   // sums of squares, of W - Q and of W
    double loss, loss_plain, loss_norm; // of X (W - Q)^T, of plain rounding's, of X W^T; loss_norm 0: not known
    double rel_error;     // |W - Q| / |W|, Frobenius
    int worst;            // of a stack: the matrix whose relative error is the largest, the first of equals
    double worst_error;   // and that error
    double max_error;     // largest |w - q|
    double out_error;     // |X (W - Q)^T| / |X W^T| on the calibration's inputs X; negative: not known
    double out_plain;     // what plain rounding would have come to
    int outliers;         // columns that are kept in 16 bits
    double alpha;         // of SMOOTH; 0: its columns were left as they are
    int64_t *reached;     // [count] of experts: rows of the text that the router sent to each; NULL: not known
    char *note;           // what was fallen back to and why, or ""
};
typedef struct lq_quant_result {
    lq_quant_row *rows;
    size_t count;
    char *report;         // its text; NULL of a dry run
    size_t in_bytes, out_bytes; // of the files
    size_t plan_bytes;    // memory the plan allows, the mapped checkpoint aside
    size_t peak_bytes;    // most memory of its own that the process was seen to have, mapped files aside
    double plan_seconds;  // that the plan thought it would take
    double seconds, bits; // bits: mean over the weights of all matrices
    size_t blocks, resumed; // resumed: blocks taken over from an interrupted run
    int layers;
    // [layers] what stands behind each on the calibration's text: |as it is made - as it was| / |as it was|; NULL: not
    // known
    double *drift;
    int kept;             // matrices that stayed as they were,
    double kept_weights, kept_bytes;
} lq_quant_result;

// The rows of a layer (-1: of the model, LQ_ALL_LAYERS), of a kind (NULL: all of them), together (total.c).
enum { LQ_ALL_LAYERS = -2, LQ_KINDS = 5 };
extern const char *const lq_quant_kinds[LQ_KINDS]; // "embed", "attention", "mlp", "experts", "head"
typedef struct lq_quant_total {
    int matrices;         // a stack counts as many as it has
    double weights, before, after; // the latter in bytes
    double rel_error, out_error, out_plain; // as of a row; these two negative: not known of any
} lq_quant_total;
lq_quant_total lq_quant_sum(const lq_quant_result *r, int layer, const char *kind);

// Plans, checks places, memory and disk, runs, validates, writes the report. LQ_E_CANCELLED when `tick` stopped it:
// what is done stays in OUT.partial/ and the same call goes on from there. `out` is filled (and freed by the caller) on
// success only.
bool lq_quantize(const lq_quant_opts *o, lq_quant_result *out, lq_err *err);
void lq_quant_result_free(lq_quant_result *r);
// Puts a member ("\"eval\": {...}") into the report of a finished run, before its last one; and into the file `path`
// (NULL: there is none), which is replaced whole.
bool lq_quant_report_add(lq_quant_result *r, const char *path, const char *member, lq_err *err);

// --- one matrix ---
//
// Scales in dq256 (levels.c): what a group's scale may become spans from its range's times `least`, where shares of it
// are tried, to its range's; where errors are spread, a quarter more to either side. The offset is the mean of the
// middles of these spans, in f64; each 256 scales have as theirs what reaches the ends that are furthest from it.
// The map runs evenly from -1 to 1. A scale is what is nearest to it of all that a code stands for.
//
// Rounding to the nearest, kind LQ_W_INT with b bits, w = (q - z) * s, for a group with smallest element lo and largest
// hi:
//   symmetric   m = hi if hi > -lo, else lo     s = m / -2^(b-1)                      z = 2^(b-1)
//               (the largest element gets the code 0 = -2^(b-1), which has no partner; s is negative where m is
//               positive)
//   asymmetric  lo and hi are moved to take in 0     s = (hi - lo) / (2^b - 1)
//               z = rint(-lo / s), at most 2^b - 1
//   both        s is computed in f64, rounded to f32, then to its stored type
//               q = rint(clamp(w / s, -z, 2^b - 1 - z)) + z, the quotient in f32
//               where the stored s is 0 (a group of zeros): z = 2^(b-1), asymmetric 0, and q = z
// rint: ties to even. The scales are F16 as asked; where a scale of a matrix that is not 0 leaves F16's normal range
// [2^-14, 65504], the whole matrix gets F32 scales.
// Elements larger than 2^127 are refused. LQ_W_PLAIN: each element is rounded to the type, ties to even.
//
// LQ_W_FLOAT (fp8): s = the largest magnitude over the largest number of the type, q = w / s, saturating, ties to even;
// a row, a band of rows or the whole matrix shares s as the type says.
typedef struct lq_levels { // codes of scales and what belongs to them, as lq_weight has them
    uint8_t *code;
    float *map, *by, *offset;
} lq_levels;
typedef struct lq_matrix {
    const lq_weight *w;   // rows come by lq_weight_row: plain elements, or codes of another type
    lq_dev *dev;          // whose slot `round` is called; decides no bit
    const struct lq_edit *edit; // what becomes of each row before it is rounded; NULL: nothing
    struct lq_solve *solve; // what is known of its input; NULL: nothing
    const float *weight;  // [k] of LQ_RANGE_WEIGHTED: mean squares of its input; NULL: all equal
    void *q, *scale, *zero; // layout any, lq_weight_sizes of the recipe's type, `scale` with room for F32
    const lq_levels *levels; // of type.dq, with room for all; NULL: the values in `scale` are enough
    bool (*tick)(void *arg); // asked every few milliseconds; false stops with LQ_E_CANCELLED. May be NULL
    void *arg;
    // out
    lq_wtype type;        // the recipe's, or with F32 scales
    float scale2;         // of scales in E4M3
    double error, norm;   // sums of squares of w - q and of w
    double max_error;
    double loss, loss_plain, loss_norm; // with `solve`: |X (W - Q)^T|^2, of plain rounding, |X W^T|^2
} lq_matrix;
// Whether there is a rule for this recipe's type; LQ_E_UNSUPPORTED if not.
bool lq_recipe_check(const lq_recipe *r, lq_err *err);
// LQ_E_FORMAT on a NaN or infinity, naming row and column.
bool lq_quantize_matrix(const lq_recipe *r, lq_matrix *m, lq_err *err);

// Opens a written file as a stranger would and checks it: every tensor's checksum, every matrix of the architecture
// there with its shape, parts and finite scales, side files parse. `in` (may be NULL): plain tensors equal the ones it
// has, and where the rounding was to the nearest, sampled rows of every coded matrix stand within a step of it.
typedef struct lq_check { size_t tensors, weights; } lq_check;
bool lq_validate(const char *path, const char *in, lq_check *out, lq_err *err);
#endif
