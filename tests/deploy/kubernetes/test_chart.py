"""The Helm chart: what it renders is valid, has the rights of its mode and no others, and wrong values are one line."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python import Chart, HelmError, lint
from hypothesis import given, settings
from hypothesis import strategies as st
from rendered import (
    CERTIFIED,
    CHART,
    ENROLLED,
    LEARNER,
    MODES,
    OWN_NODES,
    SCRAPED_FROM,
    SHARING,
    VALUES,
    VERSIONS,
    by_helm,
    grants,
    notes,
    of_kind,
    one,
    part,
    pod_spec,
    settings_text,
    validate,
    workload,
)

import global_learner.settings
from cluster_agent.backend_settings import KubernetesBackendSettings
from cluster_agent.settings import AgentSettings
from cluster_agent.settings_file import read_settings

Json = dict[str, Any]
READ = {"get", "list", "watch"}
CUSTOM = {"ServiceMonitor", "PrometheusRule"}
each_way = pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)


@each_way
def test_helm_finds_nothing_to_say(values: Json) -> None:
    report = lint(CHART, values, strict=True)
    assert report["errors"] == []
    assert [found["error"] for found in report["messages"]] == ["icon is recommended"]


@each_way
@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid_and_has_no_unknown_field(values: Json, version: str) -> None:
    objects = [found for found in by_helm(values) if found["kind"] not in CUSTOM]
    assert len(objects) > 10
    for found in objects:
        validate(found, version)


@each_way
def test_every_object_has_a_name_of_its_own_and_says_its_namespace(values: Json) -> None:
    objects = by_helm(values, name="other", namespace="fedl2")
    names = [(found["kind"], found["metadata"].get("namespace"), found["metadata"]["name"]) for found in objects]
    assert len(names) == len(set(names))
    for kind, namespace, name in names:
        cluster_wide = kind.startswith(("ClusterRole", "CustomResourceDefinition", "ValidatingAdmissionPolicy"))
        assert cluster_wide == (namespace is None)
        assert name.startswith("other-fedl2-") or name.endswith(".fedl2.io") or name == "mine"


def read(objects: list[Json], folder: Path) -> AgentSettings:
    path = folder / "agent.yaml"
    path.write_text(settings_text(objects), encoding="utf-8")
    return read_settings(path)


@each_way
def test_the_agent_takes_its_settings(values: Json, tmp_path: Path) -> None:
    found = read(by_helm(values), tmp_path)
    assert found.backend.kind == "kubernetes"
    assert found.backend.lease_namespace == "fedl2"
    assert found.backend.namespaces == tuple(values.get("namespaces", ()))
    assert (found.learner is not None) == ("fleet" in values)
    (port,) = pod_spec(by_helm(values))["containers"][0]["ports"]
    assert (found.telemetry.metrics_port, found.telemetry.metrics_host) == (port["containerPort"], "0.0.0.0")  # noqa: S104


def test_a_learner_takes_its_settings_and_is_called_where_it_listens(tmp_path: Path) -> None:
    stated = {"publish": {"every_steps": 250}, "identity": {"certificate_days": 5}, "telemetry": {"log_level": "debug"}}
    objects = by_helm({"learner": {**LEARNER, "settings": stated}})
    (tmp_path / "learner.yaml").write_text(settings_text(objects, "learner"), encoding="utf-8")
    found = global_learner.settings.read_settings(tmp_path / "learner.yaml")
    assert found.publish.every_steps == 250
    assert found.telemetry.log_level == "debug"
    assert found.identity is not None
    assert (found.identity.names, found.identity.certificate_days) == (("learner.example.org",), 5)
    assert found.authenticated
    listens = {found.listen, found.enroll_address, found.telemetry.http_listen}
    (container,) = pod_spec(objects, "learner")["containers"]
    assert {f"0.0.0.0:{port['containerPort']}" for port in container["ports"]} == listens
    named = {port["name"] for port in container["ports"]}
    services = of_kind(part(objects, "learner"), "Service")
    assert {port["targetPort"] for service in services for port in service["spec"]["ports"]} == named
    (policy,) = of_kind(part(objects, "learner"), "NetworkPolicy")
    assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} == named
    assert policy["spec"]["egress"] == []
    assert pod_spec(objects, "learner")["automountServiceAccountToken"] is False


def test_settings_that_are_stated_reach_the_agent_and_the_charts_own_stay(tmp_path: Path) -> None:
    stated: Json = {
        "backend": {"slot_seconds": 60, "debounce_seconds": 2.5},
        "policy": {"initial": "drf", "seed": 640_000_000},
        "guard": {"deadline_ms": 500},
        "decision_log": {"keep": 3, "enabled": False},
        "telemetry": {"log_level": "debug"},
    }
    found = read(by_helm({"settings": stated}), tmp_path)
    for section, values in stated.items():
        for name, value in values.items():
            assert getattr(getattr(found, section), name) == value
    assert found.telemetry.metrics_port == 9090


SECTIONS = {
    "policy": {"initial": st.sampled_from(["set", "drf", "srtf"]), "seed": st.integers(0, 2**40)},
    "guard": {"deadline_ms": st.floats(0.5, 3_600_000.0)},
    "decision_log": {"keep": st.integers(1, 10_000)},
    "backend": {"slot_seconds": st.floats(0.001, 604_800.0), "debounce_seconds": st.integers(1, 1000)},
}


@settings(max_examples=20)
@given(st.fixed_dictionaries({}, optional={k: st.fixed_dictionaries({}, optional=v) for k, v in SECTIONS.items()}))
def test_numbers_come_to_the_agent_as_they_were_written(stated: Json) -> None:
    content = yaml.safe_load(settings_text(by_helm({"settings": stated})))
    found = AgentSettings.model_validate(content)
    for section, values in stated.items():
        for name, value in values.items():
            assert getattr(getattr(found, section), name) == value


def components(values: Json) -> list[str]:
    return ["agent", "learner"] if "learner" in values else ["agent"]


EACH_COMPONENT = [
    pytest.param(values, component, id=f"{name}-{component}")
    for name, values in VALUES.items()
    for component in components(values)
]
each_component = pytest.mark.parametrize(("values", "component"), EACH_COMPONENT)


@each_component
def test_pods_may_do_nothing_on_their_node(values: Json, component: str) -> None:
    objects = by_helm(values)
    spec = pod_spec(objects, component)
    assert spec["securityContext"]["runAsNonRoot"] is True
    numbered = values.get("podSecurityContext") is None
    assert spec["securityContext"].get("runAsUser", 0) > 0 or not numbered
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    harmless = {"configMap", "secret", "emptyDir", "projected", "persistentVolumeClaim"}
    assert all(set(volume) & harmless for volume in spec["volumes"])
    mounted = set()
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"].keys() >= {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        assert not container["image"].endswith(":latest")
        mounted |= {mount["name"] for mount in container["volumeMounts"]}
    claims = workload(objects, component)["spec"].get("volumeClaimTemplates", [])
    there = {volume["name"] for volume in spec["volumes"]} | {claim["metadata"]["name"] for claim in claims}
    assert mounted == there


@each_component
def test_selectors_find_the_pods_and_a_drain_is_never_held_up(values: Json, component: str) -> None:
    objects = part(by_helm(values), component)
    labels = workload(objects, component)["spec"]["template"]["metadata"]["labels"].items()
    budget = one(objects, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert "minAvailable" not in budget
    selectors = [
        workload(objects, component)["spec"]["selector"]["matchLabels"],
        budget["selector"]["matchLabels"],
        *(service["spec"]["selector"] for service in of_kind(objects, "Service")),
        *(policy["spec"]["podSelector"]["matchLabels"] for policy in of_kind(objects, "NetworkPolicy")),
    ]
    # Of several learners each has a Service; a StatefulSet's controller labels its pods.
    pods = workload(objects, component)["metadata"]["name"]
    own = [{**dict(labels), "statefulset.kubernetes.io/pod-name": f"{pods}-{number}"}.items() for number in range(5)]
    assert all(any(selector.items() <= each for each in own) for selector in selectors)
    others = [pod for pod in of_kind(by_helm(values), "Deployment", "StatefulSet") if pod not in objects]
    for pod in others:
        assert not any(
            selector.items() <= pod["spec"]["template"]["metadata"]["labels"].items() for selector in selectors
        )


@pytest.mark.parametrize("mode", MODES)
def test_rights_are_those_of_the_files_and_advice_writes_nothing_but_status_and_lease(mode: str) -> None:
    from kube_roles import granted_by_files

    rights = grants(by_helm({"mode": mode}))
    assert rights == granted_by_files(mode)
    if mode == "advice":
        written = {(place, resource, verb) for place, _, resource, _, verb in rights if verb not in READ}
        assert written == {
            ("", "elastictargets/status", "patch"),
            ("fedl2", "leases", "create"),
            ("fedl2", "leases", "update"),
        }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("namespaces", [["team"], ["team", "lab"]], ids=["one", "two"])
def test_with_namespaces_rights_are_the_same_in_each_and_elsewhere_only_reading_what_fills_the_cluster(
    mode: str, namespaces: list[str]
) -> None:
    everywhere = grants(by_helm({"mode": mode}))
    limited = grants(by_helm({"mode": mode, "namespaces": namespaces}))
    whole = {"nodes", "pods", "namespaces", "resourceclaims", "resourceslices"}
    reads = {right for right in everywhere if right[2] in whole and right[4] in READ}
    in_one = {right for right in everywhere - reads if not right[0]}
    assert {right for right in limited if right[0] in namespaces} == {
        (name, *right[1:]) for right in in_one for name in namespaces
    }
    cluster_wide = {right for right in limited if not right[0]}
    assert {(*right[:3], "", right[4]) for right in cluster_wide} == reads
    assert {name for _, _, resource, name, _ in cluster_wide if resource == "namespaces"} <= {*namespaces}
    assert all(name for _, _, resource, name, _ in cluster_wide if resource == "namespaces")


def test_on_nodes_of_its_own_the_agent_reads_nodes_alone_everywhere(tmp_path: Path) -> None:
    objects = by_helm({"mode": "advice", "namespaces": ["team", "lab"], "ownNodes": OWN_NODES})
    limited = grants(objects)
    assert {(resource, verb) for place, _, resource, _, verb in limited if not place} == {
        ("nodes", verb) for verb in READ
    }
    assert {place for place, _, resource, _, _ in limited if resource == "pods"} == {"team", "lab"}
    backend = read(objects, tmp_path).backend
    assert isinstance(backend, KubernetesBackendSettings)
    assert backend.namespaces == ("team", "lab")
    assert backend.own_nodes is not None
    assert backend.own_nodes.model_dump() == OWN_NODES
    assert "does not see pods of other namespaces" in notes({"namespaces": ["team"], "ownNodes": OWN_NODES})


KUEUE: Json = {"mode": "training", "kueue": {"enabled": True}}


def test_rights_to_workloads_come_with_kueue_only() -> None:
    from kube_roles import granted_by_files

    assert grants(by_helm(KUEUE)) == granted_by_files("kueue")
    assert not any("kueue" in group for _, group, *_ in grants(by_helm({"mode": "training"})))
    limited = grants(by_helm({**KUEUE, "namespaces": ["team"]}))
    everywhere = {(resource, verb) for place, group, resource, _, verb in limited if "kueue" in group and not place}
    assert everywhere == {("resourceflavors", "get")}


def test_no_mode_may_do_everything_or_read_secrets_but_the_one_that_the_agent_made() -> None:
    for place, group, resource, name, verb in grants(by_helm({"mode": "training"})):
        assert "*" not in (group, resource, verb)
        own = (place, name, verb) == ("fedl2", "fedl2-training", "get")
        assert resource != "secrets" or verb == "create" or own
    named = {"mode": "training", "training": {"keySecret": {"name": "mine"}}}
    assert {right for right in grants(by_helm(named)) if right[2] == "secrets"} == {("", "", "secrets", "", "create")}


def test_with_a_size_each_replica_keeps_its_state_and_without_the_notes_say_that_it_goes() -> None:
    kept = workload(by_helm({"state": {"size": "5Gi"}}))
    assert kept["kind"] == "StatefulSet"
    (claim,) = kept["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"
    assert "go with their pod" in notes({})
    assert "go with their pod" not in notes({"state": {"size": "5Gi"}})
    assert workload(by_helm({}))["kind"] == "Deployment"


@pytest.mark.parametrize("fleet", [CERTIFIED, ENROLLED], ids=["certified", "enrolled"])
def test_what_the_learner_knows_the_cluster_by_is_mounted_for_the_agent_alone(fleet: Json, tmp_path: Path) -> None:
    objects = by_helm({"fleet": fleet, "replicas": 1, "state": {"size": "1Gi"}})
    (volume,) = [each["secret"] for each in pod_spec(objects)["volumes"] if each["name"] == "identity"]
    assert volume["defaultMode"] == 0o440
    (mount,) = [each for each in pod_spec(objects)["containers"][0]["volumeMounts"] if each["name"] == "identity"]
    found = read(objects, tmp_path).learner
    assert found is not None
    paths = [found.enrollment_file] if found.tls is None else [path for _, path in found.tls]
    keys = [item["path"] for item in volume.get("items", [])] or ["ca.crt", "tls.crt", "tls.key"]
    assert sorted(map(str, paths)) == sorted(f"{mount['mountPath']}/{key}" for key in keys)
    ports = [port["port"] for rule in one(objects, "NetworkPolicy")["spec"]["egress"] for port in rule["ports"]]
    assert 7070 in ports
    assert (7072 in ports) == (fleet is ENROLLED)


def test_only_metrics_come_in_and_only_training_asks_coordinators() -> None:
    for mode in MODES:
        objects = by_helm({"mode": mode})
        policies = of_kind(objects, "NetworkPolicy")
        (rule,) = [rule for policy in policies for rule in policy["spec"].get("ingress", [])]
        assert [port["port"] for port in rule["ports"]] == ["metrics"]
        assert len(policies) == (2 if mode == "training" else 1)
    limited = by_helm({"networkPolicy": {"apiServer": {"cidrs": ["10.0.0.1/32"], "ports": [6443]}}})
    assert {"ports": [{"port": 6443, "protocol": "TCP"}], "to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]} in one(
        limited, "NetworkPolicy"
    )["spec"]["egress"]


def test_metrics_are_scraped_from_where_an_operator_says() -> None:
    def scraped(values: Json) -> dict[str, Any]:
        policies = of_kind(by_helm({"learner": LEARNER, **values}), "NetworkPolicy")
        rules = [(policy, rule) for policy in policies for rule in policy["spec"].get("ingress", [])]
        found = [(policy, rule) for policy, rule in rules if "metrics" in [port["port"] for port in rule["ports"]]]
        for _, rule in found:
            assert len(rule["ports"]) == 1, "what agents of a fleet dial is no business of this"
        return {policy["metadata"]["name"]: rule.get("from") for policy, rule in found}

    assert scraped({}) == {"fedl2-agent": None, "fedl2-learner": None}
    prometheus = {**SCRAPED_FROM, "podSelector": {"matchLabels": {"app": "prometheus"}}}
    limited = [prometheus, {"ipBlock": {"cidr": "10.0.0.0/24"}}]
    reported = scraped({"networkPolicy": {"metricsFrom": limited}})
    assert reported == {"fedl2-agent": limited, "fedl2-learner": limited}


def test_definitions_stay_when_the_release_goes_and_can_be_left_to_others() -> None:
    for crd in of_kind(by_helm({}), "CustomResourceDefinition"):
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert of_kind(by_helm({"crds": {"install": False}}), "CustomResourceDefinition") == []


def test_other_settings_are_other_pods() -> None:
    first, same, other = (
        workload(by_helm(values))["spec"]["template"]["metadata"]["annotations"]
        for values in ({}, {"replicas": 3}, {"cluster": "other"})
    )
    assert first == same != other


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"typo": 1}, "additional properties 'typo' not allowed"),
        ({"networkPolicy": {"metricsFrom": ["monitoring"]}}, "got string, want object"),
        ({"networkPolicy": {"metricsFrom": [{"namespace": "monitoring"}]}}, "'namespace' not allowed"),
        ({"mode": "auto", "kueue": {"enabled": True}}, "kueue.enabled is true, and mode is auto"),
        ({"mode": "full"}, "at '/mode': value must be one of 'advice', 'auto', 'training'"),
        ({"cluster": "Bad_Name"}, "at '/cluster': 'Bad_Name' does not match"),
        ({"replicas": 0}, "at '/replicas': minimum: got 0, want 1"),
        ({"settings": {"polcy": {}}}, "at '/settings': additional properties 'polcy' not allowed"),
        ({"settings": {"policy": {"inital": "set"}}}, "at '/settings/policy': additional properties 'inital'"),
        ({"settings": {"guard": {"deadline_ms": -1}}}, "at '/settings/guard/deadline_ms'"),
        ({"settings": {"backend": {"kubeconfig": "x"}}}, "at '/settings/backend': additional properties 'kubeconfig'"),
        ({"settings": {"telemetry": {"metrics_port": 1}}}, "additional properties 'metrics_port' not allowed"),
        ({"state": {"size": "much"}}, "at '/state/size': 'much' does not match"),
        ({"namespaces": ["a", "a"]}, "at '/namespaces'"),
        ({"ownNodes": OWN_NODES}, "ownNodes.selector needs namespaces"),
        ({"namespaces": ["a"], "ownNodes": {"reserved": {"cpu": "1"}}}, "ownNodes.reserved needs ownNodes.selector"),
        (
            {"namespaces": ["a"], "ownNodes": {"selector": "a", "reserved": {"cpu": "much"}}},
            "at '/ownNodes/reserved/cpu'",
        ),
        ({"image": {"tag": "latest"}}, "image.tag: name a version"),
        ({"fleet": {"tlsSecret": "x"}}, "fleet.address is missing: write the learner's HOST:PORT"),
        ({"fleet": {"address": "nowhere"}}, "at '/fleet/address': 'nowhere' does not match"),
        ({"fleet": CERTIFIED}, "replicas is 2: in a fleet it has to be 1"),
        ({"fleet": {"address": "a:1"}}, "name either enrollmentSecret.name or tlsSecret"),
        ({"fleet": {**CERTIFIED, **ENROLLED}}, "name either enrollmentSecret.name or tlsSecret"),
        ({"fleet": ENROLLED, "replicas": 1}, "fleet.enrollmentSecret needs state.size"),
        ({"learner": {"enabled": True}}, "learner.names is empty: list what agents dial"),
        (
            {"learner": {**LEARNER, "settings": {"listen": "x"}}},
            "at '/learner/settings': additional properties 'listen'",
        ),
        ({"learner": {**LEARNER, "settings": {"publish": {"every": 1}}}}, "additional properties 'every' not allowed"),
        ({"learner": {**LEARNER, "image": {"tag": "latest"}}}, "learner.image.tag: name a version"),
        ({"image": {"digest": "sha256:1"}}, "at '/image/digest': 'sha256:1' does not match"),
        ({"podSecurityContext": {"runAsUser": 0}}, "at '/podSecurityContext/runAsUser': minimum: got 0, want 1"),
        (
            {"extraVolumes": [{"name": "state", "emptyDir": {}}]},
            "the chart has a volume state of its own",
        ),
        ({"settings": {"learner": {"job_timelines": 3}}}, "fleet.address is missing"),
        ({"fleet": {**CERTIFIED, "address": "a:70000"}, "replicas": 1}, "fleet.address: a:70000 names no port"),
        (
            {"learner": {**LEARNER, "settings": {"database": "postgresql://fleet@db:0/fleet"}}},
            "learner.settings.database: db:0 names no port",
        ),
        (
            {"learner": LEARNER, "fleet": {"address": "other.example.org:7070", "tlsSecret": "x"}, "replicas": 1},
            "fleet.address is other.example.org:7070, and learner.names has no other.example.org: add it there",
        ),
        (
            {
                "learner": LEARNER,
                "fleet": {**CERTIFIED, "furtherAddresses": ["[fd00::1]:7070"]},
                "replicas": 1,
            },
            "fleet.furtherAddresses is [fd00::1]:7070, and learner.names has no fd00::1",
        ),
        (
            {"learner": LEARNER, "fleet": {**CERTIFIED, "enrollAddress": "10.0.0.1:7072"}, "replicas": 1},
            "fleet.enrollAddress is 10.0.0.1:7072, and learner.names has no 10.0.0.1",
        ),
        ({"learner": {**SHARING, "settings": {}}}, "learner.replicas is 2: set learner.settings.database"),
        ({"learner": {**SHARING, "state": {}}}, "learner.replicas is 2, and each would have a volume of its own"),
        (
            {"learner": {**LEARNER, "settings": {"database": "postgresql://fleet:secret@db/fleet"}}},
            "learner.settings.database holds a password",
        ),
        (
            {"learner": {**LEARNER, "settings": {"identity": {"enroll_port": 0}}}},
            "learner.settings.identity.enroll_port is 0",
        ),
    ],
    ids=str,
)
def test_wrong_values_are_one_line_that_says_where(values: Json, said: str) -> None:
    with pytest.raises(HelmError) as caught:
        by_helm(values)
    (line,) = [line for line in str(caught.value).splitlines() if said in line]
    wrong = [line for line in str(caught.value).splitlines() if line.startswith("- at ")]
    assert len(wrong) <= 1, line


def test_the_key_of_training_jobs_is_the_agents_to_make_or_named() -> None:
    volumes = {each["name"]: each for each in pod_spec(by_helm({"mode": "training"}))["volumes"]}
    (maker,) = pod_spec(by_helm({"mode": "training"}))["initContainers"]
    assert maker["args"] == ["training-key", "--secret", "fedl2-training", "--out", "/etc/fedl2-training/key"]
    assert volumes["training"] == {"name": "training", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
    named = pod_spec(by_helm({"mode": "training", "training": {"keySecret": {"name": "mine", "key": "secret"}}}))
    assert "initContainers" not in named
    (volume,) = [each["secret"] for each in named["volumes"] if each["name"] == "training"]
    assert (volume["secretName"], volume["items"]) == ("mine", [{"key": "secret", "path": "key"}])
    assert "initContainers" not in pod_spec(by_helm({"mode": "auto"}))
    elsewhere = by_helm({"mode": "training"}, name="other", namespace="place")
    (maker,) = pod_spec(elsewhere)["initContainers"]
    role = one(elsewhere, "Role", "other-fedl2-training-key")
    assert role["metadata"]["namespace"] == "place"
    assert [rule.get("resourceNames") for rule in role["rules"]] == [None, [maker["args"][2]]]


@each_way
def test_whoever_renders_it_again_gets_the_same_and_no_secret(values: Json) -> None:
    again = []
    for _ in range(2):
        with Chart.load(CHART) as chart:
            again.append(chart.render(values, name="fedl2", namespace="fedl2"))
    assert again[0] == again[1]
    assert of_kind(by_helm(values), "Secret") == []
