"""Access rights over the wire: the same requests under the same rules are answered as Apache Kafka answers them.

A foreign broker must have the settings of the fixture `broker`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from tests.conformance.conftest import AUTHORIZER, broker_of_module
from tests.conformance.rights_asker import ADMINISTRATOR, STRANGER, Asker, give, take_all
from tests.conformance.rights_requests import (
    ALL_TOPICS,
    HIDDEN,
    NAMES,
    RIGHTS,
    answers_under,
    batch,
    fetch,
    fetched,
    prepare,
)
from tests.conformance.waiting import eventually
from tests.conftest import Broker

from ottla.base.errors import Error
from ottla.base.security import Permission
from ottla.protocol.messages import fetch as fetching
from ottla.protocol.messages import produce as producing
from ottla.protocol.messages.acls import DeleteAclsFilter, DeleteAclsRequest, DescribeAclsRequest

RECORDED = json.loads((Path(__file__).parent / "access_rights.json").read_text())
ABOUT_ONE = {  # of the two topics
    *("WriteTxnMarkers", "AddPartitionsToTxn of a broker", "AlterPartitionReassignments", "DeleteTopics of none"),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker | None]:
    settings = {
        "authorizer.class.name": AUTHORIZER,
        "allow.everyone.if.no.acl.found": "true",
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.num.partitions": "5",
    }
    yield from broker_of_module(tmp_path_factory, settings)


@pytest.fixture(scope="module")
def administrator(address: str) -> Iterator[Asker]:
    with Asker(address, ADMINISTRATOR) as asker:
        yield asker


@pytest.fixture(scope="module")
def ids(administrator: Asker) -> dict[str, UUID]:
    return prepare(administrator)


@pytest.mark.parametrize("name", RIGHTS)
def test_every_api_answers_as_kafka_does(name: str, administrator: Asker, address: str, ids: dict[str, UUID]) -> None:
    assert answers_under(administrator, address, RIGHTS[name], ids) == RECORDED[name]


def test_a_user_without_rights_does_not_learn_whether_a_topic_exists() -> None:
    hidden, nothing = NAMES
    for name, told in RECORDED["none"].items():
        about_hidden = [line.replace(hidden, "?") for line in told if hidden in line]
        about_nothing = [line.replace(nothing, "?") for line in told if nothing in line]
        both = {
            "WriteTxnMarkers",
            "AddPartitionsToTxn of a broker",
            "AlterPartitionReassignments",
            "DeleteTopics of none",
        }
        assert about_hidden == about_nothing or name in both, name


def test_rules_count_at_once_on_open_connections_and_in_fetch_sessions(
    administrator: Asker, address: str, ids: dict[str, UUID]
) -> None:
    assert ids
    take_all(administrator)
    give(administrator, ALL_TOPICS["READ"], ALL_TOPICS["WRITE"])
    with Asker(address) as stranger:
        row = producing.PartitionProduceData(index=0, records=batch(False))
        request = producing.ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=1000,
            topic_data=[producing.TopicProduceData(name=HIDDEN, partition_data=[row])],
        )
        assert stranger.ask(request, 11).responses[0].partition_responses[0].error_code == 0
        first = fetch([fetching.FetchTopic(topic=HIDDEN, partitions=[fetched()])])
        first.session_epoch = 0
        began = stranger.ask(first, 12)
        assert (began.session_id > 0, began.responses[0].partitions[0].error_code) == (True, 0)
        give(administrator, ALL_TOPICS["ALL"], permission=Permission.DENY)
        again = fetch([])
        again.session_id, again.session_epoch = began.session_id, 1
        answer = stranger.ask(again, 12)
        assert answer.responses[0].partitions[0].error_code == Error.TOPIC_AUTHORIZATION_FAILED
        refused = stranger.ask(request, 11).responses[0].partition_responses[0]
        assert refused.error_code == Error.TOPIC_AUTHORIZATION_FAILED
    take_all(administrator)


def test_a_client_in_the_session_of_another_user_has_its_own_rights(
    administrator: Asker, address: str, ids: dict[str, UUID]
) -> None:
    assert ids
    take_all(administrator)
    first = fetch([fetching.FetchTopic(topic=HIDDEN, partitions=[fetched()])])
    first.session_epoch = 0
    began = administrator.ask(first, 12)
    assert (began.session_id > 0, began.responses[0].partitions[0].error_code) == (True, 0)
    again = fetch([])
    again.session_id, again.session_epoch = began.session_id, 1
    with Asker(address) as stranger:
        answer = stranger.ask(again, 12)
    assert answer.responses[0].partitions[0].error_code == Error.TOPIC_AUTHORIZATION_FAILED


def test_a_filter_that_makes_no_sense_closes_the_connection(address: str) -> None:
    with Asker(address, STRANGER) as stranger:
        request = DescribeAclsRequest(resource_type_filter=0, pattern_type_filter=1, operation=1, permission_type=1)
        assert stranger.ask(request, 3) is None


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
@pytest.mark.parametrize("name", [None, "t"])
def test_a_filter_with_a_number_of_a_later_version_closed_the_connection(
    administrator: Asker, field: str, name: str | None
) -> None:
    plain = {"resource_type_filter": 1, "pattern_type_filter": 3, "operation": 1, "permission_type": 1}
    numbers = plain | {field: 99, "resource_name_filter": name}
    assert administrator.ask(DescribeAclsRequest(**numbers), 3).resources == []
    known = DeleteAclsFilter(**plain, resource_name_filter="nothing")
    answer = administrator.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**numbers), known]), 3)
    part = "patternFilter" if field.endswith("type_filter") else "entryFilter"
    told = [(each.error_code, each.error_message) for each in answer.filter_results]
    assert told == [(Error.INVALID_REQUEST, f"Unknown {part}."), (Error.NONE, None)]


@pytest.mark.needs_ottla
def test_denials_are_logged(broker: Broker, address: str, administrator: Asker) -> None:
    take_all(administrator)
    with Asker(address) as stranger:
        stranger.ask(fetch([fetching.FetchTopic(topic="secret", partitions=[fetched()])]), 12)
    line = "is Denied operation = READ from host = 127.0.0.2 on resource = Topic:LITERAL:secret for request = Fetch"
    assert eventually(lambda: line in broker.log_text)
