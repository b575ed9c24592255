#!/usr/bin/python3
# check_kernels.py [LQ] [--kernels=FOLDER] [--arch=80,90a] [--all]: compiles every FOLDER/*.cu (kernels/cuda) for each
# architecture and holds each kernel that comes out against its row of FOLDER/kernels.tsv: launch bounds, registers,
# spills, stack, shared memory, the operations it must and must not have, the instructions of its main loop, and the
# order of its PTX where it starts before its predecessor has ended. The head of samples/kernels.tsv explains columns.
# No GPU, no cuobjdump: sass.py reads what nvcc made. It refuses a kernel without a row, a row without a kernel, and any
# warning. What the build that made LQ has kept of a file is taken, where neither the file nor what it includes is newer.
import collections
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, ".."))
import sass
from counted import check, end, skip

ROOT = os.path.dirname(os.path.dirname(here))
BUILD = next((os.path.dirname(os.path.abspath(word)) for word in sys.argv[1:] if not word.startswith("--")), None)
FLAGS = ["-std=c++17", "-O3", "-fmad=false", "-I" + ROOT]
COLUMNS = "name file archs threads blocks smem pdl body args regs must never loop".split()
# KiB of shared memory of a multiprocessor (a block may have one less: the system keeps 1 KiB of each) and its threads.
ROOM = {"80": (164, 2048), "86": (100, 1536), "89": (100, 1536), "90a": (228, 2048), "100": (228, 2048),
        "120": (100, 1536)}
SMALL = 128 * 1024  # where there is less, fewer blocks may fit than the bounds say, one at least
REGISTERS = 65536
# What nvcc and ptxas may not say: C7508 (setmaxnreg ignored), C7510 and others (wgmma serialized), any warning.
SAID = re.compile(r"\bwarning\b|\berror\b|\(C\d+\)|Potential Performance Loss|serialized", re.I)
# What reaches global memory at once; weights may be fetched ahead by cp.async, a bulk copy or prefetch.
ACCESS = re.compile(r"\b(?:ld|st|atom|red)\.[\w.:]+")

Row = collections.namedtuple("Row", ["line", *COLUMNS])
Built = collections.namedtuple("Built", "kernels log ptx said")


# --- kernels.tsv ---


def value(cell, arch):
    """What a cell means for an architecture: `128 90a:112` is 112 for 90a and 128 for the others."""
    words = [word.rpartition(":") for word in cell.split()]
    return next((v for a, _, v in words if a == arch), next((v for a, _, v in words if not a), "-"))


def needs(text):
    """[(operation, sign, number)] of HMMA>=8,LDGSTS.128>=2; None where it is not of that form."""
    found = [] if text == "-" else [re.fullmatch(r"([\w.]+)(>=|<=|=)(\d+)", word) for word in text.split(",")]
    return [m.groups() for m in found] if all(m and sass.known(m[1]) for m in found) else None


def loop_cap(text):
    """(most instructions, operation, whether for each one of it) of 430, 430@HMMA and 27/HMMA."""
    m = re.fullmatch(r"(\d+)(?:([@/])([\w.]+))?", text)
    return (int(m[1]), m[3], m[2] == "/") if m and (not m[3] or sass.known(m[3])) else None


def faults(row):
    """What is wrong with a row by itself."""
    for column in ("threads", "blocks", "smem"):
        if not re.fullmatch(r"\d+", getattr(row, column)):
            yield f"{column}: found {getattr(row, column)}, expected a number"
    if row.pdl not in ("0", "1", "2"):
        yield f"pdl: found {row.pdl}, expected 0, 1 or 2"
    for arch in row.archs.split(",") if row.archs != "*" else []:
        if arch not in ROOM:
            yield f"archs: found {arch}, expected * or of {','.join(ROOM)}"
    if ":" in row.regs.split(" ")[0]:
        yield f"regs: found {row.regs}, expected a number before those of single architectures"
    for column in ("regs", "must", "never", "loop"):
        for prefix, _, text in (word.rpartition(":") for word in getattr(row, column).split() or ["?"]):
            if prefix and prefix not in ROOM:
                yield f"{column}: found {prefix}:, expected one of {','.join(ROOM)}"
                continue
            fine = {"regs": text.isdigit(), "must": needs(text) is not None, "loop": text == "-" or loop_cap(text),
                    "never": text in ("-", "~") or all(map(sass.known, text.split(",")))}[column]
            if not fine:
                form = {"regs": "a number", "must": "OPERATION>=N,... or -", "never": "OPERATION,..., ~ or -",
                        "loop": "N, N@OPERATION, N/OPERATION or -"}
                yield f"{column}: found {text}, expected {form[column]}, with operations that sass.py names"


def rows(path):
    """(rows, what is wrong with the file) of a kernels.tsv."""
    found, wrong, head = [], [], None
    for n, line in enumerate(open(path), 1):
        cells = line.rstrip("\n").split("\t")
        if line.startswith("#") or not line.strip():
            continue
        if head is None:
            head = cells
            if cells != COLUMNS:
                return [], [f"{path}:{n}: columns: found {' '.join(cells)}, expected {' '.join(COLUMNS)}"]
        elif len(cells) != len(COLUMNS):
            wrong.append(f"{path}:{n}: {cells[0]}: found {len(cells)} cells, expected {len(COLUMNS)}")
        else:
            row = Row(n, *cells)
            bad = [f"{path}:{n}: {row.name}: {what}" for what in faults(row)]
            wrong += bad
            for other in found:
                if set(archs(row)) & set(archs(other)) and (
                        other.name == row.name or row.body != "-" and (other.body, other.args) == (row.body, row.args)):
                    wrong.append(f"{path}:{n}: {row.name}: the row of line {other.line} once more")
            if not bad:
                found.append(row)
    return found, wrong


def archs(row):
    return list(ROOM) if row.archs == "*" else row.archs.split(",")


# --- what nvcc makes ---


def complaints(text):
    return list(dict.fromkeys(line.strip() for line in text.splitlines() if SAID.search(line)))


def built(cubin, ptx, text):
    ptx = re.sub(r"//.*", "", open(ptx).read())
    entries = {m[1]: m[0] for m in re.finditer(r"\.entry\s+(\w+)\s*\(.*?\n\}", ptx, re.S)}
    return Built(sass.read(cubin), sass.ptxas_log(text), entries, complaints(text))


def kept(source, arch):
    """What cmake/cuda.cmake has kept of its own compilation; None where there is none, or it is old."""
    name = os.path.splitext(os.path.basename(source))[0]
    folder = os.path.join(BUILD or "none", "cuda", name + ".kept")
    names = (f"{name}.compute_{arch}.sm_{arch}.cubin", f"{name}.compute_{arch}.cubin")
    cubin = next((os.path.join(folder, f) for f in names if os.path.exists(os.path.join(folder, f))), None)
    if not cubin:
        return None
    needs = open(os.path.join(BUILD, "cuda", name + ".o.d")).read().replace("\\\n", " ").split(":", 1)[1].split()
    if source not in needs or any(os.path.getmtime(f) > os.path.getmtime(cubin) for f in needs):
        return None
    text = open(os.path.join(folder, "said")).read()
    parts = re.split(r"(?=ptxas info\s*: Compiling entry function ')", text)
    text = parts[0] + "".join(part for part in parts[1:] if f"for 'sm_{arch}'" in part.split("\n")[0])
    return built(cubin, os.path.join(folder, f"{name}.compute_{arch}.ptx"), text)


def build(source, arch):
    found = kept(source, arch)
    if found:
        return found
    with tempfile.TemporaryDirectory() as folder:
        cubin = os.path.join(folder, "out.cubin")
        command = ["nvcc", *FLAGS, f"-gencode=arch=compute_{arch},code=sm_{arch}", "-Xptxas", "-v", "--keep",
                   "--keep-dir", folder, "-cubin", source, "-o", cubin]
        r = subprocess.run(command, capture_output=True, text=True)
        text = r.stdout + r.stderr
        if r.returncode:
            return Built({}, {}, {}, complaints(text) or [f"nvcc ended with {r.returncode}"])
        name = os.path.splitext(os.path.basename(source))[0] + ".ptx"
        return built(cubin, os.path.join(folder, name), text)


def build_all(folder, table, wanted):
    """{(file, arch): Built}, as many at a time as there are cores; without what all rows of a file leave out."""
    files = sorted(f for f in os.listdir(folder) if f.endswith(".cu"))
    jobs = [(f, a) for a in wanted for f in files
            if any(a in archs(r) for r in table if r.file == f) or not any(r.file == f for r in table)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(jobs, pool.map(lambda job: build(os.path.join(folder, job[0]), job[1]), jobs)))


# --- one against the other ---


def launch(row, arch, built):
    """(whether it holds, what): bounds that the compiler was told, and whether as many blocks fit."""
    kernel, ptx = built.kernels[row.name], built.ptx.get(row.name, "")
    threads, blocks, smem = int(row.threads), int(row.blocks), int(row.smem)
    for what, words, number in (("threads", "(?:maxntid|reqntid)", threads), ("blocks", "minnctapersm", blocks)):
        found = int((re.search(rf"\.{words} (\d+)", ptx) or [0, 0])[1])
        yield found == number, f"{what} of its launch bounds: found {found}, expected {number}"
    shared, most = smem + kernel.shared, ROOM[arch][0] * 1024
    yield shared + 1024 <= most, f"shared memory: found {shared} bytes a block, expected at most {most - 1024}"
    yield most < SMALL or blocks * (shared + 1024) <= most, (
        f"shared memory: found {blocks} blocks x {shared + 1024} bytes, expected at most {most}")
    yield blocks * threads <= ROOM[arch][1], (
        f"threads: found {blocks} blocks x {threads}, expected at most {ROOM[arch][1]}")
    held = -(-kernel.registers // 8) * 8
    yield blocks * threads * held <= REGISTERS, (
        f"registers: found {blocks} blocks x {threads} threads x {held}, expected at most {REGISTERS}")


def dependent(row, arch, ptx):
    """What may start before its predecessor ends waits for it before it reads, and lets its successor start."""
    if int(arch.rstrip("a")) < 90:
        return
    wait, trigger = (ptx.find("griddepcontrol." + word) for word in ("wait", "launch_dependents"))
    if row.pdl == "0":
        yield wait < 0 and trigger < 0, "pdl: found griddepcontrol in its PTX, expected none (or pdl 1)"
        return
    yield wait >= 0, "pdl: found no griddepcontrol.wait in its PTX, expected one"
    early = [m[0] for m in ACCESS.finditer(ptx[:wait]) if not re.search(r"[.](param|shared|local|const)", m[0])]
    if row.pdl == "2":
        early = [access for access in early if not access.startswith("ld.")]
    yield wait < 0 or not early, f"pdl: found {' '.join(early[:3])} before griddepcontrol.wait, expected it behind"
    yield trigger >= 0, "pdl: found no griddepcontrol.launch_dependents in its PTX, expected one"


def loop(kernel, cap):
    most, op, each = cap
    trip = kernel.main_loop(op)
    if not trip:
        return False, f"main loop: found none{' with ' + op if op else ''}, expected one"
    n = sass.count(trip[0], op) if each else 1
    of = f" for {n} {op}" if each else ""
    return trip[1] <= most * n, f"main loop: found {trip[1]} instructions a trip{of}, expected at most {most * n}"


def judge(row, arch, built):
    """(whether it holds, what was found and expected) of each thing that a row says."""
    kernel, log = built.kernels[row.name], built.log.get(row.name, {})
    most = int(value(row.regs, arch))
    yield kernel.registers <= most, f"registers: found {kernel.registers}, expected at most {most}"
    yield not kernel.lost, f"LDGSTS: found {kernel.lost} that ptxas gave no uniform registers, expected none"
    never = value(row.never, arch)
    for key, what in (("stack", "stack"), ("stores", "spill stores"), ("loads", "spill loads")):
        yield never == "~" or log.get(key) == 0, f"{what}: found {log.get(key)} bytes, expected 0"
    yield from launch(row, arch, built)
    for op, sign, number in needs(value(row.must, arch)):
        n, number = kernel.count(op), int(number)
        good = {">=": n >= number, "<=": n <= number, "=": n == number}[sign]
        yield good, f"{op}: found {n}, expected {sign} {number}"
    for op in never.split(",") if never not in ("-", "~") else []:
        yield not kernel.count(op), f"{op}: found {kernel.count(op)}, expected none"
    cap = loop_cap(value(row.loop, arch))
    trip = kernel.main_loop(cap and cap[1]) if never == "~" else None
    for op in ("LDL", "STL") if never == "~" else ():
        found = sass.count(trip[0], op) if trip else "no main loop"
        yield found == 0, f"{op} in the main loop: found {found}, expected none"
    cap = value(row.loop, arch)
    if cap != "-":
        yield loop(kernel, loop_cap(cap))
    yield from dependent(row, arch, built.ptx.get(row.name, ""))


def too_large(row, arch):
    """Whether no block of it fits: it is compiled there, and its host does not launch it."""
    return int(row.smem) + 1024 > ROOM[arch][0] * 1024


def judge_all(table, made, wanted, folder):
    """(whether it holds, the line to print) of everything."""
    for (file, arch), built in made.items():
        yield not built.said, f"{file} sm_{arch}: nvcc says: " + " | ".join(built.said[:5])
        for name in built.kernels:
            mine = any(r.name == name and r.file == file and (arch in archs(r) or too_large(r, arch)) for r in table)
            yield mine, f"{name} sm_{arch}: found in {file}, expected a row of kernels.tsv"
    for row in table:
        if not os.path.exists(os.path.join(folder, row.file)):
            yield False, f"{row.name}: its row names {row.file}, which is not there"
            continue
        for arch in (a for a in wanted if a in archs(row)):
            built = made[row.file, arch]
            there = row.name in built.kernels
            yield there, f"{row.name} sm_{arch}: found no such kernel in {row.file}, expected the one of its row"
            for good, what in judge(row, arch, built) if there else ():
                yield good, f"{row.name} sm_{arch}: {what}"


def told(made):
    """What was made, for who writes a row."""
    for (_, arch), built in made.items():
        for kernel in built.kernels.values():
            trip = kernel.main_loop()
            some = " ".join(f"{op}:{n}" for op, n in sorted(kernel.ops.items())
                            if op.split(".")[0] in sass.SUFFIXES or op in ("HMMA", "IMMA", "QMMA"))
            print(f"  {kernel.name} sm_{arch}: {kernel.registers} registers, {kernel.instructions} instructions, "
                  f"{trip[1] if trip else 0} in the longest loop, {some}")


def main(args):
    options = dict(word.lstrip("-").partition("=")[::2] for word in args if word.startswith("--"))
    if set(options) - {"kernels", "arch", "all"}:
        print("check_kernels.py [LQ] [--kernels=FOLDER] [--arch=80,90a] [--all]", file=sys.stderr)
        sys.exit(2)
    folder = options.get("kernels") or os.path.join(ROOT, "kernels", "cuda")
    wanted = list(ROOM) if "all" in options else options.get("arch", "80,90a").split(",")
    tsv = os.path.join(folder, "kernels.tsv")
    sources = os.path.isdir(folder) and [f for f in os.listdir(folder) if f.endswith(".cu")]
    if not sources:
        return skip("no .cu in", os.path.relpath(folder, ROOT))
    if not shutil.which("nvcc"):
        return skip("no nvcc in PATH")
    if not check(set(wanted) <= set(ROOM), f"--arch: found {','.join(wanted)}, expected of {','.join(ROOM)}"):
        return None
    if not check(os.path.exists(tsv), f"{tsv}: found none, expected one beside {' '.join(sorted(sources))}"):
        return None
    table, wrong = rows(tsv)
    for line in wrong:
        check(False, line)
    start = time.time()
    made = build_all(folder, table, wanted)
    told(made)
    print(f"{len(sources)} files for sm_{' sm_'.join(wanted)}: {len(made)} compilations in {time.time() - start:.1f} s")
    for good, line in judge_all(table, made, wanted, folder):
        check(good, line)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.exit(end())
