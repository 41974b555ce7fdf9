"""The program `policy-net`: its sub-commands live in `commands` and `learning.command`."""

from __future__ import annotations

import typer

from policy_net.cli_errors import leave, run
from policy_net.laboratory.commands.fit_speed import fit_speed
from policy_net.laboratory.commands.inspect import inspect
from policy_net.laboratory.commands.replay import replay_command
from policy_net.laboratory.commands.train import train

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Replay workloads under scheduling policies, train a policy, look into a policy file, fit speeds.",
)
app.command("replay")(replay_command)
app.command("train")(train)
app.command("inspect")(inspect)
app.command("fit-speed")(fit_speed)


def main() -> None:
    """Entry point of the console script."""
    leave(run(app, "policy-net"))


if __name__ == "__main__":
    main()
