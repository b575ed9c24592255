// foreign.c: checkpoints that are no model in a form that lq reads: adapters, and weights that other programs
// quantized. Names what they are. Owns nothing.
#include "runtime/model/family.h"
#include <stdio.h>
#include <string.h>

static bool ends(const char *name, const char *tail) {
    const size_t n = strlen(name), k = strlen(tail);
    return n > k && !strcmp(name + n - k, tail);
}

// What the tensors are called that only such weights have, and who makes them where the config does not say.
static const struct { const char *tail, *by; } tails[] = {
    {".qweight", "GPTQ or AWQ"}, {".weight.absmax", "bitsandbytes"}, {".SCB", "bitsandbytes"},
    {".weight_packed", "compressed-tensors"}, {".weight_zero_point", "compressed-tensors"},
    {".weight_scale", "compressed-tensors"}, {".weight_scale_inv", "fp8"}, {"_blocks", "mxfp4"}, {".W_q", "HQQ"},
    {".Qidxs", "QuIP#"}, {".codebooks", "AQLM"}, {".q_weight", "EXL2"}, {".trellis", "EXL3"},
};

static bool adapter(const lq_ckpt *c, lq_err *err) {
    const char *path = lq_ckpt_path(c), *slash = strrchr(path, '/');
    const char *lora = !strncmp(slash ? slash + 1 : path, "adapter_model", 13) ? "its name" : NULL;
    for (size_t i = 0; i < lq_ckpt_count(c) && !lora; i++)
        if (strstr(lq_ckpt_at(c, i)->name, ".lora_A.")) lora = lq_ckpt_at(c, i)->name;
    return lora && !lq_fail(err, LQ_E_UNSUPPORTED,
                            "it is an adapter (LoRA; %s says so); expected a whole model, with the adapter merged into it",
                            lora);
}

// The sizes of blocks that a config says, of transformers' fp8 or of compressed-tensors; NULL: it says none.
static const cJSON *block_size(const cJSON *how) {
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(how, "weight_block_size"), *group;
    cJSON_ArrayForEach(group, cJSON_GetObjectItemCaseSensitive(how, "config_groups")) {
        const cJSON *weights = cJSON_GetObjectItemCaseSensitive(group, "weights");
        if (!size) size = cJSON_GetObjectItemCaseSensitive(weights, "block_structure");
    }
    return cJSON_IsArray(size) && cJSON_GetArraySize(size) == 2 ? size : NULL;
}

// A number of scales does not tell the size of a block from another one that needs as many: the config must say the
// power of two that formats/scaled.c takes.
static bool blocks_check(const lq_ckpt *c, const cJSON *how, lq_err *err) {
    const cJSON *size = block_size(how);
    for (size_t i = 0; i < lq_ckpt_count(c); i++) {
        const lq_tensor *t = lq_ckpt_at(c, i), *s = lq_ckpt_scales(c, t);
        if (!s || s->rank < 2) continue;
        const int64_t of[2] = {t->shape[t->rank - 2], t->shape[t->rank - 1]};
        const int64_t is[2] = {s->shape[s->rank - 2], s->shape[s->rank - 1]};
        bool fits = is[1] == 1 && (is[0] == 1 || is[0] == of[0]);
        for (int k = 0; k < 2 && size && !fits; k++) {
            const double b = cJSON_GetArrayItem(size, k)->valuedouble;
            const int64_t block = b >= 1 && b <= 1 << 20 ? (int64_t)b : 0;
            if (!block || (block & (block - 1)) || is[k] < 1 || (of[k] - 1) / block + 1 != is[k]) break;
            fits = k == 1;
        }
        if (!fits)
            return lq_fail(err, LQ_E_UNSUPPORTED, "tensor %s: scales [%lld, %lld] of blocks, but config.json says no "
                           "weight_block_size of powers of two that makes them", s->name, (long long)is[0],
                           (long long)is[1]);
    }
    return true;
}

bool lq_foreign_check(const lq_ckpt *c, const cJSON *config, lq_err *err) {
    char by[100] = "";
    if (!strcmp(lq_ckpt_container(c), "lq")) return true;
    if (adapter(c, err)) return false;
    const cJSON *how = cJSON_GetObjectItemCaseSensitive(config, "quantization_config");
    const char *method = lq_json_str(how, "quant_method"), *format = lq_json_str(how, "format");
    if (method) snprintf(by, sizeof by, "%.40s%s%.40s", method, format ? ", " : "", format ? format : "");
    for (size_t i = 0; i < lq_ckpt_count(c); i++)
        for (size_t k = 0; k < sizeof tails / sizeof *tails; k++) {
            const char *name = lq_ckpt_at(c, i)->name;
            bool codes;
            if (!ends(name, tails[k].tail) || lq_ckpt_scaled(c, name) || lq_ckpt_part_of(c, name, &codes)) continue;
            return lq_fail(err, LQ_E_UNSUPPORTED, "tensor %s: a weight that was quantized by others (%s), which lq "
                           "does not read; expected bf16, f16, f32, or e4m3 or i8 with scales", name,
                           *by ? by : tails[k].by);
        }
    return blocks_check(c, how, err);
}
