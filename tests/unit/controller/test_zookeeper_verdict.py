"""The outcome of a transaction whose response was lost, decided from its nodes."""

from collections.abc import Mapping

import pytest

from ottla.controller.stores.store import CheckNode, CreateNode, DeleteNode, Node, Outcome, SetNode, StoreOperation
from ottla.controller.stores.zookeeper.client import Found
from ottla.controller.stores.zookeeper.verdict import judge, sequential_parents, touched_paths

SEEN = 100  # the newest transaction that we knew of when we sent ours
OURS, OTHERS = 105, 103
SESSION = 7

CHECK = CheckNode("/epoch", 3)
SET = SetNode("/a", b"new", 4)
CREATE = CreateNode("/b", b"x")
EPHEMERAL = CreateNode("/controller", b"me", is_ephemeral=True)
SEQUENTIAL = CreateNode("/c/change_", b"topic", is_sequential=True)


def found(data: bytes, version: int, created: int = 1, changed: int | None = None, owner: int = 0) -> Found:
    return Found(Node(data, version, created), created if changed is None else changed, owner, 0)


WRITTEN = found(b"new", 5, changed=OURS)
MADE = found(b"x", 0, created=OURS)


def verdict(operations: list[StoreOperation], nodes: Mapping[str, Found]) -> list[Outcome] | None:
    return judge(operations, nodes, SEEN, SESSION)


def test_a_node_that_holds_what_we_wrote_one_version_later_is_ours() -> None:
    assert verdict([CHECK, SET], {"/a": WRITTEN}) == [Outcome("/epoch", 3), Outcome("/a", 5)]


def test_all_nodes_of_a_transaction_have_its_number() -> None:
    assert verdict([SET, CREATE], {"/a": WRITTEN, "/b": MADE}) == [Outcome("/a", 5), Outcome("/b", 0)]


@pytest.mark.parametrize(
    ("operations", "nodes"),
    [
        ([SET], {"/a": found(b"old", 4)}),  # nothing has happened
        ([SET], {}),  # deleted
        ([SET], {"/a": found(b"other", 5, changed=OTHERS)}),  # another writer was faster
        ([SET], {"/a": found(b"new", 6, changed=OTHERS)}),  # ours may be below it: the version tells
        ([SET], {"/a": found(b"new", 5, changed=SEEN)}),  # we knew of this one before
        ([CREATE], {}),
        ([CREATE], {"/b": found(b"y", 0, created=OTHERS)}),
        ([CREATE], {"/b": found(b"x", 0, created=SEEN)}),
        ([SET, CREATE], {"/a": WRITTEN}),  # half of it cannot be
        ([SET, CREATE], {"/a": WRITTEN, "/b": found(b"x", 0, created=OTHERS)}),  # by two different writers
        ([EPHEMERAL], {"/controller": found(b"me", 0, created=OTHERS, owner=8)}),  # another session's
        ([EPHEMERAL], {"/controller": found(b"me", 0, created=OTHERS)}),  # without an owner
        ([CREATE], {"/b": found(b"x", 0, created=OTHERS, owner=8)}),
        ([SetNode("/a", b"new")], {"/a": WRITTEN}),  # any version: it may be repeated
        ([CHECK], {}),  # nothing was written
        ([SET, SetNode("/a", b"newer", 5)], {"/a": found(b"newer", 6, changed=OURS)}),  # too clever to judge
    ],
)
def test_without_proof_it_is_sent_again(operations: list[StoreOperation], nodes: dict[str, Found]) -> None:
    assert verdict(operations, nodes) is None


def test_two_candidates_write_the_same_epoch_but_only_one_owns_the_controller() -> None:
    """The epoch node looks like ours; the owner of the ephemeral node decides."""
    operations = [SetNode("/controller_epoch", b"5", 4), EPHEMERAL]
    epoch = found(b"5", 5, changed=OTHERS)
    theirs = {"/controller_epoch": epoch, "/controller": found(b"me", 0, created=OTHERS, owner=8)}
    ours = {"/controller_epoch": epoch, "/controller": found(b"me", 0, created=OTHERS, owner=SESSION)}
    assert verdict(operations, theirs) is None
    assert verdict(operations, ours) == [Outcome("/controller_epoch", 5), Outcome("/controller", 0)]


def test_deleted_node_is_missing_or_replaced_by_a_newer_one() -> None:
    operation = DeleteNode("/controller", 0)
    assert verdict([operation], {}) == [Outcome("/controller", 0)]
    assert verdict([operation], {"/controller": found(b"", 0, created=OTHERS)}) == [Outcome("/controller", 0)]
    assert verdict([operation], {"/controller": found(b"", 0, created=50)}) is None


def test_a_deletion_beside_a_write_needs_the_proof_of_the_write() -> None:
    assert verdict([SET, DeleteNode("/d", 0)], {"/a": WRITTEN}) == [Outcome("/a", 5), Outcome("/d", 0)]
    assert verdict([SET, DeleteNode("/d", 0)], {"/a": found(b"old", 4)}) is None
    assert verdict([SET, DeleteNode("/d", 0)], {"/a": WRITTEN, "/d": found(b"", 0, created=5)}) is None


def test_a_sequential_node_is_found_among_its_siblings() -> None:
    siblings = {
        "/c/change_0000000001": found(b"topic", 0, created=50),
        "/c/change_0000000002": found(b"topic", 0, created=OURS),
        "/c/change_x": found(b"topic", 0, created=OURS),
    }
    assert verdict([SEQUENTIAL], siblings) == [Outcome("/c/change_0000000002", 0)]
    del siblings["/c/change_0000000002"]
    assert verdict([SEQUENTIAL], siblings) is None


def test_nodes_to_read_for_the_verdict() -> None:
    operations = [CHECK, SET, CREATE, SEQUENTIAL, DeleteNode("/d")]
    assert touched_paths(operations) == ["/a", "/b", "/d"]
    assert sequential_parents(operations) == ["/c"]
