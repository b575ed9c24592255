#!/usr/bin/python3
# check_packed.py LQ: checkpoints whose matrices GPTQ, AWQ, compressed-tensors or bitsandbytes packed (packed.py): alone, fused,
# experts, and of a model whose plain ones are stored across. The logits of what they mean, in f64, are what lq's must be, within what
# f32 arithmetic explains; a .lq file that carries the codes over has the same numbers bit for bit and gives the same logits to the
# bit. The libraries that define the formats, where they are there, must read what packed.py writes as it means it.
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, ".."))
import decoder_np
import make_models
import packed
import st
from counted import check, end, skip

lq = os.path.abspath(sys.argv[1])
dump = os.path.join(os.path.dirname(lq), "dump_logits")
GPTQ, AWQ, CT, BNB = {"quant_method": "gptq"}, {"quant_method": "awq", "version": "gemm"}, {"quant_method": "compressed-tensors"}, {"quant_method": "bitsandbytes"}

# Which model, what packs its matrices, how, what the config says.
FORMS = [
    ("gqa", packed.gptq, {}, {**GPTQ, "bits": 4, "group_size": 32, "sym": False}),
    ("gqa", packed.gptq, {"group": 16, "order": True}, {**GPTQ, "bits": 4, "group_size": 16, "desc_act": True}),
    ("gqa", packed.gptq, {"bits": 8, "group": 0, "asym": False}, {**GPTQ, "bits": 8, "group_size": -1, "sym": True}),
    ("gqa", packed.gptq, {"bits": 3, "v2": True}, {**GPTQ, "bits": 3, "group_size": 32, "checkpoint_format": "gptq_v2"}),
    ("gqa", packed.gptq, {"bits": 3, "order": True}, None),
    ("gqa", packed.gptq, {"bits": 2, "group": 16, "asym": False}, GPTQ),
    ("mha", packed.gptq, {"group": 64, "order": True}, {**GPTQ, "group_size": 64, "sym": False}),
    ("mha", packed.gptq, {"asym": False, "v2": True, "idx": False}, {"quant_method": "auto-round", "packing_format": "auto_round", "group_size": 32}),
    ("phi3_window", packed.gptq, {"group": 16, "order": True}, {**GPTQ, "group_size": 16}),
    ("mixtral", packed.gptq, {"group": 16, "order": True}, {**GPTQ, "group_size": 16}),
    ("mixtral", packed.gptq, {"asym": False}, {**GPTQ, "group_size": 32, "sym": True}),
    ("deepseek_v2", packed.gptq, {"group": 16, "order": True}, {**GPTQ, "group_size": 16}),
    ("deepseek_v2", packed.awq, {"group": 16}, {**AWQ, "group_size": 16}), ("deepseek_v2", packed.packed, {"group": 16}, CT),
    ("gpt2_plain", packed.gptq, {"group": 16, "order": True, "dtype": "BF16"}, GPTQ),
    ("gqa", packed.awq, {}, {**AWQ, "bits": 4, "group_size": 32, "zero_point": True}),
    ("phi3_window", packed.awq, {"group": 16}, {**AWQ, "group_size": 16}),
    ("neox", packed.awq, {"asym": False}, AWQ),
    ("mixtral", packed.awq, {"group": 0}, AWQ),
    ("gqa", packed.awq, {"wide": True}, {**AWQ, "version": "GEMV", "group_size": 32}),
    ("gqa", packed.packed, {}, CT),
    ("gqa", packed.packed, {"group": 16, "order": True, "asym": True, "dtype": "F16"}, CT),
    ("gqa", packed.packed, {"bits": 3, "asym": True, "dtype": "F32"}, CT),
    ("gqa", packed.packed, {"bits": 8, "group": 0}, CT),
    ("phi3_window", packed.packed, {"bits": 5, "group": 16}, CT),
    ("gqa", packed.packed, {"group": 0, "one": True}, CT),
    ("mixtral", packed.packed, {"group": 0, "asym": True}, CT),
    ("deepseek_v2", packed.packed, {"group": 16, "asym": True}, CT),
    ("gqa", packed.nvfp4, {}, CT),
    ("phi3_window", packed.nvfp4, {}, CT),
    ("gqa", packed.mxfp4, {}, CT),
    ("gqa", packed.bnb4, {}, BNB),
    ("phi3_window", packed.bnb4, {"block": 16, "nested": True}, BNB),
    ("gqa", packed.bnb4, {"kind": "fp4", "nested": True}, BNB),
    ("gqa", packed.bnb8, {}, BNB),
    ("neox", packed.bnb8, {}, BNB),
]


def run(*words):
    return subprocess.run(words, capture_output=True, text=True)


def is_packed(full, a):
    return re.search(r"(^|\.)(layers|h)\.\d", full) and a.ndim == 2 and not full.endswith(("gate.weight", "norm.weight"))


def make(path, pack, how, says):
    """The model in this form; its config, and its weights as they are now meant."""
    cfg, w, ids = make_models.load(path)
    rng, to, meant, out = np.random.default_rng(len(how)), path + ".packed", {}, {}
    across = cfg["model_type"] == "gpt2"
    os.makedirs(to, exist_ok=True)
    for full, a in w.items():
        meant[full], out[full] = a, ("F32", a.astype(np.float32))
        if not is_packed(full, a):
            continue
        del out[full]
        parts, value = pack(rng, a.T if across else a, **how)
        meant[full] = (value.T if across else value).astype(np.float64)
        out.update({full[: -len(".weight")] + tail: part for tail, part in parts.items()})
    st.put(os.path.join(to, "model.safetensors"), out)
    config = json.load(open(os.path.join(path, "config.json")))
    if says:
        config["quantization_config"] = says
    json.dump(config, open(os.path.join(to, "config.json"), "w"))
    for side in ("tokenizer.json", "ids.bin"):
        open(os.path.join(to, side), "wb").write(open(os.path.join(path, side), "rb").read())
    return to, cfg, meant, ids


def codes(rows, bits, count):
    """Codes of dense rows of bytes."""
    flat = np.unpackbits(rows, axis=-1, bitorder="little")[..., : count * bits]
    return (flat.reshape(*rows.shape[:-1], count, bits) << np.arange(bits)).sum(-1)


def lq_matrix(parts, text):
    """What docs/FORMAT.md says a coded weight means."""
    words = text.split()
    kind, group, (n, k) = words[0], words[1], map(int, words[-1].split("x"))
    size = int(group[1:]) if group[0] == "g" else k
    if group == "tensor":
        parts["scale"] = np.broadcast_to(parts["scale"].reshape(1, 1), (n, 1))
    of, bits = np.arange(k) // size, 4 if kind in ("fp4", "nf4") else int(kind[-1])
    s, q = parts["scale"].astype(np.float32), codes(parts["q"], bits, k)
    if "dq256" in words:
        c = parts["scale"].reshape(-1)
        s = (parts["scale_map"][c] * parts["scale2"][np.arange(c.size) // 256] + parts["scale_offset"]).reshape(n, -1)
    elif "scale2" in parts:
        s = s * parts["scale2"]
    if kind.startswith("int"):
        z = codes(parts["zero"], bits, s.shape[1]) if "asym" in words else np.full(s.shape, 1 << (bits - 1))
        w = (q - z[:, of]).astype(np.float32) * s[:, of]
    else:
        w = {"fp4": packed.E2M1, "nf4": packed.NF4}.get(kind, parts.get("table"))[q] * s[:, of]
    out = np.empty_like(w)
    out[:, parts.get("perm", np.arange(k))] = w
    return out


def check_numbers(what, file, w):
    got, meta = st.read(file)
    found = 0
    for name, text in json.loads(meta["lq.types"]).items():
        if name not in w or not is_packed(name, w[name]):
            continue
        parts = {full[len(name) + 1 :]: a for full, a in got.items() if full.startswith(name + ".")}
        found += check(np.array_equal(lq_matrix(parts, text), w[name]), f"{what}: {name} ({text}) means other numbers")
    return found


def check_nested(what, to):
    """Scales that are codes stay the codes that they are."""
    was, (got, meta) = st.raw(os.path.join(to, "model.safetensors")), st.read(to + ".lq")
    for full, (_, c) in was.items():
        name = full[: -len(".absmax")]
        if not full.endswith("weight.absmax") or name + ".q" not in got:
            continue
        check("dq256" in json.loads(meta["lq.types"])[name], f"{what}: {name} has lost the codes of its scales")
        for part, of in (("scale", "absmax"), ("scale2", "nested_absmax"), ("scale_map", "nested_quant_map")):
            check(np.array_equal(got.get(f"{name}.{part}", np.zeros(0)).reshape(-1), was[f"{name}.{of}"][1].reshape(-1)), f"{what}: {name}.{part} differs")


def logits(what, path, isa, tokens, ids):
    out = path + ".bin"
    r = run(dump, path, ids, out, str(tokens), isa, "2", "512", "exact")
    if not check(r.returncode == 0, f"{what} {isa}: {r.stderr.strip()}"):
        return None
    return np.fromfile(out, "<f4").reshape(tokens, -1)


def quantize(what, to, *words):
    r = run(lq, "quantize", to, to + ".lq", "--force", "--quiet", *words)
    return check(r.returncode == 0, f"{what}: quantize {words}: {r.stderr.strip()}")


def check_form(path, name, pack, how, says):
    what, tokens = f"{name} {pack.__name__} {' '.join(f'{k}={v}' for k, v in how.items())}", make_models.tokens(name)
    to, cfg, w, ids = make(path, pack, how, says)
    file, worst, own = os.path.join(to, "ids.bin"), 0, {}
    want, bound = decoder_np.forward(cfg, w, ids, ctx=len(ids)), decoder_np.bound(cfg, w, ids)
    for isa in isas:
        own[isa] = logits(what, to, isa, tokens, file)
        if own[isa] is not None:
            worst = max(worst, (np.abs(own[isa] - want).max(-1) / bound).max())
    check(worst <= 1, f"{what}: off by {worst:.2f} of the bound")
    if quantize(what, to, "--embed", "keep", "--head", "keep"):
        if name in ("gqa", "mha"):
            check(check_numbers(what, to + ".lq", w), f"{what}: no matrix is coded")
        if how.get("nested"):
            check_nested(what, to)
        same = [np.array_equal(logits(what, to + ".lq", isa, tokens, file), own[isa]) for isa in isas]
        check(all(same), f"{what}: the codes that were carried over give other logits")
    if quantize(what, to, "--embed", "keep", "--head", "keep", "--type", "keep", "--layout", "x86"):
        check(np.array_equal(logits(what, to + ".lq", isas[-1], tokens, file), own[isas[-1]]), f"{what}: layout x86 gives other logits")
    if quantize(what, to, "--embed", "keep", "--head", "keep", "--type", "bf16") and name == "gqa":
        got = st.read(to + ".lq")[0]
        for full in (n for n in w if is_packed(n, w[n])):
            check(np.array_equal(got[full], st.bf16_value(st.bf16_bits(w[full]))), f"{what}: {full} in bf16 is not the product")
    quantize(what, to, "--type", "int4 g32")
    r = run(lq, "inspect", to + ".lq", "--verify")
    check(r.returncode == 0, f"{what}: {r.stderr.strip()}")
    print(f"{what:56} {worst:.2f} of the bound")


def ask_compressed(rng, a):
    import torch
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32

    for bits, group in ((4, 32), (3, 32), (8, 64), (5, 16)):
        parts, w = packed.packed(rng, a, bits=bits, group=group, asym=True, dtype="F32")
        t = {tail: torch.from_numpy(np.ascontiguousarray(x)) for tail, (_, x) in parts.items()}
        s = t[".weight_scale"].numpy()
        q = unpack_from_int32(t[".weight_packed"], bits, torch.Size(a.shape)).numpy().astype(np.float32)
        z = unpack_from_int32(t[".weight_zero_point"], bits, torch.Size(s.shape), packed_dim=0).numpy().astype(np.float32)
        check(np.array_equal((q - z.repeat(group, 1)) * s.repeat(group, 1), w), f"compressed-tensors reads {bits} bits otherwise")


def ask_bitsandbytes(rng, a):
    import torch
    import bitsandbytes.functional as bnb

    for kind in ("nf4", "fp4"):
        for nested in (False, True):
            parts, w = packed.bnb4(rng, a, kind=kind, block=64, nested=nested)
            t = {tail[8:]: torch.from_numpy(np.array(x)) for tail, (_, x) in parts.items() if tail != ".weight"}
            state = bnb.QuantState.from_dict({**t}, torch.device("cpu"))
            state.dtype = torch.float32
            got = bnb.dequantize_4bit(torch.from_numpy(np.array(parts[".weight"][1])), state).numpy()
            # fp4 is two thirds and thirds of constants that a kernel writes as it likes; sums of scales may be fused
            check(np.abs(got - w).max() <= 4 * 2.0**-24 * np.abs(w).max(), f"bitsandbytes reads {kind}, nested {nested}, otherwise")


def ask_autoawq(rng, a):
    import torch
    from awq.utils.packing_utils import dequantize_gemm

    parts, w = packed.awq(rng, a, group=32)
    t = [torch.from_numpy(np.ascontiguousarray(parts[name][1])) for name in (".qweight", ".qzeros", ".scales")]
    check(np.array_equal(dequantize_gemm(t[0], t[1], t[2].float(), 4, 32).numpy().T, w), "AutoAWQ reads 4 bits otherwise")


def ask_gptqmodel(rng, a):
    import torch
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear

    for bits, how in ((4, {}), (4, {"order": True}), (3, {}), (2, {}), (8, {"asym": False})):
        parts, w = packed.gptq(rng, a, bits=bits, v2=True, **how)
        n, k = a.shape
        m = TorchLinear(bits=bits, group_size=32, sym=False, desc_act=True, in_features=k, out_features=n, bias=False, register_buffers=True)
        for name in ("qweight", "qzeros", "scales", "g_idx"):
            setattr(m, name, torch.from_numpy(np.ascontiguousarray(parts["." + name][1])))
        m.scales = m.scales.float()
        m.post_init()
        check(np.array_equal(m.dequantize_weight().float().numpy().T, w), f"GPTQModel reads {bits} bits {how} otherwise")


def ask_libraries():
    rng = np.random.default_rng(1)
    a = rng.normal(0, 0.05, (96, 128)).astype(np.float32)
    for ask in (ask_compressed, ask_bitsandbytes, ask_autoawq, ask_gptqmodel):
        try:
            ask(rng, a)
        except ImportError as e:
            skip(f"{ask.__name__[4:]}: {e}")


def damaged(to, what, said, change, config=None):
    """One line that says what is wrong, of run and of quantize."""
    tensors = {name: (kind, a) for name, (kind, a) in st.raw(os.path.join(to, "model.safetensors")).items()}
    bad = to + ".bad"
    os.makedirs(bad, exist_ok=True)
    change(tensors)
    st.put(os.path.join(bad, "model.safetensors"), tensors)
    cfg = json.load(open(os.path.join(to, "config.json")))
    cfg["quantization_config"].update(config or {})
    json.dump(cfg, open(os.path.join(bad, "config.json"), "w"))
    open(os.path.join(bad, "tokenizer.json"), "wb").write(open(os.path.join(to, "tokenizer.json"), "rb").read())
    for words in (("run", bad, "hi", "-n", "1"), ("quantize", bad, bad + ".lq", "--force")):
        r = run(lq, *words, "--quiet")
        check(r.returncode == 1 and said in r.stderr and r.stderr.count("\n") == 1, f"{what}, {words[0]}: {r.returncode} {r.stderr}")


def check_refused(path):
    q = "model.layers.1.mlp.up_proj."

    def put(name, kind, change):
        return lambda t: t.__setitem__(q + name, (kind, change(np.array(t[q + name][1]))))

    def at(i, value):
        def change(a):
            a.reshape(-1)[i] = value
            return a
        return change

    to = make(path, packed.gptq, {"group": 16, "order": True}, {**GPTQ, "group_size": 16})[0]
    damaged(to, "no zero points", "qzeros", lambda t: t.pop(q + "qzeros"))
    damaged(to, "no scales", "scales", lambda t: t.pop(q + "scales"))
    damaged(to, "g_idx past the groups", "g_idx", put("g_idx", "I32", at(5, 4)))
    damaged(to, "g_idx below 0", "g_idx", put("g_idx", "I32", at(5, -7)))
    damaged(to, "a group too full", "g_idx", put("g_idx", "I32", lambda a: np.sort(np.where(a == 1, 0, a)).astype(np.int32)))
    damaged(to, "a short g_idx", "g_idx", put("g_idx", "I32", lambda a: a[:-1]))
    damaged(to, "a NaN among the scales", "row 7, group 2 is not finite", put("scales", "F16", at(2 * 160 + 7, np.nan)))
    damaged(to, "scales of integers", "scales", put("scales", "I16", lambda a: a.view(np.int16)))
    damaged(to, "too few words", "qweight", put("qweight", "I32", lambda a: a[:, :-1]))
    damaged(to, "words of i64", "qweight", put("qweight", "I64", lambda a: a.astype(np.int64)))
    damaged(to, "zero points of another size", "qzeros", put("qzeros", "I32", lambda a: a[:, :-3]))
    damaged(to, "groups of 8", "multiple of 16", lambda t: [t.__setitem__(q + n, (t[q + n][0], t[q + n][1].repeat(2, 0))) for n in ("qzeros", "scales")])
    damaged(to, "a matrix that is there twice", "twice", lambda t: t.__setitem__(q + "weight", ("F32", np.zeros((160, 64), np.float32))))
    damaged(to, "another form", "gptq_p", lambda t: None, {"checkpoint_format": "gptq_p"})
    damaged(to, "AWQ in name", "AWQ", lambda t: None, {"quant_method": "awq"})
    to = make(path, packed.bnb4, {}, BNB)[0]
    state = "weight.quant_state.bitsandbytes__nf4"
    text = lambda **new: lambda a: np.frombuffer(json.dumps({**json.loads(a.tobytes()), **new}).encode(), np.uint8)
    damaged(to, "blocks over two rows", "two rows", put(state, "U8", text(blocksize=128)))
    damaged(to, "a shape that is none", "shape", put(state, "U8", text(shape=[1e300, -1])))
    damaged(to, "another shape", "80", put(state, "U8", text(shape=[80, 128])))
    damaged(to, "a state that is no JSON", state, put(state, "U8", lambda a: a[1:]))
    damaged(to, "no table", "quant_map", lambda t: t.pop(q + "weight.quant_map"))
    damaged(to, "no state", "weight", lambda t: t.pop(q + state))
    to = make(path, packed.packed, {"asym": True}, CT)[0]
    damaged(to, "no shape", "weight_shape", lambda t: t.pop(q + "weight_shape"))
    damaged(to, "another shape", "weight_packed", put("weight_shape", "I64", at(1, 1 << 40)))
    damaged(to, "words as they were padded once", "weight_packed", put("weight_packed", "I32", lambda a: np.pad(a, ((0, 0), (0, 1)))))
    to = make(path, packed.nvfp4, {}, CT)[0]
    damaged(to, "a divisor of 0", "weight_global_scale", put("weight_global_scale", "F32", at(0, 0)))
    damaged(to, "no divisor", "weight_global_scale", lambda t: t.pop(q + "weight_global_scale"))


flags = open("/proc/cpuinfo").read()
isas = ["c"] + (["avx2"] if "avx2" in flags else []) + (["avx512"] if "avx512_vnni" in flags else [])
with tempfile.TemporaryDirectory() as folder:
    make_models.make(folder)
    for row in [r for r in FORMS if len(sys.argv) < 3 or sys.argv[2] in r[0]]:
        check_form(os.path.join(folder, row[0]), *row)
    check_refused(os.path.join(folder, "gqa"))
    ask_libraries()
sys.exit(end())
