"""The recipe that keeps results and positions in Redis: crashes at the worst places, and Redis restarted in between."""

from pathlib import Path

import pytest
import redis
from confluent_kafka import Message
from examples.consumers import push_and_pull
from examples.consumers.redis_offsets import RedisConsumer
from tests.conformance.conftest import NewTopic
from tests.conformance.recipes import WAIT_SECONDS, Crash, Failing, Running, numbered, send, settings, value_of
from tests.conformance.redis_server import RedisServer
from tests.conformance.waiting import eventually


def add(transaction: "redis.client.Pipeline", message: Message) -> None:
    transaction.rpush("results", value_of(message))


def result_count(server: RedisServer) -> int:
    try:
        return int(server.client().llen("results"))
    except redis.ConnectionError:
        return 0  # it is about to start again


def test_redis_holds_every_result_once_whatever_crashes(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group = new_topic(2), settings(bootstrap)
    send(bootstrap, topic, numbered(30))
    with RedisServer(tmp_path) as server:
        client = server.client()
        for crash_at in (5, 9, 14):
            failing = Failing(crash_at)

            def handle(transaction: "redis.client.Pipeline", message: Message, failing: Failing = failing) -> None:
                add(transaction, message)
                failing(message)

            with Running(lambda stop: RedisConsumer(group, topic, server.client(), handle).run(stop)) as run:
                assert isinstance(run.wait_end(), Crash)

        execute = redis.client.Pipeline.execute

        def executed_and_lost(transaction: "redis.client.Pipeline", raise_on_error: bool = True) -> list[object]:
            """Redis dies after the first transaction: it was executed, but no answer is sent."""
            execute(transaction, raise_on_error)
            monkeypatch.setattr(redis.client.Pipeline, "execute", execute)
            server.kill9()
            server.start()
            raise redis.WatchError("A ConnectionError occurred while watching one or more keys")

        monkeypatch.setattr(redis.client.Pipeline, "execute", executed_and_lost)
        with Running(lambda stop: RedisConsumer(group, topic, server.client(), add).run(stop)):
            assert eventually(lambda: result_count(server) >= 30, WAIT_SECONDS)
        assert sorted(client.lrange("results", 0, -1), key=int) == [str(number) for number in range(30)]
        zombie = RedisConsumer(group, topic, client, add)  # thinks that it still owns the first message
        zombie.take(next(push_and_pull.read_from(bootstrap, topic, 0, 0)))
        zombie.consumer.close()
        assert client.llen("results") == 30
