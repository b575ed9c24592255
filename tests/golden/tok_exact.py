#!/usr/bin/env python3
"""Corners of tokenizer.json where what the `tokenizers` library does has to be asked: ids, pieces and texts, as they are.

    tok_exact.py OUT        OUT: tests/golden/tok_exact.json

A row has a tokenizer, "texts" of [text, ids, ids of the plain text] and "ids" of [ids, their pieces, the text, the text
without special tokens].
"""
import json
import random
import struct
import sys

from tokenizers import Tokenizer

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
LLAMA_DECODER = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
FALLBACK = [f"<0x{b:02X}>" for b in range(256)]


def bpe(tokens, **more):
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
            "byte_fallback": False, "ignore_merges": False, "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [], **more}


def added(content, number, **flags):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False, **flags}


def scores():
    """Pieces of one letter whose scores are floats written as doubles: how sums are rounded decides where a run is cut."""
    r = random.Random(7)
    score = lambda: -struct.unpack("f", struct.pack("f", 2 + 9 * r.random()))[0]
    return [["<unk>", 0.0]] + [[w * k, score()] for w in "ab" for k in (1, 2, 3, 5, 8, 16)] + [["abab", score()], ["ba", score()]]


def cases():
    words = ["[UNK]", "\u0120", "\u0120the", "the", "\u00c3\u00a9", "\u00e9", "t", "##h", "##e", "\u00c3", "##\u00a9"]
    texts = ["the the", " the", "\u00e9", "the\u00e9", "x", "\n"]
    for model in ({"type": "WordLevel", "unk_token": "[UNK]", "vocab": {w: i for i, w in enumerate(words)}},
                  {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                   "vocab": {w: i for i, w in enumerate(words)}},
                  {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": [[w, -float(i)] for i, w in enumerate(words)]},
                  bpe(["a", "\u0120"] + FALLBACK, byte_fallback=True), bpe(["a", "\u0120", "<unk>"], unk_token="<unk>")):
        yield {"model": model, "pre_tokenizer": BYTES, "texts": texts + ["a a", "a\u00e9a"]}
    byte = lambda text: [3 + b for b in text]
    yield {"model": bpe(["\u2581", "a", "<s>"] + FALLBACK, byte_fallback=True), "added_tokens": [added("<s>", 2, special=True)], "decoder": LLAMA_DECODER,
           "ids": [byte(b) for b in (b"ab", b"\n", "\u00e9".encode(), b"\xc3", b"a\xc3", b"\xc3a", b"\xa9\xc3\xa9", b"\xc3\xa9\xc3", b"\xf0\x9f\x98\x80\n",
                                     b"\n\xf0\x9f\x98", b"\xe4\xbd\xa0\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b" \xff", b"\x00\xf8a")] +
           [byte(b"\xc3") + [2] + byte(b"\xa9"), byte(b"a\xc3") + [1] + byte(b"\xa9b"), [0] + byte(b"a\xff") + [0, 1] + byte(b"b"), [2] + byte(b"\xff") + [2]]}
    for n in ({"type": "Lowercase"}, {"type": "Prepend", "prepend": "_"}, {"type": "NFD"}, {"type": "ByteLevel"},
              {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}):
        yield {"model": bpe(["a", "b", "_", "\u2581", "\u00c9"]), "normalizer": n, "decoder": BYTES if n["type"] == "ByteLevel" else {"type": "Fuse"},
               "added_tokens": [added("\u00c9", 4, normalized=True), added("<X>", 5, normalized=True), added("<Y>", 6), added("<\u00c9>", 7)],
               "texts": ["a\u00c9b", "<X>", "a<X>b", "<Y>\u00c9", "a <X>\u00e9"], "ids": [[0, 4, 1], [4, 5, 6, 7], [5, 0]]}
    yield {"model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": scores()},
           "texts": ["a" * k for k in range(1, 60, 2)] + ["b" * k for k in range(2, 60, 2)] + ["ab" * k + "b" * k for k in range(1, 20)]}


def main():
    rows = []
    for case in cases():
        whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": case.get("added_tokens", []), "normalizer": case.get("normalizer"),
                 "pre_tokenizer": case.get("pre_tokenizer"), "post_processor": None, "decoder": case.get("decoder"), "model": case["model"]}
        tok = Tokenizer.from_str(json.dumps(whole))
        row = {"tokenizer": whole, "texts": [], "ids": []}
        for text in case.get("texts", []):
            ids = tok.encode(text).ids
            row["ids"].append(ids)
            tok.encode_special_tokens = True
            row["texts"].append([text, ids, tok.encode(text, add_special_tokens=False).ids])
            tok.encode_special_tokens = False
        row["ids"] = [[ids, [tok.id_to_token(i) for i in ids], tok.decode(ids, skip_special_tokens=False), tok.decode(ids)]
                      for ids in row["ids"] + case.get("ids", [])]
        rows.append(row)
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]\n")


if __name__ == "__main__":
    main()
