"""`ottla registry` beside a broker, with Confluent's own client and serializers; schemas in topics of these tests."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ConfluentTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.certificates import Authority
from tests.conformance.conftest import NewTopic
from tests.conformance.registry_node import SECONDS_MAX
from tests.conformance.registry_node import RegistryNode as Node
from tests.conftest import ottla_command

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
STORED = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
WITH_NOTE = STORED.replace("]}", ',{"name":"note","type":"string","default":""}]}')
OTHER = STORED.replace("long", "string")


@pytest.fixture(scope="module")
def node(bootstrap: str, topic_names: Callable[[], str]) -> Iterator[Node]:
    made = Node(bootstrap, topic_names())
    yield made
    made.stop()


def records(bootstrap: str, topic: str) -> list[tuple[str, Any]]:
    """Keys as they are, values as JSON."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.partition.eof": True}
    consumer = Consumer(
        {**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (record := consumer.poll(SECONDS_MAX)) is not None and record.error() is None:
        value = record.value()
        found.append((record.key().decode(), json.loads(value) if value else None))
    consumer.close()
    return found


def test_serializers_of_three_formats(node: Node) -> None:
    avro, jays, protos = (SerializationContext(name, MessageField.VALUE) for name in ("orders", "jays", "protos"))
    data = AvroSerializer(node.client, ORDER)({"id": 7}, avro)
    assert data == b"\x00\x00\x00\x00\x01\x0e"
    assert AvroDeserializer(node.client)(data, avro) == {"id": 7}
    text = '{"title":"P","type":"object","properties":{"n":{"type":"integer"}}}'
    data = JSONSerializer(text, node.client)({"n": 3}, jays)
    assert data is not None
    assert data[:5] == b"\x00\x00\x00\x00\x02"
    assert JSONDeserializer(text, schema_registry_client=node.client)(data, jays) == {"n": 3}
    kind = _message()
    data = ProtobufSerializer(kind, node.client)(kind(id=5), protos)
    assert data is not None
    back = ProtobufDeserializer(kind, {}, schema_registry_client=node.client)(data, protos)
    assert back is not None
    assert back.id == 5
    assert node.client.get_latest_version("protos-value").schema.schema_type == "PROTOBUF"
    heads = SerializationContext("heads", MessageField.VALUE, [])
    data = AvroSerializer(node.client, '"string"', conf={"schema.id.serializer": header_schema_id_serializer})(
        "a text", heads
    )
    assert heads.headers[0][0] == "__value_schema_id"
    assert AvroDeserializer(node.client)(data, heads) == "a text"


def test_a_subject_is_created_changed_and_deleted_and_the_topic_records_it(bootstrap: str, topic_name: str) -> None:
    node = Node(bootstrap, topic_name)
    client, subject = node.client, "orders-value"
    assert client.register_schema(subject, Schema(ORDER, "AVRO")) == 1
    assert client.lookup_schema(subject, Schema(STORED, "AVRO")).version == 1
    assert client.test_compatibility(subject, Schema(WITH_NOTE, "AVRO"))
    assert not client.test_compatibility(subject, Schema(OTHER, "AVRO"))
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, Schema(OTHER, "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    assert client.register_schema(subject, Schema(WITH_NOTE, "AVRO")) == 2
    client.set_compatibility(subject, "NONE")
    assert client.get_versions(subject) == [1, 2]
    assert client.delete_version(subject, 1) == 1
    assert client.delete_subject(subject) == [2]
    key = f'{{"keytype":"SCHEMA","subject":"{subject}","version":%d,"magic":1}}'
    first = {"subject": subject, "version": 1, "id": 1, "schema": STORED}
    assert records(bootstrap, topic_name) == [
        ('{"keytype":"NOOP","magic":0}', None),
        (key % 1, {**first, "deleted": False}),
        (key % 2, {**first, "version": 2, "id": 2, "schema": WITH_NOTE, "deleted": False}),
        (f'{{"keytype":"CONFIG","subject":"{subject}","magic":0}}', {"subject": subject, "compatibilityLevel": "NONE"}),
        (key % 1, {**first, "deleted": True}),
        (f'{{"keytype":"DELETE_SUBJECT","subject":"{subject}","magic":0}}', {"subject": subject, "version": 2}),
        (f'{{"keytype":"CONFIG","subject":"{subject}","magic":0}}', None),
    ]
    node.stop()
    again = Node(bootstrap, topic_name)
    assert again.client.get_subjects(deleted=True) == [subject]
    assert again.client.get_schema(2).schema_str == WITH_NOTE
    assert again.client.register_schema("new", Schema('"int"', "AVRO")) == 3
    again.stop()


def test_two_nodes_on_one_topic_never_give_an_id_twice(node: Node, bootstrap: str) -> None:
    """One of them writes, and a registered schema is found on both."""
    other = Node(bootstrap, node.topic)
    ids: dict[str, int] = {}

    def register(client: SchemaRegistryClient, prefix: str) -> None:
        for number in range(10):
            text = STORED.replace("Order", f"{prefix}{number}")
            ids[text] = client.register_schema(f"{prefix}{number}", Schema(text, "AVRO"))

    threads = [
        threading.Thread(target=register, args=(each.client, name)) for each, name in ((node, "A"), (other, "B"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids.values())) == 20
    for each in (node, other):
        for text, number in ids.items():
            assert each.ask("GET", f"/schemas/ids/{number}")[1] == {"schema": text}
    node.process.send_signal(signal.SIGSTOP)
    first = other.client.register_schema("while-paused", Schema('"bytes"', "AVRO"))
    node.process.send_signal(signal.SIGCONT)
    second = node.client.register_schema("afterwards", Schema('"double"', "AVRO"))
    assert [*sorted(ids.values()), first, second] == sorted({*ids.values(), first, second})
    assert node.client.get_schema(first).schema_str == '"bytes"'
    other.stop()


def test_logins_and_rights_over_tls(bootstrap: str, topic_name: str, tmp_path: Path) -> None:
    """Two nodes, so that requests are forwarded with the login of the client."""
    authority = Authority()
    trusted = authority.certificate_pem(tmp_path / "trusted.pem")
    own = authority.issue("registry").pem(tmp_path / "own.pem")
    users = tmp_path / "users"
    making = [*ottla_command(), "registry", "--new-user", "alice"]
    line = subprocess.run(making, input="long enough\n", capture_output=True, text=True, check=True).stdout
    users.write_text(line.replace("read=*", "write=orders-*"))
    words = ["--users", str(users), "--ssl-certificate", own, "--ssl-key", own, "--ssl-ca", trusted]
    client = {"ssl_ca_location": trusted, "basic_auth_user_info": "alice:long enough"}
    nodes = [Node(bootstrap, topic_name, *words, **client) for _ in range(2)]
    for number, node in enumerate(nodes):
        subject = f"orders-{number}"
        assert node.client.register_schema(subject, Schema(STORED.replace("Order", f"O{number}"), "AVRO")) == number + 1
        assert node.client.get_subjects() == [f"orders-{each}" for each in range(number + 1)]
        with pytest.raises(SchemaRegistryError) as denied:
            node.client.register_schema("payments", Schema(STORED, "AVRO"))
        assert denied.value.http_status_code == 403
        stranger = SchemaRegistryClient({"url": node.url, "ssl.ca.location": trusted})
        with pytest.raises(SchemaRegistryError) as unknown:
            stranger.get_subjects()
        assert unknown.value.http_status_code == 401
    for node in nodes:
        node.stop()


def test_records_without_sense_are_skipped_and_named(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": bootstrap})
    good = {"subject": "s", "version": 1, "id": 4, "schema": '"int"', "deleted": False}
    for key, value in [
        (b"nonsense", b"{}"),
        (b'{"keytype":"EXPORTER","magic":0}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}', b'{"id":"x"}'),
        (b'{"subject":"s","version":1,"magic":1,"keytype":"SCHEMA"}', json.dumps(good).encode()),  # as Karapace's
        (b'{"keytype":"SCHEMA","subject":"s","version":3,"magic":1}', b"\xff"),
    ]:
        producer.produce(topic, key=key, value=value)
    producer.flush()
    made = Node(bootstrap, topic)
    assert made.client.get_versions("s") == [1]
    assert made.client.register_schema("t", Schema('"long"', "AVRO")) == 5
    said = made.stop()
    assert f"warning: 4 records of {topic} could not be read and are skipped" in said


@pytest.mark.parametrize(
    ("partitions", "policy", "said"),
    [(1, "delete", "cleanup.policy=delete, which would delete schemas"), (2, "compact", "has 2 partitions")],
)
def test_a_topic_that_would_lose_schemas_is_not_used(
    bootstrap: str, new_topic: NewTopic, partitions: int, policy: str, said: str
) -> None:
    topic = new_topic(partitions, cleanup_policy=policy)
    command = [*ottla_command(), "registry", "--bootstrap-server", bootstrap, "--topic", topic, "--port", "0"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_a_recreated_topic_stops_the_node(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(cleanup_policy="compact")
    made = Node(bootstrap, topic)
    made.client.register_schema("s", Schema('"int"', "AVRO"))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(SECONDS_MAX)
    new = ConfluentTopic(topic, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([new])[topic].result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": bootstrap})
    key = b'{"keytype":"SCHEMA","subject":"other","version":1,"magic":1}'
    for _ in range(20):  # more than the node has read of the first one
        producer.produce(topic, key=key, value=b'{"subject":"other","version":1,"id":1,"schema":"\\"long\\""}')
    producer.flush()
    _, said = made.process.communicate(timeout=SECONDS_MAX)
    assert made.process.returncode == 1
    assert "recreated" in said or "is not in the log" in said


def test_the_http_side_under_attack(node: Node) -> None:
    host, port = node.url.removeprefix("http://").split(":")
    slow = []
    for _ in range(1_000):
        connection = socket.create_connection((host, int(port)), SECONDS_MAX)
        connection.sendall(b"POST /subjects/s/versions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        slow.append(connection)
    assert node.ask("GET", "/subjects?subjectPrefix=s") == (200, [])
    large = {"schema": json.dumps({"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(600_000)]})}
    assert len(large["schema"]) > 5_000_000
    deep = '{"type":"array","items":' * 10_000 + '"int"' + "}" * 10_000
    for body, code in [
        (large, 413),
        ({"schema": large["schema"][:2_000_000]}, 42201),
        ({"schema": deep}, 42201),
        ({"schema": ""}, 42201),
        (b'{"schema": "', 400),
        (b"", 422),
        (b" " * (11 << 20), 413),
    ]:
        _, answer = node.ask("POST", "/subjects/s/versions", body)
        assert answer["error_code"] == code, answer
    with socket.create_connection((host, int(port)), SECONDS_MAX) as connection:
        connection.sendall(b"GET /subjects HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 400 ")
    assert node.ask("GET", "/subjects?subjectPrefix=s") == (200, [])
    for connection in slow:
        connection.close()


def test_the_example_of_the_page(node: Node, bootstrap: str, topic: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "registry.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for old, new in (("http://127.0.0.1:8081", node.url), ("127.0.0.1:9092", bootstrap), ('"orders"', f'"{topic}"')):
        example = example.replace(old, new)
    done = subprocess.run([sys.executable, "-c", example], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "{'id': 1, 'item': 'tea'}\n"


def _message() -> Any:
    """A class of messages, as protoc would make it."""
    file = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    field = file.message_type.add(name="Order").field.add(name="id", number=1)
    field.type, field.label = field.TYPE_INT64, field.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
