"""The shipped example under the real commands: resized, suspended, resumed, and with each of its processes killed."""

import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import certificate_files
from real_jobs import DIGITS, ROOT, RealJob

from elastic_runtime.checkpoint import latest_durable, list_checkpoints, read_model

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[RealJob]:
    with RealJob(tmp_path, "digits") as job:
        yield job
    job.leaves_nobody()


def test_a_job_trains_to_the_end_and_another_one_begins_there_encrypted(job: RealJob, tmp_path: Path) -> None:
    job.launch("--ps", "1", "--workers", "2", "--name", job.name, str(DIGITS), "--epochs", "12")
    assert job.end() == 0, job.output()
    accuracy = re.search(r"worker-\d+ \| parameter-server: trained .*  test accuracy (0\.\d+)", job.output())
    assert accuracy is not None, job.output()
    assert float(accuracy[1]) >= 0.97
    status = job.ask("status")
    assert (status["phase"], status["step"], status["durable_step"]) == ("finished", 276, 276)
    assert status["launcher"] is None
    assert f"--restore --checkpoints {job.folder}/checkpoints" in job.ask("resume", code=2)

    ca, certificate, key = certificate_files(tmp_path)
    with RealJob(tmp_path, "again") as again:
        tls = ["--ca", ca, "--certificate", certificate, "--key", key, "--curve"]
        begin = ["--restore", "--checkpoints", str(job.folder / "checkpoints"), "--ps", "2", "--name", again.name]
        again.launch(*begin, *tls, str(DIGITS), "--epochs", "14")
        assert again.end() == 0, again.output()
        status = again.ask("status")
        assert (status["phase"], status["step"]) == ("finished", 322)
        assert "epoch 12 " not in again.output()
        assert "epoch 13 " in again.output()


def test_a_job_is_trained_by_another_python(job: RealJob, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (packages / "same.pth").write_text("\n".join([str(ROOT), *filter(None, sys.path)]), encoding="utf-8")
    script = tmp_path / "by.py"
    script.write_text(
        "import runpy, sys\nimport elastic_runtime\nprint('by', sys.executable, sys.flags.optimize)\n"
        f"runpy.run_path({str(DIGITS)!r}, run_name='__main__')\n",
        encoding="utf-8",
    )
    job.launch(f"--interpreter={python}", "--interpreter=-O", "--name", job.name, str(script), "--epochs", "2")
    assert job.end() == 0, job.output()
    assert f"by {python} 1" in job.output()
    assert "parameter-server: trained" in job.output()


def test_a_job_is_resized_four_times_suspended_and_resumed_and_has_learned(job: RealJob) -> None:
    job.launch("--ps", "1", "--workers", "2", "--name", job.name, str(DIGITS), "--epochs", "100000")
    status = job.steps_on()
    assert status["size"] == status["target"] == {"ps": 1, "workers": 2}
    assert job.members(status) == {"server": ["ps-0"], "worker": ["worker-0", "worker-1"]}
    steps = [status["step"]]
    sizes = ((2, 3), (3, 1), (2, 2), (1, 2))
    for servers, workers in sizes:
        assert job.ask("resize", "--ps", str(servers), "--workers", str(workers))["state"] == "done"
        status = job.steps_on()
        steps.append(status["step"])
        assert status["size"] == {"ps": servers, "workers": workers}
        assert len(job.members(status)["worker"]) == workers
    assert steps == sorted(steps)
    assert status["generation"] == 1
    assert [request["state"] for request in status["requests"]] == ["done"] * len(sizes)
    assert all(request["moved_bytes"] > 0 for request in status["requests"])

    assert job.ask("suspend")["state"] == "done"
    rests = job.wait_for("suspension", lambda status: status["phase"] == "suspended" and not status["tasks"])
    assert rests["step"] == rests["durable_step"] >= steps[-1]
    example = runpy.run_path(str(DIGITS))
    model = example["network"]()
    checkpoint = latest_durable(job.folder / "checkpoints")
    assert checkpoint is not None
    model.load_state_dict(read_model(checkpoint))
    assert example["accuracy"](model, *example["digits"]()[1]) >= 0.97
    assert job.ask("resume", "--workers", "1")["state"] == "done"
    status = job.steps_on()
    assert status["size"] == {"ps": 1, "workers": 1}
    assert status["step"] >= rests["step"]

    assert job.ask("stop") == {"job": job.name, "stopped": True}
    assert job.end() == 0, job.output()
    rests = job.ask("status")
    assert rests["phase"] == "suspended"
    assert rests["step"] == rests["durable_step"] >= status["step"]


@pytest.mark.long
def test_a_job_outlives_the_death_of_each_of_its_processes(job: RealJob) -> None:
    size = ("--ps", "2", "--workers", "2", "--checkpoint-seconds", "1")
    job.launch(*size, "--name", job.name, str(DIGITS), "--epochs", "100000")
    before = job.steps_on()

    job.kill("worker-1")
    job.wait_for("another worker", lambda status: job.members(status)["worker"] == ["worker-0", "worker-2"])
    after = job.steps_on()
    assert (after["generation"], after["size"]) == (1, {"ps": 2, "workers": 2})
    assert after["step"] > before["step"]

    pids = {task: job.pid_of(task) for task in ("ps-0", "worker-0", "worker-2")}
    job.kill("coordinator")
    again = job.steps_on()
    assert again["step"] > after["step"]
    assert again["generation"] == 1
    assert {task: job.pid_of(task) for task in pids} == pids

    job.kill("ps-1")
    job.wait_for("recovery", lambda status: status["generation"] == 2 and status["phase"] == "running")
    assert job.steps_on()["size"]["workers"] == 2

    checkpoints = job.folder / "checkpoints"
    job.wait_for("checkpoints", lambda _: len(list_checkpoints(checkpoints)) >= 3)
    assert job.launcher is not None
    job.launcher.kill()
    job.launcher.wait()
    assert job.ask("status")["launcher"] is None
    # Two of them, as the coordinator may have died before it had noted the newest.
    for _, folder in list_checkpoints(checkpoints)[-2:]:
        (folder / "manifest.json").write_bytes(b"{")
    job.launch("resume", job.name)
    assert job.steps_on()["generation"] == 4, "one more, as the newest checkpoint is passed over"
    line = rf"elastic-run: {job.name}: going back to step \d+: step-\d+ is passed over: {checkpoints}/step-\d+/manifest"
    assert re.search(line, job.output()), job.output()
    assert job.ask("stop")["stopped"]
