#!/usr/bin/env python3
"""Makes a small seed corpus for the fuzzers, the same bytes each time: make_corpus.py FOLDER writes FOLDER/safetensors, FOLDER/json,
FOLDER/template and FOLDER/config.

The .lq files are made from docs/FORMAT.md alone, so they also test that the text says enough."""
import json
import os
import struct
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden"))
import models  # noqa: E402
import models_gpt  # noqa: E402
import models_moe  # noqa: E402,F401

M = (1 << 64) - 1
P = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)


def rotl(x, r):
    return (x << r | x >> (64 - r)) & M


def mix(acc, lane):
    return rotl((acc + lane * P[1]) & M, 31) * P[0] & M


def xxh64(data):
    n, i = len(data), 0
    if n >= 32:
        v = [(P[0] + P[1]) & M, P[1], 0, -P[0] & M]
        while i + 32 <= n:
            v = [mix(a, lane) for a, lane in zip(v, struct.unpack_from("<4Q", data, i))]
            i += 32
        h = sum(rotl(a, r) for a, r in zip(v, (1, 7, 12, 18))) & M
        for a in v:
            h = ((h ^ mix(0, a)) * P[0] + P[3]) & M
    else:
        h = P[4]
    h = (h + n) & M
    while i + 8 <= n:
        h = (rotl(h ^ mix(0, struct.unpack_from("<Q", data, i)[0]), 27) * P[0] + P[3]) & M
        i += 8
    if i + 4 <= n:
        h = (rotl(h ^ struct.unpack_from("<I", data, i)[0] * P[0] & M, 23) * P[1] + P[2]) & M
        i += 4
    for b in data[i:]:
        h = rotl(h ^ b * P[4] & M, 11) * P[0] & M
    h = (h ^ h >> 33) * P[1] & M
    h = (h ^ h >> 29) * P[2] & M
    return h ^ h >> 32


def compact(x):
    return json.dumps(x, separators=(",", ":"), ensure_ascii=False)


def tensors(entries, meta=None, room=0):
    """entries: (name, dtype, shape, bytes) in order."""
    header, data = ({"__metadata__": meta} if meta else {}), b""
    for name, dtype, shape, raw in entries:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = compact(header).encode().ljust(room)
    return struct.pack("<Q", len(text)) + text + data


def lq(entries, types, layout="any"):
    placed, at, pads = [], 0, 0
    for name, dtype, shape, raw in entries:
        to = 4096 if len(raw) >= 4096 else 64
        gap = -at % to
        if gap:
            placed.append((f"lq.pad/{pads}", "U8", [gap], bytes(gap)))
            pads += 1
        placed.append((name, dtype, shape, raw))
        at += gap + len(raw)
    sums = {name: f"{xxh64(raw):016x}" for name, _, _, raw in entries}
    meta = {"lq.version": "0", "lq.header": "0" * 16, "lq.layout": layout, "lq.types": compact(types), "lq.xxh64": compact(sums),
            "lq.arch": "LlamaForCausalLM", "lq.recipe": "{}"}
    room = 4096 - 8
    while len(tensors(placed, meta, room)) != 8 + room + sum(len(e[3]) for e in placed):
        room += 4096
    out = bytearray(tensors(placed, meta, room))
    digits = out.index(b'"lq.header":"') + 13
    out[digits:digits + 16] = f"{xxh64(bytes(out[8:8 + room])):016x}".encode()
    return bytes(out)


def raw(n, seed):
    return bytes((i * 37 + seed * 11) % 120 for i in range(n))


def safetensors_seeds():
    yield "empty", tensors([])
    yield "plain", tensors([("a", "F32", [2, 3], raw(24, 1)), ("b.weight", "BF16", [4], raw(8, 2)), ("c", "F64", [], raw(8, 3))], {"format": "pt"})
    for i, t in enumerate(("F16", "F8_E4M3", "F8_E5M2", "I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "BOOL")):
        size = {"F8": 1, "I8": 1, "U8": 1, "BO": 1, "F1": 2, "I1": 2, "U1": 2, "I3": 4, "U3": 4}.get(t[:2], 8)
        yield f"type_{t}", tensors([("x", t, [3, 0], b""), ("y", t, [3], raw(3 * size, i))])
    yield "odd", tensors([("one", "U8", [1], b"x"), ("two", "BF16", [3, 5], raw(30, 5))])
    side = [("lq.file/config.json", "U8", [2], b"{}")]
    yield "lq_int4", lq(side + [("w.q", "U8", [3, 20], raw(60, 1)), ("w.scale", "F16", [3, 3], raw(18, 2))], {"w": "int4 g16 sym f16 3x40"})
    yield "lq_asym", lq(side + [("w.q", "U8", [2, 16], raw(32, 1)), ("w.scale", "F32", [2, 2], raw(16, 2)), ("w.zero", "U8", [2, 4], raw(8, 2)),
                                ("w.perm", "I32", [32], struct.pack("<32i", *range(31, -1, -1))), ("w.smooth", "F32", [32], struct.pack("<32f", *[1.5] * 32))],
                        {"w": "int4 g16 asym f32 2x32"})
    yield "lq_outlier", lq([("w.q", "U8", [2, 32], raw(64, 1)), ("w.scale", "F16", [2, 1], raw(4, 2)), ("w.outlier_cols", "I32", [2], struct.pack("<2i", 3, 30)),
                            ("w.outlier_w", "BF16", [2, 2], raw(8, 4)), ("n", "F32", [5], raw(20, 3))], {"w": "int8 row sym f16 2x32"})
    yield "lq_table", lq([("w.q", "U8", [2, 8], raw(16, 1)), ("w.scale", "F16", [2, 1], raw(4, 2)), ("w.table", "F32", [16], struct.pack("<16f", *range(16)))],
                         {"w": "table4 g16 f16 2x16"})
    yield "lq_scale2", lq([("w.q", "U8", [2, 8], raw(16, 1)), ("w.scale", "F8_E4M3", [2, 1], raw(2, 2)), ("w.scale2", "F32", [1], struct.pack("<f", 0.5))], {"w": "fp4 g16 e4m3 2x16"})
    twice = [("w.q", "U8", [5, 512], raw(2560, 1)), ("w.scale", "U8", [5, 64], raw(320, 2)), ("w.scale_map", "F32", [256], raw(1024, 3)),
             ("w.scale2", "F32", [2], raw(8, 4)), ("w.scale_offset", "F32", [1], raw(4, 5))]
    yield "lq_dq256", lq(twice, {"w": "nf4 g16 dq256 5x1024"})
    yield "lq_powers", lq([("w.q", "U8", [2, 8], raw(16, 1)), ("w.scale", "F8_E8M0", [2, 1], raw(2, 2))], {"w": "fp4 g16 e8m0 2x16"})
    yield "lq_named", lq([("w.q", "U8", [2, 8], raw(16, 1)), ("w.scale", "F16", [2, 1], raw(4, 2))], {"w": "fp4 g16 f16 2x16"})
    yield "lq_act", lq([("w.q", "U8", [2, 32], raw(64, 1)), ("w.scale", "F32", [2, 1], raw(8, 2)), ("w.act_scale", "F32", [1], struct.pack("<f", 0.25)),
                        ("w.act_zero", "I32", [1], struct.pack("<i", -3)), ("w.perm", "I32", [32], struct.pack("<32i", *range(31, -1, -1))),
                        ("w.outlier_cols", "I32", [2], struct.pack("<2i", 3, 30)), ("w.outlier_w", "BF16", [2, 2], raw(8, 4))],
                       {"w": "int8 row sym f32 act i8 tensor asym 2x32"})
    yield "lq_stack", lq([("w.q", "U8", [3, 2, 8], raw(48, 1)), ("w.scale", "F16", [3, 2, 1], raw(12, 2)), ("w.perm", "I32", [3, 16], struct.pack("<48i", *(list(range(16)) * 3))),
                          ("p", "BF16", [2, 3, 5], raw(60, 3))], {"w": "int4 g16 sym f16 3x2x16"})
    yield "lq_fp8", lq([("w.q", "F8_E4M3", [3, 16], raw(48, 1)), ("w.scale", "F32", [2, 1], raw(8, 2)), ("big", "BF16", [2100], raw(4200, 9))], {"w": "e4m3 g16 r2 f32 3x16"})
    for name, shape in (("blocks", [2, 3]), ("rows", [40, 1]), ("one", [])):
        count = shape[0] * shape[1] if shape else 1
        yield "fp8_" + name, tensors([("w", "F8_E4M3", [40, 48], raw(40 * 48, 3)), ("w_scale", "F32", shape, raw(4 * count, 5)), ("w.input_scale", "F32", [1], raw(4, 1))])
    order = struct.pack("<32i", *(i % 2 for i in range(32)))
    for name, part in (("", []), ("_order", [("w.g_idx", "I32", [32], order)])):
        yield "gptq" + name, tensors([("w.qweight", "I32", [4, 8], raw(128, 3)), ("w.qzeros", "I32", [2, 1], raw(8, 1)), ("w.scales", "F16", [2, 8], raw(32, 5))] + part)
    yield "gptq_3", tensors([("w.qweight", "I32", [3, 32], raw(384, 3)), ("w.qzeros", "I32", [2, 3], raw(24, 1)), ("w.scales", "F16", [2, 32], raw(128, 5))])
    yield "awq", tensors([("w.qweight", "I32", [32, 1], raw(128, 3)), ("w.qzeros", "I32", [2, 1], raw(8, 1)), ("w.scales", "F16", [2, 8], raw(32, 5))])
    yield "packed", tensors([("w.weight_packed", "I32", [9, 3], raw(108, 3)), ("w.weight_scale", "BF16", [9, 2], raw(36, 1)), ("w.weight_shape", "I64", [2], struct.pack("<2q", 9, 32)),
                             ("w.weight_zero_point", "I32", [1, 2], raw(8, 5)), ("w.weight_g_idx", "I32", [32], order)])
    yield "packed_fp4", tensors([("w.weight_packed", "U8", [3, 16], raw(48, 3)), ("w.weight_scale", "F8_E4M3", [3, 2], raw(6, 1)), ("w.weight_global_scale", "F32", [1], raw(4, 5))])
    for name, block in (("bnb4", 4), ("bnb4_dq256", 256)):
        state = compact({"quant_type": "fp4", "blocksize": 16, "shape": [4, 32], "nested_blocksize": block, "nested_offset": 0.5}).encode()
        yield name, tensors([("w.weight", "U8", [64, 1], raw(64, 3)), ("w.weight.absmax", "U8", [8], raw(8, 1)), ("w.weight.quant_map", "F32", [16], raw(64, 5)),
                             ("w.weight.nested_absmax", "F32", [-(-8 // block)], raw(-(-8 // block) * 4, 2)),
                             ("w.weight.nested_quant_map", "F32", [256], raw(1024, 4)), ("w.weight.quant_state.bitsandbytes__fp4", "U8", [len(state)], state)])
    yield "bnb8", tensors([("w.weight", "I8", [3, 17], raw(51, 3)), ("w.SCB", "F32", [3], raw(12, 1))])
    yield "lq_x86", lq([("w.q", "U8", [2, 256], raw(512, 1)), ("w.scale", "F16", [2, 1, 16], raw(64, 2)), ("v.q", "U8", [1, 2048], raw(2048, 7)),
                        ("v.scale", "F16", [1, 1, 16], raw(32, 2)), ("v.zero", "U8", [1, 1, 16], raw(16, 3))],
                       {"w": "int4 g32 sym f16 20x20", "v": "int8 row asym f16 3x100"}, "x86")
    yield "lq_cuda", lq([("w.q", "U8", [1, 2048], raw(2048, 1)), ("w.scale", "F16", [3, 1, 64], raw(384, 2)), ("w.zero", "U8", [3, 1, 32], raw(96, 3)),
                         ("v.q", "F8_E4M3", [1, 4096], raw(4096, 7)), ("v.scale", "F32", [2, 1], raw(8, 2)),
                         ("u.q", "U8", [2, 10240], raw(20480, 5)), ("u.scale", "F16", [1, 2, 64], raw(256, 4))],
                        {"w": "int4 g16 asym f16 3x40", "v": "e4m3 g16 r2 f32 3x16", "u": "int5 row sym f16 70x130"}, "cuda")


def json_seeds():
    texts = ["{}", "[]", "null", "-1.5e+10", '"\\ud83d\\ude00 \\u00e9\\n\\"\\\\"', '{"a":[1,2,{"b":null}],"c":{"a":true,"b":false}}',
             '{"hidden_size":4096,"eos_token_id":[1,2],"rope_scaling":null,"rms_norm_eps":1e-05,"seed":18446744073709551615}', "[" * 60 + "]" * 60,
             '{"a":1,"\\u0061":2}', '"\\u0000"', "1" * 70, '{"n":12345678901234567890,"m":-9223372036854775808}', ' \t\r\n[ 0 , "x" ] ', '["\u20ac","\U0001f600"]']
    for i, text in enumerate(texts):
        yield f"seed_{i:02d}", text.encode()


def template_seeds():
    texts = ["{{- bos_token }}{%- for m in messages %}{{- '<|' ~ m.role ~ '|>' ~ (m.content | string | trim) }}{%- endfor %}",
             "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, c=4) }}{% call m(1) %}x{% endcall %}",
             "{% set ns = namespace(n=0) %}{% for x in range(9) if x is odd %}{% set ns.n = ns.n + x %}{% break %}{% else %}e{% endfor %}{{ ns.n }}",
             "{% for t in tools recursive %}{{ loop.index }}{{ loop.nextitem }}{{ t | tojson(indent=2, sort_keys=true) }}{% endfor %}",
             "{% filter indent(2) | upper %}a\nb{% endfilter %}{% set x | trim %} {{ 1 }} {% endset %}{{ x }}{% with y = x %}{{ y }}{% endwith %}",
             "{{ 'a b c'.split(' ', 1)[::-1] | join('-') }}{{ '%5.2f|%-4s' % (2.5, 'x') }}{{ '{:>5}{0!r}'.format('u', w=1) }}",
             "{{ messages | selectattr('role', 'in', ['user']) | map(attribute='content.0.text') | list }}{{ messages | groupby('role') | last }}",
             "a\n  {%- if x is not defined -%}\n b {%+ raw %} {{ {% endraw %}{# c -#} d {%- elif 1 < 2 <= 3 %}{%- else %}{%- endif %}\n",
             "{{ {'a': [1, 2.5, none, true], 1: ('t',)} }}{{ {'b': 1} | dictsort }}{{ -7 // 2 ** 2 % 3 ~ 0x1f }}{{ messages[-1]['content'][1:] }}",
             "{{ raise_exception('no ' + messages[0].role) }}", "{{ x.y }}", "{% block b %}{% generation %}{{ strftime_now('%Y') }}{% endgeneration %}{% endblock %}",
             "[{\"role\":\"u\",\"content\":1e5}]\0{{ messages }}{{ messages[0].content | int | filesizeformat }}",
             "{% for x in [3, 1, 2] | sort(reverse=true) | batch(2, 0) %}{{ x | first }}{{ loop.cycle('a', 'b') }}{% endfor %}{{ '<' | e | safe + '&' }}"]
    for i, text in enumerate(texts):
        yield f"seed_{i:02d}", text.encode()


def config_seeds():
    """The configs of the golden models with few words, what fuzz_config.c calls the form of their names, and things that are wrong."""
    archs = {**models.ARCHS, **models_gpt.ARCHS}
    for name, (kind, changes, file) in {**models.MODELS, **models_gpt.MODELS}.items():
        i = zlib.crc32(name.encode()) % 120  # of its name alone: a model more changes no other seed
        cfg = {"architectures": [archs[kind][0]], "model_type": kind, **archs[kind][1], **changes}
        file = {**models.FILE, **file}
        cfg = {**cfg, "vocab_size": 8, "bos_token_id": 1, "eos_token_id": [2, 0]}
        form = 6 if "granite" in kind else 1
        form = form if cfg.pop("_fused", False) else 4 if cfg.pop("bare", False) else 0
        if file["flat"]:
            cfg = {**cfg, **file["whole"]}
        elif file["whole"]:
            cfg = {**file["whole"], "text_config": {k: v for k, v in cfg.items() if k != "architectures"}}
            form = {"language_model.model.": 2, "model.language_model.": 3}.get(file["prefix"][0], 0)
        edits = [bytes([form]), bytes([form | 128]), bytes([form, i, 5, 2 + i // 6 % 4]), bytes([form, i, i % 8, i])][i % 4]
        more = b"" if i % 5 else b'{"eos_token_id":1}'
        yield name, json.dumps(cfg, separators=(",", ":")).encode() + b"\0" + more + b"\0\0" + edits
    absurd = {**models.ARCHS["mixtral"][1], "architectures": ["MixtralForCausalLM"], "num_hidden_layers": 4096, "num_local_experts": 1024}
    yield "absurd", json.dumps({**absurd, "num_experts_per_tok": 1024}).encode()
    llama = {**models.ARCHS["llama"][1], "architectures": ["LlamaForCausalLM"], "vocab_size": 8}
    for name, by in (("fp8_blocks", 4), ("fp8_rows", 9), ("fp8_one", 3), ("int8_rows", 25), ("int8_one", 17)):
        how = {"quant_method": "fp8", "weight_block_size": [32, 16]}
        edits = b"\0" + bytes(x for i in range(3, 17) for x in (i, 7, by))
        yield name, json.dumps({**llama, "quantization_config": how}).encode() + b"\0\0\0" + edits
    where = {"x": "a.safetensors", "y.z": "a.safetensors", "\u00fc": "b.safetensors"}
    yield "index", json.dumps({"metadata": {"total_size": 28}, "weight_map": where}).encode()
    chat = {"chat_template": [{"name": "default", "template": "{{ messages }}"}], "bos_token": {"content": "a"}, "eos_token": "b"}
    yield "chat", json.dumps({**models.ARCHS["llama"][1], "architectures": ["LlamaForCausalLM"], "vocab_size": 3}).encode() + b"\0\0" + json.dumps(chat).encode()


def main():
    for folder, seeds in (("safetensors", safetensors_seeds()), ("json", json_seeds()), ("template", template_seeds()),
                          ("config", config_seeds())):
        path = os.path.join(sys.argv[1], folder)
        os.makedirs(path, exist_ok=True)
        count = 0
        for name, data in seeds:
            with open(os.path.join(path, name), "wb") as f:
                f.write(data)
            count += 1
        print(f"{path}: {count} seeds")


if __name__ == "__main__":
    main()
