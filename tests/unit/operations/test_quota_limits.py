"""How `ottla quotas list` shows limits."""

from ottla.client.quotas import Quota
from ottla.operations.quota_limits import applied_to, as_words, rows


def quota(rate: float, **entity: str | None) -> Quota:
    return Quota({kind.replace("_", "-"): name for kind, name in entity.items()}, {"producer_byte_rate": rate})


def test_limits_stand_in_the_order_in_which_kafka_looks_for_them() -> None:
    quotas = [
        Quota({"ip": None}, {"connection_creation_rate": 2.0}),
        quota(8, client_id=None),
        quota(7, client_id="app"),
        quota(6, user=None),
        quota(5, user=None, client_id=None),
        quota(4, user=None, client_id="app"),
        quota(3, user="alice"),
        quota(2, user="alice", client_id=None),
        quota(1, user="alice", client_id="app"),
    ]
    assert ["\t".join(row) for row in rows(quotas)] == [
        "alice\tapp\t-\tproducer_byte_rate\t1",
        "alice\t<default>\t-\tproducer_byte_rate\t2",
        "alice\t-\t-\tproducer_byte_rate\t3",
        "<default>\tapp\t-\tproducer_byte_rate\t4",
        "<default>\t<default>\t-\tproducer_byte_rate\t5",
        "<default>\t-\t-\tproducer_byte_rate\t6",
        "-\tapp\t-\tproducer_byte_rate\t7",
        "-\t<default>\t-\tproducer_byte_rate\t8",
        "-\t-\t<default>\tconnection_creation_rate\t2",
    ]
    assert as_words(quotas)[1] == {"user": "alice", "client-defaults": True, "producer_byte_rate": 2}


# ---- which limits count

BYTES, MESSAGES, CONNECTIONS = "producer_byte_rate", "producer_message_rate", "connection_creation_rate"


def test_the_closest_limit_of_each_kind_counts() -> None:
    quotas = [
        Quota({"user": "alice", "client-id": None}, {BYTES: 1.0}),
        Quota({"user": "alice"}, {BYTES: 2.0, MESSAGES: 3.0}),
        Quota({"user": None, "client-id": "app"}, {BYTES: 4.0}),
        Quota({"client-id": None}, {MESSAGES: 5.0}),
        Quota({"user": "bob"}, {BYTES: 6.0}),
    ]
    found = applied_to(quotas, "alice", "app")
    assert [(each.key, each.limit, each.counts) for each in found] == [
        (BYTES, 1.0, True),
        (BYTES, 2.0, False),
        (BYTES, 4.0, False),
        (MESSAGES, 3.0, True),
        (MESSAGES, 5.0, False),
    ]
    assert (found[0].user, found[0].client_id) == ("alice", "app")
    assert (found[3].user, found[3].client_id) == ("alice", ""), "all her clients share it"


def test_an_address_has_its_own_or_the_default() -> None:
    quotas = [Quota({"ip": None}, {CONNECTIONS: 9.0}), Quota({"ip": "::ffff:10.0.0.1"}, {CONNECTIONS: 1.0})]
    assert [(each.limit, each.counts) for each in applied_to(quotas, host="10.0.0.1")] == [(1.0, True), (9.0, False)]
    assert [each.limit for each in applied_to(quotas, host="10.0.0.2")] == [9.0]
    assert applied_to(quotas, "alice") == []
