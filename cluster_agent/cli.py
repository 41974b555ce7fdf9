"""`cluster-agent`: the only place of the agent that knows exit codes."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from cluster_agent.agent import run_agent
from cluster_agent.errors import AgentError, BadConfig, NoPolicy, PolicyNotKept, StateDamaged
from cluster_agent.replay_log_command import replay_log
from cluster_agent.settings_file import read_settings
from cluster_agent.stop_signals import StoppedEarly, StopSignals
from cluster_agent.telemetry import configure_logging
from foundation import command_line
from foundation.errors import BAD_INPUT, FAILED, UNREACHABLE

app = typer.Typer(
    help="Schedules one cluster's training jobs with the fleet's policy, and helps to improve it.",
    no_args_is_help=True,
    add_completion=False,
)

_EXIT_CODES = {
    BadConfig: BAD_INPUT,
    StateDamaged: BAD_INPUT,
    PolicyNotKept: BAD_INPUT,
    NoPolicy: UNREACHABLE,
    AgentError: FAILED,
}


@app.command()
def run(
    config: Annotated[Path, typer.Option(help="The agent's configuration (YAML).", show_default=False)],
    debug: Annotated[bool, typer.Option(help="Print a traceback with an error.")] = False,  # noqa: ARG001  (read by the error boundary)
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
    code = command_line.run(app, "cluster-agent", codes=_EXIT_CODES)
    sys.stdout.flush()
    sys.stderr.flush()
    if threading.active_count() > 1:
        # The agent has ended in good order, but a thread may still be amid a gradient, a replay or a policy that hangs.
        # An interpreter that is torn down under native code of such a thread aborts the process: leave without that.
        os._exit(code)
    command_line.leave(code)


if __name__ == "__main__":
    main()
