# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What proposes tokens in a plan and where, for every choice of a device and every family of speculation."""

from __future__ import annotations

import dataclasses
import json

import pytest
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.eligibility import Verdict
from ansible_collections.relay.pool.plugins.plugin_utils.drafts.types import Speculation
from ansible_collections.relay.pool.plugins.plugin_utils.errors import PoolError
from ansible_collections.relay.pool.plugins.plugin_utils.memory.ledger import Ledger, model_ledger
from ansible_collections.relay.pool.plugins.plugin_utils.planner import speculation
from ansible_collections.relay.pool.plugins.plugin_utils.planner.guard import shortfalls, without_draft
from ansible_collections.relay.pool.plugins.plugin_utils.planner.placement import make_plan
from ansible_collections.relay.pool.plugins.plugin_utils.server import dialect
from ansible_collections.relay.pool.plugins.plugin_utils.views.changes import changes
from ansible_collections.relay.pool.plugins.plugin_utils.views.html import plan_html
from ansible_collections.relay.pool.plugins.plugin_utils.views.table import plan_table

from tests.builds import TODAY, facts_of

MIB = 1024 * 1024
DRAFT = "/models/draft.gguf"
NGRAM = Speculation("ngram-mod", 64, False)
MTP = Speculation("draft-mtp", 4, False)
CONTEXT_MIB, RAM_MIB = 120, 15
CRASH = "this build ends its worker where two contexts share a device over RPC: keep the draft on the host"


@pytest.fixture
def ask(ask):
    """Nothing is kept free, so that the sizes are what can be used."""
    return lambda *machines, **options: ask(*machines, **{"reserve_bytes": 0, **options})


@pytest.fixture
def small(world):
    """A draft of about 150 MiB and its path."""
    return {"draft": world.gguf(DRAFT, n_layer=4, layer_mib=20, embd_mib=10, output_mib=10), "draft_path": DRAFT}


@pytest.fixture
def proposing(monkeypatch):
    """Makes a verdict and what proposes tokens, and what would take its place, those of every request."""

    def make(verdict, wanted, instead=None):
        monkeypatch.setattr(speculation, "eligible", lambda _request, _dialect: (verdict, wanted))
        monkeypatch.setattr(speculation, "fallback", lambda _request, _dialect: instead)

    return make


@pytest.fixture
def mtp(proposing, monkeypatch):
    """The target's own layers draft, in a context of so many MiB."""
    proposing(Verdict("enabled", "own layers"), MTP)

    drafting = {}

    def ledger(gguf, spec):
        found = model_ledger(gguf, spec)
        if spec.mtp:
            drafting[id(found)] = found
        return found

    monkeypatch.setattr(speculation, "model_ledger", ledger)
    for name, size_mib in (("mtp_device", CONTEXT_MIB), ("mtp_host", RAM_MIB)):
        size = property(lambda self, size=size_mib * MIB: size if id(self) in drafting else 0)
        monkeypatch.setattr(Ledger, name, size)


def value(plan, flag):
    arguments = plan["server_args"]
    return arguments[arguments.index(flag) + 1] if flag in arguments else None


def place(plan):
    """(machine, what llama-server calls the device)."""
    return plan["draft"]["host"], plan["draft"]["device"]


def drafts(plan):
    return {
        (row["host"], row["device"]): row["memory"]["draft_bytes"] for row in plan["stages"]
        if row["memory"]["draft_bytes"]
    }  # fmt: skip


def kept(request, plan):
    """The plan of the next run."""
    return make_plan(dataclasses.replace(request, previous=json.loads(json.dumps(plan))))


# -- where a draft runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machines", "options", "where"),
    [
        # auto: a GPU of the host, whose layers move; then the host's CPU
        (([700], [700]), {}, ("a", "CUDA0")),
        (([550, 600], [450]), {}, ("a", "CUDA1")),
        (([700], [700]), {"layer_mib": 200}, ("a", "none")),
        (([700], [700]), {"draft_reserve": False, "layer_mib": 150}, ("a", "none")),
        # named
        (([700], [700]), {"draft_device": "cpu"}, ("a", "none")),
        (([700], [700]), {"draft_device": "CPU"}, ("a", "none")),
        (([700], [700]), {"draft_device": "none"}, ("a", "none")),
        (([700, 200], [700]), {"draft_device": "CUDA1"}, ("a", "CUDA1")),
        # a host that holds no layers may draft where it is told to
        (([], [700], [700]), {"draft_device": "cpu"}, ("a", "none")),
        # a worker: its roomiest GPU beside layers or alone, else its CPU
        (([700], [750]), {"draft_device": "b"}, ("b", "RPC0")),
        (([650], [650], [200]), {"draft_device": "c"}, ("c", "RPC1")),
        (([650], [650], []), {"draft_device": "c"}, ("c", "RPC1")),
        (([700], [400, 650]), {"draft_device": "b", "layer_mib": 80}, ("b", "RPC1")),
        (([700], [700]), {"draft_device": "b", "layer_mib": 250}, ("b", "RPC1")),
        (([1500], [700]), {"draft_device": "b", "draft_scope": "any"}, ("b", "RPC0")),
        (([600], [3000], [700]), {"draft_device": "b", "draft_scope": "any"}, ("b", "CUDA0")),
        (([600], [3000], [700]), {"draft_device": "c", "draft_scope": "any"}, ("c", "RPC0")),
    ],
)
def test_where_the_draft_runs(ask, world, machines, options, where):
    options = dict(options)
    draft = world.gguf(DRAFT, n_layer=4, layer_mib=options.pop("layer_mib", 20), embd_mib=10, output_mib=10)
    request = ask(*machines, draft=draft, draft_path=DRAFT, **options)
    plan = make_plan(request)
    assert (plan["draft"]["reason"], plan["speculation"], place(plan)) == ("enabled", "draft-simple", where)
    assert value(plan, "--spec-draft-device") == where[1]
    assert sum(drafts(plan).values()) == plan["draft"]["memory"]["total_bytes"]
    assert {host for host, device in drafts(plan) if device != "CPU"} <= {where[0]}
    assert all(row["memory"]["left_bytes"] >= 0 for row in plan["stages"])
    again = kept(request, plan)
    assert (again["kept"], again["server_args"]) == (True, plan["server_args"])


def test_a_draft_on_a_worker_is_reached_and_the_target_is_not_there(ask, small):
    """Without --device llama.cpp would put the target on the draft's worker first."""
    plan = make_plan(ask([1500], [700], draft_scope="any", draft_device="b", **small))
    assert (plan["kind"], plan["devices"], plan["rpc_backends"]) == ("replica", ["CUDA0"], ["10.0.0.2:50052"])
    words = plan["server_args"]
    assert words[2:6] == ["--rpc", "10.0.0.2:50052", "--device", "CUDA0"]
    assert value(plan, "--tensor-split") is None
    assert value(plan, "--cache-ram") == "0"
    (worker,) = plan["workers"]
    assert (worker["host"], worker["devices"]) == ("b", ["CUDA0"])
    stage = plan["stages"][-1]
    assert (stage["host"], stage["transport"], stage["endpoint"], stage["rpc_device"], stage["n_layers"]) == (
        "b", "rpc", "10.0.0.2:50052", "RPC0", 0,
    )  # fmt: skip
    memory = stage["memory"]
    assert memory["total_bytes"] == memory["draft_bytes"] + memory["reserve_bytes"]


def test_a_target_on_the_hosts_cpu_with_a_draft_on_a_worker(ask, world, small):
    node = world.node(1, ram=4000)
    plan = make_plan(ask(node, world.node(2, ram=300), allow_cpu=True, draft_scope="any", draft_device="b", **small))
    assert (plan["kind"], plan["host"], plan["devices"]) == ("replica", "a", ["none"])
    assert place(plan) == ("b", "RPC0")


def test_numbers_count_every_device_that_a_worker_exposes(ask, world):
    """The draft fills the second GPU of the first worker, so the next worker is RPC2."""
    draft = world.gguf(DRAFT, n_layer=4, layer_mib=125, embd_mib=10, output_mib=10)
    plan = make_plan(ask([500], [550, 600], [450], draft_device="b", draft=draft, draft_path=DRAFT))
    first, second = plan["workers"]
    assert (first["devices"], second["devices"]) == (["CUDA0", "CUDA1"], ["CUDA0"])
    names = {(row["host"], row["device"]): row["rpc_device"] for row in plan["stages"] if row["transport"] == "rpc"}
    assert names == {("b", "CUDA0"): "RPC0", ("b", "CUDA1"): "RPC1", ("c", "CUDA0"): "RPC2"}
    assert (place(plan), plan["devices"]) == (("b", "RPC1"), ["RPC0", "RPC2", "CUDA0"])
    assert len(plan["tensor_split"]) == 3


def test_layers_move_away_from_the_drafts_worker(ask, small):
    machines = ([800], [700])
    plain, plan = make_plan(ask(*machines)), make_plan(ask(*machines, draft_device="b", **small))
    layers = [{row["host"]: row["n_layers"] for row in p["stages"] if row["device"] != "CPU"} for p in (plain, plan)]
    assert layers[1]["b"] < layers[0]["b"]
    stay = make_plan(ask(*machines, draft_device="b", draft_reserve=False, **small))
    if stay["draft"]["enabled"]:
        assert {row["host"]: row["n_layers"] for row in stay["stages"] if row["device"] != "CPU"} == layers[0]
    else:
        assert "relay_draft_reserve is off" in stay["draft"]["message"]


@pytest.mark.parametrize(
    ("device", "text"),
    [
        ("CUDA3", "draft_device is CUDA3, but a offers CUDA0, and the workers that may be used are b: name one of"),
        ("c", "draft_device is c, but a offers CUDA0, and the workers that may be used are b: name one of them"),
    ],
)
def test_a_device_that_is_nothing_of_the_pool(ask, small, device, text):
    with pytest.raises(PoolError, match=text):
        make_plan(ask([700], [700], draft_device=device, **small))


@pytest.mark.parametrize("silent", [True, False])
def test_a_worker_that_is_left_out_takes_the_draft_along_and_not_the_pool(ask, world, small, silent):
    request = ask([700], [700], world.node(3, [700]), draft_device="c", draft_fallback="ngram-mod", **small)
    assert make_plan(request)["draft"]["host"] == "c"
    gone = {} if silent else world.node(3, [700], address=None)
    partial = dataclasses.replace(request, nodes={**request.nodes, "c": gone}, allow_partial=True)
    plan = make_plan(partial)
    assert [entry["host"] for entry in plan["refused"]] == ["c"]
    assert (plan["draft"]["reason"], plan["speculation"]) == ("no_room", "ngram-mod")
    assert plan["draft"]["message"].startswith(
        "the draft is to run on c, which is left out of the pool: bring it back, or set relay_draft_device to another "
        "worker, auto or cpu"
    )
    assert make_plan(dataclasses.replace(partial, previous=json.loads(json.dumps(plan))))["kept"]


def test_a_name_that_is_two_things(ask, world, small):
    request = ask([700], [700], draft_device="CUDA0", **small)
    nodes = {"a": request.nodes["a"], "CUDA0": request.nodes["b"]}
    with pytest.raises(PoolError, match="draft_device is CUDA0, which is a device of a and a worker"):
        make_plan(dataclasses.replace(request, nodes=nodes, workers=("CUDA0",)))


def test_a_worker_without_any_room_at_all(ask, world, small):
    plan = make_plan(ask([700], [700], world.node(3, [], ram=None), draft_device="c", **small))
    assert plan["draft"]["reason"] == "no_room"
    assert "c, which has neither a usable GPU nor a known amount of free RAM" in plan["draft"]["message"]


def test_the_cpu_of_a_worker_that_drafts_is_not_called_unused(ask, small):
    plan = make_plan(ask([650], [650], [], draft_device="c", **small))
    assert plan["draft"]["enabled"]
    assert [entry for entry in plan["refused"] if entry["host"] == "c"] == []
    without = make_plan(ask([650], [650], [], **small))
    assert [entry["reason"] for entry in without["refused"] if entry["host"] == "c"] == ["no_gpu"]


def test_unified_memory_of_a_worker_is_counted_once(ask, world, small):
    """Its CPU is no second place, as its memory is that of the GPU."""
    shared = world.node(2, [700], ram=700)
    shared["gpus"][0]["unified_memory"] = True
    draft = world.gguf(DRAFT, n_layer=4, layer_mib=200)
    plan = make_plan(ask([1500], shared, draft_scope="any", draft_device="b", draft=draft, draft_path=DRAFT))
    assert (plan["draft"]["reason"], plan["workers"]) == ("no_room", [])


# -- builds ----------------------------------------------------------------------------------------------------


def crashing(monkeypatch):
    """Every dialect is of a build that a shared RPC device ends."""
    sound = dialect.Dialect.__init__

    def init(self, *args, **fields):
        sound(self, *args, **{**fields, "rpc_draft_crash": CRASH})

    monkeypatch.setattr(dialect.Dialect, "__init__", init)


@pytest.mark.parametrize(
    ("machines", "device", "reason"),
    [
        (([700], [750]), "b", "unsupported_build"),
        (([700], [750]), "auto", "enabled"),
        (([650], [650], []), "c", "enabled"),
        (([1500], [700]), "b", "enabled"),
    ],
)
def test_a_build_that_a_shared_rpc_device_ends(ask, small, monkeypatch, machines, device, reason):
    request = ask(*machines, draft_device=device, draft_scope="any", **small)
    sound = make_plan(request)
    crashing(monkeypatch)
    plan = make_plan(request)
    assert plan["draft"]["reason"] == reason
    if reason == "unsupported_build":
        assert plan["draft"]["message"] == f"{CRASH} (b CUDA0 would have both)"
        assert not kept(request, sound)["kept"]


def test_layers_of_the_target_on_a_shared_rpc_device(ask, world, mtp, monkeypatch):
    """Their context shares the device of the last layer, which here is a worker's."""
    assert make_plan(ask([], [700], [700]))["speculation"] == "draft-mtp"
    crashing(monkeypatch)
    plan = make_plan(ask([], [700], [700]))
    assert (plan["draft"]["reason"], plan["speculation"]) == ("unsupported_build", None)
    assert make_plan(ask([700], [700]))["speculation"] == "draft-mtp"


def test_a_replicas_build_without_rpc_cannot_draft_on_a_worker(ask, small):
    flags = [*dialect.REQUIRED, *dialect.REQUIRED_SHARDED, *dialect.OPTIONAL, *dialect.DRAFT_FLAGS]
    llama = {"flags": flags, "backends": ["CPU", "CUDA"]}
    plan = make_plan(ask([1500], [700], draft_scope="any", draft_device="b", llama=llama, **small))
    assert (plan["kind"], plan["draft"]["reason"]) == ("replica", "unsupported_build")
    assert "without RPC, so the draft cannot run on b CUDA0" in plan["draft"]["message"]


@pytest.mark.parametrize(
    ("machines", "device", "where", "way_out"),
    [
        (([550, 600], [450]), "auto", ("a", "CUDA1"), None),
        (([600, 550], [450]), "auto", ("a", "CUDA1"), None),
        (([700], [700]), "cpu", None, "set relay_draft_device to CUDA0"),
        (([700], [750]), "b", None, "set relay_draft_device to CUDA0"),
        (([], [700], [700]), "cpu", None, "set relay_draft_device to c"),
        (([], [700], [700]), "c", ("c", "RPC1"), None),
    ],
)
def test_a_draft_that_works_with_the_targets_output(ask, small, proposing, machines, device, where, way_out):
    proposing(Verdict("enabled", ""), Speculation("draft-eagle3", 4, True, beside_output=True))
    plan = make_plan(ask(*machines, draft_device=device, **small))
    if where:
        assert (plan["draft"]["reason"], place(plan)) == ("enabled", where)
        output = next(row for row in plan["stages"] if row["has_output"])
        assert (output["host"], output["rpc_device"] or output["device"]) == where
    else:
        assert plan["draft"]["reason"] == "unsupported_build"
        assert way_out in plan["draft"]["message"]


@pytest.mark.parametrize(
    ("machines", "device", "allow_cpu", "where"),
    [
        (([550, 600], [450]), "auto", False, ("a", "CUDA1")),
        (([], [700], [700]), "c", False, ("c", "RPC1")),
        (([], [850], [700]), "b", False, None),
        # the whole target is on the CPU, and so must the draft be
        (([],), "auto", True, ("a", "none")),
        (([], []), "b", True, None),
    ],
)
def test_a_draft_that_works_with_the_targets_caches(ask, small, proposing, machines, device, allow_cpu, where):
    kind = Speculation("draft-mtp", 4, True, beside_output=True, beside_cache=True)
    proposing(Verdict("enabled", ""), kind)
    plan = make_plan(ask(*machines, draft_device=device, allow_cpu=allow_cpu, draft_scope="any", **small))
    assert (plan["draft"]["reason"], place(plan)) == (
        ("enabled", where) if where else ("unsupported_build", (None, None))
    )
    if not where:
        assert "the caches of the target's last layers, on " in plan["draft"]["message"]


# -- layers of the target --------------------------------------------------------------------------------------


@pytest.mark.parametrize("machines", [([700], [700]), ([], [700], [700])])
def test_mtp_is_charged_with_the_last_layer(ask, mtp, machines):
    request = ask(*machines)
    plan = make_plan(request)
    last = [row for row in plan["stages"] if row["n_layers"]][-1]
    assert drafts(plan) == {("a", "CPU"): RAM_MIB * MIB, (last["host"], last["device"]): CONTEXT_MIB * MIB}
    draft = plan["draft"]
    assert (draft["reason"], draft["path"], draft["host"], draft["device"]) == ("enabled", None, last["host"], None)
    assert draft["memory"]["total_bytes"] == (RAM_MIB + CONTEXT_MIB) * MIB
    assert (plan["speculation"], value(plan, "--spec-type")) == ("draft-mtp", "draft-mtp")
    assert value(plan, "--spec-draft-model") is None
    assert kept(request, plan)["kept"]
    text = plan_table(plan)
    assert "draft    on (draft-mtp), 135 MiB beside the model: the target's own MTP layers" in text


def test_mtp_makes_room_and_is_dropped_without(ask, mtp):
    assert make_plan(ask([700], [700]))["speculation"] == "draft-mtp"
    plan = make_plan(ask([650], [650]))
    assert (plan["speculation"], plan["draft"]["reason"]) == (None, "no_room")
    assert "draft-mtp proposes up to 4 tokens at once, for which the target needs up to" in plan["draft"]["message"]
    assert plan["draft"]["message"].endswith("lower relay_draft_max, relay_ctx_size or relay_parallel")
    stays = make_plan(ask([700], [600], draft_reserve=False))
    assert (stays["speculation"], stays["draft"]["reason"]) == (None, "no_room")


def test_mtp_of_a_replica_on_the_cpu(ask, world, mtp):
    plan = make_plan(ask(world.node(1, ram=4000), allow_cpu=True, draft_scope="any"))
    assert drafts(plan) == {("a", "CPU"): (RAM_MIB + CONTEXT_MIB) * MIB}
    assert plan["draft"]["host"] == "a"


# -- n-grams ---------------------------------------------------------------------------------------------------


def test_n_grams_that_were_asked_for(ask, proposing):
    proposing(Verdict("not_configured", "n-grams"), NGRAM)
    request = ask([700], [700])
    plan = make_plan(request)
    assert (plan["speculation"], plan["draft"]["reason"], plan["draft"]["enabled"]) == (
        "ngram-mod", "not_configured", False,
    )  # fmt: skip
    assert value(plan, "--spec-type") == "ngram-mod"
    assert not any("no draft" in warning for warning in plan["warnings"])
    assert "draft    no draft model, ngram-mod: n-grams" in plan_table(plan)
    assert kept(request, plan)["kept"]
    assert plan["predicted"]["draft_tokens"] == 64


def test_the_rows_of_n_grams_are_charged(ask, world, proposing):
    model = world.gguf()
    model["tokenizer"]["n_tokens"] = 150000
    need = make_plan(ask([9000], model=model))["stages"][1]["memory"]["total_bytes"]
    proposing(Verdict("not_configured", "n-grams"), NGRAM)
    request = ask([9000], model=model, draft_scope="any", parallel=8, ubatch_size=512)
    assert make_plan(request)["stages"][1]["memory"]["total_bytes"] > need
    tight = ask([-(-need // MIB)], model=model, draft_scope="any", parallel=1)
    plan = make_plan(tight)
    if plan["speculation"] is None:
        assert plan["draft"]["reason"] == "no_room"
        assert "ngram-mod proposes up to 64 tokens" in plan["draft"]["message"]


@pytest.mark.parametrize(
    ("verdict", "wanted"),
    [
        (Verdict("enabled", ""), Speculation("draft-simple", 16, True)),
        (Verdict("enabled", ""), MTP),
        (Verdict("not_configured", ""), NGRAM),
        (Verdict("not_found", "no file"), None),
    ],
)
def test_a_replica_speculates_in_the_scope_any_alone(ask, small, proposing, verdict, wanted):
    proposing(verdict, wanted, NGRAM)
    plan = make_plan(ask([1500], [700], **small))
    assert (plan["kind"], plan["speculation"]) == ("replica", None)
    assert plan["draft"]["reason"] == ("replica" if wanted else "not_found")
    assert not any(word.startswith("--spec") for word in plan["server_args"])
    assert make_plan(ask([1500], [700], draft_scope="any", **small))["speculation"]


# -- what takes the place of a draft ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "instead"),
    [
        ("tokenizer_mismatch", "ngram-mod"),
        ("unsized", "ngram-mod"),
        ("not_found", "ngram-mod"),
        ("unsupported_build", "ngram-mod"),
        ("measured_slower", "ngram-mod"),
        ("hybrid_target", None),
        ("not_configured", None),
    ],
)
def test_which_drafts_leave_their_place(ask, small, proposing, reason, instead):
    proposing(Verdict(reason, "the reason"), None, NGRAM)
    request = ask([700], [700], **small)
    plan = make_plan(request)
    assert (plan["draft"]["reason"], plan["draft"]["enabled"], plan["speculation"]) == (reason, False, instead)
    if instead:
        assert plan["draft"]["message"] == "the reason; ngram-mod proposes tokens instead"
        assert f"off ({reason}), ngram-mod instead: the reason" in plan_table(plan)
        assert "ngram-mod instead" in plan_html(plan)
    assert kept(request, plan)["kept"]


@pytest.mark.parametrize(
    ("machines", "options", "reason"),
    [
        (([700], [700]), {"layer_mib": 1100}, "no_room"),
        (([], [700], [700]), {}, "no_host_stage"),
        (([1500],), {"layer_mib": 1100, "draft_scope": "any"}, "no_room"),
    ],
)
def test_a_draft_without_a_place_leaves_it(ask, world, machines, options, reason):
    options = dict(options)
    draft = world.gguf(DRAFT, n_layer=4, layer_mib=options.pop("layer_mib", 20))
    plan = make_plan(ask(*machines, draft=draft, draft_path=DRAFT, draft_fallback="ngram-mod", **options))
    assert (plan["draft"]["reason"], plan["speculation"]) == (reason, "ngram-mod")
    assert any(f"no draft ({reason})" in warning and "ngram-mod" in warning for warning in plan["warnings"])


def test_a_fallback_costs_the_plan_nothing(ask, world, proposing):
    """Where its rows do not fit beside the layers as they lie best, the plan goes without, and says so."""
    model = world.gguf()
    model["tokenizer"]["n_tokens"] = 250000
    proposing(Verdict("not_found", "no file"), None, Speculation("ngram-mod", 255, False))
    plain = make_plan(ask([9000], model=model, parallel=8, draft_scope="any"))
    assert plain["speculation"] == "ngram-mod"
    proposing(Verdict("not_found", "no file"), None, None)
    bare = make_plan(ask([9000], model=model, parallel=8, draft_scope="any"))
    need = -(-bare["stages"][1]["memory"]["total_bytes"] // MIB)
    assert bare["stages"][1]["memory"]["total_bytes"] < plain["stages"][1]["memory"]["total_bytes"]
    proposing(Verdict("not_found", "no file"), None, Speculation("ngram-mod", 255, False))
    tight = make_plan(ask([need], [9000], model=model, parallel=8, draft_scope="any"))
    assert (tight["kind"], tight["host"], tight["speculation"]) == ("replica", "a", None)
    assert tight["draft"]["message"].startswith("no file; nothing instead, as ngram-mod proposes up to 255 tokens")


@pytest.mark.parametrize(("worker", "speculates"), [(690, "ngram-mod"), (640, None)])
def test_layers_move_for_a_fallback_only_where_a_token_takes_no_longer(ask, world, proposing, worker, speculates):
    """To the worker that is used already, not to one more, although that one has room."""
    model = world.gguf()
    model["tokenizer"]["n_tokens"] = 250000
    request = ask([670], [worker], [300], model=model)
    proposing(Verdict("not_found", "no file"), None, None)
    plain = make_plan(request)
    assert {row["host"] for row in plain["stages"] if row["n_layers"]} == {"a", "b"}
    proposing(Verdict("not_found", "no file"), None, Speculation("ngram-mod", 63, False))
    plan = make_plan(request)
    assert plan["speculation"] == speculates
    layers = [{row["host"]: row["n_layers"] for row in p["stages"] if row["n_layers"]} for p in (plain, plan)]
    assert (layers[0] == layers[1]) == (speculates is None)
    assert set(layers[1]) == {"a", "b"}
    # With one more device there would be room, which who asks for n-grams outright gets.
    proposing(Verdict("not_configured", ""), Speculation("ngram-mod", 63, False))
    assert make_plan(request)["speculation"] == "ngram-mod"


# -- dropped after the plan was made ---------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["no_room", "unsupported_build"])
@pytest.mark.parametrize("fallback", ["none", "ngram-mod"])
@pytest.mark.parametrize("device", ["auto", "b", "c"])
def test_a_draft_that_is_dropped_stays_so(ask, small, reason, fallback, device):
    request = ask([700], [750], [300], draft_device=device, draft_fallback=fallback, **small)
    plan = make_plan(request)
    assert plan["draft"]["enabled"]
    again = without_draft(dataclasses.replace(request, previous=plan), "proved not to be live", reason)
    assert (again["draft"]["reason"], again["draft"]["enabled"]) == (reason, False)
    assert again["draft"]["message"].startswith("proved not to be live")
    assert again["speculation"] == (None if fallback == "none" else fallback)
    layers = [[row for row in map(held, p["stages"]) if row] for p in (plan, again)]
    assert layers[0] == layers[1]
    assert {worker["host"] for worker in again["workers"]} == {row[0] for row in layers[0]} - {"a"}
    next_one = kept(request, again)
    assert (next_one["kept"], next_one["server_args"], next_one["draft"]) == (
        True, again["server_args"], again["draft"],
    )  # fmt: skip
    # A fallback that proved not to be live, too, leaves nothing.
    if fallback != "none":
        last = without_draft(dataclasses.replace(request, previous=again), "not live either", "unsupported_build")
        assert (last["speculation"], last["draft"]["reason"]) == (None, "unsupported_build")
        assert kept(request, last)["kept"]


def held(row):
    return (row["host"], row["device"], row["first_layer"], row["n_layers"]) if row["n_layers"] else None


def test_a_fallback_of_a_draft_that_never_ran_is_dropped(ask, proposing, small):
    proposing(Verdict("not_found", "no file"), None, NGRAM)
    request = ask([700], [700], **small)
    plan = make_plan(request)
    again = without_draft(dataclasses.replace(request, previous=plan), "not live", "unsupported_build")
    assert (again["speculation"], again["draft"]["reason"]) == (None, "unsupported_build")
    assert kept(request, again)["kept"]


@pytest.mark.parametrize("family", ["mtp", "ngram"])
def test_what_needs_no_file_is_dropped_as_well(ask, request, proposing, family):
    if family == "mtp":
        request.getfixturevalue("mtp")
    else:
        proposing(Verdict("not_configured", ""), NGRAM)
    asked = ask([700], [700])
    plan = make_plan(asked)
    assert plan["speculation"]
    again = without_draft(dataclasses.replace(asked, previous=plan), "not live", "unsupported_build")
    assert (again["speculation"], again["draft"]["reason"]) == (None, "unsupported_build")
    assert kept(asked, again)["kept"]


# Two builds that understand the same command lines.
NEW = facts_of(TODAY, backends=["CPU", "CUDA", "RPC"])
OLD = {**NEW, "version": "0.5.0", "build": 11400, "commit": "abc"}


@pytest.mark.parametrize("changed", ["version", "build", "commit"])
@pytest.mark.parametrize(
    "options",
    [{}, {"draft_fallback": "ngram-mod"}, {"speculation_type": "ngram-mod", "draft": None, "draft_path": ""}],
    ids=["draft", "fallback", "ngram"],
)
def test_another_build_tries_again_what_proved_not_to_be_live(ask, small, options, changed):
    request = ask([700], [750], [300], llama={**OLD, changed: NEW[changed]}, **{**small, **options})
    plan = make_plan(request)
    assert plan["speculation"]
    again = without_draft(dataclasses.replace(request, previous=plan), "not live", "unsupported_build")
    assert kept(request, again)["kept"]
    # Of facts that say nothing it is not known whether they are another build's, and a build does not free memory.
    assert kept(request, {**again, "llama": dict.fromkeys(again["llama"])})["kept"]
    full = without_draft(dataclasses.replace(request, previous=plan), "no room", "no_room")
    newer = dataclasses.replace(request, llama={**request.llama, "version": "9", "build": 20000, "commit": "fff"})
    assert kept(newer, full)["kept"]
    tried = kept(newer, again)
    assert (tried["kept"], tried["speculation"]) == (False, plan["speculation"])
    assert tried["draft"]["enabled"] == plan["draft"]["enabled"]
    assert tried["llama"]["build"] == 20000


def test_another_build_tries_a_fallback_again(ask, proposing, small):
    """Of a draft that the build cannot run by its own words, which another one cannot either."""
    proposing(Verdict("unsupported_build", "too old"), None, NGRAM)
    request = ask([700], [700], llama=OLD, **small)
    again = without_draft(
        dataclasses.replace(request, previous=make_plan(request)), "not live either", "unsupported_build"
    )
    assert (again["speculation"], kept(request, again)["kept"]) == (None, True)
    assert kept(dataclasses.replace(request, llama=NEW), again)["speculation"] == "ngram-mod"


def test_another_build_moves_nothing_that_it_does_not_decide(ask, proposing, small):
    older = {**OLD, "spec_types": ["none", "draft-simple"]}
    for options, type in (({}, None), (small, "draft-simple")):
        request = ask([700], [750], [300], llama=NEW, **options)
        plan = make_plan(request)
        assert (plan["speculation"], kept(dataclasses.replace(request, llama=older), plan)["kept"]) == (type, True)
    # The fallback is asked for as well, and a running draft is not what shows it.
    request = ask([700], [750], [300], llama=NEW, draft_fallback="ngram-mod", **small)
    assert not kept(dataclasses.replace(request, llama=older), make_plan(request))["kept"]
    # A build that has no words for drafts, and a plan without one.
    request = ask([700], [750], [300], llama=NEW)
    flags = [flag for flag in NEW["flags"] if not flag.startswith(("--spec", "--draft", "--model-draft", "-md"))]
    bare = {**OLD, "flags": flags, "spec_types": [], "values": {}}
    assert kept(dataclasses.replace(request, llama=bare), make_plan(request))["kept"]
    # What the build says of itself is a reason, as ever.
    request = ask([700], [750], [300], llama=bare, **small)
    plan = make_plan(request)
    assert plan["draft"]["reason"] == "unsupported_build"
    assert kept(dataclasses.replace(request, llama={**bare, "build": 11401}), plan)["kept"]
    assert kept(dataclasses.replace(request, llama=NEW), plan)["draft"]["enabled"]


def test_a_plan_of_an_older_version_is_replaced(ask, small):
    request = ask([700], [700], **small)
    plan = make_plan(request)
    old = json.loads(json.dumps(plan))
    del old["speculation"], old["draft"]["host"]
    old["schema"] = 1
    assert not kept(request, old)["kept"]
    assert changes(old, plan) == []


# -- the look back before a launch -----------------------------------------------------------------------------


def test_a_draft_alone_on_a_worker_is_all_that_its_worker_costs(ask, small):
    request = ask([650], [650], [200], draft_device="c", **small)
    plan = make_plan(request)
    assert place(plan) == ("c", "RPC1")
    assert shortfalls(plan, request.nodes) == ([], [])
    for change, text in (
        ({"c": None}, "There are no facts of c, and the plan has its draft there."),
        ({"c": {**request.nodes["c"], "gpus": []}}, "c CUDA0 is not there any more."),
    ):
        found = shortfalls(plan, {**request.nodes, **change})
        assert (found.target, found.draft) == ([], [text])


# -- what people read ------------------------------------------------------------------------------------------


def test_the_table_names_machine_and_device_of_a_remote_draft(ask, small):
    plan = make_plan(ask([650], [650], [200], draft_device="c", **small))
    on_c, on_a = (-(-drafts(plan)[place] // MIB) for place in (("c", "CUDA0"), ("a", "CPU")))
    text = plan_table(plan)
    where = f"on (draft-simple), {on_c} MiB on c CUDA0 over RPC (RPC1) and {on_a} MiB in the RAM of a"
    assert f"draft    {where}: {DRAFT}" in " ".join(text.split()).replace("draft on", "draft    on")
    assert plan["draft"]["message"] == f"{DRAFT} runs on c CUDA0, over RPC as RPC1"
    assert "c        CUDA0 RPC1  -" in text
    page = plan_html(plan)
    assert page.count("the draft alone") == 1
    assert where in page
    on_cpu = make_plan(ask([650], [650], draft_device="cpu", **small))
    total = -(-on_cpu["draft"]["memory"]["total_bytes"] // MIB)
    assert f"on (draft-simple), {total} MiB on a CPU: {DRAFT}" in plan_table(on_cpu)


def test_what_changes_when_the_draft_moves(ask, small):
    machines = ([700], [700], [300])
    plans = [make_plan(ask(*machines, draft_device=device, **small)) for device in ("CUDA0", "cpu", "c")]
    phrases = [phrase for pair in zip(plans, plans[1:]) for phrase in changes(*pair) if phrase.startswith("draft")]
    assert phrases == ["draft on (CUDA0) -> on (CPU)", "draft on (CPU) -> on (c CUDA0)"]


@pytest.mark.parametrize(("device", "layer_mib", "host"), [("auto", 200, "a"), ("b", 250, "b"), ("cpu", 200, None)])
def test_a_draft_that_found_no_gpu_says_so(ask, world, device, layer_mib, host):
    draft = world.gguf(DRAFT, n_layer=4, layer_mib=layer_mib, embd_mib=10, output_mib=10)
    plan = make_plan(ask([700], [700], draft=draft, draft_path=DRAFT, draft_device=device))
    total = f"{-(-plan['draft']['memory']['total_bytes'] // MIB):,} MiB".replace(",", " ")
    lines = [line for line in plan["advice"] if line.startswith("the draft, ")]
    assert [line.split(" there has")[0] for line in lines] == (
        [f"the draft, {total}, runs on the CPU of {host}, as CUDA0"] if host else []
    )


def test_a_draft_without_room_names_every_place_and_one_way_out(ask, world):
    draft = world.gguf(DRAFT, n_layer=4, layer_mib=1100)
    message = make_plan(ask([700], [700], draft=draft, draft_path=DRAFT))["draft"]["message"]
    gpu, cpu = message.split("; ")
    assert gpu.startswith("the draft needs 4 5")
    assert gpu.endswith(" MiB on a CUDA0, which offers 700 MiB")
    assert " on a CPU, which offers 4 096 MiB: take a smaller draft or lower relay_ctx_size" in cpu


@pytest.mark.parametrize(("device", "shared"), [("b", True), ("c", False)])
def test_the_advice_on_a_remote_draft_has_its_numbers(ask, world, small, device, shared):
    host = world.node(1, [650], links=[{"name": n, "rtt_seconds": 0.002, "speed_mbps": 1000} for n in ("b", "c")])
    plan = make_plan(ask(host, [800], [200], draft_device=device, **small))
    assert plan["draft"]["host"] == device
    lines = [line for line in plan["advice"] if "every drafted token waits" in line]
    # a round trip, 1024 floats there and 32000 back at 1 Gbit/s
    assert len(lines) == 1
    assert f"{device} CUDA0" in lines[0]
    assert "3.06 ms" in lines[0]
    assert "125 KiB of logits" in lines[0]
    assert any("about 200 KB and not 21 KB" in line for line in plan["advice"]) == shared


def test_layers_that_could_draft_are_pointed_out(ask, world):
    model = world.gguf(arch="glm4moe", nextn_predict_layers=1)
    hint = "relay_speculation_type draft-mtp drafts without a second model"
    assert any(hint in line for line in make_plan(ask([700], [700], model=model))["advice"])
    assert not any(hint in line for line in make_plan(ask([1500], model=model))["advice"])
    assert not any(hint in line for line in make_plan(ask([700], [700]))["advice"])
