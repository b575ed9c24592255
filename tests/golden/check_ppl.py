#!/usr/bin/python3
# check_ppl.py LQ: perplexity of real models (stories260K and babyllama of shared/data, llama2.c files read by llama2c.py) by both protocols,
# against the numpy Llama: within 0.1 %; then the same weights rounded to int4 and int8, against the numpy rounding of rtn_reference.py.
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, ".."))
import decoder_np
import llama2c
import rtn_reference
from counted import end, skip, told as check

lq, data = os.path.abspath(sys.argv[1]), os.path.join(here, "../../../shared/data/models")
MODELS = (("stories260K", "stories260K.bin", "tok512.model"), ("babyllama/tok105", "model5000.bin", "tok105.model"))
text = os.path.join(here, "../../calib_data/test.txt")
CHARS = 6000


def run(*args):
    r = subprocess.run([lq, *args], capture_output=True, text=True)
    if r.returncode:
        check(False, f"lq {' '.join(args)}: {r.stderr.strip()}")
    return r.stdout


def rows_joined(s):
    """The text as the datasets library has it: a row a line with its newline, "" for a blank one, joined by two newlines."""
    return "\n\n".join(line if line.strip() else "" for line in s.splitlines(keepends=True))


def encode_parsed(vocab, s):
    """Ids of a text in which "</s>" is the token 2, and what is behind it begins anew."""
    first, *others = s.split("</s>")
    return llama2c.encode(vocab, first) + [i for part in others for i in [2] + llama2c.encode(vocab, part)[1:]]


def reference(cfg, w, ids, protocol):
    window = cfg["max_position_embeddings"]  # 512: the model holds no more
    if protocol == "gptq2048":
        return decoder_np.perplexity(cfg, w, ids, window, 0)
    cut = list(ids[: len(ids) // window * window])
    cut[::window] = [cfg["bos_token_id"]] * (len(cut) // window)
    return decoder_np.perplexity(cfg, w, cut, window, window // 2)


def rounded(w, kind):
    """All matrices rounded as `lq quantize` does: the decoder's to `kind`, the embedding to int8 by rows."""
    out = {}
    for name, a in w.items():
        if a.ndim == 2:
            bits, group = (8, 0) if "embed" in name or kind == "int8" else (4, int(kind.split("g")[1]))
            a = rtn_reference.dequantize(*rtn_reference.quantize(a.astype(np.float32), bits, group, False), group).astype(np.float64)
        out[name] = a
    return out


def main(folder, name, model, tokenizer):
    model, tokenizer = os.path.join(data, name, model), os.path.join(data, name, tokenizer)
    cfg, raw = llama2c.write(model, tokenizer, os.path.join(folder, "model"))
    vocab = llama2c.pieces(tokenizer)
    sample = open(text, encoding="utf-8").read()[:CHARS]
    if any(kind == 6 for _, _, kind in vocab):
        sample = sample.replace(".\n", ".</s>\n", 3)
    else:  # babyllama's tokenizer knows no bytes and makes one space of several
        sample = re.sub(" +", " ", sample).replace("\n ", "\n")
    open(os.path.join(folder, "text.txt"), "w", encoding="utf-8").write(sample)
    ids = {"llamacpp512": llama2c.encode(vocab, sample), "gptq2048": encode_parsed(vocab, rows_joined(sample))}
    w = {k: v.astype(np.float64) for k, v in raw.items()}
    plain = {}
    for kind in ("f32", "int4 g32", "int4 g128", "int8"):
        path = os.path.join(folder, "model")
        if kind != "f32":
            path = os.path.join(folder, kind.replace(" ", "-") + ".lq")
            run("quantize", os.path.join(folder, "model"), path, "--method", "rtn", "--type", kind, "--quiet")
        weights = w if kind == "f32" else rounded(w, kind)
        for protocol in ids:
            out = run("eval", path, "--text", os.path.join(folder, "text.txt"), "--protocol", protocol, "--exact", "--json")
            if not out:
                continue
            got = json.loads(out)["results"][0]
            want, tokens = reference(cfg, weights, ids[protocol], protocol)
            rise = f", {want / plain.setdefault(protocol, want) - 1:+.2%} of f32"
            check(abs(got["perplexity"] / want - 1) < 1e-3 and got["tokens"] == tokens,
                  f"{name} {kind} {protocol}: {got['perplexity']:.4f} of {got['tokens']} tokens, the reference {want:.4f} of {tokens}{rise}")


for words in MODELS:
    if os.path.exists(os.path.join(data, words[0])):
        with tempfile.TemporaryDirectory() as folder:
            main(folder, *words)
    else:
        skip(f"shared/data/models/{words[0]} is not there")
sys.exit(end())
