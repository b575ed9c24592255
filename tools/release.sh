#!/bin/bash
# release.sh [OUT]: what people are given: lq built for every GPU from Ampere on (PTX for what comes after) and for this machine's kind of
# CPU, installed into a tree, as OUT/lq-VERSION-SYSTEM.tar.xz with its checksum (OUT: build/dist). Every kernel is held against its row of
# kernels.tsv for every architecture first. Without nvcc: the program for CPUs alone.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/dist} archs="80;86;89;90a;100;120" cuda=OFF
python=python3
for word in python3 /usr/bin/python3; do "$word" -c 'import numpy' 2>/dev/null && python=$word && break; done
mkdir -p "$out"
out=$(cd "$out" && pwd)
if command -v nvcc >/dev/null; then
    cuda=ON
    "$python" tests/cuda/check_kernels.py --all | tail -n 3
fi
cmake -S . -B "$out/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLQ_TESTS=OFF "-DLQ_CUDA=$cuda" "-DLQ_CUDA_ARCHS=$archs" >"$out/build.txt"
cmake --build "$out/build" >>"$out/build.txt"
name=lq-$("$out/build/lq" version | awk 'NR == 1 { print $2 }')-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m)
rm -rf "${out:?}/$name"
DESTDIR="$out/$name" cmake --install "$out/build" --prefix / --strip >>"$out/build.txt"
tar -C "$out" -cJf "$out/$name.tar.xz" "$name"
(cd "$out" && sha256sum "$name.tar.xz" >"$name.tar.xz.sha256" && cat "$name.tar.xz.sha256")
du -h "$out/$name.tar.xz" | cut -f1
