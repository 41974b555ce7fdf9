"""A typer group one of whose commands needs no name: `elastic-run --ps 1 train.py` is `elastic-run run --ps 1 …`."""

from __future__ import annotations

import difflib
from pathlib import Path

import click
import typer.core

DEFAULT = "run"


class DefaultCommandGroup(typer.core.TyperGroup):
    """Whatever does not begin with a command's name, and is no option of the group itself, is the default command's.

    Attributes:
        default_command: its name.
    """

    default_command = DEFAULT

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command's name in front where none stands."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            self._refuse_misspelt(ctx, args[0])
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)

    def _refuse_misspelt(self, ctx: click.Context, word: str) -> None:
        """A word that is no file, no option (`--restarts`), and nearly a command was meant as one."""
        near = [] if word.startswith("-") else difflib.get_close_matches(word, self.commands, n=1)
        if near and not Path(word).exists():
            ctx.fail(f"there is no command and no script '{word}'; did you mean '{near[0]}'?")

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Both forms, in the first line of the help."""
        del ctx
        return ["--ps N --workers M SCRIPT [ARGUMENTS]...", "|", "COMMAND [ARGUMENTS]..."]
