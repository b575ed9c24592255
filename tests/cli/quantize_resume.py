#!/usr/bin/python3
# quantize_resume.py LQ: kills and full disks of the methods that look at text: what quantize_kill.py does with gptq, of awq, smoothquant (a mixture)
# and auto, which must not measure again what it measured before it was killed.
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kills import CONFIG, MIXTURE, SLOW, SMALL, WATCHED, Case, vocabulary, write_model
from counted import end

lq = os.path.abspath(sys.argv[1])
random.seed(12)
METHODS = ((CONFIG, ["-m", "awq", "--type", "int4 g32 asym"]), (MIXTURE, ["-m", "smoothquant"]), (CONFIG, ["-m", "auto", "--target-bits", "4.6"]))
for config, words in METHODS:
    with tempfile.TemporaryDirectory() as folder:
        case = Case(lq, folder, os.path.join(folder, "model"), [*words, "--samples", "4" if WATCHED else "8"], other=["--seed", "1"])
        write_model(case.model, dict(config, **SMALL))
        vocabulary(case.model)
        if case.undisturbed():
            print(f"{' '.join(case.words)}: {case.seconds:.2f} s a run")
            case.kill_often(1 if WATCHED else 3 if SLOW else 10)
            if words is METHODS[-1][1] or not WATCHED:
                case.interrupt()
                case.disk_full()
sys.exit(end())
