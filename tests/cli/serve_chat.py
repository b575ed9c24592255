#!/usr/bin/env python3
# serve_chat.py: the server's protocols beside completions, as their makers describe them: conversations, responses, Anthropic's messages,
# text-generation-inference. What is answered is held against /v1/completions with the prompt that the template makes, and against `lq run`.
# The same variables as serve.py; its model must have a chat template.
import json, pathlib, shutil, subprocess, sys, tempfile, time
import serve
from serve import check, end, events, skip

QUESTION = [{"role": "user", "content": "Who are you?"}]
COLD = {"temperature": 0}
# Shows all that a template is told.
TELLING = ("{{ bos_token }}{% for m in messages %}[{{ m.role }}{% if m.name %}:{{ m.name }}{% endif %}]{{ m.content }}"
           "{% for c in m.tool_calls or [] %}<{{ c.function.name }} {{ c.function.arguments.x }}>{% endfor %}{% if m.tool_call_id %}({{ m.tool_call_id }}){% endif %}"
           "{% endfor %}{% if tools %}{{ tools | length }} {{ tools[0].function.name }} {{ tools[0].function.parameters.type }}{% endif %}"
           "{{ mood | default('') }}{{ reasoning_effort | default('') }}{% if add_generation_prompt %}[assistant]{% endif %}")
TOOL = {"name": "look", "description": "d", "parameters": {"type": "object", "properties": {}}}


def named(raw):
    """The events of a stream that names them."""
    out = []
    for block in raw.decode().split("\n\n"):
        if block.startswith("event: "):
            name, data = block.split("\n", 1)
            out.append((name[7:], json.loads(data.removeprefix("data: "))))
            check(out[-1][1]["type"] == name[7:], "an event's name and its type", block[:200])
    return out


def counts(answer):
    """Its usage, less what the cache had of it: a second question finds more there."""
    return {k: v for k, v in answer["usage"].items() if k != "prompt_tokens_details"}


def stream(s, path, body):
    status, head, raw = s.ask("POST", path, {"stream": True, **body})
    check(status == 200 and head["Content-Type"].startswith("text/event-stream"), path, status, raw[:200])
    return raw


def rendered(s, **body):
    """What the template made of it: the tokens, as a text again."""
    ids = s.post(body, "/tokenize")["tokens"]
    return s.post({"tokens": ids}, "/detokenize")["prompt"]


def prompt_of(s, **body):
    return s.post({"messages": QUESTION, **body}, "/tokenize")["tokens"]


# --- conversations ---

def test_chat(s):
    ids = prompt_of(s)
    told = subprocess.run([serve.LQ, "template", serve.MODEL, "--messages", "-", "--add-generation-prompt"], input=json.dumps(QUESTION), capture_output=True, text=True)
    text = told.stdout.removesuffix("\n")
    check(ids == s.post({"prompt": text, "add_special_tokens": False}, "/tokenize")["tokens"], "the template's text", ids, text)
    r = s.post({"messages": QUESTION, "max_tokens": 60, **COLD}, "/v1/chat/completions")
    check(set(r) == {"id", "object", "created", "model", "system_fingerprint", "choices", "usage"} and r["object"] == "chat.completion" and
          r["id"].startswith("chatcmpl-") and abs(r["created"] - time.time()) < 60, r)
    c = r["choices"][0]
    check(c["message"] == {"role": "assistant", "content": c["message"]["content"], "refusal": None} and c["index"] == 0 and c["logprobs"] is None, c)
    plain = s.post({"prompt": ids, "max_tokens": 60, **COLD})
    check(c["message"]["content"] == plain["choices"][0]["text"] and c["finish_reason"] == plain["choices"][0]["finish_reason"] and counts(r) == counts(plain), r, plain)
    ran = subprocess.run([serve.LQ, "run", serve.MODEL, "Who are you?", "-q", "-n", "60"], capture_output=True, text=True)
    check(c["message"]["content"] == ran.stdout.removesuffix("\n"), "as lq run", ran.stdout)
    whole = s.post({"messages": QUESTION, **COLD}, "/v1/chat/completions")  # up to the context's end, or what ends a text
    check(whole["choices"][0]["message"]["content"].startswith(c["message"]["content"]), whole)
    parts = [{"role": "user", "content": [{"type": "text", "text": "Who are"}, {"type": "text", "text": "you?"}]}]
    check(s.post({"messages": parts}, "/tokenize")["tokens"] == prompt_of(s, messages=[{"role": "user", "content": "Who are\nyou?"}]), "parts are lines")
    for field in ("max_tokens", "max_completion_tokens"):
        check(s.post({"messages": QUESTION, field: 3, "n": 2, "ignore_eos": True}, "/v1/chat/completions")["usage"]["completion_tokens"] == 6, field)
    check(s.post({"messages": QUESTION, "max_tokens": 9, "max_completion_tokens": 3}, "/v1/chat/completions")["usage"]["completion_tokens"] == 3, "max_completion_tokens goes before")


def test_chat_logprobs(s):
    ask = {"max_tokens": 12, "seed": 5, "temperature": 1.2, "top_p": 1, "ignore_eos": True}
    plain = s.post({"prompt": prompt_of(s), "logprobs": 4, **ask})["choices"][0]["logprobs"]
    c = s.post({"messages": QUESTION, "logprobs": True, "top_logprobs": 4, **ask}, "/v1/chat/completions")["choices"][0]["logprobs"]
    check(c["refusal"] is None and [t["token"] for t in c["content"]] == plain["tokens"] and [t["logprob"] for t in c["content"]] == plain["token_logprobs"], c, plain)
    for t, tops in zip(c["content"], plain["top_logprobs"]):
        check(set(t) == {"token", "logprob", "bytes", "top_logprobs"} and bytes(t["bytes"]).decode(errors="replace") == t["token"] or t["token"].startswith("bytes:"), t)
        check(len(t["top_logprobs"]) == 4 and all(tops.get(x["token"], x["logprob"]) == x["logprob"] for x in t["top_logprobs"]) and
              [x["logprob"] for x in t["top_logprobs"]] == sorted((x["logprob"] for x in t["top_logprobs"]), reverse=True), t, tops)
    none = s.post({"messages": QUESTION, "logprobs": True, **ask}, "/v1/chat/completions")["choices"][0]["logprobs"]["content"]
    check([t["logprob"] for t in none] == plain["token_logprobs"] and all(t["top_logprobs"] == [] for t in none), none)
    check(len(s.post({"messages": QUESTION, "logprobs": True, "top_logprobs": 20, **ask}, "/v1/chat/completions")["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 20, "20 of them")


def test_chat_stream(s):
    for more in ({}, {"n": 3, "seed": 3, "temperature": 1.5}, {"logprobs": True, "top_logprobs": 2}, {"stop": [" of"]}):
        ask = {"messages": QUESTION, "max_tokens": 20, **COLD, **more}
        whole = s.post(ask, "/v1/chat/completions")
        ev = events(stream(s, "/v1/chat/completions", {**ask, "stream_options": {"include_usage": True}}))
        check(ev[-1] == "[DONE]" and ev[-2]["choices"] == [] and ev[-2]["usage"] == {**whole["usage"], "prompt_tokens_details": ev[-2]["usage"]["prompt_tokens_details"]}, ev[-2], whole["usage"])
        for e in ev[:-1]:
            check(e["object"] == "chat.completion.chunk" and e["id"] == ev[0]["id"] and (e["usage"] is None) == bool(e["choices"]), e)
        for c in whole["choices"]:
            mine = [x for e in ev[:-1] for x in e["choices"] if x["index"] == c["index"]]
            check(mine[0]["delta"] == {"role": "assistant", "content": ""} and all("role" not in x["delta"] for x in mine[1:]), "the role comes first, once", mine[:2])
            check("".join(x["delta"].get("content", "") for x in mine) == c["message"]["content"], "stream and whole", c, mine)
            check([x["finish_reason"] for x in mine] == [None] * (len(mine) - 1) + [c["finish_reason"]], "finish_reason comes last, once")
            if c["logprobs"]:
                check([t for x in mine if x["logprobs"] for t in x["logprobs"]["content"]] == c["logprobs"]["content"], "logprobs in chunks")
    each = events(stream(s, "/v1/chat/completions", {"messages": QUESTION, "max_tokens": 5, "ignore_eos": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}))
    counts = [e["usage"]["completion_tokens"] for e in each[:-1]]
    check(counts == sorted(counts) and counts[-1] == 5 and all(e["usage"]["total_tokens"] == e["usage"]["prompt_tokens"] + e["usage"]["completion_tokens"] for e in each[:-1]), counts)
    each = events(stream(s, "/v1/completions", {"prompt": "Once", "max_tokens": 5, "ignore_eos": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}))
    check([e["usage"]["completion_tokens"] for e in each[:-1]][-2:] == [5, 5], "usage of a completion's chunks", each[-3:])
    check(all("usage" not in e for e in events(stream(s, "/v1/chat/completions", {"messages": QUESTION, "max_tokens": 3}))[:-1]), "usage only where asked for")


def test_chat_refusals(s):
    ok = {"messages": QUESTION, "max_tokens": 2}
    check(s.post({**ok, **dict.fromkeys(("user", "metadata", "store", "service_tier", "parallel_tool_calls", "prediction", "verbosity", "prompt_cache_key", "safety_identifier"))},
                 "/v1/chat/completions")["choices"], "null is absent")
    rows = [
        ({"messages": None}, "messages"), ({"messages": []}, "messages"), ({"messages": "x"}, "messages"), ({"messages": ["x"]}, "messages"), ({"messages": [{}]}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"), ({"messages": [{"role": "user", "content": None}]}, "messages"), ({"messages": [{"role": 1, "content": "a"}]}, "messages"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages"), ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": 1}]}, "messages"), ({"messages": QUESTION * 2000}, "messages"),
        ({"messages": [{"role": "user", "content": "x " * 2000}], "max_tokens": None}, "messages"),
        ({"max_tokens": 0}, "max_tokens"), ({"max_completion_tokens": 0}, "max_completion_tokens"), ({"max_tokens": 10 ** 6}, "max_tokens"), ({"n": 0}, "n"),
        ({"top_logprobs": 2}, "top_logprobs"), ({"logprobs": 2}, "logprobs"), ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"), ({"tools": [1]}, "tools"),
        ({"tools": {}}, "tools"), ({"tool_choice": "required"}, "tool_choice"), ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"functions": [TOOL]}, "functions"), ({"chat_template": "x"}, "chat_template"), ({"chat_template_kwargs": 1}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"), ({"documents": [1]}, "documents"), ({"documents": {}}, "documents"), ({"documents": [{}, "x"]}, "documents"),
        ({"chat_template_kwargs": {"tools": [1]}}, "chat_template_kwargs"), ({"chat_template_kwargs": {"documents": 5}}, "chat_template_kwargs"), ({"tools": [[]]}, "tools"), ({"add_generation_prompt": 1}, "add_generation_prompt"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"), ({"modalities": ["audio"]}, "modalities"),
        ({"response_format": {"type": "json_object"}}, "response_format"), ({"stream_options": {}}, "stream_options"), ({"min_tokens": 3}, "min_tokens"),
        ({"guided_regex": "a"}, "guided_regex"), ({"stop": [1]}, "stop"), ({"temperature": "x"}, "temperature"), ({"reasoning_effort": 1}, "reasoning_effort"),
        ({"user": 1}, "user"), ({"metadata": [1]}, "metadata"), ({"metadata": {"a": 1}}, "metadata"), ({"store": "yes"}, "store"), ({"service_tier": 5}, "service_tier"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"), ({"prediction": "x"}, "prediction"), ({"verbosity": 1}, "verbosity"), ({"prompt_cache_key": 1}, "prompt_cache_key"),
        ({"safety_identifier": []}, "safety_identifier"),
    ]
    for change, param in rows:
        status, _, raw = s.ask("POST", "/v1/chat/completions", {**ok, **change})
        e = json.loads(raw)["error"]
        check(status == 400 and e["param"] == param and param in e["message"] and e["message"].startswith("messages: ") <= (param == "messages") and e["type"] == "invalid_request_error", str(change)[:100], status, e)
    for part, said in (({"type": "text", "text": 5}, "content[1].text: expected a text"), ({"type": "input_text"}, "content[1].text: expected a text"),
                       ({"type": "refusal", "text": "x"}, "content[1].refusal: expected a text"), (5, 'content[1]: expected {"type":"text","text":...}'),
                       ({"text": "x"}, 'content[1]: expected {"type":"text","text":...}'), ({"type": "audio", "text": "x"}, "content[1] is of type audio: this server reads parts of type text alone")):
        e = s.post({**ok, "messages": [{"role": "user", "content": ["a", part]}]}, "/v1/chat/completions", 400)["error"]
        check(e["param"] == "messages" and e["message"] == "messages[0]: " + said, part, e)
    for path, body, status, param in (("/v1/completions", {"stop": "\\u0000", "prompt": "nul \0 x"}, 400, "prompt"), ("/v1/chat/completions", {**ok, "user": "\0"}, 400, "user"),
                                      ("/v1/chat/completions", {**ok, "messages": [{"role": "user", "content": "\0"}]}, 400, "messages"), ("/v1/responses", {"input": "\0"}, 400, "input"),
                                      ("/v1/messages", {"system": "\0"}, 400, "system"), ("/generate", {"inputs": "\0"}, 422, "inputs"), ("/tokenize", {"a": {"b": 10 ** 70}}, 400, "a"),
                                      ("/v1/completions", {"a\0": 1}, 400, None), ("/v1/completions", {"a" * 70: "\0"}, 400, None)):
        status_, _, raw = s.ask("POST", path, body)
        e = json.loads(raw)["error"]
        said = e if isinstance(e, str) else e["message"]
        check(status_ == status and said.startswith(f"{param or 'request'}: a ") and said.endswith("which lq does not take") and "not JSON" not in said and
              (isinstance(e, str) or e.get("param", param) == param), "JSON that lq does not take", path, raw)
    check(s.post({**ok, "tools": None, "tool_choice": "auto", "parallel_tool_calls": True, "modalities": ["text"], "service_tier": "auto", "store": True, "metadata": {}, "foo": 1,
                  "prediction": None, "reasoning_effort": "low", "user": "u"}, "/v1/chat/completions")["choices"], "what changes nothing")
    nobody = [{"role": "nobody", "content": "x"}]
    for path, body in (("/v1/chat/completions", {"messages": nobody}), ("/v1/responses", {"input": nobody}), ("/tokenize", {"messages": nobody})):
        e = s.post(body, path, 400)["error"]
        check(e["message"].startswith(f"{e['param']}: chat template: line ") and e["message"].endswith("nobody"), "what the template says of it, and no place of this machine", path, e)


def test_templates():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "telling.jinja")
        path.write_text(TELLING)
        for given in (str(path), TELLING):
            s = serve.Server("--chat-template", given)
            check(rendered(s, messages=QUESTION).endswith("[user]Who are you?[assistant]"), "--chat-template", given[:20], rendered(s, messages=QUESTION))
            check(json.loads(s.ask("GET", "/tokenizer_info")[2])["chat_template"] == TELLING, "the template in use")
            if given != TELLING:
                s.stop()
        bos = rendered(s, messages=QUESTION).removesuffix("[user]Who are you?[assistant]")
        check(s.post({"messages": QUESTION}, "/tokenize")["tokens"].count(s.post({"prompt": "x"}, "/tokenize")["tokens"][0]) == (1 if bos else 0), "BOS stands once", bos)
        say = lambda **body: rendered(s, **body)[len(bos):]
        call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x": 7}'}}]}
        tools = [{"type": "function", "function": TOOL}]
        check(say(messages=[{"role": "developer", "content": "D"}, {"role": "user", "content": "U", "name": "Ann"}]) == "[system]D[user:Ann]U[assistant]", "roles and names")
        check(say(messages=QUESTION + [call, {"role": "tool", "content": "42", "tool_call_id": "c1"}]) in
              ("[user]Who are you?[assistant]None<look 7>[tool]42(c1)[assistant]", "[user]Who are you?[assistant]<look 7>[tool]42(c1)[assistant]"), "calls of tools", say(messages=QUESTION + [call]))
        check(say(messages=QUESTION, tools=tools) == "[user]Who are you?1 look object[assistant]", "tools", say(messages=QUESTION, tools=tools))
        check(say(messages=QUESTION, chat_template_kwargs={"mood": "glad"}, reasoning_effort="low", add_generation_prompt=False) == "[user]Who are you?gladlow", "variables")
        check(say(messages=[{"role": "assistant", "content": None, "refusal": "No."}], add_generation_prompt=False) == "[assistant]No.", "a refusal")
        go_on = QUESTION + [{"role": "assistant", "content": "I am the "}]
        check(say(messages=go_on, continue_final_message=True) == "[user]Who are you?[assistant]I am the ", "continue_final_message", say(messages=go_on, continue_final_message=True))
        plain = s.post({"prompt": bos + "[user]Who are you?[assistant]I am the ", "add_special_tokens": False, "max_tokens": 9, **COLD})["choices"][0]["text"]
        ask = {"messages": go_on, "continue_final_message": True, "max_tokens": 9, **COLD}
        check(s.post(ask, "/v1/chat/completions")["choices"][0]["message"]["content"] == plain, "an answer goes on")
        check(s.post({**ask, "echo": True}, "/v1/chat/completions")["choices"][0]["message"]["content"] == "I am the " + plain, "echo")
        echoed = events(stream(s, "/v1/chat/completions", {**ask, "echo": True}))
        check("".join(c["delta"].get("content", "") for e in echoed[:-1] for c in e["choices"]) == "I am the " + plain, "echo of a stream", echoed[:3])
        count = lambda path, **body: s.post(body, path)["usage"]
        chat = s.post({"messages": QUESTION, "tools": tools, "max_tokens": 1}, "/v1/chat/completions")["usage"]["prompt_tokens"]
        bare = s.post({"messages": QUESTION, "tools": tools, "tool_choice": "none", "max_tokens": 1}, "/v1/chat/completions")["usage"]["prompt_tokens"]
        check(chat > bare == len(prompt_of(s)), "tool_choice none", chat, bare)
        # Others' ways to say the same.
        tokens = lambda **body: len(s.post(body, "/tokenize")["tokens"])
        whole = tokens(messages=[{"role": "system", "content": "S"}] + QUESTION + [call, {"role": "tool", "content": "42", "tool_call_id": "c1"}], tools=tools)
        said = s.post({"system": [{"type": "text", "text": "S"}], "tools": [{"name": "look", "description": "d", "input_schema": TOOL["parameters"]}], "messages": QUESTION + [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"x": 7}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "42"}]}]}]}, "/v1/messages/count_tokens")
        check(said["input_tokens"] == whole, "Anthropic's tools", said, whole)
        used = count("/v1/responses", instructions="S", tools=[{"type": "function", **TOOL}], max_output_tokens=1, input=QUESTION + [
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"x": 7}'}, {"type": "function_call_output", "call_id": "c1", "output": "42"}])
        check(used["input_tokens"] == whole, "the tools of responses", used, whole)
        s.stop()
        bad = subprocess.run([serve.LQ, "serve", serve.MODEL, "--port", "0", "--chat-template", "{% if"], capture_output=True, text=True, timeout=60 * serve.SLOW)
        check(bad.returncode == 1 and bad.stderr.count("\n") == 1 and "chat template" in bad.stderr, "a template that is none", bad)
        test_without(pathlib.Path(folder))


def test_numbers():
    """Numbers reach a template as json.loads reads them, and are told back as they came."""
    s = serve.Server("--chat-template", "x{% if v %}{{ [messages[0].tool_calls[0].function.arguments, tools, documents, v] | tojson }}{% endif %}")
    told = lambda **body: json.loads(rendered(s, **body).partition("x")[2])
    values = [9007199254740991, -9007199254740993, 10 ** 15, 2 ** 63 - 1, 2 ** 64 - 1, -10 ** 40, 1.0, 100.0, 1e5, -0.0, 0.1, 1e-7, 3, "a\u2028\"\\\u0001é", None, True, [], {}, {"": [[1.0]]}]
    given = {"values": values}
    tools = [{"type": "function", "function": {"name": "f", "parameters": given}}]
    for arguments in (json.dumps(given), given):
        got = told(messages=[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}], tools=tools, documents=[given], chat_template_kwargs={"v": given})
        check(repr(got) == repr([given, tools, [given], given]), "numbers in a template", got)
    flat = [{"type": "function", "name": "f", "parameters": given}]
    check(repr(s.post({"input": "x", "tools": flat, "max_output_tokens": 1}, "/v1/responses")["tools"]) == repr(flat), "numbers told back")
    for seed in (7, 9007199254740993, 2 ** 63 - 1, 2 ** 64 - 1):
        d = s.post({"inputs": "Once", "parameters": {"details": True, "do_sample": True, "max_new_tokens": 1, "seed": seed}}, "/generate")["details"]
        check(repr(d["seed"]) == repr(seed), "a seed told back", d["seed"], seed)
    s.stop()


def test_without(folder):
    """A model without a template, whose generation_config.json says how to draw and whose tokens are objects, as transformers writes them."""
    if not pathlib.Path(serve.MODEL, "tokenizer_config.json").exists():
        return skip("the model is one file: its side files cannot be changed")
    bare, kept = folder / "bare", serve.MODEL
    shutil.copytree(serve.MODEL, bare)
    config = json.loads((bare / "tokenizer_config.json").read_text())
    del config["chat_template"]
    token = {"__type": "AddedToken", "content": config["eos_token"], "lstrip": False, "special": True}
    objects = {**config, "eos_token": token, "added_tokens_decoder": {"2": token, "5": {**token, "content": "é"}}, "additional_special_tokens": [token, "y"]}
    (bare / "tokenizer_config.json").write_text(json.dumps(objects))
    (bare / "generation_config.json").write_text(json.dumps({"eos_token_id": 1021, "top_k": 1, "temperature": 1.7}))
    serve.MODEL = str(bare)
    try:
        s = serve.Server()
        for path, body, param in (("/v1/chat/completions", {"messages": QUESTION}, "messages"), ("/v1/responses", {"input": "x"}, "input"), ("/tokenize", {"messages": QUESTION}, "messages")):
            e = s.post(body, path, 400)["error"]
            check(e["param"] == param and e["code"] == "no_chat_template" and "--chat-template" in e["message"], path, e)
        e = s.post({"messages": QUESTION, "max_tokens": 3}, "/v1/messages", 400)
        check("chat template" in e["error"]["message"], e)
        check(s.post({"prompt": "Once"})["choices"][0]["text"] == s.text("Once"), "top_k of generation_config.json")
        hot = [s.post({"prompt": "Once", "top_k": 0, "seed": i, **more})["choices"][0]["text"] for i in range(4) for more in ({}, {"temperature": 1.7})]
        check(hot[0::2] == hot[1::2] and len(set(hot)) > 1, "temperature of generation_config.json", hot)
        info = json.loads(s.ask("GET", "/tokenizer_info")[2])
        check(info == {**config, "added_tokens_decoder": {"2": config["eos_token"], "5": "é"}, "additional_special_tokens": [config["eos_token"], "y"]}, "tokens are texts", info)
        s.stop()
        (bare / "tokenizer_config.json").unlink()
        (bare / "chat_template.jinja").write_text(TELLING)
        s = serve.Server()
        info = json.loads(s.ask("GET", "/tokenizer_info")[2])
        ends = s.post({"tokens": [json.loads((bare / "config.json").read_text())["eos_token_id"]]}, "/detokenize")["prompt"]
        first = s.post({"prompt": "x"}, "/tokenize")
        check(info.pop("eos_token") == ends and info.pop("add_bos_token") == ("bos_token" in info), "what the tokenizer knows", info, ends)
        check("bos_token" not in info or s.post({"prompt": info.pop("bos_token"), "add_special_tokens": False}, "/tokenize")["tokens"] == first["tokens"][:1], "bos", info, first)
        check(info == {"model_max_length": first["max_model_len"], "chat_template": TELLING}, info)
        s.stop()
        (bare / "chat_template.jinja").write_text("\n{% for x in y %}")
        s = serve.Server()
        e = s.post({"messages": QUESTION, "max_tokens": 3}, "/v1/messages", 400)["error"]["message"]
        check(e.startswith("messages: chat template: line 2: "), "a template that is broken", e)
        s.stop()
        (bare / "generation_config.json").write_text('{"temperature": "hot"}')
        p = subprocess.run([serve.LQ, "serve", str(bare), "--port", "0"], capture_output=True, text=True, timeout=60 * serve.SLOW)
        check(p.returncode == 1 and "generation_config.json: temperature" in p.stderr and p.stderr.count("\n") == 1, "a temperature that is none", p)
    finally:
        serve.MODEL = kept


# --- responses ---

BEGIN = ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
END = ["response.output_text.done", "response.content_part.done", "response.output_item.done"]


def test_responses(s):
    ask = {"input": "Who are you?", "max_output_tokens": 60, **COLD}
    r = s.post(ask, "/v1/responses")
    chat = s.post({"messages": QUESTION, "max_tokens": 60, **COLD}, "/v1/chat/completions")
    text = chat["choices"][0]["message"]["content"]
    check(r["object"] == "response" and r["status"] == "completed" and r["id"].startswith("resp_") and r["error"] is None and r["incomplete_details"] is None and
          r["store"] is False and r["max_output_tokens"] == 60 and r["temperature"] == 0 and r["instructions"] is None and r["metadata"] == {}, r)
    item = r["output"][0]
    check(len(r["output"]) == 1 and item["type"] == "message" and item["id"].startswith("msg_") and item["status"] == "completed" and item["role"] == "assistant" and
          item["content"] == [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}], item, text)
    u = chat["usage"]
    check(r["usage"] == {"input_tokens": u["prompt_tokens"], "input_tokens_details": {"cached_tokens": r["usage"]["input_tokens_details"]["cached_tokens"]},
                         "output_tokens": u["completion_tokens"], "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": u["total_tokens"]}, r["usage"], u)
    for given in (QUESTION, [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Who are you?"}]}]):
        check(s.post({**ask, "input": given}, "/v1/responses")["output"][0]["content"][0]["text"] == text, "items", given)
    cut = s.post({**ask, "max_output_tokens": 3, "metadata": {"a": "b"}, "instructions": "Say it.", "user": "u", "top_p": 0.5}, "/v1/responses")
    check(cut["status"] == "incomplete" and cut["incomplete_details"] == {"reason": "max_output_tokens"} and cut["metadata"] == {"a": "b"} and cut["instructions"] == "Say it." and
          cut["user"] == "u" and cut["top_p"] == 0.5, cut)
    for more in ({}, {"max_output_tokens": 3}, {"include": ["message.output_text.logprobs"], "top_logprobs": 2}):
        whole = s.post({**ask, **more}, "/v1/responses")
        ev = named(stream(s, "/v1/responses", {**ask, **more}))
        names, data = [n for n, _ in ev], [d for _, d in ev]
        deltas = [d for d in data if d["type"] == "response.output_text.delta"]
        check(names == BEGIN + ["response.output_text.delta"] * len(deltas) + END + [f"response.{whole['status']}"], names)
        check([d["sequence_number"] for d in data] == list(range(len(ev))), "sequence_number")
        check(data[0]["response"]["status"] == "in_progress" and data[0]["response"]["output"] == [] and data[0]["response"]["usage"] is None, data[0])
        part = whole["output"][0]["content"][0]
        check("".join(d["delta"] for d in deltas) == part["text"] == data[-4]["text"] and data[-3]["part"] == part and data[-2]["item"]["content"] == [part], "the text", data[-4:])
        done = data[-1]["response"]
        same = {k: v for k, v in whole.items() if k not in ("id", "created_at", "output", "usage")}
        check({k: done[k] for k in same} == same and done["output"][0]["content"] == [part] and done["usage"]["total_tokens"] == whole["usage"]["total_tokens"], done, whole)
        check(len({d["item_id"] for d in data if "item_id" in d} | {data[2]["item"]["id"], done["output"][0]["id"]}) == 1, "one item")
        check([t for d in deltas for t in d["logprobs"]] == part["logprobs"][:sum(len(d["logprobs"]) for d in deltas)] and bool(part["logprobs"]) == ("include" in more), part)
    for change, param in (({"input": None}, "input"), ({"input": 1}, "input"), ({"input": []}, "input"), ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
                          ({"input": [{"type": "item_reference", "id": "x"}]}, "input"), ({"previous_response_id": "resp_1"}, "previous_response_id"), ({"conversation": "c"}, "conversation"),
                          ({"background": True}, "background"), ({"text": {"format": {"type": "json_object"}}}, "text"), ({"tool_choice": "required"}, "tool_choice"),
                          ({"tools": [{"type": "web_search"}]}, "tools"), ({"truncation": "auto"}, "truncation"), ({"max_output_tokens": 0}, "max_output_tokens"),
                          ({"instructions": 1}, "instructions"), ({"metadata": {"a": 1}}, "metadata"), ({"metadata": {"a": "x" * 600}}, "metadata"), ({"stream": 1}, "stream"), ({"prompt": {"id": "p"}}, "prompt"),
                          ({"include": "x"}, "include"), ({"include": [1]}, "include"), ({"max_tool_calls": "x"}, "max_tool_calls"), ({"max_tool_calls": 1.5}, "max_tool_calls"), ({"store": 1}, "store"),
                          ({"service_tier": []}, "service_tier"), ({"prompt_cache_key": 1}, "prompt_cache_key"), ({"safety_identifier": 1}, "safety_identifier"),
                          ({"reasoning": {"effort": 1}}, "reasoning.effort"), ({"reasoning": "x"}, "reasoning")):
        e = s.post({**ask, **change}, "/v1/responses", 400)["error"]
        check(e["param"] == param and e["type"] == "invalid_request_error", change, e)


# --- Anthropic's ---

def test_messages(s):
    ask = {"model": "demo", "messages": QUESTION, "max_tokens": 60, **COLD}
    chat = s.post({"messages": QUESTION, "max_tokens": 60, **COLD}, "/v1/chat/completions")
    text = chat["choices"][0]["message"]["content"]
    r = s.post(ask, "/v1/messages")
    check(r == {"id": r["id"], "type": "message", "role": "assistant", "model": "demo", "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
                "stop_sequence": None, "usage": r["usage"]} and r["id"].startswith("msg_"), r)
    u = r["usage"]
    check(u["input_tokens"] + u["cache_read_input_tokens"] == chat["usage"]["prompt_tokens"] and u["output_tokens"] == chat["usage"]["completion_tokens"], u, chat["usage"])
    check(s.post({"messages": QUESTION}, "/v1/messages/count_tokens") == {"input_tokens": chat["usage"]["prompt_tokens"]}, "count_tokens")
    check(s.post({**ask, "max_tokens": 2}, "/v1/messages")["stop_reason"] == "max_tokens", "max_tokens")
    word = text.split()[3]
    stopped = s.post({**ask, "stop_sequences": ["\u2603", " " + word]}, "/v1/messages")
    check(stopped["stop_reason"] == "stop_sequence" and stopped["stop_sequence"] == " " + word and stopped["content"][0]["text"] == text[:text.index(" " + word)], stopped)
    prefill = s.post({**ask, "messages": QUESTION + [{"role": "assistant", "content": text[:12]}]}, "/v1/messages")["content"][0]["text"]
    check((text[:12] + prefill)[:16] == text[:16], "an answer that was begun", prefill)
    for nothing in ("", " \n", [], [{"type": "text", "text": ""}, {"type": "text", "text": " "}]):
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            begun, whole = (s.post({**ask, "messages": m}, path) for m in (QUESTION + [{"role": "assistant", "content": nothing}], QUESTION))
            check(begun.get("content") == whole.get("content") and begun.get("input_tokens") == whole.get("input_tokens"), "an answer that was not begun", nothing, begun)
    # What would take minutes if each were looked for from the beginning.
    s.post({**ask, "messages": QUESTION + [{"role": "assistant", "content": ""}] * 90000}, "/v1/messages")
    s.post({**ask, "messages": [{"role": "user", "content": "a" * 2000000}, {"role": "assistant", "content": "a" * 1000000}]}, "/v1/messages", 400)
    lone = s.post({**ask, "messages": [{"role": "assistant", "content": ""}]}, "/v1/messages", 400)["error"]["message"]
    check(lone == "messages: expected one message or more", lone)
    for more, reason in (({}, "end_turn"), ({"max_tokens": 2}, "max_tokens"), ({"stop_sequences": [" " + word]}, "stop_sequence")):
        ev = named(stream(s, "/v1/messages", {**ask, **more}))
        names, data = [n for n, _ in ev], [d for _, d in ev]
        deltas = [d for d in data if d["type"] == "content_block_delta"]
        check(names == ["message_start", "content_block_start", "ping"] + ["content_block_delta"] * len(deltas) + ["content_block_stop", "message_delta", "message_stop"], names)
        whole = s.post({**ask, **more}, "/v1/messages")
        check("".join(d["delta"]["text"] for d in deltas) == whole["content"][0]["text"] and all(d["index"] == 0 and d["delta"]["type"] == "text_delta" for d in deltas), deltas)
        start, last = data[0]["message"], data[-2]
        check(start["content"] == [] and start["stop_reason"] is None and start["role"] == "assistant" and start["usage"]["input_tokens"] > 0, start)
        check(last["delta"] == {"stop_reason": reason, "stop_sequence": whole["stop_sequence"]} and last["usage"]["output_tokens"] == whole["usage"]["output_tokens"], last)
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
    rows = [({"messages": QUESTION + [call]}, "messages: "), ({"max_tokens": None}, "max_tokens"), ({"max_tokens": 0}, "max_tokens"), ({"messages": []}, "messages"), ({"messages": [{"role": "system", "content": "x"}]}, "messages[0]"),
            ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0]: content[0]"), ({"temperature": 2}, "temperature"), ({"stop_sequences": "x"}, "stop_sequences"),
            ({"tool_choice": {"type": "any"}}, "tool_choice"), ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"), ({"system": 1}, "system"), ({"tools": [{}]}, "tools"),
            ({"output_format": {"type": "json_schema"}}, "output_format"), ({"output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {}}}}, "output_config.format"),
            ({"output_config": 5}, "output_config"), ({"metadata": "x"}, "metadata"), ({"service_tier": 1}, "service_tier")]
    for change, named_ in rows:
        status, head, raw = s.ask("POST", "/v1/messages", {**ask, **change})
        e = json.loads(raw)
        check(status == 400 and e["type"] == "error" and e["error"]["type"] == "invalid_request_error" and e["error"]["message"].startswith(named_) and
              e["request_id"] == head["X-Request-Id"], change, status, e)
    check(s.post({**ask, "output_config": {"effort": "low", "format": None}}, "/v1/messages")["content"] == r["content"], "output_config without a format")
    for method, path, body, status, kind in (("POST", "/v1/messages", {**ask, "model": "other"}, 404, "not_found_error"), ("GET", "/v1/messages", None, 405, "invalid_request_error"),
                                             ("POST", "/v1/messages", "x" * (5 << 20), 413, "request_too_large"), ("POST", "/v1/messages/count_tokens", {}, 400, "invalid_request_error")):
        got, _, raw = s.ask(method, path, body)
        check(got == status and json.loads(raw)["error"]["type"] == kind, method, path, got, raw[:200])


def test_shapes():
    """What the server itself refuses has the shape of the path's protocol too."""
    s = serve.Server(env={"LQ_API_KEY": "k"})
    for path, shape in (("/v1/messages", lambda e: e["type"] == "error" and e["error"]["type"] == "authentication_error" and e["request_id"]),
                        ("/v1/messages/count_tokens", lambda e: e["error"]["type"] == "authentication_error"), ("/generate", lambda e: e["error_type"] == "unauthorized"), ("/", lambda e: e["error_type"] == "unauthorized"),
                        ("/v1/responses", lambda e: e["error"]["code"] == "invalid_api_key"), ("/v1/chat/completions", lambda e: e["error"]["code"] == "invalid_api_key")):
        status, _, raw = s.ask("POST", path, {})
        check(status == 401 and shape(json.loads(raw)), path, status, raw)
    s.stop()


# --- text-generation-inference ---

def test_generate(s):
    plain = s.post({"prompt": "Once upon a time", "max_tokens": 8, "ignore_eos": False, "logprobs": 2, **COLD})["choices"][0]
    ask = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 8}}
    check(s.post(ask, "/generate") == {"generated_text": plain["text"]}, "greedy where nothing is said")
    p = {**ask["parameters"], "details": True, "top_n_tokens": 2, "return_full_text": True}
    r = s.post({**ask, "parameters": p}, "/generate")
    d = r["details"]
    check(r["generated_text"] == "Once upon a time" + plain["text"] and d["finish_reason"] == plain["finish_reason"] == "length" and d["generated_tokens"] == 8 and d["seed"] is None and
          d["prefill"] == [], d)
    check([t["text"] for t in d["tokens"]] == plain["logprobs"]["tokens"] and [t["logprob"] for t in d["tokens"]] == plain["logprobs"]["token_logprobs"] and
          not any(t["special"] for t in d["tokens"]) and all(len(t) == 2 and t[0]["logprob"] >= t[1]["logprob"] for t in d["top_tokens"]), d)
    raw = stream(s, "/generate_stream", {**ask, "parameters": {**p, "return_full_text": False}})
    ev = [json.loads(b[5:]) for b in raw.decode().split("\n\n") if b]
    check([e["index"] for e in ev] == list(range(1, 9)) and [e["token"]["id"] for e in ev] == [t["id"] for t in d["tokens"]] and [e["top_tokens"] for e in ev] == d["top_tokens"], ev)
    check("".join(e["token"]["text"] for e in ev) == plain["text"] == ev[-1]["generated_text"] and all(e["generated_text"] is None and e["details"] is None for e in ev[:-1]), ev)
    check(ev[-1]["details"] == {"finish_reason": "length", "generated_tokens": 8, "seed": None, "input_length": r["details"]["generated_tokens"] - 8 + len(s.post({"prompt": ask["inputs"]}, "/tokenize")["tokens"])}, ev[-1])
    seeded = {"max_new_tokens": 8, "do_sample": True, "seed": 7, "temperature": 1.5, "top_k": 9, "typical_p": 0.9}
    drawn = s.post({"prompt": "Once", "max_tokens": 8, "seed": 7, "temperature": 1.5, "top_k": 9, "typical_p": 0.9, "top_p": 1})["choices"][0]["text"]
    got = s.post({"inputs": "Once", "parameters": {**seeded, "details": True}}, "/generate")
    check(got["generated_text"] == drawn and got["details"]["seed"] == 7, got, drawn)
    word = plain["text"].split()[2]
    stop = s.post({"inputs": ask["inputs"], "parameters": {"max_new_tokens": 8, "stop": [word], "details": True}}, "/generate")
    kept = plain["text"][:plain["text"].index(word) + len(word)]
    check(stop["details"]["finish_reason"] == "stop_sequence" and stop["generated_text"] == kept, "a stop text stays", stop)
    ev = [json.loads(b[5:]) for b in stream(s, "/generate_stream", {"inputs": ask["inputs"], "parameters": {"max_new_tokens": 8, "stop": [word]}}).decode().split("\n\n") if b]
    check("".join(e["token"]["text"] for e in ev) == kept == ev[-1]["generated_text"], "in a stream too", ev)
    end_ = s.post({"inputs": prompt_text(s), "parameters": {"max_new_tokens": 90, "details": True}}, "/generate")
    check(end_["details"]["finish_reason"] == "eos_token" and end_["details"]["tokens"][-1]["special"] is True, end_)
    check(s.post(ask, "/") == [{"generated_text": plain["text"]}] == [s.post({**ask, "stream": True}, "/generate")], "POST / is /generate, in a list")
    check([json.loads(b[5:]) for b in stream(s, "/", {**ask, "parameters": {**p, "return_full_text": False}}).decode().split("\n\n") if b] ==
          [json.loads(b[5:]) for b in stream(s, "/generate_stream", {**ask, "parameters": {**p, "return_full_text": False}}).decode().split("\n\n") if b], "or /generate_stream")
    check(s.post({**ask, "stream": 1}, "/", 422)["error_type"] == "validation", "stream of another type")
    for headers, want in ((serve.JSON, 200), ({"Content-Type": "text/plain"}, 415), ({**serve.JSON, "Host": "evil.example"}, 421)):
        check(s.ask("POST", "/", json.dumps(ask).encode(), headers)[0] == want, "POST /", headers)
    status, head, raw_ = s.ask("DELETE", "/")
    check(status == 405 and head["Allow"] == "GET, HEAD, POST" and s.ask("GET", "/")[0] == 200, "/", status, head["Allow"])
    drawn = {"max_new_tokens": 6, "do_sample": True, "seed": 3, "temperature": 1.4, "best_of": 4, "details": True, "top_n_tokens": 1, "return_full_text": True}
    best = s.post({"inputs": "Once", "parameters": drawn}, "/generate")
    others = best["details"]["best_of_sequences"]
    mean = lambda d: sum(t["logprob"] for t in d["tokens"]) / len(d["tokens"])
    check(len(others) == 3 and mean(best["details"]) >= mean(others[0]) >= mean(others[1]) >= mean(others[2]), "the others", best)
    for o in others:
        check(set(o) == {"generated_text", "finish_reason", "generated_tokens", "seed", "prefill", "tokens", "top_tokens"} and o["prefill"] == [] and o["seed"] == 3 and
              o["generated_tokens"] == len(o["tokens"]) == len(o["top_tokens"]) and o["generated_text"].startswith("Once"), "one of the others", o)
    check("best_of_sequences" not in d, "of one there are no others")
    for change in ({"inputs": 1}, {"inputs": None}, {"parameters": {"max_new_tokens": 0}}, {"parameters": 1}, {"parameters": {"grammar": {"type": "json"}}}, {"parameters": {"truncate": 5}},
                   {"parameters": {"temperature": "x"}}):
        e = s.post({**ask, **change}, "/generate", 422)
        check(s.post({**ask, **change}, "/generate_stream", 422) == e, "of a stream", change)
        check(set(e) == {"error", "error_type"} and e["error_type"] == "validation" and list(change)[0] in e["error"], change, e)


def prompt_text(s):
    return s.post({"tokens": prompt_of(s)[1:]}, "/detokenize")["prompt"]


# --- completions ---

def test_best_of(s):
    ask = {"prompt": ["Once", "The cat"], "max_tokens": 12, "temperature": 1.4, "top_p": 1, "seed": 3, "ignore_eos": True}
    all_ = s.post({**ask, "n": 6, "logprobs": 0})
    best = s.post({**ask, "n": 2, "best_of": 6})
    check(len(best["choices"]) == 4 and [c["index"] for c in best["choices"]] == [0, 1, 2, 3] and all(c["logprobs"] is None for c in best["choices"]), best)
    for p in range(2):
        mine = sorted(all_["choices"][6 * p:6 * p + 6], key=lambda c: -sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["tokens"]))
        check([c["text"] for c in best["choices"][2 * p:2 * p + 2]] == [c["text"] for c in mine[:2]], "the best by mean logprob", p)
    check(counts(best) == counts(all_), "all that was sampled is counted", best["usage"], all_["usage"])


def test_info(s):
    status, head, raw = s.ask("GET", "/tokenizer_info")
    path = pathlib.Path(serve.MODEL, "tokenizer_config.json")
    plain = lambda v: v.get("content", {k: plain(x) for k, x in v.items()}) if isinstance(v, dict) else v
    check(status == 200 and head["Content-Type"] == "application/json" and (not path.exists() or json.loads(raw) == plain(json.loads(path.read_text()))), status, raw[:100])
    check(s.post({"messages": QUESTION, "prompt": "x"}, "/tokenize", 400)["error"]["param"] == "messages", "messages and a prompt")
    check(s.post({"messages": QUESTION, "return_token_strs": True}, "/tokenize")["token_strs"][-1].startswith("<|"), "token_strs")


def main():
    serve.ONE = [test_chat, test_chat_logprobs, test_chat_stream, test_chat_refusals, test_responses, test_messages, test_generate, test_best_of, test_info]
    serve.run(serve.ONE + [test_templates, test_numbers, test_shapes], [a for a in sys.argv[1:] if a.startswith("test_")])
    return end()


if __name__ == "__main__":
    sys.exit(main())
