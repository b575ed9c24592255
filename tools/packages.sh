#!/bin/bash
# packages.sh: installs the Debian packages that are missing: `tools/packages.sh build` what the program needs to be built,
# `demo` also what quickstart.sh uses, `test` also what tests/run.sh uses. Nothing is done where all are there.
set -eu
build="gcc libc6-dev cmake ninja-build pkg-config libcjson-dev libopenblas0-pthread libpcre2-dev
    libutf8proc-dev libxxhash-dev libgnutls28-dev"
demo="$build curl"
test="$demo openssl g++ clang python3 python3-numpy python3-venv man-db groff-base zsh chromium wrk"
case ${1:-build} in
build) want=$build ;;
demo) want=$demo ;;
test) want=$test ;;
*)
    echo "packages.sh: $1 is none of build, demo, test" >&2
    exit 2
    ;;
esac

missing=()
for package in $want; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} = 0 ] && exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "packages.sh: these packages are missing, and there is no sudo: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
fi
echo "installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" </dev/null >&2; }
# The lists a machine has may be old or absent: they are fetched anew only when the packages are not found with them.
apt install -y --no-install-recommends "${missing[@]}" 2>/dev/null || { apt update && apt install -y --no-install-recommends "${missing[@]}"; }
