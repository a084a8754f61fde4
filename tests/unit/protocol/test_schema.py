"""Message classes: constructors, equality, repr, and what they say about themselves."""

from __future__ import annotations

import copy
import pickle

import pytest

from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceRequest, TopicProduceData
from ottla.protocol.schema import NO_VERSION, Int32, fields_of, layout_of, message, part, wire


@part
class Item:
    name: str
    count: Int32 = 7


@message(api_key=99, versions="1-5", flexible=4)
class Example:
    """What an example is."""

    items: list[Item] = wire(default_factory=list)
    note: str | None = wire(since=2, nullable=2, default=None)
    maybe: list[Item] | None = wire(nullable=1, default_factory=list)


@message(versions="0")
class Empty:
    pass


def test_a_field_without_default_must_be_given() -> None:
    with pytest.raises(TypeError, match="name"):
        Item(count=1)  # type: ignore[call-arg]


def test_fields_are_given_by_name_only() -> None:
    with pytest.raises(TypeError):
        Item("a", 1)  # type: ignore[call-arg]


def test_an_unknown_field_is_refused_also_by_the_first_constructor_call() -> None:
    @part
    class Fresh:
        known: Int32 = 0

    with pytest.raises(TypeError, match="unknown"):
        Fresh(unknown=1)  # type: ignore[call-arg]
    assert Fresh(known=2).known == 2


def test_defaults_are_filled_in_and_lists_are_never_shared() -> None:
    first, second = Example(), Example()
    first.items.append(Item(name="a"))
    assert (second.items, second.note) == ([], None)
    assert Item(name="a").count == 7


def test_null_for_a_list_stays_null() -> None:
    assert Example(maybe=None).maybe is None


def test_messages_have_slots_and_refuse_unknown_attributes() -> None:
    with pytest.raises(AttributeError):
        Item(name="a").misspelled = 1  # type: ignore[attr-defined]


def test_equal_values_make_equal_messages_and_other_classes_never_are() -> None:
    assert Item(name="a") == Item(name="a", count=7)
    assert Item(name="a") != Item(name="b")
    assert Item(name="a") != Example()
    assert Item(name="a") != "a"


def test_messages_cannot_be_hashed_because_they_change() -> None:
    with pytest.raises(TypeError):
        hash(Item(name="a"))


def test_the_repr_names_all_values() -> None:
    assert repr(Example(items=[Item(name="a")])) == "Example(items=[Item(name='a', count=7)], note=None, maybe=[])"


def test_messages_can_be_copied_and_pickled() -> None:
    given = ProduceRequest(acks=1, timeout_ms=2, topic_data=[TopicProduceData(name="a")])
    assert copy.deepcopy(given) == given
    assert pickle.loads(pickle.dumps(given)) == given
    assert PartitionProduceResponse(index=0, base_offset=1) == pickle.loads(
        pickle.dumps(PartitionProduceResponse(index=0, base_offset=1))
    )


def test_the_class_keeps_its_name_module_and_docstring() -> None:
    assert (Example.__name__, Example.__module__, Example.__doc__) == ("Example", __name__, "What an example is.")


def test_the_layout_has_key_and_versions() -> None:
    layout = layout_of(Example)
    assert (layout.api_key, layout.min_version, layout.max_version, layout.flexible_since) == (99, 1, 5, 4)
    assert repr(layout) == "<Layout key=99 v1-5 flexible=4>"


def test_a_message_may_be_without_fields_key_and_flexible_versions() -> None:
    assert Empty() == Empty()
    assert (layout_of(Empty).min_version, layout_of(Empty).max_version) == (0, 0)
    assert layout_of(Empty).flexible_since == NO_VERSION


def test_fields_are_known_in_wire_order() -> None:
    assert list(fields_of(Example)) == ["items", "note", "maybe"]
    assert fields_of(Item)["name"].is_required
    assert not fields_of(Item)["count"].is_required
