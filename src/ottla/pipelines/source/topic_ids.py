"""Which topics a stream reads: one of the same name may be another one, made anew since the last look.

Offsets do not show it: a stream that had read 10 records would go on with the eleventh of the new topic, and nobody
would know. So ids are remembered, from run to run if there is a folder for them, else for this run.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


class TopicIds:
    """The ids under which the offsets of a stream were planned, and which of them are not true any more."""

    def __init__(self, folder: str | None) -> None:
        self._folder = Path(folder) if folder else None
        self._known: dict[str, str] = {}
        self._seen: dict[str, str] = {}  # at the last look
        self._is_planned = False  # a batch that takes the new topics from their beginning is under way

    def begin(self, found: Mapping[str, str]) -> None:
        """A stream without a past: what others have noted under its name does not count."""
        self._seen = dict(found)
        for topic, topic_id in found.items():
            self._learn(topic, topic_id)

    def look(self, found: Mapping[str, str]) -> None:
        self._seen = dict(found)
        for topic, topic_id in found.items():
            if self._of(topic) is None:
                self._learn(topic, topic_id)

    @property
    def has_looked(self) -> bool:
        return bool(self._seen)

    @property
    def seen(self) -> dict[str, str]:
        return self._seen

    def is_anew(self, topic: str) -> bool:
        """Whether what was read of this topic was another one; asked while a batch is planned."""
        self._is_planned = True
        return self.is_other(topic, self._seen)

    def is_other(self, topic: str, found: Mapping[str, str]) -> bool:
        """Whether a topic with this name was found, and is not the one that was read."""
        known, seen = self._of(topic), found.get(topic)
        return known is not None and seen is not None and known != seen

    def batch_done(self) -> None:
        """Not before: whoever does the batch again must see the same."""
        if self._is_planned:
            for topic, topic_id in self._seen.items():
                self._learn(topic, topic_id)
        self._is_planned = False

    def _of(self, topic: str) -> str | None:
        if topic not in self._known and self._folder is not None:
            with suppress(OSError):
                self._known[topic] = self._note(topic).read_text(encoding="utf-8")
        return self._known.get(topic)

    def _learn(self, topic: str, topic_id: str) -> None:
        if self._of(topic) == topic_id:
            return
        self._known[topic] = topic_id
        if self._folder is not None:
            with suppress(OSError):  # less is remembered then, and the stream goes on
                self._folder.mkdir(parents=True, exist_ok=True)
                unfinished = self._folder / f"{topic}.new"
                unfinished.write_text(topic_id, encoding="utf-8")
                unfinished.replace(self._note(topic))

    def _note(self, topic: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{topic}.id"

    def __repr__(self) -> str:
        return f"<TopicIds {len(self._known)} known>"
