#!/usr/bin/python3
# check_tune.py LQ: tests/gpu/tune.c on the emulated machine, where its times mean nothing: every kernel of a type is
# timed for each number of tokens, and the table that it writes is rows of kernels/cuda/tuned.h that cover them.
import csv
import os
import re
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, ".."))
from counted import check, end, skip

ROOT = os.path.dirname(os.path.dirname(here))
ROWS = [1, 9, 20]
# The tiles of each type's kernels, and whether a matrix of 64 x 2048 has cuts that may be made side by side.
TYPES = {"int4 g128": ([8, 16, 32, 64], True), "bf16": ([8, 16, 32, 64], True),
         "int8 row f32 act i8 row": ([8, 16, 32, 64, 128], False)}


def table_of(text):
    return [tuple(map(int, row.split(","))) for row in re.findall(r"^    \{([-\d, ]+)\},$", text, re.M)]


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "tune_emulated")
    if not os.path.exists(program):
        skip("no emulated device in this build")
        return end()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tuned_rows.h")
        r = subprocess.run([program, "--types", ",".join(TYPES), "--rows", ",".join(map(str, ROWS)), "--bytes", "1000",
                            "--repeats", "1", "--table", path, "64x2048"], capture_output=True, text=True)
        check(r.returncode == 0, f"tune ends with {r.returncode}: {r.stderr}")
        timed = list(csv.DictReader(r.stdout.splitlines()))
        for name, (tiles, cut) in TYPES.items():
            for rows in ROWS:
                found = [(int(t["tokens"]), int(t["side"])) for t in timed
                         if t["type"] == name and int(t["rows"]) == rows]
                want = [(t, side) for t in tiles for side in (0, 1) if not side or cut]
                check(found == want, f"{name}, {rows} tokens: found {found}, expected {want}")
        check(all(float(t["us"]) > 0 for t in timed), "a product takes no time")
        table = table_of(open(path).read())
        families = {row[:5] for row in table}
        check(len(families) == len(TYPES), f"the table has {len(families)} families, expected {len(TYPES)}")
        for family in families:
            ends = [(row[7], row[8]) for row in table if row[:5] == family]
            whole = ends[0][0] == 0 and ends[-1][1] == ROWS[-1] and all(a[1] == b[0] for a, b in zip(ends, ends[1:]))
            check(whole, f"{family}: numbers of tokens are {ends}")
        program = os.path.join(folder, "rows.c")
        with open(program, "w") as f:
            f.write('#include "tuned.h"\nint main(void) { return LQ_TUNED_COUNT != %d; }\n' % (len(table) + 1))
        source = open(os.path.join(ROOT, "kernels", "cuda", "tuned.h")).read()
        with open(os.path.join(folder, "tuned.h"), "w") as f:
            f.write(source.replace("kernels/cuda/tuned_rows.h", "tuned_rows.h"))
        made = subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", program, "-o", program + ".out"],
                              capture_output=True, text=True)
        check(made.returncode == 0 and subprocess.run([program + ".out"]).returncode == 0,
              f"the table is not rows of tuned.h: {made.stderr}")
    return end()


sys.exit(main())
