"""Values of --master."""

import os

import pytest

from ottla.pipelines.spark.masters import Kind, parse_master
from ottla.pipelines.spark.places import SparkStartError


@pytest.mark.parametrize(
    ("text", "url", "cores"),
    [
        (None, f"local[{os.cpu_count()},4]", os.cpu_count()),
        ("local", "local[1,4]", 1),
        ("local[*]", f"local[{os.cpu_count()},4]", os.cpu_count()),
        ("local[3]", "local[3,4]", 3),
        ("local[3,1]", "local[3,1]", 3),
        (" local[2, 8] ", "local[2,8]", 2),
    ],
)
def test_on_this_machine_a_task_has_as_many_attempts_as_on_a_cluster(text: str, url: str, cores: int) -> None:
    master = parse_master(text)
    assert (master.kind, master.url, master.cores, master.is_near) == (Kind.LOCAL, url, cores, True)


@pytest.mark.parametrize(
    ("text", "kind", "is_near", "addresses"),
    [
        ("spark://127.0.0.1:7077", Kind.STANDALONE, True, [("127.0.0.1", 7077)]),
        ("spark://one:7077,two:7078", Kind.STANDALONE, False, [("one", 7077), ("two", 7078)]),
        ("spark://[::1]:7077", Kind.STANDALONE, True, [("::1", 7077)]),
        ("sc://host", Kind.CONNECT, False, [("host", 15002)]),
        ("sc://host:1234/;use_ssl=true", Kind.CONNECT, False, [("host", 1234)]),
    ],
)
def test_clusters_say_where_they_listen(text: str, kind: Kind, is_near: bool, addresses: list[tuple[str, int]]) -> None:
    master = parse_master(text)
    assert (master.kind, master.url, master.is_near, master.addresses()) == (kind, text, is_near, addresses)


def test_kubernetes_is_recognised() -> None:
    assert parse_master("k8s://https://host:6443").kind is Kind.KUBERNETES


def test_yarn_needs_the_configuration_of_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(SparkStartError, match="HADOOP_CONF_DIR"):
        parse_master("yarn")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert parse_master("yarn").kind is Kind.YARN


@pytest.mark.parametrize(
    "text",
    [
        "locale",
        "local[]",
        "local[x]",
        "local[2",
        "spark://",
        "spark://host",
        "sc://",
        "host:7077",
        "k8s://",
        "mesos://x:1",
    ],
)
def test_an_invalid_master_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(SparkStartError, match=r"is not a master: write local\[\*\], local\[N\], spark://HOST:PORT"):
        parse_master(text)


def test_no_cores_are_not_enough() -> None:
    with pytest.raises(SparkStartError, match="has no core to run on"):
        parse_master("local[0]")
