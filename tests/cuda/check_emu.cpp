// check_emu.cpp: the emulated machine itself. Small kernels with one mistake each, which must be found as what it is;
// the same without it, which must be found clean; what requests of memory cost; and each name of simt.h against its
// definition.
#include "kernels/cuda/simt.h"
#include "tests/cuda/check.h"
#include "tests/cuda/names/names.cu"
#include "tests/cuda/names/names_90a.cu"

static uint32_t *in, *out, *counter; // of 4096 words, 4096 words, 4 words

static emu::result launched(const char *what, unsigned blocks, unsigned threads, unsigned seed, unsigned resident,
                            const std::function<void()> &kernel, unsigned cluster = 0 /* in the second dimension */) {
    std::vector<uint32_t> numbers;
    for (uint32_t i = 0; i < 4096; i++) numbers.push_back(i * 2654435761u);
    emu::reset();
    in = (uint32_t *)input_of(numbers, "in");
    out = (uint32_t *)emu::output(4096 * 4, "out");
    counter = (uint32_t *)emu::state(16, "counter");
    emu::options how;
    how.seed = seed;
    how.resident = resident;
    how.cluster = cluster ? cluster : 1;
    const dim3 grid = cluster ? dim3(1, blocks) : dim3(blocks);
    const emu::result r = emu::launch(grid, dim3(threads), 4096, how, kernel);
    if (!what) return r;
    if (!check(r.findings.empty(), "%s: %zu findings in what is right", what, r.findings.size())) r.print();
    return r;
}

// The kernel is found clean without its mistake and found to be of this kind with it, whatever the order.
static void mistake(const char *what, emu::kind kind, unsigned blocks, unsigned threads, void (*kernel)(bool)) {
    for (unsigned seed = 1; seed <= 3; seed++)
        for (unsigned resident = 1; resident <= 3; resident += 2) {
            launched(what, blocks, threads, seed, resident, [&] { kernel(false); });
            const emu::result r = launched(NULL, blocks, threads, seed, resident, [&] { kernel(true); });
            if (!check(r.has(kind), "%s: no finding \"%s\"", what, emu::kind_names[kind])) r.print();
        }
}

// --- one mistake each ---

// Sums of pairs of the block's threads, by way of shared memory.
static void neighbours(bool wrong) {
    const uint32_t t = threadIdx.x, n = blockDim.x;
    pdl_wait();
    sts4(4 * t, ld4(in + t));
    if (!wrong) __syncthreads();
    st4(out + blockIdx.x * n + t, lds4(4 * ((t + 33) % n)));
}

// The same by way of an output.
static void neighbours_apart(bool wrong) {
    const uint32_t t = threadIdx.x, n = blockDim.x, at = blockIdx.x * n;
    pdl_wait();
    st4(out + at + t, ld4(in + t));
    if (!wrong) __syncthreads();
    st4(out + 1024 + at + t, ld4(out + at + (t + 33) % n));
}

static void one_warp(bool wrong) {
    const uint32_t t = threadIdx.x;
    pdl_wait();
    sts4(4 * t, ld4(in + t));
    if (!wrong) sync_warp();
    st4(out + t, lds4(4 * (t ^ 1)));
}

static void overtaken(bool wrong) {
    const uint32_t t = threadIdx.x;
    pdl_wait();
    sts4(4 * t, t);
    __syncthreads();
    const uint32_t v = lds4(4 * ((t + 40) % blockDim.x));
    if (!wrong) __syncthreads();
    sts4(4 * t, v);
}

// The read always comes first, since lanes meet in a shuffle; but that orders no memory.
static void shuffled(bool wrong) {
    const uint32_t t = threadIdx.x;
    sts4(4 * t, t);
    sync_warp();
    const uint32_t v = shfl_xor(lds4(4 * (t ^ 1)), 2);
    if (!wrong) sync_warp();
    sts4(4 * t, v);
}

static void beyond(bool wrong) {
    pdl_wait();
    st4(out + 4000 + threadIdx.x + (wrong ? 65 : 0), 1);
}

static void beyond_shared(bool wrong) {
    sts4(4096 - 4 * 64 + 4 * threadIdx.x + (wrong ? 4 : 0), 1);
}

static void plain_pointer_beyond(bool wrong) {
    pdl_wait();
    if (threadIdx.x == 3) out[wrong ? 4096 : 4095] = in[7];
}

static void crooked(bool wrong) {
    pdl_wait();
    const uint4 v = ld16((const char *)in + 16 * threadIdx.x + (wrong ? 4 : 0));
    st16(out + 4 * threadIdx.x, v);
}

static void unwritten_shared(bool wrong) {
    const uint32_t t = threadIdx.x;
    pdl_wait();
    if (t || !wrong) sts4(4 * t, t);
    __syncthreads();
    st4(out + t, lds4(4 * (t ^ 32)));
}

static void unwritten_global(bool wrong) {
    pdl_wait();
    if (!wrong) st4(out + threadIdx.x, 5);
    st4(out + 64 + threadIdx.x, ld4(out + threadIdx.x));
}

static void written_input(bool wrong) {
    pdl_wait();
    st4((wrong ? in : out) + threadIdx.x, 1);
}

static void too_early(bool wrong) {
    if (!wrong) pdl_wait();
    st4(out + threadIdx.x, ld4(in + threadIdx.x));
}

static void copied(bool wrong) {
    const uint32_t t = threadIdx.x;
    pdl_wait();
    cp_async16(16 * t, in + 4 * t, 16);
    cp_async_commit();
    cp_async16(2048 + 16 * t, in + 4 * t, 8);
    cp_async_commit();
    if (wrong) cp_async_wait<1>();
    else cp_async_wait<0>();
    const uint4 a = lds16(16 * t), b = lds16(2048 + 16 * t);
    st4(out + t, a.x + b.w);
}

static void never_waited(bool wrong) {
    pdl_wait();
    cp_async16(16 * threadIdx.x, in + 4 * threadIdx.x, 16);
    if (!wrong) cp_async_commit(), cp_async_wait<0>();
}

static void two_ways(bool wrong) {
    uint32_t v = threadIdx.x;
    if (wrong && v == 5) v = vote_ballot(true);
    else v = shfl_xor(v, 1);
    pdl_wait();
    st4(out + threadIdx.x, v);
}

static void lane_left(bool wrong) {
    if (wrong && threadIdx.x == 9) return;
    const uint32_t v = shfl_xor(threadIdx.x, 1);
    pdl_wait();
    st4(out + threadIdx.x, v);
}

// Half of the block never comes.
static void half_barrier(bool wrong) {
    if (!wrong || threadIdx.x < 32) __syncthreads();
}

static void other_barrier(bool wrong) {
    if (wrong && threadIdx.x < 32) __syncthreads();
    else __syncthreads();
}

// One warp waits at the barrier for a warp whose lane 0 waits there too, while the others wait for lane 0.
static void crossed(bool wrong) {
    const uint32_t t = threadIdx.x;
    if (wrong && t == 32) __syncthreads();
    const uint32_t v = shfl(t, 0);
    if (!wrong || t != 32) __syncthreads();
    pdl_wait();
    st4(out + t, v);
}

// Block 0 waits for what block 1 says, and may be the only one there.
static void waits_for_block(bool wrong) {
    pdl_wait();
    if (!wrong) return;
    if (threadIdx.x == 0 && blockIdx.x == 0)
        while (ld_acquire(counter) == 0) {}
    if (threadIdx.x == 0 && blockIdx.x == 1) while (ld_acquire(counter) == 0) {}
}

// Each block leaves its number; the last one adds all of them up.
enum lapse { NOTHING, NO_RELEASE, NO_ACQUIRE, NO_BARRIER_BEFORE, NO_RESET, SAME_WORD };
static void last_adds(lapse wrong) {
    const uint32_t t = threadIdx.x, b = blockIdx.x;
    pdl_wait();
    st4(out + (wrong == SAME_WORD ? 0 : 64 * b) + t, b + 1);
    if (wrong != NO_BARRIER_BEFORE) __syncthreads();
    if (t == 0) {
        if (wrong != NO_RELEASE) __threadfence();
        sts4(0, wrong == NO_RESET ? atomic_add(counter, 1) : atomic_inc(counter, gridDim.x - 1));
        if (wrong != NO_ACQUIRE) __threadfence();
    }
    __syncthreads();
    if (lds4(0) != gridDim.x - 1) return;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < gridDim.x; i++) sum += ld4(out + 64 * i + t);
    st4(out + 2048 + t, sum);
}

template <lapse L> static void last_adds_with(bool wrong) { last_adds(wrong ? L : NOTHING); }

// Two blocks of a cluster: the second leaves words in the first one's shared memory, which reads its own before.
enum gap { WHOLE, NO_SYNC_BEFORE, NO_SYNC_BEHIND, LEFT_EARLY, TWICE };
static void cluster_adds(gap wrong) {
    const uint32_t t = threadIdx.x, rank = blockIdx.y % 2;
    pdl_wait();
    sts8(8 * t, {t, rank});
    const uint2 own = lds8(8 * t);
    if (wrong == LEFT_EARLY && rank == 0) return;
    if (wrong != NO_SYNC_BEFORE) cluster_sync();
    if (rank || wrong == TWICE) st8_cluster(8 * t, 0, {own.x + 100, own.y});
    if (wrong != NO_SYNC_BEHIND) cluster_sync();
    if (rank == 0) st4(out + blockIdx.y * 32 + t, lds8(8 * t).x);
}

static void check_clusters() {
    const struct { gap wrong; emu::kind kind; const char *name; } all[] = {
        {NO_SYNC_BEFORE, emu::BLOCK_RACE, "no barrier of a cluster before"},
        {NO_SYNC_BEHIND, emu::BLOCK_RACE, "no barrier of a cluster behind"},
        {LEFT_EARLY, emu::EXITED, "a block of a cluster has left"},
        {TWICE, emu::BLOCK_RACE, "two blocks write a third"}};
    for (const auto &a : all)
        for (unsigned seed = 1; seed <= 3; seed++)
            for (unsigned resident = 1; resident <= 6; resident += 5) {
                launched(a.name, 6, 32, seed, resident, [] { cluster_adds(WHOLE); }, 2);
                for (uint32_t i = 0; i < 6 * 32; i += 64)
                    for (uint32_t t = 0; t < 32; t++) check(out[i + t] == t + 100, "%s: word %u", a.name, i + t);
                const emu::result r = launched(NULL, 6, 32, seed, resident, [&] { cluster_adds(a.wrong); }, 2);
                if (!check(r.has(a.kind), "%s: no finding \"%s\"", a.name, emu::kind_names[a.kind])) r.print();
            }
}

static void check_mistakes() {
    mistake("a barrier between warps", emu::RACE, 2, 64, neighbours);
    mistake("a barrier between warps, in global memory", emu::RACE, 2, 64, neighbours_apart);
    mistake("sync_warp between lanes", emu::RACE, 1, 32, one_warp);
    mistake("a barrier before what was read is written", emu::RACE, 1, 64, overtaken);
    mistake("sync_warp before what was read is written", emu::RACE, 1, 32, shuffled);
    mistake("a store behind a buffer", emu::OUT_OF_BOUNDS, 1, 96, beyond);
    mistake("a store behind shared memory", emu::OUT_OF_BOUNDS, 1, 64, beyond_shared);
    mistake("a plain pointer behind a buffer", emu::OUT_OF_BOUNDS, 1, 32, plain_pointer_beyond);
    mistake("16 bytes at 4", emu::MISALIGNED, 1, 32, crooked);
    mistake("shared memory nobody wrote", emu::UNINITIALISED, 1, 64, unwritten_shared);
    mistake("an output nobody wrote", emu::UNINITIALISED, 1, 32, unwritten_global);
    mistake("a store into an input", emu::WRITES_INPUT, 1, 32, written_input);
    mistake("a load before pdl_wait", emu::BEFORE_WAIT, 1, 32, too_early);
    mistake("a copy not waited for", emu::IN_FLIGHT, 1, 64, copied);
    mistake("a copy at the end", emu::IN_FLIGHT, 1, 32, never_waited);
    mistake("a vote meets a shuffle", emu::DIVERGED, 1, 32, two_ways);
    mistake("a lane has left", emu::DEADLOCK, 1, 32, lane_left);
    mistake("half a block at a barrier", emu::EXITED, 1, 64, half_barrier);
    mistake("two barriers for one", emu::DIVERGED, 1, 64, other_barrier);
    mistake("a barrier inside of a warp", emu::DEADLOCK, 1, 64, crossed);
    mistake("a block that waits for another", emu::DEADLOCK, 2, 32, waits_for_block);
    mistake("a last block, nothing published", emu::BLOCK_RACE, 4, 64, last_adds_with<NO_RELEASE>);
    mistake("a last block, nothing acquired", emu::BLOCK_RACE, 4, 64, last_adds_with<NO_ACQUIRE>);
    mistake("a last block, published too early", emu::BLOCK_RACE, 4, 64, last_adds_with<NO_BARRIER_BEFORE>);
    mistake("a last block, its counter not set back", emu::STATE_LEFT, 4, 64, last_adds_with<NO_RESET>);
    mistake("two blocks write a word", emu::BLOCK_RACE, 4, 64, last_adds_with<SAME_WORD>);
}

// --- mistakes that only sm_90a lets one make ---

enum slip {
    RIGHT, NO_PROXY_FENCE, NO_FENCE_OF_INIT, OTHER_PARITY, NO_WAIT, MORE_BYTES, LESS_BYTES, ARRIVED_TWICE, NO_ARRIVAL,
    EARLY_SUM, EARLY_A, NO_REGISTER_FENCE, NO_PRODUCT_WAIT, EARLY_TILE, FEW_AT_NAMED, CROOKED_COPY
};

// A ring of one stage: warp 4 brings 256 bytes three times, warps 0 to 3 multiply by a tile that they store themselves,
// and each time by what has come.
static void ring(slip wrong) {
    const uint32_t t = threadIdx.x, tile = 0, copied = 2048, full = 3072, empty = 3080;
    float d[64];
    uint32_t a[4] = {1, 2, 3, 4};
    pdl_wait();
    if (t == 0) {
        mbar_init(full, 1);
        mbar_init(empty, 4);
        if (wrong != NO_FENCE_OF_INIT) fence_proxy_async();
    }
    __syncthreads();
    for (uint32_t i = 0; i < 3; i++) {
        if (t >= 128) {
            if (t > 128) continue;
            mbar_wait(empty, ~i & 1);
            mbar_arrive_expect(full, wrong == MORE_BYTES ? 272 : wrong == LESS_BYTES ? 240 : 256);
            copy_bulk(copied + (wrong == CROOKED_COPY ? 8 : 0), in + 64 * i, 256, full, 0);
            if (wrong == ARRIVED_TWICE && i == 1) mbar_arrive(full), mbar_arrive(full);
            continue;
        }
        if (wrong != NO_WAIT) mbar_wait(full, wrong == OTHER_PARITY ? ~i & 1 : i & 1);
        const uint32_t v = lds4(copied + 4 * (t % 64));
        sts16(tile + 16 * t, {0, 0, 0, 0});
        if (wrong != NO_PROXY_FENCE) fence_proxy_async();
        sync_named(1, wrong == FEW_AT_NAMED && t < 32 ? 64 : 128);
        a[0] = v;
        if (wrong != NO_REGISTER_FENCE || i == 0) wgmma_fence(a);
        wgmma_bf16(d, a, tile_rows128(tile) & ~((uint64_t)0x3fff << 32), false); // eight rows, 16 times
        wgmma_commit();
        if (wrong == EARLY_A) a[1] = t;
        if (wrong == EARLY_SUM) st4(out + t, bits_of(d[3]));
        if (wrong == EARLY_TILE) sts4(tile + 4 * (t % 128), 1);
        if (wrong != NO_PRODUCT_WAIT) wgmma_wait<0>(d);
        st4(out + 128 * (i + 1) + t, v + bits_of(d[2] * 0));
        sync_warp();
        sync_named(2, 128);
        if (t % WARP == 0 && wrong != NO_ARRIVAL) mbar_arrive(empty);
    }
}

template <slip S> static void ring_with(bool wrong) { ring(wrong ? S : RIGHT); }

static void check_hopper() {
    mistake("a tile that is stored, no proxy fence", emu::PROXY, 1, 160, ring_with<NO_PROXY_FENCE>);
    mistake("an mbarrier that copies cannot see", emu::PROXY, 1, 160, ring_with<NO_FENCE_OF_INIT>);
    mistake("the other parity", emu::IN_FLIGHT, 1, 160, ring_with<OTHER_PARITY>);
    mistake("no wait for a bulk copy", emu::IN_FLIGHT, 1, 160, ring_with<NO_WAIT>);
    mistake("more bytes than come", emu::DEADLOCK, 1, 160, ring_with<MORE_BYTES>);
    mistake("fewer bytes than come", emu::DEADLOCK, 1, 160, ring_with<LESS_BYTES>);
    mistake("arrivals that nobody expects", emu::MBARRIER, 1, 160, ring_with<ARRIVED_TWICE>);
    mistake("an arrival that does not come", emu::DEADLOCK, 1, 160, ring_with<NO_ARRIVAL>);
    mistake("sums are read early", emu::OPERANDS, 1, 160, ring_with<EARLY_SUM>);
    mistake("a is written early", emu::OPERANDS, 1, 160, ring_with<EARLY_A>);
    mistake("a is written, no fence", emu::OPERANDS, 1, 160, ring_with<NO_REGISTER_FENCE>);
    mistake("a product not waited for", emu::IN_FLIGHT, 1, 160, ring_with<NO_PRODUCT_WAIT>);
    mistake("a tile is written early", emu::IN_FLIGHT, 1, 160, ring_with<EARLY_TILE>);
    mistake("two sizes of one barrier", emu::DIVERGED, 1, 160, ring_with<FEW_AT_NAMED>);
    mistake("a bulk copy at 8", emu::MISALIGNED, 1, 160, ring_with<CROOKED_COPY>);
}

// --- what requests cost ---

static void cost(const char *what, double shared, double global, void (*kernel)()) {
    const emu::result r = launched(what, 1, 32, 1, 1, kernel);
    check(r.worst(true) == shared && r.worst(false) == global, "%s: %.2f passes and %.2f sectors of the least, not %.2f and %.2f", what, r.worst(true), r.worst(false),
          shared, global);
}

static void check_costs() {
    cost("words in a row", 1, 1, [] {
        pdl_wait();
        st4(out + threadIdx.x, ld4(in + threadIdx.x));
        sts4(4 * threadIdx.x, 0);
    });
    cost("words apart", 8, 8, [] { pdl_wait(); ld4(in + 8 * threadIdx.x); sts4(32 * threadIdx.x, 0); });
    cost("half of them apart", 2, 2, [] { pdl_wait(); ld4(in + 2 * threadIdx.x); sts4(8 * threadIdx.x, 0); });
    cost("one word for all", 1, 1, [] { pdl_wait(); ld4(in); sts4(4 * threadIdx.x, 0); sync_warp(); lds4(0); });
    cost("16 bytes", 1, 1, [] { pdl_wait(); ld16(in + 4 * threadIdx.x); sts16(16 * threadIdx.x, {1, 2, 3, 4}); });
    cost("rows of 128 bytes", 8, 0, [] {
        uint32_t r[4];
        for (int i = 0; i < 8; i++) sts16(16 * (32 * i + threadIdx.x), {1, 2, 3, 4});
        sync_warp();
        ldmatrix_x4(r, 128 * threadIdx.x);
    });
}

// --- names ---

static void words_are(const char *what, uint32_t (*wanted)(int), const std::function<uint32_t(int)> &kernel) {
    launched(what, 1, 32, 7, 1, [&] { pdl_wait(); st4(out + threadIdx.x, kernel((int)threadIdx.x)); });
    for (int i = 0; i < 32; i++)
        check(out[i] == wanted(i), "%s: lane %d has %08x, not %08x", what, i, out[i], wanted(i));
}

// ldmatrix of four tiles 8 x 8 of distinct numbers: 100 m + 8 r + c.
static uint32_t tile(int m, int r, int c) { return (uint32_t)(100 * m + 8 * r + c); }
static uint32_t of_tiles(int lane, bool trans) {
    for (int i = 0; i < 4; i++)
        sts4(16 * lane + 4 * i, tile(lane / 8, lane % 8, 2 * i) | tile(lane / 8, lane % 8, 2 * i + 1) << 16);
    sync_warp();
    uint32_t r[4], sum = 0;
    if (trans) ldmatrix_x4_trans(r, 16 * lane);
    else ldmatrix_x4(r, 16 * lane);
    for (int m = 0; m < 4; m++) {
        const int a = lane / 4, b = 2 * (lane % 4);
        sum |= (r[m] != (trans ? tile(m, b, a) | tile(m, b + 1, a) << 16 : tile(m, a, b) | tile(m, a, b + 1) << 16))
               << m;
    }
    return sum;
}

// a b + c of numbers small enough to be exact, element (row, column) where the PTX ISA puts it.
static int a_at(int r, int k) { return (3 * r + 5 * k) % 7 - 3; }
static int b_at(int k, int c) { return (2 * k + c * c) % 5 - 2; }
static int d_at(int r, int c, int ks) {
    int sum = r - c;
    for (int k = 0; k < ks; k++) sum += a_at(r, k) * b_at(k, c);
    return sum;
}

static uint32_t bf16_pair(int low, int high) { return bf16x2_of((float)low, (float)high); }
static uint32_t s8_four(const int v[4]) {
    return (v[0] & 255u) | (v[1] & 255u) << 8 | (v[2] & 255u) << 16 | (uint32_t)v[3] << 24;
}

static uint32_t of_mma(int lane, bool s8) {
    const int g = lane / 4, t = lane % 4, width = s8 ? 4 : 2;
    uint32_t a[4], b[2];
    float fc[4], fd[4];
    int32_t ic[4], id[4];
    for (int i = 0; i < 6; i++) {
        int v[4] = {0, 0, 0, 0};
        for (int e = 0; e < width; e++)
            v[e] = i < 4 ? a_at(g + 8 * (i % 2), width * (t + 4 * (i / 2)) + e)
                         : b_at(width * (t + 4 * (i - 4)) + e, g);
        (i < 4 ? a[i] : b[i - 4]) = s8 ? s8_four(v) : bf16_pair(v[0], v[1]);
    }
    for (int i = 0; i < 4; i++) fc[i] = (float)(ic[i] = g + 8 * (i / 2) - (2 * t + i % 2));
    if (s8) mma_s8(id, a, b[0], b[1], ic);
    else mma_bf16(fd, a, b[0], b[1], fc);
    uint32_t wrong = 0;
    for (int i = 0; i < 4; i++)
        wrong |= ((s8 ? id[i] : (int)fd[i]) != d_at(g + 8 * (i / 2), 2 * t + i % 2, s8 ? 32 : 16)) << i;
    return wrong;
}

// A tile 128 x 64 of which column 16 + k of row n is b_at(k, n % 8), turned as a tensor map would; times 64 rows of a.
static uint32_t wrong_numbers;
static void of_product() {
    const uint32_t t = threadIdx.x, g = t % 32 / 4, c = t % 4, row = t / 32 * 16 + g;
    float d[64];
    uint32_t a[4];
    for (uint32_t chunk = 0; chunk < 8; chunk++) {
        uint32_t v[4];
        for (int i = 0; i < 4; i++) {
            const int k = (int)chunk * 8 + 2 * i - 16;
            v[i] = k < 0 || k > 15 ? 0x7fc07fc0 : bf16_pair(b_at(k, (int)t % 8), b_at(k + 1, (int)t % 8));
        }
        sts16(128 * t + (chunk ^ t % 8) * 16, {v[0], v[1], v[2], v[3]});
    }
    fence_proxy_async();
    __syncthreads();
    for (uint32_t i = 0; i < 4; i++) {
        const int k = (int)(2 * c + 8 * (i / 2)), r = (int)(row + 8 * (i % 2));
        a[i] = bf16_pair(a_at(r, k), a_at(r, k + 1));
    }
    for (uint32_t i = 0; i < 64; i++) d[i] = (float)(int)(row + i % 4 / 2 * 8) - (float)(int)((2 * c + i % 2) % 8);
    for (int twice = 0; twice < 2; twice++) { // the second is the same from 0, then once more
        wgmma_fence(a, d);
        wgmma_bf16(d, a, tile_rows128(0) + 2, twice == 0);
        if (twice) wgmma_bf16(d, a, tile_rows128(0) + 2, true);
        wgmma_commit();
        wgmma_wait<0>(d);
        for (uint32_t i = 0; i < 64; i++) {
            const int r = (int)(row + i % 4 / 2 * 8), n = (int)(2 * c + i % 2), sum = d_at(r, n, 16), c0 = r - n;
            wrong_numbers += d[i] != (float)(twice ? 2 * (sum - c0) : sum);
        }
    }
}

static void check_product() {
    wrong_numbers = 0;
    emu::reset();
    const emu::result r = emu::launch(dim3(1), dim3(128), 16384, emu::options(), of_product);
    if (!check(r.findings.empty(), "wgmma_bf16: %zu findings", r.findings.size())) r.print();
    check(wrong_numbers == 0, "wgmma_bf16: %u of 16384 numbers are wrong", wrong_numbers);
}

static void check_names() {
    words_are("shfl", [](int) { return 13u * 13u; }, [](int i) { return shfl((uint32_t)(i * i), 13); });
    words_are(
        "shfl_xor", [](int i) { return (uint32_t)(i ^ 5); }, [](int i) { return (uint32_t)shfl_xor((float)i, 5); });
    words_are("vote_ballot", [](int) { return 0x49249249u; }, [](int i) { return vote_ballot(i % 3 == 0); });
    words_are(
        "vote_any, vote_all", [](int) { return 1u; },
        [](int i) {
            return (uint32_t)(vote_any(i == 9) && vote_all(i < 32) && !vote_any(i > 31) && !vote_all(i != 4));
        });
    words_are("ldmatrix_x4", [](int) { return 0u; }, [](int i) { return of_tiles(i, false); });
    words_are("ldmatrix_x4_trans", [](int) { return 0u; }, [](int i) { return of_tiles(i, true); });
    words_are("mma_bf16", [](int) { return 0u; }, [](int i) { return of_mma(i, false); });
    words_are("mma_s8", [](int) { return 0u; }, [](int i) { return of_mma(i, true); });
    check(prmt(0x33221100, 0x77665544, 0x0123) == 0x00112233 && prmt(0x33221100, 0x77665544, 0x7240) == 0x77224400,
          "prmt");
    check(prmt(0x80000000, 0, 0xbbbb) == 0xffffffff && prmt(0x7f000000, 0, 0xbbbb) == 0, "prmt of signs");
    check(and_or(0xff00ff00, 0x0ff00ff0, 0x1) == 0x0f000f01, "and_or");
    check(bits_set(0x80010003) == 4 && bits_set(0) == 0, "bits_set");
    check(bf16x2_fma(bf16_pair(3, -2), bf16_pair(5, 7), bf16_pair(-136, 20)) == bf16_pair(-121, 6), "bf16x2_fma");
    bool right = true;
    for (uint32_t i = 0; i < 65536; i++) { // f16: sign, five bits of exponent less 15, ten of fraction
        const int e = i >> 10 & 31, f = i & 1023;
        const double size = e == 31 ? f ? NAN : INFINITY
                            : e     ? (1 + f / 1024.0) * pow(2, e - 15)
                                    : f / 1024.0 * pow(2, -14),
                     v = i >> 15 ? -size : size;
        right &= isnan(v) ? isnan(f16_float(i)) : f16_float(i) == (float)v;
        const float x = float_of(i << 16),
                    next = float_of((i + 1) << 16); // of two neighbours in bf16 the nearer, of the middle the even one
        if ((i & 0x7f80) == 0x7f80 || ((i + 1) & 0x7f80) == 0x7f80) continue;
        right &= bf16x2_of(x, x + (next - x) * 0.25f) == (i << 16 | i) &&
                 bf16x2_of(x + (next - x) * 0.5f, x + (next - x) * 0.75f) == ((i + 1) << 16 | (i + (i & 1)));
    }
    check(right, "numbers of 16 bits");
    check(exp2_approx(-3) == 0.125f && rsqrt_approx(16) == 0.25f && rcp_approx(-4) == -0.25f && mul_rn(3, 0.5f) == 1.5f,
          "exp2_approx, rsqrt_approx, rcp_approx, mul_rn");
    launched("every name", 1, 32, 1, 1, [] {
        const lq_names_args a = {in, out, counter};
        lq_simt_names(&a);
    });
    check_product();
    launched("atomics", 8, 32, 3, 4, [] {
        pdl_wait();
        atomic_add(counter, 3);
        atomic_inc(counter + 1, 255);
        if (atomic_add(counter + 2, 1) == 8 * 32 - 1) atomic_add(counter, -3u * 8 * 32), atomic_add(counter + 2, -256u);
    });
}

int main() {
    check_mistakes();
    check_clusters();
    check_hopper();
    check_costs();
    check_names();
    return closing();
}
