"""The program `policyctl`: what the platform owner asks a learner."""

from __future__ import annotations

import typer

from foundation.command_line import leave, run
from foundation.option_groups import with_option_groups
from global_learner.errors import EXIT_CODES
from global_learner.policyctl.cluster_commands import cluster_app
from global_learner.policyctl.deed_commands import assign_version, head_app, show_audit, unassign_version
from global_learner.policyctl.options import CallOptions
from global_learner.policyctl.report_command import write_report
from global_learner.policyctl.version_commands import version_app
from global_learner.policyctl.views import fleet_facts, fleet_table

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Looks after a learner's versions and its fleet.")
app.add_typer(version_app, name="version")
app.add_typer(cluster_app, name="cluster")
app.command("report")(write_report)
app.add_typer(head_app, name="head")
app.command("assign")(assign_version)
app.command("unassign")(unassign_version)
app.command("audit")(show_audit)


@app.command("fleet")
@with_option_groups
def show_fleet(options: CallOptions) -> None:
    """All clusters: their jobs, what they act on, what they contributed."""
    with options.client() as client:
        facts = fleet_facts(client.fleet())
    options.show(facts, fleet_table(facts))


def main() -> None:
    """Entry point of the console script."""
    leave(run(app, "policyctl", codes=EXIT_CODES))


if __name__ == "__main__":
    main()
