// ignored.cu: check_gate.py must see it refused: ptxas ignores setmaxnreg in a kernel without launch bounds.
extern "C" __global__ void bad_ignored(int *y) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    y[threadIdx.x] = 1;
}
