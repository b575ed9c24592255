#!/usr/bin/python3
# check_again.py LQ: .lq files as input of `lq quantize`. Without a type all stays as it is to the bit, in another layout too, whatever stands beside the
# codes; plain ones are quantized as the checkpoint they were made from; with a type, values are rounded once more, by the same rule as if they
# had stood in a checkpoint; what is kept on purpose stays; the recipes that made the input are kept.
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..")]
sys.dont_write_bytecode = True
import make_models  # noqa: E402
import st  # noqa: E402
from counted import check, end  # noqa: E402

lq, calib = os.path.abspath(sys.argv[1]), os.path.join(here, "../../calib_data")
demo, text = os.path.join(calib, "demo"), os.path.join(calib, "test.txt")
FEW = ("--samples", 8, "--seqlen", 64)
MADE = {
    "int4": (), "asym": ("--type", "int3 g32 asym", "--head", "keep", "--embed", "keep"), "x86": ("--layout", "x86"),
    "order": ("-m", "gptq", "--recipe", '{"order": "columns"}', *FEW), "outliers": ("-m", "llmint8", *FEW),
    "static": ("--type", "int8 act i8 tensor asym", *FEW), "nvfp4": ("--type", "nvfp4"), "fp8": ("-m", "fp8"), "awq": ("-m", "awq", *FEW),
    "turned": ("-m", "hadamard",), "scales": ("--kv-scales", *FEW), "rules": ("--recipe", '{"modules": [{"match": "*.down_proj.weight", "type": "keep"}]}'),
}  # fmt: skip


def run(*args):
    r = subprocess.run([lq, *map(str, args)], capture_output=True, text=True)
    check(r.returncode == 0, f"lq {' '.join(map(str, args))}: {r.stderr.strip()}")
    return r.stdout + r.stderr


def tensors(path):
    return {n: a for n, a in st.read(path)[0].items() if not n.startswith("lq.pad/")}


def kld(model, *against):
    words = ("--against", model, "--exact", "--protocol", "llamacpp512", "--text", text, "--windows", 2, "--json", "-q")
    return [r["kld"]["mean"] for r in json.loads(run("eval", *against, *words))["results"]]


def stays(folder, name, words):
    one, two, three = (os.path.join(folder, f"{name}{i}.lq") for i in "123")
    run("quantize", demo, one, "-f", "-q", *words)
    run("quantize", one, two, "-f", "-q", "--layout", "x86" if name == "x86" else "any")
    a, b = tensors(one), tensors(two)
    check(a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a), f"{name}: tensors that differ: {[n for n in a if n not in b or not np.array_equal(a[n], b[n])]}")
    recipes = [json.loads(st.read(p)[1]["lq.recipe"]) for p in (one, two)]
    check(recipes[1]["from"] == recipes[0], f"{name}: the recipe is {recipes[1]}")
    run("quantize", two, three, "-f", "-q", "--layout", "any" if name == "x86" else "x86")
    check(kld(one, two, three) == [0, 0], f"{name}: in another layout it says something else")


def plain(folder):
    bf16, one, two = (os.path.join(folder, f) for f in ("bf16.lq", "one.lq", "two.lq"))
    run("quantize", demo, bf16, "-q", "--type", "keep", "--embed", "keep", "--head", "keep")
    for words in ((), ("-m", "gptq", "--type", "int3 g128", *FEW), ("-m", "hadamard",)):
        for model, out in ((demo, one), (bf16, two)):
            run("quantize", model, out, "-f", "-q", *words)
        a, b = tensors(one), tensors(two)
        check(a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a), f"of a plain .lq file by {words}: other tensors than of its checkpoint")


def again(folder):
    """int8 becomes int4: as if a checkpoint had had what int8 says."""
    eight, four, want = (os.path.join(folder, f) for f in ("eight.lq", "four.lq", "want.lq"))
    run("quantize", demo, eight, "-q", "--type", "int8 row", "--embed", "keep")
    said = run("quantize", eight, four, "--type", "int4 g128")
    check("35 matrices are coded already" in said and "lost stays lost" in said, f"no warning: {said}")
    t, meta = st.read(eight)
    w = {n: a for n, a in st.read(os.path.join(demo, "model.safetensors"))[0].items()}
    for name, kind in json.loads(meta["lq.types"]).items():
        n, k = map(int, kind.split()[-1].split("x"))
        w[name] = (t[name + ".q"].reshape(n, -1)[:, :k].astype(np.float32) - 128) * t[name + ".scale"].astype(np.float32).reshape(n, 1)
    other = os.path.join(folder, "dequantized")
    os.mkdir(other)
    for f in os.listdir(demo):
        if f != "model.safetensors":
            os.symlink(os.path.join(demo, f), os.path.join(other, f))
    st.write(os.path.join(other, "model.safetensors"), w, "F32")
    run("quantize", other, want, "-q", "--type", "int4 g128", "--embed", "keep")
    a, b = tensors(four), tensors(want)
    coded = [n for n in b if ".layers." in n and n.rsplit(".", 1)[-1] in ("q", "scale")]
    check(len(coded) == 70 and all(np.array_equal(a[n], b[n]) for n in coded), "int8 rounded once more: other codes than of the values it says")


def stacks(folder):
    """Experts are one tensor each here, and stacks in .lq files."""
    make_models.make(folder)
    one, two = os.path.join(folder, "one.lq"), os.path.join(folder, "two.lq")
    for name in ("mixtral", "qwen2_moe", "gpt_oss", "deepseek_v2"):
        run("quantize", os.path.join(folder, name), one, "-f", "-q", "--type", "int4 g16")
        run("quantize", one, two, "-f", "-q")
        a, b = tensors(one), tensors(two)
        check(a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a), f"{name}: tensors that differ")
        run("quantize", one, two, "-f", "-q", "--type", "int3 g16")


with tempfile.TemporaryDirectory() as folder:
    for name, words in MADE.items():
        stays(folder, name, words)
    plain(folder)
    again(folder)
    stacks(os.path.join(folder, "tiny"))
sys.exit(end())
