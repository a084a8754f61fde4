"""The chart that `ottla deploy init` writes, read by Helm itself and by Kubernetes' own schemas.

Helm is taken from the machine, or built by go; `kubernetes-validate` comes from PyPI: `pytest -m other_languages`.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla.cli.main import main

pytestmark = [pytest.mark.other_languages, pytest.mark.needs_ottla]

HELM = "helm.sh/helm/v3/cmd/helm@v3.18.6"
SECONDS_MAX = 900
VARIANTS = {
    "as it is": [],
    "balancers": ["external.type=LoadBalancer", "external.hosts={a.example,b.example,c.example}"],
    "a name for all": ["external.hosts={kafka.example}", "rack.enabled=false", "brokers.waitForReplicasSeconds=0"],
    "nothing outside": ["external.enabled=false", "registry.enabled=false", "console.enabled=false"],
    "dashboard": ["monitoring.dashboard=true", "monitoring.annotations=false", "brokers.storage.className=fast"],
    "alone": ["brokers.replicas=1", "zookeeper.replicas=0"],
}


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = shutil.which("helm")
    if found is None:
        folder = tmp_path_factory.mktemp("go")
        environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-mod=mod"}
        subprocess.run(["go", "install", HELM], check=True, env=environment, timeout=SECONDS_MAX)
        found = str(folder / "helm")
    return found


@pytest.fixture(scope="session")
def validator(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """In a folder of its own: it brings a hundred megabytes of schemas."""
    folder = tmp_path_factory.mktemp("validator")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(folder)]
    subprocess.run([*pip, "kubernetes-validate"], check=True, timeout=SECONDS_MAX)
    program = "; ".join(
        [
            f"import sys; sys.path.insert(0, {str(folder)!r})",
            "from kubernetes_validate.__main__ import main",
            "sys.exit(main())",
        ]
    )
    return [sys.executable, "-c", program]


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    assert main(["deploy", "init", "--as", "helm", str(tmp_path / "chart")]) == 0
    return tmp_path / "chart"


def rendered(helm: str, chart: Path, settings: list[str]) -> list[dict[str, Any]]:
    words = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run(
        [helm, "template", "my", str(chart), *words], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    (chart.parent / "rendered.yaml").write_text(done.stdout)
    return [document for document in yaml.safe_load_all(done.stdout) if document is not None]


@pytest.mark.parametrize("name", VARIANTS)
def test_the_rendered_chart_is_valid_for_kubernetes(name: str, helm: str, validator: list[str], chart: Path) -> None:
    documents = rendered(helm, chart, VARIANTS[name])
    file = str(chart.parent / "rendered.yaml")
    done = subprocess.run([*validator, "--strict", file], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = [document["kind"] for document in documents]
    assert kinds.count("PodDisruptionBudget") == (1 if name == "alone" else 2)


def by_name(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    return next(each for each in documents if each["kind"] == kind and each["metadata"]["name"] == name)


@pytest.mark.parametrize(
    ("name", "ordinal", "advertised"),
    [
        ("as it is", 2, "EXTERNAL://10.0.0.7:30094"),
        ("balancers", 1, "EXTERNAL://b.example:9094"),
        ("a name for all", 2, "EXTERNAL://kafka.example:30094"),
    ],
)
def test_each_pod_advertises_an_address_that_a_service_resolves(
    name: str, ordinal: int, advertised: str, helm: str, chart: Path, tmp_path: Path
) -> None:
    documents = rendered(helm, chart, VARIANTS[name])
    script = by_name(documents, "ConfigMap", "my-brokers")["data"]["pod.sh"]
    (tmp_path / "rack").write_text("zone-b")
    (tmp_path / "pod.sh").write_text(script.replace("/run/ottla/rack", str(tmp_path / "rack")))
    pod = {"POD_NAME": f"my-brokers-{ordinal}", "NODE_ADDRESS": "10.0.0.7", "PATH": os.environ["PATH"]}
    command = ["sh", "-ec", f". {tmp_path / 'pod.sh'}; env"]
    told = subprocess.run(command, check=True, capture_output=True, text=True, env=pod).stdout
    exported = dict(line.split("=", 1) for line in told.splitlines())
    inner = f"INTERNAL://my-brokers-{ordinal}.my-brokers-pods.default.svc:9092"
    assert exported["KAFKA_ADVERTISED_LISTENERS"] == f"{inner},{advertised}"
    assert exported["KAFKA_NODE_ID"] == str(ordinal + 1)
    assert exported.get("KAFKA_BROKER_RACK") == (None if "rack.enabled=false" in VARIANTS[name] else "zone-b")
    service = by_name(documents, "Service", f"my-brokers-external-{ordinal}")["spec"]
    (port,) = service["ports"]
    assert int(advertised.rpartition(":")[2]) == port.get("nodePort", port["port"])
    assert service["selector"]["statefulset.kubernetes.io/pod-name"] == f"my-brokers-{ordinal}"


def test_numbers_stay_numbers(helm: str, chart: Path) -> None:
    values = chart / "values.yaml"
    text = values.read_text().replace('log.retention.hours: "168"', "log.segment.bytes: 1073741824")
    values.write_text(text)
    settings = by_name(rendered(helm, chart, []), "ConfigMap", "my-brokers")["data"]["server.properties"]
    assert "log.segment.bytes=1073741824\n" in settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["external.type=LoadBalancer"], "needs a name for each of the 3 brokers"),
        (["external.hosts={a,b}"], "2 names for 3 brokers"),
        (["brokers.terminationGracePeriodSeconds=60"], "must be larger than brokers.waitForReplicasSeconds"),
    ],
)
def test_values_that_cannot_work_are_refused_with_a_sentence(
    settings: list[str], words: str, helm: str, chart: Path
) -> None:
    options = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run([helm, "template", "my", str(chart), *options], check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert words in done.stderr


def test_the_check_renders_the_chart_with_helm(
    helm: str, chart: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", f"{Path(helm).parent}:{os.environ['PATH']}")
    assert main(["deploy", "check", str(chart)]) == 0
    (chart / "templates" / "brokers.yaml").write_text("{{ if }}")
    capsys.readouterr()
    assert main(["deploy", "check", str(chart), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert any(each["place"] == "helm template" and "brokers.yaml" in each["cause"] for each in found)
