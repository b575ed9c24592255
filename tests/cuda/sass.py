#!/usr/bin/python3
# sass.py FILE.cubin...: what nvcc made of kernels, read from the cubin alone, for machines without cuobjdump: of each
# its instructions, the operations with the size of their access, registers, stack, shared memory and its loops. It owns
# the names of operations (nvcc 13.0, sm_80 to sm_120; check_sass.py calibrates them) and refuses what is no such cubin.
# Spills stand in no cubin: ptxas_log() reads them from what `ptxas -v` says.
import collections
import re
import struct
import sys

# An instruction has 16 bytes: bits 0..8 are the operation, 9..11 the form of its operands, 12..15 the predicate.
NAMES = {
    0x002: "MOV", 0x005: "CS2R", 0x006: "VOTE", 0x007: "SEL", 0x008: "FSEL", 0x009: "FMNMX", 0x00b: "FSETP",
    0x00c: "ISETP", 0x010: "IADD3", 0x011: "LEA", 0x012: "LOP3", 0x013: "IABS", 0x014: "VABSDIFF", 0x016: "PRMT",
    0x017: "IMNMX", 0x019: "SHF", 0x01c: "PLOP3", 0x020: "FMUL", 0x021: "FADD", 0x023: "FFMA", 0x024: "IMAD",
    0x025: "IMAD", 0x026: "IDP", 0x027: "IMAD", 0x028: "DMUL", 0x029: "DADD", 0x02a: "DSETP", 0x02b: "DFMA",
    0x02d: "PREEXIT", 0x02e: "ACQBULK", 0x02f: "ELECT", 0x030: "HADD2", 0x031: "HFMA2", 0x032: "HMUL2",
    0x033: "HSET2", 0x034: "HSETP2", 0x035: "HFMA2", 0x036: "VIADD", 0x037: "IMMA", 0x03b: "LDSM", 0x03c: "HMMA",
    0x03e: "F2FP", 0x040: "HMNMX2", 0x044: "STSM", 0x045: "I2FP", 0x046: "VIADDMNMX", 0x048: "VIMNMX",
    0x076: "FMNMX3", 0x07a: "QMMA", 0x082: "UMOV", 0x086: "VOTEU", 0x087: "USEL", 0x08c: "UISETP", 0x090: "UIADD3",
    0x091: "ULEA", 0x092: "ULOP3", 0x096: "UPRMT", 0x097: "UIADD3", 0x099: "USHF", 0x0a4: "UIMAD", 0x0a5: "UIMAD",
    0x0b9: "ULDC", 0x0bd: "UFLO", 0x0be: "UBREV", 0x0bf: "UPOPC", 0x0ca: "R2UR", 0x0cc: "CREDUX", 0x100: "FLO",
    0x101: "BREV", 0x102: "FCHK", 0x105: "F2I", 0x106: "I2F", 0x107: "FRND", 0x108: "MUFU", 0x109: "POPC",
    0x110: "F2F", 0x111: "F2I", 0x112: "I2F", 0x118: "NOP", 0x119: "S2R", 0x11a: "DEPBAR", 0x11c: "B2R", 0x11d: "BAR",
    0x141: "BSYNC", 0x143: "CALL", 0x144: "CALL", 0x145: "BSSY", 0x147: "BRA", 0x148: "WARPSYNC", 0x149: "BRX",
    0x14d: "EXIT", 0x14e: "LEPC", 0x150: "RET", 0x15c: "BPT", 0x15d: "NANOSLEEP", 0x180: "LD", 0x181: "LDG",
    0x182: "LDC", 0x183: "LDL", 0x184: "LDS", 0x185: "ST", 0x186: "STG", 0x187: "STL", 0x188: "STS", 0x189: "SHFL",
    0x18c: "ATOMS", 0x18d: "ATOMS", 0x18e: "REDG", 0x18f: "CCTL", 0x192: "MEMBAR", 0x1a1: "MATCH", 0x1a3: "ATOMG",
    0x1a6: "REDG", 0x1a7: "SYNCS", 0x1a8: "ATOMG", 0x1a9: "ATOMG", 0x1ab: "ERRBAR", 0x1ac: "LDCU", 0x1ae: "LDGSTS",
    0x1af: "LDGDEPBAR", 0x1b2: "SYNCS", 0x1b4: "UTMALDG", 0x1b5: "UTMASTG", 0x1ba: "UBLKCP", 0x1c3: "S2UR",
    0x1c4: "REDUX", 0x1c5: "WARPGROUP", 0x1c6: "FENCE", 0x1c8: "USETMAXREG", 0x1f0: "HGMMA", 0x1f1: "IGMMA",
    0x1f3: "QGMMA"}
LOST = 0xdae  # LDGSTS [register + uniform register] with an L2 policy in the next one: ptxas 13.0 for sm_90a leaves their number 0
LATER = {0x035: "IADD"}  # what a number means from sm_100 on, where it meant something else before
WIDTHS = ("U8", "S8", "U16", "S16", "32", "64", "128")
SIZED = {"LD", "LDG", "LDL", "LDS", "ST", "STG", "STL", "STS", "LDGSTS"}
SUFFIXES = {**{name: WIDTHS for name in SIZED}, "LDGSTS": ("32", "64", "128"), "LDSM": ("x1", "x2", "x4"),
            "STSM": ("x1", "x2", "x4"), "UBLKCP": ("LOAD", "STORE"),
            "HGMMA": ("SS", "RS"), "IGMMA": ("SS", "RS"), "QGMMA": ("SS", "RS")}


class Kernel:
    """instructions: all but the NOPs that fill up; ops: how often each operation is executed, in a Counter; lost: copies
    whose registers ptxas has not named."""

    def __init__(self, name, arch, code):
        self.name, self.arch = name, arch
        self.registers = self.stack = self.shared = 0
        words = list(struct.iter_unpack("<QQ", code))
        self.listing = [(operation(lo, hi, arch), lo >> 12 & 15 != 15) for lo, hi in words]
        self.lost = sum(lo & 0xfff == LOST and hi & 0x3f < 4 for lo, hi in words)
        self.instructions = sum(op != "NOP" for op, _ in self.listing)
        self.ops = counted(self.listing)
        self.loops = [span for i, (lo, hi) in enumerate(words) if (span := backward(i, lo, hi, arch))]

    def count(self, op):
        return count(self.ops, op)

    def main_loop(self, op=None):
        """(operations of a trip, how many) of the longest loop, or of the one in which op is densest; or None."""
        trips = [counted(self.listing[first:last + 1]) for first, last in self.loops]
        trips = [(trip, trip.total()) for trip in trips if not op or count(trip, op)]
        return max(trips, key=lambda trip: (count(trip[0], op) / trip[1] if op else 0, trip[1]), default=None)


def operation(lo, hi, arch):
    """LDG.128, LDSM.x4, HGMMA.RS, FFMA; op_123 for a number without a name."""
    base = lo & 0x1ff
    name = LATER.get(base) if arch >= 100 else None
    name = name or NAMES.get(base) or f"op_{base:03x}"
    if name in SIZED:
        return f"{name}.{(*WIDTHS, '?')[hi >> (10 if name == 'LDGSTS' and arch >= 100 else 9) & 7]}"
    if name in ("LDSM", "STSM"):
        return f"{name}.x{1 << (hi >> 8 & 3)}"
    if name in ("HGMMA", "IGMMA", "QGMMA"):
        return name + (".RS" if lo & 0x400 else ".SS")
    if name == "UBLKCP":
        return name + (".LOAD" if hi >> 9 & 1 else ".STORE")
    return name


def counted(listing):
    """What is executed of a piece of code: ptxas puts instructions under !PT before cp.async, which never are."""
    return collections.Counter(op for op, executed in listing if executed and op != "NOP")


def count(ops, op):
    """How many of an operation: LDG stands for LDG of every size, LDG.128 for itself."""
    return sum(n for name, n in ops.items() if name == op or name.startswith(op + "."))


def known(op):
    """Whether an operation is one that a kernel can have: a name misspelt would never be found, nor missed."""
    name, _, suffix = op.partition(".")
    return name in {*NAMES.values(), *LATER.values()} and (not suffix or suffix in SUFFIXES.get(name, ()))


def backward(i, lo, hi, arch):
    """(first, last) of the loop that instruction i closes. The distance of a BRA, in words, is bits 34..81, from sm_90
    on with eight lower ones in bits 16..23."""
    if lo & 0x1ff != 0x147:
        return None
    words, bits = (hi << 64 | lo) >> 34 & (1 << 48) - 1, 48
    if arch >= 90:
        words, bits = words << 8 | lo >> 16 & 0xff, 56
    target = i + 1 + (words - (words >> bits - 1 << bits)) // 4
    return (target, i) if 0 <= target < i else None


def read(path):
    """{name: Kernel} of a cubin (ELF64)."""
    data = open(path, "rb").read()
    if data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", data, 18)[0] != 190 or data[8] != 8:
        raise ValueError(f"{path}: no cubin of CUDA 13 (ELF64, machine 190, ABI 8)")
    arch = struct.unpack_from("<I", data, 48)[0] >> 8 & 0xff
    table, (size, n, strings) = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<HHH", data, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(n)]

    def text(head, at):
        return data[head[4] + at:data.index(b"\0", head[4] + at)].decode()

    def content(head):
        return data[head[4]:head[4] + head[5]]

    sections = {text(heads[strings], head[0]): head for head in heads}
    symbols = sections[".symtab"]
    names = [text(heads[symbols[6]], entry[0]) for entry in struct.iter_unpack("<IBBHQQ", content(symbols))]
    kernels = {name[6:]: Kernel(name[6:], arch, content(head))
               for name, head in sections.items() if name.startswith(".text.")}
    for symbol, attribute, value in attributes(content(sections[".nv.info"])):
        kernel = kernels.get(names[symbol])
        if kernel and attribute == 0x2f:
            kernel.registers = value
        elif kernel and attribute == 0x11:
            kernel.stack = value
    for name, kernel in kernels.items():
        head = sections.get(".nv.shared." + name)
        reserved = 1024 if arch >= 90 else 0  # the system's own of each block, which the section counts from sm_90 on
        kernel.shared = max(head[5] - reserved, 0) if head else 0
    return kernels


def attributes(info):
    """(symbol, attribute, value) of .nv.info: records of form, attribute, and length (form 4) or value."""
    at = 0
    while at < len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if form == 4 and size == 8:
            symbol, value = struct.unpack_from("<II", info, at + 4)
            yield symbol, attribute, value
        at += 4 + (size if form == 4 else 0)


def ptxas_log(text):
    """{name: {registers, stack, stores, loads, shared}} of what `ptxas -v` says; stores and loads are bytes spilled."""
    kernels = {}
    for part in re.split(r"Compiling entry function '", text)[1:]:
        figure = {key: int((re.search(r"(\d+) " + words, part) or [0, 0])[1]) for key, words in (
            ("registers", "registers"), ("stack", "bytes stack frame"), ("stores", "bytes spill stores"),
            ("loads", "bytes spill loads"), ("shared", "bytes smem"))}
        kernels[part[:part.index("'")]] = figure
    return kernels


def main(paths):
    for path in paths:
        for kernel in read(path).values():
            print(f"{kernel.name}: sm_{kernel.arch}, {kernel.instructions} instructions, {kernel.registers} registers, "
                  f"{kernel.stack} bytes of stack, {kernel.shared} of shared memory")
            print("    executed", *(f"{op}:{n}" for op, n in kernel.ops.most_common()))
            if loop := kernel.main_loop():
                print("    longest loop", loop[1], "a trip:", *(f"{op}:{n}" for op, n in loop[0].most_common()))


if __name__ == "__main__":
    main(sys.argv[1:])
