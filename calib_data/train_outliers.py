#!/usr/bin/env python3
"""Trains the third twin of the demo model (twins.py): four channels of the residual become outliers, and what lives beside
them learns it. Writes only what has changed, outliers.safetensors: a hundredth of the model.

Owns: the choice of the channels, their first values by least squares, the short training.
Run:  python3 calib_data/train_outliers.py      (torch, as train_demo.py)
"""
import argparse
import os
import random
import re

import torch
from torch.nn import functional as F

import bpe
import make_text
import train_demo
import twins

TIMES = 20  # an outlier is so many times the root mean square of the other channels,
HEARD = 4   # and so many times that behind a norm


class Watch:
    """What each norm and each down_proj read in the last forward."""

    def __init__(self, model):
        self.norms, self.downs = [], []
        for name, part in model.named_modules():
            kept = self.norms if isinstance(part, train_demo.Norm) else self.downs if name.endswith("down_proj") else None
            if kept is not None:
                part.register_forward_pre_hook(lambda _, x, kept=kept: kept.append(x[0]))

    def run(self, model, x):
        self.norms.clear(), self.downs.clear()
        return model(x)


def spread(x, channels):
    """The root mean square of the other channels, a value for each token."""
    others = torch.ones(x.shape[-1], dtype=torch.bool)
    others[channels] = False
    return x[..., others].pow(2).mean(-1).sqrt()


def least_heard(model, watch, number):
    """The channels that matter least to what reads the residual."""
    heard = 0
    for part, x in zip((m for m in model.modules() if isinstance(m, train_demo.Norm)), watch.norms):
        y = part(x)
        heard = heard + y.pow(2).mean((0, 1)) / y.pow(2).mean()
    return heard.argsort()[:number].sort().values


@torch.no_grad()
def force(model, watch, x, channels, signs):
    """First values: embedding and down_proj write TIMES the others' size into the channels, gains make up for the norms."""
    body = model.model
    watch.run(model, x)
    plain = [n.clone() for n in watch.norms]
    norms = [m for m in model.modules() if isinstance(m, train_demo.Norm)]
    body.embed_tokens.weight[:, channels] = TIMES * spread(plain[0], channels).mean() * signs
    for i, layer in enumerate(body.layers):
        layer.self_attn.o_proj.weight[channels] = 0
        for m in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj, layer.mlp.gate_proj, layer.mlp.up_proj):
            m.weight[:, channels] /= TIMES * HEARD
        layer.mlp.down_proj.weight[channels] = 0
    body.norm.weight[channels] /= TIMES
    for i, layer in enumerate(body.layers):
        for norm in (layer.input_layernorm, layer.post_attention_layernorm):
            norm.weight[channels] *= HEARD
        for at in (2 * i, 2 * i + 1):  # the two norms of the layer, each once what stands before it is final
            watch.run(model, x)
            grown = watch.norms[at].pow(2).mean(-1).sqrt() / spread(plain[at], channels)
            norms[at].weight *= grown.mean()
        watch.run(model, x)
        want = TIMES * spread(plain[2 * i + 2], channels)[..., None] * signs - watch.norms[2 * i + 2][..., channels]
        h, want = watch.downs[i].flatten(0, 1), want.flatten(0, 1)
        ridge = 1e-2 * h.pow(2).mean() * len(h) * torch.eye(h.shape[1])
        layer.mlp.down_proj.weight[channels] = torch.linalg.solve(h.T @ h + ridge, h.T @ want).T
    watch.run(model, x)
    norms[-1].weight *= (watch.norms[-1].pow(2).mean(-1).sqrt() / spread(plain[-1], channels)).mean()


def masks(model, channels):
    """Where a parameter may change: the norms, and what reads or writes the channels."""
    out = {}
    for name, p in model.named_parameters():
        out[name] = torch.ones_like(p) if p.dim() == 1 else torch.zeros_like(p)
        if re.search("o_proj|down_proj", name):
            out[name][channels] = 1
        elif p.dim() == 2:
            out[name][:, channels] = 1
    return out


def train(model, watch, docs, channels, signs, args):
    stream = torch.tensor([i for d in docs for i in d], dtype=torch.int16)
    starts = (stream == bpe.BEGIN).nonzero().flatten().tolist()
    rng = random.Random(args.seed + 1)
    force(model, watch, train_demo.batch(stream, starts, 16, 256, rng)[0], channels, signs)
    may, opt = masks(model, channels), torch.optim.AdamW(model.parameters(), lr=args.rate, weight_decay=0.0)
    for step in range(args.steps):
        for group in opt.param_groups:
            group["lr"] = train_demo.rate(step, args.steps, args.rate)
        x, y = train_demo.batch(stream, starts, 16, 256, rng)
        with torch.autocast("cpu", torch.bfloat16):
            logits = watch.run(model, x)
        loss = F.cross_entropy(logits.float().view(-1, bpe.VOCAB), y.reshape(-1))
        times = [n[..., channels] * signs / spread(n, channels).detach()[..., None] for n in watch.norms]
        low = sum(F.relu(TIMES - t).pow(2).mean() for t in times) / len(times)
        opt.zero_grad(set_to_none=True)
        (loss + 1e-3 * low).backward()
        for name, p in model.named_parameters():
            p.grad *= may[name]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0 or step + 1 == args.steps:
            print(f"step {step + 1:4d}  loss {loss.item():.4f}  outliers", " ".join(f"{t.mean():.1f}" for t in times), flush=True)


def patch(model, channels):
    """The changed parts, under the names that twins.py reads."""
    at, out = ",".join(str(c) for c in channels.tolist()), {}
    for name, p in model.named_parameters():
        p = p.detach()
        if p.dim() == 1:
            out[f"{name} rows "] = p
        elif re.search("o_proj|down_proj", name):
            out[f"{name} rows {at}"] = p[channels]
        else:
            out[f"{name} columns {at}"] = p[:, channels]
    return {n: p.contiguous().numpy() for n, p in out.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--demo", default=os.path.join(twins.HERE, "demo"))
    p.add_argument("--out", default=os.path.join(twins.HERE, "outliers.safetensors"))
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--rate", type=float, default=1e-3)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    tok = bpe.Tokenizer.load(f"{args.demo}/tokenizer.json")
    docs = train_demo.take(make_text.documents("train", args.seed + 2, inventive=True), 8_000_000)
    encoded = train_demo.encode_documents(tok, docs, random.Random(args.seed))
    model = train_demo.Llama(train_demo.SHAPE)
    model.load_state_dict({n: torch.from_numpy(a) for n, a in twins.load(args.demo)[1].items()})
    watch = Watch(model)
    with torch.no_grad():
        watch.run(model, torch.tensor([encoded[0][:200]]))
        channels = least_heard(model, watch, 4)
    train(model, watch, encoded, channels, torch.tensor([1.0, -1.0, 1.0, -1.0]), args)
    twins.st.write(args.out, patch(model, channels))


if __name__ == "__main__":
    main()
