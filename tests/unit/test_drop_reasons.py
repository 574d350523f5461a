# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every reason to drop a draft on a real plan, and the unit that is then deployed: no flag of any build speculates.

Headers are read of real files, plans made by the placement action and units written by llama_host, all in one run of
Ansible in which each case is a machine.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.relay.pool.plugins.module_utils.gguf_info import describe
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import REASONS

from tests.builds import BUILDS, MARCH, MAY, TODAY, facts_of
from tests.tiny import heads
from tests.tiny.pairs import Tiny, extended, write_tiny
from tests.unit.plugins.plugin_utils.conftest import World

ROOT = Path(__file__).resolve().parents[2]
TARGET, DRAFT = Tiny(n_layers=64, seed=2), Tiny(seed=1)
FILES = {
    "target": TARGET,
    "draft": DRAFT,
    # 512 MiB of KV cache
    "large": DRAFT.but(n_layers=128),
    "other-words": extended(DRAFT, 200),
    "incomplete": DRAFT.but(omit=("llama.embedding_length",)),
}
PROGRAM = "/opt/llama/bin/llama-server"
BACKENDS = ["CPU", "CUDA", "RPC"]
# Free MiB of a GPU on each of three machines, and of RAM.
POOL, GPU_LESS = ([140], [140], [140]), ([], [160], [160])
# The flags of speculation that the help of any recorded build has, and what of them was removed.
FLAGS = {
    flag
    for build in BUILDS
    for flag in facts_of(build)["flags"]
    if "draft" in flag or "spec" in flag or "lookup" in flag
} | {"-md", "-devd", "-ngld", "-td", "-ctkd", "-ctvd", "-cd", "--draft", "--draft-n", "--draft-p", "--draft-model"}


@dataclasses.dataclass(frozen=True)
class Case:
    """A request and what is said of it.

    reason: of the plan. words: of its message, the numbers and a way out. draft: a file, a path of none, or None.
    dropped: options with which the plan is made once more, after a start.
    """

    reason: str
    words: tuple[str, ...] = ()
    draft: str | None = "draft"
    target: str = "target"
    machines: tuple[list[int], ...] = POOL
    ram: int = 512
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    kind: str = "sharded"
    dropped: dict[str, Any] = dataclasses.field(default_factory=dict)


FASTER = {"tokens_per_second": 20.0, "with_draft_tokens_per_second": 20.9}
DROPPED = "the server on m1 proposed no token: see journalctl -u relay-llama"
NO_ROOM = {"draft": "large", "ram": 100}
NO_ROOM_WORDS = ("the draft needs 5", "on m1 CPU", "offers 100 MiB", ": take a smaller draft")
CASES = {
    "not_configured": Case("not_configured", ("no draft model is configured",), draft=None),
    "not_found": Case(
        "not_found", ("/models/gone.gguf is no file on the host", "set relay_draft_model to"), draft="gone"
    ),
    "replica": Case(
        "replica", ("the whole model fits m1", "set relay_draft_scope to any"), machines=([900],) * 3, kind="replica"
    ),
    "replica_on_worker": Case(
        "replica",
        ("the whole model fits m3",),
        machines=([140], [140], [900]),
        kind="replica",
    ),
    "replica_asked_for_ngrams": Case(
        "replica", machines=([900],) * 3, kind="replica", draft=None, options={"speculation_type": "ngram-mod"}
    ),
    "no_host_stage": Case(
        "no_host_stage",
        ("m1 holds no layers of the target (no usable GPU)", "set relay_draft_device to cpu or a worker"),
        machines=GPU_LESS,
    ),
    "unsized": Case("unsized", ("incomplete.gguf has no llama.embedding_length", "use a complete"), draft="incomplete"),
    "no_room": Case("no_room", NO_ROOM_WORDS, **NO_ROOM),
    "tokenizer_mismatch": Case(
        "tokenizer_mismatch",
        ("the target has 300 tokens and the draft 500", "use a draft of the same family"),
        draft="other-words",
    ),
    "hybrid_target": Case(
        "hybrid_target",
        ("would save 1 MiB in every round", "or set relay_speculation_type to draft-simple"),
        target="hybrid",
        machines=([45], [45], [45]),
    ),
    "unsupported_build": Case(
        "unsupported_build",
        ("ends its worker", "install llama.cpp b9247 or later", "m2 CUDA0 would have both"),
        options={"draft_device": "m2", "llama": facts_of(MARCH, backends=BACKENDS)},
    ),
    "unknown_type": Case(
        "unsupported_build",
        ("does not know", "--spec-type draft-dspark", "install a newer llama.cpp"),
        draft="dspark",
        options={"llama": facts_of(MAY, backends=BACKENDS)},
    ),
    "proved_not_live": Case(
        "unsupported_build",
        (DROPPED,),
        dropped={"draft_dropped": DROPPED, "draft_dropped_reason": "unsupported_build"},
    ),
    "measured_slower": Case(
        "measured_slower",
        ("measured 20.9 tokens/s with the draft, 20 without: 1.05 times", "lower relay_draft_max"),
        options={"measured": FASTER},
    ),
    # Not dropped, or not without anything in its place.
    "enabled": Case("enabled", ("/models/draft.gguf runs on m1 CUDA0",), options={"draft_min": 2, "draft_p_min": 0.5}),
    "enabled_on_an_older_build": Case("enabled", options={"llama": facts_of(MARCH, backends=BACKENDS)}),
    "fallback": Case(
        "no_room",
        (*NO_ROOM_WORDS, "; ngram-mod proposes tokens instead"),
        **NO_ROOM,
        options={"draft_fallback": "ngram-mod"},
    ),
}
SPECULATES = {
    "enabled": "--spec-draft-model /models/draft.gguf --spec-draft-n-max 16 --spec-draft-n-min 2 --spec-draft-ngl 99 "
    "--spec-draft-p-min 0.5 --spec-draft-device CUDA0 --spec-type draft-simple",
    # Its own smallest probability is not 0, and a draft runs by being named.
    "enabled_on_an_older_build": "--model-draft /models/draft.gguf --draft-max 16 --n-gpu-layers-draft 99 "
    "--draft-p-min 0.0 --device-draft CUDA0",
    "fallback": "--spec-ngram-mod-n-max 64 --spec-type ngram-mod",
}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """The plan and the unit's text of each case."""
    folder = tmp_path_factory.mktemp("reasons")
    for name, model in FILES.items():
        write_tiny(model, folder / f"{name}.gguf")
    heads.qwen35(folder / "hybrid.gguf", n_layers=64)
    heads.dspark(folder / "dspark.gguf")
    for name in CASES:
        (folder / name).mkdir()
    options = {name: _options(case, folder) for name, case in CASES.items()}
    machines = {name: {"options": given, "dropped": CASES[name].dropped} for name, given in options.items()}
    chosen = {"relay_plan": "{{ (again if dropped | length > 0 else placed).plan }}"}
    inventory = {"all": {"hosts": machines, "vars": chosen}}
    (folder / "inventory.json").write_text(json.dumps(inventory))
    (folder / "play.json").write_text(
        json.dumps([_play(folder, {name for given in options.values() for name in given})])
    )
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("RELAY_", "ANSIBLE_"))},
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
    }
    command = [Path(sys.prefix) / "bin" / "ansible-playbook", "-i", folder / "inventory.json", folder / "play.json"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    plans = dict(json.loads(line) for line in (folder / "plans").read_text().splitlines())
    return {name: (plan, (folder / name / "relay-llama.service").read_text()) for name, plan in plans.items()}


def _options(case: Case, folder: Path) -> dict[str, Any]:
    """The options of the placement action, with headers as gguf_info reads them."""
    target = folder / f"{case.target}.gguf"
    given: dict[str, Any] = {
        "model": {**describe(str(target)), "path": "/models/target.gguf"},
        "host": "m1",
        "workers": ["m2", "m3"],
        "nodes": {f"m{number}": World.node(number, gpus, case.ram) for number, gpus in enumerate(case.machines, 1)},
        "ctx_size": 32768,
        "parallel": 1,
        "ubatch_size": 32,
        "reserve_bytes": 0,
        "llama": facts_of(TODAY, backends=BACKENDS),
        **case.options,
    }
    if case.draft:
        given["draft_path"] = f"/models/{case.draft}.gguf"
        file = folder / f"{case.draft}.gguf"
        if file.exists():
            draft = describe(str(file), compare_with=str(target), compare_as="target")
            given.update(draft={**draft, "path": given["draft_path"]}, comparison=draft["comparison"])
    return given


def _play(folder: Path, names: set[str]) -> dict[str, Any]:
    """Plans and writes the unit as deploy does, without a service."""
    apply = yaml.safe_load((ROOT / "playbooks" / "tasks" / "apply.yml").read_text())
    (server,) = (task["vars"] for task in apply if task["name"] == "Run the server")
    role_vars = {name: server[name] for name in ("llama_host_args", "llama_host_workers", "llama_host_uses_gpu")}
    here = f"{folder}/{{{{ inventory_hostname }}}}"
    options = {name: f"{{{{ options.{name} | default(omit) }}}}" for name in sorted(names)}
    dropping = {name: f"{{{{ dropped.{name} }}}}" for name in ("draft_dropped", "draft_dropped_reason")}
    # Of all machines at once, since a task on each is what takes time here.
    plans = "{% for name in ansible_play_hosts %}{{ [name, hostvars[name].relay_plan] | to_json }}\n{% endfor %}"
    written = {"content": plans, "dest": f"{folder}/plans", "mode": "0600"}
    return {
        "hosts": "all",
        "gather_facts": False,
        "vars": {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
        },
        "tasks": [
            {"relay.pool.placement": options, "register": "placed"},
            {
                "relay.pool.placement": {**options, **dropping, "previous": "{{ placed.plan }}"},
                "register": "again",
                "when": "dropped | length > 0",
            },
            {"ansible.builtin.copy": written, "run_once": True},
            {
                "ansible.builtin.include_role": {"name": "relay.pool.llama_host"},
                "vars": {
                    **role_vars,
                    "llama_host_program": PROGRAM,
                    "llama_host_manage_service": False,
                    "llama_host_unit_dir": here,
                    "llama_host_config_dir": here,
                    "llama_host_override": f"{here}/instead.conf",
                },
            },
        ],
    }


def argv(unit: str) -> list[str]:
    """The words of ExecStart, of which none needs systemd's own escapes here."""
    (line,) = (line for line in unit.splitlines() if line.startswith("ExecStart="))
    return shlex.split(line.partition("=")[2])


def test_every_reason_has_a_case():
    assert {case.reason for case in CASES.values()} == set(REASONS)


@pytest.mark.parametrize("name", CASES)
def test_the_plan_says_why(deployed, name):
    case, (plan, _unit) = CASES[name], deployed[name]
    draft = plan["draft"]
    assert (plan["kind"], draft["reason"], draft["enabled"]) == (case.kind, case.reason, case.reason == "enabled")
    assert [words for words in case.words if words not in draft["message"]] == [], draft["message"]
    charged = sum(stage["memory"]["draft_bytes"] for stage in plan["stages"])
    assert charged == (draft["memory"]["total_bytes"] if draft["enabled"] else 0)


@pytest.mark.parametrize("name", [name for name in CASES if name not in SPECULATES])
def test_without_a_draft_the_unit_has_no_flag_of_speculation(deployed, name):
    plan, unit = deployed[name]
    words = argv(unit)
    assert words == [PROGRAM, *plan["server_args"]]
    assert [word for word in words if word in FLAGS or word.startswith(("--spec", "--draft"))] == []
    assert plan["speculation"] is None
    assert CASES[name].draft is None or f"/models/{CASES[name].draft}.gguf" not in unit


@pytest.mark.parametrize(("name", "group"), SPECULATES.items())
def test_the_group_of_speculation_ends_the_command_line(deployed, name, group):
    plan, unit = deployed[name]
    words = argv(unit)
    assert words == [PROGRAM, *plan["server_args"]]
    count = len(group.split())
    assert " ".join(words[-count:]) == group
    assert [word for word in words[:-count] if word in FLAGS] == []
