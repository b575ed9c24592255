# kills.py: what quantize_kill.py and quantize_resume.py share: models to quantize, and a Case: a command that is killed, stopped and left without
# a disk, and must make the same file in the end.
import hashlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

import numpy as np

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), p) for p in ("..", "../golden")]
import st  # noqa: E402
from counted import check, skip  # noqa: E402

SLOW = float(os.environ.get("LQ_SLOW", "1")) >= 3  # sanitizers, or a busy machine: each run takes many times longer
# Sanitizers see memory, and not what of a file is whole: there each way to go on is gone once.
WATCHED = json.loads(subprocess.run([os.path.abspath(sys.argv[1]), "version", "--json"], capture_output=True).stdout)["sanitizers"] != ""
CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 256 if SLOW else 512, "intermediate_size": 704 if SLOW else 1408,
          "num_hidden_layers": 12, "num_attention_heads": 8,
          "num_key_value_heads": 2, "vocab_size": 2048, "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "tie_word_embeddings": True}
EXPERTS = 8
MIXTURE = dict(CONFIG, architectures=["MixtralForCausalLM"], num_local_experts=EXPERTS, num_experts_per_tok=2, intermediate_size=176,
               num_hidden_layers=6)
SMALL = {"hidden_size": 96 if SLOW else 128, "intermediate_size": 160 if SLOW else 256, "num_hidden_layers": 4 if SLOW else 5, "vocab_size": 1024}
WIDE = "model.layers.1.block_sparse_moe.experts.5.w1.weight"  # so small that its scales are no normal F16


def shapes_of(config):
    dim, ffn = config["hidden_size"], config["intermediate_size"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], dim), "model.norm.weight": (dim,)}
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        layer = {"input_layernorm": (dim,), "post_attention_layernorm": (dim,), "self_attn.q_proj": (dim, dim),
                 "self_attn.k_proj": (dim // 4, dim), "self_attn.v_proj": (dim // 4, dim), "self_attn.o_proj": (dim, dim)}
        if "num_local_experts" in config:
            layer["block_sparse_moe.gate"] = (EXPERTS, dim)
            for e in range(EXPERTS):
                x = f"block_sparse_moe.experts.{e}."
                layer.update({x + "w1": (ffn, dim), x + "w2": (dim, ffn), x + "w3": (ffn, dim)})
        else:
            layer.update({"mlp.gate_proj": (ffn, dim), "mlp.up_proj": (ffn, dim), "mlp.down_proj": (dim, ffn)})
        shapes.update({p + n + ".weight": s for n, s in layer.items()})
    return shapes


def write_model(folder, config):
    shapes = shapes_of(config)
    head = st.entries(shapes, "F16")
    os.makedirs(folder)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(st.framed(head))
        data = np.random.default_rng(5).standard_normal(sum(int(np.prod(s)) for s in shapes.values()), dtype=np.float32) * 0.02
        if WIDE in head:
            data[slice(*(o // 2 for o in head[WIDE]["data_offsets"]))] *= 2e-3
        f.write(data.astype(np.float16).tobytes())
    json.dump(config, open(os.path.join(folder, "config.json"), "w"))


def stack_model(folder, to, config):
    """The same mixture with one tensor for all gates of a layer, for all ups, for all downs."""
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    stacks = {}
    for name, t in head.items():
        bytes_of, one = data[slice(*t["data_offsets"])], re.sub(r"experts\.\d+\.", "experts.", name)
        stacks.setdefault(one, (t["shape"], []))[1].append(bytes_of)
    shapes = {name: [len(parts), *shape] if ".experts." in name else shape for name, (shape, parts) in stacks.items()}
    os.makedirs(to)
    with open(os.path.join(to, "model.safetensors"), "wb") as f:
        f.write(st.framed(st.entries(shapes, "F16")) + b"".join(p for _, parts in stacks.values() for p in parts))
    with open(os.path.join(to, "config.json"), "w") as f:
        json.dump(config, f)


def vocabulary(folder):
    demo = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "calib_data", "demo")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(demo, name), folder)


def digest(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def report(path):
    r = json.load(open(path + ".report.json"))
    ran, r["output"]["path"] = r.pop("run"), ""
    return r, ran


def finish(p):
    err = p.communicate()[1]
    return p.returncode, err.strip()


def forget(out):
    for path in (out, out + ".report.json"):
        if os.path.exists(path):
            os.unlink(path)
    shutil.rmtree(out + ".partial", ignore_errors=True)


def lines(path):
    """Whole ones."""
    return open(path, "rb").read().count(b"\n") if os.path.exists(path) else 0


def has_blocks(out):
    try:
        return '["b",' in open(out + ".partial/journal").read()
    except FileNotFoundError:  # it has none yet, or has ended
        return False


class Case:
    """`lq quantize` of a model with some words. Another recipe is what `other` adds to them; with `scarce` memory, little more than what it
    says it needs, calibration lays something aside, with `plenty` it does not."""

    def __init__(self, lq, folder, model, words, other=("--embed", "keep")):
        self.lq, self.folder, self.model, self.words, self.other = lq, folder, model, list(words), list(other)
        self.scarce, self.plenty = [], []

    def limit(self):
        said = subprocess.run(self.command(self.out("none.lq"), "--max-ram", "1M", "--dry-run"), capture_output=True, text=True).stderr
        needs = re.search(r"needs ([0-9.]+) MB", said)
        if check(needs, f"with 1 MB of memory: {said}"):
            self.scarce, self.plenty = ["--max-ram", str(int(float(needs[1]) * 1e6 + 3e5))], ["--max-ram", "1G"]

    def out(self, name):
        return os.path.join(self.folder, name)

    def command(self, out, *more):
        return [self.lq, "quantize", self.model, out, "--quiet", *self.words, *more]

    def start(self, out, *more):
        return subprocess.Popen(self.command(out, *more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def ends(self, out, *more):
        """A run that goes on to its end: what it did not measure had been measured."""
        before = lines(out + ".partial/measured")
        code, err = finish(self.start(out, *more))
        good = code == 0 and digest(out) == self.whole
        if good and self.units:
            done = report(out)[1]["measured"]
            good = check(done == max(0, self.units - before), f"{before} of {self.units} units were measured: {done} were measured again")
        return good, f"exit {code}: {err}"

    def undisturbed(self):
        """A run that nobody disturbs: what it wrote, its report, its seconds on one thread; False where it fails."""
        out = self.out("whole.lq")
        code, err = finish(self.start(out))
        if not check(code == 0, f"an undisturbed run: exit {code}: {err}"):
            return False
        began = time.monotonic()
        code, err = finish(self.start(out, "--force", "--threads", "1"))
        self.seconds = time.monotonic() - began
        self.whole, self.size, (self.clean, ran) = digest(out), os.path.getsize(out), report(out)
        self.units = ran.get("measured", 0)
        return check(code == 0, f"on one thread: exit {code}: {err}")

    def kill_often(self, kills):
        """Kills runs until so many have died; each that lives to its end must have made the same file. How long a run takes changes with what else
        the machine does: the wait follows, shorter where runs end, longer where they die. One more is killed behind a block, which none may have been."""
        out, limits = self.out("killed.lq"), (self.scarce, self.plenty)
        killed, ended, resumed, seconds = 0, 0, 0, self.seconds
        while killed < kills and ended < 4 * kills:
            before = lines(out + ".partial/measured")
            p = self.start(out, *random.choice(limits))
            time.sleep(random.uniform(0, seconds * 1.1))
            p.kill()
            code, err = finish(p)
            killed += code == -signal.SIGKILL
            seconds *= 1.04 if code else 0.8
            check(code in (0, -signal.SIGKILL), f"exit {code}: {err}")
            # Killed behind the output's rename, it may have thrown them away.
            left = lines(out + ".partial/measured")
            check(os.path.exists(out) or left >= before, f"of {before} measurements {left} are left")
            if os.path.exists(out):
                ended += 1
                check(digest(out) == self.whole, f"after {killed} kills: {out} differs from an undisturbed run")
                if code == 0:
                    ran = report(out)[1]
                    resumed += ran["resumed_blocks"] > 0
                    check(ran.get("measured", 0) == max(0, self.units - before), f"{before} of {self.units} units were measured, {ran.get('measured')} again")
                    check(not os.path.exists(out + ".partial"), f"{out}.partial is left behind")
                forget(out)
            elif random.random() < 0.1:
                forget(out)
        check(killed >= kills * 2 // 3, f"only {killed} runs were killed")
        print(f"{killed} runs killed, {ended} ended, {resumed} of those had gone on from another's blocks")
        self.stopped(out, signal.SIGKILL)
        check(lines(out + ".partial/measured") == self.units, "a run that has blocks has not all measurements")
        good, why = self.ends(out)
        check(good and report(out)[1]["resumed_blocks"] > 0, f"the last run: {why}")

    def stopped(self, out, how, *more):
        """A run that is sent a signal as soon as it has a block, which it must not have outrun: its status, what it said."""
        for _ in range(30):
            p = self.start(out, *more)
            while p.poll() is None and not has_blocks(out):
                time.sleep(0.001)
            p.send_signal(how)
            code, err = finish(p)
            if code and has_blocks(out):
                break
            forget(out)
        check(code and has_blocks(out), f"no run was stopped behind a block: exit {code}: {err}")
        return code, err

    def interrupt(self):
        out = self.out("stopped.lq")
        forget(out)
        code, err = self.stopped(out, signal.SIGINT)
        check(code == 1 and "stopped after" in err and err.count("\n") == 0 and not os.path.exists(out), f"Ctrl-C: exit {code}: {err}")
        if has_blocks(out):
            # Another recipe neither takes over blocks of this one nor throws them away; --fresh does that.
            shutil.copytree(out + ".partial", out + ".other.partial")
            code, err = finish(self.start(out + ".other", *self.other))
            check(code == 2 and "--fresh" in err and os.path.exists(out + ".other.partial/data"), f"another recipe: exit {code}: {err}")
            code, err = finish(self.start(out + ".other", *self.other, "--fresh"))
            check(code == 0 and report(out + ".other")[1]["resumed_blocks"] == 0, f"another recipe, --fresh: exit {code}: {err}")
            shutil.copytree(out + ".partial", out + ".fresh.partial")
            code, err = finish(self.start(out + ".fresh", "--fresh"))
            ran = report(out + ".fresh")[1] if code == 0 else {}
            anew = ran.get("resumed_blocks") == 0 and ran.get("measured", 0) == self.units
            check(anew and digest(out + ".fresh") == self.whole, f"--fresh: exit {code}: {err}")
            # A block whose bytes were lost is done again.
            shutil.copytree(out + ".partial", out + ".torn.partial")
            size = os.path.getsize(out + ".torn.partial/data")
            with open(out + ".torn.partial/data", "r+b") as f:
                f.truncate(size * 2 // 3)
            good, why = self.ends(out + ".torn")
            check(good, f"a torn partial: {why}")
        good, why = self.ends(out)
        check(good, f"after Ctrl-C: {why}")
        check(report(out)[0] == self.clean, "the report of a resumed run differs from that of an undisturbed one")

    def disk_full(self):
        """A disk that is full at any point (here: no file may be longer): nothing has the output's name, and with room again the work goes on."""
        out, shares = self.out("full.lq"), [(share, self.plenty) for share in (0.2, 0.3, 0.5, 0.7, 0.9, 0.999)]
        # The first two have no room for what calibration lays aside; with memory for that, the others get further one by one.
        if self.scarce:
            shares = [(0.2, self.scarce), (0.5, self.scarce), *shares]
        if self.units:
            shares = [(1024 / self.size, self.plenty), *shares]
        for share, memory in shares[::2] if SLOW else shares:
            limit = int(self.size * share // 1024)
            p = subprocess.run(["bash", "-c", f'trap "" XFSZ; ulimit -f {limit}; exec "$@"', "x", *self.command(out, *memory)], capture_output=True, text=True)
            check("scratch" in p.stderr or share > 0.2 or memory is not self.scarce or not self.scarce, f"{limit} KB: {p.stderr}")
            check("measured" in p.stderr or limit > 1, f"{limit} KB: {p.stderr}")
            check(p.returncode == 1 and p.stderr.count("\n") == 1, f"{limit} KB: exit {p.returncode}: {p.stderr}")
            check(not os.path.exists(out) and not os.path.exists(out + ".report.json"), f"{limit} KB: {out} is there")
            check(not os.path.exists(out + ".partial/scratch"), f"{limit} KB: the scratch file has a name")
        good, why = self.ends(out)
        check(good, f"with room again: {why}")
        check(report(out)[1]["resumed_blocks"] > 0, "with room again: nothing was there to go on from")

    def elsewhere(self):
        """Sums depend on the machine's kernels: blocks that others made are not gone on from."""
        out = self.out("moved.lq")
        self.stopped(out, signal.SIGKILL, *self.plenty)
        here = re.search(r"OpenBLAS [^\"]*", open(out + ".partial/journal").read())
        other = "Haswell" if here and "Haswell" not in here[0] else "Nehalem"
        r = subprocess.run(self.command(out), capture_output=True, text=True, env=dict(os.environ, OPENBLAS_CORETYPE=other))
        if r.returncode == 0:
            skip("OpenBLAS does not change its kernels when asked to")
        else:
            good = r.returncode == 2 and here and here[0] in r.stderr and other in r.stderr and "--fresh" in r.stderr
            check(good, f"another machine's blocks: exit {r.returncode}: {r.stderr}")
        good, why = self.ends(out)
        check(good, f"where it began: {why}")
