#!/bin/bash
# run.sh: builds lq and runs its tests. On a bare Debian 12, as root or with sudo, it installs what it needs first.
#
#   tests/run.sh [--quick] [--require=NAME]... [LAYER]...
#
# Layers: tidy unit kernels golden cli server cuda fuzz; none named: all. --quick builds with gcc alone and leaves the sanitizers out.
# --require=NAME (a layer, or a program like test_kv or serve.py) fails if anything of it was skipped or it did not run.
# Logs stand in build/test-logs.
# A program that ends without its closing line `N passed, N failed, N skipped` counts as one failure.
set -u
cd "$(dirname "$0")/.." || exit 2
export LC_ALL=C.UTF-8 NO_COLOR=1
export OPENBLAS_NUM_THREADS=1 # numpy's threads wait by spinning: with a job on each core that is work for nothing
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
unset MALLOC_PERTURB_ LQ_TEST_ONLY 2>/dev/null

all="tidy unit kernels golden cli server cuda fuzz"
layers=() required=() presets="release clang asan"
for word in "$@"; do
    case $word in
    --quick) presets=release ;;
    --require=*) required+=("${word#*=}") ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) [[ " $all " == *" $word "* ]] || { echo "run.sh: $word is none of the layers: $all" >&2; exit 2; }
        layers+=("$word") ;;
    esac
done
[ ${#layers[@]} = 0 ] && layers=($all)
wants() { [[ " ${layers[*]} " == *" $1 "* ]]; }

bash tools/packages.sh test || exit 1
# Scripts are run by a Python that has numpy: the system's, where the first one in PATH has none.
python=python3
for word in python3 /usr/bin/python3; do "$word" -c 'import numpy' 2>/dev/null && python=$word && break; done
clients=$PWD/build/clients/bin/python
cores=$(nproc)
logs=$PWD/build/test-logs
mkdir -p build
exec 9>build/test-run.lock
flock -n 9 || { echo "run.sh: another run is at work here; waiting for its end" >&2; flock 9; }
rm -rf "$logs"
mkdir -p "$logs"
began=$SECONDS

# --- jobs: a layer, a name, a command; its log, status and seconds lie in $logs ---
# What a job may take is CPU time, of each of its processes on all cores: work takes as much of it on a busy machine as on an idle one. Who
# waits for something that does not come is ended by the clock, late enough for a machine that has ten times as much to do.
jobs=() names=() commands=()
job() { names+=("${2%% *}") commands+=("$(printf '%q ' "$@")"); } # LAYER NAME SECONDS COMMAND...

# Who takes minutes begins first, the longest before the others, so that all cores end together.
long="check_device.py check_device_quantize.py serve.py serve_life.py quantize_resume.py checkkern bench.py quantize_safe.py quantize_ram.py check_kernels.py quantize_kill.py"
begin_all() {
    local word i
    for word in $long ALL; do
        for i in "${!commands[@]}"; do
            [ "$word" = ALL ] || [ "$word" = "${names[i]}" ] || continue
            eval "begin ${commands[i]}"
            unset "commands[i]"
        done
    done
    names=() commands=()
}

begin() { # LAYER NAME SECONDS COMMAND...
    local layer=$1 name=$2 limit=$3 log
    shift 3
    log=$logs/$layer.${name//[^A-Za-z0-9_.-]/_}
    jobs+=("$layer|$name|$log")
    while [ "$(jobs -rp | wc -l)" -ge "$cores" ]; do wait -n 2>/dev/null; done
    reap
    (
        start=$EPOCHREALTIME
        ulimit -t $((limit * (cores < 8 ? cores : 8)))
        LQ_SLOW=$(slow "$name") timeout -k 5 $((limit * 10)) "$@" >"$log" 2>&1 </dev/null 9>&-
        echo "$? $(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')" >"$log.end"
        mv "$log.end" "$log.rc"
    ) &
}

# What scripts multiply their own time limits with: the sanitizers' share, and how many there are for each core.
slow() { awk -v cores="$cores" -v by="$([[ $1 = *asan* ]] && echo 5 || echo 1)" '{ print ($1 > cores ? by * $1 / cores : by) }' /proc/loadavg 2>/dev/null || echo 5; }

passed=0 failed=0 skipped=0
declare -A ran=() skips=()
closing='^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$'
report() { # what a job left behind
    local layer=$1 name=$2 log=$3 key status=missing seconds=0 line p=0 f=0 s=0 why=
    [ -f "$log.rc" ] && read -r status seconds <"$log.rc"
    line=$(grep -aE "$closing" "$log" | tail -n 1)
    if [ -n "$line" ]; then
        read -r p _ f _ s _ <<<"${line//,/}"
        s=${s:-0}
    fi
    if [ -z "$line" ]; then why="no closing line, exit status $status" f=1
    elif [ "$status" != 0 ] && [ "$f" = 0 ]; then why="exit status $status" f=1; fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    for key in "$layer" "${name% (*}"; do ran[$key]=1 skips[$key]=$((${skips[$key]:-0} + s)); done
    printf '%-5s %-8s %-34s %6d passed %3d failed %3d skipped %6s s\n' "$([ "$f" = 0 ] && echo ok || echo FAIL)" "$layer" "$name" "$p" "$f" "$s" "$seconds"
    grep -aE '^ *SKIP(PED)?[: ]' "$log" | sort | uniq -c | sed -E 's/^ *1 /      /; s/^ *([0-9]+) /      \1x /'
    if [ "$f" != 0 ]; then
        { grep -aE 'FAIL|ERROR|error:|warning:|runtime error|: what|\[[a-z-]+\]$' "$log" | head -n 20; [ -n "$why" ] && tail -n 12 "$log"; } | cut -c1-220 | sed 's/^/      /'
        echo "      ${why:+$why; }log: ${log#"$PWD"/}"
    fi
}
# Reports the jobs that have ended, in the order in which they were begun.
reap() {
    local entry layer name log left=()
    for entry in ${jobs[@]+"${jobs[@]}"}; do
        IFS='|' read -r layer name log <<<"$entry"
        if [ -f "$log.rc" ] || [ "${1:-}" = all ]; then report "$layer" "$name" "$log"; else left+=("$entry"); fi
    done
    jobs=(${left[@]+"${left[@]}"})
}

# --- builds: any warning is an error, so that what warned once is not taken for built the second time ---
build() {
    local preset=$1 log=$logs/build.$1 start=$SECONDS generator=()
    [ "$preset" = clang ] && generator=(-DLQ_CUDA=OFF) # nvcc has made its kernels once, and they are run from no other build
    [ -f "build/$preset/CMakeCache.txt" ] || generator+=(-G Ninja)
    if cmake --preset "$preset" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON ${generator[@]+"${generator[@]}"} >"$log" 2>&1 && cmake --build --preset "$preset" -j "$cores" >>"$log" 2>&1 &&
        ! grep -qE '(warning|error):' "$log"; then
        passed=$((passed + 1))
        printf 'ok    build    %-34s %71s\n' "$preset" "$((SECONDS - start)) s" | tr -s ' ' | sed 's/^ok build /ok    build    /'
        return 0
    fi
    failed=$((failed + 1))
    echo "FAIL  build    $preset; log: ${log#"$PWD"/}"
    grep -aE '(warning|error|undefined reference)' "$log" | head -n 30 | sed 's/^/      /'
    [ -x "build/$preset/lq" ]
}

unit_jobs() { # PRESET
    local file name
    for file in tests/unit/test_*.c; do
        [ -e "$file" ] || continue
        name=$(basename "$file" .c)
        job unit "$name ($1)" 300 "build/$1/$name"
    done
}
kernel_jobs() {
    [ -d tests/checkkern ] && ls tests/checkkern/*.c >/dev/null 2>&1 || return
    job kernels "checkkern ($1)" 300 "build/$1/checkkern"
}
# Kernels for CUDA on the emulated machine, and what nvcc makes of them.
cuda_jobs() { # PRESET
    local file name
    for file in tests/cuda/check_*.cpp; do
        name=$(basename "$file" .cpp)
        if [ -x "build/$1/$name" ]; then
            job cuda "$name ($1)" 300 "build/$1/$name"
        else
            job cuda "$name ($1)" 10 echo $'SKIPPED: no g++ for x86-64\n0 passed, 0 failed, 1 skipped'
        fi
    done
    script_jobs cuda "$1" tests/cuda/check_*.py
    if [ -d "build/$1/emulated" ]; then
        job cuda "checkkern of the emulated device ($1)" 600 env LD_LIBRARY_PATH="build/$1/emulated" "build/$1/checkkern" --device cuda
    else
        job cuda "checkkern of the emulated device ($1)" 10 echo $'SKIPPED: no g++ for x86-64\n0 passed, 0 failed, 1 skipped'
    fi
    job cuda "names of simt.h ($1)" 300 "$python" tests/cuda/check_kernels.py --kernels=tests/cuda/names
}
# Every executable of a folder takes the program as its argument (and finds it as $LQ; $LQ_SLOW: a factor on its time limits).
script_jobs() { # LAYER PRESET FILES...
    local layer=$1 preset=$2 file with
    shift 2
    for file in "$@"; do
        [ -f "$file" ] && [ -x "$file" ] || continue
        [[ $layer = cli && $file = */serve* ]] && continue
        with=bash
        [[ $file = *.py ]] && with=$python
        [[ $file =~ serve_(openai|anthropic|langchain|lm_eval).py$ ]] && [ -x "$clients" ] && with=$clients
        job "$layer" "$(basename "$file") ($preset)" 300 env LQ="$PWD/build/$preset/lq" "$with" "$file" "$PWD/build/$preset/lq"
    done
}
fuzz_jobs() {
    local file name
    for file in tests/fuzz/fuzz_*.c; do
        [ -e "$file" ] || continue
        name=$(basename "$file" .c)
        job fuzz "$name ($1)" 300 "build/$1/$name" "tests/fuzz/corpus/${name#fuzz_}" "tests/fuzz/${name#fuzz_}"
    done
}

wants server && { bash tools/clients.sh build/clients >"$logs/clients" 2>&1 & }
wants tidy && job tidy tidy.sh 60 bash tests/tidy.sh && begin_all
built=()
for preset in $presets; do
    [ "${layers[*]}" = tidy ] && break
    build "$preset" && built+=("$preset")
done
wait # for the clients, which were fetched beside the builds
for preset in ${built[@]+"${built[@]}"}; do
    case $preset in
    release)
        wants golden && script_jobs golden release tests/golden/check_*.py tests/golden/*.sh
        wants server && script_jobs server release tests/cli/serve*.py tests/cli/serve*.sh
        wants cli && script_jobs cli release tests/cli/*.sh tests/cli/*.py
        wants unit && unit_jobs release
        wants kernels && kernel_jobs release
        wants cuda && cuda_jobs release
        ;;
    clang) wants kernels && kernel_jobs clang ;;
    asan)
        wants kernels && kernel_jobs asan
        wants cli && script_jobs cli asan tests/cli/*.sh tests/cli/*.py
        wants server && script_jobs server asan tests/cli/serve*.py tests/cli/serve*.sh
        wants unit && unit_jobs asan
        ;;
    esac
    # The corpus is replayed where memory is watched, or with what there is.
    [ "$preset" = "${presets##* }" ] && wants fuzz && fuzz_jobs "$preset"
done
begin_all
wait
reap all

for name in "${layers[@]}"; do
    [ -n "${ran[$name]:-}" ] && continue
    echo "      SKIPPED: $name: nothing to run"
    skipped=$((skipped + 1)) skips[$name]=1
done
for name in ${required[@]+"${required[@]}"}; do
    if [ -z "${ran[$name]:-}" ] || [ "${skips[$name]:-0}" != 0 ]; then
        echo "FAIL  $name is required, and ${skips[$name]:-all} of it was skipped"
        failed=$((failed + 1))
    fi
done
echo "$((SECONDS - began)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
