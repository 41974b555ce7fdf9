"""Plans of the benchmark of real jobs; the runs themselves take minutes each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.local.__main__ import main
from benchmarks.local.machine import KINDS, plan
from cluster_agent.backends.local.job_file import JobFile


def test_a_seeds_jobs_are_the_same_each_time_come_in_order_and_can_be_submitted() -> None:
    jobs = plan(3, 12, 1.0, 4.0)
    assert jobs == plan(3, 12, 1.0, 4.0) != plan(4, 12, 1.0, 4.0)
    assert [job.after_seconds for job in jobs] == sorted(job.after_seconds for job in jobs)
    assert not {job.name for job in jobs} & {job.name for job in plan(4, 12, 1.0, 4.0)}
    assert {job.file["modelType"] for job in jobs} == {kind.model_type for kind in KINDS}
    for job in jobs:
        file = JobFile.model_validate({"name": job.name, "elastic": True, **job.file})
        assert Path(file.script).is_file()
        assert json.dumps(job.file["work"]["epochs"]) in file.args


@pytest.mark.parametrize("words", [["--jobs", "0"], ["--gap", "-1"], ["--work", "0"], ["--policies", "nosuch"]])
def test_a_bad_option_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert words[0] in capsys.readouterr().err
