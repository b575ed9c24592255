#!/bin/bash
# peers.sh LQ FOLDER [--build | options of peers.py]: lq beside llama.cpp on this machine's CPU. Builds llama.cpp from the source package of
# llama-cpp-python into FOLDER, which stands outside of the tree, and runs peers.py with both. What stands in FOLDER is used again: remove
# FOLDER/source and FOLDER/llama.cpp for a newer one. --build stops behind the build; with --isa avx2 all of them do without AVX-512 and AMX, and
# llama.cpp is built for that beside the other. docs/BENCH.md, "Beside llama.cpp", says what is compared.
set -eu
[ $# -ge 2 ] || { sed -n 's/^# //p' "$0" | head -n 5 >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
lq=$(realpath "$1")
folder=$(realpath -m "$2")
shift 2
case $folder/ in "$(realpath "$here/../..")"/*) echo "peers.sh: $folder lies in the tree" >&2; exit 2 ;; esac
mkdir -p "$folder"

built=$folder/llama.cpp cpu=(-DGGML_NATIVE=ON) # as llama.cpp is built by default for this machine
case " $* " in *" --isa avx2 "* | *" --isa=avx2 "*)
    built=$folder/llama.cpp-avx2
    cpu=(-DGGML_NATIVE=OFF -DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_BMI2=ON -DGGML_FMA=ON -DGGML_F16C=ON) ;;
esac
tools=(llama-bench llama-batched-bench llama-quantize)
if [ ! -d "$folder/source" ]; then
    rm -rf "$folder/source.part"
    mkdir "$folder/source.part"
    python3 -m pip download -q --no-binary llama-cpp-python --no-deps -d "$folder/source.part" llama-cpp-python
    tar -xzf "$folder"/source.part/llama_cpp_python-*.tar.gz -C "$folder/source.part" --strip-components 1
    mv "$folder/source.part" "$folder/source"
fi
if [ ! -e "$built/built" ]; then
    # With all that is on by default (OpenMP, repacking, tinyBLAS), without what downloads.
    commit=$(sed -n 's/.*llama\.cpp@\([0-9a-f]*\).*/\1/p' "$folder/source/CHANGELOG.md" | head -n 1)
    cmake -S "$folder/source/vendor/llama.cpp" -B "$built" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF "${cpu[@]}" \
        -DLLAMA_BUILD_COMMIT="${commit:-unknown}" -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
        -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF >"$built.log" 2>&1
    cmake --build "$built" -j "$(nproc)" --target "${tools[@]}" >>"$built.log" 2>&1 ||
        { tail -n 5 "$built.log" >&2; exit 1; }
    touch "$built/built"
fi
case " $* " in *" --build "*) echo "$built/bin"; exit ;; esac
exec /usr/bin/python3 "$here/peers.py" "$lq" "$folder" "$@"
