#!/usr/bin/env python3
"""What quantization costs: KL divergence from the model as it was, of every method, of several calibration seeds, and of
other tools given the same sequences of tokens. Each run becomes a line of quant.csv; runs that stand there are not done again.

Owns: the models and their texts, the runs, the lines. Peers run in peers.py, by a Python that has them.
Run:  quant.py LQ SHARED [--larger DIR] [--peers TOOL=PYTHON]... [--models NAME,..] [--runs WORD,..] [--methods NAME,..] [--seeds 0,1,2]
      quant.py --table        prints quant.csv as the tables of docs/QUANT.md
SHARED: third-party data as README.md lists it. DIR: what train_larger.py wrote.
"""
import argparse
import csv
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
CSV = os.path.join(HERE, "quant.csv")
FIELDS = ("date", "machine", "model", "windows", "tool", "method", "type", "seed", "bits", "kld", "se", "served", "perplexity", "was")
KEPT = ("--embed", "keep", "--head", "keep")  # as the other tools leave them
REAL = {"tok105": ("babyllama/tok105/model5000.bin", "babyllama/tok105/tok105.model"),
        "stories260K": ("stories260K/stories260K.bin", "stories260K/tok512.model")}
METHODS = {  # name -> words of lq quantize
    "rtn": ("-m", "rtn"),
    "gptq": ("-m", "gptq"),
    "gptq plain": ("-m", "gptq", "--recipe", '{"repay": 0, "refine": 0}'),
    "gptq refine": ("-m", "gptq", "--recipe", '{"repay": 0}'),
    "gptq repay": ("-m", "gptq", "--recipe", '{"refine": 0}'),
    "awq": ("-m", "awq"),
    "awq+gptq": ("-m", "awq+gptq"),
    "awq+gptq repay": ("-m", "awq+gptq", "--recipe", '{"refine": 0}'),
    "hadamard": ("-m", "hadamard"),
    "hadamard+gptq": ("-m", "gptq", "--recipe", '{"transform": "rotate"}'),
    "hadamard+gptq repay": ("-m", "gptq", "--recipe", '{"transform": "rotate", "refine": 0}'),
    "smoothquant": ("-m", "smoothquant"),
    "llmint8": ("-m", "llmint8"),
    "llmint8 all": ("-m", "llmint8", "--recipe", '{"share": 1}'),  # every column that reaches the threshold
    "fp8": ("-m", "fp8"),
}
SPREAD = ("rtn", "gptq", "gptq plain", "gptq refine", "gptq repay", "awq", "awq+gptq", "hadamard+gptq")
RUNS = {  # word -> (type, methods)
    "w4g128": ("int4 g128", SPREAD), "w3g128": ("int3 g128", SPREAD), "w4g32": ("int4 g32", SPREAD), "w3g32": ("int3 g32", SPREAD),
    "w4g128a": ("int4 g128 asym", ("rtn", "awq", "awq+gptq", "gptq")), "w4g32a": ("int4 g32 asym", ("rtn", "awq", "awq+gptq", "gptq")),
    "int8": ("int8 row", ("rtn",)), "w8a8": ("int8 row sym f32 act i8 row", ("rtn", "smoothquant", "llmint8", "llmint8 all")),
    "fp8": ("e4m3 row f32 act e4m3 row", ("fp8",)), "nf4": ("nf4", ("rtn", "gptq")), "mxfp4": ("mxfp4", ("rtn", "gptq")),
    "nvfp4": ("nvfp4", ("rtn", "gptq")),
}
CURVE = ("int3 g128", "int3 g32", "int4 g128", "int4 g32", "int5 g128", "int6 g128", "int8 g128")
PEERS = {  # tool -> types it is asked for, and whether it calibrates
    **{t: (("int4 g128", "int3 g128", "int4 g32", "int3 g32"), True)
       for t in ("gptqmodel", "gptqmodel-gptaq", "llmcompressor-gptq", "llmcompressor-gptq-mse")},
    "llmcompressor": (("e4m3 row f32 act e4m3 row", "mxfp4", "nvfp4"), False),
    "llmcompressor-awq": (("int4 g128 asym", "int4 g32 asym"), True),
    "llmcompressor-smoothquant": (("int8 row sym f32 act i8 row",), True),
    "bitsandbytes": (("nf4", "int8 row sym f32 act i8 row"), False),
    "hqq": (("int4 g128 asym", "int4 g32 asym"), False),
}


def machine():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        return next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "?")


def run(*words, cwd=None):
    r = subprocess.run([str(w) for w in words], capture_output=True, text=True, cwd=cwd)
    if r.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: {r.stderr.strip()[-2000:]}")
    return r.stdout


def models(args, folder):
    """name -> (checkpoint, calibration text or None, held-out text, windows)"""
    demo, own, texts = os.path.join(ROOT, "calib_data/demo"), os.path.join(ROOT, "calib_data/test.txt"), os.path.join(args.shared, "text")
    out = {"demo": (demo, None, own, 200)}
    twins = os.path.join(folder, "twins")
    run(sys.executable, os.path.join(ROOT, "calib_data/twins.py"), twins)
    out.update({n: (os.path.join(twins, n), None, own, 60) for n in ("gains", "massive", "outliers")})
    with open(os.path.join(texts, "exllamav2-cal/tiny.utf8"), encoding="utf-8") as f:
        tiny = f.read()
    for name, part in (("cal", tiny[:len(tiny) * 6 // 10]), ("test", tiny[len(tiny) * 6 // 10:])):
        with open(os.path.join(folder, f"tiny.{name}.txt"), "w", encoding="utf-8") as f:
            f.write(part)
    for name, files in REAL.items():
        to = os.path.join(folder, name)
        run(sys.executable, os.path.join(ROOT, "tests/golden/llama2c.py"), *(os.path.join(args.shared, "models", f) for f in files), to)
        out[name] = (to, os.path.join(folder, "tiny.cal.txt"), os.path.join(folder, "tiny.test.txt"), 400)
    if args.larger:
        out["larger"] = (args.larger, os.path.join(args.larger, "calib.txt"), os.path.join(texts, "wiki.test.raw"), 400)
    return {n: m for n, m in out.items() if not args.models or n in args.models.split(",")}


def sequences(lq, checkpoint, calib, seed, folder):
    """The sequences of tokens that lq draws, for other tools: what its report says it drew of the text, cut as it is cut."""
    out = os.path.join(folder, "drawn.lq")
    calib = calib or os.path.join(ROOT, "calib_data/calib.txt")
    run(lq, "quantize", checkpoint, out, "-f", "-q", "-m", "gptq", "--type", "int8 row", "--calib", calib, "--seed", seed)
    with open(out + ".report.json", encoding="utf-8") as f:
        report = json.load(f)
    ids = lambda *more: json.loads(run(lq, "tokenize", checkpoint, *more, "--json"))["ids"]
    text, begin = ids(calib, "--no-special"), ids("-p", "")
    own = report["recipe"]["calib"]["seqlen"] - len(begin[:1])
    return [begin[:1] + text[i * own:(i + 1) * own] for i in report["calib"]["drawn"]]


def runs_there(kind):
    """lq takes weights alone from others' files, so where activations are rounded too the tool itself is run."""
    return " act " in kind


def held_out(lq, model):
    """The windows that `lq eval --protocol llamacpp512` scores."""
    checkpoint, _, text, windows = model
    ids = lambda *more: json.loads(run(lq, "tokenize", checkpoint, *more, "--json"))["ids"]
    with open(os.path.join(checkpoint, "config.json"), encoding="utf-8") as f:
        size = min(512, json.load(f)["max_position_embeddings"])
    text, begin = ids(text, "--no-parse"), ids("-p", "")[:1]
    return [begin + text[at + len(begin):at + size] for at in range(0, len(text) - size + 1, size)][:windows]


def bits(report):
    size = lambda m: m["n"] * m["k"] * max(1, m.get("count", 1))
    layers = [m for m in report["modules"] if ".layers." in m["name"]]
    return sum(m["bits"] * size(m) for m in layers) / sum(map(size, layers))


def measure(lq, made, served, model):
    """Of each: KL divergence, its standard error, the same as served (of those that `served` has), perplexity, and that of the model as it was."""
    checkpoint, _, text, windows = model
    common = ("--against", checkpoint, "--text", text, "--protocol", "llamacpp512", "--windows", windows, "--json", "-q")
    results = []
    for paths, more in ((served, ()), ([p for p in made if p not in served], ("--exact",))):
        if paths:
            results += json.loads(run(lq, "eval", *paths, *common, *more))["results"]
    for path in made:
        exact, default = (next((r for r in results if r["model"] == path and r["mode"] == mode), None) for mode in ("exact", "default"))
        yield dict(windows=f"{exact['windows']}x{exact['window']}", kld=f"{exact['kld']['mean']:.6g}", se=f"{exact['kld']['standard_error']:.2g}",
                   served=f"{default['kld']['mean']:.6g}" if default else "", perplexity=f"{exact['perplexity']:.6g}",
                   was=f"{exact['kld']['reference_perplexity']:.6g}")


def rows():
    if not os.path.exists(CSV):
        return []
    with open(CSV, encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f))


def add(row):
    new = not os.path.exists(CSV)
    with open(CSV, "a", encoding="utf-8", newline="") as f:
        w = csv.DictWriter(f, FIELDS, lineterminator="\n")
        if new:
            w.writeheader()
        w.writerow(row)
    print(*row.values(), sep="\t", flush=True)


def missing(name, tool, method, kind, seed):
    key = dict(model=name, tool=tool, method=method, type=kind, seed=str(seed))
    return not any(all(r[k] == v for k, v in key.items()) for r in rows())


def line(name, job, figures):
    tool, method, kind, seed, size, _ = job
    add(dict(date=datetime.date.today().isoformat(), machine=machine(), model=name, tool=tool, method=method, type=kind, seed=seed, bits=size, **figures))


def keep(lq, name, model, jobs):
    """jobs: [(tool, method, type, seed, bits, path)]"""
    made, served = [j[-1] for j in jobs], [j[-1] for j in jobs if j[3] == "0"]
    for job, figures in zip(jobs, measure(lq, made, served, model)):
        line(name, job, figures)


def lq_runs(args, name, model, folder):
    words = args.runs.split(",") if args.runs else [*RUNS, "curve"]
    if "curve" in words:
        curve_runs(args, name, model, folder)
    for word in (w for w in words if w != "curve"):
        kind, methods = RUNS[word]
        jobs = []
        for method in (m for m in methods if not args.methods or m in args.methods.split(",")):
            for seed in args.seeds.split(",") if method not in ("rtn", "hadamard", "fp8") else ("0",):
                if not missing(name, "lq", method, kind, seed):
                    continue
                out = os.path.join(folder, f"run{len(jobs)}.lq")
                calib = ("--calib", model[1]) if model[1] else ()
                run(args.lq, "quantize", model[0], out, "-f", "-q", *METHODS[method], "--type", kind, *KEPT, *calib, "--seed", seed)
                with open(out + ".report.json", encoding="utf-8") as f:
                    jobs.append(("lq", method, kind, seed, f"{bits(json.load(f)):.4g}", out))
        if jobs:
            keep(args.lq, name, model, jobs)


def curve_runs(args, name, model, folder):
    """auto at the sizes of uniform gptq, embedding and head rounded in both."""
    calib = ("--calib", model[1]) if model[1] else ()
    for kind, seed in ((k, s) for k in CURVE for s in args.seeds.split(",")):
        if not missing(name, "lq", "auto", kind, seed):
            continue
        jobs, size = [], None
        for method, words in (("gptq whole", ("-m", "gptq", "--type", kind)), ("auto", ("-m", "auto"))):
            out = os.path.join(folder, f"{method}.lq")
            run(args.lq, "quantize", model[0], out, "-f", "-q", *words, *(("--target-bits", size) if method == "auto" else ()), *calib, "--seed", seed)
            with open(out + ".report.json", encoding="utf-8") as f:
                size = json.load(f)["bits_per_weight"]
            jobs.append(("lq", method, kind, seed, f"{size:.4g}", out))
        keep(args.lq, name, model, jobs)


def peer_runs(args, name, model, folder):
    for peer in args.peers:
        tool, python = peer.split("=", 1)
        kinds, calibrates = PEERS[tool]
        for seed in args.seeds.split(",") if calibrates else ("0",):
            todo = [k for k in kinds if missing(name, tool, "", k, seed) and (not args.runs or k in [RUNS[w][0] for w in args.runs.split(",")])]
            if not todo:
                continue
            ids = os.path.join(folder, "ids.json")
            with open(ids, "w", encoding="utf-8") as f:
                json.dump(dict(calib=sequences(args.lq, model[0], model[1], seed, folder) if calibrates else None,
                               windows=held_out(args.lq, model) if any(map(runs_there, todo)) else None), f)
            jobs = []
            for kind in todo:
                out = os.path.join(folder, f"{tool}{todo.index(kind)}")
                run(python, os.path.join(HERE, "peers.py"), tool, os.path.abspath(model[0]), out, kind, ids, cwd=folder)  # some write logs where they stand
                if runs_there(kind):
                    with open(out, encoding="utf-8") as f:
                        line(name, (tool, "", kind, seed, "", out), json.load(f))
                else:
                    jobs.append((tool, "", kind, seed, "", out))
            if jobs:
                keep(args.lq, name, model, jobs)


def mean(values):
    return sum(values) / len(values)


def table():
    """Means over seeds, as shares of plain rounding of the same type."""
    runs = {}
    for r in rows():
        runs.setdefault((r["model"], r["type"]), {}).setdefault(f"{r['tool']} {r['method']}".strip(), []).append(r)
    for (model, kind), methods in runs.items():
        plain = methods.get("lq rtn")
        print(f"\n{model}, {kind}\n\n| | seeds | KLD | of rtn | as served | perplexity |\n|---|---|---|---|---|---|")
        for method, of in methods.items():
            kld, served = mean([float(r["kld"]) for r in of]), [float(r["served"]) for r in of if r["served"]]
            as_served = f"{mean(served):.5f}" if served else ""
            se = math.sqrt(mean([float(r["se"]) ** 2 for r in of]))
            share = f"{kld / float(plain[0]['kld']):.3f}" if plain else ""
            rise = 100 * (mean([float(r["perplexity"]) / float(r["was"]) for r in of]) - 1)
            print(f"| {method} | {len(of)} | {kld:.5f} +- {se:.5f} | {share} | {as_served} | {rise:+.2f} % |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("lq", nargs="?")
    p.add_argument("shared", nargs="?")
    p.add_argument("--larger")
    p.add_argument("--peers", action="append", default=[], metavar="TOOL=PYTHON")
    p.add_argument("--models")
    p.add_argument("--runs")
    p.add_argument("--methods")
    p.add_argument("--seeds", default="0,1,2")
    p.add_argument("--table", action="store_true")
    args = p.parse_args()
    if args.table:
        return table()
    args.lq = os.path.abspath(args.lq)
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models(args, folder).items():
            if args.peers:
                peer_runs(args, name, model, folder)
            else:
                lq_runs(args, name, model, folder)


if __name__ == "__main__":
    main()
