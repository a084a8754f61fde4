"""What `ottla quotas top` and `ottla quotas suggest` print. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.cli.tables import padded
from ottla.cli.terminal import escape
from ottla.cli.top.screen import short
from ottla.operations.quota_limits import NONE
from ottla.operations.quota_shares import Share, Suggestion

COLUMNS: Final = ("BROKER", "QUOTA", "USER", "CLIENT", "RULE", "LIMIT", "RATE", "HELD", "FOR", "NEEDS")
NUMBERS: Final = ("LIMIT", "RATE", "HELD", "FOR", "NEEDS")
REHEARSAL: Final = "rehearsal (ottla.quota.mode=observe): what is shown as held would be held, nobody is"


def top_rows(shares: Sequence[Share]) -> list[tuple[str, ...]]:
    return [
        (
            share.broker,
            share.key,
            share.user or NONE,
            share.client_id or NONE,
            NONE if share.limit is None else share.rule,
            NONE if share.limit is None else short(share.limit),
            short(share.rate),
            f"{min(share.held_share, 1.0):.0%}",
            f"{share.held_for_s:.1f} s",
            short(share.needed),
        )
        for share in shares
    ]


def top_screen(shares: Sequence[Share], is_rehearsed: bool, is_all: bool) -> str:
    """All lines, fit for a terminal."""
    lines = [REHEARSAL] if is_rehearsed else []
    if shares:
        lines += padded(COLUMNS, [tuple(map(escape, row)) for row in top_rows(shares)])
    else:
        lines.append("Nobody has used anything yet." if is_all else "Nobody is held up. All who are measured: --all")
    return "\n".join(lines)


def as_facts(share: Share) -> dict[str, object]:
    """For programs: plain numbers."""
    return {**share._asdict(), "needed": share.needed}


def suggested_words(suggestion: Suggestion) -> dict[str, object]:
    """As a file of `ottla security` has it."""
    words: dict[str, object] = {"user": suggestion.user} if suggestion.user else {}
    if suggestion.client_id:
        words["client"] = suggestion.client_id
    limits = suggestion.limits.items()
    return {**words, **{key: int(limit) if limit == int(limit) else limit for key, limit in limits}}
