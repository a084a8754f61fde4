"""`ottla search` finds what other clients have written, and says what it could not read."""

import io
import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.conformance.test_tools import Result
from tests.conftest import Broker

from ottla.cli.main import main

NewTopic = Callable[..., str]


def run_here(*arguments: str) -> Result:
    """In this process: a dozen Pythons would take longer than all searches."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
    out.flush()
    return Result(code, out.buffer.getvalue(), err.getvalue().encode())  # type: ignore[attr-defined]


@pytest.fixture
def filled(bootstrap: str, new_topic: NewTopic) -> str:
    """Three partitions, compressed batches, JSON with escapes, headers, a null, an aborted transaction."""
    name = new_topic(partitions=3)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 50})
    for number in range(3000):
        value = json.dumps({"user": {"id": number, "name": "Müller" if number == 77 else f"n{number}"}})
        producer.produce(name, value.encode(), b"k%d" % number, partition=number % 3, headers=[("seq", b"%d" % number)])
    producer.produce(name, None, b"gone", partition=0)
    assert producer.flush(20) == 0
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{name}-t"})
    transactional.init_transactions(20)
    transactional.begin_transaction()
    transactional.produce(name, b"undone", partition=1)
    transactional.flush(20)
    transactional.abort_transaction(20)
    return name


def search(bootstrap: str, topic: str, *words: str) -> list[dict[str, object]]:
    result = run_here("search", topic, *words, "--json", "--bootstrap-server", bootstrap)
    assert (result.code, result.err) == (0, "")
    return [json.loads(line) for line in result.out.splitlines()]


def test_search_finds_by_text_field_key_and_header(bootstrap: str, filled: str) -> None:
    hits = search(bootstrap, filled, "Müller")
    assert [(hit["partition"], hit["offset"], hit["key"]) for hit in hits] == [(77 % 3, 25, "k77")]
    assert search(bootstrap, filled, "value.user.id = 77.0") == hits
    assert search(bootstrap, filled, 'key = "k77"') == search(bootstrap, filled, "header.seq = 77") == hits
    assert search(bootstrap, filled, "value.user.name ~ /^M.*r$/ and not value.user.id > 77") == hits
    assert search(bootstrap, filled, "/M\\\\u00fc/") == hits
    assert [hit["key"] for hit in search(bootstrap, filled, "value = null")] == ["gone"]
    newest = search(bootstrap, filled, "", "-n", "1", "--newest-first", "--partition", "2")
    assert [hit["key"] for hit in newest] == ["k2999"]
    assert len(search(bootstrap, filled, "value.user.id >= 1000 and value.user.id < 2000")) == 1000


def test_aborted_records_are_no_hits_unless_asked_for(bootstrap: str, filled: str) -> None:
    assert search(bootstrap, filled, "undone") == []
    assert len(search(bootstrap, filled, "undone", "--with-aborted")) == 1


def test_windows_masks_and_counts(bootstrap: str, filled: str) -> None:
    place = ("--bootstrap-server", bootstrap)
    window = ("--partition", "0", "--from-offset", "10", "--to-offset", "20")
    assert run_here("search", filled, *window, "--count", *place).out == "10\n"
    assert run_here("search", filled, "--from", "1h", "--count", *place).out == "3001\n"
    assert run_here("search", filled, "--to", "1h", "--count", *place).out == "0\n"
    mask = ("--mask", "*:value.user.name")
    assert run_here("search", filled, "Müller", "--count", *mask, *place).out == "0\n"
    line = run_here("search", filled, "value.user.id = 77", "--format", "csv", *mask, *place).out.splitlines()
    assert line[0] == "partition,offset,timestamp,key,value,headers"
    assert '""name"": ""***""' in line[1]


def test_invalid_queries_are_reported_in_one_line(bootstrap: str, topic: str) -> None:
    place = ("--bootstrap-server", bootstrap)
    for words, code, said in (
        ((topic, "value.a ="), 2, "the value to compare"),
        ((topic, "/(/"), 2, "not an RE2 expression"),
        ((topic, "--from", "yesterday"), 2, "is not a time"),
        ((topic, "x", "--partition", "99"), 1, "has no partition 99"),
        (("no-such-topic", "x"), 1, "does not exist"),
        ((topic, "--registry", "nonsense"), 2, "not the address of a registry"),
    ):
        result = run_here("search", *words, *place)
        assert (result.code, result.out) == (code, "")
        assert said in result.err
        assert result.err.count("\n") == 1


@pytest.mark.needs_ottla
def test_a_damaged_batch_is_reported_and_the_rest_is_found(broker_factory: Callable[..., Broker]) -> None:
    broker = broker_factory()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(3):
        producer.produce("damaged", b"needle %d" % number)
        assert producer.flush(20) == 0
    broker.stop()
    log = next(Path(broker.data_directory).glob("damaged-0/*.log"))
    data = bytearray(log.read_bytes())
    place = data.index(b"needle 1")
    data[place] ^= 1  # the checksum of the second batch is wrong now
    log.write_bytes(data)
    broker.start()
    result = run_here("search", "damaged", "needle", "--bootstrap-server", broker.bootstrap)
    assert result.code == 1
    assert [line.rpartition("\t")[2] for line in result.out.splitlines()] == ["needle 0", "needle 2"]
    assert "not read: partition 0, offsets 1 to 1: " in result.err
