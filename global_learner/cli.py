"""Program `global-learner`.

What a command needs is loaded when it is at its work: help and refusals of settings wait for none of it.
"""

from __future__ import annotations

import getpass
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foundation.command_line import group_with_habits, run
from foundation.completion import COMMAND, completion_command
from foundation.output import Form, Output, show
from foundation.pod_secrets import ACCOUNT
from foundation.program_life import end, importing
from global_learner.errors import BadLearnerConfig

if TYPE_CHECKING:
    from global_learner.settings import LearnerSettings

PROGRAM = "global-learner"
_HABITS = {"status": "policyctl fleet", "serve --watch": "policyctl fleet --watch"}
app = typer.Typer(
    cls=group_with_habits(_HABITS),
    no_args_is_help=True,
    add_completion=False,
    help="The central learner: applies the gradients of all clusters to one policy and publishes its versions.",
)


@app.command("serve")
def serve_command(
    config: Annotated[Path, typer.Option("--config", help="YAML file; see docs/guide/learner.md.")],
    check: Annotated[
        bool, typer.Option("--check", help="Read the configuration and all files that it names, and start nothing.")
    ] = False,
) -> None:
    """Serve until SIGTERM; goes on where it ended, however it ended."""
    settings = _settings(config)
    if check:
        from global_learner.service.config_check import check_config  # noqa: PLC0415

        for line in check_config(settings):
            typer.echo(line)
        typer.echo(f"{config}: can be served; nothing was started")
        return
    from global_learner.service.start_check import check_start  # noqa: PLC0415

    check_start(settings)
    with importing():
        import asyncio  # noqa: PLC0415

        from global_learner.service.server import serve  # noqa: PLC0415

    _set_up(settings)
    asyncio.run(serve(settings))


@app.command("accept-loss")
def accept_loss_command(
    config: Annotated[Path, typer.Option("--config", help="YAML file of the learner, which must not run.")],
    yes: Annotated[bool, typer.Option("--yes", help="Go on without what is lost; else only say what it is.")] = False,
    output: Output = Form.TABLE,
) -> None:
    """Say what of the state directory is lost and, with --yes, go on without it; the audit log keeps what and who."""
    settings = _settings(config)
    from global_learner.loss import accept_losses, find_losses  # noqa: PLC0415
    from policy_net.exchange.policy_file import read_policy_file  # noqa: PLC0415

    _set_up(settings)
    if settings.database is not None:
        raise BadLearnerConfig(
            "setting database: a loss in a shared state directory cannot be accepted; restore the directory and the "
            "database from backups of one moment"
        )
    if not settings.state_dir.is_dir():
        raise BadLearnerConfig(f"setting state_dir: {settings.state_dir} is no directory, so nothing is lost in it")
    initial = read_policy_file(settings.initial_policy)
    if yes:
        losses = accept_losses(settings, initial, _own_user(), time.time())
    else:
        losses = find_losses(settings, initial, time.time())
    if not losses:
        outcome = "nothing is lost"
    elif yes:
        outcome = "accepted: start the learner; see `policyctl audit`, and check what was revoked and assigned"
    else:
        outcome = "nothing was changed; --yes goes on without it"
    rows = [{"lost": line, "accepted": yes} for line in losses]
    show(output, {"losses": losses, "accepted": yes and bool(losses)}, "\n".join([*losses, outcome]), rows)


@app.command("restore-version")
def restore_version_command(
    version: Annotated[str, typer.Argument(help="A version such as 1 or v1.")],
    file: Annotated[Path, typer.Option("--from", help="A copy of its policy file, or of the head beside it.")],
    config: Annotated[Path, typer.Option("--config", help="YAML file of the learner, which must not run.")],
    output: Output = Form.TABLE,
) -> None:
    """Put a damaged or lost file of a version back where no learner runs; else `policyctl version restore` does it."""
    from global_learner.registry.version_words import named_content, version_of  # noqa: PLC0415

    number = version_of(version)
    if not isinstance(number, int):
        raise BadLearnerConfig(f"{version!r} is no version's number: name it such as v1")
    settings = _settings(config)
    data = named_content("--from", file)
    with importing():
        import asyncio  # noqa: PLC0415

        from global_learner.service.offline import restore_file  # noqa: PLC0415

    _set_up(settings)
    changed = asyncio.run(restore_file(settings, number, data, _own_user(), time.time()))
    facts = {"version": number, "name": f"v{number}", "changed": changed}
    outcome = "its file is put back: start the learner" if changed else "its file was there, and whole"
    show(output, facts, f"v{number}: {outcome}", [facts])


@app.command("admin-secret")
def admin_secret_command(
    secret: Annotated[str, typer.Argument(metavar="SECRET", help="Its name, in this pod's namespace.")],
    config: Annotated[Path, typer.Option("--config", help="YAML file of the learner, which does not serve yet.")],
    account: Annotated[Path, typer.Option("--account", help="Folder of the pod's service account.")] = ACCOUNT,
) -> None:
    """Put the administrator's identity file (admin.pem) into a Kubernetes Secret, before the learner serves."""
    settings = _settings(config)
    from global_learner.service.offline import hand_over_administrator  # noqa: PLC0415

    _set_up(settings)
    typer.echo(hand_over_administrator(settings, secret, account, os.environ))


@app.command("backup")
def backup_command(
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to: a folder that is not there yet.")],
    config: Annotated[Path, typer.Option("--config", help="YAML file of the learner, which may run meanwhile.")],
    output: Output = Form.TABLE,
) -> None:
    """Copy the state directory while the learner runs; the copy is read as a start reads it before it gets its name."""
    settings = _settings(config)
    if settings.database is not None:
        raise BadLearnerConfig(
            "setting database: the state directory and the database are backed up together: take a snapshot of the "
            "file system, then dump the database (pg_dump); see docs/guide/high-availability.md"
        )
    from global_learner.upkeep.places import check_places  # noqa: PLC0415

    check_places(settings.state_dir, out)
    from global_learner.upkeep.backup import back_up  # noqa: PLC0415
    from policy_net.exchange.policy_file import read_policy_file  # noqa: PLC0415

    _set_up(settings)
    done = back_up(settings, read_policy_file(settings.initial_policy), out, time.time)
    facts = {"folder": str(out)} | asdict(done)
    outcome = (
        f"{out}: backed up and read: head step {done.head_step}, versions up to v{done.version}, {done.audit_lines} "
        f"lines of audit that hold, {done.files} files of {done.size_bytes / 1e6:.1f} MB\n"
        "keep learner.yaml and the initial policy's file with it; to restore, end the learner and put it in place"
    )
    show(output, facts, outcome, [facts])


def _settings(config: Path) -> LearnerSettings:
    from global_learner.settings import read_settings  # noqa: PLC0415

    return read_settings(config)


def _set_up(settings: LearnerSettings) -> None:
    """Begin to log; whatever is written from now on is its own user's."""
    from global_learner.telemetry import set_up_logging  # noqa: PLC0415

    set_up_logging(settings.telemetry.log_level)
    os.umask(0o077)


def _own_user() -> str:
    """Who runs this: a name, or the number of a user without one, as in a pod."""
    try:
        return getpass.getuser()[:63]
    except (KeyError, OSError):
        return f"#{os.getuid()}"


app.command(COMMAND)(completion_command(app, PROGRAM))


def main() -> None:
    """Entry point of the console script."""
    end(run(app, PROGRAM))


if __name__ == "__main__":
    main()
