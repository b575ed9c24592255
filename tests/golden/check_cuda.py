#!/usr/bin/python3
# check_cuda.py LQ: files in layout cuda, of each type that has a form there, with a stored order, outlier columns and stacks of experts beside it. Codes,
# scales and zero points are read from their bytes by the words of docs/FORMAT.md and must be those of the same file in layout any; what has no form
# there lies as in any; the logits are the same to the bit on every ISA; the way back to layout any gives the same file.
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..")]
sys.dont_write_bytecode = True
import make_models  # noqa: E402
import st  # noqa: E402
from counted import check, end  # noqa: E402

lq, calib = os.path.abspath(sys.argv[1]), os.path.join(here, "../../calib_data")
demo, text = os.path.join(calib, "demo"), os.path.join(calib, "test.txt")
FEW = ("--samples", 8, "--seqlen", 64)
HEAD = ("--head", "keep", "--embed", "keep")
MADE = [
    *(("--type", t) for t in ("int2 g32 f32", "int3 g64 asym", "int4 g32 asym bf16", "int6 g48 asym", "int8 g32 asym")),
    *(("--type", t) for t in ("int7 g64", "mxfp4", "nvfp4", "e4m3 g128 r128 f32", "nf4 dq256", "int8 act i8")),
    ("--type", "int5 row", *HEAD), ("--type", "e4m3 row f32", *HEAD), (), ("-m", "llmint8", *FEW), ("-m", "gptq", "--recipe", '{"order": "columns"}', *FEW),
]  # fmt: skip
PLANES = {2: [2], 3: [2, 1], 4: [4], 5: [4, 1], 6: [4, 2]}


def run(*args):
    r = subprocess.run([lq, *map(str, args)], capture_output=True, text=True)
    check(r.returncode == 0, f"lq {' '.join(map(str, args))}: {r.stderr.strip()}")
    return r.stdout


def tensors(path):
    return {n: a for n, (_, a) in st.raw(path).items() if not n.startswith("lq.pad/")}


def up(v, to):
    return -(-v // to) * to


def dense(rows, bits, count):
    """Codes that stand one behind the other in rows of bytes."""
    flat = np.unpackbits(np.ascontiguousarray(rows).view(np.uint8), axis=-1, bitorder="little")[:, : bits * count].reshape(len(rows), count, bits)
    return (flat << np.arange(bits, dtype=np.uint8)).sum(-1).astype(np.uint8)


def blocks(data, bits, unit):
    """Bytes of blocks, one a row, to their codes [block][16][unit]."""
    out = np.zeros((len(data), 16, unit), np.uint8)
    lane = np.arange(32)
    g, t = lane // 4, lane % 4
    if bits == 8:
        of = data.reshape(-1, 2, 32, 4, 4)
        for part, word, byte in np.ndindex(2, 4, 4):
            p, h = word % 2 * 2 + 1 - byte % 2, byte // 2
            out[:, g + p % 2 * 8, part * 32 + word // 2 * 16 + 2 * t + p // 2 * 8 + h] = of[:, part, :, word, byte]
        return out
    at = shift = 0
    for w in PLANES[bits]:
        columns, words = (64, 4) if w == 4 else (128, 4 if w == 2 else 2)
        size = unit // columns * 32 * words * 4
        of = np.ascontiguousarray(data[:, at : at + size]).view("<u4").reshape(len(data), -1, 32, words)
        for part, word, step, p, h in np.ndindex(unit // columns, words, 4 // w, 4, 2):
            column = part * columns + (word * (4 // w) + step) * 16 + 2 * t + p // 2 * 8 + h
            code = of[:, part, :, word] >> (w * (4 * step + p) + 16 * h) & (1 << w) - 1
            out[:, g + p % 2 * 8, column] |= (code << shift).astype(np.uint8)
        at, shift = at + size, shift + w
    return out


def matrix_check(what, kind, n, k, any_, cuda):
    """The parts .q, .scale and .zero of one matrix in both layouts."""
    words = kind.split()
    bits = 4 if words[0] in ("nf4", "fp4") else 8 if words[0][0] == "e" else int(words[0][3:])
    group = int(words[1][1:]) if words[1][0] == "g" else k
    rows, groups, unit = (n if "tensor" in words else next((int(w[1:]) for w in words if re.fullmatch(r"r\d+", w)), 1)), -(-k // group), 64 if bits in (4, 8) else 128
    high, wide = up(n, 64), up(k, unit)
    ok = cuda["q"].shape == (high // 64, 64 * wide * bits // 8)
    got = blocks(cuda["q"].reshape(-1, 2 * unit * bits), bits, unit).reshape(high // 64, wide // unit, 4, 16, unit).transpose(0, 2, 3, 1, 4).reshape(high, wide)
    want = np.full((high, wide), 1 << bits - 1 if "sym" in words else 0, np.uint8)
    want[:n, :k] = any_["q"] if words[0][0] == "e" else dense(any_["q"], bits, k)
    place = np.array([r // 16 * 16 + r % 8 * 2 + r % 16 // 8 for r in range(64)])
    if rows == 1:
        scale = np.zeros((high, groups), any_["scale"].dtype)
        scale[:n] = any_["scale"]
        ok = ok and np.array_equal(cuda["scale"][:, :, place].transpose(1, 2, 0).reshape(high, groups), scale)
    else:
        ok = ok and np.array_equal(cuda["scale"], any_["scale"])
    if "asym" in words:
        zero = np.zeros((high, groups), np.uint8)
        zero[:n] = dense(any_["zero"], bits, groups)
        have = cuda["zero"]
        if bits <= 4:
            nibbles = np.stack([have & 15, have >> 4], -1).reshape(groups, -1, 64)
            have = nibbles[:, :, [r % 8 * 8 + r // 16 * 2 + r % 16 // 8 for r in range(64)]]
        else:
            have = have[:, :, place]
        ok = ok and np.array_equal(have.transpose(1, 2, 0).reshape(high, groups), zero)
        want[:, k:] = zero[:, -1:]
    check(ok and np.array_equal(got, want), f"{what}: {kind} {n}x{k} does not lie as FORMAT.md says")


def lies(what, one, two, expected):
    a, b, types = tensors(one), tensors(two), json.loads(st.read(two)[1]["lq.types"])
    check(a.keys() == b.keys(), f"{what}: other tensors")
    moved = set()
    for name, kind in types.items():
        kind, size = kind.rsplit(" ", 1)
        *count, n, k = map(int, size.split("x"))
        if " act " in kind or "dq256" in kind or kind.startswith("int7"):
            continue
        parts = [p for p in ("q", "scale", "zero") if f"{name}.{p}" in a]
        for e in range(count[0] if count else 1):
            of = [{p: t[f"{name}.{p}"][e] if count else t[f"{name}.{p}"] for p in parts} for t in (a, b)]
            matrix_check(f"{what}: {name}", kind, n, k, *of)
        moved |= {f"{name}.{p}" for p in parts}
    check(all(np.array_equal(a[n], b[n]) for n in a if n not in moved), f"{what}: what has no form in cuda does not lie as in any")
    check(len(moved) >= expected, f"{what}: {len(moved)} parts lie otherwise")
    check(json.loads(run("inspect", two, "--json"))["layout"] == "cuda" and "layout        cuda\n" in run("inspect", two), f"{what}: lq inspect")


def logits(folder, model, *words):
    out = os.path.join(folder, "logits.safetensors")
    run("eval", model, "--save-logits", out, "-f", "-q", "--text", text, "--protocol", "llamacpp512", "--windows", 1, *words)
    return {n: a for n, (_, a) in st.raw(out).items()}


def speaks(what, folder, one, two, *words):
    a, b = logits(folder, one, *words), logits(folder, two, *words)
    check(a.keys() == b.keys() and all(np.array_equal(a[n].view(np.uint8), b[n].view(np.uint8)) for n in a), f"{what} {words}: other logits than in layout any")


def main():
    with tempfile.TemporaryDirectory() as folder:
        one, two, back = (os.path.join(folder, f) for f in ("any.lq", "cuda.lq", "back.lq"))
        for i, words in enumerate(MADE):
            what = " ".join(map(str, words)) or "int4 g128"
            for out, layout in ((one, "any"), (two, "cuda")):
                run("quantize", demo, out, "-f", "-q", "--layout", layout, *words)
            lies(what, one, two, 2 if words[1:] and words[1] in ("int7 g64", "nf4 dq256", "int8 act i8", "llmint8") else 70)
            speaks(what, folder, one, two, ("--served", "--exact")[i % 2])
            run("quantize", two, back, "-f", "-q", "--layout", "any")
            a, b = tensors(one), tensors(back)
            check(a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a), f"{what}: not the same when it comes back")
        for isa in ("c", "avx2"):
            speaks("the last", folder, one, two, "--served", "--isa", isa)
        tiny = os.path.join(folder, "tiny")
        make_models.make(tiny)
        for name, kind in (("mixtral", "int4 g16 asym"), ("gpt_oss", "int3 g16"), ("phi3_window", "int6 g16")):
            for out, layout in ((one, "any"), (two, "cuda")):
                run("quantize", os.path.join(tiny, name), out, "-f", "-q", "--layout", layout, "--type", kind)
            lies(name, one, two, 8)
    return end()


if __name__ == "__main__":
    sys.exit(main())
