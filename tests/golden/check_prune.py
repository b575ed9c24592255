#!/usr/bin/python3
# check_prune.py LQ: structured pruning. Of every tiny model a layer is dropped: what is left computes in exact mode what the numpy forward
# computes that leaves the layer out, or the refusal says why it cannot be described. Which layer goes is held against its definition.
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of each of the processes that share the models
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, ".."))
import counted
import decoder_np
import make_models
from counted import check, end

lq = os.path.abspath(sys.argv[1])
dump = os.path.join(os.path.dirname(lq), "dump_logits")
KEEP = ["--type", "keep", "--embed", "keep", "--head", "keep"]


def prune(src, out, what, *words):
    """The report, or what was said instead."""
    cmd = [lq, "quantize", src, out, "--prune", what, "--quiet", "--force", "--threads", "1", *words]
    r = subprocess.run(cmd, capture_output=True, text=True)
    return (json.load(open(out + ".report.json")), "") if r.returncode == 0 else (None, r.stderr.strip())


def logits(path, ids, tokens):
    out = path + ".out"
    r = subprocess.run([dump, path, ids, out, str(tokens), "auto", "1", "512", "exact"], capture_output=True, text=True)
    return (np.fromfile(out, "<f4").reshape(tokens, -1), "") if r.returncode == 0 else (None, r.stderr.strip())


def within(what, path, cfg, w, ids, tokens):
    got, why = logits(path, os.path.join(os.path.dirname(path), "ids.bin"), tokens)
    if got is None:
        return check(False, f"{what}: {why}")
    rows = slice(None, None, make_models.EVERY)
    want, bound = decoder_np.forward(cfg, w, ids, ctx=len(ids))[rows], decoder_np.bound(cfg, w, ids)[rows]
    worst = (np.abs(got[rows] - want).max(-1) / bound).max()
    check(worst <= 1, f"{what}: off by {worst:.2f} of the bound")
    print(f"{what:30} {worst:.2f} of the bound")


def check_depth(path, name):
    out = os.path.join(path, "less.lq")
    cfg, w, ids = make_models.load(path)
    if 1 in (cfg.get(key) for key in ("num_hidden_layers", "num_layers", "n_layer", "n_layers")):
        report, why = prune(path, out, "depth:1", *KEEP)
        return check("1 layers are to go, but" in why, f"{name}: {why}")
    report, why = prune(path, out, "depth:1", *KEEP, "--samples", "1", "--seqlen", "48")
    if report is None:
        return check(REFUSED.get(name, "nothing") in why, f"{name}: {why}")
    check(name not in REFUSED, f"{name}: was expected to be refused")
    gone = report["recipe"]["prune"]["dropped"]
    within(f"{name} without layer {gone[0]}", out, {**cfg, "_gone": gone}, w, ids, make_models.tokens(name))


REFUSED = {  # the last layer never has a window, so that neither of two can take the place of the other
    "gemma4_sight": "cannot say of what is then layer 0 its window",
}  # fmt: skip


# --- what goes, by its definition ---

TEXT = b"The lighthouse stood where the river met the sea, and nobody who lived there could say who had built it. " * 3
LEN, FROM = 48, 24


def sequences():
    """The ids of TEXT as the models' tokenizer has them, a byte each, behind <s>; all sequences are drawn."""
    n = len(TEXT) // (LEN - 1)
    return [np.array([256, *TEXT[i * (LEN - 1) : (i + 1) * (LEN - 1)]]) for i in range(n)]


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def divergence(cfg, w, gone):
    """Mean KL divergence of the model without some layers from the whole, behind the first half of each sequence."""
    sums = []
    for ids in sequences():
        a, b = (log_softmax(decoder_np.forward({**cfg, "_gone": g}, w, ids, ctx=LEN)[FROM:]) for g in ((), gone))
        sums.append((np.exp(a) * (a - b)).sum(-1))
    return np.mean(sums)


def check_order(path, name, folder):
    cfg, w, _ = make_models.load(path)
    text, out = os.path.join(folder, "text.txt"), os.path.join(folder, name + ".lq")
    open(text, "wb").write(TEXT)
    words = [*KEEP, "--calib", text, "--seqlen", str(LEN)]
    report, why = prune(path, out, "depth:2", *words)
    if not check(report is not None, f"{name}: {why}"):
        return
    said, gone = report["recipe"]["prune"], []
    for _ in range(2):
        klds = {l: divergence(cfg, w, [*gone, l]) for l in range(cfg["num_hidden_layers"]) if l not in gone}
        gone.append(min(klds, key=klds.get))
    check(said["dropped"] == gone, f"{name}: {said['dropped']} went, {gone} are worth least")
    # Logits in f32 are off by parts in a million, and so are the probabilities that divergence weighs.
    check(abs(said["kld"][1] / klds[gone[1]] - 1) < 1e-4, f"{name}: {said['kld'][1]} without them, numpy {klds[gone[1]]}")
    report, why = prune(path, out, "influence:1", *words)
    if not check(report is not None, f"{name}: {why}"):
        return
    seen = []
    for ids in sequences():
        of = []
        decoder_np.forward({**cfg, "_seen": of}, w, ids, ctx=LEN)
        seen.append(np.array(of))
    h = np.concatenate(seen, 1)  # [layers + 1][rows][dim]
    cos = (h[1:] * h[:-1]).sum(-1) / np.sqrt((h[1:] ** 2).sum(-1) * (h[:-1] ** 2).sum(-1))
    want, said = 1 - cos.mean(-1), report["recipe"]["prune"]
    check(np.abs(np.array(said["influence"]) - want).max() < 1e-5, f"{name}: influence {said['influence']}, numpy {want}")
    check(said["dropped"] == [int(want.argmin())], f"{name}: by influence {said['dropped']} went, {want.argmin()} has the least")


# --- the command ---


def check_command(path, folder):
    out = os.path.join(folder, "command.lq")
    for what, words in {
        "depth:0": "at least 1", "depth": "at least 1", "depth:x": "at least 1", "depth:1.5": "at least 1", "": "nothing that can go",
        "layers:2": '"layers" is nothing that can go', "depth:1,depth:1": "said twice", "depth:99": "99 layers are to go, but",
    }.items():
        report, why = prune(path, out, what)
        check(report is None and words in why and not os.path.exists(out), f"--prune {what!r}: {why}")
    open(out + ".pruned.lq", "w").write("somebody's")
    report, why = prune(path, out, "depth:1")
    check("is there already" in why and open(out + ".pruned.lq").read() == "somebody's", f"OUT.pruned.lq is somebody's: {why}")
    os.remove(out + ".pruned.lq")
    files = {}
    for method in ("rtn", "gptq", "awq", "hadamard"):
        report, why = prune(path, out, "depth:1", "--method", method, "--type", "int4 g32", "--samples", "4", "--seqlen", "64")
        if not check(report is not None, f"{method} of a pruned model: {why}"):
            continue
        files[method] = open(out, "rb").read()
        check(report["input"]["path"].startswith(path) and report["layers"] == report["recipe"]["prune"]["layers"] - 1, f"{method}: report")
        check(not os.path.exists(out + ".pruned.lq") and not os.path.exists(out + ".pruned.lq.partial"), f"{method}: what lay beside {out} is gone")
        for verb in (["run", out, "Once", "-n", "4", "--raw"], ["inspect", out, "--verify"], ["eval", out, "--text", os.path.join(folder, "text.txt")]):
            r = subprocess.run([lq, *verb], capture_output=True, text=True)
            check(r.returncode == 0, f"{method}: lq {verb[0]} of a pruned model: {r.stderr.strip()}")
    r = subprocess.run([lq, "quantize", path, out, "--prune", "depth:1", "--method", "gptq", "--type", "int4 g32", "--samples", "4",
                        "--seqlen", "64", "--force", "--quiet", "--threads", "3"], capture_output=True, text=True)  # fmt: skip
    check(r.returncode == 0 and open(out, "rb").read() == files.get("gptq"), f"three threads give other bytes {r.stderr}")
    r = subprocess.run([lq, "quantize", path, out, "--prune", "depth:1", "--force", "--dry-run"], capture_output=True, text=True)
    check(r.returncode == 0 and "prune depth:1" in r.stderr and open(out, "rb").read() == files.get("gptq"), f"--dry-run: {r.stderr}")


def check_one(path):
    counted.passed = counted.failed = 0
    name = os.path.basename(path)
    check_depth(path, name)
    sys.stdout.flush()
    return counted.passed, counted.failed


with tempfile.TemporaryDirectory() as folder:
    make_models.make(folder)
    names = [n for n in sys.argv[2:] if n != "command"] if sys.argv[2:] else make_models.MODELS
    with multiprocessing.Pool() as pool:
        for good, bad in pool.imap_unordered(check_one, [os.path.join(folder, name) for name in names]):
            counted.passed, counted.failed = counted.passed + good, counted.failed + bad
    if not sys.argv[2:] or "command" in sys.argv:
        for name in ("llama3", "cwm"):
            check_order(os.path.join(folder, name), name, folder)
        check_command(os.path.join(folder, "llama3"), folder)
sys.exit(end())
