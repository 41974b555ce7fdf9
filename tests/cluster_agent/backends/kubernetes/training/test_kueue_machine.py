"""A TrainingJob that Kueue admits, under all that can go wrong, in any order: its pods keep within its quota, always.

The controller, its plans and its requests are the real ones; the cluster and Kueue pretend.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from simulated_training import Killed, World
from training_objects import job_object

from cluster_agent.backends.kubernetes.training.story.statuses import Granted
from cluster_agent.kubernetes.errors import ApiUnanswered, Conflict, Forbidden
from cluster_agent.kubernetes.training.training_job import training_job
from cluster_agent.kubernetes.training.workloads import FLAVORS, WORKLOADS, KueueWorkload, WorkloadState, workload_facts
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation

pytestmark = pytest.mark.heavy

Json = dict[str, Any]
POLL_SECONDS = 10.0
MOST_LOOKS = 250
TIDY_LOOKS = 60
"""By then the pods that have ended are gone: they are kept for a while, for who wants to read them."""
UID = job_object()["metadata"]["uid"]
FOLDER = WORKLOADS.path("team")
NOW = "2026-01-01T00:00:00Z"
SIZES = [Allocation(workers, servers) for workers, servers in itertools.product(range(1, 5), range(1, 3))]


class AdmittedWorld(World):
    """A cluster with Kueue, whose quota counts tasks.

    Attributes:
        reads: whether Workloads can be read.
    """

    def __init__(self, job: Json) -> None:
        self.quota, self.reads = 12, True
        super().__init__(job)
        self.objects[FLAVORS.path(name="default")] = {"kind": "ResourceFlavor", "spec": {"nodeLabels": {"pool": "a"}}}

    def poll(self) -> None:
        if self.reads:
            found = [self.workloads.cache.entry_of(copy.deepcopy(each)) for each in self.bodies()]
            self.workloads.cache.replace({key: entry for key, entry in found if entry is not None})
        super().poll()

    def bodies(self) -> list[Json]:
        return [each for each in self.objects.values() if each["kind"] == "Workload"]

    def seen(self) -> list[KueueWorkload]:
        """The older first."""
        found = [workload_facts(each) for each in self.bodies()]
        return sorted((each for each in found if each is not None), key=lambda each: each.number)

    # The API server.

    def put(self, found: Json) -> Json:
        if found["kind"] != "Workload":
            return super().put(found)
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        self.objects[f"{FOLDER}/{found['metadata']['name']}"] = found
        return found

    def patch(self, path: str, body: Any, content_type: object, query: object = None) -> Json:
        if not path.startswith(FOLDER):
            return super().patch(path, body, content_type, query)
        json.dumps(body, allow_nan=False)

        def do() -> Json:
            found = self.get(path.removesuffix("/status"))
            stated = body[0]["value"] if isinstance(body, list) else body["metadata"]["resourceVersion"]
            if stated != found["metadata"]["resourceVersion"]:
                raise Conflict("another version", 409)
            if isinstance(body, list):
                self._count(found, body[1:])
            else:
                status = {**found.get("status", {}), **body["status"]}
                found["status"] = {name: value for name, value in status.items() if value is not None}
                if (kept := workload_facts(found)) is not None and kept.state is WorkloadState.PENDING:
                    assert not self._running(), "quota was given back while pods run"
            return self.put(found)

        return self._write("patch", path, do)

    def _count(self, found: Json, operations: list[Json]) -> None:
        before = workload_facts(found)
        for operation in operations:
            found["spec"]["podSets"][int(operation["path"].split("/")[3])]["count"] = operation["value"]
        after = workload_facts(found)
        assert before is not None
        assert after is not None
        if before.state is not WorkloadState.PENDING:
            assert before.size.most(after.size) == before.size, "counts of what has quota only fall"
            assert after.size.most(self._size()) == after.size, "counts are below what runs"

    def delete(self, path: str, body: Json) -> Json:
        if not path.startswith(FOLDER):
            return super().delete(path, body)

        def do() -> Json:
            found = self.get(path)
            for name, stated in body["preconditions"].items():
                if stated != found["metadata"][name]:
                    raise Conflict(f"another {name}", 409)
            kept = workload_facts(found)
            if kept is not None and kept.state not in (WorkloadState.PENDING, WorkloadState.FINISHED):
                assert not self._running(), "quota was given back while pods run"
            del self.objects[path]
            return found

        return self._write("delete", path, do)

    # What has to hold.

    def _check_pod(self, pod: Json) -> None:
        super()._check_pod(pod)
        admitted = [each.size for each in self.seen() if each.state is WorkloadState.ADMITTED]
        most = SUSPENDED
        for size in admitted:
            most = most.most(size)
        assert admitted, "a pod without an admitted Workload"
        assert pod["spec"]["nodeSelector"] == {"pool": "a"}
        task = pod["metadata"]["labels"]["fedl2.io/task"]
        now = self._size(going=False)
        more = Allocation(now.workers + task.startswith("worker-"), now.ps + task.startswith("ps-"))
        assert most.most(more) == most, f"{task}: {more} of {most}"

    def _running(self) -> list[str]:
        names = [*self.tasks(), *(["coordinator"] if self.exists("coordinator") else [])]
        return [name for name in names if self.task(name)["status"]["phase"] in ("Pending", "Running")]

    def _size(self, going: bool = True) -> Allocation:
        """What runs, or may; with those that are about to go."""
        names = [name for name in self._running() if going or "deletionTimestamp" not in self.task(name)["metadata"]]
        return Allocation(
            sum(name.startswith("worker-") for name in names), sum(name.startswith("ps-") for name in names)
        )

    # Kueue.

    def admit(self) -> None:
        for each in self.seen():
            body = self.objects[f"{FOLDER}/{each.name}"]
            held = [
                kept
                for kept in self.seen()
                if kept.state in (WorkloadState.RESERVED, WorkloadState.ADMITTED, WorkloadState.EVICTED)
            ]
            before = next(
                (kept for kept in held if kept.name == each.replaces and kept.state is WorkloadState.ADMITTED), None
            )
            used = sum(kept.size.tasks for kept in held) - (before.size.tasks if before else 0)
            if (
                each.state is WorkloadState.PENDING
                and body["spec"].get("active", True)
                and used + each.size.tasks <= self.quota
            ):
                flavors = [{"name": role, "flavors": {"cpu": "default"}} for role in each.order]
                self.say(each.name, {"QuotaReserved": True, "Admitted": True, "Evicted": False}, flavors)
                if before is not None:
                    self.say(before.name, {"Finished": True})

    def evict(self) -> None:
        for each in self.seen():
            if each.state is WorkloadState.ADMITTED:
                self.say(each.name, {"Evicted": True})

    def say(self, name: str, changes: dict[str, bool], flavors: list[Json] | None = None) -> None:
        body = copy.deepcopy(self.objects[f"{FOLDER}/{name}"])
        status = body.setdefault("status", {})
        kept = [each for each in status.get("conditions", ()) if each["type"] not in changes]
        said = [
            {"type": kind, "status": str(holds), "reason": "Preempted", "message": kind, "lastTransitionTime": NOW}
            for kind, holds in changes.items()
        ]
        status["conditions"] = [*kept, *said]
        if flavors is not None:
            status["admission"] = {"clusterQueue": "all", "podSetAssignments": flavors}
        self.put(body)


class Admitted(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.decisions = itertools.count()

    @initialize(journal=st.booleans(), checkpoints=st.booleans())
    def begin(self, journal: bool, checkpoints: bool) -> None:
        found = job_object(kueue={"queueName": "research"})
        if not journal:
            del found["spec"]["coordinator"]
        if not checkpoints:
            del found["spec"]["checkpoints"]
        self.world = AdmittedWorld(found)
        self.decide(Allocation(4, 2))
        self.go_on(4)

    @rule(size=st.sampled_from([SUSPENDED, *SIZES]))
    def decide(self, size: Allocation) -> None:
        self.decided = size
        granted = Granted(size, f"d{next(self.decisions)}", "v1", "", 7, 1e9)
        self.world.controller.grant(UID, granted)

    @rule(suspend=st.sampled_from([False, False, True]))
    def suspend(self, suspend: bool) -> None:
        self.world.change_spec(suspend=suspend)

    @rule(count=st.integers(1, 6))
    def go_on(self, count: int) -> None:
        for _ in range(count):
            self.world.now += POLL_SECONDS
            self.world.admit()
            self.world.live()
            self.world.poll()

    @rule(size=st.sampled_from(SIZES))
    def resize(self, size: Allocation) -> None:
        """Nothing is in the way of another size."""
        self.world.quota, self.world.answers = 12, True
        self.decide(size)
        self.go_on(4)

    @rule()
    def poll(self) -> None:
        self.world.now += 1.0
        self.world.poll()

    @rule(quota=st.integers(0, 12))
    def change_quota(self, quota: int) -> None:
        self.world.quota = quota

    @rule()
    def evict(self) -> None:
        self.world.evict()

    @rule(active=st.booleans())
    def activate(self, active: bool) -> None:
        for body in self.world.bodies():
            self.world.put({**body, "spec": {**body["spec"], "active": active}})

    @rule()
    def delete_workloads(self) -> None:
        for each in self.world.seen():
            del self.world.objects[f"{FOLDER}/{each.name}"]

    @rule(reads=st.booleans())
    def lose_sight(self, reads: bool) -> None:
        self.world.reads = reads
        self.world.start_agent()

    @rule(data=st.data())
    def lose_a_pod(self, data: st.DataObject) -> None:
        there = [name for name in ["coordinator", *self.world.tasks()] if self.world.exists(name)]
        if there:
            self.world.vanish(data.draw(st.sampled_from(there)))

    @rule(answers=st.sampled_from([True, True, False]))
    def fall_silent(self, answers: bool) -> None:
        self.world.answers = answers

    @rule(
        number=st.integers(0, 6),
        after=st.booleans(),
        kind=st.sampled_from(["unanswered", "killed", "killed", "refused"]),
    )
    def fail_a_write(self, number: int, after: bool, kind: str) -> None:
        left = iter([*[False] * number, True])

        def strike(verb: str, path: str) -> None:
            if not next(left, False):
                return
            if kind == "killed":
                raise Killed
            if kind == "refused" and not after and verb not in ("report", "ask"):
                raise Forbidden(f"{verb} {path}: forbidden", 403, "Forbidden")
            raise ApiUnanswered(f"{verb} {path}: 500")

        self.hook(strike, after)

    def hook(self, strike: Callable[[str, str], None], after: bool) -> None:
        nothing: Callable[[str, str], None] = lambda verb, path: None  # noqa: E731
        self.world.before_write, self.world.after_write = (nothing, strike) if after else (strike, nothing)

    def teardown(self) -> None:
        """Nothing goes wrong any more: the job has what was decided, and one Workload for it."""
        if not hasattr(self, "world"):
            return
        world = self.world
        self.hook(lambda verb, path: None, False)
        world.quota, world.reads, world.answers = 12, True, True
        self.activate(True)
        self.decide(self.decided)
        for _ in range(MOST_LOOKS):
            self.go_on(1)
            if self.is_there():
                break
        else:
            raise AssertionError(f"not there after {MOST_LOOKS} looks: {world.status}, {world.brain}, {world.seen()}")
        self.go_on(TIDY_LOOKS)
        before = len(world.writes)
        self.go_on(50)
        assert self.is_there()
        assert len(world.writes) - before <= 10, world.writes[before:]

    def is_there(self) -> bool:
        world, job = self.world, training_job(self.world.job)
        wanted = SUSPENDED if job.suspend else job.within(self.decided)
        held = [(replace(each, version="").size, each.state) for each in world.seen()]
        if wanted == SUSPENDED:
            return not world.tasks() and not world.exists("coordinator") and held == []
        brain = world.brain
        return (
            brain is not None
            and brain.phase is JobPhase.RUNNING
            and Allocation(len(brain.of("worker", "member")), len(brain.of("ps", "member"))) == wanted
            and world.status.get("phase") == "Running"
            and held == [(wanted, WorkloadState.ADMITTED)]
        )


TestAdmitted = Admitted.TestCase
TestAdmitted.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
