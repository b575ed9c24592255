# llama2c.py: a llama2.c model file (version 0) and a sentencepiece vocabulary, read by hand and written as an ordinary checkpoint.
#   llama2c.py MODEL.bin TOKENIZER.model OUT_DIR
import json
import os
import struct
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import spm_to_json
import st


def read(path):
    """config.json's numbers, and name -> f32 array with the names and the rope order of transformers."""
    raw = open(path, "rb").read()
    dim, ffn, layers, heads, kv_heads, vocab, ctx = struct.unpack("<7i", raw[:28])
    flat, at = np.frombuffer(raw, "<f4", offset=28), 0

    def take(*shape):
        nonlocal at
        n = int(np.prod(shape))
        at += n
        return flat[at - n : at].reshape(shape)

    def halves(w, n):  # pairs (2i, 2i+1) of each head become (i, i + d/2)
        return w.reshape(n, -1, 2, w.shape[1]).transpose(0, 2, 1, 3).reshape(w.shape)

    kv, tied, vocab = dim // heads * kv_heads, vocab > 0, abs(vocab)
    out = {"model.embed_tokens.weight": take(vocab, dim)}
    parts = [("input_layernorm", (dim,)), ("self_attn.q_proj", (dim, dim)), ("self_attn.k_proj", (kv, dim)), ("self_attn.v_proj", (kv, dim)),
             ("self_attn.o_proj", (dim, dim)), ("post_attention_layernorm", (dim,)), ("mlp.gate_proj", (ffn, dim)), ("mlp.down_proj", (dim, ffn)), ("mlp.up_proj", (ffn, dim))]
    for name, shape in parts:
        for i, w in enumerate(take(layers, *shape)):
            out[f"model.layers.{i}.{name}.weight"] = halves(w, heads if "q_proj" in name else kv_heads) if "q_proj" in name or "k_proj" in name else w
    out["model.norm.weight"] = take(dim)
    take(ctx * (dim // heads))  # tables of cos and sin
    if not tied:
        out["lm_head.weight"] = take(vocab, dim)
    assert at == len(flat), f"{path}: {at} of {len(flat)} numbers were expected"
    cfg = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": dim, "intermediate_size": ffn, "num_hidden_layers": layers,
           "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab, "max_position_embeddings": ctx, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
           "tie_word_embeddings": tied, "bos_token_id": 1, "eos_token_id": 2}
    return cfg, out


def pieces(path):
    """(text, score, type) of each piece of a sentencepiece model."""
    return spm_to_json.spm_read(path)[0]


def encode(vocab, text):
    """Ids of a text, BOS first: characters (or bytes, or one unknown piece for all that follow each other), then the adjacent pair
    with the best score is merged until none is known."""
    ids_of = {t: i for i, (t, _, kind) in enumerate(vocab) if kind != 6}
    bytes_known = any(kind == 6 for _, _, kind in vocab)
    out = [1]
    for word in split_words(" " + text):
        ids = []
        for c in word.replace(" ", "\u2581"):
            ids += [ids_of[c]] if c in ids_of else [3 + b for b in c.encode()] if bytes_known else [0] if ids[-1:] != [0] else []
        while len(ids) > 1:
            pairs = [(vocab[m][1], -i, m) for i in range(len(ids) - 1) if (m := ids_of.get(vocab[ids[i]][0] + vocab[ids[i + 1]][0], -1)) >= 0]
            if not pairs:
                break
            _, i, m = max(pairs)
            ids[-i : -i + 2] = [m]
        out += ids
    return out


def split_words(text):
    """Pieces that no merge crosses: a space begins a word (pieces have a space only in front)."""
    at = 0
    for i in range(1, len(text)):
        if text[i] == " " and text[i - 1] != " ":
            yield text[at:i]
            at = i
    yield text[at:]


def write(model, tokenizer, out):
    os.makedirs(out, exist_ok=True)
    cfg, w = read(model)
    st.write(os.path.join(out, "model.safetensors"), w, "F32")
    json.dump(cfg, open(os.path.join(out, "config.json"), "w"))
    json.dump(spm_to_json.spm_convert(tokenizer), open(os.path.join(out, "tokenizer.json"), "w"))
    return cfg, w


if __name__ == "__main__":
    write(*sys.argv[1:4])
