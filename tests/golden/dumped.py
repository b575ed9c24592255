# dumped.py: the logits of a model as lq computes them, by the program dump_logits that is built beside it.
import os
import subprocess
import sys

import numpy as np

dump = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "dump_logits")


def logits(path, tokens, isa="auto", threads=2, batch=512, mode="exact", ids=None, pool=None, **more):
    """[tokens][vocab], or None, and what was said. ids: a file of them; not given: the one in the model's folder.
    pool, last or mean: an embedding, [1][dim]; tail: [9][vocab], the last ones. more: of the environment."""
    folder, out = path if os.path.isdir(path) else os.path.dirname(path), path + ".out"
    words = [dump, path, ids or os.path.join(folder, "ids.bin"), out, tokens, isa, threads, batch, mode, *([pool] if pool else [])]
    r = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=dict(os.environ, **more))
    return (np.fromfile(out, "<f4").reshape({None: tokens, "tail": 9}.get(pool, 1), -1), r.stderr.strip()) if r.returncode == 0 else (None, r.stderr.strip())
