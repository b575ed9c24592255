#!/usr/bin/env python3
# serve_figures.py LQ MODEL [long] [prefix] [share] [--options OPTIONS]: figures of a server that want a machine of their own.
#   long    16 streams, then a prompt of --prompt tokens: gaps between the streams' tokens with prompts cut into chunks of several sizes, and whole
#   prefix  100 prompts of 1,000 tokens and 24 more, of which the 1,000 are the same: with and without the prefix cache
#   share   32 streams: what each thread of the server takes of the processor
# MODEL is best a random one (tests/gpu/random_model.py), whose context has room for the prompt.
import argparse, asyncio, json, os, random, signal, statistics, subprocess, sys, time

p = argparse.ArgumentParser()
p.add_argument("lq")
p.add_argument("model")
p.add_argument("what", nargs="*", default=["long", "prefix", "share"])
p.add_argument("--prompt", type=int, default=8192)
p.add_argument("--streams", type=int, default=16)
p.add_argument("--chunks", default="whole,512,128,32")
p.add_argument("--vocab", type=int, default=1000)
p.add_argument("--options", default="", help="of lq serve")
a = p.parse_args()
hz = os.sysconf("SC_CLK_TCK")


class Server:
    def __init__(self, *options):
        self.p = subprocess.Popen([a.lq, "serve", a.model, "--name", "m", "--port", "0", "--json", "--quiet", "--log", "/dev/null", *options, *a.options.split()],
                                  stdout=subprocess.PIPE, text=True)
        self.port = json.loads(self.p.stdout.readline())["port"]

    def cpu(self):
        tasks = f"/proc/{self.p.pid}/task"
        fields = {int(t): open(f"{tasks}/{t}/stat").read().rsplit(")", 1)[1].split() for t in os.listdir(tasks)}
        return {t: (int(f[11]) + int(f[12])) / hz for t, f in fields.items()}

    def end(self):
        self.p.send_signal(signal.SIGINT)
        self.p.send_signal(signal.SIGINT)
        self.p.wait()

    async def ask(self, prompt, tokens, on_token=lambda: None):
        """The times at which tokens came, and the usage. A random model is held to a token that is a text: others come in no chunk."""
        body = json.dumps({"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "logit_bias": {"500": 100}, "stream": True, "stream_options": {"include_usage": True}}).encode()
        r, w = await asyncio.open_connection("127.0.0.1", self.port)
        w.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        times, usage = [], None
        while line := await r.readline():
            if not line.startswith(b"data: {"):
                continue
            d = json.loads(line[6:])
            if d.get("choices"):
                times.append(time.monotonic())
                on_token()
            usage = d.get("usage") or usage
        w.close()
        return times, usage


def ids(rng, n):
    return [rng.randrange(3, a.vocab) for _ in range(n)]


def percentile(x, q):
    x = sorted(x)
    return x[min(len(x) - 1, int(q * len(x)))]


async def watch(chunk):
    """Gaps of the streams before the prompt came, and while it was read."""
    room = a.prompt + a.streams
    sizes = ["--max-batch-tokens", room] if chunk == "whole" else ["--max-batch-tokens", int(chunk) + a.streams, "--max-prefill-tokens", chunk]
    s, rng = Server(*map(str, sizes)), random.Random(1)
    seen = [[] for _ in range(a.streams)]
    streams = [asyncio.create_task(s.ask(ids(rng, 16), 4000, lambda i=i: seen[i].append(time.monotonic()))) for i in range(a.streams)]
    while min(map(len, seen)) < 8:
        await asyncio.sleep(0.05)
    await asyncio.sleep(4)
    start = time.monotonic()
    got, _ = await s.ask(ids(rng, a.prompt), 1)
    await asyncio.sleep(1)
    for t in streams:
        t.cancel()
    s.end()
    gaps = [(u, v - u) for times in seen for u, v in zip(times[8:], times[9:])]
    quiet = [g for u, g in gaps if u + g < start]
    during = [g for u, g in gaps if u + g >= start and u <= got[0]]
    print(f"| {chunk} | {percentile(quiet, .5) * 1e3:.0f} | {percentile(during, .5) * 1e3:.0f} | {percentile(during, .99) * 1e3:.0f} | {max(during) * 1e3:.0f} | {got[0] - start:.1f} |", flush=True)


async def prefix():
    rng = random.Random(2)
    begin = ids(rng, 1000)
    prompts = [begin + ids(rng, 24) for _ in range(101)]
    rows = {}
    for name, options in (("without", ["--no-prefix-cache"]), ("with", [])):
        s = Server(*options)
        firsts, cached, total = [], 0, 0
        count = 101 if options == [] else 11  # each takes as long as the first
        for i, prompt in enumerate(prompts[:count]):
            start = time.monotonic()
            times, usage = await s.ask(prompt, 2)
            if i:  # the first one is who computes it
                firsts.append(times[0] - start)
            cached += (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            total += usage["prompt_tokens"]
        s.end()
        rows[name] = statistics.median(firsts)
        print(f"{name} the prefix cache: {count} requests, {cached} of {total} prompt tokens from it ({100 * cached / total:.1f} %), median TTFT {rows[name] * 1e3:.1f} ms", flush=True)
    print(f"ratio {rows['without'] / rows['with']:.1f}")


async def share():
    s, rng = Server(), random.Random(3)
    seen = [[] for _ in range(32)]
    streams = [asyncio.create_task(s.ask(ids(rng, 16), 4000, lambda i=i: seen[i].append(time.monotonic()))) for i in range(32)]
    while min(map(len, seen)) < 4:
        await asyncio.sleep(0.05)
    before, start, had = s.cpu(), time.monotonic(), sum(map(len, seen))
    await asyncio.sleep(20)
    spent, took, tokens = {t: c - before.get(t, 0) for t, c in s.cpu().items()}, time.monotonic() - start, sum(map(len, seen)) - had
    for t in streams:
        t.cancel()
    s.end()
    loop, rest = spent[s.p.pid], sum(spent.values()) - spent[s.p.pid]
    print(f"32 streams: {tokens / took:.0f} tokens a second, {took * 32 / tokens * 1e3:.0f} ms a step; the connections' thread {loop:.2f} s, {loop / tokens * 1e6:.1f} us a token; all others {rest:.2f} s: {100 * loop / rest:.2f} %")


if "long" in a.what:
    print(f"{a.streams} streams and a prompt of {a.prompt} tokens; gaps between tokens in ms\n\n| tokens of prompts in a step | median before | median while it is read | p99 | longest | prompt's TTFT, s |\n|---|---|---|---|---|---|")
    for chunk in a.chunks.split(","):
        asyncio.run(watch(chunk))
if "prefix" in a.what:
    asyncio.run(prefix())
if "share" in a.what:
    asyncio.run(share())
