// check.h: what the checks of CUDA kernels share: counting, random numbers, numbers of bf16.
#ifndef CUDA_CHECK_H
#define CUDA_CHECK_H
#include "tests/cuda/emu.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int passed, failed, skipped;

// One check; what says what was expected where it fails.
template <class... T> static bool check(bool ok, const char *what, T... with) {
    if (ok) passed++;
    else if (++failed <= 30) {
        printf("FAILED: ");
        if constexpr (sizeof...(with) > 0) printf(what, with...);
        else printf("%s", what);
        printf("\n");
    }
    return ok;
}

static inline int closing() {
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}

static uint64_t random_state = 88172645463325252u;

static inline uint32_t random_bits() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

static inline int below(int n) { return (int)(random_bits() % (uint32_t)n); }
static inline float uniform() { return (float)(int32_t)random_bits() * 0x1p-31f; } // -1 .. 1

static inline float of_bf16(uint16_t h) {
    const uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static inline uint16_t to_bf16(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

template <class T> static void *weights_of(const std::vector<T> &v, const char *name) {
    return emu::weights(v.data(), v.size() * sizeof(T), name);
}

template <class T> static void *input_of(const std::vector<T> &v, const char *name) {
    return emu::input(v.data(), v.size() * sizeof(T), name);
}

// --- slots of experts ---

// Whose each slot is: in turn, or (ordered) as a router sends them: some experts are sent none, some slots go to
// none (-1).
static inline std::vector<int> experts_of(int slots, int experts, bool ordered) {
    std::vector<int> expert;
    for (int s = 0; s < slots; s++)
        expert.push_back(!ordered      ? s % experts
                         : s % 7 == 3  ? -1
                         : experts > 5 ? below(experts)
                                       : (below(3) ? 3 : below(2) * 4) % experts);
    return expert;
}

static inline void sort_slots(const std::vector<int> &expert, int experts, std::vector<int32_t> &order,
                              std::vector<int32_t> &start) {
    for (int e = 0; e < experts; e++) {
        start.push_back((int32_t)order.size());
        for (int s = 0; s < (int)expert.size(); s++)
            if (expert[(size_t)s] == e) order.push_back(s);
    }
    start.push_back((int32_t)order.size());
}
#endif
