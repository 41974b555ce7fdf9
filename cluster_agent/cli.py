"""The command line `cluster-agent`: its commands, its signals and its end.

SIGTERM and SIGINT stop an agent at once while it is still starting, and in good order once it schedules.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from cluster_agent.jobs.commands import cancel, delete, job, jobs, logs, resume, suspend_job
from cluster_agent.jobs.explaining import explain
from cluster_agent.jobs.reporting import report
from cluster_agent.jobs.simulating import simulate
from cluster_agent.jobs.submission import submit
from cluster_agent.kubernetes.training.key_secret import training_key
from cluster_agent.recording.replay_log_command import replay_log
from foundation.command_line import group_with_habits, leave
from foundation.command_line import run as run_command_line
from foundation.completion import COMMAND, completion_command
from foundation.program_life import SignalHandlers, importing

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


class StoppedEarly(BaseException):
    """Told to stop before anything ran; no `Exception`, so that whatever was being read cannot take it for a fault."""


class AgentStopSignals:
    """Takes both signals from its making on; only in the main thread.

    Attributes:
        stop: set once the agent, having started, is to stop.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
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


app.command("replay-log")(replay_log)
app.command("submit")(submit)
app.command("jobs")(jobs)
app.command("job")(job)
app.command("logs")(logs)
app.command("cancel")(cancel)
app.command("suspend")(suspend_job)
app.command("resume")(resume)
app.command("delete")(delete)
app.command("explain")(explain)
app.command("simulate")(simulate)
app.command("report")(report)
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
    leave(code)


if __name__ == "__main__":
    main()
