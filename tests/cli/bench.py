#!/usr/bin/env python3
"""bench.py LQ: what `lq bench` prints: every figure is counted again from its samples and from the model's configuration; csv, json and md
have the same rows; several models, threads, depths and batches; wrong uses are one line; Ctrl-C leaves what there is. No speed is asked for."""
import csv
import io
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time

lq = os.path.abspath(sys.argv[1])
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
demo = os.path.join(root, "calib_data", "demo")
sys.path.insert(0, os.path.join(root, "tests", "golden"))
import make_models  # noqa: E402

sanitized = json.loads(subprocess.run([lq, "version", "--json"], capture_output=True).stdout)["sanitizers"] != ""
slow = float(os.environ.get("LQ_SLOW", "1"))
passed = failed = skipped = 0


def check(good, what, more=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAILED:", what, repr(more)[:300] if more != "" else "")


def skip(why):
    global skipped
    skipped += 1
    print("SKIPPED:", why)


def run(*words, **more):
    return subprocess.run([lq, "bench", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, **more)


def near(x, y):
    return x == y or (x is not None and y is not None and abs(x - y) <= 2e-5 * abs(y))


def median_of_samples(good, values):
    return statistics.median(values) if good else None


# --- the figures ---

def counted(config, row, weight_bytes):
    """Bytes that a decode reads and multiply-adds of a row, each for a repetition, from the configuration of a Llama."""
    dim, ffn, layers, vocab = (config[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size"))
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    head = dim // heads
    kept = 2 * kv * head * dim  # K and V
    layer = dim * dim * 2 + kept + 3 * ffn * dim
    depth, prompt, tokens = row["depth"], row["prompt"], row["tokens"]
    macs = bytes_read = 0
    for at in range(depth, depth + prompt + tokens):
        asked = at >= depth + prompt - 1 or not prompt
        ends_early = not asked and prompt * row["batch"] >= 16  # behind its last K and V
        macs += (layers - ends_early) * (layer + heads * 2 * head * (at + 1)) + ends_early * kept + asked * vocab * dim
    for at in range(depth, depth + tokens):
        bytes_read += weight_bytes + row["batch"] * layers * kv * 2 * head * 2 * (at + 1)
    return None if prompt else bytes_read, macs * row["batch"]


def check_row(row, first, config):
    name = f"{row['model']} {row['threads']} {row['test']} b{row['batch']}"
    seconds, each = row["samples_seconds"], row["tokens_each_repetition"]
    check(each == row["batch"] * (row["prompt"] + row["tokens"]), f"{name}: tokens of a repetition", each)
    check(all(len(row["samples_" + k]) == row["repetitions"] for k in ("seconds", "read_bytes_s", "dot_macs_s", "fma_macs_s")), f"{name}: a sample each repetition")
    check(all(s > 0 for s in seconds), f"{name}: time passes", seconds)
    rates = [each / s for s in seconds]
    for key, want in (("tok_s", statistics.median(rates)), ("tok_s_min", min(rates)), ("tok_s_max", max(rates)), ("tok_s_mean", statistics.mean(rates)),
                      ("tok_s_each_sequence", statistics.median(rates) / row["batch"])):
        check(near(row[key], want), f"{name}: {key}", (row[key], want))
    want = statistics.stdev(rates) if len(rates) > 1 else 0
    check(abs(row["tok_s_deviation"] - want) <= 1e-4 * max(rates), f"{name}: deviation", (row["tok_s_deviation"], want))
    bytes_read, macs = counted(config, row, row["weight_bytes"])
    check(near(row["bytes_per_token"], bytes_read and bytes_read / each), f"{name}: bytes of a token", (row["bytes_per_token"], bytes_read))
    check(near(row["macs_per_token"], macs / each), f"{name}: multiply-adds of a token", (row["macs_per_token"], macs / each))
    for key in ("read_bytes_s", "dot_macs_s", "bf16_macs_s", "fma_macs_s"):
        check(near(row[key], median_of_samples(all(row["samples_" + key]), row["samples_" + key])), f"{name}: {key}", row[key])
    of_read = [bytes_read / s / r for s, r in zip(seconds, row["samples_read_bytes_s"])] if bytes_read else []
    check(near(row["share_of_read"], median_of_samples(of_read, of_read)), f"{name}: share of the plain read", row["share_of_read"])
    ratios = [a / b for a, b in zip(first["samples_seconds"], seconds)]
    check(near(row["ratio"], statistics.median(ratios)), f"{name}: ratio", row["ratio"])
    # f32 activations: all of it at the rate of fused multiply-add. Integers: all but attention at the dot product's; attention, where it rounds to bf16, at bf16's; bf16 likewise where there is one of it.
    peaks = row["samples_fma_macs_s"]
    if not all(peaks):
        check(row["share_of_peak"] is None, f"{name}: no share of a peak that is not known", row["share_of_peak"])
    elif row["type"] == "bf16" and not all(row["samples_bf16_macs_s"]):
        check(near(row["share_of_peak"], statistics.median(macs / p / s for p, s in zip(peaks, seconds))), f"{name}: share of the peak", row["share_of_peak"])
    else:
        kinds = [row[f"samples_{k}_macs_s"] for k in (("bf16", "fma") if row["type"] == "bf16" else ("dot", "bf16", "fma"))]
        rates = list(zip(*(k for k in kinds if all(k))))
        low, high = (statistics.median(macs / of(p) / s for p, s in zip(rates, seconds)) for of in (max, min))
        check(0.9999 * low <= row["share_of_peak"] <= 1.0001 * high, f"{name}: share of the peak", (low, row["share_of_peak"], high))


# Where memory is watched a token takes a hundred times as long: fewer of each, and one number of threads.
P, Q, N, D, G, R = (2, 3, 1, 2, 2, 2) if sanitized else (16, 40, 6, 20, 8, 3)
THREADS = ("2",) if sanitized else ("1", "2")
WORDS = ("-t", ",".join(THREADS), "-p", f"{P},{Q}", "-n", f"{N}", "-d", f"0,{D}", "-b", "1,2", "--pg", f"{G},{G // 2}", "-r", f"{R}", "-q")
TESTS = {test + at for test in (f"pp{P}", f"pp{Q}", f"tg{N}", f"pp{G}+tg{G // 2}") for at in ("", f" @ d{D}")}


def test_figures():
    with open(demo + "/config.json") as f:
        config = json.load(f)
    dim, layers = config["hidden_size"], config["num_hidden_layers"]
    kv = dim // config["num_attention_heads"] * config["num_key_value_heads"]
    params = layers * (2 * dim * dim + 2 * kv * dim + 3 * dim * config["intermediate_size"] + 2 * dim) + config["vocab_size"] * dim + dim
    out = run("int4.lq", demo, *WORDS, "-o", "json")
    told = json.loads(out.stdout)
    rows = told["results"]
    check(out.returncode == 0 and not told["stopped"] and told["asked_repetitions"] == R and told["cpu"] and told["peak_bytes"] > 0, "json", (out.stderr, told["stopped"]))
    check(len(rows) == 2 * len(THREADS) * 2 * 2 * 4 and {r["test"] for r in rows} == TESTS, "a row for each model, number of threads, depth, batch and test", len(rows))
    places = {(r["model"], r["threads"], r["test"], r["batch"]): r for r in rows}
    check(len(places) == len(rows), "no two rows are one", len(places))
    for row in rows:
        check_row(row, places["int4.lq", row["threads"], row["test"], row["batch"]], config)
        size = os.path.getsize("int4.lq" if row["model"] == "int4.lq" else demo + "/model.safetensors")
        check(row["file_bytes"] == size and row["params"] == params and row["repetitions"] == R, f"{row['model']}: what it is", (row["file_bytes"], size, row["params"]))
    # The other forms of the same.
    out = run("int4.lq", demo, *WORDS, "-o", "csv")
    table = list(csv.DictReader(io.StringIO(out.stdout)))
    keys = [k for k in rows[0] if not k.startswith("samples_")]
    fixed = [k for k in keys if not k.startswith("tok_s") and k not in ("read_bytes_s", "dot_macs_s", "bf16_macs_s", "fma_macs_s", "share_of_read", "share_of_peak", "ratio")]
    check(out.returncode == 0 and len(table) == len(rows) and list(table[0]) == keys, "csv has the keys of json", table and list(table[0]))
    for line, row in zip(table, rows):
        check(all(line[k] == ("" if row[k] is None else f"{row[k]}" if not isinstance(row[k], float) else line[k]) for k in fixed), "a line of csv is the row of json", line)
        check(all(line[k] == "" if row[k] is None else near(float(line[k]), row[k]) for k in fixed if isinstance(row[k], float)), "numbers of csv are those of json", line)
        check(float(line["tok_s_min"]) <= float(line["tok_s"]) <= float(line["tok_s_max"]), "a median lies within", line)
    out = run("int4.lq", demo, *WORDS)
    lines = [[c.strip() for c in line.strip("|").split("|")] for line in out.stdout.splitlines() if line.startswith("|")]
    check(lines and len({len(line) for line in lines}) == 1 and all(re.fullmatch("-+:?", c) for c in lines[1]), "md is a table", lines[:2])
    head = lines[0]
    check(head == ["model", "type", "size", "params", "threads", "test", "batch", "tok/s", "min..max", "tok/s each", "of read", "of peak", "ratio"], "its head", head)
    got = [(c[0].replace("demo", demo), int(c[4]), c[5], int(c[6])) for c in lines[2:]]
    check(got == list(places), "md has the rows of json in their order", got[:4])
    check(all(c[-1] == "1.000" for c in lines[2:] if c[0] == "int4.lq"), "the first model's ratio to itself", lines[2])
    out = run(demo, "-p", "8", "-n", "0", "-r", "1", "-q")
    check("batch" not in out.stdout and "ratio" not in out.stdout and "| pp8 " in out.stdout and "tg" not in out.stdout, "columns that say nothing are left out", out.stdout)


def test_shares():
    """No share of a ceiling is above 1; a machine that is interrupted at the wrong moments may tell it otherwise for a while."""
    if sanitized:
        return skip("shares of a ceiling: under a sanitizer all are far below it")
    flags = open("/proc/cpuinfo").read() if os.path.exists("/proc/cpuinfo") else ""
    isa = next((name for name, flag in (("avx512", "avx512_vnni"), ("avx2", "avx2")) if f" {flag}" in flags), None)
    if not isa:
        skip("no kernel of integers has a ceiling here")
    for words in ((demo, "-p", "64", "-n", "16"), *([("--kernels", f"int8x86_{isa}", "-t", "1")] if isa else [])):
        for _ in range(6):
            told = json.loads(run(*words, "-r", "5", "-q", "--json").stdout)
            rows = told.get("results", told.get("kernels"))
            most = max((r[k] or 0 for r in rows for k in ("share_of_read", "share_of_peak")), default=0)
            if most <= 1.1:
                break
        check(most <= 1.1, f"{words[0]}: the largest share of a ceiling", most)


def test_kernels():
    model, shapes = demo, {(256, 256), (128, 256), (768, 256), (256, 768), (1024, 256)}
    plainly = ()
    if sanitized:  # what a core can do at most takes seconds to measure there, before each row of a kernel that has a ceiling
        make_models.make("tiny", ["gqa"])
        model, shapes, plainly = "tiny/gqa", {(64, 64), (32, 64), (160, 64), (64, 160), (259, 64)}, ("--isa", "c")
    out = run("--kernels", "matmul_f32_f32_f16any", model, *plainly, "-r", "2", "-q", "-o", "json")
    rows = json.loads(out.stdout)["kernels"]
    isas = 1 if sanitized else 1 + sum(os.path.exists("/proc/cpuinfo") and f" {flag}" in open("/proc/cpuinfo").read() for flag in ("avx2", "avx512_vnni"))
    check(out.returncode == 0 and len(rows) == isas * 5 * 5 and len({r["kernel"] for r in rows}) == isas and {(r["n"], r["k"]) for r in rows} == shapes, "each row at a model's five shapes and five heights", len(rows))
    for r in rows:
        seconds = r["samples_seconds"]
        check(r["type"] == "f16" and r["weight_bytes"] == 2 * r["n"] * r["k"] and r["repetitions"] == len(seconds) == 2, "what was timed", r)
        check(near(r["seconds"], statistics.median(seconds)) and near(r["bytes_s"], r["weight_bytes"] / statistics.median(seconds)) and
              near(r["macs_s"], r["n"] * r["k"] * r["rows"] / statistics.median(seconds)), "its rates", r)
        check(near(r["share_of_read"], statistics.median(r["weight_bytes"] / s / p for s, p in zip(seconds, r["samples_read_bytes_s"]))), "its share of the read", r)
        peak = r["samples_peak_macs_s"]
        want = statistics.median(r["n"] * r["k"] * r["rows"] / s / p for s, p in zip(seconds, peak)) if all(peak) else None
        check(near(r["share_of_peak"], want) and (want is None) == r["kernel"].endswith("_c"), "its share of the peak", r)
    if sanitized:
        return
    if isas == 3:
        got = [(r["n"], r["k"], r["rows"]) for r in json.loads(run("--kernels", "f32_f16any_avx512", "-r", "1", "-q", "--json").stdout)["kernels"]]
        check(got == [(n, k, m) for n, k in ((5632, 2048), (2048, 5632)) for m in (1, 4, 16, 128, 512)], "a set of shapes of its own", got)
        out = run("--kernels", "matmul_f32_f32_fp8any", demo, "-r", "1", "-q", "--json")  # f32 ones, though this CPU may multiply bf16
        check(out.returncode == 0 and any("act e4m3" in r["type"] for r in json.loads(out.stdout)["kernels"]), "kernels of 8-bit floats", out.stderr)
    if isas > 1:
        rows = json.loads(run("--kernels", "lq_pack", demo, "-r", "2", "-q", "--json").stdout)["kernels"]
        check({(r["kernel"], r["rows"]) for r in rows} == {("lq_pack", 0)} and {"int4 g128 sym f16", "nf4 g64 f16"} <= {r["type"] for r in rows} and
              all(near(r["bytes_s"], r["weight_bytes"] / r["seconds"]) and r["weight_bytes"] > r["n"] * r["k"] * 2 // 4 for r in rows), "what a load waits for", rows)
    out = run("--kernels", "lq_pack", "--isa", "c")
    check(out.returncode == 1 and not out.stdout and out.stderr.splitlines() == ["lq: --kernels lq_pack: none of them runs with --isa c"], "kernels that do not run here", out.stderr)
    out = run("--kernels", "f32_f16any", model, "--isa", "c", "-r", "1", "-t", "1", "-q", "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(out.stdout)))
    check({r["kernel"] for r in rows} == {"lq_matmul_f32_f32_f16any_c"} and {r["threads"] for r in rows} == {"1"}, "no better than --isa", rows[:1])


# --- what is refused, before anything is measured ---

def test_refusals():
    os.mkdir("empty")
    for status, words, text in (
            (2, (), "an argument is missing"), (2, (demo, "-r", "0"), "--repeats: 0 is no"), (2, (demo, "-p", "1,,4"), "1,,4 is no list"),
            (2, (demo, "-b", "0"), "--batch: 0 is no whole number from 1 to 4096"), (2, (demo, "-b", "1,99999999999999999999"), "is no whole number"), (2, (demo, "-p", "-4"), "-4 is no list"),
            (2, (demo, "-p", "0", "-n", "0,0"), "nothing is measured"), (2, (demo, "--pg", "4"), "4 is no pair"), (2, (demo, "--pg", "4,0"), "0 is no whole number from 1"),
            (2, (demo, "-t", "0"), "--threads: 0"), (2, (demo, "-o", "xml"), "xml is none of md|csv|json"), (2, (demo, "--json", "-o", "csv"), "one of them"),
            (2, (demo, "-p", ",".join(["1"] * 17)), "more than 16 numbers"), (2, ("--kernels", "nothing_like_it"), "no kernel has this in its name"),
            (2, ("--kernels", "int4", "int8"), "one name"), (2, ("--kernels", "-p", "4"), "heights of its own"),
            (1, (demo, "-d", "1000"), "do not fit a context of 1024"), (1, (demo, "-p", "1024", "-n", "0"), "1025 tokens do not fit"), (1, (demo, "-c", "64"), "do not fit a context of 64"),
            (1, (demo, "none.lq"), "none.lq"), (1, ("empty",), "empty"), (1, ("--kernels", "./none.lq"), "none.lq")):
        out = run(*words)
        lines = out.stderr.splitlines()
        check(out.returncode == status and len(lines) == status and lines[0].startswith("lq") and text in lines[0] and not out.stdout, f"refused: {' '.join(words)}", (out.returncode, out.stderr))
    longest = ("-c", "64", "-p", "63") if sanitized else ("-p", "1023")
    out = run(demo, *longest, "-n", "0", "-r", "1", "-q")
    check(out.returncode == 0, "the longest that fits", out.stderr)


def test_memory():
    if sanitized:
        return skip("a limit on addresses: the sanitizer has none left")
    for words in ((demo, "-b", "2048", "-p", "0", "-n", "16", "-d", "900", "-t", "1"), (demo, "nothing-here", "-b", "2048", "-p", "0", "-n", "16", "-d", "900"),
                  ("--kernels", "-t", "1")):
        begin = time.monotonic()
        out = run(*words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29)))
        check(out.returncode == 1 and out.stderr.count("\n") == 1 and "memory" in out.stderr and "free" in out.stderr, f"{words[0]}: too little memory is said", out.stderr)
        check(time.monotonic() - begin < 10 * slow, f"{words[0]}: and before the work")


# --- Ctrl-C ---

def test_interrupt():
    work = ("-p", "20", "-n", "5", "-b", "2") if sanitized else ("-p", "400", "-n", "100", "-b", "8")
    for words, key in (((demo, *work, "-r", "100", "-o", "json"), "results"), (("--kernels", "-r", "100", "-o", "json", "-q"), "kernels")):
        for wait in (2, 8, 40, 40 * slow):
            p = subprocess.Popen([lq, "bench", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(wait)
            begin = time.monotonic()
            p.send_signal(signal.SIGINT)
            out, err = p.communicate(timeout=60 * slow)
            took = time.monotonic() - begin
            check(took < 2.5 * slow and p.returncode == 1 and err.splitlines()[-1] == "lq: stopped", f"{words[0]}: Ctrl-C is heard within a second", (took, p.returncode, err))
            if out:
                break
        told = json.loads(out or "{}")
        rows = told.get(key, [])
        check(told.get("stopped") is True and rows and all(1 <= r["repetitions"] <= 100 and len(r["samples_seconds"]) == r["repetitions"] for r in rows), f"{words[0]}: what was measured so far", out[:200])


with tempfile.TemporaryDirectory(prefix="lq-test-bench-") as work:
    os.chdir(work)
    subprocess.run([lq, "quantize", "-q", demo, "int4.lq", "--bits", "4", "--group", "32"], check=True)
    test_figures()
    test_shares()
    test_kernels()
    test_refusals()
    test_memory()
    test_interrupt()
    os.chdir(root)
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(failed != 0)
