#!/usr/bin/python3
# quantize_report.py LQ: what `lq quantize` says at the end, and --eval with it: sums by layer and kind are those of the modules, by norms that numpy takes from the checkpoint;
# tables line up, have no empty columns, and of a method that looks at no text nothing of outputs; -v has a line for each module; --quiet none of it.
import json
import math
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../golden"))
sys.path.insert(0, os.path.join(here, ".."))
import st  # noqa: E402
from counted import check, end, skip  # noqa: E402

lq, demo = os.path.abspath(sys.argv[1]), os.path.join(here, "../../calib_data/demo")
KINDS = {"self_attn": "attention", "mlp": "mlp", "embed_tokens": "embed"}


def quantize(out, *words):
    r = subprocess.run([lq, "quantize", demo, out, "--force", *map(str, words)], capture_output=True, text=True)
    check(r.returncode == 0, f"{words}: {r.stderr}")
    return r.stdout, r.stderr, json.load(open(out + ".report.json"))


def kind_of(name):
    return next(kind for part, kind in KINDS.items() if part in name)


def sums(report, squares):
    def near(a, b, what):
        check(math.isclose(a, b, rel_tol=1e-6), f"{what}: {a}, expected {b}")

    def compare(part, modules, what):
        weights = sum(m["n"] * m["k"] for m in modules)
        check(part["matrices"] == len(modules) and part["weights"] == weights, f"{what}: {part}")
        near(part["bits"], sum(m["bits"] * m["n"] * m["k"] for m in modules) / weights, f"{what}, bits")
        near(part["bytes"], sum(m["bits"] * m["n"] * m["k"] for m in modules) / 8, f"{what}, bytes")
        near(part["bytes_before"], 2 * weights, f"{what}, bytes before")  # the demo is bf16
        if squares:  # not of what was repaid, which is another matrix
            lost = sum(m["rel_error"] ** 2 * squares[m["name"]] for m in modules)
            near(part["rel_error"], math.sqrt(lost / sum(squares[m["name"]] for m in modules)), f"{what}, error of weights")
        check(("out_error" in part) == any("out_error" in m for m in modules), f"{what}: {part}")
        if "out_error" in part:
            low, high = min(m["out_error"] for m in modules), max(m["out_error"] for m in modules)
            check(low <= part["out_error"] <= high and part["out_error"] <= part["out_plain"], f"{what}: {part} of {low} .. {high}")

    modules = report["modules"]
    for part in report["parts"]:
        compare(part, [m for m in modules if kind_of(m["name"]) == part["kind"]], part["kind"])
    check({p["kind"] for p in report["parts"]} == {kind_of(m["name"]) for m in modules}, "kinds")
    check([layer["layer"] for layer in report["by_layer"]] == list(range(5)), "layers")
    for layer in report["by_layer"]:
        own = [m for m in modules if f".layers.{layer['layer']}." in m["name"]]
        check(sum(p["matrices"] for p in layer["parts"]) == len(own), f"layer {layer['layer']}")
        for part in layer["parts"]:
            compare(part, [m for m in own if kind_of(m["name"]) == part["kind"]], f"layer {layer['layer']}, {part['kind']}")


def tables(text):
    """Each as its rows of cells; columns are two blanks apart, and what stands below a head overlaps it."""
    for block in text.strip().split("\n\n"):
        rows = [line for line in block.split("\n") if re.search(r"\S  +\S", line)]
        if len(rows) < 2:
            continue
        spans = [m.span() for m in re.finditer(r"\S+(?: \S+)*", rows[0])]
        for a, b in spans:
            below = [row[max(0, a):b].strip() for row in rows[1:]]
            check(any(below), f"a column with nothing below its head {rows[0][a:b]}:\n{block}")
        for row in rows[1:]:
            for m in re.finditer(r"\S+(?: \S+)*", row):
                check(any(m.start() < b and a < m.end() for a, b in spans), f"a cell below no head: {m[0]} in\n{block}")


with tempfile.TemporaryDirectory() as folder:
    out = os.path.join(folder, "out.lq")
    tensors = st.read(os.path.join(demo, "model.safetensors"))[0]
    squares = {name: float(np.sum(np.square(np.asarray(t, np.float64)))) for name, t in tensors.items()}
    said, _, report = quantize(out, "--bits", 4, "--group", 32)
    sums(report, squares)
    tables(said)
    check("output" not in said and "residual" not in said and "plainly" not in said, f"of rtn: {said}")
    check(all("drift" not in layer for layer in report["by_layer"]), "rtn knows no drift")
    few, drift = ("--samples", 4, "--seqlen", 64), []
    sums(quantize(out, "-m", "gptq", "--recipe", '{"repay": 0}', *few)[2], squares)
    for bits in (8, 3):
        said, err, report = quantize(out, "-m", "gptq", "--bits", bits, "--group", 64, *few, "-v")
        sums(report, None)
        tables(said)
        check(all(word in said for word in ("output error", "rounded plainly", "residual")), f"of gptq: {said}")
        lines = [line.split(":")[0] for line in err.split("\n") if ", weight error " in line]
        check(lines == [m["name"] for m in report["modules"]], f"-v: {lines}")
        drift.append([layer["drift"] for layer in report["by_layer"]])
    check(all(0 < fine < coarse < 1 for fine, coarse in zip(*drift)), f"residuals drift: {drift}")
    said, err, report = quantize(out, "--head", "keep", "--embed", "keep", "--quiet", "-v")
    check(not said, f"--quiet: {said}")
    said, _, _ = quantize(out, "--embed", "keep")
    check(re.search(r"^kept +1 +262k +16.000", said, re.M), f"what is kept: {said}")

    # --eval says what lq eval says, on the built-in text and on another; what cannot be read is told before anything is written.
    text, short = os.path.join(here, "../../calib_data/test.txt"), os.path.join(folder, "short.txt")
    with open(text, encoding="utf-8") as f, open(short, "w", encoding="utf-8") as to:
        to.write(f.read(6000))
    sanitized = json.loads(subprocess.run([lq, "version", "--json"], capture_output=True).stdout)["sanitizers"]
    if sanitized:
        skip("under sanitizers --eval on the built-in text takes minutes")
    for words, text, more in ((("--eval",), text, ("--windows", 32)), (("--eval-text", short), short, ()))[1 if sanitized else 0:]:
        said, _, report = quantize(out, "--bits", 4, *words)
        r = subprocess.run([lq, "eval", out, "--against", demo, "--text", text, "--protocol", "llamacpp512", "--json", *map(str, more)],
                           capture_output=True, text=True)
        got = report["eval"]
        for want, one in zip(json.loads(r.stdout)["results"], (got, got["served"])):
            same = (("arithmetic", want["mode"]), ("perplexity", want["perplexity"]), ("perplexity_error", want["standard_error"]),
                    ("kld", want["kld"]["mean"]), ("kld_error", want["kld"]["standard_error"]), ("same_top", want["kld"]["same_top"]))
            check(all(one[key] == value for key, value in same), f"{words}: {one}, lq eval: {want}")
            check(f"{one['kld']:.6f} +- {one['kld_error']:.6f}" in said, f"{words}: {said}")
        check(got["windows"] == want["windows"] and got["perplexity_before"] == want["kld"]["reference_perplexity"], f"{words}: {got}, lq eval: {want}")
        check(list(report)[-2:] == ["eval", "run"], f"{words}: {list(report)}")
    os.unlink(out)
    r = subprocess.run([lq, "quantize", demo, out, "--eval-text", out + ".none", "--quiet", "--force"], capture_output=True, text=True)
    check(r.returncode == 1 and ".none" in r.stderr and r.stderr.count("\n") == 1 and not os.path.exists(out), f"no such text: {r.stderr}")
sys.exit(end())
