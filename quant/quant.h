// quant.h: a checkpoint in, a quantized .lq file out. The pass streams: one decoder block is read, rounded, written, freed.
//
// lq_methods[] is one of the four tables of lq. A method is a composition (statistics x transform x rounding x salient x
// format); what it needs from a block it says in its row.
#ifndef LQ_QUANT_H
#define LQ_QUANT_H
#include "formats/block.h"
#include "formats/ckpt.h"

typedef enum lq_stats { LQ_STATS_NONE, LQ_STATS_ABSMAX, LQ_STATS_MOMENT, LQ_STATS_HESSIAN } lq_stats;
typedef enum lq_transform { LQ_T_NONE, LQ_T_SMOOTH, LQ_T_AWQ, LQ_T_ROTATE } lq_transform;
typedef enum lq_rounding { LQ_ROUND_NEAREST, LQ_ROUND_SEARCH, LQ_ROUND_GPTQ } lq_rounding;
typedef enum lq_salient { LQ_SALIENT_NONE, LQ_SALIENT_OUTLIER, LQ_SALIENT_COLUMNS } lq_salient;

// What one matrix is to become.
typedef struct lq_recipe {
    lq_stats stats;
    lq_transform transform;
    lq_rounding rounding;
    lq_salient salient;
    lq_wtype type;
} lq_recipe;

typedef struct lq_method {
    const char *name;     // "rtn"
    const char *help;     // one line
    lq_recipe recipe;     // with the default type
} lq_method;
extern const lq_method lq_methods[];
extern const size_t lq_method_count;

typedef struct lq_quant_opts {
    const char *in, *out;
    const char *method;   // a row of lq_methods[]
    const char *type;     // "int4 g128" ...: of the decoder's matrices; NULL: the method's
    const char *head, *embed; // types of these two, "keep" = as they are; NULL: "int8"
    const char *layout;   // "any" (default), "x86"
    int threads;
    size_t max_ram;       // 0: no limit given
    bool overwrite, fresh; // fresh: ignore what an interrupted run left
    const char *report;   // JSON report; NULL: OUT.report.json beside OUT
    void (*plan)(void *arg, const char *line);   // told before the work starts, line by line
    bool (*tick)(void *arg, size_t block, size_t blocks, const char *what); // false stops; may be NULL
    void *arg;
} lq_quant_opts;

// What happened to one matrix.
typedef struct lq_quant_row {
    char name[96];
    char type[40];
    int64_t n, k;
    double bits;          // per weight, all parts
    double rel_error;     // |W - Q| / |W|, Frobenius
    double max_error;     // largest |w - q|
    char note[96];        // what was fallen back to and why, or ""
} lq_quant_row;
typedef struct lq_quant_result {
    lq_quant_row *rows;
    size_t count;
    size_t in_bytes, out_bytes, peak_bytes;
    double seconds, bits;
    size_t resumed;       // blocks taken over from an interrupted run
} lq_quant_result;

bool lq_quantize(const lq_quant_opts *o, lq_quant_result *out, lq_err *err);
void lq_quant_result_free(lq_quant_result *r);

// One matrix: w [n][k] f32 -> codes, scales, zeros in layout any. `dst` buffers have lq_weight_sizes bytes.
// Returns false (LQ_E_FORMAT) on NaN or infinity, naming the row.
bool lq_quantize_matrix(const lq_recipe *r, const float *w, int64_t n, int64_t k, void *q, void *scale, uint8_t *zero, lq_err *err);

// Opens a written file as a stranger would and checks it: every tensor's checksum, every weight's parts and finite scales,
// every matrix of the architecture present with its shape, side files parse. `in` (may be NULL): also that plain tensors are equal.
typedef struct lq_check { size_t tensors, weights; } lq_check;
bool lq_validate(const char *path, const char *in, lq_check *out, lq_err *err);
#endif
