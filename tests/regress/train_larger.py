#!/usr/bin/env python3
"""Trains a Llama of 11 million parameters on real text, to measure what quantization costs on more than a toy. It is kept
outside the repository: the text is other people's (FOLDER: the texts of tests/regress/README.md).

Owns: the choice of the text and of the shape. The model, its training loop and its files are calib_data/train_demo.py's.
Run:  python3 tests/regress/train_larger.py FOLDER OUT      (torch, as train_demo.py)
"""
import argparse
import os
import random
import re
import sys

import torch
from torch.nn import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../../calib_data"))
import bpe  # noqa: E402

bpe.VOCAB = 4096
bpe.BEGIN, bpe.END, bpe.USER, bpe.ASSISTANT = range(bpe.VOCAB - 4, bpe.VOCAB)
import train_demo  # noqa: E402: it takes the vocabulary's size as it finds it

train_demo.SHAPE = dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=3, head_dim=64,
                        intermediate_size=1024, vocab_size=bpe.VOCAB, max_position_embeddings=1024, rms_norm_eps=1e-5,
                        rope_theta=10000.0)
TEXTS = ("exllamav2-cal/wiki.utf8", "exllamav2-cal/c4.utf8", "exllamav2-cal/code.utf8", "exllamav2-cal/multilingual.utf8",
         "exllamav2-cal/technical.utf8", "exllamav2-cal/tiny.utf8", "war-and-peace.txt", "tinyshakespeare.txt")
KEPT = 5  # of the encyclopedia one article of so many is not trained on: calibration text (calib.txt beside the model)
LONG = 3000
DROPPED = 0.15



class Layer(train_demo.Layer):
    """What a part says is dropped now and then: there is less text than the model could learn by heart."""

    def forward(self, x, rope, mask):
        x = x + F.dropout(self.self_attn(self.input_layernorm(x), rope, mask), DROPPED, self.training)
        return x + F.dropout(self.mlp(self.post_attention_layernorm(x)), DROPPED, self.training)


train_demo.Layer = Layer


def articles(text):
    """Documents of a file: what its own marks set apart, or paragraphs joined until they are LONG characters."""
    whole = [re.sub(r"</doc>\s*$", "", a.split(">\n", 1)[-1]).strip() for a in re.split(r"<doc id=", text)[1:]]
    out = [""]
    for part in whole or re.split(r"\n{2,}", text):
        if whole or len(out[-1]) > LONG:
            out.append("")
        out[-1] += ("\n\n" if out[-1] else "") + part
    return [a for a in out if a]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("folder", help="where the texts are")
    p.add_argument("out", help="where the model goes")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--steps", type=int, default=1500)
    p.add_argument("--rows", type=int, default=16, help="rows of 256 tokens in a step")
    p.add_argument("--rate", type=float, default=2e-3)
    p.add_argument("--threads", type=int, default=1)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    docs, kept = [], []
    for name in TEXTS:
        with open(os.path.join(args.folder, name), encoding="utf-8", errors="replace") as f:
            parts = articles(f.read())
        apart = set(range(0, len(parts), KEPT)) if "wiki" in name else set()
        docs += [a for i, a in enumerate(parts) if i not in apart]
        kept += [a for i, a in enumerate(parts) if i in apart]
    random.Random(args.seed).shuffle(docs)
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "calib.txt"), "w", encoding="utf-8") as f:
        f.write("\n\n".join(re.sub(r"\n{2,}", "\n", a) for a in kept))
    tok = bpe.Tokenizer(bpe.train_merges("\n\n".join(docs), bpe.VOCAB - 256 - len(bpe.SPECIALS)))
    encoded = [[bpe.BEGIN] + tok.encode(a) + [bpe.END] for a in docs]
    model = train_demo.Llama(train_demo.SHAPE)
    print(f"{len(docs)} documents, {sum(map(len, encoded))} tokens, {sum(q.numel() for q in model.parameters())} parameters; "
          f"{len(kept)} articles kept to calibrate with", flush=True)
    save = lambda: train_demo.write_model(args.out, model, tok)
    last = train_demo.train(model, encoded, args, save)
    save()
    print(f"train loss {last:.4f} nats per token (the last steps)")


if __name__ == "__main__":
    main()
