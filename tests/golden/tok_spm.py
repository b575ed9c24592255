#!/usr/bin/env python3
"""Small models of sentencepiece with what its own package makes of texts.

    tok_spm.py OUT        OUT: tests/golden/tok_spm.json

Each case is a model that was trained here on the written texts (base64 of its file), with two hashes for each group of texts: of the ids, and
of the text decoded from them. The texts are those of tok_vectors.py.
"""
import base64
import io
import json
import os
import sys
import tempfile

import sentencepiece
from spm_to_json import fields
from tok_vectors import fnv, ids_hash, random_bytes, written_texts

RANDOM, GROUP, WRITTEN, LONG = 1200, 60, 10, 1000
RULES = {"\u00e9": "e", "e\u0301": "E", "\u00e9\u0301": "x", "\u4f60": "ni", "\u4f60\u597d": "hao", "th": "T", "\u0130": "", "\uff01": "!", "\U0001f600": ": )",
         "\r\n": "\n", "\n": " ", "\t": " ", "\u00a0": " ", "\u3000": " ", "...": "  "}
UNUSED = 5


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def changed(model, kind=0, every=1, normalizer=b""):
    """The same model with another type of every n-th normal piece of more than one character, and more said of its normalizer."""
    out, seen = b"", 0
    for number, value in fields(model):
        if number == 3:
            value += normalizer
        if number == 1:
            piece = dict(fields(value))
            if 3 not in piece and len(piece[1].decode()) > 1:
                seen += 1
                if kind and seen % every == 0:
                    value += b"\x18" + bytes([kind])
        out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def train(texts, **how):
    model = io.BytesIO()
    known = "".join(c for t in texts for c in t.decode("utf-8", "replace") if " " <= c < "\x7f" or c in "\n\u00e9\u00df\u4f60\u597d\U0001f600")
    lines = [s for s in known.split("\n") if s]
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as f:
        for a, b in RULES.items():
            f.write(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n")
        f.flush()
        if how.pop("rules", False):
            how["normalization_rule_tsv"] = f.name
        else:
            how["normalization_rule_name"] = "identity"
        options = {"vocab_size": 360, "character_coverage": 1.0, "hard_vocab_limit": False, "minloglevel": 2, **how}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **options)
    return model.getvalue()


def cases(texts):
    users = {"user_defined_symbols": ["the quick", "\u00e9\u00e9", "  ", "=====", "<|end|>", "ab"], "control_symbols": ["<s2>", "[PAD]"]}
    plain = {"add_dummy_prefix": False, "remove_extra_whitespaces": False}
    for kind in ("bpe", "unigram"):
        how = {"model_type": kind}
        yield train(texts, **how)
        yield train(texts, **how, rules=True, **users)
        yield train(texts, **how, **plain, byte_fallback=True, vocab_size=600, split_digits=True, **users)
        yield train(texts, **how, treat_whitespace_as_suffix=True, rules=True, allow_whitespace_only_pieces=True)
        yield changed(train(texts, **how, byte_fallback=True, vocab_size=600, remove_extra_whitespaces=False), UNUSED, 3)
        yield changed(train(texts, **how, unk_surface="?", unk_id=5, bos_id=3, eos_id=-1, vocab_size=200), normalizer=b"\x28\0")  # no marks
    yield train(texts, model_type="char", rules=True)
    yield train(texts, model_type="char", **plain, byte_fallback=True, vocab_size=600, **users)


def hashes(sp, texts):
    a = b = 0x811C9DC5
    for raw in texts:
        ids = sp.encode(raw.decode("utf-8", "replace"))
        a = ids_hash(a, ids)
        b = fnv(b, sp.decode(ids).encode() + b"\0")
    return f"{a:08x} {b:08x}"


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    written = written_texts(os.path.join(here, "tok_texts.txt"))
    rows = []
    for model in cases(written):
        sp = sentencepiece.SentencePieceProcessor(model_proto=model)
        rows.append({
            "model": base64.b64encode(model).decode(),
            "written": [hashes(sp, written[i:i + WRITTEN]) for i in range(0, len(written), WRITTEN)],
            "long": hashes(sp, [b"".join(random_bytes(k) for k in range(LONG) if k % 10 < 8)]),  # sums of scores past what a float holds
            "random": [hashes(sp, [random_bytes(k) for k in range(i, i + GROUP)]) for i in range(0, RANDOM, GROUP)],
        })
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


if __name__ == "__main__":
    main()
