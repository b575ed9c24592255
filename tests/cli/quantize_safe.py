#!/usr/bin/python3
"""quantize_safe.py LQ: lq quantize destroys nothing and says what is wrong before it works: where OUT and the report may stand, what
--force replaces, side files, changed shards, kept tensors, Ctrl-C inside a matrix; random recipes on numbers near the end of f32."""
import glob
import hashlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(root, "tests"))
sys.path.insert(0, os.path.join(root, "tests", "golden"))
import make_models  # noqa: E402
import st  # noqa: E402
from counted import check, end, skip  # noqa: E402

lq = os.path.abspath(sys.argv[1])
demo = os.path.join(root, "calib_data", "demo")
slow = float(os.environ.get("LQ_SLOW", "1"))
watched = json.loads(subprocess.run([lq, "version", "--json"], capture_output=True).stdout)["sanitizers"] != ""


def run(*words, limit=""):
    r = subprocess.run(["bash", "-c", limit + ' exec "$@"', "x", lq, *map(str, words)], capture_output=True, text=True, timeout=120 * slow)
    return r.returncode, " | ".join(r.stderr.strip().splitlines()), r.stdout


def digest(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest() if os.path.exists(path) else None


def copy(name, **files):
    shutil.copytree(demo, name)
    for f, text in files.items():
        open(os.path.join(name, f.replace("__", ".")), "wb").write(text)
    return name


def shards(name, parts=3):
    os.makedirs(name)
    raw = open(os.path.join(demo, "model.safetensors"), "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8 : 8 + n])
    head.pop("__metadata__", None)
    names, where = sorted(head), {}
    for i in range(parts):
        file, body, entries = f"model-{i + 1:05d}-of-{parts:05d}.safetensors", b"", {}
        for t in names[i::parts]:
            a, b = head[t]["data_offsets"]
            entries[t] = {**head[t], "data_offsets": [len(body), len(body) + b - a]}
            body += raw[8 + n + a : 8 + n + b]
            where[t] = file
        text = json.dumps(entries).encode()
        open(os.path.join(name, file), "wb").write(struct.pack("<Q", len(text)) + text + body)
    json.dump({"weight_map": where}, open(os.path.join(name, "model.safetensors.index.json"), "w"))
    for f in glob.glob(os.path.join(demo, "*.json")):
        shutil.copy(f, name)
    return where


def refused(words, code, *texts, kept=()):
    """The words, the exit status, nothing changed, nothing left."""
    before = {k: digest(k) for k in kept}
    there = set(os.listdir("."))
    got, line, _ = run("quantize", "-q", *words)
    check(got == code and all(t in line for t in texts), f"{words}: exit {got}, expected {code} and {texts}: {line}")
    check(before == {k: digest(k) for k in kept}, f"{words}: changed one of {kept}")
    check(set(os.listdir(".")) == there, f"{words}: left {set(os.listdir('.')) - there}")


def places():
    code, line, _ = run("quantize", "-q", demo, "good.lq")
    check(code == 0, f"a plain run: {line}")
    copy("in1")
    code, line, _ = run("quantize", "-q", "in1", "in1/out.lq")
    check(code == 0 and digest("in1/out.lq") == digest("good.lq"), f"OUT inside the input's folder: exit {code}: {line}")
    shards("in2")
    one = "in2/model-00001-of-00003.safetensors"
    refused(["in2", one, "--force"], 2, kept=[one])
    refused(["in2", "in2/config.json", "--force"], 2, "file of the checkpoint", kept=["in2/config.json"])
    os.link("in2/config.json", "linked.lq")
    refused(["in2", "linked.lq", "--force"], 2, "file of the checkpoint", kept=["linked.lq"])
    open("precious", "w").write("precious")
    refused([demo, "precious", "--force"], 2, "is not replaced", kept=["precious"])
    os.symlink("precious", "link.lq")
    refused([demo, "link.lq", "--force"], 2, "is not replaced", kept=["precious", "link.lq"])
    refused([demo, "good.lq"], 2, "--force", kept=["good.lq"])
    refused([demo, "good.lq", "--dry-run"], 2, "--force", kept=["good.lq"])
    refused([demo, "exp-2-of-5.lq"], 2, "shard")
    refused([demo, "no/such.lq"], 1, "no/such.lq", "No such file")
    refused([demo, "in1"], 2, "directory")
    raw = bytearray(open("good.lq", "rb").read())
    raw[5000:5100] = bytes(100)  # damaged, but still ours
    open("torn.lq", "wb").write(raw)
    open("empty.lq", "wb").close()
    for name in ("torn.lq", "empty.lq"):
        code, line, _ = run("quantize", "-q", demo, name, "--force")
        check(code == 0 and digest(name) == digest("good.lq"), f"--force over {name}: exit {code}: {line}")
    os.remove(os.path.join(copy("wordless"), "tokenizer.json"))
    told = [run("quantize", model, "dry.lq", "--dry-run")[:2] for model in ("wordless", demo)]
    check([code for code, _ in told] == [0, 0] and ["no tokenizer beside it" in line for _, line in told] == [True, False], f"without a tokenizer: {told}")
    code, line, _ = run("quantize", "-q", "in2", "few.lq", limit="ulimit -n 10;")
    check(code == 0, f"three shards with ten descriptors: {line}")


def reports():
    big = "in1/model.safetensors"
    refused(["in1", "r.lq", "--report", big], 2, "file of the checkpoint", kept=[big])
    refused(["in1", "r.lq", "--report", big, "--force"], 2, "file of the checkpoint", kept=[big])
    refused([demo, "r.lq", "--report", "precious"], 2, "--force", kept=["precious"])
    refused([demo, "r.lq", "--report", "r.lq"], 2, "where the output does")
    refused([demo, "good.lq", "--report", "./good.lq", "--force"], 2, "where the output does", kept=["good.lq"])
    refused([demo, "r.lq", "--report", "/dev/null"], 2, "no plain file")
    refused([demo, "r.lq", "--report", "in1"], 2, "directory")
    refused([demo, "r.lq", "--report", "no/such.json"], 1, "no/such.json")
    code, line, out = run("quantize", "-q", demo, "told.lq", "--report", "-")
    check(code == 0 and json.loads(out)["modules"] and not os.path.exists("told.lq.report.json") and not os.path.exists("-"), f"--report -: {line}")
    code, line, out = run("quantize", "-q", demo, "told.lq", "--report", "in-place.json", "--force", "--json")
    check(code == 0 and out == open("in-place.json").read(), f"--json with --report FILE: {line}")


def failures():
    """What fails leaves the OUT that was there, and no report."""
    shutil.copy("good.lq", "keep.lq")
    for i, text in enumerate((b"\xef\xbb\xbf{}", b'{"a": 1, "a": 2}', b'{"a": [1,]}', b'{"a": NaN}')):
        copy(f"side{i}", special_tokens_map__json=text)
        refused([f"side{i}", "keep.lq", "--force"], 1, "special_tokens_map.json", kept=["keep.lq"])
    # A disk that is full when the file is finished: nothing has its name, neither has the report.
    refused_by_size = ["quantize", "-q", demo, "full.lq"]
    code, line, _ = run(*refused_by_size, limit="ulimit -f 900;")
    check(code == 1 and line.startswith("lq: ") and not os.path.exists("full.lq") and not os.path.exists("full.lq.report.json"), f"ulimit -f: {code} {line}")


def changed_shard():
    where = shards("in3")
    run("quantize", "-q", "-t", 1, "in3", "s.lq", limit="ulimit -f 450;")
    check(os.path.isdir("s.lq.partial"), "a run that ended in the middle leaves its blocks")
    file = "in3/" + where["model.layers.0.mlp.up_proj.weight"]
    raw = bytearray(open(file, "rb").read())
    when = os.stat(file)
    raw[-2000:-1800] = bytes(200)
    open(file, "r+b").write(raw)
    os.utime(file, ns=(when.st_atime_ns, when.st_mtime_ns + 1))
    code, line, out = run("quantize", "in3", "s.lq")
    check(code == 0 and "made anew" in str(out) + line, f"a changed shard: exit {code}: {line}")
    check(json.load(open("s.lq.report.json"))["run"]["resumed_blocks"] == 0, "no block of the old shard is taken over")
    check(run("quantize", "-q", "in3", "s2.lq")[0] == 0, "a fresh run")
    check(digest("s.lq") == digest("s2.lq"), "what was made anew is not what a fresh run makes")


def kept_tensors():
    copy("in4")
    t, _ = st.read("in4/model.safetensors")
    t.update({"model.extra.weight": np.ones((3, 5), np.float32), 'vision."odd".bias': np.ones(4, np.float32)})
    st.write("in4/model.safetensors", t)
    code, line, _ = run("quantize", "-q", "in4", "k.lq", "--keep-unknown")
    check(code == 0, f"--keep-unknown: {line}")
    got, meta = st.read("k.lq")
    check(sorted(json.loads(meta["lq.kept"])) == ["model.extra.weight", 'vision."odd".bias'] and (got["model.extra.weight"] == 1).all(), "lq.kept")
    code, line, out = run("run", "-q", "--raw", "-n", 2, "k.lq", "Once")
    check(code == 0 and out, f"what --keep-unknown made does not run: {line}")


def interrupt():
    """Ctrl-C inside one large matrix, and while the file is read back, ends within a second."""
    os.makedirs("wide")
    rows = 30000 if watched else 120000
    cfg = json.load(open(os.path.join(demo, "config.json")))
    cfg.update(vocab_size=rows, num_hidden_layers=1, hidden_size=512, num_attention_heads=4, num_key_value_heads=4, intermediate_size=128,
               tie_word_embeddings=True, head_dim=128)
    for f in glob.glob(os.path.join(demo, "*.json")):
        shutil.copy(f, "wide")
    json.dump(cfg, open("wide/config.json", "w"))
    p = "model.layers.0."
    rng = np.random.default_rng(1)
    shapes = {"model.embed_tokens.weight": (rows, 512), "model.norm.weight": (512,), p + "input_layernorm.weight": (512,),
              p + "post_attention_layernorm.weight": (512,), p + "mlp.gate_proj.weight": (128, 512), p + "mlp.up_proj.weight": (128, 512),
              p + "mlp.down_proj.weight": (512, 128), **{f"{p}self_attn.{x}_proj.weight": (512, 512) for x in "qkvo"}}
    st.write("wide/model.safetensors", {n: rng.standard_normal(s, np.float32) for n, s in shapes.items()})
    began = time.monotonic()
    code, line, _ = run("quantize", "-q", "-t", 1, "wide", "w.lq", "--embed", "int8 g16 asym")
    whole = time.monotonic() - began
    check(code == 0, f"a wide embedding: {line}")
    report = json.load(open("w.lq.report.json"))["run"]
    # A sanitizer's own memory grows with the code that it watches: it is what a small model takes beyond its plan.
    code, line, _ = run("quantize", "-q", "-t", 1, demo, "small.lq")
    small = json.load(open("small.lq.report.json"))["run"]
    check(code == 0, f"a small model: {line}")
    more = small["peak_bytes"] - small["plan_bytes"] if watched else 0
    check(report["peak_bytes"] < report["plan_bytes"] + (16 << 20) + more, f"took {report['peak_bytes']} bytes of its own, the plan said {report['plan_bytes']}")
    for share in (0.5,) if watched else (0.15, 0.3, 0.5, 0.7, 0.85):
        q = subprocess.Popen([lq, "quantize", "-q", "-t", "1", "wide", "i.lq", "--embed", "int8 g16 asym"], stderr=subprocess.PIPE, text=True)
        time.sleep(whole * share)
        q.send_signal(signal.SIGINT)
        began = time.monotonic()
        err = q.communicate(timeout=60 * slow)[1]
        took = time.monotonic() - began
        check(q.returncode in (0, 1) and took < slow * max(1, whole / 4), f"Ctrl-C after {share:.2f} of {whole:.1f} s was heard after {took:.2f} s")
        check(q.returncode == 0 or "stopped after" in err, f"Ctrl-C after {share:.2f}: {err}")
        for path in glob.glob("i.lq*"):
            (shutil.rmtree if os.path.isdir(path) else os.unlink)(path)


def architectures():
    """What every architecture's tiny model becomes opens and runs."""
    make_models.make("arch")
    for name in sorted(os.listdir("arch")):
        code, line, _ = run("quantize", "-q", f"arch/{name}", f"{name}.lq", "--type", "int4 g32")
        check(code == 0, f"{name}: {line}")
        code, line, _ = run("run", "-q", "--raw", "-n", 2, f"{name}.lq", "ab")
        check(code == 0, f"{name}: does not run: {line}")


def schemes():
    """Types that say what activations become, and named codebooks: written, validated, run; a scale that must be measured is refused."""
    for i, text in enumerate(("int8 row sym f32 act i8 row", "e4m3 row f32 act e4m3 row", "int8 g128 asym f16 act i8 g128", "fp4 g64 f16", "e4m3 g128 r128 f32", "nf4 g64 f32")):
        code, line, _ = run("quantize", "-q", demo, f"act{i}.lq", "--type", text)
        check(code == 0 and json.load(open(f"act{i}.lq.report.json"))["modules"][1]["type"] == text, f"{text}: {line}")
        code, line, out = run("run", "-q", "--raw", "-n", 8, f"act{i}.lq", "Once upon a time")
        if "no kernel for" in line:
            skip(f"{text} is written; {line}")
        else:
            check(code == 0 and out.startswith(" there was"), f"{text}: {line} {out}")
    refused([demo, "act.lq", "--head", "int8 row sym f32 act i8 tensor"], 1, "measured for the matrices of layers alone")


def calibration():
    """What is no text to calibrate on is told in one line; a recipe may stand in a file."""
    words = ["-m", "gptq", "--bits", "4", "--group", "32", "--samples", "4", "--seqlen", "64", "--calib"]
    for name, text, told in (("empty.txt", b"", "no calibration text"), ("short.txt", b"Once upon a time", "at least one sequence of"),
                             ("latin.txt", b"caf\xe9 " * 200, "byte 3 of the calibration text is no UTF-8"), ("empty.jsonl", b"\n", "no calibration text"),
                             ("other.jsonl", b'{"body": "a"}\n', 'no "text" in it')):
        open(name, "wb").write(text)
        refused([demo, "c.lq", *words, name], 1, name, told)
    copy("loud")
    t, _ = st.read("loud/model.safetensors")
    t["model.layers.1.input_layernorm.weight"][7] = 3e38
    st.write("loud/model.safetensors", t)
    refused(["loud", "c.lq", *words[:-1]], 1, "model.layers.1.self_attn.q_proj.weight", "no number", "column 7")
    open("recipe.json", "w").write(' {"rounding": "search", "modules": [{"match": "*.down_proj.weight", "type": "int8 row"}]}')
    code, line, _ = run("quantize", "-q", demo, "c.lq", "--recipe", "recipe.json")
    types = {m["name"]: m["type"] for m in json.load(open("c.lq.report.json"))["modules"]} if not code else {}
    check(code == 0 and types["model.layers.3.mlp.down_proj.weight"].startswith("int8 row"), f"a recipe in a file: {line}")
    refused([demo, "d.lq", "--recipe", "nowhere.json"], 1, "nowhere.json")
    code, line, _ = run("quantize", "-q", demo, "e.lq", *words[:-1])
    calib = json.load(open("e.lq.report.json"))["calib"] if not code else {}
    drawn = calib.get("drawn", [])
    check(code == 0 and len(drawn) == 4 and sorted(set(drawn)) == drawn and drawn[-1] < calib["sequences"], f"what was drawn: {line} {calib}")


def no_numbers():
    """A weight that is no number is named by each method, whatever it made of the calibration text; nothing is written."""
    tensors = st.read(os.path.join(demo, "model.safetensors"))[0]
    for i, (name, at, told) in enumerate((("model.layers.2.mlp.up_proj.weight", (3, 7), "row 3, column 7 is NaN"),
                                          ("model.layers.3.post_attention_layernorm.weight", (9,), "column 9 is infinite"))):
        model, changed = copy(f"none{i}"), np.array(tensors[name], np.float32)
        changed[at] = np.nan if "NaN" in told else np.inf
        st.write(os.path.join(model, "model.safetensors"), {**{n: np.array(t, np.float32) for n, t in tensors.items()}, name: changed}, "BF16")
        text = ["--samples", "2", "--seqlen", "32"]
        for words in (["-m", "rtn"], ["--type", "keep", "--embed", "keep"], ["-m", "gptq", *text], ["-m", "awq", *text], ["-m", "smoothquant", *text],
                      ["-m", "hadamard"], ["-m", "auto", "--target-bits", "4.5", *text], ["--prune", "hidden:0.9", *text], ["--prune", "depth:1", *text]):
            code, err, _ = run("quantize", model, "none.lq", "--quiet", *words)
            check(code == 1 and f"{name}: " in err and told in err and "|" not in err, f"{words}, {name}: exit {code}: {err}")
            left = set(glob.glob("none.lq*")) - {"none.lq.partial"}  # where auto would keep what it measured
            check(not left, f"{words}, {name}: {left}")


def odd_numbers():
    """Random recipes on weights that are ordinary, tiny, huge, denormal: what lq writes it accepts."""
    rng = random.Random(5)
    numbers = np.random.default_rng(5)
    for i in range(15 if watched else 60):
        model = f"odd{i}"
        copy(model)
        t, _ = st.read(model + "/model.safetensors")
        for n in t:
            if t[n].ndim == 2:
                size = np.float32(10.0) ** numbers.choice([0, 0, -38.5, -40, -42, -44, -6, 30], (t[n].shape[0], 1)).astype(np.float32)
                t[n] = (t[n] * size).astype(np.float32)
        st.write(model + "/model.safetensors", t, rng.choice(["F32", "BF16"]))
        head = rng.choice(["int2", "int3", "int4", "int4", "int5", "int8", "e4m3", "e5m2", "fp4", "nf4"])
        words = [head, rng.choice(["g16", "g32", "g128", "row"] + (["tensor", "g32 r16"] if head[0] == "e" else []))]
        if head[0] == "i":
            words.append(rng.choice(["sym", "asym"]))
        words.append(rng.choice(["f16", "f32", "bf16"] + (["dq256"] if words[1] not in ("tensor", "g32 r16") else [])))
        text = " ".join(words)
        code, line, _ = run("quantize", "-q", model, f"{model}.lq", "--type", text, "--embed", "keep")
        check(code == 0, f"{text}: exit {code}: {line}")
        shutil.rmtree(model)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for part in (places, reports, failures, changed_shard, kept_tensors, interrupt, architectures, schemes, calibration, no_numbers, odd_numbers):
        part()
    os.chdir("/")
sys.exit(end())
