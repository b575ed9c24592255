#!/usr/bin/python3
# check_rtn.py LQ: codes, scales and zero points of what `lq quantize --method rtn` writes against rtn_reference.py, bit for bit, on
# seeded checkpoints with what rounding can trip over: groups of zeros, constants, one sign only, halves between two codes, tiny
# and huge values, rows that end inside a group. Also the report's figures against f64, and what must be refused.
import collections
import hashlib
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, ".."))
import rtn_reference as rtn
import st
from counted import check, end

lq = os.path.abspath(sys.argv[1])
DIM, FFN, HEADS, KV, VOCAB, LAYERS = 72, 208, 4, 2, 101, 2
CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": DIM, "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
          "num_key_value_heads": KV, "vocab_size": VOCAB, "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 1}


def run(*words):
    return subprocess.run([lq, "quantize", *map(str, words)], capture_output=True, text=True)


def odd_values(rng, name, w):
    """What makes rounding hard, one kind to a matrix of the last layer."""
    if ".1." not in name:
        return w
    if "q_proj" in name:
        w[:, 16:48] = 0
        w[3] = 0
    elif "k_proj" in name:
        w[:] = rng.integers(-16, 16, w.shape) / 2  # halves: ties
        w[:, 0] = -8
    elif "v_proj" in name:
        w[:] = np.where(rng.random(w.shape) < 0.5, 0.25, -0.25)  # largest on both sides
    elif "o_proj" in name:
        w *= np.float32(1e-6)  # scales below float16's normal range
    elif "gate" in name:
        w[:] = np.abs(w)
        w[::2] *= -1
    elif "up" in name:
        w *= np.float32(10.0) ** rng.integers(-30, 30, (w.shape[0], 1)).astype(np.float32)
        w[0, :3] = [1.7e38, -1.7e38, 1e-40]
        w[1] = 1e-40
        w[2] = 0
        w[2, 5] = 1.4e-45
    elif "down" in name:
        w[:] = 0.125
    return w


def tensors(seed, tied):
    rng = np.random.default_rng(seed)
    kv = DIM // HEADS * KV
    shapes = {"model.embed_tokens.weight": (VOCAB, DIM), "model.norm.weight": (DIM,)}
    if not tied:
        shapes["lm_head.weight"] = (VOCAB, DIM)
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        for n, s in (("input_layernorm", (DIM,)), ("post_attention_layernorm", (DIM,)), ("self_attn.q_proj", (DIM, DIM)), ("self_attn.k_proj", (kv, DIM)),
                     ("self_attn.v_proj", (kv, DIM)), ("self_attn.o_proj", (DIM, DIM)), ("mlp.gate_proj", (FFN, DIM)), ("mlp.up_proj", (FFN, DIM)), ("mlp.down_proj", (DIM, FFN))):
            shapes[p + n + ".weight"] = s
    return {n: odd_values(rng, n, (rng.standard_normal(s) * 0.05).astype(np.float32)) for n, s in shapes.items()}


def write_model(folder, dtype, tied, more=None):
    os.makedirs(folder, exist_ok=True)
    t = tensors(7, tied)
    if dtype == "F16":
        for n in t:
            t[n] = np.clip(t[n], -60000, 60000)
    t.update(more or {})
    json.dump(dict(CONFIG, tie_word_embeddings=tied), open(os.path.join(folder, "config.json"), "w"))
    st.write(os.path.join(folder, "model.safetensors"), t, dtype)
    return st.read(os.path.join(folder, "model.safetensors"))[0]


def check_matrix(what, name, w, out, row, t):
    bits, group, asym, second = t.bits, t.group, t.asym, None
    if t.elem:
        codes, scale, by, back, second = rtn.quantize_fp8(w, t.elem, group, t.rows, t.scale)
    elif t.table is None:
        codes, scale, zeros = rtn.quantize(w, bits, group, asym, kind=t.scale)
        by, back = scale, rtn.dequantize(codes, scale, zeros, group)
        if t.scale == "dq256":
            scale, *second = rtn.coded_scales(rtn.group_scales(w, bits, group, asym)[0])[:4]
            second = dict(zip(("scale_map", "scale2", "scale_offset"), (*second[:2], second[2].reshape(1))))
    else:
        codes, scale, by, second = rtn.quantize_table(w, t.table, group, t.scale)
        back = rtn.dequantize_table(codes, by, t.table, group)
    if name + ".q" not in out or name + ".scale" not in out:
        check(False, f"{what} {name}: is not in the file")
        return
    raw = out[name + ".q"].reshape(w.shape[0], -1)
    got, clean = (raw, raw.dtype == np.uint8) if t.elem else rtn.unpack(raw, bits, w.shape[1])
    check(clean and (got == codes).all(), f"{what} {name}: {np.count_nonzero(got != codes)} codes of {codes.size} differ, padding clean: {clean}")
    mine = out[name + ".scale"].reshape(scale.shape)
    check(mine.dtype == scale.dtype and mine.tobytes() == scale.tobytes(), f"{what} {name}: scales {mine.dtype}, expected {scale.dtype}; {np.count_nonzero(mine != scale)} differ")
    check((second is not None) == (name + ".scale2" in out), f"{what} {name}: second scale there: {name + '.scale2' in out}")
    if isinstance(second, dict):
        for part, want in second.items():
            mine = out.get(f"{name}.{part}", np.zeros(0, np.uint8))
            check(mine.dtype == np.float32 and mine.tobytes() == want.tobytes(), f"{what} {name}: {part} {mine.ravel()[:3]}, expected {want[:3]}")
    elif second is not None:
        mine = out[name + ".scale2"]
        check(mine.dtype == np.float32 and mine.shape == (1,) and mine[0] == second, f"{what} {name}: second scale {mine}, expected {second}")
    if asym:
        got, clean = rtn.unpack(out[name + ".zero"].reshape(w.shape[0], -1), bits, zeros.shape[1])
        check(clean and (got == zeros).all(), f"{what} {name}: zero points differ")
    check(asym == (name + ".zero" in out), f"{what} {name}: zero points there: {name + '.zero' in out}")
    fell_back = t.scale == "f16" and scale.dtype == np.float32
    check(("f32" in row["type"]) == (t.scale == "f32" or fell_back) and ("f32" in row["note"]) == fell_back, f"{what} {name}: report says {row['type']}, {row['note']}")
    # Figures are summed in f32 over eight lanes, from quotients with an error of half an ulp of at most 2^bits.
    wide = w.astype(np.float64)
    wrong = back.astype(np.float64) - wide
    norm, loss = np.sqrt((wide**2).sum()), np.sqrt((wrong**2).sum())
    slack = np.finfo(np.float32).eps * (w.shape[1] / 8 + 2.0**bits + 4)
    check(abs(row["rel_error"] * norm - loss) <= slack * (loss + norm * 2.0**-bits) + 1e-44, f"{what} {name}: rel_error {row['rel_error']}, expected {loss / norm if norm else 0}")
    top = np.abs(wrong).max()
    check(abs(row["max_error"] - top) <= slack * 2.0**bits * np.abs(by.astype(np.float64)).max() + 1e-44, f"{what} {name}: max_error {row['max_error']}, expected {top}")


def check_model(folder, model, src, dtype, tied, t):
    out = os.path.join(folder, "out.lq")
    what = f"{dtype} {'tied' if tied else 'untied'} {' '.join(t.words)}"
    r = run(model, out, *t.words, "--force", "--threads", 2)
    check(r.returncode == 0, f"{what}: {r.stderr.strip()[-300:]}")
    if r.returncode:
        return
    got, meta = st.read(out, codes=True)
    report = json.load(open(out + ".report.json"))
    rows = {m["name"]: m for m in report["modules"]}
    for name, w in src.items():
        if w.ndim == 1:
            check(name in got and got[name].tobytes() == w.tobytes(), f"{what} {name}: not as it was")
            continue
        whole = name in ("model.embed_tokens.weight", "lm_head.weight")
        check_matrix(what, name, w.astype(np.float32), got, rows[name], INT8 if whole else t)
    check(len(rows) == sum(w.ndim == 2 for w in src.values()) and ("lm_head.weight.q" in got) == (not tied), f"{what}: {len(rows)} modules")
    check(json.loads(meta["lq.recipe"])["method"] == "rtn" and meta["lq.arch"] == "LlamaForCausalLM" and meta["lq.layout"] == "any", f"{what}: metadata")
    check(got["lq.file/config.json"].tobytes() == open(os.path.join(model, "config.json"), "rb").read(), f"{what}: config.json is not carried over")


Type = collections.namedtuple("Type", "words bits group asym table elem rows scale", defaults=(False, None, None, 1, "f16"))
INT8 = Type([], 8, 0)  # of the embedding and the head
TYPES = [Type(*row) for row in [(["--type", "int4 g128"], 4, 128, False), (["--type", "int4 g32"], 4, 32, False), (["--bits", "4", "--group", "32", "--asym"], 4, 32, True), (["--asym"], 4, 128, True),
         (["--bits", "8"], 8, 0, False), (["--type", "int8 g32 asym"], 8, 32, True), (["--type", "int3 g64"], 3, 64, False), (["--type", "int2 g16 asym"], 2, 16, True),
         (["--type", "int5 row asym"], 5, 0, True)]]
TYPES += [Type(["--type", name + words], 4, group, table=table) for name, table in rtn.TABLES.items() for words, group in (("", 64), (" g16", 16), (" row", 0))]
TYPES += [Type(["--type", f"{elem} {words} {scale}"], 8, group, elem=elem, rows=rows, scale=scale)
          for elem, words, group, rows, scale in (("e4m3", "row", 0, 1, "f32"), ("e4m3", "row", 0, 1, "f16"), ("e4m3", "g32", 32, 1, "bf16"), ("e4m3", "g128 r128", 128, 128, "f32"),
                                                  ("e4m3", "g16 r16", 16, 16, "f16"), ("e4m3", "tensor", 0, 0, "f32"), ("e5m2", "row", 0, 1, "f32"), ("e5m2", "g64 r32", 64, 32, "bf16"),
                                                  ("e5m2", "tensor", 0, 0, "f16"))]
TYPES += [Type(["--type", "mxfp4"], 4, 32, table=rtn.TABLES["fp4"], scale="e8m0"), Type(["--type", "nvfp4"], 4, 16, table=rtn.TABLES["fp4"], scale="e4m3"),
          Type(["--type", "nf4 g64 e8m0"], 4, 64, table=rtn.TABLES["nf4"], scale="e8m0"), Type(["--type", "e4m3 g32 e8m0"], 8, 32, elem="e4m3", scale="e8m0"),
          Type(["--type", "nf4 dq256"], 4, 64, table=rtn.TABLES["nf4"], scale="dq256"), Type(["--type", "fp4 g16 dq256"], 4, 16, table=rtn.TABLES["fp4"], scale="dq256"),
          Type(["--type", "int4 g16 dq256"], 4, 16, scale="dq256"), Type(["--type", "int3 g32 asym dq256"], 3, 32, True, scale="dq256"),
          Type(["--type", "e5m2 g32 e8m0"], 8, 32, elem="e5m2", scale="e8m0"), Type(["--type", "e4m3 g16 e4m3"], 8, 16, elem="e4m3", scale="e4m3")]

# What quantize_matmul_bnb4 of onnxruntime 1.31.1 (type 1, blocks of 64) makes of two blocks: the codes, a digit each.
BNB_W = ((np.arange(128) * 37 % 128 - 50) * (np.arange(128) % 5 + 1)).astype(np.float32).reshape(2, 64) / 64
BNB_NF4 = "56ae37a36b958d179d49957bf68c378c5ae67bf58b48d56ae37a36c958d179d49957bf68c378c5ae67be58b48d66ae37a36c958d279d4a957bf68c378c6ae67b"


# What torch 2.15.0 makes of every f32 within the type's range whose last 12 bits are 0: SHA-256 of the codes in the order of those bits.
TORCH_FP8 = {"e4m3": (448, "907696c1f6cd71929b55313a2cb57db61d958e84674e7cd89032f6f47a923e81"),
             "e5m2": (57344, "9a8437bf551391cb52897add05ff5d2d87d93ef77743d4c1cbcbd1f18d70e19c")}


def check_reference():
    x = (np.arange(2**20, dtype=np.uint32) << 12).view(np.float32)
    for elem, (most, digest_of) in TORCH_FP8.items():
        codes = rtn.fp8_codes(x[np.abs(x) <= most], elem)
        check(hashlib.sha256(codes.tobytes()).hexdigest() == digest_of, f"{elem}: the reference rounds otherwise than torch")
        odd = rtn.fp8_codes(np.float32([np.inf, -np.inf, most * 1.1, -0.0, 2.0**-30]), elem).tolist()
        top = len(rtn.fp8_numbers(elem)) - 1
        check(odd == [top, top | 128, top, 128, 0], f"{elem}: saturation and zeros of the reference: {odd}")
    codes, scale, _, _ = rtn.quantize_table(BNB_W, rtn.TABLES["nf4"], 64)
    got = "".join(f"{c:x}" for c in codes.ravel())
    check(got == BNB_NF4 and (scale.ravel() == np.abs(BNB_W).max(1)).all(), f"nf4 of the reference is {got}, of onnxruntime {BNB_NF4}")


def digest(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def check_same(folder, model):
    """The same bytes for any number of threads, and from shards."""
    digests = set()
    for threads in (1, 2, 7):
        out = os.path.join(folder, f"t{threads}.lq")
        r = run(model, out, "--type", "int4 g32 asym", "--threads", threads)
        check(r.returncode == 0, f"{threads} threads: {r.stderr.strip()[-300:]}")
        digests.add(digest(out) if r.returncode == 0 else None)
    check(len(digests) == 1, "the output depends on the number of threads")
    names, t = {}, tensors(7, False)
    shards = os.path.join(folder, "shards")
    os.makedirs(shards)
    for i in range(3):
        file = f"model-{i + 1:05d}-of-00003.safetensors"
        part = {n: t[n] for j, n in enumerate(sorted(t)) if j % 3 == i}
        names.update({n: file for n in part})
        st.write(os.path.join(shards, file), part, "F32")
    json.dump({"metadata": {}, "weight_map": names}, open(os.path.join(shards, "model.safetensors.index.json"), "w"))
    json.dump(dict(CONFIG, tie_word_embeddings=False), open(os.path.join(shards, "config.json"), "w"))
    out = os.path.join(folder, "shards.lq")
    r = run(shards, out, "--type", "int4 g32 asym", "--threads", 2)
    check(r.returncode == 0, f"shards: {r.stderr.strip()[-300:]}")
    a, b = st.read(out)[0] if r.returncode == 0 else {}, st.read(os.path.join(folder, "t2.lq"))[0]
    check(set(a) == set(b) and all((a[n].tobytes() == b[n].tobytes()) for n in a if not n.startswith("lq.pad/") and n in b), "shards give other tensors than one file")


def refuses(words, code, *texts):
    r = run(*words)
    line = r.stderr.strip().splitlines()
    good = r.returncode == code and line and all(any(t in x for x in line) for t in texts)
    check(good, f"{words}: exit {r.returncode}, expected {code} and {texts}: {r.stderr.strip()[-300:]}")
    check(words[1] == KEPT or not (os.path.exists(words[1]) or os.path.exists(words[1] + ".partial")), f"{words}: left {words[1]}")


def check_refusals(folder):
    global KEPT
    at = lambda name: os.path.join(folder, name)
    out = at("refused.lq")
    model = at("plain")
    write_model(model, "BF16", False)
    KEPT = at("kept.lq")
    check(run(model, KEPT).returncode == 0, "a model that the others are measured by")
    before = digest(KEPT)
    refuses([model, KEPT], 2, "is there already", "--force")
    check(digest(KEPT) == before, "a refused run changed the output")
    for value, word in ((np.nan, "NaN"), (np.inf, "infinite"), (-np.inf, "infinite"), (3e38, "more than int4 g128 sym f16 can hold")):
        w = (np.arange(FFN * DIM).reshape(FFN, DIM) % 17).astype(np.float32)
        w[77, 33] = value
        write_model(at("bad"), "F32", False, {"model.layers.1.mlp.up_proj.weight": w})
        refuses([at("bad"), out], 1, "model.layers.1.mlp.up_proj.weight", "row 77, column 33", word)
    write_model(at("huge"), "F32", False, {"model.embed_tokens.weight": np.full((VOCAB, DIM), 1e6, np.float32)})
    refuses([at("huge"), out, "--embed", "f16"], 1, "row 0, column 0", "more than f16 can hold")
    write_model(at("more"), "BF16", False, {"model.layers.0.adapter.weight": np.ones((3, 5), np.float32)})
    refuses([at("more"), out], 1, "model.layers.0.adapter.weight", "--keep-unknown")
    r = run(at("more"), at("more.lq"), "--keep-unknown")
    got = st.read(at("more.lq"))[0] if r.returncode == 0 else {}
    check("model.layers.0.adapter.weight" in got and (got["model.layers.0.adapter.weight"] == 1).all(), "--keep-unknown carries a tensor over")
    twice = np.arange(VOCAB * DIM, dtype=np.float32).reshape(VOCAB, DIM) % 19
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(9, np.float32), "model.embed_tokens.weight": twice}
    write_model(at("rotary"), "BF16", True, {**extra, "lm_head.weight": twice})
    r = run(at("rotary"), at("rotary.lq"))
    dropped = json.load(open(at("rotary.lq.report.json")))["dropped"] if r.returncode == 0 else None
    check(dropped == ["lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"], f"dropped: {dropped}")
    write_model(at("head"), "BF16", True, {**extra, "lm_head.weight": twice + 1})
    r = run(at("head"), at("head.lq"), "--head", "keep")
    got = st.read(at("head.lq"))[0] if r.returncode == 0 else {}
    check((got.get("lm_head.weight") == twice + 1).all(), "a head that is not the embedding is one, whatever the config says")
    t = tensors(7, False)
    del t["model.layers.1.mlp.up_proj.weight"]
    st.write(os.path.join(at("rotary"), "model.safetensors"), t)
    refuses([at("rotary"), out], 1, "model.layers.1.mlp.up_proj.weight", "missing")
    write_model(at("shape"), "BF16", False, {"model.layers.1.mlp.up_proj.weight": np.ones((DIM, FFN), np.float32)})
    refuses([at("shape"), out], 1, "[72, 208]", "[208, 72]")
    refuses([model, out, "--type", "int9"], 2, "type")
    refuses([model, out, "--type", "int4 g32", "--bits", "8"], 2, "--bits")
    refuses([model, out, "--max-ram", "1M"], 1, "memory")
    refuses([model, os.path.join(folder, "no", "such", "out.lq")], 1, "no/such")
    r = run(model, out, "--dry-run")
    check(r.returncode == 0 and "about" in r.stderr and not os.path.exists(out) and not os.path.exists(out + ".partial"), "--dry-run does nothing but tell")
    safetensors = os.path.join(model, "model.safetensors")
    before = digest(safetensors)
    r = run(at("more"), safetensors, "--force", "--keep-unknown")
    check(r.returncode == 2 and "not replaced" in r.stderr and digest(safetensors) == before, "--force replaces a checkpoint that lq did not write")
    r = run(model, at("keep.lq"), "--embed", "keep", "--head", "keep")
    got, want = (st.read(at("keep.lq"))[0], st.read(safetensors)[0]) if r.returncode == 0 else ({}, {})
    check(got and all(got[n].tobytes() == want[n].tobytes() for n in ("model.embed_tokens.weight", "lm_head.weight")), "--embed keep, --head keep")


with tempfile.TemporaryDirectory() as folder:
    check_reference()
    for dtype, tied in (("F32", False), ("BF16", True), ("F16", False)):
        model = os.path.join(folder, f"{dtype}-{tied}")
        src = write_model(model, dtype, tied)
        for t in TYPES:
            check_model(folder, model, src, dtype, tied, t)
    check_same(folder, os.path.join(folder, "F32-False"))
    check_refusals(folder)
sys.exit(end())
