#!/usr/bin/python3
# check_experts.py LQ: mixtures whose experts the calibration text reaches unevenly, against numpy in f64: how many rows the report says that each
# was sent; the moments that each is rounded by, as docs/QUANT.md has them, from what the matrices lose by them; the same with --all-experts, of all
# methods that look at an expert's input; what an expert that few rows reach loses on other text; the threads change no byte.
import glob
import json
import os
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..")]
sys.dont_write_bytecode = True
import make_models  # noqa: E402
import rtn_reference as rtn  # noqa: E402
import st  # noqa: E402
from counted import check, end, told  # noqa: E402
from watched import inputs, run, sequences_of  # noqa: E402

calib = os.path.join(here, "../../calib_data")
LEN, BITS, GROUP, CHARS = 48, 4, 16, 300
DENSE = ("*self_attn*", "*shared*", "*.mlp.gate_proj*", "*.mlp.up_proj*", "*.mlp.down_proj*")
KEEP = {"mixtral": ("*self_attn*",), "qwen2_moe": DENSE, "deepseek_v2": DENSE}


def quantize(name, out, method, recipe, *words):
    """Only experts are coded, so that nothing else changes what they are given."""
    recipe = {**recipe, "modules": [{"match": m, "type": "keep"} for m in KEEP[name]]}
    run("quantize", "tiny/" + name, out, "-m", method, "--recipe", json.dumps(recipe), "--type", f"int{BITS} g{GROUP}", "--embed", "keep",
        "--head", "keep", "--calib", "calib.txt", "--seqlen", LEN, "--samples", 10000, "--force", "--quiet", *words)
    return {m["name"]: m for m in json.load(open(out + ".report.json"))["modules"]}


def expert_name(stack, e):
    block, name = stack.split("experts.")
    return f"{block}experts.{e}.{name}"


def weights(name):
    out = {}
    for part in glob.glob(f"tiny/{name}/*.safetensors"):
        out.update({n: a.astype(np.float64) for n, a in st.read(part)[0].items()})
    return out


def made(name, out):
    """The model with its coded experts as they are read."""
    w = weights(name)
    t, meta = st.read(out)
    for stack, kind in json.loads(meta["lq.types"]).items():
        count, n, k = map(int, kind.split()[-1].split("x"))
        row = np.unpackbits(t[stack + ".q"].reshape(count * n, -1), axis=1, bitorder="little")[:, : k * BITS]
        codes = (row.reshape(count * n, k, BITS) << np.arange(BITS)).sum(2)
        scale = t[stack + ".scale"].astype(np.float64).reshape(count * n, -1)
        all_of = (codes - (1 << (BITS - 1))) * np.repeat(scale, GROUP, 1)[:, :k]
        for e, a in enumerate(all_of.reshape(count, n, k)):
            w[expert_name(stack, e)] = a
    return w


def silu(x):
    return x / (1 + np.exp(-x))


def parts(stack):
    """gate, up and down of a mixture, and the router beside it."""
    block = stack.split("experts.")[0] + "experts."
    names = ("w1", "w3", "w2") if "block_sparse_moe" in stack else ("gate_proj", "up_proj", "down_proj")
    return [f"{block}{n}.weight" for n in names], block.replace("experts.", "gate.weight")


def moments(stack, x, w, count, every):
    """H of each expert: of its own rows and, where these are fewer than its columns, so many of the mean of all as are lacking."""
    stacks, router = parts(stack)
    out = []
    for e in range(count):
        own, all_of = x[expert_name(stack, e)], x[router]
        if stack == stacks[2]:
            gate, up = (all_of @ w[expert_name(s, e)].T for s in stacks[:2])
            all_of = silu(gate) * up
        n, k, mean = len(own), all_of.shape[1], all_of.T @ all_of / len(all_of)
        out.append(mean if every else (own.T @ own + (k - n) * mean) / k if n < k else own.T @ own / n)
    return out


def quad(d, h):
    return ((d @ h) * d).sum()


def test_moments(name, every):
    """What the report says that a stack lost is what it loses by these moments."""
    report = quantize(name, "m.lq", "gptq", {"repay": 0}, *(["--all-experts"] if every else []))
    cfg, plain, w = json.load(open(f"tiny/{name}/config.json")), weights(name), made(name, "m.lq")
    x, far, few, moved, rows = inputs(cfg, w, sequences_of("tiny/mixtral", "calib.txt", LEN)), 0, 0, 0, 0
    for stack, m in report.items():
        count = m["count"]
        reached = np.array([len(x[expert_name(stack, e)]) for e in range(count)])
        moved, rows = moved + np.abs(reached - m["reached"]).sum(), rows + reached.sum()
        few += (reached < m["k"]).sum()
        lost = norm = 0
        for e, h in enumerate(moments(stack, x, w, count, every)):
            a = plain[expert_name(stack, e)]
            lost, norm = lost + quad(a - w[expert_name(stack, e)], h), norm + quad(a, h)
        far = max(far, abs(np.sqrt(lost / norm) / m["out_error"] - 1))
        check(m["out_error"] < m["out_plain"], f"{name}, {stack}: lost {m['out_error']}, plain rounding {m['out_plain']}")
        check(every == (not m["note"]) or not (reached < m["k"]).any(), f"{name}, {stack}: its note is \"{m['note']}\"")
    # A row that stands at a tie of the router goes one way in f32 and the other in f64.
    told(moved <= 0.002 * rows and far < 1e-3 + moved / rows * 10 and few > 0, f"{name}{', all experts' if every else ''}: {few} experts were sent fewer rows than they have columns, "
         f"{moved} of {rows} rows are counted otherwise, what stacks lose is {far:.1e} off numpy's")


def test_other_text(name):
    """Of experts that few rows reach: on text that was not looked at, what reaches them there."""
    cfg, plain, w = json.load(open(f"tiny/{name}/config.json")), weights(name), made(name, "m.lq")
    seen, x = inputs(cfg, w, sequences_of("tiny/mixtral", "calib.txt", LEN)), inputs(cfg, plain, sequences_of("tiny/mixtral", "other.txt", LEN))
    ours = nearest = count = 0
    for n, a in plain.items():
        if ".experts." not in n or len(seen[n]) >= a.shape[1] or not len(x[n]):
            continue
        q, scale, zero = rtn.quantize(a.astype(np.float32), BITS, GROUP, False)
        h = x[n].T @ x[n]
        ours, nearest, count = ours + quad(a - w[n], h) / quad(a, h), nearest + quad(a - rtn.dequantize(q, scale, zero, GROUP), h) / quad(a, h), count + 1
    told(ours < nearest, f"{name}: {count} matrices that few rows reached lose {ours / nearest:.3f} of what plain rounding loses on other text")


def test_methods(name):
    for method, recipe in (("awq", {}), ("awq", {"transform": "awq"}), ("smoothquant", {}), ("gptq", {})):
        a = quantize(name, "a.lq", method, recipe, "--threads", 1)
        quantize(name, "b.lq", method, recipe, "--threads", 3)
        check(open("a.lq", "rb").read() == open("b.lq", "rb").read(), f"{name}, {method}: 1 and 3 threads write the same bytes")
        b = quantize(name, "b.lq", method, recipe, "--all-experts")
        check(open("a.lq", "rb").read() != open("b.lq", "rb").read(), f"{name}, {method}: --all-experts makes a difference")
        down = [m for m in a if "w2" in m or "down" in m]
        check(down and all(sum(a[m]["reached"]) == sum(b[m]["reached"]) > 0 for m in down), f"{name}, {method}: rows that reached experts")


def main():
    with tempfile.TemporaryDirectory(prefix="lq-test-experts-") as work:
        os.chdir(work)
        make_models.make("tiny")
        with open(calib + "/calib.txt", encoding="utf-8") as f:
            text = f.read(40 * CHARS)
        open("calib.txt", "w", encoding="utf-8").write(text[:CHARS])
        open("other.txt", "w", encoding="utf-8").write(text[-30 * CHARS :])
        for name in KEEP:
            test_moments(name, True)
            test_moments(name, False)
            test_other_text(name)
        test_methods("mixtral")


main()
sys.exit(end())
