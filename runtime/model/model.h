// model.h: a loaded model: its description, its weights on a device, its buffers, and one forward pass over a batch of rows.
#ifndef LQ_MODEL_H
#define LQ_MODEL_H
#include "runtime/model/arch.h"
#include "runtime/lq.h"
#include "runtime/text/tokenizer.h"

// A weight bound to its slot. Vectors are f32 on the device.
typedef struct lq_bound {
    lq_weight w;      // matrices (w.q NULL: absent)
    float *v;         // vectors
    float *bias;
    void *owned;      // repacked bytes, or NULL where the file's mapping is used
    void *more[5];    // other parts copied to a device that cannot read the mapping
    int mores;
} lq_bound;

typedef struct lq_kvpool {   // the bytes behind an lq_kv, one cache a layer
    lq_cache *layer;  // [layers]
    void **data;      // [layers] owned
    int page;
} lq_kvpool;

struct lq_model {
    lq_desc desc;
    lq_ckpt *ckpt;
    lq_dev *dev;
    lq_tokenizer *tok;
    lq_bound top[LQ_ROLES];        // embed, head, norm_out
    lq_bound (*layer)[LQ_ROLES];   // [layers]
    float *inv_freq[LQ_ROPES];     // device
    float mscale[LQ_ROPES];
    lq_dtype kv_type;
    int ctx;
    size_t weight_bytes;
    int64_t params;
    lq_wtype main_type;            // of most weights
    _Atomic bool taken;            // an engine works on it
};

void *lq_model_alloc(const lq_model *m, size_t bytes, lq_err *err); // on the device, zeroed; NULL: *err says why

// Buffers for batches of up to `rows` rows at cache positions below max_len, `outs` of which want logits at once. One forward at a time.
typedef struct lq_buffers lq_buffers;
bool lq_buffers_open(const lq_model *m, int rows, int outs, int max_len, lq_buffers **out, lq_err *err);
void lq_buffers_close(const lq_model *m, lq_buffers *b);

bool lq_kvpool_open(const lq_model *m, int page, const int *blocks /* [desc.groups] */, lq_kvpool *out, lq_err *err);
void lq_kvpool_close(const lq_model *m, lq_kvpool *p);
size_t lq_kv_token_bytes(const lq_model *m);

typedef struct lq_batch {
    const int32_t *ids;   // [rows.n]
    lq_rows rows;         // its tables are filled in layer by layer
    const int32_t *tables[LQ_KV_GROUPS]; // of each group, [rows.seqs][rows.table_stride]
    const int32_t *out;   // [outs] rows whose logits are wanted
    int outs;
    int max_at;
} lq_batch;

// Sees the input of each set of matrices, before they are applied: how calibration watches a model.
typedef void lq_observer(void *arg, int layer, lq_set set, const lq_mat *x);

// Computes the batch and leaves logits [outs][vocab] (f32) in *logits, which the buffers own. Allocates nothing.
void lq_forward(lq_model *m, lq_buffers *b, lq_kvpool *kv, const lq_batch *batch, lq_mat *logits);
// The parts of it, for a pass that streams: h is the residual of all rows.
void lq_forward_embed(lq_model *m, lq_buffers *b, const lq_batch *batch);
void lq_forward_layer(lq_model *m, lq_buffers *b, lq_kvpool *kv, const lq_batch *batch, int layer, lq_observer *see, void *arg);
void lq_forward_head(lq_model *m, lq_buffers *b, const lq_batch *batch, lq_mat *logits);
lq_mat lq_buffers_residual(const lq_buffers *b, int rows);
#endif
