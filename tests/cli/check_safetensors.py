#!/usr/bin/env python3
"""Quantizes the demo model and opens the .lq with the safetensors package, which lq does not come from: every tensor, its checksum,
the alignment, and one weight dequantized from docs/FORMAT.md against the original. Skipped where the package is missing."""
import json
import os
import struct
import subprocess
import sys
import tempfile



sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counted import check, end, skip  # noqa: E402

try:
    import numpy as np
    from safetensors import safe_open
except ImportError as e:
    skip(e)
    sys.exit(end())

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(root, "tests", "fuzz"))
from make_corpus import xxh64  # noqa: E402


def raw_tensors(path):
    with open(path, "rb") as f:
        data = f.read()
    n, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + n])
    meta = header.pop("__metadata__", {})
    return meta, {k: (v["dtype"], v["shape"], 8 + n + v["data_offsets"][0], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
                  for k, v in header.items()}


def bf16(raw, shape):
    return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)


def dequantize(parts, name, text):
    words = text.split()
    n, k = map(int, words[-1].split("x"))
    bits = int(words[0][3:])
    group = k if words[1] == "row" else int(words[1][1:])
    rows = np.frombuffer(parts[name + ".q"][3], np.uint8).reshape(n, -1)
    at = np.unpackbits(rows, axis=1, bitorder="little")[:, :k * bits].reshape(n, k, bits)
    q = (at.astype(np.int32) << np.arange(bits)).sum(2)
    scale = np.frombuffer(parts[name + ".scale"][3], np.float16).astype(np.float32).reshape(n, -1)
    return (q - (1 << bits - 1)).astype(np.float32) * np.repeat(scale, group, axis=1)[:, :k], np.repeat(scale, group, axis=1)[:, :k]


def check_file(path, source):
    meta, parts = raw_tensors(path)
    sums, types = json.loads(meta["lq.xxh64"]), json.loads(meta["lq.types"])
    check(meta["lq.version"] == "0" and meta["lq.layout"] == "any", "version and layout")
    with safe_open(path, "np") as f:
        check(f.metadata() == meta, "the package reads the same metadata")
        check(set(f.keys()) == set(parts), "the package sees the same tensors")
        for name in f.keys():
            if parts[name][0] in ("U8", "F16", "F32", "I32"):
                check(f.get_tensor(name).tobytes() == parts[name][3], f"{name}: bytes")
    for name, (dtype, shape, at, raw) in parts.items():
        if name.startswith("lq.pad/"):
            check(not any(raw), f"{name}: zeros")
            continue
        check(at % (4096 if len(raw) >= 4096 else 64) == 0, f"{name}: begins at {at}")
        if len(raw) <= 1 << 16:
            check(sums[name] == f"{xxh64(raw):016x}", f"{name}: checksum")
    check(json.loads(parts["lq.file/config.json"][3]) == json.load(open(os.path.join(os.path.dirname(source), "config.json"))), "config.json inside")
    _, original = raw_tensors(source)
    check(len(types) > 0, "there are coded weights")
    for name, text in types.items():
        if "asym" in text or name + ".perm" in parts:
            continue
        w, s = dequantize(parts, name, text)
        want = bf16(original[name][3], original[name][1])
        # A scale may be negative. Plain rounding is at most half a step off; the two ends of the range may be cut by one more half.
        check(bool(np.all(np.abs(w - want) <= 1.001 * np.abs(s) + 1e-7)), f"{name}: within a step of the original, {text}")


def main():
    source = os.path.join(root, "calib_data", "demo", "model.safetensors")
    if len(sys.argv) < 2 or not os.access(sys.argv[1], os.X_OK):
        print("SKIPPED: no lq program was given")
        end(1)
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("int4 g32", "int8"):
            out = os.path.join(folder, "m.lq")
            run = subprocess.run([sys.argv[1], "quantize", os.path.dirname(source), out, "--type", kind, "--force"],
                                 capture_output=True, text=True)
            check(run.returncode == 0, f"quantize {kind}: {run.stderr.strip()[:300]}")
            if run.returncode == 0:
                check_file(out, source)
    end()


if __name__ == "__main__":
    main()
