#!/usr/bin/env python3
"""Makes the demo model in demo/: a byte-level BPE tokenizer and a small Llama, both trained on make_text.py's text.

Owns: the tokenizer trainer, the model in plain torch, the training loop, and the writers of Hugging Face style files.
Needs: Python 3 and torch (1.13 or later), nothing else.
Run:   OMP_NUM_THREADS=1 python3 calib_data/train_demo.py --out calib_data/demo
"""
import argparse
import json
import math
import os
import random
import re
import struct
import time
from collections import Counter, defaultdict

import torch
from torch import nn
from torch.nn import functional as F

import make_text

HERE = os.path.dirname(os.path.abspath(__file__))
SPECIALS = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>"]
VOCAB = 1024
BEGIN, END, USER, ASSISTANT = range(VOCAB - len(SPECIALS), VOCAB)
SHAPE = dict(hidden_size=128, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4, head_dim=16,
             intermediate_size=384, vocab_size=VOCAB, max_position_embeddings=1024, rms_norm_eps=1e-5, rope_theta=10000.0)

# ---- tokenizer --------------------------------------------------------------------------------------------------

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
# The same in the words of Python's re, which has no \p{}: a letter is [^\W\d_]. It differs on numerals that are not
# decimal digits (superscripts, fractions), which make_text.py does not write.
WORDS = re.compile(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|(?:[^\r\n\w]|_)?[^\W\d_]+|\d{1,3}| ?(?:[^\s\w]|_)+[\r\n]*"
                   r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_alphabet():
    """GPT-2's map from bytes to printable characters, in the order of its vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


ALPHABET = byte_alphabet()


def spell(word):
    return tuple(ALPHABET[b] for b in word.encode("utf-8"))


def join_pair(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return tuple(out)


def train_merges(text, number):
    """Byte pair encoding: joins the most frequent pair again and again; ties go to the smaller pair."""
    counts = Counter(WORDS.findall(text))
    words = [spell(w) for w in counts]
    weight = list(counts.values())
    pairs, where = Counter(), defaultdict(set)

    def account(i, sign):
        for pair in zip(words[i], words[i][1:]):
            pairs[pair] += sign * weight[i]
            where[pair].add(i)

    for i in range(len(words)):
        account(i, 1)
    merges = []
    while len(merges) < number:
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        for i in sorted(where.pop(best)):
            account(i, -1)
            words[i] = join_pair(words[i], best)
            account(i, 1)
        del pairs[best]
    return merges


class Tokenizer:
    def __init__(self, merges):
        self.merges = merges
        self.rank = {pair: i for i, pair in enumerate(merges)}
        names = list(ALPHABET.values()) + [a + b for a, b in merges]
        self.ids = {name: i for i, name in enumerate(names)}
        self.names = names + SPECIALS
        self.bytes = {c: b for b, c in ALPHABET.items()}
        self.cache = {}

    def word(self, word):
        if word not in self.cache:
            symbols = spell(word)
            while len(symbols) > 1:
                pair = min(zip(symbols, symbols[1:]), key=lambda p: self.rank.get(p, VOCAB))
                if pair not in self.rank:
                    break
                symbols = join_pair(symbols, pair)
            self.cache[word] = [self.ids[s] for s in symbols]
        return self.cache[word]

    def encode(self, text):
        return [i for w in WORDS.findall(text) for i in self.word(w)]

    def decode(self, ids):
        out = bytearray()
        for i in ids:
            name = self.names[i]
            out += name.encode() if name in SPECIALS else bytes(self.bytes[c] for c in name)
        return out.decode("utf-8", "replace")

    def json(self):
        special = lambda i: dict(id=i, content=self.names[i], single_word=False, lstrip=False, rstrip=False,
                                 normalized=False, special=True)
        begin = {"SpecialToken": {"id": SPECIALS[0], "type_id": 0}}
        part = lambda name, kind: {"Sequence": {"id": name, "type_id": kind}}
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        return {
            "version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [special(i) for i in range(BEGIN, VOCAB)],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}, byte_level]},
            "post_processor": {
                "type": "TemplateProcessing", "single": [begin, part("A", 0)],
                "pair": [begin, part("A", 0), {"SpecialToken": {"id": SPECIALS[0], "type_id": 1}}, part("B", 1)],
                "special_tokens": {SPECIALS[0]: {"id": SPECIALS[0], "ids": [BEGIN], "tokens": [SPECIALS[0]]}}},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": self.ids, "merges": [f"{a} {b}" for a, b in self.merges]},
        }


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


SPAN = 128

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
        flat = lambda y: y.reshape(rows * self.kv_heads, -1, self.head_dim)  # the queries of one kv head in one matrix
        q, k, v, mixed = q * self.head_dim ** -0.5, flat(k), flat(v), []
        for at in range(0, length, SPAN):  # a span of queries sees only the keys up to its end
            end = min(at + SPAN, length)
            hidden = mask[:, at:end, :end].reshape(-1, end)
            score = torch.baddbmm(hidden, flat(q[:, :, at:end]), k[:, :end].transpose(1, 2))
            mixed.append(torch.bmm(torch.softmax(score, -1), v[:, :end]).view(rows, -1, end - at, self.head_dim))
        return self.o_proj(torch.cat(mixed, 2).transpose(1, 2).reshape(rows, length, -1))


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
        self.group = c["num_attention_heads"] // c["num_key_value_heads"]
        turn = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2).float() / c["head_dim"])
        angle = torch.outer(torch.arange(c["max_position_embeddings"]).float(), turn).repeat(1, 2)
        self.cos, self.sin = angle.cos(), angle.sin()
        for name, p in self.named_parameters():
            if p.dim() == 2:
                deep = (2 * c["num_hidden_layers"]) ** -0.5 if re.search("o_proj|down_proj", name) else 1.0
                nn.init.normal_(p, std=0.06 if "embed" in name else deep * p.shape[1] ** -0.5)

    def forward(self, ids):
        length = ids.shape[1]
        mask = torch.full((length, length), -1e9).triu(1).repeat(self.group, 1, 1)
        rope = self.cos[:length], self.sin[:length]
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, rope, mask)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)


# ---- training ---------------------------------------------------------------------------------------------------


def rate(step, steps, peak):
    warm = min(1.0, (step + 1) / min(100, steps / 4))
    return peak * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def train(model, docs, args):
    """AdamW with a cosine; every 16th step sees long rows, so that positions up to 1024 are learned."""
    stream = torch.tensor([i for d in docs for i in d], dtype=torch.int16)
    starts = (stream == BEGIN).nonzero().flatten().tolist()
    rng = random.Random(args.seed + 1)
    decay = [p for p in model.parameters() if p.dim() == 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW([dict(params=decay, weight_decay=0.05), dict(params=plain, weight_decay=0.0)],
                            lr=args.rate, betas=(0.9, 0.97))
    begun, recent = time.time(), []
    for step in range(args.steps):
        rows, length = (args.rows, 256) if step % 16 != 15 else (max(1, args.rows // 4), 1024)
        x, y = batch(stream, starts, rows, length, rng)
        for group in opt.param_groups:
            group["lr"] = rate(step, args.steps, args.rate)
        loss = F.cross_entropy(model(x).view(-1, VOCAB), y.reshape(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        recent.append(loss.item())
        if (step + 1) % 100 == 0 or step + 1 == args.steps:
            print(f"step {step + 1:5d}  loss {sum(recent) / len(recent):.4f}  {time.time() - begun:6.0f} s", flush=True)
            last, recent = sum(recent) / len(recent), []
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


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, t in tensors.items():
        size = t.numel() * 2
        header[name] = {"dtype": "BF16", "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            f.write(t.contiguous().view(torch.int16).numpy().astype("<i2").tobytes())


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
    write_safetensors(f"{out}/model.safetensors", {n: p.detach().bfloat16() for n, p in model.named_parameters()})
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
    p.add_argument("--bytes", type=int, default=24_000_000, help="training text")
    p.add_argument("--steps", type=int, default=3400)
    p.add_argument("--rows", type=int, default=8, help="rows of 256 tokens in a step")
    p.add_argument("--rate", type=float, default=4e-3)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    docs = take(make_text.documents("train", args.seed), args.bytes)
    sample = "\n\n".join(text for turns in docs[:8000] for _, text in turns)
    tok = Tokenizer(train_merges(sample, VOCAB - 256 - len(SPECIALS)))
    encoded = encode_documents(tok, docs, random.Random(args.seed))
    print(f"{len(docs)} documents, {sum(map(len, encoded))} tokens", flush=True)
    model = Llama(SHAPE)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    last = train(model, encoded, args)
    write_model(args.out, model, tok)
    report(model, tok, last)


if __name__ == "__main__":
    main()
