#!/usr/bin/python3
# quantize_kill.py LQ: `lq quantize` killed at random moments (SIGKILL, and SIGINT once): nothing stands under the output's name until
# it is whole, the same command goes on from what is there, and the output is the same to the byte as that of a run nobody disturbed.
# A dense model, and a mixture whose experts become stacks, one of them with an expert that F16 has no scales for; then gptq, whose sums and rows
# of the text are made anew from what stands in the journal.
import json
import os
import random
import struct
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kills import CONFIG, EXPERTS, MIXTURE, SLOW, SMALL, WATCHED, Case, digest, finish, forget, report, stack_model, vocabulary, write_model
from counted import check, end

lq = os.path.abspath(sys.argv[1])
KILLS = 3 if WATCHED else 6 if SLOW else 12
GPTQ = ["-m", "gptq", "--type", "int4 g32", "--samples", "8" if SLOW else "24"]


def check_stacks(out):
    """Experts are one weight, of one type, whatever one of them would like."""
    with open(out, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    types, name = json.loads(head["__metadata__"]["lq.types"]), "model.layers.%d.block_sparse_moe.experts.w1.weight"
    ffn = MIXTURE["intermediate_size"]
    for layer, scale in ((0, "f16"), (1, "f32")):
        want = f"int4 g32 asym {scale} {EXPERTS}x{ffn}x{MIXTURE['hidden_size']}"
        check(types.get(name % layer) == want, f"layer {layer}: {types.get(name % layer)}, expected {want}")
        check(head[name % layer + ".q"]["shape"][0] == EXPERTS, f"layer {layer}: no stack of codes")
    rows = {r["name"]: r for r in report(out)[0]["modules"]}
    check(len(rows) == 1 + 6 * (4 + 3), f"{len(rows)} modules in the report: experts one by one?")
    row = rows[name % 1]
    good = row["count"] == EXPERTS and 0 <= row["worst"] < EXPERTS and row["rel_error"] <= row["worst_error"] < 0.2
    check(good and "f32" in row["note"] and not rows[name % 0]["note"], f"the report says {row}")


def check_stacked(case):
    """The same mixture with one tensor for all experts gives the same file."""
    apart, case.model = case.model, case.out("stacked")
    stack_model(apart, case.model, MIXTURE)
    code, err = finish(case.start(case.out("stacked.lq")))
    check(code == 0 and digest(case.out("stacked.lq")) == case.whole, f"of stacks: exit {code}: {err}")
    case.model = apart


random.seed(11)
for config, kills in ((CONFIG, KILLS), (MIXTURE, KILLS // 2)):
    with tempfile.TemporaryDirectory() as folder:
        case = Case(lq, folder, os.path.join(folder, "model"), ["--type", "int4 g32 asym"])
        write_model(case.model, config)
        if case.undisturbed():
            if config is MIXTURE:
                check_stacks(case.out("whole.lq"))
                check_stacked(case)
            case.kill_often(kills)
            if config is MIXTURE or not WATCHED:
                case.interrupt()

FORMS = ((CONFIG, ["--type", "int4 g32 dq256"]), (CONFIG, ["--layout", "cuda"]), (MIXTURE, ["--layout", "x86", "--salient", "0.02"]))
for config, more in FORMS:
    with tempfile.TemporaryDirectory() as folder:
        case = Case(lq, folder, os.path.join(folder, "model"), [*GPTQ, *more])
        write_model(case.model, dict(config, **SMALL))
        vocabulary(case.model)
        case.limit()
        if case.undisturbed():
            print(f"{' '.join(case.words)}: {case.seconds:.2f} s a run")
            case.kill_often(KILLS // 3)
            if more is FORMS[-1][1] or not WATCHED:
                case.interrupt()
                case.disk_full()
                case.elsewhere()

# Pruned before, and refitted: killed while it is, the run begins anew; later, it goes on with what is left.
with tempfile.TemporaryDirectory() as folder:
    case = Case(lq, folder, os.path.join(folder, "model"), [*GPTQ, "--samples", "8", "--prune", "depth:1,mlp:0.75"])
    write_model(case.model, dict(CONFIG, **SMALL))
    vocabulary(case.model)
    if case.undisturbed():
        out = case.out("killed.lq")
        case.kill_often(KILLS // 3 if SLOW else KILLS // 6)
        check(not os.path.exists(out + ".pruned.lq") and not os.path.exists(out + ".cut.lq"), f"{out}.pruned.lq or .cut.lq is left behind")
        forget(out)
        finish(case.start(out))
        check(report(out)[0] == case.clean, "the report of a pruned run differs from that of an undisturbed one")
sys.exit(end())
