"""A whole cluster as a file: parsing, problems, and the resulting changes."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.names import BOOKKEEPING_TOPICS
from ottla.cli.cluster_file import policy_document
from ottla.cli.cluster_file.document import cluster_text, hidden_notes, read_cluster_file
from ottla.cli.cluster_file.policy_document import PROBLEMS_MAX, FileError
from ottla.operations.cluster_policy.cluster_admin import without_temporary_settings
from ottla.operations.cluster_policy.cluster_plan import ClusterPlan, is_same_value, make_cluster_plan
from ottla.operations.cluster_policy.cluster_state import ALL_BROKERS, ClusterState, SubjectState, TopicState
from ottla.operations.cluster_policy.schemas import NO_SCHEMAS, KnownSubject, SchemaPlan, plan_schemas
from ottla.operations.cluster_policy.security_policy import Policy
from ottla.operations.errors import WrongInputError
from ottla.operations.schema_registry.schemas import AVRO, LEVELS, PROTOBUF, Reference, UnregisteredSchema

FILE = """\
topic_defaults: {partitions: 3, replication_factor: 2, settings: {retention.ms: 1000, cleanup.policy: delete}}
topics:
- {name: orders, partitions: 6, settings: {cleanup.policy: [compact, delete]}}
- name: payments
brokers:
- {broker-defaults: true, settings: {log.cleaner.threads: 2}}
- {broker: 1, settings: {leader.replication.throttled.rate: 1:2, unclean.leader.election.enable: no, a: 010}}
groups:
- {group: billing, settings: {consumer.session.timeout.ms: 1_000}}
schemas:
- {subject: orders-value, file: order.avsc, compatibility: full}
- {subject: p, format: protobuf, text: 'syntax', references: [{name: x, subject: orders-value, version: 2}]}
- {subject: q, compatibility: NONE}
quotas:
- {user: alice, producer_byte_rate: 5}
"""
ORDER = UnregisteredSchema(AVRO, "an order")


def read_draft(name: str, kind: str | None) -> UnregisteredSchema:
    if name != "order.avsc":
        raise WrongInputError(f"{name} cannot be read: no such file or directory")
    return ORDER._replace(kind=kind or AVRO)


def read(text: str) -> ClusterState:
    return read_cluster_file(text, "f", read_draft)


def topics(**states: tuple[int, int] | tuple[int, int, Mapping[str, str | None]]) -> ClusterState:
    return ClusterState(
        {name: TopicState(*each[:2], each[2] if len(each) > 2 else {}) for name, each in states.items()}
    )


def plan(wanted: ClusterState, found: ClusterState, schemas: SchemaPlan = NO_SCHEMAS, **wishes: bool) -> ClusterPlan:
    return make_cluster_plan(wanted, found, schemas, **wishes)


def marks(plan: ClusterPlan) -> list[str]:
    return [" ".join(filter(None, row)) for row in plan.rows()]


# ---- reading


def test_topics_inherit_missing_fields_from_the_defaults() -> None:
    assert read(FILE).topics == {
        "orders": TopicState(6, 2, {"retention.ms": "1000", "cleanup.policy": "compact,delete"}),
        "payments": TopicState(3, 2, {"retention.ms": "1000", "cleanup.policy": "delete"}),
    }
    assert read("topics: [{name: a}]").topics == {"a": TopicState(None, None, {})}


def test_settings_are_text_as_it_is_written() -> None:
    found = read(FILE)
    assert found.brokers == {
        ALL_BROKERS: {"log.cleaner.threads": "2"},
        "1": {"leader.replication.throttled.rate": "1:2", "unclean.leader.election.enable": "no", "a": "010"},
    }
    assert found.groups == {"billing": {"consumer.session.timeout.ms": "1_000"}}


def test_schemas_come_from_files_and_from_the_text() -> None:
    assert read(FILE).schemas == {
        "orders-value": SubjectState(ORDER, "FULL"),
        "p": SubjectState(UnregisteredSchema(PROTOBUF, "syntax", (Reference("x", "orders-value", 2),)), None),
        "q": SubjectState(None, "NONE"),
    }


def test_a_missing_section_is_ignored() -> None:
    assert read("topic_defaults: {}") == ClusterState()
    assert read("topics: []\nusers: []\n") == ClusterState(topics={}, policy=Policy(users={}))
    assert read(FILE).sections() == ["topics", "brokers", "groups", "schemas", "quotas"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "f: the file has none of the sections topic_defaults, topics, brokers"),
        ("topic: []", "f:1: topic: unknown section 'topic'; did you mean 'topics'?"),
        ("topics: {a: 1}", "f:1: topics: not a list"),
        ("topics:\n- orders", "f:2: topics, 1: 'orders' is not of the form"),
        ("topics:\n- {name: 7}", "f:2: topics, 1, name: 7 is not text; put it in quotes"),
        ("topics:\n- {partitions: 7}", "f:2: topics, 1: name is missing"),
        ("topics:\n- {name: a b}", "f:2: topics, 1, name: Topic name is invalid"),
        ("topics:\n- {name: a}\n- {name: b}\n- {name: a}", "f:4: topics, 3: duplicate of an entry above"),
        ("topics:\n- {name: a, name: b}", "f:2: topics, 1, name: 'name' appears twice"),
        ("topics:\n- name: a\n  partitions: 0", "f:3: topics, 1, partitions: partitions is 1 to 2147483647"),
        ("topics:\n- {name: a, partitions: '3'}", "topics, 1, partitions: partitions is a whole number"),
        ("topics:\n- {name: a, partitions: true}", "topics, 1, partitions: partitions is a whole number"),
        ("topics:\n- {name: a, replication_factor: 40000}", "replication_factor: replication_factor is 1 to 32767"),
        ("topics:\n- {name: a, replication-factor: 1}", "unknown key 'replication-factor'; did you mean 'replicat"),
        ("topics:\n- {name: a, settings: [x]}", "topics, 1, settings: settings are of the form {name: value, ...}"),
        ("topics:\n- {name: a, settings: {x: }}", "topics, 1, settings: x is a value or a list of values"),
        ("topics:\n- {name: a, settings: {x: {y: 1}}}", "topics, 1, settings: x is a value or a list of values"),
        ("topics:\n- {name: a, settings: {x: [y, ~]}}", "topics, 1, settings: x is a value or a list of values"),
        ("topic_defaults: {name: a}", "f:1: topic_defaults, name: unknown key 'name'"),
        ("topic_defaults: 3", "f:1: topic_defaults: 3 is not of the form {word: value, ...}"),
        ("brokers:\n- {settings: {a: 1}}", "f:2: brokers, 1: give either broker, with its id, or broker-defaults"),
        ("brokers:\n- {broker: 1, broker-defaults: true}", "f:2: brokers, 1: give either broker"),
        ("brokers:\n- {broker-defaults: 1}", "brokers, 1, broker-defaults: the broker defaults have no id"),
        ("brokers:\n- {broker: one}", "brokers, 1, broker: broker is a whole number"),
        ("brokers:\n- {broker: 1}\n- {broker: 1}", "f:3: brokers, 2: duplicate of an entry above"),
        ("groups:\n- {name: g}", "f:2: groups, 1, name: unknown key 'name'"),
        ("schemas:\n- {subject: s}", "f:2: schemas, 1: which schema?"),
        ("schemas:\n- {subject: s, file: a, text: b}", "f:2: schemas, 1, text: either file or text, not both"),
        ("schemas:\n- {subject: s, file: a}", "f:2: schemas, 1, file: a cannot be read: no such file"),
        ("schemas:\n- {subject: s, format: xml, text: b}", "format: unknown format 'xml'"),
        ("schemas:\n- {subject: s, text: b, compatibility: ful}", "compatibility: unknown level 'FUL'; did you"),
        ("schemas:\n- {subject: s, text: b, references: x}", "references: references are of the form"),
        ("schemas:\n- {subject: s, text: b, references: [{name: x, subject: y}]}", "references: version is a whole"),
        ("users:\n- {user: a, password: x}", "passwords are not allowed in this file"),
        ("topics: !!python/name:os.system", "is not a plain value"),
        ("topics: [", "not readable as YAML"),
    ],
)
def test_problems_are_reported_with_their_line(text: str, words: str) -> None:
    with pytest.raises(FileError) as raised:
        read(text)
    (line,) = raised.value.lines
    assert words in line


def test_all_problems_of_all_sections_are_found_at_once() -> None:
    with pytest.raises(FileError) as raised:
        read(
            "topic: []\ntopics:\n- {}\n- {name: a, x: 1}\n- {name: a}\nbrokers:\n- {}\nschemas:\n- {}\nquotas:\n- {}\n"
        )
    assert len(raised.value.lines) == 7


@pytest.fixture
def few_values(monkeypatch: pytest.MonkeyPatch) -> int:
    """With a lower limit, because reaching the real one takes seconds."""
    monkeypatch.setattr(policy_document, "VALUES_MAX", 20_000)
    return 20_000


@pytest.mark.usefixtures("few_values")
@pytest.mark.parametrize("length", [0, 70_000])
def test_multiplying_aliases_are_rejected(length: int) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
    )
    with pytest.raises(FileError, match="too many values"):
        read("#" * length + "\n" + bomb)


@pytest.mark.parametrize("text", ["[" * 2_000, "[" * 200_000, "topics: " + "{a: " * 50_000, "a: " + "- " * 80_000])
def test_brackets_without_end_are_refused(text: str) -> None:
    with pytest.raises(FileError) as raised:
        read(text)
    assert len(raised.value.lines) == 1


def test_a_file_with_nothing_but_mistakes_ends_soon() -> None:
    with pytest.raises(FileError) as raised:
        read("topics:\n" + "- {name: a, partition: 3}\n" * 2 * PROBLEMS_MAX)
    assert len(raised.value.lines) == PROBLEMS_MAX


def test_a_file_may_have_many_values_but_not_any_number(few_values: int) -> None:
    assert len(read("topics:\n" + "".join(f"- {{name: t{n}}}\n" for n in range(3_000))).topics or ()) == 3_000
    with pytest.raises(FileError, match="more than 20000 values"):
        read("topics: [" + "1," * (3 * few_values + 1) + "]")


# ---- comparing

NAMES = st.sampled_from(["orders", "a.b", "010", "no", "1:2", "-", "x_y", "null"])
TOPIC_NAMES = NAMES.filter(lambda name: ":" not in name)
VALUES = st.one_of(
    st.sampled_from(
        ["true", "false", "no", "~", "1:2", "010", "0.50", "-1", "", " a ", "x\ny", "a: b", "#", "*a", "[]"]
    ),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=10),
    st.integers(-1, 2**63 - 1).map(str),
)
SETTINGS = st.dictionaries(st.sampled_from(["retention.ms", "x.y", "0", "no", "a b"]), VALUES, max_size=3)
TOPIC_STATES = st.tuples(st.integers(1, 99), st.integers(1, 5), SETTINGS).map(lambda each: TopicState(*each))
REFERENCES = st.lists(st.tuples(NAMES, NAMES, st.integers(1, 9)).map(lambda each: Reference(*each)), max_size=2)
DRAFTS = st.tuples(st.sampled_from([AVRO, PROTOBUF]), VALUES.filter(bool), REFERENCES.map(tuple)).map(
    lambda each: UnregisteredSchema(*each)
)
SUBJECTS = st.tuples(DRAFTS, st.sampled_from([None, *LEVELS])).map(lambda each: SubjectState(*each))
STATES = st.tuples(
    st.dictionaries(TOPIC_NAMES, TOPIC_STATES, max_size=3),
    st.dictionaries(st.sampled_from([ALL_BROKERS, "1", "10", "2"]), SETTINGS, max_size=3),
    st.dictionaries(NAMES, SETTINGS, max_size=2),
    st.dictionaries(NAMES, SUBJECTS, max_size=2),
).map(lambda each: ClusterState(*each))


def known(state: ClusterState) -> SchemaPlan:
    """What a registry with these schemas reports about them."""
    schemas = state.schemas or {}
    return plan_schemas(
        schemas, {name: KnownSubject(each, 1, 1) for name, each in schemas.items()}, list(schemas), prunes=True
    )


@given(STATES)
def test_applying_an_export_changes_nothing(state: ClusterState) -> None:
    text = cluster_text(state)
    again = read(text)
    assert plan(again, state, known(again), prunes=True).is_empty
    assert again.topics == state.topics
    assert again.schemas == state.schemas
    assert cluster_text(again) == text


@given(STATES, STATES)
def test_a_plan_leads_to_the_wanted_state(wanted: ClusterState, found: ClusterState) -> None:
    made = plan(wanted, found, prunes=True)
    assert marks(made) == marks(plan(wanted, found, prunes=True))
    names = {change.name for change in made.topics if change.mark == "-"}
    assert names == set(found.topics or {}) - set(wanted.topics or {})
    assert not plan(wanted, found).removals()
    assert plan(found, found, prunes=True).is_empty


def test_topics_are_created_grown_and_deleted() -> None:
    wanted = topics(a=(3, 1, {"x": "1"}), b=(6, 1), c=(1, 1))
    found = topics(b=(3, 1), c=(1, 1), d=(1, 1), _schemas=(1, 1), __x=(1, 1))
    assert marks(plan(wanted, found)) == [
        "+ topic a 3 partitions, replication factor 1, x=1",
        "~ topic b 3 partitions 6 partitions",
    ]
    assert plan(wanted, found).unmanaged == {"topics": 1}
    assert marks(plan(wanted, found, prunes=True))[-1] == "- topic d 1 partition, replication factor 1"
    everything = plan(read("topics: []"), found, prunes=True)
    assert [row[2] for row in everything.removals()] == ["b", "c", "d"]


@pytest.mark.parametrize("name", sorted(BOOKKEEPING_TOPICS | {"_schemas", "__anything"}))
def test_topics_that_the_product_keeps_for_itself_are_neither_pruned_nor_exported(name: str) -> None:
    """These were the markers of pipelines: without them a sink writes its rows a second time."""
    found = topics(**{name: (32, 1), "mine": (1, 1)})
    assert [row[2] for row in plan(read("topics: []"), found, prunes=True).removals()] == ["mine"]
    assert list(without_temporary_settings(found).topics or {}) == ["mine"]


def test_unspecified_values_accept_any_state() -> None:
    assert plan(read("topics: [{name: a}]"), topics(a=(7, 3))).is_empty


def test_impossible_changes_are_rejected_with_an_alternative() -> None:
    wanted = topics(a=(3, 2), __consumer_offsets=(1, 1))._replace(brokers={"7": {}, ALL_BROKERS: {"log.dirs": "x"}})
    found = topics(a=(6, 1))._replace(brokers={ALL_BROKERS: {}, "1": {}}, read_only_keys=frozenset({"log.dirs"}))
    made = plan(wanted, found)
    assert marks(made) == [
        "! topic a 6 partitions 3 partitions",
        "! topic a replication factor 1 replication factor 2",
        "! topic __consumer_offsets",
        "! broker 7",
        "! setting all brokers: log.dirs x",
    ]
    words = ("topics cannot shrink", "ottla reassign generate a --replication-factor 2", "the cluster's own")
    for word, reason in zip((*words, "(online: 1)", "put it into server.properties"), made.reasons(), strict=True):
        assert word in reason


def test_settings_are_compared_one_by_one() -> None:
    wanted = topics(a=(1, 1, {"same": "1", "new": "2", "other": "3"}))
    found = topics(a=(1, 1, {"same": "1", "other": "4", "besides": "5", "leader.replication.throttled.replicas": "*"}))
    assert marks(plan(wanted, found)) == ["+ setting topic a: new 2", "~ setting topic a: other 4 3"]
    assert plan(wanted, found).unmanaged == {"settings": 1}
    assert marks(plan(wanted, found, prunes=True))[2:] == ["- setting topic a: besides 5"]


def test_brokers_and_groups_that_the_file_does_not_name_lose_their_settings_when_pruned() -> None:
    found = ClusterState(
        brokers={ALL_BROKERS: {"min.insync.replicas": "1", "x": "1"}, "1": {"leader.replication.throttled.rate": "5"}},
        groups={"g": {"y": "2"}},
    )
    wanted = ClusterState(brokers={}, groups={})
    assert marks(plan(wanted, found, prunes=True)) == ["- setting all brokers: x 1", "- setting group g: y 2"]
    assert plan(wanted, found).unmanaged == {"settings": 2}


def test_secrets_are_neither_shown_nor_compared_nor_pruned() -> None:
    key = "ssl.keystore.password"
    wanted, found = ClusterState(brokers={"1": {key: "hush"}}), ClusterState(brokers={"1": {key: None}})
    first = plan(wanted, ClusterState(brokers={"1": {}}))
    assert marks(first) == [f"+ setting broker 1: {key} (hidden)"]
    again = plan(wanted, found)
    assert (again.is_empty, again.uncompared_secrets) == (True, [f"{key} of broker 1"])
    assert marks(plan(wanted, found, sets_secrets=True)) == [f"~ setting broker 1: {key} (hidden) (hidden)"]
    assert plan(ClusterState(brokers={}), found, prunes=True).is_empty
    assert (key in cluster_text(found), key in "".join(hidden_notes(found))) == (False, True)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1", "1", True),
        ("0.5", "0.50", True),
        ("9223372036854775807", "9223372036854775806", False),
        ("compact,delete", "compact, delete", True),
        ("compact,delete", "delete,compact", False),
        ("true", "TRUE", True),
        ("Producer", "producer", False),
        ("", "0", False),
        ("nan", "nan", True),
    ],
)
def test_values_that_mean_the_same_are_the_same(one: str, other: str, same: bool) -> None:
    assert is_same_value(one, other) == is_same_value(other, one) == same


# ---- schemas


def test_a_schema_follows_its_references() -> None:
    refers = UnregisteredSchema(AVRO, "b", (Reference("x", "z", 1),))
    wanted = {"a": SubjectState(refers, None), "z": SubjectState(ORDER, "FULL")}
    made = plan_schemas(wanted, {}, [], prunes=False)
    assert [change.subject for change in made.changes] == ["z", "a"]
    assert [change.row()[3:] for change in made.changes] == [("", "avro schema, FULL"), ("", "avro schema")]


def test_a_registry_cannot_revert_and_decides_about_compatibility() -> None:
    wanted = {"s": SubjectState(ORDER, None)}
    older = KnownSubject(SubjectState(UnregisteredSchema(AVRO, "new"), None), 3, 1)
    (refusal,) = plan_schemas(wanted, {"s": older}, ["s"], prunes=True).refusals
    assert "a registry cannot revert" in refusal[1]
    unfit = KnownSubject(SubjectState(UnregisteredSchema(AVRO, "old"), "FULL"), 3, None, ("a field is missing",))
    (refusal,) = plan_schemas(wanted, {"s": unfit}, ["s"], prunes=True).refusals
    assert "does not fit version 3 (level: FULL): a field is missing" in refusal[1]
    # With another level it may fit: the registry decides when the level is set.
    looser = plan_schemas({"s": SubjectState(ORDER, "NONE")}, {"s": unfit}, ["s"], prunes=True)
    assert [change.row() for change in looser.changes] == [("~", "schema", "s", "version 3, FULL", "avro schema, NONE")]


def test_a_level_changes_alone_and_subjects_go_when_pruned() -> None:
    found = {"s": KnownSubject(SubjectState(ORDER, None), 2, 2)}
    made = plan_schemas({"s": SubjectState(None, "NONE")}, found, ["s", "t"], prunes=False)
    assert ([change.row() for change in made.changes], made.unmanaged) == (
        [("~", "schema", "s", "", "NONE")],
        {"schemas": 1},
    )
    pruned = plan_schemas({"s": SubjectState(ORDER, None)}, found, ["s", "t"], prunes=True)
    assert [change.row()[:3] for change in pruned.changes] == [("-", "schema", "t")]
