#!/bin/sh
# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# build.sh OUTPUT.tar.gz ARCHIVE SUBDIR JOBS BUILD_NUMBER CMAKE_OPTION...
#
# Builds llama.cpp from a source archive and packs the programs. OUTPUT.tar.gz, and OUTPUT/ beside it, appear only when
# everything is in them: an interrupted build leaves nothing that a later run could take for a finished one.
set -eu

output=${1%.tar.gz} archive=$2 subdir=$3 jobs=$4 number=$5
shift 5

for tool in cmake c++; do
    command -v "$tool" >/dev/null || {
        echo "$tool is missing on $(hostname): install it (Debian, Ubuntu: apt-get install cmake g++ make), or name another llama_cpp_build_host." >&2
        exit 1
    }
done
[ "$jobs" -gt 0 ] || jobs=$(getconf _NPROCESSORS_ONLN)
[ "$number" -gt 0 ] && set -- "-DLLAMA_BUILD_NUMBER=$number" "$@"

work=$output.compiling
rm -rf "$work"
mkdir -p "$work/source" "$work/build"
case $archive in
    *.zip) python3 -m zipfile -e "$archive" "$work/source" ;;
    *) tar -xf "$archive" -C "$work/source" ;;
esac
if [ -n "$subdir" ]; then
    source=$work/source/$subdir
else
    source=$(echo "$work"/source/*)
fi
[ -f "$source/CMakeLists.txt" ] || {
    echo "$archive holds no CMakeLists.txt in '${subdir:-its only top folder}': set llama_cpp_source_subdir." >&2
    exit 1
}

# The worker had another name until the summer of 2026, and llama-fit-params is younger than 2025.
targets=llama-server
if grep -qs '^set(TARGET rpc-server)' "$source/tools/rpc/CMakeLists.txt"; then
    targets="$targets rpc-server"
else
    targets="$targets ggml-rpc-server"
fi
[ -d "$source/tools/fit-params" ] && targets="$targets llama-fit-params"

build() { # CMAKE_OPTION...
    rm -rf "$work/build"
    # shellcheck disable=SC2086  # the targets are words
    cmake -S "$source" -B "$work/build" "$@" >"$work/cmake.log" 2>&1 &&
        cmake --build "$work/build" --parallel "$jobs" --target $targets >"$work/build.log" 2>&1
}

# The quick way rests on how the source is laid out today; the plain way is the one that llama.cpp documents.
build "-DCMAKE_PROJECT_INCLUDE=$(dirname "$0")/unity.cmake" "$@" || build "$@" || {
    grep -hE "error|Error" "$work/build.log" "$work/cmake.log" 2>/dev/null | head -20 >&2 || true
    tail -n 15 "$work/build.log" 2>/dev/null >&2 || tail -n 15 "$work/cmake.log" >&2
    echo "llama.cpp did not build; the whole log is in $work." >&2
    exit 1
}
for target in $targets; do
    strip "$work/build/bin/$target" 2>/dev/null || true
done
"$(dirname "$0")/pack.sh" "$output.tar.gz" "$work/build/bin"
rm -rf "$work"
