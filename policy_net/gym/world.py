"""The options of `policy-net replay` as keyword arguments, where words stand for choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from policy_net.domain import CapacityMode
from policy_net.errors import BadInput
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.simulation.environment import DecideOn, PlacementStrategy
from policy_net.laboratory.simulation.job_kinds import JobKindChoice

CHOICES: Mapping[str, Callable[[Any], object]] = MappingProxyType(
    {
        "capacity": CapacityMode,
        "decide_on": DecideOn,
        "placement": PlacementStrategy,
        "job_kind": JobKindChoice,
        "speeds_file": Path,
    }
)
"""What the command line makes of these options' texts."""


def world_options(given: Mapping[str, Any]) -> WorldOptions:
    """The options under `WorldOptions`' names, with a seed to be set later.

    Raises:
        BadInput: there is no such option, or a choice is not one of those that there are.
    """
    if "seed" in given:
        raise BadInput("seed is no option of the environment: give it to reset(seed=…), which draws the workload")
    values = dict(given)
    for name, choice in CHOICES.items():
        if values.get(name) is not None:
            try:
                values[name] = choice(values[name])
            except (TypeError, ValueError) as error:
                raise BadInput(f"{name} is {values[name]!r}: {error}") from error
    try:
        return WorldOptions(**values)
    except TypeError as error:
        raise BadInput(
            f"{error}; the options are the fields of policy_net.laboratory.commands.world_options.WorldOptions"
        ) from error
