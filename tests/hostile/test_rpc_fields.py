"""Every field of every request with every bad value: refused in one line and counted, or harmless; nothing changes."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from bad_fields import Attack, attacks
from hostile_learner import Answer, HostileLearner
from rpc_table import ROWS, methods, passes, sound_request

from foundation.text import LONGEST_CHARACTERS
from global_learner.errors import CallRefusal, Rejection
from policy_net.exchange.generated import fleet_pb2 as pb

pytestmark = pytest.mark.heavy

REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""What a caller may be told; INTERNAL and UNKNOWN would be faults of ours."""
MEMORY_BYTES = 200 << 20
"""How much more memory the learner may hold after all attacks of one method."""


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileLearner]:
    learner = HostileLearner(tmp_path_factory.mktemp("hostile"), quarantine={"seconds": 0})
    yield learner
    learner.close()


def test_every_method_has_a_row() -> None:
    assert set(ROWS) == set(methods()), "a new method needs a line in rpc_table.ROWS, a removed one must leave it"


def test_every_field_that_may_hold_anything_exists() -> None:
    for method, row in ROWS.items():
        known = {attack.field for attack in attacks(sound_request(method, 1))}
        named = {name.partition("=")[0] for name in row.passes}
        assert named <= known, f"{method}: no field {named - known}"


@pytest.mark.parametrize("method", methods())
def test_a_bad_value_changes_nothing_and_is_counted(method: str, learner: HostileLearner) -> None:
    learner.register()
    memory = learner.memory_bytes()
    shown, counted = learner.shown(), learner.counted()
    wrong = []
    for attack in attacks(sound_request(method, learner.incarnation)):
        answer = learner.send(method, attack.message)
        if answer.status is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in answer.line:
            key = ("fedl2_learner_refusals_total", method, "not-received")
            learner.counts_until(key, counted[key] + 1)
        now, count = learner.shown(), learner.counted()
        wrong += [f"{attack.label}: {fault}" for fault in faults(method, attack, answer, now != shown, count - counted)]
        shown, counted = now, count
        if ROWS[method].changes and answer.done:
            learner.register()
            shown, counted = learner.shown(), learner.counted()
    assert not wrong, f"{method}:\n" + "\n".join(wrong)
    step = learner.shown()["head_step"]
    assert learner.good_push().head_step == step + 1
    assert learner.memory_bytes() < memory + MEMORY_BYTES


def faults(
    method: str, attack: Attack, answer: Answer, changed: bool, counted: dict[tuple[str, ...], int]
) -> list[str]:
    """What is wrong with how the learner took an attack."""
    refusals = {key[1:]: number for key, number in counted.items() if key[0] == "fedl2_learner_refusals_total"}
    rejections = {key[1:]: number for key, number in counted.items() if key[0] == "fedl2_learner_rejections_total"}
    if answer.done and method == "Push" and answer.reply.outcome == pb.PushReply.REJECTED:
        found = [] if rejections == {(answer.reply.reason,): 1} else [f"rejected and counted {rejections}"]
        if answer.reply.reason not in set(Rejection):
            found.append(f"rejected for {answer.reply.reason!r}, which is none of the fixed reasons")
        return found + (["rejected, and something changed"] if changed else [])
    if answer.done:
        if passes(method, attack.field, attack.kind):
            return ["counted as refused"] if refusals else []
        return [f"taken, and {'something' if changed else 'nothing'} changed"]
    found = []
    if answer.status not in REFUSALS:
        found.append(f"ended with {answer.status.name}: {answer.line}")
    if not 0 < len(answer.line) <= LONGEST_CHARACTERS or not answer.line.isprintable():
        found.append(f"said {answer.line[:200]!r}, which is no plain line")
    if any(word in answer.line for word in ("Traceback", "/tmp", "sqlite", "SELECT")):  # noqa: S108
        found.append(f"gave inside knowledge away: {answer.line}")
    if sum(refusals.values()) != 1 or any(key != (method, CallRefusal(key[1])) for key in refusals):
        found.append(f"was counted as {refusals}")
    return found + (["refused, and something changed"] if changed else [])
