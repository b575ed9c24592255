#!/usr/bin/python3
# check_auto.py LQ: `lq quantize -m auto`, and the rules of recipes that it writes. At the size of int4 g128 throughout the demo's KL divergence is at
# least a quarter less; sizes and bits are kept to; larger targets lose less; the recipe of a file makes the same file again, without measuring;
# rules for single matrices do what they say, and those that cannot are refused in a line.
import json
import os
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, ".."))
import st
from counted import check, end

lq, root = os.path.abspath(sys.argv[1]), os.path.join(here, "../..")
demo, text = os.path.join(root, "calib_data/demo"), os.path.join(root, "calib_data/test.txt")
CALIB, FEW = ("--samples", 16), ("--samples", 8, "--seqlen", 128)


def run(*args):
    return subprocess.run([lq, *map(str, args)], capture_output=True, text=True)


def quantize(out, *words):
    r = run("quantize", demo, out, "--force", "--quiet", *words)
    check(r.returncode == 0, f"lq quantize {' '.join(map(str, words))}: {r.stderr.strip()}")
    return json.load(open(out + ".report.json"))


def sizes(folder):
    one, other = os.path.join(folder, "uniform.lq"), os.path.join(folder, "auto.lq")
    uniform = quantize(one, "-m", "gptq", "--type", "int4 g128", *CALIB)
    auto = quantize(other, "-m", "auto", "--target-bits", uniform["bits_per_weight"], *CALIB)
    check(auto["bits_per_weight"] <= uniform["bits_per_weight"], f"{auto['bits_per_weight']} bits, expected at most {uniform['bits_per_weight']}")
    kinds = {m["type"] for m in auto["modules"] if ".layers." in m["name"]}
    check(len(kinds) > 2, f"types: {kinds}")
    r = run("eval", one, other, "--against", demo, "--exact", "--protocol", "llamacpp512", "--text", text, "--windows", 12, "--json")
    a, b = (m["kld"]["mean"] for m in json.loads(r.stdout)["results"])
    check(b <= 0.75 * a, f"int4 g128 throughout: KLD {a:.6f}, auto at its size {b:.6f}")
    print(f"KLD at {uniform['bits_per_weight']:.3f} bits: int4 g128 throughout {a:.6f}, auto {b / a:.3f} of it")
    embed = [u["type"] for u in auto["auto"]["units"] if u["first"] == "model.embed_tokens.weight"]
    check(embed == [m["type"].rsplit(" ", 2)[0] for m in auto["modules"] if m["name"] == "model.embed_tokens.weight"], f"the embedding is a unit: {embed}")
    curve = auto["auto"]["curve"]
    check(all(p["bits"] < q["bits"] and p["kld"] > q["kld"] for p, q in zip(curve, curve[1:])), f"the curve falls: {curve}")
    small, again = os.path.join(folder, "small.lq"), os.path.join(folder, "again.lq")
    report = quantize(small, "-m", "auto", "--target-size", "2M", "--embed", "int8", *FEW)
    check("model.embed_tokens.weight" not in [u["first"] for u in report["auto"]["units"]], "an embedding with a type of its own is no unit")
    check(report["modules"][0]["type"] == "int8 row sym f16", f"--embed int8: {report['modules'][0]}")
    check(1_700_000 < os.path.getsize(small) <= 2_000_000, f"a target of 2 MB: {os.path.getsize(small)} bytes")
    quantize(again, "-m", "auto", "--recipe", st.read(small)[1]["lq.recipe"], *FEW)
    check(open(small, "rb").read() == open(again, "rb").read(), "the recipe of a file makes the same file, without a target")


def rules(folder):
    out = os.path.join(folder, "rules.lq")
    recipe = {"modules": [{"match": "*.down_proj.weight", "type": "int8 row"}, {"match": "model.layers.[01].mlp.*", "type": "int6 g32"},
                          {"match": "model.layers.2.*_proj.weight", "type": "keep"}, {"match": "model.embed_tokens.weight", "type": "int4 g32"}]}
    report = quantize(out, "--recipe", json.dumps(recipe))
    kinds = {m["name"]: m["type"].rsplit(" ", 2)[0] for m in report["modules"]}
    want = {"model.layers.3.mlp.down_proj.weight": "int8 row", "model.layers.1.mlp.down_proj.weight": "int6 g32", "model.layers.0.mlp.up_proj.weight": "int6 g32",
            "model.layers.3.self_attn.q_proj.weight": "int4 g128", "model.embed_tokens.weight": "int4 g32"}
    for name, kind in want.items():
        check(kinds.get(name) == kind, f"{name} is {kinds.get(name)}, expected {kind}")
    check(not any(".layers.2." in n for n in kinds), "layer 2 is kept")
    again = os.path.join(folder, "again.lq")
    quantize(again, "--recipe", st.read(out)[1]["lq.recipe"])
    check(open(out, "rb").read() == open(again, "rb").read(), "the recipe of a file with rules makes the same file")


REFUSED = (({"modules": [{"match": "*.down_prj.weight", "type": "int8 row"}]}, ("*.down_prj.weight", "model.layers.0.mlp.down_proj.weight")),
           ({"modules": [{"match": "*.q_proj.weight", "type": "int8 row"}]}, ("q_proj", "k_proj", "mixed")),
           ({"modules": [{"type": "int8 row"}]}, ("rule 1", "match")),
           ({"modules": [{"match": "*", "colour": "red"}]}, ("colour",)),
           ({"modules": [{"match": "*", "type": "int9"}]}, ("int9",)),
           ({"modules": {}}, ("modules",)),
           ({"rouding": "gptq"}, ("rouding",)),
           ({"rounding": "gtpq"}, ("gtpq",)),
           ({"damp": -1}, ("damp",)))


def refused(folder):
    out = os.path.join(folder, "refused.lq")
    for recipe, words in REFUSED:
        r = run("quantize", demo, out, "--quiet", "--recipe", json.dumps(recipe))
        line = r.stderr.strip().split("\n")[0]
        check(r.returncode == 2 and all(w in line for w in words) and not os.path.exists(out), f"{recipe}: {r.returncode}, {line}")
    quantize(out, "--recipe", json.dumps({**REFUSED[1][0], "mixed": True}))
    for words, told in ((("-m", "auto"), "target"), (("-m", "rtn", "--target-bits", "4"), "auto"), (("-m", "auto", "--target-bits", "1.5"), "target"),
                        (("-m", "auto", "--target-size", "100K"), "target")):
        r = run("quantize", demo, out, "--force", "--quiet", *words)
        # ... and before it measures, which would leave what it measured
        check(r.returncode == 2 and told in r.stderr and not os.path.exists(out + ".partial"), f"{words}: {r.returncode}, {r.stderr.strip()}")


with tempfile.TemporaryDirectory() as folder:
    rules(folder)
    refused(folder)
    sizes(folder)
sys.exit(end())
