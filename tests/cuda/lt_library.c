// lt_library.c: what kernels/cuda/lt.c calls of cuBLASLt, by plain loops over memory of the host: column-major
// matrices, as NVIDIA's documentation has them. It is loaded under cuBLASLt's name by lt_calls.c. What lt.c should not
// ask for is refused: it names a way only for sums of f32 whose parts stay f32, of rows from 16 bytes on, and a way
// does for as many columns as it was named for.
#include "formats/elem.h"
#include <cublasLt.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct layout { cudaDataType type; uint64_t rows, cols; int64_t ld; } layout;
typedef struct product {
    cublasComputeType_t sums;
    cudaDataType scale;
    int32_t turn_a, turn_b, mode_a, mode_b;
    const float *scale_a, *scale_b;
    int8_t fast;
} product;
typedef struct preference { uint64_t work; uint32_t scheme, aligned[4]; } preference;
static size_t asked;
size_t lt_library_asked(void);
size_t lt_library_asked(void) { return asked; }
static layout *layout_of(cublasLtMatrixLayout_t l) { return (layout *)(void *)l; }
static product *product_of(cublasLtMatmulDesc_t d) { return (product *)(void *)d; }

size_t cublasLtGetVersion(void) { return 130000; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h) {
    *h = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t sums, cudaDataType_t scale) {
    product *p = calloc(1, sizeof *p);
    *p = (product){.sums = sums, .scale = scale, .turn_a = CUBLAS_OP_N, .turn_b = CUBLAS_OP_N, .fast = -1};
    *out = (void *)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
    free(d);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes) {
    product *p = product_of(d);
    const struct { cublasLtMatmulDescAttributes_t what; void *at; size_t bytes; } all[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &p->turn_a, 4}, {CUBLASLT_MATMUL_DESC_TRANSB, &p->turn_b, 4},
        {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &p->mode_a, 4}, {CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &p->mode_b, 4},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &p->scale_a, sizeof p->scale_a},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p->scale_b, sizeof p->scale_b},
        {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &p->fast, 1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].what == what && all[i].bytes == bytes) {
            memcpy(all[i].at, value, bytes);
            return CUBLAS_STATUS_SUCCESS;
        }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    preference *p = calloc(1, sizeof *p);
    *p = (preference){0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
    *out = (void *)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t to,
                                                    cublasLtMatmulPreferenceAttributes_t what, const void *value,
                                                    size_t bytes) {
    preference *p = (void *)to;
    void *at = what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES         ? (void *)&p->work
               : what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK     ? (void *)&p->scheme
               : what == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES     ? (void *)&p->aligned[0]
               : what == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES     ? (void *)&p->aligned[1]
               : what == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES     ? (void *)&p->aligned[2]
               : what == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES     ? (void *)&p->aligned[3]
                                                                        : NULL;
    if (!at || bytes != (at == &p->work ? 8u : 4u)) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(at, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld) {
    layout *l = calloc(1, sizeof *l);
    *l = (layout){type, rows, cols, ld};
    *out = (void *)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    free(l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t what,
                                                const void *value, size_t bytes) {
    if (what != CUBLASLT_MATRIX_LAYOUT_COLS || bytes != 8) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&layout_of(l)->cols, value, 8);
    return CUBLAS_STATUS_SUCCESS;
}

// d[m][n] = op(a)[m][k] op(b)[k][n], all of them as wide as their columns are apart.
static bool meet(const product *p, const layout *a, const layout *b, const layout *d) {
    const uint64_t m = p->turn_a ? a->cols : a->rows, k = p->turn_a ? a->rows : a->cols;
    const uint64_t kb = p->turn_b ? b->cols : b->rows, n = p->turn_b ? b->rows : b->cols;
    const bool wide = d->type == CUDA_R_32F, e4m3 = a->type == CUDA_R_8F_E4M3;
    const int each = e4m3 ? 16 : 8, rows = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const bool types = p->sums == CUBLAS_COMPUTE_32F && p->scale == CUDA_R_32F && b->type == a->type &&
                       (e4m3 || a->type == CUDA_R_16BF) && (wide || d->type == CUDA_R_16BF);
    // Of e4m3: a turned alone, a scale for each row of both, all bits of the sums.
    const bool scaled = e4m3 ? p->turn_a && !p->turn_b && p->mode_a == rows && p->mode_b == rows && p->scale_a &&
                                   p->scale_b && p->fast == 0
                             : !p->scale_a && !p->scale_b;
    return types && scaled && m == d->rows && n == d->cols && k == kb && a->ld >= (int64_t)a->rows &&
           !(a->ld % each) && b->ld >= (int64_t)b->rows && !(b->ld % each) && k % (uint64_t)each == 0 &&
           d->ld >= (int64_t)d->rows && !(d->ld % (wide ? 4 : 8));
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t to, cublasLtMatmulPreference_t like, int most,
                                              cublasLtMatmulHeuristicResult_t *out, int *found) {
    const preference *p = (void *)like;
    bool aligned = p->work == (32 << 20) && p->scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    for (int i = 0; i < 4; i++) aligned = aligned && p->aligned[i] == 16;
    asked++;
    *found = 0;
    if (!h || most < 1 || c != to || !aligned || !meet(product_of(d), layout_of(a), layout_of(b), layout_of(to)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (layout_of(to)->rows == 24) return CUBLAS_STATUS_NOT_SUPPORTED; // a shape that it has no way for
    *out = (cublasLtMatmulHeuristicResult_t){.workspaceSize = 1024, .state = CUBLAS_STATUS_SUCCESS};
    out->algo.data[0] = layout_of(to)->cols;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static float at(const void *p, const layout *l, bool turned, uint64_t row, uint64_t col) {
    const uint64_t at = turned ? col + row * (uint64_t)l->ld : row + col * (uint64_t)l->ld;
    if (l->type == CUDA_R_8F_E4M3) return lq_e4m3_widen(((const uint8_t *)p)[at]);
    return lq_bf16_widen(((const uint16_t *)p)[at]);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t al, const void *b, cublasLtMatrixLayout_t bl, const void *beta,
                              const void *c, cublasLtMatrixLayout_t cl, void *to, cublasLtMatrixLayout_t tl,
                              const cublasLtMatmulAlgo_t *algo, void *work, size_t bytes, cudaStream_t stream) {
    const product *p = product_of(d);
    const layout *out = layout_of(tl);
    const float one = 1, none = 0;
    if (!h || !algo || !work || bytes != (32 << 20) || !stream || c != to || cl != tl || memcmp(alpha, &one, 4) ||
        memcmp(beta, &none, 4) || ((size_t)a | (size_t)b | (size_t)to) % 16 ||
        !meet(p, layout_of(al), layout_of(bl), out) || out->cols > algo->data[0]) return CUBLAS_STATUS_INVALID_VALUE;
    const uint64_t k = p->turn_a ? layout_of(al)->rows : layout_of(al)->cols;
    for (uint64_t i = 0; i < out->rows; i++)
        for (uint64_t j = 0; j < out->cols; j++) {
            const uint64_t place = i + j * (uint64_t)out->ld;
            float sum = 0;
            for (uint64_t s = 0; s < k; s++)
                sum += at(a, layout_of(al), p->turn_a, i, s) * at(b, layout_of(bl), p->turn_b, s, j);
            if (p->scale_a) sum = sum * p->scale_a[i] * p->scale_b[j];
            if (out->type == CUDA_R_32F) ((float *)to)[place] = sum;
            else ((uint16_t *)to)[place] = (uint16_t)lq_bf16_narrow(sum);
        }
    return CUBLAS_STATUS_SUCCESS;
}
