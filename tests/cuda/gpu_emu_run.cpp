// gpu_emu_run.cpp: what gpu_emu.c asks of the emulated machine: a launch, another schedule each time. Races in shared
// memory, divergence and copies in flight are found there as in the checks of single kernels; the driver's own memory
// is not watched.
#include "kernels/cuda/gpu.h"
#include "tests/cuda/emu.h"
#include <stdio.h>

extern "C" void lq_emu_adopt(void *memory, size_t bytes) { emu::adopt(memory, bytes); }

extern "C" bool lq_emu_run(const void *kernel, const void *args, const lq_gpu_grid *grid, char *why, size_t size) {
    static unsigned launches;
    emu::options how;
    how.seed = ++launches;
    how.resident = 2;
    how.cluster = grid->cluster ? grid->cluster : 1;
    const auto run = [=] { ((void (*)(const void *))(uintptr_t)kernel)(args); };
    const dim3 blocks(grid->blocks, grid->rows ? grid->rows : 1), threads(grid->threads);
    const emu::result r = emu::launch(blocks, threads, grid->shared, how, run);
    if (!r.findings.empty())
        snprintf(why, size, "%s, %s", emu::kind_names[r.findings[0].what], r.findings[0].where.c_str());
    return r.findings.empty();
}
