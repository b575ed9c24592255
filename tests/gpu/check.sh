#!/bin/bash
# check.sh: everything that wants a GPU, in one command of less than ten minutes; a stage that breaks does not stop the others.
#
#   tests/gpu/check.sh OUT [STAGE]...     OUT: a folder for what was measured
#   tests/gpu/check.sh --pack [ARCHS]     on a machine that can build: build/gpu, with the libraries it needs, to be taken along;
#                                         ARCHS: 90a if not given, as what is taken along should be small
#
# Stages: env build names kernels models sanitize tune products bench; none named: all. tune leaves OUT/tuned_rows.h,
# which is for kernels/cuda. build/gpu is taken as it is where its programs start here, else it is built. Seconds that a stage may take stand in the script.
set -u
cd "$(dirname "$0")/../.." || exit 2
root=$PWD at=$PWD/build/gpu
python=python3
all="env build names kernels models sanitize tune products bench"

make_all() { # ARCHS
    cmake -S . -B "$at" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLQ_CUDA=ON "-DLQ_CUDA_ARCHS=$1" && cmake --build "$at" -j "$(nproc)" --target lq lq_cuda gpu_checks print_names dump_logits state_slots kv_blocks lent_rounding time_products tune
}

if [ "${1:-}" = --pack ]; then
    make_all "${2:-90a}" || exit 1
    mkdir -p "$at/lib"
    ldd "$at/lq" "$at/liblq_cuda.so" "$at"/gpu_check_* | awk '$3 ~ /^\// && $3 !~ /\/(libc|libm|libdl|librt|libpthread)\.so/ { print $3 }' | sort -u | xargs -I{} cp -L {} "$at/lib/"
    rm -rf "$at/CMakeFiles" "$at/cuda" "$at"/*.a "$at"/*.c "$at"/*.ninja "$at"/.ninja* "$at"/compile_commands.json
    find "$at" -type f -exec sh -c 'head -c 4 "$1" | grep -q ELF && strip --strip-unneeded "$1"' sh {} \;
    du -sh "$at"
    exit 0
fi
case ${1:-} in '' | -*) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
out=$1
shift
for word in "$@"; do [[ " $all " == *" $word "* ]] || { echo "check.sh: $word is none of: $all" >&2; exit 2; }; done
stages=("$@")
[ ${#stages[@]} = 0 ] && stages=($all)
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
began=$SECONDS failed=0
lt=$("$python" -c 'import glob, importlib.util as u; print(*[d for p in (u.find_spec("torch") or u.find_spec("os")).submodule_search_locations or [] for d in glob.glob(p + "/../nvidia/cu*/lib") if glob.glob(d + "/libcublasLt.so.1*")][:1])' 2>/dev/null) # torch's cuBLASLt
export LD_LIBRARY_PATH="$at:$at/lib${lt:+:$lt}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

say() { printf '%4d s  %-10s %s\n' $((SECONDS - began)) "$1" "$2" | tee -a "$out/summary.txt"; }
bad() { failed=$((failed + 1)); say "$1" "FAILED: $2"; }

env_stage() {
    nvidia-smi >"$out/env.txt" 2>&1 || { bad env "there is no GPU here"; return 1; }
    nvidia-smi --query-gpu=name,driver_version,compute_cap,clocks.max.sm,clocks.max.mem,memory.total --format=csv >>"$out/env.txt"
    say env "$(nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader | head -n 1)"
}

build_stage() {
    local cap
    if "$at/lq" version >/dev/null 2>&1 && "$at/gpu_check_rmsn" 2>&1 | grep -q ' passed'; then say build "build/gpu starts here"; return; fi
    cap=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    [ "$cap" = 90 ] && cap=90a
    make_all "$cap" >"$out/build.txt" 2>&1 && say build "built for sm_$cap" || { bad build "see build.txt"; return 1; }
}

# Every name of simt.h computes on the GPU what it does on the emulated machine: words are equal, or numbers of f32 that are 2^-18 apart at most (approximations).
names_stage() {
    timeout 20 "$at/print_names" >"$out/names.emulated" 2>&1
    timeout 20 "$at/gpu_print_names" >"$out/names.gpu" 2>&1
    "$python" - "$out/names.emulated" "$out/names.gpu" <<'PY' >"$out/names.txt" && say names "$(tail -n 1 "$out/names.txt")" || bad names "$(tail -n 1 "$out/names.txt")"
import struct, sys
a, b = ([line.strip() for line in open(path)] for path in sys.argv[1:])
def number(word): return struct.unpack("<f", struct.pack("<I", int(word, 16)))[0]
apart, short = [], len(a) != len(b) and len(b) != 4096  # the rest is what only sm_90a has
for i, (x, y) in enumerate(zip(a, b)):
    if x == y: continue
    try: near = abs(number(x) - number(y)) <= 2.0**-18 * abs(number(x))
    except ValueError: near = False
    if not near: apart.append(i)
    print(i, x, y, "near" if near else "APART")
print(f"{len(b)} words, {len(apart)} apart")
sys.exit(short or len(a) < 4096 or bool(apart))
PY
}

# Programs that only check go side by side: what they wait for is the host.
kernels_stage() {
    local program name line
    for program in "$at"/gpu_check_*; do
        [ -x "$program" ] && { timeout 90 "$program" >"$out/$(basename "${program/gpu_/}").txt" 2>&1 & }
    done
    wait
    echo "check,passed,failed" >"$out/kernels.csv"
    for program in "$at"/gpu_check_*; do
        name=${program##*/gpu_}
        line=$(grep -aE '^[0-9]+ passed, [0-9]+ failed' "$out/$name.txt" | tail -n 1)
        [[ $line == *" 0 failed"* ]] && say kernels "$name: $line" || bad kernels "$name: ${line:-no closing line}: $(grep -a FAILED "$out/$name.txt" | head -n 1)"
        echo "$name,$(echo "${line:-0 passed, 1 failed}" | awk '{ print $1 "," $3 }')" >>"$out/kernels.csv"
    done
}

models_stage() {
    local part line
    for part in types many_tokens program architectures blocks; do
        LQ_REAL_GPU=1 timeout 260 "$python" tests/cuda/check_device.py "$at/lq" $part >"$out/check_device.$part.txt" 2>&1 &
    done
    for part in calibrate search whole quantize; do
        LQ_REAL_GPU=1 timeout 150 "$python" tests/cuda/check_device_quantize.py "$at/lq" $part >"$out/check_device_quantize.$part.txt" 2>&1 &
    done
    wait
    for part in "$out"/check_device*.txt; do
        line=$(tail -n 1 "$part")
        [[ $line == *" 0 failed"* ]] && say models "$(basename "$part" .txt): $line" || bad models "$(basename "$part" .txt): $line"
    done
}

# racecheck names hazards between bulk copies and what mbarriers let read behind them, so w4l has only memcheck.
sanitize_stage() {
    local tool program rc
    command -v compute-sanitizer >/dev/null || { say sanitize "no compute-sanitizer here"; return; }
    for tool in memcheck racecheck; do
        for program in rmsn w4s w8a8 pa w4l; do
            [ -x "$at/gpu_check_$program" ] && [ $tool.$program != racecheck.w4l ] || continue
            { timeout 100 compute-sanitizer --tool $tool --error-exitcode 9 "$at/gpu_check_$program" >"$out/$tool.$program.txt" 2>&1; echo $? >"$out/$tool.$program.rc"; } &
        done
    done
    wait
    for rc in "$out"/*check.*.rc; do
        program=$(basename "${rc%.rc}")
        case $(cat "$rc") in 0) say sanitize "$program: clean" ;; 124) say sanitize "$program: the clock ended it" ;; *) bad sanitize "$program: $(grep -a ERROR "${rc%.rc}.txt" | tail -n 1)" ;; esac
    done
}

tune_stage() {
    timeout 90 "$at/tune" --table "$out/tuned_rows.h" >"$out/tune.csv" 2>"$out/tune.txt" || bad tune "$(tail -n 1 "$out/tune.txt")"
    say tune "$(grep -c '^    {' "$out/tuned_rows.h") rows of $(wc -l <"$out/tune.csv") times"
}

products_stage() {
    timeout 130 "$at/time_products" cuda --types "int4 g128,int4 g32 asym,int8 row,nf4 g64,bf16,int8 act i8,e4m3 row f32 act e4m3 row" >"$out/products.csv" 2>"$out/products.txt" || bad products "$(tail -n 1 "$out/products.txt")"
    timeout 40 "$at/time_products" cuda --fast --types "int4 g128,int8 row,bf16" --rows 16,64,128,256,512,1024 28672x4096 4096x4096 >"$out/products_fast.csv" 2>>"$out/products.txt" || say products "no figures of fast mode: $(tail -n 1 "$out/products.txt")"
    timeout 40 "$python" tests/gpu/torch_products.py >>"$out/products.csv" 2>>"$out/products.txt" || say products "no torch here: $(tail -n 1 "$out/products.txt")"
    awk -F, 'NR > 1 && $4 == 1 { printf "%-14s %6d x %-6d %8.2f us %7.0f GB/s %s\n", $1, $2, $3, $6, $8, $9 }' "$out/products.csv" | while read -r line; do say products "$line"; done
}

# A random Llama of 1.1 billion numbers, in bf16 and int4; the program's own bench.
bench_stage() {
    local model=$out/model
    "$python" tests/gpu/random_model.py "$model" >"$out/bench.txt" 2>&1 || { bad bench "$(tail -n 1 "$out/bench.txt")"; return; }
    timeout 60 "$at/lq" quantize "$model" "$model.lq" --type "int4 g128" --force --quiet >>"$out/bench.txt" 2>&1 || { bad bench "$(tail -n 1 "$out/bench.txt")"; return; }
    timeout 100 "$at/lq" bench "$model.lq" "$model" --device cuda -p 512 -n 128 -r 5 -o csv >"$out/bench.csv" 2>>"$out/bench.txt" || bad bench "$(tail -n 1 "$out/bench.txt")"
    cut -d, -f1-20 "$out/bench.csv" | head -n 5 | while read -r line; do say bench "${line:0:140}"; done
    rm -rf "$model" "$model.lq"
}

for stage in "${stages[@]}"; do
    "${stage}_stage" || { [[ $stage == env || $stage == build ]] && break; }
done
say end "$failed failed"
[ "$failed" = 0 ]
