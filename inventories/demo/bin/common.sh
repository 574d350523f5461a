# SPDX-License-Identifier: GPL-3.0-or-later
# Paths and words that all scripts of the embedded pool share; sourced with $0 being a script of this folder.
# shellcheck shell=sh
# The variables are read by those scripts.
# shellcheck disable=SC2034

set -eu

bin_dir=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
demo_dir=$(dirname -- "$bin_dir")
root_dir=$(dirname -- "$(dirname -- "$demo_dir")")
inventory=$demo_dir/inventory.yml
# The same rule as relay_demo_cache in group_vars.
cache_dir=${XDG_CACHE_HOME:-${HOME:?"is not set: set it, or XDG_CACHE_HOME"}/.cache}/relay-pool/demo
# What a reboot ends.
run_dir=/run/relay-pool-demo
podman=$bin_dir/podman

say() {
    printf '%s\n' "$*"
}

die() {
    printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
    exit 1
}

need_root() {
    [ "$(id -u)" = 0 ] || die "needs root $1: run it with sudo -E"
}

# The inventory is the only list of machines: prints one "name address group" per line.
machines() {
    awk '$1 ~ /^relay_(host|workers):$/ { group = substr($1, 1, length($1) - 1) }
         $1 ~ /^relay-demo-[a-z0-9-]+:$/ { name = substr($1, 1, length($1) - 1) }
         $1 == "ansible_host:" && name != "" { print name, $2, group; name = "" }' "$inventory"
}
