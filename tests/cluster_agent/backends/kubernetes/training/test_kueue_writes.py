"""Writes of Workloads at moments at which others write too: nothing of theirs is lost, and none of theirs is taken."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from simulated_training import Unfollowed
from training_objects import job

from cluster_agent.backends.kubernetes.training.kueue import Kueue
from cluster_agent.backends.kubernetes.training.quota import Quota
from cluster_agent.kubernetes.errors import AlreadyExists, Conflict, NotActing, NotFound
from cluster_agent.kubernetes.training.training_job import TrainingJob
from cluster_agent.kubernetes.training.workloads import WORKLOADS, workload_of
from policy_net.domain import SUSPENDED, Allocation

Json = dict[str, Any]
JOB = job(kueue={"queueName": "research"})
SIZE = Allocation(2, 1)
EVICTED = {
    "admission": {"podSetAssignments": []},
    "conditions": [
        {"type": each, "status": "True", "reason": "Preempted", "message": "x"}
        for each in ("QuotaReserved", "Admitted", "Evicted")
    ],
}


class Server:
    """Workloads of one namespace, and what others do just before a write."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.version = 0
        self.writes: list[str] = []
        self.acts = True
        self.before: Callable[[str], None] = lambda verb: None
        self.watch = Unfollowed(self, ("",), lambda: 0.0, lambda: None)  # type: ignore[arg-type]
        self.kueue = Kueue(self, self.watch, lambda: self.acts, lambda: 0.0, lambda: 0.0)  # type: ignore[arg-type]

    def put(self, found: Json) -> Json:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        self.objects[WORKLOADS.path("team", found["metadata"]["name"])] = found
        return copy.deepcopy(found)

    def workload(self, number: int = 0, status: Json | None = None, owner: TrainingJob = JOB) -> Json:
        body = workload_of(owner, number, SIZE, None)
        body["metadata"]["uid"] = f"uid-{number}"
        return self.put(copy.deepcopy(body) | {"status": status or {}})

    def poll(self, wanted: Allocation) -> Quota:
        """A look of an agent that sees all that is there now."""
        entries = [self.watch.cache.entry_of(copy.deepcopy(each)) for each in self.objects.values()]
        self.watch.cache.replace({key: entry for key, entry in entries if entry is not None})
        return self.kueue.poll(JOB, wanted, [], None)

    def _check(self, verb: str, path: str, stated: Json) -> Json:
        self.before(verb)
        self.writes.append(verb)
        found = self.get(path)
        for name in ("uid", "resourceVersion"):
            if stated.get(name, found["metadata"][name]) != found["metadata"][name]:
                raise Conflict(f"another {name}", 409)
        return found

    def get(self, path: str) -> Json:
        if path not in self.objects:
            raise NotFound(path, 404)
        return copy.deepcopy(self.objects[path])

    def create(self, path: str, body: Json) -> Json:
        self.before("create")
        self.writes.append("create")
        if f"{path}/{body['metadata']['name']}" in self.objects:
            raise AlreadyExists("it is there", 409)
        return self.put(copy.deepcopy(body))

    def patch(self, path: str, body: Any, content_type: object) -> Json:
        del content_type
        path = path.removesuffix("/status")
        stated = {"resourceVersion": body[0]["value"]} if isinstance(body, list) else body["metadata"]
        found = self._check("patch", path, stated)
        return self.put(found if isinstance(body, list) else found | {"status": body["status"]})

    def delete(self, path: str, body: Json) -> Json:
        found = self._check("delete", path, body["preconditions"])
        if found["metadata"].get("finalizers"):
            found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            return self.put(found)
        del self.objects[path]
        return {"kind": "Status", "status": "Success"}


@pytest.fixture
def server() -> Server:
    return Server()


def once(server: Server, verb: str, do: Callable[[], object]) -> None:
    """Have something happen just before the first write of a kind."""

    def before(which: str) -> None:
        if which == verb:
            server.before = lambda _: None
            do()

    server.before = before


def admit(server: Server) -> Json:
    (found,) = server.objects.values()
    return server.put(found | {"status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]}})


def test_a_workload_that_was_admitted_at_the_same_moment_is_not_deleted_for_what_it_was(server: Server) -> None:
    server.workload()
    once(server, "delete", lambda: admit(server))
    server.poll(SUSPENDED)
    assert len(server.objects) == 1
    server.poll(SUSPENDED)
    assert server.objects == {}, "at the next look it is known as what it is"


def test_another_of_its_name_is_not_deleted(server: Server) -> None:
    server.workload()

    def remake() -> None:
        (found,) = server.objects.values()
        version = found["metadata"]["resourceVersion"]
        found["metadata"] |= {"uid": "another", "resourceVersion": version}

    once(server, "delete", remake)
    server.poll(SUSPENDED)
    assert [each["metadata"]["uid"] for each in server.objects.values()] == ["another"]


def test_what_others_wrote_into_a_status_between_its_reading_and_its_writing_stays(server: Server) -> None:
    server.workload(status=EVICTED)

    def check() -> None:
        (found,) = server.objects.values()
        server.put(found | {"status": EVICTED | {"admissionChecks": [{"name": "mine", "state": "Ready"}]}})

    once(server, "patch", check)
    server.poll(SIZE)
    (found,) = server.objects.values()
    assert found["status"]["admissionChecks"] == [{"name": "mine", "state": "Ready"}]
    assert found["status"]["admission"] is not None
    server.poll(SIZE)
    (found,) = server.objects.values()
    assert found["status"]["admission"] is None, "given back at the next look"


def test_one_that_does_not_act_any_more_writes_nothing_and_no_second_write_after_it_knew(server: Server) -> None:
    server.acts = False
    with pytest.raises(NotActing):
        server.poll(SIZE)
    assert server.writes == []
    server.acts = True
    server.workload(0)
    server.workload(1)

    def lose() -> None:
        server.acts = False

    once(server, "delete", lose)
    with pytest.raises(NotActing):
        server.poll(SUSPENDED)
    assert server.writes == ["delete"]


def test_a_workload_of_its_name_counts_only_where_it_is_its_own(server: Server) -> None:
    mine = server.objects

    def make(owner: str) -> None:
        found = server.workload()
        found["metadata"]["ownerReferences"][0]["uid"] = owner
        server.put(found)

    once(server, "create", lambda: make("another"))
    quota = server.poll(SIZE)
    assert (quota.reason, quota.allowed) == ("KueueRefused", SUSPENDED)
    assert server.watch.cache.entries() == {}
    mine.clear()
    other = Server()
    once(other, "create", other.workload)
    assert other.poll(SIZE).reason == "WaitsForQuota", "an answer to an earlier try was lost"
    assert len(other.watch.cache.entries()) == 1


@pytest.mark.parametrize("end", ["deleted", "deleted by somebody else", "with finalizers"])
def test_what_was_deleted_gives_no_quota_though_the_watch_is_silent(server: Server, end: str) -> None:
    admitted = {
        "admission": {"podSetAssignments": []},
        "conditions": [{"type": each, "status": "True"} for each in ("QuotaReserved", "Admitted")],
    }
    found = server.workload(status=admitted)
    if end == "with finalizers":
        server.put(found | {"metadata": {**found["metadata"], "finalizers": ["kueue.x-k8s.io/resource-in-use"]}})
    if end == "deleted by somebody else":
        once(server, "delete", server.objects.clear)
    assert server.poll(SUSPENDED).reason == "NotAsked"
    quota = server.kueue.poll(JOB, SIZE, [], None)
    assert (quota.allowed, quota.ground, quota.reason) == (SUSPENDED, None, "WaitsForQuota")
