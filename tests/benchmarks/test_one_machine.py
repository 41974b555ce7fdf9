"""Drawn worlds of one machine, and what the benchmark says of policies in them."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.one_machine.__main__ import main
from benchmarks.one_machine.worlds import OwnTypes, machine_world
from policy_net.domain import JobKind
from policy_net.laboratory.catalogue import ALLREDUCE_MODEL_NAMES, MODEL_NAMES
from policy_net.laboratory.speeds.speed import default_speeds


def test_a_number_is_always_the_same_world_and_another_one_is_another() -> None:
    assert machine_world(7) == machine_world(7)
    assert machine_world(7) != machine_world(8)


@pytest.mark.parametrize("number", range(40))
def test_every_job_fits_the_machine_at_the_size_it_asks_for_and_trains(number: int) -> None:
    workload, environment = machine_world(number)
    assert environment.nodes == 1
    speeds = OwnTypes()
    for job in workload.jobs:
        smallest = job.worker_demand + job.ps_demand * job.min_ps
        assert smallest.cpu_milli <= 1000 * environment.cpus_per_node
        assert smallest.gpu <= environment.gpus_per_node
        assert job.requested.workers <= job.max_workers
        assert job.requested.ps <= job.max_ps
        assert speeds.samples_per_second(job.job_type, job.min_ps, 1) > 0.0
        assert job.job_type not in {*MODEL_NAMES, *ALLREDUCE_MODEL_NAMES}
        assert job.kind.uses_ps == (job.min_ps == 1) == (job.kind is JobKind.PS)
    assert len({job.job_type for job in workload.jobs}) > 1


def test_types_of_the_package_train_as_they_do_elsewhere() -> None:
    np.testing.assert_array_equal(OwnTypes().grid("vgg-16"), default_speeds().grid("vgg-16"))


def test_policies_are_shown_over_fifo() -> None:
    """As a command: what its pool's processes are to call, they have to find."""
    options = ["-o", "json", "--policies", "fifo", "set", "--worlds", "2", "--first", "0", "--processes", "1"]
    ran = subprocess.run([sys.executable, "-m", "benchmarks.one_machine", *options], capture_output=True, check=True)
    shown = json.loads(ran.stdout)
    assert shown["fifo"]["over_fifo"] == 1.0
    assert 0.0 < shown["set"]["over_fifo"] < 2.0


def test_one_world_is_too_few_for_a_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--worlds", "1"])
    assert ended.value.code == 2
    assert "--worlds takes 2 or more" in capsys.readouterr().err
