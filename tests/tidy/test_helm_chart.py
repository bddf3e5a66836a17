"""The Helm chart, without a cluster: Kubernetes takes its objects, processes take their words."""

import importlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs import VERSION, balance_cluster
from jobs.adapters.processes.settings import load_settings
from jobs.service import lookup_http
from jobs.telemetry import exposition
from lbcore.config.tree import Config
from tests.support.processes.helm_tool import (
    CHART,
    KUBERNETES,
    RELEASE,
    SPACE,
    ask_helm,
    render,
    rendered,
    schema_of,
)
from tests.tidy.conftest import ParsedError
from tests.tidy.source_files import ROOT

Object = Mapping[str, Any]
EVERYTHING = (
    'image={"pullSecrets":[{"name":"registry"}]}',
    'overlays=["production"]',
    'bootstrap="kafka-1:9093,kafka-2:9094"',
    'secrets={"kafkaPassword":{"name":"kafka"},"pulsarToken":{"name":"pulsar"},"tls":"tls"}',
    'secrets.files=[{"name":"kafka-ca","path":"/etc/ballast/kafka"}]',
    'secrets.env=["s3-keys"]',
    'tables="s3://bucket/prefix"',
    'storage={"className":"shared"}',
    'job={"words":["--spark=spark.driver.memory=2g"]}',
    'lookupService={"words":["--workers=2"],"autoscaling":{"enabled":true}}',
    'bridge={"enabled":true,"adminUrl":"https://broker:8443","words":["--act"]}',
    'monitoring={"serviceMonitor":true,"rules":true,"dashboards":true,"labels":{"by":"us"}}',
    'networkPolicy={"metricsFrom":[{"namespaceSelector":{}}],"toPorts":[9095]}',
    'serviceAccount={"annotations":{"role":"reader"}}',
    'extraEnv=[{"name":"AWS_ENDPOINT_URL","value":"https://minio.example:9000"}]',
    'podAnnotations={"team":"storage"}',
    'affinity={"nodeAffinity":{}}',
    'ingress={"enabled":true,"className":"nginx","annotations":{"a":"b"},"tlsSecret":"outside"}',
    'nodeSelector={"kubernetes.io/os":"linux"}',
    'tolerations=[{"operator":"Exists"}]',
)
CASES = ((), EVERYTHING)
_FOREIGN_KINDS = ("ServiceMonitor", "PrometheusRule")
"""Of Prometheus's operator, for which there is no schema here."""

cases = pytest.mark.parametrize("values", CASES, ids=["as it is", "everything"])


def of_kind(values: Sequence[str], *kinds: str) -> dict[str, Object]:
    """The objects of these kinds by name; every one is of the release's namespace."""
    found = [one for one in rendered(*values) if one["kind"] in kinds]
    return {one["metadata"]["name"]: one for one in found}


def pods(values: Sequence[str]) -> dict[str, Object]:
    found = of_kind(values, "Deployment").values()
    templates = [one["spec"]["template"] for one in found]
    return {one["metadata"]["labels"]["app.kubernetes.io/component"]: one for one in templates}


def containers(values: Sequence[str]) -> Iterator[tuple[Object, Object]]:
    """Each container of each pod: the pod's spec, the container."""
    for pod in pods(values).values():
        for key in ("initContainers", "containers"):
            yield from ((pod["spec"], one) for one in pod["spec"].get(key, ()))


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return selector.items() <= labels.items()


def test_chart_has_the_version_of_ballast() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION


@cases
def test_helm_finds_nothing_to_complain_of(values: Sequence[str]) -> None:
    named = [word for value in values for word in ("--set-json", value)]
    ended = ask_helm("lint", "--strict", "--kube-version", KUBERNETES[0], *named, str(CHART))
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("version", KUBERNETES)
@cases
def test_kubernetes_takes_every_object(values: Sequence[str], version: str) -> None:
    own = [one for one in rendered(*values) if one["kind"] not in _FOREIGN_KINDS]
    assert len(own) > 8
    for one in own:
        schema_of(version, one["apiVersion"], one["kind"]).validate(one)


@cases
def test_container_has_no_right_that_it_does_not_need(values: Sequence[str]) -> None:
    for spec, container in containers(values):
        of_pod, own = spec["securityContext"], container["securityContext"]
        assert of_pod["runAsNonRoot"]
        assert of_pod["runAsUser"] == of_pod["fsGroup"] == 10001  # conf/container/Dockerfile's
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert own["readOnlyRootFilesystem"]
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert not own["allowPrivilegeEscalation"]
        assert not spec["automountServiceAccountToken"]
        assert container["resources"]["limits"]["memory"]
    assert "useradd --uid 10001" in (ROOT / "conf" / "container" / "Dockerfile").read_text()


@cases
@pytest.mark.usefixtures("only_parsing")
def test_process_takes_its_words(values: Sequence[str]) -> None:
    for _, container in containers(values):
        program, *words = container["args"]
        assert program in {"python", "ballast"}
        module = "jobs.cli" if program == "ballast" else words[1]
        with pytest.raises(ParsedError):
            importlib.import_module(module).main(words if program == "ballast" else words[2:])


def settings_of(values: Sequence[str], component: str, folder: Path) -> Config:
    """What a component is configured with, as it reads it."""
    (files,) = (one["data"] for one in of_kind(values, "ConfigMap").values() if own(one))
    for name, text in files.items():
        (folder / name).write_text(text)
    (container,) = pods(values)[component]["spec"]["containers"]
    (conf,) = (one["value"] for one in container["env"] if one["name"] == "BALLAST_CONF")
    names = conf.replace("/etc/ballast/settings", str(folder))
    return load_settings(environment={"BALLAST_CONF": names})


def own(one: Object) -> bool:
    return "chart.toml" in one["data"]


@cases
def test_settings_suit_and_let_others_reach_the_pods(values: Sequence[str], tmp_path: Path) -> None:
    config = settings_of(values, "lookup", tmp_path)
    assert (config.lookup.host, config.lookup.port) == ("0.0.0.0", 8080)  # noqa: S104 (a pod's own)
    assert config.telemetry.host == "0.0.0.0"  # noqa: S104 (a pod's own)
    assert config.lookup.authentication == "token"
    assert config.pipeline.clusters == ("local",)
    lookup = pods(values)["lookup"]["spec"]
    assert lookup["terminationGracePeriodSeconds"] * 1_000 >= 2 * config.lookup.stop_delay_ms
    (service,) = (name for name in of_kind(values, "Service") if name.endswith("-lookup"))
    assert config.lookup.advertised_address == f"{service}.{SPACE}.svc:8080"
    assert ("bridge" in pods(values)) == (config.cluster.authority == "external")


def test_own_settings_win_over_the_charts_and_pods_are_renewed_with_them(tmp_path: Path) -> None:
    values = ('settings="[lookup]\\nauthentication=\\"token\\"\\nport = 8081\\n"',)
    assert settings_of(values, "lookup", tmp_path).lookup.port == 8081
    sums = [pods(one)["lookup"]["metadata"]["annotations"]["checksum/settings"] for one in
            ((), values)]  # fmt: skip
    assert sums[0] != sums[1]


@cases
def test_probe_asks_for_what_is_answered_on_a_port_that_is_there(values: Sequence[str]) -> None:
    asked = 0
    for component, pod in pods(values).items():
        (container,) = pod["spec"]["containers"]
        ports = [one["containerPort"] for one in container["ports"]]
        probes = [one["httpGet"] for name, one in container.items() if name.endswith("Probe")]
        asked += len(probes)
        assert {one["port"] for one in probes} == set(ports)
        for one in probes:
            answering = lookup_http if component == "lookup" else exposition
            assert f'"{one["path"]}"' in Path(answering.__file__).read_text()
            assert one.get("scheme", "HTTP") == scheme(values, component)
    assert asked >= 5


def scheme(values: Sequence[str], component: str) -> str:
    return "HTTPS" if component == "lookup" and values else "HTTP"


def test_job_has_the_time_to_end_in_order() -> None:
    grace_s = pods(())["job"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s > balance_cluster._END_S  # noqa: SLF001 (told nowhere else)


@cases
def test_what_is_mounted_is_declared_and_there(values: Sequence[str]) -> None:
    maps, claims = of_kind(values, "ConfigMap"), of_kind(values, "PersistentVolumeClaim")
    for spec, container in containers(values):
        declared = {one["name"]: one for one in spec["volumes"]}
        assert {one["name"] for one in container["volumeMounts"]} == set(declared)
        for one in declared.values():
            assert one.get("configMap", {}).get("name") in {*maps, None}
            assert one.get("persistentVolumeClaim", {}).get("claimName") in {*claims, None}
        assert spec["serviceAccountName"] in of_kind(values, "ServiceAccount")


def test_tables_on_the_volume_are_read_only_for_lookups_and_not_mounted_when_in_s3() -> None:
    def mounted(values: Sequence[str], component: str) -> dict[str, bool]:
        (container,) = pods(values)[component]["spec"]["containers"]
        return {one["mountPath"]: one.get("readOnly", False) for one in container["volumeMounts"]}

    volume = "/var/lib/ballast"
    assert mounted((), "job")[volume] is mounted(EVERYTHING, "job")[volume] is False
    assert mounted((), "lookup")[volume] is True
    assert volume not in mounted(EVERYTHING, "lookup")


@cases
def test_secrets_are_named_and_read_from_files_where_they_are_mounted(
    values: Sequence[str],
) -> None:
    assert not of_kind(values, "Secret")
    read = "".join(path.read_text() for path in (ROOT / "jobs").rglob("*.py"))
    told = 0
    for spec, container in containers(values):
        secret = {one["name"] for one in spec["volumes"] if "secret" in one}
        folders = [m["mountPath"] for m in container["volumeMounts"] if m["name"] in secret]
        named = [one for one in container["env"] if one["name"] != "AWS_ENDPOINT_URL"]
        paths = [one["value"] for one in named if one["name"] != "BALLAST_CONF"]
        paths += re.findall(r"--auth-token-file=(\S+)", " ".join(container["args"]))
        assert [path for path in paths if path.rpartition("/")[0] not in folders] == []
        told += len(paths)
        for one in named:
            assert one["name"] == "BALLAST_CONF" or one["name"].endswith("_FILE")
            assert f'"{one["name"].removesuffix("_FILE")}"' in read
    assert told == (6 if values else 1)


@cases
def test_selectors_find_the_pods_that_are_meant(values: Sequence[str]) -> None:
    labels = {component: pod["metadata"]["labels"] for component, pod in pods(values).items()}

    def found(selector: Mapping[str, str]) -> list[str]:
        return [component for component, these in labels.items() if selects(selector, these)]

    for one in rendered(*values):
        spec, name = one.get("spec", {}), one["metadata"]["name"]
        component = name.rpartition("-")[2]
        if one["kind"] == "Service":
            assert found(spec["selector"]) == [component]
        if one["kind"] in {"Deployment", "PodDisruptionBudget"}:
            assert found(spec["selector"]["matchLabels"]) == [component]
        if one["kind"] == "NetworkPolicy":
            chosen = found(spec["podSelector"]["matchLabels"])
            assert chosen == ([component] if component in labels else list(labels))
        if one["kind"] == "HorizontalPodAutoscaler":
            assert spec["scaleTargetRef"]["name"] in of_kind(values, "Deployment")


@cases
def test_service_leads_to_a_port_of_its_pods_and_prometheus_finds_each(
    values: Sequence[str],
) -> None:
    monitors = of_kind(values, "ServiceMonitor").values()
    for name, service in of_kind(values, "Service").items():
        (container,) = pods(values)[name.rpartition("-")[2]]["spec"]["containers"]
        (port,) = service["spec"]["ports"]
        assert port["targetPort"] == container["ports"][0]["containerPort"]
        for monitor in monitors:
            spec = monitor["spec"]
            assert selects(spec["selector"]["matchLabels"], service["metadata"]["labels"])
            assert port["name"] in {one["port"] for one in spec["endpoints"]}
    assert len(monitors) == bool(values)


def test_autoscaling_goes_by_a_metric_of_the_lookup_service() -> None:
    assert not of_kind((), "HorizontalPodAutoscaler")
    (scaler,) = of_kind(EVERYTHING, "HorizontalPodAutoscaler").values()
    (metric,) = scaler["spec"]["metrics"]
    of_service = (ROOT / "docs" / "metrics.md").read_text().split("## The lookup service")[1]
    name = f"`{metric['pods']['metric']['name']}_total`"  # as prometheus-adapter names a rate
    assert f"- {name} counter" in of_service.split("\n## ")[0]
    (lookup,) = (one for name, one in of_kind(EVERYTHING, "Deployment").items()
                 if name == scaler["spec"]["scaleTargetRef"]["name"])  # fmt: skip
    assert "replicas" not in lookup["spec"]  # an upgrade would put them back


@cases
def test_nobody_may_connect_but_to_what_is_served_and_for_whom(values: Sequence[str]) -> None:
    policies = of_kind(values, "NetworkPolicy")
    every = policies.pop(f"{RELEASE}-ballast")["spec"]
    assert every["ingress"] == []
    assert every["policyTypes"] == ["Ingress", "Egress"]
    out = [port["port"] for rule in every["egress"] for port in rule["ports"]]
    assert out == [53, 53, *((9093, 9094, 8443, 443, 9095) if values else (9092,))]
    assert set(policies) == {f"{RELEASE}-ballast-{one}" for one in pods(values) if values or
                             one == "lookup"}  # fmt: skip
    for name, policy in policies.items():
        (container,) = pods(values)[name.rpartition("-")[2]]["spec"]["containers"]
        (rule,) = policy["spec"]["ingress"]
        assert rule["from"]  # an empty list would be everybody
        assert [one["port"] for one in rule["ports"]] == [container["ports"][0]["containerPort"]]


def test_dashboards_and_alerts_are_those_of_the_project() -> None:
    maps = [one["data"] for one in of_kind(EVERYTHING, "ConfigMap").values() if not own(one)]
    pages = {name: json.loads(text) for data in maps for name, text in data.items()}
    folder = ROOT / "dashboards"
    assert pages == {
        f"ballast-{path.name}": json.loads(path.read_text()) for path in folder.glob("*.json")
    }
    (rules,) = of_kind(EVERYTHING, "PrometheusRule").values()
    assert rules["spec"] == yaml.safe_load((folder / "alerts.yml").read_text())


def test_runbook_of_the_alerts_is_where_a_value_says() -> None:
    values = 'monitoring={"rules":true,"runbookUrl":"https://wiki.example/ballast"}'
    (found,) = of_kind((*EVERYTHING, values), "PrometheusRule").values()
    urls = {
        rule["annotations"]["runbook_url"].partition("#")[0]
        for group in found["spec"]["groups"]
        for rule in group["rules"]
    }
    assert urls == {"https://wiki.example/ballast"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("lokup={}", "lokup"),
        ('job={"replicas":0}', "at '/job/replicas': minimum: got 0, want 1"),
        ('bootstrap="kafka"', 'bootstrap names "kafka": write HOST:PORT'),
        ('tables="ftp://b"', 'tables is "ftp://b": write s3://BUCKET/PREFIX'),
        ('tables="abfss://box/t"', 'tables is "abfss://box/t": write s3://BUCKET/PREFIX'),
        ('ingress={"host":"http://b"}', "at '/ingress/host'"),
        ('bridge={"enabled":true}', "name the web service of a Pulsar broker, http://HOST:PORT"),
        ('monitoring={"serviceMonitor":true}', "say in networkPolicy.metricsFrom where Prometheus"),
        ('settings={"lookup":{}}', "at '/settings': got object, want string"),
    ],
)
def test_wrong_value_is_refused_with_a_sentence(value: str, said: str) -> None:
    ended = render(value)
    assert ended.returncode != 0
    assert said in ended.stderr


def test_every_pod_has_the_annotations_variables_and_affinity_that_are_given() -> None:
    for pod in pods(EVERYTHING).values():
        assert pod["metadata"]["annotations"]["team"] == "storage"
        assert pod["spec"]["affinity"] == {"nodeAffinity": {}}
    for _, container in containers(EVERYTHING):
        assert "AWS_ENDPOINT_URL" in {one["name"] for one in container["env"]}


def test_service_account_of_the_user_is_used_and_none_made() -> None:
    values = ('serviceAccount={"name":"theirs"}',)
    assert not of_kind(values, "ServiceAccount")
    assert {pod["spec"]["serviceAccountName"] for pod in pods(values).values()} == {"theirs"}


def test_ingress_leads_to_the_lookup_service() -> None:
    assert not of_kind((), "Ingress")
    (ingress,) = of_kind(EVERYTHING, "Ingress").values()
    (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
    service = path["backend"]["service"]
    (port,) = of_kind(EVERYTHING, "Service")[service["name"]]["spec"]["ports"]
    assert port["name"] == service["port"]["name"]
    assert ingress["spec"]["tls"][0]["hosts"] == [ingress["spec"]["rules"][0]["host"]]


@cases
def test_test_pod_asks_the_service_by_an_allowed_name(
    values: Sequence[str], tmp_path: Path
) -> None:
    (pod,) = of_kind(values, "Pod").values()
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (asked,) = re.findall(r"(https?)://([^/]+)/health", pod["spec"]["containers"][0]["command"][2])
    config = settings_of(values, "lookup", tmp_path)
    assert asked == (scheme(values, "lookup").lower(), config.lookup.advertised_address)
    policies = of_kind(values, "NetworkPolicy").values()
    selectors = [one["spec"]["podSelector"]["matchLabels"] for one in policies]
    assert not [one for one in selectors if selects(one, pod["metadata"]["labels"])]


def test_readme_names_every_value() -> None:
    text = (CHART / "README.md").read_text()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    named = {word.split(".")[0] for word in re.findall(r"`([A-Za-z]+[A-Za-z.]*)`", text)}
    assert not set(values) - named
    parts = [f".{part}" for top in values.values() if isinstance(top, dict) for part in top]
    assert not [part for part in parts if part not in text]


def test_packed_chart_brings_its_dashboards_and_renders_the_same(tmp_path: Path) -> None:
    ended = ask_helm("package", str(CHART), "--destination", str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    (packed,) = tmp_path.glob("*.tgz")
    assert rendered(*EVERYTHING, chart=packed) == rendered(*EVERYTHING)
