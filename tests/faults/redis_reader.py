"""`python redis_reader.py HOST:PORT TOPIC GROUP REDIS-URL`: the recipe as a process, which may die at any moment."""

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from confluent_kafka import Message
from examples.consumers.redis_offsets import RedisConsumer
from redis import Redis
from redis.client import Pipeline


def add(transaction: Pipeline, message: Message) -> None:
    transaction.rpush("results", message.value())


if __name__ == "__main__":
    bootstrap, topic, group, url = sys.argv[1:]
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": 6000}
    RedisConsumer(settings, topic, Redis.from_url(url), add).run(threading.Event())
