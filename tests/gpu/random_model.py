#!/usr/bin/env python3
"""random_model.py OUT [--layers N] [--dim N] [--heads N] [--kv-heads N] [--head-dim N] [--mlp N] [--experts N --used N] [--vocab N] [--context N]
[--gguf FILE]: a Llama of random numbers in bf16 with the demo's tokenizer; as it is with 1.1 billion weights (22 layers, 2048 wide, GQA 32 / 4, 5632 in the
MLP). --experts: a Qwen3 MoE, each of whose MLPs is so many, of which a token has `used`. --gguf: the same numbers once more as llama.cpp reads them, with a
vocabulary made up for it. Speed does not ask what weights say."""
import argparse
import json
import os
import shutil
import struct
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden"))
import st  # noqa: E402

KINDS = {int: (4, "<I"), float: (6, "<f"), str: (8, None)}  # of a value in a GGUF: its number, how it is packed
F32, BF16 = 0, 30  # types of tensors there
ROLES = {"embed_tokens": "token_embd", "lm_head": "output", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "q_proj": "attn_q",
         "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
         "norm": "output_norm", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm", "gate": "ffn_gate_inp"}
MLP = ("gate_proj", "up_proj", "down_proj")


def shapes_of(a):
    """One role's experts follow one another, as a GGUF has them in one tensor."""
    shapes = {"model.embed_tokens.weight": (a.vocab, a.dim), "model.norm.weight": (a.dim,), "lm_head.weight": (a.vocab, a.dim)}
    for i in range(a.layers):
        at = f"model.layers.{i}."
        shapes |= {at + "input_layernorm.weight": (a.dim,), at + "post_attention_layernorm.weight": (a.dim,),
                   at + "self_attn.q_proj.weight": (a.heads * a.head_dim, a.dim), at + "self_attn.k_proj.weight": (a.kv_heads * a.head_dim, a.dim),
                   at + "self_attn.v_proj.weight": (a.kv_heads * a.head_dim, a.dim), at + "self_attn.o_proj.weight": (a.dim, a.heads * a.head_dim)}
        if a.experts:
            shapes |= {at + "self_attn.q_norm.weight": (a.head_dim,), at + "self_attn.k_norm.weight": (a.head_dim,), at + "mlp.gate.weight": (a.experts, a.dim)}
        mlps = [f"mlp.experts.{e}." for e in range(a.experts)] or ["mlp."]
        shapes |= {at + mlp + role + ".weight": (a.dim, a.mlp) if role == "down_proj" else (a.mlp, a.dim) for role in MLP for mlp in mlps}
    return shapes


def tensors_of(a, shapes):
    """The GGUF's names, and shapes."""
    tensors = {}
    for name, shape in shapes.items():
        parts = name.split(".")
        name = (f"blk.{parts[2]}." if parts[1] == "layers" else "") + ROLES[parts[-2]] + ("_exps" if "experts" in parts else "") + ".weight"
        tensors[name] = (a.experts, *shape) if "experts" in parts else shape
    return tensors


def is_f32(name, shape):
    return len(shape) == 1 or name.endswith((".mlp.gate.weight", "ffn_gate_inp.weight"))


def values_of(shapes):
    """Each tensor's bf16: ones for a norm, else a pool of numbers, laid out again and again from another place."""
    rng = np.random.default_rng(7)
    pool = ((rng.standard_normal(1 << 22).astype("f4") * 0.02).view("u4") >> 16).astype("<u2")
    for name, shape in shapes.items():
        n = int(np.prod(shape))
        if len(shape) == 1:
            yield name, np.full(n, 0x3F80, "<u2")
        else:
            yield name, np.tile(np.roll(pool, int(rng.integers(len(pool)))), n // len(pool) + 1)[:n]


def gguf_text(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_value(value):
    if isinstance(value, np.ndarray):
        return struct.pack("<IIQ", 9, 6 if value.dtype == "f4" else 5, len(value)) + value.tobytes()
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(gguf_text, value))
    kind, form = KINDS[type(value)]
    return struct.pack("<I", kind) + (struct.pack(form, value) if form else gguf_text(value))


def gguf_head(a, shapes, config):
    """Norms and routers are f32 there. Q's and K's rows would stand in another order, which random numbers do not know."""
    bytes_of = [f"<0x{i:02X}>" for i in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_of] + [f"t{i}" for i in range(a.vocab - 259)]
    shape = {"context_length": a.context, "embedding_length": a.dim, "block_count": a.layers, "feed_forward_length": a.mlp, "vocab_size": a.vocab,
             "attention.head_count": a.heads, "attention.head_count_kv": a.kv_heads, "rope.dimension_count": a.head_dim,
             "attention.key_length": a.head_dim, "attention.value_length": a.head_dim, "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
             "rope.freq_base": float(config["rope_theta"])}
    if a.experts:
        shape |= {"expert_feed_forward_length": a.mlp, "expert_count": a.experts, "expert_used_count": a.used}
    kind = "qwen3moe" if a.experts else "llama"
    about = {"general.architecture": kind, "general.name": f"random {a.layers} x {a.dim}", "general.file_type": 32,
             **{f"{kind}.{key}": value for key, value in shape.items()},
             "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": -np.arange(a.vocab, dtype="f4"),
             "tokenizer.ggml.token_type": np.array([2, 3, 3] + [6] * 256 + [1] * (a.vocab - 259), "i4"),
             "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0}
    tensors = tensors_of(a, shapes)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(about)) + b"".join(gguf_text(key) + gguf_value(value) for key, value in about.items())
    end = 0
    for name, shape in tensors.items():
        head += gguf_text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        head += struct.pack("<IQ", F32 if is_f32(name, shape) else BF16, end)
        end += -(-int(np.prod(shape)) * (4 if is_f32(name, shape) else 2) // 32) * 32
    return head + bytes(-len(head) % 32)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--gguf")
    for name, value in dict(layers=22, dim=2048, heads=32, kv_heads=4, head_dim=64, mlp=5632, experts=0, used=8, vocab=32000, context=4096).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    a = p.parse_args()
    demo = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "calib_data", "demo")
    with open(os.path.join(demo, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    config |= dict(hidden_size=a.dim, num_hidden_layers=a.layers, num_attention_heads=a.heads, num_key_value_heads=a.kv_heads, head_dim=a.head_dim,
                   intermediate_size=a.mlp, vocab_size=a.vocab, max_position_embeddings=a.context, tie_word_embeddings=False)
    if a.experts:
        config |= dict(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", moe_intermediate_size=a.mlp, num_experts=a.experts,
                       num_experts_per_tok=a.used, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], attention_bias=False)
    shapes = shapes_of(a)
    os.makedirs(a.out, exist_ok=True)
    gguf = open(a.gguf, "wb") if a.gguf else None
    with open(os.path.join(a.out, "model.safetensors"), "wb") as f:
        f.write(st.framed(st.entries(shapes, "BF16")))
        if gguf:
            gguf.write(gguf_head(a, shapes, config))
        for name, values in values_of(shapes):
            f.write(values.tobytes())
            if gguf:
                data = (values.astype("<u4") << 16 if is_f32(name, shapes[name]) else values).tobytes()
                gguf.write(data + bytes(-len(data) % 32))
    if gguf:
        gguf.close()
    with open(os.path.join(a.out, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(demo, name), a.out)


if __name__ == "__main__":
    main()
