#!/usr/bin/env python3
# serve_lm_eval.py: lm-evaluation-harness asks the server (`local-completions`, its tokenizer the server's own: /tokenizer_info and
# /tokenize) for the questions of shared/data, and comes to the figures of `lq eval --tasks`. Run it with a Python that has `lm_eval`;
# without it, or without the questions, it is counted as skipped. The same variables as serve.py.
import json, logging, os, subprocess, sys, tempfile, time, urllib.request
import serve
from serve import check, end, skip

TASKS = {"copa": 60, "piqa": 25, "arc_easy": 20, "openbook_qa": 40, "lambada_openai": 25}  # questions of each
LIKELIHOOD = [{"metric": "acc"}, {"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False}]
KINDS = {True: {"output_type": "multiple_choice", "doc_to_text": "{{query}}", "doc_to_choice": "{{choices}}", "doc_to_target": "gold",
                "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]},
         False: {"output_type": "loglikelihood", "doc_to_text": "{{context}}", "doc_to_target": " {{continuation}}", "metric_list": LIKELIHOOD}}


def write_tasks(folder, bos):
    """Each task's first questions that are short enough for every model here, as JSONL and as the harness's YAML (which JSON is, too)."""
    for name, count in TASKS.items():
        rows = [json.loads(line) for line in open(serve.DATA / "tasks" / f"{name}.jsonl")]
        text = "query" if "query" in rows[0] else "context"
        # What is put before a text by the tokenizer is part of it here: the harness asks for tokens without.
        rows = [{**row, text: bos + row[text]} for row in rows if len(row[text]) < 300][:max(4, int(count / serve.SLOW))]
        with open(f"{folder}/{name}.jsonl", "w") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
        with open(f"{folder}/{name}.yaml", "w") as out:
            json.dump({"task": "lq_" + name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": f"{folder}/{name}.jsonl"}},
                       "test_split": "test", "target_delimiter": " " if "choices" in rows[0] else "", **KINDS["choices" in rows[0]]}, out)


def ask(s, lm_eval, folder, **more):
    from lm_eval.tasks import TaskManager
    said = lm_eval.simple_evaluate(
        model="local-completions", tasks=["lq_" + name for name in TASKS], bootstrap_iters=0, log_samples=False,
        task_manager=TaskManager(include_path=folder, include_defaults=False),
        model_args={"model": "demo", "base_url": f"http://127.0.0.1:{s.port}/v1/completions", "tokenizer_backend": "remote",
                    "max_length": 500, "max_retries": 1, "timeout": int(60 * serve.SLOW), **more})["results"]
    return {name: {k.split(",")[0]: v for k, v in said["lq_" + name].items()} for name in TASKS}


def compare(lm_eval, model):
    serve.MODEL = model
    with tempfile.TemporaryDirectory() as folder:
        s = serve.Server()
        write_tasks(folder, json.load(urllib.request.urlopen(f"http://127.0.0.1:{s.port}/tokenizer_info"))["bos_token"])
        ours = subprocess.run([serve.LQ, "eval", model, "--tasks", ",".join(f"{folder}/{name}.jsonl" for name in TASKS), "--json"], capture_output=True, text=True)
        if not check(ours.returncode == 0, "lq eval --tasks", ours.stderr):
            return
        ours = {t["task"]: t for t in json.loads(ours.stdout)["tasks"]}
        for more in ({"num_concurrent": 8}, {"batch_size": 7}):
            start = time.monotonic()
            theirs = ask(s, lm_eval, folder, **more)
            for name in TASKS:
                a, b = ours[name], theirs[name]
                for figure in ("acc", "acc_norm", "perplexity"):
                    if (a.get(figure) is None) != (figure not in b):
                        check(False, name, figure, "is one side's alone", a, b)
                    elif figure in b:
                        check(abs(a[figure] - b[figure]) <= 1e-5 * abs(b[figure]), name, more, figure, a[figure], b[figure])
            print(f"lm_eval {lm_eval.__version__}, {os.path.basename(model)}, {more}: {time.monotonic() - start:.1f} s", {k: round(v["acc"], 3) for k, v in theirs.items()})
        check(s.idle() is True, "idle", s.idle(0))
        s.stop()


def main():
    with tempfile.TemporaryDirectory() as cache:
        os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=cache, TOKENIZERS_PARALLELISM="false", OPENAI_API_KEY="none")
        try:
            import lm_eval
        except ImportError:
            skip("the lm_eval package is not here")
            return end()
        if not (serve.DATA / "tasks").exists():
            skip("the questions are not here")
            return end()
        logging.disable(logging.WARNING)
        compare(lm_eval, serve.MODEL)
        spm = cache + "/stories260K"
        if serve.spm_model(spm):
            compare(lm_eval, spm)  # without a tokenizer_config.json: /tokenizer_info tells what the tokenizer knows
    return end()


if __name__ == "__main__":
    sys.exit(main())
