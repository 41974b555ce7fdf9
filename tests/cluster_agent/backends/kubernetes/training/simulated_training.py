"""A cluster that only pretends, without sockets, threads or time: one TrainingJob, its pods and its coordinator.

The controller is the real one. What is kept of the rules: names that are given once, uids, owners, the last state of
what is deleted; a coordinator that counts tasks as the real one does, and remembers, with a journal, what it was asked.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from training_objects import job_object

from cluster_agent.backends.kubernetes.training.controller import Hands, TrainingController, WatchedObjects
from cluster_agent.backends.kubernetes.training.coordinators import CoordinatorConnection
from cluster_agent.backends.kubernetes.training.free_capacity import ClusterCapacity
from cluster_agent.backends.kubernetes.training.kueue import Kueue, WorkloadWatch
from cluster_agent.backends.kubernetes.training.objects import service_facts
from cluster_agent.backends.kubernetes.training.pace import POLLS_A_SECOND, JobPace
from cluster_agent.backends.kubernetes.training.step import Ask, CoordinatorReport, Ended
from cluster_agent.backends.kubernetes.training.task_pods import task_pod_facts
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.capacity import NodeFacts
from cluster_agent.kubernetes.errors import AlreadyExists, ApiUnanswered, Conflict, NotFound
from cluster_agent.kubernetes.training.credentials import JobKeys
from cluster_agent.kubernetes.training.training_job import training_job
from elastic_runtime.control.messages import JobStatus, RequestOutcome, RequestState, Size, TaskStatus
from elastic_runtime.protocol.plan import JobPhase, TaskRole

Json = dict[str, Any]
_ENDED = (JobPhase.FINISHED, JobPhase.FAILED)
_ASKED = itertools.count(1)


class Killed(BaseException):
    """The agent's process is no more."""


class Broken(BaseException):
    """A rule was broken: whoever looks after many jobs would go on with the next."""


@dataclass
class Brain:
    """What a coordinator remembers."""

    target: Size
    phase: JobPhase = JobPhase.STARTING
    tasks: dict[str, str] = field(default_factory=dict)
    """wanted, member or leaving."""
    next_number: dict[str, int] = field(default_factory=lambda: {"ps": 0, "worker": 0})
    rows: dict[str, RequestState] = field(default_factory=dict)
    failure: str = ""
    unsaved: bool = False
    """It has trained since its last checkpoint."""

    def of(self, role: str, *states: str) -> list[str]:
        return [name for name, state in self.tasks.items() if name.startswith(f"{role}-") and state in states]

    def dismiss(self, name: str) -> None:
        if self.tasks[name] == "wanted":
            del self.tasks[name]
        else:
            self.tasks[name] = "leaving"

    def fit(self) -> None:
        """Want as many tasks as are missing, and let go as many as are too many."""
        for role, count in (("ps", self.target.servers), ("worker", self.target.workers)):
            here = self.of(role, "wanted", "member")
            for name in here[count:]:
                self.dismiss(name)
            for _ in range(count - len(here)):
                self.tasks[f"{role}-{self.next_number[role]}"] = "wanted"
                self.next_number[role] += 1

    def relaunch(self, size: Size) -> None:
        if self.phase in (*_ENDED, JobPhase.SUSPENDED):
            return
        self.tasks.clear()
        self.unsaved = False  # it goes back to the checkpoint: what was lost was lost before
        self.end_requests(RequestOutcome.ABORTED, "its launcher ended")
        self.phase = JobPhase.RECOVERING if self.phase is not JobPhase.STARTING else JobPhase.STARTING
        self.target = size

    def end_requests(self, outcome: RequestOutcome, detail: str = "") -> None:
        for name, row in self.rows.items():
            if not row.ended:
                self.rows[name] = replace(row, state=outcome, detail=detail)

    def think(self, running: set[str]) -> None:
        """Take a look at which tasks' processes run."""
        if self.phase in _ENDED:
            return
        for name, state in self.tasks.items():
            if state == "wanted" and name in running:
                self.tasks[name] = "member"
        if self.phase is JobPhase.SUSPENDING:
            for name in list(self.tasks):
                self.dismiss(name)
            self.phase, self.unsaved = JobPhase.SUSPENDED, False
            self.end_requests(RequestOutcome.DONE)
        if self.phase is JobPhase.SUSPENDED:
            return
        self.fit()
        complete = not self.of("ps", "wanted") and not self.of("worker", "wanted")
        if complete:
            self.phase, self.unsaved = JobPhase.RUNNING, True
            self.end_requests(RequestOutcome.DONE)

    def ask(self, ask: Ask) -> tuple[RequestOutcome, str]:
        known = self.rows.get(ask.request_id)
        target = Size(0, 0) if ask.request.value == "suspend" else ask.size
        if known is not None:
            assert (known.kind, known.target) == (ask.request.value, target), "an id was used for two things"
            return known.state, known.detail
        row = RequestState(ask.request_id, ask.request.value, RequestOutcome.RUNNING, target=target)
        row = replace(row, began_unix_seconds=float(next(_ASKED)))
        if ask.request.value == "resume" and self.phase is not JobPhase.SUSPENDED:
            row = replace(row, state=RequestOutcome.ABORTED, detail="the job is not suspended")
        elif ask.request.value == "suspend":
            self.phase = JobPhase.SUSPENDING if self.phase is not JobPhase.SUSPENDED else self.phase
        else:
            self.phase = JobPhase.STARTING if self.phase is JobPhase.SUSPENDED else JobPhase.RESIZING
            self.target = target
        if self.phase is JobPhase.SUSPENDED:
            row = replace(row, state=RequestOutcome.DONE)
        self.rows[ask.request_id] = row
        return row.state, row.detail

    def on_task_ended(self, name: str) -> None:
        state = self.tasks.pop(name, "gone")
        if state == "member" and self.phase not in (*_ENDED, JobPhase.SUSPENDED) and name.startswith("ps-"):
            self.end_requests(RequestOutcome.ABORTED, "a server was lost")
            self.phase = JobPhase.RECOVERING

    def status(self) -> JobStatus:
        role = {"ps": TaskRole.SERVER, "worker": TaskRole.WORKER}
        return JobStatus(
            "digits",
            self.phase,
            size=Size(len(self.of("ps", "member")), len(self.of("worker", "member"))),
            target=Size(0, 0) if self.phase is JobPhase.SUSPENDED else self.target,
            tasks=tuple(TaskStatus(name, role[name.split("-")[0]], state) for name, state in self.tasks.items()),
            requests=tuple(self.rows.values()),
            wanted=tuple(name for name, state in self.tasks.items() if state == "wanted"),
            leaving=tuple(name for name, state in self.tasks.items() if state == "leaving"),
            failure=self.failure,
            epoch=1.0,
            samples=100,
        )


class Unfollowed(WorkloadWatch):
    """Workloads that a test shows, and no thread follows."""

    def begin(self) -> None:
        pass


class World:
    """One job on a cluster; all that goes wrong does so as a test says.

    Attributes:
        before_write: what happens before each write is carried out, and `after_write` after it; they may raise.
        images: whether a task's image can be pulled.
        answers: whether the coordinator can be asked.
        rest_seconds: how long a job of which nothing is new need not be looked at, as where there are very many.
        lagging: kinds of objects of whose changes the agent's caches do not hear; its own writes they know of.
        is_told_late: what the coordinator says does not arrive; what it said before counts, as long as it does.
    """

    def __init__(self, job: Json | None = None, rest_seconds: float = 0.0) -> None:
        self.now = 1000.0
        self.rest_seconds = rest_seconds
        self.version = 10
        self.objects: dict[str, Json] = {}
        self._read: dict[str, tuple[str, Any]] = {}
        self.brain: Brain | None = None
        self.brain_of = ""
        self.journal: Brain | None = None
        self.images: Callable[[str], bool] = lambda task: True
        self.answers = True
        self.lagging: frozenset[str] = frozenset()
        self.is_told_late = False
        self.acts = True
        self.before_write: Callable[[str, str], None] = lambda verb, path: None
        self.after_write: Callable[[str, str], None] = lambda verb, path: None
        self.told_events: list[tuple[str, str]] = []
        self.told_once: dict[str, list[tuple[str, str]]] = {}
        """By the name of the Event; a server keeps the first of a name."""
        self.has_run: set[str] = set()
        """Tasks whose processes ran under the coordinator that leads now."""
        self.resized: set[tuple[str, float]] = set()
        self.writes: list[tuple[str, str]] = []
        self.made: list[str] = []
        self.room_cpu = 64_000
        self.put(job or job_object())
        self.start_agent()

    # The agent.

    def start_agent(self) -> None:
        """Begin with nothing but what can be seen."""
        clock = lambda: self.now  # noqa: E731
        nothing = lambda: None  # noqa: E731
        self.jobs = Cache(training_job, clock, nothing)
        self.pods: Cache[Any] = Cache(task_pod_facts, clock, nothing)
        self.services: Cache[Any] = Cache(service_facts, clock, nothing)
        self.caches = {"TrainingJob": self.jobs, "Pod": self.pods, "Service": self.services}
        self.views: deque[dict[str, Any]] = deque(maxlen=4)
        self.told_seen: CoordinatorReport | None = None
        self.reported_by = ""
        watch = WatchedObjects(self.jobs, self.pods, self.services, self.free_capacity)
        self.workloads = Unfollowed(self, ("",), clock, nothing)  # type: ignore[arg-type]
        kueue = Kueue(self, self.workloads, lambda: self.acts, clock, clock)  # type: ignore[arg-type]
        hands = Hands(self, self, self, JobKeys(b"k" * 32), lambda: self.acts, kueue)  # type: ignore[arg-type]
        pace = JobPace(clock, 0.0, 1.0 / self.rest_seconds if self.rest_seconds else POLLS_A_SECOND)
        self.controller = TrainingController(watch, hands, clock, clock, pace)

    def take_over(self, behind: frozenset[str]) -> None:
        """An agent begins to act that has waited, and whose caches of some kinds are some looks behind."""
        views = self.views[0] if self.views else {}
        self.start_agent()
        for kind in behind.intersection(views):
            self.caches[kind].replace(dict(views[kind]))
        self.lagging = behind

    def free_capacity(self) -> ClusterCapacity:
        """What the agent believes that there is, without its own pods."""
        return ClusterCapacity([self.node()], [])

    def node(self) -> NodeFacts:
        allocatable = (("cpu", self.room_cpu), ("memory", 1 << 40), ("pods", 500))
        return NodeFacts("a", allocatable, (), False, "", (("pool", "a"),))

    def poll(self) -> None:
        """One step of the agent, with what it can see now."""
        for kind, cache in self.caches.items():
            if kind in self.lagging and cache.wait_synced(0.0):
                continue
            found = [each for each in self.objects.values() if each["kind"] == kind]
            entries = dict(self._entry_of(cache, each) for each in found)
            cache.replace({key: entry for key, entry in entries.items() if entry is not None})
        self.views.append({kind: cache.entries() for kind, cache in self.caches.items()})
        try:
            self.controller.step()
        except Killed:
            self.start_agent()

    def _entry_of(self, cache: Cache[Any], found: Json) -> tuple[Any, Any]:
        """As the cache would keep it; what has not changed is read once."""
        uid, version = found["metadata"]["uid"], found["metadata"]["resourceVersion"]
        known, entry = self._read.get(uid, ("", None))
        if known != version:
            entry = cache.entry_of(copy.deepcopy(found))
            self._read[uid] = version, entry
        return entry

    # Its API server.

    def put(self, found: Json) -> Json:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        self.objects[self.path_of(found)] = found
        return found

    @staticmethod
    def path_of(found: Json) -> str:
        kinds = {
            "Pod": "/api/v1/namespaces/team/pods",
            "Service": "/api/v1/namespaces/team/services",
            "Secret": "/api/v1/namespaces/team/secrets",
            "TrainingJob": "/apis/fedl2.io/v1alpha1/namespaces/team/trainingjobs",
        }
        return f"{kinds[found['kind']]}/{found['metadata']['name']}"

    def _write(self, verb: str, path: str, do: Callable[[], Json]) -> Json:
        assert self.acts, f"{verb} {path} by one that does not act"
        self.writes.append((verb, path))
        self.before_write(verb, path)
        found = copy.deepcopy(do())
        self.after_write(verb, path)
        return found

    def create(self, path: str, body: Json, query: Mapping[str, str] | None = None) -> Json:
        del query
        json.dumps(body, allow_nan=False)

        def do() -> Json:
            name = f"{path}/{body['metadata']['name']}"
            if name in self.objects:
                raise AlreadyExists(f"{name} already exists", 409, "AlreadyExists")
            found = copy.deepcopy(body)
            found["metadata"]["uid"] = f"uid-{self.version}"
            if found["kind"] == "Service":
                found["spec"]["clusterIP"] = "10.0.0.1"
            if found["kind"] == "Pod":
                self._check_pod(found)
                found["status"] = {"phase": "Pending"}
            return self.put(found)

        return self._write("create", path, do)

    def _check_pod(self, pod: Json) -> None:
        """What has to hold of every pod that is made."""
        job = training_job(self.job)
        task = pod["metadata"]["labels"]["fedl2.io/task"]
        self.made.append(task)
        assert pod["metadata"]["ownerReferences"][0]["uid"] == job.uid
        assert not job.outcome, "a pod of a job that is over"
        if "TrainingJob" not in self.lagging or task == "coordinator":
            assert not job.problem, "a pod of a job that cannot be used"
            assert not job.suspend, "a pod of a suspended job"
            assert not job.deleting, "a pod of a job that was deleted"
        if self.brain is not None and task in self.has_run:
            assert self.brain.tasks.get(task) == "wanted", f"{task} has run and ended, and is started again"
        if self.brain is not None and self.alive("coordinator") and task != "coordinator":
            for other in self.tasks():
                ended = self.task(other)["status"]["phase"] in ("Succeeded", "Failed")
                assert not (ended and self.brain.tasks.get(other) == "member"), f"{other} has ended, and nobody said so"

    def get(self, path: str) -> Json:
        if path not in self.objects:
            raise NotFound(f"{path} not found", 404)
        return copy.deepcopy(self.objects[path])

    def patch(self, path: str, body: Json, content_type: object, query: object = None) -> Json:
        del content_type, query
        json.dumps(body, allow_nan=False)

        def do() -> Json:
            found = self.get(path.removesuffix("/status"))
            for name in ("uid", "resourceVersion"):
                if body["metadata"].get(name, found["metadata"][name]) != found["metadata"][name]:
                    raise Conflict(f"another {name}", 409)
            if path.endswith("/status"):
                found["status"] = {**found.get("status", {}), **body["status"]}
                return self.put(found)
            assert "resourceVersion" in body["metadata"], "finalizers of others would be overwritten"
            found["metadata"]["finalizers"] = body["metadata"]["finalizers"] or []
            if found["metadata"]["finalizers"] or "deletionTimestamp" not in found["metadata"]:
                return self.put(found)
            self.collect()
            return found

        return self._write("patch", path, do)

    def delete_job(self) -> None:
        """Somebody deletes the job; it stays while it has finalizers."""
        if not self.job["metadata"].get("finalizers"):
            self.collect()
        elif "deletionTimestamp" not in self.job["metadata"]:
            when = datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self.put({**self.job, "metadata": {**self.job["metadata"], "deletionTimestamp": when}})

    def collect(self) -> None:
        """The job is gone, and all that it owned."""
        self.objects.clear()
        self.brain = None

    @property
    def is_gone(self) -> bool:
        """Whether the job was deleted, and nothing holds it any more."""
        return not any(each["kind"] == "TrainingJob" for each in self.objects.values())

    def delete(self, path: str, body: Json) -> Json:
        def do() -> Json:
            found = self.get(path)
            if body["preconditions"]["uid"] != found["metadata"]["uid"]:
                raise Conflict("another uid", 409)
            found["metadata"]["deletionTimestamp"] = "now"
            return self.put(found)

        return self._write("delete", path, do)

    def note_resizes(self) -> None:
        """Write down which resizes its coordinator has carried out."""
        for row in () if self.brain is None else self.brain.rows.values():
            if row.kind == "resize" and row.state is RequestOutcome.DONE:
                self.resized.add((row.request_id, row.began_unix_seconds))

    # Its events and coordinators.

    def record(self, about: object, reason: str, line: str, kind: object) -> None:
        del about, kind
        if reason == "AgentFault":
            raise Broken(line)
        self.told_events.append((reason, line))

    def report_once(self, about: object, name: str, reason: str, line: str, then: Callable[[bool], None]) -> None:
        del about
        self.told_once.setdefault(name, []).append((reason, line))
        then(True)

    def follow(self, lines: Mapping[str, CoordinatorConnection]) -> None:
        pod = "".join(line.pod for line in lines.values())
        if pod != self.reported_by:
            self.told_seen, self.reported_by = None, pod
        is_late = self.is_told_late and self.told_seen is not None
        if lines and self.brain is not None and self.answers and self.alive("coordinator") and not is_late:
            self.told_seen = CoordinatorReport(self.brain.status(), self.now)

    def job_report(self, uid: str) -> CoordinatorReport | None:
        del uid
        seen = self.told_seen
        return seen if seen is not None and self.now - seen.at_seconds <= 15.0 else None

    def trouble(self, uid: str) -> str:
        return "" if self.job_report(uid) else "no answer"

    def report(self, uid: str, ended: Ended) -> bool:
        del uid
        self.writes.append(("report", ended.task))
        if self.brain is None or not self.answers or not self.alive("coordinator"):
            return False
        try:
            self.before_write("report", ended.task)
        except ApiUnanswered:
            return False
        assert not self.alive(ended.task), f"{ended.task} runs, and is said to have ended"
        self.brain.on_task_ended(ended.task)
        self.keep()
        try:
            self.after_write("report", ended.task)
        except ApiUnanswered:
            return False
        return True

    def ask(self, uid: str, ask: Ask) -> str | None:
        del uid
        assert self.acts
        # Whoever follows an agent that is killed now goes on with the same; one that hears late, with what it knows.
        decision = ask.request_id.rsplit("-", 3)[0]
        stated = [self.status, *(entry.kept.status for entry in self.jobs.entries().values())]
        known = [(status.get("allocation") or {}).get("decisionId", "unknown") for status in stated]
        noted = known if "TrainingJob" in self.lagging else known[:1]
        assert decision in noted or decision.startswith("deleted-"), f"{ask} is asked for, and {noted} noted"
        self.writes.append(("ask", ask.request_id))
        if self.brain is None or not self.answers or not self.alive("coordinator"):
            return None
        try:
            self.before_write("ask", ask.request_id)
            outcome, detail = self.brain.ask(ask)
            self.keep()
            self.after_write("ask", ask.request_id)
        except ApiUnanswered:
            return None
        return (detail or "given up") if outcome is RequestOutcome.ABORTED else ""

    # The rest of the world.

    @property
    def job(self) -> Json:
        return self.objects["/apis/fedl2.io/v1alpha1/namespaces/team/trainingjobs/digits"]

    @property
    def status(self) -> Json:
        found: Json = self.job.get("status", {})
        return found

    def change_spec(self, **change: Any) -> None:
        self.put({**self.job, "spec": {**self.job["spec"], **change}})

    def tasks(self) -> list[str]:
        """Whose pods are there, without the coordinator's."""
        names = [each["metadata"]["labels"]["fedl2.io/task"] for each in self.objects.values() if each["kind"] == "Pod"]
        return [name for name in names if name != "coordinator"]

    def task(self, name: str) -> Json:
        return self.objects[f"/api/v1/namespaces/team/pods/digits-{name}"]

    def exists(self, name: str) -> bool:
        return f"/api/v1/namespaces/team/pods/digits-{name}" in self.objects

    def alive(self, name: str) -> bool:
        return self.exists(name) and self.task(name)["status"]["phase"] == "Running"

    def end(self, name: str, code: int, words: str = "") -> None:
        """A pod's process ends."""
        pod = self.task(name)
        ended = {"terminated": {"exitCode": code, **({"message": words} if words else {})}}
        status = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": pod["spec"]["containers"][0]["name"], "state": ended}],
        }
        self.put({**pod, "status": status})
        if name == "coordinator":
            self.brain = None

    def vanish(self, name: str) -> None:
        """A pod is gone without a word, as with its node."""
        del self.objects[f"/api/v1/namespaces/team/pods/digits-{name}"]
        if name == "coordinator":
            self.brain = None

    def live(self) -> None:
        """The kubelets, the coordinator and the tasks do what they do in some seconds."""
        for name in [*self.tasks(), *(["coordinator"] if self.exists("coordinator") else [])]:
            pod = self.task(name)
            phase = pod["status"]["phase"]
            if "deletionTimestamp" in pod["metadata"]:
                if phase == "Running":
                    self.end(name, 143)
                else:
                    self.vanish(name)
            elif phase == "Pending" and self.images(name):
                self.put({**pod, "status": {"phase": "Running"}})
        if self.alive("coordinator"):
            self._lead()

    def _lead(self) -> None:
        pod = self.task("coordinator")
        if self.brain is None or self.brain_of != pod["metadata"]["uid"]:
            command = pod["spec"]["containers"][0]["command"]
            stated = {
                name: int(value) for name, _, value in (each.partition("=") for each in command) if value.isdigit()
            }
            size = Size(stated["--servers"], stated["--workers"])
            self.brain = copy.deepcopy(self.journal) or Brain(size)
            self.brain_of, self.has_run = pod["metadata"]["uid"], set()
            if "--relaunched" in command:
                self.brain.relaunch(size)
        brain = self.brain
        for name, state in list(brain.tasks.items()):
            if state == "leaving" and self.alive(name):
                self.end(name, 0)
        running = {name for name in self.tasks() if self.alive(name)}
        self.has_run |= running
        brain.think(running)
        self.keep()
        if brain.phase not in _ENDED:
            return
        if not any(self.alive(name) for name in self.tasks()):
            word = "finished: 1 epochs, 100 samples" if brain.phase is JobPhase.FINISHED else f"failed: {brain.failure}"
            self.end("coordinator", 0 if brain.phase is JobPhase.FINISHED else 1, word)
        for name in self.tasks():
            if self.alive(name):
                self.end(name, 0)

    def keep(self) -> None:
        """The journal, where the job has one."""
        if "journal" in self.job["spec"].get("coordinator", {}):
            self.journal = copy.deepcopy(self.brain)
