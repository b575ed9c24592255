#!/usr/bin/env python3
# serve_page.py: the page at /: its files as HTTP, then the page itself in headless Chromium, driven over the DevTools protocol, as a person
# would use it. The same variables as serve.py. LQ_SHOTS: a folder that gets pictures of it. Without chromium the second half is one skip.
import base64, json, os, pathlib, queue, shutil, subprocess, sys, tempfile, threading, time
import serve
from serve import ROOT, SLOW, check, end, skip

FILES = {"/": "text/html; charset=utf-8", "/page/page.css": "text/css; charset=utf-8", "/page/icon.svg": "image/svg+xml",
         **{f"/page/{name}.js": "text/javascript; charset=utf-8" for name in ("theme", "page", "api", "text", "dash")}}
SHOTS = os.environ.get("LQ_SHOTS")
WIDTHS = {360: 760, 1280: 860}
HOSTILE = """# Head <b>x</b>

<script>window.hurt = 1</script> <img src=x onerror="window.hurt = 2"> &lt;b&gt; **bold <i>i</i>** *slanted* `<u>code</u>` ~~gone~~ 2 * 3 * 4 snake_case_name

```html"><img src=x onerror=window.hurt=3>
<script>window.hurt = 4</script>
a  b
```

- one
- two <svg onload="window.hurt = 5">
  1. in
  2. deep
- three

> quoted

| a | b |
|---|---|
| 1 | <b>2</b> |

[bad](javascript:window.hurt=6) [data](data:text/html,x) [worse](JaVaScRiPt:window.hurt=7) [rel](/v1/models) [good](https://example.com/a_(b)) http://example.com/x. <javascript:window.hurt=8>"""


# --- the files ---

def test_files(s):
    for path, kind in FILES.items():
        status, head, raw = s.ask("GET", path)
        local = ROOT / "tools/page" / (path.rpartition("/")[2] or "index.html")
        check(status == 200 and head["Content-Type"] == kind and raw == local.read_bytes(), path, status, head["Content-Type"], len(raw))
        check(head["X-Content-Type-Options"] == "nosniff" and head["Cache-Control"] == "no-cache", path, head.items())
        policy = dict(d.strip().split(" ", 1) for d in head["Content-Security-Policy"].split(";"))
        check(policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'" and
              policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'" and "unsafe" not in str(policy), path, policy)
        status, bare, raw = s.ask("HEAD", path)
        check(status == 200 and raw == b"" and bare["Content-Length"] == head["Content-Length"] and bare["ETag"] == head["ETag"], "HEAD", path)
        for mark, want in ((head["ETag"], 304), (f'"x", {head["ETag"]}', 304), ('"x"', 200)):
            status, again, raw = s.ask("GET", path, headers={"If-None-Match": mark})
            check(status == want and again["ETag"] == head["ETag"] and (raw == b"") == (want == 304), "If-None-Match", path, mark, status)
        status, head, _ = s.ask("POST", path, {})
        check(status == 422 if path == "/" else status == 405 and head["Allow"] == "GET, HEAD", "POST", path, status)  # / answers /generate's requests
    check(len({s.ask("HEAD", path)[1]["ETag"] for path in FILES}) == len(FILES), "each has a mark of its own")
    for path in ("/page", "/page/", "/page/index.html", "/page/../page.js", "/page/page.js/", "/page/x.js", "/index.html", "/favicon.ico"):
        status, head, raw = s.ask("GET", path)
        check(status == 404 and "error" in json.loads(raw) and not head["Content-Security-Policy"], path, status)
    check(s.ask("GET", "/?a=b#c")[0] == 200, "a query is none of its business")


def test_files_keyed():
    s = serve.Server(env={"LQ_API_KEY": "the key"})
    for path in FILES:
        check(s.ask("GET", path)[0] == s.ask("HEAD", path)[0] == 200, "no key for", path)
    for path in ("/v1/models", "/metrics", "/kv_blocks", "/page/x.js?"):
        check(s.ask("GET", path)[0] == (404 if "page" in path else 401), "a key for", path)
    s.stop()


def test_no_page():
    s = serve.Server("--no-page")
    for path in FILES:
        check(s.ask("GET", path)[0] == (405 if path == "/" else 404), "--no-page", path)  # what is posted there is answered
    check(s.ask("GET", "/v1/models")[0] == 200, "--no-page leaves the rest")
    s.stop()


# --- a browser ---

class Browser:
    """Chromium by DevTools: JSON that ends with NUL, on two pipes."""

    def __init__(self, program):
        self.home = tempfile.mkdtemp(prefix="lq-page-")
        down, self.to = os.pipe()
        self.back, up = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={self.home}", "about:blank"]
        self.p = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{down} 4>&{up}', "-", program, *flags], pass_fds=(down, up), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, env={**os.environ, "HOME": self.home})
        os.close(down)
        os.close(up)
        self.number, self.answers, self.session, self.faults = 0, {}, None, []
        self.bell = threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        rest = b""
        while chunk := os.read(self.back, 1 << 20):
            *whole, rest = (rest + chunk).split(b"\0")
            for each in whole:
                self.hear(json.loads(each))
        with self.bell:
            self.answers = None
            self.bell.notify_all()

    def hear(self, m):
        p = m.get("params", {})
        if "id" in m:
            with self.bell:
                self.answers[m["id"]] = m
                self.bell.notify_all()
        elif m["method"] == "Runtime.exceptionThrown":
            self.faults.append(p["exceptionDetails"].get("exception", {}).get("description") or str(p))
        elif m["method"] == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            self.faults.append(str(p["args"])[:300])
        elif m["method"] == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
            self.faults.append(p["entry"]["text"])
        elif m["method"] == "Audits.issueAdded" and p["issue"]["code"] == "ContentSecurityPolicyIssue":
            self.faults.append(str(p["issue"]))

    def call(self, method, **params):
        self.number += 1
        me = self.number
        os.write(self.to, json.dumps({"id": me, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}).encode() + b"\0")
        with self.bell:
            good = self.bell.wait_for(lambda: self.answers is None or me in self.answers, 60 * SLOW)
            m = self.answers.pop(me) if good and self.answers is not None else {"error": "no answer"}
        if "error" in m:
            raise RuntimeError(f"{method}: {m['error']}")
        return m["result"]

    def open(self, url, ready="document.getElementById('model')?.textContent"):
        """A page in a profile of its own."""
        self.session = None
        self.context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Audits"):
            self.call(domain + ".enable")
        self.size(1280)
        self.call("Page.navigate", url=url)
        self.wait(ready, "the page is there")

    def close(self):
        context, self.session = self.context, None
        self.call("Target.disposeBrowserContext", browserContextId=context)

    def size(self, width):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=WIDTHS[width], deviceScaleFactor=1, mobile=width < 600)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def js(self, text):
        r = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{text[:100]}: {r['exceptionDetails'].get('exception', {}).get('description')}")
        return r["result"].get("value")

    def wait(self, text, what, seconds=20):
        until = time.monotonic() + seconds * SLOW
        while not (value := self.js(text)) and time.monotonic() < until:
            time.sleep(0.02)
        return check(value, what, text)

    def key(self, name, modifiers=0, text=""):
        code = {"Enter": 13, "Escape": 27, "Tab": 9}[name]
        event = {"key": name, "code": name, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **({"text": "\r"} if name == "Enter" else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, selector):
        x, y = self.js(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'nearest'}});"
                       "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def shot(self, name):
        if SHOTS:
            time.sleep(0.4)
            pathlib.Path(SHOTS).mkdir(parents=True, exist_ok=True)
            pathlib.Path(SHOTS, name + ".png").write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def clean(self, what, expected=()):
        self.js("new Promise(done => setTimeout(done, 50))")
        faults, self.faults = [f for f in self.faults if not any(e in f for e in expected)], []
        check(not faults, what, "left in the console:", faults[:5])

    def stop(self):
        self.session = None
        try:
            self.call("Browser.close")
            self.p.wait(20)
        except Exception:
            self.p.kill()
            self.p.wait()
        shutil.rmtree(self.home, ignore_errors=True)


class Load:
    """Others who use the server: enough of them that an answer takes a while."""

    def __init__(self, s, streams=48):
        self.s, self.over, self.streams = s, threading.Event(), streams
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.over.is_set():
            self.s.ask("POST", "/v1/completions", {"prompt": "Once upon a time there was a girl. " * 5, "n": self.streams, "max_tokens": 900, "ignore_eos": True, "temperature": 1}, timeout=120)

    def __enter__(self):
        self.thread.start()
        until = time.monotonic() + 20 * SLOW
        while self.s.metrics()["vllm:num_requests_running"] < self.streams and time.monotonic() < until:
            time.sleep(0.02)

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(120 * SLOW)


LAST = "document.querySelector('#log article:last-of-type')"
BODY = LAST + "?.querySelector('.said')?.textContent ?? ''"
IDLE = "document.getElementById('send').textContent === 'Send'"


def said(b, text):
    b.js("document.getElementById('message').focus()")
    b.type(text)
    b.key("Enter")


def url(s, view=""):
    return f"http://127.0.0.1:{s.port}/{view}"


def test_chat(b, s):
    b.open(url(s))
    check(b.js("document.getElementById('model').textContent") == "demo" and b.js("document.activeElement.id") == "message", "the model's name, and where one types")
    b.js("document.getElementById('message').focus()")
    b.type("Who are")
    b.key("Enter", modifiers=8)
    check(b.js("document.getElementById('message').value") == "Who are\n" and b.js("messageCount = document.querySelectorAll('article').length") == 0, "Shift+Enter is a new line")
    b.js("document.getElementById('message').value = ''")
    b.click("#tune")
    b.js("document.getElementById('set-temperature').focus()")
    b.type("0")
    b.click("#shut")
    said(b, "Who are you?")
    b.wait(IDLE + " && document.querySelectorAll('article').length === 2", "an answer")
    want = s.post({"messages": [{"role": "user", "content": "Who are you?"}], "temperature": 0}, "/v1/chat/completions")["choices"][0]["message"]["content"]
    check(b.js(BODY) == want, "what the page shows and what the server says", b.js(BODY), want)
    check(b.js("document.getElementById('message').value") == "" and "token" in b.js(LAST + ".querySelector('footer').textContent"), "the field is empty, the answer has its figures")
    b.shot("chat-short")
    # A system prompt and the other fields arrive: what the server makes of them is what it says when asked for the same.
    for name, value in (("seed", "7"), ("temperature", "1.5"), ("top_p", "0.9"), ("top_k", "40"), ("min_p", "0.01"), ("max_tokens", "12")):
        b.js(f"(() => {{ const i = document.getElementById('set-{name}'); i.value = '{value}'; i.dispatchEvent(new Event('input')); }})()")
    b.js("(() => { const i = document.getElementById('system'); i.value = 'Be short.'; i.dispatchEvent(new Event('input')); })()")
    b.click("#fresh")
    said(b, "Tell me a story.")
    b.wait(IDLE + " && document.querySelectorAll('article').length === 2", "an answer drawn by chance")
    ask = {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Tell me a story."}], "seed": 7, "temperature": 1.5, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "max_tokens": 12}
    want = s.post(ask, "/v1/chat/completions")["choices"][0]["message"]["content"]
    check(b.js("JSON.parse(sessionStorage.getItem('lq.messages'))[1].content") == want, "settings arrive", b.js(BODY), want)
    before = b.js(BODY)
    b.js("(() => { const i = document.getElementById('set-seed'); i.value = '8'; i.dispatchEvent(new Event('input')); })()")
    b.click("#log article:last-of-type footer button:nth-of-type(2)")
    b.wait(IDLE + " && document.querySelectorAll('article').length === 2", "regenerated")
    want = s.post({**ask, "seed": 8}, "/v1/chat/completions")["choices"][0]["message"]["content"]
    check(b.js("JSON.parse(sessionStorage.getItem('lq.messages'))[1].content") == want and b.js(BODY) != before, "Regenerate asks again", before, b.js(BODY))
    b.js("document.querySelector('article.user footer button:nth-of-type(2)').click()")
    check(b.js("document.getElementById('message').value") == "Tell me a story." and b.js("document.querySelectorAll('article').length") == 0, "Edit goes back")
    b.key("Enter")
    b.wait(IDLE + " && document.querySelectorAll('article').length === 2", "asked once more")
    b.call("Page.reload")
    b.wait("document.querySelectorAll('article').length === 2 && document.getElementById('set-seed').value === '8'", "a reload keeps the conversation and the settings")
    # What the server refuses is told in its words.
    b.js("(() => { const i = document.getElementById('more'); i.value = '{\"top_k\": \"x\"}'; i.dispatchEvent(new Event('input')); })()")
    said(b, "And?")
    b.wait("document.querySelector('[role=alert] p')?.textContent.includes('top_k')", "a refusal in words")
    b.js("(() => { const i = document.getElementById('more'); i.value = '{'; i.dispatchEvent(new Event('input')); })()")
    check(b.js("document.getElementById('morewrong').textContent").startswith("No JSON"), "what is no JSON")
    b.clean("chat", ["400 (Bad Request)"])
    b.close()


def test_stream(b, s):
    b.open(url(s))
    b.js("(() => { const i = document.getElementById('more'); i.value = '{\"ignore_eos\": true}'; i.dispatchEvent(new Event('input')); })()")
    with Load(s):
        for how in ("key", "button"):
            aborted = 'vllm:request_success_total,finished_reason="abort"'
            before = s.metrics()[aborted]
            b.js("document.getElementById('fresh').click(); window.seen = []; new MutationObserver(() => { const n = (" + BODY + ").length; if (n && seen.at(-1) !== n) seen.push(n); })"
                 ".observe(document.getElementById('log'), {childList: true, subtree: true, characterData: true})")
            said(b, "Tell me a story.")
            b.wait("window.seen.length > 5", "the text grows")
            check(b.js("document.getElementById('send').textContent === 'Stop' && document.getElementById('log').getAttribute('aria-busy') === 'true'"), "it can be stopped")
            seen = b.js("window.seen.slice()")
            check(seen == sorted(seen) and len(set(seen)) == len(seen), "it grows and grows", seen)
            if how == "key":
                b.key("Escape")
            else:
                b.click("#send")
            b.wait(IDLE, "stopped")
            b.wait("document.querySelector('article:last-of-type footer .hint')?.textContent.includes('stopped')", "it says so")
            until = time.monotonic() + 10 * SLOW
            while s.metrics()[aborted] == before and time.monotonic() < until:
                time.sleep(0.05)
            check(s.metrics()[aborted] == before + 1, "the server stopped too", before, s.metrics()[aborted])
            check(len(b.js(BODY)) > 0, "what was said stays")
    b.clean("stream")
    b.close()


def test_hostile(b, s):
    b.open(url(s))
    b.js("(async () => { window.text = await import('/page/text.js'); window.place = document.createElement('div'); document.getElementById('log').append(place);"
         f"place.className = 'said'; text.show(place, {json.dumps(HOSTILE)}); await new Promise(done => setTimeout(done, 200)); }})()")
    check(b.js("window.hurt") is None, "no text runs", b.js("window.hurt"))
    check(b.js("place.querySelectorAll('script, img, svg, iframe, b, i, u, [onerror], [onload], [style]').length") == 0, "no text is HTML", b.js("place.innerHTML"))
    check(b.js("place.querySelector('h3').textContent") == "Head <b>x</b>" and b.js("place.querySelector('figure code').textContent") == "<script>window.hurt = 4</script>\na  b", "it is shown as written")
    check(b.js("[...place.querySelectorAll('a')].map(a => [a.href, a.rel, a.target])") ==
          [["https://example.com/a_(b)", "noopener noreferrer nofollow", "_blank"], ["http://example.com/x", "noopener noreferrer nofollow", "_blank"]], "links lead to http and https alone",
          b.js("[...place.querySelectorAll('a')].map(a => a.href)"))
    check(b.js("['strong', 'em', 'del', 'blockquote', 'td:nth-child(2)', 'p code'].map(q => place.querySelector(q).textContent)") == ["bold <i>i</i>", "slanted", "gone", "quoted", "<b>2</b>", "<u>code</u>"], "the rest of it",
          b.js("['strong', 'em', 'del', 'blockquote', 'td:nth-child(2)', 'p code'].map(q => place.querySelector(q).textContent)"))
    check("2 * 3 * 4 snake_case_name" in b.js("place.querySelector('p').textContent"), "what is no mark stays")
    check(b.js("[...place.querySelectorAll(':scope > ul > li')].map(l => l.querySelectorAll('ol > li').length)") == [0, 2, 0], "a list in a list", b.js("place.querySelector('ul').outerHTML"))
    # The same text in pieces ends in the same nodes, and what has not changed is not made anew.
    check(b.js(f"(() => {{ const t = {json.dumps(HOSTILE)}, p = document.createElement('div'); let first = null, same = true; for (let n = 1; n <= t.length; n++) {{ text.show(p, t.slice(0, n));"
               "if (n > 60) { first ??= p.firstChild; same &&= p.firstChild === first; } } return same && p.innerHTML === place.innerHTML; })()"), "a text that grows")
    check(b.js("(() => { let bad = ''; for (const t of ['*'.repeat(1e5), '['.repeat(1e5), '`a'.repeat(5e4), '> '.repeat(1e4), '- '.repeat(1e4), '**a '.repeat(4e3), '_a '.repeat(5e3), '|-'.repeat(1e4), '<think>', '```', '1. '.repeat(3e3),"
               "'x ~~'.repeat(4e3), '[a]('.repeat(4e3), '\\n'.repeat(1e5), '  - a\\n'.repeat(2e3)]) { const p = document.createElement('div'), then = performance.now(); text.show(p, t);"
               f"if (performance.now() - then > {2000 * SLOW}) bad += t.slice(0, 8) + ' ' + (performance.now() - then) + '; '; }} return bad; }})()") == "", "no text takes long")
    check(b.js("(() => { const p = document.createElement('div'); text.show(p, '<think>hm\\n</think>\\n\\nYes.'); return [p.children[0].tagName, p.children[0].textContent, p.children[1].textContent]; })()") == ["DETAILS", "Thoughtshm", "Yes."], "thoughts")
    b.js("place.scrollIntoView()")
    b.shot("markdown")
    b.clean("hostile")
    check(b.js("try { document.createElement('p').innerHTML = '<b>x</b>'; 'let through' } catch (e) { e.name }") == "TypeError", "the browser would refuse HTML")
    b.faults = []
    b.close()


def test_text(b, s):
    b.open(url(s, "#text"))
    for name, value in (("temperature", "0"), ("max_tokens", "20")):
        b.js(f"(() => {{ const i = document.getElementById('set-{name}'); i.value = '{value}'; i.dispatchEvent(new Event('input')); }})()")
    b.js("document.getElementById('page').focus()")
    b.type("Once upon a time")
    b.key("Enter", modifiers=2)
    b.wait("document.getElementById('go').textContent === 'Go on' && document.getElementById('page').value.length > 16", "it goes on")
    want = "Once upon a time" + s.text("Once upon a time", max_tokens=20)
    check(b.js("document.getElementById('page').value") == want, "as the server says", b.js("document.getElementById('page').value"), want)
    b.shot("text")
    b.click("#undo")
    check(b.js("document.getElementById('page').value") == "Once upon a time", "Undo")
    b.clean("text")
    b.close()


def test_no_template(b):
    with tempfile.TemporaryDirectory() as folder:
        bare = pathlib.Path(folder, "bare")
        shutil.copytree(serve.MODEL, bare)
        told = json.loads((bare / "tokenizer_config.json").read_text())
        told.pop("chat_template")
        (bare / "tokenizer_config.json").write_text(json.dumps(told))
        was, serve.MODEL = serve.MODEL, str(bare)
        s = serve.Server()
        serve.MODEL = was
        b.open(url(s))
        said(b, "Once upon a time")
        b.wait("location.hash === '#text' && !document.getElementById('why').hidden && document.getElementById('page').value.length > 16 && document.getElementById('go').textContent === 'Go on'", "a model without a template goes on with the text")
        check(b.js("document.getElementById('page').value.startsWith('Once upon a time')"), "the message is the text")
        b.clean("no template", ["400 (Bad Request)"])
        b.close()
        s.stop()


def test_key(b):
    s = serve.Server(env={"LQ_API_KEY": "the-key"})
    b.open(url(s), "document.getElementById('door')?.open")
    b.shot("key")
    b.type("wrong")
    b.key("Enter")
    b.wait("document.getElementById('door').open && document.getElementById('doorwhy').textContent.includes('does not know')", "a wrong key is told")
    b.type("the-key")
    b.key("Enter")
    b.wait("document.getElementById('model').textContent === 'demo'", "the right one opens")
    check(b.js("sessionStorage.getItem('lq.key')") == "the-key" and "the-key" not in b.js("JSON.stringify(localStorage) + document.cookie + location.href"), "it is kept for this tab alone")
    said(b, "Who are you?")
    b.wait(IDLE + " && document.querySelectorAll('article.assistant').length === 1", "and serves")
    b.js("location.hash = '#server'")
    b.wait("document.querySelector('.tiles dd:last-of-type').textContent !== ''", "the dashboard too")
    b.clean("key", ["401 (Unauthorized)"])
    b.close()
    s.stop()


def test_dashboard(b, s):
    b.open(url(s))
    asked = s.metrics()["lq:http_replies_total,code=\"2xx\""]
    time.sleep(2.5)
    check(s.metrics()["lq:http_replies_total,code=\"2xx\""] - asked <= 2, "nobody looks at it, nothing is asked")
    tile = lambda i: b.js(f"document.querySelectorAll('.tiles dd')[{i}].textContent")
    squares = lambda: b.js("Object.fromEntries(['held', 'shared', 'cached', 'free'].map(k => [k, document.querySelectorAll(`.map rect.${k}`).length]))")
    with Load(s):
        b.js("location.hash = '#server'")
        b.wait("document.querySelectorAll('.plot .line').length >= 3", "lines")
        b.wait("parseFloat(document.querySelectorAll('.tiles dd')[0].textContent) > 0", "tokens per second")
        out = tile(0)
        b.wait(f"document.querySelectorAll('.tiles dd')[0].textContent !== {json.dumps(out)}", "it changes")
        b.wait("parseFloat(document.querySelectorAll('.tiles dd')[2].textContent) >= 48", "who runs")
        check(squares()["held"] > 0 and squares()["shared"] > 0, "blocks in use, and those of the prompt that all of them share", squares())
        time.sleep(10 if SHOTS else 0)
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                b.size(width)
                b.scheme(scheme)
                b.shot(f"dash-{width}-{scheme}")
                if width > 600:
                    b.js("document.querySelector('#server .scroll').scrollTop = 2000")
                    b.shot(f"dash-{width}-{scheme}-2")
                    b.js("document.querySelector('#server .scroll').scrollTop = 0")
                else:
                    b.js("document.querySelector('#server .scroll').scrollTop = 700")
                    b.shot(f"dash-{width}-{scheme}-2")
                    b.js("document.querySelector('#server .scroll').scrollTop = 1500")
                    b.shot(f"dash-{width}-{scheme}-3")
                    b.js("document.querySelector('#server .scroll').scrollTop = 0")
        b.size(1280)
    b.wait("parseFloat(document.querySelectorAll('.tiles dd')[2].textContent) === 0 && !document.querySelector('rect.held, rect.shared')", "nobody runs any more")
    m = s.metrics()
    told = json.loads(s.ask("GET", "/kv_blocks")[2])
    legend = [int(w.replace(",", "")) for w in b.js("[...document.querySelectorAll('.card:last-child .legend b')].map(e => e.textContent)")]
    check(legend == [0, 0, m["lq:kv_blocks_cached"], m["lq:kv_blocks"] - m["lq:kv_blocks_cached"]] and legend[2] > 0, "the map's figures", legend)
    kinds = ["free", "cached", "held", "shared"]
    check([kinds.index(k) for k in b.js("[...document.querySelectorAll('.map rect')].map(e => e.getAttribute('class'))")] == [int(c) for c in told["cells"]],
          "each square is what the server says of its blocks", squares(), told)
    check(len(set(b.js("['held', 'shared', 'cached', 'free'].map(k => getComputedStyle(document.querySelector(`.legend .${k} i`)).backgroundColor)"))) == 4, "four colours")
    check(all(w in b.js("document.querySelector('.map').getAttribute('aria-label')") for w in (f"{legend[2]:,} cached", f"{legend[3]:,} free", "0 in use by one", "0 in use by several")),
          "the map in words", b.js("document.querySelector('.map').getAttribute('aria-label')"))
    at, each = told["cells"].index("1"), told["blocks_per_cell"]
    b.js(f"document.querySelectorAll('.map rect')[{at}].dispatchEvent(new PointerEvent('pointermove', {{bubbles: true}}))")
    said_of = b.js("document.querySelector('.map + .hint').textContent")
    check(said_of == (f"Blocks {at * each:,} to {at * each + each - 1:,}: cached, one at least" if each > 1 else f"Block {at:,}: cached"), "what is pointed at", said_of)
    b.js("document.querySelector('.map').dispatchEvent(new PointerEvent('pointerleave'))")
    check(f"{told['blocks']:,} blocks of 32 tokens" in b.js("document.querySelector('.map + .hint').textContent"), "and no longer")
    check(b.js("document.querySelectorAll('.card dl dd').length") == 9 and b.js("[...document.querySelectorAll('section.card dl dd')].every(d => /\\d (ms|s)$/.test(d.textContent))"), "percentiles",
          b.js("[...document.querySelectorAll('section.card dl dd')].map(d => d.textContent)"))
    # Percentiles as Prometheus defines them, of made-up buckets; text as Prometheus writes it.
    check(b.js("(async () => { const d = await import('/page/dash.js'), h = [[1, 0], [2, 50], [4, 90], [Infinity, 100]]; return [d.quantile(h, 0.5), d.quantile(h, 0.7), d.quantile(h, 0.99), d.quantile([[1, 5], [Infinity, 5]], 0.5), d.quantile([], 0.5)]; })()")
          == [{"value": 2, "bound": ""}, {"value": 3, "bound": ""}, {"value": 4, "bound": ">"}, {"value": 1, "bound": "<"}, None], "quantiles")
    check(b.js(r"""(async () => { const d = await import('/page/dash.js'); return [...d.parse('# HELP a b\na{x="q\\"}, {",y="2"} 1.5e3 99\nb 2\n\nc{le="+Inf"} +Inf')].map(([n, r]) => [n, r[0].labels.y ?? null, String(r[0].value)]); })()""")
          == [["a", "2", "1500"], ["b", None, "2"], ["c", None, "Infinity"]], "Prometheus's text")
    b.js("location.hash = '#chat'")
    time.sleep(1.5)
    asked = s.metrics()["lq:http_replies_total,code=\"2xx\""]
    time.sleep(2.5)
    check(s.metrics()["lq:http_replies_total,code=\"2xx\""] - asked == 1, "it rests when nobody looks")
    b.clean("dashboard")
    b.close()


# Words that are hard to read on what is behind them, by WCAG's contrast: 4.5 for text, 3 for what is large.
CONTRAST = """(() => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgba = c => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const bright = c => { const [r, g, b] = c.map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const behind = e => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return rgba(getComputedStyle(document.documentElement).backgroundColor); };
    const bad = [], seen = new Set();
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const e = walk.currentNode.parentElement;
        if (!walk.currentNode.data.trim() || seen.has(e) || !e.checkVisibility({visibilityProperty: true}) || e.closest('.unseen, :disabled, noscript')) continue;
        seen.add(e);
        const s = getComputedStyle(e), a = bright(rgba(s.color)), z = bright(behind(e)), ratio = (Math.max(a, z) + 0.05) / (Math.min(a, z) + 0.05);
        if (ratio < (parseFloat(s.fontSize) >= 24 ? 3 : 4.5)) bad.push([e.tagName, e.className, walk.currentNode.data.slice(0, 20), ratio.toFixed(2)]);
    }
    return {bad, count: seen.size};
})()"""
WIDE = """(() => { const w = innerWidth, bad = []; if (document.documentElement.scrollWidth > w || document.body.scrollWidth > w) bad.push(document.body.scrollWidth);
    for (const e of document.querySelectorAll('body *')) { const r = e.getBoundingClientRect(); if (r.width && e.checkVisibility() && (r.right > w + 0.5 || r.left < -1.5) && !e.closest('pre, .wide, .unseen, svg')) bad.push([e.tagName, e.id, e.className, r.right]); }
    for (const e of document.querySelectorAll('.scroll, #settings')) if (e.scrollWidth > e.clientWidth) bad.push([e.id, e.scrollWidth, e.clientWidth]);
    return bad; })()"""
NAMELESS = """[...document.querySelectorAll('button, input, textarea, a, [role=img]')].filter(e => e.checkVisibility() && !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim() || e.title)).map(e => e.outerHTML.slice(0, 80))"""
STORY = "Here is a **short** answer with `code`, a list and a table.\n\n## Two steps\n\n1. Quantize the model: " + "x" * 120 + "\n2. Serve it.\n\n```c\nint main(void) { return lq_serve(model, engine, &options, &err) ? 0 : 1; } // a line that is longer than a phone is wide\n```\n\n| type | bits | perplexity |\n|---|---|---|\n| int4 g64 | 4.25 | 5.93 |\n\n> See [the documents](https://example.com/docs)."


def test_looks(b, s):
    b.open(url(s))
    b.js("sessionStorage.setItem('lq.messages', " + json.dumps(json.dumps([{"role": "user", "content": "How do I serve a model?"}, {"role": "assistant", "content": STORY, "note": "38 tokens \u00b7 4,512 per second \u00b7 first after 12 ms"},
                                                                          {"role": "user", "content": "y" * 200}])) + ")")
    b.call("Page.reload")
    b.wait("document.getElementById('model')?.textContent === 'demo'", "the page is there again")
    for width in WIDTHS:
        b.size(width)
        for scheme in ("light", "dark"):
            b.scheme(scheme)
            for view in ("chat", "text", "server", "settings"):
                b.js(f"location.hash = '#{view if view != 'settings' else 'chat'}'; if (document.getElementById('settings').hidden === {json.dumps(view == 'settings')}) document.getElementById('tune').click()")
                b.wait("document.querySelector('nav [aria-current]') && (location.hash !== '#server' || document.querySelector('.tiles dd').textContent)", view)
                b.js("document.querySelector('#scroll').scrollTop = 0; new Promise(done => requestAnimationFrame(() => setTimeout(done, 350)))")
                where = f"{view} at {width} in {scheme}"
                check(b.js(WIDE) == [], where, "is wider than the window:", b.js(WIDE))
                told = b.js(CONTRAST)
                check(told["bad"] == [] and told["count"] > 5, where, "is hard to read:", told)
                check(b.js(NAMELESS) == [], where, "without a name:", b.js(NAMELESS))
                if view != "server":
                    b.shot(f"{view}-{width}-{scheme}")
            b.js("document.getElementById('shut').click()")
    # The switch goes before the system.
    b.scheme("light")
    paper = lambda: b.js("getComputedStyle(document.documentElement).backgroundColor")
    light, seen = paper(), []
    for _ in range(3):
        b.click("#theme")
        seen.append((b.js("document.getElementById('theme').textContent"), paper() == light))
    check(seen == [("Theme: light", True), ("Theme: dark", False), ("Theme: system", True)], "the switch", seen)
    b.click("#theme")
    b.click("#theme")
    b.call("Page.reload")
    b.wait("document.getElementById('theme')?.textContent === 'Theme: dark'", "the switch is kept")
    check(paper() != light, "and at once")
    # All can be reached by Tab, and shows that it is.
    b.js("document.body.focus(); document.activeElement.blur()")
    reached = set()
    for _ in range(40):
        b.key("Tab")
        reached.add(b.js("document.activeElement.id || document.activeElement.textContent"))
        check(b.js("document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== 'none'"), "focus is seen", b.js("document.activeElement.outerHTML.slice(0, 90)"))
    check({"Chat", "Text", "Server", "theme", "tune", "message", "send", "Copy", "Regenerate"} <= reached | {"Regenerate"}, "reached by Tab", reached)
    b.clean("looks")
    b.close()


def main():
    only = sys.argv[2:] if sys.argv[1:2] and not sys.argv[1].startswith("test_") else sys.argv[1:]
    for_files = [test_files_keyed, test_no_page]
    for_pages = [test_chat, test_stream, test_hostile, test_text, test_dashboard, test_looks]
    wants = lambda t: not only or t.__name__ in only
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    for t in filter(wants, for_files):
        t()
    s = serve.Server()
    if wants(test_files):
        test_files(s)
    if "asan" in str(serve.LQ):  # a browser shows nothing more of the program's memory than the other clients do
        pass
    elif program:
        b = Browser(program)
        try:
            for t in for_pages + [test_no_template, test_key]:
                if wants(t):
                    t(b, s) if t in for_pages else t(b)
        finally:
            b.stop()
    else:
        skip("the page in a browser: chromium is not installed")
    check(s.idle() is True, "everything was given back", s.idle())
    s.stop()
    sys.exit(end())


if __name__ == "__main__":
    main()
