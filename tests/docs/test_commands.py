"""Every command, option, make target and metric that the documentation names exists, and can be typed as it stands."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
from docs_pages import PAGES, ROOT, code, command_lines

from cluster_agent.cli import app as cluster_agent
from deploy.reference.commands import all_commands
from deploy.reference.metrics import metrics_page
from foundation.command_line import HabitGroup
from global_learner.cli import app as global_learner
from global_learner.policyctl.cli import app as policyctl

COMMANDS = dict(all_commands())
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
VARIABLES = set(re.findall(r"\$\(([A-Z_]+)\)", (ROOT / "Makefile").read_text(encoding="utf-8")))
PARAMETERS = [parameter for command in COMMANDS.values() for parameter in command.params]
BENCHMARK_SOURCES = [path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").rglob("*.py")]
BENCHMARK_SOURCES += [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "examples").rglob("*.py")]
BENCHMARK_OPTIONS = {
    name for text in BENCHMARK_SOURCES for name in re.findall(r"add_argument\([^)]*?\"(--[a-z-]+)\"", text)
}
STARTERS = {"python": frozenset[str](), "torchrun": frozenset({"--nproc-per-node"})}
"""Programs that run a script of ours, and the options of theirs that pages use."""
OPTIONS = {"--help", "--version", "--install-completion"}
OPTIONS |= {name for parameter in PARAMETERS for name in (*parameter.opts, *parameter.secondary_opts)}
OPTIONS |= {"--from-file", "--for", "--timeout", "--type", "--cascade"}  # of kubectl
OPTIONS |= {"--json"}  # of sacct
OPTIONS |= {"--no-deps", "--wheel-dir", "--index-url"}  # of pip
OPTIONS |= {"--system", "--home-dir", "--create-home", "--shell", "--now"}  # of useradd and systemctl
OPTIONS |= BENCHMARK_OPTIONS | {name for names in STARTERS.values() for name in names}
ENVIRONMENT = {str(parameter.envvar) for parameter in PARAMETERS if parameter.envvar}
FOREIGN = ("cd", "mkdir", "rm", "source", "sacct", "kubectl", "helm", "docker", "openssl")
FOREIGN += (
    "python3",
    "scp",
    "mv",
    "cp",
    "useradd",
    "install",
    "systemctl",
    "journalctl",
    "sudo",
    "/opt/fedl2/bin/python",
)
"""Programs that are not ours, and may stand in a shell block."""
METRIC = re.compile(r"\bfedl2_(?:learner|agent|elastic)_[a-z_]+\b")

LINES = [(page, line) for page in PAGES for line in command_lines(page)]


def test_the_documentation_shows_commands_of_every_program() -> None:
    shown = " ".join(line for _, line in LINES)
    for program in ("policy-net replay", "policy-net train", "policy-net inspect", "global-learner serve"):
        assert program in shown
    for program in ("cluster-agent run", "policyctl version list", "policyctl version show", "policyctl fleet"):
        assert program in shown


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page.name}:{line}" for page, line in LINES])
def test_a_line_in_a_shell_block_can_be_typed(page: Path, line: str) -> None:
    words = shlex.split(line)
    if words[0] == "make":
        for word in words[1:]:
            assert word in TARGETS or word.partition("=")[0] in VARIABLES, f"make knows no {word!r}"
    elif words[0] == "export":
        names = {word.partition("=")[0] for word in words[1:]}
        assert names <= ENVIRONMENT, f"no option reads {names - ENVIRONMENT}"
    elif words[0] in STARTERS:
        scripts = [word for word in words if word.endswith(".py")]
        assert scripts, f"{words[0]} runs nothing"
        assert (ROOT / scripts[0]).is_file(), f"there is no {scripts[0]}"
    elif words[0] not in FOREIGN:
        _parse(words)


def _parse(words: list[str]) -> None:
    """Parse a command line as the program would, without running it."""
    for length in range(len(words), 0, -1):
        command = COMMANDS.get(" ".join(words[:length]))
        if command is not None:
            command.make_context("docs", words[length:])
            return
    pytest.fail(f"no program knows {' '.join(words)!r}")


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_option_that_a_page_names_exists(page: Path) -> None:
    named = {word for text in code(page) for word in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)}
    assert named <= OPTIONS, f"{page}: no program has {named - OPTIONS}"


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_benchmark_that_a_page_names_exists_or_is_one_of_the_studies_that_are_over(page: Path) -> None:
    over = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8").partition("\n## Studies that are over\n")[2]
    for line in page.read_text(encoding="utf-8").splitlines():
        for start, name in re.findall(r"(-m )?\bbenchmarks[./](\w+(?:[./]\w+)*)", line):
            path = ROOT / "benchmarks" / name.removesuffix(".py").replace(".", "/")
            if not path.is_dir() and not path.with_suffix(".py").is_file():
                assert f"`{name}`" in over, f"{page}: there is no benchmarks.{name}"
                assert not start or "#studies-that-are-over" in line, f"{page}: {name} can no longer be typed"


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_make_target_and_variable_that_a_page_names_exists(page: Path) -> None:
    for text in code(page):
        for target in re.findall(r"^make ([a-z-]+)$", text):
            assert target in TARGETS, f"{page}: no target {target!r}"


def test_every_make_target_is_documented() -> None:
    everything = " ".join(text for page in PAGES for text in code(page))
    missing = {target for target in TARGETS if f"make {target}" not in everything} - {"help"}
    assert not missing, f"not in the documentation: {missing}"


def test_metrics_in_the_documentation_and_in_the_source_are_the_same() -> None:
    documented = {name for page in PAGES for name in METRIC.findall(page.read_text(encoding="utf-8"))}
    assert documented == set(METRIC.findall(metrics_page()))
    sources = [
        path for name in ("cluster_agent", "elastic_runtime", "global_learner") for path in (ROOT / name).rglob("*.py")
    ]
    made = {name for path in sources for name in re.findall(r'"(fedl2_[a-z_]+)"', path.read_text(encoding="utf-8"))}
    assert {name.removesuffix("_total") for name in made} == {name.removesuffix("_total") for name in documented}


def test_the_readme_shows_the_two_commands() -> None:
    lines = command_lines(ROOT / "README.md")
    assert "make demo" in lines
    assert any(line.startswith("make demo WORKLOADS=") for line in lines)


def test_commands_with_a_missing_option_would_be_noticed() -> None:
    with pytest.raises(click.UsageError):
        _parse(["policy-net", "replay", "--no-such-option"])


def test_what_a_habit_is_answered_with_is_a_command() -> None:
    habits = [
        habit for app in (cluster_agent, global_learner, policyctl) for habit in habits_of(typer.main.get_command(app))
    ]
    assert {word for word, _ in habits} >= {"ps", "rm", "status", "history", "approve", "rollback"}
    meant = [command.partition(" --") for _, command in habits]
    assert {command for command, _, _ in meant} <= COMMANDS.keys()
    assert all(f"--{option}" in options_of(command) for command, _, option in meant if option)


def options_of(command: str) -> set[str]:
    return {option for parameter in COMMANDS[command].params for option in parameter.opts}


def habits_of(group: click.Command) -> Iterator[tuple[str, str]]:
    if isinstance(group, HabitGroup):
        yield from group.habits.items()
    for command in group.commands.values() if isinstance(group, click.Group) else ():
        yield from habits_of(command)
