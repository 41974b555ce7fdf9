"""Options of `replay` that say what the answer has to tell; light, as help and refusals need no more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

HIGHEST_PRICE = 1e6


class OwnerField(StrEnum):
    """By what jobs may be added up."""

    USER = "user"
    ACCOUNT = "account"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """Options of `replay` that say what the answer has to tell."""

    range_cases: Annotated[
        int | None,
        typer.Option(
            "--range",
            min=0,
            max=1000,
            metavar="N",
            help="Replays under other assumptions, from which the answer's range comes; 0 for none. Unless given,"
            " as many as take a minute or less, for recorded jobs; with -o json, yaml or csv none without --report.",
        ),
    ] = None
    gpu_hour_price: Annotated[
        float | None,
        typer.Option(
            "--gpu-hour-price", min=0.0, max=HIGHEST_PRICE, help="What a GPU costs an hour, for the money in a year."
        ),
    ] = None
    by: Annotated[
        list[OwnerField] | None,
        typer.Option("--by", help="A table by user, account or partition, as far as the log names them (repeatable)."),
    ] = None
    timing: Annotated[
        bool, typer.Option("--timing", help="Show how long decisions of our own code took; the replay takes longer.")
    ] = False
