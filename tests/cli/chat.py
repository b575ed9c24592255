#!/usr/bin/python3
# chat.py LQ: `lq run` as a conversation: one question equals the rendered template continued as it is; and a session on
# a terminal of its own, whose screen is kept by a small emulator: editing, wrapping, several lines, what was entered
# before, commands, Ctrl-C, leaving.
import fcntl
import json
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(root, "tests"))
import counted  # noqa: E402

lq, demo = os.path.abspath(sys.argv[1]), os.path.join(root, "calib_data/demo")
slow = float(os.environ.get("LQ_SLOW", "1"))
TEMPLATE = (
    "{%- for m in messages -%}{%- if m.role == 'system' -%}[{{ m.content }}] {% elif m.role == 'user' -%}"
    "{{ m.content }}{%- else -%}{{ m.content }}\n{% endif -%}{%- endfor -%}"
    "{%- if shout is defined -%}!{%- endif -%}"
    "{%- if messages[0].n is defined -%}{{ messages[0].n | tojson }}{%- endif -%}"
)


def check(good, what, more=""):
    counted.check(good, what, repr(more)[-600:] if more != "" else "")


def run(*words, stdin=subprocess.DEVNULL):
    return subprocess.run([lq, *words], capture_output=True, stdin=stdin)


class Screen:
    """What a terminal shows: as much of one as the editor uses."""

    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.cell = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0

    def feed(self, text):
        i = 0
        while i < len(text):
            c = text[i]
            i += 1
            if c == "\r":
                self.column = 0
            elif c == "\n":
                self.down()
            elif c == "\033":
                i += 1
                number = ""
                while text[i] in "0123456789?;":
                    number += text[i]
                    i += 1
                self.obey(text[i], number)
                i += 1
            else:
                if self.column >= self.columns:
                    self.column = 0
                    self.down()
                self.cell[self.row][self.column] = c
                self.column += 1

    def down(self):
        self.row += 1
        if self.row == self.rows:
            self.cell = self.cell[1:] + [[" "] * self.columns]
            self.row -= 1

    def obey(self, what, number):
        n = int(number) if number.isdigit() else 1
        if what == "A":
            self.row = max(0, self.row - n)
        elif what == "C":
            self.column = min(self.columns - 1, self.column + n)
        elif what == "H":
            self.row = self.column = 0
        elif what == "J":
            first = 0 if number == "2" else self.row
            for row in range(first, self.rows):
                for column in range(self.column if row == self.row and number != "2" else 0, self.columns):
                    self.cell[row][column] = " "

    def lines(self):
        return [line for line in ("".join(row).rstrip() for row in self.cell) if line]


class Session:
    def __init__(self, *words, rows=24, columns=60):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        env = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
        own = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # noqa: E731
        self.child = subprocess.Popen([lq, "run", *words], stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True, preexec_fn=own)
        self.before = termios.tcgetattr(theirs)
        os.close(theirs)
        self.screen, self.got, self.sent = Screen(rows, columns), "", 0

    def until(self, good, seconds=20):
        end = time.time() + seconds * slow
        while not good() and time.time() < end:
            if not select.select([self.ours], [], [], 0.02)[0]:
                continue
            try:
                part = os.read(self.ours, 65536).decode(errors="replace")
            except OSError:
                return good()
            self.got += part
            self.screen.feed(part)
        return good()

    def asks(self):
        """The editor listens again since a text was sent, and its prompt is drawn."""
        return self.until(lambda: "\033[?2004h" in self.got[self.sent :] and self.screen.lines()[-1:] == [">"])

    def types(self, keys, shows=None):
        self.sent = len(self.got) if "\r" in keys or "\x03" in keys else self.sent
        os.write(self.ours, keys.encode())
        return shows is None or self.until(lambda: self.screen.lines()[-len(shows):] == shows)

    def says(self, text):
        return self.until(lambda: text in self.got[self.sent :])

    def tells(self, keys, text):
        """What is said to these keys, and then the prompt."""
        self.types(keys)
        return self.says(text) and self.asks()

    def end(self):
        self.until(lambda: self.child.poll() is not None, 10)
        if self.child.poll() is None:
            self.child.kill()
        os.close(self.ours)
        return self.child.wait()


def once(folder, model):
    """One question is the conversation so far, rendered, continued as it is."""
    messages = [{"role": "system", "content": "Tell."}, {"role": "user", "content": "Once upon a time"}]
    with open(folder + "/m.json", "w") as f:
        json.dump(messages, f)
    text = run("template", model, "-m", folder + "/m.json", "-g").stdout.decode()
    plain = run("run", model, text, "--raw", "--no-special", "-n", "12", "--quiet").stdout
    check(plain and text == "[Tell.] Once upon a time", "what is rendered", text)
    for words in (["Once upon a time", "--system", "Tell."], ["--messages", folder + "/m.json"], ["-p", "Once upon a time", "--system", "Tell."]):
        r = run("run", model, *words, "-n", "12", "--quiet")
        check(r.stdout == plain and r.returncode == 0, f"one question {words}", (r.stdout, plain, r.stderr))
    r = run("run", model, "Once upon a time", "-n", "12", "--json", "--var", "shout=true")
    raw = run("run", model, "Once upon a time!", "-n", "12", "--json", "--raw", "--no-special")
    check(json.loads(r.stdout)["ids"] == json.loads(raw.stdout)["ids"], "a variable of the template", r.stderr)
    with open(folder + "/n.json", "w") as f:
        json.dump([{"role": "user", "content": "Once", "n": [9007199254740993, 1.0]}], f)
    r = run("run", model, "--messages", folder + "/n.json", "-n", "12", "--json")
    raw = run("run", model, "Once[9007199254740993, 1.0]", "-n", "12", "--json", "--raw", "--no-special")
    check(json.loads(r.stdout)["ids"] == json.loads(raw.stdout)["ids"], "numbers are as they were told", r.stderr)
    r = run("run", model, "Once upon a time", "-n", "12", "--draw", "--quiet")
    check(b"12 tokens:" in r.stderr and b"perplexity" in r.stderr and len(r.stderr.splitlines()) == 2 + 8, "--draw", r.stderr)
    for words, why in (
        (["x", "--var", "shout"], b"--var: shout is no NAME=JSON"), (["--messages", "/nowhere"], b"/nowhere"),
        (["x", "--raw", "--system", "y"], b"--raw takes no"),
    ):
        r = run("run", model, *words)
        check(r.returncode in (1, 2) and why in r.stderr and not r.stdout, f"refused: {words}", r.stderr)


def session(folder, model):
    s = Session(model, "-n", "8", "--quiet", columns=30)
    check(s.asks(), "a prompt", s.got)
    check(s.types("bxd\x1b[D\x1b[D\x7fa\x05 word", ["> axd word"]), "moving and deleting", s.screen.lines())
    check(s.types("\x17\x01\x1b[3~é\x05", ["> éxd"]), "Ctrl-W, Ctrl-A, Delete, two bytes", s.screen.lines())
    check(s.types("\x15" + "0123456789" * 5, ["> 0123456789012345678901234567", "8901234567890123456789"]), "a long line wraps", s.screen.lines())
    check(s.types("\x01x", ["> x012345678901234567890123456", "78901234567890123456789"]), "its beginning", s.screen.lines())
    check(s.types("\x05\x15" + "y" * 28, ["> " + "y" * 28]), "a line that fills the row", s.screen.lines())
    check(s.types("z", ["> " + "y" * 28, "z"]), "and one more", s.screen.lines())
    check(s.types("\x15one\x1b\rtwo\\\rthree\x1b[A\x1b[AX", ["> oneX", "  two", "  three"]), "several lines", s.screen.lines())
    check(s.types("\x1b[B\x1b[B\x05\x15\x7f\x15\x7f\x15\x1b[200~a\rb\x1b[201~", ["> a", "  b"]), "pasted lines do not send", s.screen.lines())
    check(s.types("\x15\x7f\x15", [">"]), "all is gone", s.screen.lines())
    s.types("Once upon a time\r")
    check(s.asks(), "an answer, and the prompt again", s.got)
    s.types("and\r")
    check(s.asks(), "another", s.got)
    check(s.types("\x1b[A\x1b[A", ["> Once upon a time"]), "what was entered before", s.screen.lines())
    check(s.types("\x1b[B\x1b[B", [">"]), "and back", s.screen.lines())
    saved = folder + "/saved.json"
    check(s.tells(f"/save {saved}\r", "4 messages"), "/save", s.got)
    said = json.load(open(saved))
    check([m["role"] for m in said] == ["user", "assistant"] * 2 and said[0]["content"] == "Once upon a time" and said[2]["content"] == "and", "the messages", said)
    with open(folder + "/first.json", "w") as f:
        json.dump(said[:3], f)
    r = run("run", model, "--messages", folder + "/first.json", "-n", "8", "--quiet")
    check(r.stdout.decode().rstrip("\n") == said[3]["content"].rstrip("\n"), "the second answer knows the first", (r.stdout, said))
    check(s.tells("/undo\r", "2 messages are left"), "/undo", s.got)
    check(s.tells("/nope\r", "/nope: there is no such command"), "an unknown command", s.got)
    s.types("/system Be kind.\r")
    check(s.asks(), "/system TEXT", s.got)
    check(s.tells("/system\r", "lBe kind."), "/system", s.got)
    check(s.tells("/reset\r/again\r", "nothing was asked so far"), "/reset leaves the system prompt alone", s.got)
    check(s.tells(f"/load {saved}\r/draw\r", "kept from the next answer"), "/load, /draw", s.got)
    s.types("/again\r")
    check(s.asks(), "/again", s.got)
    check(s.tells("/draw\r", "perplexity"), "/draw", s.got)
    s.types("//x\r")
    check(s.asks(), "a text that begins with a slash", s.got)
    check(s.tells("\x03", "Ctrl-C once more"), "Ctrl-C at the prompt", s.got)
    s.types("a\x15")
    s.types("\x03")
    check(s.end() == 0, "Ctrl-C again leaves", s.got)
    s = Session(model, "-n", "8", columns=200)
    check(s.asks() and s.tells("Once upon a time\r", "prompt tokens, ") and "new" not in s.got, "figures of the first answer", s.got)
    check(s.tells("and\r", " of them new, "), "the second one does not read the first again", s.got)
    s.types("\x04")
    check(s.end() == 0, "Ctrl-D leaves", s.got)
    for leave in ("\x04", "/quit\r"):
        s = Session(model, "--quiet")
        check(s.asks() and (s.types(leave) or True) and s.end() == 0, f"{leave!r} leaves", s.got)


def stopped(model):
    """Ctrl-C while an answer comes ends the answer, not the program."""
    s = Session(model, "--ignore-eos", "-t", "1", "--exact", "--quiet")
    check(s.asks(), "a prompt", s.got)
    s.types("Once upon a time\r")
    s.says("there")
    s.types("\x03")
    check(s.until(lambda: s.screen.lines()[-1:] == [">"] or "once more" in s.got), "the prompt is back", s.got)
    s.types("/quit\r")
    check(s.end() == 0, "and the program goes on", s.got)


def ended(model):
    """Ctrl-C at about the time an answer ends, also between it and the prompt: the program goes on."""
    s = Session(model, "-n", "1", "--quiet")
    check(s.asks(), "a prompt", s.got)
    lived = 0
    for i in range(120):
        s.types("a\r")
        s.says("\n")
        time.sleep(i % 40 * 5e-5)
        s.types("\x03")
        s.until(lambda: "\033[?2004h" in s.got[s.sent :], 0.05)
        lived += s.child.poll() is None
        s.types("\x15/reset\r")
        s.asks()
    check(lived == 120, "Ctrl-C as an answer ends", (lived, s.got))
    s.types("/quit\r")
    check((how := s.end()) == 0, "it leaves as it should", (how, s.got[-150:]))


def without_template(path):
    shutil.copytree(demo, path)
    config = json.load(open(path + "/tokenizer_config.json"))
    del config["chat_template"]
    json.dump(config, open(path + "/tokenizer_config.json", "w"))


def plain(folder, bare):
    """Without a template texts are continued, each for itself."""
    s = Session(bare, "-n", "8", "--quiet")
    check(s.asks(), "a prompt", s.got)
    want = run("run", bare, "Once upon a time", "-n", "8", "--quiet").stdout.decode().strip()
    check(want == run("run", demo, "Once upon a time", "-n", "8", "--quiet", "--raw").stdout.decode().strip(), "--raw", want)
    for _ in range(2):
        s.types("Once upon a time\r")
        check(s.asks() and want in s.got[s.sent :].replace("\r\n", "\n"), "the text goes on", s.got)
    s.types("\x04")
    check(s.end() == 0, "Ctrl-D leaves", s.got)
    r = run("run", bare, "x", "--system", "y")
    check(r.returncode == 1 and b"need one" in r.stderr, "a system prompt without a template", r.stderr)


with tempfile.TemporaryDirectory() as folder:
    model = os.path.join(folder, "chat")
    shutil.copytree(demo, model)
    with open(model + "/chat_template.jinja", "w") as f:
        f.write(TEMPLATE)
    once(folder, model)
    session(folder, model)
    stopped(model)
    ended(model)
    without_template(folder + "/bare")
    plain(folder, folder + "/bare")
counted.end()
