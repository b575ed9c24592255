#!/usr/bin/env python3
# serve_embeddings.py: POST /v1/embeddings: formats, lengths, the order of an array, what is cut and what is refused, and that a model's own
# files say how it pools. What a vector is made of is held against other implementations by tests/golden/check_golden.py. The same
# variables as serve.py; its model must have a chat template.
import base64, json, math, os, pathlib, shutil, struct, sys, tempfile, threading, unittest.mock
import serve
from serve import check, end, skip

PATH = "/v1/embeddings"
DEMO = serve.MODEL


def vectors(s, want=200, **body):
    r = s.post(body, PATH, want)
    return [d["embedding"] for d in r["data"]] if want == 200 else r


def same(a, b):
    return len(a) == len(b) and all(struct.pack("<f", x) == struct.pack("<f", y) for x, y in zip(a, b))


def unit(v):
    n = math.sqrt(sum(x * x for x in v))
    return [x / n for x in v]


def near(a, b):
    return len(a) == len(b) and all(abs(x - y) < 1e-6 for x, y in zip(a, b))


def test_answer(s):
    r = s.post({"model": "demo", "input": ["Once upon a time", "A cat"], "user": "someone", "unknown": 1}, PATH)
    check(set(r) == {"id", "object", "created", "model", "data", "usage"} and r["object"] == "list" and r["model"] == "demo" and r["id"].startswith("embd-"), r.keys())
    counts = [s.post({"prompt": t}, "/tokenize")["count"] for t in ("Once upon a time", "A cat")]
    check(r["usage"] == {"prompt_tokens": sum(counts), "total_tokens": sum(counts)}, r["usage"], counts)
    check([(d["object"], d["index"]) for d in r["data"]] == [("embedding", 0), ("embedding", 1)], [d["index"] for d in r["data"]])
    one, two = [d["embedding"] for d in r["data"]]
    check(abs(math.hypot(*one) - 1) < 1e-6 and abs(math.hypot(*two) - 1) < 1e-6 and not near(one, two), "vectors of length 1", math.hypot(*one))
    check(same(vectors(s, input="A cat")[0], two), "alone as in an array")
    ids = [s.post({"prompt": t}, "/tokenize")["tokens"] for t in ("Once upon a time", "A cat")]
    check(same(vectors(s, input=ids)[0], one) and same(vectors(s, input=ids[1])[0], two), "tokens as their text")
    bare = s.post({"prompt": "A cat", "add_special_tokens": False}, "/tokenize")["tokens"]
    check(same(vectors(s, input="A cat", add_special_tokens=False)[0], vectors(s, input=bare)[0]), "add_special_tokens")
    talk = [{"role": "user", "content": "Who are you?"}]
    asked = s.post({"messages": talk, "add_generation_prompt": False}, "/tokenize")["tokens"]
    check(same(vectors(s, messages=talk)[0], vectors(s, input=asked)[0]), "a conversation")


def test_formats(s):
    plain = vectors(s, input="Once upon a time")[0]
    coded = base64.b64decode(vectors(s, input="Once upon a time", encoding_format="base64")[0], validate=True)
    check(same(struct.unpack(f"<{len(plain)}f", coded), plain), "base64 is the same f32")
    raw = vectors(s, input="Once upon a time", normalize=False)[0]
    check(near(unit(raw), plain) and abs(math.hypot(*raw) - 1) > 1e-3, "normalize", math.hypot(*raw))
    check(same(vectors(s, input="Once upon a time", use_activation=False)[0], raw), "by its newer name")
    for n in (1, 7, len(plain)):
        cut = vectors(s, input="Once upon a time", dimensions=n)[0]
        check(near(cut, unit(plain[:n])), "dimensions", n, cut)
        three = base64.b64decode(vectors(s, input="Once upon a time", dimensions=n, encoding_format="base64")[0], validate=True)
        check(same(struct.unpack(f"<{n}f", three), cut), "dimensions in base64", n)


def test_refusals(s):
    wide = len(vectors(s, input="x")[0])
    ctx = s.post({"prompt": "x"}, "/tokenize")["max_model_len"]
    for change, param, code in (
            ({"input": None}, "input", None), ({"input": 5}, "input", None), ({"input": []}, "input", None), ({"input": [["x"]]}, "input", None), ({"input": ["x", 5]}, "input", None),
            ({"input": [1 << 30]}, "input", None), ({"input": [[1], []]}, "input", None), ({"input": [1] * (ctx + 1)}, "input", "context_length_exceeded"), ({"input": ["x"] * 2049}, "input", None),
            ({"dimensions": wide + 1}, "dimensions", None), ({"dimensions": 0}, "dimensions", None), ({"dimensions": "4"}, "dimensions", None), ({"encoding_format": "bytes"}, "encoding_format", None),
            ({"normalize": 1}, "normalize", None), ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", None), ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens", None),
            ({"embed_dtype": "float16"}, "embed_dtype", None), ({"endianness": "big"}, "endianness", None), ({"user": 1}, "user", None), ({"messages": [{"role": "user", "content": "x"}]}, "messages", None)):
        e = vectors(s, 400, **{"input": "x", **change})["error"]
        check(e["param"] == param and e["code"] == code and param in e["message"], change if len(str(change)) < 200 else param, e)
    check(vectors(s, 404, input="x", model="other")["error"]["code"] == "model_not_found", "another model")
    check(len(vectors(s, input=[1] * ctx)[0]) == wide, "as long as the context")


def test_truncation(s):
    text = "Once upon a time there was a cat " * 8
    ids = s.post({"prompt": text}, "/tokenize")["tokens"]
    for n in (1, 5, len(ids) - 1):
        r = s.post({"input": text, "truncate_prompt_tokens": n}, PATH)
        check(r["usage"]["prompt_tokens"] == n and same(r["data"][0]["embedding"], vectors(s, input=ids[:n])[0]), "the first", n, r["usage"])
        check(same(vectors(s, input=ids, truncate_prompt_tokens=n)[0], r["data"][0]["embedding"]), "of tokens too", n)
    check(same(vectors(s, input=text, truncate_prompt_tokens=10 ** 6)[0], vectors(s, input=text)[0]), "nothing is cut")
    ctx = s.post({"prompt": "x"}, "/tokenize")["max_model_len"]
    check(s.post({"input": text * 40, "truncate_prompt_tokens": -1}, PATH)["usage"]["prompt_tokens"] == ctx, "as the context holds")


def test_many(s):
    """An array of as many as there may be, while texts are generated: nobody gets a 429, all have the bits of the lone run."""
    ids = [[1 + i // 200, 1 + i % 200, 7] for i in range(2048)]
    ask = {"prompt": "Once", "max_tokens": 40, "temperature": 1, "seed": 3, "ignore_eos": True}
    said = []
    writer = threading.Thread(target=lambda: said.append(s.post(ask)["choices"][0]["text"]))
    writer.start()
    r = s.post({"input": ids, "dimensions": 16}, PATH)
    writer.join()
    check([d["index"] for d in r["data"]] == list(range(2048)), "in order")
    for i in range(0, 2048, 300):
        check(same(vectors(s, input=ids[i], dimensions=16)[0], r["data"][i]["embedding"]), "alone", i)
    check(said and said[0] == s.post(ask)["choices"][0]["text"], "the text beside them")
    check(s.idle() is True, "idle", s.idle(0))


def chain(*names):
    path = {"Transformer": "", "Pooling": "1_Pooling"}
    return json.dumps([{"idx": i, "name": str(i), "path": path.get(n, f"{i}_{n}"), "type": f"sentence_transformers.models.{n}"} for i, n in enumerate(names)])


def test_model_files():
    """What sentence-transformers' files beside a model say."""
    if not os.path.isdir(DEMO):
        return skip("the model is no folder")
    with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(serve, "MODEL", os.path.join(folder, "demo")):
        path = pathlib.Path(serve.MODEL)
        shutil.copytree(DEMO, path)
        (path / "1_Pooling").mkdir()
        (path / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}))
        (path / "modules.json").write_text(chain("Transformer", "Pooling"))
        s = serve.Server()
        text = "Once upon a time"
        ids = s.post({"prompt": text}, "/tokenize")["tokens"]
        got = vectors(s, input=text)[0]
        s.stop()
        os.remove(path / "modules.json")
        os.remove(path / "1_Pooling/config.json")
        s = serve.Server()  # the state of each token, as the last of a text that ends there
        states = vectors(s, input=[ids[:n + 1] for n in range(len(ids))], normalize=False)
        mean = [sum(column) / len(ids) for column in zip(*states)]
        check(all(abs(a - b) < 1e-5 * math.hypot(*mean) for a, b in zip(got, mean)), "the mean, not of length 1, as they say")
        s.stop()
        (path / "modules.json").write_text(chain("Transformer", "Pooling", "Dense"))
        s = serve.Server()
        e = vectors(s, 400, input=text)["error"]
        check("Dense" in e["message"] and e["code"] == "unsupported_value", e)
        check(s.post({"prompt": "Once", "max_tokens": 3, "ignore_eos": True})["usage"]["completion_tokens"] == 3, "it answers all else")
        s.stop()


def main():
    serve.ONE = [test_answer, test_formats, test_refusals, test_truncation, test_many]
    serve.run(serve.ONE + [test_model_files], [a for a in sys.argv[1:] if a.startswith("test_")])
    return end()


if __name__ == "__main__":
    sys.exit(main())
