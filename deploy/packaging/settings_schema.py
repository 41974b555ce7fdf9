"""JSON schemas of the agent's settings, for values of a chart: what it refuses is refused before it starts."""

from __future__ import annotations

from typing import Any

from cluster_agent.settings import AgentSettings

Json = dict[str, Any]

_CHARTS_OWN = {
    "KubernetesBackendSettings": ("kind", "kubeconfig", "context", "namespace", "lease_namespace", "lease_name"),
    "TelemetrySettings": ("metrics_port", "metrics_host"),
}
"""Settings that the chart makes itself, and that no value says."""
_USED = (
    "KubernetesBackendSettings",
    "PolicySettings",
    "GuardSettings",
    "LearningSettings",
    "SharingSettings",
    "DecisionLogSettings",
    "TelemetrySettings",
)


def settings_definitions() -> Json:
    """The sections that values may state, each by its class, and all that they refer to."""
    everything: Json = AgentSettings.model_json_schema(by_alias=True)["$defs"]
    wanted, found = list(_USED), {}
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        found[name] = _plain(everything[name])
        for left_out in _CHARTS_OWN.get(name, ()):
            found[name]["properties"].pop(left_out)
        wanted += _references(found[name])
    return dict(sorted(found.items()))


def _plain(schema: Any) -> Any:
    """Without prose, which the guide has, and without defaults, which are the agent's."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    prose = ("title", "description", "default", "format")
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
