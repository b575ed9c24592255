#!/usr/bin/python3
# check_device_quantize.py LQ: `lq quantize --device cuda` on a machine that has no GPU (on_device.py): it rounds with the bytes of the CPU, and calibrates
# with losses near the CPU's; text is written, factors, types and parts that go are chosen on it, near the CPU's. With LQ_REAL_GPU in the environment the GPU that is here does it.
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

from on_device import demo, divergence, found, lq, real_gpu, run
import make_models
import st
from counted import check, end
from dumped import logits


def losses(path):
    """What plain rounding would lose of a module's outputs on the text, and what was lost, of each in order."""
    with open(path + ".report.json") as f:
        rows = [m for m in json.load(f)["modules"] if m.get("out_error")]
    return np.array([m["out_plain"] for m in rows]), np.array([m["out_error"] for m in rows])


def calibrate(folder):
    """The text goes through the model on the device. What plain rounding would lose is a quadratic form in the moments: of k = 64 columns it moves by no more than k times what
    the moments do (|h_ij|^2 <= h_ii h_jj), which is 2^-15 in f32 (tiles of AMX). In bf16 an input is rounded twice on its way to its first reader, so that the form moves by
    4 * 2^-9 if all rows were off one way. That is held of the first input. Behind it other codes were chosen by these moments, as good ones and not the same: there single
    modules are held to a fifth, and the sums over all to a twentieth, as all are where earlier errors are made good. A result may be half as far again from the model as the CPU's is."""
    few = os.path.join(folder, "few")
    np.fromfile(os.path.join(folder, "gqa", "ids.bin"), "<i4")[:24].tofile(few)
    gptq, awq = (["-m", m, "--bits", "4", "--group", "16", "--recipe", '{"repay": 0}'] for m in ("gptq", "awq"))
    columns, clip = (["--recipe", json.dumps(r)] for r in ({"order": "columns", "refine": 1}, {"transform": "awq+clip"}))
    more = [["-m", "gptq", "--type", "nf4 g16 dq256"], ["-m", "gptq", "--type", "int3 g32 asym", "--salient", "0.1", *columns], ["-m", "gptq", "--type", "e4m3 g16 r16 f32"], ["-m", "awq", "--type", "int4 g16", *clip]]
    for name, words in (("gqa", gptq), ("mixtral", gptq), ("deepseek_v3", gptq), ("gemma4", gptq), ("gqa", awq), ("gqa", ["-m", "smoothquant"]), *(("gqa", words) for words in more)):
        model, out, told = os.path.join(folder, name), {}, {}
        for how, more in (("cpu", []), ("exact", ["--device", "cuda", "--exact"]), ("default", ["--device", "cuda"])):
            out[how] = os.path.join(folder, how + ".lq")
            r = run("quantize", model, out[how], *words, "--samples", "4", "--seqlen", "24", "--force", "--quiet", *more)
            if check(r.returncode == 0, f"{name} {words} {how}: {r.stderr.strip()}"):
                told[how] = losses(out[how])
        if len(told) < 3:
            continue
        repaid = "gptq" in words and words != gptq  # then what is rounded hangs on the moments too
        for how, first in (("exact", 64 * 2**-15), ("default", 4 * 2**-9)):
            if not check(len(told[how][0]) == len(told["cpu"][0]), f"{name} {words} {how}: {len(told[how][0])} losses, the CPU has {len(told['cpu'][0])}") or not len(told[how][0]):
                continue
            for what, mine, cpu in zip(("plain", "made"), told[how], told["cpu"]):
                off = np.abs(mine / cpu - 1)
                check(what == "made" or repaid or off[0] <= first, f"{name} {words} {how}: the first input is {off[0]:.2g} off, at most {first:.2g}")
                check(off.max() <= 0.2 and abs(mine.sum() / cpu.sum() - 1) <= 0.05, f"{name} {words} {how}, {what}: {off.max():.3f} off, all together {mine.sum() / cpu.sum():.3f}")
        if name == "gqa":
            was = logits(model, 24, isa="c", batch=24, ids=few)[0]
            apart = {how: divergence(was, logits(path, 24, isa="c", batch=24, ids=few)[0]) for how, path in out.items()}
            check(all(0 < apart[how] <= 1.5 * apart["cpu"] for how in apart), f"{name} {words}: divergences {apart}")
    if real_gpu:
        return
    near, far = (os.path.join(folder, n + ".lq") for n in ("near", "far"))
    for path, more in ((near, {}), (far, {"LQ_EMU_MEMORY": "13000000"})): # of 6144 tokens: an eighth of that is less than their rows, which then lie with the host
        r = run("quantize", os.path.join(folder, "gqa"), path, "--bits", "4", "--group", "16", "--kv-scales", "--samples", "64", "--seqlen", "96", "--force", "--quiet", "--device", "cuda", "--exact", **more)
        check(r.returncode == 0, f"gqa with {more}: {r.stderr.strip()}")
    if os.path.exists(near) and os.path.exists(far):
        check(np.array_equal(np.fromfile(near, "u1"), np.fromfile(far, "u1")), "gqa: other bytes with little memory on the device")


def searched(model, out, *words):
    """The report, what the norms of the first layer were divided by, and what the emulated driver counted: plain kernels, bytes put there and got from there."""
    r = run("quantize", model, out, *words, "--samples", "4", "--seqlen", "24", "--force", "--quiet", LQ_EMU_COUNT="1")
    if not check(r.returncode == 0, f"{os.path.basename(model)} {words}: {r.stderr.strip()}"):
        return None, None, None
    was, made = st.read(os.path.join(model, "model.safetensors"))[0], st.read(out)[0]
    norms = [n for n in sorted(was) if ".layers.0." in n and "norm" in n]
    said = re.search(r"(\d+) plain, \d+ fast, (\d+) put, (\d+) got", r.stderr)
    with open(out + ".report.json") as f:
        return json.load(f)["modules"], np.concatenate([was[n].astype("f8") / made[n].astype("f8") for n in norms]), [int(x) for x in said.groups()] if said else None


def search(folder):
    """Factors are sought on the device, all tries of a matrix at once, and those that are taken are the CPU's: f32 sums in another order move a loss by k * 2^-24 of its
    terms, far less than these candidates are apart. In exact mode the first layer is given the same numbers, but for the order of the CPU's sums: factors move by 1e-4."""
    out, int4 = os.path.join(folder, "searched.lq"), ["--bits", "4", "--group", "16"]
    cases = (("gqa", ["-m", "awq", *int4]), ("gqa", ["-m", "awq+gptq", *int4]), ("mixtral", ["-m", "awq", *int4]), ("gqa", ["-m", "smoothquant"]), ("gqa", ["-m", "smoothquant", "--alpha", "input"]),
             ("gqa", ["-m", "smoothquant", "--alpha", "layer", "--type", "int8 row sym f32 act i8 tensor asym"]), ("gqa", ["-m", "smoothquant", "--alpha", "input", "--type", "e4m3 row f32 act e4m3 row"]))
    for name, words in cases:
        model = os.path.join(folder, name)
        (told, cpu, _), (mine, far, _) = (searched(model, out, *words, *more) for more in ([], ["--device", "cuda", "--exact"]))
        if told is None or mine is None:
            continue
        alphas = np.array([[m.get("alpha") or 0 for m in (a, b) if ".0." in m["name"]] or [0, 0] for a, b in zip(told, mine)])
        near = 0.05 if real_gpu else 0  # on a GPU sums have one more order: neighbours may lose the same
        check(len(told) == len(mine) and np.abs(alphas[:, 0] - alphas[:, 1]).max() <= near + 1e-9, f"{name} {words}: alphas {alphas.T.tolist()}")
        check((near and alphas.any()) or np.abs(far / cpu - 1).max() <= 1e-4, f"{name} {words}: factors are up to {np.abs(far / cpu - 1).max():.2g} off the CPU's")
        check(np.abs(cpu - 1).max() > 0.01, f"{name} {words}: no factors were found")
    if real_gpu:
        return
    # A matrix is tried twice: some of its rows under all factors, and all of it with the best; each time six kernels and a product. Its input's moments are brought once.
    model = os.path.join(folder, "gqa")
    counts = [searched(model, out, "-m", "awq", *int4, "--recipe", json.dumps({"transform": t}), "--device", "cuda", "--exact")[2] for t in ("clip", "awq+clip")]
    inputs = {"q_proj": 64, "k_proj": 64, "v_proj": 64, "o_proj": 64, "gate_proj": 64, "up_proj": 64, "down_proj": 160}
    weights = [(n, a.shape) for n, a in st.read(os.path.join(model, "model.safetensors"))[0].items() if n.split(".")[-2] in inputs]
    if check(None not in counts, f"gpu_emu says nothing: {counts}"):
        (plain, put, _), (kernels, brought, _) = counts
        # The text goes through the layers once more, which costs no more than all that is done without a search.
        check(kernels - plain <= plain + 2 * 7 * len(weights), f"a search of {len(weights)} matrices takes {kernels - plain} kernels, all else {plain}")
        most = sum(4 * (2 * n * k + 44 * k + k * k) for _, (n, k) in weights)
        check(brought - put <= put + most, f"a search brings {brought - put} bytes, all else {put}, matrices with moments and factors {most}")


def launches(stderr):
    """Steps that were replayed, plain kernels and those of simt.h, as the emulated driver counts them."""
    said = re.search(r"(\d+) replayed, (\d+) plain, (\d+) fast", stderr)
    return [int(n) for n in said.groups()] if said else [0, 0, 0]


def told_of(stderr, what):
    said = re.search(what + r": (\{.*\})", stderr)
    return json.loads(said[1]) if said else {}


def flat(x):
    """All numbers of what was told, in order."""
    return [n for v in (x.values() if isinstance(x, dict) else x) for n in flat(v)] if isinstance(x, (dict, list)) else [x]


def whole(folder):
    """What a model is asked before it is quantized: the text that it writes, what its units and its layers are worth. With d the most that a logit of the device is
    off (about its row's mean), a KL divergence D of two of its answers moves by no more than 4 d sqrt(2 D) + 4 d^2: its gradients are the difference of the
    two distributions (sums to sqrt(2 D) at most, Pinsker) and p (ln p/q - D), and both answers are off; d is measured on the model as it is, and twice that is allowed as
    the others are other models; in bf16 they are not the CPU's. Shares of magnitudes and cosines are of rows that are off as logits are (near)."""
    few = os.path.join(folder, "few")
    np.fromfile(os.path.join(folder, "gqa", "ids.bin"), "<i4")[:24].tofile(few)
    hows = (("cpu", []), ("exact", ["--device", "cuda", "--exact"]), ("default", ["--device", "cuda"]))
    for name in ("gqa",):  # the emulated machine takes minutes for a mixture
        model, out = os.path.join(folder, name), os.path.join(folder, "out.lq")
        said = {how: logits(model, 24, isa=isa, batch=24, ids=few, mode=mode)[0] for how, isa, mode in
                (("cpu", "auto", "exact"), ("exact", "cuda", "exact"), ("default", "cuda", "default"))}
        off = {how: 2 * float(np.abs((e := m.astype("f8") - said["cpu"]) - e.mean(1, keepdims=True)).max()) for how, m in said.items()}
        auto, went, text = {}, {}, {}
        for how, more in hows:
            more = [*more, "--samples", "2", "--seqlen", "16", "--force"]
            r = run("quantize", model, out, "-m", "auto", "--target-bits", "4", *more, LQ_EMU_COUNT="1")
            if check(r.returncode == 0, f"{name} auto {how}: {r.stderr.strip()}"):
                auto[how] = json.load(open(out + ".report.json"))["auto"]
            check(("measured on cuda" in r.stderr) == (how != "cpu"), f"{name} auto {how}: {r.stderr}")
            for what in ("depth:1", "influence:1,mlp:0.5", "width:0.75"):
                r = run("quantize", model, out, "--prune", what, "--recipe", '{"refit": false}', "--type", "keep", "--embed", "keep", "--head", "keep", *more, LQ_EMU_COUNT="1")
                check(r.returncode == 0, f"{name} {what} {how}: {r.stderr.strip()}")
                went[what, how] = told_of(r.stderr, "pruned")
                # Nothing else of this run touches the device: one that ran on the CPU launched nothing.
                check(real_gpu or launches(r.stderr)[1 if how == "exact" else 2] > 20 or how == "cpu", f"{name} {what} {how}: {launches(r.stderr)} launches")
            r = run("quantize", model, out, "-m", "gptq", "--bits", "4", "--calib", "self", *more, LQ_EMU_COUNT="1")
            if check(r.returncode == 0, f"{name} self {how}: {r.stderr.strip()}"):
                text[how] = st.read(out)[1]["lq.recipe"]
            # Only an engine replays steps.
            check(real_gpu or (launches(r.stderr)[0] >= 14) == (how != "cpu"), f"{name} self {how}: {launches(r.stderr)} launches")
        check(len(text) == len(hows) and json.loads(text["exact"])["calib"] == json.loads(text["cpu"])["calib"], f"{name}: another text than the CPU writes in f32: {text}")
        for how, _ in hows[1:]:
            mine, cpu = ([u["probe_kld"] for u in auto.get(h, {}).get("units", [])] for h in (how, "cpu"))
            worst = max((abs(m - c) / (4 * off[how] * (2 * max(m, c, 0)) ** 0.5 + 4 * off[how] ** 2) for m, c in zip(mine, cpu)), default=9)
            check(len(mine) == len(cpu) and worst <= 1 and (how == "exact" or mine != cpu), f"{name} auto {how}: divergences of units are {worst:.2f} of what they may be off: {mine}, the CPU's {cpu}")
            for what in ("depth:1", "influence:1,mlp:0.5", "width:0.75"):
                mine, cpu = went[what, how], went[what, "cpu"]
                a, b = np.array(flat(mine)), np.array(flat(cpu))
                near_by = len(a) == len(b) > 2 and np.all(np.abs(a - b) <= (1e-4 if how == "exact" else 0.02) * np.maximum(np.abs(b), 1e-2))
                check(near_by and mine["dropped"] == cpu["dropped"], f"{name} {what} {how}: {mine}, the CPU has {cpu}")
    refitted(folder, few)
    if not real_gpu:
        room_and_name(folder)


def refitted(folder, few):
    """What pruning leaves takes over what went, by moments of the device: how far that is from the whole model is the CPU's to a tenth of what refitting does to it."""
    hows = (("cut", ["--recipe", '{"refit": false}', "--device", "cuda", "--exact"]), ("cpu", []), ("exact", ["--device", "cuda", "--exact"]), ("default", ["--device", "cuda"]))
    for name in ("gqa", "mixtral"):
        model, out, apart, worked = os.path.join(folder, name), os.path.join(folder, "out.lq"), {}, {}
        was = logits(model, 24, isa="c", batch=24, ids=few)[0]
        for how, more in hows:
            r = run("quantize", model, out, "--prune", "mlp:0.5", "--type", "keep", "--embed", "keep", "--head", "keep", "--samples", "12", "--seqlen", "24", "--force", *more, LQ_EMU_COUNT="1")
            if check(r.returncode == 0, f"{name} refitted {how}: {r.stderr.strip()}"):
                apart[how], worked[how] = divergence(was, logits(out, 24, isa="c", batch=24, ids=few)[0]), sum(launches(r.stderr))
        check(len(apart) == 4 and all(abs(apart[how] - apart["cpu"]) <= 0.1 * abs(apart["cut"] - apart["cpu"]) for how in ("exact", "default")), f"{name} refitted: divergences {apart}")
        check(real_gpu or (len(worked) == 4 and worked["exact"] > 2 * worked["cut"] > 0 == worked["cpu"]), f"{name} refitted: launches {worked}")


def room_and_name(folder):
    """A GPU without room for the model: it is measured on the CPU, and a line says so. What one device pruned is not gone on with on another."""
    model, out = os.path.join(folder, "gqa"), os.path.join(folder, "out.lq")
    words = ("--prune", "depth:1", "--recipe", '{"refit": false}', "--type", "keep", "--embed", "keep", "--head", "keep", "--samples", "2", "--seqlen", "16", "--force")
    small, cpu = run("quantize", model, out, *words, "--device", "cuda", LQ_EMU_MEMORY=str(40 << 20), LQ_EMU_COUNT="1"), run("quantize", model, out, *words)
    check(small.returncode == 0 and "cuda has no room for all of the model" in small.stderr and launches(small.stderr)[2] == 0, f"no room: {small.returncode} {small.stderr}")
    check(told_of(small.stderr, "pruned") == told_of(cpu.stderr, "pruned") != {}, f"no room: {small.stderr} {cpu.stderr}")
    words = ("--prune", "mlp:0.5", "-m", "gptq", "--bits", "4", "--samples", "12", "--seqlen", "24", "--force")
    for more, anew in ((("--device", "cuda", "--exact"), False), ((), True)):
        p = subprocess.Popen([lq, "quantize", model, out, *words, "--device", "cuda", "--exact"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in p.stderr:
            if line.startswith("pruned: "):
                break
        p.kill()
        p.communicate()
        if not check(os.path.exists(out + ".pruned.lq"), "a run that was killed left no pruned model"):
            continue
        r = run("quantize", model, out, *words, *more)
        check(r.returncode == 0 and ("pruned: " in r.stderr) == anew, f"behind a pruned model of cuda {more}: {r.returncode} {r.stderr}")


def quantize(folder):
    """Rounding has the CPU's bits, so without a text the files are equal."""
    files = [os.path.join(folder, name) for name in ("cpu.lq", "cuda.lq")]
    for words in (["--type", "int4 g64"], ["--type", "int3 g48 asym"], ["--type", "nf4 dq256"], ["--type", "mxfp4"], ["--type", "int4 g32", "--range", "mse"], ["--type", "e4m3 tensor f32"]):
        for out, device in zip(files, ("cpu", "cuda")):
            r = run("quantize", demo, out, *words, "--force", "--quiet", "--device", device)
            check(r.returncode == 0, f"quantize {words} --device {device}: {r.stderr.strip()}")
        mine, cpu = (np.fromfile(out, "u1") if os.path.exists(out) else np.zeros(0, "u1") for out in reversed(files))
        moved = np.count_nonzero(mine != cpu) if mine.size == cpu.size else -1
        check(mine.size > 0 and not moved, f"quantize {words}: {moved} of {mine.size} bytes are not the CPU's")
    r = run("quantize", demo, files[0], "--force", "--quiet", "--device", "cuda:1")
    check(r.returncode == 2 and "cuda:1" in r.stderr, f"quantize on cuda:1: {r.returncode} {r.stderr}")
    if real_gpu:
        return
    r = run("quantize", demo, files[0], "--force", "--quiet", "--device", "cuda", LQ_EMU_MEMORY=str(1 << 16))
    check(r.returncode == 1 and "memory" in r.stderr and r.stderr.count("\n") == 1, f"quantize in 64 KB: {r.returncode} {r.stderr}")


with tempfile.TemporaryDirectory() as folder:
    if found():
        make_models.make(folder, ("gqa", "mixtral", "deepseek_v3", "gemma4"))
        for part in [globals()[name] for name in sys.argv[2:]] or [calibrate, search, whole, quantize]:
            part(folder)
sys.exit(end())
