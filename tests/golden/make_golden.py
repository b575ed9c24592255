# make_golden.py: the logits that transformers computes in f64 for the models of make_models.py, written to tests/golden/logits/.
# Needs torch and transformers; run by hand when a model is added:    make_golden.py DIR   (DIR: where make_models.py wrote)
# It also proves llama_np.py: both must agree but for the rope, which transformers computes in f32.
import json
import os
import sys

import numpy as np
import torch
import transformers

import llama_np
import make_models
import st

folder, here = sys.argv[1], os.path.dirname(os.path.abspath(__file__))
os.makedirs(os.path.join(here, "logits"), exist_ok=True)
for name in make_models.MODELS:
    path = os.path.join(folder, name)
    cfg = json.load(open(os.path.join(path, "config.json")))
    ids = np.fromfile(os.path.join(path, "ids.bin"), "<i4")
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**cfg, attn_implementation="eager")).double().eval()
    w, _ = st.read(os.path.join(path, "model.safetensors"))
    state = {k: torch.from_numpy(np.array(v, np.float64)) for k, v in w.items()}
    if cfg["tie_word_embeddings"]:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    with torch.no_grad():
        theirs = model(torch.tensor(ids.astype(np.int64))[None]).logits[0].numpy()
    exact = {k: v.astype(np.float64) for k, v in w.items()}
    ours, bound = llama_np.forward(cfg, exact, ids, ctx=len(ids)), llama_np.bound(cfg, exact, ids)
    np.save(os.path.join(here, "logits", name + ".npy"), theirs.astype(np.float32))
    print(f"{name}: |transformers - numpy| {np.abs(theirs - ours).max():.2e}, logits up to {np.abs(theirs).max():.2f}, f32 bound {bound.min():.2e} to {bound.max():.2e}")
    assert np.abs(theirs - ours).max() < bound.max()
