"""Every fault of a write, at every write of the loop that looks after TrainingJobs, with and without a restart there.

One job's whole life is played: it waits for room, begins, waits for more room, grows, loses a worker, is suspended,
goes on, shrinks, loses a worker while it grows, and completes. The undisturbed life says which writes there are; then
each is hit. The cluster pretends, the controller is the real one. `FEDL2_RESTARTS`, as `make soak` sets it: every fault
at every write with a restart and without; else every other one with a restart.
"""

from __future__ import annotations

import inspect
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from apiserver.asked import Fault
from fault_table import STRIKES, Once, Strike
from simulated_training import Killed, World
from training_objects import job_object, template

from cluster_agent.backends.kubernetes.training import controller, objects
from cluster_agent.backends.kubernetes.training.free_capacity import ClusterCapacity
from cluster_agent.backends.kubernetes.training.step import Request
from cluster_agent.backends.kubernetes.training.story.statuses import Granted
from cluster_agent.kubernetes.capacity import pod_facts
from cluster_agent.kubernetes.errors import ApiUnanswered, Forbidden
from cluster_agent.kubernetes.training.training_job import training_job
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation

Json = dict[str, Any]
POLL_SECONDS = 5.0
TICK_SECONDS = 60.0
"""Of decisions; settings begin at much more."""
TICKS = 2
LASTS_SECONDS = 60.0
"""Of a fault that is the server's."""
UID = job_object()["metadata"]["uid"]
NIGHTLY = "FEDL2_RESTARTS" in os.environ
NOTHING: Callable[[str, str], None] = lambda verb, path: None  # noqa: E731
WORKERS, SERVERS = 3, 2


class Cluster(World):
    """One node with room for the largest size of the job, and not for one more; others may have some of it.

    Attributes:
        others: millicores that others have.
        ends_as_it_grows: a worker's process ends at the moment in which its coordinator wants another one.
    """

    def __init__(self) -> None:
        self.others, self.ends_as_it_grows = 0, False
        super().__init__(job_object(worker={"min": 1, "max": WORKERS, "template": template()}))

    room_asks = 100 + 500 * (WORKERS + SERVERS)

    def live(self) -> None:
        super().live()
        if self.ends_as_it_grows and self.brain is not None and self.brain.of("worker", "wanted"):
            self.ends_as_it_grows = False
            self.end(next(name for name in self.brain.of("worker", "member") if self.alive(name)), 1)

    def free_capacity(self) -> ClusterCapacity:
        self.room_cpu = self.room_asks - self.others
        pods = [pod_facts(pod) for pod in self.objects.values() if pod["kind"] == "Pod"]
        on_it = [pod for pod in pods if pod is not None]
        return ClusterCapacity([self.node()], on_it)

    def taken(self) -> int:
        """Millicores of the pods that have not ended."""
        found = 0
        for pod in self.objects.values():
            if pod["kind"] == "Pod" and pod["status"]["phase"] not in ("Succeeded", "Failed"):
                is_leader = pod["metadata"]["labels"]["fedl2.io/task"] == "coordinator"
                found += 100 if is_leader else 500
        return found

    def create(self, path: str, body: Json, query: Any = None) -> Json:
        made = super().create(path, body, query)
        if body["kind"] == "Pod":
            # kube-scheduler does that, in the end.
            self.objects[f"{path}/{body['metadata']['name']}"]["spec"]["nodeName"] = "a"
        return made


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a job's life: what happens, and what then holds.

    Attributes:
        keeps: all pods that run at its beginning.
        waits: with the size that it has: there is no room for more, as it says.
    """

    name: str
    phase: str
    decided: Allocation | None = None
    begin: Callable[[Cluster], None] = lambda world: None
    keeps: bool = False
    waits: Allocation | None = None


_numbers = itertools.count()


def finish(world: Cluster) -> None:
    assert world.brain is not None
    world.brain.phase = JobPhase.FINISHED
    world.keep()


def lose(world: Cluster) -> None:
    world.vanish(next(task for task in sorted(world.tasks()) if task.startswith("worker")))


def others_take(millicores: int) -> Callable[[Cluster], None]:
    def take(world: Cluster) -> None:
        world.others = millicores

    return take


def lose_one_that_grows(world: Cluster) -> None:
    world.ends_as_it_grows = True


BIG, SMALL, FIRST = Allocation(WORKERS, SERVERS), Allocation(1, 1), Allocation(2, 1)
LIFE = (
    Stage("waits for its first room", "Queued", FIRST, others_take(500 * (WORKERS + SERVERS - 2)), waits=SUSPENDED),
    Stage("begins", "Running", begin=others_take(500)),
    Stage("waits for more room", "Running", BIG, keeps=True, waits=FIRST),
    Stage("grows", "Running", begin=others_take(0), keeps=True),
    Stage("loses a worker", "Running", begin=lose, keeps=True),
    Stage("is suspended", "Suspended", begin=lambda world: world.change_spec(suspend=True)),
    Stage("goes on", "Running", begin=lambda world: world.change_spec(suspend=False)),
    Stage("shrinks", "Running", SMALL),
    Stage("loses a worker as it grows", "Running", BIG, lose_one_that_grows),
    Stage("completes", "Complete", begin=finish),
)


def stands(world: Cluster, stage: Stage, size: Allocation) -> bool:
    job = training_job(world.job)
    live = [name for name in world.tasks() if world.alive(name)]
    there = Counter(name.rpartition("-")[0] for name in live)
    if (there["worker"], there["ps"]) != (size.workers, size.ps) or job.status.get("phase") != stage.phase:
        return False
    if world.ends_as_it_grows or (stage.waits is not None and "waits for room" not in job.status.get("message", "")):
        return False
    if size == SUSPENDED:
        return not live and (stage.phase == "Complete" or not world.exists("coordinator"))
    brain = world.brain
    return brain is not None and brain.phase is JobPhase.RUNNING and not brain.of("worker", "wanted", "leaving")


def check(world: Cluster) -> None:
    """What holds at every moment."""
    assert world.taken() + world.others <= world.room_asks, f"more than there is: {world.tasks()}"
    owners = {
        each["metadata"]["ownerReferences"][0]["uid"]
        for each in world.objects.values()
        if each["kind"] != "TrainingJob"
    }
    assert owners <= {UID}


class Life:
    """Plays the stages; a fault may strike at one write.

    Args:
        restart: the agent is killed after the look in which it struck.
    """

    def __init__(self, once: Once | None = None, *, kills: bool = False, restart: bool = False) -> None:
        self.world, self.once, self.kills, self.restart = Cluster(), once, kills, restart
        self.seen: list[tuple[str, str]] = []
        self.struck_at: float | None = None
        self.decided, self.decided_at, self.decides_again = SUSPENDED, self.world.now, True
        after = once is not None and once.strike.comes_after
        self.world.before_write, self.world.after_write = (self.note, self.strike) if after else (self.both, NOTHING)

    def both(self, verb: str, path: str) -> None:
        self.note(verb, path)
        self.strike(verb, path)

    def note(self, verb: str, path: str) -> None:
        self.seen.append((verb, path))

    def strike(self, verb: str, path: str) -> None:
        if self.once is None:
            return
        is_new = not self.is_struck
        is_hit = self.once.hits(len(self.seen) - 1, verb, path)
        # Coordinators know no refusals of an API server: they do not answer.
        is_call = verb in ("ask", "report") and is_new and self.once.struck is not None
        if not (is_hit or is_call):
            return
        if is_new:
            self.struck_at = self.world.now
        if self.kills:
            raise Killed
        if is_call:
            raise ApiUnanswered(f"{verb} {path}: no answer")
        raise self.once.strike.error(f"{verb} {path}")

    def play(self) -> None:
        for stage in LIFE:
            stage.begin(self.world)
            self.decided = stage.decided or self.decided
            self.decide()
            began, pods = self.world.now, self.pods()
            is_struck = self.is_struck
            while not (self.stands(stage) and (not self.is_struck or self.is_over)):
                self.poll()
                since = began if is_struck or not self.is_struck else max(began, self.ends_at)
                line = f"{self.world.status.get('phase')} {self.world.status.get('message')!r}"
                late = f"{stage.name}: not there: {line}, {self.world.tasks()}, {self.world.brain}"
                assert self.world.now - since <= TICKS * TICK_SECONDS, late
            assert not stage.keeps or pods <= self.pods(), f"{stage.name}: pods were lost: {pods - self.pods()}"
            for _ in range(3):  # what would still change, changes now
                self.poll()
                assert self.stands(stage) or not self.is_over, f"{stage.name}: it does not stay"
        reported, happened = len(self.world.told_once), len(self.world.resized)
        assert reported == happened > 0, f"{happened} resizes, of which {reported} were told"

    def pods(self) -> set[str]:
        """Uids of those that run."""
        found = [each for each in self.world.objects.values() if each["kind"] == "Pod"]
        return {each["metadata"]["uid"] for each in found if each["status"]["phase"] == "Running"}

    def poll(self) -> None:
        world = self.world
        world.now += POLL_SECONDS
        if world.now >= self.decided_at + TICK_SECONDS and self.decides_again:
            self.decide()
        world.live()
        world.note_resizes()
        world.poll()
        check(world)
        if self.struck_at == world.now and self.restart:
            world.start_agent()
        if self.once is not None and world.now >= self.ends_at:
            self.once.is_over = True

    def decide(self) -> None:
        """As the thread of decisions does, at every tick: an agent that has just begun knows of no other decision."""
        self.decided_at = self.world.now
        if self.world.controller.desired(training_job(self.world.job)) != self.decided:
            granted = Granted(self.decided, f"d{next(_numbers)}", "v1", "", 7, 1e9)
            self.world.controller.grant(UID, granted)

    def stands(self, stage: Stage) -> bool:
        size = SUSPENDED if stage.phase != "Running" else self.decided
        return stands(self.world, stage, size if stage.waits is None else stage.waits)

    @property
    def is_struck(self) -> bool:
        return self.struck_at is not None

    @property
    def is_over(self) -> bool:
        return self.once is None or not self.is_struck or self.once.strike.ends_alone or self.once.is_over

    @property
    def ends_at(self) -> float:
        """When what has struck is over; never before."""
        if self.struck_at is None or self.once is None:
            return float("inf")
        return self.struck_at + (0.0 if self.once.strike.ends_alone else LASTS_SECONDS)


def undisturbed() -> list[tuple[str, str]]:
    life = Life()
    life.play()
    return life.seen


WRITES = undisturbed()


def pairs(restarts: Callable[[int], tuple[bool, ...]]) -> Iterator[tuple[str, int, bool]]:
    """Each fault with each write that it can happen to; those of a server with all."""
    for order, (name, strike) in enumerate(STRIKES.items()):
        for number, (verb, _) in enumerate(WRITES):
            # A coordinator hears of it and its answer is lost, or it does not hear of it.
            if verb in strike.verbs or (verb in ("ask", "report") and (strike.comes_after or name == "504")):
                for restart in restarts(order + number):
                    yield name, number, restart


def play(name: str, number: int, restart: bool) -> None:
    once = Once(number, STRIKES[name])
    life = Life(once, restart=restart)
    try:
        life.play()
    except AssertionError as error:
        raise AssertionError(f"{name} at write {number}, {WRITES[number]}, restart {restart}: {error}") from error
    # Of a write that was refused anyhow, no answer was lost after it was carried out.
    assert life.is_struck or once.strike.comes_after


@pytest.mark.parametrize("name", STRIKES)
def test_a_fault_at_a_write_is_survived(name: str) -> None:
    # At every sixteenth, every other one with a restart; all of them are a longer test's.
    for each, number, restart in pairs(lambda number: () if number % 16 else (bool(number % 32),)):
        if each == name:
            play(name, number, restart)


@pytest.mark.long
@pytest.mark.parametrize("name", STRIKES)
def test_a_fault_at_any_write_is_survived_with_a_restart_and_without(name: str) -> None:
    for each, number, restart in pairs(lambda number: (False, True) if NIGHTLY else (bool(number % 2),)):
        if each == name:
            play(name, number, restart)


@pytest.mark.heavy
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_agent_that_is_killed_at_any_write_is_followed_by_one_that_goes_on(when: str) -> None:
    strike = Strike(Fault(cut=True) if when == "after" else Fault(500))
    for number in range(len(WRITES)):
        life = Life(Once(number, strike), kills=True)
        life.play()
        assert life.is_struck or when == "after"


def test_what_was_asked_for_is_what_a_follower_asks_for_before_anything_is_decided_anew() -> None:
    """Killed when its coordinator has heard of it, and nobody else: the size that was decided stands in the status."""
    for number in [number for number, (verb, _) in enumerate(WRITES) if verb == "ask"]:
        life = Life(Once(number, Strike(Fault(cut=True))), kills=True)
        life.decides_again = False
        life.play()
        assert life.is_struck, WRITES[number]


def test_the_life_that_is_played_has_every_write_of_the_loop() -> None:
    """Whoever adds a write to the loop adds to this life what brings it about: then it is hit like the others."""
    api = [(verb, path.removesuffix("/status")) for verb, path in WRITES if verb not in ("ask", "report")]
    kinds = {(verb, path.split("/")[-1 if verb == "create" else -2]) for verb, path in api}
    made = {("create", "services"), ("create", "secrets"), ("create", "pods")}
    assert kinds == {*made, ("delete", "pods"), ("patch", "trainingjobs")}
    assert {path.split("-")[1] for verb, path in WRITES if verb == "ask"} == {request.value for request in Request}
    assert any(verb == "report" for verb, _ in WRITES)
    sources = "".join(inspect.getsource(module) for module in (objects, controller))
    places = Counter(re.findall(r"api\.(create|patch|replace|delete)\(", sources))
    assert places == {"create": 3, "patch": 1, "delete": 1}, "a place that writes is new: is it in this life?"


def test_no_pod_is_bound_by_us() -> None:
    life = Life()
    create = life.world.create

    def watched(path: str, body: Json, query: Any = None) -> Json:
        assert "nodeName" not in body.get("spec", {}), "kube-scheduler places pods"
        return create(path, body, query)

    life.world.create = watched  # type: ignore[method-assign]
    life.play()
    assert not [path for _, path in life.seen if path.endswith(("/binding", "/bindings"))]


def test_a_node_that_is_not_there_is_waited_for_and_given_back() -> None:
    """A pod that requires a node which is gone is Pending for ever: its gang is given up in time, and begun anew."""
    world = Cluster()
    world.images = lambda task: not task.startswith("worker")  # it never comes to run
    world.poll()
    world.controller.grant(UID, Granted(SMALL, "d0", "v1", "", 7, 1e9))
    seen = set()
    for _ in range(200):
        world.now += 2 * POLL_SECONDS
        world.live()
        world.note_resizes()
        world.poll()
        check(world)
        seen.add(bool(world.tasks()))
        if "did not come in" in str(world.status.get("message")):
            break
    assert world.status["phase"] == "Queued"
    world.images = lambda task: True
    for _ in range(40):
        world.now += 2 * POLL_SECONDS
        world.live()
        world.note_resizes()
        world.poll()
        check(world)
    assert world.status["phase"] == "Running"


def test_pods_of_a_job_that_is_gone_are_waited_for() -> None:
    """They linger for half a minute after their owner; a job of the same name must not take them for its own."""
    world = Cluster()
    for task in ("coordinator", "ps-0", "worker-0"):
        labels = {"fedl2.io/training-job": "digits", "fedl2.io/task": task}
        owner = {"uid": "of-before", "kind": "TrainingJob", "name": "digits", "controller": True}
        metadata = {"name": f"digits-{task}", "namespace": "team", "uid": f"old-{task}", "labels": labels}
        pod = {"kind": "Pod", "metadata": {**metadata, "ownerReferences": [owner]}, "status": {"phase": "Running"}}
        world.put({**pod, "spec": {"containers": [{"name": "main"}]}})
    world.poll()
    world.controller.grant(UID, Granted(SMALL, "d0", "v1", "", 7, 1e9))
    for _ in range(6):
        world.now += POLL_SECONDS
        world.poll()
    assert "of an earlier job of this name is still there" in world.status["message"]
    assert [write for write in world.writes if write[0] in ("create", "delete")] == []
    for task in ("coordinator", "ps-0", "worker-0"):
        world.vanish(task)
    for _ in range(8):
        world.now += POLL_SECONDS
        world.live()
        world.note_resizes()
        world.poll()
        check(world)
    assert world.status["phase"] == "Running"


def refuse_workers(world: Cluster) -> None:
    """A quota is used up before the gang is whole."""

    def refuse(verb: str, path: str) -> None:
        started = [name for name in world.made if name.startswith("worker")]
        if verb == "create" and path.endswith("/pods") and len(started) >= 1:
            raise Forbidden("exceeded quota: few", 403, "Forbidden")

    world.before_write = refuse


def grant(world: Cluster) -> None:
    world.controller.grant(UID, Granted(Allocation(3, 2), "d1", "v1", "", 7, 1e9))


def pods_in(world: Cluster) -> list[str]:
    return [each["metadata"]["name"] for each in world.objects.values() if each["kind"] == "Pod"]


def test_half_a_gang_whose_deletion_failed_is_given_back_at_the_next_look() -> None:
    world = Cluster()
    world.poll()
    refuse_workers(world)
    refused, failing = world.before_write, [True] * 3

    def strike(verb: str, path: str) -> None:
        refused(verb, path)
        if verb == "delete" and failing:
            failing.pop()
            raise ApiUnanswered("500", may_have_happened=False)

    world.before_write = strike
    grant(world)
    world.poll()
    assert len(pods_in(world)) == 4, "its coordinator, its parameter servers and a worker"
    for _ in range(3):
        world.now += 1.0
        world.live()
        world.poll()
    assert pods_in(world) == []
    assert "exceeded quota" in world.status["message"]


def test_half_a_gang_of_an_agent_that_was_killed_is_given_back_by_the_next_that_is_refused() -> None:
    world = Cluster()
    world.poll()

    def kill(verb: str, path: str) -> None:
        if verb == "create" and path.endswith("/pods") and "worker-0" in world.made:
            world.before_write = NOTHING
            raise Killed

    world.before_write = kill
    grant(world)
    world.poll()
    assert len(pods_in(world)) == 4
    refuse_workers(world)
    for _ in range(4):
        world.now += POLL_SECONDS
        world.live()
        world.poll()
        if not pods_in(world):
            break
    assert pods_in(world) == []
    assert "exceeded quota" in world.status["message"]
