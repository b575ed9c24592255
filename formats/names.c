// names.c: names of tensors in tables: a checkpoint has a hundred thousand, most alike but for digits in the middle.
// Owns the slots of a table. Refuses nothing; the names are checked before.
#include "formats/ckpt.h"
#include "formats/names.h"
#include "formats/json.h"
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

bool lq_name_ends(const char *name, const char *tail) {
    const size_t n = strlen(name), k = strlen(tail);
    return n > k && !strcmp(name + n - k, tail);
}

static const char *name_at(const void *list, size_t stride, size_t i) {
    return *(const char *const *)(const void *)((const char *)list + i * stride);
}

static const uint64_t upper = (uint64_t)0xffffffff << 32;

bool lq_hashed_build(lq_hashed *x, const void *list, size_t count, size_t stride) {
    size_t slots = 16;
    while (slots / 2 < count)
        if (!lq_mul_size(slots, 2, &slots)) return false;
    *x = (lq_hashed){.slot = count < 0xffffffff ? calloc(slots, sizeof *x->slot) : NULL, .slots = slots};
    if (!x->slot) return false;
    if (getrandom(&x->seed, sizeof x->seed, GRND_NONBLOCK) != sizeof x->seed) x->seed = (uint64_t)(uintptr_t)x->slot;
    for (size_t i = 0; i < count; i++) {
        const char *name = name_at(list, stride, i);
        const uint64_t h = XXH64(name, strlen(name), x->seed);
        size_t at = h & (slots - 1);
        while (x->slot[at]) at = (at + 1) & (slots - 1);
        x->slot[at] = (h & upper) | (i + 1);
    }
    return true;
}

const void *lq_hashed_find(const lq_hashed *x, const void *list, size_t stride, const char *name, size_t n) {
    if (!x->slots) return NULL;
    const uint64_t h = XXH64(name, n, x->seed);
    for (size_t at = h & (x->slots - 1); x->slot[at]; at = (at + 1) & (x->slots - 1)) {
        if ((x->slot[at] ^ h) & upper) continue;
        const size_t i = (x->slot[at] & ~upper) - 1;
        const char *has = name_at(list, stride, i);
        if (!strncmp(has, name, n) && !has[n]) return (const char *)list + i * stride;
    }
    return NULL;
}

void lq_hashed_free(lq_hashed *x) {
    free(x->slot);
    *x = (lq_hashed){0};
}

// --- sorting ---

typedef struct range { size_t from, count, depth; } range;

// Eight bytes from `depth` on as a number that compares as they do; behind the end 0.
static uint64_t head_of(const char *name, size_t depth) {
    uint64_t v = 0;
    for (size_t i = depth, n = 0; n < 8; n++) v = v << 8 | (unsigned char)(name[i] ? name[i++] : 0);
    return v;
}

static int by_head(const void *x, const void *y) {
    const uint64_t a = ((const lq_named *)x)->head, b = ((const lq_named *)y)->head;
    return (a > b) - (a < b);
}

// Names that are equal in the eight bytes at hand are sorted by the next eight: each byte is looked at once.
bool lq_named_sort(lq_named *list, size_t count) {
    range *todo = NULL;
    size_t ranges = 0, cap = 0;
    bool ok = lq_grow((void **)&todo, 0, &cap, sizeof *todo);
    if (ok) todo[ranges++] = (range){0, count, 0};
    while (ok && ranges) {
        const range r = todo[--ranges];
        lq_named *p = list + r.from;
        bool sorted = true;
        for (size_t i = 0; i < r.count; i++) {
            p[i].head = head_of(p[i].name, r.depth);
            sorted = sorted && (!i || p[i - 1].head <= p[i].head);
        }
        if (!sorted) qsort(p, r.count, sizeof *p, by_head);
        for (size_t i = 0, n; i < r.count && ok; i += n) {
            for (n = 1; i + n < r.count && p[i + n].head == p[i].head; n++) {}
            if (n == 1 || !(p[i].head & 0xff)) continue; // one, or all of them end here
            ok = lq_grow((void **)&todo, ranges, &cap, sizeof *todo);
            if (ok) todo[ranges++] = (range){r.from + i, n, r.depth + 8};
        }
    }
    free(todo);
    return ok;
}
