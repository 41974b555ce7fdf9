"""Program `policy-net`: its commands are the laboratory's, but for those on a policy file alone: `inspect`, `extend`.

What a command needs is loaded when it is at its work: help and refusals of what was typed wait for none of it.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.command_line import run
from foundation.completion import COMMAND, completion_command
from foundation.output import Form, Output, show
from foundation.program_life import end
from policy_net.errors import PolicyFileError
from policy_net.laboratory.commands.fit_speed import fit_speed
from policy_net.laboratory.commands.replay import replay_command
from policy_net.laboratory.commands.reproduce import reproduce
from policy_net.laboratory.commands.runs import runs_command
from policy_net.laboratory.commands.train import train
from policy_net.laboratory.commands.tune import tune_command
from policy_net.policy import policy_names

if TYPE_CHECKING:
    from foundation.tables import FactSheet
    from policy_net.exchange.spec import PolicySpec, SetSpec

PROGRAM = "policy-net"
SET_NAME = "set"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Replay workloads under scheduling policies, train, tune, inspect or extend a policy, compare trainings,"
    " reproduce figures.",
)


def inspect(
    file: Annotated[
        Path,
        typer.Argument(
            help="A policy file, as `policy-net train` and the learner write them; or dl2, set, set-taught."
        ),
    ],
    output: Output = Form.TABLE,
) -> None:
    """Show a policy file's spec, digest, sizes and card."""
    facts = describe(file)
    show(output, facts, lambda: policy_sheet(facts))


def describe(file: Path) -> dict[str, Any]:
    """The facts about a policy file, ready for JSON.

    Raises:
        PolicyFileError: the file cannot be used.
    """
    if str(file) in policy_names():
        from policy_net.exchange.shipped import file_of  # noqa: PLC0415

        file = file_of(file)
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


class PolicyExtra(StrEnum):
    """Further groups of numbers of a `set` policy's file."""

    PRICES = "prices"
    SESSIONS = "sessions"


def extend(
    file: Annotated[Path, typer.Argument(help="A policy file of kind set; or `set` or `set-taught`, which ship.")],
    groups: Annotated[
        list[PolicyExtra],
        typer.Option("--with", help="What it gets (repeatable); policy-net inspect says what it has."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the new file goes.")],
    output: Output = Form.TABLE,
) -> None:
    """Give a set policy's file further numbers that a fleet can learn: prices, or the model of sessions."""
    from policy_net.exchange.policy_file import (  # noqa: PLC0415  (help and refusals of options wait for none of it)
        check_writable,
        read_policy_file,
        write_policy_file,
    )
    from policy_net.exchange.shipped import file_of  # noqa: PLC0415
    from policy_net.set_policy.policy import extended  # noqa: PLC0415

    check_writable(out)
    content = extended(read_policy_file(file_of(file)), str(file), {str(each) for each in groups})
    write_policy_file(out, content)
    added = content.card["extended_with"]
    facts = {"file": str(out), "with": str(added).split(", "), "parameters": content.spec.parameter_count}
    show(output, facts, f"written: {out}, with {added}", [facts])


def policy_sheet(facts: dict[str, Any]) -> FactSheet:
    """The facts about a policy file, for people."""
    from foundation.tables import FactSheet, in_words, name_in_words  # noqa: PLC0415

    rows = [
        ("file", facts["file"]),
        ("digest", facts["digest"]),
        ("size", f"{facts['size_bytes']:,} bytes"),
        ("policy", facts["policy"]),
        ("structure", _structure(facts)),
        ("spec", in_words({name: value for name, value in facts["spec"].items() if name != "policy"})),
        ("spec's digest", facts["spec_digest"]),
    ]
    if facts["priors"]:
        rows.append(("priors", f"{facts['priors']:,} speeds that others observed"))
    for name, value in facts["card"].items():
        meaning = "; of average JCTs, below 0 is better" if name == "validation_change" else ""
        rows.append((f"card, {name_in_words(name)}", in_words(value) + meaning))
    return FactSheet("", rows)


def _structure(facts: dict[str, Any]) -> str:
    weights = f"{facts['parameters']:,} weights"
    if facts["policy"] != SET_NAME:
        return f"{weights}, {facts['features']:,} inputs, {facts['actions']:,} actions"
    groups = [f"with{'' if facts['spec'].get(name) else 'out'} {name}" for name in ("prices", "sessions")]
    return f"{weights}, {facts['features']} inputs for each job, {' and '.join(groups)}"


app.command("replay")(replay_command)
app.command("train")(train)
app.command("runs")(runs_command)
app.command("tune")(tune_command)
app.command("reproduce")(reproduce)
app.command("inspect")(inspect)
app.command("extend")(extend)
app.command("fit-speed")(fit_speed)
app.command(COMMAND)(completion_command(app, PROGRAM))


def main() -> None:
    """Entry point of the console script."""
    end(run(app, PROGRAM))


if __name__ == "__main__":
    main()
