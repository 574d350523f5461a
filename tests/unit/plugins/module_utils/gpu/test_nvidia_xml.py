# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pathlib

import pytest
from ansible_collections.relay.pool.plugins.module_utils.gpu import nvidia_xml

MIB = 1024 * 1024
FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "nvidia"
PROCESS = "<process_info><pid>{}</pid><type>{}</type><process_name>x</process_name><used_memory>{}</used_memory>"


def document(*gpus, before="", behind=""):
    body = "".join(f'<gpu id="00000000:0{number}:00.0">{gpu}</gpu>' for number, gpu in enumerate(gpus, 1))
    return f"{before}<nvidia_smi_log><attached_gpus>8</attached_gpus>{body}</nvidia_smi_log>{behind}"


def one(gpu):
    found, error = nvidia_xml.parse_xml(document(gpu))
    assert error is None
    assert len(found) == 1
    return found[0]


def test_mig_devices_of_one_gpu():
    found, error = nvidia_xml.parse_xml((FIXTURES / "mig.xml").read_text())
    assert error is None
    # attached_gpus says 3.
    assert [(gpu.bus_id, gpu.uuid, gpu.mig, gpu.action, gpu.reset) for gpu in found] == [
        ("0000:83:00.0", "GPU-6d1f9c0e-1111-2222-3333-444455556666", True, None, False)
    ]
    assert [(part.index, part.instance, part.uuid) for part in found[0].mig_devices] == [
        (0, 2, None),
        (1, 2, None),
        (2, 3, None),
        (3, 9, None),
    ]
    sizes = [(part.total_bytes, part.free_bytes) for part in found[0].mig_devices]
    # The last one has a BAR1 and no framebuffer.
    assert sizes == [(71424 * MIB, 68038 * MIB)] * 2 + [(33280 * MIB, 33264 * MIB), (None, None)]
    assert found[0].mig_devices[3].reason == "unreadable value ''"
    assert [(p.pid, p.kind, p.name, p.used_bytes, p.instance) for p in found[0].processes] == [
        (4100, "C", "/opt/relay/bin/ggml-rpc-server", 2194 * MIB, 2),
        (5200, "C", "python3", 1170 * MIB, 2),
    ]


@pytest.mark.parametrize(
    ("memory", "total", "free", "reason"),
    [
        ("<total>19968 MiB</total><free>19955 MiB</free>", 19968 * MIB, 19955 * MIB, None),
        ("<total>9984 MiB</total><free>9985 MiB</free>", 9984 * MIB, None, "nvidia-smi reports 9985 MiB free"),
        ("<total>Insufficient Permissions</total><free>N/A</free>", None, None, "insufficient_permissions"),
        ("<total>lots</total><free>5 MiB</free>", None, 5 * MIB, "unreadable value 'lots'"),
    ],
)
def test_memory_of_a_mig_device(memory, total, free, reason):
    part = f"<mig_device><index>1</index><uuid>MIG-1</uuid><fb_memory_usage>{memory}</fb_memory_usage></mig_device>"
    found = one(f"<mig_devices>{part}</mig_devices>").mig_devices[0]
    assert (found.index, found.uuid, found.total_bytes, found.free_bytes) == (1, "MIG-1", total, free)
    assert found.reason == reason or found.reason.startswith(reason)


@pytest.mark.parametrize("text", ["None", "N/A", "\n\t\tNone\n\t", ""])
def test_no_mig_devices(text):
    assert one(f"<mig_devices>{text}</mig_devices>").mig_devices == ()


@pytest.mark.parametrize(
    ("body", "action"),
    [
        ("", None),
        ("<gpu_recovery_action>None</gpu_recovery_action>", None),
        ("<gpu_recovery_action>N/A</gpu_recovery_action>", None),
        ("<gpu_recovery_action>[N/A]</gpu_recovery_action>", None),
        ("<gpu_recovery_action>Not Supported</gpu_recovery_action>", None),
        ("<gpu_recovery_action>Reset</gpu_recovery_action>", "Reset"),
        ("<gpu_recovery_action>Reboot</gpu_recovery_action>", "Reboot"),
        ("<gpu_recovery_action> Drain P2P </gpu_recovery_action>", "Drain P2P"),
        ("<gpu_recovery_action>Unknown Error</gpu_recovery_action>", "Unknown Error"),
        ("<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>", "Reset"),
        ("<gpu_reset_status><reset_required>No</reset_required></gpu_reset_status>", None),
        (
            "<gpu_reset_status><drain_and_reset_recommended>Yes</drain_and_reset_recommended></gpu_reset_status>",
            "Drain and Reset",
        ),
    ],
)
def test_recovery_action(body, action):
    assert one(body).action == action


@pytest.mark.parametrize(
    ("body", "reset"),
    [
        ("<temperature><gpu_temp>GPU requires reset</gpu_temp></temperature>", True),
        ("<utilization><gpu_util>[GPU requires reset]</gpu_util></utilization>", True),
        ("<temperature><gpu_temp>51 C</gpu_temp></temperature>", False),
        ("<processes><process_info><process_name>GPU requires reset</process_name></process_info></processes>", False),
    ],
)
def test_a_reading_that_says_reset(body, reset):
    assert one(body).reset is reset


@pytest.mark.parametrize(
    ("body", "processes"),
    [
        ("", None),
        ("<processes>N/A</processes>", None),
        ("<processes>Insufficient Permissions</processes>", None),
        ("<processes/>", []),
        ("<processes>None</processes>", []),
        (f"<processes>{PROCESS.format(7, 'C+G', '56 MiB')}</process_info></processes>", [(7, "C+G", 56 * MIB, None)]),
        (f"<processes>{PROCESS.format(7, 'G', 'N/A')}</process_info></processes>", [(7, "G", None, "n_a")]),
        (f"<processes>{PROCESS.format('N/A', 'C', '5 MiB')}</process_info></processes>", []),
        ("<processes><process_info/></processes>", []),
    ],
)
def test_processes(body, processes):
    found = one(body).processes
    if processes is None:
        assert found is None
    else:
        assert [(p.pid, p.kind, p.used_bytes, p.reason) for p in found] == processes


def test_gpus_are_known_by_address_and_uuid():
    found, _error = nvidia_xml.parse_xml(
        "<nvidia_smi_log><gpu><uuid>GPU-5</uuid><pci><pci_bus_id>00000000:C1:00.0</pci_bus_id></pci></gpu>"
        '<gpu id="N/A"><uuid>N/A</uuid><addressing_mode>ATS</addressing_mode></gpu></nvidia_smi_log>'
    )
    assert [(gpu.bus_id, gpu.uuid, gpu.addressing) for gpu in found] == [
        ("0000:c1:00.0", "GPU-5", None),
        (None, None, "ATS"),
    ]


@pytest.mark.parametrize(
    "before",
    [
        "",
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n',
        '<?xml version="1.0" encoding="utf-16" ?>\n',
        "Unable to determine the device handle for GPU 0000:02:00.0: Unknown Error\n",
        '<!DOCTYPE nvidia_smi_log SYSTEM "file:///etc/passwd">',
    ],
)
def test_what_stands_around_the_document(before):
    found, error = nvidia_xml.parse_xml(document("<uuid>GPU-1</uuid>", before=before, behind="\nWARNING: infoROM\n"))
    assert ([gpu.uuid for gpu in found], error) == (["GPU-1"], None)


def test_control_characters_in_the_name_of_a_process():
    process = PROCESS.format(5, "C", "1 MiB").replace("x<", "a\x1b[0mb\x00<")
    assert one(f"<processes>{process}</process_info></processes>").processes[0].name == "a[0mb"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no whole nvidia_smi_log"),
        ("No devices were found", "no whole nvidia_smi_log"),
        ("<nvidia_smi_log><gpu>", "no whole nvidia_smi_log"),
        ("</nvidia_smi_log><nvidia_smi_log>", "no whole nvidia_smi_log"),
        ("<nvidia_smi_log><gpu></nvidia_smi_log>", "cannot be read"),
        ("<nvidia_smi_log><gpu>&lol;</gpu></nvidia_smi_log>", "cannot be read"),
        ("<nvidia_smi_log><gpu>\ud800</gpu></nvidia_smi_log>", "cannot be read"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><nvidia_smi_log></nvidia_smi_log>', "declares entities"),
        ('<nvidia_smi_log><!entity b "c"></nvidia_smi_log>', "declares entities"),
    ],
)
def test_broken_xml_is_an_error(text, error):
    found, said = nvidia_xml.parse_xml(text)
    assert found == []
    assert error in said


def test_nested_without_end():
    deep = 100_000
    assert one("<a>" * deep + "</a>" * deep).processes is None
