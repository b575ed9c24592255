#!/usr/bin/python3
# check_kld.py LQ: what `lq eval --against` says of two models, against numpy on the logits that both saved: the KL divergence and
# every figure beside it; a reference that runs, its saved logits and a file in llama.cpp's form, which is written here from the
# description of that form; files that are damaged or of something else. The model is the demo with one more word, so that
# the vocabulary is odd.
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
lq, demo = os.path.abspath(sys.argv[1]), os.path.join(here, "../../calib_data/demo")
text = os.path.join(here, "../../calib_data/test.txt")
passed = failed = 0
WINDOWS = 5


def check(good, what):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAILED: " + what)


def run(*args, fails=None):
    r = subprocess.run([lq, *args], capture_output=True, text=True)
    if fails is None:
        check(r.returncode == 0, f"lq {' '.join(args)}: {r.stderr.strip()}")
    else:
        check(r.returncode == 1 and r.stderr.count("\n") == 1 and fails in r.stderr, f"lq {' '.join(args)}: {r.returncode}, {r.stderr!r}, not {fails!r}")
    return r.stdout


def read(path):
    """Header and name -> bytes of a safetensors file."""
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8 : 8 + n])
    return head, {k: raw[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]] for k, v in head.items() if k != "__metadata__"}


def write(path, head, data):
    at, out = 0, {"__metadata__": head["__metadata__"]} if "__metadata__" in head else {}
    for k, v in data.items():
        out[k] = {**head[k], "data_offsets": [at, at + len(v)]}
        at += len(v)
    text = json.dumps(out).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + b"".join(data.values()))


def odd_model(out):
    """The demo with a word more, whose rows are those of word 7."""
    shutil.copytree(demo, out)
    head, data = read(demo + "/model.safetensors")
    for k in data:
        if head[k]["shape"][0] == 1024:
            row = len(data[k]) // 1024
            data[k] += data[k][7 * row : 8 * row]
            head[k]["shape"] = [1025, *head[k]["shape"][1:]]
    write(out + "/model.safetensors", head, data)
    cfg = json.load(open(demo + "/config.json"))
    json.dump({**cfg, "vocab_size": 1025}, open(out + "/config.json", "w"))


def other_words(model, out):
    """The model with a tokenizer whose vocabulary has the same size, and its words at other ids."""
    shutil.copytree(model, out)
    t = json.load(open(out + "/tokenizer.json"))
    vocab = t["model"]["vocab"]
    words = [w for w in vocab if len(w) > 2]
    for word, i in zip(words, [vocab[w] for w in words[1:] + words[:1]]):
        vocab[word] = i
    json.dump(t, open(out + "/tokenizer.json", "w"))
    return out


def saved(path):
    """Logits [windows][scored][vocab] and tokens [windows][window] of a file of --save-logits."""
    head, data = read(path)
    names = sorted(k for k in data if k.startswith("logits."))
    return np.array([np.frombuffer(data[k], "<f4").reshape(head[k]["shape"]) for k in names]), np.frombuffer(data["tokens"], "<i4").reshape(head["tokens"]["shape"])


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def figures(ref, got, given, windows, least=-np.inf):
    """What lq eval says, of ln p [positions][vocab] of the reference and the model, and the tokens that were there. Errors come from the means of windows."""
    n, at = len(given), np.arange(len(given))
    p = np.where(ref > least, np.exp(ref), 0)
    kld = (p * np.where(p > 0, ref - got, 0)).sum(-1)
    a, b = got[at, given], ref[at, given]
    diff, same = np.exp(a) - np.exp(b), got.argmax(-1) == ref.argmax(-1)
    error = lambda x: x.reshape(windows, -1).mean(1).std(ddof=1) / np.sqrt(windows)
    rms = np.sqrt((diff**2).mean())
    return kld, {"mean": kld.mean(), "standard_error": error(kld), "min": kld.min(), "max": kld.max(), "median": np.median(kld),
                 **{name: np.quantile(kld, q) for name, q in (("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99_9", 0.999))},
                 "same_top": same.mean(), "same_top_error": error(same.astype(float)), "p_difference": diff.mean(), "p_difference_error": error(diff),
                 "p_difference_rms": rms, "p_difference_rms_error": error(diff**2) / (2 * rms), "reference_perplexity": np.exp(-b.mean()),
                 "reference_perplexity_error": np.exp(-b.mean()) * error(b), "ln_perplexity_ratio": (b - a).mean(), "ln_perplexity_ratio_error": error(b - a)}


def same(got, want, what):
    # f64 sums of a few thousand terms in another order; the standard errors take differences of such sums
    scale = lambda key: 1 if key.startswith(("p_diff", "ln_")) else abs(want[key])
    bad = {k: (got[k], want[k]) for k in want if not abs(got[k] - want[k]) <= 1e-6 * scale(k) + 1e-12}
    check(not bad, f"{what}: {bad}")


def llama_file(path, window, logits, tokens):
    """A base file as llama.cpp's perplexity tool writes it: 16-bit steps between the largest logit and 16 below it."""
    vocab = logits.shape[-1]
    with open(path, "wb") as f:
        f.write(b"_logits_" + struct.pack("<Iii", window, vocab, len(tokens)) + tokens.astype("<i4").tobytes())
        for row in logits.reshape(-1, vocab):
            top = row.max()
            low = max(row.min(), top - np.float32(16))
            step = np.float32((top - low) / 65535)
            least = np.float32(low - top - np.log(np.exp((row - top).astype(np.float64)).sum()))
            codes = np.where(row > low, np.rint((row - low) / step), 0).astype("<u2")
            f.write(struct.pack("<ff", step, least) + codes.tobytes() + bytes(2 * (vocab % 2)))
    return path


def llama_log_probs(path, vocab, rows):
    raw = np.frombuffer(open(path, "rb").read()[-rows * (8 + (vocab + vocab % 2) * 2) :], np.uint8).reshape(rows, -1)
    head = raw[:, :8].copy().view("<f4")
    return head[:, :1] * raw[:, 8:].copy().view("<u2")[:, :vocab].astype(np.float32) + head[:, 1:]


def refusals(model, base, ours, llama):
    other = os.path.join(base, "other.txt")
    open(other, "w").write(open(text).read().replace("the", "one"))
    for file in (ours, llama):
        run("eval", model, "--against", file, "--text", other, fails="made of another text")
        run("eval", model, "--against", file, "--text", text, "--protocol", "gptq2048", fails="made by protocol llamacpp512, not gptq2048")
        run("eval", model, "--against", file, "--window", "128", fails="windows of 256 tokens, not 128")
        run("eval", demo, "--against", file, fails="a vocabulary of 1025, that of")
        run("eval", model, "--against", file, "--ctx", "100", fails="the context")
    run("eval", model, "--text", text, "--against", demo, fails="a vocabulary of 1024")
    run("eval", model, "--text", text, "--protocol", "llamacpp512", "--save-logits", ours, fails="is there already")
    run("eval", model, "--text", text, "--protocol", "llamacpp512", "--save-logits", base + "/l.bin", fails=".safetensors")
    copy = base + "/copy.safetensors"
    shutil.copy(model + "/model.safetensors", copy)
    run("eval", model, "--text", text, "--protocol", "llamacpp512", "--save-logits", copy, "--force", fails="no file of saved logits")
    check(open(copy, "rb").read() == open(model + "/model.safetensors", "rb").read(), "a file that is not lq's is replaced")
    run("eval", other_words(model, base + "/words"), "--against", ours, fails="other pieces of text")
    raw, bad = open(llama, "rb").read(), os.path.join(base, "bad")
    for what, change in (("cut", raw[:-1]), ("longer", raw + b"\0"), ("head", raw[:12]), ("window", raw[:8] + struct.pack("<I", 1 << 31) + raw[12:]),
                         ("vocabulary", raw[:12] + struct.pack("<i", 1 << 30) + raw[16:]), ("windows", raw[:16] + struct.pack("<i", 0x7FFFFFFF) + raw[20:]),
                         ("none", raw[:16] + struct.pack("<i", 0) + raw[20:]), ("token", raw[:20] + struct.pack("<i", 1025) + raw[24:]),
                         ("scale", raw[: 20 + 4 * 256 * WINDOWS] + struct.pack("<f", float("nan")) + raw[24 + 4 * 256 * WINDOWS :])):
        open(bad, "wb").write(change)
        run("eval", model, "--against", bad, fails=bad)
    head, data = read(ours)
    bad += ".safetensors"
    for what, new_head, new_data in (
        ("hash", head, {**data, "tokens": data["tokens"][:-4] + bytes(4)}),
        ("missing", head, {k: v for k, v in data.items() if k != "logits.000003"}),
        ("no tokens", head, {k: v for k, v in data.items() if k != "tokens"}),
        ("shape", {**head, "logits.000001": {"dtype": "F32", "shape": [1025, 127]}}, data),
        ("type", {**head, "logits.000001": {"dtype": "I32", "shape": [127, 1025]}}, data),
        ("protocol", {**head, "__metadata__": {**head["__metadata__"], "logits.protocol": "other"}}, data)):
        write(bad, new_head, new_data)
        run("eval", model, "--against", bad, fails=bad)


def main(base):
    model, small = base + "/odd", base + "/small.lq"
    odd_model(model)
    run("quantize", model, small, "--bits", "3", "--group", "32", "--quiet")
    for protocol, window in (("llamacpp512", 256), ("gptq2048", 200)):
        ask = ["--text", text, "--protocol", protocol, "--windows", str(WINDOWS), "--window", str(window), "--exact", "--quiet"]
        files = [f"{base}/{name}-{protocol}.safetensors" for name in ("ref", "small")]
        ppl = [json.loads(run("eval", m, *ask, "--json", "--save-logits", file))["results"][0] for m, file in zip((model, small), files)]
        (ref, tokens), (got, _) = saved(files[0]), saved(files[1])
        first = window // 2 if protocol == "llamacpp512" else 0
        given = tokens[:, first + 1 :].reshape(-1)
        check(tokens.shape == (WINDOWS, window) and ref.shape == (WINDOWS, window - 1 - first, 1025), f"{protocol}: saved {tokens.shape}, {ref.shape}")
        ref_log, got_log = (log_softmax(x).reshape(-1, 1025) for x in (ref, got))
        check(abs(ppl[0]["nll"] + ref_log[np.arange(len(given)), given].mean()) < 1e-8, f"{protocol}: perplexity of what was saved")
        kld, want = figures(ref_log, got_log, given, WINDOWS)
        live = json.loads(run("eval", small, model, *ask, "--json", "--against", model))["results"]
        same(live[0]["kld"], want, protocol)
        by = kld.reshape(WINDOWS, -1)
        bins = np.arange(by.shape[1]) * 32 // by.shape[1]
        check(np.allclose(live[0]["kld"]["by_position"], [by[:, bins == i].mean() for i in range(32)], rtol=1e-6), f"{protocol}: by position")
        # The second model beside the first, window by window: what both find hard cancels.
        nll = [-x[np.arange(len(given)), given].reshape(WINDOWS, -1).mean(1) for x in (got_log, ref_log)]
        means = nll[1] - nll[0]
        paired = {"ln_ratio_to_first": means.mean(), "ln_ratio_to_first_error": means.std(ddof=1) / np.sqrt(WINDOWS)}
        alone = {"standard_error": np.exp(nll[0].mean()) * nll[0].std(ddof=1) / np.sqrt(WINDOWS)}
        check(all(abs(live[1][k] / v - 1) < 1e-6 for k, v in paired.items()) and abs(live[0]["standard_error"] / alone["standard_error"] - 1) < 1e-6
              and "ln_ratio_to_first" not in live[0], f"{protocol}: errors over windows: {live[0]['standard_error']}, {live[1]}")
        apart = json.loads(run("eval", small, model, *ask, "--json"))["results"][1]
        check(all(apart[k] == live[1][k] for k in paired), f"{protocol}: models that are measured one by one: {apart}")
        one = json.loads(run("eval", small, *ask[:5], "1", *ask[6:], "--json"))["results"][0]
        check(one["windows"] == 1 and one["standard_error"] is None, f"{protocol}: one window says nothing of its error: {one}")
        me = live[1]["kld"]
        check(me["max"] == 0 and me["min"] == 0 and me["mean"] == 0 and me["same_top"] == 1 and me["ln_perplexity_ratio"] == 0, f"{protocol}: the reference itself: {me}")
        filed = json.loads(run("eval", small, model, *ask[2:], "--json", "--against", files[0]))["results"]
        check([r["kld"] for r in filed] == [r["kld"] for r in live], f"{protocol}: saved logits and the model itself differ")
        check(live[0]["perplexity"] == ppl[1]["perplexity"], f"{protocol}: the perplexity is another beside a reference")
        if protocol == "llamacpp512":
            llama = llama_file(base + "/base.kld", window, ref, tokens)
            out = json.loads(run("eval", small, "--against", llama, "--exact", "--json", "--quiet"))["results"][0]["kld"]
            same(out, figures(llama_log_probs(llama, 1025, len(given)).astype(np.float64), got_log, given, WINDOWS, -16)[1], "llama.cpp's file")
            # steps of 16 / 65535 in ln p, rounded to the nearest: each row's divergence moves by no more than its p-weighted share of them
            check(abs(out["mean"] / want["mean"] - 1) < 0.01, f"llama.cpp's file: {out['mean']}, {want['mean']} of the logits")
            refusals(model, base, files[0], llama)


with tempfile.TemporaryDirectory() as folder:
    main(folder)
print(f"{passed} passed, {failed} failed, 0 skipped")
sys.exit(failed != 0)
