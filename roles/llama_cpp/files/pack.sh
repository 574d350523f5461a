#!/bin/sh
# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# pack.sh OUTPUT.tar.gz DIRECTORY_OR_ARCHIVE
#
# Packs the programs of a build, build.sh's or one made elsewhere: bin/ first, "complete" last, so that where "complete"
# was unpacked, all was.
set -eu

output=${1%.tar.gz} prebuilt=$2
work=$output.building
rm -rf "$work"
mkdir -p "$work/source" "$work/result/bin"
case $prebuilt in
    *.zip) python3 -m zipfile -e "$prebuilt" "$work/source" ;;
    *) if [ -d "$prebuilt" ]; then cp -a "$prebuilt/." "$work/source/"; else tar -xf "$prebuilt" -C "$work/source"; fi ;;
esac
server=$(find "$work/source" -name llama-server -type f | head -n 1)
[ -n "$server" ] || {
    echo "$prebuilt holds no program llama-server: name the directory or archive of a llama.cpp build." >&2
    rm -rf "$work"
    exit 1
}
from=$(dirname "$server")
for file in "$from"/llama-server "$from"/ggml-rpc-server "$from"/rpc-server "$from"/llama-fit-params "$from"/*.so*; do
    [ -e "$file" ] && cp -P "$file" "$work/result/bin/"
done
chmod 0755 "$work/result/bin/"*
date -u +%Y-%m-%dT%H:%M:%SZ >"$work/result/complete"
tar -czf "$work/result.tar.gz" -C "$work/result" bin complete
rm -rf "$output"
mv "$work/result" "$output"
mv "$work/result.tar.gz" "$output.tar.gz"
rm -rf "$work"
