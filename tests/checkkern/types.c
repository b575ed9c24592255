// types.c: the list of weight types that checkkern tries: every kind, width, grouping, scale and form of activations
// there is a kernel for somewhere. A row of lq_ukrs[] is tried with all of them that it takes (lq_ukr_fits), so a new
// row needs no line here unless it is the first of its form; a row that none of them fits is a failure.
#include "tests/checkkern/checkkern.h"

enum { MOST = 512 };
static lq_wtype types[MOST];
static int count;

static void add(lq_wtype t) {
    if (count == MOST) {
        printf("checkkern: more than %d types to try\n", MOST);
        exit(2);
    }
    types[count++] = t;
}

static void add_ints(void) {
    static const int groups[] = {0, 16, 32, 48, 64, 128, 272};
    static const lq_dtype scales[] = {LQ_F16, LQ_BF16, LQ_F32};
    for (int bits = 2; bits <= 8; bits++)
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
            for (int asym = 0; asym < 2; asym++)
                add((lq_wtype){.kind = LQ_W_INT, .elem = LQ_U8, .bits = bits, .group = groups[g], .asym = asym,
                               .scale = scales[count % 3]});
    add((lq_wtype){.kind = LQ_W_INT, .elem = LQ_U8, .bits = 8, .group = 32, .rows = 16, .scale = LQ_F16});
}

// Activations whose form is part of the weight's type: a scale a row, other groups than the weight's,
// the file's, with a zero point.
static void add_acts(void) {
    static const struct { int group, act; bool fixed, asym; } forms[] = {
        {0, 0, false, false}, {0, 0, true, false}, {0, 0, true, true}, {0, 128, false, false},
        {0, 64, false, false}, {0, 48, false, false}, {0, 256, false, false}, {128, 0, false, false},
        {32, 0, false, false}, {32, 128, false, false}, {64, 0, true, false}, {48, 32, false, false},
        {128, 32, false, false}, {128, 0, true, true},
        {64, 0, true, true}, {48, 0, true, true}, {16, 0, true, true},
    };
    static const int widths[] = {3, 4, 8};
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (size_t b = 0; b < 3; b++)
            for (int asym = 0; asym < 2; asym++)
                add((lq_wtype){.kind = LQ_W_INT, .elem = LQ_U8, .bits = widths[b], .group = forms[f].group,
                               .asym = asym, .scale = f % 2 ? LQ_F16 : LQ_F32,
                               .act = {.elem = LQ_I8, .group = forms[f].act, .fixed = forms[f].fixed,
                                       .asym = forms[f].asym}});
    const lq_wtype e4m3 = {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .scale = LQ_F32, .act = {.elem = LQ_E4M3}};
    lq_wtype t = e4m3;
    add(t);
    t.act.fixed = true;
    add(t);
    t = e4m3;
    t.group = t.rows = t.act.group = 128;
    add(t);
    static const int cells[][2] = {{0, 128}, {256, 128}, {128, 256}, {128, 0}, {2304, 0}, {384, 128}, {64, 128}};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        t = e4m3;
        t.group = cells[i][0], t.act.group = cells[i][1];
        if (i % 2) t.scale = LQ_F16, t.elem = LQ_E5M2;
        add(t);
    }
    static const int shifts[][2] = {{32, 0}, {64, 128}, {96, 64}, {128, 256}};
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
        t = e4m3;
        t.scale = LQ_E8M0, t.elem = i % 2 ? LQ_E5M2 : LQ_E4M3, t.group = shifts[i][0], t.act.group = shifts[i][1];
        add(t);
    }
}

static void add_others(void) {
    static const lq_dtype plain[] = {LQ_F32, LQ_F16, LQ_BF16, LQ_F64, LQ_E4M3, LQ_E5M2};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        add((lq_wtype){.kind = LQ_W_PLAIN, .elem = plain[i], .bits = (int)lq_dtype_size(plain[i]) * 8});
    static const int groups[] = {64, 16, 0, 32, 48, 128, 272}, bands[] = {1, 128, LQ_ROWS_ALL, 3, 1, 16};
    static const lq_dtype scales[] = {LQ_F32, LQ_F16, LQ_BF16};
    static const lq_dtype all[] = {LQ_F16, LQ_E8M0, LQ_F32, LQ_E4M3, LQ_BF16};
    for (int book = 1; book <= lq_codebook_count; book++)
        for (int g = 0; g < 7; g++)
            add((lq_wtype){.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = lq_codebooks[book - 1].bits, .book = book,
                           .group = groups[g], .scale = all[(g + 3 * book) % 5]});
    for (int bits = 2; bits <= 8; bits++)
        for (int g = 0; g < 3; g++)
            add((lq_wtype){.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = bits, .group = groups[(bits + g * 2) % 7],
                           .rows = g == 2 ? bands[bits % 6] : 0, .scale = scales[(bits + g) % 3]});
    for (int i = 0; i < 8; i++) {
        const lq_dtype small = i % 2 ? LQ_E8M0 : LQ_E4M3;
        add((lq_wtype){.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 4, .book = i % 3 ? lq_codebook_of("fp4") : 0,
                       .group = groups[(i / 2 + 1) % 7], .rows = i == 5 ? 3 : 0, .scale = small});
        add((lq_wtype){.kind = LQ_W_FLOAT, .elem = i % 3 ? LQ_E4M3 : LQ_E5M2, .bits = 8, .group = groups[i % 7],
                       .scale = small});
    }
    static const struct { const char *book; int group; lq_dtype scale; } known[] = {
        {"fp4", 16, LQ_E4M3} /* nvfp4 */, {"fp4", 32, LQ_E8M0} /* mxfp4 */, {"nf4", 16, LQ_E4M3}, {"nf4", 64, LQ_F32},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        add((lq_wtype){.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 4, .book = lq_codebook_of(known[i].book),
                       .group = known[i].group, .scale = known[i].scale});
    for (int i = 0; i < 14; i++)
        add((lq_wtype){.kind = LQ_W_FLOAT, .elem = i % 2 ? LQ_E5M2 : LQ_E4M3, .bits = 8, .group = groups[i / 2],
                       .rows = bands[i / 2 % 6], .scale = scales[i % 3]});
    add((lq_wtype){.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .group = 128, .rows = 128, .scale = LQ_F32});
    add((lq_wtype){.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .group = 2304, .scale = LQ_E4M3});
    add((lq_wtype){.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .group = 32, .scale = LQ_E8M0});
    add((lq_wtype){.kind = LQ_W_FLOAT, .elem = LQ_E5M2, .bits = 8, .group = 96, .rows = 3, .scale = LQ_E8M0});
}

const lq_wtype *ck_types(int *n) {
    if (!count) {
        add_ints();
        add_acts();
        add_others();
    }
    *n = count;
    return types;
}
