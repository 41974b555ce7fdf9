"""What shells complete of every program is what the program has: asked of Bash itself, and of Zsh and fish if there."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

import cluster_agent.cli
import elastic_runtime.cli
import global_learner.cli
import global_learner.policyctl.cli
import policy_net.cli
from foundation.command_line import command_of, run
from foundation.completion import Shell, places, script

PROGRAMS = {
    "policyctl": global_learner.policyctl.cli.app,
    "policy-net": policy_net.cli.app,
    "elastic-run": elastic_runtime.cli.app,
    "global-learner": global_learner.cli.app,
    "cluster-agent": cluster_agent.cli.app,
}
SECONDS = 120


def made(program: str, shell: Shell) -> str:
    return script(command_of(PROGRAMS[program]), program, shell)


def completed(program: str, *lines: Sequence[str], before: str = "", folder: Path | None = None) -> list[list[str]]:
    """What Bash offers for the last word of each line."""
    function = f"_{program.replace('-', '_')}_completion"
    asked = [before, made(program, Shell.BASH)]
    for line in lines:
        words = " ".join(f"'{word}'" for word in (program, *line))
        asked.append(f'COMP_WORDS=({words}); COMP_CWORD={len(line)}; {function}; echo "${{COMPREPLY[@]}}"')
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(asked)],
        capture_output=True, text=True, timeout=SECONDS, check=True, cwd=folder,
    )  # fmt: skip
    return [sorted(offered.split()) for offered in done.stdout.splitlines()]


@pytest.mark.parametrize("program", PROGRAMS)
def test_bash_reads_the_script_and_the_program_prints_it(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(PROGRAMS[program], program, ["completion", "bash"]) == 0
    printed = capsys.readouterr().out
    assert printed == made(program, Shell.BASH)
    done = subprocess.run(["bash", "-n"], input=printed, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert done.stderr == ""


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_command_and_every_option_of_every_command_is_offered(program: str, tmp_path: Path) -> None:
    command = command_of(PROGRAMS[program])
    assert isinstance(command, click.Group)
    found = list(places(command))
    names = completed(program, *((*place.path, "") for place in found if place.groups), folder=tmp_path)
    expected = [place.words for place in found if place.groups]
    assert [set(offered) for offered in names] == [set(words) for words in expected]
    assert set(expected[0]) == set(command.commands)
    flags = completed(program, *((*place.path, "-") for place in found))
    for place, offered in zip(found, flags, strict=True):
        assert set(offered) == {name for option in place.options for name in option.names}
        inside: click.Command = command
        for word in place.path:
            assert isinstance(inside, click.Group)
            inside = inside.commands[word]
        assert {name for parameter in inside.params for name in parameter.opts if name.startswith("-")} <= set(offered)


def test_words_are_completed_where_they_stand() -> None:
    assert completed(
        "policyctl",
        ["ver"],
        ["version", "un"],
        ["version", "list", "--out"],
        ["version", "list", "-o", "j"],
        ["version", "list", "--output", "=", "y"],
        ["version", "list", "--output", "="],
        ["fleet", "--learner", "version"],
        ["key", "rotate", "r"],
        ["audit", "--si"],
        ["audit", "export", "--o"],
    ) == [
        ["version"],
        ["unalias", "unpin"],
        ["--output"],
        ["json"],
        ["yaml"],
        ["csv", "json", "table", "wide", "yaml"],
        [],
        ["root"],
        ["--since"],
        ["--out", "--output"],
    ]  # fmt: skip


def test_a_program_with_a_command_that_needs_no_name_offers_that_ones_options() -> None:
    runs, after, word = completed("elastic-run", ["--min"], ["--ps", "1", "--min"], ["res"])
    assert runs == after == ["--min-ps", "--min-workers"]
    assert word == ["resize", "resume"]


def test_names_of_files_are_offered_where_one_is_meant(tmp_path: Path) -> None:
    (tmp_path / "learner.yaml").touch()
    assert completed("global-learner", ["serve", "--config", "lea"], folder=tmp_path) == [["learner.yaml"]]
    assert completed("policy-net", ["inspect", "lea"], ["tune", "--trials", "lea"], folder=tmp_path) == [
        ["learner.yaml"],
        [],
    ]


def test_names_that_only_the_program_knows_are_asked_of_it() -> None:
    program = 'cluster-agent() { echo "$_CLUSTER_AGENT_COMPLETE" "$COMP_CWORD" digits-a; }'
    asked, other = completed("cluster-agent", ["job", "dig"], ["jobs", "dig"], before=program)
    assert (asked, other) == (["2", "complete_bash", "digits-a"], [])


def test_another_shell_is_refused_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(PROGRAMS["policyctl"], "policyctl", ["completion", "tcsh"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "'bash', 'zsh', 'fish'" in said.err


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no Zsh here")
@pytest.mark.parametrize("program", PROGRAMS)
def test_zsh_reads_the_script(program: str) -> None:
    text = f"{made(program, Shell.ZSH)}\nprint $_comps[{program}]\n"
    done = subprocess.run(["zsh", "-f"], input=text, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert "bash" in done.stdout


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
def test_fish_offers_commands_and_options() -> None:
    for line, offered in {
        "policyctl ver": ["version"],
        "policyctl version list -o ": ["csv", "json", "table", "wide", "yaml"],
        "elastic-run --ps 1 --min": ["--min-ps", "--min-workers"],
    }.items():
        program = line.split()[0]
        text = f"{made(program, Shell.FISH)}\ncomplete -C '{line}'\n"
        done = subprocess.run(
            ["fish", "--no-config"], input=text, capture_output=True, text=True, timeout=SECONDS, check=True
        )
        assert sorted(found.split("\t")[0] for found in done.stdout.splitlines()) == offered


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_fish_is_told_names_every_option(program: str) -> None:
    text = made(program, Shell.FISH)
    for place in places(command_of(PROGRAMS[program])):
        here = [line for line in text.splitlines() if f"_at \\'{place.name}\\''" in line]
        for option in place.options:
            for name in option.names:
                flag = f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}"
                assert any(f"{line} ".find(f"{flag} ") >= 0 for line in here), (place.path, name)
