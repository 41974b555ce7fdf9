"""What users type about their jobs, and what they read."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from job_shell import Shell

from cluster_agent.backends.local.job_table import JobState
from cluster_agent.jobs import commands
from cluster_agent.jobs.client import JobClient
from cluster_agent.jobs.commands import JobLogs
from cluster_agent.jobs.views import one_job
from policy_net.domain import Allocation

FILE = """
modelType: digits-cnn
work: {epochs: 3}
worker: {max: 2, cpu: 500m}
script: train.py
args: ["--epochs", "3"]
"""


def test_a_file_is_submitted_listed_and_shown(shell: Shell) -> None:
    said = shell.type("submit", shell.file("job.yaml", FILE), "--name", "digits")
    assert said.out == "digits is queued; `cluster-agent job digits` says how it is\n"
    shell.decide(digits=Allocation(2, 1))
    (facts,) = shell.type("jobs", "-o", "json").json
    assert (facts["name"], facts["state"], facts["workers"], facts["ps"]) == ("digits", "running", 2, 1)
    assert facts["may"]["workers"] == {"min": 1, "max": 2, "cpu": 0.5, "gpu": 0}
    table = shell.type("jobs").out.splitlines()
    assert table[0].split()[:5] == ["name", "type", "state", "workers", "PSs"]
    assert table[2].split()[:5] == ["digits", "digits-cnn", "running", "2", "1"]
    shown = shell.type("job", "digits").out
    assert "2 workers, 1 parameter server" in shown
    assert "1–2 workers of 0.5 cores and 1–2 parameter servers of 0.5 cores; resized while it trains" in shown
    assert "waited" in shown, "for its turn"
    assert "in resizes" not in shown
    assert yaml.safe_load(shell.type("job", "digits", "-o", "yaml").out)["args"] == ["--epochs", "3"]


def test_what_was_counted_earlier_than_the_rest_is_shown_with_its_age(shell: Shell) -> None:
    shell.type("submit", shell.file("job.yaml", FILE), "--name", "digits")
    waiting = shell.type("job", "digits", "-o", "json").json
    assert (waiting["measuredUnixSeconds"], waiting["lastLineUnixSeconds"]) == (None, None)
    shell.decide(digits=Allocation(1, 1))
    counted = shell.world.now
    facts = shell.type("job", "digits", "-o", "json").json
    assert facts["measuredUnixSeconds"] == pytest.approx(counted, abs=0.2)
    shell.world.wait(23.0)  # nobody looks at what only trains
    (later,) = shell.world.backend.table
    facts = dict(shell.world.backend.facts(later))
    assert facts["ageSeconds"] == pytest.approx(waiting["ageSeconds"] + shell.world.now - 1000.0, abs=0.2)
    shown = facts_shown(facts, shell.world.now)
    aged = {name for name, value in shown.items() if value.endswith("(23s ago)")}
    assert aged == {"has", "progress", "samples"}, "the state and the times are of now"
    new = dict(shell.world.backend.facts(later)) | {"measuredUnixSeconds": shell.world.now - 3.0}
    shown = facts_shown(new, shell.world.now + 8 * 3600.0)  # the machine has slept, or somebody has set its clock
    assert not any("ago" in value for value in shown.values())
    shell.world.jobs["digits"].lose_coordinator()
    shell.world.backend.observe()  # what its launcher wrote down last is no newer than what was counted
    assert shell.world.backend.facts(later)["measuredUnixSeconds"] == facts["measuredUnixSeconds"]


def facts_shown(facts: dict[str, object], now_unix_seconds: float) -> dict[str, str]:
    return dict(one_job({**facts, "lastLine": None}, now_unix_seconds).facts)


def test_a_command_is_submitted_with_options(shell: Shell) -> None:
    words = ["--name", "one", "--epochs", "9", "--workers", "1-3", "--cpu", "500m", "--ps", "2", "--ps-cpu", "0.25"]
    facts = shell.type("submit", *words, "-o", "json", "--", "python", "train.py", "--lr", "0.1").json
    assert facts["args"] == ["--lr", "0.1"]
    assert facts["may"] == {
        "workers": {"min": 1, "max": 3, "cpu": 0.5, "gpu": 0},
        "ps": {"min": 2, "max": 2, "cpu": 0.25, "gpu": 0},
    }
    assert facts["modelType"] == "train"


def test_gpus_of_a_worker_are_an_option(shell: Shell) -> None:
    said = shell.type("submit", "--gpu", "60", "--", "python", "train.py")
    assert said.code == 2
    assert said.err.endswith("and 60 GPUs; this machine's jobs have 6 cores and no GPU\n")
    said = shell.type("submit", "--cpu", "1", "--gpu", "1", "--", "python", "train.py")
    assert " cores and 1 GPU; this machine's jobs have 6 cores and no GPU" in said.err


def test_a_job_that_has_ended_is_deleted_and_its_name_is_free(shell: Shell) -> None:
    words = ("submit", "--name", "one", "--", "python", "train.py")
    shell.type(*words)
    shell.type("cancel", "one")
    assert "`cluster-agent delete one` frees its name" in shell.type(*words).err
    assert shell.type("delete", "one").out == "one is deleted\n"
    assert shell.type(*words).code == 0


def test_options_go_before_what_a_file_says(shell: Shell) -> None:
    path = shell.file("job.yaml", FILE)
    facts = shell.type("submit", path, "--workers", "1-4", "--model-type", "other", "--suspend", "-o", "json").json
    assert facts["may"]["workers"] == {"min": 1, "max": 4, "cpu": 0.5, "gpu": 0}
    assert (facts["modelType"], facts["state"]) == ("other", "held")
    assert "is held until `cluster-agent resume`" in shell.type("submit", path, "--suspend").out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["none.yaml"], "none.yaml: cannot be read (No such file or directory); name a job file"),
        (["--", "torchrun", "train.py"], "torchrun: give the script itself, as in `-- python train.py`"),
        (["train"], "a job is a file (.yaml), or a command such as `-- python train.py --lr 0.1`"),
        (["none.py"], "none.py: there is no such file"),
        (["--time-limit", "0", "train.py"], "train.py: key timeLimit = '0': use a length above 0"),
        (["--depends-on", "gone", "train.py"], "no job named gone"),
        (["--depends-on", "a", "--depends-on", "a:any", "train.py"], "train.py: dependsOn: names a job twice"),
        (["--notify", "", "train.py"], "train.py: notify: names nothing; give a command, or a URL"),
        (["--notify", "gopher://host", "train.py"], "notify = gopher://host: nothing can be sent there"),
        (["--notify", "no-such-program", "train.py"], "there is no such program that may be run"),
        (["--name", "me", "--depends-on", "me", "train.py"], "train.py: dependsOn: me is the job itself"),
        (["--", "python"], "python: name a script behind it"),
        (["--", "python", "-c", "print()"], "python -c: put the code into a file, and submit that"),
        (["--", "/none/python", "train.py"], "/none/python: there is no such program that may be run"),
        (["--", "./typo.yaml", "1"], "./typo.yaml: may not be run; `chmod +x` it, or name what runs it"),
        (["train.py", "--workers", "2-x"], "--workers 2-x: use a number, or MIN-MAX such as 1-4"),
        (["train.py", "--workers", "3-2"], "worker: max = 2 is below min = 3"),
        (["train.py", "--cpu", "20"], "train.py: needs at least 20.5 cores; this machine's jobs have 6 cores"),
        (["train.py", "--name", "Big"], "name = 'Big': use lower case letters, digits and -"),
        (["typo.yaml"], "typo.yaml: unknown key work.epoch; did you mean epochs?"),
    ],
)
def test_what_cannot_be_submitted_is_said_in_a_line_and_nothing_is_kept(
    shell: Shell, words: list[str], line: str
) -> None:
    shell.file("typo.yaml", FILE.replace("epochs: 3", "epoch: 3"))
    said = shell.type("submit", *words)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert line in said.err
    assert shell.type("jobs", "-o", "json").json == []


@pytest.mark.parametrize(
    ("words", "interpreter", "script", "args"),
    [
        (["python", "train.py", "-m", "x"], None, "train.py", ["-m", "x"]),
        (["python3", "-u", "train.py"], None, "train.py", []),
        (["python", "-W", "ignore", "-O", "plain.py", "1"], ["python", "-W", "ignore", "-O"], "plain.py", ["1"]),
        (["python", "-m", "pkg.fit", "--lr", "1"], ["python", "-m"], None, ["--lr", "1"]),
        (["python", "-mpkg.fit"], ["python", "-m"], None, []),
        (["env/bin/python", "plain.py"], ["{here}/env/bin/python"], "plain.py", []),
        (["./run.sh", "a b"], [], "run.sh", ["a b"]),
        (["sh", "run.sh"], ["{sh}"], "run.sh", []),
        (["sh", "-e", "run.sh"], [], "{sh}", ["-e", "run.sh"]),
    ],
)
def test_a_command_is_run_as_it_is_typed(
    shell: Shell, words: list[str], interpreter: list[str] | None, script: str | None, args: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    shell.file("plain.py", "print()\n")
    (shell.folder / "env" / "bin").mkdir(parents=True)
    (shell.folder / "env" / "bin" / "python").symlink_to(sys.executable)
    (shell.folder / shell.file("run.sh", "#!/bin/sh\n")).chmod(0o700)
    here, sh = str(shell.folder), str(shutil.which("sh"))
    found = shell.type("submit", "-o", "json", "--name", "one", "--", *words).json
    named = [word.format(here=here, sh=sh) for word in interpreter] if interpreter is not None else None
    where = "pkg.fit" if script is None else script.format(sh=sh)
    assert found["interpreter"] == named
    assert found["script"] == (where if script is None else str(shell.folder / where))
    assert (found["args"], found["workdir"]) == (args, here)
    fixed = script not in ("train.py",)
    shown = shell.type("job", "one").out
    assert ("starts" in shown) == (not fixed and interpreter is not None)
    assert " ".join([*(named or []), found["script"], *args])[:60] in shown.replace("\n", " ")


def test_an_active_environment_is_what_python_means(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.file("plain.py", "print()\n")
    (shell.folder / "env" / "bin").mkdir(parents=True)
    (shell.folder / "env" / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setenv("CONDA_PREFIX", str(shell.folder / "env"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    found = shell.type("submit", "-o", "json", "--", "python", "plain.py").json
    assert found["interpreter"] == [str(shell.folder / "env" / "bin" / "python")]
    monkeypatch.setenv("CONDA_PREFIX", sys.prefix)
    assert shell.type("submit", "-o", "json", "--", "python", "plain.py").json["interpreter"] is None


def test_a_job_has_the_variables_that_are_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "here")
    monkeypatch.setenv("ELASTIC_COORDINATOR", "of another job")
    shell.file("vars", "# of the night\nexport TOKEN='a b'\n\nMINE\nWIDE= x=y \n")
    shell.file("job.yaml", "modelType: x\nscript: train.py\nenv: {MINE: file, OWN: file}\n")

    def submitted(*words: str) -> dict[str, str]:
        name = shell.type("submit", "-o", "json", *words).json["name"]
        record = shell.world.backend.table.get(name)
        assert record is not None
        return record.file.env

    assert submitted("job.yaml") == {"MINE": "file", "OWN": "file"}
    given = ("--env", "MINE", "--env", "NEW=a,b=c", "--env-file", "vars", "job.yaml")
    assert submitted(*given) == {"MINE": "here", "OWN": "file", "TOKEN": "a b", "WIDE": " x=y", "NEW": "a,b=c"}
    assert submitted("--export", "MINE,B=2", "--", "python", "train.py") == {"MINE": "here", "B": "2"}
    assert submitted("--export", "NONE", "--", "python", "train.py") == {}
    everything = submitted("--export", "ALL,B=2", "job.yaml")
    assert everything.items() >= {"MINE": "file", "B": "2", "PATH": os.environ["PATH"]}.items()
    assert not {"ELASTIC_COORDINATOR", "PWD", "SHLVL"} & everything.keys()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--env", "NOT_HERE"], "--env NOT_HERE: is not set here; give NOT_HERE=VALUE"),
        (["--env", "=x"], "--env =x: is no variable; use NAME, or NAME=VALUE"),
        (["--export", "NOT_HERE"], "--export NOT_HERE: is not set here"),
        (["--env-file", "gone"], "--env-file gone: cannot be read (No such file or directory); name a file"),
        (["--env-file", "odd"], "--env-file odd, line 2, two words: is no variable"),
        (["--env-file", "bytes"], "--env-file bytes: is no UTF-8 text"),
        (["--env", "A=" + 70_000 * "x"], "args and env have 70003 bytes, and may have 65536"),
    ],
)
def test_variables_that_cannot_be_are_refused_in_a_line(shell: Shell, words: list[str], line: str) -> None:
    shell.file("odd", "A=1\ntwo words\n")
    (shell.folder / "bytes").write_bytes(b"A=\xff\n")
    said = shell.type("submit", *words, "--", "python", "train.py")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert line in said.err
    assert shell.type("jobs", "-o", "json").json == []


def test_what_a_job_waits_for_and_how_long_it_may_train_is_shown(shell: Shell) -> None:
    assert shell.type("submit", "--name", "first", "--", "python", "train.py").code == 0
    words = ("--depends-on", "first:any", "--time-limit", "1-12:00:00", "--notify", "/bin/echo it ended", "--requeue")
    words += ("--", "/bin/true")
    facts = shell.type("submit", "--name", "second", "-o", "json", *words).json
    assert (facts["dependsOn"], facts["depends"]) == (["first:any"], True)
    assert (facts["requeue"], facts["restarts"]) == (True, 0)
    assert (facts["timeLimit"], facts["timeLeftSeconds"]) == ("1-12:00:00", 129_600.0)
    shown = shell.type("job", "second").out
    assert "1-12:00:00, 1d12h left" in shown
    assert "queued, waits for first" in shown
    assert "/bin/echo it ended" in shown
    assert shell.type("explain", "second", "-o", "json").json["waitsFor"] == "the end of first, on which it depends"


def test_a_machine_without_jobs_says_how_to_hand_one_over(shell: Shell) -> None:
    assert shell.type("jobs").out == "no jobs; `cluster-agent submit` hands one over\n"


def test_ended_jobs_can_be_left_out(shell: Shell) -> None:
    shell.type("submit", "--name", "gone", "--", "python", "train.py")
    assert shell.type("cancel", "gone").out == "gone is cancelled\n"
    shell.type("submit", "--name", "here", "--", "python", "train.py")
    assert [job["name"] for job in shell.type("jobs", "--active", "-o", "json").json] == ["here"]
    assert [job["name"] for job in shell.type("jobs", "-o", "json").json] == ["gone", "here"]


def test_a_running_job_is_held_and_let_go(shell: Shell) -> None:
    shell.type("submit", "--name", "one", "--epochs", "90", "--", "python", "train.py")
    shell.decide(one=Allocation(1, 1))
    assert shell.type("suspend", "one").out == "one is running, and will be held\n"
    shell.decide(one=Allocation(0, 0))
    assert shell.type("jobs", "-o", "json").json[0]["state"] == "held"
    assert shell.type("resume", "one").out == "one is no longer held, and waits for its turn\n"
    shell.decide(one=Allocation(1, 1))
    assert shell.type("resume", "one").out == "one is running\n"


def test_logs_are_of_all_tasks_or_of_one(shell: Shell) -> None:
    shell.type("submit", "--name", "one", "--", "python", "train.py")
    said = shell.type("logs", "one")
    assert (said.code, said.err) == (2, "cluster-agent: one: has written nothing yet; it has not been started\n")
    facts = shell.type("job", "one", "-o", "json").json
    Path(facts["log"]).write_text("elastic-run: one is running\n", encoding="utf-8")
    Path(facts["logs"]).mkdir(parents=True)
    (Path(facts["logs"]) / "worker-0.log").write_text("loss 1\nloss 2", encoding="utf-8")
    (Path(facts["logs"]) / "ps-0.log").write_text("here\n", encoding="utf-8")
    everything = "elastic-run: one is running\nps-0 | here\nworker-0 | loss 1\nworker-0 | loss 2\n"
    assert shell.type("logs", "one").out == everything
    assert shell.type("logs", "one", "--task", "worker-0").out == "loss 1\nloss 2\n"
    last = "elastic-run: one is running\nps-0 | here\nworker-0 | loss 2\n"
    assert shell.type("logs", "one", "--tail", "1").out == shell.type("logs", "one", "-n", "1").out == last
    assert shell.type("logs", "one", "-n", "0").out == ""
    said = shell.type("logs", "one", "--task", "worker-7")
    assert "has written nothing as worker-7; its tasks are ps-0, worker-0" in said.err
    shell.type("cancel", "one")
    assert shell.type("logs", "one", "-f").out == everything, "it ends with its job"


def test_of_what_begins_after_the_first_look_all_lines_are_shown(tmp_path: Path) -> None:
    (tmp_path / "ps-0.log").write_bytes(b"a\nb\n")
    logs = JobLogs(tmp_path / "launcher.log", tmp_path, tail=1)
    assert [*logs.read()] == [b"ps-0 | b\n"]
    (tmp_path / "worker-0.log").write_bytes(b"c\nd\n")
    assert [*logs.read()] == [b"worker-0 | c\n", b"worker-0 | d\n"]


def test_of_a_job_that_has_not_begun_all_is_new_however_few_lines_were_asked_for(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.type("submit", "--name", "one", "--", "python", "train.py")
    logs = Path(shell.type("job", "one", "-o", "json").json["logs"])

    def begin_and_end(_: float) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        (logs / "worker-0.log").write_bytes(b"first\nsecond\n")
        cancel("one")

    def cancel(name: str) -> None:
        client = JobClient(shell.socket)
        client.call("cancel", {"name": name})

    monkeypatch.setattr(commands, "time", SimpleNamespace(sleep=begin_and_end))
    said = shell.type("logs", "one", "-f", "-n", "0")
    assert said.out == "worker-0 | first\nworker-0 | second\n"


def test_several_jobs_are_cancelled_at_once_and_none_where_a_name_is_none(shell: Shell) -> None:
    for name in ("one", "two", "three", "four"):
        shell.type("submit", "--name", name, "--", "python", "train.py")
    said = shell.type("cancel", "one", "gone")
    assert (said.code, said.out, said.err) == (2, "", "cluster-agent: no job named gone; did you mean one?\n")
    assert shell.type("job", "one", "-o", "json").json["state"] == "queued"
    said = shell.type("cancel", "one", "two", "one")
    assert (said.code, said.out) == (0, "one is cancelled\ntwo is cancelled\n")
    rows = shell.type("cancel", "three", "four", "-o", "json").json
    assert [(row["name"], row["state"]) for row in rows] == [("three", "cancelled"), ("four", "cancelled")]
    assert shell.type("cancel", "three", "-o", "json").json["state"] == "cancelled"


def test_several_jobs_are_deleted_at_once_and_none_where_a_name_is_none(shell: Shell) -> None:
    for name in ("one", "two", "three"):
        shell.type("submit", "--name", name, "--", "python", "train.py")
        shell.type("cancel", name)
    said = shell.type("delete", "one", "gone")
    assert (said.code, said.out, said.err) == (2, "", "cluster-agent: no job named gone; did you mean one?\n")
    shell.type("submit", "--name", "waits", "--", "python", "train.py")
    said = shell.type("delete", "one", "waits", "-o", "json")
    assert (said.code, said.out) == (2, "")
    assert "waits has not ended, so none is deleted; end it with `cluster-agent cancel waits`" in said.err
    assert shell.type("delete", "one", "two", "one", "-o", "wide").out == "one is deleted\ntwo is deleted\n"
    shell.type("cancel", "waits")
    shell.type("delete", "waits")
    assert [job["name"] for job in shell.type("jobs", "-o", "json").json] == ["three"]
    shell.type("submit", "--name", "four", "--", "python", "train.py")
    shell.type("cancel", "four")
    assert [facts["deleted"] for facts in shell.type("delete", "three", "four", "-o", "json").json] == [True, True]


def test_lines_are_shown_once_and_whole_while_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    logs = JobLogs(tmp_path / "launcher.log", tmp_path)
    path.write_bytes(b"a\nb")
    assert [*logs.read(last=False)] == [b"worker-0 | a\n"]
    path.write_bytes(b"a\nbc\n")
    assert [*logs.read(last=False)] == [b"worker-0 | bc\n"]
    path.write_bytes(b"new\n")
    assert [*logs.read()] == [b"worker-0 | new\n"]
    assert [*logs.read()] == []


def test_the_program_answers_the_shell_that_completes(shell: Shell) -> None:
    shell.type("submit", "--name", "digits-a", "--", "python", "train.py")
    asked = {"_CLUSTER_AGENT_COMPLETE": "complete_bash", "COMP_WORDS": "cluster-agent job dig", "COMP_CWORD": "2"}
    command = [sys.executable, "-m", "cluster_agent.cli"]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["plain,digits-a"]


def test_names_are_completed_for_the_shell(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from cluster_agent.jobs.client import names_that_begin

    for name in ("digits-a", "digits-b", "gpt"):
        shell.type("submit", "--name", name, "--", "python", "train.py")
    assert names_that_begin("dig") == ["digits-a", "digits-b"]
    monkeypatch.setenv("CLUSTER_AGENT_SOCKET", str(shell.folder / "nobody.sock"))
    assert names_that_begin("dig") == []


def test_several_files_and_documents_and_standard_input_are_submitted_in_their_order(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = shell.file("two.yaml", f"name: a\n{FILE}---\nname: b\n{FILE}")
    one = shell.file("one.yaml", f"name: c\n{FILE}")
    said = shell.type("submit", two, one).out.splitlines()
    assert [line.split()[0] for line in said] == ["a", "b", "c"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"name: d\n{FILE}".encode())))
    assert shell.type("submit", "-", "-o", "json").json["name"] == "d"
    named = shell.type("submit", two, "--name", "e")
    assert (named.code, named.err) == (2, "cluster-agent: --name e: there are 2 jobs; name them in their files\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"- 1")))
    nothing = shell.type("submit", "-")
    assert (nothing.code, "standard input: describes no job" in nothing.err) == (2, True)
    taken = shell.type("submit", shell.file("both.yaml", f"name: f\n{FILE}---\nname: a\n{FILE}"))
    assert (taken.code, taken.out.split()[0]) == (2, "f"), "what was taken before is told"
    assert "there is a job a already" in taken.err
    assert [row["name"] for row in shell.type("jobs", "-o", "json").json] == ["a", "b", "c", "d", "f"]


def test_who_waits_for_a_job_learns_of_its_end_by_the_exit_code(shell: Shell) -> None:
    shell.type("submit", shell.file("job.yaml", FILE), "--name", "good")
    shell.type("submit", "job.yaml", "--name", "bad")
    (shell.folder / "good" / "x").mkdir(parents=True)
    table = shell.world.backend.table
    table.change("good", state=JobState.DONE, ended_unix_seconds=5.0)
    table.change("bad", state=JobState.FAILED, ended_unix_seconds=5.0, failure="worker-0 ended with exit code 3")
    for name in ("good", "bad"):
        logs = Path(shell.type("job", name, "-o", "json").json["logs"])
        logs.mkdir(parents=True, exist_ok=True)
        (logs / "worker-0.log").write_text("--- worker-0 starts as process 1\nthe end\n\n", encoding="utf-8")
    good, bad = shell.type("logs", "good", "-f"), shell.type("logs", "bad", "-f")
    assert (good.code, good.err) == (0, "")
    assert bad.code == 1
    assert bad.err == ("cluster-agent: bad has failed: worker-0 ended with exit code 3; see `cluster-agent logs bad`\n")
    assert shell.type("logs", "bad").code == 0, "who only reads is told what there is"
    assert "said last  the end\n" in shell.type("job", "bad").out, "just now"
    os.utime(logs / "worker-0.log", (time.time() - 125.0,) * 2)
    assert "said last  the end (2m05s ago)\n" in shell.type("job", "bad").out
    facts = shell.type("job", "bad", "-o", "json").json
    assert facts["lastLine"] == "the end"
    assert facts["lastLineUnixSeconds"] == pytest.approx(time.time() - 125.0, abs=60.0)


@pytest.mark.parametrize(("state", "note"), [(JobState.CANCELLED, ""), (JobState.DONE, ""), (JobState.DONE, "said 9")])
def test_a_submission_that_waits_ends_with_its_job(shell: Shell, state: JobState, note: str) -> None:
    path, done = shell.file("job.yaml", FILE), []

    def end_it() -> None:
        while (record := shell.world.backend.table.get("late")) is None:
            time.sleep(0.01)
        ended = record.submitted_unix_seconds + 75.0
        shell.world.backend.table.change("late", state=state, ended_unix_seconds=ended, misstated=note)
        done.append(True)

    thread = threading.Thread(target=end_it)
    thread.start()
    said = shell.type("submit", path, "--name", "late", "--wait")
    thread.join()
    assert done == [True]
    if state is JobState.DONE:
        line = "late is done after 1m15s" + (f"; {note}" if note else "")
        assert (said.code, said.err, said.out.splitlines()[-1]) == (0, "", line)
    else:
        assert (said.code, said.err) == (1, "cluster-agent: late was cancelled\n")


def test_what_is_watched_in_yaml_is_a_stream_of_documents(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.type("submit", shell.file("job.yaml", FILE), "--name", "a")

    def change(seconds: float) -> None:
        """Something happens while the command waits; then its user has seen enough."""
        del seconds
        if not table.get("a").held:
            table.change("a", held=True)
        else:
            raise KeyboardInterrupt

    table = shell.world.backend.table
    monkeypatch.setattr("cluster_agent.jobs.commands.time.sleep", change)
    said = shell.type("jobs", "--watch", "-o", "yaml")
    states = [[job["state"] for job in document] for document in yaml.safe_load_all(said.out)]
    assert states == [["queued"], ["held"]]
    assert (said.code, said.err) == (0, "")
