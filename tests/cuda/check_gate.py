#!/usr/bin/python3
# check_gate.py: whether check_kernels.py sees what it is there for. Kernels and rows that are right pass (samples/),
# and each planted fault, a changed cell of a row or a bad kernel (samples/bad/), gives the line that names kernel,
# architecture, what was found and what was expected, and no other line.
import os
import re
import shutil
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, ".."))
import check_kernels as gate
from counted import check, end, skip

SAMPLES = os.path.join(here, "samples")
ARCHS = ["80", "90a"]


def both(name, text):
    """A line for each architecture."""
    return [f"{name} sm_{arch}: {text}" for arch in ARCHS]


# name of the row, cells to change, what each line must say (a pattern; one line for each).
PLANTED = (
    ("sample_ring", {"regs": "16"}, both("sample_ring", "registers: found 2., expected at most 16")),
    ("sample_ring", {"regs": "64 90a:16"}, ["sample_ring sm_90a: registers: found .., expected at most 16"]),
    ("sample_ring", {"must": "HMMA>=99"}, both("sample_ring", "HMMA: found [0-9]+, expected >= 99")),
    ("sample_ring", {"must": "LDGSTS.64>=1"}, both("sample_ring", "LDGSTS.64: found 0, expected >= 1")),
    ("sample_ring", {"must": "- 80:LDSM<=0"}, ["sample_ring sm_80: LDSM: found [0-9]+, expected <= 0"]),
    ("sample_ring", {"never": "LDL,LDSM"}, both("sample_ring", "LDSM: found [0-9]+, expected none")),
    ("sample_ring", {"loop": "9"}, both("sample_ring", "main loop: found .. instructions a trip, expected at most 9")),
    ("sample_ring", {"loop": "9@HMMA"}, both("sample_ring", "main loop: found .. instructions")),
    ("sample_ring", {"loop": "1/HMMA"}, both("sample_ring", "main loop: found .. instructions a trip for [1-9] HMMA")),
    ("sample_ring", {"loop": "9@IMMA"}, both("sample_ring", "main loop: found none with IMMA")),
    ("sample_add", {"loop": "99"}, both("sample_add", "main loop: found none, expected one")),
    ("sample_add", {"threads": "256"}, both("sample_add", "threads of its launch bounds: found 128, expected 256")),
    ("sample_add", {"blocks": "9"}, both("sample_add", "blocks of its launch bounds: found 8, expected 9")),
    ("sample_ring", {"blocks": "10"},
     [*both("sample_ring", "blocks of its launch bounds: found 2, expected 10"),
      *both("sample_ring", "threads: found 10 blocks x 256, expected at most 2048"),
      *both("sample_ring", "registers: found 10 blocks x 256 threads x 32, expected at most 65536"),
      "sample_ring sm_80: shared memory: found 10 blocks x 17408 bytes, expected at most 167936"]),
    # 20,000 of its own, 32 of scale[] that the dynamic array behind them aligns to 128, 1,024 of the system.
    ("sample_add", {"smem": "20000"},
     ["sample_add sm_80: shared memory: found 8 blocks x 21152 bytes, expected at most 167936"]),
    ("sample_ring", {"smem": "170000"},
     ["sample_ring sm_80: shared memory: found 170000 bytes a block, expected at most 166912",
      *both("sample_ring", "shared memory: found 2 blocks")]),
    ("sample_add", {"pdl": "0"}, ["sample_add sm_90a: pdl: found griddepcontrol"]),
    ("sample_ring", {"pdl": "1"}, ["sample_ring sm_90a: pdl: found no griddepcontrol.wait",
                                   "sample_ring sm_90a: pdl: found no griddepcontrol.launch_dependents"]),
    ("sample_ring", {"name": "sample_rung"}, [*both("sample_ring", "found in ring.cu, expected a row"),
                                              *both("sample_rung", "found no such kernel in ring.cu")]),
    ("sample_ring", {"archs": "80"}, ["sample_ring sm_90a: found in ring.cu, expected a row"]),
    ("sample_add", {"file": "sum.cu"}, [*both("sample_add", "found in ring.cu, expected a row"),
                                        "sample_add: its row names sum.cu, which is not there"]),
)
# What is wrong in the file alone: cells to change, what the line must say.
MISSPELT = (
    ({"must": "HMMA>8"}, "sample_ring: must: found HMMA>8, expected"),
    ({"must": "HMNA>=8"}, "sample_ring: must: found HMNA>=8, expected"),
    ({"never": "LDL,SLT"}, "sample_ring: never: found LDL,SLT, expected"),
    ({"never": "LDSM.128"}, "sample_ring: never: found LDSM.128, expected"),
    ({"loop": "50:HMMA"}, "sample_ring: loop: found"),
    ({"loop": "50@HMNA"}, "sample_ring: loop: found 50@HMNA, expected"),
    ({"regs": "-"}, "sample_ring: regs: found -, expected a number"),
    ({"regs": "40 90:32"}, "sample_ring: regs: found 90:, expected one of"),
    ({"regs": "90a:32"}, "sample_ring: regs: found 90a:32, expected a number before"),
    ({"threads": "256 90a:128"}, "sample_ring: threads: found 256 90a:128, expected a number"),
    ({"pdl": "yes"}, "sample_ring: pdl: found yes, expected 0, 1 or 2"),
    ({"archs": "80,90"}, "sample_ring: archs: found 90, expected"),
    ({"body": "wgmma", "args": "64,8"}, "sample_wgmma: the row of line [0-9]+ once more"),
    ({"name": "sample_add"}, "sample_add: the row of line [0-9]+ once more"),
    ({"loop": "9\t9"}, "sample_ring: found 14 cells, expected 13"),
)
BAD = {
    "bad_spill": ["stack: found [1-9]", "spill stores: found [1-9]", "spill loads: found [1-9]"] * 2,
    "bad_loop": ["LDL in the main loop: found [1-9]", "STL in the main loop: found [1-9]"] * 2,
    "bad_stack": ["stack: found 512 bytes, expected 0"] * 2,
    "bad_early": ["pdl: found ld.global.[.a-z0-9]* before griddepcontrol.wait"],
    "bad_mute": ["pdl: found no griddepcontrol.launch_dependents"],
    "bad_deaf": ["pdl: found no griddepcontrol.wait", "pdl: found no griddepcontrol.launch_dependents"],
    "bad_ignored": ["threads of its launch bounds: found 0", "blocks of its launch bounds: found 0"],
    "bad_lost": ["LDGSTS: found 1 that ptxas gave no uniform registers, expected none"],
    "ignored.cu": ["nvcc says: .*C7508"],
    "serial.cu": ["nvcc says: .*wgmma.mma_async instructions are serialized"],
}


def said(table, made, folder):
    return [line for good, line in gate.judge_all(table, made, ARCHS, folder) if not good]


def same(lines, patterns, *what):
    """Each line fits one pattern of its own, and none is left over."""
    left = list(lines)
    for pattern in patterns:
        fit = next((line for line in left if re.search(pattern, line)), None)
        if not check(fit, *what, "no line that says:", pattern, "found:", *lines):
            return
        left.remove(fit)
    check(not left, *what, "more lines than were planted:", *left)


def planted(table, made):
    for name, cells, patterns in PLANTED:
        changed = [row._replace(**cells) if row.name == name else row for row in table]
        same(said(changed, made, SAMPLES), patterns, name, cells)
    without = [row for row in table if row.name != "sample_ring"]
    same(said(without, made, SAMPLES), both("sample_ring", "found in ring.cu, expected a row"), "no row")
    small = {(f, a): b for (f, a), b in made.items() if f == "ring.cu" and a == "80"}
    small["ring.cu", "86"] = small["ring.cu", "80"]
    ring = {"archs": "80"}
    for smem, cells, patterns in (
            ("90000", {}, []),  # one block fits
            ("110000", {}, ["sample_ring sm_86: shared memory: found 110000 bytes a block, expected at most 101376"]),
            ("110000", ring, []),  # none does, and the row says so
            ("90000", ring, ["sample_ring sm_86: found in ring.cu, expected a row of kernels.tsv"])):
        rows = [row._replace(smem=smem, **cells) if row.name == "sample_ring" else row for row in table]
        lines = [line for good, line in gate.judge_all(rows[:2], small, ["86"], SAMPLES)
                 if not good and ("shared" in line or "expected a row" in line)]
        same(lines, patterns, "100 KB", smem, cells)


def misspelt(folder):
    text = open(os.path.join(SAMPLES, "kernels.tsv")).read()
    line = next(line for line in text.splitlines() if line.startswith("sample_ring"))
    path = os.path.join(folder, "kernels.tsv")
    for cells, pattern in MISSPELT:
        changed = gate.Row(0, *line.split("\t"))._replace(**cells)
        with open(path, "w") as out:
            out.write(text.replace(line, "\t".join(changed[1:])))
        same(gate.rows(path)[1], ["kernels.tsv:[0-9]+: " + pattern], cells)
    with open(path, "w") as out:
        out.write(text.replace("\tregs\t", "\tregisters\t"))
    same(gate.rows(path)[1], ["columns: found .*registers.*expected .*regs"], "a column misspelt")


def as_a_program(folder):
    """What a person sees: a wrong cap, a file that does not compile, one with a warning, a folder without rows."""
    def run():
        tool = os.path.join(here, "check_kernels.py")
        command = [sys.executable, tool, "lq", f"--kernels={folder}", "--arch=80"]
        r = subprocess.run(command, capture_output=True, text=True)
        return r.returncode, r.stdout

    shutil.copy(os.path.join(SAMPLES, "ring.cu"), folder)
    text = open(os.path.join(SAMPLES, "kernels.tsv")).read()
    rows = "".join(line for line in text.splitlines(True) if not line.startswith("sample_wgmma"))
    path = os.path.join(folder, "kernels.tsv")
    if os.path.exists(path):
        os.remove(path)
    status, out = run()
    check(status == 1 and "expected one beside ring.cu" in out, "no kernels.tsv:", out)
    with open(path, "w") as file:
        file.write(rows)
    status, out = run()
    check(status == 0 and ", 0 failed, 0 skipped" in out, "right rows:", out)
    with open(path, "w") as file:
        file.write(rows.replace("\t40\tHMMA>=2", "\t20\tHMMA>=2"))
    with open(os.path.join(folder, "wrong.cu"), "w") as file:
        file.write("__global__ void wrong(int *y) { y[0] = z; }\n")
    with open(os.path.join(folder, "warned.cu"), "w") as file:
        file.write("static __device__ int idle(int *y) { int unused; return y[0]; }\n")
    status, out = run()
    lines = [line for line in out.splitlines() if line.startswith("FAILED")]
    same(lines, ["sample_ring sm_80: registers: found .., expected at most 20",
                 'wrong.cu sm_80: nvcc says: .*"z" is undefined',
                 "warned.cu sm_80: nvcc says: .*warning"], "a program")
    check(status == 1 and out.endswith("3 failed, 0 skipped\n"), "its closing line:", out[-200:])


def main():
    if not shutil.which("nvcc"):
        return skip("no nvcc in PATH")
    table, wrong = gate.rows(os.path.join(SAMPLES, "kernels.tsv"))
    check(len(table) == 3 and not wrong, "rows that are right:", *wrong)
    made = gate.build_all(SAMPLES, table, ARCHS)
    check(set(made) == {("ring.cu", "80"), ("ring.cu", "90a"), ("hopper.cu", "90a")}, "compiled:", set(made))
    same(said(table, made, SAMPLES), [], "kernels that are right")
    planted(table, made)
    bad = os.path.join(SAMPLES, "bad")
    table, wrong = gate.rows(os.path.join(bad, "kernels.tsv"))
    check(len(table) == 9 and not wrong, "rows of bad kernels:", *wrong)
    made = gate.build_all(bad, table, ARCHS)
    lines = said(table, made, bad)
    for name, patterns in BAD.items():
        same([line for line in lines if line.startswith(name + " ")], patterns, name)
    check(all(line.split()[0] in BAD for line in lines), "bad kernels: lines of others", lines)
    spare = [row._replace(never="~") if row.name == "bad_spill" else row for row in table]
    lines = [line for line in said(spare, made, bad) if line.startswith("bad_spill ")]
    same(lines, ["(LDL|STL) in the main loop: found no main loop"] * 4, "what waits for a loop that is not there")
    with tempfile.TemporaryDirectory() as folder:
        misspelt(folder)
        as_a_program(folder)
    return None


if __name__ == "__main__":
    main()
    sys.exit(end())
