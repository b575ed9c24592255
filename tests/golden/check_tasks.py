#!/usr/bin/python3
# check_tasks.py LQ: `lq eval --tasks` on questions of shared/data with a real model (stories260K), against the way lm-evaluation-harness
# counts, written here anew over the numpy Llama and its own tokenizer; and lines that are no questions, on the demo.
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
import decoder_np
import llama2c

lq, shared = os.path.abspath(sys.argv[1]), os.path.join(here, "../../../shared/data")
demo, model = os.path.join(here, "../../calib_data/demo"), os.path.join(shared, "models/stories260K")
passed = failed = skipped = 0
LIMITS = {"copa": 40, "piqa": 15, "winogrande": 30, "arc_easy": 12, "lambada_openai": 20, "boolq": 6, "commonsense_qa": 10, "made": 100, "words": 100}
# What no file has: an empty text, white space at the end of many kinds, words whose letters have several bytes, equal answers.
MADE = [{"query": "", "choices": ["Once", "Zzz"], "gold": 0}, {"query": "She was happy. \u3000\n\t ", "choices": ["a", "The end"], "gold": 1},
        {"query": "One day,", "choices": ["\u00e9\u00e9\u4e2d \u6587", "Tim went home."], "gold": 0}, {"query": "He", "choices": ["ran", "ran"], "gold": 1}]
# Words that the model knows, two of them with more than one token.
WORDS = [{"context": "Once upon a", "continuation": "time"}, {"context": "Once upon a time, there was a little girl named", "continuation": "Lily"},
         {"context": "Lily went to the", "continuation": "park"}, {"context": "She was very happy and", "continuation": "elephant"},
         {"context": "<s>Once upon a", "continuation": "dog"}]  # it brings its own BOS


def check(good, what):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    print(("ok:     " if good else "FAILED: ") + what)


def run(*args):
    return subprocess.run([lq, *args], capture_output=True, text=True)


class Scorer:
    def __init__(self, folder):
        self.cfg, raw = llama2c.write(model + "/stories260K.bin", model + "/tok512.model", folder)
        self.w = {k: v.astype(np.float64) for k, v in raw.items()}
        self.vocab = llama2c.pieces(model + "/tok512.model")

    def encode(self, text):
        return llama2c.encode(self.vocab, text.removeprefix("<s>")) if text else [1]

    def __call__(self, text, answer):
        """ln p of the answer behind the text, and whether each of its tokens is the likeliest."""
        blanks = len(text) - len(text.rstrip())
        if blanks:
            text, answer = text[:-blanks], text[-blanks:] + answer
        whole, own = self.encode(text + answer), self.encode(text)
        tail = len(whole) - len(own)
        whole[: len(own)] = own
        whole = np.array(whole[-self.cfg["max_position_embeddings"] :])
        logits = decoder_np.forward(self.cfg, self.w, whole)[-tail - 1 : -1]
        logp = logits - logits.max(-1, keepdims=True)
        logp -= np.log(np.exp(logp).sum(-1, keepdims=True))
        order = np.sort(logits, -1)
        self.near = (order[:, -1] - order[:, -2]).min() < 1e-3
        return logp[np.arange(tail), whole[-tail:]].sum(), bool((logits.argmax(-1) == whole[-tail:]).all())


def reference(score, rows):
    """What lq is to say of these rows, and how many questions are too close to call in f32."""
    acc, norm, lls, close = [], [], [], 0
    for row in rows:
        if "choices" in row:
            ll = np.array([score(row["query"], " " + c)[0] for c in row["choices"]])
            by = ll / np.array([float(len(c)) for c in row["choices"]])
            norm.append(by.argmax() == row["gold"])
        elif "context_options" in row:
            ll = by = np.array([score(c, " " + row["continuation"])[0] for c in row["context_options"]])
        else:
            ll, greedy = score(row["context"], " " + row["continuation"])
            lls.append(ll)
            acc.append(greedy)
            close += score.near
            continue
        acc.append(ll.argmax() == row["gold"])
        top, norm_top = np.sort(ll), np.sort(by)
        close += 0 < top[-1] - top[-2] < 1e-3 or 0 < norm_top[-1] - norm_top[-2] < 1e-4
    error = lambda x: np.std(x, ddof=1) / math.sqrt(len(x))
    out = {"acc": np.mean(acc), "acc_error": error(acc)}
    if norm:
        out |= {"acc_norm": np.mean(norm), "acc_norm_error": error(norm)}
    if lls:
        out |= {"perplexity": math.exp(-np.mean(lls)), "perplexity_error": math.exp(-np.mean(lls)) * error(lls)}
    return out, close


def compare(folder):
    score = Scorer(folder + "/model")
    open(folder + "/made.jsonl", "w").write("\n".join(map(json.dumps, MADE)) + "\r\n\n  \n")
    open(folder + "/words.jsonl", "w").write("\n".join(map(json.dumps, WORDS)))
    files = {name: f"{folder}/{name}.jsonl" if name in ("made", "words") else f"{shared}/tasks/{name}.jsonl" for name in LIMITS}
    for name, limit in LIMITS.items():
        rows = [json.loads(line) for line in open(files[name]) if line.strip()][:limit]
        out = run("eval", folder + "/model", "--tasks", files[name], "--limit", str(limit), "--exact", "--json")
        if out.returncode:
            check(False, f"{name}: {out.stderr}")
            continue
        got = json.loads(out.stdout)["tasks"][0]
        want, close = reference(score, rows)
        # An accuracy may be off by the questions that f32 cannot decide; ln p as in check_ppl.py.
        good = got["questions"] == len(rows) and all(
            abs(got[k] - v) <= (2e-3 * v if k.startswith("perp") else close / len(rows) + 1e-8 + (k.endswith("error") and close)) for k, v in want.items())
        check(good, f"{name}, {len(rows)} questions, {close} close, {got['cut']} cut: {({k: got[k] for k in want})}, numpy {({k: float(v) for k, v in want.items()})}")
        check((got["acc_norm"] is None) == ("acc_norm" not in want) and (got["perplexity"] is None) == ("perplexity" not in want), f"{name}: figures that it has not")
    both = run("eval", folder + "/model", "--tasks", files["copa"] + "," + files["boolq"], "--limit", "6", "--exact", "--json")
    names = [t["task"] for t in json.loads(both.stdout)["tasks"]]
    check(names == ["copa", "boolq"] and json.loads(both.stdout)["tasks"][1]["cut"] > 0, f"two tasks: {names}")


def refusals(folder):
    good, path = json.dumps(MADE[1]), folder + "/bad.jsonl"
    for what, text, says in (("not JSON", good + "\n{", "line 2"), ("no object", "[]", "line 1"), ("empty", "", "no question"), ("blank", "\n \n", "no question"),
                             ("gold", '{"query": "a", "choices": ["b", "c"], "gold": 2}', "line 1"), ("no gold", '{"query": "a", "choices": ["b", "c"]}', "line 1"),
                             ("one choice", '{"query": "a", "choices": ["b"], "gold": 0}', "line 1"), ("no text", '{"query": "a", "choices": ["b", ""], "gold": 0}', "line 1"),
                             ("numbers", '{"query": "a", "choices": [1, 2], "gold": 0}', "line 1"), ("two kinds", good + '\n{"context": "a", "continuation": "b"}', "line 2"),
                             ("no query", '{"choices": ["b", "c"], "gold": 1}', "line 1"), ("string", '{"query": "a", "choices": "bc", "gold": 1}', "line 1"),
                             ("long", json.dumps({"context": "a", "continuation": "a b " * 3000}), "line 1"), ("null", '{"context": null, "continuation": "a"}', "line 1")):
        open(path, "w").write(text)
        r = run("eval", demo, "--tasks", path, "--exact")
        check(r.returncode == 1 and r.stderr.count("\n") == 1 and path in r.stderr and says in r.stderr, f"{what}: {r.returncode} {r.stderr.strip()[-150:]}")
    # ".\n" is one token of the demo's: behind a text that ends with it the harness has the text's own, which is ".".
    scores = []
    for context in ("Make a pillow.\n", "Make a pillow.", "Make a pillow,"):
        open(path, "w").write(json.dumps({"context": context, "continuation": "Then the girl went home."}))
        scores.append(json.loads(run("eval", demo, "--tasks", path, "--exact", "--json").stdout)["tasks"][0]["perplexity"])
    check(scores[0] == scores[1] != scores[2], f"a token across a text's end: {scores}")
    r = run("eval", demo, "--tasks", folder + "/none.jsonl")
    check(r.returncode == 1 and r.stderr.count("\n") == 1, "a file that is not there")


with tempfile.TemporaryDirectory() as folder:
    refusals(folder)
    if os.path.exists(model):
        compare(folder)
    else:
        skipped = 1
        print("SKIPPED: shared/data/models/stories260K is not there")
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(failed != 0)
