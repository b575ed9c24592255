#!/usr/bin/python3
# check_smooth.py LQ: methods whose activations are rounded too. What is stored beside the weights (outlier columns, scales that hold for all rows)
# against numpy, which finds them by the rule of docs/QUANT.md from inputs of its own; what `lq eval` computes with a file against dequantized weights
# and activations rounded by docs/FORMAT.md in f64; what each method keeps of models whose inputs have columns that stand out; fp8 against ml_dtypes.
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
calib = os.path.join(here, "../../calib_data")
sys.path[:0] = [here, os.path.join(here, ".."), calib]
sys.dont_write_bytecode = True
import decoder_np  # noqa: E402
import rtn_reference as rtn  # noqa: E402
import st  # noqa: E402
import twins  # noqa: E402
from counted import check, end, skip, told  # noqa: E402
from watched import lq, run, sequences_of  # noqa: E402

demo = os.path.join(calib, "demo")
LEN, CHARS, SHARES = 64, 4000, 40
STATIC = ("int8 row sym f32 act i8 tensor", "int8 row sym f32 act i8 tensor asym", "e4m3 row f32 act e4m3 tensor")


def quantize(model, out, *words):
    run("quantize", model, out, *words, "--force", "--quiet")
    return {m["name"]: m for m in json.load(open(out + ".report.json"))["modules"]}


# --- files in numpy ---


def numbers(t, name, words, n, k):
    """A weight of int8 or e4m3 with a scale for each row, in f64."""
    scale = t[name + ".scale"].astype(np.float64).reshape(-1, 1)
    if words[0] == "e4m3":
        return t[name + ".q"].astype(np.float64) * scale
    w = (t[name + ".q"].reshape(n, -1)[:, :k].astype(np.float64) - 128) * scale
    if name + ".outlier_cols" in t:
        w[:, t[name + ".outlier_cols"]] = t[name + ".outlier_w"].astype(np.float64)
    return w


def opened(path):
    """name -> f64 weights; name -> what its activations become."""
    t, meta = st.read(path)
    w = {n: a.astype(np.float64) for n, a in t.items() if not n.startswith("lq.")}
    acts = {}
    for name, kind in json.loads(meta["lq.types"]).items():
        words, (n, k) = kind.split(), map(int, kind.split()[-1].split("x"))
        w[name] = numbers(t, name, words, n, k)
        if "act" not in words:
            continue
        acts[name] = {"elem": words[words.index("act") + 1], "fixed": "tensor" in words, "out": t.get(name + ".outlier_cols", np.zeros(0, np.int32))}
        if "tensor" in words:
            acts[name]["scale"] = float(t[name + ".act_scale"][0])
            acts[name]["zero"] = int(t[name + ".act_zero"][0]) if words[-2] == "asym" else None
    return w, acts


def nearest(v, elem, zero):
    """Of numbers in steps of 1, by docs/FORMAT.md 4.1."""
    if elem == "i8":
        return np.clip(np.rint(v), -127, 127) if zero is None else np.clip(np.rint(v), -128 - zero, 127 - zero)
    step = 2.0 ** (np.maximum(np.floor(np.log2(np.maximum(np.abs(v), 1e-30))), -6) - 3)
    return np.clip(np.rint(v / step) * step, -448, 448)


class Scheme(decoder_np.Exact):
    """Rounds what each matrix is given as the file says, and keeps what it was."""

    def __init__(self, w, acts):
        self.name, self.acts, self.x = {id(a): n for n, a in w.items()}, acts, {}

    def input(self, x, w):
        name = self.name.get(id(w))
        if name not in self.acts:
            return x
        self.x.setdefault(name, []).append(x)
        a = self.acts[name]
        if a.get("plain"):
            return x
        v = x.copy()
        v[:, a["out"]] = 0
        d = np.full((len(v), 1), a["scale"]) if a["fixed"] else np.abs(v).max(1, keepdims=True) / (127 if a["elem"] == "i8" else 448)
        v = nearest(v / np.where(d > 0, d, 1), a["elem"], a.get("zero")) * d
        v[:, a["out"]] = x[:, a["out"]]
        return v


class Moved(decoder_np.Rounded):
    """The same in arithmetic that rounds as f32 may."""

    input = Scheme.input


def seen(model, out, text):
    """The file's weights and schemes, and all rows that each matrix of it is given."""
    w, acts = opened(out)
    f = Scheme(w, acts)
    cfg = json.load(open(model + "/config.json"))
    for ids in sequences_of(model, text, LEN):
        decoder_np.forward(cfg, w, ids, f)
    return w, acts, {n: np.concatenate(x) for n, x in f.x.items()}


# --- what is stored ---


def test_outliers(model, text, share, threshold):
    recipe = json.dumps({"share": share, "threshold": threshold})
    report = quantize(model, "o.lq", "-m", "llmint8", "--recipe", recipe, "--calib", text, "--seqlen", LEN, "--samples", 10000, "--head", "keep", "--embed", "keep")
    w, acts, x = seen(model, "o.lq", text)
    source = {n: a.astype(np.float64) for n, a in st.read(model + "/model.safetensors")[0].items()}
    sets, full, t = set(), 0, st.read("o.lq")[0]
    for name, a in acts.items():
        size, most = np.abs(x[name]).max(0), max(1, int(len(x[name][0]) * share))
        order = np.sort(size)[::-1]
        past = (size >= threshold).sum() > most
        cut, full = order[most - 1] if past else threshold, full + past
        sure = np.abs(size / cut - 1) > 2 / 127  # a code on a tie moves an input by a step of what rows hold
        kept = np.zeros(len(size), bool)
        kept[a["out"]] = True
        check((kept == (size >= cut))[sure].all() and kept.sum() <= most, f"{name}: {sorted(a['out'])} stay apart, expected those that reach {cut:.4g}")
        check(report[name].get("outliers", 0) == kept.sum() and bool(report[name]["note"]) == past, f"{name}: the report says {report[name]}")
        bits = t[name + ".outlier_w"] if kept.any() else np.zeros((len(w[name]), 0))
        check(np.array_equal(bits.astype(np.float64), twins.bf16(source[name][:, a["out"]].astype(np.float32))), f"{name}: weights of outlier columns")
        check((t[name + ".q"].reshape(len(w[name]), -1)[:, a["out"]] == 128).all(), f"{name}: codes of outlier columns are z")
        sets.add(name.split(".")[2] + str(a["out"]))
    print(f"threshold {threshold}, share {share}: {sum(len(a['out']) for a in acts.values())} outlier columns, {full} of {len(acts)} matrices at the limit")
    return acts


def fixed_error(x, cost, scale, zero, elem):
    return ((x - nearest(x / scale, elem, zero) * scale) ** 2 @ cost).sum()


def test_static(model, text, kind):
    quantize(model, "s.lq", "--type", kind, "--calib", text, "--seqlen", LEN, "--samples", 10000, "--head", "keep", "--embed", "keep")
    w, acts, x = seen(model, "s.lq", text)
    source = {n: a.astype(np.float64) for n, a in st.read(model + "/model.safetensors")[0].items()}
    groups = (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("self_attn.o_proj",), ("mlp.gate_proj", "mlp.up_proj"), ("mlp.down_proj",))
    worst = off = 0
    for layer in range(1 + max(int(n.split(".")[2]) for n in acts)):
        for group in groups:
            names = [f"model.layers.{layer}.{n}.weight" for n in group]
            check(len({(acts[n]["scale"], acts[n]["zero"]) for n in names}) == 1, f"{names}: one scale for who reads one input")
            a, rows = acts[names[0]], x[names[0]]
            cost = sum((source[n] ** 2).sum(0) for n in names)
            lo, hi = min(rows.min(), 0), max(rows.max(), 0)
            errors = []
            for share in 2.0 ** (-np.arange(SHARES) / 4):
                if "asym" in kind:
                    d = (hi - lo) * share / 255
                    errors.append(fixed_error(rows, cost, d, int(np.clip(np.rint(-128 - lo * share / d), -128, 127)), a["elem"]))
                else:
                    errors.append(fixed_error(rows, cost, max(-lo, hi) * share / (127 if a["elem"] == "i8" else 448), None, a["elem"]))
            # A code on a tie in f32 and not in f64 moves the range a little: it is the share of it that is compared.
            full = (hi - lo) / 255 if "asym" in kind else max(-lo, hi) / (127 if a["elem"] == "i8" else 448)
            at = 4 * np.log2(full / a["scale"])
            off = max(off, abs(at - np.rint(at)) / 4)
            worst = max(worst, errors[int(np.rint(at))] / min(errors))
    told(worst < 1.01 and off < 0.05, f"{kind}: the error of each share is at most {worst:.5f} of the least, ranges are within 2^{off:.4f}")


def test_runtime(model, text, kinds):
    """What lq computes with a file, against the same file in numpy; and how far that is from activations that are not rounded."""
    cfg = json.load(open(model + "/config.json"))
    for words in kinds:
        quantize(model, "r.lq", *words, "--calib", text, "--seqlen", LEN, "--samples", 16)
        if os.path.exists("r.safetensors"):
            os.remove("r.safetensors")
        run("eval", "r.lq", "--text", text, "--protocol", "llamacpp512", "--windows", 1, "--exact", "--save-logits", "r.safetensors", "-q")
        t = st.read("r.safetensors")[0]
        w, acts = opened("r.lq")
        got = t["logits.000000"].astype(np.float64)
        ids, first = t["tokens"][0], len(t["tokens"][0]) // 2
        def forward(f, plain=False):
            f.name, f.acts, f.x = {id(a): n for n, a in w.items()}, {n: dict(a, plain=plain) for n, a in acts.items()}, {}
            return decoder_np.forward(cfg, w, ids, f)[first : first + len(got)]

        want = forward(Scheme(w, acts))
        # An element that arithmetic moves over a tie changes all that comes after it: lq's f32 is one more arithmetic like these.
        moved = [kl(want, forward(Moved(seed))) for seed in range(4)]
        near, far = kl(want, got), kl(want, forward(Scheme(w, acts), True))
        told(near < 3 * max(moved), f"{' '.join(words)}: KL divergence from numpy {near:.2e}, of other arithmetics {min(moved):.1e} to {max(moved):.1e}, of activations as they are {far:.1e}")


def kl(a, b):
    a, b = (y - y.max(1, keepdims=True) for y in (a, b))
    a, b = (y - np.log(np.exp(y).sum(1, keepdims=True)) for y in (a, b))
    return (np.exp(a) * (a - b)).sum(1).mean()


# --- what it is worth ---


def loud(demo_at):
    """The twin `outliers`, whose loud channels are four times louder behind the norms, what reads them divided by as much: each logit stays."""
    cfg, w = twins.make("outliers", demo_at)
    channels = np.argsort(-np.abs(w["model.embed_tokens.weight"]).mean(0))[:4]
    for i in range(cfg["num_hidden_layers"]):
        for name, readers in twins.NORMS.items():
            w[f"model.layers.{i}.{name}.weight"][channels] *= 4
            for reader in readers:
                w[f"model.layers.{i}.{reader}.weight"][:, channels] /= 4
    return cfg, w


def kld(model, files, *words):
    r = json.loads(run("eval", *files, "--against", model, "--protocol", "llamacpp512", "--windows", 6, "--text", calib + "/test.txt", "--json", "-q", *words))["results"]
    return {(os.path.splitext(m["model"])[0], m["mode"]): m["kld"]["mean"] for m in r}


KEEP = ("--head", "keep", "--embed", "keep")
BARS = (("llmint8", ("-m", "llmint8", "--samples", 8)), ("smoothquant", ("-m", "smoothquant", "--samples", 8)))


def test_bars(model):
    quantize(model, "w8.lq", "--type", "int8 row sym f32", *KEEP)
    quantize(model, "w8a8.lq", "--type", "int8 act i8", *KEEP)
    for name, words in BARS:
        quantize(model, name + ".lq", *words, *KEEP)
    files = ["w8.lq", "w8a8.lq"] + [n + ".lq" for n, _ in BARS]
    got = kld(model, files, "--exact")
    told(got["w8a8", "exact"] > 20 * got["w8", "exact"], f"{model}: KL divergence of W8A8 {got['w8a8', 'exact']:.5f}, of weights alone {got['w8', 'exact']:.6f}")
    for arithmetic, found in (("exact", got), ("default", kld(model, files[1:]))):
        for name, _ in BARS:
            share = found[name, arithmetic] / found["w8a8", arithmetic]
            told(share <= 0.1, f"{model}, {arithmetic}: {name} has {share:.4f} of it")


def test_smooth(model, text):
    """Factors are of the rule; the threads change no byte."""
    words = ("-m", "smoothquant", "--calib", text, "--seqlen", LEN, "--samples", 10000, *KEEP)
    report = quantize(model, "q.lq", *words, "--recipe", '{"alpha": 0.5}')
    plain = {n: a.astype(np.float64) for n, a in st.read(model + "/model.safetensors")[0].items()}
    now = {n: a.astype(np.float64) for n, a in st.read("q.lq")[0].items()}
    cfg, f = json.load(open(model + "/config.json")), Scheme(plain, {n: {"plain": True} for n in plain if "_proj" in n})
    for ids in sequences_of(model, text, LEN):
        decoder_np.forward(cfg, plain, ids, f)
    far = 0
    for name, readers in twins.NORMS.items():
        norm, first = f"model.layers.0.{name}.weight", f"model.layers.0.{readers[0]}.weight"
        if name == "post_attention_layernorm":
            continue
        x = np.abs(np.concatenate(f.x[first])).max(0)
        w = np.max([np.abs(plain[f"model.layers.0.{r}.weight"]).max(0) for r in readers], 0)
        s = np.sqrt(np.maximum(x / x.max(), 1e-5)) / np.sqrt(np.maximum(w / w.max(), 1e-5))
        got = plain[norm] / now[norm]
        far = np.abs(got / got.max() / (s / s.max()) - 1).max()
        check(all(report[f"model.layers.0.{r}.weight"]["alpha"] == 0.5 for r in readers), f"{norm}: alpha in the report")
    told(far < 1e-4, f"{model}: factors of the first norm, {far:.1e} from numpy's")
    for threads in (1, 3):
        quantize(model, f"t{threads}.lq", *words, "--threads", threads)
    check(open("t1.lq", "rb").read() == open("t3.lq", "rb").read(), "1 and 3 threads write the same bytes")


def scaled(w):
    """int8 row sym, by docs/QUANT.md."""
    lo, hi = w.min(1, keepdims=True), w.max(1, keepdims=True)
    s = np.where(hi > -lo, hi, lo).astype(np.float32).astype(np.float64) / -128
    return np.clip(np.rint(w / s), -128, 127) * s


def stepped(x):
    d = np.abs(x).max(1, keepdims=True) / 127
    return np.rint(x / np.where(d > 0, d, 1)) * d


def sizes(v, share, width):
    """Of columns whose heads share rows of v: their mean; as shares of the largest."""
    v = np.repeat(v.reshape(-1, share, width).mean(1, keepdims=True), share, 1).ravel() if share > 1 else v
    return np.maximum(v / v.max(), 1e-5)


def test_alpha(model, text):
    """One alpha for a layer: by what its inputs lose together in numpy, all rows of the text; one for the model."""
    words = ("-m", "smoothquant", "--calib", text, "--seqlen", LEN, "--samples", 10000, *KEEP)
    alphas = {mode: {n: m.get("alpha", 0) for n, m in quantize(model, "a.lq", *words, "--alpha", mode).items()} for mode in ("input", "layer", "model")}
    check(json.loads(st.read("a.lq")[1]["lq.recipe"])["alpha"] == "model", f"{model}: the file says that one alpha was for all")
    for more in [], ["--recipe", '{"alpha": "model"}']:
        quantize(model, "b.lq", *words, *more)
        check(open("a.lq", "rb").read() == open("b.lq", "rb").read(), f"{model}: --alpha model, a recipe that says it and neither make the same bytes")
    for bad, method in (("foo", "smoothquant"), ("2", "smoothquant"), ("0", "smoothquant"), ("nan", "smoothquant"), ("0.5", "rtn")):
        r = subprocess.run([lq, "quantize", model, "c.lq", "-m", method, "--alpha", bad], capture_output=True, text=True)
        check(r.returncode == 2 and "alpha" in r.stderr and not os.path.exists("c.lq"), f"--alpha {bad} for {method}: {r.returncode}, {r.stderr}")
    of = lambda mode, layer="": sorted({a for n, a in alphas[mode].items() if n.startswith("model.layers." + layer)})
    check(len(of("model")) == 1 and len(of("input")) > 1, f"{model}: one alpha for the model is {of('model')}, of inputs {of('input')}")
    cfg, plain = json.load(open(model + "/config.json")), {n: a.astype(np.float64) for n, a in st.read(model + "/model.safetensors")[0].items()}
    f, share = Scheme(plain, {n: {"plain": True} for n in plain if "_proj" in n}), cfg["num_attention_heads"] // cfg["num_key_value_heads"]
    for ids in sequences_of(model, text, LEN):
        decoder_np.forward(cfg, plain, ids, f)
    errors = np.zeros(21)
    for names in (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("self_attn.o_proj",), ("mlp.gate_proj", "mlp.up_proj"), ("mlp.down_proj",)):
        w = np.concatenate([plain[f"model.layers.0.{n}.weight"] for n in names])
        x = np.concatenate(f.x[f"model.layers.0.{names[0]}.weight"])
        heads = share if names[0] == "self_attn.o_proj" else 1
        top, reads, y = *(sizes(np.abs(a).max(0), heads, cfg["head_dim"]) for a in (x, w)), x @ w.T
        for i in range(21):
            s = top ** (i / 20) / reads ** (1 - i / 20) if i else np.ones(len(top))
            errors[i] += ((stepped(x / s) @ scaled(w * s).T - y) ** 2).sum() / (y ** 2).sum()
    got = of("layer", "0.")
    check(len(got) == 1, f"{model}: one alpha for a layer, not {got}")
    told(errors[int(round(20 * got[0]))] < 1.05 * errors.min(), f"{model}: {got[0]} for the first layer loses {errors[int(round(20 * got[0]))]:.3g}, the best {errors.min():.3g}, none {errors[0]:.3g}")
    for layer in range(cfg["num_hidden_layers"]):
        check(len(of("layer", f"{layer}.")) == 1, f"{model}: one alpha for layer {layer}, not {of('layer', str(layer))}")


def test_fp8():
    try:
        import ml_dtypes
    except ImportError:
        return skip("ml_dtypes is not installed")
    x = np.concatenate([np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32), np.random.default_rng(7).standard_normal(100000).astype(np.float32) * 100])
    for elem, dtype, most in (("e4m3", ml_dtypes.float8_e4m3fn, 448), ("e5m2", ml_dtypes.float8_e5m2, 57344)):
        v = x[np.abs(x) <= most]
        check(np.array_equal(rtn.fp8_codes(v, elem), v.astype(dtype).view(np.uint8)), f"{elem} as ml_dtypes rounds it")


def main():
    with tempfile.TemporaryDirectory(prefix="lq-test-smooth-") as work:
        os.chdir(work)
        subprocess.run([sys.executable, "-B", calib + "/twins.py", "."], check=True)
        os.mkdir("loud")
        for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
            open("loud/" + name, "wb").write(open(f"outliers/{name}", "rb").read())
        st.write("loud/model.safetensors", loud(demo)[1])
        with open(calib + "/calib.txt", encoding="utf-8") as f, open("calib.txt", "w", encoding="utf-8") as out:
            out.write(f.read(CHARS))
        test_outliers("gains", "calib.txt", 0.0625, 6.0)
        test_outliers("outliers", "calib.txt", 0.25, 3.0)
        for kind in STATIC:
            test_static("outliers", "calib.txt", kind)
        test_runtime("gains", "calib.txt", (("-m", "llmint8"), ("-m", "llmint8", "--type", STATIC[0]), ("--type", STATIC[1]), ("-m", "fp8")))
        test_smooth("gains", "calib.txt")
        test_alpha("gains", "calib.txt")
        for model in ("gains", "loud"):
            test_bars(model)
        test_fp8()


main()
sys.exit(end())
