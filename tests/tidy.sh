#!/bin/bash
# tidy.sh: the rules of the code that a machine can check: who may include whom, names, lengths, what a library may not call,
# what every table row and public function owes the docs. Prints each violation as file:line: what; the closing line counts rules
# that hold as passed and violations as failed. `tests/tidy.sh --rules` lists the rules.
set -u
export LC_ALL=C
shopt -s lastpipe
cd "$(dirname "$0")/.." || exit 2
out=$(mktemp)
trap 'rm -f "$out"' EXIT
files=$(find . \( -path ./build -o -path ./.git -o -name '*.partial' -o -name __pycache__ \) -prune -o -type f -print | sed 's|^\./||' | sort)
only() { grep -E "$1" <<<"$files" || true; }
c_files=$(only '\.(c|h|cu|cuh|cpp)$')
libraries=$(grep -E '^(formats|kernels|runtime|quant)/' <<<"$c_files" || true)
code=$(only '\.(c|h|cu|cuh|cpp|sh|py|cmake)$|(^|/)CMakeLists\.txt$|^\.ci/')
text=$(only '\.(c|h|cu|cuh|cpp|sh|py|cmake|md|in|map)$|(^|/)CMakeLists\.txt$|CMakePresets\.json$|^\.ci/|^\.gitignore$')
rules=()
# rule NAME: what follows on standard input are its violations.
rule() { rules+=("$1"); sed "s|\$| [$1]|" >>"$out"; }
scan() { [ -n "$2" ] && xargs -d '\n' awk "$1" <<<"$2"; }

scan 'FNR == 1 { line = 1; if (/^#!/) { line = 2; next } }
    FNR == line && (length($0) < 20 || !(FILENAME ~ /\.(c|h|cu|cuh|cpp)$/ ? /^\/\/ / : FILENAME ~ /\.py$/ ? /^(#|""") ?[A-Za-z]/ : /^# ?[A-Za-z]/)) {
        print FILENAME ":" FNR ": the file does not begin with a comment that says what it is"
    }' "$code" | rule head
# A script without the bit is one that run.sh passes over.
for file in $code; do
    case $(head -c 2 "$file") in '#!') [ -x "$file" ] || echo "$file:1: begins with #! and cannot be executed" ;; esac
done | rule executable
scan '/\t/ { print FILENAME ":" FNR ": a tab" }' "$code" | rule tabs
scan '/[ \r]$/ { print FILENAME ":" FNR ": blanks at the end of the line" }' "$text" | rule trailing
scan '/^(<<<<<<<|>>>>>>>)( |$)/ { print FILENAME ":" FNR ": the mark of a merge that was not finished" }' "$text" | rule merged
scan 'FNR == 1 { split("", seen) }
    (/^#/ || length($0) > 60) && seen[$0]++ { print FILENAME ":" FNR ": stands in this document already" }' "$(only '\.md$')" | rule said-once
scan 'FNR == 1 && name != "" { if (last == "") print name ":" n ": an empty line at the end" } { name = FILENAME; last = $0; n = FNR }
    length($0) > 180 { print FILENAME ":" FNR ": " length($0) " columns, more than 180" }' "$c_files" | rule length
# A macro and a long text may go on to 180.
scan 'function text(line,  parts, n, i, most) { # the longest text in it
        n = split(line, parts, "\"")
        for (i = 2; i <= n; i += 2) if (length(parts[i]) > most) most = length(parts[i])
        return most
    }
    { macro = before ~ /\\$/ || /\\$/ || /^ *#/; before = FNR == 1 ? "" : $0 }
    length($0) > 120 && !macro && text($0) < 50 && !/\\"/ { print FILENAME ":" FNR ": " length($0) " columns, more than 120" }' "$c_files" | rule width
scan 'FNR == 1 { before = "" }
    before == "}" && /^[^#}]/ { print FILENAME ":" FNR ": no blank line behind the function above" }
    before == "" && $0 == "" && FNR > 1 { print FILENAME ":" FNR ": two blank lines" }
    { before = $0 }' "$c_files" | rule blank-lines
scan '/[\200-\377]/ { print FILENAME ":" FNR ": a character that is not ASCII" }' "$(grep -vE '^(tests|calib_data)/' <<<"$code")" | rule ascii
scan '/\302\240|\342\200[\213-\217\252-\256]|\357\273\277/ { print FILENAME ":" FNR ": an invisible character" }' "$text" | rule invisible
scan 'function over() { if (n >= 1000) print name ":" n ": " n " lines, 1000 or more" }
    FNR == 1 { over() } { name = FILENAME; n = FNR } END { over() }' "$code" | rule file-length
# A function of C begins at column 0 with a line that holds "(" and ends in "{"; its "}" stands at column 0.
scan 'FNR == 1 { start = 0; open = "" }
    /^[A-Za-z_]/ && !/^(typedef|enum|struct|union|extern "C")[^(]*\{/ && /\(/ { if (/\{$/) { start = FNR; open = $0 } else if (/[^;}]$/) { pending = FNR; open = $0 } }
    !start && pending && /^ .*\) *\{$/ { start = pending } /;$/ && !start { pending = 0 }
    /^\}/ && start {
        limit = FILENAME ~ /^kernels\// ? 120 : 80
        if (FNR - start + 1 > limit) { sub(/\(.*/, "", open); sub(/.*[ *]/, "", open); print FILENAME ":" start ": " open " has " FNR - start + 1 " lines, more than " limit }
        start = pending = 0
    }' "$c_files" | rule function-length

# Words that say something is not done, places of one machine, hosts of packages. Bracketed, so that this file may hold them.
grep -nE 'TO[D]O|FIX[M]E|(^|[^X])XX[X]([^X]|$)|not supported ye[t]|not implemented ye[t]|(^|[^a-z_])stu[b]s?([^a-z_]|$)' $text /dev/null |
    sed -E 's/^([^:]*:[0-9]+):.*/\1: a word of unfinished work/' | rule finished
grep -nE '(^|[^A-Za-z0-9_.])/(wor[k]|hom[e]|roo[t]|Use[r]s|tmp/[w])/|pyp[i]\.|pythonhoste[d]|npmj[s]|crate[s]\.io|deb\.debia[n]|/dist-package[s]/' $text /dev/null |
    sed -E 's/^([^:]*:[0-9]+):.*/\1: a path of one machine, or a host of packages/' | rule places

# Who may include whom: the table of CONTRIBUTING.md.
scan 'function own(dir) { return index(inc, dir "/") == 1 }
    function room(path,  part) { split(path, part, "/"); return part[1] == "runtime" ? index("serve engine model text", part[2]) : 0 } # each sees itself and what follows
    /^#include "/ {
        inc = $2; gsub(/"/, "", inc); dir = FILENAME; sub(/\/.*/, "", dir); ok = 0
        if (inc !~ /\//) { print FILENAME ":" FNR ": " inc ": an include is written from the root of the tree"; next }
        if (own(dir) || dir == "tests") ok = 1
        if (dir != "formats" && own("formats")) ok = 1
        if (dir == "runtime") ok = inc == "runtime/lq.h" || inc ~ /^(formats\/|kernels\/(ops|pack|pool|meter)\.h$)/ || room(inc) >= room(FILENAME)
        if (dir == "quant" && inc ~ /^kernels\/(ops|pack|pool)\.h$|^runtime\/model\/arch\.h$/) ok = 1
        if (dir == "tools" && inc ~ /^runtime\/lq\.h$|^quant\/quant\.h$|^kernels\/meter\.h$/) ok = 1
        if (FILENAME ~ /^runtime\/serve\//) ok = inc ~ /^runtime\/(lq|serve\/[a-z]+)\.h$|^formats\/(json|err)\.h$/
        if (inc == "runtime/lq.h" && dir == "quant") ok = 0
        if (FILENAME ~ /^quant\/(stream|probe|self)\.c$/ && inc == "runtime/model/model.h") ok = 1 # they run a model
        if (FILENAME == "quant/calib.c" && inc == "runtime/lq.h") ok = 1 # for tokens
        if (FILENAME == "quant/self.c" && inc == "runtime/lq.h") ok = 1 # for text
        if (!ok) print FILENAME ":" FNR ": may not include " inc
    }' "$c_files" | rule includes

# What a library may not call; strings and comments are not calls.
scan '{ line = $0; gsub(/"([^"\\]|\\.)*"/, "\"\"", line); sub(/\/\/.*/, "", line); gsub(/\/\*[^*]*\*\//, "", line)
    if (match(line, /(^|[^A-Za-z0-9_.>])(printf|vprintf|puts|putchar|perror|exit|_exit|_Exit|abort|assert|getenv|secure_getenv|setenv|system|signal|sigaction) *\(/)) {
        call = substr(line, RSTART, RLENGTH); gsub(/[^a-zA-Z_]/, "", call); print FILENAME ":" FNR ": a library may not call " call }
    if (line ~ /(^|[^A-Za-z0-9_])(stdout|stderr|stdin)([^A-Za-z0-9_]|$)/) print FILENAME ":" FNR ": a library may not use the standard streams" }' "$libraries" | rule libraries

# Names: what is visible outside its file begins with lq_, types have no _t.
scan '/^[A-Za-z_][A-Za-z0-9_ *]*[ *][a-z_][A-Za-z0-9_]*\(/ && !/^(static|INLINE|LQ_DEV|LQ_FN|template|typedef|extern|return|else|__attribute__)/ && /[{,]$/ {
        name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
        if (name !~ /^lq_/ && name != "main" && name != "LLVMFuzzerTestOneInput") print FILENAME ":" FNR ": " name " is visible outside its file: static, or lq_..." }
    /^typedef struct [A-Za-z_0-9]*_t([^A-Za-z0-9_]|$)|^typedef .*_t;$/ && !/\[/ { print FILENAME ":" FNR ": a type named ..._t" }' "$(grep -vE '^tests/' <<<"$c_files")" | rule names
# In kernels/: lq_<noun>_..., and a function of one instruction set lives in its file and is named after it.
scan '/^[A-Za-z].*[ *]lq_[a-z0-9_]*\(/ && /\{$/ {
        name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name); isa = FILENAME; sub(/.*_/, "", isa); sub(/\.c$/, "", isa)
        if (FILENAME ~ /_(avx2|avxvnni|avx512|avx512bf16|amx)\.c$/ && name !~ "_" isa "(_|$)") print FILENAME ":" FNR ": " name " does not say _" isa
        if (name ~ /_(avx2|avxvnni|avx512|avx512bf16|amx)$/ && name !~ "_" isa "$") print FILENAME ":" FNR ": " name " belongs to a file of its instruction set"
        if (name ~ /__|_$|[A-Z]/) print FILENAME ":" FNR ": " name " is no name of the grammar in docs/KERNELS.md" }' "$(grep -E '^kernels/.*\.c$' <<<"$c_files")" | rule kernel-names

# Every row of the four tables is explained in docs/.
table_rows() { # TABLE: the first text of each row, or the function it ends in
    for file in $(grep -lE "^const lq_[a-z_]+ $1\[" $libraries /dev/null); do
        awk -v table="$1" -v file="$file" '$0 ~ "^const .* " table "\\[" { on = 1; next } on && /^\};/ { on = 0 }
            on && match($0, /\{ *(\.name *= *)?"[^"]*"/) { s = substr($0, RSTART, RLENGTH); gsub(/\{ *(\.name *= *)?|"/, "", s); print file ":" FNR ": " s; next }
            on && match($0, /lq_[a-z0-9_]+\)/) { print file ":" FNR ": " substr($0, RSTART, RLENGTH - 1) }' "$file"
    done
}
for table in lq_dtypes lq_codebooks lq_ukrs lq_archs lq_methods; do
    table_rows $table | while read -r where name; do
        [ $table = lq_ukrs ] && name=${name%_*} # a kernel is explained once for all instruction sets
        cat docs/*.md 2>/dev/null | grep -qiF -- "$name" || echo "$where $name, a row of $table[], is nowhere in docs/"
    done
done | rule documented
table_rows lq_ukrs | grep -vE ' lq_(matmul|rows|codes|moe)_[a-z0-9]+_[a-z0-9]+_[a-z0-9]+(any|x86|cuda)_(c|avx2|avxvnni|avx512|avx512bf16|amx|sm[0-9]+)$' |
    sed 's/$/ is not lq_<op>_<out>_<act>_<weight><layout>_<isa>/' | rule kernel-grammar
for verb in $(sed -n 's/.*{&lq_verb_/\&lq_verb_/; /&lq_verb_/s/[^a-z_&]//gp' tools/lq.c | tr '&' '\n' | sed -n 's/^lq_verb_//p'); do
    grep -qs "lq ${verb//_/ }" README.md || echo "README.md:1: lq ${verb//_/ } is nowhere in it"
done | rule verbs

# The public functions: what lq.h declares is what liblq.so shows.
declared=$(cat runtime/lq.h formats/err.h | grep -vE '^ *//|^typedef|^static' | grep -oE '(^|[ *])lq_[a-z0-9_]+\(' | tr -d ' *(' | sort -u)
shown=$(sed -n '/global:/,/local:/p' runtime/lq.map | grep -oE 'lq_[a-z0-9_]+' | sort -u)
{
    comm -23 <(echo "$declared") <(echo "$shown") | sed 's|.*|runtime/lq.map:1: & of lq.h is not in it|'
    comm -13 <(echo "$declared") <(echo "$shown") | sed 's|.*|runtime/lq.map:1: & is not declared in lq.h|'
} | rule public

failed=$(wc -l <"$out")
broken=$(sed 's/.*\[\(.*\)\]$/\1/' "$out" | sort -u | grep -c . || true)
[ "${1:-}" = --rules ] && printf '%s\n' "${rules[@]}"
sort -t: -k1,1 -k2,2n "$out"
echo "$((${#rules[@]} - broken)) passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
