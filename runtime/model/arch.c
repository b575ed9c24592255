// arch.c: lq_archs[], and how the files of a checkpoint become a description: config.json by its row, ids of begin and
// end tokens. A row's function and names stand in the file of its family (arch_<family>.c).
#include "runtime/model/family.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const lq_arch lq_archs[] = {
    {"LlamaForCausalLM", lq_names_llama, lq_describe_llama, NULL},
    {"LLaMAForCausalLM", lq_names_llama, lq_describe_llama, NULL}, // as the first conversions spelt it
    {"Llama4ForCausalLM", lq_names_llama4, lq_describe_llama4, NULL},
    {"Llama4ForConditionalGeneration", lq_names_llama4, lq_describe_llama4, NULL},
    {"ArceeForCausalLM", lq_names_llama, lq_describe_arcee, NULL},
    {"HeliumForCausalLM", lq_names_llama, lq_describe_helium, NULL},
    {"ApertusForCausalLM", lq_names_apertus, lq_describe_apertus, NULL},
    {"NanoChatForCausalLM", lq_names_nanochat, lq_describe_nanochat, NULL},
    {"CwmForCausalLM", lq_names_llama, lq_describe_cwm, NULL},
    {"MistralForCausalLM", lq_names_llama, lq_describe_mistral, NULL},
    {"MinistralForCausalLM", lq_names_llama, lq_describe_mistral, NULL},
    {"Ministral3ForCausalLM", lq_names_llama, lq_describe_ministral3, NULL},
    {"Mistral3ForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"LlavaForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"LlavaNextForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"LlavaOnevisionForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"VipLlavaForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"InternVLForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"AyaVisionForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"Idefics3ForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"SmolVLMForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"LlavaNextVideoForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"VideoLlavaForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"Idefics2ForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"VoxtralForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"GlmAsrForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"Qwen2AudioForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"AudioFlamingo3ForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"Ovis2ForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"FastVlmForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"GotOcr2ForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"VideoLlama3ForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"LightOnOcrForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"PerceptionLMForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"Cohere2VisionForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"Granite4VisionForConditionalGeneration", lq_names_llama, lq_describe_text, NULL},
    {"Glm4vForConditionalGeneration", lq_names_glm, lq_describe_text, NULL},
    {"Glm46VForConditionalGeneration", lq_names_glm, lq_describe_text, NULL},
    {"MixtralForCausalLM", lq_names_mixtral, lq_describe_mixtral, NULL},
    {"Qwen2ForCausalLM", lq_names_llama, lq_describe_qwen2, NULL},
    {"Qwen2VLForConditionalGeneration", lq_names_llama, lq_describe_qwen2_vl, NULL},
    {"Qwen2_5_VLForConditionalGeneration", lq_names_llama, lq_describe_qwen2_vl, NULL},
    {"Qwen3ForCausalLM", lq_names_llama, lq_describe_qwen3, NULL},
    {"Qwen3VLForConditionalGeneration", lq_names_llama, lq_describe_qwen3_vl, NULL},
    {"Qwen3VLMoeForConditionalGeneration", lq_names_qwen_moe, lq_describe_qwen3_vl_moe, NULL},
    {"HunYuanMoEV1ForCausalLM", lq_names_hunyuan_moe, lq_describe_hunyuan_moe, NULL},
    {"Dots1ForCausalLM", lq_names_dots, lq_describe_dots1, NULL},
    {"Glm4MoeForCausalLM", lq_names_dots, lq_describe_glm4_moe, lq_ignores_glm4_moe},
    {"Glm4vMoeForConditionalGeneration", lq_names_dots, lq_describe_glm4v_moe, lq_ignores_glm4v_moe},
    {"SolarOpenForCausalLM", lq_names_dots, lq_describe_solar, NULL},
    {"ExaoneMoEForCausalLM", lq_names_exaone_moe, lq_describe_exaone_moe, lq_ignores_exaone_moe},
    {"ExaoneMoeForCausalLM", lq_names_exaone_moe, lq_describe_exaone_moe, lq_ignores_exaone_moe},
    {"HYV3ForCausalLM", lq_names_hy3, lq_describe_hy3, lq_ignores_hy3},
    {"MiMoV2FlashForCausalLM", lq_names_mimo2, lq_describe_mimo2, lq_ignores_mimo2},
    {"AfmoeForCausalLM", lq_names_afmoe, lq_describe_afmoe, NULL},
    {"MiniMaxM2ForCausalLM", lq_names_minimax_m2, lq_describe_minimax_m2, NULL},
    {"InternLMForCausalLM", lq_names_llama, lq_describe_internlm, NULL},
    {"InternLM3ForCausalLM", lq_names_llama, lq_describe_internlm3, NULL},
    {"IQuestCoderForCausalLM", lq_names_llama, lq_describe_iquest, NULL},
    {"QWenLMHeadModel", lq_names_qwen, lq_describe_qwen, NULL},
    {"ChatGLMModel", lq_names_chatglm, lq_describe_chatglm, lq_ignores_chatglm},
    {"ChatGLMForConditionalGeneration", lq_names_chatglm, lq_describe_chatglm, lq_ignores_chatglm},
    {"DeepseekForCausalLM", lq_names_deepseek, lq_describe_deepseek, NULL},
    {"DeepseekV2ForCausalLM", lq_names_deepseek, lq_describe_deepseek2, NULL},
    {"DeepseekV3ForCausalLM", lq_names_deepseek, lq_describe_deepseek3, lq_ignores_deepseek3},
    {"Glm4MoeLiteForCausalLM", lq_names_deepseek, lq_describe_glm4_lite, lq_ignores_glm4_lite},
    {"AXK1ForCausalLM", lq_names_axk1, lq_describe_axk1, lq_ignores_deepseek3},
    {"Mistral4ForCausalLM", lq_names_deepseek, lq_describe_mistral4, NULL},
    {"KimiVLForConditionalGeneration", lq_names_deepseek, lq_describe_text, NULL},
    {"KimiK25ForConditionalGeneration", lq_names_deepseek, lq_describe_text, NULL},
    {"Kimi_K25ForConditionalGeneration", lq_names_deepseek, lq_describe_text, NULL}, // as transformers spells it
    {"YoutuForCausalLM", lq_names_deepseek, lq_describe_youtu, NULL},
    {"MiniCPM3ForCausalLM", lq_names_deepseek, lq_describe_minicpm3, NULL},
    {"InternLM2ForCausalLM", lq_names_internlm2, lq_describe_internlm2, NULL},
    {"ExaoneForCausalLM", lq_names_exaone, lq_describe_exaone, NULL},
    {"BaichuanForCausalLM", lq_names_baichuan, lq_describe_baichuan, NULL},
    {"BaiChuanForCausalLM", lq_names_baichuan, lq_describe_baichuan, NULL}, // as its first spelt it
    {"MiniCPMForCausalLM", lq_names_llama, lq_describe_minicpm, NULL},
    {"YiForCausalLM", lq_names_yi, lq_describe_yi, NULL},
    {"XverseForCausalLM", lq_names_llama, lq_describe_llama, NULL},
    {"AquilaForCausalLM", lq_names_llama, lq_describe_llama, NULL},
    {"Qwen2MoeForCausalLM", lq_names_qwen_moe, lq_describe_qwen2_moe, NULL},
    {"Qwen3MoeForCausalLM", lq_names_qwen_moe, lq_describe_qwen3_moe, NULL},
    {"PhimoeForCausalLM", lq_names_mixtral, lq_describe_phimoe, NULL},
    {"PhiMoEForCausalLM", lq_names_mixtral, lq_describe_phimoe, NULL}, // as its makers spell it
    {"GraniteMoeForCausalLM", lq_names_granite_moe, lq_describe_granite_moe, NULL},
    {"GraniteMoeSharedForCausalLM", lq_names_granite_moe, lq_describe_granite_shared, NULL},
    {"GraniteMoeHybridForCausalLM", lq_names_granite_moe, lq_describe_granite_hybrid, NULL},
    {"Phi3ForCausalLM", lq_names_phi3, lq_describe_phi3, NULL},
    {"GPTNeoXForCausalLM", lq_names_neox, lq_describe_neox, lq_ignores_neox},
    {"GemmaForCausalLM", lq_names_llama, lq_describe_gemma, NULL},
    {"GPT2LMHeadModel", lq_names_gpt2, lq_describe_gpt2, lq_ignores_gpt},
    {"Gemma2ForCausalLM", lq_names_gemma2, lq_describe_gemma2, NULL},
    {"VaultGemmaForCausalLM", lq_names_gemma2, lq_describe_vaultgemma, NULL},
    {"Gemma3ForCausalLM", lq_names_gemma2, lq_describe_gemma3, NULL},
    {"Gemma3ForConditionalGeneration", lq_names_gemma2, lq_describe_gemma3, NULL},
    {"Gemma4ForCausalLM", lq_names_gemma4, lq_describe_gemma4, lq_ignores_gemma4},
    {"Gemma4ForConditionalGeneration", lq_names_gemma4, lq_describe_gemma4, lq_ignores_gemma4},
    {"Gemma4UnifiedForCausalLM", lq_names_gemma4, lq_describe_gemma4, lq_ignores_gemma4},
    {"Gemma4UnifiedForConditionalGeneration", lq_names_gemma4, lq_describe_gemma4, lq_ignores_gemma4},
    {"GPTBigCodeForCausalLM", lq_names_bigcode, lq_describe_bigcode, lq_ignores_gpt},
    {"GPTNeoForCausalLM", lq_names_neo, lq_describe_neo, lq_ignores_gpt},
    {"OPTForCausalLM", lq_names_opt, lq_describe_opt, lq_ignores_opt},
    {"BioGptForCausalLM", lq_names_biogpt, lq_describe_biogpt, NULL},
    {"GPTJForCausalLM", lq_names_gptj, lq_describe_gptj, lq_ignores_gpt},
    {"CodeGenForCausalLM", lq_names_codegen, lq_describe_codegen, lq_ignores_gpt},
    {"PersimmonForCausalLM", lq_names_persimmon, lq_describe_persimmon, NULL},
    {"PhiForCausalLM", lq_names_phi, lq_describe_phi, NULL},
    {"StableLmForCausalLM", lq_names_stablelm, lq_describe_stablelm, NULL},
    {"Starcoder2ForCausalLM", lq_names_starcoder2, lq_describe_starcoder2, NULL},
    {"NemotronForCausalLM", lq_names_llama, lq_describe_nemotron, NULL},
    {"OrionForCausalLM", lq_names_llama, lq_describe_orion, NULL},
    {"Jais2ForCausalLM", lq_names_llama, lq_describe_jais2, NULL},
    {"OlmoForCausalLM", lq_names_llama, lq_describe_olmo, NULL},
    {"FalconForCausalLM", lq_names_falcon, lq_describe_falcon, NULL},
    {"BloomForCausalLM", lq_names_falcon, lq_describe_bloom, NULL},
    {"MptForCausalLM", lq_names_mpt, lq_describe_mpt, NULL}, {"MPTForCausalLM", lq_names_mpt, lq_describe_mpt, NULL},
    {"CohereForCausalLM", lq_names_llama, lq_describe_cohere, NULL},
    {"Cohere2ForCausalLM", lq_names_llama, lq_describe_cohere2, NULL},
    {"Cohere2MoeForCausalLM", lq_names_cohere2_moe, lq_describe_cohere2_moe, NULL},
    {"Olmo2ForCausalLM", lq_names_olmo2, lq_describe_olmo2, NULL},
    {"Olmo3ForCausalLM", lq_names_olmo2, lq_describe_olmo3, NULL},
    {"OlmoeForCausalLM", lq_names_olmoe, lq_describe_olmoe, NULL},
    {"FlexOlmoForCausalLM", lq_names_flex_olmo, lq_describe_flex_olmo, NULL},
    {"GptOssForCausalLM", lq_names_gptoss, lq_describe_gptoss, NULL},
    {"Exaone4ForCausalLM", lq_names_olmo2, lq_describe_exaone4, NULL},
    {"GraniteForCausalLM", lq_names_llama, lq_describe_granite, NULL},
    {"GlmForCausalLM", lq_names_glm, lq_describe_glm, NULL},
    {"Glm4ForCausalLM", lq_names_glm, lq_describe_glm4, NULL},
    {"SmolLM3ForCausalLM", lq_names_llama, lq_describe_smollm3, NULL},
    {"SeedOssForCausalLM", lq_names_llama, lq_describe_seed, NULL},
    {"Ernie4_5ForCausalLM", lq_names_llama, lq_describe_ernie, NULL},
    {"Ernie4_5_ForCausalLM", lq_names_llama, lq_describe_ernie, NULL}, // first spelt so
    {"Ernie4_5_VLMoeForConditionalGeneration", lq_names_ernie_vl, lq_describe_ernie_vl, lq_ignores_ernie_vl},
    {"Ernie4_5_VL_MoeForConditionalGeneration", lq_names_ernie_vl, lq_describe_ernie_vl, lq_ignores_ernie_vl},
    {"Ernie4_5_MoeForCausalLM", lq_names_ernie_moe, lq_describe_ernie_moe, lq_ignores_ernie_moe},
    {"Ernie4_5_MoEForCausalLM", lq_names_ernie_moe, lq_describe_ernie_moe, lq_ignores_ernie_moe}, // first spelt so
    {"HunYuanDenseV1ForCausalLM", lq_names_hunyuan, lq_describe_hunyuan, NULL},
};
const size_t lq_arch_count = sizeof lq_archs / sizeof *lq_archs;

static const char *const what = "config.json";

// --- the files ---

static const lq_json_limits limits = {16u << 20, 64};

// A token id; what is no id of the vocabulary is left out, as it can never come up.
static bool read_id(const cJSON *v, const lq_desc *d, int32_t *out) {
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0 && v->valuedouble < d->vocab) ||
        v->valuedouble != floor(v->valuedouble)) return false;
    *out = (int32_t)v->valuedouble;
    return true;
}

// An absent key leaves what there is; null means none.
static bool read_ids(const cJSON *c, const char *file, lq_desc *d, lq_err *err) {
    const cJSON *bos = cJSON_GetObjectItemCaseSensitive(c, "bos_token_id");
    const cJSON *eos = cJSON_GetObjectItemCaseSensitive(c, "eos_token_id"), *v;
    if (bos && !cJSON_IsNumber(bos) && !cJSON_IsNull(bos))
        return lq_fail(err, LQ_E_FORMAT, "%s: bos_token_id is not an id", file);
    if (bos && !read_id(bos, d, &d->bos)) d->bos = -1;
    if (eos) d->eoses = 0;
    if (!cJSON_IsArray(eos)) {
        if (eos && !cJSON_IsNumber(eos) && !cJSON_IsNull(eos))
            return lq_fail(err, LQ_E_FORMAT, "%s: eos_token_id is not an id or a list of ids", file);
        d->eoses += eos && read_id(eos, d, &d->eos[0]);
        return true;
    }
    cJSON_ArrayForEach(v, eos) {
        if (!cJSON_IsNumber(v) || d->eoses == (int)(sizeof d->eos / sizeof *d->eos))
            return lq_fail(err, LQ_E_FORMAT, "%s: eos_token_id is not a list of up to 16 ids", file);
        d->eoses += read_id(v, d, &d->eos[d->eoses]);
    }
    return true;
}

static bool parse_json(const lq_bytes *text, const char *name, cJSON **out, lq_err *err) {
    *out = NULL;
    if (text->p && !lq_json_parse(text->p, text->n, limits, name, out, err)) return false;
    if (!*out || cJSON_IsObject(*out)) return true;
    cJSON_Delete(*out);
    *out = NULL;
    return lq_fail(err, LQ_E_FORMAT, "%s is not an object", name);
}

// How many letters of a name must be added, left out or exchanged to make the other.
static int distance(const char *a, const char *b) {
    enum { MOST = 64 };
    int row[MOST + 1];
    const int n = (int)strnlen(a, MOST), m = (int)strnlen(b, MOST);
    for (int i = 0; i <= m; i++) row[i] = i;
    for (int i = 1; i <= n; i++) {
        int before = row[0];
        row[0] = i;
        for (int k = 1; k <= m; k++) {
            const int swap = before + (a[i - 1] != b[k - 1]);
            before = row[k];
            row[k] = (row[k - 1] < row[k] ? row[k - 1] : row[k]) + 1;
            if (swap < row[k]) row[k] = swap;
        }
    }
    return row[m];
}

static bool find_arch(const cJSON *config, const lq_arch **out, lq_err *err) {
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(config, "architectures"), 0);
    if (!cJSON_IsString(first)) return lq_fail(err, LQ_E_FORMAT, "%s: architectures names none", what);
    const char *name = first->valuestring;
    static const char *const none_such[][2] = {
        {"MllamaForConditionalGeneration", "has layers that attend to images"},
        {"PaliGemmaForConditionalGeneration", "has prompts that attend to themselves in both directions"},
        {"Gemma3nForCausalLM", "keeps several residuals side by side"},
        {"Gemma3nForConditionalGeneration", "keeps several residuals side by side"},
        {"BitNetForCausalLM", "rounds its activations in the layers themselves"},
    };
    for (size_t i = 0; i < sizeof none_such / sizeof *none_such; i++)
        if (!strcmp(name, none_such[i][0]))
            return lq_fail(err, LQ_E_UNSUPPORTED, "%s: architecture \"%s\" %s: lq has none such", what, name,
                           none_such[i][1]);
    const lq_arch *near[3] = {NULL};
    for (size_t i = 0; i < lq_arch_count; i++) {
        const lq_arch *a = &lq_archs[i];
        if (!strcmp(a->name, name)) return *out = a, true;
        for (int k = 0; k < 3 && a; k++) { // the nearest first; of equals that which stands first
            if (near[k] && distance(near[k]->name, name) <= distance(a->name, name)) continue;
            const lq_arch *farther = near[k];
            near[k] = a;
            a = farther;
        }
    }
    return lq_fail(err, LQ_E_UNSUPPORTED, "%s: architecture \"%.64s\" is not one lq knows; the nearest are %s, %s, %s",
                   what, name, near[0]->name, near[1]->name, near[2]->name);
}

// A checkpoint of a model without its head has the same names without what they begin with: "h.0.ln_1", not
// "transformer.h.0.ln_1". The embedding's tells.
static int bare_of(const lq_ckpt *c, const lq_desc *d) {
    char name[LQ_NAME];
    const char *embed = d->names[LQ_R_EMBED], *dot = strchr(embed, '.');
    if (!dot) return 0;
    snprintf(name, sizeof name, "%s.weight", embed);
    const int bare = (int)(dot + 1 - embed);
    return !lq_ckpt_has_weight(c, name) && lq_ckpt_has_weight(c, name + bare) ? bare : 0;
}

// Whether any tensor's name begins so.
static bool begins(const lq_ckpt *c, const char *with) {
    size_t i = 0;
    while (i < lq_ckpt_count(c) && strncmp(lq_ckpt_at(c, i)->name, with, strlen(with)) != 0) i++;
    return i < lq_ckpt_count(c);
}

// Whether a row is the text part of a larger model: transformers calls those alike. Its config stands in text_config,
// its tensors have a prefix, and all others are of other parts.
static bool is_text(const lq_arch *a) {
    static const char end[] = "ForConditionalGeneration";
    const size_t n = strlen(a->name);
    return n >= sizeof end && !strcmp(a->name + n - (sizeof end - 1), end);
}

// How a checkpoint of a larger model calls the tensors of its text part.
static void find_body(const lq_ckpt *c, lq_desc *d) {
    static const char *const forms[][2] = {
        {"language_model.model.", "language_model."}, {"model.language_model.", ""}, {"model.text_model.", ""},
        {"model.", ""},
    };
    size_t i = 0;
    while (i < 3 && !begins(c, forms[i][0])) i++;
    d->body = forms[i][0];
    d->outer = forms[i][1];
}

// A head of its own makes a model untied, whatever the config says: one that is the embedding once more has its bytes.
static void find_head(const lq_ckpt *c, lq_desc *d) {
    char embed[LQ_NAME], head[LQ_NAME], own[LQ_NAME];
    if (!d->tied || !lq_desc_source(d, LQ_R_EMBED, embed, sizeof embed) ||
        !lq_desc_source(d, LQ_R_HEAD, head, sizeof head))
        return;
    snprintf(own, sizeof own, "%s.weight", d->names[LQ_R_HEAD]);
    if (!lq_ckpt_has_weight(c, head) && !lq_ckpt_has_weight(c, own)) return;
    const lq_tensor *a = lq_ckpt_find(c, embed), *b = lq_ckpt_find(c, head);
    d->tied = a && b && a->type == b->type && a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes);
    if (a && b) lq_ckpt_drop(c, a), lq_ckpt_drop(c, b);
}

static bool describe(const lq_ckpt *c, const cJSON *config, lq_desc *d, lq_err *err) {
    static const char *const key = "text_config", *const ties = "tie_word_embeddings";
    const cJSON *text = is_text(d->arch) ? cJSON_GetObjectItemCaseSensitive(config, key) : NULL;
    bool tied = true, causal = true; // of the whole, where it is silent
    if (text && !cJSON_IsObject(text)) return lq_fail(err, LQ_E_FORMAT, "%s: %s is not an object", what, key);
    d->names = d->arch->names;
    if (is_text(d->arch)) find_body(c, d);
    if (!d->arch->describe(c, text ? text : config, d, err) || !lq_config_bool(config, ties, &tied, err) ||
        !lq_config_int(text ? text : config, "num_nextn_predict_layers", 0, 4096, &d->guesses, err))
        return false;
    if (!lq_config_bool(text ? text : config, "is_causal", &causal, err)) return false;
    if (!causal) return lq_fail(err, LQ_E_UNSUPPORTED, "%s: is_causal is false: attention looks both ways", what);
    if (text) d->tied = tied || (d->tied && cJSON_GetObjectItemCaseSensitive(config, ties));
    if (!d->body) d->bare = bare_of(c, d);
    find_head(c, d);
    d->kv_scaled = begins(c, "lq.kv_scale.");
    return (!text || read_ids(text, what, d, err)) && read_ids(config, what, d, err);
}

bool lq_desc_read_as(lq_ckpt *c, const lq_bytes *text, lq_desc *d, lq_err *err) {
    static const char *const other = "generation_config.json";
    cJSON *config = NULL, *generation = NULL;
    lq_bytes file;
    *d = (lq_desc){.bos = -1};
    bool done = parse_json(text, what, &config, err) && lq_foreign_check(c, config, err);
    if (done && !config) done = lq_fail(err, LQ_E_FORMAT, "%s: there is no config.json beside it", lq_ckpt_path(c));
    done = done && find_arch(config, &d->arch, err) && describe(c, config, d, err) &&
           lq_ckpt_file(c, other, &file, err) && parse_json(&file, other, &generation, err) &&
           (!generation || read_ids(generation, other, d, err));
    cJSON_Delete(config);
    cJSON_Delete(generation);
    if (!done) {
        lq_desc_free(d);
        return err ? lq_fail_in(err, "%s", lq_ckpt_path(c)) : false;
    }
    return true;
}

bool lq_desc_read(lq_ckpt *c, lq_desc *d, lq_err *err) {
    lq_bytes text;
    *d = (lq_desc){.bos = -1};
    if (!lq_ckpt_file(c, what, &text, err)) return err ? lq_fail_in(err, "%s", lq_ckpt_path(c)) : false;
    return lq_desc_read_as(c, &text, d, err);
}

void lq_desc_free(lq_desc *d) {
    free(d->layer);
    d->layer = NULL;
}
