// hopper.cu: a sample for check_gate.py that only sm_90a has: wgmma with its first operand in registers.
#include <stdint.h>

extern "C" __global__ void __launch_bounds__(128, 1) sample_wgmma(const uint4 *w, float4 *y, uint64_t tile, int steps) {
    float a = 0, b = 0, c = 0, d = 0;
    for (int s = 0; s < steps; s++) {
        const uint4 q = w[s * 128 + threadIdx.x];
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3},{%4,%5,%6,%7},%8,1,1,1,0;"
                     : "+f"(a), "+f"(b), "+f"(c), "+f"(d)
                     : "r"(q.x), "r"(q.y), "r"(q.z), "r"(q.w), "l"(tile + 64 * s));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    y[threadIdx.x] = make_float4(a, b, c, d);
}
