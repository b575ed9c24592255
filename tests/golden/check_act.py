#!/usr/bin/python3
# check_act.py LQ: models whose weights' types say what activations become (docs/FORMAT.md 4). The .lq files are written
# here, from that text alone; the reference rounds activations by the rule of kernels/ops.h and computes in f64.
# An element that f32 rounds to the other side of a tie moves everything behind it, and then no bound on a difference
# means anything. So a prompt is looked for whose ties are further away than stochastic arithmetic reaches
# (decoder_np.py); there the bound holds as it does for models that round nothing, and a forward without the scheme is
# far outside of it. Then the same bits for any chunk of the prefill and any number of threads.
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, ".."))
sys.path.insert(0, os.path.join(here, "../fuzz"))
import decoder_np
import make_corpus
import make_models
import rtn_reference
import st
from counted import end, told as check
from dumped import logits

lq = os.path.abspath(sys.argv[1])
MODEL, TOKENS, TRIES, FAR = "gqa", 24, 500, 200
# type of the weights, what their activations become, and the seed where the search for a prompt begins
SCHEMES = [
    ("int8 row sym f32", "i8 row", 109),
    ("int8 row sym f32", "i8 tensor", 12),
    ("int8 row sym f32", "i8 tensor asym", 9),
    ("int4 g32 sym f16", "i8 row", 2),
    ("e4m3 row f32", "e4m3 row", 82),
    ("e4m3 tensor f32", "e4m3 tensor", 8),
    ("e4m3 g128 r128 f32", "e4m3 g128", 251),
]
QUANTIZED = [("int8 row sym f32 act i8 row", 34), ("e4m3 row f32 act e4m3 row", 10)]  # by `lq quantize --method rtn`
EXPERTS = ("int8 row sym f32 act i8 row", 45)  # the same of mixtral


def e4m3(x):
    """The nearest of E4M3's numbers, ties to even, held to 448."""
    step = 2.0 ** (np.maximum(np.floor(np.log2(np.maximum(np.abs(x), 1e-30))), -6) - 3)
    return np.clip(np.rint(x / step) * step, -448, 448)


def e4m3_bits(v):
    """The codes of numbers that are E4M3's."""
    size = np.abs(v)
    e = np.maximum(np.floor(np.log2(np.maximum(size, 1e-30))), -6)
    whole = size >= 2.0**-6
    mantissa = np.rint(size / 2.0 ** (e - 3)).astype(np.int64) - 8 * whole
    return ((np.signbit(v) << 7) | ((e + 7).astype(np.int64) * whole << 3) | mantissa).astype(np.uint8)


# --- weights ---


def groups(words, n, k):
    """(rows, columns) that share a scale, of the words behind the element."""
    columns = int(words[0][1:]) if words[0][0] == "g" else k
    rows = n if words[0] == "tensor" else int(words[1][1:]) if words[1][0] == "r" and words[1][1:].isdigit() else 1
    return rows, columns


def coded(name, w, kind, act):
    """Tensors of a coded weight, its type, and what it stands for."""
    words = kind.split()
    n, k = w.shape
    rows, columns = groups(words[1:], n, k)
    scale = np.zeros(
        ((n + rows - 1) // rows, (k + columns - 1) // columns), np.float16 if words[-1] == "f16" else np.float32
    )
    top = 448 if words[0] == "e4m3" else 2 ** (int(words[0][3:]) - 1) - 1
    wide = np.zeros(w.shape)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            part = np.s_[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
            scale[i, j] = np.abs(w[part]).max() / top
            wide[part] = scale[i, j]
    if words[0] == "e4m3":
        codes = e4m3(w / wide)
        raw, dtype, value = e4m3_bits(codes), "F8_E4M3", codes * wide
    else:
        codes = np.clip(np.rint(w / wide), -top - 1, top).astype(np.int64)
        raw, dtype, value = (codes + top + 1).astype(np.uint8), "U8", codes * wide
        if top == 7:
            raw = raw[:, ::2] | raw[:, 1::2] << 4
        raw = np.pad(raw, ((0, 0), (0, -raw.shape[1] % 4)))
    parts = [(name + ".q", dtype, list(raw.shape), raw.tobytes())]
    parts.append((name + ".scale", "F16" if words[-1] == "f16" else "F32", list(scale.shape), scale.tobytes()))
    if act.fixed:
        parts.append((name + ".act_scale", "F32", [1], np.float32(act.fixed).tobytes()))
    if act.asym:
        parts.append((name + ".act_zero", "I32", [1], np.int32(act.zero).tobytes()))
    return parts, f"{kind} act {act.words} {n}x{k}", value


# --- activations ---


class Act:
    """How the input of one weight is rounded: f32 is where the file and the rule have it."""

    def __init__(self, words, seen):
        self.words = words
        elem, span, *rest = words.split()
        self.e4m3, self.asym, self.zero = elem == "e4m3", bool(rest), 0
        self.group = int(span[1:]) if span[0] == "g" else 0
        self.fixed = None
        if span == "tensor":  # a little is cut off at each end
            low, high = 0.9 * seen[0], 0.9 * seen[1]
            self.fixed = np.float32(
                (high - low) / 255 if self.asym else max(high, -low) / (448 if self.e4m3 else 127)
            )
            if self.asym:
                self.zero = int(np.rint(-128 - low / self.fixed))

    def __call__(self, x):
        if self.group:
            parts = [x[:, j : j + self.group] for j in range(0, x.shape[1], self.group)]
            return np.concatenate([self.rounded(p) for p in parts], 1)
        return self.rounded(x)

    def rounded(self, x):
        s = self.fixed or np.abs(x).max(-1, keepdims=True) / (448 if self.e4m3 else 127)
        if self.e4m3:
            return e4m3(x / s) * s
        q = np.rint(x / s) + self.zero
        return (np.clip(q, -128 if self.asym else -127, 127) - self.zero) * s


class Coded(decoder_np.Exact):
    """Arithmetic whose products round the input of some weights."""

    def __init__(self, acts):
        self.acts = acts

    def input(self, x, w):
        return self.acts[id(w)](x) if id(w) in self.acts else x


class CodedRounded(decoder_np.Rounded):
    def __init__(self, acts, seed):
        super().__init__(seed)
        self.acts = acts

    input = Coded.input


class Ranges(decoder_np.Exact):
    """Notes the smallest and the largest input of each weight."""

    def __init__(self):
        self.seen = {}

    def input(self, x, w):
        low, high = self.seen.get(id(w), (0, 0))
        self.seen[id(w)] = min(low, x.min()), max(high, x.max())
        return x


# --- comparing ---


def prompt(cfg, w, acts, first):
    """(ids, logits, bound, how far plain activations are) of the first prompt without a tie nearby."""
    for seed in range(first, first + TRIES):
        ids = (np.abs(make_models.noise(seed + 77, TOKENS)) * 1e6).astype(np.int64) % 256
        want = decoder_np.forward(cfg, w, ids, Coded(acts), TOKENS)
        away = np.abs(decoder_np.forward(cfg, w, ids, ctx=TOKENS) - want).max(-1)
        spread = np.zeros(TOKENS)
        for run in range(8):
            moved = decoder_np.forward(cfg, w, ids, CodedRounded(acts, run), TOKENS)
            spread = np.maximum(spread, np.abs(moved - want).max(-1))
            if (2 * spread * FAR > away).any():
                break
        else:
            return ids, want, 2 * spread, away, seed
    return None


def compare(what, path, cfg, w, acts, first):
    found = prompt(cfg, w, acts, first)
    if not found:
        return check(False, f"{what}: no prompt without ties")
    ids, want, bound, away, seed = found
    if seed != first:
        print(f"        {what}: prompt {seed}")
    file = path + ".ids"
    ids.astype("<i4").tofile(file)
    for isa in ("c", "avx2", "auto"):
        got, why = logits(path, TOKENS, isa, ids=file)
        if got is None:
            return check(False, f"{what}: {why}")
        worst = (np.abs(got - want).max(-1) / bound).max()
        check(worst <= 1, f"{what}, {isa}: {worst:.2f} of the bound; plain activations {(away / bound).min():.0f}")
    for mode in ("exact", "default"):
        first, _ = logits(path, TOKENS, mode=mode, ids=file)
        cuts = [logits(path, TOKENS, "auto", t, b, mode, file)[0] for t, b in ((1, 512), (2, 1), (3, 7), (2, 13))]
        check(
            all(c.tobytes() == first.tobytes() for c in cuts),
            f"{what}, {mode}: the same bits for any chunk and threads",
        )


def plain(w):
    return {name: a for name, a in w.items() if a.ndim == 1 or "embed" in name or "head" in name}


def main(folder):
    make_models.make(folder)
    model = os.path.join(folder, MODEL)
    cfg, w, ids = make_models.load(model)
    side = [(name, open(os.path.join(model, name), "rb").read()) for name in ("config.json", "tokenizer.json")]
    ranges = Ranges()
    decoder_np.forward(cfg, w, ids, ranges)
    for kind, words, first in SCHEMES:
        entries = [("lq.file/" + name, "U8", [len(raw)], raw) for name, raw in side]
        value, acts, types = {}, {}, {}
        for name, a in sorted(w.items()):
            if name in plain(w):
                value[name] = a
                entries.append((name, "BF16", list(a.shape), st.bf16_bits(a).tobytes()))
                continue
            act = Act(words, ranges.seen[id(a)])
            parts, types[name], value[name] = coded(name, a, kind, act)
            acts[id(value[name])] = act
            entries += parts
        path = os.path.join(folder, "act.lq")
        open(path, "wb").write(make_corpus.lq(entries, types))
        compare(f"{kind} act {words}", path, cfg, value, acts, first)


def stored(path):
    """What the weights of a .lq file in layout any stand for, by name, and their types."""
    tensors, meta = st.read(path)
    types, out = json.loads(meta["lq.types"]), {}
    for name, text in types.items():
        codes = tensors[name + ".q"].astype(np.float64)[:, : int(text.rpartition("x")[2])]
        out[name] = (codes if text.startswith("e4m3") else codes - 128) * tensors[name + ".scale"].astype(np.float64)
    out.update((n, t.astype(np.float64)) for n, t in tensors.items() if n.endswith(".weight"))
    return out, types


def quantized(model, out, kind):
    cmd = [lq, "quantize", model, out, "--method", "rtn", "--type", kind, "--embed", "keep", "--head", "keep"]
    r = subprocess.run(cmd + ["--layout", "any", "--force", "--quiet"], capture_output=True, text=True)
    if r.returncode:
        check(False, f"lq quantize --type {kind}: {r.stderr.strip()}")
    return r.returncode == 0


def main_quantized(folder):
    model, out = os.path.join(folder, MODEL), os.path.join(folder, "quantized.lq")
    cfg, plain_w, _ = make_models.load(model)
    for kind, first in QUANTIZED:
        if not quantized(model, out, kind):
            continue
        w, types = stored(out)
        far = max(np.abs(w[n] - plain_w[n]).max() / np.abs(plain_w[n]).max() for n in types)
        ok = set(w) == set(plain_w) and len(types) == 14 and far < 0.04
        check(ok, f"lq quantize --type {kind}: {far:.4f} of the largest")
        acts = {id(w[n]): Act(kind.partition(" act ")[2], None) for n in types}
        compare(f"lq quantize --type {kind}", out, cfg, w, acts, first)


def main_experts(folder):
    """Experts take their rows from a batch: what each row becomes must not depend on who else was sent there."""
    model, out = os.path.join(folder, "mixtral"), os.path.join(folder, "experts.lq")
    kind, first = EXPERTS
    if not quantized(model, out, kind):
        return
    cfg, w, _ = make_models.load(model)
    acts = {}
    for name in [n for n in w if w[n].ndim == 2 and ".layers." in n and not n.endswith("block_sparse_moe.gate.weight")]:
        codes, scale, _ = rtn_reference.quantize(w[name], 8, 0, False, wide=True)
        w[name] = (codes - 128) * scale.astype(np.float64)
        acts[id(w[name])] = Act(kind.partition(" act ")[2], None)
    compare(f"lq quantize mixtral --type {kind}", out, cfg, w, acts, first)


with tempfile.TemporaryDirectory() as folder:
    main(folder)
    main_quantized(folder)
    main_experts(folder)
sys.exit(end())
