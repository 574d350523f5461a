# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role relay up to its facts and the roles of the units, with this machine in the place of every member."""

from __future__ import annotations

import json
import re
import sys

import jinja2.nativetypes
import pytest
import yaml
from ansible_collections.relay.pool.plugins.module_utils.gpu import visible
from ansible_collections.relay.pool.plugins.plugin_utils import ranges

from tests.playing import ROOT, played

GATHER = [
    {
        "hosts": "relay_pool",
        "gather_facts": False,
        "any_errors_fatal": True,
        "tasks": [
            {"ansible.builtin.include_role": {"name": "relay.pool.relay", "tasks_from": "check"}},
            {"ansible.builtin.include_role": {"name": "relay.pool.relay", "tasks_from": "gather"}},
            {
                "ansible.builtin.debug": {
                    "msg": "of b is known {{ hostvars['b'].ansible_facts.relay_node.hostname | default('nothing') }}."
                }
            },
        ],
    }
]
TOO_MUCH = {"relay_overrides": {"memory": {"available_bytes": 2**49}}}


@pytest.fixture
def play(tmp_path):
    """Runs a playbook over a, the host, and b, a worker with variables of its own; returns (worked, output)."""

    def run(playbook, worker=None, options=("-vv",), others=(), **variables):
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "relay_model": "/m.gguf"}
        groups = {
            "relay_host": {"hosts": {"a": {}}},
            "relay_workers": {"hosts": {"b": worker or {}, **{name: {} for name in others}}},
        }
        inventory = tmp_path / "inventory.json"
        inventory.write_text(
            json.dumps({"relay_pool": {"children": groups, "vars": {**local, "ansible_become": False, **variables}}})
        )
        if isinstance(playbook, list):
            written = tmp_path / "playbook.yml"
            written.write_text(json.dumps(playbook))
            playbook = written
        facts = {"ANSIBLE_CACHE_PLUGIN": "jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "facts")}
        return played(*options, "-i", inventory, playbook, cwd=tmp_path, **facts)

    return run


def test_a_number_where_a_dictionary_belongs(play):
    overrides = {"memory": 8589934592, "cpu": 8, "gpus": []}
    worked, output = play(ROOT / "playbooks" / "plan.yml", {"relay_overrides": overrides}, relay_overrides=5)
    assert not worked
    assert "Nothing was touched: relay_overrides of a is 5, but must be a dictionary with memory" in output
    assert "Nothing was touched: relay_overrides.memory of b is 8589934592, but must be a dictionary such as" in output
    assert "relay_overrides.cpu of b is 8, but must be a dictionary such as {threads: 8}." in output


@pytest.mark.parametrize("name", ["deploy", "plan", "verify"])
def test_every_playbook_looks_at_the_form_first(name):
    before, _form, after = (ROOT / "playbooks" / f"{name}.yml").read_text().partition("tasks_from: form")
    assert before.count("relay.pool.relay") == 1
    assert "relay.pool.relay" in after


# No whole number wherever one belongs. Ansible's filter `int` makes 0, 16, 8 or 1 of most of them.
NOT_WHOLE = (
    "abc",
    "1e3",
    "16.5",
    16.5,
    16.0,
    " 8",
    "8 ",
    "",
    "0x10",
    "1_0",
    "08",
    "+8",
    "nan",
    True,
    False,
    "true",
    [],
    {},
)
WHOLE = {
    "relay_draft_max": "a whole number from 0 to 2147483647",
    "relay_draft_min": "a whole number from 0 to relay_draft_max",
    "relay_draft_gpu_layers": "a whole number from 0 to 2147483647",
    "relay_ctx_size": "a whole number from 256 to 2147483647",
    "relay_parallel": "a whole number from 1 to 256",
    "relay_ubatch_size": "a whole number from 1 to 8192",
    "relay_host_port": "a port from 1 to 65535",
    "relay_rpc_port": "a port from 1 to 65535",
    "relay_threads": "a whole number from 1 to 2147483647, or null",
    "relay_reserve_bytes": "bytes as a whole number from 0 to 1125899906842624, or null",
    "relay_ready_timeout": "seconds as a whole number from 1 to 31536000",
}
CHOICES = {
    "relay_draft_scope": "one of sharded, any",
    "relay_draft_fallback": "one of none, ngram-mod",
    "relay_speculation_type": "one of auto, none, draft-simple, draft-eagle3, draft-mtp, draft-dflash, draft-dspark, "
    "ngram-simple, ngram-map-k, ngram-map-k4v, ngram-mod, ngram-cache",
    "relay_kv_cache_type": "one of f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl",
}
SWITCHES = (
    "relay_draft_reserve", "relay_draft_required", "relay_verify_lossless", "relay_allow_cpu", "relay_allow_partial",
    "relay_check_bytes",
)  # fmt: skip
HUGE = 10**25
DEFAULTS = {
    "relay_draft_max": "16", "relay_draft_min": "0", "relay_draft_gpu_layers": "99", "relay_draft_p_min": "0.0",
    "relay_draft_scope": "sharded", "relay_draft_fallback": "none", "relay_speculation_type": "auto",
    "relay_draft_device": "auto", "relay_ctx_size": "16384", "relay_parallel": "2", "relay_kv_cache_type": "f16",
    "relay_ubatch_size": 512, "relay_host_port": "8384", "relay_rpc_port": "50052", "relay_threads": None,
    "relay_reserve_bytes": None, "relay_ready_timeout": 600, **dict.fromkeys(SWITCHES, "false"),
}  # fmt: skip
DEVICE = "auto, cpu, a device of the host such as CUDA0, or the inventory name of a worker"
SOURCE = "a URL with http:// or https://, or a path on the controller"
WRONG = [
    *((name, value, words) for name, words in WHOLE.items() for value in (*NOT_WHOLE, -1, "-1", HUGE, str(HUGE))),
    *((name, 0, WHOLE[name]) for name in ("relay_ctx_size", "relay_parallel", "relay_host_port", "relay_threads")),
    *((name, None, words) for name, words in WHOLE.items() if "null" not in words),
    ("relay_draft_max", 2**31, WHOLE["relay_draft_max"]),
    ("relay_draft_min", 17, WHOLE["relay_draft_min"]),
    ("relay_draft_min", "17", WHOLE["relay_draft_min"]),
    ("relay_ctx_size", 255, WHOLE["relay_ctx_size"]),
    ("relay_parallel", 257, WHOLE["relay_parallel"]),
    ("relay_ubatch_size", 8193, WHOLE["relay_ubatch_size"]),
    ("relay_host_port", "65536", WHOLE["relay_host_port"]),
    *(
        ("relay_draft_p_min", value, "a number from 0 to 1")
        for value in ("nan", "inf", "-inf", "abc", "", " 0.5", "0,5", "1e", "0x1", "1_0", -0.1, "1.01", 2, True, None)
    ),
    *((name, value, words) for name, words in CHOICES.items() for value in ("", "Any", " any", "none ", None, 5, True)),
    *((name, value, "true or false") for name in SWITCHES for value in ("maybe", "", "y", "t", " true", 2, 1.0, None)),
    *(
        ("relay_draft_device", value, DEVICE)
        for value in ("", " cpu", "CUDA0\n", "CUDA0,CUDA1", "a b", None, 0, True)
    ),
    *(("relay_model", value, "an absolute path on the host") for value in ("", "m.gguf", " /m", None, 5)),
    *(("relay_draft_model", value, "an absolute path on the host, or empty") for value in ("d.gguf", " /d", None, [])),
    *((f"relay_{which}_source", value, SOURCE) for which in ("model", "draft_model") for value in (None, ["/a"], 5)),
    *((f"relay_{which}_sha256", 5, "a SHA-256, or empty") for which in ("model", "draft_model")),
]  # fmt: skip
RIGHT = [
    *((name, value) for name in ("relay_draft_max", "relay_draft_gpu_layers") for value in (0, "0", 2147483647, "16")),
    ("relay_draft_min", "16"), ("relay_draft_min", 0), ("relay_ctx_size", 256), ("relay_ctx_size", "16384"),
    ("relay_parallel", 256), ("relay_host_port", "1"), ("relay_rpc_port", 65535), ("relay_threads", None),
    ("relay_threads", "8"), ("relay_reserve_bytes", None), ("relay_reserve_bytes", 0), ("relay_ready_timeout", "1"),
    *(("relay_draft_p_min", value) for value in (0, 1, "0", "1.0", 0.75, ".5", "1e-3", "0.")),
    *((name, value) for name, words in CHOICES.items() for value in words[len("one of ") :].split(", ")),
    *((name, value) for name in SWITCHES for value in (True, False, "true", "False", "yes", "off", "1", "0", 0)),
    *(("relay_draft_device", value) for value in ("auto", "cpu", "none", "CUDA0", "gpu-1.example")),
    ("relay_draft_model", ""), ("relay_draft_model", "/m.gguf"),
]  # fmt: skip


def rules(**values):
    """The rules of the role with values in the place of the variables, as Ansible would fill them in."""
    written = yaml.safe_load((ROOT / "roles" / "relay" / "vars" / "main.yml").read_text())
    known = {rule["name"]: "/a" for rule in written["__relay_rules"]}
    known.update(DEFAULTS, __relay_no_source="x", __relay_login="x", relay_plan_output="/b", **values)
    environment = jinja2.nativetypes.NativeEnvironment()
    environment.filters["regex_replace"] = lambda value, *_patterns: value
    environment.tests["match"] = lambda value, pattern, ignorecase=False: re.match(pattern, str(value)) is not None

    def filled(rule):
        assert rule["value"].startswith("{{ " + rule["name"] + " ")
        found = {**rule, "value": known[rule["name"]]}
        if "ok" in rule:
            found["ok"] = environment.compile_expression(rule["ok"].strip("{} "))(**known)
        if isinstance(rule.get("choices"), str):
            found["choices"] = written[rule["choices"].strip("{} ")]
        return found

    return [filled(rule) for rule in written["__relay_rules"]]


def test_every_variable_outside_its_range_is_named_with_it():
    assert ranges.broken(rules()) == []
    for name, value, words in WRONG:
        found = [(rule.name, rule.range) for rule in ranges.broken(rules(**{name: value}))]
        assert found == [(name, words)], (name, value)
    for name, value in RIGHT:
        assert ranges.broken(rules(**{name: value})) == [], (name, value)
    assert {name for name, _value, _words in WRONG} >= {rule["name"] for rule in rules() if "ok" not in rule}


def test_a_range_that_rests_on_a_variable_which_is_wrong_itself():
    assert [rule.name for rule in ranges.broken(rules(relay_draft_max="abc", relay_draft_min=20))] == [
        "relay_draft_max"
    ]


ENVIRONMENT = (
    ("RELAY_DRAFT_MAX", "1e3", "relay_draft_max is 1e3, but must be a whole number from 0 to 2147483647."),
    ("RELAY_DRAFT_MIN", "", "relay_draft_min is '', but must be a whole number from 0 to relay_draft_max."),
    ("RELAY_DRAFT_GPU_LAYERS", "all", "relay_draft_gpu_layers is all, but must be a whole number from 0 to"),
    ("RELAY_DRAFT_P_MIN", "nan", "relay_draft_p_min is nan, but must be a number from 0 to 1."),
    ("RELAY_DRAFT_SCOPE", "all", "relay_draft_scope is all, but must be one of sharded, any."),
    ("RELAY_DRAFT_DEVICE", " cpu", "relay_draft_device is ' cpu', but must be auto, cpu, a device of the host"),
    ("RELAY_SPECULATION_TYPE", "mtp", "relay_speculation_type is mtp, but must be one of auto, none, draft-simple, "),
    ("RELAY_DRAFT_FALLBACK", "ngram", "relay_draft_fallback is ngram, but must be one of none, ngram-mod."),
    ("RELAY_DRAFT_REQUIRED", "maybe", "relay_draft_required is maybe, but must be true or false."),
    ("RELAY_VERIFY_LOSSLESS", "2", "relay_verify_lossless is 2, but must be true or false."),
)


@pytest.mark.parametrize("playbook", ["plan.yml", "deploy.yml", "verify.yml"])
def test_environment_variables_out_of_range_stop_the_play_at_once(play, monkeypatch, playbook):
    for name, text, _words in ENVIRONMENT:
        monkeypatch.setenv(name, text)
    worked, output = play(ROOT / "playbooks" / playbook, options=())
    assert not worked
    assert "Nothing was touched: " in output
    for _name, _text, words in ENVIRONMENT:
        assert words in output
    assert "Gather what" not in output


def test_an_environment_that_no_unit_can_carry(play):
    worked, output = play(GATHER, {"relay_environment": {"HF_TOKEN": ["the secret"]}})
    assert not worked
    assert "the environment variable HF_TOKEN is no text" in output
    assert "the secret" not in output
    assert "of b is known" not in output


def test_a_member_whose_facts_cannot_be_gathered(play):
    worked, output = play(GATHER)
    assert worked
    assert "of b is known nothing" not in output
    worked, output = play(GATHER, TOO_MUCH)
    assert not worked
    assert "overrides.memory.available_bytes is 562949953421312" in output
    assert "The facts of b could not be gathered, as said above, and nothing was touched" in output
    assert "of b is known" not in output
    # What the cache has of it is not what is true of it.
    _worked, output = play(GATHER, TOO_MUCH, relay_allow_partial=True)
    assert "of b is known nothing." in output


def test_no_pool_goes_on_without_its_host(play):
    """Also where a worker may be missing; what came after would end in an undefined variable."""
    worked, output = play(GATHER, {"relay_overrides": {}}, relay_allow_partial=True, **TOO_MUCH)
    assert not worked
    assert "The facts of a could not be gathered" in output
    assert "or make another machine relay_host, since the pool cannot do without a." in output
    assert "set relay_allow_partial" not in output
    assert "of b is known" not in output


@pytest.mark.parametrize(
    ("limit", "missing"), [("a,c", "b of the pool is"), ("b", "a, c of the pool are"), ("!a", "a of the pool is")]
)
def test_a_limit_names_every_machine_that_it_leaves_out(play, limit, missing):
    worked, output = play(GATHER, options=("--limit", limit), others=("c",))
    assert not worked
    assert f"{missing} left out by --limit, and a plan needs the facts of every machine: run without --limit." in output
    assert "of b is known" not in output


def test_what_hides_gpus_reaches_the_probes_and_a_difference_and_nothing_else_does():
    variables = {name for backend in visible.BACKENDS.values() for hiding in backend.hiding for name in hiding.names}
    assert len(variables) > 3
    for path in ("relay/tasks/gather.yml", "rpc_worker/tasks/present.yml", "llama_host/tasks/present.yml"):
        (pattern,) = re.findall(r"'search', '([^']*)'", (ROOT / "roles" / path).read_text())
        assert [name for name in sorted(variables) if not re.search(pattern, name)] == []
        assert not any(
            re.search(pattern, name) for name in ("HF_TOKEN", "ZE_AFFINITY_MASK_TOKEN", "_VISIBLE_DEVICES_KEY")
        )


@pytest.mark.parametrize(("switch", "hidden"), [("no", "yes"), ("true", "no")])
def test_a_switch_may_be_a_text_from_the_command_line(play, tmp_path, switch, hidden):
    """Which is true as it stands, and no boolean, which a condition must be."""
    options = {
        "manage_service": "false",
        "unit_dir": str(tmp_path),
        "program": "/opt/x",
        "stale": "no",
        "uses_gpu": switch,
    }
    roles = [
        {"role": f"relay.pool.{role}", "vars": {f"{role}_{name}": value for name, value in options.items()}}
        for role in ("rpc_worker", "llama_host")
    ]
    roles[1]["vars"]["llama_host_config_dir"] = str(tmp_path)
    worked, output = play([{"hosts": "b", "gather_facts": False, "roles": roles}])
    assert worked, output
    for unit in ("relay-rpc", "relay-llama"):
        assert f"PrivateDevices={hidden}" in (tmp_path / f"{unit}.service").read_text().splitlines()


@pytest.mark.parametrize("token", ["the secret", None])
def test_a_difference_shows_no_token(play, tmp_path, token):
    environment = {"CUDA_VISIBLE_DEVICES": "1", **({"HF_TOKEN": token} if token else {})}
    options = {"manage_service": False, "unit_dir": str(tmp_path), "program": "/opt/x", "environment": environment}
    roles = [
        {"role": f"relay.pool.{role}", "vars": {f"{role}_{name}": value for name, value in options.items()}}
        for role in ("rpc_worker", "llama_host")
    ]
    roles[1]["vars"]["llama_host_config_dir"] = str(tmp_path)
    worked, output = play([{"hosts": "b", "gather_facts": False, "roles": roles}], options=("--diff", "-vvv"))
    assert worked
    assert "the secret" not in output
    assert output.count("+Environment=CUDA_VISIBLE_DEVICES=1") == (0 if token else 2)
    for unit in ("relay-rpc", "relay-llama"):
        assert ("the secret" in (tmp_path / f"{unit}.service").read_text()) == bool(token)
