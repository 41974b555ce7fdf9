"""Program `policy-net`: its commands are the laboratory's, but for `inspect`, which reads a policy file only.

What a command needs is loaded when it is at its work: help and refusals of what was typed wait for none of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.command_line import Debug, Output, OutputFormat, leave, run
from policy_net.errors import PolicyFileError
from policy_net.laboratory.commands.fit_speed import fit_speed
from policy_net.laboratory.commands.replay import replay_command
from policy_net.laboratory.commands.train import train

if TYPE_CHECKING:
    from policy_net.exchange.spec import PolicySpec, SetSpec

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Replay workloads under scheduling policies, train a policy, look into a policy file, fit speeds.",
)


def inspect(
    file: Annotated[Path, typer.Argument(help="A policy file, as `policy-net train` and the learner write them.")],
    output: Output = OutputFormat.TABLE,
    debug: Debug = False,
) -> None:
    """Show a policy file's spec, digest, sizes and card."""
    del debug  # The error boundary looks for the flag itself.
    facts = describe(file)
    if output is OutputFormat.JSON:
        print(json.dumps(facts, indent=2))
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=escape(str(file)), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in _flat(facts):
        table.add_row(escape(key), escape(value))
    Console().print(table)


def describe(file: Path) -> dict[str, Any]:
    """The facts about a policy file, ready for JSON.

    Raises:
        PolicyFileError: the file cannot be used.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise PolicyFileError(f"{file}: cannot be read ({error.strerror})") from error
    from policy_net.exchange.policy_file import digest_of, parse_policy_file  # noqa: PLC0415

    content = parse_policy_file(data, str(file))
    return {
        "file": str(file),
        "digest": digest_of(data),
        "size_bytes": len(data),
        "policy": content.spec.policy,
        "spec_digest": content.spec.digest,
        "parameters": content.spec.parameter_count,
        **_shape_of(content.spec),
        "priors": len(content.priors),
        "spec": content.spec.model_dump(mode="json"),
        "card": dict(content.card),
    }


def _shape_of(spec: PolicySpec | SetSpec) -> dict[str, int]:
    """How many numbers go in, and how many actions come out; a `set` policy takes any number of jobs."""
    from policy_net.exchange.spec import SET_INPUTS, SetSpec  # noqa: PLC0415

    if isinstance(spec, SetSpec):
        return {"features": SET_INPUTS}
    return {"features": spec.feature_count, "actions": spec.action_count}


def _flat(facts: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested facts as rows: `spec.hidden`, `256, 256`."""
    rows: list[tuple[str, str]] = []
    for key, value in facts.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            rows.append((prefix + key, ", ".join(str(item) for item in value)))
        else:
            rows.append((prefix + key, str(value)))
    return rows


app.command("replay")(replay_command)
app.command("train")(train)
app.command("inspect")(inspect)
app.command("fit-speed")(fit_speed)


def main() -> None:
    """Entry point of the console script."""
    leave(run(app, "policy-net"))


if __name__ == "__main__":
    main()
