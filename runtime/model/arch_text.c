// arch_text.c: the text parts of models with eyes or ears that take a decoder of another family as it is: LLaVA,
// InternVL, SmolVLM, Voxtral and their like. text_config.model_type says which, and text_config may leave out what is
// that one's default.
#include "runtime/model/family.h"
#include <string.h>

static const struct text {
    const char *type;
    lq_describe *describe;
    lq_sizes silent;
} texts[] = {
    {"llama", lq_describe_llama, {4096, 32, 32, 11008, 32000}},
    {"mistral", lq_describe_mistral, {4096, 32, 32, 14336, 32000}},
    {"mistral4", lq_describe_mistral4, {4096, 36, 32, 12288, 131072}},
    {"deepseek_v3", lq_describe_deepseek3, {7168, 61, 128, 18432, 129280}},
    {"kimi_k2", lq_describe_deepseek3, {7168, 61, 128, 18432, 129280}},
    {"ministral3", lq_describe_ministral3, {4096, 34, 32, 14336, 131072}},
    {"qwen2", lq_describe_qwen2, {4096, 32, 32, 22016, 151936}},
    {"qwen3", lq_describe_qwen3, {4096, 32, 32, 22016, 151936}},
    {"gemma", lq_describe_gemma, {3072, 28, 16, 24576, 256000}},
    {"cohere2", lq_describe_cohere2, {8192, 40, 64, 22528, 256000}},
    {"granite", lq_describe_granite, {4096, 32, 32, 11008, 32000}},
    {"granite4_vision_text", lq_describe_granite, {4096, 32, 32, 11008, 32000}},
    {"glm4v_text", lq_describe_glm4v, {4096, 40, 32, 13696, 151552}},
};

// What a text_config is that does not say it.
static const char *silent_type(const lq_arch *a) {
    static const char *const rows[][2] = {
        {"Mistral3ForConditionalGeneration", "mistral"}, {"LlavaOnevisionForConditionalGeneration", "qwen2"},
        {"InternVLForConditionalGeneration", "qwen2"},   {"AyaVisionForConditionalGeneration", "cohere2"},
        {"Qwen2AudioForConditionalGeneration", "qwen2"}, {"AudioFlamingo3ForConditionalGeneration", "qwen2"},
        {"Ovis2ForConditionalGeneration", "qwen2"},      {"FastVlmForConditionalGeneration", "qwen2"},
        {"GotOcr2ForConditionalGeneration", "qwen2"},    {"VideoLlama3ForConditionalGeneration", "qwen2"},
        {"LightOnOcrForConditionalGeneration", "qwen3"}, {"Cohere2VisionForConditionalGeneration", "cohere2"},
        {"Idefics2ForConditionalGeneration", "mistral"}, {"Granite4VisionForConditionalGeneration", "granite"},
        {"KimiVLForConditionalGeneration", "deepseek_v3"}, {"KimiK25ForConditionalGeneration", "deepseek_v3"},
        {"Kimi_K25ForConditionalGeneration", "deepseek_v3"},
        {"Glm4vForConditionalGeneration", "glm4v_text"}, {"Glm46VForConditionalGeneration", "glm4v_text"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i][0], a->name)) return rows[i][1];
    return "llama";
}

// Some take a llama that is another where their text_config is silent: it must say all.
static bool says_all(const lq_arch *a, const cJSON *c, lq_err *err) {
    static const char *const keys[] = {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                                       "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps",
                                       "max_position_embeddings"};
    if (strcmp(a->name, "VoxtralForConditionalGeneration") && strcmp(a->name, "GlmAsrForConditionalGeneration"))
        return true;
    const char *lacks = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !lacks; i++)
        if (!cJSON_GetObjectItemCaseSensitive(c, keys[i])) lacks = keys[i];
    if (!lacks && !cJSON_GetObjectItemCaseSensitive(c, "rope_theta") &&
        !cJSON_GetObjectItemCaseSensitive(c, "rope_parameters"))
        lacks = "rope_theta";
    return !lacks || lq_fail(err, LQ_E_FORMAT, "config.json: %s is missing in text_config", lacks);
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
    if (!says_all(d->arch, c, err)) return false;
    d->silent = &texts[i].silent;
    return texts[i].describe(ckpt, c, d, err);
}
