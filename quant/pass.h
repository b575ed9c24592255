// pass.h: what the parts of the pass over a model share: the plan (plan.c, place.c), recipes (recipe.c), the work
// (pass.c), a block on its way and what transforms make of it (block.c, fold.c, rotate.c, turn.c), one matrix
// (module.c), calibration (calib.c, stream.c, watch.c, calibrate.c, acts.c, awq.c, smooth.c, tries.c, gptq.c), the
// report (report.c). What is pruned before has a page of its own, prune.h.
#ifndef LQ_PASS_H
#define LQ_PASS_H
#include "formats/json.h"
#include "quant/quant.h"
#include "quant/stream.h"
#include <time.h>

enum {
    LQ_QUANT_NUMERICS = 12, // raised when the same input and recipe would give other bits; part of the fingerprint
    LQ_QUANT_REPORT = 1    // form of the report
};

// One weight of the output.
typedef struct lq_solve lq_solve;
typedef struct lq_pruned lq_pruned; // a model of which something has gone (prune.h)
typedef struct lq_acts lq_acts;
typedef struct lq_lent lq_lent; // another device that rounds and solves (lend.c)
typedef struct lq_item {
    lq_slot slot;       // of the output's description: one matrix or vector, or a stack
    const lq_tensor *t; // role LQ_ROLES: a tensor that nobody knows
    const lq_slot *source; // of the input's description, if it is another: the embedding that was the head too
    bool round;         // else it is carried over as it is: recipe.type is its own
    double before;      // bits a weight in the checkpoint
    lq_recipe recipe;
} lq_item;
const char *lq_item_name(const lq_item *it);
// Where matrix `at` of an item, of a slot, stands in a checkpoint. LQ_E_LIMIT: its name would be too long.
bool lq_item_pick(const lq_ckpt *in, const lq_item *it, int at, lq_pick *out, lq_err *err);
bool lq_source_pick(const lq_ckpt *in, const lq_slot *s, int at, lq_pick *out, lq_err *err);

typedef struct lq_plan {
    const lq_quant_opts *o; // `own`
    lq_quant_opts own;      // as they were given, and what the recipe says for them
    cJSON *given;           // that recipe; NULL: none
    const lq_method *method;
    lq_recipe base;     // the method's, with what --recipe says
    cJSON *rules;       // of it, for single matrices; NULL: none
    bool *rule_used;    // [rules]
    bool mixed;         // what is multiplied together may have several types
    lq_text automatic;  // how auto found the rules, JSON
    size_t measured;    // units that it measured in this run
    lq_ckpt *in;
    lq_desc in_desc, desc; // of the input, of the output
    lq_desc whole;      // of the checkpoint, where the input is what pruning would leave of it; arch NULL: it is it
    lq_slot embed;      // the input's embedding, where that is the source of an item that is not it
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
    size_t copy;        // that the largest matrix takes which has to be made whole before it is rounded
    size_t memory;      // of the pass in all, known once the threads are
    double *pace;       // [blocks + 1] seconds that each block seems to take, and the check of what was written
    double seconds;     // of all of it
    size_t out_bytes, header_room, rounded;
    bool coded;         // the input is a .lq file with codes in it
    size_t carried;     // matrices that are coded and whose codes stay
    const char *first_carried; // the checkpoint's
    size_t again;       // and those that are rounded once more
    size_t disk;        // at most, with the journal, the report and
    size_t scratch;     // what calibration lays aside
    char fingerprint[400]; // of a run that calibrates, the device and its solver behind the rest
    bool calibrates;    // a recipe wants to know what its inputs are
    lq_calib calib;     // then: the text,
    bool paired;        // whether what the model gave before counts too,
    lq_rooms rooms;     // memory that its sums and what stands between layers may take,
    bool spill;         // whether the latter lies in a file,
    int together;       // how many experts are watched at once at most,
    double alpha;       // of SMOOTH, for the whole model, once it was searched; negative: nobody has
    bool moments;       // whether second moments are wanted,
    int64_t widest;     // and the longest row of a matrix
} lq_plan;

bool lq_plan_make(const lq_quant_opts *o, lq_plan *p, lq_err *err);
void lq_tell(const lq_quant_opts *o, const char *fmt, ...) LQ_PRINTF(2, 3); // a line of the plan
// A hash of all that tells one input from another without reading all of it. made (may be NULL): what the file was made
// of, in place of what file it is.
bool lq_input_hash(lq_ckpt *in, const char *made, uint64_t out[2], lq_err *err);
// The type that an option gives a matrix, by its role, and the option; NULL: none does. A tied head is its embedding.
const char *lq_type_asked(const lq_plan *p, const lq_slot *s, const char **option);
// What the bits of its sums depend on goes into the fingerprint of a run that calibrates.
bool lq_plan_device(lq_plan *p, lq_dev *dev, lq_err *err);
// The lines that are shown before the work starts; then refuses what the memory or the disk cannot hold.
bool lq_plan_tell(lq_plan *p, int threads, lq_err *err);
void lq_plan_free(lq_plan *p);
// Seconds of a clock.
static inline double lq_clock(clockid_t of) {
    struct timespec t;
    clock_gettime(of, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double lq_now(void) { return lq_clock(CLOCK_MONOTONIC); }

bool lq_pace_make(lq_plan *p, lq_dev *dev, lq_err *err); // how long it will take (pace.c)

// --- a block on its way ---
//
// A block is the embedding, a layer, or what stands behind them. It is held whole: transforms say what is to become of
// all its modules before the first is rounded, as what one of them takes from a matrix goes into a norm that stands
// before it in the file, or into the rows of another matrix. What is held are the vectors and what is to be done to
// matrices; a matrix itself is read, changed, rounded, written and let go when it is its turn.

// A change of basis: x' = x D H / sqrt(order), D of signs that follow from the index alone, H = Paley's of order `odd`
// times Sylvester's of order `two`. docs/QUANT.md has it in full.
enum { LQ_TURN_ODD = 128 };
typedef struct lq_turn {
    int64_t width;      // of the basis; what is longer has several, one behind the other
    int64_t two;        // two * odd is the order, which divides the width
    int odd;
    int8_t sign[LQ_TURN_ODD][LQ_TURN_ODD]; // [odd][odd]
} lq_turn;
void lq_turn_make(int64_t width, lq_turn *out);
void lq_turn_run(const lq_turn *t, float *v /* [n][lanes] */, int64_t n, int64_t lanes);

// What becomes of a matrix W [n][k] before it is rounded: out^T diag(row) W diag(column) in.
typedef struct lq_edit {
    const float *column, *row; // [k], [n]; NULL: ones
    int64_t columns, rows;     // of a stack whose matrices have their own: from one to the next; 0: they share them
    const lq_turn *in, *out;   // of the columns, of the rows; NULL: not
    const int32_t *apart;      // [aparts] columns that become 0, as their weights are kept elsewhere
    int aparts;
} lq_edit;
lq_edit lq_edit_of(const lq_edit *e, int at); // of matrix `at` of a stack

// What became of a matrix.
typedef struct lq_made {
    lq_recipe recipe;
    lq_weight src, out; // as read, as made
    float scale2;       // of `out`
    double error, norm, max_error;
    double loss, loss_plain, loss_norm; // of what it makes of the calibration's inputs; norm 0: not known
    void *held;         // the bytes of `out`, if it was made before it is written,
    uint8_t *beside;    // and in it the room of what stands beside codes and scales (lq_acts_bytes)
} lq_made;

typedef struct lq_module {
    const lq_item *it;
    lq_edit edit;       // of a matrix, and of each one of a stack
    float *vector;      // [n] what became of a vector; NULL: it stays as it is
    lq_made *made;      // [max(1, count)] what was rounded already; NULL: it is rounded when it is written
    double alpha;       // of the factors that `smooth` gave its columns; 0: none
    int64_t *reached;   // [count] rows of the text that the router sent to each expert; NULL: not known
    const char *note;   // what was fallen back to and why; NULL: nothing
} lq_module;

typedef struct lq_block {
    const lq_plan *plan;
    int layer;          // -1: of the model
    lq_module *module;  // in the order of the file
    int modules;
    lq_input input[LQ_INPUTS];
    int inputs;
    float *factor[LQ_INPUTS]; // [k] what an input's columns are multiplied by, of experts [count][k]; NULL: nothing
    float *share[LQ_INPUTS];  // and the rows of the matrix that stands before it
    lq_turn turn[2];    // of the residual, of heads
    double alpha;       // that SMOOTH is to take; 0: no factors, negative: what is best for each input
    double *tally;      // [LQ_ALPHAS + 1] what inputs lose by each, is added to and no factor sought; NULL: they are
} lq_block;
enum { LQ_ALPHAS = 20 }; // that are tried: i / LQ_ALPHAS, 0 being no factors
bool lq_block_open(const lq_plan *p, size_t index, lq_block *out, lq_err *err);
void lq_block_close(lq_block *b);
lq_module *lq_block_find(const lq_block *b, lq_role role, bool bias); // NULL: there is none
// What a vector is so far, to be changed. NULL: see err.
float *lq_block_vector(lq_block *b, lq_module *m, lq_err *err);
// Row `at` of a matrix, as the edit leaves it; `out` is not done.
void lq_edit_row(const lq_edit *e, int64_t at, float *row, int64_t k);
// A row of what the matrix reads, so that the edited one makes of it what the matrix made: x diag(1 / column) in.
void lq_edit_input(const lq_edit *e, float *x, int64_t k);
// The first element that is not finite: turned, it would be everywhere. -1: there is none.
int64_t lq_edit_odd(const float *row, int64_t k);
bool lq_weight_finite(const lq_weight *w, bool vector, lq_err *err); // all of it; else err says where it is not
// The whole of a matrix, edited, with LQ_STRIPE columns of f32 for each thread; an element that is not finite is named.
enum { LQ_STRIPE = 16 };
bool lq_edit_matrix(const lq_edit *e, const lq_weight *w, lq_pool *pool, float *out /* [n][k] */, lq_err *err);

// What is known of an input of a layer of which nothing is rounded yet.
typedef struct lq_watch lq_watch;
typedef struct lq_seek {
    lq_dev *dev;
    lq_block *b;
    int input, expert;  // expert: whose rows these are, of experts that each have their own; -1: all rows
    const lq_watch *w;  // rows > 0
    lq_tick *tick;
    void *arg;
} lq_seek;
bool lq_seek_heard(void *seek); // asks its tick; false stops
// Which matrices of a module read what was seen: first .. end.
int lq_seek_first(const lq_seek *s);
int lq_seek_end(const lq_seek *s, const lq_module *m);
// How many of the n rows of each of `count` matrices are tried: as many as have so many elements, no fewer than 64 of
// all together, spread evenly.
enum { LQ_TRIED = 1 << 20 };
int64_t lq_seek_rows(int64_t k, int64_t n, int64_t count, int64_t elements);
// Sizes of columns: means over those that must share a factor, as shares of the largest, none below `least`.
bool lq_seek_even(const lq_seek *s, double least, double *v /* [k] */, lq_err *err);

// What a matrix, edited but for its columns, loses in each of some tries (tries.c). Of *a: tries, by, type and h; or x,
// y, act and what belongs to it, when `loss` is added to. NaN where an element cannot be coded.
bool lq_tries_matrix(const lq_seek *s, const lq_weight *w, const lq_edit *edit, const lq_tries_args *a,
                     double *loss /* [tries] */, lq_err *err);

// The transforms, in the order in which they are applied; bit i of lq_recipe.transform is row i. To add one: its row
// (block.c) and its file. One with none of these functions is not there so far.
typedef struct lq_transform {
    const char *name;
    // Whether a model can be changed so, and what that makes of its description; what becomes of a block; and whether
    // a matrix has to be made whole for it, as its rows are turned. NULL: any; nothing; never.
    bool (*plan)(lq_desc *d, lq_err *err);
    bool (*run)(lq_block *b, lq_err *err);
    bool (*whole)(const lq_slot *s);
    // Of layers alone, by calibration text: what the columns of an input are to be multiplied by (in: ones). What
    // stands before the input is divided by it (lq_fold). NULL: it looks at no text.
    bool (*search)(const lq_seek *s, float *factor /* [k] */, lq_err *err);
} lq_transform;
enum { LQ_TRANSFORMS = 4 };
extern const lq_transform lq_transforms[LQ_TRANSFORMS];
bool lq_rotate_plan(lq_desc *d, lq_err *err);
bool lq_rotate_run(lq_block *b, lq_err *err);
bool lq_rotate_whole(const lq_slot *s);
bool lq_awq_search(const lq_seek *s, float *factor, lq_err *err);
bool lq_smooth_search(const lq_seek *s, float *factor, lq_err *err);

// --- factors (fold.c) ---

bool lq_searches(unsigned transform); // whether one of these wants to see what inputs are
// Whether a module is a matrix that reads this input.
bool lq_reads(const lq_module *m, int input);
// Whether what stands before an input can be divided by factors of its columns.
bool lq_fold_can(const lq_block *b, int input);
// Whether each expert's matrix has factors of its own there: else all that read the input share them.
bool lq_fold_each(const lq_block *b, int input);
// Makes the numbers of columns [k] that must share a factor equal: their mean.
void lq_fold_even(const lq_block *b, int input, float *v);
// Multiplies the columns of all that read an input (expert < 0), or of an expert's matrix, and divides what stands
// before it: the model computes what it did.
bool lq_fold(lq_block *b, int input, int expert, const float *factor /* [k] */, lq_err *err);

// --- one matrix (module.c) ---

// Reads matrix `at` of a module and makes of it what its item says, with the recipe in x->recipe, and with what is
// known of its input, if anything is. x->out lies in `buf` (lq_module_bytes), in x->held, or in the checkpoint:
// lq_ckpt_done(x->src) when it was used.
typedef struct lq_given { lq_solve *solve; const lq_acts *acts; } lq_given;
bool lq_module_make(const lq_plan *p, lq_dev *dev, const lq_module *m, int at, const lq_given *given, void *buf,
                    lq_tick *tick, void *arg, lq_made *x, lq_err *err);
// A text that is given a weight that is no number is told where that got to: puts where the weight stands, if there is
// one, in place of what err says.
void lq_plan_odd(const lq_plan *p, lq_err *err);
// Scales that are codes (levels.c): their room behind the other parts, and where they lie in it; what they span, of
// scales as their groups' ranges have them, and their codes, of scales that some code stands for.
size_t lq_levels_bytes(const lq_wtype *t, int64_t n, int64_t k); // 0: not of type.dq
void lq_levels_lay(uint8_t *at, const lq_wtype *t, int64_t n, int64_t k, lq_levels *out);
void lq_levels_span(const lq_recipe *r, const float *scale, size_t count, lq_levels *out);
void lq_levels_code(const float *scale, size_t count, const lq_levels *l);
// What scales in E4M3 are times, so that the largest of a matrix whose largest magnitude is `top` is E4M3's largest.
float lq_scale2_of(const lq_wtype *t, float top);
size_t lq_band_bytes(int64_t k); // of f32 rows that are solved at once (matrix.c)
size_t lq_band_lent(void);       // of those that are made for another device, at most
// Of codes, scales and zero points in layout any, with room for scales in F32.
size_t lq_module_bytes(const lq_wtype *t, int64_t n, int64_t k);
// The parts of a weight, one after the other in `at`, each on 64 bytes. Returns what is behind them.
uint8_t *lq_lay_out(uint8_t *at, const lq_weight_size *size, bool wide_scales, lq_weight_out *out);

// --- recipes as JSON (recipe.c) ---
// What it says overrides *r; *rules (cJSON_Delete) are those for single matrices, NULL if there are none.
bool lq_recipe_read(const cJSON *json, lq_recipe *r, cJSON **rules, bool *mixed, lq_err *err);
bool lq_recipe_alpha(const char *text, lq_recipe *r, lq_err *err); // a number, or whose it is
bool lq_recipe_rule(const cJSON *rule, lq_recipe *r, bool *keep, lq_err *err);
// What it says that options say too is taken where they do not: method, type, embed, head, calib. *held has the words.
bool lq_recipe_opts(lq_quant_opts *o, cJSON **held, lq_err *err);
// Whether the text has the tokens that it was made on, if it says which.
bool lq_recipe_calibrated(const cJSON *recipe, const lq_calib *c);
void lq_recipe_put(lq_text *t, const lq_recipe *r);
void lq_recipe_put_calib(lq_text *t, const lq_calib *c, const lq_quant_opts *o);

// Rules for single matrices (rules.c).
bool lq_rules_read(const cJSON *recipe, cJSON **out, lq_err *err);
bool lq_rules_apply(lq_plan *p, const lq_slot *s, lq_recipe *r, bool *keep, lq_err *err);
bool lq_rules_check(const lq_plan *p, lq_err *err); // each was of use, and what is multiplied together has one type
const char *lq_quant_kind(const lq_slot *s); // of lq_quant_kinds
// Types for a size (auto.c): a recipe of such rules, what the report says of how they were found, and how many units
// this run measured.
bool lq_auto(const lq_quant_opts *o, lq_text *rules, lq_text *told, size_t *measured, lq_err *err);
// What was measured, on disk until the output is whole (measured.c). `of`: of what, as a hash.
typedef struct lq_measured lq_measured;
bool lq_measured_open(const lq_quant_opts *o, uint64_t of, lq_measured **out, lq_err *err);
void lq_measured_close(lq_measured *m);
bool lq_measured_empty(const lq_quant_opts *o, lq_err *err); // what earlier runs left is not wanted
bool lq_measured_get(const lq_measured *m, size_t at, double *v, int count); // false: not there
bool lq_measured_put(lq_measured *m, size_t at, const double *v, int count, lq_err *err);
void lq_measured_forget(const char *out); // and OUT.partial/, if nothing else is in it

// --- calibration ---

// Reads, tokenizes and draws the text. One that the model is to write itself is planned, and written by lq_self_write,
// which otherwise does nothing.
bool lq_calib_open(const lq_quant_opts *o, int ctx, lq_calib *out, lq_err *err);
bool lq_self_plan(const lq_quant_opts *o, lq_calib *c, lq_err *err);
bool lq_self_write(const lq_quant_opts *o, lq_calib *c, lq_err *err);
void lq_calib_close(lq_calib *c);

// How large the at-th of something is. The largest comes first, of equals the first (rank.c).
typedef struct lq_ranked { double size; int64_t at; } lq_ranked;
void lq_rank(lq_ranked *by, size_t n);
void lq_rank_places(const lq_ranked *by, size_t n, int32_t *out /* [n], rising */);

// Large memory where the text goes by, zero.
void *lq_by_open(lq_dev *on, lq_rooms *rooms, size_t bytes, lq_err *err);
void lq_by_close(lq_dev *on, lq_rooms *rooms, void *p);

// What columns come to while the text goes by, and behind `end` what they came to: the least and the largest, 0
// counted in, the sums of magnitudes and of squares.
typedef struct lq_columns {
    lq_dev *on;
    int64_t k;
    float *lo, *hi;       // [k]
    double *sum, *square; // [k] one of them, NULL the other
    void *own, *there;    // all of it, with the host and where the text goes by
} lq_columns;
bool lq_columns_open(lq_columns *c, lq_dev *on, int64_t k, bool squares, lq_err *err);
void lq_columns_add(const lq_columns *c, const lq_mat *x);
bool lq_columns_end(const lq_columns *c, lq_err *err);
void lq_columns_close(lq_columns *c);

// What an input of a layer was given (all rows, or an expert's).
enum { LQ_SOME = 384 }; // rows of it that may be kept, a multiple of three
struct lq_watch {
    lq_rooms *rooms;    // which has h and g
    lq_dev *on;         // which has the rows
    int64_t k, rows;
    double *h;          // [k][k], upper half: sums of x^T x; behind `here`, and NULL: not summed
    double *g;          // [k][k]: sums of x^T was; NULL: not paired
    float *absmax;      // [k] behind `end`
    double *abssum;     // [k] the same
    float *some;        // [somes][k] of the rows, every step-th; NULL: not kept
    int somes;
    int64_t step;
    double *by_h, *by_g; // h and g before that, where the rows are
    lq_columns columns;
};
typedef struct lq_watched { bool moments, paired, some; } lq_watched;
bool lq_watch_open(lq_watch *w, lq_dev *on, lq_rooms *rooms, int64_t k, const lq_watched *what, lq_err *err);
// More rows, and the same as the model was (NULL: they are no others); work [k][k] where the rows are.
bool lq_watch_add(lq_watch *w, const lq_mat *x, const lq_mat *was, float *work, lq_err *err);
bool lq_watch_end(lq_watch *w, lq_err *err); // the text has gone by
bool lq_watch_here(const lq_watch *w, lq_err *err); // h and g, which were still on a device, are the host's
void lq_watch_close(lq_watch *w);

// The rows of each expert of a chunk, picked out of all.
typedef struct lq_picked {
    lq_dev *on;
    int32_t *start, *row, *there; // [experts + 1]; [slots] which rows: with the host, and where they are
    void *rows[2];                // of one expert, from two matrices
    size_t cap[2];
} lq_picked;
bool lq_picked_open(lq_picked *p, lq_dev *on, const lq_sight *s, int experts, lq_err *err);
bool lq_picked_take(lq_picked *p, int expert, int at, const lq_mat *from, lq_mat *out, lq_err *err);
void lq_picked_close(lq_picked *p);

// What rounding reads of it. `order`: column order[j] is the j-th to be rounded. What is as large as the moments lies
// where these are, if there is room: the host is not to read it.
struct lq_solve {
    lq_rooms *rooms;    // which has u, h and repay
    lq_dev *dev, *on;   // that rounds; where those three lie
    int64_t k;
    int32_t *order;     // [k]
    bool turns;         // that is another than the columns have
    bool stays;         // the file has columns as they stand in the matrix, whatever the order
    double *u;          // [k][k] in order, of the damped inverse; NULL: it has none, or nobody asks
    float *h;           // [k][k] in order, the whole: mean of x^T x
    float *weight;      // [k] its diagonal
    float *repay;       // [k][k] rows are added to by row repay^T; NULL: nothing
    double damp;        // that it took, of the mean diagonal
    float added;        // which is so much
    int sweeps;         // of `refine`
    bool even;          // a searched range counts all columns alike
    bool clips;         // rows may have the searched range instead of the whole
    const struct lq_apart *apart; // columns that count as 0 in rows, and in h; NULL: none
    const struct lq_hidden *hidden; // clips: and only where the MLP loses no more by it; NULL: it feeds none
    float *band;        // [rows][k] rows at hand (lq_solve_room)
    void *work;         // scratch of the slot
    size_t room, work_room; // elements, bytes
};
bool lq_solve_make(lq_dev *dev, const lq_watch *w, const lq_recipe *r, lq_solve *out, lq_err *err);
void lq_solve_close(lq_solve *s);
// For as many at hand of a matrix of this type; copied: in `band`.
bool lq_solve_room(lq_solve *s, const lq_wtype *t, int64_t rows, bool copied, lq_err *err);
// How many of n rows another device takes at once; 0: no other device does.
int64_t lq_solve_height(const lq_solve *s, const lq_wtype *t, int64_t n);
// Rows first .. first + n [n][k] (of f32, and spoilt, but for another device) as `a` says, else in a->q and so on;
// figures [n] of each row.
typedef struct lq_solved { double *loss, *plain, *norm; } lq_solved;
bool lq_solve_rows(lq_dev *dev, const lq_solve *s, int64_t first, lq_round_args *a, const lq_solved *out, lq_err *err);

// What an MLP makes of some rows of its input (hidden.c), behind its nonlinearity.
typedef struct lq_hidden {
    lq_dev *dev;
    const lq_part *part;
    const lq_module *of;    // the module of up, whose matrix `at` it is; NULL: not open
    int at;
    bool lifts;             // up is at hand, else gate
    int64_t n;
    lq_mat x;               // [rows][k]
    float *gate, *up, *h;   // [rows][n] products (gate NULL: there is none), and what they came to as they were
    float *bias[2];         // [n] of gate and up; NULL: none
    float *tried;           // [2][rows][rows of a band]
} lq_hidden;
bool lq_hidden_of(const lq_slot *s, const lq_recipe *r); // whether it counts for a matrix
size_t lq_hidden_bytes(const lq_slot *s);
// Of gate or up, matrix `at`, from the rows that were kept. One that it cannot be said of is left closed (`of` NULL).
bool lq_hidden_open(lq_dev *dev, const lq_block *b, const lq_module *m, int at, const lq_watch *w, lq_hidden *out,
                    lq_err *err);
void lq_hidden_close(lq_hidden *h);
bool lq_hidden_made(lq_hidden *h, const lq_weight *gate, lq_err *err); // gate is this from now on
// What rows first .. first + n of the matrix at hand lose there if they are w [n][k]: sums of squares [n].
bool lq_hidden_error(const lq_hidden *h, int64_t first, int64_t n, const float *w, double *to, lq_err *err);

// The module that a KV cache's scales are, if the block has one, from the K and V that the text gives (kvscale.c).
bool lq_kv_scales(lq_stream *s, lq_block *b, lq_err *err);

// --- reading ahead (ahead.c) ---

typedef struct lq_ahead lq_ahead;
bool lq_ahead_open(const lq_plan *p, lq_ahead **out, lq_err *err);
void lq_ahead_next(lq_ahead *a, size_t block); // what of another one is still to be read is left
void lq_ahead_close(lq_ahead *a);

// --- another device (lend.c) ---
bool lq_lend_open(const lq_quant_opts *o, lq_lent **out, lq_err *err); // no device or "cpu": *out is NULL
lq_dev *lq_lend_far(const lq_lent *l); // the other device; l NULL: NULL
lq_dev *lq_lend(lq_lent *l, lq_dev *cpu); // this CPU, but for what the other device does; l NULL: itself
void lq_lend_close(lq_lent *l);
// Where a model runs all of whose layers are needed at once (whole.c): the other device, if it has room for them and so
// many bytes more; NULL: a CPU. What is said of that; and who computes, of which what is measured depends (on NULL: a
// CPU alone).
bool lq_whole_on(const lq_quant_opts *o, const char *in, size_t more, lq_dev **out, lq_err *err);
void lq_whole_words(const lq_quant_opts *o, const lq_dev *on, char *out, size_t size);
bool lq_whole_isa(const lq_dev *on, char *out, size_t size, lq_err *err);
// What the host has there does not change until it is dropped, so that calls need not bring it each time. Of a device
// that is not lent: nothing.
void lq_lend_hold(lq_dev *d, const void *host, size_t bytes);
void lq_lend_drop(lq_dev *d, const void *host);
lq_dev *lq_lend_on(lq_dev *d); // the device that is lent; NULL: it is not
// Of its memory: calls read it where it lies, until it is dropped, which does not free it. False: there are too many.
bool lq_lend_keep(lq_dev *d, void *there, size_t bytes);
// How many of n rows that take so many bytes it has room for at once; 0: it is not lent.
int64_t lq_lend_rows(lq_dev *d, int64_t n, size_t bytes);

// What is stored of an input (acts.c): for activations that are rounded, and columns in 16 bits.
enum { LQ_FIXED_SYM, LQ_FIXED_ASYM, LQ_FIXED_E4M3, LQ_FIXED };
typedef struct lq_fixed { float scale; int32_t zero; } lq_fixed;
int lq_fixed_form(lq_atype t);
// The scale and zero point that span the least and the largest of what is rounded, times 2^-(share/4).
lq_fixed lq_fixed_of(int form, double lo, double hi, int share);
struct lq_acts {
    int64_t k;
    int32_t *outlier;   // [outliers] columns that are kept in 16 bits
    int outliers, left; // left: those that should have been and found no room
    float *weight;      // [k] mean squares; NULL: nobody asks
    double *cost;       // [k] what an error of 1 in a column comes to
    bool wants[LQ_FIXED], aside; // forms of readers; aside: all of them keep outliers apart
    lq_fixed fixed[LQ_FIXED];
};
bool lq_recipe_weighs(const lq_recipe *r);           // rounds by mean squares of the input's columns
bool lq_acts_reads(const lq_module *m, int input); // and wants something of this kind
bool lq_acts_make(lq_stream *s, const lq_block *b, int input, lq_acts *out, lq_err *err);
void lq_acts_close(lq_acts *a);
float lq_salient_share(const lq_recipe *r); // of the columns, the most that may be kept in 16 bits
// The most columns that may be kept apart, and the bytes beside codes and scales that a matrix may need.
int lq_acts_limit(const lq_recipe *r, int64_t k);
size_t lq_acts_bytes(const lq_recipe *r, int64_t n, int64_t k);
// Puts into *w, at `at`, what the recipe wants; the weights of outlier columns are for the caller to fill in.
void lq_acts_lay(const lq_acts *a, const lq_recipe *r, uint8_t *at, lq_weight *w);

// --- columns that are kept in 16 bits (apart.c) ---

// Of an input whose moments are known: what the kept columns take over of the others' errors.
typedef struct lq_apart {
    lq_rooms *rooms;    // which has the rest
    int64_t k;
    int count;
    const int32_t *column; // [count], of the lq_acts
    float *take;        // [count][k] a kept weight: own . w - take . q, where w was the row and q what became of it
    float *own;
    float *h;           // [count][count] the moments of the kept ones
} lq_apart;
// Takes the kept columns out of w's moments: rounding the others by what is left is rounding them as if the kept ones
// made good what they can.
bool lq_apart_make(lq_dev *dev, lq_watch *w, const lq_acts *acts, const lq_recipe *r, lq_apart *out, lq_err *err);
void lq_apart_close(lq_apart *a);
// The weights of the columns in `beside`, of a matrix that was read and edited and `made` of it without them (a NULL:
// as they were); x's figures get what they add.
bool lq_apart_fill(lq_dev *dev, const lq_apart *a, const lq_weight *from, const lq_edit *edit, const lq_weight *made,
                   lq_weight *beside, lq_made *x, lq_err *err);

// Rounds a layer, input by input, each on what the rounded ones before it give. Everything that is to be written is in
// b->module[].made then.
// tick: told of each input, how many were before it and how many there are; else asked (0, 0).
bool lq_calibrate_block(lq_stream *s, lq_block *b, lq_tick *tick, void *arg, lq_err *err);

// One alpha for all inputs of the model, as it was, that a transform may smooth: by what they lose together.
bool lq_calibrate_alpha(lq_stream *s, const lq_plan *p, lq_tick *tick, void *arg, double *out, lq_err *err);

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
