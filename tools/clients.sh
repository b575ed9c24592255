#!/bin/bash
# clients.sh FOLDER: a Python environment (900 MB) with the clients that tests/cli/serve_openai.py, serve_anthropic.py, serve_langchain.py and
# serve_lm_eval.py ask the server with. Nothing else of lq uses it; where it cannot be made those tests are skipped.
set -eu
folder=${1:?clients.sh FOLDER}
"$folder/bin/python" -c 'import openai, anthropic, langchain_openai, lm_eval' 2>/dev/null && exit 0
rm -rf "$folder"
python=python3
for word in python3 /usr/bin/python3; do "$word" -c 'import ensurepip, venv' 2>/dev/null && python=$word && break; done
"$python" -m venv "$folder" && "$folder/bin/pip" -q --disable-pip-version-check install openai anthropic langchain-openai 'lm_eval[api]'
