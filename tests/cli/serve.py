#!/usr/bin/env python3
# serve.py: the server as a client meets it: every endpoint, every refusal, streams, clients that vanish, stall or lie. (serve_life.py: who may
# ask, queues, places, the end.)
# Starts the program itself on free loopback ports. LQ: the program (build/release/lq); LQ_MODEL: the model (else calib_data/demo, and
# for what is asked in one server a sentencepiece model, where numpy and ../shared/data are); LQ_SLOW: a factor on every time limit,
# for builds with sanitizers. Names of tests as arguments: those alone.
import asyncio, fcntl, http.client, json, math, os, pathlib, random, re, resource, signal, socket, struct, subprocess, sys, tempfile, threading, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from counted import check, end, skip  # noqa: E402

LQ = os.environ.get("LQ", str(ROOT / "build/release/lq"))
MODEL = os.environ.get("LQ_MODEL", str(ROOT / "calib_data/demo"))
SPM = False  # MODEL is the sentencepiece one
LONG = 900  # tokens of a long answer
DATA = ROOT.parent / "shared/data"
SLOW = float(os.environ.get("LQ_SLOW", "1"))
JSON = {"Content-Type": "application/json"}


class Server:
    def __init__(self, *args, env=None, files=None):  # files: how many it may have open
        self.log = tempfile.TemporaryFile("w+")
        fcntl.fcntl(self.log, fcntl.F_SETFL, os.O_APPEND)  # where this end reads moves no place to write
        self.p = subprocess.Popen([LQ, "serve", MODEL, "--name", "demo", "--port", "0", "--json", *args], stdout=subprocess.PIPE,
                                  stderr=self.log, text=True, env={**os.environ, **(env or {})},
                                  preexec_fn=files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))))
        line = self.p.stdout.readline()
        if not line:
            raise SystemExit("serve.py: the server did not start: " + self.errors())
        self.port = json.loads(line)["port"]

    def errors(self):
        self.log.seek(0)
        return self.log.read()

    def ask(self, method, path, body=None, headers=JSON, timeout=60):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * SLOW)
        try:
            c.request(method, path, json.dumps(body) if isinstance(body, (dict, list)) else body, headers if body is not None else
                      {k: v for k, v in headers.items() if k != "Content-Type"})
            r = c.getresponse()
            return r.status, r.headers, r.read()
        finally:
            c.close()

    def post(self, body, path="/v1/completions", want=200):
        status, _, raw = self.ask("POST", path, {"model": "demo", **body})
        check(status == want, path, body if len(str(body)) < 200 else "...", "gave", status, raw[:200])
        return json.loads(raw)

    def text(self, prompt, **more):
        return self.post({"prompt": prompt, "temperature": 0, **more})["choices"][0]["text"]

    def metrics(self):
        out = {}
        for line in self.ask("GET", "/metrics")[2].decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name.split("{")[0] + ("".join(name.partition(",")[1:]).rstrip("}"))] = float(value)
        return out

    def idle(self, seconds=10):
        """Everything was given back, within so long."""
        end = time.monotonic() + seconds * SLOW
        while True:
            m = self.metrics()
            now = (m["vllm:num_requests_running"], m["vllm:num_requests_waiting"], m["lq:kv_blocks"] - m["lq:kv_blocks_free"])
            if now == (0, 0, 0) or time.monotonic() > end:
                return now == (0, 0, 0) or now
            time.sleep(0.02)

    def raw(self, data, wait=5, half=False):
        """Bytes out, bytes back until the server closes or nothing comes for `wait` seconds."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait * SLOW) as s:
            got = b""
            try:
                s.sendall(data)
                if half:
                    s.shutdown(socket.SHUT_WR)
                while chunk := s.recv(65536):
                    got += chunk
            except OSError:  # closed, reset, or silent for too long
                pass
            return got

    def stop(self):
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGTERM)
        code = self.p.wait(60 * SLOW)
        check(code == 0, "exit status", code, self.errors()[-500:])
        said = self.errors()
        for word in ("runtime error", "ERROR: AddressSanitizer", "WARNING: ThreadSanitizer", "ERROR: LeakSanitizer"):
            check(word not in said, said[said.find(word):][:4000])


def events(raw):
    """The data of each event of a stream; each must be text by itself."""
    out = []
    for block in raw.split(b"\n\n"):
        if block.startswith(b"data: "):
            text = block[6:].decode("utf-8")
            out.append(text if text == "[DONE]" else json.loads(text))
    return out


def stream_text(raw, index=0):
    return "".join(c["text"] for e in events(raw) if e != "[DONE]" for c in e.get("choices", []) if c["index"] == index)


def check_offsets(c, what):
    """Each token's text stands where text_offset says, with whichever blank before it; of what a stop string cut off, as much as is left."""
    text, lp, last = c["text"], c["logprobs"], 0
    for tok, at in zip(lp["tokens"], lp["text_offset"]):
        check(last <= at, what, "text_offset goes back", last, at)
        last = at
        if tok.startswith("bytes:") or tok.startswith("<"):
            continue
        here = text[at:at + len(tok)]
        if tok[:1] == " " and here[:1].isspace():
            here = " " + here[1:]
        dropped = at == 0 and tok[:1] == " " and tok[1:] == text[:len(tok) - 1]  # a sentencepiece text loses its first space
        check(dropped or here == tok or (c["finish_reason"] == "stop" and tok.startswith(here)), what, "text_offset", at, repr(tok), repr(text[at:at + 12]))


# --- one request at a time ---

def test_endpoints(s):
    status, head, raw = s.ask("GET", "/health")
    check(status == 200 and head["Content-Type"] == "application/json", "/health", status)
    check(s.ask("GET", "/ready")[0] == 200, "/ready")
    status, _, raw = s.ask("HEAD", "/health")
    check(status == 200 and raw == b"", "HEAD /health", status, raw)
    models = json.loads(s.ask("GET", "/v1/models")[2])
    check(models["object"] == "list" and [m["id"] for m in models["data"]] == ["demo"] and models["data"][0]["object"] == "model", models)
    one = json.loads(s.ask("GET", "/v1/models/demo")[2])
    check(one == models["data"][0], one)
    check(s.ask("GET", "/v1/models/other")[0] == 404, "/v1/models/other")
    m = s.metrics()
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc",
                 "vllm:prompt_tokens_total", "vllm:generation_tokens_total", 'vllm:request_success_total,finished_reason="length"'):
        check(name in m, "metric", name)
    for text in ("Once upon a time", "caf\u00e9 \u65e5\u672c \U0001f600 \"q\"\n\t\\", ""):
        t = s.post({"prompt": text, "add_special_tokens": False}, "/tokenize")
        check(t["count"] == len(t["tokens"]) and t["max_model_len"] > 0, t)
        check(s.post({"tokens": t["tokens"]}, "/detokenize")["prompt"] == text, "round trip of", repr(text))
    t = s.post({"prompt": "Once", "return_token_strs": True}, "/tokenize")
    check(len(t["token_strs"]) == t["count"], t)


def test_completion(s):
    r = s.post({"prompt": "Once upon a time", "temperature": 0})
    check(set(r) == {"id", "object", "created", "model", "choices", "usage"} and r["object"] == "text_completion" and r["model"] == "demo" and
          r["id"].startswith("cmpl-") and abs(r["created"] - time.time()) < 60, r)
    c = r["choices"][0]
    check(set(c) == {"text", "index", "logprobs", "finish_reason"} and c["index"] == 0 and c["logprobs"] is None, c)
    u = r["usage"]
    check(u["completion_tokens"] <= 16 and u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"], u)
    check(c["finish_reason"] == ("length" if u["completion_tokens"] == 16 else "stop"), r)
    check(r["id"] != s.post({"prompt": "x", "max_tokens": 1})["id"], "ids are distinct")
    ids = s.post({"prompt": "Once upon a time"}, "/tokenize")["tokens"]
    check(u["prompt_tokens"] == len(ids), u, len(ids))
    check(s.text(ids) == c["text"], "tokens as the prompt")
    both = s.post({"prompt": ["Once upon a time", "The cat"], "n": 2, "temperature": 0})
    check([x["index"] for x in both["choices"]] == [0, 1, 2, 3], both)
    check(both["choices"][0]["text"] == both["choices"][1]["text"] == c["text"] and both["choices"][2]["text"] == s.text("The cat"), "an array of prompts")
    check(s.post({"prompt": [ids, ids], "temperature": 0})["choices"][1]["text"] == c["text"], "arrays of tokens")
    check(s.text("Once upon a time", echo=True) == "Once upon a time" + c["text"], "echo")
    check(s.text(ids, echo=True) == "Once upon a time" + c["text"], "echo of tokens")
    if SPM:  # as its makers' own program goes on
        check(s.text("Once upon a time, there").startswith(" was a little girl named Lily."), "the space between prompt and answer", s.text("Once upon a time, there"))
    part = s.post({"prompt": "a\u2603", "add_special_tokens": False}, "/tokenize")["tokens"]
    if len(part) > 1:  # a character that the prompt begins and the answer ends
        check(s.text(part[:-1], max_tokens=1, logit_bias={str(part[-1]): 100}) == "\u2603", "a character across prompt and answer", part)
    seeded = {"prompt": "Once", "temperature": 1.5, "seed": 7, "n": 3, "max_tokens": 24}
    a, b = s.post(seeded), s.post(seeded)
    check([x["text"] for x in a["choices"]] == [x["text"] for x in b["choices"]], "the same seed, the same text")
    check(len({x["text"] for x in a["choices"]}) > 1, "choices differ")
    check(s.post({"prompt": "Once", "user": "u", "metadata": {"a": "b"}, "store": False, "seed": None, "stop": None, "suffix": None, "best_of": 1})["choices"], "null is absent")
    biased = s.post({"prompt": "Once", "temperature": 0, "max_tokens": 4, "logit_bias": {str(ids[-1]): 100}, "logprobs": 0})
    if REAL:
        check(len(set(biased["choices"][0]["logprobs"]["tokens"])) == 1, "logit_bias", biased)
        long = s.post({"prompt": "Once", "max_tokens": 40, "min_tokens": 40, "ignore_eos": True})
        check(long["usage"]["completion_tokens"] == 40 and long["choices"][0]["finish_reason"] == "length", long)
    plain = s.text("Once upon a time", max_tokens=64)
    word = plain[len(plain) // 2:][:3]
    cut = s.post({"prompt": "Once upon a time", "temperature": 0, "max_tokens": 64, "stop": ["\u2603", word]})["choices"][0]
    if REAL:
        check(cut["finish_reason"] == "stop" and cut["text"] == plain[:plain.index(word)], "stop", repr(word), cut)
        kept = s.text("Once upon a time", max_tokens=64, stop=word, include_stop_str_in_output=True)
        check(kept == plain[:plain.index(word)] + word, "stop kept", repr(kept))
        drawn = s.post({"prompt": ids, "temperature": 0, "max_tokens": 9, "logprobs": 0})["choices"][0]
        word = next(t for t in drawn["logprobs"]["tokens"][3:] if t.strip() and t not in drawn["logprobs"]["tokens"][:3])
        at = drawn["logprobs"]["text_offset"][drawn["logprobs"]["tokens"].index(word)]
        token = s.post({"prompt": word, "add_special_tokens": False}, "/tokenize")["tokens"]
        if len(token) == 1:  # a sentencepiece word is another token where it stands alone
            stops = {"prompt": ids, "max_tokens": 9, "stop_token_ids": token}
            check(s.text(**stops) == drawn["text"][:at] and s.text(**stops, include_stop_str_in_output=True) == drawn["text"][:at] + word, "a stopping token kept", repr(word), repr(drawn["text"]))
        check(s.text("The end.", max_tokens=60, include_stop_str_in_output=True) == s.text("The end.", max_tokens=60), "a special one is not")


def test_beams(s):
    """The same search over what single tokens cost, as transformers' generate has it (early_stopping "never")."""
    if SPM:  # whose words are other tokens where they stand alone
        return
    ids, n, most = s.post({"prompt": "Once upon a"}, "/tokenize")["tokens"], 3, 6
    for penalty in (1, 0, 2):
        beams, found = [([], 0.0)], []
        for _ in range(most):
            after = []
            for tokens, score in beams:
                top = s.post({"prompt": ids + tokens, "max_tokens": 1, "temperature": 0, "ignore_eos": True, "logprobs": 20})["choices"][0]["logprobs"]["top_logprobs"][0]
                after += [(tokens, score + v, k) for k, v in top.items()]
            beams = []
            for tokens, score, word in sorted(after, key=lambda a: -a[1])[:n]:
                token = s.post({"prompt": word, "add_special_tokens": False}, "/tokenize")["tokens"]
                beams.append((tokens + token, score))
        want = sorted(beams, key=lambda b: -b[1] / most**penalty)
        r = s.post({"prompt": ids, "use_beam_search": True, "n": n, "max_tokens": most, "logprobs": 1, "length_penalty": penalty, "ignore_eos": True})
        for c, (tokens, score) in zip(r["choices"], want):
            check(abs(sum(c["logprobs"]["token_logprobs"]) - score) < 1e-4 and len(c["logprobs"]["tokens"]) == most, "a beam", penalty, c["logprobs"]["token_logprobs"], score)
            check(ids + tokens == s.post({"prompt": s.post({"tokens": ids + tokens}, "/detokenize")["prompt"], "add_special_tokens": False}, "/tokenize")["tokens"][-len(ids + tokens):], "its tokens")
        check(r["usage"]["completion_tokens"] == n * most, r["usage"])
    got = events(s.ask("POST", "/v1/completions", {"prompt": ids, "use_beam_search": True, "n": n, "max_tokens": most, "stream": True, "ignore_eos": True})[2])
    texts = ["".join(c["text"] for e in got[:-1] for c in e["choices"] if c["index"] == i) for i in range(n)]
    whole = s.post({"prompt": ids, "use_beam_search": True, "n": n, "max_tokens": most, "ignore_eos": True})
    check(texts == [c["text"] for c in whole["choices"]], "as a stream", texts)
    check(s.idle() is True, "blocks after searches", s.idle())


def test_logprobs(s):
    prompt = "Once upon a time"
    ids = s.post({"prompt": prompt}, "/tokenize")["tokens"]
    r = s.post({"prompt": prompt, "temperature": 0, "max_tokens": 24, "logprobs": 5, "echo": True, "ignore_eos": True})["choices"][0]
    lp = r["logprobs"]
    n = len(lp["tokens"])
    check(n == len(ids) + 24 == len(lp["token_logprobs"]) == len(lp["top_logprobs"]) == len(lp["text_offset"]), {k: len(v) for k, v in lp.items()})
    check(lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None, "the first token has no logprob")
    check(all(v <= 0 for v in lp["token_logprobs"][1:]), "logprobs are not positive")
    if REAL:
        check(all(max(t.values()) == v for t, v in zip(lp["top_logprobs"][len(ids):], lp["token_logprobs"][len(ids):])), "greedy takes the likeliest")
        check(all(sum(math.exp(v) for v in t.values()) < 1.0001 for t in lp["top_logprobs"][1:]), "no more than 1 in all")
    check(all(5 <= len(t) <= 6 and (tok.startswith("bytes:") or t.get(tok) == v) for t, tok, v in
              zip(lp["top_logprobs"][1:], lp["tokens"][1:], lp["token_logprobs"][1:])), "top_logprobs hold the token")
    check_offsets(r, "echo")
    if SPM:  # whose tokens have fewer blanks
        for given, want in ((" leading", [0, 0, 2, 3, 5]), ("leading", [0, 0, 1, 2, 4])):
            c = s.post({"prompt": given, "max_tokens": 0, "echo": True, "logprobs": 0})["choices"][0]
            check(c["text"] == given and c["logprobs"]["text_offset"] == want, given, c)
    for given in (prompt, ids, "caf\u00e9 \u2603 \U0001f600", "  Once   upon a time, ", "two  spaces\n\nnl", "\n", "\ufb01sh \ufb01n e\u0301tude x \u2163 y"):
        for more in ({}, {"echo": True}, {"stop": r["text"][len(prompt):][:9] + "\u2603"}, {"stop": [" a", "nd"]}, {"stop": [" a", "nd"], "echo": True}):
            c = s.post({"prompt": given, "temperature": 0, "max_tokens": 30, "logprobs": 0, **more})["choices"][0]
            check_offsets(c, (given, more))
    if REAL:
        # What was sampled step by step, scored in one piece: the same numbers, bit for bit.
        back = s.post({"prompt": r["text"]}, "/tokenize")["tokens"]
        once = s.post({"prompt": back, "max_tokens": 0, "echo": True, "logprobs": 1})
        again = s.post({"prompt": r["text"], "max_tokens": 0, "echo": True, "logprobs": 1})
        score = once["choices"][0]["logprobs"]
        if score["tokens"] == lp["tokens"]:
            check(score["token_logprobs"] == lp["token_logprobs"], "scored as sampled", score["token_logprobs"], lp["token_logprobs"])
        else:
            skip("the sampled text has another tokenization than the one that was sampled")
        check(once["usage"]["completion_tokens"] == 0 and once["choices"][0]["text"] == r["text"] and
              score == again["choices"][0]["logprobs"], "max_tokens 0 scores and adds nothing")
    none = s.post({"prompt": prompt, "max_tokens": 2, "logprobs": 0})["choices"][0]["logprobs"]
    check(none["top_logprobs"] is None and len(none["token_logprobs"]) == 2, none)


def test_stream(s):
    for body in ({"prompt": "Once upon a time"}, {"prompt": ["Once", "The \u00e9"], "n": 2, "seed": 3}, {"prompt": "Once", "echo": True, "logprobs": 2},
                 {"prompt": "Once upon a time, there", "logprobs": 1, "stop": " was a little cat"}, {"prompt": "Once", "logprobs": 1, "stop": [" a", " the"]}):
        body = {"model": "demo", "temperature": 0, "max_tokens": 40, **body}
        whole = s.post(body)
        status, head, raw = s.ask("POST", "/v1/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
        ev = events(raw)
        check(status == 200 and head["Content-Type"].startswith("text/event-stream") and ev[-1] == "[DONE]" and raw.endswith(b"data: [DONE]\n\n"), status)
        chunks, last = ev[:-2], ev[-2]
        check(last["choices"] == [] and last["usage"] == {**whole["usage"], "prompt_tokens_details": last["usage"]["prompt_tokens_details"]}, last, whole["usage"])
        check(all(e["usage"] is None and e["object"] == "text_completion" and e["id"] == last["id"] for e in chunks), "chunks")
        for c in whole["choices"]:
            check(stream_text(raw, c["index"]) == c["text"], "stream and whole", c["index"], repr(stream_text(raw, c["index"])), repr(c["text"]))
            mine = [x for e in chunks for x in e["choices"] if x["index"] == c["index"]]
            check([x["finish_reason"] for x in mine] == [None] * (len(mine) - 1) + [c["finish_reason"]], "finish_reason comes last, once")
            if c["logprobs"]:
                for k in c["logprobs"]:
                    check([v for x in mine for v in x["logprobs"][k]] == c["logprobs"][k], "logprobs in chunks", k)
    plain = events(s.ask("POST", "/v1/completions", {"model": "demo", "prompt": "Once", "stream": True})[2])
    check(all("usage" not in e for e in plain[:-1]), "usage only where asked for")


# A field of a completion, the option of `lq run` that is the same (None: there is none), a value, and what both are asked beside it.
COLD, WARM, STOP = {"temperature": 0}, {"temperature": 1.5, "seed": 7}, {"temperature": 0, "stop": " "}
HOT = {"temperature": 3, "seed": 7}  # a model that is sure of its words says the same at 1.5
SAMPLING = [
    ("temperature", "--temp", 0.6, WARM), ("seed", "--seed", 2 ** 63 - 1, WARM), ("top_k", "--top-k", 2, WARM), ("top_p", "--top-p", 0.3, WARM),
    ("min_p", "--min-p", 0.3, WARM), ("typical_p", "--typical", 0.2, WARM), ("repetition_penalty", "--repeat-penalty", 1.9, COLD),
    ("presence_penalty", "--presence-penalty", 2, HOT), ("frequency_penalty", "--frequency-penalty", 2, HOT),
    ("max_tokens", "--max-tokens", 9, COLD), ("min_tokens", "--min-tokens", 30, STOP), ("stop", "--stop", " ", COLD),
    ("ignore_eos", "--ignore-eos", True, {"temperature": 0, "prompt": "The end.", "max_tokens": 60}), ("n", None, 2, COLD),
    ("include_stop_str_in_output", None, True, STOP), ("priority", None, 0, COLD), ("deadline_ms", None, 3600000, COLD), ("length_penalty", None, 2, COLD),
]


def test_sampling(s):
    """Each field arrives at the sampler: it changes the answer, to what the same option of `lq run` makes of it."""
    options = {field: option for field, option, _, _ in SAMPLING}

    def cli(prompt, **body):
        words = [w for k, v in body.items() for w in ([options[k]] if v is True else [options[k], str(v)])]
        p = subprocess.run([LQ, "run", "--raw", MODEL, prompt, "-q", *words], capture_output=True, timeout=60 * SLOW)
        return p.stdout.decode().removesuffix("\n") if p.returncode == 0 else p.stderr.decode()
    for field, option, value, beside in SAMPLING:
        ask = {"prompt": "Once upon a time", "max_tokens": 40, "top_p": 1, **beside}  # the demo's own top_p is another
        if field != "ignore_eos":
            ask["ignore_eos"] = True
        without = s.post(ask)["choices"][0]
        answer = s.post({**ask, field: value})["choices"]
        if field == "n":
            check(len(answer) == value, "n", answer)
        elif field not in ("priority", "deadline_ms", "length_penalty") and not (field == "ignore_eos" and SPM):  # tests of their own show them; stories260K ends no text
            check(answer[0]["text"] != without["text"], field, "has no effect", repr(without))
        if option:
            got = cli(**{**ask, field: value})
            check(got == answer[0]["text"].removesuffix("\n"), field, "of the server and", option, "of lq run differ", repr(answer[0]["text"]), repr(got))
    # No row of the two programs' tables is without one here.
    for name, pattern in (("runtime/serve/fields.c", r'{"(\w+)", \w+, LQ_AT\(ask\.'), ("tools/lq_run.c", r'{"([\w-]+)", [^,]*, \w+, ASK\(')):
        rows = set(re.findall(pattern, (ROOT / name).read_text()))
        known = set(options) | {o[2:] for o in options.values() if o}
        check(len(rows) > 8 and rows <= known, name, "has fields that no row of SAMPLING tries:", rows - known)


def test_refusals(s):
    ok = {"model": "demo", "prompt": "Once"}
    rows = [  # changes to a good body, status, param
        ({"prompt": None}, 400, "prompt"), ({"prompt": 7}, 400, "prompt"), ({"prompt": []}, 400, "prompt"), ({"prompt": [[]]}, 400, "prompt"),
        ({"prompt": [1, -1]}, 400, "prompt"), ({"prompt": [1, 1.5]}, 400, "prompt"), ({"prompt": [10 ** 9]}, 400, "prompt"), ({"prompt": ["a", 1]}, 400, "prompt"),
        ({"prompt": {"a": 1}}, 400, "prompt"), ({"prompt": [["a"]]}, 400, "prompt"), ({"prompt": ["x"] * 2100}, 400, "prompt"),
        ({"prompt": [5] * 5000}, 400, "prompt"), ({"max_tokens": 10 ** 6}, 400, "max_tokens"), ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": -1}, 400, "max_tokens"), ({"max_tokens": 1.5}, 400, "max_tokens"), ({"max_tokens": "9"}, 400, "max_tokens"),
        ({"max_tokens": 10 ** 30}, 400, "max_tokens"), ({"temperature": -1}, 400, "temperature"), ({"temperature": "hot"}, 400, "temperature"),
        ({"top_p": 1.1}, 400, "top_p"), ({"top_k": -2}, 400, "top_k"), ({"min_p": 2}, 400, "min_p"), ({"n": 0}, 400, "n"), ({"n": 129}, 400, "n"),
        ({"best_of": 0}, 400, "best_of"), ({"n": 3, "best_of": 2}, 400, "best_of"), ({"best_of": 2, "stream": True}, 400, "best_of"), ({"prompt": ["a"] * 17, "best_of": 128}, 400, "best_of"),
        ({"logprobs": 21}, 400, "logprobs"), ({"logprobs": True}, 400, "logprobs"), ({"echo": 1}, 400, "echo"),
        ({"stream": "yes"}, 400, "stream"), ({"stream_options": {}}, 400, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, 400, "stream_options.include_usage"), ({"stop": ["x" * 5000]}, 400, "stop"), ({"stop": ""}, 400, "stop"), ({"stop": ["a", 1]}, 400, "stop"),
        ({"stop": ["a"] * 17}, 400, "stop"), ({"seed": 1.5}, 400, "seed"), ({"seed": 10 ** 20}, 400, "seed"), ({"presence_penalty": 3}, 400, "presence_penalty"),
        ({"frequency_penalty": -3}, 400, "frequency_penalty"), ({"repetition_penalty": 0}, 400, "repetition_penalty"), ({"logit_bias": []}, 400, "logit_bias"),
        ({"logit_bias": {"x": 1}}, 400, "logit_bias"), ({"logit_bias": {"-1": 1}}, 400, "logit_bias"), ({"logit_bias": {"1": 101}}, 400, "logit_bias"),
        ({"logit_bias": {"99999999999999999999": 1}}, 400, "logit_bias"), ({"min_tokens": 17}, 400, "min_tokens"), ({"suffix": "x"}, 400, "suffix"),
        ({"use_beam_search": 1}, 400, "use_beam_search"), ({"use_beam_search": True, "n": 17}, 400, "n"), ({"use_beam_search": True, "best_of": 20}, 400, "best_of"), ({"use_beam_search": True, "stop": "a"}, 400, "stop"),
        ({"guided_json": {}}, 400, "guided_json"), ({"guided_choice": ["a"]}, 400, "guided_choice"),
        ({"structured_outputs": {"regex": "a"}}, 400, "structured_outputs"), ({"logits_processors": ["x"]}, 400, "logits_processors"),
        ({"allowed_token_ids": [1]}, 400, "allowed_token_ids"), ({"length_penalty": 11}, 400, "length_penalty"), ({"skip_special_tokens": False}, 400, "skip_special_tokens"),
        ({"prompt": "x" * 60000, "echo": True, "n": 128, "stream": True}, 400, "echo"), ({"prompt": "x" * 3000000}, 400, "prompt"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format"), ({"model": "other"}, 404, "model"), ({"model": 1}, 400, "model"),
        ({"stop_token_ids": [-1]}, 400, "stop_token_ids"), ({"priority": 1e30}, 400, "priority"), ({"priority": -1}, 400, "priority"), ({"user": 5}, 400, "user"),
    ]
    for change, want, param in rows:
        status, _, raw = s.ask("POST", "/v1/completions", {**ok, **change})
        e = json.loads(raw)["error"]
        check(status == want and e["param"] == param and param in e["message"] and set(e) == {"message", "type", "param", "code"} and
              e["type"] == "invalid_request_error", list(change.items())[0][0], status, e)
    check(s.post({**ok, "max_tokens": 1, "foo": 1, "stream_options": None, "stop": [], "guided_json": None, "suffix": "", "logits_processors": []})["choices"], "unknown fields are ignored")
    check(json.loads(s.ask("POST", "/v1/completions", {**ok, "max_tokens": 10 ** 6})[2])["error"]["code"] == "context_length_exceeded", "code of a long request")
    bodies = [b"", b"{", b"[]", b"null", b'{"prompt":"a"}x', b'{"prompt":"\xff"}', b'{"prompt":"a","prompt":"b"}', b'{"prompt":"a\\u0000b"}', b'{"prompt":"\\ud800"}',
              b"[" * 100000, b'{"prompt":' + b"[" * 40 + b"]" * 40 + b"}", b'{"prompt":"a","max_tokens":NaN}']
    for body in bodies:
        status, _, raw = s.ask("POST", "/v1/completions", body)
        check(status == 400 and json.loads(raw)["error"]["message"], body[:40], status, raw[:100])
    status, head, raw = s.ask("GET", "/v1/completions")
    check(status == 405 and head["Allow"] == "POST" and json.loads(raw)["error"], "GET", status)
    status, head, _ = s.ask("POST", "/health", b"{}")
    check(status == 405 and head["Allow"] == "GET, HEAD", "POST /health", status)
    check(s.ask("DELETE", "/v1/models/demo")[0] == 405 and s.ask("OPTIONS", "/v1/completions")[0] == 405, "other methods")
    check(s.ask("GET", "/nothing")[0] == 404 and s.ask("POST", "/v1/nothing", ok)[0] == 404, "paths that are not there")
    for headers in ({"Content-Type": "text/plain"}, {}, {"Content-Type": "application/jsonx"}, {**JSON, "Content-Encoding": "gzip"}):
        status, _, raw = s.ask("POST", "/v1/completions", json.dumps(ok).encode(), headers)
        check(status == 415, headers, status, raw[:100])
    check(s.ask("POST", "/v1/completions", json.dumps(ok).encode(), {"Content-Type": "application/json; charset=utf-8"})[0] == 200, "a charset")
    status, _, raw = s.ask("POST", "/v1/completions", b'{"prompt":"' + b"a" * (5 << 20) + b'"}')
    check(status == 413 and json.loads(raw)["error"], "a body of 5 MiB", status)
    check("Access-Control-Allow-Origin" not in s.ask("GET", "/health", headers={"Origin": "http://evil"})[1], "no CORS")


def test_json_suite(s):
    folder = DATA / "hostile/JSONTestSuite/test_parsing"
    if not folder.exists():
        return skip("JSONTestSuite is not here")
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=30 * SLOW)
    bad, count = [], 0
    for f in sorted(folder.iterdir()):
        for wrap in (b"%s", b'{"prompt":"a","metadata":%s}'):
            if wrap != b"%s" and f.name[0] != "n":
                continue
            c.request("POST", "/v1/completions", wrap.replace(b"%s", f.read_bytes()), JSON)
            r = c.getresponse()
            raw = r.read()
            count += 1
            # No document of the suite is a request; wrapped, what is broken must stay so (three close the wrapping themselves).
            if r.status != 400 or not json.loads(raw)["error"]["message"]:
                bad.append((f.name, wrap != b"%s", r.status))
    c.close()
    check(not bad and count > 400, f"of {count} bodies these should have got a 400:", bad)
    check(s.ask("GET", "/health")[0] == 200, "alive after JSONTestSuite")


def http_post(body, version=b"HTTP/1.1", *headers):
    body = json.dumps(body).encode() if not isinstance(body, bytes) else body
    lines = [b"POST /v1/completions " + version, b"Host: x", b"Content-Type: application/json", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def test_http(s):
    ask = {"model": "demo", "prompt": "Once", "max_tokens": 4, "temperature": 0}
    close = b"Connection: close"
    good = s.raw(http_post(ask, b"HTTP/1.1", close))
    text = json.loads(good.split(b"\r\n\r\n", 1)[1])["choices"][0]["text"]
    check(good.startswith(b"HTTP/1.1 200"), good[:60])
    check(b'"choices"' in s.raw(http_post(ask, b"HTTP/1.0")), "HTTP/1.0")
    got = s.raw(http_post({**ask, "stream": True}, b"HTTP/1.0"))
    check(b"Transfer-Encoding" not in got and got.endswith(b"data: [DONE]\n\n"), "a stream over HTTP/1.0", got[-40:])
    two = s.raw(http_post(ask) + http_post(ask, b"HTTP/1.1", close))
    check(two.count(b"HTTP/1.1 200") == 2, "pipelined", two.count(b"HTTP/1.1"))
    body = json.dumps(ask).encode()
    chunked = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + b"".join(
        b"%x\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7]) for i in range(0, len(body), 7)) + b"0\r\n\r\n"
    check(b"HTTP/1.1 200" in s.raw(chunked), "a chunked body")
    got = s.raw(http_post(ask, b"HTTP/1.1", b"Expect: 100-continue", close))
    check(b"HTTP/1.1 200" in got, "Expect: 100-continue", got[:80])
    got = s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n")
    check(got.startswith(b"HTTP/1.1 413"), "413 before the body", got[:60])
    for junk in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 1000, b"A" * 100000,
                 b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n", b"GET /%00%ff%zz HTTP/1.1\r\nHost: x\r\n\r\n",
                 b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5x\r\n\r\nhello",
                 b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
                 b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                 b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{\"prompt\""):
        got = s.raw(junk, 0.3, half=True)
        check(b" 200 " not in got[:16], "junk was answered with 200", junk[:40], got[:60])
    rng = random.Random(5)
    whole = http_post(ask)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with socket.create_connection(("127.0.0.1", s.port), timeout=5 * SLOW) as c:
            c.sendall(data[:rng.randrange(len(data))] if rng.random() < 0.3 else data)
            if rng.random() < 0.5:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    check(s.text("Once", max_tokens=4) == text, "sane after junk")
    check(s.idle() is True, "idle after junk", s.idle(0))


# --- many at once ---

def test_ids(s):
    """Each answer has its request's id: the client's where that is a plain word, else one of the server's, no two alike."""
    made = [s.ask("GET", "/health")[1]["X-Request-Id"] for _ in range(3)]
    check(len(set(made)) == 3 and all(re.fullmatch(r"req-[0-9a-f]{16}", i) for i in made), "ids of the server's", made)
    for given, back in (("abc-1.2_3:4", True), ("a" * 63, True), ("a" * 64, False), ("a b", False), ("x\u00e9", False), ("", False)):
        for path, body in (("/health", None), ("/v1/completions", {"prompt": "Once", "max_tokens": 1}), ("/nowhere", None)):
            head = s.ask("POST" if body else "GET", path, body, headers={**JSON, "X-Request-Id": given})[1]
            check((head["X-Request-Id"] == given) == back, "id", repr(given), path, head["X-Request-Id"])
    s.ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 1}, headers={**JSON, "X-Request-Id": "look-for-this"})
    end = time.monotonic() + 5 * SLOW
    line = "look-for-this POST /v1/completions 200"
    while line not in s.errors() and time.monotonic() < end:
        time.sleep(0.01)
    check(line in s.errors(), "the log has the id", s.errors()[-300:])


def test_framing(s):
    """A body whose end two readers may see at two places is refused, and what stands behind it is no request."""
    ask, behind = b'{"prompt":"Once","max_tokens":1}', b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    length = lambda n: b"Content-Length: %d" % n
    for status, headers, body in (
            (400, [length(len(ask)), length(len(ask) + len(behind))], ask), (400, [length(len(ask)), length(len(ask))], ask),
            (400, [length(5 + len(behind)), b"Transfer-Encoding: chunked"], b"0\r\n\r\n"), (400, [b"Content-Length: 0x20"], ask), (400, [b"Content-Length: +32"], ask),
            (400, [b"Content-Length: 32, 32"], ask), (400, [b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"], b"0\r\n\r\n"),
            (501, [b"Transfer-Encoding: gzip, chunked"], b"0\r\n\r\n"), (501, [b"Transfer-Encoding: xchunked"], b"0\r\n\r\n"), (501, [b"Transfer-Encoding: identity"], ask)):
        got = s.raw(b"\r\n".join([b"POST /v1/completions HTTP/1.1", b"Host: x", b"Content-Type: application/json", *headers, b"", body + behind]))
        check(got.startswith(b"HTTP/1.1 %d" % status) and b"HTTP/1.1 200" not in got and b'"object":"list"' not in got, "framing", headers, got[:200])


def test_together(s, count=32):
    prompts = ["Once upon a time", "The cat", "There was", "One day", "A", "She said", "\u00e9", "Far away in the"]
    asks = [{"model": "demo", "prompt": prompts[i % 8] + " " * (i // 8), "max_tokens": 20 + i, "temperature": [0, 0.9][i % 2], "seed": i, "logprobs": 1} for i in range(count)]
    alone = [s.post(a)["choices"][0] for a in asks]
    got = [None] * count

    def one(i):
        got[i] = json.loads(s.ask("POST", "/v1/completions", asks[i])[2]).get("choices", [None])[0]
    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    same = sum(a == b for a, b in zip(alone, got))
    check(same == count, f"{same} of {count} requests gave together what they gave alone")
    check(s.idle() is True, "idle", s.idle(0))


def test_prefix(s):
    """What a request left is there for those that begin alike: usage and metrics say how much, and nothing else shows it."""
    ids = s.post({"prompt": "One evening the river told the girl a long story about the sea. " * 20}, "/tokenize")["tokens"][:200]
    queries, hits, all_of_them = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:prompt_tokens_total"

    def ask(server, more):
        r = server.post({"prompt": ids + more, "temperature": 0, "max_tokens": 24, "logprobs": 1})
        c, usage = r["choices"][0], r["usage"]
        return (c["text"], c["logprobs"]["token_logprobs"], c["logprobs"]["tokens"]), usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]
    more = [[ids[3]], [ids[7], ids[4]], [ids[7], ids[8]], ids[:40], [ids[3]]]
    before = s.metrics()
    told = [ask(s, m) for m in more]
    after = s.metrics()
    cached, length = [t[1] for t in told], [t[2] for t in told]
    check(length == [len(ids) + len(m) for m in more], "prompt_tokens counts what was found, too", length)
    check(all(len(ids) <= c < n for c, n in zip(cached[1:], length[1:])) and cached[2] == len(ids) + 1 and cached[4] == len(ids), "cached_tokens", cached)
    check(after[queries] - before[queries] == sum(length) and after[hits] - before[hits] == sum(cached) and
          after[all_of_them] - before[all_of_them] == sum(length), "metrics", before, after)
    check(s.idle() is True and after["lq:kv_blocks_cached"] > 0, "blocks that are kept may be taken", s.idle(0))
    salted = [s.post({"prompt": ids, "temperature": 0, "max_tokens": 4, **salt})["usage"]["prompt_tokens_details"]["cached_tokens"] for salt in ({"cache_salt": "a"}, {"cache_salt": "b"}, {"cache_salt": "a"}, {})]
    check(salted == [0, 0, len(ids) - 1, len(ids) - 1], "cache_salt", salted)
    other = Server("--no-prefix-cache")
    for m, t in zip(more, told):
        check(ask(other, m) == (t[0], 0, t[2]), "another answer without the cache", m)
    m = other.metrics()
    check(m[queries] == m[hits] == m["lq:kv_blocks_cached"] == 0, "metrics without the cache", m)
    other.stop()


async def one_stream(port, i, cut, rng, seed):
    r, w = await asyncio.open_connection("127.0.0.1", port)
    body = {"model": "demo", "prompt": "Once upon a time " + "and then " * (i % 7), "max_tokens": 120, "temperature": 1, "seed": seed, "stream": True, "ignore_eos": True}
    w.write(http_post(body, b"HTTP/1.1", b"Connection: close"))
    got = b""
    try:
        await w.drain()
        if cut:
            limit, end = rng.randrange(0, 8000), time.monotonic() + rng.random() * 3
            while len(got) < limit and time.monotonic() < end:
                try:
                    chunk = await asyncio.wait_for(r.read(512), 0.05)
                except asyncio.TimeoutError:
                    continue
                if not chunk:
                    break
                got += chunk
            if rng.random() < 0.5:
                w.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return None
        got = await asyncio.wait_for(r.read(-1), 120 * SLOW)
        return got.startswith(b"HTTP/1.1 200") and b"data: [DONE]\n\n" in got and b'"error"' not in got
    except (ConnectionError, asyncio.TimeoutError) as e:
        return None if cut else repr(e)
    finally:
        w.close()


def test_blocks(s):
    """/kv_blocks says what each block is for while requests run, and when they have ended."""
    uses = ["free", "cached", "held", "shared"]

    def look(server):
        told = json.loads(server.ask("GET", "/kv_blocks")[2])
        counts, cells, each = [told[u] for u in uses], told["cells"], told["blocks_per_cell"]
        check(sum(counts) == told["blocks"] and set(cells) <= set("0123") and each == -(-told["blocks"] // 1024) and len(cells) == -(-told["blocks"] // each),
              "the whole of the map", told)
        # A cell shows the highest use of its blocks: of that use there are as many blocks as cells or more, but no more than those cells hold.
        check(all((counts[i] > 0 or str(i) not in cells) and counts[i] <= each * sum(c >= str(i) for c in cells) for i in range(4)) and
              counts[3] >= cells.count("3"), "cells and counts", told)
        check(each > 1 or [cells.count(str(i)) for i in range(4)] == counts, "a cell a block", told)
        return told

    def watch(server, n):
        """What was seen at most of each use while n choices of a text that fills more than a block were made."""
        ask = threading.Thread(target=lambda: server.post(long_ask(prompt="Once upon a time there was a girl. " * 6, max_tokens=LONG // 2, n=n)))
        most, seen = dict.fromkeys(uses, 0), 0
        ask.start()
        while ask.is_alive():
            told = look(server)
            most, seen = {u: max(most[u], told[u]) for u in uses}, seen + 1
            time.sleep(0.01)
        ask.join()
        check(server.idle() is True, "idle", server.idle(0))
        return most, look(server), seen

    _, head, raw = s.ask("GET", "/kv_blocks")
    check(head["Content-Type"] == "application/json", "its type", head["Content-Type"])
    check(s.ask("POST", "/kv_blocks", {})[0] == 405 and s.ask("HEAD", "/kv_blocks")[2] == b"", "no other method")
    m = s.metrics()
    told = look(s)
    check((told["blocks"], told["cached"], told["held"], told["shared"]) == (m["lq:kv_blocks"], m["lq:kv_blocks_cached"], 0, 0), "as /metrics has it", told)
    for args, n, keeps in (((), 4, True), (("--no-prefix-cache", "--kv-block", "16", "--max-seqs", "4"), 4, False)):
        server = Server(*args) if args else s
        most, left, seen = watch(server, n)
        page = left["block_size"]
        check(page == (16 if args else 32) and seen > 1, "blocks of", page, "tokens, seen", seen, "times")
        check(most["held"] >= n and most["shared"] > 0, args, "in use", most)
        check(left["held"] == left["shared"] == 0 and (left["cached"] > n if keeps else left["free"] == left["blocks"]), args, "at the end", {u: left[u] for u in uses})
        if args:
            server.stop()


def test_cut_streams(s, count=200):
    rng = random.Random(11)

    async def all_of_them():
        return await asyncio.gather(*(one_stream(s.port, i, i % 2 == 1, rng, i) for i in range(count)))
    before = s.metrics()
    start = time.monotonic()
    kept = asyncio.run(all_of_them())[0::2]
    good = sum(k is True for k in kept)
    check(good == count // 2, f"{good} of {count // 2} streams that were not cut off came whole", [k for k in kept if k is not True][:3])
    check(s.idle() is True, "every KV block back", s.idle(0))
    m = s.metrics()
    check(m["lq:request_failure_total"] == before["lq:request_failure_total"] and m['lq:http_replies_total,code="5xx"'] == before['lq:http_replies_total,code="5xx"'], "no errors")
    aborted = m['vllm:request_success_total,finished_reason="abort"'] - before['vllm:request_success_total,finished_reason="abort"']
    check(aborted > 0, "some were cut off in time to be cancelled", aborted)
    print(f"{count} streams, {aborted:.0f} cancelled, {time.monotonic() - start:.1f} s")


def long_ask(**more):
    return {"model": "demo", "prompt": "Once", "max_tokens": LONG, "ignore_eos": True, "temperature": 1, "seed": 1, **more}


def test_gone(s):
    """A client that goes is noticed though nothing is written to it: waiting for a whole answer, or before the first token."""
    for stream in (False, True):
        for reset in (False, True):
            socks = []
            for i in range(8):
                c = socket.create_connection(("127.0.0.1", s.port))
                c.sendall(http_post(long_ask(stream=stream, n=4)))
                socks.append(c)
            end = time.monotonic() + 10 * SLOW
            while s.metrics()["vllm:num_requests_running"] == 0 and time.monotonic() < end:
                time.sleep(0.005)
            before = s.metrics()
            for c in socks:
                if reset:
                    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                c.close()
            start = time.monotonic()
            check(s.idle() is True, "idle after the clients went", "stream" if stream else "whole", s.idle(0))
            sampled = s.metrics()["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"]
            check(sampled < 8 * 4 * LONG / 2, "cancelled, not run to the end", sampled)
            if time.monotonic() - start > 2 * SLOW:
                check(False, "it took", time.monotonic() - start, "s to notice")


def test_half_close(s):
    got = s.raw(http_post({**long_ask(stream=True), "max_tokens": 200}, b"HTTP/1.1", b"Connection: close"), 30, half=True)
    check(b"data: [DONE]" in got, "a stream goes on for a client that closed its half", got[-60:])
    got = s.raw(http_post({**long_ask(), "max_tokens": 50}), 30, half=True)
    check(b"HTTP/1.1 200 OK" in got and b"length" in got, "a plain answer too", got[:80])
    with socket.create_connection(("127.0.0.1", s.port)) as c:
        c.sendall(http_post(long_ask()))
        time.sleep(0.05)
    check(s.idle() is True, "one whose client is gone is given up", s.idle(0))


def test_slow_reader(s):
    aborted = 'vllm:request_success_total,finished_reason="abort"'
    before = s.metrics()[aborted]
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.connect(("127.0.0.1", s.port))
    chat = {"model": "demo", "messages": [{"role": "user", "content": "Once"}], "max_tokens": 1}
    if s.ask("POST", "/v1/chat/completions", chat)[0] == 200:  # 40 MB and more of chunks, of which it reads none: sockets hold 4 and now and then 8, lq 1
        long = {**chat, "max_tokens": LONG, "ignore_eos": True, "temperature": 1, "seed": 1, "stream": True, "n": 32, "logprobs": True, "top_logprobs": 20}
        c.sendall(http_post(long).replace(b"/v1/completions", b"/v1/chat/completions", 1))
    else:  # without a template 8 to 18 from a prompt, so of four
        c.sendall(http_post(long_ask(prompt=["Once"] * 4, stream=True, n=32, logprobs=20)))
    start = time.monotonic()
    while time.monotonic() - start < 20 * SLOW:  # until it is there: on a busy machine others may be done before
        m = s.metrics()
        if m["vllm:num_requests_running"] + m["vllm:num_requests_waiting"] > 0 or m[aborted] > before:
            break
        time.sleep(0.01)
    start = time.monotonic()
    s.text("Once", max_tokens=8)
    check(time.monotonic() - start < 20 * SLOW, "others go on beside a client that does not read")
    check(s.idle(90) is True, "a client that does not read does not keep its place", s.idle(0))
    check(s.metrics()[aborted] - before > 0, "it was cancelled")
    c.settimeout(20 * SLOW)
    got = b""
    while chunk := c.recv(1 << 20):
        got += chunk
    check(b"[DONE]" not in got and len(got) < 16 << 20, "its connection was closed", len(got))
    c.close()
    c = socket.create_connection(("127.0.0.1", s.port), timeout=60 * SLOW)
    c.sendall(http_post({**long_ask(stream=True), "max_tokens": 100}, b"HTTP/1.1", b"Connection: close"))
    got = b""
    while chunk := c.recv(700):  # a slow one that reads gets all of it
        got += chunk
        time.sleep(0.002)
    check(b"data: [DONE]" in got and got.count(b'"text"') > 20, "a slow reader", got[-40:])
    c.close()


REAL = os.environ.get("LQ_FAKE") is None


def spm_model(out):
    """stories260K as a checkpoint in `out`; False: what it is made of is not here."""
    source = DATA / "models/stories260K"
    if not source.exists():
        return skip("the sentencepiece model is not here")
    p = subprocess.run([sys.executable, str(ROOT / "tests/golden/llama2c.py"), str(source / "stories260K.bin"), str(source / "tok512.model"), out],
                       capture_output=True, text=True)
    if p.returncode and "numpy" in p.stderr:
        return skip("the sentencepiece model is made with numpy, which is not here")
    return check(p.returncode == 0, p.stderr)


def run(tests, want):
    global LONG
    s = Server()
    LONG = min(900, json.loads(s.ask("GET", "/v1/models")[2])["data"][0]["max_model_len"] - 60)
    for t in tests:
        if want and t.__name__ not in want:
            continue
        start = time.monotonic()
        try:
            t(s) if t in ONE else t()
        except Exception as e:  # one broken test does not hide the others
            check(False, t.__name__, "raised", repr(e), "line", e.__traceback__.tb_next and e.__traceback__.tb_next.tb_lineno)
        print(f"{t.__name__}: {time.monotonic() - start:.1f} s", flush=True)
    s.stop()


ONE = [test_endpoints, test_completion, test_sampling, test_beams, test_logprobs, test_stream, test_refusals, test_json_suite, test_http, test_ids, test_framing, test_together, test_prefix, test_blocks, test_cut_streams,
       test_gone, test_half_close, test_slow_reader]


def main():
    global MODEL, SPM
    want = [a for a in sys.argv[1:] if a.startswith("test_")]
    if not os.path.exists(LQ) or not os.path.exists(MODEL):
        skip(f"{LQ} or {MODEL} is not there")
    else:
        run(ONE, want)
        with tempfile.TemporaryDirectory() as folder:
            if "LQ_MODEL" not in os.environ and spm_model(folder):
                MODEL, SPM = folder, True
                run(ONE, want)
    return end()


if __name__ == "__main__":
    sys.exit(main())
