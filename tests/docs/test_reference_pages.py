"""The reference pages say what the programs are, no more and no less."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from cluster_agent.settings import AgentSettings
from deploy.reference.__main__ import PAGES
from deploy.reference.commands import PROGRAMS, all_commands
from global_learner.settings import LearnerSettings
from policy_net.laboratory.training.settings import TrainingSettings
from policy_net.settings_problems import CONSTANT, sections_in

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", PAGES)
def test_a_reference_page_is_what_the_programs_say_now(page: str) -> None:
    assert (ROOT / page).read_text(encoding="utf-8") == PAGES[page](), f"{page} is old: run `make reference`"


def test_every_setting_and_every_option_has_a_meaning() -> None:
    for page in ("docs/guide/settings.md", "docs/guide/commands.md", "docs/guide/metrics.md", "docs/guide/refusals.md"):
        empty = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.endswith("|  |")]
        assert not empty, f"{page}: without a meaning: {empty}"


def all_fields(model: type[BaseModel], section: str = "", constant: bool = False) -> Iterator[tuple[str, bool]]:
    """Dotted names of a configuration's fields, and whether no file sets them."""
    for name, field in model.model_fields.items():
        is_constant = constant or CONSTANT in field.metadata
        yield f"{section}{field.alias or name}", is_constant
        for inner in sections_in(field.annotation):
            yield from all_fields(inner, f"{section}{field.alias or name}.", is_constant)


def test_no_page_and_no_message_names_a_setting_that_became_a_constant() -> None:
    fields = [field for model in (LearnerSettings, AgentSettings, TrainingSettings) for field in all_fields(model)]
    settings = {name for name, is_constant in fields if not is_constant}
    constants = {name for name, is_constant in fields if "." in name} - settings
    assert "scores.deadline_seconds" in constants
    named = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, constants))})(?![\w(])")
    for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")):
        assert not named.findall(page.read_text(encoding="utf-8")), page
    for package in ("cluster_agent", "global_learner", "policy_net", "deploy"):
        for path in ROOT.glob(f"{package}/**/*.py"):
            texts = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
            found = [text.value for text in texts if isinstance(text.value, str) and named.search(text.value)]
            assert not found, f"{path}: {found}"


COMMANDS = dict(all_commands())


@pytest.mark.parametrize("words", COMMANDS)
def test_each_option_of_a_command_stands_below_it_and_means_one_thing_there(words: str) -> None:
    page = (ROOT / "docs/guide/commands.md").read_text(encoding="utf-8")
    part = page.partition(f"\n## `{words}`\n")[2].partition("\n## ")[0]
    options = [max(option.opts, key=len) for option in COMMANDS[words].params if option.opts[0].startswith("-")]
    (named,) = re.findall(r"^(?:Also|Takes) (.+)$", part, re.MULTILINE) or [""]
    own = [line for line in part.splitlines() if line.startswith("| `-")]
    for name in set(options) - {"--help"}:
        rows = [line for line in own if f"`{name}`" in line.split("|")[1]]
        assert len(rows) + named.split().count(f"`{name}`") == 1, name
    for name in named.split():
        program = next(program for program, _ in PROGRAMS if f"{words} ".startswith(f"{program} "))
        shared = page.partition(f"\n## `{program}`: options of several commands\n")[2].partition("\n## ")[0]
        assert len([line for line in shared.splitlines() if name in "".join(line.split("|")[1:2])]) == 1
