#!/usr/bin/env python3
"""Quantizes a checkpoint with another tool, on given sequences of tokens, for quant.py to measure beside lq's own.

    peers.py TOOL CHECKPOINT OUT TYPE IDS.json      (a Python that has the tool: gptqmodel, llmcompressor, bitsandbytes or hqq)

Embedding and head stay as they are, everything else is the tool's default but for what TYPE and TOOL say. OUT is a
checkpoint: in the tool's own form where lq reads it, else with the values that its codes stand for, in bf16's place f32.
Where TYPE rounds activations too, OUT is what the tool's own run makes of held-out windows, as lq takes weights alone from
others' files. IDS.json: {"calib": sequences of tokens, "windows": the same}, each where it is needed.
"""
import json
import math
import re
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def parse(kind):
    bits, group = re.match(r"\w*?(\d+) (?:g(\d+)|row)", kind + " row").groups()
    return int(bits), int(group or -1), "asym" in kind


def gptqmodel(source, out, kind, ids, gptaq=False):
    import os
    cores, os.cpu_count = os.cpu_count(), lambda: max(4, cores)  # with less its pool of threads does not start
    from gptqmodel import BACKEND, GPTQModel, QuantizeConfig
    bits, group, asym = parse(kind)
    more = {}
    if gptaq:
        from gptqmodel.quantization.config import GPTAQConfig
        more["gptaq"] = GPTAQConfig()
    config = QuantizeConfig(bits=bits, group_size=group, sym=not asym, lm_head=False, offload_to_disk=False, device="cpu", **more)
    model = GPTQModel.load(source, config, backend=BACKEND.TORCH)
    model.quantize([dict(input_ids=s, attention_mask=[1] * len(s)) for s in ids], batch_size=1, backend=BACKEND.TORCH)
    model.save(out)


SCHEMES = {"e4m3 row": "FP8_DYNAMIC", "nvfp4": "NVFP4A16", "mxfp4": "MXFP4A16"}  # how a type begins -> llm-compressor's word


def llmcompressor(source, out, kind, ids, method, mse=False):
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import GPTQModifier, QuantizationModifier
    bits, group, asym = parse(kind) if method != "plain" else (8, -1, False)
    weights = dict(num_bits=bits, type="int", symmetric=not asym, strategy="group" if group > 0 else "channel")
    weights |= dict(group_size=group) if group > 0 else {}
    weights |= dict(observer="mse") if mse else {}
    acts = dict(num_bits=8, type="int", symmetric=True, strategy="token", dynamic=True, observer=None)
    groups = {"group_0": dict(targets=["Linear"], weights=weights, **(dict(input_activations=acts) if " act " in kind else {}))}
    if method == "plain":
        scheme = next(name for begin, name in SCHEMES.items() if kind.startswith(begin))
        recipe = [QuantizationModifier(targets=["Linear"], scheme=scheme, ignore=["lm_head"])]
    elif method == "gptq":
        recipe = [GPTQModifier(config_groups=groups, ignore=["lm_head"])]
    elif method == "awq":
        from llmcompressor.modifiers.transform import AWQModifier
        torch.Tensor.pin_memory = lambda self: self  # it pins without asking whether there is a GPU
        recipe = [AWQModifier(), QuantizationModifier(config_groups=groups, ignore=["lm_head"])]
    else:
        from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier
        recipe = [SmoothQuantModifier(smoothing_strength=0.8), QuantizationModifier(config_groups=groups, ignore=["lm_head"])]
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    more = {}
    if method != "plain":
        data = Dataset.from_list([dict(input_ids=s, attention_mask=[1] * len(s)) for s in ids])
        more = dict(dataset=data, max_seq_length=max(map(len, ids)), num_calibration_samples=len(ids), shuffle_calibration_samples=False)
    oneshot(model=model, recipe=recipe, **more)
    if " act " in kind:
        return model
    model.save_pretrained(out, save_compressed=True)
    AutoTokenizer.from_pretrained(source).save_pretrained(out)


def bitsandbytes(source, out, kind, ids):
    from transformers import BitsAndBytesConfig
    if kind != "nf4":
        return AutoModelForCausalLM.from_pretrained(source, quantization_config=BitsAndBytesConfig(load_in_8bit=True), dtype=torch.float32)
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    AutoModelForCausalLM.from_pretrained(source, quantization_config=config, dtype=torch.bfloat16).save_pretrained(out)
    AutoTokenizer.from_pretrained(source).save_pretrained(out)


def hqq(source, out, kind, ids):
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
    bits, group, _ = parse(kind)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    for name, part in list(model.model.layers.named_modules()):
        if isinstance(part, torch.nn.Linear):
            coded = HQQLinear(part, BaseQuantizeConfig(nbits=bits, group_size=group), compute_dtype=torch.float32, device="cpu", del_orig=False)
            part.weight.data = coded.dequantize().float().reshape(part.weight.shape)
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(source).save_pretrained(out)


def judge(source, now, windows, out):
    """The second half of each window scored, as `lq eval --protocol llamacpp512` does."""
    was = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    klds, nlls = [], []
    for ids in windows:
        rows, to = slice(len(ids) // 2, len(ids) - 1), torch.tensor(ids[len(ids) // 2 + 1:])
        with torch.no_grad():
            p, q = (m(torch.tensor([ids])).logits[0, rows].double().log_softmax(-1) for m in (was, now))
        klds.append((p.exp() * (p - q)).sum(-1).mean())
        nlls.append(torch.stack([-x.gather(1, to[:, None]).mean() for x in (p, q)]))
    kld, (was_ppl, now_ppl) = torch.stack(klds), torch.stack(nlls).mean(0).exp()
    with open(out, "w", encoding="utf-8") as f:
        json.dump(dict(windows=f"{len(windows)}x{len(windows[0])}", kld=f"{kld.mean():.6g}", se=f"{kld.std() / math.sqrt(len(kld)):.2g}",
                       served="", perplexity=f"{now_ppl:.6g}", was=f"{was_ppl:.6g}"), f)


TOOLS = {
    "gptqmodel": gptqmodel,
    "gptqmodel-gptaq": lambda *a: gptqmodel(*a, gptaq=True),
    "llmcompressor": lambda *a: llmcompressor(*a, "plain"),
    "llmcompressor-gptq": lambda *a: llmcompressor(*a, "gptq"),
    "llmcompressor-gptq-mse": lambda *a: llmcompressor(*a, "gptq", mse=True),
    "llmcompressor-awq": lambda *a: llmcompressor(*a, "awq"),
    "llmcompressor-smoothquant": lambda *a: llmcompressor(*a, "smoothquant"),
    "bitsandbytes": bitsandbytes,
    "hqq": hqq,
}

if __name__ == "__main__":
    tool, source, out, kind, path = sys.argv[1:]
    torch.manual_seed(0)
    with open(path, encoding="utf-8") as f:
        given = json.load(f)
    made = TOOLS[tool](source, out, kind, given["calib"])
    if made is not None:
        judge(source, made, given["windows"], out)
