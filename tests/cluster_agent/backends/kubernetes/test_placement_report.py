"""What is told of places: to decisions, and to beliefs of what jobs did there, whatever changes meanwhile."""

from dataclasses import replace

import pytest
from kube_facts import job as made_job
from kube_facts import member, state

from cluster_agent.backends.kubernetes.observation import Observed, SeenCluster
from cluster_agent.backends.kubernetes.places import JobPlacement, in_places, progress_in_places
from cluster_agent.kubernetes.capacity import NodeFacts, PodFacts
from policy_net.domain import Allocation, JobKind, Moves, Node, Progress, Resources, Share

TYPES = {"a": "A100", "b": "T4"}


def nodes(types: dict[str, str]) -> list[NodeFacts]:
    amounts = (("cpu", 8000), ("nvidia.com/gpu", 4))
    return [NodeFacts(name, amounts, (), is_cordoned=False, gpu_type=kind) for name, kind in types.items()]


def pods(*where: str) -> list[PodFacts]:
    return [PodFacts(node, {}, "uid-train", "Running", is_terminating=False) for node in where]


def looked(types: dict[str, str], where: list[PodFacts], of_own: dict[str, JobPlacement] | None = None) -> Observed:
    jobs = (
        made_job("team/train", 2),
        replace(made_job("team/trainingjob/ring", 1), current=Allocation(1, 0)),
        replace(made_job("team/trainingjob/ps", 1), kind=JobKind.PS, current=Allocation(1, 1)),
    )
    seen_state = replace(
        state(*jobs), nodes=tuple(Node(name, Resources(8000, 4), kind) for name, kind in types.items())
    )
    about = Observed(seen_state, {"team/train": member(2)}, {})
    return in_places(about, SeenCluster(nodes(types), where, (), {}), lambda: of_own or {})


def test_a_decision_is_told_where_tasks_lie_and_that_none_is_moved() -> None:
    about = looked(TYPES, pods("a", "b"), {"team/trainingjob/ps": JobPlacement({"b": 1}, {"a": 1})})
    assert about.state.placement == {
        "team/train": (Share("a", Allocation(1, 0)), Share("b", Allocation(1, 0))),
        "team/trainingjob/ps": (Share("a", Allocation(0, 1)), Share("b", Allocation(1, 0))),
    }
    assert [job.moves for job in about.state.jobs] == [Moves.NEVER, Moves.WITH_SIZE, Moves.NEVER]
    assert about.places == {"team/train": (("A100", 1), ("T4", 1))}


@pytest.mark.parametrize("types", [{"a": "A100"}, {"a": "", "b": ""}, {"a": "A100", "b": ""}])
def test_where_places_make_no_difference_nothing_is_told(types: dict[str, str]) -> None:
    about = looked(types, pods("a", "a"))
    assert about.state.placement is None
    assert {job.moves for job in about.state.jobs} == {Moves.FREELY}
    assert (about.gpu_types, about.places) == ({}, {})
    entry = Progress("team/train", "other", Allocation(2, 0), 10.0, 100.0, 1.0, 9.0)
    assert progress_in_places([entry], about, {}, pods("a", "a")) == [entry]


def progress(about: Observed, types: dict[str, str], where: list[PodFacts], **changes: object) -> Progress:
    entry = Progress("team/train", "other", Allocation(2, 0), 10.0, 100.0, 1.0, 9.0)
    (found,) = progress_in_places([replace(entry, **changes)], about, types, where)  # type: ignore[arg-type]
    return found


def test_a_report_has_the_places_that_held_all_the_time() -> None:
    about = looked(TYPES, pods("a", "b"))
    assert progress(about, TYPES, pods("b", "a")).places == (("A100", 1), ("T4", 1))
    assert progress(about, TYPES, [], finished=True).places == (("A100", 1), ("T4", 1)), "its pods have ended"


@pytest.mark.parametrize(
    ("types", "where"),
    [
        (TYPES, ("a", "a")),  # moved
        (TYPES, ("a",)),  # one is missing, or pending
        ({"a": "A100", "b": "H100"}, ("a", "b")),  # a label has changed
        ({"a": "A100"}, ("a", "b")),  # a node has gone
        ({}, ("a", "b")),  # so have all labels
    ],
)
def test_a_report_has_no_places_where_they_changed(types: dict[str, str], where: tuple[str, ...]) -> None:
    assert progress(looked(TYPES, pods("a", "b")), types, pods(*where)).places == ()


def test_a_pod_that_waits_leaves_its_job_without_places() -> None:
    about = looked(TYPES, pods("a"))
    assert about.state.placement == {"team/train": (Share("a", Allocation(1, 0)),)}
    assert progress(about, TYPES, pods("a")).places == ()
