"""Completion scripts for shells: what a program's commands and options are called, written down once.

The script knows all names itself: a tab starts no interpreter, which would take a quarter of a second each time. Names
that only a server knows, as those of an agent's jobs, are asked of the program where a parameter says how.
Zsh reads the script for Bash, through its own `bashcompinit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

import click
import typer

from foundation.command_line import command_of
from foundation.python310 import StrEnum
from foundation.text import plain_line

COMMAND = "completion"
_HELP_CHARACTERS = 100
_TOP = ("--help", "--version")
"""Options of a whole program; neither is followed by another word that counts."""


_ZSH = """\
whence compdef >/dev/null || { autoload -U +X compinit && compinit; }
whence complete >/dev/null || { autoload -U +X bashcompinit && bashcompinit; }
"""
"""Once only: a second `compinit` forgets what was completed before."""


class Shell(StrEnum):
    """For which scripts are made."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        value: whether a word follows that is its value.
        files: whether that is the name of a file or a folder.
        choices: the words that it may be; empty where it may be another.
        meaning: its help's first sentence, on one line.
    """

    names: tuple[str, ...]
    value: bool = False
    files: bool = False
    choices: tuple[str, ...] = ()
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class CompletionPlace:
    """What may be typed after a command's words.

    Attributes:
        words: sub-commands, or words that an argument may be, each with its meaning.
        default: the sub-command that is meant where none is named.
        files: whether an argument is the name of a file or a folder.
        dynamic: whether only the program knows what an argument may be.
    """

    path: tuple[str, ...]
    words: dict[str, str] = field(default_factory=dict)
    options: tuple[Option, ...] = ()
    groups: bool = False
    default: str | None = None
    files: bool = False
    dynamic: bool = False

    @property
    def name(self) -> str:
        """The words as one."""
        return " ".join(self.path)


def completion_command(application: typer.Typer, program: str) -> Callable[[Shell], None]:
    """The command `completion` of a program, which is added to it as the last one."""

    def completion(
        shell: Annotated[Shell, typer.Argument(help="The shell that is to read the script.")],
    ) -> None:
        """Print a script with which a shell completes this program's commands and options."""
        print(script(command_of(application), program, shell), end="")

    return completion


def script(command: click.Command, program: str, shell: Shell) -> str:
    """The script of a program for a shell; the same each time."""
    found = list(places(command))
    if shell is Shell.FISH:
        return _fish(program, found)
    first = _ZSH if shell is Shell.ZSH else ""
    return f"# {shell} completion: the output of `{program} {COMMAND} {shell}`\n{first}{_bash(program, found)}"


def places(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[CompletionPlace]:
    """Every place of a program, a group before what is in it."""
    options = tuple(_options(command)) + ((Option(("--version",), meaning="Show the version and exit."),) * (not path))
    if not isinstance(command, click.Group):
        arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
        yield CompletionPlace(
            path,
            {word: "" for argument in arguments for word in _choices(argument)},
            options,
            files=any(isinstance(argument.type, click.Path) for argument in arguments),
            dynamic=any(getattr(argument, "_custom_shell_complete", None) is not None for argument in arguments),
        )
        return
    shown = {name: child for name, child in command.commands.items() if not child.hidden}
    words = {name: _first_sentence(child.get_short_help_str(_HELP_CHARACTERS)) for name, child in shown.items()}
    below = [place for name, child in shown.items() for place in places(child, (*path, name))]
    default = getattr(command, "default_command", None)
    files = False
    for place in below:
        if default is not None and place.path == (*path, default):  # what may follow it may follow the group
            known = {name for option in options for name in option.names}
            options += tuple(option for option in place.options if not known & set(option.names))
            files = place.files
    yield CompletionPlace(path, words, options, groups=True, default=default, files=files)
    yield from below


def _options(command: click.Command) -> Iterator[Option]:
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            yield Option(
                (*parameter.opts, *parameter.secondary_opts),
                value=not (parameter.is_flag or parameter.count),
                files=isinstance(parameter.type, click.Path),
                choices=_choices(parameter),
                meaning=_first_sentence(parameter.help or ""),
            )
    yield Option(("--help",), meaning="Show this message and exit.")


def _choices(parameter: click.Parameter) -> tuple[str, ...]:
    return tuple(map(str, parameter.type.choices)) if isinstance(parameter.type, click.Choice) else ()


def _first_sentence(text: str) -> str:
    return plain_line(text.partition("\n")[0].partition(". ")[0], _HELP_CHARACTERS).rstrip(".")


def _bash(program: str, found: list[CompletionPlace]) -> str:
    """The script for Bash; variables have names that mean nothing to Zsh."""
    function = f"_{program.replace('-', '_')}_completion"
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE=complete_bash"
    lines = [
        f"{function}() {{",
        '    local typed="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        '    local place="" flags="" names="" index=1',
        "    COMPREPLY=()",
        '    while [ "$index" -lt "$COMP_CWORD" ]; do',
        '        case "$place|${COMP_WORDS[index]}" in',
        *(f"            {line}" for line in _ways(found)),
        "        esac",
        "        index=$((index + 1))",
        "    done",
        '    if [ "$typed" = "=" ]; then',
        '        typed=""',
        '    elif [ "$before" = "=" ]; then',
        '        before="${COMP_WORDS[COMP_CWORD-2]}"',
        "    fi",
        '    case "$place|$before" in',
        *(f"        {line}" for line in _values(found, function)),
        "    esac",
        '    case "$place" in',
    ]
    for place in found:
        flags = " ".join(name for option in place.options for name in option.names)
        lines.append(f"        '{place.name}') flags='{flags}' names='{' '.join(place.words)}' ;;")
    lines += [
        "    esac",
        '    case "$typed" in',
        '        -*) COMPREPLY=($(compgen -W "$flags" -- "$typed")); return ;;',
        "    esac",
        '    COMPREPLY=($(compgen -W "$names" -- "$typed"))',
        '    case "$place" in',
    ]
    if dynamic := [place for place in found if place.dynamic]:
        query = f'COMP_WORDS="${{COMP_WORDS[*]}}" COMP_CWORD="$COMP_CWORD" {variable} {program} 2>/dev/null'
        lines.append(f"        {_either(place.name for place in dynamic)}) COMPREPLY=($({query})) ;;")
    if files := [place for place in found if place.files]:
        lines.append(f"        {_either(place.name for place in files)}) {function}_files ;;")
    lines += [
        "        *) ;;",
        "    esac",
        "}",
        f"{function}_files() {{  # where Bash can, it marks folders and quotes names itself",
        '    compopt -o default 2>/dev/null || COMPREPLY+=($(compgen -f -- "$typed"))',
        "}",
        f"complete -F {function} {program}",
    ]
    return "\n".join(lines) + "\n"


def _ways(found: list[CompletionPlace]) -> Iterator[str]:
    """Cases that lead from a place, and a word, to the next place."""
    for place in found:
        if not place.groups:
            continue
        words = _either(f"{place.name}|{word}" for word in place.words)
        yield f'{words}) place="${{place:+$place }}${{COMP_WORDS[index]}}" ;;'
        if place.default is not None:
            yield f"{_either(f'{place.name}|{word}' for word in _TOP)}) ;;"
            yield f"'{place.name}|'*) place='{' '.join((*place.path, place.default))}' ;;"
    yield "*) ;;"


def _values(found: list[CompletionPlace], function: str) -> Iterator[str]:
    """Cases of an option whose value is typed: what it may be."""
    after: dict[tuple[bool, tuple[str, ...]], list[str]] = {}
    for place in found:
        for option in place.options:
            if option.value:
                after.setdefault((option.files, option.choices), []).extend(
                    f"{place.name}|{name}" for name in option.names
                )
    for (files, choices), cases in after.items():
        answer = f"{function}_files" if files else f"COMPREPLY=($(compgen -W '{' '.join(choices)}' -- \"$typed\"))"
        yield f"{_either(cases)}) {answer if files or choices else ':'}; return ;;"
    yield "*) ;;"


def _either(cases: Iterator[str] | list[str]) -> str:
    return "|".join(f"'{case}'" for case in cases)


def _fish(program: str, found: list[CompletionPlace]) -> str:
    name = f"__{program.replace('-', '_')}"
    lines = [
        f"# fish completion: the output of `{program} {COMMAND} fish`",
        f"function {name}_at  # whether the words before the cursor lead to this place",
        "    set -l typed (commandline -opc)",
        "    set -e typed[1]",
        "    set -l place ''",
        "    for word in $typed",
        '        switch "$place|$word"',
    ]
    for place in found:
        if not place.groups:
            continue
        words = " ".join(_quoted(f"{place.name}|{word}") for word in place.words)
        lines += [f"            case {words}", '                set place (string trim -- "$place $word")']
        if place.default is not None:
            words = " ".join(_quoted(f"{place.name}|{word}") for word in _TOP)
            lines += [f"            case {words}", "            case " + _quoted(f"{place.name}|*")]
            lines.append(f"                set place {_quoted(' '.join((*place.path, place.default)))}")
    lines += ["        end", "    end", '    test "$place" = "$argv[1]"', "end", f"complete -c {program} -f"]
    for place in found:
        here = f"complete -c {program} -n {_quoted(f'{name}_at {_quoted(place.name)}')}"
        lines += [f"{here} -a {_quoted(word)}{_described(meaning)}" for word, meaning in place.words.items()]
        if place.dynamic:
            query = "env COMP_WORDS=(commandline -opc | string join ' ')' '(commandline -ct)"
            query += " COMP_CWORD=(commandline -opc | count)"
            query += f" _{program.replace('-', '_').upper()}_COMPLETE=complete_bash {program} 2>/dev/null"
            lines.append(f"{here} -a {_quoted(f'({query})')}")
        if place.files:
            lines.append(f"{here} -F")
        for option in place.options:
            names = " ".join(f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in option.names)
            takes = " -r -F" if option.files else " -x" if option.value else ""
            choices = f" -a {_quoted(' '.join(option.choices))}" if option.choices else ""
            lines.append(f"{here} {names}{takes}{choices}{_described(option.meaning)}")
    return "\n".join(lines) + "\n"


def _described(meaning: str) -> str:
    return f" -d {_quoted(meaning)}" if meaning else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
