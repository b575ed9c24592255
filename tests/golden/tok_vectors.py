#!/usr/bin/env python3
"""Expected results of the tokenizer tests, from the `tokenizers` library.

    tok_vectors.py DATA OUT        DATA: the third-party data; OUT: tests/golden/tok_vectors.txt

The file holds no text and no ids: for every tokenizer.json and every group of texts one line of three hashes (of the ids with special tokens
added and parsed; of the ids with neither; of the text decoded from the first). The texts come from a seeded generator that
tests/unit/test_tokenizer.c has too, from tests/golden/tok_texts.txt, and from the beginnings of files of DATA.
"""
import json
import os
import sys

GROUP = 20      # random strings in one line
RANDOM = 2400
FILE_BYTES = 20480
TOKENIZERS = [
    "tokenizers/hf/llama2", "tokenizers/hf/phi-3-mini", "tokenizers/hf/phi-2", "tokenizers/hf/falcon-tokenizer",
    "tokenizers/pythia", "tokenizers/minimind/model", "calib_data/demo",
]
FILES = [
    "text/wiki.test.raw", "text/tinyshakespeare.txt", "text/war-and-peace.txt", "text/exllamav2-cal/c4.utf8",
    "text/exllamav2-cal/code.utf8", "text/exllamav2-cal/multilingual.utf8", "text/exllamav2-cal/technical.utf8",
    "text/exllamav2-cal/tiny.utf8", "text/exllamav2-cal/wiki.utf8", "tokenizers/sentencepiece/data/wagahaiwa_nekodearu.txt",
    "tokenizers/tiktoken/test/Microsoft.ML.Tokenizers.Tests/Data/lib.rs.txt", "tokenizers/llama2/tokenizer.model",
]
# Ranges of characters a random string draws from, by kind.
KINDS = [
    [(0x20, 0x7E)],
    [(0x20, 0x20), (0x20, 0x20), (0x0A, 0x0A), (0x09, 0x0D), (0xA0, 0xA0), (0x2000, 0x200B), (0x3000, 0x3000), (0x61, 0x66), (0x1680, 0x1680),
     (0x180E, 0x180E), (0x85, 0x85)],
    [(0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x300, 0x36F), (0x1E00, 0x1EFF), (0x20, 0x20), (0x1100, 0x11FF), (0xAC00, 0xD7A3)],
    [(0x4E00, 0x9FFF), (0x3040, 0x30FF), (0xAC00, 0xD7A3), (0x3000, 0x303F), (0xF900, 0xFAD9), (0x20000, 0x20100), (0x30, 0x39)],
    [(0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA), (0x620, 0x65F), (0x900, 0x97F), (0xE01, 0xE5B), (0x20, 0x20), (0x1E900, 0x1E95F)],
    [(0x1F300, 0x1F6FF), (0x1F900, 0x1F9FF), (0x200D, 0x200D), (0xFE0F, 0xFE0F), (0x1F1E6, 0x1F1FF), (0x2190, 0x27BF), (0x20, 0x7E)],
    [(0x30, 0x39), (0x660, 0x669), (0x966, 0x96F), (0xB2, 0xB3), (0xBC, 0xBE), (0x2150, 0x218B), (0x2460, 0x249B), (0x2010, 0x2027), (0x21, 0x2F),
     (0x3008, 0x3011), (0xFF01, 0xFF1F), (0x1D7CE, 0x1D7FF)],
    [(0x00, 0x20), (0x00, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x7F, 0x9F)],
]
PIECES = [
    "the", " the", " a", "ing", "'s", "'LL", "'Ve", " don't", "\n", "\n\n", "  ", "   ", "\t", "\r\n", "1", "2024", "3.14", ",", ".", "!?", "...",
    "<s>", "</s>", "<unk>", "<|endoftext|>", "<|end|>", "<|user|>", "<|im_start|>", "<|begin|>", "<think>", "<0x0A>", "<0xE2>", "\u2581", "\u2581the",
    "\u00e9", "e\u0301", "\u0130", "\u00df", "\u017f", "\U0001f600", "\u4f60\u597d", "if (x) {", "};", "=====", "a_b", "__init__", "#", "@",
    ">>TITLE<<", "[PAD]", "\u00a0", "\u200b", "\ufffd",
]


class Random:
    """splitmix64"""

    def __init__(self, seed):
        self.s = seed

    def next(self, n):
        self.s = (self.s + 0x9E3779B97F4A7C15) & (2**64 - 1)
        z = self.s
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
        return (z ^ (z >> 31)) % n


def random_bytes(index):
    r = Random(index)
    kind = index % (len(KINDS) + 2)
    if kind == len(KINDS):
        return bytes(r.next(256) for _ in range(1 + r.next(40)))
    if kind > len(KINDS):
        return "".join(PIECES[r.next(len(PIECES))] for _ in range(1 + r.next(24))).encode()
    out = []
    for _ in range(1 + r.next(60)):
        low, high = KINDS[kind][r.next(len(KINDS[kind]))]
        out.append(chr(low + r.next(high - low + 1)))
    if r.next(4) == 0:
        out *= 1 + r.next(6)
    return "".join(out).encode()


def fnv(h, data):
    for b in data:
        h = ((h ^ b) * 0x01000193) & 0xFFFFFFFF
    return h


def ids_hash(h, ids):
    return fnv(h, b"".join(i.to_bytes(4, "little") for i in ids) + b"\xff\xff\xff\xff")


def tokenizer_open(path):
    from tokenizers import Tokenizer
    with open(path, encoding="utf-8") as f:
        j = json.load(f)
    vocab, merges = j["model"]["vocab"], []
    for m in j["model"]["merges"]:  # tokens with spaces make "a b" ambiguous, which the library refuses
        if isinstance(m, str):
            cuts = [i for i, c in enumerate(m) if c == " " and m[:i] in vocab and m[i + 1:] in vocab]
            m = [m[:cuts[0]], m[cuts[0] + 1:]]
        merges.append(m)
    j["model"]["merges"] = merges
    return Tokenizer.from_str(json.dumps(j))


def line(tok, texts):
    a = b = c = 0x811C9DC5
    for raw in texts:
        text = raw.decode("utf-8", "replace")
        tok.encode_special_tokens = False
        ids = tok.encode(text).ids
        a = ids_hash(a, ids)
        c = fnv(c, tok.decode(ids, skip_special_tokens=False).encode() + b"\0")
        tok.encode_special_tokens = True
        b = ids_hash(b, tok.encode(text, add_special_tokens=False).ids)
    return f"{a:08x} {b:08x} {c:08x}"


def written_texts(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(s).encode("utf-8", "surrogatepass") for s in f if s.startswith('"')]


def main():
    data, out = sys.argv[1:3]
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    written = written_texts(os.path.join(here, "tok_texts.txt"))
    rows = [f"random {RANDOM} {GROUP}"]
    for name in TOKENIZERS:
        path = os.path.join(root if name.startswith("calib") else data, name, "tokenizer.json")
        tok = tokenizer_open(path)
        with open(path, "rb") as f:
            rows.append(f"tokenizer {fnv(0x811C9DC5, f.read()):08x} {name}")
        for t in written:
            rows.append("written " + line(tok, [t]))
        for i in range(0, RANDOM, GROUP):
            rows.append("random " + line(tok, [random_bytes(k) for k in range(i, i + GROUP)]))
        for file in FILES:
            with open(os.path.join(data, file), "rb") as f:
                rows.append(f"file {line(tok, [f.read(FILE_BYTES)])} {file}")
    with open(out, "w", encoding="utf-8") as f:
        f.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
