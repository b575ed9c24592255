#!/usr/bin/env python3
# serve_openai.py: the server through the official OpenAI client, which parses every answer into its own types. Run it with a Python
# that has the `openai` package; without it the test is counted as skipped. The same variables as serve.py.
import asyncio, sys, time
import serve
from serve import check, end, skip


def test_client(s, openai):
    c = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0, timeout=60 * serve.SLOW)
    check([m.id for m in c.models.list()] == ["demo"] and c.models.retrieve("demo").object == "model", "models")
    ask = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
    r = c.completions.create(**ask)
    check(type(r).__name__ == "Completion" and r.object == "text_completion" and r.choices[0].finish_reason in ("stop", "length") and
          r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens and not r.model_extra, r)
    parts, usage = [], None
    for chunk in c.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        parts += [x.text for x in chunk.choices]
    check("".join(parts) == r.choices[0].text and usage.total_tokens == r.usage.total_tokens, parts)
    full = c.completions.create(**{**ask, "temperature": 1, "prompt": ["Once", "A cat"], "max_tokens": 8}, n=2, logprobs=3, echo=True, seed=1, stop=["\u2603"], logit_bias={"5": -1},
                                presence_penalty=0.1, frequency_penalty=0.1, top_p=0.9, user="someone", best_of=4, extra_body={"top_k": 20, "min_p": 0.01})
    check(len(full.choices) == 4 and all(len(x.logprobs.tokens) == len(x.logprobs.text_offset) == len(x.logprobs.top_logprobs) == len(x.logprobs.token_logprobs)
                                         for x in full.choices), full)
    for kind, more in ((openai.BadRequestError, {"temperature": -1}), (openai.BadRequestError, {"suffix": "x"}), (openai.NotFoundError, {"model": "other"})):
        try:
            c.completions.create(**{**ask, **more})
            check(False, "no error for", more)
        except kind as e:
            check(e.param == list(more)[0] and e.type == "invalid_request_error", e)
    before = s.metrics()["vllm:generation_tokens_total"]
    stream = c.completions.create(**{**ask, "max_tokens": 900}, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    check(s.idle() is True and s.metrics()["vllm:generation_tokens_total"] - before < 900, "a closed stream is cancelled", s.idle(0))


def test_embeddings(s, openai):
    c = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0, timeout=60 * serve.SLOW)
    r = c.embeddings.create(model="demo", input=["Once upon a time", "A cat"], user="someone")  # the client asks for base64, and reads it
    plain = c.embeddings.create(model="demo", input=["Once upon a time", "A cat"], encoding_format="float")
    check(type(r).__name__ == "CreateEmbeddingResponse" and [d.index for d in r.data] == [0, 1] and set(r.model_extra) <= {"id", "created"}, r.model_extra)
    check(all(len(a.embedding) == len(b.embedding) and all(abs(x - y) < 1e-8 for x, y in zip(a.embedding, b.embedding)) for a, b in zip(r.data, plain.data)) and
          abs(sum(x * x for x in r.data[0].embedding) - 1) < 1e-6 and r.usage.total_tokens == r.usage.prompt_tokens > 2, r.usage)
    check(len(c.embeddings.create(model="demo", input="A cat", dimensions=8).data[0].embedding) == 8, "dimensions")
    check(c.embeddings.create(model="demo", input=[[1, 2, 3]], dimensions=8).usage.prompt_tokens == 3, "tokens")
    try:
        c.embeddings.create(model="demo", input="A cat", dimensions=10 ** 6)
        check(False, "too many dimensions")
    except openai.BadRequestError as e:
        check(e.param == "dimensions", e)


QUESTION = [{"role": "user", "content": "Who are you?"}]
TOOL = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object", "properties": {}}}}


def test_chat(s, openai):
    c = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0, timeout=60 * serve.SLOW)
    ask = {"model": "demo", "messages": QUESTION, "max_tokens": 60, "temperature": 0}
    r = c.chat.completions.create(**ask, logprobs=True, top_logprobs=3, tools=[TOOL], tool_choice="auto", seed=1, user="u", stop=["\u2603"], extra_body={"top_k": 20})
    text = r.choices[0].message.content
    check(type(r).__name__ == "ChatCompletion" and r.choices[0].finish_reason == "stop" and r.choices[0].message.role == "assistant" and not r.model_extra and
          not r.choices[0].message.model_extra and text == s.post({"prompt": s.post({"messages": QUESTION}, "/tokenize")["tokens"], "max_tokens": 60, "temperature": 0})["choices"][0]["text"], r)
    check(all(len(t.top_logprobs) == 3 and t.top_logprobs[0].logprob == t.logprob for t in r.choices[0].logprobs.content), "greedy takes the likeliest")
    parts, usage = [], None
    for chunk in c.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        parts += [x.delta.content or "" for x in chunk.choices]
    check("".join(parts) == text and usage.total_tokens == r.usage.total_tokens, parts)
    with c.chat.completions.stream(**ask, n=2) as stream:  # the client's own collector
        for event in stream:
            pass
        check([x.message.content for x in stream.get_final_completion().choices] == [text] * 2, "the client's own collector")
    for kind, param, more in ((openai.BadRequestError, "response_format", {"response_format": {"type": "json_object"}}), (openai.BadRequestError, "tool_choice", {"tools": [TOOL], "tool_choice": "required"}),
                              (openai.BadRequestError, "messages", {"messages": []}), (openai.NotFoundError, "model", {"model": "other"}), (openai.BadRequestError, "max_tokens", {"max_tokens": 10 ** 6})):
        try:
            c.chat.completions.create(**{**ask, **more})
            check(False, "no error for", more)
        except kind as e:
            check(e.param == param and e.type == "invalid_request_error", e)


def test_responses(s, openai):
    c = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0, timeout=60 * serve.SLOW)
    ask = {"model": "demo", "input": "Who are you?", "max_output_tokens": 60, "temperature": 0}
    r = c.responses.create(**ask, instructions=None, metadata={"a": "b"}, tools=[{"type": "function", "strict": False, **TOOL["function"]}])
    check(type(r).__name__ == "Response" and r.status == "completed" and r.output_text == s.post({"messages": QUESTION, "max_tokens": 60, "temperature": 0}, "/v1/chat/completions")
          ["choices"][0]["message"]["content"] and set(r.model_extra) <= {"store"} and r.metadata == {"a": "b"} and r.tools[0].name == "look", r)
    events = list(c.responses.create(**ask, stream=True))
    check("".join(e.delta for e in events if e.type == "response.output_text.delta") == r.output_text and events[-1].response.output_text == r.output_text and
          [e.sequence_number for e in events] == list(range(len(events))) and not any(type(e).__name__ == "dict" for e in events), events[-1])
    with c.responses.stream(**ask) as stream:
        for event in stream:
            pass
        check(stream.get_final_response().output_text == r.output_text, "the client's own collector")
    try:
        c.responses.create(**ask, previous_response_id="resp_1")
        check(False, "previous_response_id")
    except openai.BadRequestError as e:
        check(e.param == "previous_response_id", e)


async def many_chats(s, openai, count):
    c = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0, timeout=120 * serve.SLOW)

    async def one(i):
        text = ""
        async for chunk in await c.chat.completions.create(model="demo", messages=QUESTION, max_tokens=20, temperature=1.5, seed=i, stream=True):
            text += chunk.choices[0].delta.content or ""
        return text
    got = await asyncio.gather(*(one(i) for i in range(count)))
    await c.close()
    return got


async def many(s, openai, count):
    c = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0, timeout=120 * serve.SLOW)

    async def one(i):
        text = ""
        async for chunk in await c.completions.create(model="demo", prompt="Once", max_tokens=30, temperature=1, seed=i, stream=True):
            text += chunk.choices[0].text
        return text
    got = await asyncio.gather(*(one(i) for i in range(count)))
    await c.close()
    return got


def main():
    try:
        import openai
    except ImportError:
        skip("the openai package is not here")
    else:
        s = serve.Server()
        start = time.monotonic()
        test_client(s, openai)
        test_embeddings(s, openai)
        test_chat(s, openai)
        test_responses(s, openai)
        chats = asyncio.run(many_chats(s, openai, 20))
        check(chats[::5] == [s.post({"messages": QUESTION, "max_tokens": 20, "temperature": 1.5, "seed": i}, "/v1/chat/completions")["choices"][0]["message"]["content"]
                             for i in range(0, 20, 5)], "20 conversations at once")
        got = asyncio.run(many(s, openai, 50))
        alone = [s.post({"prompt": "Once", "max_tokens": 30, "temperature": 1, "seed": i})["choices"][0]["text"] for i in range(0, 50, 7)]
        check(got[0::7] == alone, "50 streams at once", got[0::7], alone)
        check(s.idle() is True, "idle", s.idle(0))
        s.stop()
        print(f"openai {openai.__version__}: {time.monotonic() - start:.1f} s")
    return end()


if __name__ == "__main__":
    sys.exit(main())
