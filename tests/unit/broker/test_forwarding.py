"""Requests for the controller, sent to another broker."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.two_brokers import ASKER, Asker, AskingBroker, ControllerBroker, with_two_brokers

from ottla.base.errors import Error, KafkaError
from ottla.base.security import ANONYMOUS, CLUSTER_NAME, Operation, Permission, ResourceType
from ottla.broker.cluster import controller_channel
from ottla.broker.cluster.forwarding import (
    decode_host,
    decode_principal,
    encode_host,
    encode_principal,
    error_response,
    is_not_controller,
)
from ottla.broker.cluster.peers import probe
from ottla.broker.handlers.table import APIS as TABLE
from ottla.broker.served_api import ServedApi
from ottla.network.peer import PeerError
from ottla.protocol.apis import APIS
from ottla.protocol.codec import ProtocolError, encode
from ottla.protocol.headers import encode_request_header
from ottla.protocol.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.cluster import FeatureUpdateKey, UnregisterBrokerRequest, UpdateFeaturesRequest
from ottla.protocol.messages.configs import (
    AlterableConfig,
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    QuotaAlteration,
    QuotaEntity,
)
from ottla.protocol.messages.credentials import (
    AlterUserScramCredentialsRequest,
    CreateDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    ScramCredentialDeletion,
)
from ottla.protocol.messages.inter_broker import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.security.acls import AccessControlEntry, ResourcePattern
from ottla.security.authorizer import Authorizer

ORDERS = CreateTopicsRequest(
    topics=[CreatableTopic(name="orders", num_partitions=3, replication_factor=1)], timeout_ms=5000
)
BROKER, LOGGER, TOPIC = 4, 8, 2


def config(kind: int, name: str, key: str, value: str) -> IncrementalAlterConfigsResource:
    change = IncrementalAlterableConfig(name=key, config_operation=0, value=value)
    return IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])


def test_any_broker_creates_changes_and_deletes_topics(tmp_path: Path) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        client = Asker(two)
        made = (await client.ask(ORDERS, 7)).topics[0]
        assert (made.name, made.error_code, made.num_partitions) == ("orders", 0, 3)
        assert "orders" in two.image.topics
        assert made.topic_id == one.image.topics["orders"].topic_id
        assert (await client.ask(ORDERS, 2)).topics[0].error_code == Error.TOPIC_ALREADY_EXISTS
        more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="orders", count=5)], timeout_ms=5000)
        assert (await client.ask(more, 3)).results[0].error_code == 0
        assert len(two.image.topics["orders"].partitions) == 5
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=5000)
        assert (await client.ask(gone, 6)).responses[0].error_code == 0
        assert "orders" not in one.image.topics
        unknown = await client.ask(UnregisterBrokerRequest(broker_id=99), 0)
        assert unknown.error_code == Error.BROKER_ID_NOT_REGISTERED
        assert one.seen == [58] * 5, "each request is in an envelope"

    with_two_brokers(tmp_path, play)


def test_the_client_is_authorized_and_not_the_forwarding_broker(tmp_path: Path) -> None:
    rules = {
        AccessControlEntry(ANONYMOUS, "127.0.0.1", Operation.CLUSTER_ACTION, Permission.ALLOW),
        AccessControlEntry("User:alice", "10.1.2.3", Operation.CREATE, Permission.ALLOW),
    }

    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        one.parts.authorizer = Authorizer({ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME): frozenset(rules)})
        assert (await Asker(two).ask(ORDERS, 7)).topics[0].error_code == 0
        refused = await Asker(two, "User:mallory").ask(
            CreateTopicsRequest(
                topics=[CreatableTopic(name="x", num_partitions=1, replication_factor=1)], timeout_ms=5000
            ),
            7,
        )
        assert refused.topics[0].error_code == Error.TOPIC_AUTHORIZATION_FAILED

    with_two_brokers(tmp_path, play)


def test_a_broker_without_permission_gets_an_error(tmp_path: Path) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        one.parts.authorizer = Authorizer({})
        assert (await Asker(two).ask(ORDERS, 7)).topics[0].error_code == Error.UNKNOWN_SERVER_ERROR
        assert "orders" not in one.image.topics

    with_two_brokers(tmp_path, play)


def test_a_broker_that_has_become_the_controller_handles_the_request(tmp_path: Path) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        two.controller, two.publisher = one.controller, one.parts.publisher  # type: ignore[attr-defined]
        two.membership.controller_id = -1
        waiting = asyncio.ensure_future(Asker(two).ask(ORDERS, 7))
        await asyncio.sleep(0.05)
        assert not waiting.done(), "there is no controller"
        two.membership.is_controller, two.membership.controller_id = True, ASKER
        assert (await waiting).topics[0].error_code == 0
        assert one.seen == []

    with_two_brokers(tmp_path, play)


@pytest.mark.parametrize("why", ["none", "not any more", "in the rows", "gone", "silent"])
def test_without_a_controller_the_response_is_an_error(tmp_path: Path, why: str) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        if why == "none":
            two.membership.controller_id = -1
        elif why == "not any more":
            one.membership.is_controller = False
        elif why == "in the rows":
            one.controller._is_active = False
        elif why == "gone":
            two.images.publish(two.image.with_brokers({}))
        else:
            one.is_silent = True
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name="orders", num_partitions=3, replication_factor=1)], timeout_ms=1
        )
        row = (await Asker(two).ask(request, 7)).topics[0]
        if why == "none":
            assert row.error_message == "no controller is elected"
        timed_out = why == "silent"
        assert row.name == "orders"
        assert row.error_code == (Error.REQUEST_TIMED_OUT if timed_out else Error.NOT_CONTROLLER)

    with_two_brokers(tmp_path, play)


def test_a_silent_controller_is_replaced_by_the_new_one(tmp_path: Path) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        one.is_silent = True
        waiting = asyncio.ensure_future(Asker(two).ask(ORDERS, 7))
        while not one.seen:
            await asyncio.sleep(0.01)
        one.is_silent = False
        two.images.publish(two.image.with_brokers({**two.image.brokers, 3: two.image.brokers[1]._replace(id=3)}))
        two.membership.controller_id = 3
        assert (await waiting).topics[0].error_code == 0
        assert len(one.seen) == 2

    with_two_brokers(tmp_path, play)


def test_concurrent_requests_share_few_connections(tmp_path: Path) -> None:
    async def play(_: ControllerBroker, two: AskingBroker) -> None:
        requests = [
            CreateTopicsRequest(
                topics=[CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1)], timeout_ms=5000
            )
            for number in range(30)
        ]
        answers = await asyncio.gather(*(Asker(two).ask(request, 7) for request in requests))
        assert [answer.topics[0].name for answer in answers] == [f"t{number}" for number in range(30)]
        link = two.forwarding._link
        assert 1 <= len(link._idle) <= controller_channel.IDLE_CONNECTIONS_MAX
        link.close()
        assert repr(two.forwarding).startswith("<ForwardingManager <ControllerChannel to broker 1")

    with_two_brokers(tmp_path, play)


def test_broker_settings_go_to_the_controller_and_log_levels_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = {}
    monkeypatch.setattr("ottla.broker.configs.config_admin.check_logger", lambda *_: None)
    monkeypatch.setattr(
        "ottla.broker.configs.config_admin.set_log_level", lambda name, level: levels.update({name: level})
    )

    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        client = Asker(two)
        await client.ask(ORDERS, 7)
        request = IncrementalAlterConfigsRequest(
            resources=[
                config(LOGGER, "2", "ottla.network", "DEBUG"),
                config(BROKER, "2", "num.io.threads", "9"),
                config(BROKER, "1", "num.io.threads", "9"),
                config(TOPIC, "orders", "retention.ms", "no number"),
                config(TOPIC, "orders", "retention.ms", "5000"),
                config(TOPIC, "unknown", "retention.ms", "5000"),
                config(BROKER, "", "num.io.threads", "10"),
            ]
        )
        rows = (await client.ask(request, 1)).responses
        assert [(row.resource_name, row.error_code) for row in rows] == [
            ("2", Error.NONE),
            ("2", Error.NONE),
            ("1", Error.INVALID_REQUEST),
            ("orders", Error.INVALID_REQUEST),  # named twice
            ("orders", Error.INVALID_REQUEST),
            ("unknown", Error.UNKNOWN_TOPIC_OR_PARTITION),
            ("", Error.NONE),
        ]
        assert levels == {"ottla.network": "DEBUG"}
        assert one.image.broker_configs["2"] == {"num.io.threads": "9"}
        assert one.image.broker_configs[""] == {"min.insync.replicas": "1", "num.io.threads": "10"}
        trial = IncrementalAlterConfigsRequest(
            resources=[config(TOPIC, "orders", "retention.ms", "7")], validate_only=True
        )
        assert (await client.ask(trial, 1)).responses[0].error_code == 0
        assert one.image.topic_configs["orders"] == {}
        older = AlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name="orders",
                    configs=[AlterableConfig(name="retention.ms", value="8000")],
                )
            ]
        )
        assert (await client.ask(older, 2)).responses[0].error_code == 0
        assert two.image.topic_configs["orders"] == {"retention.ms": "8000"}
        before = len(one.seen)
        bad = IncrementalAlterConfigsRequest(resources=[config(TOPIC, "orders", "retention.ms", "no number")])
        assert (await client.ask(bad, 1)).responses[0].error_code == Error.INVALID_CONFIG
        assert len(one.seen) == before, "invalid requests are not forwarded"

    with_two_brokers(tmp_path, play)


# ---- envelopes


@pytest.mark.parametrize(
    ("key", "version", "data", "error"),
    [
        (3, 12, MetadataRequest(topics=None), Error.INVALID_REQUEST),
        (19, 7, ORDERS, Error.NONE),
        (19, 99, ORDERS, Error.UNSUPPORTED_VERSION),
        (58, 0, EnvelopeRequest(request_data=b"", client_host_address=b""), Error.INVALID_REQUEST),
        (19, 7, None, Error.INVALID_REQUEST),
    ],
)
def test_only_forwarded_apis_are_accepted_in_an_envelope(
    tmp_path: Path, key: int, version: int, data: Any, error: Error
) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        body = b"" if data is None else encode(data, min(version, 12) if key != 19 else 7)
        request = EnvelopeRequest(
            request_data=encode_request_header(key, version, 1, "c") + body,
            request_principal=encode_principal("User:bob"),
            client_host_address=encode_host("::1"),
        )
        answer = await two.peers.call(1, request, EnvelopeResponse)
        assert answer.error_code == error
        assert (answer.response_data is None) == (error != Error.NONE)
        request.request_principal = b"\0\5"
        answer = await two.peers.call(1, request, EnvelopeResponse)
        assert answer.error_code == Error.PRINCIPAL_DESERIALIZATION_FAILURE

    with_two_brokers(tmp_path, play)


@pytest.mark.parametrize("principal", ["User:ANONYMOUS", "User:CN=a,O=b", "Group:ops", "User:a:b", "User:Ωmega"])
def test_principals_and_hosts_survive_encoding(principal: str) -> None:
    assert decode_principal(encode_principal(principal)) == (principal, False)
    assert decode_principal(encode_principal(principal, is_delegated=True)) == (principal, True)
    for host in ("127.0.0.1", "2001:db8::1"):
        assert decode_host(encode_host(host)) == host
    assert decode_host(encode_host("fe80::1%eth0")) == "fe80::1"
    assert decode_host(encode_host("")) == ""
    with pytest.raises(ProtocolError):
        decode_host(b"abc")
    with pytest.raises(ProtocolError):
        decode_principal(b"")


# ---- errors for every row of a request


REQUESTS: dict[int, Any] = {
    19: ORDERS,
    20: DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], topic_names=["a"], timeout_ms=1),
    33: AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name="a")]),
    37: CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=1)], timeout_ms=1),
    38: CreateDelegationTokenRequest(max_lifetime_ms=1),
    39: RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1),
    40: ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1),
    43: ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="a", partitions=[0, 1])]),
    44: IncrementalAlterConfigsRequest(resources=[config(2, "a", "b", "c")]),
    45: AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="a", partitions=[ReassignablePartition(partition_index=0, replicas=[1])])]
    ),
    46: ListPartitionReassignmentsRequest(),
    49: AlterClientQuotasRequest(entries=[QuotaAlteration(entity=[QuotaEntity(entity_type="user", entity_name="a")])]),
    51: AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="a", mechanism=1)]),
    57: UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="a", max_version_level=1)]),
    30: CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=2,
                resource_name="a",
                principal="User:a",
                host="*",
                operation=3,
                permission_type=3,
            )
        ]
    ),
    31: DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=2, operation=3, permission_type=3)]),
    64: UnregisterBrokerRequest(broker_id=1),
}


@pytest.mark.parametrize(
    "row", [row for row in TABLE if row.make_error_response is not None], ids=lambda row: APIS[row.key].name
)
def test_every_forwarded_api_has_an_error_response(row: ServedApi) -> None:
    api, request = APIS[row.key], REQUESTS[row.key]
    for version in range(api.min_version, api.max_version + 1):
        answer = error_response(row, request, KafkaError(Error.NOT_CONTROLLER), version)
        assert isinstance(answer, api.response)
        assert len(encode(answer, version)) > 4
        assert is_not_controller(answer)
        assert not is_not_controller(error_response(row, request, KafkaError(Error.REQUEST_TIMED_OUT), version))


def test_unknown_peers_are_reported_without_a_request(tmp_path: Path) -> None:
    async def play(_: ControllerBroker, two: AskingBroker) -> None:
        with pytest.raises(PeerError, match="broker 9 is not known"):
            await two.peers.call(9, ORDERS, APIS[19].response)
        endpoint = two.image.brokers[1].endpoints["PLAINTEXT"]
        assert await probe(endpoint.host, endpoint.port)
        assert not await probe(endpoint.host, 1)
        own = two.peers.open(1, "fetcher-0")
        assert own.client_id == "broker-1-fetcher-0"
        own.close()
        assert repr(two.peers) == "<Peers 0 shared, 0 own>"

    with_two_brokers(tmp_path, play)
