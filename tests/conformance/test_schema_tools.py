"""`ottla schemas`, Confluent's console tools and ours with a registry, beside Confluent's own serializers."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.conformance.in_process import run_here
from tests.conformance.test_registry import SECONDS_MAX, Node
from tests.conformance.test_tools import run

NewTopic = Callable[..., str]
ORDER = json.dumps({
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [{"name": "item", "type": "string"}, {"name": "price", "type": ["null", "double"], "default": None}],
})  # fmt: skip
RULES = '{"type":"object","title":"Order","properties":{"item":{"type":"string"}},"required":["item"]}'
PROTO = 'syntax = "proto3"; package shop; message Other { int32 n = 1; } message Order { string item = 1; }'


@pytest.fixture(scope="module")
def node(bootstrap: str, topic_names: Callable[[], str]) -> Iterator[Node]:
    made = Node(bootstrap, topic_names())
    yield made
    made.stop()


def values(bootstrap: str, topic: str) -> list[tuple[bytes, Any]]:
    """Value and headers of all records."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "nobody", "fetch.wait.max.ms": 10}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (record := consumer.poll(SECONDS_MAX)) is not None and record.error() is None:
        found.append((record.value(), record.headers()))
    consumer.close()
    return found


def send(bootstrap: str, topic: str, *records: tuple[bytes | None, Any]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value, headers in records:
        producer.produce(topic, value, headers=headers)
    assert producer.flush(SECONDS_MAX) == 0


def order_message() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    for name, field, kind in (("Other", "n", 5), ("Order", "item", 9)):
        message = file.message_type.add(name=name)
        message.field.add(name=field, number=1, type=kind, label=1, json_name=field)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def context(topic: str, headers: Any = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


def read(kind: str, bootstrap: str, topic: str, node: Node, count: int, *properties: str) -> Any:
    words = [word for text in (f"schema.registry.url={node.url}", *properties) for word in ("--property", text)]
    place = ("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", str(count))
    return run(f"kafka-{kind}-console-consumer", *place, *words)


def write(kind: str, bootstrap: str, topic: str, node: Node, lines: str, *properties: str) -> Any:
    words = [word for text in (f"schema.registry.url={node.url}", *properties) for word in ("--property", text)]
    place = ("--bootstrap-server", bootstrap, "--topic", topic)
    return run(f"kafka-{kind}-console-producer", *place, *words, stdin=lines.encode())


def test_avro_by_confluents_names(bootstrap: str, new_topic: NewTopic, node: Node) -> None:
    topic = new_topic(partitions=1)
    lines = '{"item": "chair", "price": {"double": 9.5}}\n{"item": "bed", "price": null}\n'
    done = write("avro", bootstrap, topic, node, lines, f"value.schema={ORDER}")
    assert (done.code, done.err) == (0, "")
    deserialize = AvroDeserializer(node.client)
    found = [deserialize(value, context(topic)) for value, _ in values(bootstrap, topic)]
    assert found == [{"item": "chair", "price": 9.5}, {"item": "bed", "price": None}]
    send(bootstrap, topic, (AvroSerializer(node.client, ORDER)({"item": "table", "price": 1.0}, context(topic)), None))
    schema_id = node.client.get_latest_version(f"{topic}-value").schema_id
    shown = read("avro", bootstrap, topic, node, 3, "print.schema.ids=true", "schema.id.separator=|")
    assert shown.out.splitlines() == [
        f'{{"item":"chair","price":{{"double":9.5}}}}|{schema_id}',
        f'{{"item":"bed","price":null}}|{schema_id}',
        f'{{"item":"table","price":{{"double":1.0}}}}|{schema_id}',
    ]
    # What does not fit is not sent, and says where it is.
    bad = write("avro", bootstrap, topic, node, '{"item": 5}\n', f"value.schema.id={schema_id}")
    assert bad.code == 1
    assert "line 1, value: item: 5 is not of type string" in bad.err
    missing = write(
        "avro", bootstrap, topic, node, "", f"value.schema={json.dumps('long')}", "auto.register.schemas=false"
    )
    assert (missing.code, "not found" in missing.err.lower()) == (1, True)
    none = write("avro", bootstrap, topic, node, "")
    assert (none.code, "Must provide the value schema in either value.schema, value.schema.id" in none.err) == (2, True)
    latest = write(
        "avro", bootstrap, topic, node, '{"item": "lamp", "price": null}\n',
        f"value.schema={json.dumps('long')}", "auto.register.schemas=false", "use.latest.version=true",
    )  # fmt: skip
    assert latest.code == 0
    assert len(values(bootstrap, topic)) == 4


def test_json_schema_and_protobuf_by_confluents_names(bootstrap: str, new_topic: NewTopic, node: Node) -> None:
    topic = new_topic(partitions=1)
    assert write("json-schema", bootstrap, topic, node, '{"item": "chair"}\n', f"value.schema={RULES}").code == 0
    assert JSONDeserializer(RULES)(values(bootstrap, topic)[0][0], context(topic)) == {"item": "chair"}
    send(bootstrap, topic, (JSONSerializer(RULES, node.client)({"item": "bed"}, context(topic)), None))
    shown = read("json-schema", bootstrap, topic, node, 2)
    assert shown.out.splitlines() == ['{"item":"chair"}', '{"item":"bed"}']
    bad = write("json-schema", bootstrap, topic, node, "{}\n", f"value.schema={RULES}")
    assert (bad.code, "'item' is a required property" in bad.err) == (1, True)

    topic = new_topic(partitions=1)
    words = (f"value.schema={PROTO}", "value.schema.full.name=shop.Order")
    assert write("protobuf", bootstrap, topic, node, '{"item": "chair"}\n', *words).code == 0
    order = order_message()
    back = ProtobufDeserializer(order, {}, schema_registry_client=node.client)(
        values(bootstrap, topic)[0][0], context(topic)
    )
    assert back.item == "chair"
    serialize = ProtobufSerializer(order, node.client)
    send(bootstrap, topic, (serialize(order(item="bed"), context(topic)), None))
    shown = read("protobuf", bootstrap, topic, node, 2)
    assert shown.out.splitlines() == ['{"item":"chair"}', '{"item":"bed"}']


def test_consuming_never_ends_because_of_what_was_written(
    bootstrap: str, new_topic: NewTopic, node: Node, tmp_path: Path
) -> None:
    topic = new_topic(partitions=1)
    headers: list[Any] = []
    options = {"schema.id.serializer": header_schema_id_serializer}
    in_header = AvroSerializer(node.client, ORDER, conf=options)({"item": "x", "price": None}, context(topic, headers))
    framed = AvroSerializer(node.client, ORDER)({"item": "y", "price": 2.5}, context(topic))
    send(
        bootstrap, topic, (in_header, headers), (framed, None), (framed[:-1], None), (b"\0\0\0\xff\xffdata", None),
        (b"\0\0", None), (b"plain text", None), (None, None),
    )  # fmt: skip
    place = (topic, "--until-end", "--bootstrap-server", bootstrap, "--registry", node.url)
    done = run("ottla", "consume", *place)
    assert done.code == 0
    assert done.out.splitlines() == [
        '{"item": "x", "price": null}', '{"item": "y", "price": 2.5}', framed[:-1].hex(), "000000ffff64617461",
        "0000", "plain text", "null",
    ]  # fmt: skip
    assert "offset 2 is shown as hexadecimal: the bytes do not fit schema" in done.err
    assert "offset 3 is shown as hexadecimal: Schema 65535 not found" in done.err
    as_json = [json.loads(line)["value"] for line in run("ottla", "consume", *place, "--json").out.splitlines()]
    assert as_json[:2] == [{"item": "x", "price": None}, {"item": "y", "price": 2.5}]
    assert as_json[3] == {"hex": "000000ffff64617461", "problem": "Schema 65535 not found"}
    assert as_json[5:] == ["plain text", None]
    theirs = read("avro", bootstrap, topic, node, 7)
    assert theirs.code == 0
    assert theirs.out.splitlines()[4:] == ["0000", b"plain text".hex(), "null"]
    assert "Unknown magic byte!" in theirs.err
    # A registry that is gone: hexadecimal, once with the reason, and an end.
    start = time.monotonic()
    gone = run("ottla", "consume", *place[:-1], "http://127.0.0.1:9")
    assert gone.code == 0
    assert gone.out.splitlines()[1] == framed.hex()
    assert gone.err.count("cannot be reached") == 1
    assert time.monotonic() - start < SECONDS_MAX


def test_producing_with_subjects(bootstrap: str, new_topic: NewTopic, node: Node, tmp_path: Path) -> None:
    topic = new_topic(partitions=1)
    schema = tmp_path / "order.avsc"
    schema.write_text(ORDER)
    key = tmp_path / "key.avsc"
    key.write_text('"long"')
    where = ("--bootstrap-server", bootstrap, "--registry", node.url)
    assert (
        run("ottla", "produce", topic, '{"item": "a"}', *where)
        .err.strip()
        .endswith(f"Subject '{topic}-value' not found.")
    )
    words = ("--value-schema", str(schema), "--key-schema", str(key), "--key-separator", ":")
    assert run("ottla", "produce", topic, '7:{"item": "chair"}', *where, *words).code == 0
    line = '{"key": 8, "value": {"item": "bed", "price": 1}}'
    assert run("ottla", "produce", topic, line, *where, "--key-subject", f"{topic}-key", "--format", "json").code == 0
    shown = run("ottla", "consume", topic, "--until-end", "--show", "key", *where)
    assert shown.out.splitlines() == ['7\t{"item": "chair", "price": null}', '8\t{"item": "bed", "price": 1.0}']
    bad = run("ottla", "produce", topic, '{"item": "chair", "cost": 1}', *where)
    assert (bad.code, "cost is not a field of shop.Order" in bad.err) == (1, True)
    deserialize = AvroDeserializer(node.client)
    assert deserialize(values(bootstrap, topic)[0][0], context(topic)) == {"item": "chair", "price": None}
    for words, why in (
        (("--value-subject", "x"), "need --registry"),
        (("--registry", "ftp://x"), "not the address of a registry"),
        (("--registry", node.url, "--value-format", "int"), "excludes other formats"),
    ):
        wrong = run_here("ottla", "produce", topic, "{}", "--bootstrap-server", bootstrap, *words)
        assert (wrong.code, why in wrong.err) == (2, True), wrong.err


def test_schemas_from_files_to_another_registry(
    bootstrap: str, topic_names: Callable[[], str], node: Node, tmp_path: Path
) -> None:
    def schemas(*words: str, registry: Node = node) -> Any:
        return run_here("ottla", "schemas", *words, "--registry", registry.url)

    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "tools%2Forder.avsc").write_text(ORDER)
    (folder / "tools-rules.json").write_text(RULES)
    (folder / "tools-proto.proto").write_text(PROTO)
    done = schemas("register", str(folder))
    assert (done.code, [line.split("\t")[0] for line in done.out.splitlines()]) == (
        0, ["tools%2Forder".replace("%2F", "/"), "tools-proto", "tools-rules"],
    )  # fmt: skip
    trip = tmp_path / "trip.avsc"
    trip.write_text('{"type": "record", "name": "Trip", "fields": [{"name": "of", "type": "shop.Order"}]}')
    assert schemas("register", "tools-trip", str(trip), "--reference", "shop.Order=tools/order:1").code == 0
    other = tmp_path / "other.avsc"
    other.write_text('{"type": "record", "name": "Trip", "fields": [{"name": "must", "type": "int"}]}')
    checked = schemas("check", "tools-trip", str(other))
    assert (checked.code, "READER_FIELD_MISSING_DEFAULT_VALUE" in checked.out) == (1, True)
    assert schemas("config", "tools-trip", "--level", "none").out.startswith("compatibilityLevel\tNONE")
    assert schemas("register", "tools-trip", str(other)).code == 0
    listed = {line.split("\t")[0]: line.split("\t")[1:] for line in schemas("list", "tools").out.splitlines()}
    assert (listed["tools-trip"][0], listed["tools-proto"][2]) == ("1,2", "PROTOBUF")
    assert json.loads(schemas("show", "tools-trip", "1").out)["name"] == "Trip"
    backup = tmp_path / "backup"
    assert schemas("export", str(backup), "tools-trip", "tools/order", "tools-proto").code == 0

    empty = Node(bootstrap, topic_names())
    try:
        done = schemas("import", str(backup), registry=empty)
        assert (done.code, len(done.out.splitlines())) == (0, 4), done.err
        for subject, version in (("tools-trip", 1), ("tools-trip", 2), ("tools/order", 1), ("tools-proto", 1)):
            theirs, ours = (each.client.get_version(subject, version) for each in (node, empty))
            assert (theirs.schema_id, theirs.schema.schema_str) == (ours.schema_id, ours.schema.schema_str)
        assert empty.client.get_compatibility("tools-trip") == "NONE"
        assert empty.ask("GET", "/mode/tools-trip")[0] == 404, "IMPORT was only for the time of the import"
        assert schemas("import", str(backup), registry=empty).err.endswith("4 already existed.\n")
    finally:
        empty.stop()
    assert schemas("delete", "tools-trip", "--version", "2", "--yes").out == "tools-trip\t2\n"
    assert schemas("delete", "tools-trip", "--yes").out == "tools-trip\t1\n"
    assert schemas("delete", "tools-trip", "--permanent", "--yes").code == 0
    for words, code, why in (
        (("show", "tools-trip"), 1, "not found"),
        (("show",), 2, "exactly one of a subject"),
        (("register", "x", str(tmp_path / "nothing.avsc")), 2, "cannot be read"),
        (("register", "x", str(folder)), 2, "does not determine the type"),
        (("register", "x", str(trip)), 1, "shop.Order"),
        (("register", "x", str(trip), "--reference", "nonsense"), 2, "NAME=SUBJECT:VERSION"),
        (("import", str(folder)), 2, "a version has"),
    ):
        wrong = schemas(*words)
        assert (wrong.code, why in wrong.err) == (code, True), wrong.err
        assert len(wrong.err.splitlines()) == 1


def test_a_registry_that_is_slow_is_waited_for_a_bounded_time() -> None:
    program = "import socket, time\ns = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
    silent = subprocess.Popen(["python3", "-c", program + "time.sleep(60)"], stdout=subprocess.PIPE, text=True)
    try:
        assert silent.stdout is not None
        port = silent.stdout.readline().strip()
        done = run_here("ottla", "schemas", "list", "--registry", f"http://127.0.0.1:{port}")
        assert (done.code, "cannot be reached: timed out" in done.err) == (1, True), done.err
    finally:
        silent.kill()
        silent.wait()
