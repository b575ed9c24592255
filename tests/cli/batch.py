#!/usr/bin/env python3
# batch.py: lq batch as its user meets it: answers against those of lq serve to the same bodies, each custom_id once after kills, Ctrl-C
# and a full disk, pipes, lines that are no requests, files that are not to be touched.
# Arguments: lq (else build/release/lq), then names of tests: those alone. LQ_SLOW: a factor on every time limit.
import collections, http.client, json, os, pathlib, signal, subprocess, sys, tempfile, threading, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from counted import check, end, skip  # noqa: E402

LQ = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else str(ROOT / "build/release/lq")
MODEL = str(ROOT / "calib_data/demo")
SLOW = float(os.environ.get("LQ_SLOW", "1"))
WATCHED = json.loads(subprocess.run([LQ, "version", "--json"], capture_output=True).stdout)["sanitizers"] != ""
CHAT = [{"role": "user", "content": "Who are you?"}]


def request(name, prompt="Once upon a time", url="/v1/completions", **more):
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, **more} if url == "/v1/completions" else {**more}
    return {"custom_id": name, "method": "POST", "url": url, "body": body}


def write(path, requests):
    text = b"".join(r if isinstance(r, bytes) else json.dumps(r).encode() + b"\n" for r in requests)
    pathlib.Path(path).write_bytes(text)
    return path


def rows(path):
    return [json.loads(line) for line in open(path, encoding="utf-8")]


def ids(path):
    return [r["custom_id"] for r in rows(path)]


def batch(*words, want=0, stdin=None, limit="", fast=False):
    """Exit status checked; what it printed, and its lines on stderr joined."""
    p = subprocess.run(["bash", "-c", limit + ' exec "$@"', "x", LQ, "batch", MODEL, *map(str, words)], capture_output=True, input=stdin, timeout=300 * SLOW)
    err = " | ".join(p.stderr.decode().strip().splitlines())
    check(p.returncode == want, words, "exit status", p.returncode, "not", want, err[-600:])
    check("Sanitizer" not in err and "runtime error" not in err, err[:3000])
    return p.stdout.decode(), err


def started(*words, **more):
    return subprocess.Popen([LQ, "batch", MODEL, *map(str, words)], stderr=subprocess.PIPE, **more)


def until(done, seconds=60):
    end_at = time.monotonic() + seconds * SLOW
    while not done():
        if time.monotonic() > end_at:
            return check(False, "waited for", seconds, "s in vain")
        time.sleep(0.005)
    return True


def lines_of(path):
    return open(path, "rb").read().count(b"\n") if os.path.exists(path) else 0


# --- what is answered ---

def bodies():
    """Of every protocol, right ones and wrong ones."""
    text, talk = "/v1/completions", "/v1/chat/completions"
    for i, prompt in enumerate(["Once upon a time", "The river", ["One", "Two"], [5, 6, 7], "caf\u00e9 \u65e5\u672c \U0001f600 \"q\"\n\t\\"]):
        yield text, {"prompt": prompt, "temperature": 0, "max_tokens": 24}
        yield text, {"prompt": prompt, "temperature": 1.3, "seed": i, "n": 3, "max_tokens": 16, "logprobs": 3, "echo": True}
    yield text, {"prompt": "Once", "temperature": 0, "max_tokens": 40, "stop": ["e"], "ignore_eos": True}
    yield text, {"prompt": "Once", "max_tokens": 0, "echo": True, "logprobs": 1}
    yield text, {"prompt": "Once", "seed": 3, "temperature": 1, "best_of": 4, "n": 2}
    yield talk, {"messages": CHAT, "temperature": 0}
    yield talk, {"messages": CHAT, "temperature": 1, "seed": 9, "n": 2, "max_tokens": 20, "logprobs": True, "top_logprobs": 2, "model": "demo"}
    yield "/v1/responses", {"input": "Who are you?", "temperature": 0, "max_output_tokens": 20}
    yield "/v1/messages", {"messages": CHAT, "temperature": 0, "max_tokens": 20}
    yield "/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 12, "details": True}}
    yield text, {"prompt": "Once", "temperature": -1}
    yield text, {"prompt": 7}
    yield text, {"prompt": "a " * 5000}
    yield text, {"prompt": "a", "model": "another"}
    yield talk, {"messages": "none"}
    yield talk, {"messages": CHAT, "tool_choice": "required"}
    yield "/v1/messages", {"max_tokens": 3}
    yield "/generate", {"inputs": 3}


def bare(v):
    """An answer less what no two answers have alike: ids and times."""
    if isinstance(v, dict):
        return {k: bare(x) for k, x in v.items() if k not in ("id", "created", "created_at", "completed_at", "request_id")}
    return [bare(x) for x in v] if isinstance(v, list) else v


def test_same_as_server():
    asked = list(bodies())
    write("in.jsonl", [{"custom_id": str(i), "method": "POST", "url": url, "body": b} for i, (url, b) in enumerate(asked)])
    batch("in.jsonl", "out.jsonl", "--name", "demo", "--no-prefix-cache", "-q", want=1)
    got = {r["custom_id"]: r for r in rows("out.jsonl")}
    check(sorted(got, key=int) == [str(i) for i in range(len(asked))], "each once", sorted(got))
    server = subprocess.Popen([LQ, "serve", MODEL, "--name", "demo", "--no-prefix-cache", "--port", "0", "--json", "-q"], stdout=subprocess.PIPE, text=True)
    port = json.loads(server.stdout.readline())["port"]
    good = 0
    for i, (url, body) in enumerate(asked):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=60 * SLOW)
        c.request("POST", url, json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        want, mine = json.loads(r.read()), got[str(i)]
        c.close()
        check(mine["response"]["status_code"] == r.status, url, body, r.status, mine)
        check(bare(mine["response"]["body"]) == bare(want), url, str(body)[:200], "server:", bare(want), "batch:", bare(mine["response"]["body"]))
        check((mine["error"] is None) == (r.status == 200), mine["error"])
        check(set(mine) == {"id", "custom_id", "response", "error"} and mine["id"].startswith("batch_req_"), mine)
        check(set(mine["response"]) == {"status_code", "request_id", "body"} and mine["response"]["request_id"], mine)
        good += r.status == 200
    server.terminate()
    check(server.wait(60 * SLOW) == 0 and good >= 15, "requests that the server answered", good)


def test_names():
    names = ["a", "\u00e9\U0001f600", 'q"\\/\b\n', "x" * 3000, "a\u0000b", "a\u0000c", " a ", "null", "[" * 100, "\u009b\u202e"]
    write("in.jsonl", [request(n, max_tokens=1) for n in names])
    batch("in.jsonl", "out.jsonl", "-q")
    check(sorted(ids("out.jsonl")) == sorted(names), ids("out.jsonl"))
    batch("in.jsonl", "out.jsonl", "--resume", "-q")
    check(sorted(ids("out.jsonl")) == sorted(names), "asked again", ids("out.jsonl"))


def test_bad_lines():
    good = request("good")
    bad = [  # what it is, status of its response (None: it has none), what is said
        (b"nope\n", None, "not JSON"), (b"[1]\n", None, "object"), (b'{"custom_id":"cut\n', None, "not JSON"), (b"\xff\xfe\n", None, "not JSON"),
        (json.dumps(request("u8")).encode().replace(b"upon", b"up\xffn") + b"\n", None, "UTF-8"), (b'{"custom_id":"twice","custom_id":"twice"}\n', None, "twice"),
        ({**good, "custom_id": 7}, None, "custom_id"), ({**good, "custom_id": ""}, None, "custom_id"), ({**good, "custom_id": None}, None, "custom_id"),
        ({k: v for k, v in good.items() if k != "custom_id"}, None, "custom_id"), (b"[" * 100000 + b"\n", None, "deep"),
        (json.dumps(request("long", "x" * 5000)).encode() + b"\n", None, "longer than"),
        ({**good, "custom_id": "m", "method": "GET"}, 405, "method"), ({**good, "custom_id": "m2", "method": 3}, 405, "method"),
        ({**good, "custom_id": "u", "url": "/v1/none"}, 404, "url"), ({**good, "custom_id": "u2", "url": "/v1/completions\u0000"}, 404, "url"),
        ({**good, "custom_id": "u3", "url": "/v1/models"}, 404, "url"), ({**good, "custom_id": "b", "body": [1]}, 400, "object"),
        ({**good, "custom_id": "b2", "body": None}, 400, "body"), (request("s", stream=True), 400, "stream"),
        (request("s2", url="/generate_stream", inputs="a"), 400, "stream"), (request("t", temperature="x"), 400, "temperature"),
    ]
    lines = [x for what, _, _ in bad for x in (what, b" \t\r\n")] + [good]  # between them blank ones, which are none
    write("in.jsonl", lines)
    sized = ("--max-body", "2K")  # a line: 64 KiB more
    lines[22] = json.dumps(request("long", "x" * 70000)).encode() + b"\n"
    lines[20] = b"[" * 60000 + b"\n"
    write("in.jsonl", lines)
    _, err = batch("in.jsonl", "out.jsonl", *sized, want=1)
    check(f"{len(bad)} of {len(bad) + 1} requests failed; the first one: line 1: " in err, err)
    by_line = {r["error"]["line"]: r for r in rows("out.jsonl") if r["error"]}
    check(sorted(by_line) == list(range(1, 2 * len(bad), 2)), "lines", sorted(by_line))
    for i, (what, status, said) in enumerate(bad):
        r = by_line.get(2 * i + 1, {})
        e = r.get("error") or {}
        check(set(e) == {"code", "message", "param", "line"} and e["code"] and f"line {2 * i + 1}: " in e["message"] and said in e["message"], str(what)[:80], r)
        if status is None:
            check(r["custom_id"] is None and r["response"] is None, r)
        else:
            check(r["custom_id"] == what["custom_id"] and r["response"]["status_code"] == status and said in r["response"]["body"]["error"]["message"]
                  if what["url"] != "/generate_stream" else r["response"]["body"]["error_type"] == "validation", r)
    before = open("out.jsonl", "rb").read()
    _, err = batch("in.jsonl", "out.jsonl", *sized, "--resume", want=1)
    check(open("out.jsonl", "rb").read() == before and "all before this run" in err, "nothing is asked twice", err)
    write("mark.jsonl", [b"\xef\xbb\xbf" + json.dumps(good).encode()])  # as some editors write it, and no line feed at the end
    batch("mark.jsonl", "mark.out", "-q")
    check(ids("mark.out") == ["good"], ids("mark.out"))


def test_duplicates():
    write("in.jsonl", [request("a"), b"\n", request("b"), request("a")])
    _, err = batch("in.jsonl", "out.jsonl", want=1)
    check('in.jsonl:4: custom_id "a" is that of line 1 too' in err and err.count("lq: ") == 1 and not os.path.exists("out.jsonl"), err)
    out, err = batch("-", "-", "-q", stdin=open("in.jsonl", "rb").read(), want=1)  # what cannot be read twice is told when it is met
    got = [json.loads(line) for line in out.splitlines()]
    check(sorted(str(r["custom_id"]) for r in got) == ["None", "a", "b"], got)
    check([(r["error"]["code"], r["error"]["line"]) for r in got if r["error"]] == [("duplicate_custom_id", 4)], got)


# --- how it goes on ---

def many(n, tokens=6):
    return [request(f"r{i}", f"Once upon a time there were {i}", max_tokens=1 + i % tokens) for i in range(n)]


def same_answers(a, b):
    a, b = ({r["custom_id"]: bare(r["response"]["body"]["choices"]) for r in rows(x)} for x in (a, b))
    return a == b


def test_many():
    n = 200 if WATCHED else 2000
    write("in.jsonl", many(n))
    out, err = batch("in.jsonl", "out.jsonl", "--json", "--max-seqs", 16)
    got = rows("out.jsonl")
    check(sorted(r["custom_id"] for r in got) == sorted(f"r{i}" for i in range(n)), "each once", len(got))
    said, usage = json.loads(out), [r["response"]["body"]["usage"] for r in got]
    for key in ("prompt_tokens", "completion_tokens"):
        check(said[key] == sum(u[key] for u in usage), key, said)
    check(said["cached_tokens"] == sum(u["prompt_tokens_details"]["cached_tokens"] for u in usage), said)
    check((said["requests"], said["before"], said["failed"]) == (n, 0, 0) and said["seconds"] > 0, said)
    check(all(u["completion_tokens"] == 1 + int(r["custom_id"][1:]) % 6 or r["response"]["body"]["choices"][0]["finish_reason"] == "stop" for r, u in zip(got, usage)), "lengths")


def test_killed():
    n = 60 if WATCHED else 300
    write("in.jsonl", many(n, 24))
    batch("in.jsonl", "whole.jsonl", "-q")
    kills = 0
    for round in range(12):
        before = lines_of("out.jsonl")
        p = started("in.jsonl", "out.jsonl", "--resume", "-q")
        until(lambda: lines_of("out.jsonl") >= min(n, before + n // 8) or p.poll() is not None)
        p.kill()
        kills += p.wait() == -signal.SIGKILL
        p.stderr.close()
        if round % 2:  # as if the kill had come inside a write
            text = open("out.jsonl", "rb").read()
            open("out.jsonl", "wb").write(text + text.splitlines()[0][:3 + 40 * round])
        if lines_of("out.jsonl") >= n:
            break
    check(kills >= 3, "kills", kills)
    before = lines_of("out.jsonl")
    out, _ = batch("in.jsonl", "out.jsonl", "--resume", "--json")
    check(json.loads(out)["before"] == before and json.loads(out)["requests"] == n, out, before)
    check(collections.Counter(ids("out.jsonl")) == collections.Counter(f"r{i}" for i in range(n)), "each once")
    check(same_answers("out.jsonl", "whole.jsonl"), "the same answers as of a run that was not killed")


def test_interrupted():
    n = 240 if WATCHED else 2000  # so many that none of these runs is at its end before it hears of the signal
    write("in.jsonl", many(n, 40))
    for sig in (signal.SIGINT, signal.SIGTERM):
        before = lines_of("out.jsonl")
        p = started("in.jsonl", "out.jsonl", "--resume")
        until(lambda: lines_of("out.jsonl") > before + 5)
        p.send_signal(sig)
        err = p.communicate(timeout=60 * SLOW)[1].decode().strip().splitlines()[-1]
        done = lines_of("out.jsonl")
        check(p.returncode == 1 and err == f"lq: stopped; {done} of {n} requests are answered, --resume goes on with the others", p.returncode, err, done)
        check(done < n and len(rows("out.jsonl")) == done, "whole lines", done)
    batch("in.jsonl", "out.jsonl", "--resume", "-q")
    check(sorted(ids("out.jsonl")) == sorted(f"r{i}" for i in range(n)), "each once")


def test_full_disk():
    n = 40
    write("in.jsonl", many(n))
    for limit in (1, 5, 9):  # KiB, so that the last write is cut somewhere
        out, err = batch("in.jsonl", "out.jsonl", "--resume", "-q", want=1, limit=f"ulimit -f {limit};")
        check(err.startswith("lq: out.jsonl: File too large; ") and "--resume" in err and "|" not in err, err)
        check(open("out.jsonl", "rb").read()[-1:] in (b"\n", b"") and len(rows("out.jsonl")) < n, "half a line was left")
    batch("in.jsonl", "out.jsonl", "--resume", "-q")
    check(sorted(ids("out.jsonl")) == sorted(f"r{i}" for i in range(n)), "each once")
    if os.path.exists("/dev/full"):
        _, err = batch("in.jsonl", "/dev/full", "-q", want=1)
        check("/dev/full: No space left on device" in err, err)
    else:
        skip("no /dev/full")


# --- pipes ---

def test_pipes():
    text = b"".join(json.dumps(r).encode() + b"\n" for r in many(30))
    out, err = batch("-", "-", stdin=text)
    check(sorted(json.loads(x)["custom_id"] for x in out.splitlines()) == sorted(f"r{i}" for i in range(30)), out[:300])
    check("30 requests; " in err, err)
    # Who waits for an answer before he asks again gets it.
    p = started("-", "-", "-q", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for i in range(3):
        p.stdin.write(json.dumps(request(f"w{i}")).encode() + b"\n")
        p.stdin.flush()
        check(json.loads(p.stdout.readline())["custom_id"] == f"w{i}", "an answer while the input is open")
    p.stdin.write(json.dumps(request("last")).encode())  # without a line feed
    p.stdin.close()
    check(json.loads(p.stdout.readline())["custom_id"] == "last" and p.wait(60 * SLOW) == 0, "the last line")
    p.stdout.close()
    p.stderr.close()
    # A reader that goes is an error, not a death.
    p = started("-", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.stdout.close()
    feed = threading.Thread(target=lambda: p.stdin.write(text))
    feed.start()
    feed.join()
    err = p.stderr.read().decode()
    p.stdin.close()
    check(p.wait(60 * SLOW) == 1 and "standard output: Broken pipe" in err, p.returncode, err)
    p.stderr.close()
    # Ctrl-C while nothing comes.
    p = started("-", "o.jsonl", stdin=subprocess.PIPE)
    p.stdin.write(json.dumps(request("a")).encode() + b"\n")
    p.stdin.flush()
    until(lambda: lines_of("o.jsonl") == 1)
    p.send_signal(signal.SIGINT)
    err = p.stderr.read().decode()
    check(p.wait(60 * SLOW) == 1 and "stopped; 1 requests are answered, --resume" in err, err)
    p.stdin.close()
    p.stderr.close()
    write("in.jsonl", many(30))
    with open("in.jsonl", "rb") as f:  # a file as standard input: from where it stands
        os.lseek(f.fileno(), len(f.readline()), os.SEEK_SET)
        p = started("-", "o.jsonl", "--resume", "-q", stdin=f)
        p.stderr.close()
        check(p.wait(60 * SLOW) == 0 and sorted(ids("o.jsonl")) == sorted(["a"] + [f"r{i}" for i in range(1, 30)]), "the rest of a file")


def test_memory():
    """An input that is larger than what the process comes to hold."""
    if WATCHED:
        return skip("memory under sanitizers is not the program's")
    peaks = []
    for n in (20, 1200):
        write("in.jsonl", [{**request(f"r{i}", max_tokens=1), "note": "x" * 50000} for i in range(n)])
        p = started("in.jsonl", f"out{n}.jsonl", "-q", "--max-seqs", "8", "--kv-memory", "8M")
        peak = 0
        while p.poll() is None:  # of its own pages: what wait4 tells began with this process's
            said = pathlib.Path(f"/proc/{p.pid}/status").read_text()
            peak = max([peak] + [int(x.split()[1]) / 1024 for x in said.splitlines() if x.startswith("VmHWM")])
            time.sleep(0.005)
        p.stderr.close()
        check(p.returncode == 0 and lines_of(f"out{n}.jsonl") == n and peak > 0, p.returncode, peak)
        peaks.append(peak)
    check(peaks[1] - peaks[0] < 20, "60 MB of requests took so many MiB more than 1 MB of them:", peaks[1] - peaks[0])


# --- files that are not to be touched ---

def test_files():
    write("in.jsonl", many(4))
    batch("in.jsonl", "out.jsonl", "-q")
    kept = open("out.jsonl", "rb").read()
    _, err = batch("in.jsonl", "out.jsonl", want=1)
    check(err == "lq: out.jsonl: exists; --resume goes on with it, --force begins anew" and open("out.jsonl", "rb").read() == kept, err)
    batch("in.jsonl", "out.jsonl", "--force", "-q")
    check(len(rows("out.jsonl")) == 4 and open("out.jsonl", "rb").read() != kept, "--force")
    for stranger, text in (("s.txt", b"precious\n"), ("in2.jsonl", open("in.jsonl", "rb").read()), ("n.txt", b"precious"), ("j.jsonl", b'{"custom_id":"a"}\n')):
        open(stranger, "wb").write(text)
        for how in ("--force", "--resume"):
            _, err = batch("in.jsonl", stranger, how, want=1)
            check(stranger in err and open(stranger, "rb").read() == text, how, stranger, err)
    open("mixed.jsonl", "wb").write(kept + b"{}\n" + kept)
    _, err = batch("in.jsonl", "mixed.jsonl", "--resume", want=1)
    check("mixed.jsonl:5: no answer of a batch" in err and open("mixed.jsonl", "rb").read() == kept + b"{}\n" + kept, err)
    os.link("in.jsonl", "same.jsonl")
    for out in ("in.jsonl", "same.jsonl"):
        _, err = batch("in.jsonl", out, "--force", want=1)
        check("is the input too" in err, err)
    open("empty.jsonl", "wb").close()
    batch("in.jsonl", "empty.jsonl", "-q")  # nothing in it to lose
    write("dup.jsonl", [request("a"), request("a")])
    batch("dup.jsonl", "out.jsonl", "--force", want=1)
    check(len(rows("out.jsonl")) == 4, "what is refused replaces nothing")
    for words, said in ((("none.jsonl", "o"), "none.jsonl: No such file"), (("in.jsonl", "no/o"), "no/o: No such file"), ((".", "o"), ".: Is a directory"),
                        (("in.jsonl", "."), "Is a directory"), (("in.jsonl", "/dev/null", "--resume"), "no file that could be gone on with")):
        _, err = batch(*words, want=1)
        check(said in err and not os.path.exists("o"), words, err)
    for words in (("in.jsonl", "o", "--resume", "--force"), ("in.jsonl", "-", "--json"), ("in.jsonl",)):
        batch(*words, want=2)
    batch("in.jsonl", "o", "--device", "none", want=1)
    check(not os.path.exists("o"), "a model that does not open leaves no file")
    write("none.jsonl", [b"\n \n"])
    out, _ = batch("none.jsonl", "o")
    check(os.path.getsize("o") == 0 and out.startswith("0 requests; "), out)
    p = started("-", "locked.jsonl", "-q", stdin=subprocess.PIPE)
    until(lambda: os.path.exists("locked.jsonl"))
    time.sleep(0.2 * SLOW)
    _, err = batch("in.jsonl", "locked.jsonl", "--resume", want=1)
    check("another lq batch is writing it" in err, err)
    p.stdin.close()
    p.stderr.close()
    check(p.wait(60 * SLOW) == 0, "the one that was first")


def test_said():
    write("in.jsonl", many(3))
    out, err = batch("in.jsonl", "a.jsonl", "-q")
    check(out == "" and err == "", out, err)
    out, err = batch("in.jsonl", "b.jsonl")
    check(out.startswith("3 requests; ") and "tok/s" in out, out)
    batch("in.jsonl", "c.jsonl", "--chat-template", "{{ messages[0].content }}", "-q")
    write("chat.jsonl", [request("a", url="/v1/chat/completions", messages=CHAT, model="gpt-4o-mini", max_tokens=3)])
    batch("chat.jsonl", "d.jsonl", "--name", "gpt-4o-mini", "-q")
    check(rows("d.jsonl")[0]["response"]["body"]["model"] == "gpt-4o-mini", rows("d.jsonl"))


TESTS = {k[5:]: v for k, v in list(globals().items()) if k.startswith("test_")}
for name in sys.argv[2:] or TESTS:
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        TESTS[name]()
        os.chdir("/")
sys.exit(end())
