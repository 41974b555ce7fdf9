"""What stands in several places has one source: the chart's copies, its schema, the list of definitions."""

import json

import pytest
import yaml
from rendered import CHART, DEPLOY, MODES, by_helm, by_kustomize, of_kind

from cluster_agent.settings import AgentSettings
from deploy.packaging.__main__ import chart_files, values_schema
from global_learner.settings import LearnerSettings


def test_the_charts_copies_are_their_sources_and_nothing_else_lies_there() -> None:
    there = {
        str(path.relative_to(CHART)): path.read_text(encoding="utf-8")
        for path in (CHART / "files").rglob("*")
        if path.is_file()
    }
    assert there == chart_files(), "run `make chart`"
    assert {name.split("/")[1] for name in there} >= {"crds", "roles"}


def test_the_schema_has_the_agents_settings_as_they_are_now() -> None:
    present = (CHART / "values.schema.json").read_text(encoding="utf-8")
    assert present == values_schema(present), "run `make chart`"
    definitions = json.loads(present)["$defs"]
    for name, section in definitions.items():
        if section.get("type") == "object":
            assert section["additionalProperties"] is False, f"{name} takes unknown keys"


def test_every_section_of_either_program_can_be_set_by_values() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert {*schema["properties"]["settings"]["properties"], "cluster", "state_dir"} == {*AgentSettings.model_fields}
    of_learner = schema["$defs"]["Learner.LearnerSettings"]["properties"]
    assert {*of_learner, "state_dir", "listen", "port_file", "tls"} == {*LearnerSettings.model_fields}


def test_every_definition_is_in_the_list() -> None:
    listed = yaml.safe_load((DEPLOY / "crds" / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    there = {path.name for path in (DEPLOY / "crds").glob("*.yaml")} - {"kustomization.yaml"}
    assert sorted(listed) == sorted(there)
    for name in there:
        crd = yaml.safe_load((DEPLOY / "crds" / name).read_text(encoding="utf-8"))
        assert name == f"{crd['spec']['names']['plural']}.yaml"
        assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


@pytest.mark.parametrize("mode", MODES)
def test_both_ways_install_the_same_definitions(mode: str) -> None:
    def definitions(objects: list[dict[str, object]]) -> list[dict[str, object]]:
        return sorted(of_kind(objects, "CustomResourceDefinition"), key=lambda found: str(found["metadata"]))

    assert definitions(by_helm({"mode": mode})) == definitions(by_kustomize(mode)) != []
