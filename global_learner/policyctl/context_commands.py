"""Commands of `policyctl context`: learners by name, so that no command has to be told where its learner is."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from foundation.output import Form, Output, show
from foundation.output import watch as show_again
from foundation.tables import NOTHING, Column, FittedTable
from global_learner.policyctl.contexts import Context, absolute_address, changed, contexts_file, read_contexts
from global_learner.policyctl.options import POLL_SECONDS, Every, Watch, polls
from global_learner.policyctl.views import Facts

context_app = typer.Typer(no_args_is_help=True, help="Learners by name, in a file of your own.")

Name = Annotated[str, typer.Argument(help="The context's name.")]


@context_app.command("set")
def set_context(
    name: Name,
    learner: Annotated[
        str, typer.Option("--learner", help="The learner's HOST:PORT, or its socket, unix:STATE_DIR/operator.sock.")
    ],
    ca: Annotated[
        Path | None, typer.Option("--ca", help="Certificates the learner's is checked against (PEM).")
    ] = None,
    cert: Annotated[
        Path | None, typer.Option("--cert", help="Your certificate, or identity file (PEM); it stays where it is.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", help="Its private key (PEM); it stays where it is.")] = None,
    output: Output = Form.TABLE,
) -> None:
    """Give a learner, with the files of its connection, a name; the first one is the current one."""
    # Loaded by those alone who name files.
    from global_learner.policyctl.client import TlsFiles, credentials  # noqa: PLC0415

    credentials(TlsFiles(ca, cert, key))  # said now, and not by the next command
    file = contexts_file(os.environ)
    kept = Context(
        absolute_address(learner), *(None if path is None else str(path.absolute()) for path in (ca, cert, key))
    )
    before, contexts = changed(file, lambda contexts: contexts.with_context(name, kept))
    was = before.by_name.get(name)
    facts = context_facts(name, kept, contexts.current)
    replaced = None if was in (None, kept) else context_facts(name, was, before.current)
    below = []
    if replaced is not None:
        below = [" with ".join(filter(None, [f"replaced: was {replaced['learner']}", _files_of(replaced)]))]
    show(output, facts | {"replaced": replaced}, contexts_table([facts], below))


@context_app.command("use")
def use_context(name: Name, output: Output = Form.TABLE) -> None:
    """Make a context the current one, which holds where none is named."""
    file = contexts_file(os.environ)
    _, contexts = changed(file, lambda contexts: contexts.using(name, file))
    facts = context_facts(name, contexts.by_name[name], name)
    show(output, facts, contexts_table([facts]))


@context_app.command("list")
def list_contexts(watch: Watch = False, every: Every = POLL_SECONDS, output: Output = Form.TABLE) -> None:
    """All contexts, by name."""

    def listed() -> list[Facts]:
        contexts = read_contexts(contexts_file(os.environ))
        return [context_facts(name, context, contexts.current) for name, context in sorted(contexts.by_name.items())]

    if watch:
        show_again(polls(listed, every), contexts_table, output)
        return
    facts = listed()
    show(output, facts, contexts_table(facts))


@context_app.command("delete")
def delete_context(name: Name, output: Output = Form.TABLE) -> None:
    """Forget a context; the files that it names stay."""
    file = contexts_file(os.environ)
    _, contexts = changed(file, lambda contexts: contexts.without(name, file))
    current = "there is no current context" if contexts.current is None else f"the current one is {contexts.current}"
    show(output, {"name": name, "deleted": True}, f"{name} is forgotten; {current}")


def context_facts(name: str, context: Context, current: str | None) -> Facts:
    """A context as JSON shows it."""
    return {"name": name, "current": name == current, **dataclasses.asdict(context)}


def contexts_table(contexts: list[Facts], below: Sequence[str] = ()) -> FittedTable:
    """All contexts, with the files of each in words."""
    columns = (
        Column("context"),
        Column("current", text=True),
        Column("learner", text=True),
        Column("files", words=True),
    )
    rows = [
        (entry["name"], "yes" if entry["current"] else "", entry["learner"], _files_of(entry) or NOTHING)
        for entry in contexts
    ]
    return FittedTable("", columns, rows, below)


def _files_of(entry: Facts) -> str:
    return ", ".join(f"{kind} {entry[kind]}" for kind in ("ca", "cert", "key") if entry[kind])
