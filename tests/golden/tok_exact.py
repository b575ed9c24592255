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


def around(single, pair, ids):
    """A template by its pieces: "A" and "B" are texts, else a special token."""
    piece = lambda k: {"Sequence": {"id": k, "type_id": 0}} if k in "AB" else {"SpecialToken": {"id": k, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [piece(k) for k in single], "pair": [piece(k) for k in pair],
            "special_tokens": {k: {"id": k, "ids": v, "tokens": [k] * len(v)} for k, v in ids.items()}}


def post_cases():
    """What a step adds stands apart from the text, and the next step sees pieces: a template its pair, the others each piece."""
    tokens = ["a", "b", "<1>", "<2>", "<3>", "<4>"]
    ids = {"<1>": [2], "<2>": [3], "<34>": [4, 5]}
    bos, eos = around(["<1>", "A"], ["<2>", "A", "B"], ids), around(["A", "<34>"], ["B", "<34>", "A", "<2>"], ids)
    both, last = around(["<1>", "A", "<2>"], ["A", "B", "<1>"], ids), around(["A"], ["B"], ids)
    bert = {"type": "BertProcessing", "sep": ["<3>", 4], "cls": ["<4>", 5]}
    roberta = {"type": "RobertaProcessing", "sep": ["<3>", 4], "cls": ["<4>", 5], "trim_offsets": True, "add_prefix_space": False}
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    for steps in ([bos, eos], [eos, bos], [bos, bos], [bos, last], [bert, bos], [bos, bert], [bos, roberta], [roberta, eos], [both, bert], [both, roberta],
                  [bert, roberta], [roberta, bert, eos, level, bos], [level, both, level, bert, roberta], [bos, bert, eos]):
        yield {"model": bpe(tokens), "post_processor": {"type": "Sequence", "processors": steps}, "texts": ["ab", "", "b"]}


def first_cases():
    """Metaspace's "first": the word of which the text's first character became the beginning, whatever steps made of it."""
    metaspace = {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": False}
    split = lambda p, b: {"type": "Split", "pattern": {"Regex": p}, "behavior": b, "invert": False}
    replace = lambda p, c: {"type": "Replace", "pattern": {"Regex": p}, "content": c}
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    texts = ["ab ab", " ab", "\u00e9a \u00e9", "e\u0301\u0323a", "bab", "  b", "\ufb01a", "ABa", "\u0301b", "ab<x>ab", "\u4f60a", "\x01ab"]
    empty = replace("(?=b)", "a")  # at the beginning it stands for nothing, which makes the library's ByteLevel fail
    for norm in (None, replace("a", "b"), replace("ab", "b"), replace("a+", ""), empty, {"type": "Prepend", "prepend": "ab"}, {"type": "NFD"},
                 {"type": "NFKC"}, {"type": "NFC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Nmt"},
                 {"type": "StripAccents"}, {"type": "ByteLevel"}, {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                                                                  "strip_accents": True, "lowercase": True},
                 {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "a"}, replace("^.", "b")]},
                 {"type": "Sequence", "normalizers": [{"type": "NFKD"}, replace("f", "ab")]}):
        for steps in ([{"type": "FixedLength", "length": 1}], [split("a", "Removed")], [level]):
            if norm is empty and steps == [level]:
                continue
            yield {"model": bpe(["_", "a", "b", "e", "\u0301", "f", "i", "<x>", "\u0120", "\u00e9", "\u4f60"]), "normalizer": norm, "texts": texts,
                   "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, metaspace]}, "added_tokens": [added("<x>", 7)], "decode": False}


def decoder_cases():
    """What BPEDecoder and ByteFallback make of a token depends on its place and on the steps before them."""
    pieces = ["\u2581", "a", "b</w>", "</w>", "x", "##a", "\u0120", "\u0120</w>", "c", "d", " ", "a "]
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    replace = lambda p, c: {"type": "Replace", "pattern": {"String": p}, "content": c}
    suffix, fallback, wordpiece = {"type": "BPEDecoder", "suffix": "</w>"}, {"type": "ByteFallback"}, {"type": "WordPiece", "prefix": "##", "cleanup": False}
    ids = [[0, 0], [1, 0], [2], [2, 2], [3, 3], [2, 4], [4, 12], [12, 12, 2], [7, 6], [6, 7], [11, 11], [10, 10], [5, 5, 1], [12, 14]]
    for steps in ([suffix], [suffix, metaspace], [metaspace, suffix], [suffix, replace("a", " ")], [suffix, wordpiece], [wordpiece, suffix]):
        yield {"model": bpe(pieces), "added_tokens": [added("y</w>", 12, special=True), added("z", 13), added("w</w>", 14)],
               "decoder": {"type": "Sequence", "decoders": steps}, "ids": ids}
    byte = lambda text: [12 + b for b in text]
    for steps in ([wordpiece, fallback], [metaspace, fallback], [replace("<0xC3>", "c"), fallback], [replace("c", "<0xC3>"), fallback, {"type": "Fuse"}]):
        yield {"model": bpe(pieces + FALLBACK), "decoder": {"type": "Sequence", "decoders": steps},
               "ids": [byte(b"\xc3\xa9"), [1] + byte(b"\xc3\xa9"), byte(b"\xc3") + [1], byte(b"ab"), [8] + byte(b"\xa9"), [0] + byte(b"\xff") + [0]]}


def cases():
    yield from decoder_cases()
    yield from post_cases()
    yield from first_cases()
    words = ["[UNK]", "\u0120", "\u0120the", "the", "\u00c3\u00a9", "\u00e9", "t", "##h", "##e", "\u00c3", "##\u00a9"]
    texts = ["the the", " the", "\u00e9", "the\u00e9", "x", "\n"]
    for model in ({"type": "WordLevel", "unk_token": "[UNK]", "vocab": {w: i for i, w in enumerate(words)}},
                  {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                   "vocab": {w: i for i, w in enumerate(words)}},
                  {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": [[w, -float(i)] for i, w in enumerate(words)]},
                  bpe(["a", "\u0120"] + FALLBACK, byte_fallback=True), bpe(["a", "\u0120", "<unk>"], unk_token="<unk>")):
        yield {"model": model, "pre_tokenizer": BYTES, "texts": texts + ["a a", "a\u00e9a"]}
    yield {"model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": [["<u>", 0], ["a", -1], ["<u>", -2], ["a", -3], ["<x>", -4]]},
           "added_tokens": [added("<u>", 2, special=True), added("<x>", 4, special=True)], "decoder": {"type": "Fuse"}, "ids": [[0, 1, 2, 3, 4, 1]]}
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
                 "pre_tokenizer": case.get("pre_tokenizer"), "post_processor": case.get("post_processor"), "decoder": case.get("decoder"), "model": case["model"]}
        tok = Tokenizer.from_str(json.dumps(whole))
        row = {"tokenizer": {k: v for k, v in whole.items() if v}, "texts": [], "ids": []}
        for text in case.get("texts", []):
            ids = tok.encode(text).ids
            if case.get("decode", True):
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
