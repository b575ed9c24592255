#!/bin/bash
# clients.sh FOLDER: a Python environment with the clients that tests/cli/serve_openai.py and serve_anthropic.py ask the server with. Nothing
# else of lq uses it; where it cannot be made those tests are skipped.
set -eu
folder=${1:?clients.sh FOLDER}
"$folder/bin/python" -c 'import openai, anthropic' 2>/dev/null && exit 0
rm -rf "$folder"
python=python3
for word in python3 /usr/bin/python3; do "$word" -c 'import ensurepip, venv' 2>/dev/null && python=$word && break; done
"$python" -m venv "$folder" && "$folder/bin/pip" -q --disable-pip-version-check install openai anthropic
