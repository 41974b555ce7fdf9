"""A job's processes, as they are started."""

import os
import subprocess
from pathlib import Path

import pytest
from job_makers import make_job

from elastic_runtime.launcher.job_spec import Programs, spec_of


@pytest.mark.heavy
def test_a_module_in_the_folder_where_a_job_is_started_is_the_scripts_and_not_ours(tmp_path: Path) -> None:
    job = make_job(tmp_path, "import json\nprint(json.MINE)\n")
    (tmp_path / "json.py").write_text("MINE = 'of the user'\n", encoding="utf-8")
    programs = Programs(spec_of(job.record(), job.record_file), job, os.environ)
    processes = {
        "coordinator": programs.coordinator_process("127.0.0.1:0", None),
        **{task: programs.task_process(task, "127.0.0.1:1", 1, 1) for task in ("ps-0", "worker-0")},
    }
    reported = {}
    for task, process in processes.items():
        command = [*process.command[:3], *([] if task == "worker-0" else ["--help"])]
        done = subprocess.run(
            command, check=False, env=process.environment, cwd=process.working_folder, capture_output=True, timeout=100
        )
        assert done.returncode == 0, done.stderr
        reported[task] = done.stdout.decode()
    assert reported["worker-0"] == "of the user\n"
    assert reported["ps-0"].startswith("usage: python -m elastic_runtime.server ")
    assert reported["coordinator"].startswith("usage: python -m elastic_runtime.coordinator ")


def test_another_python_with_options_runs_the_script_and_our_own_processes_have_it_without(tmp_path: Path) -> None:
    job = make_job(tmp_path, "pass")
    record = {**job.record(), "python": "/env/bin/python", "options": ["-O", "-m"], "script": "pkg.fit"}
    programs = Programs(spec_of(record, job.record_file), job, os.environ)
    assert programs.task("worker-0") == ("/env/bin/python", "-O", "-m", "pkg.fit")
    assert programs.task("ps-0")[:3] == ("/env/bin/python", "-m", "elastic_runtime.server")
    assert programs.spec.is_module
