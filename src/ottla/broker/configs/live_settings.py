"""The settings in force: the file's, under what was changed while the broker runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ottla.base.broker_settings import BrokerSettings
from ottla.base.topic_keys import topic_settings, validate_topic_overrides
from ottla.base.topic_settings import TopicSettings
from ottla.controller.image import MetadataImage
from ottla.security.remote_settings import remote_problem

logger = logging.getLogger(__name__)


class LiveSettings:
    """Holds the current BrokerSettings; everybody who must see changes asks here each time."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.broker = settings
        self._listeners: list[Callable[[BrokerSettings], None]] = []
        self._seen: Mapping[str, str] = {}  # our own changes as the image has them, and what of them counts:
        self._seen_allowed: Mapping[str, str] = self._seen

    def on_change(self, listener: Callable[[BrokerSettings], None]) -> None:
        """Call with the new settings whenever somebody changed them."""
        self._listeners.append(listener)

    def follow(self, image: MetadataImage) -> bool:
        """Take over the dynamic settings of an image; whether anything changed."""
        after = self.under(image)
        if after.cluster_default == self.broker.cluster_default and after.own == self.broker.own:
            return False
        self.broker = after
        for listener in self._listeners:
            listener(self.broker)
        return True

    def under(self, image: MetadataImage) -> BrokerSettings:
        """The broker's settings under the changes that an image has."""
        changes = image.broker_configs
        return self.broker.with_dynamic(changes.get("", {}), self._allowed(changes.get(str(self.broker.node_id), {})))

    def _allowed(self, own: Mapping[str, str]) -> Mapping[str, str]:
        """Without what our file does not allow (any more)."""
        if own is not self._seen:
            problems = {name: remote_problem(self.broker, name, text) for name, text in own.items()}
            for problem in filter(None, problems.values()):
                logger.warning("a setting that was changed over the wire has no effect: %s", problem)
            self._seen = own
            self._seen_allowed = {name: text for name, text in own.items() if problems[name] is None}
        return self._seen_allowed

    def of_topic(self, image: MetadataImage, topic: str) -> TopicSettings:
        return topic_settings(self.broker, image.topic_configs.get(topic, {}))

    # ---- what the controller asks (ControllerOptions)

    def check_topic_configs(self, configs: Mapping[str, str]) -> None:
        validate_topic_overrides(self.broker, configs)

    @property
    def node_id(self) -> int:
        return self.broker.node_id

    @property
    def num_partitions(self) -> int:
        return self.broker.num_partitions

    @property
    def default_replication_factor(self) -> int:
        return self.broker.default_replication_factor

    @property
    def delete_topic_enable(self) -> bool:
        return self.broker.delete_topic_enable

    @property
    def min_insync_replicas(self) -> int:
        return self.broker.min_insync_replicas

    @property
    def unclean_leader_election_enable(self) -> bool:
        return self.broker.unclean_leader_election_enable
