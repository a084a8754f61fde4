"""Which version of a request is sent."""

from __future__ import annotations

import pytest

from ottla.client.versions import best_version
from ottla.protocol.schema import Layout


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((0, 12), (0, 13), 12),
        ((0, 13), (0, 12), 12),
        ((4, 13), (0, 5), 5),
        ((4, 13), (0, 3), None),
        ((0, 2), (3, 9), None),
    ],
)
def test_the_highest_version_that_both_know_is_used(
    ours: tuple[int, int], theirs: tuple[int, int], expected: int | None
) -> None:
    assert best_version(Layout(3, *ours, 9), {3: theirs}) == expected


def test_an_api_that_the_broker_does_not_have_has_no_version() -> None:
    assert best_version(Layout(75, 0, 0, 0), {3: (0, 12)}) is None
