# on_device.py: what check_device.py and check_device_quantize.py share: the program, and the device "cuda" that it is given: the GPU that is here if LQ_REAL_GPU
# is in the environment, else the emulated one beside the program (tests/cuda/gpu_emu.c).
import os
import subprocess
import sys

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
for folder in ("..", "../golden"):
    sys.path.insert(0, os.path.join(here, folder))
from counted import skip

lq = os.path.abspath(sys.argv[1])
root = os.path.join(here, "..", "..")
demo = os.path.join(root, "calib_data", "demo")
plugin = os.path.join(os.path.dirname(lq), "emulated")
real_gpu = "LQ_REAL_GPU" in os.environ


def run(*words, **more):
    return subprocess.run([lq, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=dict(os.environ, **more))


def divergence(exact, near):
    """KL divergence of each row, in the mean."""
    p, q = ((x := m.astype("f8")) - x.max(1, keepdims=True) for m in (exact, near))
    p, q = p - np.log(np.exp(p).sum(1, keepdims=True)), q - np.log(np.exp(q).sum(1, keepdims=True))
    return float((np.exp(p) * (p - q)).sum(1).mean())


def found():
    """Whether there is a device, which programs that are run from here on find."""
    if real_gpu:
        return True
    if not os.path.exists(os.path.join(plugin, "liblq_cuda.so")):
        skip("no C++ compiler made the emulated plug-in")
        return False
    os.environ["LD_LIBRARY_PATH"] = plugin
    return True
