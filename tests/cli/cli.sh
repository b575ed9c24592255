#!/bin/bash
# cli.sh LQ: the frame of the program: verbs, options, errors and exit statuses, help, completion, man pages, and what it prints
# on a pipe. Needs no model.
set -u
lq=$1
export LC_ALL=C.UTF-8
unset NO_COLOR
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAILED: $*"; }
# run STATUS ARGS...: runs lq, checks the exit status, leaves $out and $err.
run() {
    local want=$1 got
    shift
    "$lq" "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    out=$(<"$work/out") err=$(<"$work/err")
    if [ "$got" = "$want" ]; then ok; else bad "lq $*: exit status $got, not $want: $err"; fi
}
has() { if [[ $1 == *"$2"* ]]; then ok; else bad "no \"$2\" in: ${1:0:300}"; fi; } # TEXT PART
is() { if [ "$1" = "$2" ]; then ok; else bad "\"${1:0:300}\", not \"$2\""; fi; }
hint() { is "$(sed -n 2p <<<"$err")" "lq help${1:+ $1} explains it"; is "$(wc -l <<<"$err")" 2; }
verbs=$("$lq" help | sed -n '/^Verbs/,/^$/s/^  \([a-z]*\)  .*/\1/p') # of one word: bench_serve.py asks for its own
[ "$(wc -w <<<"$verbs")" -ge 10 ] && ok || bad "lq help lists: $verbs"

# --- verbs and help ---
run 2
has "$err" "lq VERB"
is "$out" ""
for word in help --help -h; do run 0 $word; has "$out" "quantize"; is "$err" ""; done
run 0 --version
has "$out" "lq "
for verb in $verbs; do
    run 0 help "$verb"
    saved=$out
    run 0 "$verb" --help
    is "$out" "$saved"
    has "$out" "Examples"
    has "$out" "lq $verb"
    [ "$(awk 'length > 80' "$work/out" | grep -cv '^  lq\|^  [a-z]' || true)" = 0 ] && ok || bad "help of $verb has lines past 80 columns"
done
run 2 quantise; has "$err" "lq: unknown verb quantise; did you mean quantize?"; hint
run 2 evl; has "$err" "did you mean eval?"
run 2 insp; has "$err" "did you mean inspect?"
run 2 xyzzyx; is "$(head -n 1 <<<"$err")" "lq: unknown verb xyzzyx"; hint
run 2 help evla; has "$err" "did you mean eval?"
run 2 --json; has "$err" "a verb comes first"

# --- options ---
run 2 run; has "$err" "lq run: an argument is missing: lq run MODEL"; hint run
run 2 run m --tmep 1; has "$err" "lq run: unknown option --tmep; did you mean --temp?"; hint run
run 2 run m --nothing-like-it; is "$(head -n 1 <<<"$err")" "lq run: unknown option --nothing-like-it"
run 2 run m -Z; has "$err" "unknown option -Z"
run 2 run m --temp; has "$err" "--temp needs a value"
run 2 run m p --temp -1; has "$err" "--temp: -1 is no number from 0 to 100"
run 2 run m p --temp=nan; has "$err" "--temp: nan is no number"
run 2 run m p --temp 1x; has "$err" "1x is no number"
run 2 run m p -t 0; has "$err" "--threads: 0 is no whole number from 1 to 1024"
run 2 run m p -t4x; has "$err" "4x is no whole number"
run 2 run m p -n 99999999999999999999; has "$err" "--max-tokens"
run 2 run m p --kv-dtype f8; has "$err" "--kv-dtype: f8 is none of auto|f32|f16|bf16"
run 2 run m p --kv-dtype f; has "$err" "--kv-dtype: f is none of"
run 2 run m p --kv-dtype ''; has "$err" "--kv-dtype:  is none of"
run 2 eval m --text t --protocol 'all|gptq2048'; has "$err" "all|gptq2048 is none of all|"
run 2 quantize m o --max-ram 0; has "$err" "--max-ram: 0 is no size"
run 2 serve m --kv-memory 0; has "$err" "--kv-memory: 0 is no size"
run 2 run m p --seed 18446744073709551616; has "$err" "--seed: 18446744073709551616 is no whole number"
run 2 run m p --seed +1; has "$err" "--seed: +1 is no whole number"
run 2 run m p --seed ''; has "$err" "--seed:  is no whole number"
for verb in help man completion; do
    for word in --json --quiet -q; do run 2 $verb $word; has "$err" "unknown option"; done
done
run 2 run m p --json=1; has "$err" "--json takes no value"
run 2 run m p q; has "$err" "q is one word too many"
run 2 run m p -p q; has "$err" "more than one prompt"
run 2 run m p --seed -4; has "$err" "--seed: -4 is no whole number"
run 2 eval m; has "$err" "--text FILE is missing"
run 2 bench m -b 1,,4; has "$err" "1,,4 is no list"
run 2 completion fish; has "$err" "fish is none of bash|zsh"
# These lines are right, so what fails is the model: exit status 1, one line.
none=$work/none.lq
for words in "run $none p -t4 -n5" "run -t 4 --temp=0.5 $none p" "run --temp 0.5 -n 3 $none p" "run -qt2 $none p" \
    "run $none p --temp 7 --temp 0.1" "run $none --stop a --stop=b p" "run --json $none -- -p" "run $none -- --temp" "run $none -5" "inspect $none"; do
    run 1 $words
    has "$err" "none.lq"
    is "$(wc -l <<<"$err")" 1
    is "${err:0:4}" "lq: "
    is "$out" ""
done
run 2 run "$none" p --temp 1000 --temp 0.1; has "$err" "1000"

# --- what a pipe sees: no colours, and a pipe or disk that is gone is a failure ---
"$lq" help run | grep -q $'\033' && bad "colours on a pipe" || ok
"$lq" run 2>&1 | grep -q $'\033' && bad "colours of an error on a pipe" || ok
if [ -c /dev/full ]; then
    "$lq" help >/dev/full 2>"$work/err"
    is $? 1
    has "$(<"$work/err")" "could not be written"
else skipped=$((skipped + 1)); echo "SKIPPED: no /dev/full"; fi
if command -v script >/dev/null && script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    TERM=xterm script -qec "$lq help" /dev/null </dev/null 2>/dev/null | grep -q $'\033' && ok || bad "no colours on a terminal"
    TERM=xterm NO_COLOR=1 script -qec "$lq help" /dev/null </dev/null 2>/dev/null | grep -q $'\033' && bad "colours with NO_COLOR" || ok
else skipped=$((skipped + 1)); echo "SKIPPED: no script(1) to make a terminal"; fi

# --- version ---
run 0 version
for part in built libraries cJSON GnuTLS optional processor; do has "$out" "$part"; done
run 0 version --json
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert d["version"] and d["libraries"]["cJSON"] and isinstance(d["optional_used"], list) and isinstance(d["optional_unused"], list) and isinstance(d["optional_missing"], list)' \
        "$work/out" && ok || bad "version --json"
else skipped=$((skipped + 1)); echo "SKIPPED: no python3 to read JSON with"; fi
if [ -r /proc/cpuinfo ] && grep -q avx2 /proc/cpuinfo; then
    for f in avx2 avx512f avx512_vnni amx_int8 f16c; do
        there=$(grep -cw "$f" /proc/cpuinfo) told=$(grep -c "\"$f\"" "$work/out")
        [ $((there > 0)) = "$told" ] && ok || bad "lq version and /proc/cpuinfo differ about $f"
    done
else skipped=$((skipped + 1)); echo "SKIPPED: no x86 with AVX2"; fi

# --- tokenize ---
cat >"$work/tokenizer.json" <<'EOF'
{"added_tokens": [{"id": 4, "content": "<s>", "special": true}], "normalizer": null, "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581"},
 "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids": [4]}}},
 "decoder": {"type": "Metaspace", "replacement": "\u2581"},
 "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["\u2581", -2], ["a", -3], ["\u2581a", -1]]}}
EOF
printf 'QQ== 0\nQg== 1\n' >"$work/broken.tiktoken"
mkdir "$work/nothing" "$work/vocab"
echo '{"a": 0}' >"$work/vocab/vocab.json"
echo '{"tokenizer_class": "OddTokenizer"}' >"$work/vocab/tokenizer_config.json"
run 0 tokenize "$work/tokenizer.json" -p "a a"; is "$out" $'4\t<s>\n3\t\u2581a\n3\t\u2581a'; is "$err" ""
run 0 tokenize "$work" -p "ax" --no-special; is "$out" $'3\t\u2581a\n0\t<unk>'
run 0 tokenize "$work/tokenizer.json" -p "a<s>" --json; is "$out" $'{"ids":[4,3,4],"pieces":["<s>","\u2581a","<s>"]}'
run 0 tokenize "$work/tokenizer.json" -p "" --json --no-special; is "$out" '{"ids":[],"pieces":[]}'
run 0 tokenize "$work/tokenizer.json" -p "[4, 3,3]" --decode; is "$out" "<s> a a"
run 0 tokenize "$work/tokenizer.json" -p "4 3 3" --decode --no-special --json; is "$out" '{"text":"a a"}'
is "$(printf 'a \xff' | "$lq" tokenize "$work/tokenizer.json" --no-special | cut -f1 | tr '\n' ' ')" "3 1 0 "
is "$("$lq" tokenize "$work/tokenizer.json" "$work/tokenizer.json" --no-special | wc -l | tr -d ' ')" "$("$lq" tokenize "$work/tokenizer.json" - <"$work/tokenizer.json" --no-special | wc -l | tr -d ' ')"
run 1 tokenize "$work/tokenizer.json" -p "4 5" --decode; has "$err" "token 1 is 5"
run 1 tokenize "$work/tokenizer.json" -p "4 x" --decode; has "$err" "is no id"
run 1 tokenize "$work/broken.tiktoken" -p a; has "$err" "byte 0 has no token"
run 1 tokenize "$work/nothing" -p a; has "$err" "there is no tokenizer.json"
run 1 tokenize "$work/vocab" -p a; has "$err" "it is not known how it cuts a text"
run 1 tokenize "$work/none.model" -p a; has "$err" "none.model"
run 2 tokenize "$work/tokenizer.json" -p a "$work/out"; has "$err" "give one of them"
run 2 tokenize; run 2 tokenize a b c

# --- completion ---
"$lq" completion bash >"$work/c.bash"
bash -n "$work/c.bash" && ok || bad "bash completion does not parse"
complete_bash() { # WORDS...: what the last one may become
    bash -c 'compopt() { :; }; source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lq; echo "${COMPREPLY[@]}"' - "$work/c.bash" "$@"
}
is "$(complete_bash lq quan)" quantize
is "$(complete_bash lq help eva)" eval
is "$(complete_bash lq eval --protocol g)" gptq2048
is "$(complete_bash lq eval --prot)" --protocol
is "$(complete_bash lq run --kv-dtype = b)" bf16
is "$(complete_bash lq completion z)" zsh
touch "$work/model.lq"
mkdir "$work/sp ace dir"
count_bash() { bash -c 'compopt() { :; }; source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lq; echo "${#COMPREPLY[@]}"' - "$work/c.bash" "$@"; }
is "$(cd "$work" && complete_bash lq inspect sp)" "sp ace dir"
is "$(cd "$work" && count_bash lq inspect sp)" 1
is "$(cd "$work" && count_bash lq run --prompt-file sp)" 1
is "$(cd "$work" && complete_bash lq inspect mod)" model.lq
is "$(cd "$work" && complete_bash lq run --prompt-file mod)" model.lq
for verb in $verbs; do
    want=$("$lq" help "$verb" | grep -oE '^ +(-., )?--[a-z0-9-]+' | grep -oE -- '--.*' | sort | tr '\n' ' ')
    is "$(complete_bash lq "$verb" -- | tr ' ' '\n' | sort | tr '\n' ' ')" "$want"
done
"$lq" completion zsh >"$work/_lq"
if command -v zsh >/dev/null; then
    zsh -n "$work/_lq" && ok || bad "zsh completion does not parse"
    zsh -fc 'autoload -U compinit; compinit -D; source '"$work/_lq"'; [[ $_comps[lq] == _lq ]]' && ok || bad "zsh does not take the completion"
else skipped=$((skipped + 1)); echo "SKIPPED: no zsh"; fi

# --- tables: what their rows are called is taken, explained, on the man page and completed ---
tables=$(dirname "$lq")/print_tables
if [ -x "$tables" ]; then
    "$tables" >"$work/tables"
    [ "$(wc -l <"$work/tables")" -ge 8 ] && ok || bad "print_tables: $(<"$work/tables")"
    while read -r option verb name; do
        "$lq" "$verb" "$option" "$name" "$none" "$none" --text "$none" 2>&1 | grep -q "is none of" && bad "lq $verb $option $name" || ok
        "$lq" help "$verb" | tr -s ' \n,:' '\n' | grep -qx -- "$name" && ok || bad "lq help $verb: no $name"
        "$lq" man "$verb" | tr -s ' ,:' '\n' | grep -qx -- "$name" && ok || bad "lq man $verb: no $name"
        [[ " $(complete_bash lq "$verb" "$option" "$name") " = *" $name "* ]] && ok || bad "completion of lq $verb $option: no $name"
    done <"$work/tables"
else skipped=$((skipped + 1)); echo "SKIPPED: no print_tables beside lq"; fi

# --- man pages ---
for page in "" $verbs; do
    "$lq" man $page >"$work/page.1"
    is "$(head -c 4 "$work/page.1")" ".TH "
    if command -v groff >/dev/null; then
        is "$(groff -man -ww -Tutf8 "$work/page.1" 2>&1 >/dev/null | head -n 1)" ""
    else skipped=$((skipped + 1)); echo "SKIPPED: no groff to check man pages with"; fi
done

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
