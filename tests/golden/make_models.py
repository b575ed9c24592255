# make_models.py: makes the tiny random models of models.py. Seeded and made with integer arithmetic of our own, so that
# every machine makes the same bytes.      make_models.py DIR
import json
import os
import sys
import zlib

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models_gpt
import models_moe  # adds to those of models.py
import st
from models import ARCHS, FILE, MODELS

EVERY = 3  # of the golden logits this row of so many is kept
# Of these also the last hidden states are kept, pooled: one of each way to end a forward.
STATES = ("gqa", "qwen3", "gemma2", "gpt2", "opt_narrow", "opt_plain", "bloom", "granite", "cohere2", "mixtral", "deepseek_v3", "olmo2")
ARCHS = {**ARCHS, **models_gpt.ARCHS}
MODELS = {**MODELS, **{name: (*row[:2], {**FILE, **row[2]}) for name, row in models_gpt.MODELS.items()}}


def tokens(name):
    return MODELS[name][2]["tokens"]


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
    """name -> (shape, what it is), as models_gpt.py has them."""
    if cfg["model_type"] in models_gpt.ARCHS:
        return ARCHS[cfg["model_type"]][2](cfg)
    _, _, layer, (embed, norm, head) = ARCHS[cfg["model_type"]]
    layers, out = (norm or embed).rpartition(".")[0] + (".h." if cfg["model_type"] in ("exaone", "qwen") else ".layers."), {}

    def put(prefix, rows):
        for name, n, k, bias in rows:
            norm = ("norm1p" if cfg["model_type"] in ("gemma", "gemma2", "gemma3_text", "vaultgemma") else "norm") if any(word in name for word in ("norm", "ln_", "layer_scalar")) else "vector"
            what = "embed" if name in (embed, "embed_tokens_per_layer") else "matrix" if k else norm
            if (cfg["model_type"] == "gpt_oss" or cfg.get("_across")) and "experts." in name:
                what = "vector" if "bias" in name else "stack1d"
            full = prefix + name[:-1] if name.endswith("=") else prefix + name + ".weight"
            out[full] = ((*n, k) if k and isinstance(n, tuple) else (n, k) if k else n if n == () else (n,), what)
            if bias:
                out[prefix + name + ".bias"] = ((n,), "norm1p" if norm != "vector" else "vector")

    dim, vocab = cfg["hidden_size"], cfg["vocab_size"]
    put("", [(embed, vocab, dim, False)])
    put("", norm and [(norm, dim, 0, ("layer_norm_eps" in cfg and "logit_scale" not in cfg) or cfg["model_type"] in ("phimoe", "orion"))] or [])
    if not cfg["tie_word_embeddings"]:
        put("", [(head, vocab, dim, cfg.get("lm_head_bias", False))])
    each = cfg.get("hidden_size_per_layer_input")
    if each:  # Gemma 4: what layers are told of a token
        wide = cfg["num_hidden_layers"] * each
        put("model.", [
            ("embed_tokens_per_layer", cfg["vocab_size_per_layer_input"], wide, False),
            ("per_layer_model_projection", wide, dim, False), ("per_layer_projection_norm", each, 0, False),
        ])
    for i in range(cfg["num_hidden_layers"]):
        put(f"{layers}{i}.", layer({**cfg, "layer": i}))
    return out


def weights(cfg, seed):
    out = {}
    for i, (name, (shape, what)) in enumerate(sorted(shapes(cfg).items())):
        a = noise(seed * 1000 + i, int(np.prod(shape))).reshape(shape)
        if name.endswith("act_fn.eps"):  # nothing above it is taken for more
            a = -0.01 - 0.02 * np.abs(a)
        if what in ("norm", "norm1p"):
            a = 0.3 * a + (what == "norm")
        elif what in SCALE:
            a = a * SCALE[what](shape)
        out[name] = a.astype(np.float32)
    return out


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def mx(name, a):
    """Matrices [k][n] of experts as gpt-oss's checkpoints have them: [n][k] in blocks of 32, two codes to a byte."""
    a = np.swapaxes(a, -1, -2)
    a = a.reshape(*a.shape[:-1], -1, 32)
    e = np.floor(np.log2(np.abs(a).max(-1))) - 2
    codes = np.abs(np.abs(a / 2.0 ** e[..., None])[..., None] - FP4).argmin(-1) + 8 * (a < 0)
    return {name + "_blocks": (codes[..., ::2] + 16 * codes[..., 1::2]).astype(np.uint8), name + "_scales": (e + 127).astype(np.uint8)}


def unmixed(w):
    """The same weights with what mx() made as matrices [k][n]."""
    out = {name: a for name, a in w.items() if not name.endswith(("_blocks", "_scales"))}
    for name in (n[:-7] for n in w if n.endswith("_blocks")):
        b = w[name + "_blocks"].astype(np.uint8)
        codes = np.stack([b & 15, b >> 4], -1).reshape(*b.shape[:-1], 32)
        a = np.where(codes & 8, -1, 1) * FP4[codes & 7] * 2.0 ** (w[name + "_scales"].astype(np.float64) - 127)[..., None]
        out[name] = np.swapaxes(a.reshape(*a.shape[:-2], -1), -1, -2)
    return out


SCALE = {
    "embed": lambda shape: 2.0, "matrix": lambda shape: 2.5 / shape[-1] ** 0.5, "conv1d": lambda shape: 2.5 / shape[0] ** 0.5,
    "stack1d": lambda shape: 2.5 / shape[1] ** 0.5,
}


def write(to, tensors, dtype, shards):
    """One file, or shards with an index: the tensors in turn, so that a weight and its bias are in different files."""
    if shards == 1:
        return st.write(os.path.join(to, "model.safetensors"), tensors, dtype)
    names = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    where = {name: names[i % shards] for i, name in enumerate(sorted(tensors))}
    for file in names:
        st.write(os.path.join(to, file), {name: a for name, a in tensors.items() if where[name] == file}, dtype)
    total = sum(a.size for a in tensors.values()) * (4 if dtype == "F32" else 2)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    json.dump(index, open(os.path.join(to, "model.safetensors.index.json"), "w"), indent=1)


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


def wrapped(name, prefix):
    """The name of a tensor in a larger model."""
    return prefix[0] + name[6:] if name.startswith("model.") else prefix[1] + name


def make(folder, only=()):
    for name, (kind, changes, file) in ((n, MODELS[n]) for n in only or MODELS):
        seed = zlib.crc32(name.encode()) % 1000000 + 1  # of its name alone: a row more changes no other model
        arch, base = ARCHS[kind][:2]
        cfg = {"architectures": [arch], "model_type": kind, **base, **changes}
        to = os.path.join(folder, name)
        os.makedirs(to, exist_ok=True)
        w = {wrapped(n, file["prefix"]): a for n, a in weights(cfg, seed).items()}
        for n in [n for n in w if cfg.get("_mx") and n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
            w.update(mx(n, w.pop(n)))
        w.update({n: noise(seed, int(np.prod(shape))).reshape(shape) for n, shape in file["beside"].items()})
        write(to, w, file["dtype"], file["shards"])
        if file["flat"]:
            cfg = {**cfg, **file["whole"]}
        elif file["whole"]:
            cfg = {**file["whole"], "text_config": {k: v for k, v in cfg.items() if k != "architectures"}}
        json.dump(cfg, open(os.path.join(to, "config.json"), "w"), indent=1)
        json.dump(tokenizer(), open(os.path.join(to, "tokenizer.json"), "w"))
        ids = (np.abs(noise(seed * 1000 + 999, tokens(name))) * 1e6).astype(np.int64) % 256
        ids[0] = 256
        ids.astype("<i4").tofile(os.path.join(to, "ids.bin"))


def load(path):
    """config, f64 weights and ids of a model that was made: of its text part under the names that it has alone."""
    files = [f for f in sorted(os.listdir(path)) if f.endswith(".safetensors")]
    w = {k: v if v.dtype == np.uint8 else v.astype(np.float64) for f in files for k, v in st.read(os.path.join(path, f))[0].items()}
    w = {k: a for k, a in unmixed(w).items() if k not in MODELS[os.path.basename(path)][2]["beside"]}
    cfg, (kind, _, file) = json.load(open(os.path.join(path, "config.json"))), MODELS[os.path.basename(path)]
    body, outer = file["prefix"]
    if file["whole"]:
        cfg = {**cfg, "model_type": kind} if file["flat"] else cfg["text_config"]
        w = {
            "model." + k[len(body) :] if k.startswith(body) else k[len(outer) :]: v
            for k, v in w.items()
        }
    return cfg, w, np.fromfile(os.path.join(path, "ids.bin"), "<i4")


if __name__ == "__main__":
    make(sys.argv[1])
