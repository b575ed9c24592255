#!/usr/bin/env python3
# serve_langchain.py: the server as langchain-openai meets it: chat (whole, streamed, asynchronous, in batches), completions, embeddings,
# likelihoods, and its errors. Run it with a Python that has the package; without it the test is counted as skipped. The same variables as
# serve.py.
import asyncio, sys
import serve
from serve import check, end, skip

QUESTION = "Who are you?"


def server_says(s, **more):
    return s.post({"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 40, "temperature": 0, **more}, "/v1/chat/completions")


def test_chat(s, make, openai):
    from langchain_core.messages import HumanMessage
    chat, whole = make(), server_says(s)
    text = whole["choices"][0]["message"]["content"]
    r = chat.invoke(QUESTION)
    check(r.content == text and r.type == "ai", r, text)
    check(r.response_metadata["finish_reason"] == whole["choices"][0]["finish_reason"] and r.response_metadata["model_name"] == "demo", r.response_metadata)
    check(r.usage_metadata["input_tokens"] == whole["usage"]["prompt_tokens"] and r.usage_metadata["output_tokens"] == whole["usage"]["completion_tokens"], r.usage_metadata)
    told = chat.invoke([("system", "You are it."), ("human", QUESTION), ("ai", "Me."), ("human", "Who?")])
    messages = [("system", "You are it."), ("user", QUESTION), ("assistant", "Me."), ("user", "Who?")]
    same = s.post({"messages": [{"role": r, "content": c} for r, c in messages], "max_tokens": 40, "temperature": 0}, "/v1/chat/completions")
    check(told.content == same["choices"][0]["message"]["content"], told, same)
    chunks = list(make(stream_usage=True).stream(QUESTION))
    total = chunks[0]
    for c in chunks[1:]:
        total += c
    check(total.content == text and len(chunks) > 3 and total.usage_metadata["output_tokens"] == whole["usage"]["completion_tokens"], total)
    word = " " + text.split()[2]
    cut = chat.invoke(QUESTION, stop=[word])
    check(text.startswith(cut.content) and word not in cut.content and cut.response_metadata["finish_reason"] == "stop", cut)
    lp = make(logprobs=True, top_logprobs=3).invoke(QUESTION).response_metadata["logprobs"]["content"]
    check("".join(t["token"] for t in lp).startswith(text) and all(len(t["top_logprobs"]) == 3 for t in lp), lp[:2])
    drawing = {"temperature": 1.2, "n": 3, "seed": 5, "top_p": 0.9, "presence_penalty": 0.1, "frequency_penalty": 0.1}
    drawn = [g.text for g in make(**drawing).generate([[HumanMessage(QUESTION)]]).generations[0]]
    check(drawn == [c["message"]["content"] for c in server_says(s, **drawing)["choices"]], drawn)
    check([m.content for m in chat.batch([QUESTION] * 5)] == [text] * 5, "a batch")
    answer = make(use_responses_api=True).invoke(QUESTION)
    check(answer.text == text, answer)
    for kind, bad in ((openai.NotFoundError, {"model": "other"}), (openai.BadRequestError, {"top_p": 2}), (openai.BadRequestError, {"max_tokens": 10**6})):
        try:
            make(**bad).invoke(QUESTION)
            check(False, "no error for", bad)
        except kind as e:
            check(e.body["message"], e)


def test_rest(s, langchain_openai, base):
    llm = langchain_openai.OpenAI(**base, max_tokens=20, temperature=0)
    text = s.text("Once", max_tokens=20)
    check(llm.invoke("Once") == text and "".join(llm.stream("Once")) == text, text)
    check(llm.batch(["Once", "She", "He"]) == [s.text(p, max_tokens=20) for p in ("Once", "She", "He")], "prompts of a batch")
    texts = ["Once upon a time", "A dog ran home.", "Nothing"]
    asked = s.post({"input": texts}, "/v1/embeddings")["data"]
    # Its check of lengths would make tokens of OpenAI's own of the texts, with a vocabulary that it fetches.
    embeddings = langchain_openai.OpenAIEmbeddings(**base, check_embedding_ctx_length=False)
    got = embeddings.embed_documents(texts)
    check(len(got) == 3 and all(abs(x - y) < 1e-6 for g, a in zip(got, asked) for x, y in zip(g, a["embedding"])), "embeddings")
    check(all(abs(x - y) < 1e-6 for x, y in zip(embeddings.embed_query(texts[1]), got[1])), "one embedding")


async def together(make, count):
    chat = make()

    async def one():
        return "".join([c.content async for c in chat.astream(QUESTION)])
    return await asyncio.gather(*(one() for _ in range(count)), *(chat.ainvoke(QUESTION) for _ in range(count)))


def main():
    try:
        import langchain_openai
        import openai
    except ImportError:
        skip("the langchain-openai package is not here")
    else:
        s = serve.Server()
        base = {"base_url": f"http://127.0.0.1:{s.port}/v1", "api_key": "none", "max_retries": 0, "timeout": 60 * serve.SLOW, "model": "demo"}

        def make(**more):
            return langchain_openai.ChatOpenAI(**{**base, "max_tokens": 40, "temperature": 0, **more})
        test_chat(s, make, openai)
        test_rest(s, langchain_openai, base)
        got = asyncio.run(together(make, 10))
        check(set(got[:10]) == {m.content for m in got[10:]} and len(set(got[:10])) == 1, "20 at once", got)
        check(s.idle() is True, "idle", s.idle(0))
        s.stop()
    return end()


if __name__ == "__main__":
    sys.exit(main())
