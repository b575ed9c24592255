// part.h: the kinds of parts that layers are made of, and what a part works with. Inside of model/ only.
//
// A kind is one row of lq_parts[] and one file. To add one: its name in lq_part_kind, its fields in lq_part, its roles
// (arch.h), a file part_<kind>.c with the functions below, its row in slots.c.
#ifndef LQ_PART_H
#define LQ_PART_H
#include "runtime/model/model.h"

// --- the weights of a part ---

// The slots and inputs of one layer while they are listed.
typedef struct lq_slots {
    const lq_desc *d;
    int layer;
    lq_slot *slot;        // [cap]
    int n, cap;
    lq_input input[LQ_INPUTS];
    int inputs;
    int x;                // the input that the part at hand reads through its norm
    bool failed;          // no memory, or a name or an input too many
} lq_slots;

// The weight of a norm over n, and its bias.
void lq_slots_norm(lq_slots *s, lq_role role, int64_t n, bool bias);
// The weights of norms over n, one for each head: a tensor [heads][n], or a vector each
// where the role's name has an index.
void lq_slots_head_norms(lq_slots *s, lq_role role, int heads, int64_t n);
// A new input of the layer; its index.
int lq_slots_input(lq_slots *s, lq_before before, lq_role by, int64_t k);
// A matrix [n][k] that reads `input`, and its bias.
void lq_slots_matrix(lq_slots *s, lq_role role, int input, int64_t n, int64_t k, bool bias);
// The same whose rows stand in a tensor of role `whole`: row i is row first + i / run * step + i % run of it.
typedef struct lq_rows_of { lq_role whole; int64_t first, run, step; } lq_rows_of;
void lq_slots_rows(lq_slots *s, lq_role role, int input, int64_t n, int64_t k, bool bias, lq_rows_of from);
// `count` matrices of one shape side by side: experts, heads. from (may be NULL): rows of each matrix of `whole`.
void lq_slots_stack(lq_slots *s, lq_role role, int input, int count, int64_t n, int64_t k, const lq_rows_of *from);
void lq_slots_across(lq_slots *s); // the matrices that were listed last are [k][n] in other people's files
void lq_slots_each(lq_slots *s, int64_t each); // and are so many rows each of one
// The biases of the matrices of role `role`, which was listed last: elements of each vector of a stack.
void lq_slots_biases(lq_slots *s, lq_role role, int count, int64_t n, const lq_rows_of *from);
// A vector that is no norm's.
void lq_slots_vector(lq_slots *s, lq_role role, int64_t n);
// One that is the first row of a tensor [of][n].
void lq_slots_first(lq_slots *s, lq_role role, int64_t n, int64_t of);
// What was listed last, a matrix and its bias or a stack, makes what the part adds to the residual. Every such matrix
// says so: what changes the residual (quant/) finds them by it.
void lq_slots_adds(lq_slots *s);

// --- one pass ---

// A forward of so many rows, at positions up to max_at, and of as many rows' logits.
typedef struct lq_recording { int rows, max_at; uint64_t used; lq_graph *graph; } lq_recording;
enum { LQ_RECORDINGS = 160 };

struct lq_buffers {
    int outs, max_len;
    lq_mat h;                  // [rows][dim] the residual
    lq_mat x;                  // [rows][dim] normed
    lq_mat delta, more;        // [rows][dim] what a part adds to h, and one beside it
    lq_mat head_h, head_delta; // [outs][dim]
    lq_mat logits;             // [outs][vocab]
    char *work;                // what a part needs while it runs
    void *act;                 // of lq_act_bytes
    lq_mat turned;             // inputs reordered or scaled for weights that ask for it
    int32_t *ints, *staged;    // [int_cap] a batch's indices, where the device is not the host: there, and here
    size_t int_cap;            // the last `outs` are rows whose logits are wanted
    lq_recording recorded[LQ_RECORDINGS];
    int recordings;
    uint64_t replays;
    bool warm;                 // a step has run
    int32_t *tables[LQ_KV_GROUPS]; // there too: the block tables of all slots
    lq_mat tokens;             // [rows][layers][token_dim] what the layers are told of each row's token
    int32_t *trim;             // of trim.c
    float *host;               // [outs][vocab] logits brought from it, or [outs][wide] of what the head reads, twice
    float pending;             // `delta` times this is still to be added to h; 0: nothing is
};

static inline lq_mat lq_view(lq_mat m, int rows, int cols) { // its first numbers, rows one behind the other
    m.rows = rows;
    m.cols = cols;
    m.stride = (size_t)cols;
    return m;
}

// [rows][cols] in d->act out of `work`; all that a part takes is forgotten when it returns.
lq_mat lq_take(lq_run *c, int rows, int64_t cols);
size_t lq_take_bytes(const lq_model *m, int rows, int64_t cols);
void *lq_take_raw(lq_run *c, size_t bytes);
lq_mat lq_take_f32(lq_run *c, int rows, int cols); // scores, whatever the device's type is
static inline size_t lq_f32_bytes(int rows, int cols) {
    return ((size_t)rows * (size_t)cols * sizeof(float) + 63) & ~(size_t)63;
}

static inline lq_rows lq_layer_rows(const lq_run *c) { // the batch's, with the block tables of the layer at hand
    lq_rows rows = c->batch.rows;
    rows.tables = c->batch.tables[c->m->desc.layer[c->layer].group];
    return rows;
}

// step.c. The batch where the device reads it, padded to so many rows and sequences; rows whose logits are wanted.
size_t lq_stage_room(const lq_buffer_sizes *o);
void lq_stage(lq_run *c, const lq_batch *batch, int rows, int seqs);
const int32_t *lq_stage_out(lq_run *c, const int32_t *out, int have, int want);
void lq_recordings_free(const lq_model *m, lq_buffers *b);
// forward.c. What follows when a batch is there: `real` of its rows have a position. Logits of rows that the device
// has in out[].
void lq_forward_start(lq_run *c, const lq_mat *residual, int real);
lq_mat lq_head(lq_run *c, const int32_t *out, int n);
// What part i of a layer reads, which is not beside another or has a norm of its own.
lq_mat lq_part_reads(lq_run *c, int layer, int i);
// y = these rows (where the device has them) of a table of the batch's rows in the device's type of activations.
void lq_gather(lq_run *c, const void *table, const int32_t *rows, lq_mat y);
// trim.c. Rows about which nobody asks go no further than where they leave their last K and V: of `rows` the `asked`
// alone, or all.
bool lq_trims(int rows, int asked);
int lq_trim_layer(const lq_desc *d); // before which it is done
bool lq_trim_open(lq_buffers *b, const lq_buffer_sizes *o, lq_err *err);
bool lq_trim(lq_run *c, const lq_step *s); // false: no row is left
// Where rows of the batch stand now.
const int32_t *lq_places(lq_run *c, const int32_t *rows, int n);

// What is about to make x is to make the form in which a matrix (of a stack all) reads x as well, in its `act`; NULL:
// there is none to make. What is made is used until another form is asked for, or a part begins.
lq_act *lq_form_ahead(lq_run *c, lq_mat x, const lq_bound *reader);
// y = the norm of x as the description says, with these weights; x += delta before, unless that is NULL.
void lq_norm(lq_run *c, lq_mat x, const lq_mat *delta, const lq_bound *gamma, lq_mat y);
// The same where the rows of x take turns with so many weights.
void lq_norm_turns(lq_run *c, lq_mat x, const lq_mat *delta, const lq_bound *gamma, int gammas, lq_mat y);
// The same as a matrix that reads y wants it.
void lq_norm_for(lq_run *c, lq_mat x, const lq_mat *delta, const lq_bound *gamma, lq_mat y, const lq_bound *reader);

// The one place where linear layers are applied. y[i] = x w[i]^T + bias, for matrices that read the same input.
// False: the observer wants no more of this layer.
bool lq_apply(lq_run *c, lq_mat x, const lq_bound *const *w, const lq_mat *y, int count);
// The same for stacks: row s of y is what its expert (route's order and start) makes of row s /
// top_k of x; by_slot: of row s. order NULL: slot s is of expert s % experts, as heads are.
typedef struct lq_routed { const int32_t *order, *start; int top_k; bool by_slot; } lq_routed;
bool lq_apply_stack(lq_run *c, lq_mat x, const lq_routed *r, const lq_bound *const *w, const lq_mat *y, int count);

// leave.c. A part says before it applies what it will still read behind that, beside the x of it and what it was given,
// as rows that lie one behind the other (LQ_HOLDS at most): a layer may be left there.
void lq_hold(lq_run *c, lq_mat m);
void lq_run_idle(lq_run *c); // ops that do nothing
void lq_run_wake(lq_run *c); // back where the layer was left

typedef struct lq_part_row {
    void (*slots)(lq_slots *out, const lq_part *p); // its weights and inputs
    size_t (*room)(const lq_model *m, const lq_part *p, int rows); // bytes of lq_take for so many rows
    size_t (*held)(const lq_part *p, int rows); // of what any of its inputs but the first is, and what it holds there
    // The first matrix that reads its x, and may be quantized.
    const lq_bound *(*reader)(const lq_part *p, const lq_bound *w);
    void (*run)(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x, lq_mat y); // y = what it adds to the residual
    // Of `run` what leaves K and V in the cache; NULL: nothing does.
    void (*keep)(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x);
} lq_part_row;
extern const lq_part_row lq_parts[LQ_PART_KINDS];

void lq_attn_slots(lq_slots *s, const lq_part *p);
size_t lq_attn_room(const lq_model *m, const lq_part *p, int rows);
size_t lq_attn_held(const lq_part *p, int rows);
const lq_bound *lq_attn_reader(const lq_part *p, const lq_bound *w);
void lq_attn_run(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x, lq_mat y);
void lq_attn_keep(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x);
void lq_mla_slots(lq_slots *s, const lq_part *p);
size_t lq_mla_room(const lq_model *m, const lq_part *p, int rows);
size_t lq_mla_held(const lq_part *p, int rows);
const lq_bound *lq_mla_reader(const lq_part *p, const lq_bound *w);
void lq_mla_run(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x, lq_mat y);
void lq_mla_keep(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x);
void lq_mlp_slots(lq_slots *s, const lq_part *p);
size_t lq_mlp_room(const lq_model *m, const lq_part *p, int rows);
size_t lq_mlp_held(const lq_part *p, int rows);
const lq_bound *lq_mlp_reader(const lq_part *p, const lq_bound *w);
void lq_mlp_run(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x, lq_mat y);
void lq_moe_slots(lq_slots *s, const lq_part *p);
size_t lq_moe_room(const lq_model *m, const lq_part *p, int rows);
size_t lq_moe_held(const lq_part *p, int rows);
const lq_bound *lq_moe_reader(const lq_part *p, const lq_bound *w);
void lq_moe_run(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x, lq_mat y);
void lq_token_slots(lq_slots *s, const lq_part *p);
size_t lq_token_room(const lq_model *m, const lq_part *p, int rows);
size_t lq_token_held(const lq_part *p, int rows);
const lq_bound *lq_token_reader(const lq_part *p, const lq_bound *w);
void lq_token_run(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x, lq_mat y);

// bind.c
void lq_bind_numbers(lq_model *m, int layer); // those of a layer's vectors that are read on the host
void lq_unbind(const lq_model *m, lq_bound *b);
#endif
