"""Changes that other tools have written into the store."""

from uuid import UUID

from tests.unit.controller.controller_harness import ControllerHarness

from ottla.controller import tree
from ottla.controller.decisions import external_changes
from ottla.controller.decisions.leader_election import decide_election
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import PartitionImage
from ottla.controller.image_loader import load_image
from ottla.controller.stores.store import CreateNode, DeleteNode, SetNode

new_ids = iter(UUID(int=1000 + number) for number in range(100))


def take(stand: ControllerHarness, *names: str) -> external_changes.ExternalTopicChanges:
    """Load topics from the tree, as the controller does."""
    decision = external_changes.decide_external_topics(stand.image, names, stand.tree.subtree("/"), new_ids)
    if decision.operations:
        stand.tree.multi(decision.operations)
    stand.image = decision.image
    return decision.reply


def test_a_topic_that_a_tool_has_made_is_found_and_gets_a_leader() -> None:
    stand = ControllerHarness(brokers=3)
    stand.tree.multi([CreateNode("/brokers/topics/t", b'{"version":1,"partitions":{"0":[2,3],"1":[3,1]}}')])
    assert take(stand, "t") == (("t",), ())
    assert stand.image.topics["t"].topic_id.int >= 1000, "a topic without an id gets one"
    stand.run(decide_election(stand.image, BrokerAvailability(), ElectionRules()))
    assert stand.image.partition("t", 0) == PartitionImage(2, 0, (2, 3), (2, 3), 0)
    assert take(stand, "t") == ((), ())


def test_external_partitions_and_states_are_accepted() -> None:
    stand = ControllerHarness(brokers=3)
    stand.create(NewTopic("t", assignments=((0, (1, 2)),)))
    topic = stand.image.topics["t"]
    grown = topic._replace(partitions=(*topic.partitions, PartitionImage(-1, -1, (), (3,), -1)))
    state = tree.encode_partition_state(tree.PartitionState(2, 4, (2,), 1))
    stand.tree.multi(
        [
            SetNode("/brokers/topics/t", tree.encode_topic(topic.topic_id, grown.partitions)),
            SetNode("/brokers/topics/t/partitions/0/state", state),
        ]
    )
    assert take(stand, "t").changed == ("t",)
    assert stand.image.partition("t", 0) == PartitionImage(2, 4, (2,), (1, 2), 1)
    assert stand.image.partition("t", 1) == PartitionImage(-1, -1, (), (3,), -1)


def test_externally_deleted_topic_is_removed() -> None:
    stand = ControllerHarness()
    stand.create(NewTopic("t"))
    for path in reversed([path for path in stand.tree.subtree("/") if path.startswith("/brokers/topics/t")]):
        stand.tree.multi([DeleteNode(path)])
    assert take(stand, "t", "never") == ((), ("t",))
    assert "t" not in stand.image.topics


def test_what_is_known_changes_nothing() -> None:
    stand = ControllerHarness()
    stand.create(NewTopic("t", configs=(("retention.ms", "1"),)))
    before = stand.image
    assert take(stand, "t") == ((), ())
    assert stand.image is before


def test_incomplete_topics_are_repaired_and_get_leaders() -> None:
    stand = ControllerHarness(brokers=2)
    node = b'{"version":2,"partitions":{"0":[1,2],"1":[2,1]}}'
    stand.tree.multi([CreateNode(f"/brokers/topics/{name}", node) for name in "ab"])
    stand.tree.multi([CreateNode("/brokers/topics/b/partitions"), CreateNode("/brokers/topics/b/partitions/0")])
    stand.tree.multi(external_changes.repair_operations(stand.tree.subtree("/"), new_ids))
    assert external_changes.repair_operations(stand.tree.subtree("/"), new_ids) == []
    loaded = load_image(stand.tree.subtree("/"))
    stand.image = loaded.with_brokers(stand.image.brokers)
    stand.run(decide_election(stand.image, BrokerAvailability(), ElectionRules()))
    assert len(stand.image.topics_by_id) == 2
    assert [[each.leader for each in topic.partitions] for topic in stand.image.topics.values()] == [[1, 2], [1, 2]]


def test_marked_topics_are_deleted_with_their_marks() -> None:
    stand = ControllerHarness()
    stand.create(NewTopic("t"), NewTopic("u"))
    stand.tree.multi([CreateNode("/admin/delete_topics/t"), CreateNode("/admin/delete_topics/unknown")])
    marked = ["t", "unknown"]
    assert stand.run(external_changes.decide_marked_deletions(stand.image, marked, is_enabled=True)) == (("t",), ())
    assert set(stand.image.topics) == {"u"}
    assert stand.tree.children("/admin/delete_topics") == []


def test_where_deletion_is_switched_off_marks_wait_for_a_controller_that_deletes() -> None:
    stand = ControllerHarness()
    stand.create(NewTopic("t"), NewTopic("u"))
    marks = ["u", "unknown", "t"]
    stand.tree.multi([CreateNode(f"/admin/delete_topics/{name}") for name in marks])
    reply = stand.run(external_changes.decide_marked_deletions(stand.image, marks, is_enabled=False))
    assert reply == ((), ("t", "u"))
    assert set(stand.image.topics) == {"t", "u"}
    assert stand.tree.children("/admin/delete_topics") == ["t", "u"]
    again = stand.run(external_changes.decide_marked_deletions(stand.image, ["t", "u"], is_enabled=True))
    assert again == (("t", "u"), ())
    assert stand.tree.children("/admin/delete_topics") == []


def test_settings_that_a_tool_has_written_count() -> None:
    stand = ControllerHarness()
    stand.create(NewTopic("t"))
    stand.tree.multi(
        [
            SetNode("/config/topics/t", tree.encode_config({"retention.ms": "7"})),
            SetNode("/config/brokers/<default>", tree.encode_config({"log.retention.ms": "8"})),
            CreateNode("/config/groups/g%2E1", tree.encode_config({"x": "9"})),
            CreateNode("/config/users/a%2Cb", tree.encode_config({"SCRAM-SHA-256": "x"})),
        ]
    )
    changed = [("topics", "t"), ("brokers", ""), ("groups", "g.1"), ("users", "u"), ("topics", "unknown")]
    changed.append(("users", "a,b"))
    decision = external_changes.decide_external_configs(stand.image, changed, stand.tree.subtree("/"))
    assert decision.reply == 4
    assert decision.image.user_configs == {"a,b": {"SCRAM-SHA-256": "x"}}
    assert decision.image.topic_configs["t"] == {"retention.ms": "7"}
    assert decision.image.broker_configs[""] == {"log.retention.ms": "8"}
    assert decision.image.group_configs == {"g.1": {"x": "9"}}
    stand.tree.multi([DeleteNode("/config/users/a%2Cb")])
    gone = external_changes.decide_external_configs(decision.image, changed, stand.tree.subtree("/"))
    assert (gone.reply, gone.image.user_configs) == (1, {})
    decision = gone
    again = external_changes.decide_external_configs(decision.image, changed, stand.tree.subtree("/"))
    assert (again.reply, again.image) == (0, decision.image)


def test_both_forms_of_a_notification_are_understood_and_others_ignored() -> None:
    assert external_changes.decode_changed_entity(b'{"version":2,"entity_path":"topics/a"}') == ("topics", "a")
    assert external_changes.decode_changed_entity(b'{"version":2,"entity_path":"brokers/<default>"}') == ("brokers", "")
    assert external_changes.decode_changed_entity(b'{"version":1,"entity_type":"topics","entity_name":"a"}') == (
        "topics",
        "a",
    )
    for data in (b"", b"[]", b"{}", b'{"version":2,"entity_path":"users/u/groups/c"}', b"\xff"):
        assert external_changes.decode_changed_entity(data) is None
    notification = b'{"version":1,"partitions":[{"topic":"a","partition":1},{"topic":"b","partition":0},3]}'
    assert external_changes.decode_notified_topics(notification) == {"a", "b"}
    assert external_changes.decode_notified_topics(b'{"partitions":1}') == set()
