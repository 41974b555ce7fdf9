"""An all-reduce TrainingJob under all that can go wrong, in any order: what never happens, and where it gets to.

The controller and its plan are the real ones; the cluster pretends. That no rank is made twice, or beside one of
another gang, is checked whenever a pod is made.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from simulated_ranks import TOTAL_STEPS, RanksWorld, ring_object
from test_training_machine import Training

from cluster_agent.kubernetes.training.training_job import training_job
from policy_net.domain import SUSPENDED, Allocation

pytestmark = pytest.mark.heavy


class Ranks(Training):
    world: RanksWorld
    ticks = True

    @initialize(checkpoints=st.sampled_from([True, True, True, False]), limit=st.sampled_from([0, 3, 100, 100, 100]))
    def begin(self, checkpoints: bool, limit: int) -> None:  # type: ignore[override]
        found = ring_object(backoffLimit=limit)
        if not checkpoints:
            del found["spec"]["checkpoints"]
        self.world = RanksWorld(found)
        self.world.poll()
        self.decide(Allocation(2))
        self.go_on(4)

    @rule(size=st.sampled_from([SUSPENDED, *map(Allocation, range(1, 6))]))
    def decide(self, size: Allocation) -> None:
        super().decide(size)

    @rule(size=st.sampled_from([*map(Allocation, range(1, 5))]))
    def resize(self, size: Allocation) -> None:
        self.world.change_spec(suspend=False)
        self.go_on(4)
        self.decide(size)

    @rule(really=st.sampled_from([False] * 9 + [True]))
    @precondition(lambda self: bool(self.world.joined))
    def finish(self, really: bool) -> None:  # type: ignore[override]
        self.world.steps = TOTAL_STEPS - 1 if really else self.world.steps

    @rule(data=st.data(), code=st.sampled_from([1, 137, 143] * 5 + [2]))
    def end_a_process(self, data: st.DataObject, code: int) -> None:
        alive = [name for name in self.world.ranks() if self.world.alive(name)]
        if alive:
            self.world.end(data.draw(st.sampled_from(alive)), code, "ValueError: no data")

    @rule(obeys=st.booleans())
    def obey(self, obeys: bool) -> None:
        self.world.obeys = obeys

    @rule(stays=st.sampled_from([False, False, True]))
    def lose_a_node(self, stays: bool) -> None:
        self.world.stays = stays

    @rule(ticks=st.sampled_from([True, True, False]))
    def hurry(self, ticks: bool) -> None:
        """Whether all that happens does so one by one, each with time to be seen."""
        self.ticks = ticks

    @invariant()
    def time_goes_on(self) -> None:
        if hasattr(self, "world") and self.ticks:
            self.go_on(1)

    @invariant()
    def never_more_than_may_be(self) -> None:
        if not hasattr(self, "world"):
            return
        pods = [self.world.task(name)["metadata"]["labels"] for name in self.world.ranks()]
        assert len({(pod["fedl2.io/gang"], pod["fedl2.io/world-size"]) for pod in pods}) <= 1

    def converge(self) -> None:
        self.world.obeys, self.world.stays = True, False
        super().converge()
        before = self.world.steps
        for size in (1, 3):
            self.decide(Allocation(size))
            super().converge()
        if "checkpoints" in self.world.job["spec"]:
            assert self.world.steps >= before, "what was trained is lost"

    def is_there(self) -> bool:
        world, job = self.world, training_job(self.world.job)
        alive = [name for name in world.ranks() if world.alive(name)]
        if job.outcome:
            return not alive
        wanted = job.within(job.granted)
        if job.suspend or wanted == SUSPENDED:
            return not world.tasks() and world.status.get("phase") == ("Suspended" if job.suspend else "Queued")
        size = wanted.workers if job.checkpoints_claim else len(alive)
        return world.status.get("phase") == "Running" and len(world.joined) == len(alive) == size > 0


TestRanks = Ranks.TestCase
TestRanks.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
