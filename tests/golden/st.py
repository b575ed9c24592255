# st.py: safetensors in a few lines of Python, for tests: read to f64 or f32 arrays, write bf16, f16 or f32; a head alone, for who has the data.
import json
import struct

import numpy as np


def bf16_bits(a):
    """Rounds f32 to bf16, nearest even; returns u16."""
    u = np.ascontiguousarray(a, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_value(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def e4m3_value(bits):
    e, m = bits >> 3 & 15, (bits & 7).astype(np.float32)
    size = np.where(e == 0, m * np.float32(2.0**-9), (8 + m) * 2.0 ** (e.astype(np.float32) - 10))
    return np.where(bits & 0x7F == 0x7F, np.nan, np.where(bits & 0x80, -size, size)).astype(np.float32)


def e5m2_value(bits):
    return (bits.astype(np.uint16) << 8).view(np.float16).astype(np.float32)


def entries(shapes, dtype):
    """What a head says of tensors of 16 bits, name -> shape, one behind the other."""
    head, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * int(np.prod(shape))
        head[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    return head


def framed(head):
    """The bytes of a head: its length, and it up to a border of 8."""
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write(path, tensors, dtype="BF16", metadata=None):
    """tensors: name -> float array; all are written as `dtype` but those of bytes."""
    head, data = {"__metadata__": metadata or {"format": "pt"}}, b""
    for name in sorted(tensors):
        kept = tensors[name].dtype == np.uint8
        a = np.ascontiguousarray(tensors[name], np.uint8 if kept else np.float32)
        raw = a.tobytes() if kept else {"BF16": lambda: bf16_bits(a), "F16": lambda: a.astype(np.float16), "F32": lambda: a}[dtype]().tobytes()
        head[name] = {"dtype": "U8" if kept else dtype, "shape": list(np.shape(tensors[name])), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    with open(path, "wb") as f:
        f.write(framed(head) + data)


def put(path, tensors):
    """name -> (safetensors' type, array of its bits)."""
    head, data = {}, b""
    for name, (dtype, a) in tensors.items():
        raw = np.ascontiguousarray(a).tobytes()
        head[name] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def e8m0_value(b):
    return np.where(b == 255, np.float32(np.nan), np.float32(2.0) ** (b.astype(np.float32) - 127))


KINDS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_}
WIDER = {"BF16": (np.uint16, bf16_value), "F8_E4M3": (np.uint8, e4m3_value), "F8_E5M2": (np.uint8, e5m2_value), "F8_E8M0": (np.uint8, e8m0_value)}


def raw(path):
    """name -> (safetensors' type, array of its bits), as put() takes them."""
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head, kinds = json.loads(data[8 : 8 + n]), {**KINDS, **{kind: bits for kind, (bits, _) in WIDER.items()}}
    head.pop("__metadata__", None)
    of = lambda t: data[8 + n :][t["data_offsets"][0] : t["data_offsets"][1]]
    return {name: (t["dtype"], np.frombuffer(of(t), kinds[t["dtype"]]).reshape(t["shape"])) for name, t in head.items()}


def read(path, codes=False):
    """name -> array (BF16 and fp8 become f32, with `codes` fp8 stays its bytes), and the metadata."""
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8 : 8 + n])
    meta = head.pop("__metadata__", {})
    out = {}
    for name, t in head.items():
        a, b = t["data_offsets"]
        part = raw[8 + n + a : 8 + n + b]
        kind, widen = WIDER.get(t["dtype"]) or (KINDS[t["dtype"]], lambda x: x)
        flat = np.frombuffer(part, kind)
        out[name] = (flat if codes and t["dtype"].startswith("F8") else widen(flat)).reshape(t["shape"])
    return out, meta
