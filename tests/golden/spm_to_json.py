#!/usr/bin/env python3
"""tokenizer.json from a sentencepiece BPE model, or from a tiktoken file of ranks: for tests, standard library only.

    spm_to_json.py tokenizer.model OUT.json                     sentencepiece: as Llama's conversion has it, with byte fallback
    spm_to_json.py --tiktoken llama3|cl100k|o200k|gpt2 FILE OUT.json

Refuses models that are not BPE, and sentencepiece models that normalize by a table.
"""
import base64
import json
import struct
import sys

GPT2 = None
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
WORDS = {"gpt2": GPT2, "llama3": LLAMA3, "cl100k": LLAMA3, "o200k": O200K}
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def fields(b):
    """(number, value) of a protobuf message; a value is an int, a float's four bytes or a length-delimited string."""
    i = 0

    def varint():
        nonlocal i
        v = shift = 0
        while True:
            v |= (b[i] & 127) << shift
            shift += 7
            i += 1
            if not b[i - 1] & 128:
                return v

    while i < len(b):
        key = varint()
        number, wire = key >> 3, key & 7
        if wire == 0:
            yield number, varint()
        elif wire in (1, 5):
            n = 8 if wire == 1 else 4
            yield number, b[i:i + n]
            i += n
        elif wire == 2:
            n = varint()
            yield number, b[i:i + n]
            i += n
        else:
            raise SystemExit(f"wire type {wire}: not a sentencepiece model")


def spm_read(path):
    with open(path, "rb") as f:
        top = list(fields(f.read()))
    pieces = []
    for number, value in top:
        if number == 1:
            piece = dict(fields(value))
            score = struct.unpack("<f", piece[2])[0] if 2 in piece else 0.0
            pieces.append((piece[1].decode(), score, piece.get(3, NORMAL)))
    trainer = dict(fields(dict(top)[2])) if 2 in dict(top) else {}
    normal = dict(fields(dict(top)[3])) if 3 in dict(top) else {}
    if trainer.get(3, 1) != 2:
        raise SystemExit("not a BPE model")
    if normal.get(2):
        raise SystemExit(f"normalizes by a table ({normal.get(1, b'').decode()})")
    return pieces, trainer, normal


def spm_merges(pieces, vocab):
    """Every way to join two pieces into a third, best score first."""
    merges = []
    for text, score, _ in pieces:
        ways = [(text[:i], text[i:]) for i in range(1, len(text)) if text[:i] in vocab and text[i:] in vocab]
        ways.sort(key=lambda w: (vocab[w[0]], vocab[w[1]]))
        merges += [(score, a, b) for a, b in ways]
    merges.sort(key=lambda m: (m[0], len(m[1]), len(m[2])), reverse=True)
    return [[a, b] for _, a, b in merges]


def spm_convert(path):
    pieces, trainer, normal = spm_read(path)
    vocab = {text: i for i, (text, _, _) in enumerate(pieces)}
    usable = [p for p in pieces if p[2] in (NORMAL, USER)]
    special = [(i, t) for i, (t, _, k) in enumerate(pieces) if k in (UNKNOWN, CONTROL)]
    bos = next((t for _, t in special if t == "<s>"), None)
    steps = []
    if normal.get(4, 1):  # remove_extra_whitespaces
        steps += [{"type": "Replace", "pattern": {"Regex": r}, "content": c} for r, c in (("\\A +|[ \u2581]+\\z", ""), (" {2,}", " "))]
    if normal.get(3, 1):  # add_dummy_prefix
        steps.append({"type": "Prepend", "prepend": "\u2581"})
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"})
    text = {"Sequence": {"id": "A", "type_id": 0}}
    post = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, text], "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {bos: {"id": bos, "ids": [vocab[bos]], "tokens": [bos]}}} if bos else None
    unk = next(t for t, _, k in pieces if k == UNKNOWN)
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i, t in special],
        "normalizer": {"type": "Sequence", "normalizers": steps}, "pre_tokenizer": None, "post_processor": post,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1 if normal.get(3, 1) else 0, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": unk, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True,
                  "byte_fallback": any(k == BYTE for _, _, k in pieces), "ignore_merges": False, "vocab": vocab, "merges": spm_merges(usable, vocab)},
    }


def byte_chars():
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return [chr(b) if b in own else chr(next(other)) for b in range(256)]


def parts(ranks, token, below):
    """The two parts that merge into the token, by merging while ranks are below its own."""
    p = [bytes([b]) for b in token]
    while len(p) > 2:
        rank, i = min((ranks.get(p[i] + p[i + 1], below), i) for i in range(len(p) - 1))
        if rank >= below:
            return None
        p[i:i + 2] = [p[i] + p[i + 1]]
    return p


def tiktoken_convert(kind, path):
    with open(path, "rb") as f:
        ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in f if line.strip())}
    chars = byte_chars()

    def mapped(token):
        return "".join(chars[b] for b in token)

    merges = []
    for token, rank in sorted(ranks.items(), key=lambda x: x[1]):
        p = parts(ranks, token, rank) if len(token) > 1 else None
        if p:
            merges.append([mapped(p[0]), mapped(p[1])])
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": WORDS[kind] is None}
    split = {"type": "Split", "pattern": {"Regex": WORDS[kind]}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]} if WORDS[kind] else level, "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": kind != "gpt2", "vocab": {mapped(t): r for t, r in ranks.items()}, "merges": merges},
    }


def main():
    args = sys.argv[1:]
    if len(args) == 4 and args[0] == "--tiktoken" and args[1] in WORDS:
        out, whole = args[3], tiktoken_convert(args[1], args[2])
    elif len(args) == 2:
        out, whole = args[1], spm_convert(args[0])
    else:
        raise SystemExit(__doc__)
    with open(out, "w", encoding="utf-8") as f:
        json.dump(whole, f, ensure_ascii=False)


if __name__ == "__main__":
    main()
