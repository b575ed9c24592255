# rtn_reference.py: rounding to the nearest as docs/QUANT.md defines it, in numpy, written from that definition.
import numpy as np

import st

F16_MIN, F16_MAX = np.float64(2.0**-14), np.float64(65504)
TABLES = {  # fp4: OCP Microscaling Formats 1.0, e2m1; nf4: bitsandbytes 0.50.2
    "fp4": np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]),
    "nf4": np.float32([-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
                       -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1]),
}


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


def stored_scales(scale, kind="f16"):
    """The scales as stored (bf16 as float32): for f16 all are float32 where one that is not 0 leaves its normal range."""
    if kind != "f16":
        return scale if kind == "f32" else st.bf16_value(st.bf16_bits(scale))
    size = np.abs(scale.astype(np.float64))
    wide = ((scale != 0) & ((size < F16_MIN) | (size > F16_MAX))).any()
    return scale if wide else scale.astype(np.float16)


def quantize(w, bits, group, asym, wide=False, kind="f16"):
    """w [n][k] float32 -> codes [n][k], stored scales [n][groups] (of dq256 what they are), zeros [n][groups]. wide: scales are float32."""
    w = np.ascontiguousarray(w, np.float32)
    raw, low = group_scales(w, bits, group, asym)
    scale = raw if wide else coded_scales(raw)[-1] if kind == "dq256" else stored_scales(raw)
    codes, zeros = np.zeros(w.shape, np.int64), np.zeros(scale.shape, np.int64)
    with np.errstate(all="ignore"):
        for g, (a, b) in enumerate(groups_of(w.shape[1], group)):
            s = scale[:, g].astype(np.float32)
            none = s == 0
            z = np.minimum(np.rint(-low[:, g] / s), np.float32(2**bits - 1)) if asym else np.full(len(s), 2 ** (bits - 1), np.float32)
            z = np.where(none | (asym & (s < 0)), 0 if asym else 2 ** (bits - 1), z).astype(np.float32)
            t = np.clip(w[:, a:b] / s[:, None], -z[:, None], np.float32(2**bits - 1) - z[:, None])
            codes[:, a:b] = np.where(none[:, None], z[:, None], np.rint(t) + z[:, None]).astype(np.int64)
            zeros[:, g] = z.astype(np.int64)
    return codes, scale, zeros


def power_scales(most, top):
    """The bytes of E8M0 and what they are: 2^(floor(log2 most) - floor(log2 top)), OCP Microscaling Formats 1.0, section 6.3."""
    e = np.frexp(np.maximum(most, 2.0**-200))[1] - np.frexp(np.float64(top))[1]
    e = np.where(most > 0, np.clip(e, -127, 127), -127)
    return (e + 127).astype(np.uint8), (2.0**e).astype(np.float32)


def two_scales(w, most, top):
    """The bytes of E4M3, what they are times the matrix's own scale, and that: as modelopt's NVFP4QTensor has it, but for groups of zeros."""
    second = np.float32(np.abs(w).max()) / np.float32(top * 448)
    with np.errstate(all="ignore"):
        raw = np.where(second > 0, most.astype(np.float32) / (np.float32(top) * second), np.float32(0))
    codes = fp8_codes(raw, "e4m3")
    return codes, fp8_values(codes, "e4m3") * second, second


def coded_scales(raw, share=(1, 1)):
    """dq256: codes of scales, map, what each 256 have, offset, and what the codes stand for. `share`: what scales may become of these."""
    flat = raw.astype(np.float32).ravel()
    ends = np.multiply.outer(share, flat.astype(np.float64))
    offset = np.float32(np.add.accumulate(flat.astype(np.float64) * sum(share) / 2)[-1] / flat.size)
    far = np.minimum(np.abs(ends - np.float64(offset)).max(0), np.finfo(np.float32).max)
    by = np.float32([far[i : i + 256].max() for i in range(0, flat.size, 256)])
    map = ((2 * np.arange(256) - 255) / 255).astype(np.float32)
    with np.errstate(over="ignore"):
        values = map * by.repeat(256)[: flat.size, None] + offset
    codes = np.abs(values.astype(np.float64) - flat.astype(np.float64)[:, None]).argmin(1).astype(np.uint8)
    return codes.reshape(raw.shape), map, by, offset, values[np.arange(flat.size), codes].reshape(raw.shape)


def all_scales(w, most, top, kind):
    """Stored scales, what they are, and the second scale, of groups with these largest magnitudes."""
    if kind == "e8m0":
        return *power_scales(most, top), None
    if kind == "e4m3":
        return two_scales(w, most, top)
    if kind == "dq256":
        codes, map, by, offset, scale = coded_scales(most / top)
        return codes, scale, {"scale_map": map, "scale2": by, "scale_offset": np.float32([offset])}
    scale = stored_scales((most / top).astype(np.float32), kind)
    return scale, scale.astype(np.float32), None


def quantize_table(w, table, group, kind="f16"):
    """w [n][k] float32 -> codes [n][k] of the nearest value of a table, of two the even code; stored scales [n][groups], what they are, the second scale."""
    w, wide = np.ascontiguousarray(w, np.float32), table.astype(np.float64)
    even = np.argsort(np.arange(len(table)) % 2, kind="stable")
    most = np.stack([np.abs(w[:, a:b]).max(1).astype(np.float64) for a, b in groups_of(w.shape[1], group)], 1)
    scale, by, second = all_scales(w, most, np.abs(wide).max(), kind)
    codes = np.zeros(w.shape, np.int64)
    for g, (a, b) in enumerate(groups_of(w.shape[1], group)):
        s = by[:, g : g + 1]
        t = np.divide(w[:, a:b], s, out=np.zeros_like(w[:, a:b]), where=s != 0)
        codes[:, a:b] = even[np.abs(t.astype(np.float64)[:, :, None] - wide[even]).argmin(2)]
    return codes, scale, by, second


def dequantize_table(codes, by, table, group):
    parts = [table[codes[:, a:b]] * by[:, g : g + 1] for g, (a, b) in enumerate(groups_of(codes.shape[1], group))]
    return np.concatenate(parts, 1)


def dequantize(codes, scale, zeros, group):
    out = np.zeros(codes.shape, np.float32)
    for g, (a, b) in enumerate(groups_of(codes.shape[1], group)):
        out[:, a:b] = (codes[:, a:b] - zeros[:, g : g + 1]).astype(np.float32) * scale[:, g : g + 1].astype(np.float32)
    return out


FP8 = {"e4m3": (4, 3, 448), "e5m2": (5, 2, 57344)}  # bits of the exponent and of the mantissa, the largest number


def fp8_numbers(elem):
    """float64 of the codes 0, 1, 2 ... up to the largest number: exponent over mantissa, without infinities and NaN."""
    exponent, mantissa, most = FP8[elem]
    code, bias = np.arange(128), 2 ** (exponent - 1) - 1
    e, m = code >> mantissa, code & (2**mantissa - 1)
    number = np.where(e == 0, m, m + 2**mantissa) * 2.0 ** (np.maximum(e, 1) - bias - mantissa)
    return number[number <= most]


def fp8_codes(x, elem):
    """float32 -> the code of the nearest number, of two the even code; beyond the largest: the largest. Zeros keep their sign."""
    numbers, size = fp8_numbers(elem), np.abs(x.astype(np.float64))
    size = np.minimum(size, numbers[-1])
    high = np.searchsorted(numbers, size)
    low = np.maximum(high - 1, 0)
    above, below = numbers[high] - size, size - numbers[low]
    return (np.where((above < below) | ((above == below) & (high % 2 == 0)), high, low) | np.signbit(x) * 128).astype(np.uint8)


def fp8_values(codes, elem):
    value = fp8_numbers(elem)[codes & 127].astype(np.float32)
    return np.where(codes & 128, -value, value)


def quantize_fp8(w, elem, group, rows, kind):
    """w [n][k] float32 -> codes [n][k], stored scales [bands][groups] of bands of so many rows (0: all), what they are, what all stands for, the second scale."""
    w, rows = np.ascontiguousarray(w, np.float32), rows or len(w)
    bands, groups = groups_of(len(w), rows), groups_of(w.shape[1], group)
    most = np.float64([[np.abs(w[r:s, a:b]).max() for a, b in groups] for r, s in bands])
    scale, scales, second = all_scales(w, most, FP8[elem][2], kind)
    codes, back = np.zeros(w.shape, np.uint8), np.zeros(w.shape, np.float32)
    with np.errstate(over="ignore"):
        for i, (r, s) in enumerate(bands):
            for g, (a, b) in enumerate(groups):
                if by := scales[i, g]:
                    codes[r:s, a:b] = fp8_codes(w[r:s, a:b] / by, elem)
                    back[r:s, a:b] = fp8_values(codes[r:s, a:b], elem) * by
    return codes, scale, scales, back, second


def unpack(raw, bits, count):
    """Codes of rows of packed bytes: dense, least significant bit first; also whether the bits behind them are all 0."""
    stream = np.unpackbits(np.ascontiguousarray(raw, np.uint8), axis=1, bitorder="little")
    used = stream[:, : count * bits].reshape(len(raw), count, bits).astype(np.int64)
    return (used << np.arange(bits)).sum(2), not stream[:, count * bits :].any()
