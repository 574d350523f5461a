# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest


@pytest.fixture
def sys_net(tmp_path):
    """Makes a /sys/class/net of interfaces, each with its files by name, and gives its path.

    None makes a folder, ``on`` lists what is below the interface.
    """
    folder = tmp_path / "net"
    folder.mkdir()

    def make(**known):
        for name, files in known.items():
            (folder / name).mkdir()
            for file, text in files.items():
                if file == "on":
                    for lower in text:
                        (folder / name / f"lower_{lower}").symlink_to(f"../{lower}")
                elif text is None:
                    (folder / name / file).mkdir()
                else:
                    (folder / name / file).write_text(f"{text}\n")
        return str(folder)

    return make
