"""How many of the left can be given one of the right each, so that nobody is given twice."""

from __future__ import annotations

from ottla.registry.formats.parsed import Budget


def matched_count(edges: list[list[int]], budget: Budget) -> int:
    """`edges`: for each on the left, who on the right would do. Grows the matching by one path at a time."""
    partners: dict[int, int] = {}  # of the right
    count = 0
    for start in range(len(edges)):
        came_from: dict[int, int] = {}  # a right one, and the left one that would take it
        waiting = [start]
        free: int | None = None
        while waiting and free is None:
            left = waiting.pop()
            for right in edges[left]:
                budget.spend()
                if right in came_from:
                    continue
                came_from[right] = left
                if right not in partners:
                    free = right
                    break
                waiting.append(partners[right])
        if free is None:
            continue
        count += 1
        owner = {left: right for right, left in partners.items()}
        right = free
        while True:
            left = came_from[right]
            partners[right] = left
            if left == start:
                break
            right = owner[left]
    return count
