// stream.h: calibration text on its way through a model, a layer at a time, in two courses: as the model was, and as it
// becomes. What stands between layers is kept for all rows of the text; a layer's weights are exchanged while it is
// the one at hand.
#ifndef LQ_STREAM_H
#define LQ_STREAM_H
#include "quant/here.h"
#include "runtime/model/arch.h"

typedef enum lq_course { LQ_AS_MADE, LQ_AS_WAS, LQ_COURSES } lq_course;

// Text as tokens, `samples` of them side by side.
typedef struct lq_calib {
    int32_t *ids;          // [samples][len]; NULL: the model is still to write them
    size_t samples;
    int len;
    size_t *drawn;         // [samples] which of the sequences that the text is cut into
    size_t of;             // of so many
    char source[256];      // "built-in", "self", or a file's name
    size_t memory;         // that writing it takes at most, if the model does
} lq_calib;

// Large memory of calibration (room.c): the process's own as long as some of `left` is left, then a file in `folder`.
typedef struct lq_rooms {
    const char *folder;
    size_t left;
} lq_rooms;
void *lq_room_open(lq_rooms *r, size_t bytes, lq_err *err); // zeros, on 64 bytes; NULL: see err
void lq_room_close(lq_rooms *r, void *p);                   // of that r; p may be NULL
// Nobody looks at these bytes for a while: of a file they leave the process's memory, and are read back when one does.
void lq_room_rest(void *p, size_t from, size_t bytes);

typedef struct lq_stream lq_stream;
typedef struct lq_stream_opts {
    const char *in;        // the checkpoint
    const lq_desc *desc;   // of the model as it becomes
    const lq_calib *text;  // lives as long
    int threads;
    lq_dev *on;            // where the models run; NULL: on a CPU of the stream's own
    bool paired;           // both courses; else only that of the model as it becomes
    const char *was;       // the other one's, where it is another checkpoint, of which `in` has some of the layers; or
    const int *of;         // NULL, and which they are: [layers of `in`] rising
    lq_rooms *rooms;       // lives as long
    bool spill;            // what stands between layers lies in a file from the first
    lq_tick *tick;         // asked before each chunk of rows and at each input; false stops with LQ_E_CANCELLED
    void *arg;
} lq_stream_opts;
bool lq_stream_open(const lq_stream_opts *o, lq_stream **out, lq_err *err);
void lq_stream_close(lq_stream *s);
lq_dev *lq_stream_dev(const lq_stream *s);
void lq_stream_lend(lq_stream *s, lq_dev *dev); // that is what lq_stream_dev says from now on
lq_dev *lq_stream_on(const lq_stream *s);       // where the models run, and what they are given lies
lq_rooms *lq_stream_rooms(const lq_stream *s);
// Memory that it takes at a chunk of rows, without the weights of a layer; and what stands between layers.
typedef struct lq_stream_size { size_t chunk, kept; } lq_stream_size;
lq_stream_size lq_stream_cost(const lq_desc *d, const lq_calib *text, bool paired, int64_t widest);

// Exchanges a matrix of no layer, in the model as it becomes: one without a measured scale of activations. Before any
// layer is entered.
bool lq_stream_put_top(lq_stream *s, lq_role role, const lq_weight *w, lq_err *err);
// The residuals before the first layer.
bool lq_stream_begin(lq_stream *s, lq_err *err);
bool lq_stream_enter(lq_stream *s, int layer, lq_err *err);
// What stands between layers of a sample, of the model as it becomes, as numbers of the host: [len][dim].
bool lq_stream_rows(const lq_stream *s, size_t sample, lq_here *out, lq_err *err);
// Exchanges a weight of the layer at hand, in the model as it becomes: a matrix (of a stack its at-th), which must live
// until the layer is left; a vector of all its elements.
bool lq_stream_put(lq_stream *s, lq_role role, int at, const lq_weight *w, lq_err *err);
void lq_stream_put_vector(lq_stream *s, const lq_slot *slot, const float *v);

// What one input of the layer is given, chunk by chunk of rows, where the models run. x: as made; was: the same rows as
// the model was, of as many columns as that has, NULL where that is not known (or they are not the same rows, behind a
// router).
typedef struct lq_sight {
    lq_mat x;
    const lq_mat *was;
    const int32_t *order, *start; // of experts: as in lq_seen
    int top_k;
    const lq_mat *k, *v;
} lq_sight;
typedef bool lq_looker(void *arg, const lq_sight *s, lq_err *err);
// paired false: in the course as made alone. Cheapest in the order of the inputs: each goes on where the last one was.
// Where it is looked at again k and v are NULL.
bool lq_stream_see(lq_stream *s, int input, bool paired, lq_looker *look, void *arg, lq_err *err);
// The same where it is known which rows are whose, of experts or heads. sent (0: the router chooses): all rows go to
// as many experts as it would, from sent - 1 on.
bool lq_stream_see_apart(lq_stream *s, int input, int sent, bool paired, lq_looker *look, void *arg, lq_err *err);
// What the experts of the model as it was are given, each its rows.
bool lq_stream_see_was(lq_stream *s, int input, lq_looker *look, void *arg, lq_err *err);
void lq_stream_anew(lq_stream *s); // the next look goes there from where the layer begins
// All rows go through the layer, as it was and as it is now; its weights are let go. *error (may be NULL): how far what
// the courses say is apart, |made - was| / |was|, 0 unless paired.
bool lq_stream_leave(lq_stream *s, double *error, lq_err *err);
#endif
