# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names what a file is that is no GGUF file: the beginnings that failed downloads and other formats have."""

from __future__ import annotations

import re


def _lfs_pointer(head: bytes) -> str:
    size = re.search(rb"^size (\d{1,20})", head, re.M)
    of = f" to {size.group(1).decode()} bytes" if size else ""
    return f"this is a Git LFS pointer{of}, not the model: run 'git lfs pull' or download the file itself"


def describe_foreign(head: bytes, size_bytes: int, path: str = ""):
    """What the file is and the way out, or None when it begins like a GGUF file. ``head``: its first 512 bytes."""
    if size_bytes == 0:
        return "the file is empty: download it again"
    if head.startswith(b"GGUF"):
        return None
    if head.startswith(b"version https://git-lfs.github.com/"):
        return _lfs_pointer(head)
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml", b"<!--")):
        hint = ", take the one with /resolve/ instead of /blob/" if re.match(r"https?://[^?]*/blob/", path) else ""
        return f"this is a web page, not the model: the download address or its login is wrong{hint}"
    if text.startswith((b"{", b"[")):
        return "this is JSON text, not the model: the download was answered with an error"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size_bytes:
        return "this is a safetensors file: convert it to GGUF first"
    if head.startswith((b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh")):
        return "this is a compressed archive or a PyTorch checkpoint: unpack it, or convert it to GGUF first"
    if head[:4] in (b"lmgg", b"fmgg", b"tjgg", b"algg"):
        return "this is a GGML file from before GGUF: download or convert the model as GGUF"
    if not head.strip(b"\0"):
        return "the file begins with zero bytes: the download was never finished, fetch it again"
    return f"this is no GGUF file, it begins with {head[:4]!r} instead of b'GGUF': download the model again"
