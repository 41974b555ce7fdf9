"""Sizes that others set back: who is told apart from whom, and for how long a job is left to another."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from kube_facts import NOW, facts, target

from cluster_agent.backends.kubernetes.limits import ANNOTATION, Rivals, allocation, as_note
from cluster_agent.backends.kubernetes.observation import ObservedTarget
from cluster_agent.kubernetes.targets import job_facts
from policy_net.domain import DecisionOrigin


class Bench:
    """A job that was given a size, and what others make of it; a test moves the clock."""

    def __init__(self) -> None:
        self.now, self.rivals, self.given = NOW, Rivals(), 0
        self.member = ObservedTarget(target(), facts(2, sized_by="kubectl-create"), None, None)

    def give(self, workers: int) -> None:
        self.given += 1
        made = allocation(workers, "more", DecisionOrigin(policy="v1", number=self.given), 0, self.now, [])
        self.stands(workers, "fedl2-agent", {ANNOTATION: as_note(made)})

    def stands(self, workers: int, by: str, annotations: Any = None) -> None:
        notes = self.member.facts.annotations if annotations is None else annotations
        found = replace(self.member.facts, workers=workers, requested=workers, sized_by=by, annotations=notes)
        self.member = replace(self.member, facts=found)

    def poll(self) -> bool:
        return self.rivals.poll(self.member, self.now)

    def contest(self, ours: int, theirs: int, by: str = "kubectl-edit") -> int:
        """Times in a row, after one more."""
        self.give(ours)
        assert not self.poll()
        self.stands(theirs, by)
        assert self.poll()
        assert not self.poll(), "each is seen once"
        return self.rivals.found["uid-train"].times


def test_the_pause_begins_with_the_second_time_and_doubles_up_to_a_day() -> None:
    bench, pauses = Bench(), []
    for _ in range(12):
        bench.contest(4, 2)
        pauses.append(max(0.0, bench.rivals.found["uid-train"].until - bench.now))
    assert pauses == [0.0, *(600.0 * 2**number for number in range(8)), 86_400.0, 86_400.0, 86_400.0]


def test_it_is_a_contest_where_either_size_is_the_same() -> None:
    bench = Bench()
    assert [bench.contest(4, 2), bench.contest(5, 2), bench.contest(5, 3), bench.contest(6, 1)] == [1, 2, 3, 1]


def test_a_size_that_stood_for_an_hour_ends_it() -> None:
    bench = Bench()
    bench.contest(4, 2)
    bench.give(4)
    bench.now += 3599.0
    bench.poll()
    assert bench.rivals.found
    bench.now += 1.0
    bench.poll()
    assert not bench.rivals.found


@pytest.mark.parametrize("what", ["suspended", "the agent's own write", "no note", "the note of another job"])
def test_what_is_no_rival(what: str) -> None:
    bench = Bench()
    bench.give(4)
    if what == "suspended":
        bench.member = replace(bench.member, facts=replace(bench.member.facts, workers=0, sized_by="kueue"))
    elif what == "the agent's own write":
        bench.stands(2, "fedl2-agent")
    elif what == "no note":
        bench.stands(2, "kubectl-edit", {ANNOTATION: json.dumps({"workers": 4})})
    else:
        bench.stands(2, "kubectl-create")
        bench.member = replace(bench.member, facts=replace(bench.member.facts, created="2099-01-01T00:00:00Z"))
    assert not bench.poll()


def test_without_managed_fields_somebody_else_did_it() -> None:
    bench = Bench()
    bench.contest(4, 2, by="")
    assert bench.rivals.found["uid-train"].line == "somebody else has set it back to 2 workers, after it was given 4"
    bench.rivals.forget([])
    assert not bench.rivals.found


def test_the_manager_is_who_wrote_the_size_last() -> None:
    def managed(manager: str, time: str, *fields: str) -> dict[str, Any]:
        return {"manager": manager, "time": time, "fieldsV1": {"f:spec": {f"f:{name}": {} for name in fields}}}

    entries = [
        managed("kubectl-create", "2026-01-01T00:00:00Z", "template"),
        managed("argocd", "2026-01-01T00:00:05Z", "parallelism", "completions"),
        managed("fedl2-agent", "2026-01-01T00:00:03Z", "parallelism"),
        {"manager": "kube-controller-manager", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:status": {}}},
    ]
    found = {"metadata": {"managedFields": entries}, "spec": {"parallelism": 2}}
    assert job_facts(found).sized_by == "argocd"
    assert job_facts({"metadata": {}, "spec": {}}).sized_by == ""
