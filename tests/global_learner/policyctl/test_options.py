"""What all commands of policyctl take alike, and the connection that it stands for."""

from __future__ import annotations

import dataclasses
import json

import click
import pytest
from rich.table import Table

from deploy.reference.commands import all_commands
from global_learner.errors import BadConfig
from global_learner.policyctl.client import AdminClient
from global_learner.policyctl.options import CallOptions, Output

ASK_NOBODY = ("policyctl completion",)
COMMANDS = [
    (words, command)
    for words, command in all_commands()
    if words.startswith("policyctl ") and not words.startswith(ASK_NOBODY)
]


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=[words for words, _ in COMMANDS])
def test_every_command_ends_with_the_same_options(words: str, command: click.Command) -> None:
    shared = [item.name for item in dataclasses.fields(CallOptions)]
    options = [parameter for parameter in command.params if parameter.name != "help"]
    assert [parameter.name for parameter in options][-len(shared) :] == shared
    by_name = {parameter.name: parameter for parameter in options}
    assert (by_name["learner"].envvar, by_name["cert"].envvar) == ("FEDL2_LEARNER", "FEDL2_CERT")


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
    with pytest.raises(BadConfig, match="--learner 'nowhere'"), options.client():
        pass


@pytest.mark.parametrize("output", Output)
def test_a_result_is_a_table_or_json(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    CallOptions(output=output).show({"cluster": "north"}, Table("who", "north"))
    said = capsys.readouterr().out
    if output is Output.JSON:
        assert json.loads(said) == {"cluster": "north"}
    else:
        assert "north" in said
        assert "{" not in said
