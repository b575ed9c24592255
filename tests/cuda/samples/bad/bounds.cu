// bounds.cu: kernels that check_gate.py must see refused on any architecture, each for one thing.

// Sixty-four values that live together in the 32 registers that two blocks of 1,024 threads leave.
extern "C" __global__ void __launch_bounds__(1024, 2) bad_spill(const volatile float *x, volatile float *y) {
    float v[64];
#pragma unroll
    for (int i = 0; i < 64; i++)
        v[i] = x[i * 1024 + threadIdx.x];
#pragma unroll
    for (int i = 0; i < 64; i++)
        y[i * 1024 + threadIdx.x] = v[63 - i];
}

// The same values, which a loop needs time and again.
extern "C" __global__ void __launch_bounds__(1024, 2) bad_loop(const volatile float *x, volatile float *y, int n) {
    float v[64] = {};
#pragma unroll 1
    for (; n > 0; n--, x += 64) {
#pragma unroll
        for (int i = 0; i < 64; i++)
            v[i] += x[i] * v[63 - i];
    }
#pragma unroll
    for (int i = 0; i < 64; i++)
        y[i * 1024 + threadIdx.x] = v[i];
}

// An array with an index that is known when it runs.
extern "C" __global__ void __launch_bounds__(128, 1) bad_stack(const int *x, int *y) {
    int v[128];
    for (int i = 0; i < 128; i++)
        v[i] = x[i];
    y[threadIdx.x] = v[x[threadIdx.x] & 127] + v[threadIdx.x & 127];
}

extern "C" __global__ void __launch_bounds__(128, 1) bad_early(const int *x, int *y) {
    const int v = x[threadIdx.x];
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
#endif
    y[threadIdx.x] = v + x[0];
}

extern "C" __global__ void __launch_bounds__(128, 1) bad_mute(const int *x, int *y) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    y[threadIdx.x] = x[0];
}

extern "C" __global__ void __launch_bounds__(128, 1) bad_deaf(const int *x, int *y) {
    y[threadIdx.x] = x[0];
}
