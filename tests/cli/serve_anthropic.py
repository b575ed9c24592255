#!/usr/bin/env python3
# serve_anthropic.py: the server through Anthropic's own client, which parses every answer into its own types. Run it with a Python that has
# the `anthropic` package; without it the test is counted as skipped. The same variables as serve.py.
import asyncio, sys
import serve
from serve import check, end, skip

QUESTION = [{"role": "user", "content": "Who are you?"}]
ASK = {"model": "demo", "messages": QUESTION, "max_tokens": 60, "extra_body": {"temperature": 0}}


def test_client(s, anthropic):
    c = anthropic.Anthropic(base_url=f"http://127.0.0.1:{s.port}", api_key="none", max_retries=0, timeout=60 * serve.SLOW)
    r = c.messages.create(**ASK)
    text = s.post({"messages": QUESTION, "max_tokens": 60, "temperature": 0}, "/v1/chat/completions")["choices"][0]["message"]["content"]
    check(type(r).__name__ == "Message" and r.content[0].text == text and r.stop_reason == "end_turn" and r.role == "assistant" and r._request_id.startswith("req-") and not r.model_extra, r)
    check(c.messages.count_tokens(model="demo", messages=QUESTION).input_tokens == r.usage.input_tokens + r.usage.cache_read_input_tokens, "count_tokens", r.usage)
    with c.messages.stream(**ASK, system="You are it.") as stream:
        got = "".join(stream.text_stream)
        final = stream.get_final_message()
    whole = c.messages.create(**ASK, system="You are it.")
    check(got == final.content[0].text == whole.content[0].text and final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens, got, final)
    kinds = [e.type for e in c.messages.create(**{**ASK, "max_tokens": 4}, stream=True)]
    check(kinds[:2] == ["message_start", "content_block_start"] and kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"], kinds)
    cut = c.messages.create(**ASK, stop_sequences=[" " + text.split()[2]])
    check(cut.stop_reason == "stop_sequence" and cut.stop_sequence == " " + text.split()[2] and text.startswith(cut.content[0].text), cut)
    tools = [{"name": "look", "description": "d", "input_schema": {"type": "object", "properties": {}}}]
    check(c.messages.create(**ASK, tools=tools).content[0].text == text, "tools are taken")
    for kind, more in ((anthropic.BadRequestError, {"messages": []}), (anthropic.BadRequestError, {"tools": tools, "tool_choice": {"type": "any"}}), (anthropic.NotFoundError, {"model": "other"})):
        try:
            c.messages.create(**{**ASK, **more})
            check(False, "no error for", more)
        except kind as e:
            check(e.body["type"] == "error" and e.body["error"]["message"], e)


async def many(s, anthropic, count):
    c = anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{s.port}", api_key="none", max_retries=0, timeout=120 * serve.SLOW)

    async def one():
        async with c.messages.stream(**ASK) as stream:
            return "".join([t async for t in stream.text_stream])
    got = await asyncio.gather(*(one() for _ in range(count)))
    await c.close()
    return got


def main():
    try:
        import anthropic
    except ImportError:
        skip("the anthropic package is not here")
    else:
        s = serve.Server()
        test_client(s, anthropic)
        got = asyncio.run(many(s, anthropic, 20))
        check(len(set(got)) == 1 and got[0], "20 streams at once", set(got))
        check(s.idle() is True, "idle", s.idle(0))
        s.stop()
        print(f"anthropic {anthropic.__version__}")
    return end()


if __name__ == "__main__":
    sys.exit(main())
