"""What every backend must do, whatever cluster is behind it; subclass and give `make_backend`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster_agent.backends.base import Backend
from policy_net.domain import SUSPENDED, Allocation, ClusterState, Decision
from policy_net.errors import InvalidAllocation


def one_pair_each(state: ClusterState) -> Decision:
    """A decision that fits any cluster of the suite."""
    return Decision({job.job_id: Allocation(1, 1) for job in state.jobs})


class BackendSuite:
    """Contract of `Backend`; the cluster holds a pair for each of its jobs and they end some day."""

    def make_backend(self, folder: Path) -> Backend:
        raise NotImplementedError

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Backend:
        return self.make_backend(tmp_path)

    def test_it_begins_unfinished_with_nothing_done(self, backend: Backend) -> None:
        assert not backend.finished
        assert backend.status().jobs_done == 0
        assert backend.status().avg_jct_seconds == 0.0

    def test_whoever_can_decide_is_ready(self, backend: Backend) -> None:
        assert backend.observe() is not None
        assert backend.not_ready == ""

    def test_asked_twice_it_answers_the_same(self, backend: Backend) -> None:
        assert backend.observe() == backend.observe()

    def test_jobs_hold_what_was_decided_at_the_next_decision(self, backend: Backend) -> None:
        first = backend.observe()
        assert first is not None
        backend.apply(one_pair_each(first[0]))
        second = backend.observe()
        assert second is not None
        before = {job.job_id for job in first[0].jobs}
        held = {job.job_id: job.current for job in second[0].jobs if job.job_id in before}
        assert set(held.values()) <= {Allocation(1, 1)}
        assert second[0].time_seconds > first[0].time_seconds

    def test_progress_is_that_of_the_interval(self, backend: Backend) -> None:
        observed = backend.observe()
        assert observed is not None
        state, _ = observed
        progress = backend.apply(one_pair_each(state))
        seconds = backend.time_seconds - state.time_seconds
        assert {entry.job_id for entry in progress} == {job.job_id for job in state.jobs}
        for entry, job in zip(progress, state.jobs, strict=True):
            assert entry.allocation == Allocation(1, 1)
            assert 0.0 < entry.seconds <= seconds
            assert entry.finished or entry.seconds + entry.paused_seconds == pytest.approx(seconds)
            assert entry.epochs == pytest.approx(entry.samples / job.samples_per_epoch)
            assert entry.remaining_epochs == job.remaining_epochs

    def test_a_suspended_job_makes_no_progress(self, backend: Backend) -> None:
        observed = backend.observe()
        assert observed is not None
        left_out, *others = observed[0].jobs
        progress = backend.apply(Decision({job.job_id: Allocation(1, 1) for job in others}))
        assert all(entry.samples == 0 for entry in progress if entry.job_id == left_out.job_id)
        after = backend.observe()
        assert after is not None
        again = next(job for job in after[0].jobs if job.job_id == left_out.job_id)
        assert again.current == SUSPENDED
        assert again.remaining_epochs == left_out.remaining_epochs

    def test_an_impossible_decision_changes_nothing(self, backend: Backend) -> None:
        observed = backend.observe()
        with pytest.raises(InvalidAllocation):
            backend.apply(Decision({"nobody": Allocation(1, 1)}))
        assert backend.observe() == observed

    def test_it_finishes_with_all_jobs_done(self, backend: Backend) -> None:
        done = 0
        for _ in range(10_000):
            observed = backend.observe()
            if observed is None:
                break
            done += sum(entry.finished for entry in backend.apply(one_pair_each(observed[0])))
        status = backend.status()
        assert backend.finished
        assert done == status.jobs_done == status.jobs_total > 0
        assert status.avg_jct_seconds > 0.0
        assert (status.jobs_running, status.jobs_waiting) == (0, 0)
        backend.close()
