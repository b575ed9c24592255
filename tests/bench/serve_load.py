#!/usr/bin/env python3
# serve_load.py LQ MODEL [--streams N] [--requests N] [--tokens N] [-- OPTIONS OF lq serve]: many streams at once, some of which their clients
# cut off, and what is left of them: errors, KV blocks, descriptors, memory, and what a streamed token costs in the server's own threads.
import argparse, asyncio, json, os, random, signal, subprocess, sys, time

p = argparse.ArgumentParser()
p.add_argument("lq")
p.add_argument("model")
p.add_argument("--streams", type=int, default=1000)
p.add_argument("--requests", type=int, default=20000)
p.add_argument("--tokens", type=int, default=40)
p.add_argument("--cut", type=float, default=0.15, help="share of clients that go before the end, half of them with a reset")
p.add_argument("options", nargs="*")
a = p.parse_args()
server = subprocess.Popen([a.lq, "serve", a.model, "--name", "m", "--port", "0", "--json", "--quiet", "--max-seqs", str(min(a.streams, 4096)), "--max-queue", str(2 * a.streams),
                           "--max-connections", str(2 * a.streams + 64), *a.options], stdout=subprocess.PIPE, text=True)
port = json.loads(server.stdout.readline())["port"]
proc, hz = f"/proc/{server.pid}", os.sysconf("SC_CLK_TCK")


def status(name):
    return next(line.split(":")[1].strip() for line in open(f"{proc}/status") if line.startswith(name + ":"))


def seconds():
    """CPU seconds of each thread."""
    fields = {t: open(f"{proc}/task/{t}/stat").read().rsplit(")", 1)[1].split() for t in os.listdir(f"{proc}/task")}
    return {int(t): (int(f[11]) + int(f[12])) / hz for t, f in fields.items()}


async def get(path):
    r, w = await asyncio.open_connection("127.0.0.1", port)
    w.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    body = (await r.read(-1)).split(b"\r\n\r\n", 1)[1].decode()
    w.close()
    return body


async def gauges():
    rows = (line.rsplit(" ", 1) for line in (await get("/metrics")).splitlines() if not line.startswith("#"))
    return {name.split("{")[0]: float(v) for name, v in rows}


async def one(i, rng, told):
    cut = rng.random() < a.cut
    body = json.dumps({"prompt": "Once upon a time " * rng.randrange(1, 6), "max_tokens": a.tokens, "ignore_eos": True, "temperature": 1, "seed": i, "stream": True}).encode()
    try:
        r, w = await asyncio.open_connection("127.0.0.1", port)
        w.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        if cut:
            await r.read(rng.randrange(1, 4000))
            if rng.random() < 0.5:
                w.transport.abort()
            told["cut"] += 1
        else:
            got = await r.read(-1)
            good = got.startswith(b"HTTP/1.1 200") and b"data: [DONE]\n\n" in got and b'"error"' not in got
            told["chunks"] += got.count(b"data: ")
            told["whole" if good else "broken"] += 1
        w.close()
    except OSError as e:
        told["broken"] += 1
        print(repr(e), file=sys.stderr)


async def load(count, told, seed):
    """Asks count times; the server's memory after each quarter."""
    rng, left, memory = random.Random(seed), iter(range(count)), []

    async def worker():
        for i in left:
            await one(i, rng, told)
            if (i + 1) % max(count // 4, 1) == 0:
                memory.append(status("VmRSS"))
    await asyncio.gather(*(worker() for _ in range(a.streams)))
    return memory


async def descriptors():
    """How many the server has, once the connection of the last question is closed."""
    await asyncio.sleep(0.5)
    return len(os.listdir(f"{proc}/fd"))


async def run():
    told = {"whole": 0, "cut": 0, "broken": 0, "chunks": 0}
    await load(a.requests, dict(told), 1)  # until everything that stays has been made, the KV cache's last page too
    await asyncio.sleep(2)
    fds, rss, cpu, start, tokens = await descriptors(), status("VmRSS"), seconds(), time.monotonic(), (await gauges())["vllm:generation_tokens_total"]
    memory = await load(a.requests, told, 2)
    took = time.monotonic() - start
    spent = {t: s - cpu.get(t, 0) for t, s in seconds().items()}
    end = time.monotonic() + 30
    while (m := await gauges())["vllm:num_requests_running"] + m["vllm:num_requests_waiting"] and time.monotonic() < end:
        await asyncio.sleep(0.1)
    await asyncio.sleep(2)
    m = await gauges()
    print(f"{a.requests} requests, {a.streams} at once: {told['whole']} whole, {told['cut']} cut off by their clients, {told['broken']} broken; {took:.1f} s, {told['chunks'] / took:.0f} chunks/s read")
    print(f"left: {m['lq:kv_blocks'] - m['lq:kv_blocks_free']:.0f} KV blocks, {await descriptors() - fds} descriptors; memory {rss} before, {', '.join(memory)} in each quarter, {status('VmHWM')} at most")
    loop = spent[server.pid]
    print(f"the connections' thread: {loop:.2f} s, {loop / (m['vllm:generation_tokens_total'] - tokens) * 1e6:.1f} us a token sampled; all threads {sum(spent.values()):.2f} s")
    return told["broken"] or m["lq:kv_blocks"] != m["lq:kv_blocks_free"]


failed = asyncio.run(run())
server.send_signal(signal.SIGTERM)
sys.exit(server.wait(60) or bool(failed))
