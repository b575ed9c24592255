// serial.cu: check_gate.py must see it refused: sums are touched before their wgmma was waited for.
#include <stdint.h>

extern "C" __global__ void __launch_bounds__(128, 1) bad_serial(float4 *y, uint64_t tile) {
    float a = 0, b = 0, c = 0, d = 0;
    for (int i = 0; i < 4; i++) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3},%4,%4,1,1,1,0,0;"
                     : "+f"(a), "+f"(b), "+f"(c), "+f"(d)
                     : "l"(tile));
        a += 1;
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    y[threadIdx.x] = make_float4(a, b, c, d);
}
