// ring.cu: what check_gate.py holds the gate against on any architecture: a product through a ring of cp.async, and a
// sum that may start before its predecessor ends. Only what nvcc makes of them counts: nobody runs them.
#include <stdint.h>

static __device__ __forceinline__ uint32_t shared_at(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

static __device__ __forceinline__ void copy16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_at(to)), "l"(from) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Four stages of 4 KB; each thread copies the 16 bytes that its warp then reads by ldmatrix.
extern "C" __global__ void __launch_bounds__(256, 2) sample_ring(const uint4 *w, float4 *y, int steps) {
    extern __shared__ __align__(128) uint4 ring[];
    const int at = threadIdx.x;
    float sum[4] = {0, 0, 0, 0};
    for (int s = 0; s < 3; s++)
        copy16(ring + s * 256 + at, w + s * 256 + at);
    for (int s = 0; s < steps; s++) {
        asm volatile("cp.async.wait_group 2;" ::: "memory");
        __syncthreads();
        copy16(ring + (s + 3) % 4 * 256 + at, w + (size_t)(s + 3) * 256 + at);
        uint32_t a[4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(shared_at(ring + s % 4 * 256 + at)));
        for (int h = 0; h < 2; h++)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                         "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                         : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[2 * h]), "r"(a[2 * h + 1]));
    }
    y[blockIdx.x * 256 + at] = make_float4(sum[0], sum[1], sum[2], sum[3]);
}

extern "C" __global__ void __launch_bounds__(128, 8) sample_add(const float4 *x, const float4 *y, float4 *out, int n) {
    __shared__ float4 scale[2];
    const int i = blockIdx.x * 128 + threadIdx.x;
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    if (threadIdx.x < 2)
        scale[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (i < n) {
        const float4 a = x[i], b = y[i], s = scale[i & 1];
        out[i] = make_float4(a.x + s.x * b.x, a.y + s.y * b.y, a.z + s.z * b.z, a.w + s.w * b.w);
    }
}
