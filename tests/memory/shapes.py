# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shapes that the check knows, in the order of the table.

Numbers are those of the models' published configurations; the tensors are those that llama.cpp's converter writes.
"""

from __future__ import annotations

from tests.memory.families import dense, latent, mixtures, recurrent, sliding

SHAPES = (*dense.SHAPES, *sliding.SHAPES, *mixtures.SHAPES, *latent.SHAPES, *recurrent.SHAPES)
