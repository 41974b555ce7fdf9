"""The command `cluster-agent replay-log`: logged decisions, made again and compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster_agent.errors import BadAgentConfig
from foundation.errors import FAILED
from foundation.output import Form, Output, show

if TYPE_CHECKING:
    from cluster_agent.recording.log_replay import LogReplayResult
    from foundation.tables import FactSheet

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
    from cluster_agent.recording.decision_log import log_files  # noqa: PLC0415

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
    show(output, _facts(files, result), lambda: result_sheet(files, result))
    if result.different or result.beside_different:
        raise typer.Exit(FAILED)


def _facts(files: list[Path], result: LogReplayResult) -> dict[str, Any]:
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
            "decisions": result.beside,
            "equal": result.beside - result.beside_different,
            "different": result.beside_different,
            "not_recomputable": result.beside_unknown,
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
    if result.beside or result.beside_unknown:
        equal = result.beside - result.beside_different
        unknown = f", {result.beside_unknown} cannot be made again" if result.beside_unknown else ""
        rows.append(("of the policy that did not act", f"{equal} of {result.beside} equal{unknown}"))
    if result.missing:
        rows.append(("not in the log", str(result.missing)))
    if result.unknown:
        rows.append(("cannot be made again (the policy was still at an earlier one)", str(result.unknown)))
    rows += [("cut short by a crash, left out", where) for where in result.cut_short]
    if result.first is not None:
        rows.append(("first difference", str(result.first)))
    return FactSheet("", rows)
