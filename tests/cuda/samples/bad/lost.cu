// lost.cu: a ring of copies with an L2 policy, whose stage all threads share: ptxas 13.0 for sm_90a adds it to the
// address in the copy itself and leaves the number of its register 0.
extern "C" __global__ void __launch_bounds__(128, 1) bad_lost(const uint4 *x, uint4 *y, int n) {
    extern __shared__ uint4 ring[];
    const unsigned to = (unsigned)__cvta_generic_to_shared(ring) + threadIdx.x * 16;
    unsigned long long once;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
    uint4 sum = {0, 0, 0, 0};
    unsigned stage = 0;
    for (int i = 0; i < n; i++) {
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to + stage),
                     "l"(x + (size_t)i * 128 + threadIdx.x), "r"(16), "l"(once) : "memory");
        asm volatile("cp.async.commit_group;\ncp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        const uint4 v = ring[stage / 16 + (threadIdx.x ^ 1)];
        sum.x ^= v.x, sum.y ^= v.y, sum.z ^= v.z, sum.w ^= v.w;
        stage = stage == 3 * 2048 ? 0 : stage + 2048;
    }
    y[threadIdx.x] = sum;
}
