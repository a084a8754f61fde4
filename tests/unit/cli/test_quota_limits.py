"""How `ottla quotas list` shows limits."""

from ottla.operations.quota_limits import as_words, rows
from ottla.client.quotas import Quota


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
