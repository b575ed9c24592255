#!/usr/bin/python3
"""quantize_speed.py LQ [LQ..] [--model FOLDER] [--samples N]: what `lq quantize` takes of CPU time and memory, method by method, several builds in
turn; where `perf` may record, the share of time in multiplications of matrices (OpenBLAS, and our own of f32); of rtn also bytes a second beside
those of a plain copy of as many in memory, and the seconds that it takes a model from the disk, beside those of a plain read."""
import argparse
import os
import shutil
import subprocess
import tempfile
import time

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GEMM = ("gemm", "trmm", "trsm", "syrk", "block_F32", "potrf", "trtri", "product_of", "gram_block")


def spend(words):
    """CPU seconds, seconds, peak of resident memory in MB."""
    start = time.monotonic()
    p = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, use = os.wait4(p.pid, 0)
    if status:
        raise SystemExit(f"{words}: status {status}")
    return use.ru_utime + use.ru_stime, time.monotonic() - start, use.ru_maxrss / 1e3


def gemm_share(words, folder):
    data = os.path.join(folder, "perf.data")
    if not shutil.which("perf") or subprocess.run(["perf", "record", "-q", "-o", data, *words], capture_output=True).returncode:
        return None
    r = subprocess.run(["perf", "report", "-i", data, "--stdio", "-F", "overhead,symbol"], capture_output=True, text=True)
    lines = [line.split(None, 1) for line in r.stdout.splitlines() if "%" in line and not line.startswith("#")]
    return sum(float(share.rstrip("%")) for share, name in lines if any(g in name for g in GEMM))


def not_cached(files):
    """What they hold is taken out of the system's cache."""
    for path in files:
        with open(path, "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_all(files):
    start = time.monotonic()
    for path in files:
        with open(path, "rb", buffering=0) as f:
            while f.read(4 << 20):
                pass
    return time.monotonic() - start


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("lq", nargs="+")
parser.add_argument("--model", default=os.path.join(root, "calib_data", "demo"))
parser.add_argument("--samples", default="32")
parser.add_argument("--rounds", type=int, default=2)
o = parser.parse_args()
files = [os.path.join(o.model, f) for f in os.listdir(o.model) if f.endswith(".safetensors")]
size = sum(map(os.path.getsize, files))
with tempfile.TemporaryDirectory() as folder:
    for method in ("rtn", "gptq", "awq", "smoothquant"):
        out = [os.path.join(folder, "o.lq"), "-m", method, "--force", "--quiet"] + (["--samples", o.samples] if method != "rtn" else [])
        for i in range(o.rounds):
            for lq in o.lq:
                cpu, wall, mb = spend([lq, "quantize", o.model, *out])
                print(f"{method:12} {cpu:7.2f} s of CPU {wall:7.2f} s {mb:7.1f} MB  {lq}")
                if method == "rtn":
                    block, start = bytes(size), time.process_time()
                    bytearray(block)
                    print(f"{'':12} {size / cpu / 1e6:.0f} MB a second, a copy in memory {size / (time.process_time() - start) / 1e6:.0f}")
                    not_cached(files)
                    read = read_all(files)
                    not_cached(files)
                    print(f"{'':12} from the disk {spend([lq, 'quantize', o.model, *out])[1]:.2f} s, a plain read {read:.2f} s")
        if method != "rtn":
            share = gemm_share([o.lq[-1], "quantize", o.model, *out], folder)
            print(f"{'':12} " + ("no perf here" if share is None else f"{share:.0f} % in multiplications of matrices"))
