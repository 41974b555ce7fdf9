"""Jobs that wait for others, and jobs that are ended at their time limit; on a simulated machine, over agents' ends."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from local_world import AgentKilled, LocalWorld

from cluster_agent.backends.local.job_service import JobDesk
from cluster_agent.backends.local.job_table import JobState, LocalJobRecord
from cluster_agent.errors import BadJobFile, JobRefused
from policy_net.domain import Allocation, Decision


@pytest.fixture
def world(tmp_path: Path) -> LocalWorld:
    return LocalWorld(tmp_path)


def record_of(world: LocalWorld, name: str) -> LocalJobRecord:
    record = world.backend.table.get(name)
    assert record is not None
    return record


def decide(world: LocalWorld, restart: bool = False) -> list[str]:
    """One decision, a worker and a server to each job; which jobs it was about."""
    if restart:
        world.restart()
    observed = world.backend.observe()
    if observed is None:
        return []
    sizes = {job.job_id: Allocation(1, int(job.kind.uses_ps)) for job in observed[0].jobs if job.max_workers}
    world.backend.apply(Decision(sizes))
    return list(sizes)


def until_all_have_ended(world: LocalWorld, restart: bool = False) -> list[list[str]]:
    about = []
    while world.backend.table.unended:
        about.append(decide(world, restart))
    return about


@pytest.mark.parametrize("restart", [False, True])
def test_a_job_begins_when_those_before_it_are_done(world: LocalWorld, restart: bool) -> None:
    world.submit("first", epochs=3)
    world.submit("second", epochs=1, dependsOn=["first"])
    world.submit("third", epochs=1, dependsOn=["first:ok", "second:any"])
    assert "waits for first" in str(world.backend.facts(record_of(world, "second"))["note"])
    until_all_have_ended(world, restart)
    records = [record_of(world, name) for name in ("first", "second", "third")]
    assert [record.state for record in records] == [JobState.DONE] * 3
    for before, after in itertools.pairwise(records):
        assert before.ended_unix_seconds <= after.started_unix_seconds


def test_after_a_failure_only_who_takes_any_end_begins(world: LocalWorld) -> None:
    first = world.submit("first", epochs=3)
    first.broken = True
    for name, words in {"ok": ["first"], "any": ["first:any"], "behind": ["ok"], "held": ["any"]}.items():
        world.submit(name, epochs=1, dependsOn=words)
    world.backend.table.change("held", cancelling=True)
    until_all_have_ended(world)
    states = {name: record_of(world, name).state for name in ("first", "ok", "any", "behind", "held")}
    assert states == {
        "first": JobState.FAILED,
        "ok": JobState.FAILED,
        "any": JobState.DONE,
        "behind": JobState.FAILED,
        "held": JobState.CANCELLED,
    }
    assert record_of(world, "ok").failure == "never began: first, on which it depends, has failed"
    assert world.jobs["ok"].starts == 0
    assert record_of(world, "behind").failure == "never began: ok, on which it depends, has failed"


def test_what_a_job_depends_on_is_checked_when_it_is_submitted_and_stays_until_it_began(world: LocalWorld) -> None:
    desk = JobDesk(world.backend.table, world.capacity, world.backend.facts, lambda: world.now)

    def submit(name: str, **more: object) -> None:
        job = {"name": name, "modelType": "x", "script": "train.py", **more}
        desk.submit({"job": job, "folder": str(world.folder), "source": "it"})

    submit("first")
    for words, error, line in (
        (["me"], BadJobFile, "it: dependsOn: me is the job itself"),
        (["frist"], JobRefused, "no job named frist; did you mean first?"),
    ):
        with pytest.raises(error, match=line):
            submit("me", dependsOn=words)
    submit("me", dependsOn=["first"])
    answer = desk.explain({"name": "me"})
    assert answer["waitsFor"] == "the end of first, on which it depends"
    world.backend.table.change("first", state=JobState.DONE)
    with pytest.raises(JobRefused, match="first has to stay for me, which depends on it"):
        desk.delete({"name": "first"})
    world.backend.table.change("first", state=JobState.FAILED)
    with pytest.raises(JobRefused, match="dependsOn: first has failed: this would never begin; leave it out"):
        submit("other", dependsOn=["first"])
    submit("other", dependsOn=["first:any"])
    with pytest.raises(BadJobFile, match=r"it: timeLimit = 1969-01-01: is past; name a time to come"):
        submit("late", timeLimit="1969-01-01")


@pytest.mark.parametrize("restart", [False, True])
def test_a_job_is_ended_when_its_time_is_over_whoever_looks_after_it(world: LocalWorld, restart: bool) -> None:
    job = world.submit("long", epochs=1000, timeLimit="60s")
    world.submit("short", epochs=1, timeLimit="60s")
    fixed = {"elastic": False, "communication": "AllReduce", "worker": {"min": 1, "max": 1, "replicas": 1}}
    world.submit("script", epochs=1000, timeLimit="40s", **fixed)
    facts = world.backend.facts(record_of(world, "long"))
    assert (facts["timeLimit"], facts["timeLeftSeconds"]) == ("60s", 60.0)
    until_all_have_ended(world, restart)
    assert record_of(world, "short").state is JobState.DONE
    for name, limit in (("long", 60.0), ("script", 40.0)):
        record = record_of(world, name)
        assert (record.state, record.failure) == (JobState.FAILED, f"its time limit, {limit:.0f}s, is over")
        assert limit <= record.trained_seconds < limit + 15.0
    assert job.starts == 1
    assert world.backend.facts(record_of(world, "long"))["timeLeftSeconds"] is None


def test_at_a_time_a_job_is_ended_wherever_it_is(world: LocalWorld) -> None:
    world.now, world.longest_seconds = 1_893_452_400.0 - 100.0, math.inf
    world.restart()
    for name in ("trains", "waits"):
        world.submit(name, epochs=1000, timeLimit="2030-01-01T00:00:00+01:00")
    world.backend.table.change("waits", held=True)
    until_all_have_ended(world)
    for name in ("trains", "waits"):
        record = record_of(world, name)
        assert record.state is JobState.FAILED
        assert 0.0 <= record.ended_unix_seconds - 1_893_452_400.0 < 15.0
    assert world.jobs["waits"].starts == 0


@pytest.mark.heavy
def test_limits_and_order_hold_whenever_the_agent_is_killed(fast_folder: Path) -> None:
    for instant in itertools.count(1):
        world = LocalWorld(fast_folder / str(instant))
        world.submit("first", epochs=2)
        world.submit("limited", epochs=1000, timeLimit="20s")
        world.submit("behind", epochs=1, dependsOn=["first", "limited:any"])
        world.submit("never", epochs=1, dependsOn=["limited"])
        world.instants, world.kill_agent_at = 0, instant
        while world.backend.table.unended:
            try:
                decide(world)
            except AgentKilled:
                world.kill_agent_at = None
                world.restart()
        states = [record_of(world, name).state for name in ("first", "limited", "behind", "never")]
        assert states == [JobState.DONE, JobState.FAILED, JobState.DONE, JobState.FAILED], instant
        assert set(world.ends.values()) == {1}
        assert world.jobs["never"].starts == 0
        limited, behind = record_of(world, "limited"), record_of(world, "behind")
        assert limited.ended_unix_seconds <= behind.started_unix_seconds
        if world.kill_agent_at is not None:  # it ended before that instant came
            break
