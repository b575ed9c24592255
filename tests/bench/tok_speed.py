#!/usr/bin/env python3
"""How fast lq encodes beside the `tokenizers` package, one thread each.

    tok_speed.py LIBLQ.so --text NAME=FILE[,FILE...]... [--mb N] [--reps N] TOKENIZER...

A text is its files' lines, gone through again until there are N MB. Both encode the same 100 KB one after the other in this process, so that what
a neighbour takes is taken from both; times are the process's own. Of tokenizers the call without offsets is timed, of lq the call of its library.
Each repetition gives one ratio, and the median of them is printed, lowest and highest beside it. Ids that differ end the run.
"""
import argparse
import ctypes
import json
import os
import statistics
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer  # noqa: E402: it reads the environment
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
from tok_vectors import tokenizer_open  # noqa: E402

PART, PARSE = 100_000, 2


class Err(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 508)]


class Lq:
    def __init__(self, lib, path):
        self.lib, self.handle, self.err = lib, ctypes.c_void_p(), Err()
        self.check(lib.lq_tokenizer_load(path.encode(), ctypes.byref(self.handle), ctypes.byref(self.err)))

    def check(self, ok):
        if not ok:
            raise SystemExit(self.err.text.decode())

    def encode(self, text):
        """Seconds, and the ids."""
        ids, n = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        start = time.process_time()
        ok = self.lib.lq_tokenizer_ids(self.handle, text, ctypes.c_size_t(len(text)), PARSE, ctypes.byref(ids), ctypes.byref(n), ctypes.byref(self.err))
        took = time.process_time() - start
        self.check(ok)
        out = ids[:n.value]
        self.lib.lq_free(ids)
        return took, out


def parts(files, size):
    """The text in parts that end with a line."""
    whole = "".join(open(f, encoding="utf-8", errors="replace", newline="").read() for f in files)
    out, have, at = [], 0, 0
    while have < size:
        end = whole.find("\n", at + PART // 2) + 1 or len(whole)
        out.append(whole[at:end])
        have += len(out[-1].encode())
        at = end % len(whole)
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("lib")
    p.add_argument("tokenizer", nargs="+")
    p.add_argument("--text", action="append", required=True)
    p.add_argument("--mb", type=float, default=10)
    p.add_argument("--reps", type=int, default=3)
    a = p.parse_args()
    lib = ctypes.CDLL(os.path.abspath(a.lib))
    lib.lq_tokenizer_load.restype = lib.lq_tokenizer_ids.restype = ctypes.c_bool
    print(f"{'tokenizer':40} {'text':8} {'lq MB/s':>8} {'theirs':>8} {'ratio':>6}  lowest..highest", flush=True)
    for path in a.tokenizer:
        ours, merges = Lq(lib, path), "merges" in json.load(open(path, encoding="utf-8"))["model"]
        theirs = tokenizer_open(path) if merges else Tokenizer.from_file(path)
        for name, files in (t.split("=") for t in a.text):
            text = parts(files.split(","), a.mb * 1e6)
            size, mine, other = sum(len(t.encode()) for t in text) / 1e6, [], []
            for rep in range(a.reps):
                mine.append(0.0)
                other.append(0.0)
                for t in text:
                    took, ids = ours.encode(t.encode())
                    start = time.process_time()
                    want = theirs.encode_batch_fast([t], add_special_tokens=False)[0]
                    mine[-1], other[-1] = mine[-1] + took, other[-1] + time.process_time() - start
                    if not rep and want.ids != ids:
                        raise SystemExit(f"{path}: ids differ in a part of {name} that begins with {t[:60]!r}")
            ratio = [o / m for o, m in zip(other, mine)]
            print(f"{'/'.join(path.split('/')[-3:])[-40:]:40} {name:8} {size / statistics.median(mine):8.1f} {size / statistics.median(other):8.1f} "
                  f"{statistics.median(ratio):6.1f}  {min(ratio):.1f}..{max(ratio):.1f}", flush=True)


if __name__ == "__main__":
    main()
