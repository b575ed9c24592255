#!/usr/bin/env python3
"""broken.py LQ: models as people come by them: downloads that were cut short, an HTML page or a git-LFS pointer in place of a file, files of
another model, adapters, weights in other programs' formats. Each verb says in one line what is wrong and where, and ends with 1."""
import gzip
import io
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

lq = os.path.abspath(sys.argv[1])
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
demo = os.path.join(root, "calib_data", "demo")
sys.path.insert(0, os.path.join(root, "tests"))
import counted  # noqa: E402

sanitized = json.loads(subprocess.run([lq, "version", "--json"], capture_output=True).stdout)["sanitizers"] != ""
slow = float(os.environ.get("LQ_SLOW", "1"))
OPENS = ("inspect", "quantize", "run")
EVERY = OPENS + ("eval", "bench", "serve", "tokenize", "template")
RUNS = ("quantize", "run", "eval", "bench", "serve")


def words(verb, model):
    return {
        "inspect": ["inspect", model], "quantize": ["quantize", model, "out.lq", "--force"], "run": ["run", model, "hi", "-n", "2"],
        "eval": ["eval", model, "--text", "text"], "bench": ["bench", model, "-p", "4", "-n", "2", "-r", "1"],
        "serve": ["serve", model, "--port", "0"], "tokenize": ["tokenize", model, "-p", "hi"],
        "template": ["template", model, "--messages", "messages"],
    }[verb]


def refused(name, model, verbs, *said):
    for verb in verbs:
        try:
            p = subprocess.run([lq, *words(verb, model), "--quiet"], capture_output=True, stdin=subprocess.DEVNULL, timeout=60 * slow)
        except subprocess.TimeoutExpired:
            counted.check(False, f"{name}: {verb} does not end")
            continue
        err = p.stderr.decode("utf-8", "replace")
        good = p.returncode == 1 and err.startswith("lq: ") and err.count("\n") == 1 and err.endswith("\n") and all(s in err for s in said)
        counted.check(good, f"{name}: {verb}", f"{p.returncode} {err!r}, wanted {said}")


def copy(to, **files):
    """The demo model with some files of other bytes; None: without it."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(demo, to)
    for name, data in files.items():
        path = os.path.join(to, name.replace("__", "."))
        if os.path.lexists(path):
            os.unlink(path)
        if data is not None:
            with open(path, "wb") as f:
                f.write(data if isinstance(data, bytes) else data.encode())
    return to


def read(name):
    with open(os.path.join(demo, name), "rb") as f:
        return f.read()


def config(**changes):
    return json.dumps({k: v for k, v in {**json.loads(read("config.json")), **changes}.items() if v is not ...})


def tensors():
    """name -> (type, shape, bytes) of the demo's."""
    data = read("model.safetensors")
    n, = struct.unpack_from("<Q", data)
    head = json.loads(data[8:8 + n])
    return {k: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]) for k, t in head.items() if k != "__metadata__"}


def safetensors(all_of):
    head, at = {}, 0
    for name, (dtype, shape, data) in all_of.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in all_of.values())


def archive():
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w") as z:
        z.writestr("archive/data.pkl", b"\x80\x02}q\x00." * 50)
    return f.getvalue()


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4665\nsize 2634712\n"
HTML = "<!DOCTYPE html>\n<html><body>Entry not found</body></html>\n"
TEXTS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def test_files():
    """In place of each file something else. Which verbs read it: its row."""
    readers = {"config.json": OPENS, "generation_config.json": RUNS, "tokenizer.json": ("quantize", "run", "tokenize"),
               "tokenizer_config.json": ("quantize", "run", "tokenize", "template"), "model.safetensors": tuple(v for v in EVERY if v != "tokenize")}
    for name, verbs in readers.items():
        whole, key = read(name), name.replace(".", "__")
        short = "cut short" if name == "model.safetensors" else "not JSON"
        for what, data, said in (
            ("an HTML page", HTML, "is an HTML page"), ("a git-LFS pointer", LFS, "is a git-LFS pointer"), ("nothing", b"", "empty"),
            ("half of it", whole[:len(whole) // 2], short), ("gzip", gzip.compress(whole), "gzip"), ("zeros", bytes(len(whole)), "zeros"),
        ):
            refused(f"{name}: {what}", copy("m", **{key: data}), verbs, name, said)
        for what, to, said in (("loop", name, "symbolic links"), ("dangling", "../blobs/0123", "a link to a file that is not there")):
            copy("m", **{key: None})
            os.symlink(to, "m/" + name)
            refused(f"{name}: {what} link", "m", verbs, name, said)
        copy("m", **{key: None})
        os.mkdir("m/" + name)
        refused(f"{name}: a folder", "m", verbs, name, "not a regular file")
        if os.getuid():
            copy("m", **{key: whole})
            os.chmod("m/" + name, 0)
            refused(f"{name}: no permission", "m", verbs, name, "Permission denied")
        else:
            counted.skip("permissions mean nothing to root")
    for name in TEXTS:
        key, whole = name.replace(".", "__"), read(name)
        refused(f"{name}: byte order mark", copy("m", **{key: b"\xef\xbb\xbf" + whole}), ("quantize", "run"), name, "byte order mark")
        refused(f"{name}: UTF-16", copy("m", **{key: whole.decode().encode("utf-16")}), ("quantize", "run"), name, "UTF-16")


def test_forms():
    """No safetensors, or something else under that name."""
    for name in ("pytorch_model.bin", "consolidated.00.pth", "model.Q4_K_M.gguf", "model.onnx"):
        model = copy("m", model__safetensors=None)
        open("m/" + name, "wb").write(archive())
        refused(f"only {name}", model, RUNS + ("inspect",), "holds no .lq", f"does not read {name}")
    os.makedirs("empty", exist_ok=True)
    refused("empty folder", "empty", EVERY, "empty: ")
    refused("no such path", "m/none", EVERY, "m/none: No such file")
    for what, data, said in (("zip", archive(), "a zip archive, as torch.save"), ("pickle", b"\x80\x02}q\x00(X\x05\x00\x00\x00hello." * 9, "a pickle"),
                             ("GGUF", b"GGUF\x03\0\0\0" + bytes(99), "a GGUF file")):
        refused(f"{what} as .safetensors", copy("m", model__safetensors=data), OPENS, "model.safetensors", said)
    refused("a GGUF file", "m/model.safetensors", ("run",), "a GGUF file")
    t = tensors()
    where = {k: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, k in enumerate(t)}
    first = safetensors({k: v for k, v in t.items() if "00001" in where[k]})
    index = {"model__safetensors": None, "model.safetensors.index__json": json.dumps({"weight_map": where}), "model-00001-of-00002__safetensors": first}
    refused("a shard is missing", copy("m", **index), OPENS, "model-00002-of-00002.safetensors: No such file")
    refused("a shard is a pointer", copy("m", **index, **{"model-00002-of-00002__safetensors": LFS}), OPENS, "00002-of-00002.safetensors", "git-LFS")
    refused("the index is HTML", copy("m", **{**index, "model.safetensors.index__json": HTML}), OPENS, "index.json", "an HTML page")
    refused("no index", copy("m", **{**index, "model.safetensors.index__json": None}), OPENS, "one shard of 2", "model.safetensors.index.json")
    bins = json.dumps({"weight_map": {k: "pytorch_model.bin" for k in t}})
    refused("an index of pickles", copy("m", model__safetensors=None, pytorch_model__bin=archive(), **{"model.safetensors.index__json": bins}), OPENS, "pytorch_model.bin", "a zip archive")


def test_models():
    """Files of another model, and numbers that make no sense."""
    refused("a config of GPT-2", copy("m", config__json=config(architectures=["GPT2LMHeadModel"])), RUNS, "model.safetensors: tensor ")
    refused("a config of T5", copy("m", config__json=config(architectures=["T5ForConditionalGeneration"])), RUNS, "T5ForConditionalGeneration", "not one lq knows")
    refused("a wider config", copy("m", config__json=config(hidden_size=4096)), RUNS, "model.embed_tokens.weight", "1024")
    for what, changes, said in (
        ("more layers", {"num_hidden_layers": 6}, "model.layers.5."), ("fewer layers", {"num_hidden_layers": 4}, "model.layers.4."),
        ("no heads", {"num_attention_heads": 0}, "num_attention_heads"), ("odd heads", {"num_attention_heads": 7}, "not a multiple"),
        ("odd KV heads", {"num_key_value_heads": 3}, "not a multiple"), ("a billion layers", {"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ("a width in quotes", {"hidden_size": "128"}, "hidden_size"), ("no width", {"hidden_size": ...}, "hidden_size is missing"),
        ("no architecture", {"architectures": []}, "architectures"), ("an endless context", {"max_position_embeddings": 10**12}, "max_position_embeddings"),
    ):
        refused(what, copy("m", config__json=config(**changes)), RUNS, "config.json" if "model." not in said else "", said)
    refused("a list for a config", copy("m", config__json="[]"), RUNS, "config.json is not an object")
    refused("an end that is a word", copy("m", generation_config__json='{"eos_token_id": "</s>"}'), RUNS, "generation_config.json: eos_token_id")
    refused("no config", copy("m", config__json=None), RUNS, "there is no config.json")
    bigger = json.loads(read("tokenizer.json"))
    bigger["model"]["vocab"]["\u0120elsewhere"] = 1024
    refused("more words than rows", copy("m", tokenizer__json=json.dumps(bigger)), ("run", "serve"), "ids up to 1024, the embedding only 1024 rows")
    refused("no tokenizer", copy("m", tokenizer__json=None), ("run", "tokenize"), "there is no tokenizer.json")
    for what, text, said in (
        ("endless", "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}", "the template takes more than"),
        ("too large", "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}", "memory"),
        ("deep", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"), ("unfinished", "{% for x in y %}", "end of template"),
    ):
        chat = json.dumps({**json.loads(read("tokenizer_config.json")), "chat_template": text})
        refused(f"a template: {what}", copy("m", tokenizer_config__json=chat), ("run", "template"), "chat template", said)
    down = "model.layers.0.mlp.down_proj.weight"
    t = tensors()
    for what, new, said in (("missing", None, "is missing"), ("turned around", (t[down][0], t[down][1][::-1], t[down][2]), "expected"), ("of whole numbers", ("I16", *t[down][1:]), "i16")):
        changed = {k: v if k != down else new for k, v in t.items() if k != down or new}
        refused(f"a tensor {what}", copy("m", model__safetensors=safetensors(changed)), RUNS, down, said)
    for bad, said in ((b"\xff\x7f", "NaN"), (b"\x80\x7f", "infinite")):
        nan = copy("m", model__safetensors=safetensors({**t, down: (*t[down][:2], bad * (len(t[down][2]) // 2))}))
        refused(f"weights of {said}", nan, ("quantize",), down, said)
        refused(f"weights of {said}", nan, ("run", "bench"), nan, down, "row 0, column 0", said)


def test_others():
    """Adapters, and weights that other programs quantized in a form that is not read, or not whole: what they are is said."""
    lora = safetensors({"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": ("F32", [8, 16], bytes(512))})
    refused("an adapter", copy("m", model__safetensors=None, adapter_model__safetensors=lora, adapter_config__json='{"peft_type": "LORA"}'), RUNS, "an adapter (LoRA")
    refused("an adapter alone", copy("m", model__safetensors=None, config__json=None, adapter_model__safetensors=lora), RUNS, "an adapter (LoRA")
    t = tensors()
    parts = {
        "gptq": ("qweight", "qzeros", "scales", "g_idx"), "awq": ("qweight", "qzeros", "scales"), "bitsandbytes": ("weight.absmax", "weight.quant_map"),
        "compressed-tensors": ("weight_packed", "weight_scale", "weight_shape"), "hqq": ("W_q", "scale", "zero"),
    }
    for method, names in parts.items():
        changed = {k: v for k, v in t.items() if not k.endswith("_proj.weight")}
        changed.update({k[:-6] + p: ("U8", [4], b"abcd") for k in t if k.endswith("_proj.weight") for p in names})
        model = copy("m", model__safetensors=safetensors(changed), config__json=config(quantization_config={"quant_method": method, "bits": 4}))
        said = {"gptq": "GPTQ", "awq": "AWQ", "compressed-tensors": "compressed-tensors"}.get(method, f"quantized by others ({method})")
        refused(f"quantized by {method}", model, RUNS, "_proj." + names[0], said)


def test_absurd():
    """A config whose names alone would fill the memory is refused before they do."""
    many = config(architectures=["MixtralForCausalLM"], num_hidden_layers=4096, num_local_experts=1024, num_experts_per_tok=2)
    refused("4096 layers of 1024 experts", copy("m", config__json=many), RUNS, "model.safetensors")
    if sanitized:
        return counted.skip("memory is not measured under a sanitizer")
    counted.check(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 400 << 10, "no child took 400 MB", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        open("text", "w").write("Once upon a time. " * 300)
        open("messages", "w").write('[{"role": "user", "content": "hi"}]')
        for test in (test_absurd, test_files, test_forms, test_models, test_others):
            test()
        os.chdir("/")


main()
sys.exit(counted.end())
