"""Records of the topic applied to the registry's state, and back."""

import json
from typing import Any

import pytest
from tests.unit.registry.nodes import Node, record
from tests.virtual_time import run

from ottla.registry.records import Key, Record, UnreadableRecordError, decode_key
from ottla.registry.subjects import decisions
from ottla.registry.subjects.new_schemas import NewSchema
from ottla.registry.subjects.state import RegistryState

A, B = record("a"), record("b")


def schema(subject: str, version: int, number: int, text: str = A, **more: Any) -> tuple[Key, dict[str, Any]]:
    value = {"subject": subject, "version": version, "id": number, "schema": text, "deleted": False, **more}
    return Key("SCHEMA", subject, version), value


def state_of(*records: tuple[Key, dict[str, Any] | None]) -> RegistryState:
    state = RegistryState()
    for key, value in records:
        state.apply(key, value)
    return state


def test_a_version_that_is_written_again_takes_the_place_of_the_old_one() -> None:
    state = state_of(schema("s", 1, 1, A), schema("s", 1, 2, B))
    assert [(item.version, item.id) for item in state.versions("s")] == [(1, 2)]
    assert list(state.by_id(".", 1)) == []
    assert state.contexts["."].max_id == 2


def test_one_id_at_two_versions_of_a_subject() -> None:
    state = state_of(schema("s", 1, 1), schema("s", 2, 1), (Key("SCHEMA", "s", 2), None))
    assert [item.version for item in state.by_id(".", 1)] == [1]
    state.apply(Key("SCHEMA", "s", 1), None)
    assert list(state.by_id(".", 1)) == []
    assert state.subjects == {}
    assert state.contexts["."].by_digest == {}


def test_a_subject_is_deleted_up_to_a_version_and_goes_on_after_it() -> None:
    ends = (Key("DELETE_SUBJECT", "s"), {"subject": "s", "version": 2})
    state = state_of(schema("s", 1, 1), schema("s", 2, 2, B), ends, schema("s", 3, 1))
    assert [item.version for item in state.versions("s")] == [3]
    assert [item.version for item in state.versions("s", with_deleted=True)] == [1, 2, 3]


def test_a_cleared_subject_keeps_live_versions() -> None:
    state = state_of(
        schema("s", 1, 1, deleted=True), schema("s", 2, 2, B), (Key("CLEAR_SUBJECT", "s"), {"subject": "s"})
    )
    assert [item.version for item in state.versions("s", with_deleted=True)] == [2]
    assert list(state.by_id(".", 1)) == []


@pytest.mark.parametrize(
    ("wanted", "left"),
    [(None, []), ("s", [":.x:s", "t"]), (":.x:", ["s", "t"])],
)
def test_the_scope_of_clear_subject(wanted: str | None, left: list[str]) -> None:
    gone = [schema(name, 1, 1, deleted=True) for name in ("s", "t", ":.x:s")]
    state = state_of(*gone, (Key("CLEAR_SUBJECT", wanted), {}))
    assert sorted(state.subjects) == left


def test_references_of_what_was_deleted_hold_nothing() -> None:
    refers = {"references": [{"name": "R", "subject": "r", "version": 1}]}
    state = state_of(schema("r", 1, 1), schema("s", 1, 2, B, **refers), schema("t", 1, 2, B, **refers))
    assert state.references_to("r", 1) == [2]
    state.apply(*schema("s", 1, 2, B, deleted=True, **refers))
    assert state.references_to("r", 1) == [2]
    state.apply(Key("SCHEMA", "t", 1), None)
    assert state.references_to("r", 1) == []
    assert state.referenced_by == {}


def test_a_reference_means_the_context_of_its_schema() -> None:
    refers = {"references": [{"name": "R", "subject": "r", "version": 1}]}
    state = state_of(schema(":.x:r", 1, 1), schema(":.x:s", 1, 2, B, **refers))
    assert state.references_to(":.x:r", 1) == [2]
    assert state.references_to("r", 1) == []


def test_a_record_without_sense_changes_nothing() -> None:
    state = state_of(schema("s", 1, 1))
    for key, value in [
        (Key("SCHEMA", "s", 1), {"id": "x"}),
        (Key("MODE"), {"mode": 7}),
        (Key("DELETE_SUBJECT", "s"), {"version": "2"}),
    ]:
        with pytest.raises(UnreadableRecordError):
            state.apply(key, value)
    assert [item.id for item in state.versions("s")] == [1]
    assert state.modes == {}


def test_the_highest_id_outlives_its_schema() -> None:
    """Compaction removes the tombstones: then only a NOOP has the highest ID."""

    async def main() -> None:
        node = Node()
        for text in (A, B):
            await node.register("s", text, schemaType="AVRO")
            await node.ask("PUT", "/config/s", {"compatibility": "NONE"})
        await node.ask("DELETE", "/subjects/s")
        await node.ask("DELETE", "/subjects/s?permanent=true")
        last: dict[bytes, bytes | None] = {}
        for key, value in node.log.written:
            last.pop(key, None)
            last[key] = value
        compacted = [(key, value) for key, value in last.items() if value is not None]
        again = Node()
        for key, value in compacted:
            again.log.add(key, value)
        assert (await again.register("s", record("c"))).body == {"id": 3}

    run(main())


KARAPACE = b'{"subject":"s","version":1,"magic":1,"keytype":"SCHEMA"}'


def test_keys_of_another_registry_end_when_ours_is_written() -> None:
    """Otherwise compaction would keep them for ever, and a deleted version would reappear."""

    async def main() -> None:
        node = Node()
        _, value = schema("s", 1, 1)
        node.log.add(KARAPACE, json.dumps(value).encode())
        await node.ask("DELETE", "/subjects/s/versions/1")
        ours = b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
        assert [key for key, _ in node.log.written[-2:]] == [KARAPACE, ours]
        assert node.log.written[-2][1] is None
        assert (await node.ask("GET", "/subjects/s/versions/1?deleted=true")).status == 200
        await node.ask("DELETE", "/subjects/s/versions/1?permanent=true")
        assert node.log.written[-1] == (ours, None)
        assert node.registry.state.foreign_keys == {}

    run(main())


def test_a_global_level_of_an_old_registry_ends_with_ours() -> None:
    async def main() -> None:
        node = Node()
        old = b'{"keytype":"CONFIG","subject":null,"magic":0}'
        node.log.add(old, b'{"compatibilityLevel":"FULL"}')
        assert (await node.ask("GET", "/config")).body == {"compatibilityLevel": "FULL"}
        await node.ask("PUT", "/config", {"compatibility": "NONE"})
        assert [decode_key(key) for key, _ in node.log.written[-2:]] == [Key("CONFIG"), Key("CONFIG")]
        assert node.log.written[-2] == (old, None)

    run(main())


def test_records_come_in_the_order_in_which_confluent_writes_them() -> None:
    async def main() -> None:
        node = Node()
        await node.register(":.x:s", A)
        await node.ask("PUT", "/config/:.x:s", {"compatibility": "NONE"})
        await node.ask("PUT", "/mode/:.x:s", {"mode": "READWRITE"})
        await node.ask("DELETE", "/subjects/:.x:s")
        await node.register(":.x:s", A)
        await node.ask("DELETE", "/subjects/:.x:s")
        await node.ask("PUT", "/mode/:.x:s", {"mode": "IMPORT"})
        subject = '"subject":":.x:s"'
        assert node.log.keys == [
            '{"keytype":"NOOP","magic":0}',
            '{"keytype":"CONTEXT","tenant":"default","context":".x","magic":0}',
            f'{{"keytype":"SCHEMA",{subject},"version":1,"magic":1}}',
            f'{{"keytype":"CONFIG",{subject},"magic":0}}',
            f'{{"keytype":"MODE",{subject},"magic":0}}',
            f'{{"keytype":"DELETE_SUBJECT",{subject},"magic":0}}',
            f'{{"keytype":"MODE",{subject},"magic":0}}',
            f'{{"keytype":"CONFIG",{subject},"magic":0}}',
            f'{{"keytype":"SCHEMA",{subject},"version":1,"magic":1}}',  # the deleted one with the same id is gone
            f'{{"keytype":"SCHEMA",{subject},"version":2,"magic":1}}',
            f'{{"keytype":"DELETE_SUBJECT",{subject},"magic":0}}',
            '{"keytype":"NOOP","magic":0}',
            f'{{"keytype":"SCHEMA",{subject},"version":2,"magic":1}}',
            f'{{"keytype":"CLEAR_SUBJECT",{subject},"magic":0}}',
            f'{{"keytype":"MODE",{subject},"magic":0}}',
        ]
        values = [json.loads(value) if value else None for _, value in node.log.written]
        assert values[1] == {"tenant": "default", "context": ".x"}
        assert values[3] == {"subject": ":.x:s", "compatibilityLevel": "NONE"}
        assert values[4] == {"subject": ":.x:s", "mode": "READWRITE"}
        assert values[5] == {"subject": ":.x:s", "version": 1}
        assert values[6] is values[7] is values[8] is None
        assert values[13] == {"subject": ":.x:s"}

    run(main())


def test_the_same_records_make_the_same_registry() -> None:
    async def main() -> None:
        node = Node()
        for number, subject in enumerate(("a", "b", ":.x:a") * 3):
            await node.ask("PUT", f"/config/{subject}", {"compatibility": "NONE"})
            await node.register(subject, record(f"f{number}"))
        await node.ask("DELETE", "/subjects/a/versions/2")
        await node.ask("DELETE", "/subjects/b")
        again = Node()
        for key, value in node.log.written:
            again.log.add(key, value)
        for target in (
            "/schemas?deleted=true",
            "/subjects?deleted=true",
            "/contexts",
            "/schemas/ids/3/versions?deleted=true",
        ):
            assert (await again.ask("GET", target)).body == (await node.ask("GET", target)).body

    run(main())


def test_two_that_register_at_once_get_two_ids() -> None:
    import asyncio  # noqa: PLC0415

    async def main() -> None:
        node = Node()
        await node.ask("PUT", "/config", {"compatibility": "NONE"})
        replies = await asyncio.gather(*(node.register("s", record(f"f{number}")) for number in range(8)))
        assert sorted(reply.body["id"] for reply in replies) == list(range(1, 9))
        assert (await node.ask("GET", "/subjects/s/versions")).body == list(range(1, 9))
        same = await asyncio.gather(*(node.register("t", A) for _ in range(8)))
        assert {reply.body["id"] for reply in same} == {9}

    run(main())


def test_a_fenced_node_has_changed_nothing_and_retries() -> None:
    async def main() -> None:
        node = Node()
        await node.register("s", A)
        node.log.fences = 1
        before = node.log.take_overs
        assert (await node.register("t", B)).body == {"id": 2}
        assert node.log.take_overs == before + 1
        node.log.fences = 100
        assert (await node.register("u", record("c"))).code == 50001

    run(main())


def test_a_node_that_does_not_lead_changes_nothing() -> None:
    class Follower:
        is_leader = False
        leader_url = None

    async def main() -> None:
        node = Node(leadership=Follower())
        assert (await node.register("s", A)).body == {"error_code": 50004, "message": "Leader not known."}
        assert (await node.ask("GET", "/subjects")).body == []
        assert node.log.written == []

    run(main())


def test_a_batch_of_records_holds_what_belongs_together() -> None:
    state = state_of(schema("s", 1, 1))
    basis = decisions.checked_state(state, ":.new:s", "BACKWARD")
    decision = decisions.register(state, ":.new:s", NewSchema(A), basis, [])
    assert [item.key.keytype for item in decision.records] == ["CONTEXT", "SCHEMA"]
    assert isinstance(decision.records[0], Record)
