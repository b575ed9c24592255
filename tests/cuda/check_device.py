#!/usr/bin/python3
# check_device.py LQ [PART]...: the device "cuda" on a machine that has no GPU (on_device.py): its kernels as functions and its driver on this machine. The
# logits of a tiny model of every architecture, and of every kind of weight, are those of portable C to the bit in exact mode; in default mode they are near
# them and do not depend on the batch, in fast mode they are near them; it samples, serves a batch and copies blocks; what is wrong is one line. With LQ_REAL_GPU
# in the environment the GPU that is here does it.
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request

import numpy as np

from on_device import demo, divergence, found, lq, real_gpu, root, run
import make_models
from counted import check, end, skip
from dumped import logits

FAST = (["--type", "int8 act i8"], ["--type", "int8 g64 asym act i8"], ["--type", "e4m3 row f32 act e4m3 row"], ["--type", "e4m3 g128 r128 f32 act e4m3 g128"],
        ["-m", "llmint8", "--samples", "4"], ["-m", "smoothquant", "--samples", "4"], ["-m", "gptq", "--type", "int4 g64", "--salient", "0.03", "--samples", "4"])
TYPES = (["--type", "int4 g32 asym"], ["--type", "int3 g64"], ["--type", "int8 row", "--embed", "int4 g64"], ["--type", "nf4 dq256"], ["--type", "mxfp4"], ["--type", "nvfp4"],
         ["--type", "int4 g32 act i8"], ["--type", "e4m3 g128 r128 f32"], ["--type", "e5m2 row f32"], *FAST,
         ["--type", "int4 g128", "--layout", "x86"])

# Tiny models whose weights are bf16 and whose widths fast kernels take: in default mode no plain kernel may run.
ALL_FAST = """cohere2 cohere2_types flex_olmo glm4v gpt_oss_mx granite granite_hybrid hunyuan internlm internlm2 llama3 minicpm mixtral neox_plain orion phimoe qwen2_types
qwen2_vl smollm3 yarn""".split()


def same(model, what, tokens, ids=None, mode="exact"):
    batch = tokens // 2 + 1  # two steps, the second shorter
    mine, why = logits(model, tokens, isa="cuda", batch=batch, ids=ids, mode=mode)
    portable, _ = logits(model, tokens, isa="c", batch=batch, ids=ids)
    if check(mine is not None and portable is not None, f"{what}: {why}"):
        check(np.array_equal(mine.view(np.uint32), portable.view(np.uint32)), f"{what}: {np.count_nonzero(mine != portable)} of {mine.size} logits differ from portable C's")


def near(model, what, tokens, ids):
    """Default mode hands on bf16: a number is off by 2^-9 of itself, and a few dozen of them in a row by some times that; but where experts are chosen
    another one may be, so there the distribution is held instead."""
    mine, why = logits(model, tokens, isa="cuda", batch=tokens - 7, ids=ids, mode="default", LQ_EMU_COUNT="1")  # what is left over goes by kernels of few rows
    check(real_gpu or what not in ALL_FAST or " 0 plain" in why, f"{what}, default mode: plain kernels ran: {why}")
    alone, _ = logits(model, tokens, isa="cuda", batch=tokens, ids=ids, mode="default")
    exact, _ = logits(model, tokens, isa="c", batch=7, ids=ids)
    if not check(mine is not None and alone is not None and exact is not None, f"{what}, default mode: {why}"):
        return None
    off = float(np.sqrt(((mine - exact) ** 2).mean() / (exact**2).mean()))
    check(np.array_equal(mine.view(np.uint32), alone.view(np.uint32)), f"{what}, default mode: other bits in another batch")
    tail, _ = logits(model, tokens, isa="cuda", batch=tokens, ids=ids, mode="default", pool="tail")
    check(tail is not None and np.array_equal(tail.view(np.uint32), alone[-9:].view(np.uint32)), f"{what}, default mode: other bits where the last rows alone are asked for")
    check(close(exact, mine), f"{what}, default mode: {off:.4f} off, KLD {divergence(exact, mine):.5f}")
    return exact


def close(exact, mine):
    off = float(np.sqrt(((mine - exact) ** 2).mean() / (exact**2).mean()))
    return off <= 0.02 or (0 <= divergence(exact, mine) <= 0.02 and off < 0.2)


def fast(model, what, tokens, ids, exact=None):
    """All tokens at once go by the library, whose sums have another order: as near as default mode, and the same bits in the same batch."""
    one, why = logits(model, tokens, isa="cuda", batch=tokens, ids=ids, mode="fast")
    again = one  # the emulated machine has one order for everything: a kind of weight each is enough there
    if real_gpu or exact is None:
        again, _ = logits(model, tokens, isa="cuda", batch=tokens, ids=ids, mode="fast")
    if real_gpu and "cuBLASLt cannot be loaded" in why:
        return skip(f"{what}, fast mode: {why}")
    exact = logits(model, tokens, isa="c", batch=tokens, ids=ids)[0] if exact is None else exact
    if check(one is not None and again is not None and exact is not None, f"{what}, fast mode: {why}"):
        check(np.array_equal(one.view(np.uint32), again.view(np.uint32)), f"{what}, fast mode: other bits in the same batch")
        check(close(exact, one), f"{what}, fast mode: KLD {divergence(exact, one):.5f}")


def architecture(model):
    name, few = os.path.basename(model), os.path.join(model, "few")
    ids = np.fromfile(os.path.join(model, "ids.bin"), "<i4")[:24]
    ids.tofile(few)
    same(model, name, len(ids), few)
    fast(model, name, len(ids), few, near(model, name, len(ids), few))
    if real_gpu:
        print(name, flush=True)  # a visit's clock may end this


def architectures(folder):
    folder = os.path.join(folder, "tiny")
    make_models.make(folder)
    with concurrent.futures.ThreadPoolExecutor(16 if real_gpu else 1) as pool:
        list(pool.map(architecture, [os.path.join(folder, name) for name in sorted(make_models.MODELS)]))
    # Columns that all experts keep apart are one list on the device, or the experts would not read one form of x.
    out, words = os.path.join(folder, "mixtral", "apart.lq"), ["--type", "int4 g32", "--salient", "0.1", "--samples", "4"]
    r = run("quantize", os.path.join(folder, "mixtral"), out, *words, "--quiet")
    if check(r.returncode == 0, f"mixtral {words}: {r.stderr.strip()}"):
        same(out, "mixtral with columns apart", 24, os.path.join(folder, "mixtral", "few"))


def types(folder):
    ids, out = os.path.join(folder, "ids"), os.path.join(folder, "typed.lq")
    np.random.default_rng(3).integers(0, 1000, 12).astype("<i4").tofile(ids)
    for words in TYPES:
        r = run("quantize", demo, out, *words, "--force", "--quiet")
        if check(r.returncode == 0, f"{words}: {r.stderr.strip()}"):
            same(out, " ".join(words), 12, ids)
            near(out, " ".join(words), 12, ids)
        if words in FAST and not real_gpu:
            r = run("run", out, "-p", "Once upon a time", "-n", "4", "--quiet", "--device", "cuda", LQ_EMU_COUNT="1")
            said = re.search(r"(\d+) plain", r.stderr)
            check(said and said[1] == "0", f"{words}: {r.stderr.strip()}: not the fast kernels'")


def products(*words, **more):
    """How many the library made; -1: it did not say."""
    r = run(*words, "--device", "cuda", LQ_EMU_COUNT="1", **more)
    said = re.search(r"lt_emu: (\d+) products", r.stderr)
    return int(said[1]) if r.returncode == 0 and said else -1


def e4m3_products(model, tokens, ids):
    """How many of them the library made of so many tokens at once."""
    np.fromfile(ids, "<i4")[:tokens].tofile(ids + "few")
    _, why = logits(model, tokens, isa="cuda", batch=tokens, ids=ids + "few", mode="fast", LQ_EMU_COUNT="1")
    said = re.search(r"(\d+) of e4m3", why)
    return int(said[1]) if said else -1


def many_tokens(folder):
    """Fast mode: from so many tokens on rows of bf16 that are made of codes go by the library, and in recorded steps what is bf16."""
    ids, out = os.path.join(folder, "ids"), os.path.join(folder, "fast.lq")
    np.random.default_rng(4).integers(0, 1000, 260).astype("<i4").tofile(ids)
    np.fromfile(ids, "<i4")[:140].tofile(ids + "140")
    for words, tokens in ((["--type", "int4 g32 asym"], 140), (["--type", "int4 g128"], 260), (["--type", "nvfp4"], 140), (["--type", "e5m2 row f32"], 140)):
        r = run("quantize", demo, out, *words, "--force", "--quiet")
        if check(r.returncode == 0, f"{words}: {r.stderr.strip()}"):
            fast(out, " ".join(words), tokens, ids if tokens == 260 else ids + "140")
    # Activations and weights of e4m3 as they are, on an architecture that multiplies them: a scale for a row, and one for a matrix in f16.
    for words in (["--type", "e4m3 row f32 act e4m3 row"], ["--type", "e4m3 tensor f16 act e4m3 row"]):
        r = run("quantize", demo, out, *words, "--force", "--quiet")
        if not check(r.returncode == 0, f"{words}: {r.stderr.strip()}"):
            continue
        os.environ["LQ_EMU_CAPABILITY"] = "90"
        fast(out, " ".join(words), 140, ids + "140")
        found = [e4m3_products(out, 140, ids + "140"), e4m3_products(out, 60, ids + "140")]
        del os.environ["LQ_EMU_CAPABILITY"]
        check(real_gpu or (found[0] > 0 and found[1] == 0 == e4m3_products(out, 140, ids + "140")), f"{words}: {found} products of e4m3 by the library")
    run("quantize", demo, out, "--type", "e5m2 row f32", "--force", "--quiet")
    words = ("run", out, "-p", "the " * 40, "-n", "2", "--quiet")
    text = {how: run(*words, "--numerics", how).stdout for how in ("default", "fast")}
    check(text["default"] == text["fast"] != "", f"on a CPU fast is not default: {text}")
    r = run(*words, "--numerics", "fast", "--exact")
    check(r.returncode == 2 and "--exact" in r.stderr, f"exact and fast: {r.returncode} {r.stderr}")
    if real_gpu:
        return
    bench = ("bench", demo, "-p", "0", "-n", "3", "-r", "1", "-q", "--numerics", "fast")
    found = [products(*words, "--numerics", "fast"), products("run", out, "-p", "the " * 160, "-n", "2", "--quiet", "--numerics", "fast"), products(*bench, "-b", "8"), products(*bench, "-b", "16")]
    check(found[0] >= 0 and found[1] > found[0] and found[2] == 0, f"products of the library: {found}")
    # Of 5 layers and the head, by the first step, by the rows that show a recording its shapes, and in the recording.
    check(found[3] == 3 * (5 * 7 + 1), f"products of 16 sequences: {found[3]}")
    r = run(*words, "--device", "cuda", "--numerics", "fast", LQ_EMU_NO_LT="1")
    check(r.returncode == 1 and "cuBLASLt" in r.stderr and r.stderr.count("\n") == 1, f"without the library: {r.returncode} {r.stderr}")


def small_blocks(folder):
    """A GPU whose blocks have less shared memory takes other kernels, and its logits are the same."""
    ids, out = os.path.join(folder, "ids"), os.path.join(folder, "small.lq")
    np.random.default_rng(5).integers(0, 1000, 70).astype("<i4").tofile(ids)
    for words in (["--type", "int8 row"], ["--type", "int4 g128"], ["--type", "e4m3 row f32"]):
        r = run("quantize", demo, out, *words, "--force", "--quiet")
        large, _ = logits(out, 70, isa="cuda", batch=70, ids=ids, mode="default")
        os.environ["LQ_EMU_CAPABILITY"] = "86"
        small, why = logits(out, 70, isa="cuda", batch=70, ids=ids, mode="default")
        said = run("run", out, "-p", "the", "-n", "1", "--quiet", "--device", "cuda", LQ_EMU_CAPABILITY="86")
        del os.environ["LQ_EMU_CAPABILITY"]
        check(r.returncode == said.returncode == 0 and large is not None and small is not None and np.array_equal(large.view(np.uint32), small.view(np.uint32)), f"{words}: other logits with less shared memory: {why} {said.stderr}")


def library():
    """What is asked of cuBLASLt, of one that is none."""
    folder = os.path.dirname(lq)
    if not os.path.exists(os.path.join(folder, "lt_calls")):
        return skip("no CUDA toolkit: what is asked of cuBLASLt")
    r = subprocess.run([os.path.join(folder, "lt_calls")], capture_output=True, text=True, env=dict(os.environ, LD_LIBRARY_PATH=os.path.join(folder, "library")))
    check(r.returncode == 0 and " 0 failed" in r.stdout, f"lt_calls: {r.stdout} {r.stderr}")


def blocks(folder):
    """A sequence's blocks go to the host and come back: latents, windows, caches of every type."""
    folder = os.path.join(folder, "blocks")
    make_models.make(folder, ("gqa", "deepseek_v3", "gemma3"))
    for name, kv, mode in (("gqa", "f32", "exact"), ("gqa", "int8", "default"), ("deepseek_v3", "auto", "default"), ("deepseek_v3", "int8", "exact"), ("gemma3", "fp8", "exact")):
        for device in ("cpu", "cuda"):
            r = subprocess.run([os.path.join(os.path.dirname(lq), "kv_blocks"), os.path.join(folder, name), device, kv, mode], capture_output=True, text=True)
            check(r.returncode == 0 and " 0 failed" in r.stdout, f"kv_blocks {name} {device} {kv} {mode}: {r.stdout} {r.stderr}")


def programs():
    """conv and scan, which no model has; an input's moments and a matrix, and what of them crosses the border."""
    for name in ("state_slots", "lent_rounding"):
        r = subprocess.run([os.path.join(os.path.dirname(lq), name)], capture_output=True, text=True)
        check(r.returncode == 0 and " 0 failed" in r.stdout, f"{name}: {r.stdout} {r.stderr}")


def program(folder):
    """What a person sees: text, drawn and greedy, several at once; a cache of each type; too little memory, a device that is not there."""
    programs()
    words = ("run", demo, "-p", "Once upon a time", "-n", "12", "--quiet", "--exact")
    for more in ([], ["--temp", "0.9", "--seed", "4", "--top-p", "0.9"], ["--kv-dtype", "int8"], ["--kv-dtype", "fp8"], ["--kv-dtype", "bf16"]):
        r, c = run(*words, *more, "--device", "cuda"), run(*words, *more, "--isa", "c")
        check(r.returncode == 0 and r.stdout == c.stdout and r.stdout.strip(), f"run {more}: {r.stdout!r} {r.stderr.strip()}, portable C {c.stdout!r}")
    r = run("bench", demo, "--device", "cuda", "-p", "8", "-n", "2", "-r", "1", "-o", "json")
    rows = json.loads(r.stdout)["results"] if r.returncode == 0 else []
    check(len(rows) == 2 and all(t[x] > 0 for t in rows for x in ("tok_s", "read_bytes_s", "dot_macs_s", "fma_macs_s")), f"bench: {r.stdout} {r.stderr}")
    r = run(*words, "--device", "cuda:1")
    check(r.returncode == 1 and "cuda:1" in r.stderr and r.stderr.count("\n") == 1, f"cuda:1: {r.returncode} {r.stderr}")
    if real_gpu:
        return
    r = run(*words, "--device", "cuda", LQ_EMU_COUNT="1")  # the step of the prompt runs as it is
    said = re.search(r"(\d+) recorded, (\d+) replayed", r.stderr)
    check(said and said[1] == "1" and int(said[2]) > 5, f"steps of one row are not replayed: {r.stderr}")
    r = run(*words, "--device", "cuda", LQ_EMU_MEMORY=str(6 << 20))
    check(r.returncode == 1 and "memory" in r.stderr and r.stderr.count("\n") == 1, f"6 MB: {r.returncode} {r.stderr}")
    served()
    swapped()


def swapped():
    """Four answers in a cache that holds two: who is preempted goes to the host and comes back, and says what it would alone."""
    words = ["The river", "Once upon a time", "A cat", "In the morning"]
    alone = [run("run", demo, "-p", w, "-n", "70", "--raw", "--quiet", "--exact", "--isa", "c", "--ignore-eos").stdout.strip() for w in words]
    for more, swaps in (["--swap-memory", "64M"], True), ([], True), (["--no-swap"], False):
        p = subprocess.Popen([lq, "serve", demo, "--port", "0", "--json", "--device", "cuda", "--exact", "--max-seqs", "4", "--kv-block", "16", "--kv-memory", "1M", *more],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        url = f"http://127.0.0.1:{json.loads(p.stdout.readline())['port']}"
        ask = {"prompt": words, "max_tokens": 70, "temperature": 0, "ignore_eos": True}
        answer = urllib.request.Request(url + "/v1/completions", json.dumps(ask).encode(), {"Content-Type": "application/json"})
        texts = [c["text"].strip() for c in json.load(urllib.request.urlopen(answer, timeout=240))["choices"]]
        metrics = dict(line.rsplit(" ", 1) for line in urllib.request.urlopen(url + "/metrics", timeout=60).read().decode().splitlines() if line[0] != "#")
        count = [sum(float(v) for k, v in metrics.items() if k.startswith(name)) for name in ("vllm:num_preemptions_total", "lq:swapped_total")]
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=120)
        check(texts == alone, f"{more}: {texts}, alone {alone}")
        check(count[0] > 0 and count[1] == (count[0] if swaps else 0), f"{more}: {count[0]} preempted, {count[1]} of them came back")


def served():
    """A server has recorded what its steps will be before it listens: of 1 to 4 sequences at positions up to 512 and up to the demo's 1024."""
    p = subprocess.Popen([lq, "serve", demo, "--port", "0", "--json", "--device", "cuda", "--exact", "--max-seqs", "4"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env=dict(os.environ, LQ_EMU_COUNT="1"))
    line = p.stdout.readline()
    if check(line.startswith("{"), f"serve: {p.stderr.read() if not line else line}"):
        answer = urllib.request.Request(f"http://127.0.0.1:{json.loads(line)['port']}/v1/completions", json.dumps({"prompt": "The river", "max_tokens": 6, "n": 2, "temperature": 0}).encode(), {"Content-Type": "application/json"})
        texts = [c["text"] for c in json.load(urllib.request.urlopen(answer, timeout=120))["choices"]]
        alone = run("run", demo, "-p", "The river", "-n", "6", "--raw", "--quiet", "--exact", "--isa", "c").stdout
        check(texts[0] == texts[1] and alone.strip() == texts[0].strip() != "", f"served: {texts}, alone {alone!r}")
    p.send_signal(signal.SIGTERM)
    said = re.search(r"(\d+) recorded, (\d+) replayed", p.communicate(timeout=120)[1])
    check(said and said[1] == "6" and int(said[2]) >= 5, f"recordings of a server: {said and said[0]}")


with tempfile.TemporaryDirectory() as folder:
    real = run("run", demo, "-p", "x", "-n", "1", "--device", "cuda")
    if re.search("there is no GPU|cannot be loaded", real.stderr):
        check(real.returncode == 1 and real.stderr.count("\n") == 1, f"without a GPU: {real.returncode} {real.stderr}")
    else:
        skip("there is a GPU here: what is said without one")
    visit = subprocess.run([os.path.join(root, "tests", "gpu", "check.sh"), os.path.join(folder, "out"), "env"], capture_output=True, text=True)
    check(visit.returncode == ("no GPU" in visit.stdout), f"tests/gpu/check.sh: {visit.returncode} {visit.stdout} {visit.stderr}")
    if not real_gpu:
        library()
    if found():
        for part in [globals()[name] for name in sys.argv[2:]] or [types, many_tokens, *([] if real_gpu else [small_blocks]), program, architectures, blocks]:
            part(folder)
sys.exit(end())
