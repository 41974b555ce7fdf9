"""The commands `cluster-agent submit` and `simulate`: a job as its user describes it, by a file or a command line.

To foresee a job of this machine, the agent says what it knows (`forecast.py`); for a manifest (`-f`) the cluster
is read (`cluster_forecast.py`).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster_agent.errors import BadJobFile
from cluster_agent.jobs.client import JobClient, Socket, check_done, wait_for_end
from cluster_agent.jobs.cluster_access import Config, Context, Kubeconfig
from cluster_agent.jobs.views import clock_time, jobs_table
from foundation.output import Form, Output, show
from foundation.text import plain_line

_STARTERS = frozenset({"torchrun", "accelerate", "deepspeed", "mpirun", "horovodrun"})
"""Programs that start a script's processes, which the agent does itself."""
Described = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE... | -- COMMAND [ARGUMENTS]...", help="Job files (YAML; - is standard input), or a command."
    ),
]
JobName = Annotated[str | None, typer.Option("--name", help="The job's; from its script unless given.")]
ModelType = Annotated[str | None, typer.Option("--model-type", help="What it trains; the script's name.")]
Epochs = Annotated[float | None, typer.Option(min=0.0, help="How much it has to do, where its file is none.")]
Workers = Annotated[str | None, typer.Option(metavar="MIN-MAX", help="How many workers it may have.")]
Servers = Annotated[str | None, typer.Option("--ps", metavar="MIN-MAX", help="How many parameter servers.")]
Cpu = Annotated[str | None, typer.Option(help="Cores of one worker, such as 1 or 500m.")]
Gpu = Annotated[int | None, typer.Option("--gpu", min=0, max=64, help="GPUs of one worker.")]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME[=VALUE]", help="A variable of the job; as it is here, unless given a value."),
]
EnvFile = Annotated[
    list[Path] | None, typer.Option("--env-file", help="Variables of the job, NAME=VALUE a line; # begins a comment.")
]
Export = Annotated[
    str | None,
    typer.Option("--export", metavar="ALL|NONE|NAMES", help="Variables as they are here: all, or names with commas."),
]
TimeLimit = Annotated[
    str | None,
    typer.Option("--time-limit", help="How long it may train (30m, 2h, 1-12:00:00), or a time: 2026-12-24T18:00."),
]
DependsOn = Annotated[
    list[str] | None,
    typer.Option(
        "--depends-on", metavar="JOB[:ok|any]", help="Begin after a job is done, or (any) has ended; repeatable."
    ),
]
Notify = Annotated[
    str | None,
    typer.Option(
        "--notify", metavar="COMMAND|URL", help="Run a command at its end, or send a URL how it ended (JSON)."
    ),
]
Requeue = Annotated[
    bool, typer.Option("--requeue", help="It writes its own checkpoints: it may be stopped, and is started again.")
]
PsCpu = Annotated[str | None, typer.Option("--ps-cpu", help="Cores of one parameter server, such as 1 or 500m.")]


def submit(
    job: Described,
    name: JobName = None,
    model_type: ModelType = None,
    epochs: Epochs = None,
    workers: Workers = None,
    ps: Servers = None,
    cpu: Cpu = None,
    ps_cpu: PsCpu = None,
    gpu: Gpu = None,
    env: Env = None,
    env_file: EnvFile = None,
    export: Export = None,
    time_limit: TimeLimit = None,
    depends_on: DependsOn = None,
    notify: Notify = None,
    requeue: Requeue = False,
    suspend: Annotated[bool, typer.Option(help="Take it, and wait for `cluster-agent resume`.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Until all have ended; exit code 1 unless done.")] = False,
    socket: Socket = None,
    output: Output = Form.TABLE,
) -> None:
    """Hand jobs over: each is kept, and begins when there is capacity and it is its turn.

    A file may be changed afterwards; what counts is what was submitted.
    """
    sizes = {"worker": TaskWords(workers, cpu, gpu), "ps": TaskWords(ps, ps_cpu)}
    given: dict[str, Any] = {"name": name, "modelType": model_type, "suspend": suspend or None}
    given["work"] = None if epochs is None else {"epochs": epochs}
    given |= {"timeLimit": time_limit, "dependsOn": depends_on or None, "notify": notify, "requeue": requeue or None}
    exported = exported_variables(export, os.environ)
    stated = stated_variables(env or (), env_file or (), os.environ)
    messages = described(job, given, sizes)
    for message in messages:
        own = message["job"].get("env") or {}
        if (exported or stated) and isinstance(own, dict):
            message["job"]["env"] = {**exported, **own, **stated}
    if name is not None and len(messages) > 1:
        raise BadJobFile(f"--name {name}: there are {len(messages)} jobs; name them in their files")
    client = JobClient(socket)
    taken = []
    for message in messages:
        facts = client.call("submit", message)
        taken.append(facts)
        if output.for_people:
            waits = "held until `cluster-agent resume`" if facts["held"] else "queued"
            show(output, facts, f"{facts['name']} is {waits}; `cluster-agent job {facts['name']}` says how it is")
    if wait:
        taken = [wait_for_end(client, facts["name"]) for facts in taken]
        if output.for_people:
            for facts in taken:
                if facts["state"] == "done":  # any other end is an error's line
                    note = f"; {facts['note']}" if facts["note"] else ""
                    show(output, facts, f"{facts['name']} is done after {clock_time(facts['ageSeconds'])}{note}")
    if not output.for_people:
        show(output, taken[0] if len(taken) == 1 else taken, "", lambda: jobs_table(taken))
    if wait:
        for facts in taken:
            check_done(facts)


_OF_THE_SHELL = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "PYTHONHOME"})
"""Variables that mean nothing elsewhere, or break the agent's own Python."""
_OF_JOBS = "ELASTIC_"


def exported_variables(words: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """What `--export` names: ALL, NONE, or names and NAME=VALUE with commas between them, ALL among them or not.

    Raises:
        BadJobFile: a variable is not set.
    """
    found: dict[str, str] = {}
    if words is not None and not words.strip():
        raise BadJobFile("--export: names nothing; use ALL, NONE, or names with commas between them")
    for word in words.split(",") if words else ():
        if word == "ALL":
            own = {name for name in environment if name in _OF_THE_SHELL or name.startswith(_OF_JOBS)}
            found |= {name: value for name, value in environment.items() if name not in own}
        elif word != "NONE":
            found |= [_variable("--export", word, environment)]
    return found


def stated_variables(words: Sequence[str], files: Sequence[Path], environment: Mapping[str, str]) -> dict[str, str]:
    """What `--env` (`words`) and `--env-file` say; the words count for more.

    Raises:
        BadJobFile: a file cannot be read, a line is none, or a variable is not set.
    """
    found: dict[str, str] = {}
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise BadJobFile(f"--env-file {file}: cannot be read ({error.strerror}); name a file") from error
        except ValueError as error:
            raise BadJobFile(f"--env-file {file}: is no UTF-8 text") from error
        for number, line in enumerate(lines, 1):
            text = line.strip().removeprefix("export ").lstrip()
            if text and not text.startswith("#"):
                name, value = _variable(f"--env-file {file}, line {number},", text, environment)
                quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
                found[name] = value[1:-1] if quoted else value
    return found | dict(_variable("--env", word, environment) for word in words)


def _variable(where: str, text: str, environment: Mapping[str, str]) -> tuple[str, str]:
    name, given, value = text.partition("=")
    if not _NAME.fullmatch(name):
        raise BadJobFile(f"{where} {plain_line(text)}: is no variable; use NAME, or NAME=VALUE")
    if not given and name not in environment:
        raise BadJobFile(f"{where} {name}: is not set here; give {name}=VALUE")
    return name, value if given else environment[name]


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class TaskWords:
    """What a command line says of the tasks of a role: how many, cores and GPUs of one; None where it says nothing."""

    count: str | None
    cpu: str | None
    gpu: int | None = None

    def content(self, role: str) -> dict[str, Any]:
        """As a job file says it."""
        options: dict[str, Any] = {} if self.count is None else dict(_span(role, self.count))
        return options | {key: value for key, value in (("cpu", self.cpu), ("gpu", self.gpu)) if value is not None}


def described(words: list[str], given: dict[str, Any], sizes: dict[str, TaskWords]) -> list[dict[str, Any]]:
    """Jobs as they are sent to an agent, from files or a command (`words`), the options given and sizes by role.

    Raises:
        BadJobFile: it describes no job.
    """
    try:
        folder = Path.cwd()
    except OSError as error:
        raise BadJobFile("the folder in which this is typed is gone; change to another one") from error
    messages = []
    for source, content in _read(words):
        for role, stated in sizes.items():
            options = stated.content(role)
            tasks = content.get(role, {})
            if options and isinstance(tasks, dict):
                content[role] = {**tasks, **options}
        content |= {key: value for key, value in given.items() if value is not None}
        script = Path(str(content.get("script", "job")))
        is_module = isinstance(content.get("interpreter"), list) and content["interpreter"][-1:] == ["-m"]
        content.setdefault("modelType", script.name.rpartition(".")[2] if is_module else script.stem)
        messages.append({"job": content, "folder": str(folder), "source": source})
    return messages


def _read(words: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """The jobs of files, or of a command: `python train.py --epochs 3`, or the script alone."""
    if all(word == "-" or Path(word).suffix in {".yaml", ".yml", ".json"} for word in words):
        from cluster_agent.backends.local.job_file import read_job_files  # noqa: PLC0415  (brings numpy and pydantic)

        return [
            ("standard input" if word == "-" else word, content)
            for word in words
            for content in read_job_files(Path(word))
        ]
    if not words or words[0].startswith("-"):
        raise BadJobFile("a job is a file (.yaml), or a command such as `-- python train.py --lr 0.1`")
    content = _command(words[0], words[1:])
    return [(content["script"], content)]


def _command(first: str, words: list[str]) -> dict[str, Any]:
    """A job that is a command: a Python script, a module, or any program.

    Raises:
        BadJobFile: it is none.
    """
    from elastic_runtime.launcher.script_source import names_python  # noqa: PLC0415  (not of commands that only ask)

    name = Path(first).name
    if name in _STARTERS:
        raise BadJobFile(
            f"{first}: give the script itself, as in `-- python train.py`: the agent starts its processes, also "
            "those of torch's process group (docs/guide/local.md says how)"
        )
    if names_python(name):
        options, words = _python_options(first, words)
        python = _python_meant(first)
        interpreter = [python, *options] if options or python != _OWN else None
        return _without_none({"script": words[0], "args": words[1:], "interpreter": interpreter})
    if Path(first).suffix == ".py":
        python = _python_meant(_OWN)
        return _without_none({"script": first, "args": words, "interpreter": None if python == _OWN else [python]})
    program = shutil.which(first)
    if program is None:
        there = "may not be run; `chmod +x` it, or name what runs it" if Path(first).exists() else "is no program here"
        raise BadJobFile(
            f"{first}: {there}; a job is a file (.yaml), or a command such as `-- python train.py --lr 0.1`"
        )
    program = os.path.abspath(program)  # noqa: PTH100  (a program may look at the name by which it is called)
    if "/" not in first and words and Path(words[0]).is_file():  # `bash run.sh`: it has the script's name
        return {"script": words[0], "args": words[1:], "interpreter": [program]}
    return {"script": program, "args": words, "interpreter": []}


_OWN = "python"
"""The agent's own Python, in the words of job files."""
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})


def _python_meant(first: str) -> str:
    """The Python that a word means where it is typed: of an environment that is active, or by its path."""
    from elastic_runtime.launcher.script_source import is_own_python  # noqa: PLC0415

    if first not in (_OWN, "python3"):
        found = shutil.which(first)
        if found is None:
            raise BadJobFile(f"{first}: there is no such program that may be run")
        return os.path.abspath(found)  # noqa: PTH100  (an environment's Python is a link)
    active = next((os.environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name)), None)
    found = None if active is None else shutil.which(first, path=f"{active}/bin")
    return _OWN if found is None or is_own_python(Path(found)) else os.path.abspath(found)  # noqa: PTH100


def _python_options(first: str, words: list[str]) -> tuple[list[str], list[str]]:
    """Options of Python, the last of which may be `-m`, and what stands behind them.

    Raises:
        BadJobFile: there is nothing, or it is no script and no module.
    """
    options: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and options[-1:] != ["-m"]:
        word = rest.pop(0)
        if word in ("-", "-c") or word.startswith("-c"):
            raise BadJobFile(f"{first} {word}: put the code into a file, and submit that")
        if word.startswith("-m") and word != "-m":
            word, rest = "-m", [word[2:], *rest]
        options += [word, *(rest[:1] if word in _WITH_VALUE else ())]
        rest = rest[1:] if word in _WITH_VALUE else rest
    if not rest:
        raise BadJobFile(f"{first}: name a script behind it, such as `-- python train.py --lr 0.1`")
    return [word for word in options if word != "-u"], rest  # nobody's output is buffered


def _without_none(content: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if value is not None}


def _span(role: str, text: str) -> dict[str, int]:
    least, _, most = text.partition("-")
    try:
        return {"min": int(least), "max": int(most or least)}
    except ValueError:
        option = "--workers" if role == "worker" else "--ps"
        raise BadJobFile(f"{option} {text}: use a number, or MIN-MAX such as 1-4") from None


JobArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE... | -- COMMAND [ARGUMENTS]...",
        help="A job file (YAML; - is standard input), or a command.",
    ),
]
Manifest = Annotated[
    Path | None,
    typer.Option(
        "-f",
        "--filename",
        metavar="FILE",
        help="A Kubernetes manifest (- is standard input): a batch/v1 Job, and an ElasticTarget for it if it has one;"
        " or a TrainingJob.",
    ),
]
Samples = Annotated[
    float | None, typer.Option(min=1.0, help="How many samples it has to train, where its manifest does not say it.")
]
Hours = Annotated[
    float | None, typer.Option(min=0.001, help="How long it trains at the size of its manifest, instead of --samples.")
]
Runs = Annotated[int, typer.Option(min=1, max=1000, help="How often the future is drawn.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the first draw.")]


def simulate(
    job: JobArgument = None,
    filename: Manifest = None,
    model_type: ModelType = None,
    epochs: Epochs = None,
    workers: Workers = None,
    ps: Servers = None,
    cpu: Cpu = None,
    ps_cpu: PsCpu = None,
    gpu: Gpu = None,
    samples: Samples = None,
    hours: Hours = None,
    runs: Runs = 15,
    seed: Seed = 0,
    socket: Socket = None,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = Form.TABLE,
) -> None:
    """Say when a job would start and end if it were submitted now, with an interval; nothing is submitted."""
    if filename is not None:
        of_jobs = {"--model-type": model_type, "--epochs": epochs, "--workers": workers, "--ps": ps, "--cpu": cpu}
        _refuse(
            of_jobs | {"--ps-cpu": ps_cpu, "--gpu": gpu, "a job": job or None},
            "does not go with -f, whose manifest says it",
        )
        # Loaded here: this takes a second, and jobs of this machine need nothing of it.
        from cluster_agent.jobs.cluster_access import opened  # noqa: PLC0415

        with opened(config, kubeconfig, context) as cluster:
            from cluster_agent.jobs.cluster_forecast import JobWork, foresee_manifest, sentences  # noqa: PLC0415
            from cluster_agent.jobs.forecast import Draws  # noqa: PLC0415

            answer = foresee_manifest(cluster, filename, JobWork(samples, hours), Draws(runs, seed))
        show(output, answer, lambda: sentences(answer), [answer])
        return
    of_clusters = {"--config": config, "--kubeconfig": kubeconfig, "--context": context}
    _refuse(of_clusters | {"--samples": samples, "--hours": hours}, "goes with -f, and a Kubernetes manifest")
    if not job:
        raise BadJobFile("no job: give a job file, a command, or a Kubernetes manifest with -f")
    given = {"modelType": model_type, "work": None if epochs is None else {"epochs": epochs}}
    messages = described(job, given, {"worker": TaskWords(workers, cpu, gpu), "ps": TaskWords(ps, ps_cpu)})
    if len(messages) > 1:
        raise BadJobFile(f"there are {len(messages)} jobs; one at a time is foreseen")
    client = JobClient(socket)
    facts = client.call("simulate", messages[0])
    # As above: jobs that are submitted wait for none of it.
    from cluster_agent.jobs.forecast import forecast_text, foreseen_here  # noqa: PLC0415

    answer = foreseen_here(facts, runs, seed)
    show(output, answer, forecast_text(answer), [answer])


def _refuse(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise BadJobFile(f"{name} {why}")
