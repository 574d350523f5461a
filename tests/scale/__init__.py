# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the planner takes and how much memory, by the number of machines; and random pools for its tests.

``python -m tests.scale`` from the checkout, or ``make scale-check``; ``--write`` writes docs/scale.md.
"""
