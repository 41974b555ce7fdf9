"""Every field of a job file and of a plain log with every bad value: one line, in our words, that says where."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from settings_table import WRONG, sections
from test_settings_matrix import OF_A_LIBRARY, plain

from cluster_agent.backends.local.job_file import JobFile, check_job
from cluster_agent.errors import BadJobFile
from policy_net.errors import BadInput
from policy_net.laboratory.logged import DecisionFile, PlainLine

SOUND: dict[type[BaseModel], dict[str, Any]] = {
    JobFile: {"modelType": "cnn", "script": "train.py", "elastic": True},
    PlainLine: {"time_s": 0, "nodes": [{"cpus": 8, "gpus": 4}], "jobs": [{"id": "a", "type": "cnn"}]},
}


def read_job(content: Any, folder: Path) -> None:
    (folder / "train.py").touch()
    check_job(content, folder, "job.yaml")


def read_log(content: Any, folder: Path) -> None:
    (folder / "log.jsonl").write_text(json.dumps(content) + "\n")
    list(DecisionFile(folder / "log.jsonl", 1200.0))


READERS: dict[type[BaseModel], tuple[Callable[[Any, Path], None], str]] = {
    JobFile: (read_job, "job.yaml: "),
    PlainLine: (read_log, "log.jsonl, line 1: "),
}


def attacks(model: type[BaseModel]) -> Iterator[tuple[tuple[str | int, ...], Any, dict[str, Any]]]:
    for where, section in sections(model):
        names = [field.alias or name for name, field in section.model_fields.items()]
        for name in (*names, "no_such_field", f"{names[0]}x"):
            for value in WRONG.values():
                content: Any = copy.deepcopy(SOUND[model])
                here = content
                for part in where:
                    here = here[part] if isinstance(part, int) else here.setdefault(part, {})
                here[name] = value
                yield (*where, name), value, content


@pytest.mark.parametrize("model", SOUND)
def test_a_bad_value_is_one_line_in_our_words(model: type[BaseModel], tmp_path: Path) -> None:
    read, begins = READERS[model]
    read(SOUND[model], tmp_path)
    refused = 0
    for where, value, content in attacks(model):
        try:
            read(content, tmp_path)
        except (BadJobFile, BadInput) as error:
            refused += 1
            line = str(error)
            assert begins in line
            assert plain(line), line[:300]
            assert not any(words in line for words in OF_A_LIBRARY), line
            assert str(where[-1]) in line or str(where[0]) in line, line
        else:
            assert where[-1] != "no_such_field", value
    assert refused > 100


@pytest.mark.parametrize("model", SOUND)
def test_what_is_left_out_is_met_with_what_to_give(model: type[BaseModel], tmp_path: Path) -> None:
    read, begins = READERS[model]
    needed = [field.alias or name for name, field in model.model_fields.items() if field.is_required()]
    for name in needed:
        content = {key: value for key, value in SOUND[model].items() if key != name}
        with pytest.raises((BadJobFile, BadInput), match=rf"{begins}(key|field) {name} is missing; (give|write) "):
            read(content, tmp_path)
