#!/usr/bin/python3
# check_sass.py [--nvdisasm PROGRAM]: calibrates sass.py. Kernels of one PTX instruction are assembled for each
# architecture, and what the reader finds in them beyond an empty kernel must be that instruction, by name and size, and
# nothing that it has no name for; its registers, stack and shared memory must be what ptxas says. So a toolkit that
# codes otherwise is noticed. With an nvdisasm the whole listings are held against it: names and targets of branches.
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, ".."))
import sass
from counted import check, end, skip

ARCHS = ("80", "86", "89", "90a", "100", "120")
FOUR, SUMS = "{%r1,%r2,%r3,%r4}", "{%f1,%f2,%f3,%f4}"
A = "{%r0,%r0,%r0,%r0}"
ZERO = "".join(f"mov.u32 %r{i},%r0; mov.f32 %f{i},%f0; " for i in range(1, 5))
OUT, OUT_SUMS = f"st.global.v4.u32 [%g],{FOUR};", f"st.global.v4.f32 [%g],{SUMS};"
LATE, ONLY = ("90a", "100", "120"), ("90a",)


def mma(what, sums):
    return ZERO + f"mma.sync.aligned.{what} {sums},{A},{{%r0,%r0}},{sums}; "


def wgmma(what):
    return (ZERO + f"wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.{what}; "
            "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; ")


# name: (architectures, PTX, what of WATCHED it adds). %r0, %f0 and %g (a global address) are given.
CASES = {
    "ldmatrix": (ARCHS, f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {FOUR},[%r0]; {OUT}", "LDSM.x4 STG.128"),
    "ldmatrix_trans": (ARCHS, f"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {FOUR},[%r0]; {OUT}", "LDSM.x4 STG.128"),
    "ldmatrix_x1": (ARCHS,
                    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1},[%r0]; st.global.u32 [%g],%r1;", "LDSM.x1 STG.32"),
    "mma_bf16": (ARCHS, mma("m16n8k16.row.col.f32.bf16.bf16.f32", SUMS) + OUT_SUMS, "HMMA STG.128"),
    "mma_f16": (ARCHS, mma("m16n8k16.row.col.f32.f16.f16.f32", SUMS) + OUT_SUMS, "HMMA STG.128"),
    "mma_s8": (ARCHS, mma("m16n8k32.row.col.s32.s8.s8.s32", FOUR) + OUT, "IMMA STG.128"),
    "mma_e4m3": (("89", "120"), mma("m16n8k32.row.col.f32.e4m3.e4m3.f32", SUMS) + OUT_SUMS, "QMMA STG.128"),
    "cp_async_4": (ARCHS, "cp.async.ca.shared.global [%r0],[%g],4;", "LDGSTS.32"),
    "cp_async_8": (ARCHS, "cp.async.ca.shared.global [%r0],[%g],8;", "LDGSTS.64"),
    "cp_async_16": (ARCHS, "cp.async.cg.shared.global [%r0],[%g],16;", "LDGSTS.128"),
    "cp_async_fill": (ARCHS, "cp.async.cg.shared.global [%r0],[%g],16,%r0;", "LDGSTS.128"),
    "cp_async_wait": (ARCHS, "cp.async.commit_group; cp.async.wait_group 0;", "LDGDEPBAR DEPBAR"),
    "ld_u8": (ARCHS, "ld.global.u8 %r1,[%g]; st.global.u8 [%g+9],%r1;", "LDG.U8 STG.U8"),
    "ld_s8": (ARCHS, "ld.global.s8 %r1,[%g]; st.global.u32 [%g+8],%r1;", "LDG.S8 STG.32"),
    "ld_u16": (ARCHS, "ld.global.u16 %h0,[%g]; st.global.u16 [%g+8],%h0;", "LDG.U16 STG.U16"),
    "ld_u32": (ARCHS, "ld.global.u32 %r1,[%g]; st.global.u32 [%g+8],%r1;", "LDG.32 STG.32"),
    "ld_v2": (ARCHS, "ld.global.v2.u32 {%r1,%r2},[%g]; st.global.v2.u32 [%g+8],{%r1,%r2};", "LDG.64 STG.64"),
    "ld_v4": (ARCHS, f"ld.global.v4.u32 {FOUR},[%g]; st.global.v4.u32 [%g+16],{FOUR};", "LDG.128 STG.128"),
    "ld_nc_v4": (ARCHS, f"ld.global.nc.v4.u32 {FOUR},[%g]; st.global.v4.u32 [%g+16],{FOUR};", "LDG.128 STG.128"),
    "ld_shared_v2": (ARCHS, "ld.shared.v2.u32 {%r1,%r2},[%r0]; st.global.v2.u32 [%g],{%r1,%r2};", "LDS.64 STG.64"),
    "ld_shared_v4": (ARCHS, f"ld.shared.v4.u32 {FOUR},[%r0]; {OUT}", "LDS.128 STG.128"),
    "st_shared": (ARCHS, "st.shared.u32 [%r0],%r0; st.shared.u8 [%r0+4],%r0; st.shared.v2.u32 [%r0+8],{%r0,%r0}; "
                  f"st.shared.v4.u32 [%r0+16],{A};", "STS.32 STS.U8 STS.64 STS.128"),
    "generic": (ARCHS, f"cvta.global.u64 %g,%g; ld.v4.u32 {FOUR},[%g]; st.v4.u32 [%g+16],{FOUR};", "LD.128 ST.128"),
    "local": (ARCHS, ".local .align 16 .b8 room[256]; mov.u32 %r5,room; add.u32 %r5,%r5,%r0; st.local.u32 [%r5],%r0; "
              f"st.local.v4.u32 [%r5+16],{A}; add.u32 %r5,%r5,%r0; ld.local.v4.u32 {FOUR},[%r5]; {OUT} "
              "ld.local.u32 %r1,[%r5+32]; st.global.u32 [%g+16],%r1;", "STL.32 STL.128 LDL.128 LDL.32 STG.128 STG.32"),
    "room": (ARCHS, ".shared .align 16 .b8 tile[5120]; mov.u32 %r1,tile; add.u32 %r1,%r1,%r0; st.shared.u32 [%r1],%r0; "
             "ld.shared.u32 %r2,[%r1+64]; st.global.u32 [%g],%r2;", "STS.32 LDS.32 STG.32"),
    "barrier": (ARCHS, "bar.sync 0;", "BAR"),
    "shuffle": (ARCHS,
                "mov.u32 %r1,%tid.x; shfl.sync.bfly.b32 %r1,%r1,16,31,-1; st.global.u32 [%g],%r1;", "SHFL STG.32"),
    "ex2": (ARCHS, "ex2.approx.ftz.f32 %f1,%f0; st.global.f32 [%g],%f1;", "MUFU STG.32"),
    "double": (ARCHS,
               "ld.global.f64 %d0,[%g]; fma.rn.f64 %d0,%d0,%d0,%d0; st.global.f64 [%g],%d0;", "LDG.64 DFMA STG.64"),
    "red": (ARCHS, "red.global.add.f32 [%g],%f0;", "REDG"),
    "griddepcontrol_wait": (LATE, "griddepcontrol.wait;", "ACQBULK"),
    "griddepcontrol_launch": (LATE, "griddepcontrol.launch_dependents;", "PREEXIT"),
    "stmatrix": (LATE, f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r0],{A};", "STSM.x4"),
    "mbarrier": (LATE, "mbarrier.arrive.expect_tx.shared.b64 _,[%r0],1024;", "SYNCS"),
    "bulk_load": (ONLY, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0],[%g],1024,[%r0];",
                  "UBLKCP.LOAD"),
    "bulk_store": (LATE, "cp.async.bulk.global.shared::cta.bulk_group [%g],[%r0],1024;", "UBLKCP.STORE"),
    "tma_load": (ONLY, "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%r0],[%g,{%r0,%r0}],[%r0];", "UTMALDG"),
    "tma_store": (LATE, "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%g,{%r0,%r0}],[%r0];", "UTMASTG"),
    "setmaxnreg": (ONLY, "setmaxnreg.inc.sync.aligned.u32 232;", "USETMAXREG"),
    "wgmma_ss": (ONLY,
               wgmma(f"m64n8k16.f32.bf16.bf16 {SUMS},%g,%g,1,1,1,0,0") + OUT_SUMS, "HGMMA.SS WARPGROUP:2 STG.128"),
    "wgmma_rs": (ONLY,
               wgmma(f"m64n8k16.f32.bf16.bf16 {SUMS},{A},%g,1,1,1,0") + OUT_SUMS, "HGMMA.RS WARPGROUP:2 STG.128"),
    "wgmma_s8": (ONLY, wgmma(f"m64n8k32.s32.s8.s8 {FOUR},{A},%g,1") + OUT, "IGMMA.RS WARPGROUP:2 STG.128"),
    "wgmma_e4m3": (ONLY,
                 wgmma(f"m64n8k32.f32.e4m3.e4m3 {SUMS},%g,%g,1,1,1") + OUT_SUMS, "QGMMA.SS WARPGROUP:2 STG.128"),
    # Three in the inner loop, one more in the outer one, one behind both.
    "loops": (ARCHS, "mov.u32 %r1,0; OUTER: .pragma \"nounroll\"; mov.u32 %r2,0; INNER: .pragma \"nounroll\"; "
              "bar.sync 0; bar.sync 0; bar.sync 0; add.u32 %r2,%r2,1; "
              "setp.lt.u32 %p0,%r2,%r0; @%p0 bra INNER; bar.sync 0; membar.cta; add.u32 %r1,%r1,1; "
              "setp.lt.u32 %p0,%r1,%r0; @%p0 bra OUTER; bar.sync 0;", "BAR:5"),
    "spills": (ARCHS, "".join(f"ld.volatile.global.u32 %s{i},[%g+{4 * i}]; " for i in range(96)) +
               "".join(f"st.volatile.global.u32 [%g+{4 * i}],%s{95 - i}; " for i in range(96)), None),
}
WATCHED = {*sass.SUFFIXES, "HMMA", "IMMA", "QMMA", "UTMALDG", "UTMASTG", "USETMAXREG", "ACQBULK", "PREEXIT", "SYNCS",
           "WARPGROUP", "BAR", "LDGDEPBAR", "DEPBAR", "SHFL", "ATOMG", "ATOMS", "REDG", "MUFU", "DFMA"}
EXTRA = {"setmaxnreg": ".maxntid 384, 1, 1 .minnctapersm 1", "spills": ".maxnreg 24"}
# An instruction of nvdisasm's listing: its name, the label it goes to.
LISTED = re.compile(r"\s+/\*[0-9a-f]+\*/\s+\{?\s*(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(?:.*`\((\.L_x_\d+)\))?")


def kernel(name, body):
    return f""".visible .entry {name}(.param .u64 p, .param .u32 q, .param .f32 f) {EXTRA.get(name, "")}
{{ .reg .b64 %g; .reg .b32 %r<8>; .reg .b32 %s<96>; .reg .b16 %h<2>; .reg .f32 %f<8>; .reg .f64 %d<2>; .reg .pred %p<2>;
ld.param.u64 %g,[p]; cvta.to.global.u64 %g,%g; ld.param.u32 %r0,[q]; ld.param.f32 %f0,[f];
{body}
ret; }}
"""


def assembled(folder, arch):
    """(kernels, log, cubin) of all cases of one architecture, or None."""
    source, cubin = (os.path.join(folder, arch + ending) for ending in (".ptx", ".cubin"))
    with open(source, "w") as out:
        out.write(f".version 8.7\n.target sm_{arch}\n.address_size 64\n" + kernel("empty", ""))
        out.write("".join(kernel(name, body) for name, (archs, body, _) in CASES.items() if arch in archs))
    r = subprocess.run(["ptxas", "-v", "-arch", "sm_" + arch, source, "-o", cubin], capture_output=True, text=True)
    if not check(r.returncode == 0, f"sm_{arch}: ptxas", r.stderr[:2000]):
        return None
    return sass.read(cubin), sass.ptxas_log(r.stderr), cubin


def beyond(kernel, empty):
    return {op: n for op, n in (kernel.ops - empty.ops).items() if op.partition(".")[0] in WATCHED}


def expected(words):
    return {op: int(n or 1) for op, _, n in (word.partition(":") for word in words.split())}


def compare(arch, kernels, log):
    for name, (archs, _, words) in CASES.items():
        if arch not in archs:
            continue
        found = kernels.get(name)
        if not check(found and name in log, f"sm_{arch} {name}: read from the cubin, told by ptxas"):
            continue
        if words:
            got, want = beyond(found, kernels["empty"]), expected(words)
            check(got == want, f"sm_{arch} {name}: found {got}, expected {want}")
        unknown = [op for op in found.ops if op.startswith("op_") or op.endswith("?")]
        check(not unknown, f"sm_{arch} {name}: operations without a name: {unknown}")
        told = {key: log[name][key] for key in ("registers", "stack", "shared")}
        cubin = {key: getattr(found, key) for key in told}
        check(cubin == told, f"sm_{arch} {name}: found {cubin}, ptxas says {told}")
    check(kernels["local"].stack == 256, f"sm_{arch}: the stack of 256 bytes", kernels["local"].stack)
    check(kernels["room"].shared == 5120, f"sm_{arch}: 5,120 bytes of shared memory", kernels["room"].shared)


def loops(arch, kernels):
    """The longest loop is the outer one; the one with most barriers in its instructions the inner one, of three."""
    kernel = kernels["loops"]
    outer, inner = kernel.main_loop(), kernel.main_loop("BAR")
    if check(outer and inner and len(kernel.loops) == 2, f"sm_{arch} loops: found {kernel.loops}, expected two"):
        check(outer[0]["BAR"] == 4 and inner[0]["BAR"] == 3 and inner[1] < outer[1],
              f"sm_{arch} loops: found {outer}, {inner}")
    check(kernels["empty"].main_loop() is None, f"sm_{arch}: an empty kernel has no loop")


def spills(arch, kernels, log):
    """Ninety-six values in twenty-four registers."""
    kernel, told = kernels["spills"], log["spills"]
    check(told["stores"] > 0 and told["loads"] > 0 and kernel.count("STL") > 0 and kernel.count("LDL") > 0,
          f"sm_{arch} spills: {told}, {kernel.ops}")
    check(not any(figure["stores"] or figure["loads"] for name, figure in log.items() if name != "spills"),
          f"sm_{arch}: spills where there are none")


def disassembled(program, arch, kernels, cubin):
    """Every instruction's name, and every backward branch, as nvdisasm has them."""
    text = subprocess.run([program, "-c", cubin], capture_output=True, text=True).stdout
    other = collections.defaultdict(list)
    for line in text.splitlines():
        if line.startswith(".text."):
            name, labels, jumps = line[6:].rstrip(":"), {}, []
        elif m := re.match(r"(\.L_x_\d+):", line):
            labels[m[1]] = len(other[name])
        elif m := LISTED.match(line):
            other[name].append(m[1])
            if m[1].startswith("BRA") and m[2] in labels and labels[m[2]] < len(other[name]) - 1:
                jumps.append((labels[m[2]], len(other[name]) - 1))
                check(jumps[-1] in kernels[name].loops, f"sm_{arch} {name}: the loop {jumps[-1]} of nvdisasm")
    for name, kernel in kernels.items():
        names = [full.split(".")[0] for full in other[name]]
        mine = [op.split(".")[0] for op, _ in kernel.listing]
        wrong = {pair for pair in zip(mine, names) if pair[0] != pair[1]} - {("REDG", "RED"), ("ERRBAR", "CGAERRBAR")}
        check(len(mine) == len(names) and not wrong, f"sm_{arch} {name}: (reader, nvdisasm) {wrong}")
        for (op, _), full in zip(kernel.listing, other[name]):
            width = op.partition(".")[2]
            if width in ("64", "128", "U8", "S8", "U16", "S16") and op.split(".")[0] in sass.SIZED:
                check(width in full.split("."), f"sm_{arch} {name}: {op} is {full}")


def main(args):
    if not shutil.which("ptxas"):
        skip("no ptxas (CUDA's assembler) in PATH")
        return
    with tempfile.TemporaryDirectory() as folder:
        for arch in ARCHS:
            made = assembled(folder, arch)
            if made:
                compare(arch, *made[:2])
                loops(arch, made[0])
                spills(arch, *made[:2])
                if "--nvdisasm" in args:
                    disassembled(args[args.index("--nvdisasm") + 1], arch, made[0], made[2])


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.exit(end())
