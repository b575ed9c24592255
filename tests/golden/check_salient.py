#!/usr/bin/python3
# check_salient.py LQ: `lq quantize --salient`: the columns that stay in 16 bits are those whose inputs numpy finds the largest; rounded to the
# nearest their weights are the model's own; by gptq they are the least squares of what the inputs make of the row, once its codes are what they
# are, with and without the errors of layers before; no less is lost than the report says; the threads change no byte; what it is worth.
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
calib = os.path.join(here, "../../calib_data")
sys.path[:0] = [here, os.path.join(here, ".."), calib]
sys.dont_write_bytecode = True
import rtn_reference as rtn  # noqa: E402
import st  # noqa: E402
import twins  # noqa: E402
from counted import check, end  # noqa: E402
from watched import config, inputs, run, sequences_of  # noqa: E402

demo = os.path.join(calib, "demo")
LEN, CHARS, SHARE, DAMP = 64, 8000, 0.02, 0.01


def quantize(model, out, *words):
    run("quantize", model, out, *words, "--force", "--quiet")
    return {m["name"]: m for m in json.load(open(out + ".report.json"))["modules"]}


def opened(path):
    """name -> f64 matrix or vector; name -> the same with 0 in kept columns; name -> kept columns, in layout any."""
    t, meta = st.read(path)
    whole = {n: a.astype(np.float64) for n, a in t.items() if not n.startswith("lq.")}
    codes, kept = {}, {}
    for name, kind in json.loads(meta["lq.types"]).items():
        words, (n, k) = kind.split(), map(int, kind.split()[-1].split("x"))
        bits, group = int(words[0][3:]) if words[0].startswith("int") else 4, k if words[1] == "row" else int(words[1][1:])
        row = np.unpackbits(t[name + ".q"].reshape(n, -1), axis=1, bitorder="little")[:, : k * bits]
        q = (row.reshape(n, k, bits) << np.arange(bits)).sum(2)
        value = q.astype(np.float64) - (1 << (bits - 1)) if words[0].startswith("int") else rtn.TABLES[words[0]].astype(np.float64)[q]
        value = value * np.repeat(t[name + ".scale"].astype(np.float64).reshape(n, -1), group, axis=1)[:, :k]
        codes[name], whole[name] = value, value.copy()
        kept[name] = t.get(name + ".outlier_cols", np.zeros(0, np.int32))
        if len(kept[name]):
            check((value[:, kept[name]] == 0).all(), f"{name}: the codes of kept columns stand for 0")
            whole[name][:, kept[name]] = t[name + ".outlier_w"].astype(np.float64)
    return whole, codes, kept


def largest(name, kept, x):
    """The columns with the largest squares; those that are as large as the last but for rounding may change places."""
    size = (x**2).sum(0)
    most = max(1, int(len(size) * SHARE))
    cut = np.sort(size)[-most]
    sure = np.abs(size / cut - 1) > 1e-4
    is_kept = np.isin(np.arange(len(size)), kept)
    check(len(kept) == most and (is_kept == (size >= cut))[sure].all(), f"{name}: {sorted(kept)} are kept, expected those of at least {cut:.4g}")


def to_nearest(model, text, words):
    source = {n: a.astype(np.float64) for n, a in st.read(os.path.join(model, "model.safetensors"))[0].items()}
    for kind in ("int4 g32", "int3 g64", "nf4 g64 f16"):
        report = quantize(model, "near.lq", "--type", kind, *words)
        w, _, kept = opened("near.lq")
        x = inputs(config(model), w, sequences_of(model, text, LEN))
        for name in (n for n in kept if "proj" in n):
            largest(name, kept[name], x[name])
            bits = twins.bf16(source[name][:, kept[name]].astype(np.float32)).astype(np.float64)
            check(np.array_equal(w[name][:, kept[name]], bits), f"{kind}: {name}: weights of kept columns")
            check(report[name]["outliers"] == len(kept[name]), f"{kind}: {name}: the report says {report[name].get('outliers')} columns")


def least_squares(model, text, words, repay):
    """Given the codes, the kept weights are those with which the inputs make the least of what is off."""
    recipe = json.dumps({"repay": repay, "order": "none", "steps": 0})
    report = quantize(model, "spread.lq", "-m", "gptq", "--recipe", recipe, "--type", "int4 g32", *words)
    source = {n: a.astype(np.float64) for n, a in st.read(os.path.join(model, "model.safetensors"))[0].items()}
    w, codes, kept = opened("spread.lq")
    now, was = (inputs(config(model), a, sequences_of(model, text, LEN)) for a in (w, source))
    far = lost = plain = 0
    for name in (n for n in kept if "proj" in n):
        x, s, o = now[name], kept[name], source[name]
        largest(name, s, x)
        h, target = x.T @ x / len(x), was[name] if repay else x
        g = x.T @ target / len(x)
        rest = np.setdiff1d(np.arange(len(h)), s)
        damped = h[np.ix_(s, s)] + DAMP * np.diag(h)[rest].mean() * np.eye(len(s))
        # What is wanted beyond the row itself, by damped least squares over the kept columns.
        want = o[:, s] + ((o @ (g - h).T + (o - codes[name]) @ h)[:, s] - o[:, s] @ h[np.ix_(s, s)]) @ np.linalg.inv(damped)
        # half a unit of bf16's last place, and what f32 makes of sums of so many terms
        size = np.abs(o[:, s]) + (np.abs(o) @ np.abs(h[:, s]) + np.abs(o) @ np.abs(g[s] - h[s]).T) @ np.abs(np.linalg.inv(damped))
        allowed = np.abs(want) * 2.0**-8 + size * 2.0**-24 * (len(h) + 2 * np.linalg.cond(damped))
        off = np.abs(w[name][:, s] - want) / allowed
        check((off <= 1).all(), f"repay {repay}: {name}: a kept weight is {off.max():.2f} of what rounding allows away from least squares")
        far = max(far, off.max())
        if not repay:
            mine, whole = np.linalg.norm(x @ (o - w[name]).T), np.linalg.norm(x @ o.T)
            told = report[name]["out_error"]
            check(abs(mine / whole / told - 1) < 2e-3, f"{name}: it lost {mine / whole:.6f} of its output, the report says {told:.6f}")
        lost, plain = lost + report[name]["out_error"] ** 2, plain + report[name]["out_plain"] ** 2
    print(f"repay {repay}: kept weights within {far:.2f} of what rounding allows of least squares; squares lost {lost:.5f}, by plain codes {plain:.5f}")
    return lost


def worth(text):
    """KL divergence of the twin with loud channels, where the kept columns are what matters."""
    short = os.path.join(os.getcwd(), "short.txt")
    open(short, "w").write(open(os.path.join(calib, "test.txt"), encoding="utf-8").read()[:20000])
    files = []
    for name, words in (("plain", ()), ("kept", ("--salient", 0.02)), ("gptq", ("-m", "gptq")), ("both", ("-m", "gptq", "--salient", 0.02))):
        files.append(name + ".lq")
        quantize("outliers", files[-1], "--type", "int4 g64", "--calib", text, "--samples", 24, *words)
    r = json.loads(run("eval", *files, "--against", "outliers", "--exact", "--protocol", "llamacpp512", "--text", short, "--json"))["results"]
    plain, kept, gptq, both = (m["kld"]["mean"] for m in r)
    check(kept < 0.5 * plain, f"outliers: kept columns leave {kept:.5f} of plain rounding's {plain:.5f}")
    check(both < gptq, f"outliers: kept columns leave {both:.5f} of gptq's {gptq:.5f}")
    print(f"twin outliers, int4 g64: KLD of rtn {plain:.5f}, with 2 % of the columns kept {kept:.5f}; gptq {gptq:.5f}, {both:.5f}")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    text = os.path.join(folder, "text.txt")
    open(text, "w").write(open(os.path.join(calib, "calib.txt")).read()[:CHARS])
    words = ("--salient", SHARE, "--calib", text, "--seqlen", LEN, "--samples", 10000, "--head", "keep", "--embed", "keep")
    to_nearest(demo, text, words)
    least_squares(demo, text, words, 0)
    least_squares(demo, text, words, 1)
    for order in ("groups", "columns"):
        both = []
        for threads in (1, 3):
            quantize(demo, "t.lq", "-m", "gptq", "--type", "int3 g32", "--recipe", json.dumps({"order": order, "refine": 1}), "--threads", threads, *words)
            both.append(open("t.lq", "rb").read())
        check(both[0] == both[1], f"order {order}: 1 and 3 threads write the same bytes")
    subprocess.run([sys.executable, "-B", os.path.join(calib, "twins.py"), "."], check=True)
    worth(os.path.join(calib, "calib.txt"))
sys.exit(end())
