// lq_make.h: a small .lq file with every kind of part in it, made through the writer, and the bytes of a file.
#ifndef LQ_MAKE_H
#define LQ_MAKE_H
#include "formats/writer.h"
#include "tests/unit/test.h"
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct blob { uint8_t *p; size_t n; } blob;

static inline blob blob_read(const char *path) {
    blob b = {0};
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (!f) return b;
    if (!fstat(fileno(f), &st)) {
        b.p = malloc((size_t)st.st_size + 1);
        b.n = b.p ? fread(b.p, 1, (size_t)st.st_size, f) : 0;
    }
    fclose(f);
    return b;
}

static inline bool blob_write(const char *path, const void *p, size_t n) {
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(p, 1, n, f) == n;
    return f && fclose(f) == 0 && ok;
}

// A test's folder, and a file in it: four texts take turns.
static char folder[64];
static inline const char *at(const char *name) {
    static char path[4][192];
    static int i;
    i = (i + 1) % 4;
    snprintf(path[i], sizeof path[i], "%s/%s", folder, name);
    return path[i];
}

// Pages of files that this process has mapped in, in bytes.
static inline size_t pages_mapped(void) {
    size_t all, in = 0, shared = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%zu %zu %zu", &all, &in, &shared) != 3) shared = 0;
    if (f) fclose(f);
    return shared * (size_t)sysconf(_SC_PAGESIZE);
}

static inline int tree_remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st, (void)type, (void)at;
    return remove(path);
}

static inline void tree_remove(const char *path) { nftw(path, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS); }

// xorshift: the same numbers on every machine.
static inline uint64_t next_random(uint64_t *s) {
    *s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17;
    return *s;
}

// One line, not empty, that names `file`.
static inline bool err_good(const lq_err *err, const char *file) {
    return err->code != LQ_E_NONE && err->text[0] && !strchr(err->text, '\n') && !strchr(err->text, '\r') &&
           strstr(err->text, file);
}

enum { MAKE_BLOCKS = 4, MAKE_N = 20, MAKE_K = 96, MAKE_FEATURES = 8 };
static const char *const make_files[] = {"config.json", "tokenizer.json"};

typedef struct make_buffers {
    uint8_t q[MAKE_N * MAKE_K * 4], scale[MAKE_N * 64], zero[MAKE_N * 64];
    int32_t perm[MAKE_K], cols[2];
    float smooth[MAKE_K], table[16];
    uint16_t outlier[MAKE_N * 2];
    float act_scale[1], scale2[1], scale_map[256], scale_offset[1];
    int32_t act_zero[1];
} make_buffers;

// The i-th weight of the file: each uses other features.
static inline lq_weight make_weight(int i, make_buffers *b) {
    static const char *const types[MAKE_FEATURES] = {
        "int4 g32", "int4 g32 asym", "int8", "int3 g16 asym dq256", "table4 g16", "e4m3 g32 r8 f32", "nvfp4",
        "int8 asym f32 act i8 tensor asym",
    };
    lq_weight w = {.n = MAKE_N, .k = MAKE_K};
    lq_wtype_parse(types[i % MAKE_FEATURES], &w.type, NULL);
    uint64_t seed = 88172645463325252u + (uint64_t)i;
    for (size_t j = 0; j < sizeof b->q; j++) b->q[j] = (uint8_t)(next_random(&seed) % 126);
    for (size_t j = 0; j < sizeof b->scale / 4; j++) {
        float s = 0.01f + (float)(next_random(&seed) % 1000) / 1000;
        if (w.type.scale == LQ_F32) memcpy(b->scale + 4 * j, &s, 4);
        else if (lq_dtype_size(w.type.scale) == 1) lq_dtypes[w.type.scale].from_f32(&s, b->scale + j, 1);
        else memcpy(b->scale + 2 * j, &(uint16_t){lq_f32_f16(s)}, 2);
    }
    for (size_t j = 0; j < sizeof b->zero; j++) b->zero[j] = (uint8_t)next_random(&seed);
    for (int j = 0; j < MAKE_K; j++) b->perm[j] = (j * 5 + 3) % MAKE_K, b->smooth[j] = 1.0f + (float)j;
    for (int j = 0; j < 16; j++) b->table[j] = (float)j - 7.5f;
    for (size_t j = 0; j < MAKE_N * 2; j++) b->outlier[j] = lq_f32_bf16((float)j - 11);
    b->cols[0] = 7, b->cols[1] = 50;
    w.q = b->q, w.scale = b->scale;
    if (w.type.asym) w.zero = b->zero;
    if (w.type.kind == LQ_W_TABLE && !w.type.book) w.table = b->table;
    b->scale2[0] = 0.75f;
    if (w.type.scale == LQ_E4M3) w.scale2 = b->scale2;
    for (int j = 0; j < 256; j++) b->scale_map[j] = ((float)j - 127) / 128;
    b->scale_offset[0] = 0.625f;
    if (w.type.dq)
        w.scale = NULL, w.scale_code = b->scale, w.scale_map = b->scale_map, w.scale2 = b->scale2,
            w.scale_offset = b->scale_offset;
    b->act_scale[0] = 0.25f, b->act_zero[0] = -3;
    if (w.type.act.fixed) w.act_scale = b->act_scale, w.act_zero = b->act_zero;
    if (i == 1 || i == 7) w.perm = b->perm, w.smooth = b->smooth;
    if (i == 2 || i == 7) w.outlier = b->cols, w.outlier_w = b->outlier, w.outliers = 2;
    return w;
}

// The e-th matrix of a stack of such weights: other codes, scales, columns and factors than the first.
enum { MAKE_STACK = 3 };
static inline lq_weight make_matrix(int i, int e, make_buffers *b) {
    const lq_weight w = make_weight(i, b);
    for (size_t j = 0; j < sizeof b->q; j++) b->q[j] = (uint8_t)((b->q[j] + 17 * e) % 126);
    memmove(b->scale, b->scale + 4 * e, sizeof b->scale - 4 * (size_t)e);
    for (int j = 0; j < MAKE_K; j++) b->perm[j] = (b->perm[j] + e) % MAKE_K, b->smooth[j] += (float)e;
    for (int j = 0; j < 16; j++) b->table[j] *= (float)(e + 1);
    b->scale2[0] *= (float)(e + 1), b->scale_map[e] = 1, b->scale_offset[0] += (float)e;
    b->cols[0] += e, b->cols[1] += e, b->act_scale[0] *= (float)(e + 1), b->act_zero[0] += e;
    return w;
}

static inline bool make_stack(lq_writer *w, const char *name, int i, lq_err *err) {
    static make_buffers b;
    const lq_weight like = make_weight(i, &b);
    bool ok = lq_writer_stack(w, name, &like.type, MAKE_STACK, MAKE_N, MAKE_K, err);
    for (int e = 0; e < MAKE_STACK && ok; e++) {
        const lq_weight q = make_matrix(i, e, &b);
        ok = lq_writer_stack_put(w, &q, err);
    }
    return ok;
}

static inline size_t make_room(void) {
    static make_buffers b;
    size_t room = 1000;
    char name[64] = "model.layers.2.experts";
    const lq_weight stack = make_weight(1, &b);
    room += lq_writer_weight_room(name, &stack.type);
    for (int i = 0; i < MAKE_FEATURES; i++) {
        const lq_weight w = make_weight(i, &b);
        snprintf(name, sizeof name, "model.layers.%d.w0", i);
        room += lq_writer_weight_room(name, &w.type) + lq_writer_entry_room(name); // and a norm or a side file
    }
    return room;
}

// Block i of the file: two weights and a vector; block 0 also the side files.
static inline bool make_block(lq_writer *w, int i, lq_err *err) {
    static make_buffers b;
    char name[64];
    bool ok = true;
    for (int j = 0; j < 2 && ok; j++) {
        int which = (2 * i + j) % MAKE_FEATURES;
        lq_weight q = make_weight(which, &b);
        snprintf(name, sizeof name, "model.layers.%d.w%d", i, j);
        ok = lq_writer_weight(w, name, &q, err);
    }
    float norm[33];
    for (int j = 0; j < 33; j++) norm[j] = (float)(i + j);
    snprintf(name, sizeof name, "model.layers.%d.norm", i);
    ok = ok && lq_writer_add(w, name, LQ_F32, 1, (int64_t[]){33}, norm, err);
    if (i == 0) {
        ok = ok && lq_writer_add(w, "lq.file/config.json", LQ_U8, 1, (int64_t[]){17}, "{\"hidden_size\":1}", err);
        ok = ok && lq_writer_add(w, "lq.file/tokenizer.json", LQ_U8, 1, (int64_t[]){2}, "{}", err);
        ok = ok && lq_writer_add(w, "empty", LQ_I64, 2, (int64_t[]){0, 3}, NULL, err);
    }
    if (i == 2) ok = ok && make_stack(w, "model.layers.2.experts", 1, err);
    snprintf(name, sizeof name, "block %d", i);
    return ok && lq_writer_block(w, name, err);
}

static inline bool make_open(const char *path, bool resume, bool overwrite, lq_writer **w, lq_err *err) {
    lq_writer_opts o = {.out = path, .fingerprint = "in=1\nrecipe=2", .header_room = make_room(), .resume = resume,
                        .overwrite = overwrite};
    return lq_writer_open(&o, w, err) && lq_writer_meta(*w, "lq.arch", "LlamaForCausalLM", err) &&
           lq_writer_meta(*w, "lq.recipe", "{\"method\":\"rtn\"}", err);
}

static inline bool make_lq(const char *path, bool resume, bool overwrite, lq_err *err) {
    lq_writer *w = NULL;
    bool ok = make_open(path, resume, overwrite, &w, err);
    for (int i = ok ? (int)lq_writer_resumed(w) : 0; i < MAKE_BLOCKS && ok; i++) ok = make_block(w, i, err);
    ok = ok && lq_writer_commit(w, NULL, NULL, err);
    lq_writer_close(w, false);
    return ok;
}
#endif
