#!/usr/bin/python3
# check_prune.py LQ: structured pruning. Of every tiny model a layer is dropped: what is left computes in exact mode what the numpy forward
# computes that leaves the layer out, or the refusal says why it cannot be described. Of every dense one inner columns of MLPs go: as if they
# were 0 in numpy. Heads and columns of the residual: as a checkpoint computes that a script has cut. What goes is held against its definition,
# what is left and refitted against least squares in numpy.
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of each of the processes that share the models
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, ".."))
import counted
import decoder_np
import make_models
import st
from counted import check, end
from dumped import logits
from watched import inputs

lq = os.path.abspath(sys.argv[1])
KEEP = ["--type", "keep", "--embed", "keep", "--head", "keep"]
AS_CUT = [*KEEP, "--recipe", '{"refit": false}']


def prune(src, out, what, *words):
    """The report, or what was said instead."""
    cmd = [lq, "quantize", src, out, "--prune", what, "--quiet", "--force", "--threads", "1", *words]
    r = subprocess.run(cmd, capture_output=True, text=True)
    return (json.load(open(out + ".report.json")), "") if r.returncode == 0 else (None, r.stderr.strip())


def within(what, path, cfg, w, ids, tokens):
    got, why = logits(path, tokens, threads=1)
    if got is None:
        return check(False, f"{what}: {why}")
    rows = slice(None, None, make_models.EVERY)
    want, bound = decoder_np.forward(cfg, w, ids, ctx=len(ids))[rows], decoder_np.bound(cfg, w, ids)[rows]
    worst = (np.abs(got[rows] - want).max(-1) / bound).max()
    check(worst <= 1, f"{what}: off by {worst:.2f} of the bound")
    print(f"{what:30} {worst:.2f} of the bound")


def check_depth(path, name):
    out = os.path.join(path, "less.lq")
    cfg, w, ids = make_models.load(path)
    if 1 in (cfg.get(key) for key in ("num_hidden_layers", "num_layers", "n_layer", "n_layers")):
        report, why = prune(path, out, "depth:1", *KEEP)
        return check("1 layers are to go, but" in why, f"{name}: {why}")
    report, why = prune(path, out, "depth:1", *AS_CUT, "--samples", "1", "--seqlen", "48")
    if report is None:
        return check(REFUSED.get(name, "nothing") in why, f"{name}: {why}")
    check(name not in REFUSED, f"{name}: was expected to be refused")
    gone = report["recipe"]["prune"]["dropped"]
    within(f"{name} without layer {gone[0]}", out, {**cfg, "_gone": gone}, w, ids, make_models.tokens(name))


REFUSED = {  # the last layer never has a window, so that neither of two can take the place of the other
    "gemma4_sight": "cannot say of what is then layer 0 its window",
}  # fmt: skip


# --- what goes, by its definition ---

TEXT = b"The lighthouse stood where the river met the sea, and nobody who lived there could say who had built it. " * 3
LEN, FROM = 48, 24


def sequences():
    """The ids of TEXT as the models' tokenizer has them, a byte each, behind <s>; all sequences are drawn."""
    n = len(TEXT) // (LEN - 1)
    return [np.array([256, *TEXT[i * (LEN - 1) : (i + 1) * (LEN - 1)]]) for i in range(n)]


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def divergence(cfg, w, gone):
    """Mean KL divergence of the model without some layers from the whole, behind the first half of each sequence."""
    sums = []
    for ids in sequences():
        a, b = (log_softmax(decoder_np.forward({**cfg, "_gone": g}, w, ids, ctx=LEN)[FROM:]) for g in ((), gone))
        sums.append((np.exp(a) * (a - b)).sum(-1))
    return np.mean(sums)


def check_order(path, name, folder):
    cfg, w, _ = make_models.load(path)
    text, out = os.path.join(folder, "text.txt"), os.path.join(folder, name + ".lq")
    open(text, "wb").write(TEXT)
    words = [*AS_CUT, "--calib", text, "--seqlen", str(LEN)]
    report, why = prune(path, out, "depth:2", *words)
    if not check(report is not None, f"{name}: {why}"):
        return
    said, gone = report["recipe"]["prune"], []
    for _ in range(2):
        klds = {l: divergence(cfg, w, [*gone, l]) for l in range(cfg["num_hidden_layers"]) if l not in gone}
        gone.append(min(klds, key=klds.get))
    check(said["dropped"] == gone, f"{name}: {said['dropped']} went, {gone} are worth least")
    # Logits in f32 are off by parts in a million, and so are the probabilities that divergence weighs.
    check(abs(said["kld"][1] / klds[gone[1]] - 1) < 1e-4, f"{name}: {said['kld'][1]} without them, numpy {klds[gone[1]]}")
    report, why = prune(path, out, "influence:1", *words)
    if not check(report is not None, f"{name}: {why}"):
        return
    seen = []
    for ids in sequences():
        of = []
        decoder_np.forward({**cfg, "_seen": of}, w, ids, ctx=LEN)
        seen.append(np.array(of))
    h = np.concatenate(seen, 1)  # [layers + 1][rows][dim]
    cos = (h[1:] * h[:-1]).sum(-1) / np.sqrt((h[1:] ** 2).sum(-1) * (h[:-1] ** 2).sum(-1))
    want, said = 1 - cos.mean(-1), report["recipe"]["prune"]
    check(np.abs(np.array(said["influence"]) - want).max() < 1e-5, f"{name}: influence {said['influence']}, numpy {want}")
    check(said["dropped"] == [int(want.argmin())], f"{name}: by influence {said['dropped']} went, {want.argmin()} has the least")


# --- widths ---


class Inner:
    """In the place of decoder_np.linear: what inner columns of MLPs hold is counted, or those that do not stay are 0."""

    def __init__(self, dim, ffn, stay=None):
        self.dim, self.ffn, self.stay, self.layer, self.sums = dim, ffn, stay, 0, {}

    def __enter__(self):
        self.linear = decoder_np.linear
        self.at = [m for m in (decoder_np, decoder_np.decoder_gpt, decoder_np.decoder_gemma4)]
        for m in self.at:
            m.linear = self
        return self

    def __exit__(self, *_):
        for m in self.at:
            m.linear = self.linear

    def __call__(self, f, x, w, bias=None):
        if w.shape == (self.dim, self.ffn):
            self.sums[self.layer] = self.sums.get(self.layer, 0) + np.abs(x).reshape(-1, self.ffn).sum(0)
            if self.stay:
                mask = np.zeros(self.ffn)
                mask[self.stay[self.layer % len(self.stay)]] = 1
                x = x * mask
            self.layer += 1
        return self.linear(f, x, w, bias)


def largest(v, n):
    return np.sort(np.argsort(-v, kind="stable")[:n])


def stays(n, share):
    """Of widths that are multiples of 16 so many; of others any number."""
    return round(share * n / 16) * 16 if n % 16 == 0 and n >= 32 else max(1, round(share * n))


def size(cfg, *names):
    return next((cfg[n] for n in names if cfg.get(n)), None)


def check_inner(path, name, folder):
    """Inner columns of MLPs, of every dense model: those whose mean magnitude on the text is least are as if they were 0."""
    cfg, w, ids = make_models.load(path)
    out, text = os.path.join(path, "thin.lq"), os.path.join(path, "text.txt")
    open(text, "wb").write(TEXT)
    report, why = prune(path, out, "mlp:0.7", *AS_CUT, "--calib", text, "--seqlen", str(LEN))
    if report is None:
        return check(NO_INNER.get(name, "nothing") in why, f"{name} mlp: {why}")
    check(name not in NO_INNER, f"{name} mlp: was expected to be refused")
    said = report["recipe"]["prune"]
    context = size(cfg, "max_position_embeddings", "n_positions", "max_seq_len") or LEN
    if "mlp" not in said or "experts" in said or "shared" in said or context < LEN or name == "gemma4":  # some of its MLPs are wider
        got, why = logits(out, make_models.tokens(name), threads=1, ids=os.path.join(path, "ids.bin"))
        return check(got is not None and np.isfinite(got).all(), f"{name} mlp: {why}")
    dim, ffn, stay = size(cfg, "hidden_size", "n_embd", "d_model"), said["mlp"]["of"], said["mlp"]["stay"]
    layers = len(said["mlp"]["share"])
    check(stay == stays(ffn, 0.7), f"{name}: {stay} of {ffn} stay")
    sums = np.zeros((layers, ffn))
    with Inner(dim, ffn) as inner:
        for seq in sequences():
            inner.layer, inner.sums = 0, {}
            decoder_np.forward(cfg, w, seq, ctx=LEN)
            if inner.layer != layers:
                return check(False, f"{name}: {inner.layer} MLPs seen in numpy, {layers} layers")
            sums += [inner.sums[i] for i in range(layers)]
    lists = [largest(v, stay) for v in sums]
    check(np.allclose(said["mlp"]["share"], [v[s].sum() / v.sum() for v, s in zip(sums, lists)], rtol=1e-4), f"{name}: shares {said}")
    with Inner(dim, ffn, lists):
        within(f"{name} with {stay} of {ffn}", out, cfg, w, ids, make_models.tokens(name))


REASONS = (  # why a model cannot have fewer heads or a narrower residual
    "its config.json cannot say", "another width than its residual", "numbers of a token", "latents that all heads share",
    "slopes that follow", "others' K and V", "the norm of each head", "is quantized already", "share a width of", "is not a multiple of",
)  # fmt: skip


def check_any(path, name, what):
    """What is left is a model that says numbers, or it is refused with the reason."""
    out = os.path.join(path, "any.lq")
    report, why = prune(path, out, what, *KEEP, "--samples", "3", "--seqlen", "48")
    if report is None:
        print(f"{name} {what}: {why[why.find(': a ') + 2:]}")
        return check(any(r in why for r in REASONS) and "\n" not in why, f"{name} {what}: {why}")
    got, why = logits(out, make_models.tokens(name), threads=1, ids=os.path.join(path, "ids.bin"))
    check(got is not None and np.isfinite(got).all(), f"{name} {what}: {why}")


def check_script(path, name):
    """Heads, columns of the residual and inner ones of a model of Llama's kind, cut by a script."""
    cfg, w, ids = make_models.load(path)
    heads, kv, dim, ffn = cfg["num_attention_heads"], cfg["num_key_value_heads"], cfg["hidden_size"], cfg["intermediate_size"]
    hd, share, text, out = cfg.get("head_dim", dim // heads), heads // kv, os.path.join(path, "text.txt"), os.path.join(path, "cut.lq")
    open(text, "wb").write(TEXT)
    words = ["heads:0.5,hidden:0.8,mlp:0.6", "--calib", text, "--seqlen", str(LEN)]
    report, why = prune(path, out, *words, *AS_CUT)
    if not check(report is not None, f"{name} cut: {why}"):
        return
    seen, plain = {}, decoder_np.linear

    def linear(f, x, m, bias=None):
        seen[id(m)] = seen.get(id(m), 0) + np.abs(x).sum(0)
        return plain(f, x, m, bias)

    decoder_np.linear = linear
    for seq in sequences():
        decoder_np.forward(cfg, w, seq, ctx=LEN)
    decoder_np.linear = plain
    of = lambda i, n: seen[id(w[f"model.layers.{i}.{n}.weight"])]
    residual = sum(of(i, n) for i in range(cfg["num_hidden_layers"]) for n in ("self_attn.q_proj", "mlp.gate_proj"))
    r, less = largest(residual, stays(dim, 0.8)), {}
    for n, a in w.items():
        less[n] = a[r] if a.ndim == 1 and len(a) == dim and "norm" in n else a[:, r] if n.startswith(("model.embed", "lm_head")) else a
    for i in range(cfg["num_hidden_layers"]):
        p = f"model.layers.{i}."
        g = largest(of(i, "self_attn.o_proj").reshape(kv, -1).sum(1), max(1, round(0.5 * kv)))
        m = largest(of(i, "mlp.down_proj"), stays(ffn, 0.6))
        spread = lambda wide: spread_of(g, wide)
        for n, rows in {"q": spread(share * hd), "k": spread(hd), "v": spread(hd)}.items():
            less[p + f"self_attn.{n}_proj.weight"] = w[p + f"self_attn.{n}_proj.weight"][rows][:, r]
            if p + f"self_attn.{n}_proj.bias" in w:
                less[p + f"self_attn.{n}_proj.bias"] = w[p + f"self_attn.{n}_proj.bias"][rows]
        less[p + "self_attn.o_proj.weight"] = w[p + "self_attn.o_proj.weight"][r][:, spread(share * hd)]
        for n in ("gate", "up"):
            less[p + f"mlp.{n}_proj.weight"] = w[p + f"mlp.{n}_proj.weight"][m][:, r]
        less[p + "mlp.down_proj.weight"] = w[p + "mlp.down_proj.weight"][r][:, m]
    own = {**cfg, "hidden_size": len(r), "num_attention_heads": share * len(g), "num_key_value_heads": len(g), "intermediate_size": len(m), "head_dim": hd}
    within(f"{name} cut", out, own, less, ids, make_models.tokens(name))
    stays_of = lambda i: (r, spread_of(largest(of(i, "self_attn.o_proj").reshape(kv, -1).sum(1), max(1, round(0.5 * kv))), share * hd),
                          largest(of(i, "mlp.down_proj"), stays(ffn, 0.6)))  # fmt: skip
    check_refit(path, name, words, own, less, stays_of)
    report, why = prune(path, out, "depth:1,mlp:0.6", "--method", "gptq", "--type", "int4 g32", "--calib", text, "--seqlen", str(LEN))
    if check(report is not None, f"{name} depth and mlp: {why}"):
        check(report["layers"] == cfg["num_hidden_layers"] - 1, f"{name} depth and mlp: {report['layers']} layers")


def check_experts(path, name):
    """Of a mixture each expert has columns of its own, by the rows that were sent to it."""
    cfg, w, ids = make_models.load(path)
    out, text = os.path.join(path, "experts.lq"), os.path.join(path, "text.txt")
    open(text, "wb").write(TEXT)
    report, why = prune(path, out, "mlp:0.6", *AS_CUT, "--calib", text, "--seqlen", str(LEN))
    if not check(report is not None, f"{name} experts: {why}"):
        return
    down = {id(a): n for n, a in w.items() if ".experts." in n and n.endswith((".w2.weight", ".down_proj.weight"))}
    sums, masks, plain = {id(w[n]): np.zeros(w[n].shape[1]) for n in down.values()}, {}, decoder_np.linear

    def linear(f, x, m, bias=None):
        if id(m) in down:
            sums[id(m)] += np.abs(x).sum(0)
            x = x * masks.get(id(m), 1)
        return plain(f, x, m, bias)

    decoder_np.linear = linear
    for seq in sequences():
        decoder_np.forward(cfg, w, seq, ctx=LEN)
    ffn = next(iter(sums.values())).size
    check(all(v.sum() > 0 for v in sums.values()), f"{name}: an expert that the text does not reach")
    for key, v in sums.items():
        masks[key] = np.zeros(ffn)
        masks[key][largest(v, stays(ffn, 0.6))] = 1
    within(f"{name} experts with {stays(ffn, 0.6)} of {ffn}", out, cfg, w, ids, make_models.tokens(name))
    decoder_np.linear = plain
    report, why = prune(path, out, "mlp:0.6", *KEEP, "--calib", text, "--seqlen", str(LEN))
    if not check(report is not None, f"{name} experts refitted: {why}"):
        return
    read, made = inputs(cfg, w, sequences()), st.read(out)[0]
    for n, key in ((n, key) for key, n in down.items()):
        layer, at = n.split(".experts.")[0], int(n.split(".experts.")[1].split(".")[0])
        columns, got = np.flatnonzero(masks[key]), made[f"{layer}.experts.w2.weight"][at]
        if len(read[n]) < len(columns):
            check((got == w[n][:, columns]).all(), f"{n}: {len(read[n])} rows reached it, and it was refitted")
        elif ".layers.0." in n:  # the rows of later ones are off by what f32 and f64 route otherwise
            least_squares(n, got, w[n][:, columns], read[n][:, columns], read[n] @ w[n].T.astype(np.float64))


def least_squares(what, got, cut, x, y):
    """Of what is read now and what was said, by numpy: the weights that are nearest to it and, a little, to those that were cut."""
    x, cut, got = (a.astype(np.float64) for a in (x, cut, got))
    pull = np.sqrt(0.01 * (x * x).sum() / x.shape[1])  # the damping, of all rows
    lost = lambda a: ((x @ a.T - y) ** 2).sum() + pull * pull * ((a - cut) ** 2).sum()
    rows, said = np.concatenate([x, pull * np.eye(x.shape[1])]), np.concatenate([y, pull * cut.T])
    best = lost(np.linalg.lstsq(rows, said, rcond=None)[0].T)
    # Moments are f32 sums of at most 128 products, off by 128 * 2^-24 of their size; around the least, what is lost by it is that squared.
    check(lost(got) - best <= 1e-5 * (y * y).sum(), f"{what}: loses {lost(got):.6g}, least squares {best:.6g}, all {(y * y).sum():.6g}")
    check(lost(cut) - best > 1e-3 * (y * y).sum(), f"{what}: as it was cut it loses {lost(cut):.6g}, least squares {best:.6g}")
    return lost(got) / lost(cut)


def spread_of(heads, wide):
    return (heads[:, None] * wide + np.arange(wide)).reshape(-1)


def check_refit(path, name, words, own, less, stays_of):
    """Each matrix of a model that was cut makes, of what it reads there, what it made in the whole one, as nearly as it can."""
    out = os.path.join(path, "refit.lq")
    report, why = prune(path, out, *words, *KEEP)
    if not check(report is not None, f"{name} refit: {why}"):
        return
    cfg, w, _ = make_models.load(path)
    made = {**less, **{n: a for n, a in st.read(out)[0].items() if n in less}}
    then, now, shares = inputs(cfg, w, sequences()), inputs(own, made, sequences()), []
    for n, a in w.items():
        if ".layers." not in n or a.ndim != 2:
            check(n not in made or (made[n] == less[n]).all(), f"{name}: {n} is not as it was cut")
            continue
        r, heads, inner = stays_of(int(n.split(".")[2]))
        kv, hd, part = own["num_key_value_heads"], own["head_dim"], n.split(".")[-2][0]
        groups = heads.reshape(kv, -1)[:, 0] // (len(heads) // kv)
        rows = {"o": r, "d": r, "g": inner, "u": inner, "q": spread_of(groups, own["num_attention_heads"] // kv * hd), "k": spread_of(groups, hd),
                "v": spread_of(groups, hd)}[part]  # fmt: skip
        shares.append(least_squares(f"{name} {n}", made[n], less[n], now[n], then[n] @ a[rows].T.astype(np.float64)))
    print(f"{name} refitted: each matrix loses {min(shares):.3f} to {max(shares):.3f} of what it lost as it was cut")


NO_INNER = {
    "bloom": "its inner width", "bloom_pow": "its inner width", "mpt": "its inner width", "mpt_heads": "its inner width",  # four times the width
    "gpt_oss_mx": "is quantized already",
}  # fmt: skip


# --- the command ---


def check_command(path, folder):
    out = os.path.join(folder, "command.lq")
    for what, words in {
        "depth:0": "at least 1", "depth": "at least 1", "depth:x": "at least 1", "depth:1.5": "at least 1", "": "nothing that can go",
        "layers:2": '"layers" is nothing that can go', "mlp:0": "more than 0", "mlp:1.1": "at most 1", "heads:x": "expected the share",
        "width:0.8,mlp:0.5": "mlp is said twice", "hidden:nan": "expected the share", "depth:1,depth:1": "said twice", "depth:99": "99 layers are to go, but",
    }.items():
        report, why = prune(path, out, what)
        check(report is None and words in why and not os.path.exists(out), f"--prune {what!r}: {why}")
    for name, what in (".pruned.lq", "depth:1"), (".cut.lq", "depth:1"), (".cut.lq", "mlp:0.6"):
        open(out + name, "w").write("somebody's")
        report, why = prune(path, out, what)
        check("is there already" in why and open(out + name).read() == "somebody's", f"OUT{name} is somebody's: {why}")
        os.remove(out + name)
    files = {}
    for method in ("rtn", "gptq", "awq", "hadamard"):
        words = ("--method", method, "--type", "int4 g32", "--samples", "4", "--seqlen", "64")
        what = "depth:1" if method != "awq" else "depth:1,mlp:0.6"
        report, why = prune(path, out, what, *words)
        if not check(report is not None, f"{method} of a pruned model: {why}"):
            continue
        r = subprocess.run([lq, "quantize", path, out, "--prune", what, *words, "--quiet", "--threads", "1", "--dry-run", "--json", "--force"],
                           capture_output=True, text=True)
        plan = json.loads(r.stdout) if r.returncode == 0 else {"plan_bytes": 0, "out_bytes": 0}
        # What went is not known: the words of it are not in the header's room. A plan counts each of a matrix's parts up to the next page.
        slack = 65536 + 4096 * 2 * len(report["modules"])
        near = abs(plan["plan_bytes"] - report["run"]["plan_bytes"]) < 4096 and 0 <= plan["out_bytes"] - report["output"]["bytes"] < slack
        check(near and not os.path.exists(out + ".partial"), f"{method}: --dry-run plans {plan}, the run {report['run']}: {r.stderr}")
        files[method] = open(out, "rb").read()
        check(report["input"]["path"].startswith(path) and report["layers"] == report["recipe"]["prune"]["layers"] - 1, f"{method}: report")
        check(not os.path.exists(out + ".pruned.lq") and not os.path.exists(out + ".pruned.lq.partial"), f"{method}: what lay beside {out} is gone")
        for verb in (["run", out, "Once", "-n", "4", "--raw"], ["inspect", out, "--verify"], ["eval", out, "--text", os.path.join(folder, "text.txt")]):
            r = subprocess.run([lq, *verb], capture_output=True, text=True)
            check(r.returncode == 0, f"{method}: lq {verb[0]} of a pruned model: {r.stderr.strip()}")
    words = ["--prune", "depth:1,width:0.6", "--method", "gptq", "--type", "int4 g32", "--samples", "8", "--seqlen", "64", "--force", "--quiet"]
    for more in ["--threads", "1"], ["--threads", "3"], ["--threads", "2", "--max-ram", "40M"]:
        r = subprocess.run([lq, "quantize", path, out, *words, *more], capture_output=True, text=True)
        check(r.returncode == 0 and open(out, "rb").read() == files.setdefault("refit", open(out, "rb").read()), f"{more} give other bytes {r.stderr}")
        check(not os.path.exists(out + ".pruned.lq") and not os.path.exists(out + ".cut.lq"), f"{more}: what lay beside {out} is gone")
    r = subprocess.run([lq, "quantize", path, out, "--prune", "depth:1", "--force", "--dry-run"], capture_output=True, text=True)
    check(r.returncode == 0 and "prune depth:1" in r.stderr and open(out, "rb").read() == files.get("refit"), f"--dry-run: {r.stderr}")


def check_one(path):
    counted.passed = counted.failed = 0
    name = os.path.basename(path)
    check_depth(path, name)
    check_inner(path, name, path)
    check_any(path, name, "heads:0.5")
    check_any(path, name, "hidden:0.8")
    if name in ("gqa", "llama3", "qwen2", "mistral"):
        check_script(path, name)
    if name == "mixtral":
        check_experts(path, name)
    sys.stdout.flush()
    return counted.passed, counted.failed


with tempfile.TemporaryDirectory() as folder:
    make_models.make(folder)
    names = [n for n in sys.argv[2:] if n != "command"] if sys.argv[2:] else make_models.MODELS
    with multiprocessing.Pool() as pool:
        for good, bad in pool.imap_unordered(check_one, [os.path.join(folder, name) for name in names]):
            counted.passed, counted.failed = counted.passed + good, counted.failed + bad
    if not sys.argv[2:] or "command" in sys.argv:
        for name in ("llama3", "cwm"):
            check_order(os.path.join(folder, name), name, folder)
        check_command(os.path.join(folder, "llama3"), folder)
sys.exit(end())
