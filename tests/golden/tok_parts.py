#!/usr/bin/env python3
"""Every component of a tokenizer.json by itself: small tokenizers of our own with what the `tokenizers` library makes of them.

    tok_parts.py OUT        OUT: tests/golden/tok_parts.json

A case names a base model and components; its hashes are those of tok_vectors.py, for the written texts, for groups of random texts and, where
"chars" is set, for every character of Unicode in blocks. The base "marks" has a token for each byte at a word's beginning and another
for each byte within a word, so that ids show where words were cut.
"""
import json
import os
import sys

from tok_vectors import fnv, ids_hash, line, random_bytes, written_texts
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

RANDOM, GROUP, WRITTEN, BLOCK = 400, 40, 10, 0x2000
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTE_DECODER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
LLAMA_DECODER = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
LLAMA_NORM = {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?"
         r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re)?|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
REGEXES = [
    r"\s", r"\S+", r"\w+", r"\W", r"\d+", r"\D+", r"\h+", r"[\h_]+", r"\H", r"\b", r"\B", r"[[:alpha:]]+", r"[^[:space:]]+", r"[[:punct:]]",
    r"[[:alnum:]]+", r"[[:upper:]][[:lower:]]*", r"[[:digit:]]", r"\p{Han}+", r"\p{^L}+", r"\P{L}", r"\p{Lu}", r"\p{Greek}+", r"\p{Hiragana}|\p{Katakana}",
    r"\p{Letter}+", r"[\p{L}&&[^a-z]]+", r"[a-c[x-z]]+", r"[^a-c[x-z]]+", r"[\w&&[^\d]]+", r"[^\w&&[^\d]]", r"[^\S\n]+", r"[\W\d]+", r"a{2}+", r"a{,2}",
    r"a{2,}?", r"(?:ab){1,2}+", r"x{2", r"(?i)the", r"(?i:THE)", r"^ *", r" *$", r".", r"(?m:.)+", r"\n.", r"(?<=a)b", r"(?<!a)b", r"(?=b)", r"a|",
    r"\u0061", r"\x{4f60}", r"\x61", r"\t", r"[\t\n]", r"[a\-z]", r"[-a]", r"[]a]", r"\.", r"\p{Emoji}", r"\p{M}", r"\p{S}", r"\p{Cc}", r"[\p{P}\p{S}]+",
    r"(a)(b)?\1", r"(?>a+)b", r"\A.", r".\z", r"\R", r"[0-9][0-9][0-9]", r"(?#note)e", r"(?x: a b )", r"\p{Nd}|\p{Nl}|\p{No}", r"[^\p{Cyrillic}]+",
]


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def cut(*steps, **more):
    return {"base": "marks", "pre_tokenizer": sequence(*steps, BYTES), "decoder": BYTE_DECODER, **more}


def normal(*steps, **more):
    n = steps[0] if len(steps) == 1 else {"type": "Sequence", "normalizers": list(steps)}
    return {"base": "marks", "normalizer": n, "pre_tokenizer": BYTES, "decoder": BYTE_DECODER, **more}


def template(single, ids):
    return {"type": "TemplateProcessing", "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}], "single": single,
            "special_tokens": {k: {"id": k, "ids": v, "tokens": [k] * len(v)} for k, v in ids.items()}}


def added(content, number, **flags):
    base = {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {**base, **flags}


def cases():
    text, special = {"Sequence": {"id": "A", "type_id": 0}}, lambda s: {"SpecialToken": {"id": s, "type_id": 0}}
    for b in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield cut(split(r"[\s,]|the", b, invert))
            yield cut(split(" ", b, invert, "String"))
        yield cut({"type": "Punctuation", "behavior": b}, chars=b == "Isolated")
    for r in REGEXES:
        yield cut(split(r), chars=r in (r"\s", r"\w+", r"\d+", r"\p{Han}+", r"[[:alnum:]]+", r"\p{M}", r"\p{S}", r"\p{Emoji}"))
    for r in (LLAMA3, QWEN2, O200K, KIMI, DEEPSEEK, CL100K):
        yield cut(split(r), chars=r in (LLAMA3, O200K))
        yield {"base": "bytes", "pre_tokenizer": sequence(split(r), BYTES), "decoder": BYTE_DECODER}
    yield cut(split(r"\d{1,3}(?=(?:\d{3})*\b)"), split("[a-z]+", "Removed"))
    yield cut({"type": "Digits", "individual_digits": True}, chars=True)
    yield cut({"type": "Digits", "individual_digits": False})
    yield cut({"type": "Whitespace"}, chars=True)
    yield cut({"type": "WhitespaceSplit"}, chars=True)
    yield cut({"type": "BertPreTokenizer"})
    for scheme in ("always", "first", "never"):
        for s in (True, False):
            m = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": s}
            yield cut(m)
            yield cut({"type": "WhitespaceSplit"}, m)
            yield {**normal({"type": "Strip", "strip_left": True, "strip_right": False}), "pre_tokenizer": sequence(m, BYTES)}
            yield cut(m, added_tokens=[added("the", 512), added("<s>", 513, special=True)])
            yield {"base": "spm", "pre_tokenizer": m, "decoder": m}
    yield {"base": "marks", "pre_tokenizer": GPT2, "decoder": BYTE_DECODER, "chars": True}
    yield {"base": "bytes", "pre_tokenizer": {**GPT2, "add_prefix_space": True}, "decoder": BYTE_DECODER}
    yield {"base": "bytes", "pre_tokenizer": sequence({"type": "Punctuation", "behavior": "Contiguous"}, GPT2, {"type": "Digits", "individual_digits": False},
                                                      split("[0-9][0-9][0-9]")), "decoder": BYTE_DECODER}
    for f in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        yield normal({"type": f}, chars=True)
    yield normal({"type": "NFD"}, {"type": "StripAccents"}, {"type": "NFC"}, {"type": "Lowercase"})
    for left in (False, True):
        for right in (False, True):
            yield normal({"type": "Strip", "strip_left": left, "strip_right": right})
    yield normal({"type": "Prepend", "prepend": "xy"})
    for kind, p, c in (("String", "the", "a"), ("String", "a", ""), ("String", "", "z"), ("Regex", r"\s+", " "), ("Regex", r" {2,}", "\u2581"),
                       ("Regex", "x*", "-"), ("Regex", "a|", "+")):
        yield normal({"type": "Replace", "pattern": {kind: p}, "content": c})
    yield {"base": "bytes", "normalizer": {"type": "ByteLevel"}, "pre_tokenizer": None, "decoder": BYTE_DECODER}
    for base in ("spm", "unk"):
        for flags in ({}, {"fuse_unk": True}, {"fuse_unk": False}, {"ignore_merges": True}, {"byte_fallback": False}, {"byte_fallback": True}):
            yield {"base": base, "model": flags, "normalizer": LLAMA_NORM, "decoder": LLAMA_DECODER}
    yield {"base": "bytes", "model": {"ignore_merges": True}, "pre_tokenizer": GPT2, "decoder": BYTE_DECODER}
    yield {"base": "spm", "normalizer": LLAMA_NORM, "decoder": None}
    for base in ("suffix", "prefix"):
        yield {"base": base, "pre_tokenizer": {"type": "Whitespace"}, "decoder": {"type": "BPEDecoder", "suffix": "</w>"}}
        yield {"base": base, "pre_tokenizer": GPT2, "decoder": BYTE_DECODER}
    a, b = 512, 513
    for flags in ({}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}, {"single_word": True}, {"normalized": True},
                  {"special": True}, {"special": True, "normalized": True, "rstrip": True}, {"single_word": True, "lstrip": True, "special": True}):
        tokens = [added("the", a, **flags), added("  ", b), added("\n", 514, **flags), added("the quick", 515), added("<s>", 516, special=True)]
        yield cut(split(r"\s"), added_tokens=tokens)
        yield normal({"type": "Lowercase"}, {"type": "Prepend", "prepend": " "}, added_tokens=tokens)
    specials = [added("<s>", a, special=True), added("</s>", b, special=True), added("<|end|>", 514, special=True)]
    for post in (template([special("<s>"), text], {"<s>": [a]}), template([text, special("</s>")], {"</s>": [b]}),
                 template([special("<s>"), special("<s>"), text, special("</s>")], {"<s>": [a, 514], "</s>": [b]}),
                 {"type": "Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
                                                     template([special("<s>"), text], {"<s>": [a]})]},
                 {"type": "Sequence", "processors": [template([special("<s>"), text], {"<s>": [a]}), template([special("</s>"), text], {"</s>": [b]})]},
                 {"type": "RobertaProcessing", "sep": ["</s>", b], "cls": ["<s>", a], "trim_offsets": True, "add_prefix_space": False},
                 {"type": "BertProcessing", "sep": ["</s>", b], "cls": ["<s>", a]}):
        yield cut(added_tokens=specials, post_processor=post)


def words_of(texts):
    return sorted({w for t in texts for w in t.split() if w.isprintable()})


def model_cases():
    """Models without merges, and what comes with them."""
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    whole = {**metaspace, "split": False}
    yield {"base": "unigram", "pre_tokenizer": metaspace, "decoder": metaspace, "chars": True}
    yield {"base": "unigram", "pre_tokenizer": whole, "decoder": metaspace}
    yield {"base": "unigram", "model": {"unk_id": None}, "pre_tokenizer": metaspace, "decoder": metaspace}
    yield {"base": "unigram-bytes", "pre_tokenizer": metaspace, "decoder": metaspace}
    yield {"base": "unigram-bytes", "model": {"byte_fallback": True}, "pre_tokenizer": whole, "decoder": metaspace}
    yield {"base": "unigram-ties", "pre_tokenizer": whole, "decoder": metaspace}
    bert = {"type": "BertPreTokenizer"}
    for clean in (False, True):
        for cjk in (False, True):
            for accents, lower in ((None, True), (None, False), (True, False), (False, True)):
                yield {"base": "wordpiece", "normalizer": {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": cjk,
                                                           "strip_accents": accents, "lowercase": lower},
                       "pre_tokenizer": bert, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": clean}, "chars": accents is None and lower}
    yield {"base": "wordpiece", "model": {"max_input_chars_per_word": 3}, "pre_tokenizer": bert, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}
    yield {"base": "wordpiece", "model": {"continuing_subword_prefix": ""}, "pre_tokenizer": bert, "decoder": {"type": "WordPiece", "prefix": "t", "cleanup": False}}
    yield {"base": "wordlevel", "pre_tokenizer": {"type": "WhitespaceSplit"}}
    yield cut({"type": "CharDelimiterSplit", "delimiter": "e"})
    yield cut({"type": "CharDelimiterSplit", "delimiter": "\u00e9"})
    for n in (1, 3, 5):
        yield cut({"type": "FixedLength", "length": n})
    yield normal({"type": "Nmt"}, chars=True)
    yield normal({"type": "Precompiled", "precompiled_charsmap": small_charsmap()}, chars=True)


def small_charsmap():
    """A table of a few rules (one a line: the characters, and what they become), as sentencepiece's trainer makes it."""
    import base64
    import io
    import tempfile

    import sentencepiece
    from spm_to_json import fields
    rules = {"\u00e9": "e", "e\u0301": "E", "\u00e9\u0301": "x", "\u4f60": "ni", "\u4f60\u597d": "hao", "th": "T", "\u0130": "", "\u1100\u1161": "\uac00",
             "\U0001f600": ":)", "\U0001f468\u200d": "man", "\u0915\u094d": "k", "\r\n": "\n", "\u00a0": " ", "\u3000": " "}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as f:
        for a, b in rules.items():
            f.write(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n")
        f.flush()
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c"] * 9), model_writer=model, vocab_size=8, hard_vocab_limit=False,
                                                 normalization_rule_tsv=f.name, minloglevel=2)
    return base64.b64encode(dict(fields(dict(fields(model.getvalue()))[3]))[2]).decode()


def bases(texts):
    from tokenizers.pre_tokenizers import ByteLevel
    corpus = [t.decode("utf-8", "replace") for t in texts]
    alphabet = sorted(ByteLevel.alphabet())
    out = {"marks": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "##", "end_of_word_suffix": None, "fuse_unk": False,
                     "byte_fallback": False, "ignore_merges": False,
                     "vocab": {**{c: i for i, c in enumerate(alphabet)}, **{"##" + c: 256 + i for i, c in enumerate(alphabet)}}, "merges": []}}

    def train(name, model, pre, norm=None, **how):
        t = Tokenizer(model)
        t.pre_tokenizer = pre
        if norm:
            t.normalizer = norm
        t.train_from_iterator(corpus, trainers.BpeTrainer(show_progress=False, min_frequency=2, **how))
        out[name] = json.loads(t.to_str())["model"]

    train("bytes", models.BPE(), ByteLevel(add_prefix_space=False), vocab_size=700, initial_alphabet=alphabet)
    byte_tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    train("spm", models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True), pre_tokenizers.Metaspace(), vocab_size=700, limit_alphabet=120,
          special_tokens=byte_tokens)
    train("unk", models.BPE(unk_token="<unk>"), pre_tokenizers.Metaspace(), vocab_size=400, limit_alphabet=60, special_tokens=["<unk>"])
    train("suffix", models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"), pre_tokenizers.Whitespace(), vocab_size=500, limit_alphabet=80,
          special_tokens=["<unk>"], end_of_word_suffix="</w>")
    train("prefix", models.BPE(unk_token="<unk>", continuing_subword_prefix="##"), pre_tokenizers.Whitespace(), vocab_size=500, limit_alphabet=80,
          special_tokens=["<unk>"], continuing_subword_prefix="##")
    def unigram(name, more, **how):
        t = Tokenizer(models.Unigram())
        t.pre_tokenizer = pre_tokenizers.Metaspace()
        t.train_from_iterator(["".join(c for c in x if c.isascii() and c.isprintable() or c == "\u00e9") for x in corpus],
                              trainers.UnigramTrainer(show_progress=False, vocab_size=300, unk_token="<unk>", special_tokens=["<unk>", "<s>"], **how))
        out[name] = json.loads(t.to_str())["model"]
        out[name]["vocab"] = [[w, round(s, 3)] for w, s in out[name]["vocab"]] + more

    unigram("unigram", [])
    unigram("unigram-bytes", [[f"<0x{b:02X}>", -19.5] for b in range(256)])
    # Sums that are equal on purpose: which way goes first shows.
    ties = ["a", "b", "ab", "ba", "aa", "aab", "\u2581", "\u2581a", "the", "th", "e", "he", "t", "h", "\u00e9", "\U0001f600"]
    out["unigram-ties"] = {"type": "Unigram", "unk_id": 0, "byte_fallback": False,
                           "vocab": [["<unk>", 0.0]] + [[w, -float(len(w))] for w in ties]}
    words = words_of(corpus)
    letters = sorted({c for w in words for c in w if ord(c) < 0x600 and c.isprintable()})
    vocab = ["[UNK]"] + letters + ["##" + c for c in letters] + [w for w in words if w.isascii() and len(w) < 12][:80] + ["##ing", "##ed", "t", "th", "he", "##he"]
    out["wordpiece"] = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                        "vocab": {w: i for i, w in enumerate(dict.fromkeys(vocab))}}
    out["wordlevel"] = {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {w: i for i, w in enumerate(dict.fromkeys(["[UNK]"] + words[:100] + ["the", "a"]))}}
    return out


def blocks():
    for start in list(range(0, 0x30000, BLOCK)) + [0xE0000]:
        yield "".join("a" + chr(c) for c in range(start, start + BLOCK) if not 0xD800 <= c < 0xE000).encode()


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    written = written_texts(os.path.join(here, "tok_texts.txt"))
    models_of = bases(written)
    rows = []
    for case in [*cases(), *model_cases()]:
        case = {k: v for k, v in case.items() if not (k == "chars" and not v)}
        model = {**models_of[case["base"]], **case.get("model", {})}
        whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": case.get("added_tokens", []), "normalizer": case.get("normalizer"),
                 "pre_tokenizer": case.get("pre_tokenizer"), "post_processor": case.get("post_processor"), "decoder": case.get("decoder"), "model": model}
        try:
            tok = Tokenizer.from_str(json.dumps(whole))
        except Exception as e:  # the reference cannot: neither is it tested
            print("left out:", json.dumps(case)[:160], e, file=sys.stderr)
            continue
        try:
            case["written"] = [line(tok, written[i:i + WRITTEN]) for i in range(0, len(written), WRITTEN)]
            case["random"] = [line(tok, [random_bytes(k) for k in range(i, i + GROUP)]) for i in range(0, RANDOM, GROUP)]
            if case.get("chars"):
                case["chars"] = [line(tok, [b]) for b in blocks()]
        except BaseException as e:  # a panic of the library
            print("left out:", json.dumps({k: v for k, v in case.items() if k not in ("written", "random")})[:300], repr(e)[:100], file=sys.stderr)
            continue
        rows.append(case)
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write('{"bases": %s, "cases": [\n' % json.dumps(models_of))
        f.write(",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]}\n")


if __name__ == "__main__":
    main()
