// ckpt.h: a checkpoint on disk, whoever wrote it: tensors by name, side files by name, weights ready to bind.
// Opening maps the files and checks every claim they make; only headers are copied. All
// pointers live until lq_ckpt_close.
//
// Refused, each in one line: anything that does not parse, overlaps, leaves gaps, or claims more than the file holds;
// a file that was cut short; a lone shard of a sharded model; two tensors of one name.
#ifndef LQ_CKPT_H
#define LQ_CKPT_H
#include "formats/block.h"

enum { LQ_RANK = 8, LQ_NAME = 512 };

typedef struct lq_tensor {
    const char *name;
    lq_dtype type;
    int rank;
    int64_t shape[LQ_RANK];
    const void *data; // mapped; in others' files it may be unaligned, which the functions of lq_dtypes[] do not mind
    size_t bytes;
    int file;         // index of the shard it is in
} lq_tensor;

bool lq_name_ends(const char *name, const char *tail); // with something before it

typedef struct lq_bytes {
    const char *p;
    size_t n;
} lq_bytes;

// A coded weight: what its parts (of a .lq file name.q, name.scale ...) are together.
typedef struct lq_typed {
    const char *name;
    lq_wtype type;
    lq_layout layout;
    int64_t n, k;
    int64_t count; // of a stack: so many matrices lie one behind the other; 0: it is one
    bool upright;  // others have it as [n][k], even in models whose plain matrices they store across
} lq_typed;

typedef struct lq_ckpt lq_ckpt;

// A file that was opened, as it was then.
typedef struct lq_file_info {
    const char *path;
    uint64_t dev, ino, bytes;
    int64_t sec, nsec; // of the last change to it
} lq_file_info;

// `path`: a .lq or .safetensors file, a model.safetensors.index.json, or a directory that holds one of them.
bool lq_ckpt_open(const char *path, lq_ckpt **out, lq_err *err);
// The same from memory that the caller keeps until the close; `name` is what errors call it. Nothing lies beside it.
bool lq_ckpt_open_bytes(const void *data, size_t n, const char *name, lq_ckpt **out, lq_err *err);
void lq_ckpt_close(lq_ckpt *c);

const char *lq_ckpt_path(const lq_ckpt *c);
const char *lq_ckpt_container(const lq_ckpt *c);       // "lq", "safetensors": the row that opened it
size_t lq_ckpt_count(const lq_ckpt *c);                // model tensors, in name order, without lq.file/ and lq.pad/
const lq_tensor *lq_ckpt_at(const lq_ckpt *c, size_t i);
const lq_tensor *lq_ckpt_find(const lq_ckpt *c, const char *name); // NULL if there is none
const char *lq_ckpt_meta(const lq_ckpt *c, const char *key);       // a string of the header's metadata, or NULL
// The strings of the metadata one by one, of the first file and then of each further shard; false past the last.
bool lq_ckpt_meta_at(const lq_ckpt *c, size_t i, const char **key, const char **value);
const lq_typed *lq_ckpt_typed(const lq_ckpt *c, const char *name); // NULL: there is no coded weight of this name
// The coded weight that a tensor is a part of, and whether it has its codes. NULL: it is of none.
const lq_typed *lq_ckpt_part_of(const lq_ckpt *c, const char *tensor, bool *has_codes);
size_t lq_ckpt_file_bytes(const lq_ckpt *c);           // on disk, all shards
// The files one by one: the index, if there is one, then every shard; false past the last.
bool lq_ckpt_stat(const lq_ckpt *c, size_t i, lq_file_info *out);
// Whether a file is one of them, or a side file that lies beside them.
bool lq_ckpt_is_file(const lq_ckpt *c, uint64_t dev, uint64_t ino);

// A side file (config.json, tokenizer.json ...): from inside a .lq file that has any, else from beside the checkpoint.
// Absent: returns true with out->p == NULL. The bytes are not NUL-terminated, and nobody else can change them.
// Vocabularies may have 256 MB, other files 16 MB: what is larger is refused before it is read.
bool lq_ckpt_file(lq_ckpt *c, const char *name, lq_bytes *out, lq_err *err);
// Whether there is one, and its bytes, without reading it.
bool lq_ckpt_file_size(const lq_ckpt *c, const char *name, size_t *out);
// Names of the side files that make a model complete, NULL-terminated: what `lq quantize` carries over.
extern const char *const lq_side_files[];
extern const char *const lq_vocab_files[]; // of these, what holds a vocabulary: the first that is there counts

// The matrix or vector `name`, plain or coded (name.q, name.scale ...), checked to be [n][k] (k = 0: a vector [n],
// bound as [n][1]). The parts of a coded weight stand at multiples of 64, a plain one is aligned for its type (copied
// where that is not so where they lie), and perm and outlier columns are in range.
// Absent: false with LQ_E_FORMAT and a line that names it.
bool lq_ckpt_weight(const lq_ckpt *c, const char *name, int64_t n, int64_t k, lq_weight *out, lq_err *err);
bool lq_ckpt_has_weight(const lq_ckpt *c, const char *name); // plain or coded

// Weights that other programs quantized are coded weights too (docs/MODELS.md), whatever their tensors are called.
// What looks like one and cannot be read is none: the check says what is wrong with the first of them.
bool lq_ckpt_foreign_check(const lq_ckpt *c, lq_err *err);
bool lq_ckpt_packed(const lq_ckpt *c);                    // it has such weights in GPTQ's or another packed form
bool lq_ckpt_loose(const lq_ckpt *c, const lq_typed *w);  // it is a tensor of 8 bits with scales beside it
// Who helps to unpack: what runs fn(arg, 0..tasks-1, worker < threads) and returns when all are done. NULL: nobody.
typedef void lq_share(void *arg, int task, int worker);
typedef void lq_runner(void *pool, lq_share *fn, void *arg, int tasks);
void lq_ckpt_runner(lq_ckpt *c, lq_runner *run, void *pool, int threads);

// Rows of a tensor: what several slots of a model share one tensor for. With nothing but `name` it is the whole tensor.
typedef struct lq_pick {
    char name[128];           // the tensor or coded weight
    int64_t stack, at;        // it holds `stack` matrices (its leading dimension), this is the at-th; 0: one
    int64_t each;             // 0, or those are so many rows each of one matrix, and these of them from `first` on
    int64_t first, run, step; // row i is row first + i / run * step + i % run of it; run 0: first + i; all 0: every row
    bool across;              // it is [k][rows], not [rows][k]; with `each` the k are some of its rows
} lq_pick;
static inline int64_t lq_pick_row(const lq_pick *p, int64_t i) {
    return p->run ? p->first + i / p->run * p->step + i % p->run : p->first + i;
}

// A matrix [n][k] or (k = 0) a vector [n], for which `across` means nothing. step 0 gives the same run again and again.
// Borrowed where its rows lie together (of a coded one: at multiples of 64), else a copy. Codes and scales keep their
// bits, or (others' that are packed otherwise) their values; scales of bands of rows are widened to rows where a band
// is cut. A coded form that is stored across is dequantized to f32, with what it has in `smooth`, and *plain (may be
// NULL) says so. Valid until lq_ckpt_done, which also gives mapped pages back.
bool lq_ckpt_pick(lq_ckpt *c, const lq_pick *p, int64_t n, int64_t k, lq_weight *out, bool *plain, lq_err *err);
void lq_ckpt_done(lq_ckpt *c, const lq_weight *w);
// Whether n rows that are picked of a weight of type.dq still have scales that are codes; else these are in f32 alone.
bool lq_ckpt_codes_stay(const lq_typed *w, const lq_pick *p, int64_t n);

// Reads every tensor in the order of its bytes and compares the checksums of a .lq file. Of a large file little stays
// mapped in. `tick` (may be NULL) hears of progress; false from it stops.
typedef bool lq_tick(void *arg, size_t done, size_t total);
bool lq_ckpt_verify(const lq_ckpt *c, lq_tick *tick, void *arg, lq_err *err);
// Takes a tensor's pages out of this process (the pass over a model streams); the system's cache keeps the file.
void lq_ckpt_drop(const lq_ckpt *c, const lq_tensor *t);
// Has the system read these bytes of it, which goes on behind the call.
void lq_ckpt_soon(const lq_ckpt *c, const void *p, size_t n);
// Returns when the system's cache has them, and this process does not: they may be touched by others meanwhile.
void lq_ckpt_bring(const lq_ckpt *c, const void *p, size_t n);
// While `on`, what is touched is read page by page: for few bytes here and there, where the system would read
// megabytes around each of them.
void lq_ckpt_sparse(const lq_ckpt *c, bool on);
#endif
