"""Every setting of every configuration file with every bad value: one line that names it, and nothing begun."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel
from settings_table import SOUND, Attack, attacks, sections

import cluster_agent.errors
import global_learner.errors
from cluster_agent.settings import AgentSettings
from cluster_agent.settings_file import read_settings as read_agent
from global_learner.settings import LearnerSettings
from global_learner.settings import read_settings as read_learner
from policy_net.errors import BadInput
from policy_net.laboratory.training.settings import TrainingSettings
from policy_net.settings import read_settings_file
from policy_net.settings_problems import settings_of

READERS: dict[type[BaseModel], Callable[[Path], Any]] = {
    LearnerSettings: read_learner,
    AgentSettings: read_agent,
    TrainingSettings: lambda path: read_settings_file(path, TrainingSettings, "policy"),
}
ERRORS = (cluster_agent.errors.BadAgentConfig, global_learner.errors.BadLearnerConfig, BadInput)
LONGEST_LINE = 600
OF_A_LIBRARY = ("Input ", "should", "instance of", "Field required", "Extra inputs", "String ", "after validation")
"""Words of pydantic's own texts, which are for programmers."""


def refusal(model: type[BaseModel], path: Path) -> str | None:
    """What the reader says of a file; None if it takes it."""
    try:
        READERS[model](path)
    except ERRORS as error:
        return str(error)
    return None


def plain(line: str) -> bool:
    return line.isprintable() and len(line) < LONGEST_LINE


def faults(model: type[BaseModel], attack: Attack, path: Path) -> str | None:
    path.write_text(yaml.safe_dump(attack.content))
    line = refusal(model, path)
    if line is None:
        return "taken"
    if not plain(line):
        return f"said {line[:300]!r}"
    if any(words in line for words in OF_A_LIBRARY):
        return f"said in a library's words: {line}"
    if attack.kind != "control" and "YAML" not in line:
        named = str(attack.where[-1])
        if named not in line and str(attack.where[0]) not in line:
            return f"does not name the setting: {line}"
    return None if "config.yaml" in line else f"does not name the file: {line}"


@pytest.mark.heavy
@pytest.mark.parametrize("model", SOUND)
def test_a_bad_value_is_one_line_that_names_the_setting(model: type[BaseModel], tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(SOUND[model]))
    assert refusal(model, path) is None
    found = {attack.label: fault for attack in attacks(model) if (fault := faults(model, attack, path)) is not None}
    assert not found, "\n".join(f"{label}: {fault}" for label, fault in found.items())


@pytest.mark.parametrize("model", SOUND)
def test_a_misspelt_setting_is_met_with_the_one_that_was_meant(model: type[BaseModel], tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for where, section in sections(model):
        for name in settings_of(section):
            misspelt = f"{name[:-1]}x"
            if len(name) < 4 or misspelt in section.model_fields or any(isinstance(part, int) for part in where):
                continue
            content: Any = {}
            for part in (*where, misspelt)[::-1]:
                content = {part: content or 1}
            path.write_text(yaml.safe_dump(content))
            line = refusal(model, path) or ""
            if "unknown setting" in line:
                assert "did you mean" in line, line


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "holds no settings"),
    "blank": (b" \n\n# nothing\n", "holds no settings"),
    "list": (b"- 1\n- 2\n", "holds no settings"),
    "scalar": (b"just text\n", "holds no settings"),
    "nul": (b"cluster: \x00\n", "no valid YAML"),
    "not-utf-8": (b"cluster: n\xf6rd\n", "no UTF-8 text"),
    "utf-16": ("cluster: north\n".encode("utf-16"), "no UTF-8 text"),
    "unclosed": (b"cluster: [north\n", "no valid YAML"),
    "tab": (b"cluster:\n\t- north\n", "no valid YAML"),
    "twice": (b"cluster: a\ncluster: b\n", "line 2: no valid YAML (cluster is given twice)"),
    "twice-deep": (b"policy:\n  seed: 1\n  seed: 2\n", "line 3: no valid YAML (seed is given twice)"),
    "python-object": (b"cluster: !!python/object/apply:os.system ['true']\n", "no valid YAML"),
    "python-name": (b"cluster: !!python/name:os.system\n", "no valid YAML"),
    "own-tag": (b"cluster: !secret north\n", "no valid YAML"),
    "bad-date": (b"cluster: 2026-13-45\n", "'2026-13-45' is no timestamp; put text in quotes"),
    "bad-integer": (b"cluster: !!int many\n", "'many' is no int; put text in quotes"),
    "bad-truth": (b"cluster: !!bool maybe\n", "'maybe' is no bool; put text in quotes"),
    "list-as-key": (b"? [a, b]\n: c\n", "a key must be a word"),
    "section-as-key": (b"? {a: b}\n: c\n", "a key must be a word"),
    "anchor": (b"cluster: &a north\n", "anchors and aliases are not taken"),
    "alias": (b"cluster: north\nstate_dir: *a\n", "anchors and aliases are not taken"),
    "merge": (b"a: &a {b: 1}\nc:\n  <<: *a\n", "anchors and aliases are not taken"),
    "bomb": (
        b"a: &a [x,x,x,x,x,x,x,x,x]\n"
        + b"".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n".encode() for n in range(9)),
        "anchors and aliases are not taken",
    ),
    "deep-lists": (b"cluster: " + b"[" * 50_000, "deep"),
    "deep-sections": (b"".join(b" " * n + b"a:\n" for n in range(200)), "deep"),
    "two-documents": (b"cluster: a\n---\ncluster: b\n", "no valid YAML"),
    "long": (b"# " + b"x" * (2 << 20), "is larger than"),
    "binary": (bytes(range(256)) * 20, "no UTF-8 text"),
}


@pytest.mark.parametrize("model", SOUND)
@pytest.mark.parametrize("case", BAD_FILES)
def test_a_file_that_is_no_configuration_is_one_line(case: str, model: type[BaseModel], tmp_path: Path) -> None:
    data, says = BAD_FILES[case]
    path = tmp_path / "config.yaml"
    path.write_bytes(data)
    line = refusal(model, path)
    assert line is not None
    assert says in line
    assert plain(line)


@pytest.mark.parametrize("model", SOUND)
def test_a_byte_order_mark_does_no_harm(model: type[BaseModel], tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + yaml.safe_dump(SOUND[model]).encode())
    assert refusal(model, path) is None


@pytest.mark.parametrize("model", SOUND)
def test_what_is_no_file_is_said(model: type[BaseModel], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("config.yaml", "loop", "dangling", "nowhere", "n" * 5000, "config.yaml/x"):
        line = refusal(model, tmp_path / name)
        assert line is not None
        assert "cannot be read" in line
    assert "is larger than" in (refusal(model, Path("/dev/zero")) or "")
