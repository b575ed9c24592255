#!/usr/bin/env python3
"""Makes the demo model in demo/: a byte-level BPE tokenizer and a small Llama, both trained on make_text.py's text.

Owns: the model in plain torch, the training loop, and the writers of Hugging Face style files.
Needs: Python 3, numpy, torch 2.5 or later and a C++ compiler for it.
Run:   python3 calib_data/train_demo.py --out calib_data/demo
"""
import argparse
import itertools
import json
import math
import os
import random
import re
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

import make_text
from bpe import ASSISTANT, BEGIN, END, SPECIALS, USER, VOCAB, Tokenizer, train_merges

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../tests/golden"))
import st  # noqa: E402: safetensors

SHAPE = dict(hidden_size=256, num_hidden_layers=5, num_attention_heads=8, num_key_value_heads=4, head_dim=32,
             intermediate_size=768, vocab_size=VOCAB, max_position_embeddings=1024, rms_norm_eps=1e-5, rope_theta=10000.0)

# ---- data -------------------------------------------------------------------------------------------------------


def encode_turns(tok, turns):
    """One document: plain text, or turns of a chat; every answer ends with <|end|>, as the chat template writes it."""
    ids = [BEGIN]
    for role, text in turns:
        ids += [USER] if role == "user" else [ASSISTANT] if role == "assistant" else []
        ids += tok.encode(text)
        ids += [END] if role == "assistant" else []
    return ids if ids[-1] == END else ids + [END]


def encode_documents(tok, docs, rng):
    """Encodes documents; two fifths of the plain ones are joined by blank lines, as they stand in calib.txt."""
    out, joined, want = [], [], 0
    for turns in docs:
        if len(turns) > 1 or (not joined and rng.random() > 0.12):
            out.append(encode_turns(tok, turns))
            continue
        want = want or rng.randint(2, 9)
        joined.append(turns[0][1])
        if len(joined) == want:
            out.append(encode_turns(tok, [("text", "\n\n".join(joined))]))
            joined, want = [], 0
    return out


def take(docs, size):
    """Documents until their text reaches size bytes."""
    out = []
    while size > 0:
        out.append(next(docs))
        size -= sum(len(text.encode("utf-8")) for _, text in out[-1])
    return out


def batch(stream, starts, rows, length, rng):
    """Rows of the stream; three quarters begin where a document begins, the others anywhere."""
    last = len(stream) - length - 1
    at = [rng.choice(starts) if rng.random() < 0.75 else rng.randint(0, last) for _ in range(rows)]
    x = torch.stack([stream[min(a, last):][:length + 1] for a in at]).long()
    return x[:, :-1], x[:, 1:]


# ---- model: the attribute names are those of the checkpoint -----------------------------------------------------


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + SHAPE["rms_norm_eps"]) * self.weight


def rotate(x, cos, sin):
    """Rotary positions on [batch][head][token][dim], where dimension i turns with dimension i + dim / 2."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Attention(nn.Module):
    def __init__(self, dim, heads, kv_heads, head_dim):
        super().__init__()
        self.kv_heads, self.head_dim = kv_heads, head_dim
        self.q_proj = nn.Linear(dim, heads * head_dim, bias=False)
        self.k_proj = nn.Linear(dim, kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(dim, kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(heads * head_dim, dim, bias=False)

    def forward(self, x, rope, mask):
        rows, length, _ = x.shape
        heads = lambda y: y.view(rows, length, -1, self.head_dim).transpose(1, 2)
        q, k, v = rotate(heads(self.q_proj(x)), *rope), rotate(heads(self.k_proj(x)), *rope), heads(self.v_proj(x))
        group = q.shape[1] // self.kv_heads
        flat = lambda y: y.reshape(rows * self.kv_heads, -1, self.head_dim).to(v.dtype)  # a kv head's queries: one matrix
        score = torch.bmm(flat(q * self.head_dim ** -0.5), flat(k).transpose(1, 2)).view(-1, group, length, length)
        mixed = torch.bmm(torch.softmax(score + mask, -1).to(v.dtype).view(-1, group * length, length), flat(v))
        return self.o_proj(mixed.view(rows, -1, length, self.head_dim).transpose(1, 2).reshape(rows, length, -1))


class Mlp(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.gate_proj = nn.Linear(dim, inner, bias=False)
        self.up_proj = nn.Linear(dim, inner, bias=False)
        self.down_proj = nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = Norm(c["hidden_size"])
        self.self_attn = Attention(c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"])
        self.post_attention_layernorm = Norm(c["hidden_size"])
        self.mlp = Mlp(c["hidden_size"], c["intermediate_size"])

    def forward(self, x, rope, mask):
        x = x + self.self_attn(self.input_layernorm(x), rope, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"])


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.model = Body(c)
        turn = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2).float() / c["head_dim"])
        angle = torch.outer(torch.arange(c["max_position_embeddings"]).float(), turn).repeat(1, 2)
        self.cos, self.sin = angle.cos(), angle.sin()
        for name, p in self.named_parameters():
            if p.dim() == 2:
                deep = (2 * c["num_hidden_layers"]) ** -0.5 if re.search("o_proj|down_proj", name) else 1.0
                nn.init.normal_(p, std=0.06 if "embed" in name else deep * p.shape[1] ** -0.5)

    def forward(self, ids):
        length = ids.shape[1]
        mask = torch.full((length, length), -1e4).triu(1)
        rope = self.cos[:length], self.sin[:length]
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, rope, mask)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)


# ---- training ---------------------------------------------------------------------------------------------------


def rate(step, steps, peak):
    warm = min(1.0, (step + 1) / min(200, steps / 4))
    return peak * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def optimizer(parameters, peak):
    matrices, vectors = [p for p in parameters if p.dim() == 2], [p for p in parameters if p.dim() < 2]
    return torch.optim.AdamW([dict(params=matrices, weight_decay=0.05), dict(params=vectors, weight_decay=0.0)],
                             lr=peak, betas=(0.9, 0.97))


def train(model, docs, args, save):
    """AdamW with a cosine; every 16th step sees long rows, so that positions up to 1024 are learned."""
    stream = torch.tensor([i for d in docs for i in d], dtype=torch.int16)
    starts = (stream == BEGIN).nonzero().flatten().tolist()
    rng = random.Random(args.seed + 1)
    opt = optimizer(list(model.parameters()), args.rate)
    fast = torch.compile(model, dynamic=False)
    begun, recent = time.time(), []
    for step in range(args.steps):
        rows, length = (args.rows, 256) if step % 16 != 15 else (max(1, args.rows // 4), 1024)
        x, y = batch(stream, starts, rows, length, rng)
        for group in opt.param_groups:
            group["lr"] = rate(step, args.steps, args.rate)
        with torch.autocast("cpu", torch.bfloat16):  # weights and residual stay in f32
            logits = fast(x)
        loss = F.cross_entropy(logits.float().view(-1, VOCAB), y.reshape(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        recent.append(loss.item())
        if (step + 1) % 100 == 0 or step + 1 == args.steps:
            print(f"step {step + 1:5d}  loss {sum(recent) / len(recent):.4f}  {time.time() - begun:6.0f} s", flush=True)
            last, recent = sum(recent) / len(recent), []
        if (step + 1) % 1000 == 0:
            save()
    return last


@torch.no_grad()
def evaluate(model, tok, text, window=512):
    """Loss of a text in nats per token and bits per byte, in windows that each begin with <|begin|>."""
    ids = tok.encode(text)
    total = 0.0
    for at in range(0, len(ids), window - 1):
        part = torch.tensor([[BEGIN] + ids[at:at + window - 1]])
        total += F.cross_entropy(model(part[:, :-1])[0], part[0, 1:], reduction="sum").item()
    return total / len(ids), total / math.log(2) / len(text.encode("utf-8"))


@torch.no_grad()
def generate(model, ids, number):
    """Greedy; returns only what is new."""
    new = []
    while len(new) < number and END not in new:
        new.append(model(torch.tensor([ids + new]))[0, -1].argmax().item())
    return new


# ---- files ------------------------------------------------------------------------------------------------------


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1, ensure_ascii=False)
        f.write("\n")


TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '<|user|>' + message['content'] }}"
    "{% elif message['role'] == 'assistant' %}{{ '<|assistant|>' + message['content'] + eos_token }}"
    "{% elif message['role'] == 'system' and loop.first %}{{ message['content'] }}"
    "{% else %}{{ raise_exception('unknown role or misplaced system message: ' + message['role']) }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")


def write_model(out, model, tok):
    os.makedirs(out, exist_ok=True)
    st.write(f"{out}/model.safetensors", {n: p.detach().numpy() for n, p in model.named_parameters()})
    ids = dict(bos_token_id=BEGIN, eos_token_id=END)
    write_json(f"{out}/config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", **SHAPE, **ids, "attention_bias": False,
        "attention_dropout": 0.0, "hidden_act": "silu", "initializer_range": 0.02, "mlp_bias": False,
        "pretraining_tp": 1, "rope_scaling": None, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        "use_cache": True})
    write_json(f"{out}/generation_config.json", {**ids, "do_sample": True, "temperature": 0.7, "top_p": 0.95})
    write_json(f"{out}/tokenizer.json", tok.json())
    write_json(f"{out}/tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True, "add_eos_token": False,
        "bos_token": SPECIALS[0], "eos_token": SPECIALS[1], "clean_up_tokenization_spaces": False,
        "model_max_length": SHAPE["max_position_embeddings"], "chat_template": TEMPLATE,
        "added_tokens_decoder": {str(i): dict(content=SPECIALS[i - BEGIN], lstrip=False, normalized=False, rstrip=False,
                                              single_word=False, special=True) for i in range(BEGIN, VOCAB)}})


PROMPTS = [[("text", "Once upon a time")], [("text", "Q:")],
           [("user", "Tell me a story about a fox named Pim."), ("assistant", "")],
           [("user", "What is 7 + 5?"), ("assistant", "")]]


def report(model, tok, last):
    """Rounds the weights to bf16, as they were written, and prints the losses and samples of that model."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.bfloat16().float())
    print(f"train loss {last:.4f} nats per token (the last steps)")
    for name in ("calib.txt", "test.txt"):
        with open(os.path.join(HERE, name), encoding="utf-8") as f:
            nats, bits = evaluate(model, tok, f.read())
        print(f"{name}: {nats:.4f} nats per token, perplexity {math.exp(nats):.3f}, {bits:.4f} bits per byte")
    for turns in PROMPTS:
        ids = encode_turns(tok, turns)[:-1]
        print("---", tok.decode(ids), "=>", tok.decode(generate(model, ids, 200)), sep="\n")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--out", default=os.path.join(HERE, "demo"))
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--bytes", type=int, default=96_000_000, help="training text")
    p.add_argument("--steps", type=int, default=10000)
    p.add_argument("--rows", type=int, default=16, help="rows of 256 tokens in a step")
    p.add_argument("--rate", type=float, default=3e-3)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    plain = make_text.documents("train", args.seed)
    sample = "\n\n".join(text for turns in itertools.islice(plain, 8000) for _, text in turns)
    tok = Tokenizer(train_merges(sample, VOCAB - 256 - len(SPECIALS)))
    docs = take(make_text.documents("train", args.seed + 1, inventive=True), args.bytes)
    encoded = encode_documents(tok, docs, random.Random(args.seed))
    print(f"{len(docs)} documents, {sum(map(len, encoded))} tokens", flush=True)
    model = Llama(SHAPE)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    last = train(model, encoded, args, lambda: write_model(args.out, model, tok))
    write_model(args.out, model, tok)
    report(model, tok, last)


if __name__ == "__main__":
    main()
