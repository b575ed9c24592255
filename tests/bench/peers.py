#!/usr/bin/python3
"""peers.py LQ FOLDER [options]: lq and llama.cpp (and ik_llama.cpp, where --ik says where it is built) on models of equal shape, test by test in turn,
repetition by repetition; peers.sh builds llama.cpp and runs this. A row for each program, type and test goes to tests/regress/cpu.csv, a table to the terminal.

A process that others took more than --others per cent of the CPUs from while it ran does not count and runs again. FOLDER/samples.jsonl keeps each one that
counted. Ctrl-C ends it with what there is. --quick: one model, few tests, ten minutes; --try: everything once with a few tokens, to see that it runs."""
import argparse
import csv
import datetime
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
CSV = os.path.join(ROOT, "tests/regress/cpu.csv")
FIELDS = ("date", "cpu", "isa", "threads", "program", "version", "model", "type", "file_bytes", "test", "unit", "runs", "median", "min", "max", "read_share")
MODELS = {"1.1B": dict(layers=22, dim=2048, heads=32, kv_heads=4, head_dim=64, mlp=5632, vocab=32000),
          "7B slice": dict(layers=4, dim=4096, heads=32, kv_heads=32, head_dim=128, mlp=11008, vocab=32000),
          "MoE slice": dict(layers=3, dim=2048, heads=32, kv_heads=4, head_dim=128, mlp=768, experts=128, used=8, vocab=32000)}
GROUPS = {"int4": (("lq", "int4 g128"), ("lq", "int4 g32"), ("llama.cpp", "Q4_0"), ("llama.cpp", "Q4_K_M")),  # who stands beside whom
          "table": (("lq", "nf4 g32"), ("lq", "mxfp4"), ("llama.cpp", "IQ4_NL")),
          "int8": (("lq", "int8 row"), ("llama.cpp", "Q8_0")),
          "bf16": (("lq", "bf16"), ("llama.cpp", "BF16"))}
EMBED_BITS = {"Q4_0": 4.5, "Q4_K_M": 4.5, "IQ4_NL": 4.5, "Q8_0": 8.5, "BF16": 16}  # of llama.cpp's embedding, which a decode does not read
TICK = os.sysconf("SC_CLK_TCK")
CPUS = os.cpu_count()


class Failed(Exception):
    pass


# --- one process, and what else ran meanwhile ---

def busy():
    """CPU seconds that the machine has spent, what its host took from it included."""
    with open("/proc/stat", encoding="ascii") as f:
        user, nice, system, _, _, irq, soft, steal = map(int, f.readline().split()[1:9])
    return (user + nice + system + irq + soft + steal) / TICK


def own():
    return sum(os.times()[:2])


class Runner:
    def __init__(self, folder, limit, patience):
        self.folder, self.limit, self.patience, self.thrown = folder, limit, patience, 0

    def wait_for_quiet(self):
        end, told = time.monotonic() + self.patience, False
        while True:
            before, mine, start = busy(), own(), time.monotonic()
            time.sleep(0.5)
            share = (busy() - before - own() + mine) / (time.monotonic() - start) / CPUS
            if share <= self.limit:
                return
            if time.monotonic() > end:
                raise Failed(f"the machine was busy for {self.patience} s")
            if not told:
                print(f"  waiting: others take {share:.0%} of the CPUs", file=sys.stderr)
            told = True

    def once(self, words):
        """What it printed, its seconds, CPU seconds and peak of resident memory, and the others' share meanwhile."""
        errors = tempfile.TemporaryFile("w+")
        before, mine, start = busy(), own(), time.monotonic()
        p = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=self.folder)
        try:
            text = p.stdout.read()
            _, status, use = os.wait4(p.pid, 0)
            p.returncode = status
        except KeyboardInterrupt:
            p.kill()
            p.wait()
            raise
        took = time.monotonic() - start
        errors.seek(0)
        said = errors.read()
        if status:
            raise Failed(f"{' '.join(words)}: status {status}: {(text + said)[-300:]}")
        cpu = use.ru_utime + use.ru_stime
        foreign = max(0.0, busy() - before - cpu - own() + mine)
        share = 0.0 if foreign < 5 / TICK else foreign / took / CPUS  # ticks are coarse
        return dict(text=text, said=said, seconds=took, cpu=cpu, peak=use.ru_maxrss / 1e3 * 1.024, others=share)

    def run(self, words):
        for _ in range(20):
            self.wait_for_quiet()
            r = self.once(words)
            if r["others"] <= self.limit:
                return r
            self.thrown += 1
            print(f"  again: others took {r['others']:.1%} of the CPUs during {os.path.basename(words[0])} of {r['seconds']:.1f} s", file=sys.stderr)
        raise Failed("20 runs were disturbed")


# --- the programs: words of a test, and what it came to ---

class Peer:
    """One program with one model of one type."""

    def __init__(self, a, tool, kind, path):
        self.a, self.tool, self.kind, self.path = a, tool, kind, path
        self.file_bytes = sum(os.path.getsize(os.path.join(path, f)) for f in os.listdir(path) if f.endswith(".safetensors")) if os.path.isdir(path) \
            else os.path.getsize(path)

    def alike(self, t):  # whether it does then what lq does
        return True


class Lq(Peer):
    program = "lq"

    def __init__(self, a, kind, path):
        super().__init__(a, a.lq, kind, path)
        self.version = a.lq_version

    def speed(self, run, t):
        r = run([self.tool, "bench", self.path, "-p", str(t.prompt), "-n", str(t.tokens), "-d", str(t.depth), "-b", str(t.batch), "-r", "1",
                 "-t", str(self.a.threads), "--kv-dtype", "f16", "-o", "json", "-q", *self.a.cap_words])
        row = json.loads(r["text"])["results"][0]
        self.a.isa = row["device"].split(",")[0].removeprefix("cpu ")
        return dict(value=row["tok_s"], share=row["share_of_read"], read=row["read_bytes_s"], peak=r["peak"])

    def load(self, run):
        return run([self.tool, "run", self.path, "-p", "a", "--raw", "-n", "1", "--ignore-eos", "-t", str(self.a.threads), "-q",
                    *self.a.cap_words])

    def quantize(self, run, source, out):
        return run([self.tool, "quantize", source.folder, out, "-m", "rtn", "--type", self.kind, "--head", self.kind, "--embed", self.kind,
                    "--layout", "x86", "-t", str(self.a.threads), "--force", "-q"])


class LlamaCpp(Peer):
    program = "llama.cpp"
    more, depth_words, cold = (), ("-d",), ("--no-warmup",)

    def __init__(self, a, kind, path, bin_folder):
        super().__init__(a, os.path.join(bin_folder, "llama-bench"), kind, path)
        self.bin, self.version = bin_folder, ""

    def words(self, *words):
        return [self.tool, "-m", self.path, "-r", "1", "-t", str(self.a.threads), "-ctk", "f16", "-ctv", "f16", "-o", "json", *self.more, *words]

    def asked(self, t):
        return ("-p", str(t.prompt), "-n", str(t.tokens), "-d", str(t.depth))

    def speed(self, run, t):
        if t.batched:
            return self.batched(run, t)
        r = run(self.words(*self.asked(t)))
        row = json.loads(r["text"])[0]
        self.tell_version(row)
        embed = self.a.shape["vocab"] * self.a.shape["dim"] * EMBED_BITS[self.kind] / 8
        mixture = "experts" in self.a.shape  # how much of it is read, it does not say
        return dict(value=row["samples_ts"][0], bytes=None if mixture else row["model_size"] - embed, peak=r["peak"])

    def tell_version(self, row):
        self.version = row["build_commit"][:9] + (f" ({row['build_number']})" if row["build_number"] > 1 else "")

    def batched(self, run, t):
        """A row that its log has not printed when it ends is lost: another one, of one token, stands behind it."""
        room = -(-(t.tokens + 17) // 256) * 256
        r = run([os.path.join(self.bin, "llama-batched-bench"), "-m", self.path, "-c", str(room * t.batch), "-npp", "1", "-ntg", f"{t.tokens},1",
                 "-npl", str(t.batch), "-t", str(self.a.threads), "-tb", str(self.a.threads), "-ctk", "f16", "-ctv", "f16", *self.flags()])
        row = re.search(rf"\| *1 \| *{t.tokens} \| *{t.batch} \|(.*)\|", r["text"] + r["said"])
        if not row:
            raise Failed(f"llama-batched-bench: no row for {t.name}: {(r['text'] + r['said'])[-300:]}")
        return dict(value=float(row[1].split("|")[4]), peak=r["peak"])

    def flags(self):
        return ()

    def load(self, run):
        r = run(self.words("-p", "0", "-n", "1", *self.cold))
        self.tell_version(json.loads(r["text"])[0])
        return r

    def quantize(self, run, source, out):
        pure = [] if self.kind == "Q4_K_M" else ["--pure"]
        return run([os.path.join(self.bin, "llama-quantize"), *pure, source.gguf, out, self.kind, str(self.a.threads)])


class IkLlama(LlamaCpp):
    """Its batches are of one token: sequences of a mixture would all want the same experts."""
    program, cold = "ik_llama.cpp", ("-w", "0")

    def alike(self, t):
        return not t.batched or "experts" not in self.a.shape

    def asked(self, t):
        return ("-p", "0", "-n", "0", "-gp", f"{t.depth},{t.tokens}") if t.depth else ("-p", str(t.prompt), "-n", str(t.tokens))


class IkRepacked(IkLlama):
    program, more = "ik_llama.cpp -rtr", ("-rtr", "1")

    def flags(self):
        return ("-rtr",)


# --- tests ---

class Test:
    def __init__(self, prompt, tokens, depth=0, batch=1, batched=False):
        self.prompt, self.tokens, self.depth, self.batch, self.batched = prompt, tokens, depth, batch, batched
        self.name = (f"pp{prompt}" if prompt else f"tg{tokens}") + (f" @ d{depth}" if depth else "") + (f" x{batch}" if batched else "")


def tests_of(a):
    """Batches are decoded by llama-batched-bench, also that of one sequence."""
    if a.trial:
        return [Test(16, 0), Test(0, 4), Test(0, 4, 64)] + [Test(0, 4, 0, b, True) for b in (1, 4)]
    if a.quick:
        return [Test(512, 0), Test(0, 64), Test(0, 32, 0, 16, True)]
    return [Test(512, 0), Test(2048, 0), Test(0, 128), Test(0, 128, 4096)] + [Test(0, 64, 0, b, True) for b in (1, 4, 16, 32)]


# --- models ---

class Source:
    """A random checkpoint and the same numbers as a GGUF."""

    def __init__(self, a, name):
        self.at = os.path.join(a.folder, "models", name.replace(" ", "-"))
        self.folder, self.gguf = os.path.join(self.at, "bf16"), os.path.join(self.at, "BF16.gguf")
        os.makedirs(self.at, exist_ok=True)
        if os.path.exists(os.path.join(self.at, "made")):
            return
        print(f"{name}: random weights", file=sys.stderr)
        words = [w for key, value in (MODELS[name] | dict(context=8192)).items() for w in ("--" + key.replace("_", "-"), str(value))]
        subprocess.run([sys.executable, os.path.join(ROOT, "tests/gpu/random_model.py"), self.folder, "--gguf", self.gguf, *words], check=True)
        with open(os.path.join(self.at, "made"), "w", encoding="ascii"):
            pass


def contenders_of(a, source, group, once):
    """The first, lq's, is what the others' ratio is to."""
    found = []
    for program, kind in GROUPS[group]:
        ours = program == "lq"
        path = os.path.join(source.at, kind.replace(" ", "-") + (".lq" if ours else ".gguf"))
        if group == "bf16":
            path = source.folder if ours else source.gguf
        elif not os.path.exists(path) or (ours and os.path.getmtime(path) < os.path.getmtime(a.lq)):
            part = path + ".part" if not ours else path
            maker = Lq(a, kind, source.folder) if ours else LlamaCpp(a, kind, source.gguf, a.llama)
            print(f"{os.path.basename(source.at)}: {kind}", file=sys.stderr)
            maker.quantize(once, source, part)
            os.replace(part, path)
        found += [Lq(a, kind, path)] if ours else [LlamaCpp(a, kind, path, a.llama)]
        if not ours and a.ik:
            found += [IkLlama(a, kind, path, a.ik), IkRepacked(a, kind, path, a.ik)]
    for peer in found:  # from the system's cache from here on
        for path in [os.path.join(peer.path, f) for f in os.listdir(peer.path)] if os.path.isdir(peer.path) else [peer.path]:
            with open(path, "rb") as f:
                while f.read(1 << 24):
                    pass
    return found


# --- the measuring ---

def kv_bytes(shape, t):
    """Of keys and values in f16 that a step of a decode reads, on the average."""
    return 2 * 2 * shape["layers"] * shape["kv_heads"] * shape["head_dim"] * (t.depth + t.tokens / 2) * t.batch


class Samples:
    """(model, group, peer, test, unit) -> values and shares of a plain read."""

    def __init__(self, path):
        self.values, self.path = {}, path

    def has(self, model, group, peer, test):
        return any(key[:5] == (model, group, peer.program, peer.kind, test) for key in self.values)

    def add(self, model, group, peer, test, unit, value, share=None):
        key = (model, group, peer.program, peer.kind, test, unit)
        self.values.setdefault(key, (peer, [], []))[1].append(value)
        if share is not None:
            self.values[key][2].append(share)
        with open(self.path, "a", encoding="utf-8") as f:
            print(json.dumps(dict(zip(("model", "group", "program", "type", "test", "unit", "value", "share"), (*key, value, share)),
                                  time=datetime.datetime.now().isoformat(timespec="seconds"))), file=f)


def measure_speed(a, found, samples, name, group, t, run):
    """Each contender once. What lq says of a plain read stands for the others of its group too."""
    read = None
    for peer in (p for p in found if p.alike(t)):
        r = peer.speed(run, t)
        read = r.get("read") or read
        peer.bytes = r.get("bytes") or getattr(peer, "bytes", None)
        share = r.get("share")
        if share is None and not t.prompt and read and peer.bytes:
            share = (peer.bytes + kv_bytes(a.shape, t)) * r["value"] / t.batch / read
        samples.add(name, group, peer, t.name, "tok/s", r["value"], share)
        if t.depth:
            samples.add(name, group, peer, f"peak of {t.name}", "MB", r["peak"])


def measure_rest(a, found, samples, name, group, source, run):
    for peer in found:
        samples.add(name, group, peer, "first token", "s", peer.load(run)["seconds"])
        slow = peer.kind == "Q4_K_M" and samples.has(name, group, peer, "quantize")  # half a minute: once
        if group == "bf16" or isinstance(peer, IkLlama) or slow or a.cap:  # lq quantize takes no --isa
            continue
        out = os.path.join(source.at, "timed.lq" if peer.program == "lq" else "timed.gguf")
        r = peer.quantize(run, source, out)
        os.remove(out)
        for test, unit, value in (("quantize", "s", r["seconds"]), ("quantize, CPU", "s", r["cpu"]), ("quantize, peak", "MB", r["peak"])):
            samples.add(name, group, peer, test, unit, value)


def measure(a, samples):
    calm, loose = Runner(a.folder, a.others / 100, a.patience), Runner(a.folder, 1e9, 0)
    for name in a.models:
        a.shape, source = MODELS[name], Source(a, name)
        found = {group: contenders_of(a, source, group, loose.once) for group in a.groups}
        for k in range(a.repeats):
            for group in a.groups:
                print(f"{name}, {group}: repetition {k + 1} of {a.repeats}", file=sys.stderr)
                for t in a.tests:
                    measure_speed(a, found[group], samples, name, group, t, calm.run)
                measure_rest(a, found[group], samples, name, group, source, calm.run)
    print(f"{calm.thrown} runs did not count", file=sys.stderr)


# --- what it came to ---

def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        names = re.findall(r"^model name\s*: (.*)", f.read(), re.M)
    return f"{names[0] if names else 'unknown'}, {CPUS} cores"


def rows_of(a, samples):
    for (name, _, program, kind, test, unit), (peer, values, shares) in samples.values.items():
        yield dict(date=datetime.date.today().isoformat(), cpu=cpu_name(), isa=a.isa, threads=a.threads, program=program, version=peer.version, model=name, type=kind,
                   file_bytes=peer.file_bytes, test=test, unit=unit, runs=len(values), median=f"{statistics.median(values):.4g}", min=f"{min(values):.4g}",
                   max=f"{max(values):.4g}", read_share=f"{statistics.median(shares):.3f}" if shares else "")


def write_csv(path, rows):
    """What was measured again takes the place of what it was."""
    old = []
    if os.path.exists(path):
        with open(path, encoding="utf-8", newline="") as f:
            old = list(csv.DictReader(f))
    keys = ("date", "cpu", "isa", "threads", "program", "version", "model", "type", "test")
    new = {tuple(str(r[k]) for k in keys) for r in rows}
    with open(path, "w", encoding="utf-8", newline="") as f:
        out = csv.DictWriter(f, FIELDS, lineterminator="\n")
        out.writeheader()
        out.writerows([r for r in old if tuple(r[k] for k in keys) not in new] + rows)


def print_tables(samples):
    """Ratios to the group's first: above 1 it does more of what the unit says."""
    by_test = {}
    for key, value in samples.values.items():
        by_test.setdefault((key[0], key[1], key[4], key[5]), []).append((key, value))
    last = None
    for (name, group, test, unit), found in by_test.items():
        if (name, group) != last:
            print(f"\n{name}, {group}\n\n| test | program | type | MB | median | min..max | of read | ratio |\n|---|---|---|---:|---:|---:|---:|---:|")
        last = (name, group)
        first = found[0][1][1]
        for key, (peer, values, shares) in found:
            pairs = [v / w for v, w in zip(values, first)]
            print(f"| {test} | {key[2]} | {key[3]} | {peer.file_bytes / 1e6:.0f} | {statistics.median(values):.4g} {unit} | {min(values):.4g}..{max(values):.4g} | "
                  f"{f'{statistics.median(shares):.0%}' if shares else '-'} | {statistics.median(pairs):.3f} |")


def chosen(text, known, what):
    names = text.split(",") if text else list(known)
    for name in names:
        if name not in known:
            raise SystemExit(f"peers.py: {name}: no {what}; there are {', '.join(known)}")
    return names


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("lq")
    p.add_argument("folder", help="what peers.sh built, the models and the samples")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--try", dest="trial", action="store_true")
    p.add_argument("--ik", metavar="FOLDER", help="with llama-bench and llama-batched-bench of ik_llama.cpp in it, or in its bin")
    p.add_argument("--models", metavar="LIST", help=", ".join(MODELS))
    p.add_argument("--types", metavar="LIST", help=", ".join(GROUPS))
    p.add_argument("--tests", metavar="REGEX", help="of those that are measured anyway, by name: pp512, tg128 @ d4096, tg64 x16")
    p.add_argument("-r", "--repeats", type=int)
    p.add_argument("-t", "--threads", type=int, default=2)
    p.add_argument("--others", type=float, default=5, metavar="PERCENT", help="of all CPUs that other processes may take from a run that counts (default: 5)")
    p.add_argument("--patience", type=float, default=1800, metavar="SECONDS", help="that a busy machine is waited for (default: 1800)")
    p.add_argument("--isa", dest="cap", choices=["avx2"], help="what all of them are to do with: lq is told, llama.cpp built so; of --ik, FOLDER is to be such a build")
    p.add_argument("--csv", default=CSV)
    a = p.parse_args()
    a.lq, a.folder, a.isa = os.path.realpath(a.lq), os.path.realpath(a.folder), a.cap or ""
    a.cap_words = ["--isa", a.cap] if a.cap else []
    a.llama = os.path.join(a.folder, f"llama.cpp-{a.cap}/bin" if a.cap else "llama.cpp/bin")
    if a.ik:
        a.ik = os.path.realpath(os.path.join(a.ik, "bin") if os.path.isdir(os.path.join(a.ik, "bin")) else a.ik)
    a.models = chosen(a.models, MODELS, "such model") if a.models or not a.quick else ["1.1B"]
    a.groups = chosen(a.types, GROUPS, "such type")
    a.repeats = a.repeats or (1 if a.trial else 3 if a.quick else 5)
    a.tests = [t for t in tests_of(a) if re.search(a.tests or "", t.name)]
    if a.trial:
        a.others, a.csv = 1e9, os.path.join(a.folder, "try.csv")
    version = subprocess.run([a.lq, "version"], capture_output=True, text=True, check=True).stdout.split()[1]
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False).stdout.strip()
    a.lq_version = f"{version} {commit}".strip()
    return a


def main():
    a = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    samples, status = Samples(os.path.join(a.folder, "samples.jsonl")), 0
    try:
        measure(a, samples)
    except (Failed, KeyboardInterrupt) as e:
        print(f"peers.py: {e or 'stopped'}", file=sys.stderr)
        status = 1
    if samples.values:
        write_csv(a.csv, list(rows_of(a, samples)))
        print_tables(samples)
        print(f"\n{a.csv} has it" + (", which measures nothing" if a.trial else ""))
    return status


if __name__ == "__main__":
    sys.exit(main())
