# make_golden.py: the logits that transformers computes in f64 for the models of models.py, written to
# tests/golden/logits, and of some the last hidden states, pooled by the last token and the mean, of length 1 (states). Needs torch and transformers; run by hand when a model is added:    make_golden.py DIR [NAME...]
# (DIR: where make_models.py wrote.) It also proves decoder_np.py, which must agree, shows that what a model is there to
# exercise can be told from its absence, and reports how far the routers are from a tie.
import contextlib
import json
import os
import re
import sys

import numpy as np
import torch
import transformers

import decoder_gemma4
import decoder_np
import make_models
import models_gpt
import remote

# transformers' eager attention adds Falcon's ALiBi twice; what it runs unless told otherwise does not.
ATTENTION = {"falcon_alibi": "sdpa"}

folder, here = sys.argv[1], os.path.dirname(os.path.abspath(__file__))
transformers.logging.set_verbosity_error()


@contextlib.contextmanager
def double():
    """The models cast norms, rope and routers to float32: while this holds, that is f64."""
    kept = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept
        torch.set_default_dtype(torch.float32)


def theirs(name, path, ids):
    """Loads as anybody would, by names; then the same weights in a model built and run in f64."""
    auto = transformers.AutoModelForCausalLM
    if make_models.MODELS[name][2]["whole"]:
        auto = transformers.AutoModelForImageTextToText
    loaded, info = auto.from_pretrained(
        path, dtype=torch.float32, output_loading_info=True
    )
    eyes = ("vision", "mm_projector", "multi_modal_projector", "visual", "resampler")  # of a larger model's other parts a checkpoint has but one
    info["missing_keys"] = {k for k in info["missing_keys"] if not any(word in k for word in eyes)}
    info["unexpected_keys"] = set(info["unexpected_keys"]) - set(make_models.MODELS[name][2]["beside"])
    assert not any(info.values()), info
    state = {k: v.double() for k, v in loaded.state_dict().items()}
    with double(), torch.no_grad():
        config = transformers.AutoConfig.from_pretrained(path)
        config.dtype = None
        tied = loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight  # as it was found to be
        config.tie_word_embeddings = config.get_text_config().tie_word_embeddings = tied
        model = (
            type(loaded)
            ._from_config(config, attn_implementation=ATTENTION.get(name, "eager"), experts_implementation="eager", dtype=torch.float64)
            .eval()
        )
        model.load_state_dict(state, strict=True)
        seen = [t for n, t in [*model.named_parameters(), *model.named_buffers()] if not any(word in n for word in eyes)]
        assert all(t.dtype in (torch.float64, torch.int64, torch.bool) for t in seen)
        given = torch.tensor(ids.astype(np.int64))[None]
        return model(given).logits[0].numpy(), model.base_model(given).last_hidden_state[0].numpy()


def unbiased(cfg, w):
    """The same weights without the biases of one kind of tensor, by name."""
    for end in sorted({re.sub(r"^.*?\.\d+\.", "", name) for name in w if name.endswith(".bias")}):
        still = cfg["model_type"] in ("opt", "biogpt") or cfg.get("position_embedding_type") == "nope"
        if still and "k_proj" in end:
            continue  # adds the same to all scores of a row, where no rope turns q and k
        yield "no " + end, {name: 0 * a if name.endswith(end) else a for name, a in w.items()}


def unshared(w):
    """Without an expert that all rows share, or its score; without sinks, or what experts add."""
    for part in (
        "act_fn.alpha_p", "act_fn.alpha_n", "act_fn.beta", "act_fn.eps",
        "e_score_correction_bias", "mlp.expert_bias", "self_attn.gate_proj", "attention_sink_bias", "shared_experts.down_proj", "shared_mlp.down_proj", "self_attn.sinks", "gate_up_proj_bias", "down_proj_bias", "shared_expert.down_proj", "shared_expert_gate", "shared_mlp.output_linear"):
        if any(part in name for name in w):
            yield "no " + part, {name: 0 * a if part in name else a for name, a in w.items()}


def without(cfg):
    """The same config with one of its features wrong, by name."""
    rope = cfg.get("rope_parameters") or cfg.get("rope_scaling") or {}
    if any(cfg.get(k) for k in ("sliding_window",)) and cfg.get("use_sliding_window", True):
        yield "window + 1", {**cfg, "sliding_window": cfg["sliding_window"] + 1}
        yield "window - 1", {**cfg, "sliding_window": cfg["sliding_window"] - 1}
    if "max_window_layers" in cfg and cfg.get("use_sliding_window") and "layer_types" not in cfg:
        yield "a layer more with a window", {**cfg, "max_window_layers": cfg["max_window_layers"] - 1}
    if "sliding_attention" in cfg.get("layer_types", []) and cfg["model_type"] != "gemma4_text":  # whose shapes follow
        yield "layer_types", {k: v for k, v in cfg.items() if k != "layer_types"}
    if "long_factor" in rope:
        key = "rope_parameters" if "rope_parameters" in cfg else "rope_scaling"
        yield "the other factors", {
            **cfg,
            key: {**rope, "long_factor": rope["short_factor"], "short_factor": rope["long_factor"]},
        }
        if "short_mscale" not in rope:
            yield "attention factor 1", {**cfg, key: {**rope, "attention_factor": 1.0}}
    kind = decoder_np.KINDS.get(cfg["model_type"], {})
    for key in ("one", "qk", "late", "pairs", "post", "local", "backward", "inward"):
        if kind.get(key, decoder_np.LLAMA[key]) != decoder_np.LLAMA[key] and (key != "pairs" or cfg.get("rope_interleave", True)):
            yield f"without {key}: {kind[key]}", {**cfg, "without": {key: decoder_np.LLAMA[key]}}
    for key in ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"):
        if key in cfg:
            yield "no " + key, {**cfg, key: 1.0}
    for key in ("scale_emb", "scale_depth", "dim_model_base"):
        if key in cfg:
            yield "another " + key, {**cfg, key: 2 * cfg[key]}
    if cfg["model_type"] == "smollm3":
        yield "positions everywhere", {**cfg, "no_rope_layers": [1] * cfg["num_hidden_layers"]}
    if cfg["model_type"] in ("exaone4", "exaone_moe") and cfg["sliding_window"]:
        twin = "olmo2" if cfg["model_type"] == "exaone4" else "dots1"
        yield "positions everywhere", {**cfg, "model_type": twin, "without": {**kind, "every": 4}}
    if "llama_4_scaling_beta" in rope:
        yield "no llama_4_scaling_beta", {**cfg, "rope_parameters": {**rope, "llama_4_scaling_beta": 0.0}}
    if cfg["model_type"] == "baichuan2":
        yield "rows as they are", {**cfg, "model_type": "baichuan"}
    if "alpha" in rope:
        yield "another alpha", {**cfg, "rope_scaling": {**rope, "alpha": rope["alpha"] * 1.1}}
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if cfg.get(key):
            yield "no " + key, {**cfg, key: None}
    if "query_pre_attn_scalar" in cfg:
        yield "q scaled by its width", {k: v for k, v in cfg.items() if k != "query_pre_attn_scalar"}
    if cfg["model_type"] == "gpt_neox":
        yield "the other residual", {**cfg, "use_parallel_residual": not cfg.get("use_parallel_residual", True)}
        yield "the other gelu", {**cfg, "hidden_act": "gelu" if cfg["hidden_act"] == "gelu_new" else "gelu_new"}
    if cfg["model_type"] == "gpt_oss":
        yield "another limit", {**cfg, "swiglu_limit": 7.0}
        yield "another alpha", {**cfg, "swiglu_alpha": 1.0}
    if cfg.get("topk_group", 1) < cfg.get("n_group", 1):
        yield "all groups", {**cfg, "topk_group": cfg["n_group"]}
    if "attention_chunk_size" in cfg:
        yield "chunk + 1", {**cfg, "attention_chunk_size": cfg["attention_chunk_size"] + 1}
        yield "the other use_qk_norm", {**cfg, "use_qk_norm": not cfg["use_qk_norm"]}
        yield "positions everywhere", {**cfg, "no_rope_layers": [1] * cfg["num_hidden_layers"]}
    if "expert_selection_fn" in cfg:
        yield "the other expert_selection_fn", {
            **cfg, "expert_selection_fn": {"softmax": "sigmoid", "sigmoid": "softmax"}[cfg["expert_selection_fn"]], "norm_topk_prob": False,
        }
        strategy = {"sum": "average", "average": "sum"}[cfg["shared_expert_combination_strategy"]]
        yield "the other strategy", {**cfg, "shared_expert_combination_strategy": strategy}
        pattern = 3 - cfg["prefix_dense_sliding_window_pattern"]
        yield "the other pattern", {**cfg, "prefix_dense_sliding_window_pattern": pattern}
        yield "no logit_scale", {**cfg, "logit_scale": 1.0}
    if cfg.get("mup_enabled"):
        yield "no mup_enabled", {**cfg, "mup_enabled": False}
    if cfg.get("attn_temperature_tuning"):
        yield "no attn_temperature_tuning", {**cfg, "attn_temperature_tuning": False}
        yield "floor_scale + 1", {**cfg, "floor_scale": cfg["floor_scale"] + 1}
    if cfg.get("attention_value_scale"):
        yield "no attention_value_scale", {**cfg, "attention_value_scale": None}
    if "sliding_window_size" in cfg:
        yield "window + 1", {**cfg, "sliding_window_size": cfg["sliding_window_size"] + 1}
    for key in ("routed_scaling_factor", "router_scaling_factor", "route_scale"):
        if cfg.get(key) not in (None, 1.0):
            yield "no " + key, {**cfg, key: 1.0}
    if cfg.get("clip_qkv"):
        yield "no clip_qkv", {**cfg, "clip_qkv": None}
    if "rope_interleave" in cfg:
        yield "the other rope_interleave", {**cfg, "rope_interleave": not cfg["rope_interleave"]}
    if "mscale_all_dim" in rope and "kv_lora_rank" in cfg:  # which the scores have
        key = "rope_parameters" if "rope_parameters" in cfg else "rope_scaling"
        yield "no mscale_all_dim", {**cfg, key: {**rope, "attention_factor": 1.0, "mscale_all_dim": 0}}
    if rope.get("truncate") is False:
        yield "truncate", {**cfg, "rope_scaling": {**rope, "truncate": True}}
    if "norm_topk_prob" in cfg and cfg["model_type"] != "flex_olmo":  # whose norm behind the experts takes factors away
        yield "the other norm_topk_prob", {**cfg, "norm_topk_prob": not cfg["norm_topk_prob"]}
    if "router_jitter_noise" in cfg:
        yield "no router_jitter_noise", {**cfg, "router_jitter_noise": 0.0}
    if "mscale" in str(rope.keys()) and "long_factor" in rope:
        yield "no mscale", {**cfg, "rope_scaling": {**rope, "short_mscale": 1.0, "long_mscale": 1.0}}
    if "moe_k" in cfg:
        yield "one expert less", {**cfg, "moe_k": cfg["moe_k"] - 1}
    if cfg.get("num_experts_per_tok") and cfg["model_type"] != "phimoe":
        yield "one expert less", {**cfg, "num_experts_per_tok": cfg["num_experts_per_tok"] - 1}
    for less in decoder_gemma4.FEATURES if cfg["model_type"] == "gemma4_text" else ():
        if decoder_gemma4.has(cfg, less):
            yield "no " + less, {**cfg, "_less": less}
    yield from models_gpt.without(cfg)


for kind in ("logits", "states"):
    os.makedirs(os.path.join(here, kind), exist_ok=True)
for name in sys.argv[2:] or make_models.MODELS:
    cfg, w, ids = make_models.load(os.path.join(folder, name))
    path = os.path.join(folder, name)
    # mxfp4 transformers has for GPUs alone: the same numbers in bf16, which holds them. Or a model that it does not have.
    if cfg.get("_mx") or cfg["model_type"] in remote.TWINS:
        path += ".plain"
        os.makedirs(path, exist_ok=True)
        plain, numbers = remote.twin(cfg, w)
        make_models.write(path, numbers, "F32", 1)
        plain = {k: v for k, v in plain.items() if k != "quantization_config"}
        json.dump(plain, open(os.path.join(path, "config.json"), "w"))
    golden, states = theirs(name, path, ids)
    if name in make_models.STATES:
        vectors = np.stack([states[-1], states.mean(0)])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        np.save(os.path.join(here, "states", name + ".npy"), vectors.astype(np.float32))
    ours, bound = decoder_np.forward(cfg, w, ids, ctx=len(ids)), decoder_np.bound(cfg, w, ids)
    np.save(os.path.join(here, "logits", name + ".npy"), golden[:: make_models.EVERY].astype(np.float32))
    off, margin = np.abs(golden - ours).max(), decoder_np.margin(cfg, w, ids)
    print(
        f"{name}: |transformers - numpy| {off:.1e}, logits up to {np.abs(golden).max():.2f}, "
        f"f32 bound {bound.min():.1e} to {bound.max():.1e}",
        end="",
    )
    print(f", routers' margin {margin:.1e}" if margin < np.inf else "")
    variants = [(what, wrong, w) for what, wrong in without(cfg)] + [
        (what, cfg, wrong) for what, wrong in [*unbiased(cfg, w), *unshared(w)]
    ]
    for what, wrong, of in variants:
        seen = (np.abs(decoder_np.forward(wrong, of, ids, ctx=len(ids)) - golden).max(-1) / bound)[
            :: make_models.EVERY
        ].max()
        print(f"    {what}: {seen:.0f} bounds off")
        assert seen > 10
    assert off < 1e-6 and margin > 1e-4
