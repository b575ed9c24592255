# rtn_reference.py: rounding to the nearest as docs/QUANT.md defines it, in numpy, written from that definition.
import numpy as np

F16_MIN, F16_MAX = np.float64(2.0**-14), np.float64(65504)


def groups_of(k, group):
    """(start, end) of each group of a row; group 0: the row."""
    return [(a, min(a + group, k)) for a in range(0, k, group)] if group else [(0, k)]


def group_scales(w, bits, group, asym):
    """f32 scales [n][groups], before they are rounded to their stored type, and the groups' smallest elements with 0 let in."""
    scale, low = [], []
    for a, b in groups_of(w.shape[1], group):
        lo, hi = w[:, a:b].min(1).astype(np.float64), w[:, a:b].max(1).astype(np.float64)
        if asym:
            lo, hi = np.minimum(lo, 0), np.maximum(hi, 0)
            s = (hi - lo) / (2**bits - 1)
        else:
            s = np.where(hi > -lo, hi, lo) / -(2.0 ** (bits - 1))
        scale.append(s.astype(np.float32) + np.float32(0))
        low.append(np.minimum(lo, 0).astype(np.float32))
    return np.stack(scale, 1), np.stack(low, 1)


def stored_scales(scale):
    """The scales as stored: float16, or float32 where one that is not 0 leaves float16's normal range."""
    size = np.abs(scale.astype(np.float64))
    wide = ((scale != 0) & ((size < F16_MIN) | (size > F16_MAX))).any()
    return scale if wide else scale.astype(np.float16)


def quantize(w, bits, group, asym, wide=False):
    """w [n][k] float32 -> codes [n][k], stored scales [n][groups], zeros [n][groups]. wide: scales are float32."""
    w = np.ascontiguousarray(w, np.float32)
    raw, low = group_scales(w, bits, group, asym)
    scale = raw if wide else stored_scales(raw)
    codes, zeros = np.zeros(w.shape, np.int64), np.zeros(scale.shape, np.int64)
    with np.errstate(all="ignore"):
        for g, (a, b) in enumerate(groups_of(w.shape[1], group)):
            s = scale[:, g].astype(np.float32)
            none = s == 0
            z = np.minimum(np.rint(-low[:, g] / s), np.float32(2**bits - 1)) if asym else np.full(len(s), 2 ** (bits - 1), np.float32)
            z = np.where(none, 0 if asym else 2 ** (bits - 1), z).astype(np.float32)
            t = np.clip(w[:, a:b] / s[:, None], -z[:, None], np.float32(2**bits - 1) - z[:, None])
            codes[:, a:b] = np.where(none[:, None], z[:, None], np.rint(t) + z[:, None]).astype(np.int64)
            zeros[:, g] = z.astype(np.int64)
    return codes, scale, zeros


def dequantize(codes, scale, zeros, group):
    out = np.zeros(codes.shape, np.float32)
    for g, (a, b) in enumerate(groups_of(codes.shape[1], group)):
        out[:, a:b] = (codes[:, a:b] - zeros[:, g : g + 1]).astype(np.float32) * scale[:, g : g + 1].astype(np.float32)
    return out


def unpack(raw, bits, count):
    """Codes of rows of packed bytes: dense, least significant bit first; also whether the bits behind them are all 0."""
    stream = np.unpackbits(np.ascontiguousarray(raw, np.uint8), axis=1, bitorder="little")
    used = stream[:, : count * bits].reshape(len(raw), count, bits).astype(np.int64)
    return (used << np.arange(bits)).sum(2), not stream[:, count * bits :].any()
