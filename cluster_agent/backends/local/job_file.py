"""File of a job as users submit it: what to run, which tasks it may have, and how much work it says it is.

The words are those of the Kubernetes resource, so that a file can move from a workstation to a cluster.
"""

from __future__ import annotations

import ast
import math
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from cluster_agent.errors import BadJobFile
from elastic_runtime.launcher.script_source import is_own_python, joins, names_python
from foundation.text import LONGEST_ERROR_CHARACTERS, plain_line
from policy_net.domain import MAX_ALLREDUCE_WORKERS, MAX_TASKS_PER_ROLE, Allocation, JobKind, Resources
from policy_net.errors import BadInput
from policy_net.settings import Section, text_of
from policy_net.settings_problems import FileWords, first_problems
from policy_net.strict_yaml import read_yaml_documents, shown_path

NAME = r"[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?"
JobName = Annotated[str, text_of(NAME, "use lower case letters, digits and -, with a letter or digit at both ends")]
ModelType = Annotated[
    str,
    text_of(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", "use letters, digits, . _ and -, with a letter or digit at its beginning"
    ),
]
_LARGEST_BYTES = 65_536
"""A job file has some ten lines; to read a megabyte of YAML takes a minute."""
_LONGEST_COMMAND_BYTES = 65_536
"""Of all arguments and variables: the system takes so much for one of them, and some megabytes of all."""
_MOST_CORES = 100_000
_LONGEST_NOTIFY = 4096


def _milli(value: Any) -> Any:
    """Cores as people write them: 2, 0.5, `500m`; in millicores."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}m", value):
        return int(value[:-1])
    try:
        cores = float(value)
    except (TypeError, ValueError):
        raise ValueError("use a number of cores, such as 1, 0.5 or 500m") from None
    if not 0.0 < cores <= _MOST_CORES:
        raise ValueError("use a number of cores above 0, such as 1, 0.5 or 500m")
    return round(cores * 1000)


def _passable(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character, which no process can be given")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("is no UTF-8 text") from None
    return text


def _in_words(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Word = Annotated[str, AfterValidator(_passable)]
PathName = Annotated[Path, AfterValidator(lambda path: Path(_passable(str(path))))]
Variable = Annotated[
    str, text_of("(?s)[^=]+", "is no variable's name; use a letter or more, and no ="), AfterValidator(_passable)
]
Cores = Annotated[int, BeforeValidator(_milli), Field(ge=1), PlainSerializer(lambda milli: f"{milli}m")]


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_DAYS = 3660


def _seconds_of(text: str) -> float | None:
    """A length of time as sbatch has it (minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S), or 90s, 30m, 2h, 1d; else None."""
    if found := re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])", text):
        return float(found[1]) * _UNITS[found[2]]
    found = re.fullmatch(r"(?:([0-9]{1,3})-)?([0-9]{1,7}(?::[0-9]{1,2}){0,2})", text)
    if found is None:
        return None
    parts = [float(part) for part in found[2].split(":")]
    of_day = found[1] is not None or len(parts) == 3
    units = (3600.0, 60.0, 1.0) if of_day else (60.0, 1.0)
    return float(found[1] or 0) * 86_400.0 + sum(part * unit for part, unit in zip(parts, units, strict=False))


def _moment_of(text: str) -> float | None:
    """Unix seconds of a day's time, local unless it says otherwise; None of another text."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _as_limit(value: Any) -> str:
    seconds = _seconds_of(value) if isinstance(value, str) else None
    in_range = seconds is not None and 0.0 < seconds <= _LONGEST_DAYS * 86_400.0
    if not isinstance(value, str) or not (in_range or (seconds is None and _moment_of(value) is not None)):
        raise PydanticCustomError(
            "no_such_text", "use a length above 0, such as 90s, 30m, 2h or 1-12:00:00, or a time: 2026-12-24T18:00"
        )
    return value


Dependency = Annotated[
    str,
    text_of(rf"{NAME}(:ok|:any)?", "name a job; behind it :ok (as unless said: once it is done) or :any (has ended)"),
]


class _Words(Section):
    """A part of the file, in camel case."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, alias_generator=to_camel, populate_by_name=True
    )


class Tasks(_Words):
    """The workers, or the parameter servers, of a job."""

    min: int = Field(1, ge=1, le=MAX_ALLREDUCE_WORKERS)
    """With fewer the job is suspended."""
    max: int = Field(MAX_TASKS_PER_ROLE, ge=1, le=MAX_ALLREDUCE_WORKERS)
    """It never gets more; 16 unless set, or what it asks for if that is more. Only an AllReduce job may have more than
    16."""
    replicas: int | None = Field(None, ge=1, le=MAX_ALLREDUCE_WORKERS)
    """What its user asks for: what a scheduler of fixed sizes gives it; `min` unless set."""
    cpu: Cores = 1000
    """Of one task: cores, or millicores such as `500m`."""
    gpu: int = Field(0, ge=0, le=64)
    """Of one task."""

    @model_validator(mode="after")
    def _in_order(self) -> Tasks:
        if "max" not in self.model_fields_set and self.requested > self.max:
            object.__setattr__(self, "max", self.requested)  # it is still as it was built, and nobody has given a max
        if self.max < self.min:
            raise ValueError(f"max = {self.max} is below min = {self.min}")
        if self.replicas is not None and not self.min <= self.replicas <= self.max:
            raise ValueError(f"replicas = {self.replicas} is not from min = {self.min} to max = {self.max}")
        return self

    @property
    def demand(self) -> Resources:
        """Of one task."""
        return Resources(self.cpu, self.gpu)

    @property
    def requested(self) -> int:
        """What its user asks for."""
        return self.min if self.replicas is None else self.replicas


class Servers(Tasks):
    """The parameter servers: they compute less than workers do."""

    min: int = Field(1, ge=1, le=MAX_TASKS_PER_ROLE)
    """With fewer the job is suspended."""
    max: int = Field(MAX_TASKS_PER_ROLE, ge=1, le=MAX_TASKS_PER_ROLE)
    """It never gets more; as many as it may have workers unless set, or what it asks for if that is more."""
    replicas: int | None = Field(None, ge=1, le=MAX_TASKS_PER_ROLE)
    """What its user asks for: what a scheduler of fixed sizes gives it; `min` unless set."""
    cpu: Cores = 500
    """Of one server: cores, or millicores such as `500m`."""


class Work(_Words):
    """What the job says that it will do; measured progress counts, this is only believed until there is some."""

    epochs: float | None = Field(None, gt=0.0, le=1e9)
    """Passes over its samples."""
    steps: int | None = Field(None, ge=1, le=10**12)
    """Global steps."""

    @model_validator(mode="after")
    def _one(self) -> Work:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give epochs or steps, one of them")
        return self


class JobFile(_Words):
    """One job."""

    name: JobName | None = None
    """Of the job; from the script's and a counter unless set."""
    model_type: ModelType
    """What it trains, such as `digits-cnn`: what is learned of speeds is learned by this name."""
    communication: Literal["PS", "AllReduce"] = "PS"
    """How its workers exchange gradients."""
    work: Work | None = None
    """How much it has to do; estimated from what it has done unless set."""
    worker: Tasks = Tasks()
    ps: Servers = Servers()
    suspend: bool = False
    """Whether it waits for `cluster-agent resume`."""
    script: PathName
    """The Python file to run; or a program; or, behind an interpreter whose last word is `-m`, the name of a module."""
    interpreter: Annotated[tuple[Word, ...], BeforeValidator(_in_words)] | None = None
    """Path of the Python that runs the script, or a list of it and its options; `python` is the agent's own, as unless
    set. Of a program it is empty."""
    args: tuple[Word, ...] = ()
    env: dict[Variable, Word] = Field(default_factory=dict)
    workdir: PathName | None = None
    """Where it runs; where it was submitted unless set."""
    elastic: bool | None = None
    """Whether its script calls `elastic_runtime.join`; looked up in the script unless set. One that does not has a
    fixed size, `worker.replicas`, and starts over if it is suspended."""
    checkpoint_seconds: float = Field(60.0, gt=0.0, le=86_400.0)
    """Time between two checkpoints."""
    time_limit: Annotated[str, BeforeValidator(_as_limit)] | None = None
    """For how long it may have workers, in sbatch's words or as 90s, 30m, 2h, 1d; or a time at which it ends."""
    depends_on: tuple[Dependency, ...] = Field((), max_length=100)
    """Jobs that have to be done before it begins, or to have ended however (`NAME:any`)."""
    requeue: bool = False
    """Whether its script, of a fixed size, writes checkpoints of its own: others may be given its place once it has run
    for `checkpointSeconds`, and it is started again."""
    notify: Annotated[Word, Field(max_length=_LONGEST_NOTIFY)] | None = None
    """A command that is run when it has ended, or a URL that is sent a line of JSON then."""

    @model_validator(mode="after")
    def _no_more_servers_than_workers(self) -> JobFile:
        if "max" not in self.ps.model_fields_set:
            usual = min(self.ps.max, max(self.ps.requested, self.worker.max))
            object.__setattr__(self, "ps", self.ps.model_copy(update={"max": usual}))
        return self

    @property
    def kind(self) -> JobKind:
        """As schedulers call it."""
        return JobKind.PS if self.communication == "PS" else JobKind.ALLREDUCE

    @property
    def limit_seconds(self) -> float | None:
        """For how long it may have workers; None: that is not limited."""
        return None if self.time_limit is None else _seconds_of(self.time_limit)

    @property
    def ends_by(self) -> float | None:
        """Unix seconds at which it is ended; None: at none."""
        return None if self.time_limit is None or self.limit_seconds is not None else _moment_of(self.time_limit)

    @property
    def dependencies(self) -> dict[str, bool]:
        """By the name of a job before it, whether any end of that will do."""
        return {name: kind == "any" for name, _, kind in (word.partition(":") for word in self.depends_on)}

    @property
    def is_module(self) -> bool:
        """Whether its script is the name of a module."""
        return self.interpreter is not None and self.interpreter[-1:] == ("-m",)

    @property
    def is_python(self) -> bool:
        """Whether Python runs its script, and no other program."""
        return self.interpreter is None or (bool(self.interpreter) and names_python(self.interpreter[0]))

    @property
    def title(self) -> str:
        """What its script is called, without its folder and ending."""
        return self.script.name.rpartition(".")[2] if self.is_module else self.script.stem

    def interpreter_words(self, own: str) -> tuple[str, ...]:
        """What stands before the script on its command line; `own` is the agent's Python."""
        words = (OWN_PYTHON,) if self.interpreter is None else self.interpreter
        return tuple(own if at == 0 and word == OWN_PYTHON else word for at, word in enumerate(words))

    @property
    def fixed(self) -> bool:
        """Whether nothing of it can be resized: it runs with its size to its end."""
        return self.elastic is False

    def takes(self, allocation: Allocation) -> Resources:
        """What an allocation takes."""
        return self.worker.demand * allocation.workers + self.ps.demand * allocation.ps

    @property
    def requested(self) -> Allocation:
        """What its user asks for."""
        return Allocation(self.worker.requested, self.ps.requested if self.kind.uses_ps else 0)

    @property
    def least(self) -> Allocation:
        """The least that it trains with."""
        return Allocation(self.worker.min, self.ps.min if self.kind.uses_ps else 0)

    @property
    def most(self) -> Allocation:
        """The most that it may have."""
        return Allocation(self.worker.max, self.ps.max if self.kind.uses_ps else 0)

    @property
    def smallest(self) -> Resources:
        """What the least takes."""
        return self.takes(self.least)


def read_job_files(path: Path) -> list[dict[str, Any]]:
    """The jobs that a file describes, one a YAML document, not checked yet; `-` is standard input.

    Raises:
        BadJobFile: it cannot be read, or is no mapping in YAML; none is returned then.
    """
    source = shown_path(path)
    try:
        found = read_yaml_documents(path, "a job file", _LARGEST_BYTES)
    except BadInput as error:
        raise BadJobFile(plain_line(str(error), LONGEST_ERROR_CHARACTERS)) from error
    found = [content for content in found if content is not None]
    if not found or not all(isinstance(content, dict) for content in found):
        raise BadJobFile(f"{source}: describes no job; it needs at least modelType and script")
    odd = next((place for content in found for place in _odd_values(content, "")), None)
    if odd is not None:
        raise BadJobFile(plain_line(f"{source}: {odd}: is no text and no number; put text in quotes"))
    return found


def _odd_values(value: Any, where: str) -> Iterator[str]:
    """Places of what YAML knows and no job has: dates, bytes, numbers that are none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _odd_values(inner, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _odd_values(inner, where)
    elif not isinstance(value, str | int | float | None) or (isinstance(value, float) and not math.isfinite(value)):
        yield f"{where} = {value}"


def check_job(content: dict[str, Any], folder: Path, source: str) -> JobFile:
    """A job as it was described, whole: paths absolute, relative to `folder`, and whether it is elastic found out.

    Raises:
        BadJobFile: an unknown key, a wrong value, no such script; the message names `source`.
    """
    try:
        job = JobFile.model_validate(content)
    except ValidationError as error:
        raise BadJobFile(f"{source}: {plain_line(first_problems(error, JobFile, FileWords('key')))}") from error
    workdir = folder / (job.workdir or ".")
    size_bytes = sum(len(word.encode()) + 1 for word in (*job.args, *job.env, *job.env.values()))
    if size_bytes > _LONGEST_COMMAND_BYTES:
        raise BadJobFile(
            f"{source}: args and env have {size_bytes} bytes, and may have {_LONGEST_COMMAND_BYTES}; put them in a file"
        )
    if not _is(Path.is_dir, workdir):
        raise BadJobFile(f"{source}: workdir = {plain_line(str(workdir))}: there is no such folder")
    if len(job.dependencies) < len(job.depends_on):
        raise BadJobFile(f"{source}: dependsOn: names a job twice; name it once")
    job = _with_interpreter(_with_notify(job, folder, source), folder, source)
    if job.is_module and not all(part.isidentifier() for part in str(job.script).split(".")):
        raise BadJobFile(f"{source}: script = {plain_line(str(job.script))}: is no name of a module, as -m needs one")
    script = _found_module(workdir, str(job.script)) if job.is_module else folder / job.script
    if script is not None and not _is(Path.is_file, script):
        raise BadJobFile(f"{source}: script = {plain_line(str(script))}: there is no such file")
    elastic = job.elastic
    if elastic is None:
        elastic = script is not None and job.is_python and _joins(script, source, strict=job.interpreter is None)
    if elastic:
        _check_can_join(job, workdir, source)
    else:
        job = _of_fixed_size(job, source)
    if elastic and job.requeue:
        raise BadJobFile(f"{source}: requeue: its script joins, and goes on from its checkpoint anyway; leave this out")
    if elastic and job.communication == "AllReduce" and "ps" in job.model_fields_set:
        raise BadJobFile(f"{source}: ps: an AllReduce job has no parameter servers; leave it out, or use PS")
    if job.worker.max > job.kind.most_workers:
        raise BadJobFile(
            f"{source}: worker: max = {job.worker.max}: a job with parameter servers has at most {MAX_TASKS_PER_ROLE} "
            f"workers; use that, or communication: AllReduce, with up to {MAX_ALLREDUCE_WORKERS}"
        )
    where = (
        {} if script is None or job.is_module else {"script": script.resolve() if job.is_python else script.absolute()}
    )
    return job.model_copy(update={**where, "workdir": workdir.resolve(), "elastic": elastic})


OWN_PYTHON = "python"
"""Stands for the agent's own Python, whose packages a job has unless it names another one."""
_MISSING = "import sys, importlib.util as u; print(*(n for n in sys.argv[1:] if u.find_spec(n) is None))"
_LOOK_SECONDS = 5.0
"""For another Python's answer, while a user waits; one that is slower is taken for fit."""


def _with_interpreter(job: JobFile, folder: Path, source: str) -> JobFile:
    """The job with a whole path of what runs its script; nothing, where that is the agent's Python without options.

    Raises:
        BadJobFile: there is no such program.
    """
    words = job.interpreter
    if words is None:
        return job.model_copy(update={"interpreter": ()}) if _is_program(folder / job.script) else job
    if not words:
        if not os.access(folder / job.script, os.X_OK):
            path = plain_line(str(folder / job.script))
            raise BadJobFile(f"{source}: script = {path}: may not be run; `chmod +x` it, or name an interpreter")
        return job
    first = words[0]
    if first not in (OWN_PYTHON, "python3"):
        found = shutil.which(str(folder / first) if "/" in first else first, path=job.env.get("PATH"))
        if found is None:
            raise BadJobFile(f"{source}: interpreter = {plain_line(first)}: there is no such program that may be run")
        first = OWN_PYTHON if is_own_python(Path(found)) else os.path.abspath(found)  # noqa: PTH100  (links stay)
    else:
        first = OWN_PYTHON
    words = (first, *(word for word in words[1:] if word != "-u"))  # nobody's output is buffered
    return job.model_copy(update={"interpreter": None if words == (OWN_PYTHON,) else words})


def is_url(notify: str) -> bool:
    """Whether what is to be told of an end is a URL, and no command."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", notify) is not None


def _with_notify(job: JobFile, folder: Path, source: str) -> JobFile:
    """The job with the whole path of the command that is run at its end.

    Raises:
        BadJobFile: there is no such program, or it is no URL that can be sent to.
    """
    if job.notify is None:
        return job
    where = f"{source}: notify = {plain_line(job.notify)}"
    if is_url(job.notify):
        try:
            parts = urlsplit(job.notify)
            there = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            there = False
        if not there or not job.notify.isascii() or re.search(r"[\s\x00-\x1f\x7f]", job.notify):
            raise BadJobFile(f"{where}: nothing can be sent there; use http:// or https:// and a host, or a command")
        return job
    try:
        words = shlex.split(job.notify)
    except ValueError as error:
        raise BadJobFile(f"{where}: is no command ({error}); quote it as for a shell") from error
    if not words:
        raise BadJobFile(f"{source}: notify: names nothing; give a command, or a URL")
    first = str(folder / words[0]) if "/" in words[0] else words[0]
    found = shutil.which(first, path=job.env.get("PATH"))
    if found is None:
        raise BadJobFile(f"{where}: there is no such program that may be run; give a command, or a URL")
    return job.model_copy(update={"notify": shlex.join([os.path.abspath(found), *words[1:]])})  # noqa: PTH100


def _is_program(path: Path) -> bool:
    """Whether a file is run as it is: it may be, and is machine code, or names an interpreter that is no Python."""
    try:
        with path.open("rb") as file:
            first = file.readline(_LONGEST_FIRST_LINE)
    except OSError:
        return False
    runs = first.startswith(b"\x7fELF") or (first.startswith(b"#!") and b"python" not in first)
    return runs and os.access(path, os.X_OK)


_LONGEST_FIRST_LINE = 256


def _found_module(folder: Path, name: str) -> Path | None:
    """The file of a module below a folder; None of one that is installed."""
    place = folder.joinpath(*name.split("."))
    return next((path for path in (place.with_name(f"{place.name}.py"), place / "__main__.py") if path.is_file()), None)


def _check_can_join(job: JobFile, workdir: Path, source: str) -> None:
    """Refuse a Python that has no elastic_runtime for a job whose script joins.

    Raises:
        BadJobFile: it has none, or no torch.
    """
    if not job.is_python:
        raise BadJobFile(f"{source}: elastic: a script that joins is run by a Python; name it as `interpreter`")
    words = job.interpreter_words(OWN_PYTHON)
    if words[0] == OWN_PYTHON:
        return
    try:
        answer = subprocess.run(  # noqa: S603  (the user's own interpreter)
            [words[0], "-c", _MISSING, "elastic_runtime", "torch"],
            cwd=workdir,
            env={**os.environ, **job.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LOOK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    missing = answer.stdout.decode(errors="replace").split()
    if answer.returncode or missing:
        packages = [{"elastic_runtime": "fedl2"}.get(name, name) for name in missing]
        what = f"has no {' and no '.join(packages)}" if missing else "does not run"
        todo = f"`{words[0]} -m pip install {' '.join(packages)}`" if missing else "name another one"
        if "fedl2" in packages:
            todo += " (`cluster-agent wheel` writes a file for pip where no package index has fedl2)"
        raise BadJobFile(f"{source}: interpreter = {words[0]}: {what}, which a script that joins needs; {todo}")


def _is(kind: Callable[[Path], bool], path: Path) -> bool:
    """Whether something of a kind is there; what the system cannot even look for, such as a long name, is not."""
    try:
        return kind(path)
    except OSError:
        return False


def _of_fixed_size(job: JobFile, source: str) -> JobFile:
    """A job whose script does not join: so many workers as it asks for, from its start to its end."""
    why = (
        f"{job.script} does not import elastic_runtime, so it runs as it is, with a fixed size; say `elastic: true` if "
        "another module of it joins"
    )
    given, worker = job.model_fields_set, job.worker
    if "ps" in given or ("communication" in given and job.communication == "PS"):
        raise BadJobFile(f"{source}: {'ps' if 'ps' in given else 'communication = PS'}: {why}, or leave this out")
    spans = {"min", "max"} & worker.model_fields_set
    if spans and worker.min != worker.max:
        raise BadJobFile(
            f"{source}: worker: min = {worker.min}, max = {worker.max}: {why}, or give replicas in their place"
        )
    size = worker.requested
    fixed = worker.model_copy(update={"min": size, "max": size, "replicas": size})
    return job.model_copy(update={"worker": fixed, "communication": "AllReduce"})


def _joins(script: Path, source: str, *, strict: bool) -> bool:
    """Whether a script joins a job; if `strict`, one that does not parse is refused before it costs a start."""
    try:
        tree = ast.parse(script.read_bytes(), filename=str(script))
    except (SyntaxError, ValueError) as error:
        if not strict:  # another Python may know more words
            return False
        raise BadJobFile(f"{source}: script = {script}: is no Python ({plain_line(str(error))})") from error
    except OSError as error:
        raise BadJobFile(f"{source}: script = {script}: cannot be read ({error.strerror})") from error
    return joins(script, tree)
