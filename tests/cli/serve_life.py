#!/usr/bin/env python3
# serve_life.py: a server's life, each test with servers of its own: queues and priorities, who may ask, places, TLS, deadlines, the administrator, the
# drain. The same variables as serve.py.
import http.client, json, os, re, select, shutil, signal, socket, ssl, subprocess, sys, tempfile, threading, time
import serve
from serve import JSON, LQ, SLOW, Server, check, end, events, http_post, long_ask, skip, stream_text


def test_lingering():
    """What a client has closed, the server closes too: at once, and beside connections that are idle."""
    s = Server("--max-connections", "100")
    fds = lambda: len(os.listdir(f"/proc/{s.p.pid}/fd"))
    connect = lambda: socket.create_connection(("127.0.0.1", s.port), timeout=30 * SLOW)
    ask = {"model": "demo", "prompt": "Once", "max_tokens": 8, "ignore_eos": True}
    def settles(count):
        end = time.monotonic() + 5 * SLOW
        while fds() != count and time.monotonic() < end:
            time.sleep(0.02)
        return fds() == count
    alone = fds()
    idle = [connect() for _ in range(8)]  # some on each of the server's threads, older than what comes
    for c in idle:
        c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        c.recv(1000)
    half = [connect(), connect()]
    half[0].sendall(http_post(ask)[:40])
    half[1].sendall(http_post(ask)[:-10])
    start = time.monotonic()
    s.ask("GET", "/health")
    base = alone + len(idle) + len(half)
    check(settles(base), "ten connections are open, not", fds() - alone)
    for what, data, read in (("half a header", http_post(ask)[:40], 0), ("half a body", http_post(ask)[:-10], 0), ("a stream", http_post({**ask, "stream": True}), 0),
                             ("a stream that has begun", http_post({**ask, "stream": True}), 100), ("a whole answer", http_post(ask), 0)):
        for i in range(60):
            with connect() as c:
                c.sendall(data)
                if read:
                    c.recv(read)
        end = time.monotonic() + 5 * SLOW
        while fds() > base and time.monotonic() < end:
            time.sleep(0.02)
        check(fds() <= base, what, "and then the end of the connection:", fds() - base, "of 60 descriptors are still open")
    check(s.ask("GET", "/health")[0] == 200, "places for others")
    for c in half:  # one that stays and says no more
        c.settimeout(max(1, 60 * SLOW - (time.monotonic() - start)))
        try:
            check(b" 200 " not in c.recv(1000)[:16] and time.monotonic() - start > 5, "half a request is waited for", time.monotonic() - start)
        except socket.timeout:
            check(False, "half a request keeps its place for", time.monotonic() - start, "s")
    idle[0].sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    check(b" 200 " in idle[0].recv(1000)[:16], "an idle connection is still there")
    for c in half + idle:
        c.close()
    s.stop()


def test_queue():
    s = Server("--max-seqs", "1", "--max-queue", "2")
    results = []

    def one(i):
        status, head, raw = s.ask("POST", "/v1/completions", {**long_ask(), "max_tokens": 300})
        results.append((status, head.get("Retry-After"), json.loads(raw).get("error", {}).get("type")))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(12)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    busy = [r for r in results if r[0] == 429]
    check(busy and all(r == (429, "1", "rate_limit_error") for r in busy), "429 when the queue is full", results)
    check(len(busy) + sum(r[0] == 200 for r in results) == 12 and len(busy) < 12, results)
    status, _, raw = s.ask("POST", "/v1/completions", {"prompt": ["a"] * 9, "max_tokens": 1})
    check(status == 200 and len(json.loads(raw)["choices"]) == 9, "prompts that come together count as one", status)
    check(s.idle() is True, "idle", s.idle(0))
    s.stop()


def test_priority():
    s = Server("--max-seqs", "1", "--priorities", "--age", "3600")
    ended = []

    def one(name, **more):
        s.ask("POST", "/v1/completions", {**long_ask(), **more})
        ended.append(name)
    # The first holds the only place until the other two wait.
    threads = [threading.Thread(target=one, args=("first",), kwargs={"prompt": ["Once"] * 3, "priority": -2})]
    threads[0].start()
    for name, waiting, more in (("late", 1, {"max_tokens": serve.LONG // 6}), ("soon", 2, {"max_tokens": serve.LONG // 6, "priority": -1})):
        end = time.monotonic() + 10 * SLOW
        while s.metrics()["vllm:num_requests_waiting"] < waiting and time.monotonic() < end:
            time.sleep(0.002)
        threads.append(threading.Thread(target=one, args=(name,), kwargs=more))
        threads[-1].start()
    [t.join() for t in threads]
    check(ended.index("soon") < ended.index("late"), "the lower priority goes first", ended)
    s.stop()


def test_key():
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("s3cret-key\n")
        f.flush()
        s = Server("--api-key-file", f.name)
        ask = {"prompt": "PROMPT-WORD", "max_tokens": 1}
        for given, want in ((None, 401), ("Bearer wrong", 401), ("Bearer s3cret-ke", 401), ("Bearer s3cret-key2", 401), ("Bearer ", 401), ("s3cret-key", 401),
                            ("Bearer s3cret-key", 200)):
            head = {**JSON, **({"Authorization": given} if given else {})}
            status, h, raw = s.ask("POST", "/v1/completions", ask, head)
            check(status == want and (want == 200 or (h["WWW-Authenticate"] == "Bearer" and json.loads(raw)["error"]["code"] == "invalid_api_key")), given, status, raw)
        check(s.ask("GET", "/health")[0] == 200 and s.ask("GET", "/ready")[0] == 200, "health needs no key")
        check(s.ask("GET", "/metrics")[0] == s.ask("GET", "/kv_blocks")[0] == 401 and s.ask("GET", "/nothing")[0] == 401 and s.ask("GET", "/v1/models")[0] == 401, "all else does")
        s.stop()
        check("s3cret" not in s.errors() and "PROMPT-WORD" not in s.errors(), "neither key nor prompt in the log", s.errors())
    s = Server(env={"LQ_API_KEY": "k"})
    check(s.ask("GET", "/v1/models")[0] == 401 and s.ask("GET", "/v1/models", headers={"Authorization": "Bearer k"})[0] == 200, "LQ_API_KEY")
    s.stop()


# --- who may ask ---

def test_clients():
    """Several keys, how often each may ask, the header that Anthropic's clients send."""
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("first\r\nsecond\n\nthird")
        f.flush()
        s = Server("--api-key-file", f.name, "--rate-limit", "3")
        post = lambda **head: s.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1}, {**JSON, **head})
        got = [post(Authorization="Bearer first") for _ in range(5)]
        check([g[0] for g in got] == [200, 200, 200, 429, 429], "three a minute", [g[0] for g in got])
        check(1 <= int(got[4][1]["Retry-After"]) <= 20 and json.loads(got[4][2])["error"]["code"] == "rate_limit_exceeded", "when to come again", got[4][1]["Retry-After"])
        check(post(Authorization="Bearer second")[0] == 200 and post(**{"x-api-key": "third"})[0] == 200, "the other keys")
        check(s.ask("GET", "/v1/models", headers={"Authorization": "Bearer first"})[0] == 200, "looking is free")
        s.stop()
        f.seek(0)
        f.truncate()
        p = subprocess.run([LQ, "serve", serve.MODEL, "--port", "0", "--api-key-file", f.name], capture_output=True, text=True, timeout=60 * SLOW)
        check(p.returncode == 1 and p.stderr.count("\n") == 1 and f.name in p.stderr, "a file without a key", p)


def test_names():
    """A page elsewhere that gives its own name this server's address is not answered; nor one that asks across origins, unless it may."""
    def get(s, host, **head):
        return s.ask("GET", "/v1/models", headers={"Host": host, **head})
    s = Server("--allow-host", "lq.example", "--allow-host", "other.example")
    for host, want in (("127.0.0.1", 200), ("localhost:1", 200), ("[::1]:8080", 200), ("10.1.2.3", 200), ("a.localhost", 200), ("box", 200), ("LQ.example:80", 200), ("lq.example.", 200),
                       ("other.example", 200), ("evil.example", 421), ("127.0.0.1.evil.example", 421), ("xlq.example", 421), ("a" * 300 + ".b", 421), (socket.gethostname(), 200)):
        status, _, raw = get(s, host)
        check(status == want and (want == 200 or json.loads(raw)["error"]["code"] == "unknown_host"), "called", host[:40], status)
    check(s.ask("GET", "/health", headers={"Host": "evil.example"})[0] == 200, "health by any name")
    head = get(s, "box", Origin="http://a.example")[1]
    check("Access-Control-Allow-Origin" not in head, "no page was named", dict(head))
    check(s.ask("OPTIONS", "/v1/completions", headers={"Origin": "http://a.example", "Access-Control-Request-Method": "POST"})[0] == 405, "nor may one ask")
    s.stop()
    s = Server("--cors", "https://a.example", "--cors", "http://b.example:3000")
    asks = "x-stainless-lang, anthropic-version,anthropic-dangerous-direct-browser-access,openai-organization"
    preflight = lambda origin, headers: s.ask("OPTIONS", "/v1/messages", headers={"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": headers})
    for given, back in ((asks, True), ("x-" + "a" * 1000, True), ("x-" + "a" * 2000, False), ("a b", False), ("x: y", False), ("", False)):
        status, head, _ = preflight("https://a.example", given)
        told = head["Access-Control-Allow-Headers"]
        check(status == 204 and told.startswith("Authorization, Content-Type, X-Api-Key") and (told.endswith(", " + given) if back else told.endswith("X-Request-Id")),
              "headers that a library sends", given[:100], status, told)
        check(head.get_all("Vary") == ["Origin", "Access-Control-Request-Headers"], "what that depends on", head.get_all("Vary"))
    check("x-stainless-lang" not in str(preflight("https://c.example", asks)[1]), "to those that may")
    check(s.ask("GET", "/v1/models")[1]["Vary"] == "Origin", "for others, too")
    exposed = s.ask("GET", "/v1/models", headers={"Origin": "https://a.example"})[1]["Access-Control-Expose-Headers"]
    check(set(exposed.split(", ")) == {"X-Request-Id", "Request-Id", "Retry-After"}, "what a page may read", exposed)
    for origin, may in (("https://a.example", True), ("http://b.example:3000", True), ("http://a.example", False), ("https://a.example.evil.example", False)):
        status, head, _ = s.ask("OPTIONS", "/v1/completions", headers={"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"})
        check((status == 204 and head["Access-Control-Allow-Origin"] == origin and "POST" in head["Access-Control-Allow-Methods"] and "Authorization" in head["Access-Control-Allow-Headers"]) == may,
              "a page asks first", origin, status, dict(head))
        head = s.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1, "stream": True}, {**JSON, "Origin": origin})[1]
        check((head.get("Access-Control-Allow-Origin") == origin and head.get("Vary") == "Origin") if may else "Access-Control-Allow-Origin" not in head, "a page reads", origin, dict(head))
    s.stop()
    s = Server("--cors", "*")
    head = s.ask("GET", "/v1/models", headers={"Origin": "null"})[1]
    check(head["Access-Control-Allow-Origin"] == "*" and "Vary" not in head, "any page", dict(head))
    s.stop()


def test_places():
    """Who holds all places does not keep others from asking for the server's health; a limit for each address; idle ones make room."""
    s = Server("--max-connections", "20")
    connect = lambda: socket.create_connection(("127.0.0.1", s.port), timeout=20 * SLOW)
    held = [connect() for _ in range(20)]
    for c in held:
        c.sendall(b"GET /health HTTP/1.1\r\n")
    check(s.ask("GET", "/health")[0] == 200 and s.ask("GET", "/ready")[0] == 200, "health when all places are taken")
    status, head, raw = s.ask("GET", "/v1/models")
    check(status == 503 and "Retry-After" in head and "connections" in json.loads(raw)["error"]["message"], "all else waits", status, raw)
    for c in held:
        c.sendall(b"Host: x\r\n\r\n")
        check(b" 200 " in c.recv(1000)[:16], "those who hold a place are answered")
    time.sleep(1.2)
    check(s.ask("GET", "/v1/models")[0] == 200, "the one that has been silent longest makes room")
    gone = sum(c.recv(1) == b"" for c in held[:3] if not c.settimeout(0.2 * SLOW) and readable(c))
    check(gone >= 1, "it was closed", gone)
    for c in held:
        c.close()
    s.stop()
    s = Server("--max-per-address", "3")
    held = [connect() for _ in range(3)]
    for c in held:
        c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        c.recv(1000)
    with connect() as c:
        try:
            c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            check(c.recv(1000) == b"", "a fourth from one address")
        except ConnectionError:
            check(True)
    held.pop().close()
    time.sleep(0.1 * SLOW)
    with connect() as c:
        c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        check(b" 200 " in c.recv(1000)[:16], "a place that was given back")
    for c in held:
        c.close()
    s.stop()


def test_files():
    """Where fewer files may be open than there are places, there are fewer places: idle clients keep nobody out."""
    s, get = Server(files=96), b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    end = time.monotonic() + 5 * SLOW
    while not s.errors() and time.monotonic() < end:
        time.sleep(0.01)
    check(re.search(r"\b\d\d connections at once, not 1024", s.errors()) and s.errors().count("\n") == 1, "it says so", s.errors())
    held = []
    for _ in range(120):
        held.append(socket.create_connection(("127.0.0.1", s.port), timeout=20 * SLOW))
        held[-1].sendall(get)
        held[-1].recv(1000)
    check(s.ask("GET", "/health")[0] == 200 and s.ask("GET", "/ready")[0] == 200, "health when no file is left for others")
    time.sleep(1.2)
    check(s.ask("GET", "/v1/models")[0] == 200, "the one that has been silent longest makes room")
    for c in held:
        c.close()
    s.stop()
    s = Server("--max-connections", "20", files=96)
    check(s.errors() == "", "20 have their place", s.errors())
    s.stop()


def readable(c):
    return bool(select.select([c], [], [], 0.2)[0])


def test_tls():
    if not shutil.which("openssl"):
        return skip("openssl makes the certificate, and is not here")
    with tempfile.TemporaryDirectory() as folder:
        cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
        p = subprocess.run([LQ, "serve", serve.MODEL, "--port", "0", "--tls-cert", cert], capture_output=True, text=True, timeout=60 * SLOW)
        check(p.returncode == 2 and "--tls-key" in p.stderr, "a certificate without its key", p)
        p = subprocess.run([LQ, "serve", serve.MODEL, "--port", "0", "--tls-cert", key, "--tls-key", cert], capture_output=True, text=True, timeout=60 * SLOW)
        check(p.returncode == 1 and cert in p.stderr and p.stderr.count("\n") == 1, "one for the other", p)
        s = Server("--tls-cert", cert, "--tls-key", key)
        trust = ssl.create_default_context(cafile=cert)

        def ask(method, path, body=None):
            c = http.client.HTTPSConnection("localhost", s.port, timeout=60 * SLOW, context=trust)
            c.request(method, path, body if body is None else json.dumps(body), JSON if body else {})
            r = c.getresponse()
            return r.status, r.read(), c.sock and c.sock.version()
        check(ask("GET", "/health") == (200, b'{"status":"ok"}', "TLSv1.3"), "health over TLS", ask("GET", "/health"))
        plain = json.loads(ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 60, "temperature": 0})[1])["choices"][0]["text"]
        streamed = stream_text(ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 60, "temperature": 0, "stream": True})[1])
        check(plain == streamed != "", "a stream over TLS", plain, streamed)
        large = {"prompt": "Once " * 60000, "max_tokens": 1}  # many records each way
        status, raw, _ = ask("POST", "/v1/completions", large)
        check(status == 400 and json.loads(raw)["error"]["code"] == "context_length_exceeded", "a large body over TLS", status, raw[:200])
        words = json.loads(ask("POST", "/tokenize", {"prompt": "Once upon a time " * 20000})[1])
        check(words["count"] == len(words["tokens"]) > 20000, "a large answer over TLS", words["count"])
        for junk in (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", bytes(300), b"\x16\x03\x01\x02\x00" + bytes(600)):
            check(b"200" not in s.raw(junk, 3)[:16], "what is not TLS", junk[:20])
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(cert)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with old.wrap_socket(socket.create_connection(("127.0.0.1", s.port)), server_hostname="localhost") as c:
            check(c.version() == "TLSv1.2", "TLS 1.2", c.version())
        for stream in (False, True):  # clients that go, at once and with a reset
            for _ in range(20):
                c = trust.wrap_socket(socket.create_connection(("127.0.0.1", s.port)), server_hostname="localhost")
                c.sendall(http_post(long_ask(stream=stream)))
                if stream:
                    c.recv(200)
                c.close()
        end = time.monotonic() + 10 * SLOW
        running = lambda: float(re.search(r"vllm:num_requests_running\{[^}]*\} (\S+)", ask("GET", "/metrics")[1].decode())[1])
        while running() and time.monotonic() < end:
            time.sleep(0.02)
        check(running() == 0, "cancelled when the clients went")
        s.p.send_signal(signal.SIGTERM)
        check(s.p.wait(30 * SLOW) == 0, "ends")


# --- ends ---

def test_deadline():
    """A request whose time is over ends with what it has; one that has nothing is told so; the server's own word is the last."""
    s = Server("--max-seqs", "1")
    start = time.monotonic()
    whole = s.post(long_ask(temperature=0))
    third = max(1, int((time.monotonic() - start) * 1000 / 3))
    cut = s.post(long_ask(temperature=0, deadline_ms=third))
    c, n = cut["choices"][0], cut["usage"]["completion_tokens"]
    check(c["finish_reason"] == "length" and 0 < n < serve.LONG and whole["choices"][0]["text"].startswith(c["text"]), "cut by its deadline", third, n, c["finish_reason"])
    last = events(s.ask("POST", "/v1/completions", long_ask(stream=True, deadline_ms=third))[2])
    check(last[-1] == "[DONE]" and last[-2]["choices"][0]["finish_reason"] == "length", "a stream too", last[-2:])
    first = threading.Thread(target=s.ask, args=("POST", "/v1/completions", long_ask()))
    first.start()
    end = time.monotonic() + 10 * SLOW
    while s.metrics()["vllm:num_requests_running"] == 0 and time.monotonic() < end:
        time.sleep(0.002)
    late = s.post({"prompt": "Once", "deadline_ms": 1}, want=504)
    check("time was over" in late["error"]["message"], late)
    first.join()
    check(s.idle() is True, "blocks after deadlines", s.idle())
    for bad in (0, -1, "5", 1.5):
        check(s.post({"prompt": "a", "deadline_ms": bad}, want=400)["error"]["param"] == "deadline_ms", "deadline_ms", bad)
    s.stop()
    s = Server("--max-seqs", "8", "--deadline", "1")
    start = time.monotonic()
    cut = s.post(long_ask(n=128, deadline_ms=3600000))
    check({c["finish_reason"] for c in cut["choices"]} == {"length"} and 0 < cut["usage"]["completion_tokens"] < 128 * serve.LONG and time.monotonic() - start < 20 * SLOW,
          "the server's deadline", cut["usage"], time.monotonic() - start)
    check(s.idle() is True, "blocks after it", s.idle())
    s.stop()


def test_admin():
    """An administrator drains the server and takes it back; nobody else can; the log's lines are JSON and have no text of anybody's."""
    admin, user = {"Authorization": "Bearer adm1n"}, {**JSON, "Authorization": "Bearer us3r"}
    ask = {"prompt": "PROMPT-WORD", "max_tokens": 2}
    s = Server("--log-format", "json", "--kv-block", "16", env={"LQ_API_KEY": "us3r", "LQ_ADMIN_KEY": "adm1n"})
    post = lambda path, head: s.ask("POST", path, b"", head)
    check(post("/admin/drain", user)[0] == 401 and post("/admin/drain", {})[0] == 401 and s.ask("GET", "/admin/drain", headers=admin)[0] == 405, "not everybody")
    check(s.ask("POST", "/v1/completions", ask, {**JSON, **admin})[0] == 401, "nor is it a key for all else")
    got = {}
    run = threading.Thread(target=lambda: got.update(long=s.ask("POST", "/v1/completions", long_ask(n=4), user)))
    run.start()
    end = time.monotonic() + 10 * SLOW
    look = lambda: float(re.search(rb"num_requests_running[{]\S* (\S+)", s.ask("GET", "/metrics", headers=user)[2])[1])
    while look() == 0 and time.monotonic() < end:
        time.sleep(0.002)
    status, _, raw = post("/admin/drain", admin)
    check(status == 200 and json.loads(raw)["status"] == "draining", "drain", status, raw)
    status, head, raw = s.ask("POST", "/v1/completions", ask, user)
    check(status == 503 and head["Retry-After"] and "drained" in json.loads(raw)["error"]["message"], "drained", status, raw)
    check(s.ask("GET", "/ready")[0] == 503 and s.ask("GET", "/health")[0] == 200, "not ready, but well")
    run.join()
    check(got["long"][0] == 200 and json.loads(got["long"][2])["usage"]["completion_tokens"] == 4 * serve.LONG, "what ran came to its end", got["long"][0])
    check(post("/admin/resume", admin)[0] == 200 and s.ask("GET", "/ready")[0] == 200 and s.ask("POST", "/v1/completions", ask, user)[0] == 200, "and back")
    s.stop()
    lines = [json.loads(line) for line in s.errors().splitlines()]
    check(all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines), "each has its time", lines[:2])
    done = [line for line in lines if line.get("route") == "/v1/completions" and line["status"] == 200]
    check([(line["completion_tokens"], line["stream"], line["whole"], line["key"]) for line in done] == [(4 * serve.LONG, False, True, 1), (2, False, True, 1)] and
          all(0 < line["ttft_ms"] <= line["ms"] for line in done), "requests", done)
    check([line["event"] for line in lines if "event" in line][:2] == ["drained: no new requests until /admin/resume", "resumed: new requests are taken"], "events", lines)
    check(not any(word in s.errors() for word in ("adm1n", "us3r", "PROMPT-WORD")), "neither keys nor prompts", s.errors())
    s = Server()
    check(s.ask("POST", "/admin/drain", b"", {"Authorization": "Bearer "})[0] == 404, "there is no such path without an administrator")
    s.stop()


def test_drain():
    s = Server("--grace", "60")
    got = {}

    def run(name, ask):
        got[name] = s.ask("POST", "/v1/completions", ask, timeout=120)
    threads = [threading.Thread(target=run, args=a) for a in (("stream", long_ask(stream=True)), ("whole", long_ask()))]
    [t.start() for t in threads]
    end = time.monotonic() + 10 * SLOW
    while s.metrics()["vllm:num_requests_running"] < 2 and time.monotonic() < end:
        time.sleep(0.005)
    s.p.send_signal(signal.SIGTERM)
    saw = None
    while s.p.poll() is None and saw != 503:
        try:
            saw = s.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})[0]
        except OSError:
            break
    check(saw == 503, "new requests get a 503 while it drains", saw)
    [t.join() for t in threads]
    check(events(got["stream"][2])[-1] == "[DONE]" and b'"error"' not in got["stream"][2], "the stream came to its end", got["stream"][2][-200:])
    check(got["whole"][0] == 200 and json.loads(got["whole"][2])["usage"]["completion_tokens"] == serve.LONG, "the whole answer too", got["whole"][0])
    s.stop()
    s = Server()
    run_it = threading.Thread(target=run, args=("twice", long_ask(stream=True, n=8)))
    run_it.start()
    end = time.monotonic() + 10 * SLOW
    while s.metrics()["vllm:num_requests_running"] == 0 and time.monotonic() < end:
        time.sleep(0.005)
    start = time.monotonic()
    s.p.send_signal(signal.SIGTERM)
    time.sleep(0.05)
    s.p.send_signal(signal.SIGINT)
    check(s.p.wait(30 * SLOW) == 0 and time.monotonic() - start < 5 * SLOW, "a second signal ends it at once", time.monotonic() - start)
    run_it.join()
    last = events(got["twice"][2])
    check(last[-1] == "[DONE]" and "error" in last[-2], "the stream was told", last[-2:])
    s.stop()


def test_start():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        p = subprocess.run([LQ, "serve", serve.MODEL, "--port", str(taken.getsockname()[1])], capture_output=True, text=True, timeout=60 * SLOW)
        check(p.returncode == 1 and "in use" in p.stderr and p.stderr.count("\n") == 1, "a port in use", p)
    p = subprocess.run([LQ, "serve", serve.MODEL + "-nothing-here"], capture_output=True, text=True, timeout=60 * SLOW)
    check(p.returncode == 1 and p.stderr.count("\n") == 1, "no such model", p)
    p = subprocess.run([LQ, "serve", serve.MODEL, "--host", "no.such.host.invalid"], capture_output=True, text=True, timeout=60 * SLOW)
    check(p.returncode == 1 and "no.such.host.invalid" in p.stderr, "no such host", p)
    for args, word in ((("--port", "70000"), "from 0 to 65535"), (("--port", "-1"), "from 0 to 65535"), (("--kv-block", "17"), "16|32|64"), (("--name", ""), "--name"), (("--cors", "foo"), "foo"),
                       (("--cors", "https://a.example/"), "--cors"), (("--cors", "*", "--cors", "https://"), "--cors"), (("--cors", "http://a:b"), "--cors"), (("--cors", "http://[::1"), "--cors")):
        p = subprocess.run([LQ, "serve", serve.MODEL, *args], capture_output=True, text=True, timeout=60 * SLOW)
        check(p.returncode == 2 and word in p.stderr.splitlines()[0], "wrong usage", args, p)
    start = time.monotonic()
    p = subprocess.run([LQ, "serve", serve.MODEL, "--port", "0", "--kv-memory", "100T"], capture_output=True, text=True, timeout=60 * SLOW)
    check(p.returncode == 1 and p.stderr.count("\n") == 1 and "100000 GB" in p.stderr and time.monotonic() - start < 5 * SLOW, "a KV cache larger than the machine", p)
    s = Server("--ctx", "60000", "--cors", "http://[::1]:3000", "--cors", "http://localhost:5173", "--cors", "app://obsidian.md")
    said = s.errors()
    check(said.count("\n") == 1 and "60000" in said and "trained" in said, "a context that the model does not know", said)
    s.p.send_signal(signal.SIGHUP)
    s.stop()
    check("shutting down" in s.errors(), "SIGHUP is an end like SIGTERM", s.errors())


def main():
    serve.ONE = []
    serve.run([test_lingering, test_queue, test_priority, test_key, test_clients, test_names, test_places, test_files, test_tls, test_deadline, test_admin, test_drain, test_start], [a for a in sys.argv[1:] if a.startswith("test_")])
    return end()


if __name__ == "__main__":
    sys.exit(main())
