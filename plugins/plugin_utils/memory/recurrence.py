# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layers that carry a recurrent state: their inner dimensions, and what lives at their widest moment.

After the builders of llama.cpp b11434, one kind per builder (src/models), and the order in which ggml-alloc.c frees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Sequence

from ansible_collections.relay.pool.plugins.plugin_utils.memory.keys import Keys

MAMBA, MAMBA2, PLAMO2 = "mamba", "mamba2", "plamo2"
DELTA, KDA = "delta net", "kimi delta attention"
RWKV6, RWKV7 = "rwkv6", "rwkv7"
SHORT_CONV, LIGHTNING, UNKNOWN = "short convolution", "lightning attention", "unknown"
KINDS = {
    "mamba": MAMBA, "jamba": MAMBA, "plamo2": PLAMO2,
    "mamba2": MAMBA2, "granitehybrid": MAMBA2, "falcon-h1": MAMBA2, "nemotron_h": MAMBA2, "nemotron_h_moe": MAMBA2,
    "qwen3next": DELTA, "qwen35": DELTA, "qwen35moe": DELTA, "kimi-linear": KDA,
    "rwkv6": RWKV6, "rwkv6qwen2": RWKV6, "rwkv7": RWKV7, "arwkv7": RWKV7,
    "lfm2": SHORT_CONV, "lfm2moe": SHORT_CONV, "minimax-01": LIGHTNING,
}  # fmt: skip


@dataclass(frozen=True)
class Recurrence:
    """Values per token unless something else is said; what a kind does not have is 0.

    projected: what the layer's first matrix makes. inner: what the scan reads and writes. channels: what is convolved.
    small: the narrow activations beside them (steps, B and C, gates). taps: earlier tokens that the convolution sees.
    state: values of the scan's state per sequence. n_head: heads of the scan. routed: the layers with routed experts.
    """

    kind: str = ""
    projected: int = 0
    inner: int = 0
    channels: int = 0
    small: int = 0
    taps: int = 0
    state: int = 0
    n_head: int = 0
    routed: tuple[bool, ...] = ()


def recurrence(keys: Keys, n_embd: int, n_head: int, blocks: Sequence[int | None]) -> Recurrence:
    """The dimensions of the model whose keys these are; raises PoolError when a key holds no count.

    blocks: bytes of each layer's weights, which alone tell the layers with experts apart.
    """
    dims = _dimensions(keys, n_embd, n_head)
    if not keys.number("expert_count", 0):
        return dims
    # experts weigh many times what a single feed forward does
    largest = max((size or 0 for size in blocks), default=0)
    return replace(dims, routed=tuple(2 * (size or 0) > largest for size in blocks))


def _dimensions(keys: Keys, n_embd: int, n_head: int) -> Recurrence:
    kind = KINDS.get(keys.architecture, UNKNOWN)
    taps = max(keys.number("ssm.conv_kernel", 0) - 1, 0)
    inner, state = keys.number("ssm.inner_size", 0), keys.number("ssm.state_size", 0)
    rank, groups = keys.number("ssm.time_step_rank", 0), keys.number("ssm.group_count", 0)
    wkv, kda = keys.number("wkv.head_size", 0), keys.number("kda.head_dim", 0)
    channels = inner + 2 * groups * state
    if kind == MAMBA:
        return Recurrence(kind, 2 * inner, inner, inner, rank + 2 * state, taps, state * inner, inner)
    if kind == PLAMO2:
        return Recurrence(kind, 2 * inner, inner, inner, n_embd // 16 + 2 * state, taps, state * inner, rank)
    if kind == MAMBA2:
        return Recurrence(kind, inner + channels + rank, inner, channels, rank, taps, state * inner, rank)
    if kind == DELTA:
        # ssm.state_size values in each of ssm.group_count heads of keys
        return Recurrence(kind, channels, inner, channels, 4 * rank, taps, state * inner, rank)
    if kind == KDA:
        inner = kda * n_head
        return Recurrence(kind, inner, inner, inner, kda + 2 * n_head, taps or 3, kda * inner, n_head)
    if kind in (RWKV6, RWKV7):
        return Recurrence(kind, n_embd, n_embd, n_embd, state=wkv * n_embd, n_head=n_embd // wkv if wkv else 0)
    if kind == SHORT_CONV:
        return Recurrence(kind, 3 * n_embd, n_embd, n_embd, taps=max(keys.number("shortconv.l_cache", 0) - 1, 0))
    if kind == LIGHTNING:
        head = keys.number("attention.key_length", n_embd // n_head if n_head else 0)
        return Recurrence(kind, 3 * n_head * head, n_head * head, state=head * head * n_head, n_head=n_head)
    states = max(state * inner, kda * kda * n_head, wkv * n_embd)
    inner = max(channels, kda * n_head, n_embd)
    return Recurrence(kind, 3 * inner, inner, inner, rank, taps, states, n_head)


def widest(dims: Recurrence, tokens: int, slots: int) -> int:
    """Values at the widest moment of a layer with a state, beside the residual and the like.

    tokens: of a micro batch, shared evenly by that many slots; each has a state of its own.
    """
    return _WIDEST.get(dims.kind, _unknown)(dims, tokens, slots)


def _convolved(dims: Recurrence, tokens: int, slots: int) -> tuple[int, int]:
    """What goes into the convolution, behind the earlier tokens of each slot, and what comes of it."""
    return dims.channels * (tokens + dims.taps * slots), dims.channels * tokens


def _mamba(dims: Recurrence, tokens: int, slots: int) -> int:
    """build_mamba_layer (mamba-base.cpp) at ggml_ssm_scan: x and z, x convolved, the steps, and the result with states.

    build_rs reads the states of all slots but the first once more; they follow when the steps are gone.
    """
    step, states = dims.inner * tokens, dims.state * slots
    again = states - dims.state
    scan = dims.projected * tokens + 3 * step + states + dims.small * tokens
    return scan + (again if again > step else 0)


def _mamba2(dims: Recurrence, tokens: int, slots: int) -> int:
    """build_mamba2_layer (mamba-base.cpp): z, x, B, C and the steps, and x, B and C convolved.

    The scan's result with the states lies above the hole of the convolution's input, or in it, where it leaves one;
    then z, put in order for the gate, or the states that build_rs reads again are above.
    """
    before, after = _convolved(dims, tokens, slots)
    states = dims.state * slots
    again = states - dims.state
    held = (dims.projected + dims.small) * tokens + before + after
    result = dims.inner * tokens + states
    if result > before:
        return held + result + (again if again > before else 0)
    return held + dims.inner * tokens // 2 + max(dims.inner * tokens, again)


def _plamo2(dims: Recurrence, tokens: int, slots: int) -> int:
    """build_plamo2_mamba_layer (plamo2.cpp): as Mamba, with the projection once more in another order."""
    before, after = _convolved(dims, tokens, slots)
    scan = (2 * dims.projected + dims.inner + dims.small) * tokens + dims.state * slots
    return scan + before + after


def _delta(dims: Recurrence, tokens: int, slots: int) -> int:
    """build_layer_attn_linear (qwen3next.cpp, qwen35.cpp) with the fused ggml_gated_delta_net (delta-net-base.cpp).

    Either Q, K and V, which leave a hole, before and after the convolution; or Q, K and V convolved, Q and K repeated
    for every head of values, the states, and the result with states.
    """
    before, after = _convolved(dims, tokens, slots)
    mixed, states = dims.projected * tokens, dims.state * slots
    scan = after + (3 * dims.inner + dims.small) * tokens + 2 * states
    if states > mixed:  # the states do not fit into the hole
        return max(mixed + before + after + states, scan + mixed)
    return max(mixed + before + after, scan)


def _kda(dims: Recurrence, tokens: int, slots: int) -> int:
    """kimi-linear.cpp: Q, K, V, each convolved, normed Q and K, the decay and the result; the states twice."""
    return (8 * dims.inner + dims.small) * tokens + 2 * dims.state * slots


def _rwkv6(dims: Recurrence, tokens: int, slots: int) -> int:
    """build_rwkv6_time_mix (rwkv6-base.cpp) at ggml_rwkv_wkv6: the input mixed in five ways, r, k, v, w, g, result."""
    return 11 * dims.inner * tokens + 3 * dims.state * slots


def _rwkv7(dims: Recurrence, tokens: int, slots: int) -> int:
    """build_rwkv7_time_mix (rwkv7-base.cpp) at ggml_rwkv_wkv7: input mixed in six ways, r, w, k, v, a, g and more."""
    return 14 * dims.inner * tokens + 2 * dims.state * slots


def _short_conv(dims: Recurrence, tokens: int, slots: int) -> int:
    """build_shortconv_block (lfm2.cpp): b, c and x, and the convolution's input."""
    return dims.projected * tokens + _convolved(dims, tokens, slots)[0]


def _lightning(dims: Recurrence, tokens: int, slots: int) -> int:
    """minimax-01.cpp: Q, K and V, what the state gives for Q, and V in another order; the states twice.

    The matrices over all pairs of tokens are counted elsewhere.
    """
    return (dims.projected + 2 * dims.inner) * tokens + 2 * dims.state * slots


def _unknown(dims: Recurrence, tokens: int, slots: int) -> int:
    """More than any kind needs for the same dimensions."""
    return (3 * dims.projected + 5 * dims.channels + dims.small) * tokens + 4 * dims.state * slots


_WIDEST = {
    MAMBA: _mamba,
    MAMBA2: _mamba2,
    PLAMO2: _plamo2,
    DELTA: _delta,
    KDA: _kda,
    RWKV6: _rwkv6,
    RWKV7: _rwkv7,
    SHORT_CONV: _short_conv,
    LIGHTNING: _lightning,
}
