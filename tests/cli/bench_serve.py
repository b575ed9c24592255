#!/usr/bin/env python3
# bench_serve.py: lq bench serve against a server of this file, whose delays and shapes are known, and against lq serve. What the client
# measured is held against the delays (nothing is seen before it was sent), its percentiles against numpy, its arrivals against the law.
# Arguments: lq (else build/release/lq), then names of tests: those alone. LQ_SLOW: a factor on every time limit.
import asyncio, contextlib, json, math, os, pathlib, socket, subprocess, sys, tempfile, threading, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from counted import check, end, skip, told  # noqa: E402

LQ = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else str(ROOT / "build/release/lq")
SLOW = float(os.environ.get("LQ_SLOW", "1"))
WORK = tempfile.TemporaryDirectory()


def event(text=None, chat=False, finish=None, **more):
    choice = {"index": 0, "finish_reason": finish, **({"delta": {"content": text}} if chat else {"text": text})}
    return b"data: " + json.dumps({"choices": [] if text is None else [choice], **more}).encode() + b"\n\n"


def usage(i, o):
    return event(usage={"prompt_tokens": i, "completion_tokens": o})


DONE = b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def stream(tokens=8, first=0.0, gap=0.0, input=5, chat=False):
    """What a request is answered: (seconds to wait, bytes) in turn; None closes."""
    yield 0, HEAD
    for i in range(tokens):
        yield (gap if i else first), chunk(event("ab", chat))
    yield 0, chunk(usage(input, tokens)) + chunk(DONE) + b"0\r\n\r\n"


def sized(status, body, kind=b"application/json", more=b""):
    return [(0, b"HTTP/1.1 %d X\r\nContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, kind, more, len(body), body))]


class Fake:
    """A server whose answers a function gives: script(body, number of the request)."""

    def __init__(self, script):
        self.script, self.bodies, self.heads, self.times = script, [], [], []
        self.connections = self.now = self.most = 0
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()

        async def main():
            self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=2048)
            self.port = self.server.sockets[0].getsockname()[1]
            ready.set()
            async with self.server:
                with contextlib.suppress(asyncio.CancelledError):
                    await self.server.serve_forever()

        self.thread = threading.Thread(target=self.loop.run_until_complete, args=[main()], daemon=True)
        self.thread.start()
        ready.wait()
        self.url = f"http://127.0.0.1:{self.port}"

    async def serve(self, r, w):
        self.connections += 1
        w.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while True:
                head = (await r.readuntil(b"\r\n\r\n")).decode()
                size = [int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length:")]
                body = json.loads(await r.readexactly(size[0])) if size else None
                if head.startswith("GET /v1/models"):
                    answer = sized(200, b'{"data": [{"id": "fake"}]}')
                else:
                    number = len(self.bodies)
                    self.bodies.append(body)
                    self.heads.append(head)
                    answer = self.script(body, number)
                self.now += 1
                self.most = max(self.most, self.now)
                times = [time.monotonic()]
                self.times.append(times)
                for wait, data in answer:
                    if wait:
                        await asyncio.sleep(wait)
                    if data is None:
                        return
                    times.append(time.monotonic())
                    w.write(data)
                    await w.drain()
                    await asyncio.sleep(0)
                self.now -= 1
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            w.close()

    def stop(self):
        self.loop.call_soon_threadsafe(self.server.close)
        self.loop.call_soon_threadsafe(lambda: [t.cancel() for t in asyncio.all_tasks(self.loop)])
        self.thread.join(10)


def bench(url, *args, want=0, env=None):
    """The figures, and the rows of --save in the order of the requests."""
    rows = pathlib.Path(WORK.name) / "rows.jsonl"
    rows.unlink(missing_ok=True)
    p = subprocess.run([LQ, "bench", "serve", url, "--json", "-q", "--save", str(rows), *map(str, args)], capture_output=True, text=True,
                       timeout=300 * SLOW, env={**os.environ, "LQ_API_KEY": "", **(env or {})})
    check(p.returncode == want, args, "exit status", p.returncode, p.stderr[-300:])
    out = json.loads(p.stdout) if p.stdout else {}
    return out, [json.loads(line) for line in rows.open()] if rows.exists() else [], p.stderr


def against(script, *args, **more):
    f = Fake(script)
    try:
        return (f, *bench(f.url, "--vocab", 1000, *args, **more))
    finally:
        f.stop()


def about(a, b):
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b), 1e-3)


# --- figures ---

def test_delays():
    f, out, rows, _ = against(lambda b, n: stream(8, 0.06, 0.02), "-n", 12, "-c", 1)
    late = []
    check(out["completed"] == 12 and out["failed"] == 0 and len(rows) == 12, out)
    for r in rows:
        check(r["ttft"] >= 0.06 and r["e2el"] >= 0.06 + 7 * 0.02, "seen before it was sent", r)
        check(len(r["itl"]) == 7 and about(sum(r["itl"]) + r["ttft"], r["e2el"]), "the gaps are not the time between first and last", r)
        check(r["output_tokens"] == 8 and r["input_tokens"] == 5, r)
    # The server's own times, by the same clock: heard, head, 8 tokens, end. The client is later, and hardly.
    for r, at in zip(rows, f.times[-12:]):
        pairs = [(r["ttft"], at[2] - at[0]), (r["e2el"], at[9] - at[0])]
        check(all(client >= server for client, server in pairs), "earlier than the server", pairs)
        late += [client - server for client, server in pairs]
    # What else this machine does delays some; what the client does by itself would delay all.
    told(sorted(late)[6] < 0.01 * SLOW, "a quarter of the times are later than the server's by less than", sorted(late)[6] * 1e3, "ms")
    check(out["duration"] >= 12 * 0.2, "twelve times 200 ms took", out["duration"])


def test_percentiles():
    try:
        import numpy as np
    except ImportError:
        return skip("no numpy to take percentiles with")
    f, out, rows, _ = against(lambda b, n: stream(1 + n % 5, 0.5 * SLOW * (n % 7 == 3), 0.2 * SLOW * (n % 6 == 1)), "-n", 60, "-c", 8, "--goodput", f"ttft:{300 * SLOW},tpot:{120 * SLOW}")
    of = {"ttft": [r["ttft"] for r in rows], "e2el": [r["e2el"] for r in rows], "itl": [g for r in rows for g in r["itl"]],
          "tpot": [(r["e2el"] - r["ttft"]) / (r["output_tokens"] - 1) for r in rows if r["output_tokens"] > 1],
          "wait": [r["sent"] - r["arrival"] for r in rows]}
    for name, x in of.items():
        x = np.array(x) * 1e3
        for key, want in (("mean", x.mean()), ("std", x.std()), ("median", np.percentile(x, 50)), ("p90", np.percentile(x, 90)), ("p99", np.percentile(x, 99))):
            check(abs(out[f"{key}_{name}_ms"] - want) < 1e-4 + 1e-6 * want, key, name, out[f"{key}_{name}_ms"], want)
    good = [r for r in rows if r["ttft"] <= 0.3 * SLOW and (r["output_tokens"] < 2 or (r["e2el"] - r["ttft"]) / (r["output_tokens"] - 1) <= 0.12 * SLOW)]
    check(0 < len(good) < 60 and about(out["request_goodput"], len(good) / out["duration"]), "goodput", out["request_goodput"], len(good))
    tokens = sum(1 + n % 5 for n in range(60))
    check(out["total_output_tokens"] == tokens and out["total_input_tokens"] == 300, out)
    check(about(out["output_throughput"], tokens / out["duration"]) and about(out["request_throughput"], 60 / out["duration"]), out)
    check(about(out["total_token_throughput"], (tokens + 300) / out["duration"]), out)


# --- shapes of answers ---

SHAPES = {
    "chunked": (HEAD + b"".join(map(chunk, [event("a"), event("b"), usage(5, 2), DONE])) + b"0\r\n\r\n", 2, 2),
    "extensions, trailers, 100": (b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"%X;x=1\r\n" % len(event("a") + DONE) + event("a") + DONE + b"\r\n0\r\nX: y\r\n\r\n", 1, 1),
    "line feeds alone": (HEAD.replace(b"\r\n", b"\n") + chunk(event("a") + event("b") + event("c") + DONE) + b"0\r\n\r\n", 3, 3),
    "comments, ids, CR LF": (HEAD + chunk((b": hello\nevent: x\nid: 1\n" + event("a") + b"\n\n: ping\n\n" + event("b")).replace(b"\n", b"\r\n") + DONE) + b"0\r\n\r\n", 2, 2),
    "no blank, data in two lines": (HEAD + chunk(b'data:{"choices":[{"text":"a"\ndata:}]}\n\n' + DONE) + b"0\r\n\r\n", 1, 1),
    "with a length": (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(event("a") + usage(5, 7) + DONE) + event("a") + usage(5, 7) + DONE, 7, 1),
    "to the end": (b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + event("a") + event("b") + DONE, 2, 2),
    "no stream": (sized(200, json.dumps({"choices": [{"text": "abc"}], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}).encode())[0][1], 3, 1),
    "chat": (HEAD + chunk(b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n' + event("a", True) + event("", True) +
                          event("", True, finish="stop") + usage(5, 2) + DONE) + b"0\r\n\r\n", 2, 2),
    "UTF-8": (HEAD + chunk(event("\u00e4\u20ac")) + chunk('data: {"choices":[{"text":"\u00e4\u20ac"}]}\n\n'.encode()) + chunk(DONE) + b"0\r\n\r\n", 2, 2),
}


def test_borders():
    """Each answer cut in two at every byte, and once byte by byte."""
    for name, (raw, tokens, chunks) in SHAPES.items():
        last = [(0, None)] if raw.startswith(b"HTTP/1.0") else []

        def script(b, n):
            at = [raw[:n + 1], raw[n + 1:]] if n < len(raw) else [raw[i:i + 1] for i in range(len(raw))]
            return [(0, part) for part in at if part] + last

        _, out, rows, err = against(script, "-n", len(raw) + 1, "-c", 16, *(["--chat", "--dataset", prompts_file()] if name == "chat" else []))
        check(out.get("completed") == len(raw) + 1, name, out.get("errors"), out.get("first_error"), err)
        bad = [(r["request"], r["output_tokens"], len(r["itl"])) for r in rows if (r["output_tokens"], len(r["itl"]) + 1) != (tokens, chunks)]
        check(not bad, name, "tokens, gaps", bad[:3], "not", tokens, chunks - 1)


def prompts_file():
    path = pathlib.Path(WORK.name) / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"Number {i}?", "output_tokens": 3}) + "\n" for i in range(2000)))
    return str(path)


ERRORS = {
    "HTTP 500": sized(500, b'{"error": {"message": "out of order"}}'),
    "HTTP 429": sized(429, b'{"object": "error", "message": "later"}'),
    "HTTP 502": sized(502, b"<html>no</html>", b"text/html"),
    "error in the answer": [(0, HEAD + chunk(event("a")) + chunk(b'data: {"error": {"message": "lost the thread"}}\n\n') + b"0\r\n\r\n")],
    "cut off": [(0, HEAD + chunk(event("a"))), (0, None)],
    "malformed": [(0, HEAD + chunk(b"data: {nonsense\n\n") + b"0\r\n\r\n")],
    "no token": [(0, HEAD + chunk(DONE) + b"0\r\n\r\n")],
    "timeout": [(0, HEAD + chunk(event("a"))), (20, b"")],
}
MORE = {"malformed": [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", HEAD + b"zz\r\n", HEAD + b"1\r\nabc\r\n", HEAD + b"-1\r\n"],
        "cut off": [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", HEAD + b"5\r\nab",
                    b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + event("a")]}


def test_errors():
    kinds = list(ERRORS)
    _, out, rows, err = against(lambda b, n: ERRORS[kinds[n % 8]] if n < 16 else stream(2), "-n", 20, "-c", 1, "--timeout", 1 * SLOW, want=1)
    check(out["errors"] == {k: 2 for k in kinds}, out["errors"])
    check(out["completed"] == 4 and out["failed"] == 16, out)
    check("HTTP 500: out of order" in out["first_error"] and "HTTP 500: out of order" in err, err)
    check([r["status"] for r in rows[:3]] == [500, 429, 502] and all("error" in r for r in rows[:16]), rows[:3])
    check(out["total_output_tokens"] == 8, "failed requests were counted", out["total_output_tokens"])
    for kind, raws in MORE.items():
        for raw in raws:
            _, out, _, _ = against(lambda b, n: [(0, raw), (0, None)], "-n", 2, "-c", 1, want=1)
            check(list(out["errors"]) == [kind], raw, out["errors"])
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))  # and nobody listens
        _, _, err = bench(f"http://127.0.0.1:{s.getsockname()[1]}", want=1)
        check("Connection refused" in err, err)


def test_connections():
    """They are kept; one that the server closed meanwhile is no failure."""
    f, out, _, _ = against(lambda b, n: stream(2), "-n", 40, "-c", 4)
    check(out["completed"] == 40 and f.connections <= 4 + 2, "connections", f.connections)
    f, out, _, err = against(lambda b, n: [*stream(2), (0, None)], "-n", 40, "-c", 4)
    check(out["completed"] == 40 and f.connections >= 40, out.get("errors"), err, f.connections)
    f, out, _, _ = against(lambda b, n: sized(200, b'{"choices":[{"text":"a"}]}', more=b"Connection: close\r\n"), "-n", 10, "-c", 2)
    check(out["completed"] == 10 and f.connections >= 10, f.connections)


# --- arrivals ---

def test_poisson():
    n, rate = 800, 400.0
    quick = sized(200, b'{"choices":[{"text":"a"}]}')
    _, out, rows, _ = against(lambda b, k: quick, "-n", n, "--rate", rate, "--seed", 7, "-p", 4)
    gaps = [b["arrival"] - a["arrival"] for a, b in zip([{"arrival": 0}] + rows, rows)]
    mean = sum(gaps) / n
    var = sum((g - mean) ** 2 for g in gaps) / n
    # Of exponential gaps the mean deviates by 1/sqrt(n), the variance by sqrt(8/n); both within four of these.
    check(abs(mean * rate - 1) < 4 / math.sqrt(n), "mean", mean * rate)
    check(abs(var * rate ** 2 - 1) < 4 * math.sqrt(8 / n), "variance", var * rate ** 2)
    # Kolmogorov and Smirnov, at 1 in 1,000.
    far = max(max(abs((i + k) / n - (1 - math.exp(-g * rate))) for k in (0, 1)) for i, g in enumerate(sorted(gaps)))
    check(far < 1.95 / math.sqrt(n), "distance from the exponential law", far)
    check(all(r["sent"] >= r["arrival"] for r in rows), "sent before it arrived")
    _, _, again, _ = against(lambda b, k: quick, "-n", 50, "--rate", rate, "--seed", 7, "-p", 4)
    check([r["arrival"] for r in again] == [r["arrival"] for r in rows[:50]], "the same seed, other arrivals")
    _, _, other, _ = against(lambda b, k: quick, "-n", 50, "--rate", rate, "--seed", 8, "-p", 4)
    check([r["arrival"] for r in other] != [r["arrival"] for r in rows[:50]], "another seed, the same arrivals")
    _, out, rows, _ = against(lambda b, k: stream(2, 0.02), "-n", 20, "--rate", "inf", "-c", 2)
    check(all(r["arrival"] == 0 for r in rows) and out["p99_wait_ms"] >= 9 * 20, "what waited for ten turns of 20 ms:", out["p99_wait_ms"])
    check(about(out["mean_ttft_arrival_ms"], out["mean_ttft_ms"] + out["mean_wait_ms"]), out)


def test_trace():
    trace = pathlib.Path(WORK.name) / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-12-31 23:59:59.5000000,30,4\r\n2024-01-01 00:00:00.5000000,20,3\r\n"
                     "2024-01-01 00:00:00.0000000,10,2\r\n2024-01-01 00:00:00.2500000,10,0\r\n2024-01-01 00:00:01.5000000,40,5\r\n")
    f, _, rows, _ = against(lambda b, n: stream(2), "--dataset", trace, "--speed", 2)
    check([r["arrival"] for r in rows] == [0, 0.25, 0.5, 1.0], "arrivals", [r["arrival"] for r in rows])
    check([len(b["prompt"]) for b in f.bodies] == [30, 10, 20, 40] and [b["max_tokens"] for b in f.bodies] == [4, 2, 3, 5], f.bodies)
    check(all(0 <= r["sent"] - r["arrival"] < 0.5 * SLOW for r in rows), rows)
    f, _, _, _ = against(lambda b, n: stream(2), "--dataset", trace, "-c", 1, "-n", 2, "--output-len", 9)
    check([len(b["prompt"]) for b in f.bodies] == [30, 10] and all(b["max_tokens"] == 9 for b in f.bodies), f.bodies)
    mooncake = trace.with_name("mooncake.jsonl")
    mooncake.write_text("".join(json.dumps({"timestamp": t, "input_length": n, "output_length": 2, "hash_ids": ids}) + "\n"
                                for t, n, ids in ((0, 1100, [1, 2, 3]), (100, 1100, [1, 2, 4]), (200, 600, [5, 2]))))
    f, _, rows, _ = against(lambda b, n: stream(2), "--dataset", mooncake)
    a, b, c = (x["prompt"] for x in f.bodies)
    check([r["arrival"] for r in rows] == [0, 0.1, 0.2] and (len(a), len(b), len(c)) == (1100, 1100, 600), rows)
    check(a[:1024] == b[:1024] and a[1024:] != b[1024:] and c[:512] != a[:512], "blocks of the same name")
    check(c[512:] == a[512:600], "the same block behind another")
    for text, why in (("a,b\n1,2\n", "names no column"), ("ContextTokens,GeneratedTokens\n1,x\n", "trace.csv:2"), ("ContextTokens,GeneratedTokens\n1\n", "too few"),
                      ("ContextTokens,GeneratedTokens\n1,2\n", "no times"), ("ContextTokens,GeneratedTokens\n", "no request"), ("{\"input_length\": 0}\n", "trace.csv:1")):
        trace.write_text(text)
        _, _, err = bench("http://127.0.0.1:1", "--dataset", trace, want=1)
        check(why in err, text, err)


def test_prompts():
    f, _, rows, _ = against(lambda b, n: stream(2), "-n", 200, "-p", 40, "--output-len", 20, "--range", 0.5, "--prefix-len", 16, "--ignore-eos", "--temperature", 0.5, "-c", 8)
    got = [b["prompt"] for b in f.bodies]
    check(len({tuple(p[:16]) for p in got}) == 1 and len({tuple(p[16:24]) for p in got}) == 200, "the shared beginning")
    check({min(map(len, got)), max(map(len, got))} <= set(range(36, 77)) and min(map(len, got)) < 42 and max(map(len, got)) > 70, sorted(map(len, got))[::199])
    check(all(10 <= b["max_tokens"] <= 30 and b["ignore_eos"] is True and b["temperature"] == 0.5 and b["stream"] is True for b in f.bodies))
    check(all(125 <= t < 1000 for p in got for t in p), "ids from an eighth of --vocab on")
    talks = pathlib.Path(WORK.name) / "sharegpt.json"
    talks.write_text(json.dumps([{"conversations": [{"from": "human", "value": f"{i} " + "what is it? " * 4}, {"from": "gpt", "value": "x" * 4 * (5 + i)}]} for i in range(30)] +
                                [{"conversations": [{"from": "human", "value": "one turn only, of no use here"}]}]))
    f, _, _, _ = against(lambda b, n: stream(2, chat=True), "--dataset", talks, "--chat", "-n", 12, "-c", 2)
    asked = {b["messages"][0]["content"]: b["max_tokens"] for b in f.bodies}
    check(len(asked) == 12 and all(n == 5 + int(p.split()[0]) for p, n in asked.items()), asked)
    check(sorted(int(p.split()[0]) for p in asked) != list(range(12)), "not chosen by chance")

    # A server that takes ids below 2,000 of a prompt, and one that takes words alone and counts 1.5 tokens for each and 7 beside.
    def ids(b, n):
        return sized(400, b'{"error":{"message":"id"}}') if max(b["prompt"]) >= 2000 else \
            sized(200, json.dumps({"choices": [{"text": "a"}], "usage": {"prompt_tokens": len(b["prompt"]), "completion_tokens": 1}}).encode())

    def words(b, n):
        if isinstance(b.get("prompt"), list):
            return sized(400, b'{"error":{"message":"a text please"}}')
        k = len((b["prompt"] if "prompt" in b else b["messages"][0]["content"]).split())
        return sized(200, json.dumps({"choices": [{"text": "a"}], "usage": {"prompt_tokens": k * 3 // 2 + 7, "completion_tokens": 1}}).encode())

    for script, more in ((ids, []), (words, []), (words, ["--chat"])):
        f = Fake(script)
        out, rows, _ = bench(f.url, "-n", 5, "-p", 300, *more)
        check(all(abs(r["input_tokens"] - 300) <= 1 for r in rows) and len(rows) == 5, script.__name__, [r["input_tokens"] for r in rows])
        f.stop()


def test_loads():
    f, out, rows, _ = against(lambda b, n: stream(3, 0.01 * (n % 3), 0.01), "-n", 30, "-c", 5, "--warmup", 5)
    check(f.most == 5 and out["max_concurrent_requests"] == 5 and len(rows) == 30 and len(f.bodies) == 35, "at a time", f.most)
    check(not {tuple(b["prompt"]) for b in f.bodies[:5]} & {tuple(b["prompt"]) for b in f.bodies[5:]}, "the warm-up asked what was measured")
    f, _, rows, _ = against(lambda b, n: stream(3, 0.01 * (n % 3), 0.01), "-n", 12, "--rate", 1000, "-c", 4, "--baseline", "static")
    for i in range(4, 12, 4):
        check(min(r["sent"] for r in rows[i:i + 4]) >= max(r["sent"] + r["e2el"] for r in rows[i - 4:i]), "a batch began before the last one ended")
    f, _, rows, _ = against(lambda b, n: stream(2), "-n", 3, "--rate", 5, "-c", 4, "--baseline", "dynamic", "--max-wait", 30, "--seed", 3)
    check(all(r["sent"] - r["arrival"] >= 0.03 for r in rows[:1]) and rows[-1]["sent"] >= rows[-1]["arrival"], rows)
    f, _, _, _ = against(lambda b, n: stream(1), "-n", 3, env={"LQ_API_KEY": "se-cret"})
    check(all("Authorization: Bearer se-cret" in h for h in f.heads), f.heads[:1])
    n = 400
    f, out, rows, err = against(lambda b, k: stream(10, 0.3, 0.1), "-n", n, "-c", n, "-p", 8)
    check(out["completed"] == n and f.most == n, out.get("errors"), f.most, err)
    told(out["client_cpu_seconds"] < n * 12 * 200e-6 * SLOW, "microseconds of CPU for each of the events of", n, "streams:", out["client_cpu_seconds"] / n / 12 * 1e6)


def test_usage():
    for words, status, why in ((["https://x"], 1, "https is not spoken"), (["ftp://x"], 1, "no URL"), (["http://x:y"], 1, "no URL"), (["http://[::1"], 1, "no URL"),
                               (["http://x?y"], 1, "no URL"), ([], 2, "argument is missing"), (["a", "b"], 2, "one word too many"),
                               (["a", "--rate", "0"], 2, "--rate"), (["a", "--rate", "x"], 2, "--rate"), (["a", "--goodput", "x:5"], 2, "no goal"),
                               (["a", "-n", "0"], 2, "no end"), (["a", "--speed", "2"], 2, "--speed"), (["a", "--dataset", "nothing.csv"], 1, "nothing.csv"),
                               (["a", "--concurency", "3"], 2, "did you mean --concurrency"), (["a", "--dataset", "x.csv", "-p", "3"], 2, "lengths of its own")):
        p = subprocess.run([LQ, "bench", "serve", *words], capture_output=True, text=True, timeout=60 * SLOW)
        check(p.returncode == status and why in p.stderr, words, p.returncode, p.stderr)
    p = subprocess.run([LQ, "bench", "serve", "x"], capture_output=True, text=True, timeout=60 * SLOW, env={**os.environ, "LQ_API_KEY": "a\nb"})
    check(p.returncode == 2 and "LQ_API_KEY" in p.stderr, p.stderr)
    p = subprocess.run([LQ, "bench", "./serve"], capture_output=True, text=True, timeout=60 * SLOW, cwd=WORK.name)
    check(p.returncode == 1 and "./serve" in p.stderr, "a model called serve", p.stderr)
    f = Fake(lambda b, n: stream(2))
    p = subprocess.run([LQ, "bench", "serve", f.url, "-n", "4", "--vocab", "99", "--goodput", "ttft:5000", "e2e:9000"], capture_output=True, text=True, timeout=60 * SLOW)
    f.stop()
    for line in ("Successful requests:", "Request goodput (req/s):", "Output token throughput (tok/s):", "P99 TTFT (ms):", "Median TPOT (ms):", "Mean ITL (ms):"):
        check(line in p.stdout, line, p.stdout)
    for page in (["help", "bench", "serve"], ["man", "bench", "serve"], ["bench", "serve", "--help"]):
        p = subprocess.run([LQ, *page], capture_output=True, text=True)
        check(p.returncode == 0 and "goodput" in p.stdout, page, p.stderr)
    complete = 'compopt() { :; }; source <("$1" completion bash); shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lq; echo "${COMPREPLY[@]}"'
    for words, want in ((["bench", "ser"], "serve"), (["bench", "serve", "--good"], "--goodput"), (["bench", "serve", "--baseline", "s"], "static"), (["bench", "--good"], "")):
        p = subprocess.run(["bash", "-c", complete, "-", LQ, "lq", *words], capture_output=True, text=True, cwd=WORK.name)
        check(p.stdout.strip() == want, words, p.stdout, p.stderr)


# --- the server that stands beside it ---

def test_lq():
    with tempfile.TemporaryFile("w+") as log:
        p = subprocess.Popen([LQ, "serve", str(ROOT / "calib_data/demo"), "--port", "0", "--json"], stdout=subprocess.PIPE, stderr=log, text=True)
        line = p.stdout.readline()
        log.seek(0)
        if not check(line, "lq serve did not start:", log.read()):
            return
        url = json.loads(line)["url"]

        def counted():
            text = subprocess.run(["curl", "-s", url + "/metrics"], capture_output=True, text=True).stdout
            sums = {}
            for row in text.splitlines():
                if not row.startswith("#"):
                    key = row.split("{")[0].split(" ")[0]
                    sums[key] = sums.get(key, 0) + float(row.rsplit(" ", 1)[1])
            return [sums.get(f"vllm:{k}_tokens_total") for k in ("prompt", "generation")]

        try:
            before = counted()
            out, rows, _ = bench(url, "-n", 24, "-c", 6, "-p", 60, "--output-len", 12, "--range", 0.4, "--ignore-eos", "--vocab", 1000)
            after = counted()
            check(out["completed"] == 24 and out["model_id"] == "demo", out)
            check(all(r["output_tokens"] == r["asked_tokens"] for r in rows), rows[:2])
            if None in before + after:
                skip("lq serve has no counters of tokens")
            else:
                check([b - a for a, b in zip(before, after)] == [out["total_input_tokens"], out["total_output_tokens"]], before, after, out)
            out, rows, _ = bench(url, "-n", 4, "-p", 60, "--output-len", 3)
            check(all(r["input_tokens"] == 60 for r in rows) and len(rows) == 4, "ids were tried out", rows)
        finally:
            p.terminate()
            check(p.wait(60 * SLOW) == 0, "lq serve's exit status")


for name, test in list(globals().items()):
    if name.startswith("test_") and (len(sys.argv) < 3 or name[5:] in sys.argv[2:]):
        test()
sys.exit(end())
