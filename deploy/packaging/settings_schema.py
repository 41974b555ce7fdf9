"""JSON schemas of the programs' settings, for values of a chart: what they refuse is refused before they start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from cluster_agent.settings import AgentSettings
from global_learner.settings import LearnerSettings

Json = dict[str, Any]

LEARNER: Final = "Learner."
"""Before the names of the learner's sections: some are also the agent's."""
_AGENT_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "KubernetesBackendSettings": (
        "kind",
        "kubeconfig",
        "context",
        "namespaces",
        "own_nodes",
        "lease_namespace",
        "lease_name",
    ),
    "PolicySettings": (),
    "GuardSettings": (),
    "LearningSettings": (),
    "SharingSettings": (),
    "DecisionLogSettings": (),
    "AgentTelemetrySettings": ("metrics_port", "metrics_host"),
    "NoiseSettings": (),
    "LearnerConnectionSettings": ("address", "further_addresses", "enroll_address", "enrollment_file", "tls"),
}
"""Sections that values may state, and of each what the chart says itself."""
_DEFAULTED: Final = ("initial_policy",)
"""What programs need to be told, and the chart tells where values do not."""
_LEARNER_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "LearnerSettings": ("state_dir", "listen", "port_file", "tls"),
    "TelemetrySettings": ("http_listen",),
    "IdentitySettings": ("names",),
}


def settings_definitions() -> Json:
    """All sections that values may state, each by its class, and all that they refer to."""
    agent = _definitions(AgentSettings, _AGENT_SECTIONS, "")
    return dict(sorted((agent | _definitions(LearnerSettings, _LEARNER_SECTIONS, LEARNER)).items()))


def _definitions(model: type[BaseModel], sections: Mapping[str, tuple[str, ...]], prefix: str) -> Json:
    whole: Json = model.model_json_schema(by_alias=True)
    everything: Json = whole.pop("$defs") | {model.__name__: whole}
    waiting, found = list(sections), {}
    while waiting:
        name = waiting.pop()
        if prefix + name in found:
            continue
        schema = _plain(everything[name])
        for left_out in sections.get(name, ()):
            del schema["properties"][left_out]
        required = [each for each in schema.get("required", ()) if each in schema["properties"]]
        if left := [each for each in required if each not in _DEFAULTED]:
            schema["required"] = left
        else:
            schema.pop("required", None)
        waiting += _references(schema)
        found[prefix + name] = _renamed(schema, prefix)
    return found


def _plain(schema: Any) -> Any:
    """Without prose, which the guide has, and without defaults, which are the programs'."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    prose = ("title", "description", "default", "format", "discriminator")
    # Below `properties` these words would be names.
    return {
        key: {name: _plain(each) for name, each in value.items()} if key == "properties" else _plain(value)
        for key, value in schema.items()
        if key not in prose
    }


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for each in schema for name in _references(each)]
    if not isinstance(schema, dict):
        return []
    own = [str(schema["$ref"]).rpartition("/")[2]] if "$ref" in schema else []
    return own + [name for value in schema.values() for name in _references(value)]


def _renamed(schema: Any, prefix: str) -> Any:
    if isinstance(schema, list):
        return [_renamed(each, prefix) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: f"#/$defs/{prefix}{str(value).rpartition('/')[2]}" if key == "$ref" else _renamed(value, prefix)
        for key, value in schema.items()
    }
