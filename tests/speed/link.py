# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A slow link on the loopback: link.py PORT TARGET_PORT ONE_WAY_SECONDS MBPS, for each direction of each connection."""

from __future__ import annotations

import asyncio
import socket
import sys

CHUNK_BYTES = 1 << 16


async def carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float, bytes_per_second: float
) -> None:
    """One direction: a byte arrives when those before it have been sent, and so much later."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, data = await waiting.get()
            await asyncio.sleep(max(due - loop.time(), 0))
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()

    delivering = asyncio.create_task(deliver())
    sent = 0.0
    while True:
        data = await reader.read(CHUNK_BYTES)
        sent = max(sent, loop.time()) + len(data) / bytes_per_second
        waiting.put_nowait((sent + delay, data))
        if not data:
            break
    await delivering


async def main(port: int, target: int, delay: float, mbps: float) -> None:
    """Until it is ended."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", target)
        for end in (writer, back):
            end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        rate = mbps * 125_000
        await asyncio.gather(carry(reader, back, delay, rate), carry(there, writer, delay, rate))

    server = await asyncio.start_server(accept, "127.0.0.1", port, limit=1 << 22)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
