"""`ottla deploy init`: written files and rejected plans."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from ottla.base.broker_settings import load_broker_settings
from ottla.base.environment import key_of_variable
from ottla.cli.commands import deploy
from ottla.cli.deploy.compose import compose_files, variable_of
from ottla.cli.deploy.deployment_plan import COMPOSE, HELM, KINDS, SYSTEMD, DeploymentPlan, check_plan
from ottla.cli.deploy.helm import helm_files, split_image
from ottla.cli.deploy.systemd import systemd_files
from ottla.cli.deploy.templates import fill, prometheus_files, template, write_files
from ottla.cli.main import main
from ottla.cli.processes.cluster_defaults import replica_settings

ROOT = Path(__file__).parents[4]
TEMPLATES = ROOT / "src/ottla/cli/deploy/templates"


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_is_three_brokers_and_three_zookeepers_without_findings(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "cluster"
    assert main(["deploy", "init", "--as", kind, str(folder)]) == 0
    assert f"ottla deploy check {folder}" in capsys.readouterr().out
    assert main(["deploy", "check", str(folder), "--files-only"]) == 0
    output = capsys.readouterr()
    assert "PROBLEM" not in output.out
    assert "3 brokers, 3 ZooKeepers" in output.err
    assert not list(folder.glob(".*")), "nothing unfinished is left"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("brokers", "zookeepers"), [(1, 0), (1, 1), (2, 1), (5, 5), (40, 3)])
def test_every_size_is_liked(kind: str, brokers: int, zookeepers: int, tmp_path: Path) -> None:
    words = ["--as", kind, "--brokers", str(brokers), "--zookeeper", str(zookeepers)]
    assert main(["deploy", "init", *words, str(tmp_path / "cluster")]) == 0
    assert main(["deploy", "check", "--files-only", str(tmp_path / "cluster")]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_no_name_of_a_template_is_left_over(kind: str) -> None:
    hosts = () if kind == HELM else ("localhost",)
    for name, text in deploy.WRITERS[kind](DeploymentPlan(kind, hosts=hosts, port=30_092), "ottla deploy init").items():
        assert not re.search(r"<<[a-z_]+>>", text), name
        assert text.endswith("\n"), name
        if name.endswith((".yaml", ".yml")) and not name.startswith("templates/"):
            yaml.safe_load(text)


BAD = [
    (["--brokers", "0"], "--brokers 0: a cluster has 1 to 100 brokers"),
    (["--brokers", "-3"], "--brokers -3"),
    (["--brokers", "101"], "1 to 100"),
    (["--zookeeper", "-1"], "--zookeeper -1"),
    (["--zookeeper", "10"], "9 the maximum"),
    (["--zookeeper", "0"], "3 brokers need a ZooKeeper"),
    (["--port", "0"], "--port 0"),
    (["--port", "80"], "is 1024 to 65535"),
    (["--port", "65536"], "65535"),
    (["--port", "65534"], "go past 65535"),
    (["--port", "8079"], "broker 2 and the console would both use port 8080"),
    (["--port", "19091"], "both use port 19092"),
    (["--host", ""], "empty name"),
    (["--host", "a,,b"], "empty name"),
    (["--host", "http://a"], "not a host name or address"),
    (["--host", "a b"], "not a host name or address"),
    (["--host", "a:9092"], "not a host name or address"),
    (["--host", "a\nb: c"], "not a host name or address"),
    (["--host", "0.0.0.0"], "means every address"),
    (["--host", "a,b,c"], "compose runs on one machine"),
    (["--image", "ottla latest"], "not an image name"),
    (["--image", "x\n  evil: true"], "not an image name"),
]


@pytest.mark.parametrize(("words", "sentence"), BAD)
def test_invalid_plans_are_rejected_with_one_line(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cluster"
    assert main(["deploy", "init", "--as", "compose", *words, str(folder)]) == 2
    errors = capsys.readouterr().err.strip()
    assert sentence in errors
    assert errors.startswith("ottla deploy: ")
    assert not folder.exists()


@pytest.mark.parametrize(
    ("kind", "words", "sentence"),
    [
        (SYSTEMD, ["--host", "a,b"], "2 machines for 3 brokers"),
        (SYSTEMD, ["--host", "a,b,localhost"], "localhost is a different machine on each of several machines"),
        (SYSTEMD, ["--port", "2180"], "both use port 2181"),
        (SYSTEMD, ["--port", "9403"], "both use port 9404"),
        (HELM, ["--host", "localhost"], "would connect to themselves"),
        (HELM, ["--host", "a,b,a"], "twice"),
        (HELM, ["--port", "9092"], "30000 to 32767"),
        (HELM, ["--port", "32766"], "30000 to 32767"),
    ],
)
def test_each_kind_has_limits_of_its_own(
    kind: str, words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", "init", "--as", kind, *words, str(tmp_path / "cluster")]) == 2
    assert sentence in capsys.readouterr().err


def test_a_folder_with_content_is_not_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("precious")
    assert main(["deploy", "init", "--as", "compose", str(tmp_path)]) == 2
    assert "is not empty (mine)" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert main(["deploy", "init", "--as", "compose", str(tmp_path / "mine")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_an_empty_folder_stays_the_folder_that_it_is(tmp_path: Path) -> None:
    before = tmp_path.stat().st_ino
    write_files(tmp_path, {"a/b": "text\n"})
    assert (tmp_path.stat().st_ino, (tmp_path / "a/b").read_text()) == (before, "text\n")


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (DeploymentPlan(COMPOSE, zookeepers=4), "4 ZooKeepers survive as many deaths as 3"),
        (DeploymentPlan(COMPOSE, zookeepers=1), "a single ZooKeeper"),
        (DeploymentPlan(COMPOSE, brokers=2), "with 2 brokers one must acknowledge alone"),
        (DeploymentPlan(SYSTEMD), "share one machine and fail with it"),
    ],
)
def test_doubtful_plans_are_written_with_a_warning(plan: DeploymentPlan, words: str) -> None:
    assert any(words in doubt for doubt in check_plan(plan))


def test_settings_of_a_compose_service_are_those_of_a_broker() -> None:
    document = yaml.safe_load(
        compose_files(DeploymentPlan(COMPOSE, hosts=("kafka.example",), port=29_092), "x")["compose.yaml"]
    )
    service = document["services"]["broker-2"]
    variables = {name: str(value) for name, value in service["environment"].items()}
    settings = load_broker_settings(None, environment=variables, is_container=True)
    assert [str(each) for each in settings.advertised_listeners] == [
        "EXTERNAL://kafka.example:29093",
        "INTERNAL://broker-2:19092",
    ]
    assert (settings.node_id, settings.broker_rack) == (2, "rack-2")
    assert {key: settings.texts[key] for key in replica_settings(3)} == replica_settings(3)
    assert service["ports"] == ["0.0.0.0:29093:29093"]
    assert not [text for text in settings.warnings if "ignored" in text]


def test_only_this_machine_connects_unless_a_host_is_named() -> None:
    services = yaml.safe_load(compose_files(DeploymentPlan(COMPOSE), "x")["compose.yaml"])["services"]
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_brokers_on_several_machines_have_the_same_port_and_racks_of_their_own(tmp_path: Path) -> None:
    written = systemd_files(DeploymentPlan(SYSTEMD, hosts=("a.example", "b.example", "c.example")), "x")
    write_files(tmp_path, written)
    found = [load_broker_settings(tmp_path / f"etc/ottla/broker-{number}.properties") for number in (1, 2, 3)]
    assert [str(each.advertised_listeners[0]) for each in found] == [
        f"PLAINTEXT://{name}.example:9092" for name in ("a", "b", "c")
    ]
    assert [each.broker_rack for each in found] == ["a.example", "b.example", "c.example"]
    assert {each.zookeeper_connect for each in found} == {"a.example:2181,b.example:2181,c.example:2181"}
    assert "b.example: systemctl enable --now ottla-zookeeper@2 ottla@2 ottla.target" in written["README.md"]


def test_every_value_of_the_chart_is_defined() -> None:
    written = helm_files(DeploymentPlan(HELM, hosts=(), port=30_092), "x")
    values = yaml.safe_load(written["values.yaml"])
    used = {
        path
        for name, text in written.items()
        if name.startswith("templates/")
        for path in re.findall(r"\.Values\.([A-Za-z.]+)", text)
    }
    assert len(used) > 20
    for path in used:
        found = values
        for part in path.split("."):
            assert part in found, path
            found = found[part]


def test_templates_of_the_chart_close_what_they_open() -> None:
    for name, text in helm_files(DeploymentPlan(HELM, hosts=(), port=30_092), "x").items():
        if name.startswith("templates/"):
            opened = re.findall(r"\{\{-?\s*(?:if|range|with|define)\b", text)
            assert len(opened) == len(re.findall(r"\{\{-?\s*end\b", text)), name


def test_variables_and_keys_are_two_ways_to_write_the_same() -> None:
    for key in [*replica_settings(3), "ottla.metrics.host", "listener.name.sasl_ssl.a-b"]:
        assert key_of_variable(variable_of(key)) == key


def test_an_image_may_come_from_a_registry_with_a_port() -> None:
    assert split_image("registry.example:5000/ottla") == ("registry.example:5000/ottla", "latest")
    assert split_image("registry.example:5000/ottla:1.0") == ("registry.example:5000/ottla", "1.0")


def test_the_repositorys_own_files_equal_the_templates() -> None:
    single = {
        "header": "# One broker as a service. To install, see docs/deployment.md.",
        "which": "",
        "order": "After=network-online.target",
        "config": "server.properties",
        "folder": "ottla",
        "hardening": template("systemd/hardening.conf"),
        "target": "multi-user.target",
    }
    assert (ROOT / "deploy/ottla.service").read_text() == fill(template("systemd/broker.service"), single)
    values = {"targets": '"127.0.0.1:9404"', "pipelines": '"127.0.0.1:9405"'}
    own = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
    assert own == fill(template("monitoring/prometheus.yml"), values)
    assert (ROOT / "deploy/container.properties").read_text() == template("config/container.properties")
    for name in ("prometheus/alerts.yml", "prometheus/pipeline-alerts.yml", "grafana/ottla.json"):
        assert (ROOT / "deploy" / name).read_text() == template(f"monitoring/{Path(name).name}")


def test_the_repositorys_compose_file_and_a_written_one_run_their_services_alike() -> None:
    own = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    written = yaml.safe_load(compose_files(DeploymentPlan(COMPOSE), "x")["compose.yaml"])["services"]
    for name in ("registry", "console"):
        assert own[name]["healthcheck"]["test"] == written[name]["healthcheck"]["test"]
        words = [word for word in own[name]["entrypoint"] if ":19092" not in word]
        assert set(words) <= set(written[name]["entrypoint"])
        assert own[name]["ports"] == written[name]["ports"]
    assert own["broker"]["ulimits"] == written["broker-1"]["ulimits"]


def test_prometheus_scrapes_every_broker() -> None:
    document = yaml.safe_load(prometheus_files(["a:9404", "b:9404"])["prometheus/prometheus.yml"])
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in document["scrape_configs"]}
    assert targets == {"ottla": ["a:9404", "b:9404"], "ottla-partitions": ["a:9404", "b:9404"], "ottla-pipelines": []}


def test_all_templates_are_packed_with_the_program() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["ottla.cli.deploy"]
    for path in TEMPLATES.rglob("*"):
        name = str(path.relative_to(TEMPLATES.parent))
        depth = name.count("/")
        assert path.is_dir() or any(fnmatch(name, each) and each.count("/") == depth for each in patterns), name
