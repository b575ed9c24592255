// foreign.c: checkpoints that are no model in a form that lq reads: adapters, and weights that other programs
// quantized. Names what they are. Owns nothing.
#include "runtime/model/family.h"
#include <stdio.h>
#include <string.h>

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

bool lq_foreign_check(const lq_ckpt *c, const cJSON *config, lq_err *err) {
    char by[100] = "";
    if (!strcmp(lq_ckpt_container(c), "lq")) return true;
    if (adapter(c, err)) return false;
    const cJSON *how = cJSON_GetObjectItemCaseSensitive(config, "quantization_config");
    const char *method = lq_json_str(how, "quant_method"), *format = lq_json_str(how, "format");
    if (method) snprintf(by, sizeof by, "%.40s%s%.40s", method, format ? ", " : "", format ? format : "");
    if (!lq_ckpt_foreign_check(c, err)) return false;
    for (size_t i = 0; i < lq_ckpt_count(c); i++)
        for (size_t k = 0; k < sizeof tails / sizeof *tails; k++) {
            const char *name = lq_ckpt_at(c, i)->name;
            bool codes;
            if (!lq_name_ends(name, tails[k].tail) || lq_ckpt_part_of(c, name, &codes)) continue;
            return lq_fail(err, LQ_E_UNSUPPORTED, "tensor %s: a weight that was quantized by others (%s), in a form "
                           "that lq does not read; docs/MODELS.md names those that it does", name,
                           *by ? by : tails[k].by);
        }
    return true;
}
