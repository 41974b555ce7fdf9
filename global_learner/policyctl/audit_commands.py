"""Commands of `policyctl audit`: the log as people read it, as a file, and whether it is what was written.

Digests are recomputed here, so that a file of the log can be checked without trust in a learner.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from foundation.command_line import with_option_groups
from foundation.files import check_replaceable, write_whole
from foundation.tables import NOTHING, Column, FittedTable
from global_learner.errors import AuditUnsound, BadLearnerConfig, LearnerError
from global_learner.policyctl.options import CallOptions, PollOptions, moment_of
from global_learner.policyctl.views import Facts, facts_of, moment, whole_moment
from global_learner.storage.audit_chain import (
    LOGS,
    AuditLine,
    Chain,
    Misfit,
    checked_chain,
    is_digest,
    parse_lines,
    place_of,
)
from policy_net.exchange.generated import fleet_pb2

if TYPE_CHECKING:
    from global_learner.policyctl.client import AdminClient

_DEFAULT = "list"
_LARGEST_FILE_BYTES = 1 << 30
_BEGINNING = -1e300
"""Unix seconds before every line, whatever a clock said."""


class _AuditGroup(typer.core.TyperGroup):
    """A group whose command `list` needs no name."""

    default_command = _DEFAULT

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command's name in front where none stands."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)


audit_app = typer.Typer(cls=_AuditGroup, help="Who did what, when; and whether that is what was written.")

Since = Annotated[
    str | None, typer.Option("--since", help="From when on: 30m, 12h, 7d, or 2026-01-31 or 2026-01-31T12:00 (UTC).")
]


@audit_app.command(_DEFAULT)
@with_option_groups
def show_audit(since: Since = None, *, options: PollOptions) -> None:
    """Who did what, when, to clusters, versions and the head, and which versions agents refused; oldest first."""
    request = _since(since)
    options.poll(lambda client: [facts_of(entry) for entry in client.ask(request).entries], audit_table)


@audit_app.command("export")
@with_option_groups
def export_audit(
    out: Annotated[Path, typer.Option("--out", help="The file to write, a line of JSON for each line of the log.")],
    since: Since = None,
    *,
    options: CallOptions,
) -> None:
    """Write the log, or what came since a moment, into a file that `audit verify --file` checks without a learner."""
    request = _since(since)
    with options.client() as client:
        lines = _reported(client, request)
    try:
        check_replaceable(out)
        write_whole(out, "".join(f"{line.to_json()}\n" for line in lines))
    except OSError as error:
        raise BadLearnerConfig(f"--out {out}: cannot be written ({error.strerror}); name another file") from error
    chains = [checked_chain(log, _of(log, lines), [line.before for line in lines]) for log in LOGS]
    facts: Facts = {"file": str(out), "lines": len(lines), "logs": [_chain_facts(chain) for chain in chains]}
    options.show(facts, chains_table(chains, f"{len(lines)} lines in {out}"))


@audit_app.command("verify")
@with_option_groups
def verify_audit(
    file: Annotated[
        Path | None, typer.Option("--file", help="A file of `audit export`; unless set, the learner's log is checked.")
    ] = None,
    head: Annotated[
        list[str] | None,
        typer.Option("--head", help="A digest that was noted earlier, and must still stand in the log (repeatable)."),
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option("--after", help="Digest that a file's first line may follow, if it is not line 1 (repeatable)."),
    ] = None,
    *,
    options: CallOptions,
) -> None:
    """Recompute the log's digests, and name the first line that is not what was written; ends with 1 then."""
    for name, digests in (("--head", head), ("--after", after)):
        for digest in digests or ():
            if not is_digest(digest):
                raise BadLearnerConfig(
                    f"{name} {digest[:80]!r}: is no digest; it is 64 letters of 0-9 and a-f, as shown"
                )
    if after and file is None:
        raise BadLearnerConfig("--after goes with --file: the learner's own log begins with line 1")
    if file is None:
        with options.client() as client:
            lines, misfit = _reported(client, _since(None)), None
    else:
        lines, misfit = parse_lines(_read(file))
        if not lines:
            raise BadLearnerConfig(
                f"--file {file}: is no export of an audit log, or was damaged from its first line on; name another one"
            )
    chains = [checked_chain(log, _of(log, lines), after or ()) for log in LOGS]
    heads = [_head_facts(digest, lines, chains) for digest in dict.fromkeys(head or ())]
    faults = _faults(chains, misfit, heads)
    facts: Facts = {
        "sound": not faults,
        "fault": faults[0] if faults else None,
        "logs": [_chain_facts(chain) for chain in chains],
        "heads": heads,
    }
    options.show(facts, chains_table(chains, "whole" if not faults else "NOT what was written"))
    if faults:
        raise AuditUnsound(f"{file if file is not None else 'the audit log'}: {faults[0]}")


def _since(since: str | None) -> fleet_pb2.ListAuditRequest:
    from_when = _BEGINNING if since is None else moment_of(since, time.time())
    return fleet_pb2.ListAuditRequest(since_unix_seconds=from_when)


def _reported(client: AdminClient, request: fleet_pb2.ListAuditRequest) -> list[AuditLine]:
    """Lines of the learner's log.

    Raises:
        LearnerError: it tells no digests.
    """
    lines = [AuditLine(**facts_of(entry)) for entry in client.ask(request).entries]
    if any(line.log not in LOGS for line in lines):
        raise LearnerError("this learner tells no digests of its audit log: it is of an earlier version; update it")
    return lines


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadLearnerConfig(f"--file {str(path)[:200]}: cannot be read ({reason})") from error
    if len(data) > _LARGEST_FILE_BYTES:
        raise BadLearnerConfig(f"--file {path}: is larger than {_LARGEST_FILE_BYTES} bytes; no log is")
    return data


def _of(log: str, lines: Sequence[AuditLine]) -> list[AuditLine]:
    return [line for line in lines if line.log == log]


def _faults(chains: Sequence[Chain], misfit: Misfit | None, heads: Sequence[Facts]) -> list[str]:
    """Faults in the order in which they are told; behind `misfit` nothing was looked at."""
    found = [each.what for each in (*(chain.misfit for chain in chains), misfit) if each is not None]
    return found + [
        f"digest {entry['head'][:16]}… that was noted stands nowhere in it: its line, or one before it, was cut off or"
        " changed"
        for entry in heads
        if entry["line"] is None
    ]


def _head_facts(digest: str, lines: Sequence[AuditLine], chains: Sequence[Chain]) -> Facts:
    for chain in chains:
        own = _of(chain.log, lines)[: chain.lines]
        line = place_of(digest, own)
        if line is not None:
            return {"head": digest, "log": chain.log, "line": line.number, "lines_since": own[-1].number - line.number}
    return {"head": digest, "log": None, "line": None, "lines_since": None}


def _chain_facts(chain: Chain) -> Facts:
    return {
        "log": chain.log,
        "first_line": chain.first or None,
        "lines": chain.lines,
        "head": chain.head or None,
        "misfit_line": chain.misfit.line if chain.misfit is not None else None,
        "misfit": chain.misfit.what if chain.misfit is not None else None,
    }


def chains_table(chains: Sequence[Chain], title: str) -> FittedTable:
    """Both logs, with the digests to note elsewhere."""
    columns = (Column("log"), Column("lines"), Column("head: note it elsewhere", words=True))
    rows = [
        (
            chain.log,
            f"{chain.first} to {chain.first + chain.lines - 1}" if chain.lines else "none",
            f"head {chain.head}" if chain.head else NOTHING,
        )
        for chain in chains
    ]
    for_programs = [
        (chain.log, str(chain.first) if chain.lines else NOTHING, str(chain.lines), chain.head or NOTHING)
        for chain in chains
    ]
    headings = ("log", "first line", "lines", "head")
    return FittedTable(title, columns, rows, for_programs=for_programs, program_headings=headings)


def audit_table(entries: list[Facts]) -> FittedTable:
    """The log, oldest first."""
    columns = (Column("UTC"), Column("who", text=True), Column("did", text=True), Column("to", words=True))
    rows = [
        (
            moment(entry["unix_seconds"]),
            entry["actor"],
            entry["action"],
            ": ".join(part for part in (entry["subject"], entry["detail"]) if part),
        )
        for entry in entries
    ]
    whole = [(whole_moment(entry["unix_seconds"]), *row[1:]) for entry, row in zip(entries, rows, strict=True)]
    return FittedTable("", columns, rows, for_programs=whole)
