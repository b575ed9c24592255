// check_meter.cpp: the loops that measure a GPU read each byte once and do as many multiply-adds as they are asked for.
#include "kernels/cuda/meter.h"
#include "tests/cuda/check.h"

typedef void meter_kernel(const void *);
extern "C" meter_kernel lq_meter_read_bytes, lq_meter_bf16, lq_meter_s8;
enum { WARPS = LQ_METER_THREADS / 32 };

static std::vector<uint32_t> run(meter_kernel *kernel, const std::vector<uint32_t> &p, int loops, unsigned blocks) {
    emu::reset();
    const char *at = (const char *)input_of(p, "p");
    std::vector<lq_meter_piece> pieces; // of all sizes, one behind the other
    for (size_t size = 1, left = p.size() / 4, i = 0; left > 0; left -= size, at += size * 16, i++) {
        size = i % 3 == 0 ? LQ_METER_PIECE : i % 3 == 1 ? 2 : 700;
        if (size > left) size = left;
        pieces.push_back({at, size});
    }
    lq_meter_args a = {(const lq_meter_piece *)input_of(pieces, "pieces"), (int)pieces.size(), loops,
                       (uint32_t *)emu::output(blocks * WARPS * 4, "out")};
    emu::options how;
    how.seed = random_bits();
    const emu::result r = emu::launch(dim3(blocks), dim3(LQ_METER_THREADS), 0, how, [&] { kernel(&a); });
    if (!check(r.findings.empty() && emu::zones_whole(), "%zu findings", r.findings.size())) r.print();
    check(r.worst(false) <= 1.0, "a request takes %.2f times the sectors it needs", r.worst(false));
    return std::vector<uint32_t>(a.out, a.out + blocks * WARPS);
}

int main() {
    for (int vectors : {1, 31, 512, 513, 3000, 4096, 9001, 20000})
        for (unsigned blocks : {1u, 2u, 3u}) {
            std::vector<uint32_t> p((size_t)vectors * 4);
            uint32_t want = 0, got = 0;
            for (uint32_t &w : p) want ^= w = random_bits();
            for (uint32_t w : run(lq_meter_read_bytes, p, 0, blocks)) got ^= w;
            check(got == want, "%d vectors by %u blocks: some were not read, or twice", vectors, blocks);
        }
    const std::vector<uint32_t> none(4);
    for (int loops : {1, 7, 50}) {
        bool floats = true, bytes = true;
        const float all = 4.0f * 16 * LQ_METER_MMAS * (float)loops;
        for (uint32_t w : run(lq_meter_bf16, none, loops, 2)) floats &= !memcmp(&w, &all, 4);
        for (uint32_t w : run(lq_meter_s8, none, loops, 2)) bytes &= w == 4u * 32 * LQ_METER_MMAS * (uint32_t)loops;
        check(floats && bytes, "%d loops: another number of multiply-adds", loops);
    }
    return closing();
}
