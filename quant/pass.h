// pass.h: what the parts of the pass over a model share: the plan (plan.c, place.c), the work (pass.c), the report
// (report.c).
#ifndef LQ_PASS_H
#define LQ_PASS_H
#include "formats/json.h"
#include "quant/quant.h"
#include "runtime/model/arch.h"

enum {
    LQ_QUANT_NUMERICS = 2, // raised when the same input and recipe would give other bits; part of the fingerprint
    LQ_QUANT_REPORT = 1    // form of the report
};

// One weight of the output.
typedef struct lq_item {
    lq_slot slot;       // of the output's description: one matrix or vector, or a stack; role LQ_ROLES: a tensor that
                        // nobody knows, which is `t`
    const lq_tensor *t;
    bool round;         // else it is carried over as it is: recipe.type is its own
    lq_recipe recipe;
} lq_item;
const char *lq_item_name(const lq_item *it);
// Where matrix `at` of a slot stands in a checkpoint. False: its name would be too long.
bool lq_item_pick(const lq_ckpt *in, const lq_slot *s, int at, lq_pick *out);

typedef struct lq_plan {
    const lq_quant_opts *o;
    const lq_method *method;
    lq_ckpt *in;
    lq_desc in_desc, desc; // of the input, of the output
    lq_layout layout;
    lq_item *items;     // in the order of the output
    size_t count;
    size_t *first;      // [blocks + 1] items of a block: the embedding, each decoder layer, the rest
    size_t blocks;
    lq_text dropped, kept; // JSON arrays of names, without the brackets
    lq_text recipe;     // lq.recipe
    lq_text report;     // where the report goes
    bool report_told;   // "-": to nobody but the caller
    int64_t weights;    // in all matrices
    size_t buffer;      // bytes that one matrix takes when it is rounded and packed
    size_t memory;      // of the pass in all, known once the threads are
    size_t out_bytes, header_room, rounded;
    size_t disk;        // at most, with the journal and the report
    char fingerprint[50];
} lq_plan;

bool lq_plan_make(const lq_quant_opts *o, lq_plan *p, lq_err *err);
// The lines that are shown before the work starts; then refuses what the memory or the disk cannot hold.
bool lq_plan_tell(lq_plan *p, int threads, lq_err *err);
void lq_plan_free(lq_plan *p);

// Whether the output and its report may stand where they are wanted, and side files are what they should be (place.c).
bool lq_places_check(lq_plan *p, lq_err *err);

// The report's text, allocated; and the text beside `path`, from where lq_report_publish renames it.
bool lq_report_make(const lq_plan *p, const lq_quant_result *r, int threads, char **text, lq_err *err);
bool lq_report_put(const char *path, const char *text, lq_err *err);
bool lq_report_publish(const char *path, lq_err *err);
void lq_report_forget(const char *path);

// lq_validate of a file whose checksums were compared already, against an input that is open (or NULL).
bool lq_validate_data(const char *path, lq_ckpt *in, lq_tick *tick, void *arg, lq_check *out, lq_err *err);
// Whether a side file is what its name says: strict JSON where it ends in .json.
bool lq_side_check(const char *name, const lq_bytes *file, lq_err *err);
#endif
