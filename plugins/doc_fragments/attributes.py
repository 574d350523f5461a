# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation fragments shared by the modules and action plugins of this collection."""

from __future__ import annotations


class ModuleDocFragment:
    """Attributes that the plugins of this collection state about themselves."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode and say what would change without changing it.
  diff_mode:
    description: Can show what changes, or would change, as a difference.
"""

    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - This plugin only reads; check mode makes no difference.
  diff_mode:
    support: N/A
    details:
      - This plugin changes nothing.
"""

    FACTS = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - This plugin only reads; check mode makes no difference.
  diff_mode:
    support: N/A
    details:
      - This plugin changes nothing.
  facts:
    description: Returns C(ansible_facts) that the host keeps for the rest of the play.
    support: full
"""
