#!/usr/bin/python3
# check_names.py LQ: checkpoints that spell or spread the same numbers otherwise (fused or apart, in shards, with buffers
# that older exporters write) give the same bits; what lacks a part, or has one of another shape, is refused in one line
# that names it.
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, ".."))
import make_models
import st
from counted import check, end

dump = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "dump_logits")
KINDS = {"phi3": "BF16", "neox": "F16", "mixtral": "BF16", "qwen2_window": "F32"}


def run(path):
    out = os.path.join(path, "out.bin")
    cmd = [dump, path, os.path.join(path, "ids.bin"), out, "100", "auto", "2", "512", "exact"]
    r = subprocess.run(cmd, capture_output=True, text=True)
    return open(out, "rb").read() if r.returncode == 0 else None, r.stderr.strip()


def variant(folder, model, change, shards=1):
    """A copy of a model whose tensors and config went through change(tensors, config)."""
    source, to = os.path.join(folder, model), os.path.join(folder, "variant")
    shutil.rmtree(to, ignore_errors=True)
    os.makedirs(to)
    for file in ("tokenizer.json", "ids.bin"):
        shutil.copy(os.path.join(source, file), to)
    cfg, w, _ = make_models.load(source)
    change(w, cfg)
    json.dump(cfg, open(os.path.join(to, "config.json"), "w"))
    make_models.write(to, w, KINDS[model], shards)
    return to


def renamed(w, old, new):
    for name in [n for n in w if old in n]:
        w[name.replace(old, new)] = w.pop(name)


# --- the same numbers ---


def phi3_apart(w, cfg):
    d = cfg["hidden_size"] // cfg["num_attention_heads"]
    cuts = np.cumsum([cfg["num_attention_heads"] * d, cfg["num_key_value_heads"] * d])
    for name in [n for n in w if "qkv_proj" in n or "gate_up_proj" in n]:
        parts, whole = (("q", "k", "v"), "qkv") if "qkv" in name else (("gate", "up"), "gate_up")
        for part, a in zip(parts, np.split(w.pop(name), cuts if whole == "qkv" else 2)):
            w[name.replace(whole, part)] = a


def neox_buffers(w, cfg):
    for i in range(cfg["num_hidden_layers"]):
        p = f"gpt_neox.layers.{i}.attention."
        w[p + "bias"] = np.tril(np.ones((1, 1, 128, 128)))
        w[p + "masked_bias"] = np.array(-10000.0)
        w[p + "rotary_emb.inv_freq"] = np.ones(2)


def neox_bare(w, cfg):
    renamed(w, "gpt_neox.", "")


def tied_head(w, cfg):
    w["lm_head.weight"] = w["model.embed_tokens.weight"]


def nothing(w, cfg):
    pass


SAME = [
    ("phi3", phi3_apart, 1),
    ("phi3", phi3_apart, 4),
    ("phi3", nothing, 5),
    ("neox", nothing, 1),
    ("neox", nothing, 7),
    ("neox", neox_buffers, 2),
    ("neox", neox_bare, 3),
    ("mixtral", nothing, 9),
    ("qwen2_window", tied_head, 1),
    ("qwen2_window", nothing, 2),
]

# --- what must be refused, and what the line must say ---


def without(name):
    return lambda w, cfg: w.pop(name)


def cut(name, rows):
    def change(w, cfg):
        w[name] = w[name][:rows]

    return change


def set_to(**keys):
    return lambda w, cfg: cfg.update(keys)


def stranger(name):
    def change(w, cfg):
        w[name] = np.ones((4, 4))

    return change


NEOX, MOE, QWEN = "gpt_neox.layers.1.", "model.layers.1.block_sparse_moe.", "model.layers.1.self_attn."
REFUSED = [
    ("neox", lambda w, cfg: renamed(w, "gpt_neox.layers", "layers"), "layers.0"),
    ("neox", without(NEOX + "attention.query_key_value.weight"), "layers.1.attention.query"),
    ("neox", without(NEOX + "attention.query_key_value.bias"), "layers.1.attention.query"),
    ("neox", without(NEOX + "post_attention_layernorm.bias"), "layers.1.post_attention_layernorm.bias"),
    ("neox", cut(NEOX + "attention.query_key_value.weight", -1), "layers.1.attention.query_key_value.weight"),
    ("neox", cut(NEOX + "attention.query_key_value.bias", -16), "layers.1.attention.query_key_value.bias"),
    ("neox", set_to(attention_bias=False), "bias"),
    ("phi3", cut("model.layers.0.self_attn.qkv_proj.weight", 100), "layers.0.self_attn.qkv_proj.weight"),
    ("phi3", cut("model.layers.0.mlp.gate_up_proj.weight", -2), "layers.0.mlp.gate_up_proj.weight"),
    (
        "phi3",
        set_to(rope_scaling={"type": "longrope", "short_factor": [1.0] * 5, "long_factor": [1.0] * 6}),
        "short_factor",
    ),
    ("mixtral", without(MOE + "experts.7.w2.weight"), "layers.1.block_sparse_moe.experts.7.w2.weight"),
    ("mixtral", without(MOE + "gate.weight"), "layers.1.block_sparse_moe.gate.weight"),
    ("mixtral", cut(MOE + "experts.3.w1.weight", 48), "layers.1.block_sparse_moe.experts.3.w1.weight"),
    ("mixtral", stranger(MOE + "experts.8.w1.weight"), "layers.1.block_sparse_moe.experts.8.w1.weight"),
    ("mixtral", set_to(num_experts_per_tok=9), "num_experts_per_tok"),
    ("mixtral", set_to(num_local_experts=0), "num_local_experts"),
    ("qwen2_window", without(QWEN + "k_proj.bias"), "layers.1.self_attn.k_proj.bias"),
    ("qwen2_window", stranger(QWEN + "o_proj.bias"), "layers.1.self_attn.o_proj.bias"),
    ("qwen2_window", set_to(layer_types=["sliding_attention", "full_attention"]), "layer_types"),
    ("qwen2_window", set_to(layer_types=["sliding_attention", "full_attention", "linear_attention"]), "layer_types"),
    ("qwen2_window", set_to(sliding_window=-3), "sliding_window"),
]

with tempfile.TemporaryDirectory() as folder:
    make_models.make(folder)
    for model, change, shards in SAME:
        want, _ = run(os.path.join(folder, model))
        got, why = run(variant(folder, model, change, shards))
        check(got is not None and got == want, f"{model} {change.__name__} in {shards} files: {why or 'other bits'}")
    for model, change, word in REFUSED:
        got, why = run(variant(folder, model, change))
        check(got is None and word in why and "\n" not in why, f"{model}, {word}: {'was taken' if got else why}")
sys.exit(end())
