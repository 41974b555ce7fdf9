"""`cluster-agent`: the only place of the agent that knows exit codes."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from cluster_agent.agent import run_agent
from cluster_agent.errors import AgentError, BadConfig, NoPolicy, PolicyNotKept, StateDamaged
from cluster_agent.recording.replay_log_command import replay_log
from cluster_agent.settings_file import read_settings
from cluster_agent.telemetry import configure_logging
from policy_net import cli_errors

app = typer.Typer(
    help="Schedules one cluster's training jobs with the fleet's policy, and helps to improve it.",
    no_args_is_help=True,
    add_completion=False,
)

_EXIT_CODES = {
    BadConfig: cli_errors.BAD_INPUT,
    StateDamaged: cli_errors.BAD_INPUT,
    PolicyNotKept: cli_errors.BAD_INPUT,
    NoPolicy: cli_errors.UNREACHABLE,
    AgentError: cli_errors.FAILED,
}


@app.command()
def run(
    config: Annotated[Path, typer.Option(help="The agent's configuration (YAML).", show_default=False)],
    debug: Annotated[bool, typer.Option(help="Print a traceback with an error.")] = False,  # noqa: ARG001  (read by cli_errors)
) -> None:
    """Schedule until the cluster's jobs are done (simulations) or until SIGTERM."""
    signals = StopSignals()
    try:
        try:
            settings = read_settings(config)
            configure_logging(settings.telemetry.log_level)
            run_agent(settings, signals.stop, signals.started)
        finally:
            signals.started()  # nothing is left to interrupt: what went wrong is still to be told
    except StoppedEarly:
        print("cluster-agent: stopped before it had started; nothing was scheduled", file=sys.stderr)


app.command("replay-log")(replay_log)


def main() -> None:
    """The console script."""
    code = cli_errors.run(app, "cluster-agent", codes=_EXIT_CODES)
    sys.stdout.flush()
    sys.stderr.flush()
    if threading.active_count() > 1:
        # The agent has ended in good order, but a thread may still be amid a gradient, a replay or a policy that hangs.
        # An interpreter that is torn down under native code of such a thread aborts the process: leave without that.
        os._exit(code)
    cli_errors.leave(code)


if __name__ == "__main__":
    main()


# DOC of cluster_agent.cli:
# SIGTERM and SIGINT: at once while the agent is still starting, in good order once it schedules.

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StoppedEarly(BaseException):
    """Told to stop before anything ran; no `Exception`, so that whatever was being read cannot take it for a fault."""


class StopSignals:
    """Takes both signals from its making on; only in the main thread.

    Attributes:
        stop: set once the agent, having started, is to stop.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._started = False
        for number in SIGNALS:
            signal.signal(number, self._take)

    def started(self) -> None:
        """From now on signals interrupt nothing: somebody looks at `stop`, or the command is at its end."""
        self._started = True

    def _take(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.stop.is_set():
            return  # a second one, while the first is being obeyed
        self.stop.set()
        if not self._started:
            raise StoppedEarly
