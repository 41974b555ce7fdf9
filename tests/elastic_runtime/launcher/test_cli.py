"""`elastic-run` as it is typed: wrong usage in one line with its exit code, and requests to a job that runs."""

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from job_makers import WAITS, Launcher, make_job, wait_for

from elastic_runtime.cli import app
from elastic_runtime.errors import CoordinatorUnreachable
from elastic_runtime.launcher.commands import launch, status
from elastic_runtime.launcher.job_folder import AGENT_MARK, JobFolder, JobLock, launcher_lock, write_json
from elastic_runtime.launcher.job_spec import Programs, spec_of
from elastic_runtime.launcher.job_status import resting_facts
from foundation.command_line import command_of, run

OPTIONS_OF_RUN = [
    parameter for parameter in command_of(app).commands["run"].params if isinstance(parameter, click.Option)
]


class Typed:
    """Types commands, in this process."""

    def __init__(self, jobs: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.jobs = jobs
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        self._capsys.readouterr()
        code = run(app, "elastic-run", list(words))
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def json(self, *words: str) -> dict:
        """The result of a command that is done."""
        code, out, err = self(*words, "--folder", str(self.jobs), "-o", "json")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def typed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Typed:
    monkeypatch.setenv("ELASTIC_JOBS", str(tmp_path / "jobs"))
    monkeypatch.setenv("COLUMNS", "120")
    return Typed(tmp_path / "jobs", capsys)


@pytest.mark.parametrize("words", [["--help"], []])
def test_the_help_names_both_forms_and_all_commands(typed: Typed, words: list[str]) -> None:
    code, out, err = typed(*words)
    assert (code, err) == (
        (0, "") if words else (2, "elastic-run: nothing was asked for; name a command (see `elastic-run --help`)\n")
    )
    assert "SCRIPT" in out + err
    for name in ("run", "resize", "status", "logs", "suspend", "resume", "stop", "cancel", "delete", "list"):
        assert f" {name} " in out + err


def test_the_help_of_cancel_says_what_it_does_here_and_elsewhere(typed: Typed) -> None:
    said = " ".join(typed("cancel", "--help")[1].split())
    assert "End a job and its launcher after a checkpoint; `resume` starts it again from its folder." in said
    assert "The same as `stop`; the `cancel` of the other programs is for good." in said
    assert "and not for good" not in said


def test_a_script_needs_no_command_in_front_and_gets_its_own_options(typed: Typed, tmp_path: Path) -> None:
    for front in (["--ps", "0"], ["run", "--ps", "0"], ["--restarts", "0", "--ps", "0"], ["--restore", "--ps", "0"]):
        code, _, err = typed(*front, str(tmp_path / "train.py"), "--epochs", "5", "--help")
        assert (code, err) == (2, "elastic-run: --ps 0 --workers 1: a job begins with at least one of both\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["missing.py"], "missing.py: there is no such file"),
        (["--ps", "2", "--min-ps", "3", "SCRIPT"], "below --min-ps 3"),
        (["--ps", "-1", "SCRIPT"], "--ps"),
        (["--name", "A b", "SCRIPT"], "--name A b: a name has"),
        (["--bind", "256.0.0.1", "SCRIPT"], "--bind 256.0.0.1"),
        (["--bind", "::", "SCRIPT"], "name one address"),
        (["--restore", "SCRIPT"], "--restore needs --checkpoints"),
        (["--interpreter", "/none/python", "SCRIPT"], "--interpreter /none/python: there is no such program"),
        (["--certificate", "a.pem", "SCRIPT"], "--certificate, --key and --ca go together"),
        (["--folder", "SCRIPT", "SCRIPT"], "name another --folder"),
        (["--no-such", "SCRIPT"], "--no-such"),
        (["resize", "net-1", "--ps", "1"], "net-1: no such job"),
        (["resize", "net-1", "--workers=+1"], "'+1' has a sign; give the number that the job is to have in all"),
        (["resize", "net-1", "--ps", "-1"], "'-1' has a sign; give the number that the job is to have in all"),
        (["resume", "net-1", "--workers", "+1"], "'+1' has a sign"),
        (["--workers", "+1", "SCRIPT"], "'+1' has a sign"),
        (["resize", "net-1", "--workers", "1000"], "1000"),
        (["resize", "net-1"], "give --ps, --workers, or both; or a --victim to replace"),
        (["status", "net-1"], "there is none"),
        (["suspend", "net-1"], "no such job"),
        (["resume", "net-1"], "no such job"),
        (["stop", "net-1"], "no such job"),
        (["cancel", "net-1"], "no such job"),
        (["logs", "net-1"], "no such job"),
        (["logs", "net-1", "--tail", "-1"], "--tail"),
        (["delete", "net-1"], "no such job"),
        (["delete", ".."], "no such job"),
        (["resize", "net-1", "--mode", "fast"], "fast"),
        (["stats", "net-1"], "no command and no script 'stats'; did you mean 'status'?"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(typed: Typed, tmp_path: Path, words: list[str], says: str) -> None:
    script = tmp_path / "train.py"
    script.write_text("import elastic_runtime")
    code, out, err = typed(*(str(script) if word == "SCRIPT" else word for word in words))
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert says in err
    assert not list(tmp_path.glob("jobs/*"))


def test_an_address_that_others_reach_is_refused_before_anything_is_made(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "check_address", lambda *_: None)  # this machine need not have one
    script = tmp_path / "train.py"
    script.write_text("pass")
    code, _, err = typed("--bind", "192.0.2.7", str(script))
    assert code == 2
    assert "--bind 192.0.2.7" in err
    assert "--allow-insecure" in err
    assert not typed.jobs.exists()


@pytest.mark.parametrize("option", [name for parameter in OPTIONS_OF_RUN for name in parameter.opts])
def test_no_option_in_front_of_the_script_is_taken_for_a_misspelt_command(typed: Typed, option: str) -> None:
    code, _, err = typed(option)
    assert code in (0, 2)
    assert "did you mean" not in err.lower()


def test_a_script_may_be_called_nearly_as_a_command(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("stats").write_text("def f(:")
    code, _, err = typed("stats")
    assert (code, err) == (2, "elastic-run: stats, line 1: is no Python (invalid syntax)\n")


def test_a_reader_that_has_seen_enough_is_no_failure(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdout", "stderr"):
        reader, writer = os.pipe()
        os.close(reader)
        monkeypatch.setattr(sys, name, open(writer, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    sys.stderr.write("unread ")
    assert run(app, "elastic-run", ["list"]) == 0
    sys.stdout.flush()  # as the interpreter does when it ends
    sys.stderr.flush()


def test_the_time_between_checkpoints_reaches_the_coordinator(tmp_path: Path) -> None:
    job = make_job(tmp_path, "pass")
    spec = spec_of({**job.record(), "checkpoint_seconds": 7.5}, job.record_file)
    assert "--checkpoint-seconds=7.5" in Programs(spec, job, {}).coordinator("127.0.0.1:0", None)


def test_a_port_that_is_taken_is_named(typed: Typed, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("pass")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, _, err = typed("--port", port, str(script))
    assert code == 2
    assert f"something listens on 127.0.0.1:{port} already" in err


@pytest.mark.parametrize(
    ("phase", "says"),
    [
        ("running", "train-1 does not run; `elastic-run resume train-1` goes on with it"),
        ("suspended", "train-1 does not run; `elastic-run resume train-1` goes on with it"),
        ("finished", "train-1 has finished; nothing of it runs"),
        ("failed", "train-1 has failed; nothing of it runs"),
    ],
)
def test_to_stop_what_does_not_run_is_done_already(typed: Typed, tmp_path: Path, phase: str, says: str) -> None:
    job = make_job(tmp_path, "pass")
    write_json(job.state_file, {"phase": phase, "step": 7})
    for words in (["stop"], ["stop", "--now"], ["cancel"]):
        assert typed(*words, job.name) == (0, f"{says}\n", "")
    assert typed.json("stop", job.name) == {"job": job.name, "stopped": True}


KEPT = (
    "elastic-run: train-1: a cluster agent keeps this job and decides what it has; use {}, or give --anyway if "
    "that agent is gone for good\n"
)


@pytest.mark.parametrize(
    ("words", "ways"),
    [
        (["resume", "train-1"], "`cluster-agent resume train-1`"),
        (["resize", "train-1", "--workers", "2"], "`cluster-agent explain train-1`"),
        (["suspend", "train-1"], "`cluster-agent suspend train-1`"),
        (["stop", "train-1"], "`cluster-agent suspend train-1` or `cluster-agent cancel train-1`"),
        (["cancel", "train-1"], "`cluster-agent suspend train-1` or `cluster-agent cancel train-1`"),
        (["delete", "train-1"], "`cluster-agent delete train-1`"),
    ],
)
def test_a_job_of_an_agent_is_changed_by_that_agent_alone_unless_it_is_gone(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], ways: str
) -> None:
    job = make_job(tmp_path, "pass")
    write_json(job.state_file, {"phase": "finished", "step": 7})
    launcher_lock(typed.jobs, job.name).touch()
    assert typed(*words) == (2, "", KEPT.format(ways))
    assert typed("status", job.name)[0] == typed("list")[0] == 0, "whoever only looks may"
    monkeypatch.setenv(AGENT_MARK, str(typed.jobs / "another"))
    assert typed(*words)[2] == KEPT.format(ways)
    with monkeypatch.context() as by_the_agent:
        by_the_agent.setenv(AGENT_MARK, str(job.path))
        assert "cluster agent" not in typed(*words)[2]
    if words[0] != "delete":
        assert "cluster agent" not in typed(*words, "--anyway")[2]


def test_a_job_of_an_agent_is_deleted_anyway_where_that_is_said(typed: Typed, tmp_path: Path) -> None:
    job = make_job(tmp_path, "pass")
    launcher_lock(typed.jobs, job.name).touch()
    assert typed("delete", job.name, "--anyway") == (0, "train-1 is deleted\n", "")
    assert not job.path.exists()
    assert not launcher_lock(typed.jobs, job.name).exists(), "the next job of this name is nobody's"


def test_what_rests_of_an_agents_job_is_gone_on_with_by_the_agent(typed: Typed, tmp_path: Path) -> None:
    job = make_job(tmp_path, "pass")
    launcher_lock(typed.jobs, job.name).touch()
    write_json(job.state_file, {"phase": "suspended", "step": 7})
    assert "train-1 does not run; `elastic-run resume train-1 --anyway" in typed("stop", job.name, "--anyway")[1]
    goes_on = "`cluster-agent resume train-1` goes on with it"
    assert typed("suspend", job.name, "--anyway")[2] == f"elastic-run: train-1 is not running; {goes_on}\n"


def test_what_rests_is_shown_from_its_folder(typed: Typed, tmp_path: Path) -> None:
    job = make_job(tmp_path, "pass")
    assert typed.json("status", job.name)["phase"] == "stopped"
    write_json(job.state_file, {"phase": "suspended", "step": 7, "durable_step": 7, "tasks": [{"task": "worker-0"}]})
    facts = typed.json("status", job.name)
    assert (facts["phase"], facts["step"], facts["tasks"], facts["launcher"]) == ("suspended", 7, [], None)
    assert facts["size"] == {"ps": 0, "workers": 0}
    write_json(job.state_file, {"phase": "running", "step": 8})
    code, out, _ = typed("list")
    assert code == 0
    assert "train-1" in out
    assert "stopped" in out
    assert typed("status", job.name)[0] == 0
    for words in (["resize", job.name, "--ps", "1"], ["suspend", job.name]):
        code, _, err = typed(*words)
        assert code == 2
        assert "is not running; `elastic-run resume train-1`" in err
    script = tmp_path / "train.py"
    script.unlink()
    code, _, err = typed("resume", job.name)
    assert (code, err.partition(";")[0]) == (2, f"elastic-run: {script}: there is no such file")
    write_json(job.state_file, {"phase": "finished", "step": 9})
    code, _, err = typed("resume", job.name)
    assert code == 2
    assert "has finished" in err
    for words in (["resize", job.name, "--ps", "1"], ["suspend", job.name]):
        assert typed(*words) == (2, "", "elastic-run: train-1 has finished; nothing of it runs that could be asked\n")


def test_a_job_whose_coordinator_does_not_answer_is_exit_code_3(typed: Typed, tmp_path: Path) -> None:
    job = make_job(tmp_path, "pass")
    with JobLock(job.path):
        code, _, err = typed("status", job.name)
        assert code == 3
        assert "is being started" in err
        write_json(job.address_file, {"address": "127.0.0.1:1", "pid": os.getpid()})
        code, _, err = typed("status", job.name, "--timeout", "5")
        assert code == 3
        assert "127.0.0.1:1" in err
        assert typed.json("list")[0]["phase"] == "unreachable"
        # The coordinator of a job that is over ends a moment before its launcher.
        write_json(job.state_file, {"phase": "finished", "step": 9})
        facts = typed.json("status", job.name)
        assert (facts["phase"], facts["step"], facts["launcher"]) == ("finished", 9, os.getpid())
        job.address_file.unlink()
        for words in (["resize", job.name, "--ps", "1"], ["suspend", job.name], ["resume", job.name]):
            code, _, err = typed(*words)
            assert (code, err) == (2, "elastic-run: train-1 has finished; nothing of it runs that could be asked\n")


def test_who_watches_a_job_looks_again_when_it_does_not_answer(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(tmp_path, "pass")
    answers = iter([{"phase": "running", "launcher": 7}, CoordinatorUnreachable("not now"), {"launcher": None}])

    def ask(folder: JobFolder, timeout_seconds: float) -> dict:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return {**resting_facts(folder), **answer}

    monkeypatch.setattr(status, "job_facts", ask)
    monkeypatch.setattr(status, "holder_of", lambda _: 7)
    code, out, _ = typed("status", job.name, "--watch", "--every", "0.1", "-o", "json")
    assert code == 0
    assert [json.loads(line)["phase"] for line in out.splitlines()] == ["running", "unreachable", "stopped"]


def test_who_watches_all_jobs_sees_those_that_come(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(seconds: float) -> None:
        assert seconds == 0.5
        if any(tmp_path.glob("jobs/*")):
            raise KeyboardInterrupt
        make_job(tmp_path, "pass")

    monkeypatch.setattr(status.time, "sleep", pause)
    code, out, err = typed("list", "--watch", "--every", "0.5", "-o", "csv")
    assert (code, err) == (0, "")
    heading, row = out.splitlines()
    assert heading == "job,phase,PSs,workers,step,durable,script"
    assert row.split(",")[1:6] == ["stopped", "0", "0", "0", "0"]


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    job = make_job(tmp_path_factory.mktemp("cli"), WAITS)
    with Launcher(job) as launcher:
        launcher.pids(3)
        wait_for(job.address_file.exists, "address")
        yield launcher
        assert launcher.process.poll() is None or launcher.process.returncode == 0


@pytest.fixture
def running(typed: Typed, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    typed.jobs = launcher.job.path.parent
    monkeypatch.setenv("ELASTIC_JOBS", str(typed.jobs))
    return launcher


@pytest.mark.heavy
def test_a_running_job_is_resized_and_shown(typed: Typed, running: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    name = running.job.name
    facts = typed.json("status", name)
    assert facts["launcher"] == running.process.pid
    assert (facts["job"], facts["phase"], facts["step"], facts["size"]) == (
        name,
        "running",
        12,
        {"ps": 1, "workers": 1},
    )
    assert name in typed("list")[1]
    assert typed.json(
        "resize", name, "--workers", "3", "--victim", "worker-0", "--mode", "stop-the-world", "--request-id", "r1"
    ) == {
        "request_id": "r1",
        "state": "done",
        "detail": "moved",
    }
    assert "resize 1 3 worker-0 2" in running.state()["calls"]
    assert typed.json("resize", name, "--ps", "2", "--no-wait")["state"] == "running"
    assert typed.json("resize", name, "--victim", "worker-0")["state"] == "done"
    assert "resize 1 1 worker-0 1" in running.state()["calls"], "another one, at the same size"
    for cores, warned in ((2, "3 workers are more than the 2 cores here; they share them"), (3, "")):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        code, _, err = typed("resize", name, "--workers", "3", "--no-wait")
        assert (code, err) == (0, f"elastic-run: {warned}\n" if warned else "")


@pytest.mark.heavy
def test_what_the_job_refuses_or_gives_up_is_said_in_its_words(typed: Typed, running: Launcher) -> None:
    name = running.job.name
    code, _, err = typed("resize", name, "--workers", "9")
    assert (code, err) == (2, "elastic-run: at most 8 workers\n")
    code, _, err = typed("resize", name, "--ps", "7")
    assert (code, err) == (1, "elastic-run: no room for 7\n")
    code, _, err = typed("resume", name)
    assert code == 2
    assert "is running, not suspended" in err
    token = running.job.token_file.read_text()
    running.job.token_file.write_text("x" * 40)
    code, _, err = typed("status", name)
    running.job.token_file.write_text(token)
    assert code == 2
    assert err.startswith(f"elastic-run: wrong token for job {name}: ")


@pytest.mark.heavy
def test_a_job_is_suspended_resumed_and_stopped(typed: Typed, running: Launcher) -> None:
    name = running.job.name
    assert typed.json("suspend", name)["state"] == "done"
    wait_for(lambda: "is suspended; `elastic-run resume" in running.output(), "suspension")
    code, _, err = typed("resize", name, "--workers", "3", "--folder", str(typed.jobs))
    assert (code, "is suspended; `elastic-run resume" in err) == (2, True)
    assert running.process.poll() is None
    assert typed.json("resume", name, "--workers", "2")["state"] == "done"
    workers = wait_for(lambda: [t for t in running.pids(3) if t in ("worker-1", "worker-2")], "workers")
    assert workers
    assert typed("stop", name)[0] == 0
    assert running.end() == 0
    # Asked for again, both are done: nothing is to do.
    again = typed("stop", name)
    assert again == (0, f"{name} does not run; `elastic-run resume {name}` goes on with it\n", "")
    assert typed.json("stop", name) == {"job": name, "stopped": True}


def test_an_option_of_ours_behind_the_script_is_said_to_go_to_it(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_supervise", lambda *_: None)  # it need not train
    script = tmp_path / "train.py"
    script.write_text("import elastic_runtime")
    for words, says in (
        (["--ps", "1"], "--ps goes to the script; write it before the script if it is meant for elastic-run"),
        (["--ps", "1", "--name=x"], "--ps and --name go to the script; write it before the script if they are meant"),
    ):
        code, _, err = typed(str(script), *words)
        assert (code, err.count("\n")) == (0, 1)
        assert err.startswith(f"elastic-run: {says}")
    assert typed("--ps", "1", str(script), "--lr", "0.1") == (0, "", "")
