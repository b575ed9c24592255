# make_models.py: tiny random Llamas that between them have every feature of the architecture. Seeded and made with integer arithmetic of our
# own, so that every machine makes the same bytes.      make_models.py DIR
import json
import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import st

BASE = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 259, "rms_norm_eps": 1e-5, "max_position_embeddings": 128, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "bos_token_id": 256, "eos_token_id": 257}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
# name -> what differs from BASE, and the element type of the file
MODELS = {
    "gqa": ({}, "BF16"),
    "tied": ({"tie_word_embeddings": True, "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 1, "rms_norm_eps": 1e-6}, "BF16"),
    "mha": ({"num_key_value_heads": 4, "head_dim": 32, "attention_bias": True, "mlp_bias": True, "rope_theta": 500000.0}, "F32"),
    "llama3": ({"rope_scaling": LLAMA3, "rope_theta": 500000.0, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3}, "BF16"),
    "linear": ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "F16"),
    "dynamic": ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 32, "num_hidden_layers": 1}, "F32"),
    "yarn": ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "max_position_embeddings": 32, "num_key_value_heads": 1}, "BF16"),
}
TOKENS = 100  # also the context that models are opened with: it decides what dynamic scaling does


def noise(seed, n):
    """n numbers between -1 and 1, roughly normal: sums of three of splitmix64's outputs."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, 3 * n + 1, dtype=np.uint64) + np.uint64(seed) * np.uint64(1 << 32)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    u = (z >> np.uint64(40)).astype(np.float64) / 2.0**24
    return (u.reshape(3, n).sum(0) / 1.5 - 1).astype(np.float32)


def shapes(cfg):
    dim, ffn, heads = cfg["hidden_size"], cfg["intermediate_size"], cfg["num_attention_heads"]
    d = cfg.get("head_dim") or dim // heads
    q, kv = heads * d, cfg["num_key_value_heads"] * d
    out = {"model.embed_tokens.weight": (cfg["vocab_size"], dim), "model.norm.weight": (dim,)}
    if not cfg["tie_word_embeddings"]:
        out["lm_head.weight"] = (cfg["vocab_size"], dim)
    for i in range(cfg["num_hidden_layers"]):
        p = f"model.layers.{i}."
        out[p + "input_layernorm.weight"] = out[p + "post_attention_layernorm.weight"] = (dim,)
        for name, n, k in (("self_attn.q_proj", q, dim), ("self_attn.k_proj", kv, dim), ("self_attn.v_proj", kv, dim), ("self_attn.o_proj", dim, q),
                           ("mlp.gate_proj", ffn, dim), ("mlp.up_proj", ffn, dim), ("mlp.down_proj", dim, ffn)):
            out[p + name + ".weight"] = (n, k)
            if cfg.get("attention_bias" if "attn" in name else "mlp_bias"):
                out[p + name + ".bias"] = (n,)
    return out


def weights(cfg, seed):
    out = {}
    for i, (name, shape) in enumerate(sorted(shapes(cfg).items())):
        a = noise(seed * 1000 + i, int(np.prod(shape))).reshape(shape)
        if "norm" in name:
            a = 1 + 0.3 * a
        elif len(shape) == 2:
            a = a * (2.0 if "embed" in name else 2.5 / shape[1] ** 0.5)
        out[name] = a.astype(np.float32)
    return out


def byte_symbols():
    """The printable stand-ins that byte-level BPE gives the 256 bytes."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    table, extra = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + extra)
            extra += 1
    return [table[b] for b in range(256)]


def tokenizer():
    special = [{"id": 256 + i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
               for i, t in enumerate(("<s>", "</s>", "<pad>"))]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                               "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [256], "tokens": ["<s>"]}}},
            "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                      "byte_fallback": False, "ignore_merges": False, "vocab": {s: i for i, s in enumerate(byte_symbols())}, "merges": []}}


def make(folder):
    for seed, (name, (changes, dtype)) in enumerate(MODELS.items(), 1):
        cfg = {**BASE, **changes}
        to = os.path.join(folder, name)
        os.makedirs(to, exist_ok=True)
        st.write(os.path.join(to, "model.safetensors"), weights(cfg, seed), dtype)
        json.dump(cfg, open(os.path.join(to, "config.json"), "w"), indent=1)
        json.dump(tokenizer(), open(os.path.join(to, "tokenizer.json"), "w"))
        ids = (np.abs(noise(seed * 1000 + 999, TOKENS)) * 1e6).astype(np.int64) % 256
        ids[0] = 256
        ids.astype("<i4").tofile(os.path.join(to, "ids.bin"))


if __name__ == "__main__":
    make(sys.argv[1])
