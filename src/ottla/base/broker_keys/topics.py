"""Making and deleting topics."""

from __future__ import annotations

from ottla.base.broker_keys.words import HIGH, LOW, NO_JAVA
from ottla.base.settings import Boolean, ClassName, Int, Settings


class TopicDefaultKeys(Settings):
    """Making and deleting topics."""

    alter_config_policy_class_name = ClassName(
        importance=LOW, unused=NO_JAVA, note="Class that may refuse changes of settings."
    )
    auto_create_topics_enable = Boolean(
        True,
        importance=HIGH,
        note="Whether a topic comes into being when a client asks for its metadata or writes to it.",
    )
    create_topic_policy_class_name = ClassName(importance=LOW, unused=NO_JAVA, note="Class that may refuse new topics.")
    default_replication_factor = Int(1, note="Replicas of a topic that is created without a number.")
    delete_topic_enable = Boolean(True, importance=HIGH, note="Whether topics can be deleted.")
    max_request_partition_size_limit = Int(
        2000, at_least=1, note="Most partitions in one answer to DescribeTopicPartitions."
    )
    num_partitions = Int(1, at_least=1, note="Partitions of a topic that is created without a number.")
