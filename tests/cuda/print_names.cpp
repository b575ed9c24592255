// print_names.cpp: what every name of simt.h computes (names.cu), a word a line: of the emulated machine, or where it
// is linked with tests/gpu/ of a GPU. tests/gpu/check.sh holds one against the other.
#include "tests/cuda/check.h"
#include "tests/cuda/names/names.h"

extern "C" void lq_simt_names(const void *);
extern "C" void lq_simt_names_90a(const void *);

static bool printed_90a() {
    std::vector<uint32_t> in(4096 + 512);
    for (uint32_t &w : in) w = random_bits();
    const lq_names_90a_args a = {(const uint32_t *)input_of(in, "in"),
                                 (uint32_t *)emu::output(LQ_NAMES_90A_WORDS * 4, "out")};
    const emu::result r = emu::launch(dim3(1), dim3(128), LQ_NAMES_90A_SHARED, emu::options(),
                                      [&] { lq_simt_names_90a(&a); });
    r.print();
    for (int i = 0; i < LQ_NAMES_90A_WORDS; i++) printf("%08x\n", a.out[i]);
    return r.findings.empty();
}

// Those of sm_90a last: a GPU that has none of it prints fewer.
int main() {
    enum { WORDS = 4096 };
    std::vector<uint32_t> in(256);
    for (uint32_t &w : in) w = random_bits();
    const std::vector<uint32_t> none(WORDS, 0);
    uint32_t *out = (uint32_t *)emu::changed(none.data(), WORDS * 4, "out");
    const lq_names_args a = {(const uint32_t *)input_of(in, "in"), out, (uint32_t *)emu::state(8, "counter")};
    const emu::result r = emu::launch(dim3(1), dim3(32), 1536, emu::options(), [&] { lq_simt_names(&a); });
    r.print();
    for (int i = 0; i < WORDS; i++) printf("%08x\n", a.out[i]);
    return !(r.findings.empty() && (!emu::has_90a() || printed_90a()));
}
