"""The matrix's rows for command lines: one sound line of every command, and what its options may hold all the same.

A new command needs one line in `SOUND`, or a test of completeness fails. Its options are attacked by themselves, by
their type; an option whose bad values are taken needs its reason in `PASSES`, a path that is written to its name in
`WRITTEN`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import agent_rows
import click
import elastic_rows
import yaml
from certificates import certificate_files
from click.types import FloatParamType, IntParamType
from learner_makers import policy

import cluster_agent.cli
import deploy.demonstration.processes
import deploy.local.demo
import deploy.train.__main__
import global_learner.cli
import global_learner.policyctl.cli
import policy_net.cli
from deploy.reference.commands import all_commands
from global_learner.policyctl.contexts import Context, Contexts, contexts_file, write_contexts
from policy_net.exchange.policy_file import write_policy_file
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.training_runs import RunRecorder

Line = Callable[["Place"], list[str]]


@dataclass(frozen=True)
class Place:
    """Where a command runs: a folder of good and bad files, a learner and an elastic job that answer."""

    folder: Path
    learner: str
    certificate: Path

    @property
    def good_policy(self) -> Path:
        return self.folder / "good.safetensors"

    @property
    def good_speeds(self) -> Path:
        return self.folder / "speeds.csv"

    @property
    def script(self) -> Path:
        return self.folder / "train.py"

    @property
    def jobs(self) -> Path:
        """Elastic jobs."""
        return self.folder / "jobs"


def asked(*words: str) -> Line:
    """A line of policyctl's, to the learner that answers."""
    return lambda place: [*words, "--learner", place.learner, "--cert", str(place.certificate), "-o", "json"]


CONTEXT = "north"
"""Names a learner before each command; see `make_context`."""
COMPLETED = ("policy-net", "global-learner", "cluster-agent", "policyctl", "elastic-run")
WORLD = ["--workload", "dl2:jobs=2,seed=1", "--nodes", "2"]
SOUND: dict[str, Line] = {
    "policy-net replay": lambda place: [*WORLD, "--policy", "fifo", "-o", "json"],
    "policy-net train": lambda place: [*WORLD, "--out", str(place.folder / "out.safetensors")],
    "policy-net tune": lambda place: [
        *(*WORLD, "--policy", "set", "--trials", "1", "--steps", "1", "--rungs", "1", "--worlds", "2"),
        *("--out", str(place.folder / "study"), "-o", "json"),
    ],
    "policy-net runs": lambda place: [str(place.folder / "trained"), "-o", "json"],
    "policy-net reproduce": lambda place: [
        *("dl2", "--only", "fig11", "--quick", "--seeds", "1", "--processes", "1"),
        *("--out", str(place.folder / "figures")),
    ],
    "policy-net extend": lambda place: [*("set", "--with", "prices", "--out", str(place.folder / "wide.safetensors"))],
    "policy-net inspect": lambda place: [str(place.good_policy), "-o", "json"],
    "policy-net fit-speed": lambda place: ["--table", str(place.good_speeds), "-o", "json"],
    "global-learner serve": lambda place: ["--config", str(place.folder / "learner.yaml")],
    "global-learner accept-loss": lambda place: ["--config", str(place.folder / "learner.yaml")],
    "global-learner restore-version": lambda place: [
        *("v1", "--from", str(place.good_policy), "--config", str(place.folder / "learner.yaml")),
    ],
    "global-learner backup": lambda place: [
        *(str(place.folder / "copy"), "--config", str(place.folder / "learner.yaml")),
    ],
    # Here is no pod: what is wrong with a value is said before that is.
    "global-learner admin-secret": lambda place: ["admin", "--config", str(place.folder / "learner.yaml")],
    "cluster-agent training-key": lambda place: [*("--secret", "a", "--out", str(place.folder / "key"))],
    "cluster-agent run": lambda place: ["--config", str(place.folder / "agent.yaml")],
    "cluster-agent replay-log": lambda place: [str(place.folder / "decisions.jsonl")],
    "cluster-agent report": lambda place: [str(place.folder / "decisions.jsonl"), "-o", "json"],
    "policyctl fleet": asked(),
    "policyctl context set": lambda _: ["lab", "--learner", "127.0.0.1:7070", "-o", "json"],
    "policyctl context use": lambda _: [CONTEXT, "-o", "json"],
    "policyctl context list": lambda _: ["-o", "json"],
    "policyctl context delete": lambda _: [CONTEXT, "-o", "json"],
    "policyctl report": asked("--out", "report"),
    "policyctl version publish": lambda place: asked(str(place.good_policy))(place),
    "policyctl version restore": lambda place: asked("v1", "--from", str(place.good_policy))(place),
    "policyctl assign": asked("v1", "--cluster", "north"),
    "policyctl unassign": asked("--cluster", "north"),
    "policyctl rollback": asked("--cluster", "north"),
    "policyctl head reset": asked("--to", "v1", "--yes"),
    "policyctl audit": asked(),
    "policyctl audit export": asked("--out", "audit.jsonl"),
    "policyctl audit verify": asked(),
    "policyctl version diff": asked("v1", "v1"),
    "policyctl version list": asked(),
    "policyctl version pin": asked("v1"),
    "policyctl version note": asked("v1", "from the new queue"),
    "policyctl version alias": asked("v1", "steady"),
    "policyctl version unalias": asked("steady"),
    "policyctl version unpin": asked("v1"),
    "policyctl version show": asked("v1"),
    "policyctl version verify": asked("v1"),
    "policyctl rollout start": asked("v1", "--dry-run"),
    "policyctl rollout status": asked(),
    "policyctl rollout watch": asked(),
    "policyctl rollout promote": asked("--dry-run"),
    "policyctl rollout pause": asked("--dry-run"),
    "policyctl rollout resume": asked("--dry-run"),
    "policyctl rollout abort": asked("--dry-run"),
    "policyctl rollout pin": asked("north", "--dry-run"),
    "policyctl rollout history": asked(),
    "policyctl key show": asked(),
    "policyctl key rotate": asked("timestamp"),
    "policyctl operator enroll": asked("ada", "--role", "viewer"),
    "policyctl operator list": asked(),
    "policyctl operator revoke": asked("ada", "--yes"),
    "policyctl cluster enroll": asked("west"),
    "policyctl cluster list": asked(),
    "policyctl cluster revoke": asked("north", "--yes"),
    # Who is forgotten is missed by the rows below.
    "policyctl cluster forget": asked("nobody", "--yes"),
    "policyctl cluster release": asked("north"),
    **{f"{program} completion": lambda place: ["bash"] for program in COMPLETED},
    "python -m deploy.local": lambda place: ["--run-folder", str(place.folder / "run")],
    "python -m deploy.train": lambda place: ["--run-folder", str(place.folder / "run")],
    **agent_rows.SOUND,
    **elastic_rows.SOUND,
}
WORLD_OPTIONS = frozenset(item.name for item in dataclasses.fields(WorldOptions))
WRITTEN = frozenset({"out", "report", "run", "run_folder", "report_folder"})
"""Parameters that name what is written."""
PASSES: dict[str, str] = {
    "seed=huge": "any whole number draws something",
    "limit_jobs=huge": "a workload has fewer jobs, and all are taken",
    "report=folder": "a report goes into a folder",
    "out=folder": "so does a learner's",
    "log=empty": "a log of no decisions",
    "policies=folder": "a folder of policies may hold none",
    "run_folder=folder": "so does what a demo keeps",
    "run=folder": "and how a training went",
    "folders=folder": "where a training was told to write before, it is a run",
    "report_folder=folder": "and what it shows",
    "fleet=empty": "the clusters that are built in",
    "fleet=blank": "the same",
    "name=unknown": "a name that can be given; it is revoked after it was invited",
    **{
        f"{text}={kind}": "a reason and a note are any text on one line"
        for text in ("reason", "note")
        for kind in ("empty", "unknown", "parent", "half-a-source", "negative", "blank", "markup", "format")
    },
    **agent_rows.PASSES,
    **elastic_rows.PASSES,
}
SKIPPED: dict[str, str] = {
    "steps=huge": "would train for ever, which may be wanted",
    "imitation_steps=huge": "the same",
    "jobs=huge": "the same",
    "updates=huge": "the same",
}
PROGRAMS = {
    "policy-net": policy_net.cli.app,
    "global-learner": global_learner.cli.app,
    "cluster-agent": cluster_agent.cli.app,
    "policyctl": global_learner.policyctl.cli.app,
    "python -m deploy.local": deploy.local.demo.app,
    "python -m deploy.train": deploy.train.__main__.app,
    elastic_rows.PROGRAM: elastic_rows.APP,
}
STARTED = {
    "python -m deploy.local: the demo was started",
    "python -m deploy.train: the demo was started",
    f"{elastic_rows.PROGRAM}: {elastic_rows.STARTED}",
}
"""What is said in place of starting something."""

WHOLE = {"text": "many", "fraction": "1.5", "empty": "", "nan": "nan", "exponent": "1e3", "hex": "0x10"}
WHOLE |= {"negative": "-1", "huge": "9" * 30, "unit": "5s"}
REAL = {"text": "much", "empty": "", "nan": "nan", "infinite": "inf", "minus-infinite": "-inf", "overflow": "1e999"}
REAL |= {"negative": "-1", "comma": "1,5", "unit": "5s", "two": "1 2"}
WORDS = {
    "empty": "",
    "unknown": "nosuch",
    "parent": "../../etc/passwd",
    "terminal": "\x1b[31mred",
    "long": "x" * 50_000,
}
WORDS |= {"newline": "a\nb", "half-a-source": "dl2:jobs=", "negative": "dl2:jobs=-1", "not-utf-8": "\udcff\udcfe"}
WORDS |= {"blank": " ", "markup": "[red]x[/red]", "format": "%s{0}"}


class Attack(NamedTuple):
    """One parameter with one bad value."""

    parameter: str
    kind: str
    words: list[str]
    value: str

    @property
    def label(self) -> str:
        return f"{self.parameter}={self.kind}"


def commands() -> dict[str, click.Command]:
    return dict(all_commands())


def attacks(command: str, place: Place) -> Iterator[Attack]:
    """Every parameter of a command, each with every bad value of its type, one at a time."""
    sound, typed = SOUND[command](place), commands()[command]
    for parameter in typed.params:
        if parameter.name in (None, "help") or getattr(parameter, "is_flag", False):
            continue
        if command in ("policy-net train", "policy-net tune") and parameter.name in WORLD_OPTIONS:
            continue  # the very same as replay's
        if elastic_rows.attacked_elsewhere(command, str(parameter.name)):
            continue
        for kind, value in _values(parameter, place):
            yield Attack(str(parameter.name), kind, _with(sound, typed, parameter, value), value)


def _values(parameter: click.Parameter, place: Place) -> Iterator[tuple[str, str]]:
    kind = parameter.type
    if isinstance(kind, IntParamType):
        yield from WHOLE.items()
    elif isinstance(kind, FloatParamType):
        yield from REAL.items()
    elif isinstance(kind, click.Path):
        written = parameter.name in WRITTEN
        yield from ((name, str(path)) for name, path in (unwritable(place) if written else unreadable(place)).items())
    else:
        yield from WORDS.items()


def _with(sound: list[str], command: click.Command, parameter: click.Parameter, value: str) -> list[str]:
    """The sound line with the parameter's value replaced or added."""
    options_first = not command.context_settings.get("allow_interspersed_args", True)
    if isinstance(parameter, click.Argument):
        return [*(sound[:-1] if options_first else sound[1:]), "--", value]
    words = list(sound)
    for name in parameter.opts:
        while name in words:
            at = words.index(name)
            del words[at : at + 2]
    attacked = f"{parameter.opts[-1]}={value}"
    return [*words[:-1], attacked, words[-1]] if options_first else [*words, attacked]


def make_context(config: Path) -> None:
    """A file of contexts, below where the environment says that such files are."""
    file = contexts_file({"XDG_CONFIG_HOME": str(config)})
    write_contexts(file, Contexts({CONTEXT: Context("127.0.0.1:7070")}))


def make_files(folder: Path) -> None:
    """Files that can be used, and files that cannot."""
    write_policy_file(folder / "good.safetensors", policy())
    whole = (folder / "good.safetensors").read_bytes()
    draw = random.Random(3)
    (folder / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    (folder / "flipped.safetensors").write_bytes(whole[:8] + b"\xff" + whole[9:])
    (folder / "empty").write_bytes(b"")
    (folder / "random").write_bytes(draw.randbytes(2000))
    (folder / "zeroes").write_bytes(b"\x00" * 2000)
    (folder / "huge-header").write_bytes((2**62).to_bytes(8, "little") + b"{}")
    (folder / "decisions.jsonl").write_bytes(b"")
    (folder / "text").write_text("just a line\n")
    (folder / "json").write_text("[" * 100_000)
    (folder / "latin-1").write_bytes("größe,zahl\nü,1\n".encode("latin-1"))
    (folder / "folder").mkdir()
    (folder / "full").symlink_to("/dev/full")
    rows = "".join(f"vgg-16,{ps},{workers},{10 * ps + workers}\n" for ps in (1, 2, 3) for workers in (1, 2, 3, 4))
    (folder / "speeds.csv").write_text("model,num_ps,num_workers,samples_per_s\n" + rows)
    good = {"state_dir": "state", "initial_policy": "good.safetensors", "listen": "127.0.0.1:0"}
    (folder / "train.py").write_text("pass\n")
    RunRecorder(folder / "trained", {"policy": "set"}).end({"updates": 3})
    agent_rows.make_job_file(folder)
    certificate_files(folder)
    (folder / "learner.yaml").write_text(yaml.safe_dump(good))


def unreadable(place: Place) -> dict[str, Path | str]:
    """What cannot be read as anything."""
    names = ("cut.safetensors", "flipped.safetensors", "empty", "random", "zeroes", "huge-header", "text", "json")
    files: dict[str, Path | str] = {name: place.folder / name for name in (*names, "latin-1", "folder", "nowhere")}
    return files | {"": "", "no-name-of-a-file": "n" * 5000, "below-a-file": place.folder / "text" / "x"}


def unwritable(place: Place) -> dict[str, Path | str]:
    """Where nothing can be written."""
    return {
        "folder": place.folder / "folder",
        "full-device": place.folder / "full",
        "below-a-file": place.folder / "text" / "x",
        "no-name-of-a-file": "n" * 5000,
        "empty": "",
    }
