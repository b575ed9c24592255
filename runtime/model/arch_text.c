// arch_text.c: the text parts of models with eyes that take a decoder of another family as it is: LLaVA, InternVL,
// SmolVLM and their like. text_config.model_type says which, and text_config may leave out what is that one's default.
#include "runtime/model/family.h"
#include <string.h>

static const struct text {
    const char *type;
    lq_describe *describe;
    lq_sizes silent;
} texts[] = {
    {"llama", lq_describe_llama, {4096, 32, 32, 11008, 32000}},
    {"mistral", lq_describe_mistral, {4096, 32, 32, 14336, 32000}},
    {"ministral3", lq_describe_ministral3, {4096, 34, 32, 14336, 131072}},
    {"qwen2", lq_describe_qwen2, {4096, 32, 32, 22016, 151936}},
    {"qwen3", lq_describe_qwen3, {4096, 32, 32, 22016, 151936}},
    {"gemma", lq_describe_gemma, {3072, 28, 16, 24576, 256000}},
    {"cohere2", lq_describe_cohere2, {8192, 40, 64, 22528, 256000}},
};

// What a text_config is that does not say it.
static const char *silent_type(const lq_arch *a) {
    static const char *const rows[][2] = {
        {"Mistral3ForConditionalGeneration", "mistral"}, {"LlavaOnevisionForConditionalGeneration", "qwen2"},
        {"InternVLForConditionalGeneration", "qwen2"},   {"AyaVisionForConditionalGeneration", "cohere2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i][0], a->name)) return rows[i][1];
    return "llama";
}

bool lq_describe_text(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    enum { COUNT = sizeof texts / sizeof *texts };
    const char *type = lq_json_str(c, "model_type");
    int i = 0;
    if (!type) type = silent_type(d->arch);
    while (i < COUNT && strcmp(texts[i].type, type) != 0) i++;
    if (i == COUNT)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: text_config.model_type \"%.64s\" is not one lq knows in a %s",
                       type, d->arch->name);
    d->silent = &texts[i].silent;
    return texts[i].describe(ckpt, c, d, err);
}
