// model.h: a loaded model: its description, its weights on a device, its buffers, and one
// forward pass over a batch of rows.
#ifndef LQ_MODEL_H
#define LQ_MODEL_H
#include "runtime/lq.h"
#include "runtime/model/arch.h"
#include "runtime/text/tokenizer.h"

// The weights of a role, bound to their slots. Vectors are f32 on the device.
typedef struct lq_bound {
    lq_weight w;      // a matrix (w.q NULL: absent); of a stack its first
    float *v;         // a vector
    float *bias;      // of a stack [count][n]
    const float **biases; // [count] where each one's begins, NULL: there are none
    int input;        // of the layer, that it reads
    lq_weight *stack; // [count] matrices side by side, NULL: one
    int count;
    bool each;        // its matrices read x in orders of columns of their own
    void **memory;    // [memories] of the device: vectors, repacked bytes, parts it cannot read as they are mapped
    size_t memories, memory_cap;
} lq_bound;

typedef struct lq_xielu { float above, below, beta, least; } lq_xielu; // as in lq_glu_args, above: alpha

typedef struct lq_kvpool { // the bytes behind an lq_kv, one cache a layer
    lq_cache *layer;  // [layers]
    void **data;      // [layers] owned
    float **scale;    // [layers] owned: of int8, written with the codes
} lq_kvpool;

struct lq_model {
    lq_desc desc;
    lq_ckpt *ckpt;
    lq_dev *dev;
    lq_tokenizer *tok;
    lq_bound top[LQ_ROLES];        // what stands around the layers
    lq_bound (*layer)[LQ_ROLES];   // [layers]
    float *inv_freq[LQ_ROPES];     // device
    float mscale[LQ_ROPES];
    float *slopes;                 // device: of ALiBi, [heads]; NULL: no layer has it
    float *scale;                  // [layers] what the residual is times behind each; NULL: nothing
    lq_xielu *xielu;               // [layers] of MLPs; NULL: none has it
    float *head_by;                // device: [vocab] one over the length of each row of the head; NULL: 1
    lq_dtype kv_type;
    int ctx;
    bool tight;                    // no packed copies of rows of numbers: unwanted, or too little memory
    size_t weight_bytes;
    int64_t params;
    lq_wtype main_type;            // of most weights
    _Atomic bool taken;            // an engine works on it
    struct lq_moved *moved;        // [moves] while a layer is bound (bind.c)
    size_t moves, moved_cap;
};

// Why its output is no number: the tensor that holds none, in a line. Reads all of the weights.
void lq_model_blame(const lq_model *m, char *line, size_t size);
void *lq_model_alloc(const lq_model *m, size_t bytes, lq_err *err); // on the device, zeroed; NULL: *err says why

// Buffers for batches of up to `rows` rows at cache positions below max_len of up to `slots` sequences, `outs` of which
// want logits at once. One forward at a time.
typedef struct lq_buffers lq_buffers;
typedef struct lq_buffer_sizes { int rows, outs, max_len, slots, table_stride; } lq_buffer_sizes;
bool lq_buffers_open(const lq_model *m, const lq_buffer_sizes *s, lq_buffers **out, lq_err *err);
void lq_buffers_close(const lq_model *m, lq_buffers *b);

bool lq_kvpool_open(const lq_model *m, int page, const int *blocks /* [desc.groups] */, lq_kvpool *out, lq_err *err);
void lq_kvpool_close(const lq_model *m, lq_kvpool *p);
size_t lq_kv_token_bytes(const lq_model *m, int group); // of the layers of a group; -1: of all
// swap.c. n blocks of a group, with their scales, to memory of the host and back, into the same blocks or others: each
// has lq_kv_block_bytes there. What is out is there after `sync` of the device; what comes in was read when lq_kv_in
// returns. Pages that the host's system may move are copied at less speed than a GPU can.
size_t lq_kv_block_bytes(const lq_model *m, const lq_kvpool *kv, int group);
void lq_kv_out(const lq_model *m, const lq_kvpool *kv, int group, int n, const int32_t *block, void *to /* [host] */);
void lq_kv_in(const lq_model *m, const lq_kvpool *kv, int group, int n, const int32_t *block, const void *from);

typedef struct lq_batch {
    const int32_t *ids;   // [rows.n]
    lq_rows rows;         // its tables are filled in layer by layer
    const int32_t *tables[LQ_KV_GROUPS]; // of each group, [slots][rows.table_stride]
    const int32_t *changed; // [changes] rows of the tables that changed since the last batch of these buffers
    int changes;
    const int32_t *out;   // [outs] rows whose logits are wanted
    int outs;
    int max_at;
} lq_batch;

// --- one step ---
//
// Everything that one step of an engine asks of a model, as data: other ranks get it as bytes and run
// it too, a device may replay it.
typedef struct lq_step {
    lq_batch batch;       // outs: any number
    int copies[LQ_KV_GROUPS]; // blocks that are copied first, in order, in all layers of a group
    const int32_t *src[LQ_KV_GROUPS], *dst[LQ_KV_GROUPS];
    const lq_draw *draw;  // [batch.outs]; NULL: nothing is drawn
    lq_drawn *drawn;      // [batch.outs]
    int32_t *top_id;      // [batch.outs][LQ_TOP]
    float *top_logprob;
    // Instead of drawing: the logits of each wanted row in order, on the host and valid during the call; false stops.
    bool (*on_logits)(void *arg, int out, const float *logits);
    // Of these rows too what the head reads, behind the last norm: lq_desc_wide numbers each, in order as well.
    const int32_t *hidden; // [hiddens]
    int hiddens;
    void (*on_hidden)(void *arg, int i, const float *h);
    void *arg;
} lq_step;
// Returns when all of it is there. Allocates nothing. LQ_E_CANCELLED where on_logits stopped it.
bool lq_step_run(lq_model *m, lq_buffers *b, lq_kvpool *kv, const lq_step *s, lq_err *err);

// Makes ready what steps do that mostly decode, of up to so many rows and at any position: no step of them waits for
// its recording then. `none` is a batch of no rows, with all that a batch has. A host has nothing to make ready.
bool lq_step_warm(lq_model *m, lq_buffers *b, lq_kvpool *kv, const lq_batch *none, int rows, lq_err *err);

// --- the parts of a forward, for a pass that streams ---

// A model that lacks its layers: each is bound when it is its turn, and may have its weights exchanged. on: runs there
// (device, isa, threads, exact, rough are not read); NULL: on a device of its own.
bool lq_model_open_lean(const char *path, const lq_model_opts *o, lq_dev *on, lq_model **out, lq_err *err);
// The same with all of its layers.
bool lq_model_open_on(const char *path, const lq_model_opts *o, lq_dev *on, lq_model **out, lq_err *err);
bool lq_bind_layer(lq_model *m, int layer, lq_err *err); // -1: what stands around them
void lq_unbind_layer(lq_model *m, int layer);
// A weight that lies with the host, as the device reads it: in memory of the device's that b has until it is unbound.
bool lq_bind_weight(lq_model *m, lq_bound *b, lq_weight *w, lq_err *err);
void lq_unbind_from(lq_model *m, lq_bound *b, size_t memories); // all that b has of such memory but its first pieces

// What matrices of a layer are about to read. x is on the device, before `smooth` and `perm` of any weight.
typedef struct lq_seen {
    int layer, input;     // index into lq_desc_inputs
    lq_mat x;
    // Of experts: which slots are whose, slot s being row s / top_k of x (down: row s). NULL: for all rows, or, where
    // top_k is set, row s is for matrix s % count of the stack.
    const int32_t *order, *start;
    int top_k;
    const lq_mat *k, *v;  // input of o: K and V of these rows, as they went to the cache; of latents K. Or NULL
} lq_seen;
typedef bool lq_observer(void *arg, const lq_seen *s); // false: the rest of this layer is not needed

enum { LQ_HOLDS = 3 };
typedef struct lq_run {
    lq_model *m;
    lq_buffers *b;
    lq_kvpool *kv;
    const lq_ops *ops;    // the device's; of a layer that goes on, those that do nothing until it is where it was
                          // left, in the middle of a part
    lq_batch batch;       // on the device
    const int32_t *place; // [rows of the step] where a row stands, of those that are left (trim.c); NULL: all are
    lq_observer *see;     // or NULL
    void *arg;
    const void *left;     // what lq_forward_keep kept of these rows when their layer was left at input `from`: it goes
    int from;             // on from there. NULL: it begins
    bool there;           // `left` is in the device's memory
    // of the layer at hand
    int layer;
    size_t used;          // bytes of the parts' memory that are taken
    const lq_mat *k, *v;
    const lq_weight *ahead; // `act` holds what stands at ahead_of in the form that this one reads; NULL: nothing
    const void *ahead_of;
    lq_act act;
    lq_mat x, held[LQ_HOLDS]; // what is read at the input where the observer stopped it, and what is still read behind
    int holds;
    bool said, again;     // `delta` is still read behind the part at hand; the buffers' x is
    bool stopped;         // the observer wants no more of it
    int sent;             // of mixtures: all rows go to as many experts as one is sent to, from sent - 1 on; 0: routed
} lq_run;
// Brings the batch to the device, and the residual of its rows: from their ids, or one that was kept.
void lq_forward_begin(lq_run *c, lq_model *m, lq_buffers *b, lq_kvpool *kv, const lq_batch *batch,
                      const lq_mat *residual);
void lq_forward_layer(lq_run *c, int layer);
// A layer that was stopped can go on later, in another run of the same rows and weights: its input is given to the
// observer once more, then follows what stands behind. What is kept for that, on the host or (there) in the device's
// memory, and the most bytes of it.
void lq_forward_keep(const lq_run *c, void *to, bool there);
size_t lq_forward_kept(const lq_desc *d, int layer, int rows);
// h is the whole residual of all rows from here on: what the last part said is in it.
lq_mat lq_forward_settle(lq_run *c);
// Logits [outs][vocab] (f32) of the rows out[], no more than the buffers' outs; the buffers own them.
lq_mat lq_forward_head(lq_run *c, const int32_t *out /* host */, int outs);
// What the head reads of these rows, [outs][lq_desc_wide] in the device's type of activations; the buffers own it.
lq_mat lq_forward_hidden(lq_run *c, const int32_t *out /* host */, int outs);
#endif
