// prune.h: structured pruning, which comes before all else that is done to a model: what is asked and which of a model
// goes (worth.c, width.c), what is left of its description and its config.json (narrow.c), and the model that is left,
// a .lq file of its own, its matrices refitted, which is then quantized as any checkpoint is (stay.c, refit.c,
// prune.c).
#ifndef LQ_PRUNE_H
#define LQ_PRUNE_H
#include "quant/pass.h"

typedef struct lq_prune {
    int depth;      // layers that go, one after the other that whose loss changes what the model says least
    bool influence; // those that turn the residual least go instead
    // Shares that stay of an MLP's inner width, of KV heads with their queries, of the residual's width; 0: not asked.
    double mlp, heads, hidden;
    int group;      // of the type that matrices become: 0, or widths that are multiples of it stay so
} lq_prune;
bool lq_prune_read(const char *text, lq_prune *out, lq_err *err);

// What stays of a model: layers by the indexes that they had, and of each layer that was there heads and inner columns.
typedef enum lq_width { LQ_W_HEADS, LQ_W_MLP, LQ_W_EXPERTS, LQ_W_SHARED, LQ_WIDTHS } lq_width;
const lq_part *lq_width_part(const lq_layer *l, lq_width width); // whose it is; NULL: the layer has none
typedef struct lq_cut {
    lq_prune what;
    int layers, *layer;       // [layers] rising
    int32_t *channel;         // [dim] columns of the residual, rising; NULL: all
    int32_t **of[LQ_WIDTHS];  // [layers that were][..] rising; of experts one list behind the other. NULL: all
    int was;                  // so many layers there were
} lq_cut;
void lq_cut_free(lq_cut *c);

// How many of `n` stay of a width; and what stays of an MLP's, and of its layer's attention.
int lq_keep(int n, double share, int group);
int lq_keep_ffn(const lq_desc *was, const lq_layer *l, const lq_part *p, const lq_prune *what);
int lq_keep_kv(const lq_part *p, const lq_prune *what);

// Rows and columns of a weight (of a stack its at-th) that stay; NULL: all.
typedef struct lq_stay { int32_t *row, *column; } lq_stay;
bool lq_stay_of(const lq_desc *was, const lq_cut *cut, const lq_slot *slot, int at, lq_stay *out, lq_err *err);
// The [n][k] that are left: in *held, which is freed by the caller, or the weight as it is.
bool lq_stay_take(const lq_stay *s, const lq_weight *from, int64_t n, int64_t k, void **held, lq_weight *out,
                  lq_err *err);
void lq_stay_free(lq_stay *s);

// What decides: the model, what is asked, and text that goes through it.
typedef struct lq_worth {
    const lq_plan *p;
    const lq_prune *what;
    const lq_calib *text, *probes; // probes: for runs of the whole model,
    lq_dev *on;                    // and where it runs; NULL: on a CPU
    lq_rooms rooms;
    bool spill;
    lq_tick *tick;
    void *arg;
} lq_worth;
// Finds what stays. What is said of it goes to *told, JSON.
bool lq_prune_choose(const lq_worth *w, lq_cut *out, lq_text *told, lq_err *err);
// The same of what is not measured: which layers go is not known, but how many, and of widths how much.
bool lq_prune_guess(const lq_plan *p, const lq_prune *what, lq_cut *out, lq_err *err);
// What goes of widths, once it is known which layers stay.
bool lq_prune_widths(const lq_worth *w, lq_cut *cut, lq_text *told, lq_err *err);
// Memory that it takes at most, and what is left is refitted in, without what stands between layers and the moments of
// inputs as far as that may lie in a file.
size_t lq_prune_bytes(const lq_worth *w, bool refitted);

// What is left of a model refitted to what the whole one made of the text, layer by layer (refit.c).
typedef struct lq_refit lq_refit;
typedef struct lq_refit_opts {
    const lq_worth *w;
    const char *cut;     // the file that has what is left
    const lq_desc *desc; // of that
    const lq_cut *what;
} lq_refit_opts;
bool lq_refit_open(const lq_refit_opts *o, lq_refit **out, lq_err *err);
void lq_refit_close(lq_refit *r);
size_t lq_refit_bytes(int64_t widest); // beside what may lie in a file
bool lq_refit_layer(lq_refit *r, int layer, lq_err *err);
// Matrix `at` of a slot of that layer, until it is left. NULL: it is as it was cut.
const lq_weight *lq_refit_made(const lq_refit *r, int slot, int at);
bool lq_refit_leave(lq_refit *r, lq_err *err);

// The description of what a cut leaves, and its config.json. LQ_E_UNSUPPORTED: this architecture's config.json cannot
// say it.
bool lq_narrow(lq_ckpt *in, const lq_desc *was, const lq_cut *cut, lq_desc *out, lq_text *config, lq_err *err);

// A model that was pruned, on its way into the pass.
struct lq_pruned {
    const char *in;      // the checkpoint that it was made of
    size_t in_bytes;
    char path[4096];     // OUT.pruned.lq
    char cut[4096];      // OUT.cut.lq, what is left before it is refitted
    lq_text told;        // JSON: what went, for the report and lq.recipe
    char id[128];        // of everything that decides what it is
    // Of one that is only planned: its config.json and layers as they would be. The checkpoint is the whole model's.
    lq_text config;
    lq_cut guess;
};
bool lq_prune_make(const lq_quant_opts *o, lq_pruned *out, lq_err *err);
void lq_pruned_free(lq_pruned *p, bool done); // done: the file is not needed any more
#endif
