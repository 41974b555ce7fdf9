"""Options that commands of policyctl share: the learner to ask, how results are printed, versions and moments.

Which learner is asked: the one that `--learner` names, else the context that `--context` names, else the environment's
(FEDL2_LEARNER, or the context FEDL2_CONTEXT), else the current context, else one on this machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import click
import typer
from click.core import ParameterSource

from foundation.output import Form, Output, show, watch
from global_learner.errors import BadLearnerConfig, Unreachable
from global_learner.policyctl.contexts import Context, contexts_file, read_contexts
from global_learner.policyctl.views import Facts
from global_learner.registry.version_words import version_of

if TYPE_CHECKING:
    from rich.console import Group

    from foundation.tables import FactSheet, FittedTable
    from global_learner.policyctl.client import AdminClient, ShownFiles, TlsFiles

Found = TypeVar("Found", Facts, list[Facts])
VersionArgument = Annotated[str, typer.Argument(help="A version such as 3 or v3, its alias, or `latest`.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, in a line for others.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_AGO = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
USUAL_LEARNER = "127.0.0.1:7070"
_POLL_SECONDS = 2.0
"""Longest pause between two tries while no learner answers."""
AWAY_SECONDS = 60.0
"""A failover takes ten seconds, a restart mostly less."""

Answer = TypeVar("Answer")


def polls(
    once: Callable[[], Answer],
    every_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Answer]:
    """Answers of `once`, again and again without an end; it raises `Unreachable` where no learner answers.

    Raises:
        Unreachable: at the first look, or for longer than `AWAY_SECONDS`.
        LearnerError: other refusals of the learner.
    """
    yield once()
    pause, words = min(every_seconds, _POLL_SECONDS), f"{AWAY_SECONDS:g} s"
    while True:
        sleep(every_seconds)
        try:
            found = answer_when_reachable(once, AWAY_SECONDS, words, lambda: pause, remark, clock, sleep)
        except Unreachable as error:
            raise Unreachable(f"no learner has answered for {words}; {error}") from error
        yield found


def answer_when_reachable(
    once: Callable[[], Answer],
    away_seconds: float,
    words: str,
    pause_seconds: Callable[[], float],
    remark: Callable[[str], None],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Answer:
    """Answer of `once`; where no learner answers, as soon as one does.

    Args:
        words: `away_seconds` as people say it.
        pause_seconds: before the next try.

    Raises:
        Unreachable: none has answered for `away_seconds`.
    """
    away_since: float | None = None
    while True:
        tried = clock()
        try:
            found = once()
        except Unreachable:
            is_first = away_since is None
            away_since = tried if away_since is None else away_since
            left = away_seconds - (clock() - away_since)
            if left <= 0.0:
                raise
            if is_first:
                remark(f"no learner answers; waiting for one, for {words} at most")
            sleep(min(pause_seconds(), left))
            continue
        if away_since is not None:
            remark("a learner answers again")
        return found


def remark(line: str) -> None:
    """Print a line on stderr at once."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Options of every command: the learner to ask, and the form of the output."""

    learner: Annotated[
        str | None,
        typer.Option(
            "--learner",
            envvar="FEDL2_LEARNER",
            help=(
                "The learner's HOST:PORT, or its socket, unix:STATE_DIR/operator.sock; unless given the context's, "
                f"else {USUAL_LEARNER}."
            ),
        ),
    ] = None
    context: Annotated[
        str | None,
        typer.Option("--context", envvar="FEDL2_CONTEXT", help="A learner by its name; see `policyctl context`."),
    ] = None
    output: Output = Form.TABLE
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.01, max=600.0, help="Seconds to wait for the learner.")
    ] = 5.0
    ca: Annotated[Path | None, typer.Option("--ca", help="Certificates the learner's is checked against (PEM).")] = None
    cert: Annotated[
        Path | None,
        typer.Option(
            "--cert",
            envvar="FEDL2_CERT",
            help=(
                "This caller's certificate (PEM); of an identity file, such as the learner's admin.pem, also key and "
                "ca."
            ),
        ),
    ] = None
    key: Annotated[Path | None, typer.Option("--key", help="Its private key (PEM).")] = None

    @contextlib.contextmanager
    def client(self) -> Iterator[AdminClient]:
        """A client of the learner.

        Raises:
            BadConfig, IdentityFileError: the address or a file cannot be used.
        """
        with self._client_at(lambda tls: tls) as client:
            yield client

    @contextlib.contextmanager
    def client_and_number(self, version: str) -> Iterator[tuple[AdminClient, int]]:
        """The same, with the number of a version that was typed; raises BadConfig if it can be none."""
        parsed = parsed_version(version)
        with self.client() as client:
            yield client, client.number_of(parsed)

    def clients(self) -> Callable[[], contextlib.AbstractContextManager[AdminClient]]:
        """Maker of a client for each look of a watch.

        Files of its connection may be replaced meanwhile; if they cannot be used, those from before are shown.
        """
        known: dict[TlsFiles, ShownFiles] = {}

        def shown(tls: TlsFiles) -> ShownFiles:
            from global_learner.policyctl.client import ShownFiles  # noqa: PLC0415

            return known.setdefault(
                tls, ShownFiles(tls, lambda reason: remark(f"{reason}; the certificate from before is shown"))
            )

        return lambda: self._client_at(shown)

    @contextlib.contextmanager
    def _client_at(self, shown: Callable[[TlsFiles], TlsFiles | ShownFiles]) -> Iterator[AdminClient]:
        found = self.connection()
        # gRPC would print lines of its own about handshakes; what is wrong is found out and said in ours.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        # Help and refusals of what was typed need no gRPC.
        from global_learner.policyctl.client import AdminClient, TlsFiles  # noqa: PLC0415

        tls = TlsFiles(*(None if path is None else Path(path) for path in (found.ca, found.cert, found.key)))
        client = AdminClient(found.learner, shown(tls), self.timeout)
        try:
            yield client
        finally:
            client.close()

    def connection(self) -> Context:
        """The learner to ask, and the files of the connection.

        Raises:
            BadConfig: there is no such context, or the file of contexts cannot be used.
        """
        _, context = self._context()
        ca, cert, key = (None if path is None else str(path) for path in (self.ca, self.cert, self.key))
        if context is None:
            return Context(USUAL_LEARNER if self.learner is None else self.learner, ca, cert, key)
        learner = context.learner
        if self.learner is not None and not _is_of_environment("learner"):
            learner = self.learner
        # Files of two connections do not fit together: all that were typed, the context's, or the environment's.
        if ca or key or (cert and not (_is_of_environment("cert") and context.cert)):
            return Context(learner, ca, cert, key)
        return Context(learner, context.ca, context.cert, context.key)

    @property
    def place(self) -> str:
        """The learner to ask, in words: its context's name with its address, or its address alone."""
        name, _ = self._context()
        address = self.connection().learner
        return f"{name} ({address})" if name else address

    def _context(self) -> tuple[str, Context | None]:
        """The context that holds; none if what was typed, or the environment, names a learner and no context."""
        if self.context is not None and (self.learner is None or not _is_of_environment("context")):
            file = contexts_file(os.environ)
            return self.context, read_contexts(file).named(self.context, file)
        if self.learner is not None:
            return "", None
        contexts = read_contexts(contexts_file(os.environ))
        return (contexts.current, contexts.by_name[contexts.current]) if contexts.current is not None else ("", None)

    def show(self, facts: Facts | list[Facts], table: FittedTable | FactSheet | Group) -> None:
        """Print a result in the form that was asked for."""
        show(self.output, facts, table)


Watch = Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")]
Every = Annotated[float, typer.Option("--every", min=0.1, max=3600.0, help="Seconds between two looks.")]
POLL_SECONDS = 2.0
"""Between two looks, unless somebody says otherwise."""


@dataclass(frozen=True, slots=True)
class PollOptions(CallOptions):
    """Options of a command that only looks."""

    watch: Watch = False
    every: Every = POLL_SECONDS

    def poll(
        self, ask: Callable[[AdminClient], Found], table: Callable[[Found], FittedTable | FactSheet | Group]
    ) -> None:
        """Ask a learner for something and print it; with --watch, again and again.

        Raises:
            LearnerError: what the learner says; of a watched one, where none answers for too long.
        """
        if not self.watch:
            with self.client() as client:
                facts = ask(client)
            self.show(facts, table(facts))
            return
        clients = self.clients()

        def once() -> Found:
            # A connection of its own each time: one that was lost is tried again by gRPC's clock, and not by ours.
            with clients() as client:
                return ask(client)

        watch(polls(once, self.every), table, self.output)


def _is_of_environment(parameter: str) -> bool:
    """Whether an option's value was not typed, but is the environment's."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(parameter) is ParameterSource.ENVIRONMENT


def confirm(what: str, yes: bool, where: Callable[[], str], flag: str = "--yes") -> None:
    """Ask on a terminal whether to do something, unless `yes`.

    Args:
        where: beginning of the question: the learner, and its state.
        flag: option that stands for the answer yes.

    Raises:
        BadConfig: the answer is no, or there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadLearnerConfig(f"to {what}, add {flag}: there is no terminal to ask on")
    if not typer.confirm(f"On {where()}: {what}?", err=True):
        raise BadLearnerConfig("nothing was changed")


def parsed_version(text: str) -> int | str:
    """The number in `3` or `v3`; `latest` and aliases as they are: the learner knows which versions these are.

    Raises:
        BadConfig: it is none of these.
    """
    found = version_of(text)
    if found is None:
        raise BadLearnerConfig(f"{text!r} is no version: use a number such as 3 or v3, an alias, or `latest`")
    return found


def moment_of(text: str, now_unix_seconds: float) -> float:
    """Unix seconds of `90s`, `30m`, `12h` or `7d` before now, or of a date or moment in UTC.

    Raises:
        BadConfig: it is none of these.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_unix_seconds - int(ago[1]) * _SECONDS[ago[2]]
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise BadLearnerConfig(
            f"{text!r} is no moment: use 30m, 12h, 7d, or 2026-01-31 or 2026-01-31T12:00 (UTC)"
        ) from error
