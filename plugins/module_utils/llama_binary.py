# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a given build of llama.cpp is and which flags it understands (its dialect).

``--version`` and ``--help`` of ``llama-server`` are run, nothing else: neither opens a port or a model.
"""

from __future__ import annotations

import mmap
import os
import re
from typing import Any, Callable

from ansible_collections.relay.pool.plugins.module_utils import command, small_files

SERVER_NAMES = ("llama-server",)
RPC_SERVER_NAMES = ("ggml-rpc-server", "rpc-server")  # the old name was used until late 2025
FIT_PARAMS_NAMES = ("llama-fit-params",)
REMOVED = "has been removed"

# "version: 0.6.0-dev (build 11434, commit abc)"; before that "version: 9002 (457e2288c)".
_VERSION = re.compile(r"^version:\s*(\S+)\s*\((?:build\s+(\d+),\s*commit\s+)?([^)\s]+)\)", re.MULTILINE)
_FLAG = re.compile(r"-{1,2}[A-Za-z0-9][\w-]*")
_ENVIRONMENT = re.compile(r"\(env: (LLAMA_[A-Z0-9_]+)\)")
_DEFAULT = re.compile(r"\(default: ([^),\s]+)\)")
_QUOTED = re.compile(r"'([a-z]+)'")
_WORD = re.compile(r"[a-z]+")
_LEVEL = re.compile(r"- (\d): (\w+)")
# Whose values, or default, are not the same in every build; by the name that all builds have for them.
DIFFERING = ("--flash-attn", "--n-gpu-layers", "--log-verbosity", "--draft-p-min")
_PROTOCOL = re.compile(r"#define\s+RPC_PROTO_(MAJOR|MINOR)_VERSION\s+(\d+)")
_LIBRARY = re.compile(r"^libggml-([a-z]+)")
# Where a build with shared libraries has what is linked into llama-server otherwise.
_SHARED = re.compile(r"^lib(ggml-rpc|ggml-base|llama|common)[^/]*\.(so|dylib)")
LIBRARY_BACKENDS = {
    "blas": "BLAS",
    "cpu": "CPU",
    "cuda": "CUDA",
    "hip": "ROCm",
    "metal": "Metal",
    "musa": "MUSA",
    "opencl": "OpenCL",
    "rpc": "RPC",
    "sycl": "SYCL",
    "vulkan": "Vulkan",
}
# Texts that only the code of that backend holds, for binaries that have everything linked in.
BACKEND_MARKS = (
    ("RPC", b"RPC server version mismatch"),
    ("CUDA", b"cudaMemGetInfo"),
    ("ROCm", b"hipMemGetInfo"),
    ("Vulkan", b"ggml_vulkan: "),
    ("Metal", b"ggml_metal_init"),
    ("SYCL", b"ggml_sycl_init"),
)
# In every llama.cpp, and in no script that only starts one.
LLAMA = b"llama_model_loader"
# The function that makes devices of a worker. Until October 2025 there was one per worker, named by its address.
RPC_DEVICES = (("numbered", b"ggml_backend_rpc_add_server"), ("by_endpoint", b"ggml_backend_rpc_add_device"))
# A worker is told to compute its last graph again, rather than sent one (since November 2025).
RPC_GRAPHS = b"graph_recompute"
# Output rows are reserved as a context asks for them, and not for each token of a batch (since June 2026).
OUTPUT_ROWS = b"n_outputs_max"
# Without it llama-fit-params has nothing to say (until May 2026).
FIT_PRINT = b"--fit-print"


class LlamaBinaryError(Exception):
    """A binary that is there and does not answer as llama.cpp does."""


def parse_version(text: str) -> tuple[str, int, str] | None:
    """(version, build or 0, commit) in the output of ``--version``, or None."""
    match = _VERSION.search(text)
    if not match:
        return None
    version, build, commit = match.groups()
    if build is None:
        build = version if version.isdigit() else "0"
    return version, int(build), commit


def _header(line: str) -> tuple[list[str], str]:
    """Flags at the start of a line of the help, and the rest of the line."""
    flags: list[str] = []
    rest = line
    while True:
        match = _FLAG.match(rest)
        if not match:
            return flags, rest
        flags.append(match.group(0))
        rest = rest[match.end() :]
        if not rest.startswith(","):
            return flags, rest
        rest = rest[1:].lstrip()


def parse_help(text: str) -> list[tuple[list[str], str, str]]:
    """Options of the help as (flags, value placeholder, description in one line).

    An option starts in the first column; its description follows after two spaces or on indented lines.
    """
    blocks: list[tuple[list[str], str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("-"):
            flags, rest = _header(line)
            if flags:
                value, _gap, description = rest.partition("  ")
                blocks.append((flags, value.strip(), [description.strip()]))
        elif line.startswith(" ") and blocks:
            blocks[-1][2].append(line.strip())
    return [(flags, value, " ".join(part for part in lines if part)) for flags, value, lines in blocks]


def supported_flags(options: list[tuple[list[str], str, str]]) -> list[str]:
    """Flags that may be given, in the order of the help. A removed one is still listed there and stops the start."""
    return [flag for flags, _value, description in options if REMOVED not in description for flag in flags]


def spec_types(options: list[tuple[list[str], str, str]]) -> list[str]:
    """Values that ``--spec-type`` takes, empty when the build does not have it."""
    for flags, value, _description in options:
        if "--spec-type" in flags:
            return [word for word in re.split(r"[\s,|\[\]{}<>]+", value) if word]
    return []


def differing_values(options: list[tuple[list[str], str, str]]) -> dict[str, dict[str, Any]]:
    """What the help says of the values of DIFFERING options: ``words`` that they take and their ``default``.

    The words of ``--log-verbosity`` are its levels, the first one's number being 0. An option without a value has no
    words; one that is not in the help is not in the result.
    """
    found = {}
    for flags, value, description in options:
        for name in set(flags) & set(DIFFERING):
            default = _DEFAULT.search(description)
            levels = _LEVEL.findall(description)
            words = [word for _number, word in levels] or _WORD.findall(value) + _QUOTED.findall(description)
            found[name] = {
                "words": list(dict.fromkeys(words)) if value else [],
                "default": default.group(1) if default else None,
            }
    return found


def environment_names(options: list[tuple[list[str], str, str]]) -> list[str]:
    """Variables that the build takes options from, sorted: those of removed options too, since they stop the start.

    Not the one with the API key, which decides nothing else.
    """
    names = set()
    for flags, _value, description in options:
        for name in _ENVIRONMENT.findall(description):
            if name != "LLAMA_API_KEY":
                names.add(name)
            # Not in the help, but read for every option that can be turned off (common/arg.cpp).
            if any(flag.startswith("--no-") for flag in flags):
                names.add(name.replace("LLAMA_ARG_", "LLAMA_ARG_NO_", 1))
    return sorted(names)


def find(bin_dir: str, names: tuple[str, ...]) -> str | None:
    for name in names:
        path = os.path.join(bin_dir, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def library_backends(bin_dir: str) -> list[str]:
    """Backends of a build with shared libraries, by the libraries' names."""
    found = set()
    for folder in (bin_dir, os.path.join(os.path.dirname(bin_dir.rstrip("/")), "lib")):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            match = _LIBRARY.match(name)
            if match and match.group(1) in LIBRARY_BACKENDS:
                found.add(LIBRARY_BACKENDS[match.group(1)])
    return sorted(found)


def linked_backends(path: str) -> list[str]:
    """Backends of a build that has everything in one file, by texts in it."""
    try:
        with open(path, "rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data.find(LLAMA) < 0:
                return []
            return sorted({"CPU"} | {name for name, mark in BACKEND_MARKS if data.find(mark) >= 0})
    except (OSError, ValueError):
        return []


def texts(bin_dir: str, server: str, wanted: tuple[bytes, ...]) -> set[bytes] | None:
    """Which of the texts are in the program, or in llama.cpp's libraries beside it; None when it cannot be read."""
    paths = [server]
    for folder in (bin_dir, os.path.join(os.path.dirname(bin_dir.rstrip("/")), "lib")):
        try:
            paths += [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if _SHARED.match(name)]
        except OSError:
            continue
    found: set[bytes] = set()
    for path in paths:
        try:
            with open(path, "rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
                found |= {text for text in wanted if data.find(text) >= 0}
        except (OSError, ValueError):
            if path == server:
                return None
    return found


def facts_in_texts(bin_dir: str, server: str) -> dict[str, Any]:
    """What no help tells: the names of workers' devices, whether a worker computes a graph again, output rows."""
    found = texts(bin_dir, server, (LLAMA, RPC_GRAPHS, OUTPUT_ROWS, *(mark for _name, mark in RPC_DEVICES))) or set()
    known = LLAMA in found
    return {
        "rpc_devices": next((name for name, mark in RPC_DEVICES if mark in found), None),
        "rpc_reuses_graphs": RPC_GRAPHS in found if known else None,
        "bounds_output_rows": OUTPUT_ROWS in found if known else None,
    }


def fit_params(bin_dir: str) -> str | None:
    """``llama-fit-params``, where it can print what it measures."""
    path = find(bin_dir, FIT_PARAMS_NAMES)
    found = (path and texts(bin_dir, path, (LLAMA, FIT_PRINT))) or set()
    # Of a script that starts it nothing is known, and it is trusted.
    return path if FIT_PRINT in found or LLAMA not in found else None


def rpc_protocol(bin_dir: str) -> str | None:
    """``"7.0"`` from the header of the build, if it was installed beside the binaries, else None.

    The binaries tell it only by running as a worker; a running worker tells it to ``rpc_ping``.
    """
    for folder in (bin_dir, os.path.join(os.path.dirname(bin_dir.rstrip("/")), "include")):
        try:
            header = small_files.read_bytes(os.path.join(folder, "ggml-rpc.h"))
            parts = dict(_PROTOCOL.findall(header.decode("utf-8", "replace")))
        except OSError:
            continue
        if len(parts) == 2:
            return f"{parts['MAJOR']}.{parts['MINOR']}"
    return None


def describe(
    bin_dir: str, timeout: float = 10.0, run: Callable[..., command.Result] = command.run
) -> dict[str, Any] | None:
    """The build in ``bin_dir``, or None when there is no ``llama-server``. Raises LlamaBinaryError for a broken one."""
    # A link such as "current" may move on while what was started from it still runs.
    bin_dir = os.path.realpath(bin_dir)
    server = find(bin_dir, SERVER_NAMES)
    if server is None:
        return None
    # A configuration file of whoever runs this must not stop --version.
    env = command.clean_environment({"XDG_CONFIG_HOME": "/nonexistent", "HOME": "/nonexistent"})
    shown = run([server, "--version"], timeout=timeout, env=env)
    version = parse_version(shown.stderr) or parse_version(shown.stdout)
    if version is None:
        problem = shown.error or command.first_line(shown.stderr, shown.stdout) or "no version line"
        raise LlamaBinaryError(f"{server} --version does not answer as llama.cpp does: {problem}")
    helped = run([server, "--help"], timeout=timeout, env=env)
    options = parse_help(helped.stdout or helped.stderr)
    if not options:
        raise LlamaBinaryError(f"{server} --help lists no options: {helped.error or 'empty output'}")
    return {
        "bin_dir": bin_dir,
        "version": version[0],
        "build": version[1],
        "commit": version[2],
        "rpc_protocol": rpc_protocol(bin_dir),
        "backends": library_backends(bin_dir) or linked_backends(server),
        "flags": supported_flags(options),
        "spec_types": spec_types(options),
        "flag_values": differing_values(options),
        "environment": environment_names(options),
        **facts_in_texts(bin_dir, server),
        "server": server,
        "rpc_server": find(bin_dir, RPC_SERVER_NAMES),
        "fit_params": fit_params(bin_dir),
    }
