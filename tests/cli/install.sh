#!/bin/bash
# install.sh LQ: `cmake --install` from the build that LQ lies in: everything is in place, the one header stands alone in C and C++, a
# stranger's program builds and runs against the shared and the static library by pkg-config, and the library shows lq.h's functions alone.
set -u
lq=$(readlink -f "$1")
build=$(dirname "$lq")
cd "$(dirname "$0")/../.." || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAILED: $*"; }
skip() { skipped=$((skipped + 1)); echo "SKIPPED: $*"; }
check() { local what=$1; shift; if "$@" >"$work/log" 2>&1; then ok; else bad "$what: $(tail -n 3 "$work/log")"; fi; }
finish() { echo "$passed passed, $failed failed, $skipped skipped"; [ "$failed" = 0 ]; exit; }

if ! [ -f "$build/cmake_install.cmake" ]; then skip "$lq does not lie in a build folder of CMake"; finish; fi
prefix=$work/prefix
check "cmake --install" cmake --install "$build" --prefix "$prefix"
libdir=$(dirname "$(find "$prefix" -name liblq.a)")
for file in bin/lq include/lq.h share/man/man1/lq.1 share/bash-completion/completions/lq share/zsh/site-functions/_lq; do
    check "$file is installed" test -s "$prefix/$file"
done
for verb in $("$lq" help | sed -n '/^Verbs/,/^$/s/^  \([a-z]*\( [a-z][a-z]*\)\{0,1\}\)  .*/\1/p' | tr ' ' -); do check "lq-$verb.1 is installed" test -s "$prefix/share/man/man1/lq-$verb.1"; done
for file in liblq.a liblq.so liblq.so.0.1 pkgconfig/lq.pc; do check "$file is installed" test -s "$libdir/$file"; done
check "only one header is installed" test "$(find "$prefix/include" -type f | wc -l)" = 1
check "the installed lq runs" "$prefix/bin/lq" version

cat >"$work/user.c" <<'C'
#include <lq.h>
#include <stdio.h>
int main(void) {
    lq_model *m = NULL;
    lq_err err = {0};
    if (lq_model_open("nowhere.lq", NULL, &m, &err) || err.code != LQ_E_IO) return 1;
    puts(err.text);
    lq_engine_stats s = {0};
    (void)s;
    lq_free(NULL);
    return 0;
}
C
check "lq.h stands alone in C" gcc -std=c11 -Wall -Wextra -pedantic -Werror -I"$prefix/include" -fsyntax-only "$work/user.c"
cxx=$(command -v g++ || command -v clang++)
if [ -n "$cxx" ]; then
    check "lq.h stands alone in C++" sh -c "echo '#include <lq.h>' | $cxx -std=c++17 -Wall -Wextra -Werror -I'$prefix/include' -fsyntax-only -x c++ -"
else skip "no compiler to read lq.h as C++"; fi

export PKG_CONFIG_PATH=$libdir/pkgconfig
check "pkg-config's version" test "$(pkg-config --modversion lq)" = "$("$lq" --version | cut -d' ' -f2)"
if grep -q '^LQ_SANITIZE:STRING=.' "$build/CMakeCache.txt"; then skip "a stranger's program does not link against a library with sanitizers"; finish; fi
check "links against liblq.so" sh -c "gcc '$work/user.c' -o '$work/shared' \$(pkg-config --cflags --libs lq)"
check "runs with liblq.so" env LD_LIBRARY_PATH="$libdir" "$work/shared"
# The example of the README, as it stands there.
awk '/^    \/\/ ask\.c: / { on = 1 } on && /^[^ ]/ { exit } on { sub(/^    /, ""); print }' README.md >"$work/ask.c"
check "the README's example has less than 80 lines" test "$(wc -l <"$work/ask.c")" -gt 20 -a "$(wc -l <"$work/ask.c")" -lt 80
check "the README's example builds" sh -c "gcc -std=c11 -Wall -Wextra -Werror '$work/ask.c' -o '$work/ask' \$(pkg-config --cflags --libs lq)"
LD_LIBRARY_PATH=$libdir "$work/ask" calib_data/demo "The river" "Once upon a time" >"$work/asked" 2>&1
check "the README's example answers: $(tail -n 2 "$work/asked")" test "$(grep -c '^The river .\|^Once upon a time .' "$work/asked")" = 2
for text in "The river" "Once upon a time"; do
    LD_LIBRARY_PATH=$libdir "$work/ask" calib_data/demo "$text" >"$work/alone.txt" 2>&1
    check "\"$text\" alone is what it is beside another" grep -qxFf "$work/alone.txt" "$work/asked"
done
LD_LIBRARY_PATH=$libdir "$work/ask" nowhere.lq x >"$work/asked" 2>&1
check "and fails in one line" grep -q '^ask: nowhere.lq' "$work/asked"
# Where liblq.so is not, -llq is liblq.a. No other .pc file is needed, and none is looked at.
cp -r "$prefix" "$work/alone"
find "$work/alone" -name 'liblq.so*' -delete
export PKG_CONFIG_LIBDIR=$work/alone/${libdir#"$prefix"/}/pkgconfig
unset PKG_CONFIG_PATH
check "pkg-config --cflags without other packages" pkg-config --cflags lq
check "links against liblq.a" sh -c "gcc '$work/user.c' -o '$work/static' \$(pkg-config --static --cflags --libs lq)"
check "runs with liblq.a" "$work/static"
check "stands on liblq.a" sh -c "! ldd '$work/static' | grep -q liblq"
shown=$(nm -D --defined-only "$libdir/liblq.so" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort)
want=$(sed -n '/global:/,/local:/p' runtime/lq.map | grep -oE 'lq_[a-z0-9_]+' | sort)
check "liblq.so shows lq.h's functions alone: $(comm -3 <(echo "$shown") <(echo "$want") | tr '\n' ' ')" test "$shown" = "$want"
finish
