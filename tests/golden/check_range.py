#!/usr/bin/python3
# check_range.py LQ: `lq quantize --range`: of every group the searched scale loses no more than any share of the range that numpy tries by the rule
# of docs/QUANT.md, in squares as they are (mse) or counted by the mean squares of the inputs that a numpy forward finds (weighted), for each kind
# of type; of recipes of many methods: what a file says made it makes it again, on any number of threads; what they may not say.
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
calib = os.path.join(here, "../../calib_data")
sys.path[:0] = [here, os.path.join(here, "..")]
sys.dont_write_bytecode = True
import decoder_np  # noqa: E402
import rtn_reference as rtn  # noqa: E402
import st  # noqa: E402
from counted import check, end  # noqa: E402
from watched import config, lq, run, sequences_of  # noqa: E402

demo = os.path.join(calib, "demo")
LEN, CHARS, STEPS, LEAST = 64, 6000, 50, 0.5
SHARES = [1 - (1 - LEAST) * i / (STEPS - 1) for i in range(STEPS)]
LAYER = "model.layers.2."
TYPES = ("int4 g32", "int3 g64 asym", "int2 g32", "nf4 g64 f16", "fp4 g64 f16", "mxfp4", "nvfp4", "e4m3 g64 f32")


def quantize(out, kind, *words):
    run("quantize", demo, out, "--type", kind, "--embed", "keep", "--head", "keep", "--force", "--quiet", *words)
    return opened(out)


def opened(path):
    """name -> f64 matrix or vector, of a file in layout any."""
    t, meta = st.read(path)
    w = {n: a.astype(np.float64) for n, a in t.items() if not n.startswith("lq.")}
    for name, kind in json.loads(meta["lq.types"]).items():
        words, (n, k) = kind.split(), map(int, kind.split()[-1].split("x"))
        group = int(words[1][1:])
        if words[0] == "e4m3":
            value = t[name + ".q"].astype(np.float64)
        else:
            bits = int(words[0][3:]) if words[0].startswith("int") else 4
            q = rtn.unpack(t[name + ".q"].reshape(n, -1), bits, k)[0].astype(np.int64)
            if words[0] in rtn.TABLES:
                value = rtn.TABLES[words[0]].astype(np.float64)[q]
            else:
                zero = rtn.unpack(t[name + ".zero"].reshape(n, -1), bits, k // group)[0].astype(np.int64) if "asym" in words else 1 << (bits - 1)
                value = (q - np.repeat(zero, group, axis=1) if "asym" in words else q - zero).astype(np.float64)
        scale = t[name + ".scale"].astype(np.float64).reshape(n, -1)
        if name + ".scale2" in t:
            scale = scale * t[name + ".scale2"].astype(np.float64)
        w[name] = value * np.repeat(scale, group, axis=1)
    return w


class Watch(decoder_np.Exact):
    """Sums the squares of what each matrix was given."""

    def __init__(self, w):
        self.name, self.sum, self.rows = {id(a): n for n, a in w.items()}, {}, {}

    def input(self, x, w):
        n = self.name.get(id(w))
        self.sum[n], self.rows[n] = self.sum.get(n, 0) + (x**2).sum(0), self.rows.get(n, 0) + len(x)
        return x


def squares(w, text):
    f, cfg = Watch(w), config(demo)
    for ids in sequences_of(demo, text, LEN):
        decoder_np.forward(cfg, w, ids, f)
    return {n: s / f.rows[n] for n, s in f.sum.items()}


def losses(w, q, weight, group):
    return (((w - q) ** 2) * weight).reshape(len(w), -1, group).sum(2)


def tried(w, kind, weight, group):
    """The least loss of each group over all shares of its range, for integers and tables with scales in f16."""
    words, best = kind.split(), np.inf
    x = w.reshape(-1, group)
    each = np.broadcast_to(weight, w.shape).reshape(-1, group)
    lo, hi = np.minimum(x.min(1), 0), np.maximum(x.max(1), 0)
    for share in SHARES:
        with np.errstate(all="ignore"):
            if words[0].startswith("int"):
                top = 1 << int(words[0][3:])
                s = (hi - lo) * share / (top - 1) if "asym" in words else np.where(hi > -lo, hi, lo) * share / -(top / 2)
                s = s.astype(np.float16).astype(np.float64)[:, None]
                z = np.minimum(np.rint(-lo * share / s[:, 0]), top - 1)[:, None] if "asym" in words else top / 2
                q = np.clip(np.rint(x / s), -z, top - 1 - z) * s
            else:
                table = np.sort(rtn.TABLES[words[0]].astype(np.float64))
                s = (np.maximum(hi, -lo) * share / np.abs(table).max()).astype(np.float16).astype(np.float64)[:, None]
                q = table[np.abs((x / s)[:, :, None] - table).argmin(2)] * s
        best = np.minimum(best, (((x - q) ** 2) * each).sum(1))
    return best.reshape(len(w), -1)


def test_kind(kind, text, source):
    words = ("--calib", text, "--seqlen", LEN, "--samples", 10000)
    full, mse, weighted = (quantize(how + ".lq", kind, "--range", how, *words) for how in ("full", "mse", "weighted"))
    square = squares(weighted, text)
    group = int(next(t for t in json.loads(st.read("mse.lq")[1]["lq.types"])[LAYER + "mlp.up_proj.weight"].split() if t[0] == "g")[1:])
    for name in (n for n in source if n.startswith(LAYER) and "proj" in n):
        w, one = source[name], np.ones(source[name].shape[1])
        for what, weight, mine, others in (("mse", one, mse, (full, weighted)), ("weighted", square[name], weighted, (full, mse))):
            loss = losses(w, mine[name], weight, group)
            least = np.minimum(*(losses(w, o[name], weight, group) for o in others))
            if kind.split()[0] in ("nf4", "fp4") or kind.startswith("int"):
                least = np.minimum(least, tried(w, kind, weight, group))
            # f32 sums of the program, and weights that rounding moves by as much
            over = (loss / np.maximum(least, 1e-12) - 1).max()
            check(over < 1e-3, f"{kind}: {name}: {what}: a group loses {over:.2g} more than with another scale")
        check((mse[name] != full[name]).any() and (mse[name] != weighted[name]).any(), f"{kind}: {name}: ranges are searched")


def test_given_back(text):
    """The file's own recipe, and nothing else, makes the file again; an option says more than it; what it may not say."""
    calib = ("--calib", text, "--seqlen", LEN, "--samples", 24, "--seed", 5)
    mixed = {"modules": [{"match": LAYER + "mlp.*", "type": "keep"}, {"match": "*.o_proj.weight", "range": "mse", "type": "int8 row"}], "steps": 20, "least": 0.7}
    ways = (
        ("--type", "int4 g32", "--range", "mse", "--embed", "int6 g64", *calib),
        ("--type", "int3 g32", "--range", "weighted", "--salient", 0.02, "--embed", "keep", *calib),
        ("-m", "gptq", "--range", "full", "--recipe", '{"repay": 0, "order": "columns", "damp": 0.03}', *calib),
        ("-m", "gptq", "--bits", 3, "--recipe", json.dumps(mixed), *calib),
        ("-m", "awq", "--head", "keep", *calib),
        ("-m", "hadamard", "--head", "bf16", "--embed", "int8 row"),
        ("-m", "llmint8", *calib),
        ("--type", "keep", "--embed", "int8 row"),
    )
    for way in ways:
        run("quantize", demo, "a.lq", "--force", "--quiet", "--threads", 1, *way)
        recipe = st.read("a.lq")[1]["lq.recipe"]
        run("quantize", demo, "b.lq", "--force", "--quiet", "--threads", 3, "--recipe", recipe)
        check(open("a.lq", "rb").read() == open("b.lq", "rb").read(), f"{' '.join(map(str, way))}: its recipe makes the same file")
    run("quantize", demo, "b.lq", "--force", "--quiet", "--recipe", '{"type": "int8 row", "embed": "keep"}', "--type", "int4 g32")
    types = json.loads(st.read("b.lq")[1]["lq.types"])
    check(all(t.startswith("int4 g32") for t in types.values()) and len(types) == 35, f"--type says more than the recipe: {set(types.values())}")
    for recipe, word in (('{"range": "half"}', '"range"'), ('{"match": "*"}', '"match"'), ('{"head": 8}', '"head"'), ('{"embed": "int9"}', "embed"), ('{"calib": "text"}', '"calib"'),
                         ('{"calib": {"sample": 3}}', '"sample"'), ('{"calib": {"seqlen": 0}}', '"seqlen"')):
        r = subprocess.run([lq, "quantize", demo, "c.lq", "--recipe", recipe], capture_output=True, text=True)
        check(r.returncode in (1, 2) and word in r.stderr and not os.path.exists("c.lq"), f"{recipe}: {r.returncode}, {r.stderr.strip()}")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    text = os.path.join(folder, "text.txt")
    open(text, "w").write(open(os.path.join(calib, "calib.txt")).read()[:CHARS])
    source = {n: a.astype(np.float64) for n, a in st.read(os.path.join(demo, "model.safetensors"))[0].items()}
    for kind in TYPES:
        test_kind(kind, text, source)
    test_given_back(text)
sys.exit(end())
