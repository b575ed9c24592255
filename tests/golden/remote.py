# remote.py: models that transformers does not have, as models that it has: the same numbers under other names. What
# decoder_np.py and make_golden.py compute of them is what they compute of the twin.
import numpy as np


def renamed(w, names):
    out = {}
    for name, a in w.items():
        for old, new in names:
            name = name.replace(old, new)
        out[name] = a
    return out


def llama(cfg, **changes):
    cfg = {**cfg, "architectures": ["LlamaForCausalLM"], "model_type": "llama", **changes}
    return cfg


def internlm2(cfg, w):
    """wqkv has for each head of k its query heads, then k, then v."""
    w = renamed(w, [
        ("model.tok_embeddings", "model.embed_tokens"), ("output.", "lm_head."), ("attention_norm", "input_layernorm"),
        ("ffn_norm", "post_attention_layernorm"), ("attention.wo", "self_attn.o_proj"), ("attention.", "self_attn."),
        ("feed_forward.w1", "mlp.gate_proj"), ("feed_forward.w3", "mlp.up_proj"), ("feed_forward.w2", "mlp.down_proj"),
    ])
    kv, d = cfg["num_key_value_heads"], cfg["hidden_size"] // cfg["num_attention_heads"]
    for name in [n for n in w if ".wqkv." in n]:
        a = w.pop(name)
        a = a.reshape(kv, -1, d, *a.shape[1:])
        for part, b in zip("qkv", (a[:, :-2], a[:, -2], a[:, -1])):
            w[name.replace("wqkv", part + "_proj")] = b.reshape(-1, *a.shape[3:])
    return llama(cfg, attention_bias=cfg["bias"]), w


def exaone(cfg, w):
    w = renamed(w, [
        ("transformer.wte", "model.embed_tokens"), ("transformer.ln_f", "model.norm"), ("transformer.h.", "model.layers."),
        ("ln_1", "input_layernorm"), ("ln_2", "post_attention_layernorm"), ("attn.attention.out_proj", "self_attn.o_proj"),
        ("attn.attention", "self_attn"), ("c_fc_0", "gate_proj"), ("c_fc_1", "up_proj"), ("c_proj", "down_proj"),
    ])
    return llama(cfg, num_hidden_layers=cfg["num_layers"], rms_norm_eps=cfg["layer_norm_epsilon"], hidden_act=cfg["activation_function"]), w


def baichuan(cfg, w):
    w = dict(w)
    for name in [n for n in w if "W_pack" in n]:
        for part, a in zip("qkv", np.split(w.pop(name), 3)):
            w[name.replace("W_pack", part + "_proj")] = a
    return llama(cfg, num_key_value_heads=cfg["num_attention_heads"]), w


def minicpm(cfg, w):
    d = cfg["hidden_size"] // cfg["num_attention_heads"]
    return {
        **cfg, "architectures": ["GraniteForCausalLM"], "model_type": "granite", "embedding_multiplier": cfg["scale_emb"],
        "residual_multiplier": cfg["scale_depth"] / cfg["num_hidden_layers"] ** 0.5, "attention_multiplier": d**-0.5,
        "logits_scaling": cfg["hidden_size"] / cfg["dim_model_base"],
    }, w


TWINS = {"internlm2": internlm2, "exaone": exaone, "baichuan": baichuan, "minicpm": minicpm}


def twin(cfg, w):
    return TWINS[cfg["model_type"]](cfg, w) if cfg.get("model_type") in TWINS else (cfg, w)
