"""Reads one range of a partition for people: what is damaged or gone is told and gone past, the rest is read.

Kafka's brokers send a damaged batch as it is, and walking.py tells it; ours refuse to (CORRUPT_MESSAGE). Then the next
offset that can be fetched is looked for, by trying.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from ottla.base.errors import Error
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.operations.batches import FetchedDataError
from ottla.operations.fetching import Fetched, FetchError, FetchOptions, Range, RangeFetcher
from ottla.operations.messages.walking import Unread

DAMAGED = "the broker says that this part of the log is damaged"


def read_range(
    client: Client, wanted: Range, options: FetchOptions, on_unread: Callable[[Unread], None]
) -> Generator[tuple[Fetched, int], None, None]:
    """The answers for a range, each with the offset after it. Raises ClientError or FetchError if nothing more comes.

    Whoever ends early closes this iterator: then no answer to an old question waits in the client.
    """
    position = wanted.start
    while position < wanted.end:
        lost: list[str] = []
        fetcher = RangeFetcher(client, wanted._replace(start=position), options, lost.append)
        try:
            for fetched in fetcher:
                if lost:
                    on_unread(Unread(wanted.partition, position, fetched.first, lost.pop()))
                position = min(fetcher.position, wanted.end)
                yield fetched, position
            if lost:
                on_unread(Unread(wanted.partition, position, wanted.end, lost.pop()))
            return
        except FetchedDataError as problem:
            on_unread(Unread(wanted.partition, position, wanted.end, str(problem)))
            return
        except FetchError as problem:
            if problem.error is not Error.CORRUPT_MESSAGE:
                raise
            after = _next_readable(client, wanted._replace(start=position), options)
            on_unread(Unread(wanted.partition, position, after, DAMAGED))
            position = after
        finally:
            if fetcher.position < wanted.end:
                client.close()  # an answer may be on its way


def _next_readable(client: Client, damaged: Range, options: FetchOptions) -> int:
    """The first offset behind a damaged one that a broker sends; the end if there is none."""
    low, step = damaged.start, 1  # low cannot be read
    while low + step < damaged.end and not _is_readable(client, damaged._replace(start=low + step), options):
        low += step
        step *= 2
    high = min(low + step, damaged.end)
    while high - low > 1:
        middle = (low + high) // 2
        if _is_readable(client, damaged._replace(start=middle), options):
            high = middle
        else:
            low = middle
    return high


def _is_readable(client: Client, wanted: Range, options: FetchOptions) -> bool:
    try:
        return next(iter(RangeFetcher(client, wanted, options, lambda _: None)), None) is not None
    except (FetchError, FetchedDataError, ClientError):
        return False
    finally:
        client.close()
