// lt.c: lt.h by cuBLASLt, which is loaded when a device is opened in fast mode and by nothing else. Owns its handle,
// what it works in, and for each shape the way that its heuristics name first: asked for the most rows of a bucket, so
// that it does not depend on what came before.
//
// Products of e4m3 are its form with a scale for each row of both (of 12.9 and later, on sm_90), and sums are not made
// the fast way, which keeps fewer bits of them. Where it has no such form, they are refused.
//
// Its matrices are column-major: y^T [n][m] = w x^T of what is column-major w^T and x^T. Parts of sums that it cuts are
// kept in f32 and added by a kernel of their own.
#include "kernels/cuda/lt.h"
#include <cublasLt.h>
#include <cublas_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
enum { WORK = 32 << 20, ALIGNED = 16 };

#define CUBLASLT(X) X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetVersion) X(cublasLtMatmul) \
    X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) \
    X(cublasLtMatmulDescSetAttribute) X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) \
    X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy) \
    X(cublasLtMatrixLayoutSetAttribute)
static struct {
    pthread_once_t once;
    bool there;
    char why[256];
#define POINTER(name) __typeof__(&name) name;
    CUBLASLT(POINTER)
#undef POINTER
} use = {.once = PTHREAD_ONCE_INIT};

// The version that the plug-in was built with, or the one before, which has the same functions.
static void load(void) {
    void *lib = dlopen("libcublasLt.so." TEXT(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);
    if (!lib) snprintf(use.why, sizeof use.why, "%s", dlerror());
    if (!lib) lib = dlopen("libcublasLt.so.12", RTLD_NOW | RTLD_LOCAL);
    use.there = lib != NULL;
#define FOUND(name) \
    if (use.there) { \
        void *f = dlsym(lib, #name); \
        memcpy(&use.name, &f, sizeof f); \
        if (!f) snprintf(use.why, sizeof use.why, "%s", dlerror()); \
        use.there = f != NULL; \
    }
    CUBLASLT(FOUND)
#undef FOUND
}

// How products of a shape go; `there` is false where the library has no way.
typedef struct way {
    size_t x_stride, w_stride, y_stride;
    int most, n, k; // rows up to `most`
    bool f32, scaled, there;
    cublasLtMatmulAlgo_t algo;
    cublasLtMatrixLayout_t w, x, y;
} way;

struct lq_lt {
    lq_gpu *gpu;
    char name[32];
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t product, scaled; // of bf16; of e4m3, NULL: it has none
    cublasLtMatmulPreference_t preference;
    void *work;
    way *way;
    int ways, room;
};

static bool check(cublasStatus_t status, const char *what, lq_err *err) {
    return status == CUBLAS_STATUS_SUCCESS ||
           lq_fail(err, LQ_E_DEVICE, "device cuda: %s: status %d", what, (int)status);
}

static bool prefer(lq_lt *l, cublasLtMatmulPreferenceAttributes_t what, const void *value, size_t bytes, lq_err *err) {
    return check(use.cublasLtMatmulPreferenceSetAttribute(l->preference, what, value, bytes),
                 "cublasLtMatmulPreferenceSetAttribute", err);
}

static bool describe(cublasLtMatmulDesc_t to, cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes) {
    return use.cublasLtMatmulDescSetAttribute(to, what, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

static cublasLtMatmulDesc_t scaled_open(void) {
    const cublasOperation_t turned = CUBLAS_OP_T;
    const int32_t rows = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const int8_t fast = 0;
    cublasLtMatmulDesc_t d;
    if (use.cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS) return NULL;
    if (describe(d, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned) &&
        describe(d, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &rows, sizeof rows) &&
        describe(d, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &rows, sizeof rows) &&
        describe(d, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast)) return d;
    use.cublasLtMatmulDescDestroy(d);
    return NULL;
}

static bool parts_open(lq_lt *l, lq_err *err) {
    const cublasOperation_t turned = CUBLAS_OP_T;
    const size_t work = WORK;
    const uint32_t aligned = ALIGNED, in_f32 = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    lq_gpu_stream(l->gpu);
    if (!check(use.cublasLtCreate(&l->handle), "cublasLtCreate", err) ||
        !check(use.cublasLtMatmulDescCreate(&l->product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate",
               err) ||
        !check(use.cublasLtMatmulDescSetAttribute(l->product, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned),
               "cublasLtMatmulDescSetAttribute", err) ||
        !check(use.cublasLtMatmulPreferenceCreate(&l->preference), "cublasLtMatmulPreferenceCreate", err) ||
        !prefer(l, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work, sizeof work, err) ||
        !prefer(l, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &in_f32, sizeof in_f32, err)) return false;
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    for (int i = 0; i < 4; i++)
        if (!prefer(l, alignments[i], &aligned, sizeof aligned, err)) return false;
    l->scaled = scaled_open();
    return lq_gpu_alloc(l->gpu, WORK, &l->work, err);
}

bool lq_lt_open(lq_gpu *g, lq_lt **out, lq_err *err) {
    *out = NULL;
    pthread_once(&use.once, load);
    if (!use.there)
        return lq_fail(err, LQ_E_UNSUPPORTED, "device cuda: cuBLASLt cannot be loaded, which fast numerics stand on "
                       "(%s)", use.why);
    lq_lt *l = calloc(1, sizeof *l);
    if (!l) return lq_fail(err, LQ_E_MEMORY, "device cuda: no memory");
    l->gpu = g;
    if (!parts_open(l, err)) {
        lq_lt_close(l);
        return false;
    }
    snprintf(l->name, sizeof l->name, "cuBLASLt %zu", use.cublasLtGetVersion());
    *out = l;
    return true;
}

static void way_close(way *w) {
    if (w->w) use.cublasLtMatrixLayoutDestroy(w->w);
    if (w->x) use.cublasLtMatrixLayoutDestroy(w->x);
    if (w->y) use.cublasLtMatrixLayoutDestroy(w->y);
}

void lq_lt_close(lq_lt *l) {
    if (!l) return;
    lq_gpu_stream(l->gpu);
    for (int i = 0; i < l->ways; i++) way_close(&l->way[i]);
    free(l->way);
    if (l->preference) use.cublasLtMatmulPreferenceDestroy(l->preference);
    if (l->product) use.cublasLtMatmulDescDestroy(l->product);
    if (l->scaled) use.cublasLtMatmulDescDestroy(l->scaled);
    if (l->handle) use.cublasLtDestroy(l->handle);
    if (l->work) lq_gpu_free(l->gpu, l->work);
    free(l);
}

const char *lq_lt_name(const lq_lt *l) { return l->name; }

static way *way_find(const lq_lt *l, const lq_lt_product *p, int most) {
    for (int i = 0; i < l->ways; i++) {
        way *w = &l->way[i];
        if (w->most == most && w->n == p->n && w->k == p->k && w->f32 == p->f32 && w->scaled == (p->x_scale != NULL) &&
            w->x_stride == p->x_stride && w->w_stride == p->w_stride && w->y_stride == p->y_stride) return w;
    }
    return NULL;
}

// What the library names first for so many rows; where it names nothing, that is kept too.
static way *way_open(lq_lt *l, const lq_lt_product *p, cublasLtMatmulDesc_t product, int most) {
    if (l->ways == l->room) {
        const int room = l->room ? 2 * l->room : 64;
        way *more = realloc(l->way, (size_t)room * sizeof *more);
        if (!more) return NULL;
        l->way = more;
        l->room = room;
    }
    way *w = &l->way[l->ways++];
    *w = (way){.x_stride = p->x_stride, .w_stride = p->w_stride, .y_stride = p->y_stride, .most = most, .n = p->n,
               .k = p->k, .f32 = p->f32, .scaled = p->x_scale != NULL};
    const cudaDataType of = w->scaled ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    const uint64_t n = (uint64_t)p->n, k = (uint64_t)p->k, m = (uint64_t)most;
    cublasLtMatmulHeuristicResult_t found = {0};
    int count = 0;
    if (use.cublasLtMatrixLayoutCreate(&w->w, of, k, n, (int64_t)p->w_stride) != CUBLAS_STATUS_SUCCESS ||
        use.cublasLtMatrixLayoutCreate(&w->x, of, k, m, (int64_t)p->x_stride) != CUBLAS_STATUS_SUCCESS ||
        use.cublasLtMatrixLayoutCreate(&w->y, p->f32 ? CUDA_R_32F : CUDA_R_16BF, n, m, (int64_t)p->y_stride) !=
            CUBLAS_STATUS_SUCCESS ||
        use.cublasLtMatmulAlgoGetHeuristic(l->handle, product, w->w, w->x, w->y, w->y, l->preference, 1, &found,
                                           &count) != CUBLAS_STATUS_SUCCESS) return w;
    w->there = count == 1 && found.state == CUBLAS_STATUS_SUCCESS && found.workspaceSize <= WORK;
    w->algo = found.algo;
    return w;
}

bool lq_lt_multiply(lq_lt *l, const lq_lt_product *p, bool known) {
    const float one = 1, none = 0;
    const uint64_t m = (uint64_t)p->m;
    const cudaStream_t stream = lq_gpu_stream(l->gpu);
    const cublasLtMatmulDesc_t product = p->x_scale ? l->scaled : l->product;
    int most = 16;
    if (p->x_scale &&
        (!product || !describe(product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &p->w_scale, sizeof p->w_scale) ||
         !describe(product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p->x_scale, sizeof p->x_scale))) return false;
    while (most < p->m && most < 1 << 30) most *= 2;
    const way *w = way_find(l, p, most);
    if (!w && !known) w = way_open(l, p, product, most);
    return w && w->there &&
           use.cublasLtMatrixLayoutSetAttribute(w->x, CUBLASLT_MATRIX_LAYOUT_COLS, &m, sizeof m) ==
               CUBLAS_STATUS_SUCCESS &&
           use.cublasLtMatrixLayoutSetAttribute(w->y, CUBLASLT_MATRIX_LAYOUT_COLS, &m, sizeof m) ==
               CUBLAS_STATUS_SUCCESS &&
           use.cublasLtMatmul(l->handle, product, &one, p->w, w->w, p->x, w->x, &none, p->y, w->y, p->y, w->y,
                              &w->algo, l->work, WORK, stream) == CUBLAS_STATUS_SUCCESS;
}
