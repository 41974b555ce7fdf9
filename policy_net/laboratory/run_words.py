"""Settings and figures of training runs in words, for tables and pages: times in a unit that fits, shares in %."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from foundation.figures import Unit, shown, unit_for

NOT_SET: Final = "–"
_SECTIONS: Final = {
    "training": "",
    "training.twin": "twin",
    "training.imitation": "warm start",
    "training.actor_critic": "actor-critic",
    "world": "simulation",
    "spec": "policy",
    "evolution": "evolution",
    "twin": "twin",
}
"""What stands before a setting of a section, so that settings of the same name are told apart."""
_NAMES: Final = {
    "seconds": "took",
    "max_seconds": "time limit",
    "imitate": "imitated",
    "from": "began with",
    "parent": "parent policy",
    "spec.policy": "kind of policy",
    "spec.hidden": "policy: hidden layers",
    "spec.set_feature_version": "policy: version of the features",
    "spec.feature_version": "policy: version of the features",
    "world.seed": "simulation: seed",
    "world.node_mtbf_hours": "simulation: time between a node's failures",
    "world.debounce_seconds": "simulation: pause between decisions",
    "world.slot_seconds": "simulation: length of a slot",
    "world.resize_seconds": "simulation: stall of a resize",
    "world.resume_seconds": "simulation: stall of a resume",
    "world.start_seconds": "simulation: stall of a start",
    "world.checkpoint_seconds": "simulation: time between checkpoints",
    "world.node_repair_hours": "simulation: repair of a node",
    "residual_published": "network kept",
}
_SECONDS_IN: Final = {"seconds": 1.0, "hours": 3600.0}
_SHARES: Final = frozenset({"validation_change", "validation_standard_error"})
_OF_EVOLUTION: Final = frozenset({"training.pairs", "training.sigma", "training.learning_rate"})


def name_of(key: str) -> str:
    """A setting's or figure's name in words, without its unit."""
    if key in _NAMES:
        return _NAMES[key]
    section, _, name = key.rpartition(".")
    words = name.replace("_", " ").replace("jct", "JCT").removesuffix(" seconds").removesuffix(" hours")
    before = _SECTIONS.get(section, section.replace("_", " ").replace(".", ", "))
    return shown(f"{before}: {words}" if before else words)


def heading_of(key: str, unit: Unit | None) -> str:
    """A figure's name in words over a column, with the unit of its times."""
    return name_of(key) if unit is None else f"{name_of(key)} [{unit.name}]"


def unit_of(key: str, values: Sequence[Any]) -> Unit | None:
    """The unit of all times of a setting or figure; None of what is no time, or where nothing is known."""
    scale = _scale(key)
    known = [value * scale for value in values if scale and _is_number(value)]
    return unit_for(*known) if known else None


def said(key: str, value: Any, unit: Unit | None = None) -> str:
    """A value in words: a time as a number of this unit, or with its own where there is none."""
    if is_unset(value):
        return NOT_SET
    if isinstance(value, bool):
        return "yes" if value else "no"
    scale = _scale(key)
    if scale and _is_number(value):
        return unit.number(value * scale) if unit is not None else unit_for(value * scale).text(value * scale)
    if key in _SHARES and _is_number(value):
        return f"{100 * value:.2g}%".replace("-", "\N{MINUS SIGN}")
    if isinstance(value, float):
        return f"{value:,.6g}".replace("-", "\N{MINUS SIGN}")
    return shown(str(value))


def is_unset(value: Any) -> bool:
    """Whether there is nothing to say."""
    return value is None or value in ("", [])


def settings_that_count(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a run without the ones of a way to train that was not taken."""
    method = settings.get("training.method")
    idle = {name for name in settings if method == "evolution" and name.startswith("training.twin.")}
    if method == "twin":
        idle |= _OF_EVOLUTION
    return {name: value for name, value in settings.items() if name not in idle}


def _scale(key: str) -> float:
    """Seconds in the unit that the name ends with; 0 where that is none."""
    return _SECONDS_IN.get(key.rpartition(".")[2].rpartition("_")[2], 0.0)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
