"""Who may join, by the address that it brings: peers that could not reach it would wait for it."""

from __future__ import annotations

import json

import pytest
from simulated_world import LAYOUT, SETTINGS, TRAINING

from elastic_runtime.coordinator.machine import Machine, begin
from elastic_runtime.coordinator.registering import Newcomer
from elastic_runtime.plan import Role

KEY = "a" * 40


def refusal(machine: Machine, task: str, address_json: str) -> str:
    worker = task.startswith("worker")
    role = Role.WORKER if worker else Role.SERVER
    models = (LAYOUT, TRAINING) if worker else ("", "")
    return machine.register(Newcomer(task, role, 7, address_json, *models), 0.0)[0]


@pytest.fixture
def machine() -> Machine:
    machine = Machine(SETTINGS, 0.0, begin(SETTINGS), lambda: 0.0)
    machine.tick(0.0)
    return machine


@pytest.mark.parametrize("address_json", ["", "text", "[]", "7", '{"tcp": 7}', "[" * 100_000])
def test_what_is_no_address_is_refused(machine: Machine, address_json: str) -> None:
    assert "worker-0 brought no address of a data plane" in refusal(machine, "worker-0", address_json)
    assert not refusal(machine, "worker-0", "{}")


@pytest.mark.parametrize("first", [True, False])
def test_one_task_that_encrypts_otherwise_than_the_others_is_refused(machine: Machine, first: bool) -> None:
    plain, encrypted = json.dumps({"public_key": ""}), json.dumps({"public_key": KEY})
    assert not refusal(machine, "ps-0", encrypted if first else plain)
    line = refusal(machine, "worker-0", plain if first else encrypted)
    assert "set ELASTIC_CURVE alike for all tasks of job simulated" in line
    assert ("does not encrypt its data, and ps-0 does:" in line) == first
    assert not refusal(machine, "worker-0", encrypted if first else plain)
