"""The command line `cluster-agent`: its commands, its signals and its end.

SIGTERM and SIGINT stop an agent at once while it is still starting, and in good order once it schedules.
"""

from __future__ import annotations

import base64
import os
import secrets
import shlex
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster_agent.errors import BadAgentConfig
from cluster_agent.jobs.client import Watch, changing_polls
from cluster_agent.jobs.commands import cancel, delete, explain, job, jobs, logs, resume, suspend
from cluster_agent.jobs.submission import simulate, submit
from foundation.command_line import group_with_habits
from foundation.command_line import run as run_command_line
from foundation.completion import COMMAND, completion_command
from foundation.errors import FAILED
from foundation.figures import counted, unit_for
from foundation.files import PRIVATE, write_whole
from foundation.output import Form, Output, show
from foundation.output import watch as show_again
from foundation.pod_secrets import ACCOUNT, PodSecrets, check_names
from foundation.program_life import SignalHandlers, end, importing
from foundation.signal_event import SignalEvent

if TYPE_CHECKING:
    from rich.console import Group

    from cluster_agent.recording.log_replay import LogReplayResult
    from foundation.tables import FactSheet


PROGRAM = "cluster-agent"
SIGNALS = (signal.SIGTERM, signal.SIGINT)

_HABITS = {
    "list": "cluster-agent jobs",
    "ls": "cluster-agent jobs",
    "ps": "cluster-agent jobs",
    "queue": "cluster-agent jobs",
    "status": "cluster-agent job",
    "show": "cluster-agent job",
    "describe": "cluster-agent job",
    "rm": "cluster-agent delete",
    "kill": "cluster-agent cancel",
    "start": "cluster-agent run",
}

app = typer.Typer(
    cls=group_with_habits(_HABITS),
    help="Schedules one cluster's training jobs with the fleet's policy, and helps to improve it.",
    no_args_is_help=True,
    add_completion=False,
)


# An installation cannot make the key of TrainingJobs: what renders a chart anew, as GitOps does, sees no key that is in
# use. So the first agent that starts makes the Secret, and all read it before they begin.

_RANDOM_BYTES = 48


def training_key(
    secret: Annotated[str, typer.Option(help="The Secret's name, in this pod's namespace.", show_default=False)],
    out: Annotated[Path, typer.Option(help="File that the key is written to.", show_default=False)],
    key: Annotated[str, typer.Option(help="Under which name the Secret holds it.")] = "key",
    account: Annotated[Path, typer.Option(help="Folder of the pod's service account.")] = ACCOUNT,
) -> None:
    """Write the key of TrainingJobs to a file, from a Secret that is made if it is not there."""
    check_names(secret, key)
    there = PodSecrets(account, os.environ)
    content = there.read(secret)
    if content is None:
        there.make(secret, {key: base64.b64encode(secrets.token_bytes(_RANDOM_BYTES))})
        content = there.read(secret)  # of agents that begin at once, all have the key of the first one
    if content is None or key not in content:
        has = ", ".join(sorted(content or ())) or "nothing"
        raise BadAgentConfig(
            f"secret {secret} in namespace {there.namespace}: has no {key}, but {has}; put the key of the jobs that "
            "run there, or delete the Secret if none does"
        )
    try:
        write_whole(out, content[key], mode=PRIVATE, durable=False)
    except OSError as error:
        raise BadAgentConfig(
            f"{out}: cannot be written ({error.strerror}); name a file in a folder that exists"
        ) from error
    print(f"{out}: the key of secret {secret}")


_PROGRESS_EVERY_DECISIONS = 100


def replay_log(
    log: Annotated[
        Path, typer.Argument(metavar="FILE", help="A decision log, or an agent's state directory for all of its files.")
    ],
    policies: Annotated[
        list[Path] | None,
        typer.Option("--policies", metavar="DIR", help="Where else policy files may be found (repeatable)."),
    ] = None,
    output: Output = Form.TABLE,
) -> None:
    """Make every logged decision again, bit for bit, and show the first that comes out differently.

    In a rollout, so are the decisions of the policy that did not act.

    Exit code 1 if any does. A last line that a crash cut short is passed over and said.
    """
    for folder in policies or []:
        if not folder.is_dir():
            raise BadAgentConfig(f"--policies {folder}: no such folder")
    from cluster_agent.recording.log_reading import log_files  # noqa: PLC0415

    files = log_files(log)
    # Loaded here: the program's other commands, and refusals, wait for no policy and for nothing that draws.
    from rich.console import Console  # noqa: PLC0415

    from cluster_agent.recording.log_replay import Replayer, default_finder  # noqa: PLC0415

    replayer = Replayer(default_finder(log, policies or []))
    with Console(stderr=True).status("replaying") as status:
        for path in files:
            for result in replayer.replay(path):
                if result.decisions % _PROGRESS_EVERY_DECISIONS == 0:
                    status.update(f"{path.name}: {result.decisions:,} decisions")
    result = replayer.result
    show(output, _replay_facts(files, result), lambda: result_sheet(files, result))
    if result.different or result.challenger_different:
        raise typer.Exit(FAILED)


def _replay_facts(files: list[Path], result: LogReplayResult) -> dict[str, Any]:
    return {
        "files": [str(path) for path in files],
        "decisions": result.decisions,
        "equal": result.decisions - result.different,
        "different": result.different,
        "missing": result.missing,
        "not_recomputable": result.unknown,
        "checkpoints": result.checkpoints,
        "policies": result.policies,
        "programs": sorted(result.programs),
        "beside": {
            "decisions": result.challenger_decisions,
            "equal": result.challenger_decisions - result.challenger_different,
            "different": result.challenger_different,
            "not_recomputable": result.challenger_unknown,
        },
        "cut_short": result.cut_short,
        "first_difference": None if result.first is None else result.first.to_json(),
    }


def result_sheet(files: list[Path], result: LogReplayResult) -> FactSheet:
    """What was made again, and what came of it."""
    from foundation.tables import FactSheet  # noqa: PLC0415

    rows = [
        ("files", str(len(files))),
        ("decisions made again", str(result.decisions)),
        ("equal, bit for bit", str(result.decisions - result.different)),
        ("different", str(result.different)),
        ("by policy", ", ".join(f"{name} {count}" for name, count in result.policies.items())),
        ("written by fedl2", ", ".join(sorted(result.programs))),
    ]
    if result.challenger_decisions or result.challenger_unknown:
        equal = result.challenger_decisions - result.challenger_different
        unknown = f", {result.challenger_unknown} cannot be made again" if result.challenger_unknown else ""
        rows.append(("of the policy that did not act", f"{equal} of {result.challenger_decisions} equal{unknown}"))
    if result.missing:
        rows.append(("not in the log", str(result.missing)))
    if result.unknown:
        rows.append(("cannot be made again (the policy was still at an earlier one)", str(result.unknown)))
    rows += [("cut short by a crash, left out", where) for where in result.cut_short]
    if result.first is not None:
        rows.append(("first difference", str(result.first)))
    return FactSheet("", rows)


_CASES = ("recorded", "requested", "advised")
_WATCH_SECONDS = 30.0
"""Between two looks: each replays the jobs of days, and these change by the hour."""
Log = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]",
        help="A decision log, or an agent's state directory; the configuration's unless given.",
        show_default=False,
    ),
]
Config = Annotated[Path | None, typer.Option("--config", help="The agent's configuration (YAML), whose state is read.")]
Days = Annotated[float, typer.Option(min=0.01, max=3650.0, help="Before the newest decision; jobs that ended in them.")]
Policy = Annotated[
    str,
    typer.Option(
        "--policy", metavar="NAME|FILE", help="That would have decided; unless given, the one that decided last."
    ),
]
Page = Annotated[
    Path | None,
    typer.Option("--report", metavar="FOLDER", help="Write a page (index.html) and a picture (report.png) as well."),
]


def report(
    log: Log = None,
    config: Config = None,
    days: Days = 7.0,
    policy: Policy = "",
    folder: Page = None,
    watch: Watch = False,
    output: Output = Form.TABLE,
) -> None:
    """Say how long jobs took in the last days, and how long they would have taken under the policy that advises.

    Read from what the agent has logged; nothing is asked of a cluster.
    """
    if (log is None) == (config is None):
        raise BadAgentConfig("name one of the two: a decision log (or a state directory), or an agent's --config")
    if watch and folder is not None:
        raise BadAgentConfig("--report and --watch do not go together: a page is written once")
    source = log
    if config is not None:
        from cluster_agent.settings_file import read_settings  # noqa: PLC0415

        source = read_settings(config).state_dir
    assert source is not None  # noqa: S101  (one of the two is there; narrows the type)
    if not source.exists():
        raise BadAgentConfig(
            f"{source}: cannot be read, as it is not there; name a decision log, or an agent's state directory"
        )
    # Loaded here: this takes a second, and the program's other commands need nothing of it.
    from cluster_agent.jobs.past_week import Past, past_week  # noqa: PLC0415

    past = Past(source, days, policy, folder)
    if watch:
        show_again(changing_polls(lambda: past_week(past), _WATCH_SECONDS), report_table, output, _report_rows)
        return
    found = past_week(past)
    show(output, found, lambda: report_table(found), _report_rows(found))


def _report_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"case": case} | found[case] for case in _CASES]


def report_table(found: dict[str, Any]) -> Group:
    """The answer for people."""
    from rich.console import Group  # noqa: PLC0415  (a refusal needs nothing that draws)

    from foundation.tables import Column, FittedTable  # noqa: PLC0415

    ways = {
        "as recorded": found["recorded"],
        "simulated, at the sizes asked for": found["requested"],
        f"simulated, under {found['advised']['policy']}": found["advised"],
    }
    seconds = [way["avgJctSeconds"] for way in ways.values()]
    unit, base = unit_for(*seconds), found["requested"]["avgJctSeconds"]
    columns = (Column(f"{counted(found['jobs'], 'job')}, {found['days']:g} days"), Column("average"), Column("change"))
    rows = [
        (name, unit.text(average), f"{average / base - 1:+.0%}" if way is found["advised"] else "")
        for (name, way), average in zip(ways.items(), seconds, strict=True)
    ]
    table = FittedTable("", columns, rows)
    cluster = f"on {counted(found['nodes'], 'node')} with {counted(found['gpus'], 'GPU')}"
    pages = [f"written: {found['page']}"] if found["page"] else []
    return Group(table, "", f"from submission to end, {cluster}", *found["notes"], *pages, "", found["answer"])


class StoppedEarly(BaseException):
    """Told to stop before anything ran; no `Exception`, so that whatever was being read cannot take it for a fault."""


class AgentStopSignals:
    """Takes both signals from its making on, in the main thread; `stop` is set once a started agent is to stop."""

    def __init__(self) -> None:
        self.stop = SignalEvent()
        self._started = False
        SignalHandlers(SIGNALS, self._take).install()

    def on_started(self) -> None:
        """From now on signals interrupt nothing: somebody looks at `stop`, or the command is at its end."""
        self._started = True

    def _take(self, number: int) -> None:
        del number
        if self.stop.is_set():
            return  # a second one, while the first is being obeyed
        self.stop.set()
        if not self._started:
            raise StoppedEarly


@app.command()
def run(
    config: Annotated[Path, typer.Option(help="The agent's configuration (YAML).", show_default=False)],
    check: Annotated[
        bool, typer.Option("--check", help="Read the configuration and all files that it names, and start nothing.")
    ] = False,
) -> None:
    """Schedule until the cluster's jobs are done (simulations) or until SIGTERM."""
    signals = AgentStopSignals()
    try:
        try:
            # Loaded here: whoever lists jobs waits for no scheduler, and who is told of a slip in a file neither.
            from cluster_agent.settings_file import read_settings  # noqa: PLC0415

            settings = read_settings(config)
            if check:
                from cluster_agent.config_check import check_config  # noqa: PLC0415
                from cluster_agent.telemetry import configure_logging  # noqa: PLC0415

                configure_logging(settings.telemetry.log_level, for_people=True)  # as all else that a check says
                for line in check_config(settings):
                    print(line)
                print(f"{config}: an agent can run on it; nothing was started")
                return
            with importing():
                from cluster_agent.agent import run_agent  # noqa: PLC0415
                from cluster_agent.telemetry import configure_logging  # noqa: PLC0415

            configure_logging(settings.telemetry.log_level)
            run_agent(settings, signals.stop, signals.on_started)
        finally:
            signals.on_started()  # nothing is left to interrupt: what went wrong is still to be told
    except StoppedEarly:
        print(f"{PROGRAM}: stopped before it had started; nothing was scheduled", file=sys.stderr)


def wheel(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder that it is written into.")] = Path(),
) -> None:
    """Write this installation as a wheel, for the environment of a job's script where no package index has fedl2."""
    from cluster_agent.wheel import write_wheel  # noqa: PLC0415  (hashes and archives: few commands need them)

    path = write_wheel(out)
    print(f"{path}: written; in the environment of a script: python -m pip install {shlex.quote(str(path))}")


_COMMANDS = (replay_log, submit, jobs, job, logs, cancel, suspend, resume, delete, explain, simulate, report, wheel)
for _command in _COMMANDS:
    app.command()(_command)
app.command("training-key")(training_key)
app.command(COMMAND)(completion_command(app, PROGRAM))


def main() -> None:
    """The console script."""
    code = run_command_line(app, PROGRAM)
    sys.stdout.flush()
    sys.stderr.flush()
    if threading.active_count() > 1:
        # The agent has ended in good order, but a thread may still be amid a gradient, a replay or a policy that hangs.
        # An interpreter that is torn down under native code of such a thread aborts the process: leave without that.
        os._exit(code)
    end(code)


if __name__ == "__main__":
    main()
