#!/usr/bin/python3
# quantize_large.py LQ: the plan of the largest mixtures there are (`lq quantize --dry-run`): made in seconds, with a header that stays
# small. The checkpoints have every name and shape of such a model; their data is a hole in a file.
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counted import check, end  # noqa: E402

lq = os.path.abspath(sys.argv[1])
SHARD = 4 << 30
# dim, ffn of an expert, layers, experts, heads, heads of k and v, vocabulary
MODELS = {
    "Qwen3-235B-A22B": (4096, 1536, 94, 128, 64, 4, 151936),
    "DeepSeek-V3": (7168, 2048, 58, 256, 64, 64, 129280),
}


def tensors(dim, ffn, layers, experts, heads, kv_heads, vocab):
    hd = dim // heads
    yield "model.embed_tokens.weight", (vocab, dim)
    for i in range(layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (dim,)
        yield p + "post_attention_layernorm.weight", (dim,)
        for n, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            yield f"{p}self_attn.{n}_proj.weight", (rows * hd, dim)
        yield p + "self_attn.o_proj.weight", (dim, heads * hd)
        yield p + "block_sparse_moe.gate.weight", (experts, dim)
        for e in range(experts):
            for n, shape in (("w1", (ffn, dim)), ("w2", (dim, ffn)), ("w3", (ffn, dim))):
                yield f"{p}block_sparse_moe.experts.{e}.{n}.weight", shape
    yield "model.norm.weight", (dim,)
    yield "lm_head.weight", (vocab, dim)


def write_model(folder, dim, ffn, layers, experts, heads, kv_heads, vocab):
    shards, at = [{}], 0
    for name, shape in tensors(dim, ffn, layers, experts, heads, kv_heads, vocab):
        size = 2
        for n in shape:
            size *= n
        if at and at + size > SHARD:
            shards.append({})
            at = 0
        shards[-1][name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    index = {}
    for i, head in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        index.update(dict.fromkeys(head, file))
        text = json.dumps(head).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(folder, file), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            f.truncate(8 + len(text) + max(t["data_offsets"][1] for t in head.values()))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"weight_map": index}, f)
    config = {
        "architectures": ["MixtralForCausalLM"],
        "hidden_size": dim,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "num_local_experts": experts,
        "num_experts_per_tok": 8,
        "vocab_size": vocab,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    }
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    return len(index)


def plan(name, folder):
    write_model(folder, *MODELS[name])
    dim, ffn, layers, experts = MODELS[name][:4]
    out, began = os.path.join(folder, "out.lq"), time.monotonic()
    r = subprocess.run([lq, "quantize", folder, out, "--dry-run", "--threads", "2"], capture_output=True, text=True, timeout=240)
    seconds, said = time.monotonic() - began, r.stdout + r.stderr
    # A disk that is too small for the output is told after the plan.
    check(r.returncode == 0 or "its disk has" in r.stderr, f"{name}: exit {r.returncode}: {r.stderr.strip()}")
    check(f" {7 * layers + 2} matrices in {layers + 2} blocks" in said, f"{name}: experts are not stacks: {said}")
    header = re.search(r"header of at most ([0-9.]+) KB", said)
    check(header and float(header[1]) < 10000, f"{name}: header {header and header[0]}")
    size = re.search(r"about ([0-9.]+) MB", said)
    expert_mb = 3 * layers * experts * dim * ffn * (4 + 16 / 128) / 8 / 1e6
    check(size and expert_mb < float(size[1]) < 1.1 * expert_mb, f"{name}: experts of {expert_mb} MB, {size and size[0]}")
    check(seconds < 15, f"{name}: the plan took {seconds:.1f} s")
    print(f"{name}: planned in {seconds:.1f} s, {header and header[0]}")


for name in MODELS:
    with tempfile.TemporaryDirectory() as folder:
        plan(name, folder)
sys.exit(end())
