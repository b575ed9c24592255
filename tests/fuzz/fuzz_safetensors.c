// fuzz_safetensors.c: any bytes as a checkpoint in memory: opened, checked, every tensor and weight touched. The
// header's checksum is made right first, else nothing behind it would ever be reached.
#include "formats/ckpt.h"
#include "kernels/pack.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

// Unpacks the weight whose codes these are, if others packed it: whole, some of its rows, and turned.
static void packed_touch(lq_ckpt *c, const lq_tensor *t) {
    bool codes = false;
    const lq_typed *of = lq_ckpt_part_of(c, t->name, &codes);
    if (!codes || of->count || of->k >= 4096 || of->n > 4096 || strlen(of->name) >= sizeof ((lq_pick *)0)->name) return;
    lq_pick p[3] = {{.first = 0}, {.first = of->n / 3, .run = 1, .step = 2},
                    {.stack = 2, .at = 1, .each = of->n / 2, .across = true}};
    const int64_t n[3] = {of->n, of->n / 4 + 1, of->k}, k[3] = {of->k, of->k, of->n / 2};
    for (int i = 0; i < 3; i++) {
        float row[4096];
        lq_weight w;
        snprintf(p[i].name, sizeof p[i].name, "%s", of->name);
        if (!lq_ckpt_pick(c, &p[i], n[i], k[i], &w, NULL, NULL)) continue;
        lq_weight_row(&w, n[i] - 1, row);
        lq_ckpt_done(c, &w);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void header_sign(uint8_t *p, size_t n) {
    uint64_t len;
    if (n < 8) return;
    memcpy(&len, p, 8);
    if (len > n - 8) return;
    char *digits = memmem(p + 8, (size_t)len, "\"lq.header\":\"", 13);
    if (!digits || (size_t)((uint8_t *)digits + 13 - (p + 8)) + 16 > len) return;
    digits += 13;
    memcpy(digits, "0000000000000000", 16);
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)XXH64(p + 8, (size_t)len, 0));
    memcpy(digits, text, 16);
}

// Binds the weight that a part `.q` belongs to, in the shape that its rows and codes allow, and reads its rows.
static void weight_touch(lq_ckpt *c, const lq_tensor *t) {
    size_t len = strlen(t->name);
    char name[LQ_NAME];
    if (len < 3 || strcmp(t->name + len - 2, ".q") != 0) return;
    snprintf(name, sizeof name, "%.*s", (int)len - 2, t->name);
    const lq_typed *of = lq_ckpt_typed(c, name);
    lq_pick p = {.stack = of ? of->count : 0};
    if (p.stack <= 16 && snprintf(p.name, sizeof p.name, "%s", name) < (int)sizeof p.name)
        for (lq_weight w; p.at < p.stack && of->k < 4096 && lq_ckpt_pick(c, &p, of->n, of->k, &w, NULL, NULL); p.at++) {
            float row[4096];
            lq_weight_row(&w, of->n - 1, row);
        }
    if (t->rank != 2) return;
    for (int64_t k = t->shape[1]; k <= t->shape[1] * 4 && k < 4096; k++) {
        lq_weight w;
        if (t->shape[0] > 4096 || !lq_ckpt_weight(c, name, t->shape[0], k, &w, NULL)) continue;
        float *row = malloc((size_t)k * sizeof *row);
        for (int64_t r = 0; r < w.n && row; r++) lq_weight_row(&w, r, row);
        free(row);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    uint8_t *p = malloc(n ? n : 1);
    if (!p) return 0;
    if (n) memcpy(p, data, n);
    header_sign(p, n);
    lq_ckpt *c;
    lq_err err = {0};
    if (!lq_ckpt_open_bytes(p, n, "input", &c, &err)) {
        if (err.code == LQ_E_NONE || strncmp(err.text, "input", 5) != 0 || strchr(err.text, '\n')) abort();
        free(p);
        return 0;
    }
    lq_ckpt_verify(c, NULL, NULL, &err);
    uint64_t sum = 0;
    for (size_t i = 0; i < lq_ckpt_count(c); i++) {
        const lq_tensor *t = lq_ckpt_at(c, i);
        if (lq_ckpt_find(c, t->name) != t) abort();
        sum ^= XXH64(t->data, t->bytes, 0);
        lq_weight w;
        lq_ckpt_weight(c, t->name, t->rank ? t->shape[0] : 1, t->rank > 1 ? t->shape[1] : 0, &w, &err);
        weight_touch(c, t);
        packed_touch(c, t);
    }
    lq_ckpt_foreign_check(c, &err);
    lq_bytes file;
    if (lq_ckpt_file(c, "config.json", &file, &err) && file.p) sum ^= XXH64(file.p, file.n, 0);
    lq_ckpt_close(c);
    free(p);
    volatile uint64_t keep = sum; // so that the reads are done
    (void)keep;
    return 0;
}
