// pass.h: what the parts of the pass over a model share: the plan (plan.c), the work (pass.c), the report (report.c).
#ifndef LQ_PASS_H
#define LQ_PASS_H
#include "formats/json.h"
#include "quant/quant.h"
#include "runtime/model/arch.h"

enum {
    LQ_QUANT_NUMERICS = 1, // raised when the same input and recipe would give other bits; part of the fingerprint
    LQ_QUANT_REPORT = 1    // form of the report
};

// One tensor of the output. `t` and through it the name are the checkpoint's.
typedef struct lq_item {
    const lq_tensor *t;
    int64_t n, k;       // k = 0: a vector, or a tensor the architecture does not know
    bool round;         // else it is carried over as it is
    lq_recipe recipe;
} lq_item;

typedef struct lq_plan {
    const lq_quant_opts *o;
    const lq_method *method;
    lq_ckpt *in;
    lq_desc desc;
    lq_layout layout;
    lq_item *items;     // in the order of the output
    size_t count;
    size_t *first;      // [blocks + 1] items of a block: the embedding, each decoder layer, the rest
    size_t blocks;
    lq_text dropped, kept; // JSON arrays of names, without the brackets
    lq_text recipe;     // lq.recipe
    int64_t weights;    // in all matrices
    int64_t widest;     // largest k
    size_t buffer;      // bytes that one matrix takes when it is rounded and packed
    size_t memory;      // of the pass in all, known once the threads are
    size_t out_bytes, header_room, rounded;
    char fingerprint[33];
} lq_plan;

bool lq_plan_make(const lq_quant_opts *o, lq_plan *p, lq_err *err);
// The lines that are shown before the work starts; then refuses what the memory or the disk cannot hold.
bool lq_plan_tell(lq_plan *p, int threads, lq_err *err);
void lq_plan_free(lq_plan *p);

bool lq_report_write(const lq_plan *p, const lq_quant_result *r, int threads, lq_err *err);
#endif
