"""The place where command lines are tried: a learner, an agent and jobs that answer, and which lines are done there."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import agent_rows
import elastic_rows
import pytest
import structlog
from command_table import PROGRAMS, SOUND, Place, make_context, make_files
from hostile_job import HostileJob, make_job
from hostile_learner import HostileLearner

import deploy.demonstration.frame
from deploy.demonstration.processes import DemoFailed
from foundation.command_line import run


def opened_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """For a module: a learner, an agent and elastic jobs that answer, and files."""
    learner = HostileLearner(tmp_path_factory.mktemp("learner"))
    folder = tmp_path_factory.mktemp("commands")
    make_files(folder)
    admin = learner.process.state_dir / "identity" / "admin.pem"
    place = Place(folder, learner.process.address, admin)
    job = HostileJob(make_job(place.jobs, place.script, elastic_rows.RUNS))
    job.folder.log_file("worker-0").write_text("step 1\n")
    for name in (elastic_rows.RESTS, elastic_rows.GOES):
        make_job(place.jobs, place.script, name)
    agent = agent_rows.HostileAgent(agent_rows.socket_of(folder).parent, place.script)
    yield place
    agent.close()
    job.close()
    learner.close()


def entered(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In a folder of its own, and with a demo that starts nothing."""
    (place.folder / "here").mkdir(exist_ok=True)
    monkeypatch.chdir(place.folder / "here")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place.folder / "config"))
    make_context(place.folder / "config")

    def started(*_: object) -> None:
        raise DemoFailed("the demo was started")

    monkeypatch.setattr(deploy.demonstration.frame, "Processes", started)
    elastic_rows.start_nothing(monkeypatch)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    structlog.reset_defaults()


ANSWERED = (*elastic_rows.STARTS_NOTHING, *agent_rows.ANSWERS)


NEEDS_ROLLOUT = {
    "policyctl rollback",
    *(
        f"policyctl rollout {verb}"
        for verb in ("start", "status", "watch", "promote", "pause", "resume", "abort", "pin")
    ),
}
"""The learner here has one version and no rollout; with one they are tested beside policyctl."""
NEEDS_CERTIFICATE = {"policyctl cluster forget"}
"""Nobody here was enrolled and turned out; that is tested beside enrollment."""


def program_of(command: str) -> str:
    return next(program for program in PROGRAMS if command.startswith(program))


def ended(command: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command in this process."""
    program = program_of(command)
    capsys.readouterr()
    code = run(PROGRAMS[program], program, [*command.removeprefix(program).split(), *words])
    said = capsys.readouterr()
    return code, said.out, said.err


DONE = [
    name
    for name in SOUND
    if (name.split()[0] in ("policy-net", "policyctl") or name in ANSWERED)
    and name not in NEEDS_ROLLOUT | NEEDS_CERTIFICATE
]
"""Commands whose sound line ends with exit code 0 in this place."""
