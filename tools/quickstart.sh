#!/bin/bash
# quickstart.sh: from nothing to a served answer. On a bare Debian 12, as root or with sudo, it installs what lq needs, builds it, and
# walks the demo model from bf16 to int4 and int8, measures both, generates a text, and asks the running server. Each step prints the
# command that a person would type. It leaves build/ behind and nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
demo=calib_data/demo out=build/demo
build=build/release

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\033[1m' plain=$'\033[0m'; else bold='' plain=''; fi
say() { printf '\n%s%s%s\n' "$bold" "# $*" "$plain"; }
show() { printf '%s$ %s%s\n' "$bold" "$*" "$plain"; }
# What is typed is what runs; words with blanks are shown quoted.
do_it() {
    local word line=
    for word in "$@"; do [[ $word == *' '* ]] && word="\"$word\""; line+="$word "; done
    show "${line% }"
    "$@"
}

server=
cleanup() {
    [ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server" 2>/dev/null; } || true
    rm -f "$out/serve.log"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say "The packages lq is built with, if they are missing"
do_it bash tools/packages.sh demo

say "The build"
if [ ! -f $build/CMakeCache.txt ]; then
    build=build/quickstart
    if [ ! -f $build/CMakeCache.txt ]; then do_it cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DLQ_TESTS=OFF -Wno-dev >/dev/null; fi
fi
show cmake --build $build --target lq
cmake --build $build --target lq >build/quickstart.log 2>&1 || { tail -n 40 build/quickstart.log >&2; exit 1; }
rm -f build/quickstart.log
# From here on `lq` is the program just built.
PATH=$PWD/$build:$PATH
mkdir -p $out
do_it lq version

say "A small model of ours, as bf16"
do_it lq inspect $demo

say "Quantized to 4 bits in groups of 32, and to 8 bits"
do_it lq quantize $demo $out/int4.lq --method rtn --bits 4 --group 32 --force --quiet
do_it lq quantize $demo $out/int8.lq --method rtn --bits 8 --force --quiet
do_it lq inspect $out/int4.lq

say "What that cost: perplexity on a text that was not learned from"
for model in $demo $out/int8.lq $out/int4.lq; do
    do_it lq eval $model --text calib_data/test.txt --protocol llamacpp512 --windows 12 --quiet
done

say "A text, and an answer"
do_it lq run $out/int4.lq "Once upon a time" --raw -n 60
do_it lq run $out/int4.lq "Who are you?"

say "The same model behind HTTP"
show lq serve $out/int4.lq --port 0
: >$out/serve.log # there before it is looked at
lq serve $out/int4.lq --port 0 >$out/serve.log 2>&1 &
server=$!
url=
for _ in $(seq 200); do
    url=$(grep -oE 'http://[^ /]+:[0-9]+' $out/serve.log | head -n 1 || true)
    [ -n "$url" ] && curl -sf "$url/health" >/dev/null && break
    kill -0 $server 2>/dev/null || { cat $out/serve.log >&2; exit 1; }
    sleep 0.05
done
[ -n "$url" ] || { echo "the server did not say where it listens:" >&2; cat $out/serve.log >&2; exit 1; }
show "curl $url/v1/completions --json '{\"prompt\": \"The river\", \"max_tokens\": 40}'"
curl -sSf "$url/v1/completions" --json '{"prompt": "The river", "max_tokens": 40}'
echo
kill $server
wait $server || true
server=

say "Done. The program is $build/lq; \`lq help\` lists what it does, README.md goes on from here."
