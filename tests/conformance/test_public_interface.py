"""What a broker shows and stores keeps its names: those in tests/data/public_interface_at_run_time.txt.

Metrics with their labels, MBeans with their attributes, loggers of packages, nodes of the metadata store with the
fields of their JSON, files of a log directory. `OTTLA_REWRITE=1` rewrites the list; a changed line needs a line in
CHANGELOG.md.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families
from tests.conformance.conftest import ALL_RIGHTS
from tests.conftest import ottla_command

from ottla.testing import broker as broker_for_test

pytestmark = pytest.mark.needs_ottla

COMMITTED = Path(__file__).parents[1] / "data" / "public_interface_at_run_time.txt"
ADDRESS = re.compile(r"metrics on (http://\S+)/metrics")
SETTINGS = {**ALL_RIGHTS, "ottla.metrics.port": 0, "delegation.token.secret.key": "secret"}
NUMBER = re.compile(r"\d+")
VALUE = re.compile(r"\b(topic|partition|request|version|error|logDirectory|networkProcessor|id)=[^,]+")
# Nodes named after what a user made: the last word is the user's.
NAMED = re.compile(
    r"^(/config/(?:topics|users|clients|ips|groups|client-metrics)|/brokers/topics|/kafka-acl/\w+|/delegation_token/tokens)/[^/]+"
)


def test_names_of_a_running_broker_are_those_that_are_committed(tmp_path: Path) -> None:
    with broker_for_test(SETTINGS, topics={"orders": 2}) as broker:
        use(broker.bootstrap_servers, tmp_path)
        found = ADDRESS.search(broker.logs)
        assert found is not None, broker.logs
        lines = {*metrics(found[1]), *beans(found[1]), *loggers(broker.bootstrap_servers)}
        broker.stop()
        lines |= {*nodes(broker.data_folder / "ottla.metadata.db"), *files(broker.data_folder)}
    text = "".join(f"{line}\n" for line in sorted(lines))
    if os.environ.get("OTTLA_REWRITE"):
        COMMITTED.write_text(text)
    assert text.splitlines() == COMMITTED.read_text().splitlines()


def use(bootstrap: str, folder: Path) -> None:
    """Everything that leaves a node, a file or a metric behind."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payments"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"first", partition=0)
    producer.commit_transaction(30)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    consumer.close()
    run(bootstrap, "configs", "set", "topic", "orders", "retention.ms=1000000")
    run(bootstrap, "configs", "set", "broker", "1", "log.cleaner.threads=2")
    run(bootstrap, "acls", "add", "--allow", "User:ada", "--operation", "read", "--topic", "orders")
    run(bootstrap, "users", "add", "ada", "--write", str(folder / "ada.properties"))
    run(bootstrap, "quotas", "set", "--user", "ada", "producer_byte_rate=1000000")


def run(bootstrap: str, *words: str) -> str:
    command = [*ottla_command(), *words, "--bootstrap-server", bootstrap]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def metrics(url: str) -> Iterator[str]:
    with urllib.request.urlopen(f"{url}/metrics?partitions=true", timeout=30) as answer:
        for family in text_string_to_metric_families(answer.read().decode()):
            labels = {name for sample in family.samples for name in sample.labels}
            yield f"metric {family.name} {family.type} {','.join(sorted(labels))}".rstrip()


def beans(url: str) -> Iterator[str]:
    with urllib.request.urlopen(f"{url}/jolokia/list", timeout=30) as answer:
        listed: dict[str, dict[str, Any]] = json.load(answer)["value"]
    for domain, described in listed.items():
        for properties, bean in described.items():
            keys = VALUE.sub(r"\1=*", properties)
            yield f"bean {domain}:{keys} {','.join(sorted(bean['attr']))}"


def loggers(bootstrap: str) -> Iterator[str]:
    """Those of packages: the loggers below them are named after modules, which change."""
    shown = run(bootstrap, "configs", "describe", "broker-logger", "1", "--all")
    for name in re.findall(r"^\s*([a-z][\w.]+)", shown, re.MULTILINE):
        if name.count(".") < 2:
            yield f"logger {name}"


def nodes(store: Path) -> Iterator[str]:
    with sqlite3.connect(store) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = [column[1] for column in connection.execute(f"PRAGMA table_info({table})")]
            yield f"table {table} {','.join(columns)}"
        for path, data in connection.execute("SELECT parent || '/' || name, data FROM node"):
            named = NUMBER.sub("*", NAMED.sub(r"\1/*", path.replace("//", "/")))
            yield f"node {named} {','.join(fields(data))}".rstrip()


def fields(data: bytes | None, path: str = "") -> list[str]:
    """The names in a JSON object, those of inner objects behind a dot."""
    try:
        value = json.loads(data or b"")
    except ValueError:
        return []
    found: list[str] = []
    if isinstance(value, dict):
        for name, inner in value.items():
            found.append(f"{path}{NUMBER.sub('*', name)}")
            if isinstance(inner, dict):
                found += fields(json.dumps(inner).encode(), f"{found[-1]}.")
    return sorted(set(found))


def files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        name = NUMBER.sub("*", str(path.relative_to(folder)))
        yield f"file {name}"
        if path.is_file() and path.stat().st_size < 1 << 16:
            yield from (f"file {name} field {field}" for field in fields(path.read_bytes()))
            if path.suffix == ".properties":
                for line in path.read_text().splitlines():
                    yield f"file {name} key {line.partition('=')[0]}" if "=" in line else f"file {name}"
