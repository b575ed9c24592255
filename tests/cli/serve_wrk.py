#!/usr/bin/env python3
# serve_wrk.py: the server as wrk meets it, a client in C that keeps 64 connections busy: whole answers, streams and looks at its health in
# turn. No connection breaks, every answer is whole and none is a refusal, and what wrk leaves open at its end holds nothing. The same
# variables as serve.py. Without wrk it is one skip.
import json, pathlib, shutil, subprocess, sys, tempfile
import serve
from serve import SLOW, check, end, skip

CONNECTIONS, THREADS = 64, 2
SCRIPT = """
local threads, turn, kinds = {}, 0, {"whole", "stream", "health"}
whole, stream, health, bad, first = 0, 0, 0, 0, ""

function setup(thread)
    thread:set("number", #threads)
    table.insert(threads, thread)
end

function request()
    turn = turn + 1
    if turn % 3 == 0 then return wrk.format("GET", "/health") end
    local body = string.format('{"model":"demo","prompt":"Once upon a time %d","max_tokens":%d,"ignore_eos":true,"temperature":1,"seed":%d,"stream":%s}',
                               turn % 7, 1 + turn % 8, turn * 2 + number, tostring(turn % 3 == 1))
    return wrk.format("POST", "/v1/completions", {["Content-Type"] = "application/json"}, body)
end

function response(status, headers, body)
    local kind = headers["Content-Type"]
    if kind:sub(1, 17) == "text/event-stream" and body:find('"finish_reason":"length"', 1, true) and body:sub(-14) == "data: [DONE]\\n\\n" then stream = stream + 1
    elseif kind == "application/json" and body:find('"finish_reason":"length"', 1, true) and body:find('"usage":{', 1, true) then whole = whole + 1
    elseif kind == "application/json" and status == 200 and #body < 100 and not body:find("error", 1, true) then health = health + 1
    else
        if bad == 0 then first = status .. " " .. body end
        bad = bad + 1
    end
end

function done(summary)
    local out = {requests = summary.requests, duration = summary.duration, bad = 0, whole = 0, stream = 0, health = 0}
    for name, n in pairs(summary.errors) do out["wrk_" .. name] = n end
    local words = {}
    for _, thread in ipairs(threads) do
        for _, name in ipairs({"bad", "whole", "stream", "health"}) do out[name] = out[name] + thread:get(name) end
        if thread:get("first") ~= "" then io.stderr:write(thread:get("first"), "\\n") end
    end
    for name, n in pairs(out) do table.insert(words, string.format('"%s": %d', name, n)) end
    print("{" .. table.concat(words, ", ") .. "}")
end
"""


def run(s, script, seconds):
    p = subprocess.run(["wrk", f"-c{CONNECTIONS}", f"-t{THREADS}", f"-d{seconds}s", f"--timeout={int(10 * SLOW)}s", "-s", script, f"http://127.0.0.1:{s.port}"],
                       capture_output=True, text=True, timeout=(seconds + 60) * SLOW)
    if not check(p.returncode == 0 and p.stdout.rstrip().endswith("}"), "wrk", p.returncode, p.stdout[-500:], p.stderr[-500:]):
        return None
    print(p.stdout)
    return json.loads(p.stdout.rstrip().rpartition("\n")[2]), p.stderr


def test_load(*args):
    s = serve.Server(*args)
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "ask.lua")
        script.write_text(SCRIPT)
        ran = run(s, script, round((1 if "asan" in str(serve.LQ) else 3) * min(max(SLOW, 1), 10)))
    if ran:
        told, said = ran
        errors = {k: n for k, n in told.items() if k.startswith("wrk_")}
        check(len(errors) == 5 and not any(errors.values()), args, "socket errors, or statuses that are none of success", errors)
        check(told["bad"] == 0, args, told["bad"], "answers are not what was asked for:", said[:1000])
        check(min(told["whole"], told["stream"], told["health"]) > 0 and told["whole"] + told["stream"] + told["health"] == told["requests"], args, "each kind is answered", told)
        m = s.metrics()
        check(m['lq:http_replies_total,code="2xx"'] >= told["requests"] and m['lq:http_replies_total,code="4xx"'] == m['lq:http_replies_total,code="5xx"'] == 0, args,
              "the server counts as many", told["requests"], {k: v for k, v in m.items() if k.startswith("lq:http_replies")})
        check(m['vllm:request_success_total,finished_reason="length"'] >= told["whole"] + told["stream"], args, "and as many choices", told)
    check(s.idle() is True, args, "everything was given back", s.idle(0))
    blocks = json.loads(s.ask("GET", "/kv_blocks")[2])
    check(blocks["held"] == blocks["shared"] == 0, args, "no block is held", {k: v for k, v in blocks.items() if k != "cells"})
    s.stop()


def main():
    if len(sys.argv) > 1:
        serve.LQ = sys.argv[1]
    if not shutil.which("wrk"):
        skip("wrk is not installed")
        return end()
    test_load()
    test_load("--no-prefix-cache", "--max-seqs", "8", "--kv-block", "16")
    return end()


if __name__ == "__main__":
    sys.exit(main())
