# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger's bytes beside llama.cpp's own, over the shapes of real models.

``python -m tests.memory`` from the checkout, or ``make memory-check``. ``--help`` lists the options; the usual ones:

    python -m tests.memory --only gemma3                  every shape whose name or architecture holds that word
    python -m tests.memory --only gemma3 --quick          six arrangements instead of all
    python -m tests.memory --only gemma3 --rows           every device of every run, not only the ones that are off
    python -m tests.memory --list                         the shapes
    python -m tests.memory --write                        writes docs/memory.md

Parts: ``shapes`` holds the shapes as data, ``headers`` writes a GGUF with such a header and a hole in place of the
weights, ``grid`` the arrangements to run, ``prediction`` what the collection's ledger says of one, ``truth`` what
llama.cpp says, ``report`` the differences. No weight is ever read: llama.cpp measures without allocating.
``python -m tests.memory.live`` does the same for speculation, with servers that run the pairs of ``drafting``.
"""
