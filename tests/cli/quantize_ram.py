#!/usr/bin/python3
"""quantize_ram.py LQ: lq quantize --max-ram is held to. Models three and four times as large as the limit are rounded, with and without calibration, and
what the process has of its own (anonymous and shared memory, looked at every 10 ms) stays below it, and below what the plan said; a limit changes
no byte; with too little one line says what is needed. Of what it has written, and reads again as it goes on, little is mapped in at any time. In a
cgroup of that limit, pages of files counted, it gets through as well."""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(root, "tests"))
sys.path.insert(0, os.path.join(root, "tests", "golden"))
import st  # noqa: E402
from counted import check, end, skip  # noqa: E402

lq = os.path.abspath(sys.argv[1])
if json.loads(subprocess.run([lq, "version", "--json"], capture_output=True).stdout)["sanitizers"]:
    skip("memory is not measured under a sanitizer")
    sys.exit(end())
BASE = {"num_key_value_heads": 4, "num_attention_heads": 8, "vocab_size": 1024, "rms_norm_eps": 1e-5, "max_position_embeddings": 64,
        "tie_word_embeddings": True}
DENSE = BASE | {"architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 28}
MIXTURE = BASE | {"architectures": ["MixtralForCausalLM"], "hidden_size": 512, "intermediate_size": 704, "num_hidden_layers": 9,
                  "num_local_experts": 8, "num_experts_per_tok": 2}


def write_model(folder, config):
    rng, tensors = np.random.default_rng(7), {}
    dim, ffn, experts = config["hidden_size"], config["intermediate_size"], config.get("num_local_experts", 0)
    shapes = {"model.embed_tokens": (config["vocab_size"], dim), "model.norm": (dim,)}
    for i in range(config["num_hidden_layers"]):
        layer = {"input_layernorm": (dim,), "post_attention_layernorm": (dim,), "self_attn.q_proj": (dim, dim), "self_attn.o_proj": (dim, dim),
                 "self_attn.k_proj": (dim // 2, dim), "self_attn.v_proj": (dim // 2, dim)}
        if experts:
            layer["block_sparse_moe.gate"] = (experts, dim)
        for e in range(experts):
            layer.update({f"block_sparse_moe.experts.{e}.{w}": s for w, s in (("w1", (ffn, dim)), ("w2", (dim, ffn)), ("w3", (ffn, dim)))})
        if not experts:
            layer.update({"mlp.gate_proj": (ffn, dim), "mlp.up_proj": (ffn, dim), "mlp.down_proj": (dim, ffn)})
        shapes.update({f"model.layers.{i}.{n}": s for n, s in layer.items()})
    for name, shape in shapes.items():
        tensors[name + ".weight"] = rng.standard_normal(shape, np.float32) * np.float32(0.03)
    os.makedirs(folder)
    st.write(os.path.join(folder, "model.safetensors"), tensors, "BF16")
    json.dump(config, open(os.path.join(folder, "config.json"), "w"))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(root, "calib_data", "demo", name), folder)
    return os.path.getsize(os.path.join(folder, "model.safetensors"))


def own_bytes(pid):
    try:
        text = open(f"/proc/{pid}/status").read()
    except OSError:
        return 0
    return sum(int(kb) * 1024 for kb in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+)", text, re.M))


def written_bytes(pid):
    """Pages of the unfinished output that are mapped in."""
    try:
        text = open(f"/proc/{pid}/smaps").read()
    except OSError:
        return 0
    return sum(int(kb) * 1024 for kb in re.findall(r"\.partial/data\n.*\n.*\n.*\nRss:\s+(\d+)", text))


def run(model, out, args, limit):
    """Exit status, what it said, and the most memory of its own, and mapped of what it wrote, that was seen."""
    words = [lq, "quantize", model, out, "--force", "--quiet", "--threads", "2", *args] + (["--max-ram", str(limit)] if limit else [])
    p = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    peak = written = looks = 0
    while p.poll() is None:
        peak, looks = max(peak, own_bytes(p.pid)), looks + 1
        if looks % 10 == 0:  # the kernel walks all pages for it
            written = max(written, written_bytes(p.pid))
        time.sleep(0.01)
    return p.returncode, p.stderr.read(), peak, written


def digest(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def held(model, out, name, args, limit):
    code, err, peak, written = run(model, out, args, limit)
    if not check(code == 0, f"{name} in {limit} bytes: exit {code}: {err}"):
        return
    told = json.load(open(out + ".report.json"))["run"]
    check(0 < peak <= limit, f"{name}: {peak} bytes of its own, the limit is {limit}")
    check(peak <= told["plan_bytes"] <= limit, f"{name}: {peak} bytes of its own, the plan said {told['plan_bytes']} of {limit}")
    # A file of less than 64 MB is mapped in whole while it is checked (formats/ckpt.c).
    check(written <= max(os.path.getsize(out) // 4, 64 << 20), f"{name}: {written} bytes of what it wrote are mapped in, of {os.path.getsize(out)}")
    print(f"{name}: {peak / 1e6:.1f} MB of its own, the plan said {told['plan_bytes'] / 1e6:.1f}, the limit is {limit / 1e6:.1f}; {written / 1e6:.1f} of "
          f"{os.path.getsize(out) / 1e6:.1f} MB written are mapped in")


def in_cgroup(model, out, args, limit):
    top, name = next(((t, n) for t, n in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"))
                      if os.path.exists(os.path.join(t, "cgroup.procs"))), (None, None))
    group = f"{top}/lq-test-{os.getpid()}"
    try:
        os.mkdir(group)
        open(f"{group}/{name}", "r+").write(str(limit))
    except OSError as e:
        if os.path.isdir(group):
            os.rmdir(group)
        skip(f"a cgroup cannot be made: {e.strerror}")
        return
    script = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    r = subprocess.run(["sh", "-c", script, "sh", lq, "quantize", model, out, "--force", "--quiet", *args, "--max-ram", str(limit)],
                       capture_output=True, text=True)
    check(r.returncode == 0, f"in a cgroup of {limit} bytes: exit {r.returncode}: {r.stderr}")
    os.rmdir(group)


# Most layers stay as they are, which saves time and changes nothing of what is held at once.
FEW = {"modules": [{"match": "model.layers.[2-9].*", "type": "keep"}, {"match": "model.layers.[12]?.*", "type": "keep"}]}
TEXT = ["--samples", "4", "--recipe", json.dumps(FEW)]
with tempfile.TemporaryDirectory() as folder:
    dense, mixture, out = (os.path.join(folder, n) for n in ("dense", "mixture", "out.lq"))
    size = write_model(dense, DENSE)
    third, quarter = size // 3, size // 4
    code, err, _, _ = run(dense, out, ["-m", "gptq", *TEXT], 16 << 20)
    check(code == 1 and re.search(r"needs [0-9.]+ MB, more than the 16.8 MB", err) and not os.path.exists(out + ".partial"), f"16 MB: {err}")
    held(dense, out, "rtn", ["-m", "rtn"], quarter)
    held(dense, out, "awq", ["-m", "awq", "--samples", "2", "--recipe", json.dumps({"transform": "awq", **FEW})], third)
    held(dense, out, "smoothquant", ["-m", "smoothquant", "--samples", "4", "--recipe", json.dumps({"alpha": 0.5, **FEW})], third)
    held(dense, out, "gptq", ["-m", "gptq", *TEXT], quarter)
    limited = digest(out)
    code, err, _, _ = run(dense, out, ["-m", "gptq", *TEXT], 0)
    check(code == 0 and digest(out) == limited, f"a limit changes the bytes: {err}")
    in_cgroup(dense, out, ["-m", "gptq", *TEXT], quarter)
    few = json.dumps({"modules": [{"match": "model.layers.[1-8].*", "type": "keep"}]})
    held(mixture, out, "gptq of a mixture", ["-m", "gptq", "--samples", "4", "--recipe", few], write_model(mixture, MIXTURE) // 4)
sys.exit(end())
