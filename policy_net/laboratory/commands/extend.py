"""Command `policy-net extend`: a `set` policy's file with further numbers to learn.

What is added are groups of a spec (`exchange.spec.SetSpec`): prices, with which it acts as it did, and the model of
sessions, at its usual numbers, which ranks jobs of unknown work by others that were submitted with them from the first
decision on. A fleet whose learner starts from such a file learns them too.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from foundation.command_line import Debug
from policy_net.errors import BadInput


class Group(StrEnum):
    """What a `set` policy's file may have beside its residual."""

    PRICES = "prices"
    SESSIONS = "sessions"


def extend(
    file: Annotated[Path, typer.Argument(help="A policy file of kind set; or `set`, which ships.")],
    groups: Annotated[
        list[Group],
        typer.Option("--with", help="What it gets (repeatable); policy-net inspect says what it has."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the new file goes.")],
    debug: Debug = False,
) -> None:
    """Give a set policy's file further numbers that a fleet can learn: prices, or the model of sessions."""
    del debug  # The error boundary looks for the flag itself.
    import numpy as np  # noqa: PLC0415  (help and refusals of options wait for none of it)

    from policy_net.exchange.policy_file import (  # noqa: PLC0415
        PolicyFile,
        check_writable,
        read_policy_file,
        write_policy_file,
    )
    from policy_net.exchange.spec import PRICES_VERSION, SESSIONS_VERSION, split_weights  # noqa: PLC0415
    from policy_net.set_policy.policy import SHIPPED_FILES, set_spec_of  # noqa: PLC0415

    check_writable(out)
    path = SHIPPED_FILES.get(str(file), file)
    content = read_policy_file(path)
    spec = set_spec_of(content, str(file))
    versions = {Group.PRICES: PRICES_VERSION, Group.SESSIONS: SESSIONS_VERSION}
    there = [group.value for group in versions if group in groups and getattr(spec, group.value)]
    if there:
        raise BadInput(f"{file}: has {' and '.join(there)} already; leave --with {there[0]} out")
    extended = spec.model_copy(update={group.value: versions[group] for group in groups})
    weights = np.zeros(extended.parameter_count, dtype=np.float32)
    before = split_weights(content.weights, spec)
    for name, values in split_weights(weights, extended).items():
        if name in before:
            values[:] = before[name]
    added = ", ".join(sorted({group.value for group in groups}))
    card = {**content.card, "extended_with": added, "extended_from": content.spec.digest}
    write_policy_file(out, PolicyFile(extended, weights, card, content.priors))
    print(f"written: {out}, with {added}")
