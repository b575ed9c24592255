#!/usr/bin/python3
# check_kv.py LQ: the KV cache in 8 bits. `lq quantize --kv-scales`: what K and V are divided by, against the largest magnitudes that numpy finds in
# f64; a model whose K and V leave the range of e4m3 loses no more with such scales than the same model with smaller ones, and much without; int8,
# whose scales are each token's own, loses less; what f32 keeps is not touched; scales that others measured; latents; layers that
# use the K and V of others are calibrated on all of the text; the threads change no byte.
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
calib = os.path.join(here, "../../calib_data")
sys.path[:0] = [here, os.path.join(here, "..")]
sys.dont_write_bytecode = True
import decoder_np  # noqa: E402
import make_models  # noqa: E402
import st  # noqa: E402
from counted import check, end  # noqa: E402
from watched import inputs, lq, run, sequences_of  # noqa: E402

demo = os.path.join(calib, "demo")
LEN, CHARS, LOUD, MOST, ROOM = 64, 4000, 1024.0, 448, 2
PLAIN = ("--type", "keep", "--embed", "keep", "--head", "keep")


def scales(model, out, text, *words):
    run("quantize", model, out, "--kv-scales", *PLAIN, "--calib", text, "--seqlen", LEN, "--samples", 10000, "-f", "-q", *words)
    return {n: a for n, a in st.read(out)[0].items() if n.startswith("lq.kv_scale.")}


def weights(model):
    w = {}
    for part in sorted(f for f in os.listdir(model) if f.endswith(".safetensors")):
        w.update({n: a.astype(np.float64) for n, a in st.read(os.path.join(model, part))[0].items()})
    return w


def against_numpy(model, made, text):
    """What decoder_np's attention is given, layer by layer."""
    cfg, w = json.load(open(os.path.join(model, "config.json"))), weights(model)
    largest, plain, layers = {}, decoder_np.attention, cfg["num_hidden_layers"]

    def attention(f, q, k, v, *more, **words):
        layer = attention.calls % layers
        attention.calls += 1
        of = np.stack([np.abs(a).max((0, 2)) for a in (k, v)], 1)
        largest[layer] = np.maximum(largest.get(layer, 0), of)
        return plain(f, q, k, v, *more, **words)

    attention.calls, decoder_np.attention = 0, attention
    for ids in sequences_of(model, text, LEN):
        decoder_np.forward(cfg, w, ids)
    decoder_np.attention = plain
    check(len(made) == layers and attention.calls, f"{model}: scales of {len(made)} layers, expected {layers}")
    for layer, of in largest.items():
        want, got = of * ROOM / MOST, made[f"lq.kv_scale.{layer}"].reshape(-1, 2)
        if "kv_lora_rank" in cfg:  # one K, the latent and what turns; V is a part of it
            want, got = want[:, :1], got[:, :1]
        off = np.abs(got / want - 1).max()
        check(off < 1e-4, f"{model}: layer {layer}: scales are off by {off:.1e}")


def as_others(loud, folder, scales, form):
    """The same numbers under the names that compressed-tensors and modelopt have for them."""
    out = os.path.join(folder, "others")
    shutil.copytree(loud, out, dirs_exist_ok=True)
    t = {n: a.astype(np.float32) for n, a in st.read(os.path.join(loud, "model.safetensors"))[0].items()}
    for name, both in scales.items():
        for i, which in enumerate("kv"):
            t[f"model.layers.{name.split('.')[-1]}.self_attn." + form.format(which)] = both[i::2]
    st.write(os.path.join(out, "model.safetensors"), t, "F32")
    return out


def louder(folder):
    """The demo with K and V many times as large, and q and o as much smaller: powers of two, so that no logit changes by a bit."""
    out = os.path.join(folder, "loud")
    shutil.copytree(demo, out)
    t, meta = st.read(os.path.join(demo, "model.safetensors"))
    by = {"k_proj": LOUD, "v_proj": LOUD, "q_proj": 1 / LOUD, "o_proj": 1 / LOUD}
    t = {n: a.astype(np.float32) * next((f for p, f in by.items() if p in n), 1) for n, a in t.items()}
    st.write(os.path.join(out, "model.safetensors"), t)
    return out


def kld(model, kv, *against):
    words = ("--against", demo, "--exact", "--protocol", "llamacpp512", "--text", os.path.join(calib, "test.txt"), "--windows", 8, "--json", "-q")
    return [r["kld"]["mean"] for r in json.loads(run("eval", model, *against, "--kv-dtype", kv, *words))["results"]]


def losses(folder, text):
    loud, soft, scaled = louder(folder), os.path.join(folder, "soft.lq"), os.path.join(folder, "loud.lq")
    one, other = scales(demo, soft, text), scales(loud, scaled, text)
    check(all(np.array_equal(other[n], one[n] * np.float32(LOUD)) for n in one), "K and V times 1024: scales times 1024")
    a, b, without = kld(soft, "fp8", scaled, loud)
    check(a == b, f"fp8 with scales: {a:.6g}, of larger K and V {b:.6g}")
    check(without > 10 * a, f"fp8 without scales, K and V beyond its range: {without:.6g}, with them {a:.6g}")
    for form in ("{0}_scale", "{0}_proj.{0}_scale", "{0}_proj.output_scale"):
        theirs = kld(as_others(loud, folder, other, form), "fp8")[0]
        check(theirs == a, f"{form}: {theirs:.6g}, expected {a:.6g}")
    bad = as_others(loud, folder, {n: s * (0 if n.endswith(".2") else 1) for n, s in other.items()}, "{0}_scale")
    r = subprocess.run([lq, "run", bad, "--raw", "a", "-n", "1", "-q"], capture_output=True, text=True)
    check(r.returncode == 1 and "layers.2.self_attn.k_scale: 0, expected a positive" in r.stderr, f"a scale of 0: {r.returncode}: {r.stderr}")
    whole, eight = kld(loud, "f32")[0], kld(loud, "int8")[0]
    check(whole == 0, f"a cache in f32: {whole:.6g}")
    check(0 < eight < a / 2, f"int8: {eight:.6g}, fp8 {a:.6g}")
    print(f"demo, KLD: int8 {eight:.2e}, fp8 {a:.2e}, without scales and out of its range {without:.2e}")
    answers = {run("run", soft, "-p", "Tell me a story about a fox named Pim.", "--kv-dtype", kv, "-n", 40, "-q", "--temp", 0) for kv in ("f16", "int8")}
    check(len(answers) == 1, f"served with int8, another story: {answers}")
    for words in (("-t", 1), ("-m", "gptq", "--type", "int4 g128")):
        out = os.path.join(folder, "again.lq")
        again = scales(demo, out, text, *words)
        check(words[0] == "-m" or open(out, "rb").read() == open(soft, "rb").read(), "one thread: the same file")
        check(len(again) == len(one) and '"kv_scales": true' in st.read(out)[1]["lq.recipe"], f"{words}: {len(again)} scales")


def lent(model, folder, text, layer):
    """A layer that uses K and V of another: what its o loses on the text is what numpy says, over all of the text."""
    name, out = f"model.layers.{layer}.self_attn.o_proj.weight", os.path.join(folder, "lent.lq")
    keep = [{"match": m, "type": "keep"} for m in ("model.layers.*", "*per_layer*")] + [{"match": name, "type": "int4 row"}]
    run("quantize", model, out, "-m", "gptq", "--recipe", json.dumps({"repay": 0, "mixed": True, "modules": keep}), "--embed", "keep", "--head", "keep",
        "--calib", text, "--seqlen", LEN, "--samples", 10000, "-f", "-q")
    row = [m for m in json.load(open(out + ".report.json"))["modules"] if m["name"] == name][0]
    t, cfg, w = st.read(out)[0], json.load(open(os.path.join(model, "config.json"))), weights(model)
    drawn, (n, k) = sequences_of(model, text, LEN), w[name].shape
    x = inputs(cfg, w, drawn)[name]
    codes = np.stack([t[name + ".q"].reshape(n, -1) & 15, t[name + ".q"].reshape(n, -1) >> 4], 2).reshape(n, -1)[:, :k]
    made = (codes.astype(np.float64) - 8) * t[name + ".scale"].astype(np.float64).reshape(n, 1)
    want = np.linalg.norm(x @ (w[name] - made).T) / np.linalg.norm(x @ w[name].T)
    check(len(drawn) > 4 and abs(row["out_error"] / want - 1) < 1e-3, f"{name}, {len(drawn)} sequences: loses {row['out_error']:.6f}, numpy has {want:.6f}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        with open(os.path.join(calib, "calib.txt"), encoding="utf-8") as f, open(text, "w", encoding="utf-8") as g:
            g.write(f.read(CHARS))
        against_numpy(demo, scales(demo, os.path.join(folder, "demo.lq"), text), text)
        losses(folder, text)
        tiny = os.path.join(folder, "tiny")
        make_models.make(tiny)
        with open(text, "w", encoding="utf-8") as g:
            g.write("a few words for models that know hardly any " * 8)
        for name in ("llama3", "gqa", "qwen2", "mistral", "mixtral", "deepseek_v2", "deepseek_v3"):
            model = os.path.join(tiny, name)
            against_numpy(model, scales(model, os.path.join(folder, "tiny.lq"), text), text)
            run("run", os.path.join(folder, "tiny.lq"), "--raw", "a few", "-n", 4, "--kv-dtype", "fp8", "-q")
        for layer in (3, 4):
            lent(os.path.join(tiny, "gemma4"), folder, text, layer)
    sys.exit(end())


main()
