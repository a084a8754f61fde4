"""A controller without an event loop: decisions run on a tree in memory and are compared with the loaded image."""

from typing import TypeVar
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.controller.decisions.decision import Decision
from ottla.controller.decisions.standalone import decide_registration
from ottla.controller.decisions.topic_changes import (
    NewPartitions,
    NewTopic,
    NewTopicSeed,
    TopicDefaults,
    TopicResult,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)
from ottla.controller.image import BrokerImage, Endpoint, MetadataImage
from ottla.controller.image_loader import load_image
from ottla.controller.stores.sqlite_tree import SqliteTree

R = TypeVar("R")


class ControllerHarness:
    """Brokers 1..n, of which the first is the controller."""

    def __init__(self, brokers: int = 1, defaults: TopicDefaults | None = None) -> None:
        self.tree = SqliteTree(":memory:")
        self.tree.open()
        self.image = MetadataImage()
        self.defaults = defaults or TopicDefaults()
        self.lots_drawn = 0
        self.start(1)
        self.image = self.image.with_brokers({number: broker(number) for number in range(1, brokers + 1)})

    def start(self, number: int) -> int:
        """Start a broker with the current tree."""
        nodes = self.tree.subtree("/")
        decision = decide_registration(load_image(nodes), nodes, broker(number), new_cluster_id="cluster", now_ms=1000)
        return self.run(decision)

    def run(self, decision: Decision[R]) -> R:
        """Commit a decision; its image must equal the one that is loaded from the tree."""
        if decision.operations:
            self.tree.multi(decision.operations)
            self.image = decision.image
            assert_same(load_image(self.tree.subtree("/")), self.image)
        return decision.reply

    def lot(self) -> NewTopicSeed:
        self.lots_drawn += 1
        return NewTopicSeed(UUID(int=self.lots_drawn), self.lots_drawn * 7, self.lots_drawn * 3)

    def create(self, *wanted: NewTopic) -> list[TopicResult]:
        lots = [self.lot() for _ in wanted]
        return self.run(decide_create_topics(self.image, wanted, self.defaults, lots, check_configs))

    def delete(self, *wanted: tuple[str | None, UUID | None], is_enabled: bool = True) -> list[TopicResult]:
        return self.run(decide_delete_topics(self.image, wanted, is_enabled=is_enabled))

    def grow(self, *wanted: NewPartitions) -> list[TopicResult]:
        return self.run(decide_create_partitions(self.image, wanted, [self.lot() for _ in wanted]))

    def refusal(self, new: NewTopic) -> tuple[Error, str | None]:
        (result,) = self.create(new)
        assert result.topic is None
        return result.error, result.message


def broker(number: int) -> BrokerImage:
    return BrokerImage(number, {"PLAINTEXT": Endpoint("127.0.0.1", 9000 + number)}, None, 0)


def check_configs(configs: object) -> None:
    assert isinstance(configs, dict)
    if "bad" in configs:
        raise KafkaError(Error.INVALID_CONFIG, "Unknown topic config name: bad")


def assert_same(loaded: MetadataImage, promised: MetadataImage) -> None:
    """Compare images without brokers, whose epochs are known only after the commit."""
    assert loaded.topics == promised.topics
    assert loaded.topics_by_id == promised.topics_by_id
    assert loaded.topic_configs == promised.topic_configs
    assert loaded.broker_configs == promised.broker_configs
    assert (loaded.acls, loaded.acl_versions) == (promised.acls, promised.acl_versions)
    assert loaded.names_by_collision_key == promised.names_by_collision_key
    assert (loaded.cluster_id, loaded.controller_id) == (promised.cluster_id, promised.controller_id)
    assert (loaded.controller_epoch, loaded.features) == (promised.controller_epoch, promised.features)
