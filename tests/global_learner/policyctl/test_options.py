"""What all commands of policyctl take alike, and the connection that it stands for."""

from __future__ import annotations

import dataclasses
import json

import click
import pytest
from rich.console import Group

from deploy.reference.commands import all_commands
from foundation.output import Form
from foundation.tables import NOTHING, Column, FactSheet, FittedTable
from global_learner.errors import BadLearnerConfig
from global_learner.policyctl.client import AdminClient
from global_learner.policyctl.options import CallOptions, parsed_version

ASK_NOBODY = ("policyctl completion", "policyctl context")
COMMANDS = [
    (words, command)
    for words, command in all_commands()
    if words.startswith("policyctl ") and not words.startswith(ASK_NOBODY)
]


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=[words for words, _ in COMMANDS])
def test_every_command_ends_with_the_same_options(words: str, command: click.Command) -> None:
    shared = [*(item.name for item in dataclasses.fields(CallOptions)), "debug"]
    options = [parameter for parameter in command.params if parameter.name not in ("help", "watch", "every")]
    assert [parameter.name for parameter in options][-len(shared) :] == shared
    by_name = {parameter.name: parameter for parameter in options}
    assert (by_name["learner"].envvar, by_name["cert"].envvar) == ("FEDL2_LEARNER", "FEDL2_CERT")
    assert by_name["context"].envvar == "FEDL2_CONTEXT"


def test_every_command_that_only_looks_can_be_watched() -> None:
    watched = {words for words, command in COMMANDS if "watch" in {parameter.name for parameter in command.params}}
    polls = ("list", "show", "status", "history")
    assert watched == {
        "policyctl fleet",
        "policyctl audit",
        "policyctl version diff",
        *(words for words, _ in COMMANDS if words.rpartition(" ")[2] in polls),
    }


def test_a_connection_is_closed_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[AdminClient] = []

    def close(client: AdminClient) -> None:
        closed.append(client)

    monkeypatch.setattr(AdminClient, "close", close)
    with pytest.raises(KeyError), CallOptions().client() as client:
        raise KeyError
    assert closed == [client]


def test_an_address_is_looked_at_when_the_learner_is_asked_and_no_sooner() -> None:
    options = CallOptions(learner="nowhere")
    with pytest.raises(BadLearnerConfig, match="--learner 'nowhere'"), options.client():
        pass


NORTH = {"cluster": "north", "jobs": 3}


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (Form.TABLE, "         jobs\ncluster   run\n─────────────\nnorth       3\n"),
        (Form.WIDE, "         jobs\ncluster   run\n─────────────\nnorth       3\n"),
        (Form.CSV, 'cluster,jobs run,"why, in words"\nnorth,3,\n'),
        (Form.JSON, json.dumps(NORTH, indent=2) + "\n"),
        (Form.YAML, "cluster: north\njobs: 3\n"),
    ],
)
def test_a_result_is_printed_as_it_was_asked_for(output: Form, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    columns = (Column("cluster"), Column("jobs\nrun"), Column("why, in words", words=True))
    table = FittedTable("", columns, [("north", "3", "" if output is not Form.CSV else NOTHING)])
    CallOptions(output=output).show(NORTH, table)
    assert capsys.readouterr().out == said


def test_wide_has_all_columns_and_csv_a_line_a_fact(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [Column(f"column {number}", number) for number in range(60)]
    table = FittedTable("", columns, [[str(number) for number in range(60)]])
    for output in (Form.TABLE, Form.WIDE):
        CallOptions(output=output).show({}, table)
        printed = capsys.readouterr().out
        assert ("no room for" in printed) is (output is Form.TABLE)
        assert ("column 59" in printed.splitlines()[0]) is (output is Form.WIDE)
    some = FittedTable("", [Column("version")], [("v3",)])
    CallOptions(output=Form.CSV).show({}, Group("in between", some, "", some))
    assert capsys.readouterr().out == "version\nv3\n\nversion\nv3\n"
    sheet = FactSheet("v3", [("digest", "0f" * 32), ("changed", "one"), ("", "two")])
    CallOptions(output=Form.CSV).show({}, sheet)
    assert capsys.readouterr().out == f"fact,value\ndigest,{'0f' * 32}\nchanged,one\nchanged,two\n"


@pytest.mark.parametrize("word", ["v1.2", "v2-ok", "V3", "0", "v0", "-x", "3rd", ""])
def test_what_is_neither_a_number_nor_could_be_an_alias_is_no_version(word: str) -> None:
    with pytest.raises(BadLearnerConfig, match="is no version"):
        parsed_version(word)


def test_numbers_are_numbers_and_other_words_are_left_to_the_learner() -> None:
    assert [parsed_version(word) for word in ("3", "v3", "latest", "steady", "two-weeks.b")] == [
        *(3, 3),
        *("latest", "steady", "two-weeks.b"),
    ]
