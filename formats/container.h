// container.h: what stands between a file's bytes and lq_ckpt: one mapped file as a table of tensors, and the
// checkpoint that several of them are. Inside formats/ only.
//
// A container is a row of the table in open.c: it says whether the bytes look like its own and turns them into a shard.
// A reader fills tensor, count, meta and metas; everything it allocates hangs on the shard and is freed by open.c.
#ifndef LQ_CONTAINER_H
#define LQ_CONTAINER_H
#include "formats/ckpt.h"
#include "formats/foreign.h"
#include "formats/names.h"
#include "formats/parts.h"
#include <pthread.h>

typedef struct lq_meta {
    const char *key, *value;
    size_t at; // where the value's first byte stands in the header
} lq_meta;

typedef struct lq_shard {
    char *path;           // what errors call it
    bool mapped;          // else bytes of somebody else
    lq_file_info info;    // of a mapped file
    const uint8_t *map;   // [bytes]
    size_t bytes, data_at;
    char *header;         // [data_at - 8] our own copy, until it is read: what was checked must not change before that
    const char *container;
    char *arena;          // decoded names and metadata
    lq_tensor *tensor;    // [count] in the order of their bytes
    size_t count;
    lq_hashed names, type_names; // of the tensors and coded weights of a .lq file
    bool files;           // it carries side files
    lq_meta *meta;        // [metas]
    size_t metas;
    uint64_t *sum;        // [count] XXH64 of each tensor of a .lq file, else NULL
    lq_typed *typed;      // [typeds]
    size_t typeds;
    char *typed_arena;
    long part, parts;     // of a .lq model in several files: this is file `part` of `parts`, from 1; else 0
} lq_shard;

// Memory that hangs on a checkpoint: side files and aligned copies until it is closed,
// copies of rows until lq_ckpt_done.
typedef struct lq_kept {
    struct lq_kept *next;
    const void *key; // of a copy: the bytes it was made from
    size_t keyed;    // how many of them
    bool picked;     // of lq_ckpt_pick
    char *name;      // of a side file
    size_t n;
    _Alignas(64) char data[];
} lq_kept;

struct lq_ckpt {
    char *path, *folder; // folder NULL: nothing stands beside it
    lq_file_info index;  // path NULL: it was opened without one
    lq_shard *shard;     // [shards]
    size_t shards;
    lq_tensor *tensor;   // [count] by name
    size_t count;
    lq_typed *typed;     // [typeds]
    size_t typeds;
    lq_foreign *foreign; // [typeds] of other people's files; NULL: none
    char *foreign_names; // of the typed
    lq_foreign_says says;
    bool orders, packed; // some columns are in an order of their own; some weight's codes are to stay
    lq_runner *run;      // NULL: nobody helps
    void *run_pool;
    int run_threads;
    lq_hashed names, type_names;
    pthread_mutex_t lock; // of kept
    lq_kept *kept;
};

lq_ckpt *lq_ckpt_empty(const char *path); // of no files; NULL: no memory
lq_kept *lq_kept_new(size_t n); // NULL: no memory
// A whole file; `info` may be NULL.
bool lq_kept_read(const char *path, size_t max, lq_kept **out, lq_file_info *info, lq_err *err);
// Takes the whole pages of these bytes out of this process, if they are mapped from a file.
void lq_ckpt_drop_bytes(const lq_ckpt *c, const void *p, size_t n);
char *lq_path_join(const char *folder, const char *name);
// "...-00001-of-00003.safetensors": the number of shards, 0 if the name is not of that kind.
long lq_shard_total(const char *name);

const lq_tensor *lq_shard_find(const lq_shard *s, const char *name);
const char *lq_shard_meta(const lq_shard *s, const char *key);
bool lq_name_ok(const char *name, size_t n); // not empty, below LQ_NAME, no control characters

// safetensors.c: the header, strictly. Leaves the tensors in the order of their bytes.
bool lq_safetensors_read(lq_shard *s, lq_err *err);
// foreign.c: the coded weights of a checkpoint that is no .lq file.
bool lq_foreign_find(lq_ckpt *c, lq_err *err);
// lqfile.c: the conventions of .lq on top. Wants the tensors in the order of their bytes.
bool lq_lqfile_read(lq_shard *s, lq_err *err);
// Type and size of the weight w->name from its text in lq.types.
enum { LQ_TYPED_TEXT = LQ_WTYPE_TEXT + 64 };
void lq_typed_name(const lq_typed *w, char *buf, size_t size); // what lq.types says
bool lq_typed_parse(const char *path, const char *text, lq_typed *w, lq_err *err);

// Reserved names of a .lq file.
#define LQ_PAD_PREFIX "lq.pad/"
#define LQ_FILE_PREFIX "lq.file/"
enum { LQ_ALIGN = 64, LQ_ALIGN_PAGE = 4096 };
bool lq_name_reserved(const char *name); // lq.pad/ or lq.file/
bool lq_file_name_ok(const char *name);  // a side file's name: no path
// XXH64 of a header in which the 16 digits at `digits` count as zeros.
uint64_t lq_header_sum(const char *header, size_t n, size_t digits);
// 16 lower-case hex digits.
bool lq_sum_parse(const char *text, size_t n, uint64_t *out);
#endif
