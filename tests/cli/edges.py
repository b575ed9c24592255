#!/usr/bin/env python3
"""edges.py LQ: the program where files, limits and signals are not as they should be: a file that shrinks while it is read, Ctrl-C at
any moment, `ulimit -f`; what files and command lines may do to a terminal (nothing); --json is JSON whatever the numbers and names are."""
import json
import os
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

lq = os.path.abspath(sys.argv[1])
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
demo = os.path.join(root, "calib_data", "demo")
sys.path.insert(0, os.path.join(root, "tests"))
sys.path.insert(0, os.path.join(root, "tests", "fuzz"))
import counted  # noqa: E402
from make_corpus import xxh64  # noqa: E402

sanitized = json.loads(subprocess.run([lq, "version", "--json"], capture_output=True).stdout)["sanitizers"] != ""
slow = float(os.environ.get("LQ_SLOW", "1"))


def check(good, what, more=""):
    counted.check(good, what, repr(more)[:300] if more != "" else "")


def run(*words, **more):
    return subprocess.run([lq, *words], capture_output=True, stdin=subprocess.DEVNULL, **more)


def strict(text):
    """JSON as RFC 8259 has it, in UTF-8, or None."""
    def refuse(word):
        raise ValueError(word)
    try:
        return json.loads(text.decode("utf-8"), parse_constant=refuse)
    except ValueError:
        return None


def on_terminal(words, **env):
    """What a terminal gets from both streams, and the exit status."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([lq, *words], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", **env})
    os.close(theirs)
    got = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        got += part
    os.close(ours)
    return got, child.wait()


def header_file(path, tensors, meta=None):
    """A safetensors file of one-byte tensors of these names."""
    head = {"__metadata__": meta} if meta else {}
    for i, name in enumerate(tensors):
        head[name] = {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]}
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + bytes(len(tensors)))


def model(path, change_config=None, **files):
    shutil.copytree(demo, path)
    if change_config:
        config = json.load(open(path + "/config.json"))
        change_config(config)
        json.dump(config, open(path + "/config.json", "w"))
    for name, data in files.items():
        with open(os.path.join(path, name.replace("__", ".")), "wb") as f:
            f.write(data)
    return path


def read_tensors(path):
    data = open(path, "rb").read()
    n, = struct.unpack_from("<Q", data)
    return json.loads(data[8:8 + n]), data[8 + n:]


def wait_for(what, seconds=20):
    end = time.time() + seconds * slow
    while time.time() < end:
        if what():
            return True
        time.sleep(0.005)
    return False


def proc(pid, name):
    try:
        return open(f"/proc/{pid}/{name}").read()
    except OSError:
        return ""


# --- signals and limits ---

def hears_interrupt(pid):
    caught = re.search(r"SigCgt:\s*(\w+)", proc(pid, "status"))
    return bool(caught and int(caught[1], 16) >> signal.SIGINT - 1 & 1)


def test_shrinking():
    size = 1 << 31
    text = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with open("big.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + size)
    p = subprocess.Popen([lq, "inspect", "--verify", "big.safetensors"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    if wait_for(lambda: "big.safetensors" in proc(p.pid, "maps") or p.poll() is not None):
        os.kill(p.pid, signal.SIGSTOP)
        os.truncate("big.safetensors", 4096)
        os.kill(p.pid, signal.SIGCONT)
    err = p.communicate()[1]
    check(p.returncode == 1, "a file that shrinks while it is read: exit status 1", p.returncode)
    check(err.startswith(b"lq: ") and err.count(b"\n") == 1 and b"shorter" in err, "and one line", err)
    os.unlink("big.safetensors")


def test_shrinking_served():
    # The embedding of a checkpoint that is mapped as it is: its rows are read when tokens come.
    shutil.copytree(demo, "served")
    p = subprocess.Popen([lq, "serve", "served", "--port", "0", "--json", "-q", "--isa", "c", "--exact"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    url = json.loads(p.stdout.readline())["url"]
    os.truncate("served/model.safetensors", 4096)
    import urllib.request
    try:
        urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", b'{"prompt": "The river", "max_tokens": 4}', {"Content-Type": "application/json"}), timeout=20 * slow)
        answered = True
    except OSError:
        answered = False
    if answered:
        p.kill()
    err = p.communicate()[1]
    check(not answered and p.returncode == 1 and err.startswith(b"lq: ") and b"shorter" in err, "a server whose file shrinks ends with a line", (answered, p.returncode, err))


def test_interrupt():
    with open("long.txt", "w") as f:
        f.write("The river runs to the sea, and the lamp in the lighthouse went out. " * 400000)
    checkpoint = os.path.join(demo, "model.safetensors")
    for words in (["eval", demo, "--text", "long.txt"], ["run", demo, "--prompt-file", "long.txt"], ["bench", demo, "-p", "900", "-n", "100", "-r", "100"],
                  ["bench", demo, "-p", "400", "-n", "400", "-r", "100", "-b", "64", "--isa", "c"]):
        p = subprocess.Popen([lq, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if not wait_for(lambda: hears_interrupt(p.pid) or p.poll() is not None) or p.poll() is not None:
            check(False, f"{words[0]}: works long enough to be interrupted", p.poll())
        time.sleep(0.3)
        begin = time.monotonic()
        p.send_signal(signal.SIGINT)
        try:
            err = p.communicate(timeout=60 * slow)[1]
        except subprocess.TimeoutExpired:
            p.kill()
            err = p.communicate()[1]
        took = time.monotonic() - begin
        # A second to hear it in, and what a busy machine adds.
        check(took < 2.5 * slow, f"{words[0]}: Ctrl-C is heard within a second", took)
        check(p.returncode in (0, 1) and (p.returncode == 0 or b"lq: " in err), f"{words[0]}: a line and exit status 1", (p.returncode, err[-200:]))
    os.unlink("long.txt")
    check(os.path.getsize(checkpoint) > 0, "the model is untouched")


def test_file_limit():
    out = subprocess.run(["bash", "-c", 'ulimit -f 100; exec "$@"', "-", lq, "quantize", "-q", demo, "limited.lq"], capture_output=True)
    check(out.returncode == 1 and out.stderr.startswith(b"lq: ") and out.stderr.count(b"\n") == 1, "a limit on file sizes is one line", (out.returncode, out.stderr))


def test_port():
    import socket
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    port = str(taken.getsockname()[1])
    # Told before the model is opened: there is none here.
    out = run("serve", "no-model.lq", "--port", port)
    check(out.returncode == 1 and port.encode() in out.stderr and b"in use" in out.stderr, "a taken port is told first", out.stderr)
    out = run("serve", "no-model.lq", "--port", "0")
    check(out.returncode == 1 and b"no-model.lq" in out.stderr, "a free one leaves the model to be told", out.stderr)
    p = subprocess.Popen([lq, "serve", demo, "--port", "0", "--json", "-q"], stdout=subprocess.PIPE)
    told = strict(p.stdout.readline())
    check(told and told["port"] not in (0, 8080) and told["url"].endswith(f":{told['port']}"), "--port 0 is any free one, and says which", told)
    p.terminate()
    check(p.wait() == 0, "and serves", p.returncode)


# --- what a terminal obeys ---

# Clears the screen, a C1 control, overrides the direction, hides, ends the line, and is no UTF-8.
EVIL = "\x1b[2Jevil\x9b31m\u202eright\u2066\u200b\ufeff\u2028\nchecksums     all agree"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def harmless(data, what):
    try:
        text = data.replace(b"\r\n", b"\n").decode("utf-8")
    except ValueError:
        text = "\x9b"
    found = OBEYED.search(text)
    check(not found, f"{what}: a terminal obeys nothing of it", found and text[max(0, found.start() - 40):][:120])
    check("\nchecksums     all agree" not in text, f"{what}: no line is forged")


def test_terminal():
    model("evil", lambda c: c.update(architectures=[EVIL]))
    header_file("evil.safetensors", ["a" + EVIL.replace("\n", "").replace("\x1b", "")], {"k" + EVIL: "v" + EVIL})
    header_file(b"bad\xffname.safetensors", ["a"], {"k": "v"})
    for words in (["inspect", "evil"], ["inspect", "evil.safetensors", "--tensors", "--meta"], ["inspect", b"bad\xffname.safetensors"],
                  ["inspect", "evil.safetensors", "--file", EVIL], ["run", "evil", "x"], ["quantize", "evil", "evil.lq"],
                  ["inspect", EVIL], ["inspect", b"\xff\xfe" + EVIL.encode()], [EVIL], ["run", demo, EVIL, EVIL], ["run", "--" + EVIL], ["run", demo, "--kv-dtype", EVIL],
                  ["completion", EVIL], ["help", EVIL], ["eval", demo, "--text", EVIL], ["bench", demo, "-b", EVIL], ["man", EVIL],
                  ["serve", demo, "--log", "no/" + EVIL], ["inspect", demo, "--isa=" + EVIL]):
        out = run(*words)
        harmless(out.stdout + out.stderr, " ".join(str(w) for w in words)[:60])
    # The same text is there in JSON, escaped, and whole when it is read.
    out = strict(run("inspect", "evil", "--json").stdout)
    check(out and out["architecture"][:40] == EVIL[:40], "inspect --json tells the name as it is", out and out["architecture"])
    out = run("inspect", "evil.safetensors", "--json", "--meta", "--tensors").stdout
    told = strict(out)
    check(told and told["metadata"] == {"k" + EVIL: "v" + EVIL}, "and the metadata", told and told["metadata"])
    harmless(out, "inspect --json")
    # A pipe gets a side file byte for byte, a terminal what it can show.
    model("evil2", None, chat_template__jinja=(EVIL + "\nsecond\tline").encode())
    check(run("inspect", "evil2", "--file", "chat_template.jinja").stdout == (EVIL + "\nsecond\tline").encode(), "--file on a pipe is the file")
    got, _ = on_terminal(["inspect", "evil2", "--file", "chat_template.jinja"])
    check(not OBEYED.search(got.replace(b"\r\n", b"\n").decode("utf-8", "replace")) and b"\nsecond\tline" in got.replace(b"\r\n", b"\n"), "--file on a terminal", got)
    # And what a model says: its commonest token is made to clear the screen.
    words = json.load(open(demo + "/tokenizer.json"))
    vocab, merges = words["model"]["vocab"], words["model"]["merges"]
    old, new = "\u0120the", "\u011b[2J"
    vocab[new] = vocab.pop(old)
    words["model"]["merges"] = [m for m in merges if old not in (m if isinstance(m, list) else m.split(" ")) and "".join(m if isinstance(m, list) else m.split(" ")) != old]
    model("speaks", None, tokenizer__json=json.dumps(words).encode())
    piped = run("run", "-q", "--raw", "speaks", "The river runs to", "-n", "30")
    check(b"\x1b[2J" in piped.stdout, "the model says what clears a screen", (piped.returncode, piped.stdout, piped.stderr))
    for more in ([], ["--special"]):
        got, _ = on_terminal(["run", "-q", "--raw", "speaks", "The river runs to", "-n", "30", *more])
        check(b"\x1b" not in got and b"\\x1b[2J" in got, "a terminal is shown it", got)
    # Characters whose bytes are tokens of their own arrive whole.
    got, _ = on_terminal(["run", "-q", "--raw", demo, "x", "-n", "60", "--special", "--temp", "100", "--seed", "3"])
    check(got, "a text of any bytes", got)
    got, _ = on_terminal(["inspect", "--verify", demo], TERM="dumb")
    check(b"\x1b" not in got, "TERM=dumb gets no escape sequence", got)


# --- JSON ---

def test_json():
    head, data = read_tensors(demo + "/model.safetensors")
    a, b = head["model.norm.weight"]["data_offsets"]
    model("loud")
    text = json.dumps(head).encode()
    with open("loud/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data[:a] + struct.pack("<H", 0x47c3) * ((b - a) // 2) + data[b:])
    with open("t.txt", "w") as f:
        f.write("The river runs to the sea. " * 400)
    out = run("eval", "loud", "--text", "t.txt", "-q", "--windows", "1", "--json")
    told = strict(out.stdout)
    check(told and told["results"][0]["perplexity"] is None, "eval --json of a perplexity without end", out.stdout[-200:])
    os.rename("evil.safetensors", b"not\xffutf8.safetensors")
    told = strict(run("inspect", b"not\xffutf8.safetensors", "--json").stdout)
    check(told and told["path"] == "not\ufffdutf8.safetensors", "inspect --json of a name that is not UTF-8", told and told["path"])
    for words in (["bench", demo, "-p", "8", "-n", "2", "-r", "1", "-q"], ["run", demo, "x", "-n", "3"], ["version"], ["quantize", "-q", "-n", demo, "n.lq"], ["quantize", "-q", demo, "n.lq"]):
        out = run(*words, "--json")
        check(strict(out.stdout) is not None and out.returncode == 0, f"{words[0]} --json", (out.stdout[-100:], out.stderr))
    p = subprocess.Popen([lq, "serve", "n.lq", "--port", "0", "--json", "-q", "--name", b'a\xff"\\\x1b\xc2\x9b'], stdout=subprocess.PIPE)
    line = p.stdout.readline()
    p.terminate()
    told = strict(line)
    check(told and told["model"] == 'a\ufffd"\\\x1b\x9b' and told["port"] > 0, "serve --json of a name that is not UTF-8", line)
    harmless(line, "serve --json")
    check(p.wait() == 0, "serve ends", p.returncode)


# --- inspect ---

def test_inspect():
    for text, word in ((b"{", "config.json: "), (b"[1", "config.json: "), (b'\xef\xbb\xbf{}', "config.json: "), (b"{}", "config.json names none")):
        shutil.rmtree("broken", ignore_errors=True)
        model("broken", None, config__json=text)
        out = run("inspect", "broken")
        check(f"not told: {word}" in out.stdout.decode(), f"what is wrong with config.json {text!r}", out.stdout[:200])
        bad = text != b"{}"
        check(out.returncode == bad and bad == (b"config.json" in out.stderr), f"and the exit status of {text!r}", (out.returncode, out.stderr))
    os.unlink("broken/config.json")
    out = run("inspect", "broken")
    check(b"not told: there is no config.json" in out.stdout and out.returncode == 0, "no config.json", out.stdout[:200])


def test_start():
    # The program starts without what few of its verbs use: no thread, little work, and in little memory.
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    run("--version")
    touched = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before
    check(sanitized or touched < 600, "lq --version touches fewer than 600 pages, its libraries' among them", touched)
    needs = subprocess.run(["ldd", lq], capture_output=True, text=True).stdout
    check("libc.so" in needs and not re.search("openblas|lapack|libarchive|gomp", needs), "what lq is linked with", needs)
    if sanitized:
        return
    for limit in (110000, 200000):
        out = subprocess.run(["timeout", "20", "bash", "-c", f'ulimit -v {limit}; exec "$@"', "-", lq, "--version"], capture_output=True)
        check(out.returncode == 0 and out.stdout.startswith(b"lq "), f"lq --version under ulimit -v {limit}", (out.returncode, out.stderr))
    # It waits for its prompt, with all libraries loaded.
    p = subprocess.Popen([lq, "run", "no-model.lq"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    wait_for(lambda: "State:\tS" in proc(p.pid, "status"))
    check("Threads:\t1\n" in proc(p.pid, "status"), "no thread is started", proc(p.pid, "status"))
    p.communicate(b"x")


def test_named_once():
    model("torn", None, tokenizer__json=b"{")
    for words in (["run", "torn", "x"], ["run", "torn/", "x"], ["inspect", "torn/"]):
        out = run(*words)
        said = (out.stdout + out.stderr).decode().split("\n")[0]
        check(said.count("torn") == 1 and "//" not in said, f"{words}: the file is named once", said)


def test_side_files():
    # Named with their sizes, not read: 3.6 GB of them.
    model("huge")
    names = ["special_tokens_map.json", "added_tokens.json", "tokenizer.model", "tekken.json", "qwen.tiktoken", "vocab.json", "merges.txt", "vocab.txt", "chat_template.jinja", "chat_template.json",
             "preprocessor_config.json", "modules.json"]
    for name in names:
        with open("huge/" + name, "wb") as f:
            f.truncate(400 << 20)
    for more in ([], ["--json"]):
        p = subprocess.Popen([lq, "inspect", "huge", *more], stdout=subprocess.PIPE)
        out = p.stdout.read().decode()
        usage = os.wait4(p.pid, 0)[2]
        check(all(name in out for name in names), "inspect names all side files", out[:300])
        check(usage.ru_maxrss < 200 << 10 and usage.ru_utime + usage.ru_stime < 1 * slow, "and reads none of them", (usage.ru_maxrss, usage.ru_utime))
    with open("huge/config.json", "wb") as f:
        f.truncate(500 << 20)
    p = subprocess.Popen([lq, "inspect", "huge"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = p.stdout.read(), p.stderr.read()
    usage = os.wait4(p.pid, 0)[2]
    check(b"config.json" in err and usage.ru_maxrss < 200 << 10, "a config.json of 500 MB is refused before it is read", (err, usage.ru_maxrss))


def many_types(path, count):
    """A .lq file of `count` coded weights of as many types, [32][16] each."""
    head, types, at, sums = {}, {}, 0, {}
    zeros = {n: f"{xxh64(bytes(n)):016x}" for n in (64, 128, 256, 384, 512)}
    for i in range(count):
        bits, scale, group = (2, 4, 6, 8)[i % 4], ("f16", "f32", "bf16")[i // 4 % 3], 16 * (i // 12 + 1)
        name, codes, scales = f"w{i:06d}", 32 * 4 * -(-16 * bits // 32), 64 if scale != "f32" else 128
        types[name] = f"int{bits} g{group} sym {scale} 32x16"
        head[name + ".q"] = {"dtype": "U8", "shape": [32, codes // 32], "data_offsets": [at, at + codes]}
        head[name + ".scale"] = {"dtype": scale.upper(), "shape": [32, 1], "data_offsets": [at + codes, at + codes + scales]}
        sums[name + ".q"], sums[name + ".scale"] = zeros[codes], zeros[scales]
        at += codes + scales
    head["__metadata__"] = {"lq.version": "0", "lq.header": "0" * 16, "lq.layout": "any", "lq.types": json.dumps(types), "lq.xxh64": json.dumps(sums)}
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 4096)
    digits = text.index(b'"lq.header":"') + len(b'"lq.header":"')
    text = text[:digits] + f"{xxh64(text):016x}".encode() + text[digits + 16:]
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)


def cpu_seconds(*words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = run(*words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return out, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_many_types():
    took = []
    for count in (4000, 16000):
        many_types("types.lq", count)
        out, seconds = min((cpu_seconds("inspect", "types.lq", "--json") for _ in range(3)), key=lambda x: x[1])
        told = strict(out.stdout)
        check(out.returncode == 0 and told and len(told["types"]) == count, f"{count} types are told", out.stderr)
        took.append(seconds)
    # Four times the types: 4 times the work where it is linear, 16 times where each is looked for among all.
    check(took[1] < 8 * took[0] + 0.05, "inspect is linear in the number of types", took)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name, test in list(globals().items()):
                if name.startswith("test_") and (len(sys.argv) < 3 or name in sys.argv[2:]):
                    test()
        finally:
            os.chdir("/")


main()
sys.exit(counted.end())
