// solver.c: solver.h by cuBLAS and cuSOLVER. They are loaded at the first use, since few programs solve anything: a GPU
// serves models without them. Owns their handles and what they work in, which grows with the largest matrix.
//
// Their matrices are column-major: a row-major one is its transpose to them. Products of f32 are pedantic, without
// TF32, those of bf16 are summed in f32; one stream, one workspace, so that the same call gives the same bits.
#include "kernels/cuda/solver.h"
#include <cublas_v2.h>
#include <cusolverDn.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
enum { WORK = 32 << 20 }; // of cuBLAS

#define CUBLAS(X) X(cublasCreate_v2) X(cublasDestroy_v2) X(cublasGetVersion_v2) X(cublasSetStream_v2) \
    X(cublasSetWorkspace_v2) X(cublasSetMathMode) X(cublasSgemm_v2_64) X(cublasGemmEx_64) X(cublasSsyrk_v2_64) X(cublasDtrmm_v2_64)
#define CUSOLVER(X) X(cusolverDnCreate) X(cusolverDnDestroy) X(cusolverDnSetStream) X(cusolverDnCreateParams) \
    X(cusolverDnDestroyParams) X(cusolverGetVersion) X(cusolverDnXpotrf_bufferSize) X(cusolverDnXpotrf) \
    X(cusolverDnXtrtri_bufferSize) X(cusolverDnXtrtri)
static struct {
    pthread_once_t once;
    bool there;
    char why[256];
#define POINTER(name) __typeof__(&name) name;
    CUBLAS(POINTER) CUSOLVER(POINTER)
#undef POINTER
} use = {.once = PTHREAD_ONCE_INIT};

static bool find(void *lib, const char *name, void *at) {
    void *f = lib ? dlsym(lib, name) : NULL;
    memcpy(at, &f, sizeof f);
    if (!f) snprintf(use.why, sizeof use.why, "%s", dlerror());
    return f != NULL;
}

static void load(void) {
    void *blas = dlopen("libcublas.so." TEXT(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);
    void *solver = blas ? dlopen("libcusolver.so." TEXT(CUSOLVER_VER_MAJOR), RTLD_NOW | RTLD_LOCAL) : NULL;
    use.there = blas && solver;
    if (!use.there) snprintf(use.why, sizeof use.why, "%s", dlerror());
#define OF_BLAS(name) use.there = use.there && find(blas, #name, &use.name);
#define OF_SOLVER(name) use.there = use.there && find(solver, #name, &use.name);
    CUBLAS(OF_BLAS) CUSOLVER(OF_SOLVER)
}

struct lq_solver {
    lq_gpu *gpu;
    char name[64];
    cublasHandle_t blas;
    cusolverDnHandle_t dense;
    cusolverDnParams_t params;
    void *blas_work, *work, *host_work;
    size_t bytes, host_bytes;
};

// Both name success 0.
static bool check(int status, const char *what, lq_err *err) {
    return status == 0 || lq_fail(err, LQ_E_DEVICE, "device cuda: %s: status %d", what, status);
}

static bool handles_open(lq_solver *s, lq_err *err) {
    const cudaStream_t stream = lq_gpu_stream(s->gpu);
    int blas, dense;
    if (!check(use.cublasCreate_v2(&s->blas), "cublasCreate", err) ||
        !check(use.cusolverDnCreate(&s->dense), "cusolverDnCreate", err) ||
        !check(use.cusolverDnCreateParams(&s->params), "cusolverDnCreateParams", err) ||
        !check(use.cublasSetStream_v2(s->blas, stream), "cublasSetStream", err) ||
        !check(use.cusolverDnSetStream(s->dense, stream), "cusolverDnSetStream", err) ||
        !lq_gpu_alloc(s->gpu, WORK, &s->blas_work, err) ||
        !check(use.cublasSetWorkspace_v2(s->blas, s->blas_work, WORK), "cublasSetWorkspace", err) ||
        !check(use.cublasSetMathMode(s->blas, CUBLAS_PEDANTIC_MATH), "cublasSetMathMode", err) ||
        !check(use.cublasGetVersion_v2(s->blas, &blas), "cublasGetVersion", err) ||
        !check(use.cusolverGetVersion(&dense), "cusolverGetVersion", err)) return false;
    snprintf(s->name, sizeof s->name, "cuBLAS %d, cuSOLVER %d", blas, dense);
    return true;
}

bool lq_solver_open(lq_gpu *g, lq_solver **out, lq_err *err) {
    *out = NULL;
    pthread_once(&use.once, load);
    if (!use.there)
        return lq_fail(err, LQ_E_UNSUPPORTED, "device cuda: cuBLAS and cuSOLVER cannot be loaded, which gram and factor "
                       "stand on (%s)", use.why);
    lq_solver *s = calloc(1, sizeof *s);
    if (!s) return lq_fail(err, LQ_E_MEMORY, "device cuda: no memory");
    s->gpu = g;
    if (!handles_open(s, err)) {
        lq_solver_close(s);
        return false;
    }
    *out = s;
    return true;
}

void lq_solver_close(lq_solver *s) {
    if (!s) return;
    lq_gpu_stream(s->gpu);
    if (s->params) use.cusolverDnDestroyParams(s->params);
    if (s->dense) use.cusolverDnDestroy(s->dense);
    if (s->blas) use.cublasDestroy_v2(s->blas);
    if (s->blas_work) lq_gpu_free(s->gpu, s->blas_work);
    if (s->work) lq_gpu_free(s->gpu, s->work);
    free(s->host_work);
    free(s);
}

const char *lq_solver_name(const lq_solver *s) { return s->name; }

// Numbers of bf16 are multiplied exactly, on tensor cores, and summed in f32.
static bool multiply_half(lq_solver *s, const lq_solver_product *p, lq_err *err) {
    const float one = 1, none = 0;
    const cublasMath_t tensor = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    const void *y = p->y ? p->y : p->x;
    const int64_t stride = (int64_t)(p->y ? p->y_stride : p->x_stride);
    return check(use.cublasSetMathMode(s->blas, tensor), "cublasSetMathMode", err) &&
           check(use.cublasGemmEx_64(s->blas, CUBLAS_OP_N, CUBLAS_OP_T, p->n, p->m, p->rows, &one, y, CUDA_R_16BF,
                                     stride, p->x, CUDA_R_16BF, (int64_t)p->x_stride, &none, p->c, CUDA_R_32F, p->n,
                                     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT), "cublasGemmEx", err) &&
           check(use.cublasSetMathMode(s->blas, CUBLAS_PEDANTIC_MATH), "cublasSetMathMode", err);
}

// c^T = y^T x, of what is column-major y^T and x^T.
bool lq_solver_multiply(lq_solver *s, const lq_solver_product *p, lq_err *err) {
    const float one = 1, none = 0;
    lq_gpu_stream(s->gpu);
    if (p->half) return multiply_half(s, p, err);
    if (!p->y)
        return check(use.cublasSsyrk_v2_64(s->blas, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, p->m, p->rows, &one, p->x,
                                           (int64_t)p->x_stride, &none, p->c, p->m), "cublasSsyrk", err);
    return check(use.cublasSgemm_v2_64(s->blas, CUBLAS_OP_N, CUBLAS_OP_T, p->n, p->m, p->rows, &one, p->y,
                                       (int64_t)p->y_stride, p->x, (int64_t)p->x_stride, &none, p->c, p->n),
                 "cublasSgemm", err);
}

// y^T = h x^T, of what is column-major h^T and x^T.
bool lq_solver_apply(lq_solver *s, const float *x, size_t x_stride, int rows, const float *h, int m, int k, float *y,
                     lq_err *err) {
    const float one = 1, none = 0;
    lq_gpu_stream(s->gpu);
    return check(use.cublasSgemm_v2_64(s->blas, CUBLAS_OP_T, CUBLAS_OP_N, m, rows, k, &one, h, k, x, (int64_t)x_stride,
                                       &none, y, m), "cublasSgemm", err);
}

static bool work_open(lq_solver *s, size_t bytes, size_t host_bytes, lq_err *err) {
    if (host_bytes > s->host_bytes) {
        free(s->host_work);
        s->host_bytes = 0;
        if (!(s->host_work = malloc(host_bytes)))
            return lq_fail(err, LQ_E_MEMORY, "device cuda: no memory for %zu bytes on the host", host_bytes);
        s->host_bytes = host_bytes;
    }
    if (bytes <= s->bytes) return true;
    if (s->work) lq_gpu_free(s->gpu, s->work);
    s->work = NULL;
    s->bytes = 0;
    if (!lq_gpu_alloc(s->gpu, bytes, &s->work, err)) return false;
    s->bytes = bytes;
    return true;
}

// The lower half by rows is the upper half by columns: a = (L^T)^T L^T.
bool lq_solver_invert(lq_solver *s, double *a, int n, int *info, lq_err *err) {
    const cublasFillMode_t half = CUBLAS_FILL_MODE_UPPER;
    const cublasDiagType_t any = CUBLAS_DIAG_NON_UNIT;
    size_t potrf, potrf_host, trtri, trtri_host;
    lq_gpu_stream(s->gpu);
    if (!check(use.cusolverDnXpotrf_bufferSize(s->dense, s->params, half, n, CUDA_R_64F, a, n, CUDA_R_64F, &potrf,
                                               &potrf_host), "cusolverDnXpotrf_bufferSize", err) ||
        !check(use.cusolverDnXtrtri_bufferSize(s->dense, half, any, n, CUDA_R_64F, a, n, &trtri, &trtri_host),
               "cusolverDnXtrtri_bufferSize", err)) return false;
    if (!work_open(s, potrf > trtri ? potrf : trtri, potrf_host > trtri_host ? potrf_host : trtri_host, err))
        return false;
    return check(use.cusolverDnXpotrf(s->dense, s->params, half, n, CUDA_R_64F, a, n, CUDA_R_64F, s->work, s->bytes,
                                      s->host_work, s->host_bytes, info), "cusolverDnXpotrf", err) &&
           check(use.cusolverDnXtrtri(s->dense, half, any, n, CUDA_R_64F, a, n, s->work, s->bytes, s->host_work,
                                      s->host_bytes, info + 1), "cusolverDnXtrtri", err);
}

// b^T = b^T u^T, where the column-major u^T is lower; turned: b^T u.
bool lq_solver_triangle(lq_solver *s, const double *u, int n, bool turned, double *b, int cols, lq_err *err) {
    const double one = 1;
    lq_gpu_stream(s->gpu);
    return check(use.cublasDtrmm_v2_64(s->blas, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_LOWER,
                                       turned ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, cols, n, &one, u, n, b,
                                       cols, b, cols), "cublasDtrmm", err);
}
