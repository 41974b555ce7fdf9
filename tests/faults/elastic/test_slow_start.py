"""Processes that are slow to start, as on a busy machine: they are waited for, and not taken for dead."""

from pathlib import Path

import pytest
from forks import Forks
from live_job import NEVER_SECONDS, LiveJob

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]
LOST_SECONDS = 0.5


def stand(job: LiveJob) -> None:
    """Let more time pass than a member that is lost has."""
    began = job.now()
    job.until(lambda: job.now() - began >= 6 * LOST_SECONDS)


def test_a_server_that_waits_long_for_the_first_workers_model_is_not_replaced(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path, held=("worker",), lost_seconds=LOST_SECONDS) as job:
        job.until(lambda: job.view.member("ps-0"), "the server")
        stand(job)
        job.adjust(lost_seconds=NEVER_SECONDS)
        job.held.clear()
        job.finish()
        assert (job.codes.get("ps-0"), job.codes.get("ps-1")) == ([0], None), job.story()


def test_a_server_that_is_slow_to_begin_once_it_has_the_model_is_not_replaced(forks: Forks, tmp_path: Path) -> None:
    may_begin = tmp_path / "may-begin"
    environment = {"SERVERS_BEGIN_WITH": str(may_begin)}
    with LiveJob(forks, tmp_path, environment=environment, lost_seconds=LOST_SECONDS) as job:
        job.until(lambda: job.view.member("ps-0") and job.view.member("worker-0"), "the members")
        stand(job)
        job.adjust(lost_seconds=NEVER_SECONDS)
        may_begin.touch()
        job.finish()
        assert (job.codes.get("ps-0"), job.codes.get("ps-1")) == ([0], None), job.story()
