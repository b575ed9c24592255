#!/usr/bin/python3
# quantize_kill.py LQ: `lq quantize` killed at random moments (SIGKILL, and SIGINT once): nothing stands under the output's name until
# it is whole, the same command goes on from what is there, and the output is the same to the byte as that of a run nobody disturbed.
# A dense model, and a mixture whose experts become stacks, one of them with an expert that F16 has no scales for.
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
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counted import check, end, skip  # noqa: E402

lq = os.path.abspath(sys.argv[1])
KILLS, DIM, FFN, VOCAB, LAYERS = 30, 512, 1408, 2048, 12
CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": DIM, "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": 8,
          "num_key_value_heads": 2, "vocab_size": VOCAB, "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "tie_word_embeddings": True}

EXPERTS = 8
MIXTURE = dict(CONFIG, architectures=["MixtralForCausalLM"], num_local_experts=EXPERTS, num_experts_per_tok=2,
               intermediate_size=FFN // 8, num_hidden_layers=6)
WIDE = "model.layers.1.block_sparse_moe.experts.5.w1.weight"  # so small that its scales are no normal F16


def shapes_of(config):
    shapes = {"model.embed_tokens.weight": (VOCAB, DIM), "model.norm.weight": (DIM,)}
    ffn = config["intermediate_size"]
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        layer = {"input_layernorm": (DIM,), "post_attention_layernorm": (DIM,), "self_attn.q_proj": (DIM, DIM),
                 "self_attn.k_proj": (DIM // 4, DIM), "self_attn.v_proj": (DIM // 4, DIM), "self_attn.o_proj": (DIM, DIM)}
        if "num_local_experts" in config:
            layer["block_sparse_moe.gate"] = (EXPERTS, DIM)
            for e in range(EXPERTS):
                x = f"block_sparse_moe.experts.{e}."
                layer.update({x + "w1": (ffn, DIM), x + "w2": (DIM, ffn), x + "w3": (ffn, DIM)})
        else:
            layer.update({"mlp.gate_proj": (ffn, DIM), "mlp.up_proj": (ffn, DIM), "mlp.down_proj": (DIM, ffn)})
        shapes.update({p + n + ".weight": s for n, s in layer.items()})
    return shapes


def write_model(folder, config):
    shapes = shapes_of(config)
    head, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        head[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(folder)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        data = np.random.default_rng(5).standard_normal(at // 2, dtype=np.float32) * 0.02
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
    out, at = {}, 0
    for name, (shape, parts) in stacks.items():
        size = sum(map(len, parts))
        shape = [len(parts), *shape] if ".experts." in name else shape
        out[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(out).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(to)
    with open(os.path.join(to, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(p for _, parts in stacks.values() for p in parts))
    with open(os.path.join(to, "config.json"), "w") as f:
        json.dump(config, f)


def digest(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def report(path):
    r = json.load(open(path + ".report.json"))
    ran, r["output"]["path"] = r.pop("run"), ""
    return r, ran


def command(out, *more):
    return [lq, "quantize", model, out, "--quiet", *words, *more]


def start(out, *more):
    return subprocess.Popen(command(out, *more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(p):
    err = p.communicate()[1]
    return p.returncode, err.strip()


def forget(out):
    for path in (out, out + ".report.json"):
        if os.path.exists(path):
            os.unlink(path)
    shutil.rmtree(out + ".partial", ignore_errors=True)


def kill_often(out, whole, seconds, kills, limits=((),)):
    """Kills runs until so many have died; each that lives to its end must have made the same file. How long a run takes
    changes with what else the machine does: the wait follows, shorter where runs end, longer where they die."""
    killed, ended, resumed = 0, 0, 0
    while killed < kills and ended < 4 * kills:
        p = start(out, *random.choice(limits))
        time.sleep(random.uniform(0, seconds * 1.1))
        p.kill()
        code, err = finish(p)
        killed += code == -signal.SIGKILL
        seconds *= 1.04 if code else 0.8
        check(code in (0, -signal.SIGKILL), f"exit {code}: {err}")
        if os.path.exists(out):
            ended += 1
            check(digest(out) == whole, f"after {killed} kills: {out} differs from an undisturbed run")
            if code == 0:
                resumed += report(out)[1]["resumed_blocks"] > 0
                check(not os.path.exists(out + ".partial"), f"{out}.partial is left behind")
            forget(out)
        elif random.random() < 0.1:
            forget(out)
    code, err = finish(start(out))
    check(code == 0 and digest(out) == whole, f"the last run: exit {code}: {err}")
    resumed += report(out)[1]["resumed_blocks"] > 0
    check(killed >= kills * 2 // 3, f"only {killed} runs were killed")
    check(resumed > 0, "no run went on from what another left")
    print(f"{killed} runs killed, {ended} ended, {resumed} of those had gone on from another's blocks")


def interrupt(out, whole, clean, seconds):
    forget(out)
    for share in (0.5, 0.3, 0.15, 0.7, 0.1, 0.4):
        p = start(out)
        time.sleep(seconds * share)
        p.send_signal(signal.SIGINT)
        code, err = finish(p)
        if code == 1 and os.path.isdir(out + ".partial"):
            break
        forget(out)
    check(code == 1 and "stopped after" in err and err.count("\n") == 0 and not os.path.exists(out), f"Ctrl-C: exit {code}: {err}")
    if os.path.isdir(out + ".partial"):
        # Another recipe neither takes over blocks of this one nor throws them away; --fresh does that.
        shutil.copytree(out + ".partial", out + ".other.partial")
        code, err = finish(start(out + ".other", "--embed", "keep"))
        check(code == 2 and "--fresh" in err and os.path.exists(out + ".other.partial/data"), f"another recipe: exit {code}: {err}")
        code, err = finish(start(out + ".other", "--embed", "keep", "--fresh"))
        check(code == 0 and report(out + ".other")[1]["resumed_blocks"] == 0, f"another recipe, --fresh: exit {code}: {err}")
        shutil.copytree(out + ".partial", out + ".fresh.partial")
        code, err = finish(start(out + ".fresh", "--fresh"))
        check(code == 0 and report(out + ".fresh")[1]["resumed_blocks"] == 0 and digest(out + ".fresh") == whole, f"--fresh: exit {code}: {err}")
        # A block whose bytes were lost is done again.
        shutil.copytree(out + ".partial", out + ".torn.partial")
        size = os.path.getsize(out + ".torn.partial/data")
        with open(out + ".torn.partial/data", "r+b") as f:
            f.truncate(size * 2 // 3)
        code, err = finish(start(out + ".torn"))
        check(code == 0 and digest(out + ".torn") == whole, f"a torn partial: exit {code}: {err}")
    code, err = finish(start(out))
    check(code == 0 and digest(out) == whole, f"after Ctrl-C: exit {code}: {err}")
    check(report(out)[0] == clean, "the report of a resumed run differs from that of an undisturbed one")


def check_stacks(out):
    """Experts are one weight, of one type, whatever one of them would like."""
    with open(out, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    types, name = json.loads(head["__metadata__"]["lq.types"]), "model.layers.%d.block_sparse_moe.experts.w1.weight"
    ffn = MIXTURE["intermediate_size"]
    for layer, scale in ((0, "f16"), (1, "f32")):
        want = f"int4 g32 asym {scale} {EXPERTS}x{ffn}x{DIM}"
        check(types.get(name % layer) == want, f"layer {layer}: {types.get(name % layer)}, expected {want}")
        check(head[name % layer + ".q"]["shape"][0] == EXPERTS, f"layer {layer}: no stack of codes")
    rows = {r["name"]: r for r in report(out)[0]["modules"]}
    check(len(rows) == 1 + 6 * (4 + 3), f"{len(rows)} modules in the report: experts one by one?")
    row = rows[name % 1]
    good = row["count"] == EXPERTS and 0 <= row["worst"] < EXPERTS and row["rel_error"] <= row["worst_error"] < 0.2
    check(good and "f32" in row["note"] and not rows[name % 0]["note"], f"the report says {row}")


def disk_full(whole):
    """A disk that is full at any point (here: no file may be longer): nothing has the output's name, and with room again the work goes on."""
    out = os.path.join(os.path.dirname(model), "full.lq")
    size = os.path.getsize(os.path.join(os.path.dirname(model), "whole.lq"))
    resumed = 0
    # The first two have no room for what calibration lays aside; with memory for that, the others get further one by one.
    for share, memory in ((0.2, SCARCE), (0.5, SCARCE), *((share, PLENTY) for share in (0.2, 0.3, 0.5, 0.7, 0.9, 0.999))):
        limit = size * share // 1024
        p = subprocess.run(["bash", "-c", f'trap "" XFSZ; ulimit -f {int(limit)}; exec "$@"', "x", *command(out, *memory)], capture_output=True, text=True)
        check("scratch" in p.stderr or share > 0.2 or memory is PLENTY, f"{int(limit)} KB: {p.stderr}")
        check(p.returncode == 1 and p.stderr.count("\n") == 1, f"{int(limit)} KB: exit {p.returncode}: {p.stderr}")
        check(not os.path.exists(out) and not os.path.exists(out + ".report.json"), f"{int(limit)} KB: {out} is there")
        check(not os.path.exists(out + ".partial/scratch"), f"{int(limit)} KB: the scratch file has a name")
    code, err = finish(start(out))
    check(code == 0 and digest(out) == whole, f"with room again: exit {code}: {err}")
    resumed = report(out)[1]["resumed_blocks"]
    check(resumed > 0, "with room again: nothing was there to go on from")


def elsewhere(out, whole, seconds):
    """Sums depend on the machine's kernels: blocks that others made are not gone on from."""
    for _ in range(60):
        p = start(out, *PLENTY)
        time.sleep(seconds * random.uniform(0.1, 0.9))
        seconds = max(0.02, seconds * 0.95)
        p.kill()
        finish(p)
        if os.path.exists(out + ".partial/journal") and '["b",' in open(out + ".partial/journal").read():
            break
        forget(out)
    here = re.search(r"OpenBLAS [^\"]*", open(out + ".partial/journal").read())
    other = "Haswell" if here and "Haswell" not in here[0] else "Nehalem"
    r = subprocess.run(command(out), capture_output=True, text=True, env=dict(os.environ, OPENBLAS_CORETYPE=other))
    if r.returncode == 0:
        skip("OpenBLAS does not change its kernels when asked to")
    else:
        good = r.returncode == 2 and here and here[0] in r.stderr and other in r.stderr and "--fresh" in r.stderr
        check(good, f"another machine's blocks: exit {r.returncode}: {r.stderr}")
    code, err = finish(start(out))
    check(code == 0 and digest(out) == whole, f"where it began: exit {code}: {err}")


def vocabulary(folder):
    demo = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "calib_data", "demo")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(demo, name), folder)


def undisturbed(out):
    """A run that nobody disturbs: what it wrote, its report, its seconds on one thread; None where it fails."""
    code, err = finish(start(out))
    check(code == 0, f"an undisturbed run: exit {code}: {err}")
    began = time.monotonic()
    code, err = finish(start(out, "--force", "--threads", "1"))
    seconds = time.monotonic() - began
    return (digest(out), report(out)[0], seconds) if code == 0 else None


def calibrated(folder, config, more, kills):
    """The same of a method that calibrates: its sums and the rows of the text are made anew from what stands in the journal."""
    ran = undisturbed(os.path.join(folder, "whole.lq"))
    if ran:
        whole, clean, seconds = ran
        print(f"{' '.join(words)}: {seconds:.2f} s a run")
        kill_often(os.path.join(folder, "killed.lq"), whole, seconds, kills, (SCARCE, PLENTY))
        interrupt(os.path.join(folder, "stopped.lq"), whole, clean, seconds)
        disk_full(whole)
        elsewhere(os.path.join(folder, "moved.lq"), whole, seconds)


random.seed(11)
words = ["--type", "int4 g32 asym"]
for config, kills in ((CONFIG, KILLS), (MIXTURE, KILLS // 2)):
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        write_model(model, config)
        out = os.path.join(folder, "whole.lq")
        ran = undisturbed(out)
        if ran:
            whole, clean, seconds = ran
            if config is MIXTURE:
                check_stacks(out)
                apart, model = model, os.path.join(folder, "stacked")
                stack_model(apart, model, config)
                code, err = finish(start(os.path.join(folder, "stacked.lq")))
                check(code == 0 and digest(os.path.join(folder, "stacked.lq")) == whole, f"of stacks: exit {code}: {err}")
                model = apart
            kill_often(os.path.join(folder, "killed.lq"), whole, seconds, kills)
            interrupt(os.path.join(folder, "stopped.lq"), whole, clean, seconds)

SMALL = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 5}
GPTQ = ["-m", "gptq", "--bits", "4", "--group", "32", "--samples", "24"]
SCARCE, PLENTY = ["--max-ram", "30M"], ["--max-ram", "1G"]
DIM, FFN, VOCAB = 128, 256, 1024
for config, more in ((CONFIG, ["--layout", "any"]), (CONFIG, ["--layout", "x86"]), (MIXTURE, ["--layout", "x86", "--salient", "0.02"])):
    with tempfile.TemporaryDirectory() as folder:
        model, words = os.path.join(folder, "model"), GPTQ + more
        config = dict(config, **SMALL, vocab_size=VOCAB)
        write_model(model, config)
        vocabulary(model)
        calibrated(folder, config, more, KILLS // 3 if float(os.environ.get("LQ_SLOW", "1")) < 3 else 2)  # sanitizers make each run many times longer
# Pruned before: killed while it is, the run begins anew; later, it goes on with what is left.
with tempfile.TemporaryDirectory() as folder:
    model, words = os.path.join(folder, "model"), [*GPTQ, "--samples", "8", "--prune", "depth:2"]
    write_model(model, dict(CONFIG, **SMALL, vocab_size=VOCAB))
    vocabulary(model)
    ran = undisturbed(os.path.join(folder, "whole.lq"))
    if ran:
        out = os.path.join(folder, "killed.lq")
        kill_often(out, ran[0], ran[2], KILLS // 5)
        check(not os.path.exists(out + ".pruned.lq"), f"{out}.pruned.lq is left behind")
        forget(out)
        finish(start(out))
        check(report(out)[0] == ran[1], "the report of a pruned run differs from that of an undisturbed one")
sys.exit(end())
