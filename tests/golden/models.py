# models.py: which tiny models make_models.py makes. ARCHS: what the checkpoints of an architecture hold, as
# transformers saves them; MODELS: a row for each model, which between them have every feature of their architecture.

import decoder_gemma4

COMMON = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 259,
    "max_position_embeddings": 128, "tie_word_embeddings": False, "bos_token_id": 256, "eos_token_id": 257,
}
DECODER = {**COMMON, "num_key_value_heads": 2, "hidden_act": "silu", "rms_norm_eps": 1e-5}


# A layer's tensors are rows (name, n, k, bias): a matrix [n][k], or a vector of n where k is 0; with a bias or without.
def heads_of(cfg):
    """Widths of Q and of K and V."""
    d = cfg.get("head_dim") or cfg["hidden_size"] // cfg["num_attention_heads"]
    return cfg["num_attention_heads"] * d, cfg.get("num_key_value_heads", cfg["num_attention_heads"]) * d


def norms(cfg, bias=False):
    return [(name, cfg["hidden_size"], 0, bias) for name in ("input_layernorm", "post_attention_layernorm")]


def attention(cfg, bias, o_bias):
    dim, (q, kv) = cfg["hidden_size"], heads_of(cfg)
    rows = [("q_proj", q, dim, bias), ("k_proj", kv, dim, bias), ("v_proj", kv, dim, bias), ("o_proj", dim, q, o_bias)]
    return [("self_attn." + name, *shape) for name, *shape in rows]


def gated(cfg, gate="mlp.gate_proj", up="mlp.up_proj", down="mlp.down_proj", bias=False):
    dim, ffn = cfg["hidden_size"], cfg["intermediate_size"]
    return [(gate, ffn, dim, bias), (up, ffn, dim, bias), (down, dim, ffn, bias)]


def layer_llama(cfg):
    bias = cfg.get("attention_bias", False)
    return norms(cfg) + attention(cfg, bias, bias) + gated(cfg, bias=cfg.get("mlp_bias", False))


def layer_arcee(cfg):
    return [row for row in layer_llama(cfg) if row[0] != "mlp.gate_proj"]


def layer_helium(cfg):
    return norms(cfg) + attention(cfg, cfg.get("attention_bias", False), False) + gated(cfg, bias=cfg.get("mlp_bias", False))


def layer_qwen2(cfg):
    return norms(cfg) + attention(cfg, True, False) + gated(cfg)


def qk_norms(q, k):
    return [("self_attn.q_norm", q, 0, False), ("self_attn.k_norm", k, 0, False)]


def layer_qwen3(cfg):
    bias, d = cfg.get("attention_bias", False), cfg.get("head_dim", 128)
    return norms(cfg) + attention(cfg, bias, bias) + qk_norms(d, d) + gated(cfg)


def layer_gemma2(cfg):
    bias, d, dim = cfg.get("attention_bias", False), cfg.get("head_dim", 256), cfg["hidden_size"]
    behind = [(name, dim, 0, False) for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm")]
    qk = qk_norms(d, d) if cfg["model_type"] == "gemma3_text" else []
    return norms(cfg) + behind + attention(cfg, bias, bias) + qk + gated(cfg)


def layer_gemma4(cfg):
    dim, layer, ffn = cfg["hidden_size"], cfg["layer"], cfg["intermediate_size"]
    kind, bias = decoder_gemma4.kinds(cfg)[layer], cfg.get("attention_bias", False)
    kv, d = decoder_gemma4.heads_of(cfg, layer, kind)
    own, q = decoder_gemma4.donor(cfg, layer) == layer, cfg["num_attention_heads"] * d
    rows = [("self_attn.q_proj", q, dim, bias), ("self_attn.o_proj", dim, q, bias), ("self_attn.q_norm", d, 0, False)]
    if own:
        two = cfg.get("attention_k_eq_v") and kind == "full_attention"
        rows += [(f"self_attn.{n}_proj", kv * d, dim, bias) for n in ("k" if two else "kv")]
        rows += [("self_attn.k_norm", d, 0, False)]
    behind = [(name, dim, 0, False) for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm")]
    each = cfg.get("hidden_size_per_layer_input", 256)
    if each:
        rows += [("per_layer_input_gate", each, dim, False), ("per_layer_projection", dim, each, False)]
        behind += [("post_per_layer_input_norm", dim, 0, False)]
    wide = ffn if own or not cfg.get("use_double_wide_mlp") else 2 * ffn
    return norms(cfg) + behind + rows + gated({**cfg, "intermediate_size": wide}) + [("layer_scalar=", 1, 0, False)]


def layer_vaultgemma(cfg):
    around = [(name, cfg["hidden_size"], 0, False) for name in ("input_layernorm", "pre_feedforward_layernorm")]
    bias = cfg.get("attention_bias", False)
    return around + attention(cfg, bias, bias) + gated(cfg)


def layer_apertus(cfg):
    dim, ffn, bias, d = cfg["hidden_size"], cfg["intermediate_size"], cfg.get("attention_bias", False), heads_of(cfg)[0] // cfg["num_attention_heads"]
    around = [(name, dim, 0, False) for name in ("attention_layernorm", "feedforward_layernorm")]
    mlp = [("mlp.up_proj", ffn, dim, False), ("mlp.down_proj", dim, ffn, False)]
    numbers = [(f"mlp.act_fn.{name}=", n, 0, False) for name, n in (("alpha_p", 1), ("alpha_n", 1), ("beta", ()), ("eps", ()))]
    return around + attention(cfg, bias, bias) + qk_norms(d, d) + mlp + numbers


def layer_nanochat(cfg):
    dim, ffn, bias = cfg["hidden_size"], cfg["intermediate_size"], cfg.get("attention_bias", False)
    return attention(cfg, bias, bias) + [("mlp.fc1", ffn, dim, False), ("mlp.fc2", dim, ffn, False)]


def layer_olmo2(cfg):
    """OLMo 2 and 3: norms of all of q and of k; EXAONE 4: of each head's. No norm stands before a part."""
    bias, (q, kv), dim = cfg.get("attention_bias", False), heads_of(cfg), cfg["hidden_size"]
    each = cfg.get("head_dim") or dim // cfg["num_attention_heads"]
    qk = qk_norms(each, each) if cfg["model_type"] == "exaone4" else qk_norms(q, kv)
    behind = [(name, dim, 0, False) for name in ("post_attention_layernorm", "post_feedforward_layernorm")]
    return behind + attention(cfg, bias, bias) + qk + gated(cfg)


def layer_glm(cfg):
    dim, ffn = cfg["hidden_size"], cfg["intermediate_size"]
    behind = ("post_self_attn_layernorm", "post_mlp_layernorm") if cfg["model_type"] in ("glm4", "glm4v_text") else ()
    mlp = [("mlp.gate_up_proj", 2 * ffn, dim, False), ("mlp.down_proj", dim, ffn, False)]
    return norms(cfg) + [(n, dim, 0, False) for n in behind] + attention(cfg, cfg.get("attention_bias", True), False) + mlp


def layer_seed(cfg):
    biases = cfg.get("attention_bias", True), cfg.get("attention_out_bias", False)
    return norms(cfg) + attention(cfg, *biases) + gated(cfg, bias=cfg.get("mlp_bias", False))


def layer_ernie(cfg):
    bias = cfg.get("use_bias", False)
    return norms(cfg) + attention(cfg, bias, bias) + gated(cfg, bias=bias)


def layer_hunyuan(cfg):
    bias, d = cfg.get("attention_bias", False), cfg.get("head_dim") or cfg["hidden_size"] // cfg["num_attention_heads"]
    qk = [(f"self_attn.{which}_layernorm", d, 0, False) for which in ("query", "key")]
    return norms(cfg) + attention(cfg, bias, bias) + qk + gated(cfg)


def layer_phi3(cfg):
    dim, ffn, (q, kv) = cfg["hidden_size"], cfg["intermediate_size"], heads_of(cfg)
    fused = [("self_attn.qkv_proj", q + 2 * kv, dim, False), ("mlp.gate_up_proj", 2 * ffn, dim, False)]
    return norms(cfg) + fused + [("self_attn.o_proj", dim, q, False), ("mlp.down_proj", dim, ffn, False)]


def layer_neox(cfg):
    dim, ffn, bias = cfg["hidden_size"], cfg["intermediate_size"], cfg.get("attention_bias", True)
    return norms(cfg, True) + [
        ("attention.query_key_value", 3 * dim, dim, bias), ("attention.dense", dim, dim, bias),
        ("mlp.dense_h_to_4h", ffn, dim, True), ("mlp.dense_4h_to_h", dim, ffn, True),
    ]


# A name that ends in "=" is the whole name of a tensor; n may be (experts, n).
def experts_apart(cfg, block, router, names, count, ffn):
    dim = cfg["hidden_size"]
    out = [(block + router, count, dim, False)]
    for e in range(count):
        gate, up, down = (f"{block}experts.{e}.{name}" for name in names)
        out += [(gate, ffn, dim, False), (up, ffn, dim, False), (down, dim, ffn, False)]
    return out


def experts_fused(cfg, block, router, count, ffn, up="experts.gate_up_proj=", down="experts.down_proj="):
    dim = cfg["hidden_size"]
    return [
        (block + router, count, dim, False), (block + up, (count, 2 * ffn), dim, False),
        (block + down, (count, dim), ffn, False),
    ]


def mixture(cfg, count, ffn, fused="gate"):
    """Of Mixtral and its like, as checkpoints have them and (`_fused` in the config) as transformers 5 holds them."""
    if cfg.get("_fused"):
        return experts_fused(cfg, "mlp.", fused, count, ffn)
    return experts_apart(cfg, "block_sparse_moe.", "gate", ("w1", "w3", "w2"), count, ffn)


def layer_mixtral(cfg):
    return norms(cfg) + attention(cfg, False, False) + mixture(cfg, cfg["num_local_experts"], cfg["intermediate_size"])


def layer_phimoe(cfg):
    bias = cfg.get("attention_bias", False)
    moe = mixture(cfg, cfg["num_local_experts"], cfg["intermediate_size"], "router")
    return norms(cfg, True) + attention(cfg, bias, bias) + moe


def layer_qwen_moe(cfg):
    layer, bias, ffn = cfg["layer"], cfg.get("qkv_bias", True), cfg["moe_intermediate_size"]
    attn = attention(cfg, bias, False)
    if cfg["model_type"] in ("qwen3_moe", "qwen3_vl_moe_text"):
        d = cfg.get("head_dim") or cfg["hidden_size"] // cfg["num_attention_heads"]
        attn = attention(cfg, cfg.get("attention_bias", False), cfg.get("attention_bias", False)) + qk_norms(d, d)
    if layer in (cfg.get("mlp_only_layers") or []) or (layer + 1) % cfg.get("decoder_sparse_step", 1):
        return norms(cfg) + attn + gated(cfg)
    count = cfg.get("num_experts") or cfg["num_local_experts"]
    dim = cfg["hidden_size"]
    if cfg.get("_across"):  # as Qwen3-VL-MoE has them: [k][n]
        moe = [
            ("mlp.gate", count, dim, False), ("mlp.experts.gate_up_proj=", (count, dim), 2 * ffn, False),
            ("mlp.experts.down_proj=", (count, ffn), dim, False),
        ]
    elif cfg.get("_fused"):
        moe = experts_fused(cfg, "mlp.", "gate", count, ffn)
    else:
        moe = experts_apart(cfg, "mlp.", "gate", ("gate_proj", "up_proj", "down_proj"), count, ffn)
    if cfg["model_type"] == "qwen2_moe":
        shared, one = "mlp.shared_expert.", {**cfg, "intermediate_size": cfg["shared_expert_intermediate_size"]}
        moe += gated(one, shared + "gate_proj", shared + "up_proj", shared + "down_proj")
        moe += [("mlp.shared_expert_gate", 1, cfg["hidden_size"], False)]
    return norms(cfg) + attn + moe


def layer_olmoe(cfg):
    """Norms of all of q and of k; FlexOlmo's norms stand behind the parts."""
    bias, (q, kv), dim = cfg.get("attention_bias", False), heads_of(cfg), cfg["hidden_size"]
    around = norms(cfg)
    if cfg["model_type"] == "flex_olmo":
        around = [(name, dim, 0, False) for name in ("post_attention_layernorm", "post_feedforward_layernorm")]
    args = cfg["num_experts"], cfg["intermediate_size"]
    if cfg.get("_fused"):
        moe = experts_fused(cfg, "mlp.", "gate", *args)
    else:
        moe = experts_apart(cfg, "mlp.", "gate", ("gate_proj", "up_proj", "down_proj"), *args)
    return around + attention(cfg, bias, bias) + qk_norms(q, kv) + moe


def layer_dots(cfg):
    """dots.llm1 and GLM-4.5: the first layers have an MLP."""
    dim, d, bias = cfg["hidden_size"], cfg["head_dim"], cfg.get("attention_bias", False)
    attn = attention(cfg, bias, bias and cfg["model_type"] == "dots1")
    if cfg["model_type"] == "dots1" or cfg.get("use_qk_norm"):
        attn += qk_norms(d, d)
    if cfg["layer"] < cfg["first_k_dense_replace"]:
        return norms(cfg) + attn + gated(cfg)
    count, ffn = cfg["n_routed_experts"], cfg["moe_intermediate_size"]
    moe = experts_apart(cfg, "mlp.", "gate", ("gate_proj", "up_proj", "down_proj"), count, ffn)
    one = {**cfg, "intermediate_size": ffn * cfg["n_shared_experts"]}
    moe += gated(one, *(f"mlp.shared_experts.{n}_proj" for n in ("gate", "up", "down")))
    return norms(cfg) + attn + moe + [("mlp.gate.e_score_correction_bias=", count, 0, False)]


def latents(cfg):
    """Attention over latents."""
    dim, heads, bias = cfg["hidden_size"], cfg["num_attention_heads"], cfg.get("attention_bias", False)
    rank, nope, turned, v = (cfg[k] for k in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    low = cfg["q_lora_rank"]
    q = [("q_proj", heads * (nope + turned), dim, False)]
    if low:
        q = [("q_a_proj", low, dim, bias), ("q_a_layernorm", low, 0, False), ("q_b_proj", heads * (nope + turned), low, False)]
    kv = [
        ("kv_a_proj_with_mqa", rank + turned, dim, bias), ("kv_a_layernorm", rank, 0, False),
        ("kv_b_proj", heads * (nope + v), rank, False), ("o_proj", dim, heads * v, bias),
    ]
    return [("self_attn." + name, *shape) for name, *shape in q + kv]


def layer_deepseek(cfg):
    """DeepSeek and what has its attention: V1 has Llama's; Youtu and MiniCPM 3 have no experts."""
    v1, bias = cfg["model_type"] == "deepseek", cfg.get("attention_bias", False)
    attn = attention(cfg, bias, bias) if v1 else latents(cfg)
    if "n_routed_experts" not in cfg or cfg["layer"] < cfg["first_k_dense_replace"]:
        return norms(cfg) + attn + gated(cfg, bias=cfg.get("mlp_bias", False))
    count, ffn = cfg["n_routed_experts"], cfg["moe_intermediate_size"]
    if cfg.get("_fused"):
        moe = experts_fused(cfg, "mlp.", "gate", count, ffn)
    else:
        moe = experts_apart(cfg, "mlp.", "gate", ("gate_proj", "up_proj", "down_proj"), count, ffn)
    one = {**cfg, "intermediate_size": ffn * cfg["n_shared_experts"]}
    moe += gated(one, *(f"mlp.shared_experts.{n}_proj" for n in ("gate", "up", "down")), bias=cfg.get("mlp_bias", False))
    if cfg["model_type"] == "axk1":
        moe.append(("post_mlp_layernorm", cfg["hidden_size"], 0, False))
    if cfg["model_type"] in ("deepseek_v3", "glm4_moe_lite", "axk1"):
        moe.append(("mlp.gate.e_score_correction_bias=", count, 0, False))
    return norms(cfg) + attn + moe


def layer_hunyuan_moe(cfg):
    rows, ffn = layer_hunyuan(cfg), cfg["intermediate_size"]
    moe = experts_apart(cfg, "mlp.", "gate.wg", ("gate_proj", "up_proj", "down_proj"), cfg["num_experts"], ffn)
    return [(name.replace("mlp.", "mlp.shared_mlp."), *rest) for name, *rest in rows] + moe


def layer_gpt_oss(cfg):
    bias, dim, ffn, count = cfg.get("attention_bias", True), cfg["hidden_size"], cfg["intermediate_size"], cfg["num_local_experts"]
    moe = [
        ("mlp.router", count, dim, True), ("mlp.experts.gate_up_proj=", (count, dim), 2 * ffn, False),
        ("mlp.experts.down_proj=", (count, ffn), dim, False), ("mlp.experts.gate_up_proj_bias=", count, 2 * ffn, False),
        ("mlp.experts.down_proj_bias=", count, dim, False), ("self_attn.sinks=", cfg["num_attention_heads"], 0, False),
    ]
    return norms(cfg) + attention(cfg, bias, bias) + moe


def layer_granite_moe(cfg):
    bias, ffn, dim = cfg.get("attention_bias", False), cfg["intermediate_size"], cfg["hidden_size"]
    form = ("router",) if cfg.get("_fused") else ("router.layer",)
    names = {} if cfg.get("_fused") else {"up": "input_linear", "down": "output_linear"}
    count = cfg["num_local_experts"]  # 0: none
    moe = experts_fused(cfg, "block_sparse_moe.", *form, count, ffn, **names) if count else []
    shared = cfg.get("shared_intermediate_size", 0)
    if shared:
        moe += [("shared_mlp.input_linear", 2 * shared, dim, False), ("shared_mlp.output_linear", dim, shared, False)]
    return norms(cfg) + attention(cfg, bias, bias) + moe


# Of models whose code is not in transformers (remote.py).
def layer_internlm2(cfg):
    dim, bias, (q, kv) = cfg["hidden_size"], cfg["bias"], heads_of(cfg)
    around = [("attention_norm", dim, 0, False), ("ffn_norm", dim, 0, False)]
    rows = [("attention.wqkv", q + 2 * kv, dim, bias), ("attention.wo", dim, q, bias)]
    return around + rows + gated(cfg, "feed_forward.w1", "feed_forward.w3", "feed_forward.w2")


def layer_exaone(cfg):
    dim, names = cfg["hidden_size"], {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "o_proj": "out_proj"}
    around = [("ln_1", dim, 0, False), ("ln_2", dim, 0, False)]
    rows = [("attn.attention." + names[name[10:]], *rest) for name, *rest in attention(cfg, False, False)]
    return around + rows + gated(cfg, "mlp.c_fc_0", "mlp.c_fc_1", "mlp.c_proj")


def layer_baichuan(cfg):
    dim = cfg["hidden_size"]
    rows = [("self_attn.W_pack", 3 * dim, dim, False), ("self_attn.o_proj", dim, dim, False)]
    return norms(cfg) + rows + gated(cfg)


def layer_qwen(cfg):
    dim, ffn = cfg["hidden_size"], cfg["intermediate_size"] // 2
    around = [("ln_1", dim, 0, False), ("ln_2", dim, 0, False)]
    rows = [("attn.c_attn", 3 * dim, dim, True), ("attn.c_proj", dim, dim, False)]
    return around + rows + [("mlp.w1", ffn, dim, False), ("mlp.w2", ffn, dim, False), ("mlp.c_proj", dim, ffn, False)]


def layer_chatglm(cfg):
    dim, ffn, d = cfg["hidden_size"], cfg["ffn_hidden_size"], cfg["kv_channels"]
    q, kv = cfg["num_attention_heads"] * d, cfg["multi_query_group_num"] * d
    rows = [("self_attention.query_key_value", q + 2 * kv, dim, cfg["add_qkv_bias"]), ("self_attention.dense", dim, q, False)]
    return norms(cfg) + rows + [("mlp.dense_h_to_4h", 2 * ffn, dim, False), ("mlp.dense_4h_to_h", dim, ffn, False)]


# model_type -> architectures[0], a config, a layer, and the names around the layers: embedding, last norm, head
NAMES = ("model.embed_tokens", "model.norm", "lm_head")
CHATGLM = ("transformer.embedding.word_embeddings", "transformer.encoder.final_layernorm", "transformer.output_layer")
NEOX = ("gpt_neox.embed_in", "gpt_neox.final_layer_norm", "embed_out")
LATENT = {**DECODER, "num_key_value_heads": 4}
GEMMA2 = {**DECODER, "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 24}
GEMMA4 = {**DECODER, "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh", "hidden_size_per_layer_input": 0}
ARCHS = {
    "llama": ("LlamaForCausalLM", {**DECODER, "rope_theta": 10000.0}, layer_llama, NAMES),
    "mistral": ("MistralForCausalLM", DECODER, layer_llama, NAMES),
    "qwen2": ("Qwen2ForCausalLM", DECODER, layer_qwen2, NAMES),
    "qwen3": ("Qwen3ForCausalLM", DECODER, layer_qwen3, NAMES),
    "phi3": ("Phi3ForCausalLM", {**DECODER, "pad_token_id": 258}, layer_phi3, NAMES),
    "gpt_neox": ("GPTNeoXForCausalLM", {**COMMON, "hidden_act": "gelu", "layer_norm_eps": 1e-5}, layer_neox, NEOX),
    "mixtral": ("MixtralForCausalLM", DECODER, layer_mixtral, NAMES),
    "qwen2_moe": ("Qwen2MoeForCausalLM", DECODER, layer_qwen_moe, NAMES),
    "qwen3_moe": ("Qwen3MoeForCausalLM", DECODER, layer_qwen_moe, NAMES),
    "qwen3_vl_text": ("Qwen3VLForConditionalGeneration", DECODER, layer_qwen3, NAMES),
    "qwen3_vl_moe_text": ("Qwen3VLMoeForConditionalGeneration", DECODER, layer_qwen_moe, NAMES),
    "arcee": ("ArceeForCausalLM", {**DECODER, "hidden_act": "relu2"}, layer_arcee, NAMES),
    "helium": ("HeliumForCausalLM", {**DECODER, "pad_token_id": 258}, layer_helium, NAMES),
    "cwm": ("CwmForCausalLM", DECODER, layer_helium, NAMES),
    "hunyuan_v1_moe": ("HunYuanMoEV1ForCausalLM", DECODER, layer_hunyuan_moe, NAMES),
    "dots1": ("Dots1ForCausalLM", DECODER, layer_dots, NAMES),
    "glm4_moe": ("Glm4MoeForCausalLM", DECODER, layer_dots, NAMES),
    "internlm": ("InternLMForCausalLM", DECODER, lambda cfg: norms(cfg) + attention(cfg, cfg["bias"], cfg["bias"]) + gated(cfg), NAMES),
    "qwen": ("QWenLMHeadModel", DECODER, layer_qwen, ("transformer.wte", "transformer.ln_f", "lm_head")),
    "chatglm": ("ChatGLMModel", DECODER, layer_chatglm, CHATGLM),
    "vaultgemma": ("VaultGemmaForCausalLM", GEMMA2, layer_vaultgemma, NAMES),
    "apertus": ("ApertusForCausalLM", {**DECODER, "hidden_act": "xielu"}, layer_apertus, NAMES),
    "baichuan2": ("BaichuanForCausalLM", {**DECODER, "z_loss_weight": 0}, layer_baichuan, NAMES),
    "nanochat": ("NanoChatForCausalLM", {**DECODER, "hidden_act": "relu2"}, layer_nanochat, ("model.embed_tokens", None, "lm_head")),
    "glm4v_text": ("Glm4vForConditionalGeneration", DECODER, layer_glm, NAMES),
    "deepseek": ("DeepseekForCausalLM", DECODER, layer_deepseek, NAMES),
    "deepseek_v2": ("DeepseekV2ForCausalLM", LATENT, layer_deepseek, NAMES),
    "deepseek_v3": ("DeepseekV3ForCausalLM", LATENT, layer_deepseek, NAMES),
    "glm4_moe_lite": ("Glm4MoeLiteForCausalLM", LATENT, layer_deepseek, NAMES),
    "axk1": ("AXK1ForCausalLM", LATENT, layer_deepseek, NAMES),
    "mistral4": ("Mistral4ForCausalLM", LATENT, layer_deepseek, NAMES),
    "youtu": ("YoutuForCausalLM", LATENT, layer_deepseek, NAMES),
    "minicpm3": ("MiniCPM3ForCausalLM", LATENT, layer_deepseek, NAMES),
    "internlm2": ("InternLM2ForCausalLM", DECODER, layer_internlm2, ("model.tok_embeddings", "model.norm", "output")),
    "exaone": ("ExaoneForCausalLM", DECODER, layer_exaone, ("transformer.wte", "transformer.ln_f", "lm_head")),
    "baichuan": ("BaichuanForCausalLM", DECODER, layer_baichuan, NAMES),
    "orion": ("OrionForCausalLM", DECODER, lambda cfg: norms(cfg, True) + attention(cfg, False, False) + gated(cfg), NAMES),
    "minicpm": ("MiniCPMForCausalLM", DECODER, layer_llama, NAMES),
    "olmoe": ("OlmoeForCausalLM", DECODER, layer_olmoe, NAMES),
    "flex_olmo": ("FlexOlmoForCausalLM", {**DECODER, "pad_token_id": 258}, layer_olmoe, NAMES),
    "gpt_oss": ("GptOssForCausalLM", DECODER, layer_gpt_oss, NAMES),
    "granitemoe": ("GraniteMoeForCausalLM", DECODER, layer_granite_moe, NAMES),
    "granitemoeshared": ("GraniteMoeSharedForCausalLM", DECODER, layer_granite_moe, NAMES),
    "phimoe": ("PhimoeForCausalLM", DECODER, layer_phimoe, NAMES),
    "gemma": ("GemmaForCausalLM", {**DECODER, "tie_word_embeddings": True}, layer_llama, NAMES),
    "ministral": ("MinistralForCausalLM", DECODER, layer_llama, NAMES),
    "ministral3": ("Ministral3ForCausalLM", DECODER, layer_llama, NAMES),
    "qwen2_5_vl_text": ("Qwen2_5_VLForConditionalGeneration", DECODER, layer_qwen2, NAMES),
    "olmo2": ("Olmo2ForCausalLM", DECODER, layer_olmo2, NAMES),
    "olmo3": ("Olmo3ForCausalLM", DECODER, layer_olmo2, NAMES),
    "exaone4": ("Exaone4ForCausalLM", DECODER, layer_olmo2, NAMES),
    "granite": ("GraniteForCausalLM", DECODER, layer_llama, NAMES),
    "glm": ("GlmForCausalLM", {**DECODER, "pad_token_id": 258}, layer_glm, NAMES),
    "glm4": ("Glm4ForCausalLM", {**DECODER, "pad_token_id": 258}, layer_glm, NAMES),
    "smollm3": ("SmolLM3ForCausalLM", {**DECODER, "pad_token_id": 258}, layer_llama, NAMES),
    "seed_oss": ("SeedOssForCausalLM", DECODER, layer_seed, NAMES),
    "ernie4_5": ("Ernie4_5ForCausalLM", DECODER, layer_ernie, NAMES),
    "hunyuan_v1_dense": ("HunYuanDenseV1ForCausalLM", DECODER, layer_hunyuan, NAMES),
    "gemma2": ("Gemma2ForCausalLM", GEMMA2, layer_gemma2, NAMES),
    "gemma3_text": ("Gemma3ForCausalLM", GEMMA2, layer_gemma2, NAMES),
    "gemma4_text": ("Gemma4ForCausalLM", GEMMA4, layer_gemma4, NAMES),
}

# name -> model_type, what differs in the config, and of the checkpoint: `dtype`, `shards`, and `tokens`: the length of
# its prompt, which is also the context that it is opened with: that decides what dynamic scaling and longrope do.
# Configs are of either form: rope_theta and rope_scaling (transformers 4), or rope_parameters (5).
# One that is the text part of a larger model has the rest of that one's config in `whole`, stands in it as text_config,
# and its tensors' names begin with prefix[0] in place of "model.", or with prefix[1] before what they are; `beside` are
# tensors of the other parts; `flat`: its keys stand among those of the rest.
FILE = {"dtype": "BF16", "shards": 1, "tokens": 100, "whole": None, "prefix": ("model.", ""), "beside": {}, "flat": False}
MODELS = {}


def model(name, kind, changes, **file):
    MODELS[name] = (kind, changes, {**FILE, **file})


LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
model("gqa", "llama", {})
model("tied", "llama", {
    "tie_word_embeddings": True, "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 1,
    "rms_norm_eps": 1e-6,
})
model("mha", "llama", {
    "num_key_value_heads": 4, "head_dim": 32, "attention_bias": True, "mlp_bias": True, "rope_theta": 500000.0,
}, dtype="F32")
model("llama3", "llama", {
    "rope_scaling": LLAMA3, "rope_theta": 500000.0, "hidden_size": 128, "intermediate_size": 256,
    "num_hidden_layers": 3,
})
model("linear", "llama", {"rope_scaling": {"type": "linear", "factor": 4.0}}, dtype="F16")
model("dynamic", "llama", {
    "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 32, "num_hidden_layers": 1,
}, dtype="F32")
model("yarn", "llama", {
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "max_position_embeddings": 32, "num_key_value_heads": 1,
})

DEFAULT = {"rope_theta": 10000.0, "rope_type": "default"}
model("mistral", "mistral", {"sliding_window": 29, "head_dim": 20, "rope_theta": 10000.0, "torch_dtype": "bfloat16"})
model("mistral_full", "mistral", {
    "sliding_window": None, "head_dim": None, "num_attention_heads": 8, "hidden_size": 96, "tie_word_embeddings": True,
    "rope_parameters": {**DEFAULT, "rope_theta": 1000000.0}, "dtype": "float16",
}, dtype="F16")

model("qwen2", "qwen2", {
    "use_sliding_window": False, "sliding_window": 16, "max_window_layers": 1, "rope_theta": 1000000.0,
    "vocab_size": 272, "rms_norm_eps": 1e-6, "num_attention_heads": 6, "hidden_size": 84, "num_key_value_heads": 3,
})
model("qwen2_window", "qwen2", {
    "use_sliding_window": True, "sliding_window": 24, "max_window_layers": 2, "num_hidden_layers": 3,
    "tie_word_embeddings": True, "rope_theta": 10000.0,
}, dtype="F32")
model("qwen2_types", "qwen2", {
    "use_sliding_window": True, "sliding_window": 40, "max_window_layers": 0, "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "num_key_value_heads": 1,
    "rope_parameters": DEFAULT, "dtype": "float16",
}, dtype="F16")

# Of a head of 15 with 0.8 of it rotated: six frequencies.
LONG = {"short_factor": [1.0, 1.0, 1.125, 1.25, 1.5, 1.75], "long_factor": [1.0, 1.25, 2.0, 3.5, 6.0, 8.5]}
SMALL_HEAD = {"hidden_size": 60, "intermediate_size": 152}
PHI3 = {
    **SMALL_HEAD, "partial_rotary_factor": 0.8, "rope_theta": 10000.0, "rope_scaling": {"type": "longrope", **LONG},
    "max_position_embeddings": 256, "original_max_position_embeddings": 64, "sliding_window": None,
}
model("phi3", "phi3", {**PHI3, "num_key_value_heads": 4})
model("phi3_short", "phi3", PHI3, dtype="F16", tokens=64)
model("phi3_window", "phi3", {
    "sliding_window": 33, "original_max_position_embeddings": 128, "num_key_value_heads": 1, "head_dim": 24,
    "tie_word_embeddings": True, "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.75},
}, dtype="F32")
model("phi3_v5", "phi3", {
    **SMALL_HEAD, "max_position_embeddings": 64, "original_max_position_embeddings": 32, "sliding_window": 50,
    "rope_parameters": {
        **LONG, "rope_theta": 10000.0, "rope_type": "longrope", "partial_rotary_factor": 0.8,
        "original_max_position_embeddings": 16, "factor": 4.0,
    }, "dtype": "bfloat16",
})

model("neox", "gpt_neox", {
    "rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": True, "attention_bias": True,
}, dtype="F16", shards=3)
model("neox_serial", "gpt_neox", {
    "use_parallel_residual": False, "num_attention_heads": 5, "hidden_size": 75, "intermediate_size": 140,
    "hidden_act": "gelu_new", "rope_parameters": {**DEFAULT, "rope_theta": 20000.0, "partial_rotary_factor": 0.4},
}, dtype="F32")
model("neox_plain", "gpt_neox", {
    "rotary_pct": 1.0, "rotary_emb_base": 10000, "attention_bias": False, "tie_word_embeddings": True,
    "num_attention_heads": 2,
})

model("mixtral", "mixtral", {
    "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None, "intermediate_size": 56, "torch_dtype": "bfloat16",
})
model("mixtral_window", "mixtral", {
    "num_local_experts": 5, "num_experts_per_tok": 3, "sliding_window": 27, "head_dim": 24, "num_key_value_heads": 1,
    "intermediate_size": 72, "rope_parameters": DEFAULT,
}, dtype="F32")

model("gemma", "gemma", {
    "head_dim": 32, "num_key_value_heads": 1, "hidden_act": "gelu", "hidden_activation": None, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "torch_dtype": "bfloat16",
})
model("gemma_v5", "gemma", {
    "head_dim": 24, "hidden_size": 96, "hidden_act": "gelu_pytorch_tanh", "attention_bias": True, "rope_parameters": DEFAULT,
}, dtype="F32")

model("qwen3", "qwen3", {
    "head_dim": 20, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "use_sliding_window": False, "sliding_window": None,
    "max_window_layers": 1, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
})
model("qwen3_window", "qwen3", {
    "head_dim": 16, "num_attention_heads": 6, "num_key_value_heads": 1, "attention_bias": True, "num_hidden_layers": 3,
    "use_sliding_window": True, "sliding_window": 31, "max_window_layers": 1, "rope_parameters": DEFAULT,
}, dtype="F32")

# What it multiplies q by is no power of two, and not the root of head_dim.
model("gemma2", "gemma2", {
    "head_dim": 32, "num_key_value_heads": 2, "num_hidden_layers": 3, "sliding_window": 23, "rope_theta": 10000.0,
    "attn_logit_softcapping": 5.0, "final_logit_softcapping": 30.0, "torch_dtype": "bfloat16",
})
model("gemma2_types", "gemma2", {
    "head_dim": 12, "num_attention_heads": 6, "num_key_value_heads": 1, "hidden_size": 96, "sliding_window": 37,
    "layer_types": ["full_attention", "sliding_attention"], "attn_logit_softcapping": None, "attention_bias": True,
    "final_logit_softcapping": 8.0, "tie_word_embeddings": False, "rope_parameters": DEFAULT,
}, dtype="F32")
model("gemma3", "gemma3_text", {
    "head_dim": 20, "num_key_value_heads": 1, "num_hidden_layers": 7, "sliding_window": 19, "rope_theta": 1000000.0,
    "rope_local_base_freq": 5000.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}, "torch_dtype": "bfloat16",
})
model("gemma3_v5", "gemma3_text", {
    "head_dim": 16, "num_hidden_layers": 3, "hidden_size": 96, "sliding_window": 33, "query_pre_attn_scalar": 96,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "full_attention": {"rope_theta": 500000.0, "rope_type": "linear", "factor": 2.0},
        "sliding_attention": {"rope_theta": 2000.0, "rope_type": "default"},
    },
}, dtype="F32")

EYES = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14, "vocab_size": 8,
}
WHOLE3 = {
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "mm_tokens_per_image": 4,
    "vision_config": {**EYES, "model_type": "siglip_vision_model"}, "torch_dtype": "bfloat16", "eos_token_id": [257, 65],
}
SIGHT = "vision_tower.vision_model.embeddings.position_embedding.weight"
GEMMA3 = {"num_hidden_layers": 6, "sliding_window": 21, "num_attention_heads": 4, "num_key_value_heads": 1}
model("gemma3_sight", "gemma3_text", {
    **GEMMA3, "head_dim": 20, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}, whole=WHOLE3, prefix=("language_model.model.", "language_model."), beside={SIGHT: (4, 16)}, shards=2)
model("gemma3_sight_v5", "gemma3_text", {
    **GEMMA3, "head_dim": 16, "num_hidden_layers": 2, "tie_word_embeddings": False,
}, whole={**WHOLE3, "tie_word_embeddings": True}, prefix=("model.language_model.", ""),
   beside={"model." + SIGHT: (4, 16)}, dtype="F32")

# Layers 3 and 4 use K and V of layers 2 and 1; the last has no window, whatever its type.
SOME = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]
model("gemma4", "gemma4_text", {
    "layer_types": SOME, "num_hidden_layers": 5, "sliding_window": 21, "num_kv_shared_layers": 2, "head_dim": 12, "global_head_dim": 24,
    "use_double_wide_mlp": True, "intermediate_size": 72, "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 263,
    "final_logit_softcapping": 20.0, "torch_dtype": "bfloat16",
})
model("gemma4_two", "gemma4_text", {
    "num_hidden_layers": 3, "layer_types": SOME[:2] + ["full_attention"], "attention_k_eq_v": True, "attention_bias": True,
    "hidden_size": 60, "per_layer_config": {"1": {"head_dim": 20, "num_key_value_heads": 1}, "2": {"head_dim": 20, "num_key_value_heads": 1}},
    "head_dim": 8, "sliding_window": 30, "tie_word_embeddings": False,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 5e4, "factor": 2.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2000.0},
    },
}, dtype="F32")
EYES4 = {
    "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "vision_config": None, "audio_config": None,
    "torch_dtype": "bfloat16",
}
model("gemma4_sight", "gemma4_text", {
    "num_hidden_layers": 2, "sliding_window": 25, "head_dim": 12, "global_head_dim": 16, "attention_k_eq_v": True,
    "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": 259,
}, whole=EYES4, prefix=("model.language_model.", ""), beside={"model.vision_tower.std_bias": (16,)}, dtype="F32")

model("ministral", "ministral", {
    "head_dim": 24, "sliding_window": 26, "num_hidden_layers": 3, "rope_theta": 100000.0, "torch_dtype": "bfloat16",
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"], "num_key_value_heads": 1,
})

YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 8, "beta_slow": 1,
    "attention_factor": 1.25,
}
model("olmo2", "olmo2", {
    "num_key_value_heads": 4, "rope_theta": 500000.0, "rope_scaling": None, "rms_norm_eps": 1e-6, "torch_dtype": "float32",
}, dtype="F32")
model("olmo2_gqa", "olmo2", {
    "num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 84, "attention_bias": True, "num_hidden_layers": 1,
    "tie_word_embeddings": True, "rope_parameters": {**DEFAULT, "rope_theta": 50000.0},
})
model("olmo3", "olmo3", {
    "num_hidden_layers": 5, "sliding_window": 22, "rope_theta": 500000.0, "rope_scaling": YARN,
    "torch_dtype": "bfloat16",
})
model("olmo3_v5", "olmo3", {
    "num_hidden_layers": 2, "sliding_window": 35, "layer_types": ["full_attention", "sliding_attention"],
    "rope_parameters": {
        "full_attention": {**YARN, "rope_theta": 20000.0}, "sliding_attention": {**DEFAULT, "rope_theta": 3000.0},
    },
}, dtype="F32")

model("exaone4", "exaone4", {
    "num_hidden_layers": 5, "sliding_window": 25, "sliding_window_pattern": 4, "rope_scaling": LLAMA3,
    "rope_theta": 100000.0, "torch_dtype": "bfloat16", "head_dim": 20,
})
model("exaone4_full", "exaone4", {
    "sliding_window": None, "sliding_window_pattern": None, "layer_types": ["full_attention"] * 2,
    "tie_word_embeddings": True, "rope_parameters": DEFAULT, "num_key_value_heads": 1,
}, dtype="F32")

model("granite", "granite", {
    "embedding_multiplier": 12.0, "attention_multiplier": 0.09, "residual_multiplier": 0.22, "logits_scaling": 7.0,
    "rope_theta": 10000.0, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
})
model("granite_bias", "granite", {
    "embedding_multiplier": 0.7, "attention_multiplier": 0.3, "residual_multiplier": 1.5, "logits_scaling": 0.5,
    "attention_bias": True, "mlp_bias": True, "rope_parameters": DEFAULT, "num_key_value_heads": 1,
}, dtype="F32")

model("glm", "glm", {"head_dim": 20, "attention_bias": True, "partial_rotary_factor": 0.5, "torch_dtype": "bfloat16"})
model("glm4", "glm4", {
    "head_dim": 24, "attention_bias": True, "partial_rotary_factor": 0.25, "rope_theta": 5000.0, "torch_dtype": "bfloat16",
})
model("glm4_v5", "glm4", {
    "head_dim": 16, "attention_bias": False, "num_key_value_heads": 1, "tie_word_embeddings": True,
    "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.75},
}, dtype="F32")

model("smollm3", "smollm3", {
    "num_hidden_layers": 5, "use_sliding_window": False, "sliding_window": None, "rope_theta": 50000.0,
    "no_rope_layer_interval": 2, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
})
model("smollm3_list", "smollm3", {
    "num_hidden_layers": 3, "no_rope_layers": [1, 0, 1], "use_sliding_window": True, "sliding_window": 24,
    "attention_bias": True, "mlp_bias": True, "rope_parameters": DEFAULT,
}, dtype="F32")

model("seed", "seed_oss", {
    "head_dim": 20, "attention_bias": True, "attention_out_bias": False, "rope_theta": 1e7, "torch_dtype": "bfloat16",
})
model("seed_bias", "seed_oss", {
    "head_dim": 32, "num_attention_heads": 3, "num_key_value_heads": 1, "attention_bias": False,
    "attention_out_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "rope_parameters": DEFAULT,
}, dtype="F32")

model("ernie", "ernie4_5", {"head_dim": 20, "rope_theta": 500000.0, "use_bias": False, "torch_dtype": "bfloat16"})
model("ernie_bias", "ernie4_5", {
    "head_dim": None, "use_bias": True, "tie_word_embeddings": True, "num_key_value_heads": 1, "rope_parameters": DEFAULT,
}, dtype="F32")

model("hunyuan", "hunyuan_v1_dense", {
    "head_dim": 24, "rope_theta": 10000.0, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
    "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0},
})
model("hunyuan_plain", "hunyuan_v1_dense", {
    "attention_bias": True, "head_dim": 16, "num_key_value_heads": 4, "rope_parameters": DEFAULT,
}, dtype="F32")

# `_fused` is a key of ours: tensors as transformers 5 holds them, and writes them if it is asked not to split them.
model("mixtral_fused", "mixtral", {
    "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 48, "rope_parameters": DEFAULT, "_fused": True,
}, dtype="F32")
model("qwen2_moe", "qwen2_moe", {
    "num_experts": 9, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "shared_expert_intermediate_size": 72,
    "num_hidden_layers": 3, "mlp_only_layers": [1], "norm_topk_prob": False, "rope_theta": 10000.0,
    "use_sliding_window": False, "sliding_window": 32, "max_window_layers": 2, "torch_dtype": "bfloat16",
})
model("qwen2_moe_fused", "qwen2_moe", {
    "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48,
    "num_hidden_layers": 4, "decoder_sparse_step": 2, "norm_topk_prob": True, "qkv_bias": False, "_fused": True,
    "use_sliding_window": True, "sliding_window": 27, "max_window_layers": 3, "rope_parameters": DEFAULT,
    "tie_word_embeddings": True,
}, dtype="F32")
model("qwen3_moe", "qwen3_moe", {
    "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "head_dim": 20, "norm_topk_prob": True,
    "mlp_only_layers": [], "decoder_sparse_step": 1, "rope_theta": 1000000.0, "torch_dtype": "bfloat16",
})
model("qwen3_moe_fused", "qwen3_moe", {
    "num_local_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16, "_fused": True,
    "norm_topk_prob": False, "attention_bias": True, "use_sliding_window": True, "sliding_window": 21,
    "rope_parameters": DEFAULT, "num_key_value_heads": 1,
}, dtype="F32")
model("granite_moe", "granitemoe", {
    "num_local_experts": 7, "num_experts_per_tok": 3, "intermediate_size": 40, "embedding_multiplier": 6.0,
    "attention_multiplier": 0.11, "residual_multiplier": 0.4, "logits_scaling": 3.0, "rope_theta": 10000.0,
    "torch_dtype": "bfloat16", "tie_word_embeddings": True,
})
model("granite_moe_fused", "granitemoe", {
    "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 32, "attention_bias": True, "_fused": True,
    "rope_parameters": DEFAULT, "residual_multiplier": 0.7,
}, dtype="F32")
model("granite_shared", "granitemoeshared", {
    "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 40, "shared_intermediate_size": 56,
    "embedding_multiplier": 2.0, "attention_multiplier": 0.2, "residual_multiplier": 0.5, "logits_scaling": 2.0,
    "rope_theta": 10000.0, "torch_dtype": "bfloat16",
})
model("olmoe", "olmoe", {
    "num_experts": 7, "num_experts_per_tok": 3, "intermediate_size": 40, "num_key_value_heads": 4, "norm_topk_prob": False,
    "clip_qkv": None, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
})
model("olmoe_clip", "olmoe", {
    "num_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 32, "norm_topk_prob": True, "clip_qkv": 1.0,
    "attention_bias": True, "tie_word_embeddings": True, "rope_parameters": DEFAULT, "_fused": True,
}, dtype="F32")
model("flex_olmo", "flex_olmo", {
    "num_experts": 6, "num_experts_per_tok": 4, "intermediate_size": 40, "norm_topk_prob": False, "rope_theta": 20000.0,
    "torch_dtype": "bfloat16",
})
OSS_YARN = {
    "rope_type": "yarn", "factor": 4.0, "beta_fast": 8.0, "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 32,
}
model("gpt_oss", "gpt_oss", {
    "head_dim": 24, "num_local_experts": 6, "num_experts_per_tok": 3, "intermediate_size": 32, "sliding_window": 21,
    "num_hidden_layers": 3, "rope_theta": 150000.0, "rope_scaling": OSS_YARN, "swiglu_limit": 1.5, "torch_dtype": "bfloat16",
})
model("gpt_oss_types", "gpt_oss", {
    "head_dim": 16, "num_key_value_heads": 1, "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 48,
    "sliding_window": 33, "layer_types": ["full_attention", "sliding_attention"], "attention_bias": False,
    "swiglu_alpha": 1.2, "swiglu_limit": 2.0, "tie_word_embeddings": True, "rope_parameters": {**DEFAULT, "rope_theta": 20000.0},
}, dtype="F32")
model("gpt_oss_mx", "gpt_oss", {
    "head_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 64, "sliding_window": 27,
    "rope_scaling": OSS_YARN, "swiglu_limit": 2.5, "_mx": True, "torch_dtype": "bfloat16", "quantization_config": {
        "quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"],
    },
})
MSCALES = {"short_mscale": 1.25, "long_mscale": 1.5}
FACTORS = {"short_factor": [1.0, 1.0, 1.125, 1.25, 1.5, 1.75, 2.0, 2.5], "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]}
model("phimoe", "phimoe", {
    "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 48, "router_jitter_noise": 0.2,
    "attention_bias": True, "lm_head_bias": True, "rope_theta": 10000.0, "max_position_embeddings": 256,
    "original_max_position_embeddings": 64, "rope_scaling": {
        "type": "longrope", "original_max_position_embeddings": 64, **FACTORS, **MSCALES,
    }, "torch_dtype": "bfloat16", "num_hidden_layers": 1,
}, tokens=64)
model("phimoe_fused", "phimoe", {
    "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 40, "router_jitter_noise": 0.1, "_fused": True,
    "sliding_window": 30, "rope_parameters": DEFAULT, "num_hidden_layers": 1,
}, dtype="F32")

PIXTRAL = {
    "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "image_token_index": 10,
    "vision_config": {**EYES, "model_type": "pixtral", "head_dim": 8}, "torch_dtype": "bfloat16", "spatial_merge_size": 2,
}
PATCH = "vision_tower.patch_conv.weight"
model("mistral3", "mistral", {
    "head_dim": 24, "sliding_window": None, "rope_theta": 1e6, "num_key_value_heads": 1,
}, whole=PIXTRAL, prefix=("language_model.model.", "language_model."), beside={PATCH: (16, 3, 14, 14)})
TALL = {**YARN, "attention_factor": None, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5, "rope_theta": 1e5}
model("ministral3", "ministral3", {"head_dim": 20, "sliding_window": None, "rope_parameters": TALL, "dtype": "float32"}, dtype="F32")
model("mistral3_v5", "ministral3", {
    "head_dim": 16, "sliding_window": 40, "tie_word_embeddings": True, "rope_parameters": {**TALL, "llama_4_scaling_beta": 0.1},
}, whole={**PIXTRAL, "tie_word_embeddings": True}, prefix=("model.language_model.", ""),
   beside={"model." + PATCH: (16, 3, 14, 14)}, dtype="F32")
QWEN_EYES = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 24, "out_hidden_size": 64, "patch_size": 14}
VL = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "vision_config": QWEN_EYES,
    "vision_start_token_id": 1, "vision_end_token_id": 2, "image_token_id": 3, "video_token_id": 4,
}
SEEN = "visual.merger.ln_q.weight"
MROPE = {"type": "mrope", "mrope_section": [2, 3, 3]}
model("qwen2_vl", "qwen2_5_vl_text", {
    "rope_theta": 1e6, "rope_scaling": MROPE, "use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 2,
}, whole={**VL, "torch_dtype": "bfloat16"}, flat=True, beside={SEEN: (16,)})
model("qwen2_vl_v5", "qwen2_5_vl_text", {
    "rope_parameters": {**DEFAULT, "mrope_section": [2, 3, 3]}, "use_sliding_window": True, "sliding_window": 23,
    "max_window_layers": 1, "num_key_value_heads": 1, "tie_word_embeddings": True,
}, whole={**VL, "tie_word_embeddings": True}, prefix=("model.language_model.", ""), beside={"model." + SEEN: (16,)},
   dtype="F32")
QWEN3_EYES = {**QWEN_EYES, "deepstack_visual_indexes": [0], "num_position_embeddings": 16}
VL3 = {**VL, "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "vision_config": QWEN3_EYES}
MROPE3 = {"rope_type": "default", "mrope_section": [4, 3, 3], "mrope_interleaved": True}
EYE = "model.visual.merger.norm.weight"
model("qwen3_vl", "qwen3_vl_text", {
    "head_dim": 20, "rope_theta": 5e6, "rope_scaling": MROPE3,
}, whole={**VL3, "tie_word_embeddings": False}, prefix=("model.language_model.", ""), beside={EYE: (16,)})
model("qwen3_vl_moe", "qwen3_vl_moe_text", {
    "head_dim": 20, "rope_theta": 5e6, "rope_scaling": MROPE3, "num_experts": 5, "num_experts_per_tok": 2, "_across": True,
    "moe_intermediate_size": 40, "mlp_only_layers": [], "decoder_sparse_step": 1, "num_key_value_heads": 1,
}, whole={**VL3, "architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe", "tie_word_embeddings": False},
   prefix=("model.language_model.", ""), beside={EYE: (16,)})
CLIP = {**EYES, "model_type": "clip_vision_model", "projection_dim": 8}
LLAVA = {"model_type": "llava", "vision_config": CLIP, "image_token_index": 10, "projector_hidden_act": "gelu"}
model("llava", "mistral", {"sliding_window": None, "rope_theta": 1e6}, whole={
    **LLAVA, "architectures": ["LlavaForConditionalGeneration"], "torch_dtype": "float16",
}, prefix=("language_model.model.", "language_model."), beside={"multi_modal_projector.linear_1.bias": (64,)}, dtype="F16")
model("llava_v5", "qwen2", {
    "use_sliding_window": False, "sliding_window": None, "rope_parameters": DEFAULT, "tie_word_embeddings": True,
}, whole={**LLAVA, "architectures": ["LlavaForConditionalGeneration"], "tie_word_embeddings": True},
   prefix=("model.language_model.", ""), beside={"model.multi_modal_projector.linear_1.bias": (64,)}, dtype="F32")
model("arcee", "arcee", {"rope_scaling": {**YARN, "attention_factor": None}, "rope_theta": 1e6, "torch_dtype": "bfloat16", "mlp_bias": True, "attention_bias": True})
model("helium", "helium", {"head_dim": 16, "rms_norm_eps": 1e-8, "rope_theta": 1e5, "attention_bias": True, "torch_dtype": "bfloat16"})
model("cwm", "cwm", {
    "head_dim": 20, "num_hidden_layers": 5, "sliding_window": 28, "rope_theta": 1e6, "rope_scaling": LLAMA3, "torch_dtype": "bfloat16",
})
model("internlm2", "internlm2", {
    "bias": True, "rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 48, "rope_theta": 1e6,
    "torch_dtype": "bfloat16",
})
model("exaone", "exaone", {
    "num_layers": 2, "activation_function": "silu", "layer_norm_epsilon": 1e-5, "rope_scaling": LLAMA3, "rope_theta": 1e6,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16",
})
model("internlm", "internlm", {
    "bias": True, "rotary": {"base": 20000, "type": "dynamic", "scaling_factor": 1.5}, "max_position_embeddings": 48,
    "num_key_value_heads": 4, "torch_dtype": "float16",
}, dtype="F16")
model("qwen", "qwen", {
    "num_key_value_heads": 4, "kv_channels": 16, "intermediate_size": 144, "layer_norm_epsilon": 1e-5, "rotary_emb_base": 30000,
    "rotary_pct": 1.0, "seq_length": 100, "use_logn_attn": True, "use_dynamic_ntk": True, "no_bias": True, "torch_dtype": "bfloat16",
})
model("chatglm", "chatglm", {
    "num_layers": 2, "padded_vocab_size": 263, "vocab_size": 263, "kv_channels": 20, "multi_query_group_num": 2, "ffn_hidden_size": 96,
    "seq_length": 128, "layernorm_epsilon": 1e-5, "rope_ratio": 3, "add_qkv_bias": True, "multi_query_attention": True,
    "torch_dtype": "bfloat16",
})
model("vaultgemma", "vaultgemma", {
    "head_dim": 20, "num_hidden_layers": 3, "sliding_window": 22, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 30.0, "torch_dtype": "bfloat16",
})
model("apertus", "apertus", {
    "head_dim": 20, "num_key_value_heads": 1, "attention_bias": True, "rope_theta": 1e5, "rope_scaling": LLAMA3, "torch_dtype": "bfloat16",
})
model("baichuan2", "baichuan2", {"num_key_value_heads": 4, "torch_dtype": "bfloat16"})
model("nanochat", "nanochat", {
    "num_key_value_heads": 1, "attention_bias": True, "final_logit_softcapping": 6.0, "rope_parameters": DEFAULT,
}, dtype="F32")
EYES41 = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 24, "out_hidden_size": 64, "patch_size": 14}
model("glm4v", "glm4v_text", {
    "num_key_value_heads": 1, "rope_parameters": {**DEFAULT, "rope_theta": 500.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]},
}, whole={
    "architectures": ["Glm4vForConditionalGeneration"], "model_type": "glm4v", "vision_config": EYES41, "image_token_id": 3,
    "video_token_id": 4, "image_start_token_id": 5, "image_end_token_id": 6, "video_start_token_id": 7, "video_end_token_id": 8,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}, prefix=("model.language_model.", ""), beside={"model.visual.post_conv_layernorm.weight": (16,)})
model("baichuan", "baichuan", {"num_key_value_heads": 4, "torch_dtype": "bfloat16"})
model("orion", "orion", {"rms_norm_eps": 1e-3, "rope_theta": 5000.0, "torch_dtype": "bfloat16"})
model("minicpm", "minicpm", {
    "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 16, "num_key_value_heads": 4, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
})
model("dots1", "dots1", {
    "head_dim": 20, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "n_shared_experts": 2,
    "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
    "sliding_window": None, "rope_theta": 1e4, "torch_dtype": "bfloat16",
})
model("glm4_moe", "glm4_moe", {
    "head_dim": 16, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "n_shared_experts": 1,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "norm_topk_prob": False, "routed_scaling_factor": 1.5,
    "use_qk_norm": True, "attention_bias": True, "partial_rotary_factor": 0.5, "rope_theta": 1e4, "torch_dtype": "bfloat16",
})
model("hunyuan_moe", "hunyuan_v1_moe", {
    "head_dim": 20, "num_experts": 5, "moe_topk": [2, 2], "num_experts_per_tok": 2, "intermediate_size": 40, "rope_theta": 1e4,
    "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}, "torch_dtype": "bfloat16",
})
model("deepseek", "deepseek", {
    "n_routed_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "n_shared_experts": 2, "moe_layer_freq": 1,
    "first_k_dense_replace": 1, "norm_topk_prob": False, "scoring_func": "softmax", "torch_dtype": "bfloat16",
})
model("deepseek_v2", "deepseek_v2", {
    "q_lora_rank": None, "kv_lora_rank": 32, "qk_nope_head_dim": 20, "qk_rope_head_dim": 16, "v_head_dim": 12,
    "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "n_shared_experts": 2, "n_group": 4,
    "topk_group": 2, "topk_method": "group_limited_greedy", "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.5, "rope_theta": 1e4, "rms_norm_eps": 0.001, "torch_dtype": "bfloat16",
    "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32, "beta_fast": 32, "beta_slow": 1,
                     "mscale": 0.707, "mscale_all_dim": 0.707},
}, shards=3)
model("deepseek_v3", "deepseek_v3", {
    "q_lora_rank": 24, "kv_lora_rank": 40, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 20, "attention_bias": True,
    "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "n_shared_experts": 1, "n_group": 2,
    "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "first_k_dense_replace": 1, "norm_topk_prob": True,
    "routed_scaling_factor": 2.5, "rope_theta": 1e4, "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16",
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1,
                     "mscale": 1.0, "mscale_all_dim": 1.0},
}, beside={"model.layers.2.eh_proj.weight": (64, 128), "model.layers.2.self_attn.o_proj.weight": (64, 80)})
model("glm4_moe_lite", "glm4_moe_lite", {
    "hidden_size": 60, "q_lora_rank": 20, "kv_lora_rank": 24, "qk_nope_head_dim": 12, "qk_rope_head_dim": 4, "v_head_dim": 24,
    "num_attention_heads": 7, "num_key_value_heads": 7, "n_routed_experts": 6, "num_experts_per_tok": 2,
    "moe_intermediate_size": 40, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
    "routed_scaling_factor": 1.8, "first_k_dense_replace": 1, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
    "dtype": "bfloat16",
})
model("youtu", "youtu", {
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 12, "v_head_dim": 16, "attention_bias": True,
    "rope_interleave": False, "rope_theta": 1.6e6, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}, dtype="F32")
model("minicpm3", "minicpm3", {
    "q_lora_rank": 28, "kv_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 16, "scale_emb": 12,
    "scale_depth": 1.4, "dim_model_base": 16, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "rope_scaling": {"type": "longrope", "long_factor": [1.0, 2.5, 6.0, 20.0], "short_factor": [1.0, 1.1, 1.3, 1.7],
                     "original_max_position_embeddings": 64},
}, tokens=100)
model("axk1", "axk1", {
    "q_lora_rank": 24, "kv_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 16, "v_head_dim": 12, "n_routed_experts": 6,
    "num_experts_per_tok": 2, "moe_intermediate_size": 40, "n_shared_experts": 2, "n_group": 3, "topk_group": 2,
    "mlp_layer_types": ["dense", "sparse"], "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
    "rope_theta": 1e4, "torch_dtype": "bfloat16",
})
MISTRAL4 = {
    "_fused": True, "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 20, "n_routed_experts": 5,
    "num_experts_per_tok": 2, "moe_intermediate_size": 40, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 0, "norm_topk_prob": True, "routed_scaling_factor": 1.5,
    "rope_parameters": {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 32, "rope_theta": 1e4, "mscale": 1.0,
                        "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0, "llama_4_scaling_beta": 0.3},
}
model("mistral4", "mistral4", MISTRAL4, whole=PIXTRAL, prefix=("language_model.model.", "language_model."), beside={PATCH: (16, 3, 14, 14)})
KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "projection_hidden_size": 16, "torch_dtype": "bfloat16",
    "vision_config": {**EYES, "model_type": "kimi_k25_vision", "pos_emb_height": 4, "pos_emb_width": 4},
}
model("kimi_k25", "deepseek_v3", {
    "q_lora_rank": None, "kv_lora_rank": 24, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 7,
    "num_experts_per_tok": 2, "moe_intermediate_size": 40, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.827, "rope_theta": 5e4, "num_nextn_predict_layers": 0,
}, whole=KIMI, prefix=("language_model.model.", "language_model."), beside={"vision_tower.patch_embed.proj.bias": (16,)})
