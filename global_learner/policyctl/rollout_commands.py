"""Commands of `policyctl rollout`: begin one, look at it, and have a word in it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foundation.backoff import Backoff
from foundation.command_line import group_with_habits, with_option_groups
from foundation.output import Form
from global_learner.errors import BadLearnerConfig, ChangedSince, LearnerError, RolledBack, Unknown, Unreachable
from global_learner.policyctl.options import (
    CallOptions,
    DryRun,
    PollOptions,
    Reason,
    VersionArgument,
    Yes,
    answer_when_reachable,
    confirm,
    parsed_version,
    remark,
)
from global_learner.policyctl.rollout_views import (
    changes_table,
    history_table,
    line_of,
    longest,
    rollout_facts,
    rollout_table,
    stage_rows,
)
from global_learner.policyctl.views import Facts
from policy_net.exchange.generated import fleet_pb2

if TYPE_CHECKING:
    from global_learner.policyctl.client import AdminClient

_HABITS = {
    "approve": "policyctl rollout promote",
    "continue": "policyctl rollout promote",
    "rollback": "policyctl rollout abort",
    "undo": "policyctl rollout abort",
    "cancel": "policyctl rollout abort",
    "stop": "policyctl rollout abort",
    "show": "policyctl rollout status",
    "list": "policyctl rollout history",
}

rollout_app = typer.Typer(
    cls=group_with_habits(_HABITS),
    no_args_is_help=True,
    help="Versions that come to the fleet in stages, and go back by themselves.",
)

Number = Annotated[int, typer.Option("--number", min=0, max=2**31 - 1, help="The rollout's number; 0 is the latest.")]


_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 15.0
"""Between two tries while no learner answers: a failover takes ten seconds, a restart mostly less."""
_DAY_SECONDS = 86_400.0
_OVER = ("done", "rolled-back")


@dataclass(frozen=True, slots=True)
class WatchPatience:
    """How long a rollout is watched.

    Attributes:
        every_seconds: between two looks.
        away_seconds: longest wait for a learner that does not answer; 0: none.
        give_up_days: longest watch; None: until the rollout's end.
    """

    every_seconds: float
    away_seconds: float
    give_up_days: float | None = None


def watch_to_end(
    rollout: fleet_pb2.Rollout,
    ask: Callable[[], fleet_pb2.Rollout],
    patience: WatchPatience,
    say: Callable[[str], None],
    remark: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    seed: int | str,
) -> None:
    """Print a line for every change until the rollout is done.

    Args:
        rollout: as it stood at the first look.
        ask: the rollout as it stands; raises `Unreachable` where no learner answers.
        say: prints a line about the rollout.
        remark: prints a line about the learner.
        seed: of the pauses' randomness.

    Raises:
        RolledBack: its version was taken back.
        Unreachable: no learner answered for too long.
        Unknown: the learner that answers no longer knows the rollout.
        LearnerError: it still runs, and the days are over.
    """
    days, backoff = patience.give_up_days, Backoff(seed, _FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
    until = None if days is None else clock() + _DAY_SECONDS * days
    whose, last = f"rollout {rollout.number} of v{rollout.candidate_version}", ""
    while True:
        line = line_of(rollout_facts(rollout))
        if line != last:
            say(line)
        last = line
        if rollout.phase in _OVER:
            break
        if until is not None and clock() >= until:
            raise LearnerError(f"rollout {rollout.number} is {rollout.phase} after {days:g} days; it goes on")
        sleep(patience.every_seconds)
        minutes = f"{patience.away_seconds / 60.0:g} minutes"
        try:
            rollout = answer_when_reachable(
                ask, patience.away_seconds, minutes, backoff.next_seconds, remark, clock, sleep
            )
        except Unreachable as error:
            raise Unreachable(f"{whose} was {rollout.phase} when last seen; {error}") from error
        except Unknown as error:
            raise Unknown(
                f"the learner no longer knows {whose}, which was {rollout.phase} when last seen: its state was "
                "replaced, or it is another learner"
            ) from error
        backoff.reset()
    if rollout.phase == "rolled-back":
        raise RolledBack(f"{whose} was rolled back: {rollout.reason}")


@dataclass(frozen=True, slots=True)
class Word:
    """Options of an action on a rollout: which one is meant, in the stage in which it was seen."""

    from_stage: Annotated[
        int | None,
        typer.Option(
            "--from",
            min=0,
            max=2**31 - 1,
            help="Index of the stage in which you saw it, from 0, as `stage_number` of `rollout status -o json`; "
            "refused if it is in another by now.",
        ),
    ] = None
    number: Number = 0
    reason: Reason = ""
    dry_run: DryRun = False


@rollout_app.command("start")
@with_option_groups
def start_rollout(
    version: VersionArgument,
    plan: Annotated[Path | None, typer.Option("--plan", help="The plan (YAML); the built-in one unless given.")] = None,
    reason: Reason = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    *,
    options: CallOptions,
) -> None:
    """Bring a version to the fleet in stages: gate, shadow, canary, waves, fleet.

    Without --plan the built-in one is shown, and you are asked whether to begin it.
    """
    parsed = parsed_version(version)
    from global_learner.rollout.plan import read_plan  # noqa: PLC0415  (loads pydantic, NumPy and SciPy)

    plan_json = "" if plan is None else read_plan(plan).model_dump_json()
    with options.client() as client:
        number = client.number_of(parsed)
        request = fleet_pb2.StartRolloutRequest(version=number, plan_json=plan_json, reason=reason, dry_run=True)
        if plan is None and not (yes or dry_run):
            preview = rollout_facts(client.ask(request).rollout)
            for label, value in stage_rows(preview):
                remark(f"{label}: {value}")
            what = f"begin this rollout of v{number}, by the built-in plan, {longest(preview)}"
            confirm(what, False, lambda: options.place, "--yes, or name your own plan with --plan FILE")
        request.dry_run = dry_run
        reply = client.ask(request)
    _show_changes(reply, dry_run, reply.note, options)


@rollout_app.command("status")
@with_option_groups
def show_rollout(number: Number = 0, *, options: PollOptions) -> None:
    """Where a rollout stands: its stage, the latest verdict, and every cluster."""
    options.poll(lambda client: rollout_facts(_rollout(client, number)), rollout_table)


@rollout_app.command("watch")
@with_option_groups
def watch_rollout(
    number: Number = 0,
    every: Annotated[float, typer.Option("--every", min=0.1, max=3600.0, help="Seconds between two looks.")] = 5.0,
    away: Annotated[
        float,
        typer.Option("--away", min=0.0, max=10_080.0, help="Minutes to wait for a learner that does not answer."),
    ] = 10.0,
    give_up: Annotated[
        float | None,
        typer.Option(
            "--give-up", min=0.0, max=365.0, help="Days after which to watch no longer; until its end unless set."
        ),
    ] = None,
    *,
    options: CallOptions,
) -> None:
    """A line for every change until the rollout ends; exit code 1 if its version was taken back.

    A learner that is away for a while is waited for; exit code 3 if it does not come back in time.
    """
    if options.output is not Form.TABLE:
        raise BadLearnerConfig("watch prints lines; for another form use `policyctl rollout status --watch -o json`")
    clients = options.clients()
    with clients() as client:
        first = _rollout(client, number)

    def ask() -> fleet_pb2.Rollout:
        # A connection of its own each time: one that was lost is tried again by gRPC's clock, and not by ours.
        with clients() as client:
            return _rollout(client, first.number)

    watch_to_end(first, ask, WatchPatience(every, 60.0 * away, give_up), _say, remark, seed=os.getpid())


@rollout_app.command("promote")
@with_option_groups
def promote_rollout(word: Word, options: CallOptions) -> None:
    """Begin the next stage, whatever is known of this one; not in a freeze.

    Without --from you are asked; without a terminal to ask on it has to be given.
    """
    _act("promote", "", word, options)


@rollout_app.command("pause")
@with_option_groups
def pause_rollout(word: Word, options: CallOptions) -> None:
    """Begin no stage; a version that fails still goes back."""
    _act("pause", "", word, options)


@rollout_app.command("resume")
@with_option_groups
def resume_rollout(word: Word, options: CallOptions) -> None:
    """Go on after a pause."""
    _act("resume", "", word, options)


@rollout_app.command("abort")
@with_option_groups
def abort_rollout(word: Word, options: CallOptions) -> None:
    """Take the version back: every cluster acts on what it had before."""
    _act("abort", "", word, options)


@rollout_app.command("pin")
@with_option_groups
def pin_cluster(
    cluster: Annotated[str, typer.Argument(help="The cluster's name.")], word: Word, options: CallOptions
) -> None:
    """Have the rollout leave a cluster alone: it acts on what it had before."""
    _act("pin", cluster, word, options)


@rollout_app.command("history")
@with_option_groups
def list_rollouts(options: PollOptions) -> None:
    """All rollouts, oldest first."""

    def reported(client: AdminClient) -> list[Facts]:
        notes = {card.version: card.note.text for card in client.versions()}
        return [
            {**rollout_facts(rollout), "note": notes.get(rollout.candidate_version) or None}
            for rollout in client.ask(fleet_pb2.ListRolloutsRequest()).rollouts
        ]

    options.poll(reported, history_table)


def _act(action: str, cluster: str, word: Word, options: CallOptions) -> None:
    with options.client() as client:
        seen = _rollout(client, word.number)
        if word.from_stage not in (None, seen.stage):
            raise ChangedSince(
                f"rollout {seen.number} of v{seen.candidate_version} is {seen.phase} in stage {seen.stage} "
                f"({seen.stages[seen.stage]}) by now, not in stage {word.from_stage}; nothing was changed"
            )
        request = fleet_pb2.ActOnRolloutRequest(
            action=action,
            cluster=cluster,
            reason=word.reason,
            dry_run=True,
            seen=fleet_pb2.SeenRollout(number=seen.number, event_number=seen.event_number),
        )
        if action == "promote" and word.from_stage is None and not word.dry_run:
            client.ask(request)  # what would be refused is not asked about
            confirm(_promotion(seen), False, lambda: options.place, f"--from {seen.stage}")
        request.dry_run = word.dry_run
        reply = client.ask(request)
    _show_changes(reply, word.dry_run, "", options)


def _show_changes(
    reply: fleet_pb2.StartRolloutReply | fleet_pb2.ActOnRolloutReply, dry_run: bool, note: str, options: CallOptions
) -> None:
    facts = {**rollout_facts(reply.rollout), "changes": list(reply.changes), "dry_run": dry_run, "note": note}
    options.show(facts, changes_table(facts))


def _promotion(seen: fleet_pb2.Rollout) -> str:
    stages, place = seen.stages, seen.stage
    following = f"begin stage {place + 1} ({stages[place + 1]})" if place + 1 < len(stages) else "end it as done"
    whose = f"of rollout {seen.number} of v{seen.candidate_version}"
    return f"leave stage {place} ({stages[place]}) {whose} without its verdict and {following}"


def _rollout(client: AdminClient, number: int) -> fleet_pb2.Rollout:
    reply: fleet_pb2.GetRolloutReply = client.ask(fleet_pb2.GetRolloutRequest(number=number))
    return reply.rollout


def _say(line: str) -> None:
    print(line, flush=True)
