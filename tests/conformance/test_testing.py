"""`ottla.testing` as other people's tests use it: the context manager, the pytest plugin, unittest, testcontainers."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.conformance.waiting import eventually

from ottla.testing import Broker, BrokerError, broker
from ottla.testing.testcontainers import KafkaContainer

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.needs_ottla

READY_SECONDS_MAX = 20.0  # bench/fixture.py measures it properly; this only notices a disaster on a busy machine


def produce(bootstrap_servers: str, topic: str, value: bytes = b"hello") -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(topic, value, partition=0)
    assert producer.flush(10) == 0


def consume_all(bootstrap_servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value() for message in consumer.consume(count, timeout=10)]
    consumer.close()
    return values


def test_a_broker_for_one_block_leaves_nothing_behind() -> None:
    began = time.monotonic()
    with broker({"num.partitions": 2}, topics={"orders": 3, "changes": {"cleanup.policy": "compact"}}) as kafka:
        assert time.monotonic() - began < READY_SECONDS_MAX
        pid, folder = kafka.pid, kafka.data_folder
        assert {path.name for path in folder.glob("*-*") if path.is_dir()} == {
            "orders-0",
            "orders-1",
            "orders-2",
            "changes-0",
            "changes-1",
        }
        produce(kafka.bootstrap_servers, "orders")
        address = kafka.bootstrap_servers
    assert not folder.parent.exists()
    assert not is_alive(pid)
    assert repr(kafka) == f"<Broker {address} <BrokerProcess {address} stopped>>"


def test_data_and_address_survive_a_restart_and_a_crash() -> None:
    with broker() as kafka:
        kafka.create_topic("orders")
        address = kafka.bootstrap_servers
        produce(address, "orders", b"one")
        kafka.restart()
        produce(address, "orders", b"two")
        kafka.kill()
        assert not kafka.is_running
        kafka.start()
        assert kafka.bootstrap_servers == address
        assert consume_all(address, "orders", 2) == [b"one", b"two"]


def test_a_paused_broker_answers_no_client_until_it_is_resumed() -> None:
    with broker(topics=["orders"]) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        produce(kafka.bootstrap_servers, "orders")
        kafka.pause()
        producer.produce("orders", b"later")
        assert producer.flush(0.3) == 1
        kafka.resume()
        assert producer.flush(10) == 0


def test_async_code_has_an_async_context_manager() -> None:
    async def use() -> str:
        async with Broker(topics=["orders"]) as kafka:
            produce(kafka.bootstrap_servers, "orders")
            return kafka.logs

    assert "ready on" in asyncio.run(use())


def test_a_wrong_setting_is_reported_with_the_brokers_message() -> None:
    with (
        pytest.raises(BrokerError, match=r"(?s)ended with exit code 1 .*num\.partitions"),
        broker({"num.partitions": 0}),
    ):
        pass


def test_quotas_hold_from_the_first_record_on() -> None:
    held: list[str] = []
    with broker(topics=["orders"], quotas=[{"client": "greedy", "producer_byte_rate": 1_000}]) as kafka:
        for name in ("modest", "greedy"):
            settings = {"bootstrap.servers": kafka.bootstrap_servers, "client.id": name}
            producer = Producer(settings | {"throttle_cb": lambda event, name=name: held.append(name)})
            producer.produce("orders", b"x" * 15_000)
            assert producer.flush(10) == 0
        assert eventually(lambda producer=producer: producer.poll(0.1) >= 0 and bool(held))
        assert set(held) == {"greedy"}
        with pytest.raises(BrokerError, match="did you mean consumer_byte_rate"):
            kafka.set_quotas([{"client": "greedy", "consumer_byte_rat": 5}])


def test_topics_can_be_deleted_and_refusals_are_raised() -> None:
    with broker(topics=["orders"]) as kafka:
        with pytest.raises(BrokerError, match="already exists"):
            kafka.create_topic("orders")
        kafka.delete_topic("orders")
        kafka.create_topic("orders")


@pytest.mark.parametrize("is_paused", [False, True], ids=["running", "paused"])
def test_a_broker_dies_with_the_test_run(is_paused: bool, tmp_path: Path) -> None:
    script = f"""
        import os, signal
        from pathlib import Path
        from ottla.testing import Broker
        kafka = Broker(folder=Path({str(tmp_path)!r})).start()
        if {is_paused}:
            kafka.pause()
        print(kafka.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert eventually(lambda: not is_alive(int(done.stdout)))
    with broker(folder=tmp_path) as kafka:  # the next one removes what the killed one left
        assert list(tmp_path.iterdir()) == [kafka.data_folder.parent]


def test_testcontainers_users_change_one_import() -> None:
    with KafkaContainer().with_kraft().with_env("KAFKA_NUM_PARTITIONS", "2") as kafka:
        server = kafka.get_bootstrap_server()
        assert server == f"{kafka.get_container_host_ip()}:{kafka.get_exposed_port(9093)}"
        produce(server, "made-by-asking")
        assert (kafka.broker.data_folder / "made-by-asking-1").exists()
        assert b"ready on" in kafka.get_logs()[0]


def test_a_unittest_class_shares_a_broker(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(
        textwrap.dedent("""
        from ottla.testing.cases import BrokerTestCase

        class OrdersTest(BrokerTestCase):
            settings = {"num.partitions": 2}
            topics = ["orders"]

            def test_there_is_a_broker(self):
                self.assertTrue(self.broker.is_running)
                self.assertTrue((self.broker.data_folder / "orders-0").exists())
    """)
    )
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "test_orders"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 1 test" in done.stderr


def test_the_plugin_gives_each_test_the_broker_that_its_mark_asks_for(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nottla_settings =\n  num.partitions = 2\n  compression.type = gzip\n")
    pytester.makepyfile("""
        import pytest

        pytestmark = pytest.mark.ottla(settings={"compression.type": "lz4"}, topics=["of-the-module"])
        seen = []

        @pytest.mark.ottla(settings={"num.partitions": 3}, topics={"orders": 4})
        def test_marked(ottla_broker):
            seen.append(ottla_broker.bootstrap_servers)
            assert ottla_broker.settings["num.partitions"] == "3"
            assert ottla_broker.settings["compression.type"] == "lz4"
            assert (ottla_broker.data_folder / "orders-3").exists()

        def test_not_marked(ottla_broker):
            seen.append(ottla_broker.bootstrap_servers)
            assert ottla_broker.settings["num.partitions"] == "2"
            assert (ottla_broker.data_folder / "of-the-module-0").exists()

        def test_each_had_one_of_its_own(ottla_broker_factory):
            assert len(set(seen)) == 2
            one, two = ottla_broker_factory(), ottla_broker_factory({"num.partitions": 7}, topics=["a"])
            assert one.port != two.port
            assert two.settings["num.partitions"] == "7"
    """)
    pytester.runpytest_subprocess().assert_outcomes(passed=3)


def test_the_scope_is_an_option(pytester: pytest.Pytester) -> None:
    test = """
        def test_{name}(ottla_broker, ottla_broker_module, ottla_broker_session, pytestconfig):
            brokers = ottla_broker, ottla_broker_module, ottla_broker_session
            assert len({{broker.port for broker in brokers}}) == 3
            print("address of {name}", ottla_broker.port)
    """
    pytester.makepyfile(test_one=test.format(name="one"), test_two=test.format(name="two"))
    result = pytester.runpytest_subprocess("--ottla-scope=session", "-s")
    result.assert_outcomes(passed=2)
    ports = {line.split()[-1] for line in result.outlines if "address of" in line}
    assert len(ports) == 1


def test_the_brokers_log_is_shown_when_a_test_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_that_fails(ottla_broker):
            assert ottla_broker.restart() is None
    """)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*- ottla broker 127.0.0.1:* -*", "*ottla broker 1 ready on*"])


def test_a_mark_that_would_have_no_effect_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.ottla(settings={"num.partitions": 3})
        def test_with_a_shared_broker(ottla_broker_session): ...
    """)
    result = pytester.runpytest_subprocess()
    result.stderr.fnmatch_lines(["*the mark `ottla` on a test has no effect on ottla_broker_session*"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
