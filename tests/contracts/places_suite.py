"""What every backend must say of places: where tasks lie, where it makes a difference, and nothing elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster_agent.backends.base import Backend
from policy_net.domain import ClusterState, Decision, Progress, Trigger
from policy_net.exchange.shipped import shipped_file
from policy_net.set_policy.policy import set_policy_of

LOOKS = 30


class PlacesSuite:
    """Contract of `Backend` on a cluster whose jobs train, or wait for the test to let them."""

    says_places = True
    """Whether this kind of cluster, as it is made here, says where tasks lie."""

    def make_backend(self, folder: Path) -> Backend:
        raise NotImplementedError

    def decision(self, state: ClusterState) -> Decision:
        """One under which jobs train; it says nothing of places."""
        raise NotImplementedError

    def before_apply(self) -> None:
        """Let the jobs train, where a test has to."""

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Backend:
        return self.make_backend(tmp_path)

    def seen(self, backend: Backend) -> tuple[list[ClusterState], list[Progress]]:
        """States and reports of some decisions."""
        states: list[ClusterState] = []
        reports: list[Progress] = []
        for _ in range(LOOKS):
            observed = backend.observe()
            if observed is None:
                break
            states.append(observed[0])
            self.before_apply()
            reports += backend.apply(self.decision(observed[0]))
            if any(entry.places for entry in reports) and len(states) > 1:
                break
        backend.close()
        return states, reports

    def test_tasks_lie_on_nodes_of_the_state_and_no_more_of_them_than_a_job_has(self, backend: Backend) -> None:
        states, reports = self.seen(backend)
        assert any(state.placement for state in states) == self.says_places
        assert {state.placement is None for state in states} == {not self.says_places}
        for state in states:
            nodes = {node.node_id for node in state.nodes}
            held = {job.job_id: job.current for job in state.jobs}
            for job_id, shares in (state.placement or {}).items():
                assert {share.node_id for share in shares} <= nodes
                assert sum(share.allocation.workers for share in shares) <= held[job_id].workers
                assert sum(share.allocation.ps for share in shares) <= held[job_id].ps
        assert any(entry.places for entry in reports) == self.says_places

    def test_a_report_says_of_all_workers_on_which_type_they_were(self, backend: Backend) -> None:
        states, reports = self.seen(backend)
        types = {node.gpu_type for state in states for node in state.nodes}
        assert any(entry.samples > 0.0 for entry in reports)
        for entry in reports:
            assert {gpu_type for gpu_type, _ in entry.places} <= types
            assert sum(count for _, count in entry.places) in (0, entry.allocation.workers)

    def test_beliefs_learn_of_places_from_it(self, backend: Backend) -> None:
        policy = set_policy_of(shipped_file("set"), "set")
        states, reports = self.seen(backend)
        for state in states:
            decision = policy.decide(state, Trigger.SLOT)
            assert (decision.placement is not None) == self.says_places
        for entry in reports:
            policy.observe([entry])
        assert policy.beliefs is not None
        assert (policy.beliefs.places.reports > 0) == self.says_places
