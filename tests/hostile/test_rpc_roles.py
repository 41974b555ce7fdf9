"""Every method under every role, through the real server: what is too much is refused, counted, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from hostile_learner import HostileLearner
from rpc_table import ROWS, Caller, methods, sound_request

from global_learner.identity import NEEDS, PEOPLE, CallerRole

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileLearner]:
    learner = HostileLearner(tmp_path_factory.mktemp("roles"))
    yield learner
    learner.close()


@pytest.fixture(scope="module")
def people(learner: HostileLearner) -> dict[CallerRole, grpc.Channel]:
    return {role: learner.channel(learner.person(f"{role}-ada", role)) for role in PEOPLE}


@pytest.mark.parametrize("method", [name for name in methods() if name != "Enroll"])
def test_each_role_may_what_it_may_and_no_more(
    method: str, learner: HostileLearner, people: dict[CallerRole, grpc.Channel]
) -> None:
    wrong = []
    shown, counted = learner.shown(), learner.counted()
    for role, channel in people.items():
        answer = learner.send(method, sound_request(method, learner.incarnation), channel)
        now, count = learner.shown(), learner.counted()
        counts = {key: number for key, number in (count - counted).items() if "refusals" in key[0]}
        refused = {
            ("fedl2_learner_refusals_total", method, "wrong-identity"): 1,
            ("fedl2_learner_identity_refusals_total", "wrong-role"): 1,
        }
        if NEEDS[method].allows(role):
            # FetchPolicy names a cluster there, which nobody else may pose as; without a name people get the file.
            right = answer.status is not grpc.StatusCode.PERMISSION_DENIED or method == "FetchPolicy"
        else:
            right = (
                answer.status is grpc.StatusCode.PERMISSION_DENIED
                and counts == refused
                and now == shown
                and answer.line.startswith(f"{method}: {role}-ada is a")
            )
        if not right:
            wrong.append(f"{role}: {answer.status.name} {answer.line!r}, counted {counts}")
        shown, counted = now, count
    assert not wrong, f"{method}:\n" + "\n".join(wrong)


def test_people_get_a_versions_file(learner: HostileLearner, people: dict[CallerRole, grpc.Channel]) -> None:
    from policy_net.exchange.generated import fleet_pb2 as pb

    for channel in people.values():
        assert learner.send("FetchPolicy", pb.FetchPolicyRequest(version=1), channel).reply.policy_file


def test_the_two_tables_agree_on_whom_a_method_is_for() -> None:
    for method, need in NEEDS.items():
        expected = {
            (True, False): Caller.CLUSTER,
            (True, True): Caller.EITHER,
            (False, True): Caller.ADMIN,
            (False, False): Caller.NOBODY,
        }[need.cluster, need.least is not None]
        assert ROWS[method].caller is expected, method
        assert not (ROWS[method].changes and need.least is CallerRole.VIEWER), f"{method} changes something"
