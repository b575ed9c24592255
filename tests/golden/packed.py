# packed.py: weights as GPTQ, AWQ, compressed-tensors and bitsandbytes store them, written from what those formats say: codes,
# zero points and scales are drawn, packed, and what they mean is (q - z) * s in f32 whoever reads them.
import json

import numpy as np

import st

TURNS = [0, 2, 4, 6, 1, 3, 5, 7]  # the column that each 4 bits of AWQ's words hold
NF4 = np.array([-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
                -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1], np.float32)
FP4 = np.array([0, 0.0052083333, 0.6666667, 1, 0.33333333, 0.5, 0.16666667, 0.25], np.float32)
FP4 = np.concatenate([FP4, -FP4])
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1 = np.concatenate([E2M1, -E2M1])


def dense(a, bits):
    """Codes [rows][k] as words [rows][ceil(k * bits / 32)], the first in the lowest bits."""
    rows, k = a.shape
    flat = (a[:, :, None].astype(np.uint32) >> np.arange(bits, dtype=np.uint32) & 1).reshape(rows, -1)
    whole = np.zeros((rows, -(-flat.shape[1] // 32) * 32), np.uint8)
    whole[:, : flat.shape[1]] = flat
    return np.packbits(whole, axis=1, bitorder="little").view("<u4").view(np.int32)


def scales(rng, like, shape, dtype, steps):
    """Scales that make numbers about as large as those of a matrix; some are negative."""
    s = (np.abs(like).max() / steps * rng.uniform(0.3, 1, shape) * rng.choice([1, 1, 1, -1], shape)).astype(np.float32)
    return st.bf16_value(st.bf16_bits(s)) if dtype == "BF16" else s.astype(np.float16).astype(np.float32) if dtype == "F16" else s


def stored(s, dtype):
    return (dtype, st.bf16_bits(s) if dtype == "BF16" else s.astype(np.float16) if dtype == "F16" else s.astype(np.float32))


def integers(rng, a, bits, group, asym, dtype, order):
    """Codes [n][k], zero points and scales [n][groups], the group of each column, and what they mean."""
    n, k = a.shape
    size = group or k
    groups = -(-k // size)
    of = np.arange(k) // size
    if order:
        of = rng.permutation(of)
    q = rng.integers(0, 1 << bits, (n, k))
    z = rng.integers(0, 1 << bits, (n, groups)) if asym else np.full((n, groups), 1 << (bits - 1))
    s = scales(rng, a, (n, groups), dtype, 1 << (bits - 1))
    return q, z, s, of.astype(np.int32), (q - z[:, of]).astype(np.float32) * s[:, of]


def gptq(rng, a, bits=4, group=32, asym=True, dtype="F16", order=False, v2=False, idx=True):
    q, z, s, of, w = integers(rng, a, bits, group, asym, dtype, order)
    parts = {
        ".qweight": ("I32", dense(q, bits).T), ".scales": stored(s.T, dtype),
        ".qzeros": ("I32", dense((z if v2 else z - 1 & (1 << bits) - 1).T, bits)),
    }
    return {**parts, ".g_idx": ("I32", of)} if idx else parts, w


def awq(rng, a, group=32, wide=False, asym=True):
    q, z, s, _, w = integers(rng, a, 4, group, asym, "F16", False)
    if not wide:
        turns = lambda x: dense(x.reshape(x.shape[0], -1, 8)[:, :, TURNS].reshape(x.shape), 4)
        return {".qweight": ("I32", turns(q.T)), ".qzeros": ("I32", turns(z.T)), ".scales": stored(s.T, "F16")}, w
    room = -(-z.shape[1] // 16) * 16  # more than there are groups
    more = lambda x: np.pad(x, ((0, 0), (0, room - x.shape[1])))
    return {".qweight": ("I32", dense(q, 4)), ".qzeros": ("I32", dense(more(z), 4)), ".scales": stored(more(s), "F16")}, w


def packed(rng, a, bits=4, group=32, asym=False, dtype="BF16", order=False, one=False):
    q, z, s, of, w = integers(rng, a, bits, group, asym, dtype, order)
    if one:
        s = s[:1, :1]
        w = (q - z).astype(np.float32) * s
    parts = {".weight_packed": ("I32", dense(q, bits)), ".weight_scale": stored(s.reshape(-1) if one else s, dtype),
             ".weight_shape": ("I64", np.array(a.shape, np.int64))}
    if asym:
        parts[".weight_zero_point"] = ("I32", dense(z.T, bits).T)
    if order:
        parts[".weight_g_idx"] = ("I32", of)
    return parts, w


def pairs(q):
    return (q[:, ::2] | q[:, 1::2] << 4).astype(np.uint8)


def nvfp4(rng, a):
    n, k = a.shape
    q, s = rng.integers(0, 16, (n, k)), rng.integers(0x30, 0x7F, (n, k // 16)).astype(np.uint8)
    whole = np.float32(448 * 6 / np.abs(a).max())
    by = (st.e4m3_value(s) * (np.float32(1) / whole)).astype(np.float32)
    parts = {".weight_packed": ("U8", pairs(q)), ".weight_scale": ("F8_E4M3", s), ".weight_global_scale": ("F32", whole.reshape(1)),
             ".input_global_scale": ("F32", np.float32([3]))}
    return parts, E2M1[q] * by.repeat(16, 1)


def mxfp4(rng, a):
    n, k = a.shape
    q, e = rng.integers(0, 16, (n, k)), (127 - 2 + np.floor(np.log2(np.abs(a).max())) + rng.integers(-2, 1, (n, k // 32))).astype(np.uint8)
    return {".weight_packed": ("U8", pairs(q)), ".weight_scale": ("U8", e)}, E2M1[q] * st.e8m0_value(e).repeat(32, 1)


def bnb4(rng, a, kind="nf4", block=32, nested=False):
    n, k = a.shape
    table, q = NF4 if kind == "nf4" else FP4, rng.integers(0, 16, (n, k))
    count = n * k // block
    state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": [n, k]}
    parts = {}
    s = np.abs(scales(rng, a, count, "F32", 1))
    parts[".weight.absmax"] = ("F32", s)
    if nested:
        map = np.sort(rng.uniform(-1, 1, 256)).astype(np.float32)
        codes = rng.integers(0, 256, count).astype(np.uint8)
        outer, offset = (np.abs(a).max() * rng.uniform(0.1, 0.3, -(-count // 256))).astype(np.float32), np.float32(np.abs(a).max() / 2)
        state.update(nested_blocksize=256, nested_offset=float(offset), nested_dtype="float32")
        parts.update({".weight.absmax": ("U8", codes), ".weight.nested_absmax": ("F32", outer), ".weight.nested_quant_map": ("F32", map)})
        s = map[codes] * outer.repeat(256)[:count] + offset
    text = np.frombuffer(json.dumps(state).encode(), np.uint8)
    parts.update({".weight": ("U8", (q[:, ::2] << 4 | q[:, 1::2]).astype(np.uint8).reshape(-1, 1)), ".weight.quant_map": ("F32", table),
                  f".weight.quant_state.bitsandbytes__{kind}": ("U8", text)})
    return parts, table[q] * s.reshape(n, -1).repeat(block, 1)


def bnb8(rng, a):
    q = rng.integers(-127, 128, a.shape).astype(np.int8)
    most = np.abs(scales(rng, a, a.shape[0], "F32", 1))
    parts = {".weight": ("I8", q), ".SCB": ("F32", most), ".weight_format": ("U8", np.zeros((), np.uint8))}
    return parts, q.astype(np.float32) * (most / np.float32(127))[:, None]
