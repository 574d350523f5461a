# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Damages headers of GGUF files in every way and has them read. A process of its own, so that its peak memory counts.

``python fuzz_gguf.py COLLECTIONS ROUNDS SEED`` prints one line of JSON: how many files were read and refused, the
slowest in seconds of CPU, the peak in bytes, and what was raised that is no GgufError.
"""

from __future__ import annotations

import json
import os
import random
import struct
import sys
import tempfile
import time
import traceback

INTERESTING = (
    0, 1, 2, 3, 4, 7, 8, 9, 12, 13, 31, 32, 63, 64, 127, 128, 255, 256, 4096, 4097, 65535, 65536, 1 << 20,
    (1 << 21) - 1, 1 << 21, 1 << 22, 1 << 26, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 63) - 1,
    1 << 63, (1 << 64) - 1,
)  # fmt: skip
FAR_ENDS = (1 << 16, 1 << 20, 1 << 26, 1 << 30, 1 << 40)
MOST_SHOWN = 3


class Maker:
    """Writes whole files, without any library."""

    def __init__(self, order: str, version: int = 3) -> None:
        self.order = order
        self.version = version
        self.pairs: list = []
        self.tensors: list = []

    def pack(self, code: str, *values) -> bytes:
        return struct.pack(self.order + code, *values)

    def text(self, raw: bytes) -> bytes:
        return self.pack("Q", len(raw)) + raw

    def key(self, name: bytes, value_type: int, raw: bytes) -> Maker:
        self.pairs.append(self.text(name) + self.pack("I", value_type) + raw)
        return self

    def array(self, name: bytes, value_type: int, elements) -> Maker:
        return self.key(name, 9, self.pack("IQ", value_type, len(elements)) + b"".join(elements))

    def tensor(self, name: bytes, shape, type_number: int, n_bytes: int) -> Maker:
        self.tensors.append((name, shape, type_number, n_bytes))
        return self

    def content(self) -> bytes:
        body = b"".join(self.pairs)
        offset = 0
        for name, shape, type_number, n_bytes in self.tensors:
            body += self.text(name) + self.pack(f"I{len(shape)}QIQ", len(shape), *shape, type_number, offset)
            offset += -(-n_bytes // 32) * 32
        head = b"GGUF" + self.pack("IQQ", self.version, len(self.tensors), len(self.pairs)) + body
        return head + bytes(-len(head) % 32 + offset)


def model(order: str, version: int = 3) -> Maker:
    """A model with every value type and a vocabulary."""
    maker = Maker(order, version)
    maker.key(b"general.architecture", 8, maker.text(b"llama")).key(b"llama.block_count", 4, maker.pack("I", 2))
    maker.key(b"general.alignment", 4, maker.pack("I", 32)).key(b"tokenizer.ggml.model", 8, maker.text(b"gpt2"))
    for value_type, code in (
        (0, "B"),
        (1, "b"),
        (2, "H"),
        (3, "h"),
        (5, "i"),
        (6, "f"),
        (7, "?"),
        (10, "Q"),
        (11, "q"),
        (12, "d"),
    ):
        maker.key(b"t.%d" % value_type, value_type, maker.pack(code, 1))
        maker.array(b"t.array.%d" % value_type, value_type, [maker.pack(code, 1)] * 3)
    maker.array(b"general.tags", 8, [maker.text(b"x"), maker.text(b"")])
    maker.array(b"llama.attention.head_count_kv", 4, [maker.pack("I", 0), maker.pack("I", 8)])
    tokens = [maker.text(b"token%d" % number) for number in range(40)] + [maker.text(b""), maker.text(b"[PAD41]")]
    maker.array(b"tokenizer.ggml.tokens", 8, tokens)
    maker.array(b"tokenizer.ggml.token_type", 5, [maker.pack("i", 1)] * 42)
    maker.array(b"tokenizer.ggml.merges", 8, [maker.text(b"a b")] * 40)
    maker.key(b"tokenizer.ggml.bos_token_id", 4, maker.pack("I", 1))
    maker.tensor(b"token_embd.weight", (64, 42), 8, 42 * 68).tensor(b"blk.0.attn_q.weight", (256, 3), 12, 432)
    maker.tensor(b"blk.1.ffn_exps.weight", (32, 5, 2), 39, 170).tensor(b"blk.1.norm.weight", (7,), 0, 28)
    return maker


def nested() -> Maker:
    """Arrays in arrays, and a tensor of an unknown type."""
    maker = Maker("<")
    inner = maker.pack("IQ", 5, 2) + maker.pack("ii", 1, -2)
    texts = maker.pack("IQ", 8, 1) + maker.text(b"text")
    maker.key(b"general.architecture", 8, maker.text(b"llama"))
    maker.array(b"t.nested", 9, [inner, texts, maker.pack("IQ", 9, 1) + inner])
    return maker.tensor(b"blk.0.a", (32, 2), 43, 64).tensor(b"blk.0.b", (32, 2), 1, 128)


def shards() -> list:
    """Two shards of one model."""
    found = []
    for number in (0, 1):
        maker = Maker("<")
        if number == 0:
            maker.key(b"general.architecture", 8, maker.text(b"llama"))
            maker.key(b"split.tensors.count", 5, maker.pack("i", 2))
        maker.key(b"split.no", 2, maker.pack("H", number)).key(b"split.count", 2, maker.pack("H", 2))
        found.append(maker.tensor(b"blk.%d.norm.weight" % number, (8,), 0, 32).content())
    return found


def damaged(rng: random.Random, content: bytes, others: list) -> bytes:
    """The content with one to eight changes, most of them in places where a number stands."""
    data = bytearray(content)
    for _change in range(rng.choice((1, 1, 1, 2, 3, 8))):
        place = rng.randrange(len(data)) if data else 0
        what = rng.random()
        if what < 0.4:
            data[place : place + 1] = bytes((rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))),))
        elif what < 0.7:
            code = rng.choice(("<Q", "<Q", "<I", ">Q", ">I"))
            raw = struct.pack(code, rng.choice(INTERESTING) & ((1 << 8 * struct.calcsize(code)) - 1))
            data[place : place + len(raw)] = raw
        elif what < 0.8:
            del data[place : place + rng.choice((1, 4, 8, rng.randrange(200)))]
        elif what < 0.9:
            data[place:place] = data[rng.randrange(len(data) or 1) :][: rng.choice((1, 4, 8, 100))]
        elif what < 0.95:
            other = rng.choice(others)
            start = rng.randrange(len(other))
            data[place : place + 64] = other[start : start + 64]
        else:
            del data[place:]
    return bytes(data)


def peak_bytes() -> int:
    """The most memory that this process had, 0 where the system does not say."""
    try:
        with open("/proc/self/status", encoding="ascii") as handle:
            return next(int(line.split()[1]) * 1024 for line in handle if line.startswith("VmHWM:"))
    except OSError:
        return 0


def main(collections: str, rounds: int, seed: int) -> dict:
    """Damages and reads ``rounds`` files."""
    sys.path.insert(0, collections)
    from ansible_collections.relay.pool.plugins.module_utils.gguf_info import describe
    from ansible_collections.relay.pool.plugins.module_utils.gguf_source import GgufError

    rng = random.Random(seed)
    wholes = [model("<").content(), model(">").content(), model("<", 2).content(), nested().content()]
    pair = shards()
    result: dict = {"rounds": rounds, "read": 0, "refused": 0, "slowest_seconds": 0.0, "failures": []}
    with tempfile.TemporaryDirectory() as folder:
        single = os.path.join(folder, "m.gguf")
        draft = os.path.join(folder, "draft.gguf")
        parts = [os.path.join(folder, f"s-{number:05d}-of-00002.gguf") for number in (1, 2)]
        for path, content in ((draft, wholes[0]), *zip(parts, pair)):
            with open(path, "wb") as handle:
                handle.write(content)
        for number in range(rounds):
            sharded = number % 8 == 0
            which = rng.randrange(2) if sharded else rng.randrange(len(wholes))
            content = damaged(rng, (pair if sharded else wholes)[which], wholes + pair)
            path = parts[which] if sharded else single
            with open(path, "wb") as handle:
                handle.write(content)
                if rng.random() < 0.2:
                    handle.truncate(rng.choice(FAR_ENDS))
            start = time.process_time()
            try:
                json.dumps(describe(parts[0] if sharded else path, draft), allow_nan=False)
                result["read"] += 1
            except GgufError as exc:
                result["refused"] += 1
                if len(str(exc)) > 800 or not str(exc).isprintable():
                    result["failures"].append(f"round {number}: the message {str(exc)[:1000]!r}")
            except Exception:
                result["failures"].append(f"round {number}: {traceback.format_exc()}")
            result["slowest_seconds"] = max(result["slowest_seconds"], time.process_time() - start)
            if sharded:
                with open(path, "wb") as handle:
                    handle.write(pair[which])
    result["failures"] = result["failures"][:MOST_SHOWN]
    result["peak_bytes"] = peak_bytes()
    return result


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
