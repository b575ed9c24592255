#!/bin/bash
# template.sh LQ: lq template: where a model's chat template comes from, what it is given, and what is refused. That templates
# give what Jinja2 makes of them is tests/golden/check_templates.py's to say.
set -u
lq=$1
export LC_ALL=C.UTF-8
demo=$(dirname "$0")/../../calib_data/demo
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAILED: $*"; }
# run STATUS ARGS...: runs lq template, checks the exit status, leaves $out and $err.
run() {
    local want=$1 got
    shift
    "$lq" template "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    out=$(<"$work/out") err=$(<"$work/err")
    if [ "$got" = "$want" ]; then ok; else bad "lq template $*: exit status $got, not $want: $err"; fi
}
is() { if [ "$1" = "$2" ]; then ok; else bad "\"${1:0:300}\", not \"$2\""; fi; }
has() { if [[ $1 == *"$2"* ]]; then ok; else bad "no \"$2\" in: ${1:0:300}"; fi; }
line() { is "$out" ""; is "$(wc -l <<<"$err")" 1; has "$err" "$1"; } # an error of one line

chat=$work/chat.json tools=$work/tools.json model=$work/model
echo '[{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Mo.", "tool_calls": null}]' >"$chat"
echo '[{"type": "function", "function": {"name": "f"}}]' >"$tools"
mkdir "$model"
cp "$demo/config.json" "$demo/model.safetensors" "$demo/tokenizer.json" "$model"
config() { echo "{\"bos_token\": {\"content\": \"<b>\"}, \"eos_token\": \"<e>\"${1:+, \"chat_template\": $1}}" >"$model/tokenizer_config.json"; }

# --- what the demo model has; a pipe gets it byte for byte ---
run 0 "$demo" --messages "$chat"
is "$out" "<|begin|><|user|>Who?<|assistant|>Mo.<|end|>"
is "$(wc -c <"$work/out")" 44
run 0 "$demo" -m "$chat" -g; has "$out" "Mo.<|end|><|assistant|>"
run 0 "$demo" -m "$chat" --json; is "$out" '{"text":"<|begin|><|user|>Who?<|assistant|>Mo.<|end|>"}'
run 0 "$demo" -m "$chat" --var 'bos_token=""' --var add_generation_prompt=true; is "$out" "<|user|>Who?<|assistant|>Mo.<|end|><|assistant|>"
is "$("$lq" template "$demo" -m - <"$chat")" "<|begin|><|user|>Who?<|assistant|>Mo.<|end|>"

# --- where a template stands ---
config; run 1 "$model" -m "$chat"; line "chat template: there is none"
echo '{"chat_template": "old {{ eos_token }}"}' >"$model/chat_template.json"
run 0 "$model" -m "$chat"; is "$out" "old <e>"
config '"one {{ bos_token }}{{ messages[1].tool_calls is defined }}"'; run 0 "$model" -m "$chat"; is "$out" "one <b>False"
config '[{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools {{ tools[0].function.name }}"}, {"name": "rag", "template": "{{"}]'
run 0 "$model" -m "$chat"; is "$out" plain
run 0 "$model" -m "$chat" --tools "$tools"; is "$out" "tools f"
run 0 "$model" -m "$chat" --tools "$tools" --name default; is "$out" plain
run 1 "$model" -m "$chat" --name rag; line "line 1: "
run 1 "$model" -m "$chat" --name nope; line "there is none named nope"
config '[{"name": "a", "template": "a"}, {"name": "b", "template": "b"}]'; run 1 "$model" -m "$chat"; line "none of 2 is the default one"
printf 'file {{ tools }}{{ documents }}{{ add_generation_prompt }}\n' >"$model/chat_template.jinja"
run 0 "$model" -m "$chat"; is "$out" "file NoneNoneFalse"
run 0 "$model/chat_template.jinja" -m "$chat" --documents "$tools"; is "$out" "file None[{'type': 'function', 'function': {'name': 'f'}}]False"
for name in 5 '[1]' '[{"name": "default"}]'; do rm -f "$model/chat_template.jinja"; config "$name"; run 1 "$model" -m "$chat"; line "chat template: "; done

# --- a .lq file has it with it ---
printf '{{ bos_token }}in {{ messages | length }}' >"$model/chat_template.jinja"
config
"$lq" quantize "$model" "$work/m.lq" --quiet >/dev/null 2>&1 && ok || bad "lq quantize"
run 0 "$work/m.lq" -m "$chat"; is "$out" "<b>in 2"

# --- what is refused ---
printf '{%% if 1 %%}\n{{ raise_exception("no " ~ messages[0].role) }}{%% endif %%}' >"$work/no.jinja"
run 1 "$work/no.jinja" -m "$chat"; line "no.jinja: line 2: no user"
printf '\n{%% for x in y %%}' >"$work/bad.jinja"; run 1 "$work/bad.jinja" -m "$chat"; line "bad.jinja: line 2: Unexpected end of template."
printf '\377' >"$work/bytes.jinja"; run 1 "$work/bytes.jinja" -m "$chat"; line "it is not UTF-8"
run 1 "$work/none.jinja" -m "$chat"; line "none.jinja"
run 1 "$work/none.lq" -m "$chat"; line "none.lq"
run 1 "$demo" -m "$work/none.json"; line "none.json"
run 2 "$demo"; has "$err" "--messages FILE is missing"
run 2 "$demo" -m "$chat" --var x; has "$err" "--var: x is no NAME=JSON"
run 2 "$demo" -m "$chat" --var =1; has "$err" "--var: =1 is no NAME=JSON"
run 2 "$work/no.jinja" -m "$chat" --name x; has "$err" "is one template"
run 1 "$demo" -m "$chat" --var x=hello; line "x: "
for text in '[]' '{}' '[1]' '"x"' 'null' '[{"role": "user"}' ''; do echo "$text" >"$work/odd.json"; run 1 "$demo" -m "$work/odd.json"; line "messages: "; done
echo '[1]' >"$work/odd.json"; run 1 "$demo" -m "$chat" --tools "$work/odd.json"; line "tools: a list of objects is expected"
printf '{{ x }} {{ [x] | tojson }}' >"$work/x.jinja"; run 0 "$work/x.jinja" -m "$chat" --var x=99999999999999999999; is "$out" "99999999999999999999 [99999999999999999999]"
run 1 "$demo" -m "$chat" --var x="$(printf '9%.0s' {1..4301})"; line "x: an integer of 4301 digits, expected at most 4300"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
