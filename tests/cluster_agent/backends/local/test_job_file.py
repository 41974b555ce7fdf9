"""Job files: what they may say, and the one line about what they may not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster_agent.backends.local.job_file import JobFile, check_job, read_job_files
from cluster_agent.errors import BadJobFile
from policy_net.domain import Allocation, JobKind, Resources


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("import elastic_runtime as elastic\n", encoding="utf-8")
    (tmp_path / "plain.py").write_text("print('no job')\n", encoding="utf-8")
    (tmp_path / "broken.py").write_text("def (:\n", encoding="utf-8")
    return tmp_path


def content(**more: Any) -> dict[str, Any]:
    return {"modelType": "cnn", "script": "train.py", **more}


def test_a_file_of_two_words_is_a_job_with_the_usual_sizes(folder: Path) -> None:
    job = check_job(content(), folder, "job.yaml")
    assert job.kind is JobKind.PS
    assert (job.requested, job.least, job.most) == (Allocation(1, 1), Allocation(1, 1), Allocation(16, 16))
    assert job.smallest == check_job(content(ps={"max": 2}), folder, "it").smallest == Resources(1500)
    assert (job.script, job.workdir) == (folder / "train.py", folder)


@pytest.mark.parametrize(
    ("sizes", "most"),
    [
        ({"worker": {"max": 1}}, 1),
        ({"worker": {"min": 2, "max": 3, "replicas": 2}}, 3),
        ({"worker": {"max": 1}, "ps": {"replicas": 2}}, 2),
        ({"worker": {"max": 1}, "ps": {"min": 4}}, 4),
        ({"worker": {"max": 2}, "ps": {"max": 9}}, 9),
    ],
)
def test_a_job_has_no_more_servers_than_workers_unless_it_asks_for_them(
    folder: Path, sizes: dict[str, Any], most: int
) -> None:
    job = check_job(content(**sizes), folder, "job.yaml")
    assert job.most.ps == most
    assert JobFile.model_validate_json(job.model_dump_json()).most.ps == most


def test_what_is_written_down_reads_back_as_it_was(folder: Path) -> None:
    job = check_job(content(worker={"min": 2, "max": 3, "replicas": 2, "cpu": 1.5}, ps={"cpu": "250m"}), folder, "it")
    assert JobFile.model_validate_json(job.model_dump_json()) == job
    assert job.worker.demand == Resources(1500)
    assert job.ps.demand == Resources(250)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"worker": {"min": 3, "max": 2}}, "max = 2 is below min = 3"),
        (
            {"worker": {"replicas": 20}},
            "worker: max = 20: a job with parameter servers has at most 16 workers; use that",
        ),
        ({"worker": {"replicas": 65}}, "key worker.replicas = 65: must be less than or equal to 64"),
        (
            {"communication": "AllReduce", "worker": {"max": 65}},
            "worker.max = 65: must be less than or equal to 64",
        ),
        ({"ps": {"max": 17}}, "key ps.max = 17: must be less than or equal to 16"),
        ({"worker": {"min": 1, "max": 2, "replicas": 4}}, "replicas = 4 is not from min = 1 to max = 2"),
        ({"worker": {"cpu": "lots"}}, "worker.cpu: use a number of cores, such as 1, 0.5 or 500m"),
        ({"worker": {"cpu": True}}, "worker: cpu = true: YAML takes yes and on for true"),
        ({"worker": {"cpu": 0}}, "above 0"),
        ({"work": {"epochs": 3, "steps": 4}}, "give epochs or steps, one of them"),
        ({"work": {"epochs": -1}}, "key work.epochs = -1: must be greater than 0"),
        ({"modeltype": "x"}, "unknown key modeltype; did you mean modelType?"),
        ({"worker": {"mn": 1}}, "unknown key worker.mn; did you mean min?"),
        ({"script": None}, "key script = nothing: use the path of a file or folder"),
        ({"worker": 3}, "key worker = 3: is a section; write worker: {min: 3}"),
        ({"worker": {"min": "two"}}, "key worker.min = 'two': use a whole number, such as 1"),
        ({"modelType": 3}, "key modelType = 3: use letters, digits, . _ and -"),
        ({"communication": "allreduce"}, "key communication = 'allreduce': must be 'PS' or 'AllReduce'"),
        ({"script": "gone.py"}, "there is no such file"),
        ({"script": "plain.py", "ps": {"max": 2}}, "ps: plain.py does not import elastic_runtime, so it runs as it is"),
        ({"script": "plain.py", "communication": "PS"}, "with a fixed size; say `elastic: true` if another module"),
        ({"script": "plain.py", "worker": {"max": 4}}, "worker: min = 1, max = 4: plain.py does not import"),
        ({"script": "broken.py"}, "is no Python"),
        ({"workdir": "gone"}, "there is no such folder"),
        ({"communication": "AllReduce", "ps": {"min": 2}}, "ps: an AllReduce job has no parameter servers"),
        ({"name": "Not/a name"}, "name"),
        ({"name": ".."}, "name = '..': use lower case letters"),
        ({"name": "night\n"}, "name = 'night\\n': use lower case letters"),
        ({"env": {"A": "x\0"}}, "env.A: holds a NUL character, which no process can be given"),
        ({"env": {"A=B": "x"}}, "a name in env, 'A=B': is no variable's name; use a letter or more, and no ="),
        ({"env": {"": "x"}}, "a name in env, '': is no variable's name"),
        ({"env": {"A": 1}}, 'key env.A = 1: use text, in quotes where it is a number: "1"'),
        ({"args": ["x\0"]}, "args.0: holds a NUL character"),
        ({"args": ["\ud800"]}, "args.0: is no UTF-8 text"),
        ({"args": "--epochs 3"}, "key args = '--epochs 3': is a list; write args: [--epochs 3]"),
        ({"args": [3]}, 'key args.0 = 3: use text, in quotes where it is a number: "3"'),
        ({"args": ["x" * 70_000]}, "args and env have 70001 bytes, and may have 65536; put them in a file"),
        ({"script": "a\0.py"}, "script: holds a NUL character"),
        ({"workdir": "a\0"}, "workdir: holds a NUL character"),
        ({"script": "."}, "there is no such file"),
        ({"work": {"epochs": float("nan")}}, "key work.epochs = nan: must be a finite number"),
        ({"work": {"steps": 10**30}}, "work: steps = "),
        (
            {"timeLimit": "0"},
            "key timeLimit = '0': use a length above 0, such as 90s, 30m, 2h or 1-12:00:00, or a time",
        ),
        ({"timeLimit": "-5m"}, "use a length above 0"),
        ({"timeLimit": 90}, "use a length above 0"),
        ({"timeLimit": "4000d"}, "use a length above 0"),
        ({"timeLimit": "2026-13-01"}, "use a length above 0"),
        ({"dependsOn": ["a:failed"]}, "key dependsOn.0 = 'a:failed': name a job; behind it :ok"),
        ({"dependsOn": "a"}, "key dependsOn = 'a': is a list; write dependsOn: [a]"),
        ({"interpreter": 3}, "key interpreter = 3"),
        ({"requeue": "perhaps"}, "key requeue = 'perhaps'"),
        ({"requeue": True}, "requeue: its script joins, and goes on from its checkpoint anyway; leave this out"),
        ({"notify": ""}, "notify: names nothing; give a command, or a URL"),
        ({"notify": "  "}, "notify: names nothing"),
        ({"notify": 3}, "key notify = 3"),
        ({"notify": "no-such-program --all"}, "notify = no-such-program --all: there is no such program that may be"),
        ({"notify": "./train.py"}, "notify = ./train.py: there is no such program that may be run"),
        ({"notify": "/bin/sh -c 'exit"}, "is no command (No closing quotation); quote it as for a shell"),
        ({"notify": "file:///etc/passwd"}, "nothing can be sent there; use http:// or https:// and a host, or a"),
        ({"notify": "ftp://host/x"}, "notify = ftp://host/x: nothing can be sent there"),
        ({"notify": "http://"}, "notify = http://: nothing can be sent there"),
        ({"notify": "https://host:99999/x"}, "nothing can be sent there"),
        ({"notify": "http://host/a b"}, "nothing can be sent there"),
        ({"notify": "http://host/ä"}, "nothing can be sent there"),
        ({"notify": "x" * 5000}, "key notify"),
        ({"interpreter": ["python", "-m"], "script": "../x"}, "script = ../x: is no name of a module, as -m needs one"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_that_says_where(folder: Path, more: dict[str, Any], line: str) -> None:
    with pytest.raises(BadJobFile) as caught:
        check_job(content(**more), folder, "job.yaml")
    said = str(caught.value)
    assert said.startswith("job.yaml: ")
    assert line in said
    assert "\n" not in said


def test_a_missing_key_is_met_with_what_to_give(folder: Path) -> None:
    with pytest.raises(BadJobFile, match=r"^job\.yaml: key script is missing; give the path of a file or folder$"):
        check_job({"modelType": "cnn"}, folder, "job.yaml")


def test_a_script_that_does_not_join_is_a_job_of_the_size_that_it_asks_for(folder: Path) -> None:
    job = check_job(content(script="plain.py"), folder, "it")
    assert job.fixed
    assert (job.least, job.most, job.requested) == (Allocation(1), Allocation(1), Allocation(1))
    assert job.kind is JobKind.ALLREDUCE
    for worker in ({"replicas": 3, "cpu": 2}, {"min": 3, "max": 3, "cpu": 2}):
        job = check_job(content(script="plain.py", worker=worker), folder, "it")
        assert (job.least, job.most, job.requested) == (Allocation(3), Allocation(3), Allocation(3))
        assert job.smallest == Resources(6000)
    assert not check_job(content(script="plain.py", elastic=True), folder, "it").fixed
    assert check_job(content(elastic=False), folder, "it").fixed


def test_an_all_reduce_job_has_workers_alone(folder: Path) -> None:
    job = check_job(content(communication="AllReduce", worker={"min": 2, "max": 4}), folder, "it")
    assert not job.fixed
    assert (job.least, job.most) == (Allocation(2), Allocation(4))


@pytest.mark.parametrize(
    ("worker", "requested", "most"),
    [
        ({}, 1, 16),
        ({"replicas": 16}, 16, 16),
        ({"replicas": 40}, 40, 40),
        ({"min": 20}, 20, 20),
        ({"max": 64}, 1, 64),
        ({"min": 2, "max": 64, "replicas": 17}, 17, 64),
    ],
)
def test_an_all_reduce_job_may_ask_for_up_to_64_workers(
    folder: Path, worker: dict[str, Any], requested: int, most: int
) -> None:
    job = check_job(content(communication="AllReduce", worker=worker), folder, "it")
    assert (job.requested, job.most) == (Allocation(requested), Allocation(most))
    assert JobFile.model_validate_json(job.model_dump_json()).most == job.most


def test_a_job_that_does_not_join_may_have_as_many(folder: Path) -> None:
    job = check_job(content(script="plain.py", worker={"replicas": 40}), folder, "it")
    assert (job.least, job.requested, job.most) == (Allocation(40), Allocation(40), Allocation(40))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", "no valid YAML"),
        ("- 1\n", "describes no job"),
        ("", "describes no job"),
        ("\x00", "no valid YAML"),
        ("a: &a [*a]\n" * 3, "no valid YAML"),
        ("modelType: x\nmodelType: y\n", "line 2: no valid YAML .modelType is given twice."),
        ("a: &a [x]\nb: [*a, *a]\n", "line 1: no valid YAML .anchors and aliases are not taken"),
        ("[" * 60_000, "sections within sections, more than 32 deep"),
        ("args: [" + "x, " * 30_000 + "]", "is larger than 65536 bytes"),
        ("#" + "x" * 10_000_000, "is larger than 65536 bytes"),
        ("? [a]\n: 2\n", "a key must be a word"),
        ("!!python/object/apply:os.system ['true']", "no valid YAML"),
        ("name: 2024-01-01\n", "name = 2024-01-01: is no text and no number; put text in quotes"),
        ("work: {epochs: .nan}\n", "work.epochs = nan: is no text and no number"),
        ("env: {A: !!binary eA==}\n", "env.A = b'x': is no text"),
        ("name: " + "9" * 9000, "is no int; put text in quotes"),
    ],
)
def test_what_is_no_job_file_is_refused(folder: Path, text: str, line: str) -> None:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadJobFile, match=line):
        read_job_files(path)


def test_what_is_no_text_and_what_is_no_file_are_refused(folder: Path) -> None:
    (folder / "binary.yaml").write_bytes(bytes(range(256)))
    (folder / "folder.yaml").mkdir()
    for name, line in (("binary.yaml", "is no UTF-8 text"), ("folder.yaml", "Is a directory")):
        with pytest.raises(BadJobFile, match=line):
            read_job_files(folder / name)
    with pytest.raises(BadJobFile, match="is larger than 65536 bytes"):
        read_job_files(Path("/dev/zero"))


def test_a_job_file_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(BadJobFile, match=r"gone.yaml: cannot be read \(No such file or directory\)"):
        read_job_files(folder / "gone.yaml")


def own_words(job: JobFile) -> tuple[str, ...]:
    return job.interpreter_words("own")


def test_what_runs_a_script_is_the_agents_python_unless_another_one_is_named(folder: Path) -> None:
    other = folder / "env" / "bin" / "python3"
    other.parent.mkdir(parents=True)
    other.symlink_to(sys.executable)
    for same in ("python", "python3", sys.executable, ["python", "-u"]):
        assert check_job(content(interpreter=same), folder, "it").interpreter is None
    job = check_job(content(script="plain.py", interpreter="env/bin/python3"), folder, "it")
    assert own_words(job) == (str(other),), "a link stays one: it is what tells an environment"
    assert own_words(check_job(content(interpreter=["python", "-O"]), folder, "it")) == ("own", "-O")
    assert job.is_python
    assert JobFile.model_validate_json(job.model_dump_json()) == job


def test_a_module_is_looked_for_below_the_working_folder(folder: Path) -> None:
    (folder / "pkg").mkdir()
    (folder / "pkg" / "fit.py").write_text("import elastic_runtime\n", encoding="utf-8")
    job = check_job({"modelType": "x", "interpreter": ["python", "-m"], "script": "pkg.fit"}, folder, "it")
    assert (own_words(job), str(job.script), job.title, job.elastic) == (("own", "-m"), "pkg.fit", "fit", True)
    installed = check_job({"modelType": "x", "interpreter": ["python", "-m"], "script": "timeit"}, folder, "it")
    assert installed.fixed


def test_a_program_is_run_as_it_is_and_has_a_fixed_size(folder: Path) -> None:
    script = folder / "run.sh"
    script.write_text("#!/bin/sh\nexec python train.py\n", encoding="utf-8")
    with pytest.raises(BadJobFile, match=r"run\.sh: is no Python"):
        check_job(content(script="run.sh"), folder, "it")
    with pytest.raises(BadJobFile, match="may not be run; `chmod \\+x` it, or name an interpreter"):
        check_job(content(script="run.sh", interpreter=[]), folder, "it")
    script.chmod(0o700)
    job = check_job(content(script="run.sh"), folder, "it")
    assert (own_words(job), job.script, job.fixed, job.is_python) == ((), script, True, False)
    assert own_words(check_job(content(script="run.sh", interpreter="sh"), folder, "it")) == (shutil.which("sh"),)
    with pytest.raises(BadJobFile, match="a script that joins is run by a Python"):
        check_job(content(script="run.sh", elastic=True), folder, "it")


def test_another_python_needs_the_runtime_for_a_script_that_joins(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    python = folder / "env" / "bin" / "python"
    (folder / "newer.py").write_text("never before = 3\n", encoding="utf-8")
    assert check_job(content(script="newer.py", interpreter=str(python)), folder, "it").fixed
    with pytest.raises(BadJobFile) as caught:
        check_job(content(interpreter=str(python)), folder, "it")
    line = f"interpreter = {python}: has no fedl2 and no torch, which a script that joins needs"
    assert line in str(caught.value)
    assert f"`{python} -m pip install fedl2 torch`" in str(caught.value)
    packages = os.pathsep.join(path for path in sys.path if path)
    assert check_job(content(interpreter=str(python), env={"PYTHONPATH": packages}), folder, "it").elastic
    with pytest.raises(BadJobFile, match=r"interpreter = gone/python: there is no such program that may be run"):
        check_job(content(interpreter="gone/python"), folder, "it")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90), ("1.5h", 5400), ("30m", 1800), ("2d", 172_800),
        ("90", 5400), ("90:30", 5430), ("2:00:05", 7205),
        ("1-12", 129_600), ("1-00:30", 88_200), ("1-12:00:01", 129_601),
    ],
)  # fmt: skip
def test_a_time_limit_is_a_length_in_the_words_of_sbatch_or_with_a_unit(folder: Path, text: str, seconds: int) -> None:
    job = check_job(content(timeLimit=text), folder, "it")
    assert (job.limit_seconds, job.ends_by) == (seconds, None)


def test_a_time_limit_may_be_a_time(folder: Path) -> None:
    job = check_job(content(timeLimit="2030-01-01T00:00:00+01:00"), folder, "it")
    assert (job.limit_seconds, job.ends_by) == (None, 1893452400.0)
    assert check_job(content(timeLimit="2030-01-01 08:30"), folder, "it").ends_by is not None


def test_a_command_for_its_end_has_its_whole_path_and_a_url_stays(folder: Path) -> None:
    (folder / "tell.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    (folder / "tell.sh").chmod(0o700)
    job = check_job(content(notify="./tell.sh 'two words' $HOME"), folder, "it")
    assert job.notify == f"{folder}/tell.sh 'two words' '$HOME'"
    job = check_job(content(notify="tell.sh", env={"PATH": str(folder)}), folder, "it")
    assert job.notify == f"{folder}/tell.sh"
    url = "https://user:word@hooks.example:8443/services/T0?x=1"
    assert check_job(content(notify=url), folder, "it").notify == url
