"""Program `policyctl`: what the platform owner asks a learner; with the commands `fleet` and `report`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from foundation.command_line import group_with_habits, run, with_option_groups
from foundation.completion import COMMAND, completion_command
from foundation.program_life import end
from foundation.tables import FactSheet
from global_learner.errors import BadLearnerConfig
from global_learner.policyctl.audit_commands import audit_app
from global_learner.policyctl.cluster_commands import cluster_app, operator_app
from global_learner.policyctl.context_commands import context_app
from global_learner.policyctl.key_commands import key_app
from global_learner.policyctl.operator_commands import assign_version, head_app, roll_back, unassign_version
from global_learner.policyctl.options import CallOptions, PollOptions
from global_learner.policyctl.rollout_commands import rollout_app
from global_learner.policyctl.version_commands import version_app
from global_learner.policyctl.views import Facts, FleetColumn, fleet_facts, fleet_table
from policy_net.exchange.generated import fleet_pb2

PROGRAM = "policyctl"
_HABITS = {
    "status": "policyctl fleet",
    "clusters": "policyctl fleet",
    "versions": "policyctl version list",
    "history": "policyctl rollout history",
    "promote": "policyctl rollout promote",
    "abort": "policyctl rollout abort",
    "undo": "policyctl rollback",
    "log": "policyctl audit",
    "login": "policyctl context set",
    "report --watch": "policyctl fleet --watch",
    **{
        f"rollout {verb} --watch": "policyctl rollout watch"
        for verb in ("start", "promote", "pause", "resume", "abort")
    },
}

app = typer.Typer(
    cls=group_with_habits(_HABITS),
    no_args_is_help=True,
    add_completion=False,
    help="Looks after a learner's versions and its fleet.",
)


@with_option_groups
def show_fleet(
    cluster: Annotated[
        list[str] | None, typer.Option("--cluster", help="Show this cluster, and no other (repeatable).")
    ] = None,
    sort: Annotated[
        FleetColumn | None,
        typer.Option("--sort", help="The column by which clusters are ordered; of figures the largest first."),
    ] = None,
    *,
    options: PollOptions,
) -> None:
    """All clusters: their jobs, what they act on, what they contributed."""
    only, place = cluster or [], options.place
    options.poll(
        lambda client: fleet_facts(client.fleet(), only, sort),
        lambda fleet: fleet_table(fleet, place, revoked=bool(only)),
    )


@with_option_groups
def write_report(
    out: Annotated[Path, typer.Option("--out", help="The folder for index.html; made if it is not there.")] = Path(
        "report"
    ),
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", help="Read the files of a learner that has ended; nothing is known of jobs then."),
    ] = None,
    *,
    options: CallOptions,
) -> None:
    """Write the fleet's report: one page that needs nothing else, to open in a browser, print or pass on."""
    if state_dir is not None and not state_dir.is_dir():
        raise BadLearnerConfig(
            f"--state-dir {state_dir}: no such folder; name the state_dir of a learner's configuration"
        )
    # Only who asks for a page waits for what makes it.
    from global_learner.report.content import report_content  # noqa: PLC0415
    from global_learner.report.fleet import ClusterCounts  # noqa: PLC0415
    from global_learner.report.page import write_page  # noqa: PLC0415

    if state_dir is not None:
        # Loads what a learner itself does: only who reads a state directory waits for it.
        from global_learner.report.offline import report_of_files  # noqa: PLC0415

        content = report_content(report_of_files(state_dir, time.time()))
    else:
        with options.client() as client:
            content = report_content(client.ask(fleet_pb2.GetReportRequest()))
    page, clusters = write_page(content, out), ClusterCounts.of(content["clusters"])
    facts: Facts = {
        "page": str(page),
        "headline": content["headline"]["text"],
        "clusters": clusters.present,
        "clusters_not_registered": clusters.not_yet,
        "clusters_revoked": clusters.turned_out,
        "versions": len(content["versions"]) + content["versions_left_out"],
    }
    options.show(facts, report_table(facts, str(clusters)))


def report_table(facts: Facts, clusters: str) -> FactSheet:
    """Where the page is, and what it says first; the clusters in words."""
    return FactSheet(
        "",
        [
            ("report", facts["page"]),
            ("says", facts["headline"]),
            ("clusters", clusters),
            ("versions", str(facts["versions"])),
        ],
    )


# In the order in which the help shows them.
app.add_typer(version_app, name="version")
app.add_typer(rollout_app, name="rollout")
app.add_typer(cluster_app, name="cluster")
app.add_typer(operator_app, name="operator")
app.add_typer(key_app, name="key")
app.command("report")(write_report)
app.add_typer(head_app, name="head")
app.command("assign")(assign_version)
app.command("unassign")(unassign_version)
app.command("rollback")(roll_back)
app.add_typer(audit_app, name="audit")
app.command("fleet")(show_fleet)
app.add_typer(context_app, name="context")
app.command(COMMAND)(completion_command(app, PROGRAM))


def main() -> None:
    """Entry point of the console script."""
    end(run(app, PROGRAM))


if __name__ == "__main__":
    main()
