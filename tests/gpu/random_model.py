#!/usr/bin/env python3
"""random_model.py OUT: a Llama of random numbers with 1.1 billion weights (22 layers, 2048 wide, GQA 32 / 4, 5632 in the MLP) in bf16, with the demo's
tokenizer. Speed does not ask what weights say."""
import json
import os
import shutil
import struct
import sys

import numpy as np

LAYERS, DIM, HEADS, KV, HEAD, FFN, VOCAB = 22, 2048, 32, 4, 64, 5632, 32000
out = sys.argv[1]
demo = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "calib_data", "demo")
os.makedirs(out, exist_ok=True)
shapes = {"model.embed_tokens.weight": (VOCAB, DIM), "model.norm.weight": (DIM,), "lm_head.weight": (VOCAB, DIM)}
for i in range(LAYERS):
    at = f"model.layers.{i}."
    shapes |= {at + "input_layernorm.weight": (DIM,), at + "post_attention_layernorm.weight": (DIM,),
               at + "self_attn.q_proj.weight": (HEADS * HEAD, DIM), at + "self_attn.k_proj.weight": (KV * HEAD, DIM),
               at + "self_attn.v_proj.weight": (KV * HEAD, DIM), at + "self_attn.o_proj.weight": (DIM, HEADS * HEAD),
               at + "mlp.gate_proj.weight": (FFN, DIM), at + "mlp.up_proj.weight": (FFN, DIM), at + "mlp.down_proj.weight": (DIM, FFN)}
head, end = {}, 0
for name, shape in shapes.items():
    size = 2 * int(np.prod(shape))
    head[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
    end += size
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
rng = np.random.default_rng(7)
pool = (rng.standard_normal(1 << 22).astype("f4") * 0.02).view("u4") >> 16  # of bf16, laid out again and again from another place
pool = pool.astype("<u2")
with open(os.path.join(out, "model.safetensors"), "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    for name, shape in shapes.items():
        n = int(np.prod(shape))
        if len(shape) == 1:
            f.write(np.full(n, 0x3F80, "<u2").tobytes())
            continue
        first = int(rng.integers(len(pool)))
        f.write(np.tile(np.roll(pool, first), n // len(pool) + 1)[:n].tobytes())
with open(os.path.join(demo, "config.json"), encoding="utf-8") as f:
    config = json.load(f)
config |= dict(hidden_size=DIM, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV, head_dim=HEAD, intermediate_size=FFN, vocab_size=VOCAB,
               max_position_embeddings=4096, tie_word_embeddings=False)
with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as f:
    json.dump(config, f, indent=1)
for name in ("tokenizer.json", "tokenizer_config.json"):
    shutil.copy(os.path.join(demo, name), out)
