"""A TrainingJob under all that can go wrong, in any order: what never happens, and that it gets there in the end.

The controller, its plans and its requests are the real ones; the cluster pretends.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from simulated_training import Killed, World
from training_objects import job_object, template

from cluster_agent.backends.kubernetes.training.story.statuses import Granted
from cluster_agent.kubernetes.errors import ApiUnanswered, Forbidden
from cluster_agent.kubernetes.training.training_job import training_job
from elastic_runtime.control.messages import RequestOutcome
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation

POLL_SECONDS = 10.0
MOST_LOOKS = 250
EXTRA_PODS = 2
UID = job_object()["metadata"]["uid"]


class Training(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.decisions = itertools.count()
        self.decided: Allocation | None = None

    @initialize(journal=st.booleans(), checkpoints=st.booleans(), rest_seconds=st.sampled_from([0.0, 35.0]))
    def begin(self, journal: bool, checkpoints: bool, rest_seconds: float) -> None:
        found = job_object()
        if not journal:
            del found["spec"]["coordinator"]
        if not checkpoints:
            del found["spec"]["checkpoints"]
        self.world = World(found, rest_seconds)
        self.world.poll()
        self.decide(Allocation(2, 1))
        self.go_on(4)

    # What is wished.

    @rule(
        size=st.sampled_from([SUSPENDED, *itertools.starmap(Allocation, itertools.product(range(1, 6), range(1, 4)))])
    )
    def decide(self, size: Allocation) -> None:
        self.decided = size
        granted = Granted(size, f"d{next(self.decisions)}", "v1", "", 7, 1e9)
        self.world.controller.grant(UID, granted)

    @rule(suspend=st.sampled_from([False, False, True]))
    def suspend(self, suspend: bool) -> None:
        self.world.change_spec(suspend=suspend)

    @rule(most=st.integers(1, 4))
    def bound(self, most: int) -> None:
        self.world.change_spec(worker={**self.world.job["spec"]["worker"], "max": most})

    @rule(changed=st.sampled_from([False, False, False, True]))
    def change_template(self, changed: bool) -> None:
        made = template(["other"]) if changed else template()
        self.world.change_spec(worker={**self.world.job["spec"]["worker"], "template": made})

    # What goes on.

    @rule(count=st.integers(1, 6))
    def go_on(self, count: int) -> None:
        for _ in range(count):
            self.world.now += POLL_SECONDS
            self.world.live()
            self.world.note_resizes()
            self.world.poll()

    @rule(count=st.integers(1, 3))
    def go_on_a_little(self, count: int) -> None:
        self.go_on(count)

    @rule(seconds=st.sampled_from([1.0, 20.0, 70.0, 400.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.poll()

    @rule(ends=st.sampled_from([JobPhase.FINISHED, JobPhase.FAILED]))
    @precondition(lambda self: self.world.brain is not None and self.world.brain.phase is JobPhase.RUNNING)
    def finish(self, ends: JobPhase) -> None:
        assert self.world.brain is not None
        self.world.brain.phase = ends
        self.world.keep()

    # What goes wrong.

    @rule(
        number=st.integers(0, 8),
        after=st.booleans(),
        kind=st.sampled_from(["unanswered", "killed", "refused"]),
    )
    def fail_a_write(self, number: int, after: bool, kind: str) -> None:
        left = iter([*[False] * number, True])

        def strike(verb: str, path: str) -> None:
            if not next(left, False):
                return
            if kind == "killed":
                raise Killed
            if kind == "refused" and not after and verb not in ("report", "ask"):
                raise Forbidden(f"{verb} {path}: exceeded quota", 403, "Forbidden")
            raise ApiUnanswered(f"{verb} {path}: 500")

        self.hook(strike, after)

    def hook(self, strike: Callable[[str, str], None], after: bool) -> None:
        nothing: Callable[[str, str], None] = lambda verb, path: None  # noqa: E731
        self.world.before_write, self.world.after_write = (nothing, strike) if after else (strike, nothing)

    @rule(data=st.data(), code=st.sampled_from([0, 1, 2, 3, 137, 143]))
    def end_a_process(self, data: st.DataObject, code: int) -> None:
        alive = [name for name in ["coordinator", *self.world.tasks()] if self.world.alive(name)]
        if alive:
            name = data.draw(st.sampled_from(alive))
            self.world.end(name, 1 if (name, code) == ("coordinator", 2) else code)

    @rule(data=st.data())
    def lose_a_pod(self, data: st.DataObject) -> None:
        there = [name for name in ["coordinator", *self.world.tasks()] if self.world.exists(name)]
        if there:
            self.world.vanish(data.draw(st.sampled_from(there)))

    @rule(data=st.data())
    def delete_a_pod(self, data: st.DataObject) -> None:
        there = [name for name in ["coordinator", *self.world.tasks()] if self.world.exists(name)]
        if there:
            pod = self.world.task(data.draw(st.sampled_from(there)))
            self.world.put({**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "now"}})

    @rule(role=st.sampled_from(["", "", "", "worker", "ps", "coordinator"]))
    def break_images(self, role: str) -> None:
        self.world.images = lambda task: not role or not task.startswith(role)

    @rule(answers=st.sampled_from([True, True, False]))
    def fall_silent(self, answers: bool) -> None:
        self.world.answers = answers

    @rule(kinds=st.frozensets(st.sampled_from(["TrainingJob", "Pod", "Service"])))
    def hear_nothing_of(self, kinds: frozenset[str]) -> None:
        self.world.lagging = kinds

    @rule(late=st.booleans())
    def hear_late_of_the_coordinator(self, late: bool) -> None:
        self.world.is_told_late = late

    @rule(behind=st.frozensets(st.sampled_from(["TrainingJob", "Pod", "Service"])))
    def take_over(self, behind: frozenset[str]) -> None:
        self.world.take_over(behind)

    @rule()
    def restart_agent(self) -> None:
        self.world.start_agent()

    @rule(acts=st.sampled_from([True, True, False]))
    def lead(self, acts: bool) -> None:
        self.world.acts = acts
        if not acts:
            self.world.poll()

    @invariant()
    def never_more_than_may_be(self) -> None:
        if not hasattr(self, "world"):
            return
        there = [name for name in self.world.tasks() if self.world.alive(name)]
        assert len(there) <= 2 * (4 + 2)
        assert len(self.world.told_once) <= len(self.world.resized), "a resize was told that was none"

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.converge()

    def converge(self) -> None:
        """Nothing goes wrong any more."""
        world = self.world
        self.hook(lambda verb, path: None, False)
        world.images, world.answers, world.acts = lambda task: True, True, True
        world.lagging, world.is_told_late = frozenset(), False
        self.change_template(False)
        if training_job(world.job).problem:  # it began with the other one
            self.change_template(True)
        if self.decided is not None:
            self.decide(self.decided)
        for _ in range(MOST_LOOKS):
            world.now += POLL_SECONDS
            world.live()
            world.note_resizes()
            world.poll()
            if self.is_there():
                break
        else:
            raise AssertionError(f"not there after {MOST_LOOKS} looks: {world.status}, {world.brain}, {world.tasks()}")
        before = len(world.writes)
        for _ in range(100):  # and it stays there, without a word
            world.now += 1.0
            world.live()
            world.poll()
            assert self.is_there()
        kept = [write for write in world.writes[before:] if write[0] not in ("delete", "patch")]
        assert not kept, kept
        assert len(world.writes) - before <= 10, world.writes[before:]
        if world.brain is not None and world.exists("coordinator"):
            rows = world.brain.rows.values()
            known = [row for row in rows if row.kind == "resize" and row.state is RequestOutcome.DONE]
            assert len(world.told_once) >= len(known), "a resize was not told that its coordinator knows of"
            assert world.status.get("resizes", {}).get("count", 0) == len(world.told_once)

    def is_there(self) -> bool:
        world, job = self.world, training_job(self.world.job)
        if job.outcome:
            return not any(world.alive(name) for name in [*world.tasks(), "coordinator"])
        wanted = job.within(job.granted)
        if job.suspend or wanted == SUSPENDED:
            phase = "Suspended" if job.suspend else "Queued"
            return not world.tasks() and not world.exists("coordinator") and world.status.get("phase") == phase
        brain = world.brain
        return (
            brain is not None
            and brain.phase is JobPhase.RUNNING
            and Allocation(len(brain.of("worker", "member")), len(brain.of("ps", "member"))) == wanted
            and world.status.get("phase") == "Running"
            and len([name for name in world.tasks() if world.alive(name)]) == wanted.tasks
        )


TestTraining = Training.TestCase
TestTraining.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
