# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The back ends behind llama.cpp's names of GPUs, and the environment in which a process has a GPU of such a name."""

from __future__ import annotations

from typing import NamedTuple


class Backend(NamedTuple):
    """``name`` is that of llama_info, ``variable`` says which GPUs a process sees, ``option`` is cmake's."""

    name: str
    variable: str | None
    option: str


# By the letters in front of a device's number. Only those that llama_info finds in every kind of build.
BACKENDS = {
    "CUDA": Backend("CUDA", "CUDA_VISIBLE_DEVICES", "GGML_CUDA"),
    "ROCm": Backend("ROCm", "ROCR_VISIBLE_DEVICES", "GGML_HIP"),
    "SYCL": Backend("SYCL", None, "GGML_SYCL"),
    "MTL": Backend("Metal", None, "GGML_METAL"),
    "Metal": Backend("Metal", None, "GGML_METAL"),
    "Vulkan": Backend("Vulkan", None, "GGML_VULKAN"),
}


def prefix(device: str) -> str:
    """CUDA of CUDA0."""
    return device.rstrip("0123456789")


def variable(device: str) -> str | None:
    """The environment variable that says which GPUs the back end of the device sees, if it has one."""
    known = BACKENDS.get(prefix(device))
    return known.variable if known else None


def lacking(device: str, has: tuple[str, ...]) -> Backend | None:
    """The back end of the device, if a build that ``has`` these is known to be without it."""
    known = BACKENDS.get(prefix(device))
    return known if known and has and known.name not in has else None
