"""What people and machines do to what a pipeline keeps, between two runs. Each tells what it did, or None where there
is nothing that it could happen to."""

from __future__ import annotations

import json
import shutil
import sqlite3
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.pipelines.sink_helpers import committed

MARKERS = "ottla_pipeline_markers"
REMOVED = " is removed"


@dataclass
class Site:
    """`kept` is the folder of a stream, `older` what was there after an earlier run, if anything."""

    name: str
    bootstrap: str
    folder: Path
    kept: Path
    older: Path | None
    chance: Random
    is_for_good: bool = False  # what happened cannot be undone
    undoing: list[Callable[[], None]] = field(default_factory=list)  # where a copy of the folder is not enough

    @property
    def checkpoint(self) -> Path:
        return self.kept / "checkpoint"

    @property
    def own(self) -> Path | None:
        return next(iter(sorted(self.kept.glob("query-*"))), None)

    def pick(self, paths: list[Path]) -> Path | None:
        return self.chance.choice(sorted(paths)) if paths else None


Accident = Callable[[Site], str | None]


def removed(path: Path | None) -> str | None:
    if path is None or not path.exists():
        return None
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return f"{path}{REMOVED}"


def newest(folder: Path, back: int = 0) -> Path | None:
    numbers = sorted(int(each.name) for each in folder.glob("*") if each.name.isdigit())
    return folder / str(numbers[-1 - back]) if len(numbers) > back else None


def damaged(site: Site, path: Path | None) -> str | None:
    if path is None or not path.is_file():
        return None
    text = path.read_bytes()
    kind = site.chance.choice(("empty", "cut", "garbage"))
    path.write_bytes({"empty": b"", "cut": text[: len(text) // 2], "garbage": b"\0garbage"}[kind])
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return f"{path} is damaged: {kind}"


def brought_back(path: Path, older: Path | None) -> str | None:
    if older is None or not older.exists() or not path.exists():
        return None
    removed(path)
    (shutil.copytree if older.is_dir() else shutil.copy)(older, path)
    return f"{path} is as it was before"


def tail_removed(site: Site) -> str | None:
    done = removed(newest(site.checkpoint / "commits"))
    return done and f"{done}, {removed(newest(site.checkpoint / 'offsets'))}"


def both_older(site: Site) -> str | None:
    if site.older is None:
        return None
    return brought_back(site.kept, site.older / "state" / site.name / site.kept.name)


def checkpoint_older(site: Site) -> str | None:
    if site.older is None:
        return None
    return brought_back(site.checkpoint, site.older / "state" / site.name / site.kept.name / "checkpoint")


def in_own_older(site: Site, name: str) -> str | None:
    """What the query kept, as it was after an earlier run."""
    if site.older is None or site.own is None:
        return None
    older = site.older / "state" / site.name / site.kept.name / site.own.name / name
    return brought_back(site.own / name, older)


def database_older(site: Site) -> str | None:
    return brought_back(site.folder / "rows.db", site.older and site.older / "rows.db")


def renamed(path: Path | None, to: str) -> str | None:
    if path is None or not path.exists():
        return None
    path.rename(path.with_name(to))
    return f"{path} is called {to}"


def another_query(site: Site) -> str | None:
    """As if the checkpoint were that of another run."""
    metadata = site.checkpoint / "metadata"
    if not metadata.exists():
        return None
    metadata.write_text(json.dumps({"id": str(uuid.UUID(int=site.chance.getrandbits(128), version=4))}))
    metadata.with_name(".metadata.crc").unlink(missing_ok=True)
    return f"{metadata} has another id"


def state_removed(site: Site) -> str | None:
    return removed(site.checkpoint / "state")


def state_file_removed(site: Site) -> str | None:
    files = [each for each in (site.checkpoint / "state").glob("[0-9]*/[0-9]*/*") if each.is_file()]
    newest_files = [each for each in files if not each.name.startswith(".")]
    return removed(max(newest_files, key=lambda each: each.stat().st_mtime_ns, default=None))


def ledger_removed(site: Site) -> str | None:
    return changed(site, "DELETE FROM ottla_batches")


def ledger_row_removed(site: Site) -> str | None:
    return changed(site, "DELETE FROM ottla_batches WHERE rowid IN (SELECT max(rowid) FROM ottla_batches)")


def ledger_behind(site: Site) -> str | None:
    return changed(site, "UPDATE ottla_batches SET batch = batch - 1 WHERE batch > 0")


def table_dropped(site: Site) -> str | None:
    with sqlite3.connect(site.folder / "rows.db") as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    tables = sorted(name for name in names if not name.startswith("ottla_"))
    return changed(site, f'DROP TABLE "{site.chance.choice(tables)}"') if tables else None


def changed(site: Site, statement: str) -> str | None:
    if not (site.folder / "rows.db").exists():
        return None
    database = sqlite3.connect(site.folder / "rows.db")
    try:
        if not database.execute("SELECT name FROM sqlite_master WHERE name = 'ottla_batches'").fetchall():
            return None
        count = database.execute(statement).rowcount
        database.commit()
    finally:
        database.close()
    return f"rows.db: {statement}" if count else None


def markers_removed(site: Site) -> str | None:
    """Tombstones for what the topics of this pipeline remember."""
    found = {message.key(): message for message in committed(site.bootstrap, MARKERS) if message.key()}
    own = {
        key: message
        for key, message in found.items()
        if message.value()
        and key.startswith(f"{site.name}.".encode())
        and b"letters" not in key
        and b"late-rows" not in key
    }
    if not own:
        return None

    def write(is_there: bool) -> None:
        producer = Producer({"bootstrap.servers": site.bootstrap})
        for key, message in own.items():
            producer.produce(MARKERS, message.value() if is_there else None, key, partition=message.partition())
        producer.flush(30)

    write(is_there=False)
    site.undoing.append(lambda: write(is_there=True))
    return f"{len(own)} markers of topics are removed"


def topic_deleted(site: Site) -> str | None:
    """A target topic of the pipeline. It cannot be restored: the case ends there."""
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    found = [name for name in admin.list_topics(timeout=20).topics if name.startswith(f"{site.name}-")]
    others = ("in", "cities", "other", "more", "letters", "late")
    own = sorted(name for name in found if not name.endswith(others))
    if not own:
        return None
    name = site.chance.choice(own)
    admin.delete_topics([name], operation_timeout=20)[name].result()
    site.is_for_good = True
    return f"topic {name} is deleted"


def topic_made_anew(site: Site) -> str | None:
    """A target topic of the pipeline, recreated empty."""
    done = topic_deleted(site) if newest(site.checkpoint / "commits") is not None else None
    if done is None:
        return None
    name = done.split()[1]
    admin = AdminClient({"bootstrap.servers": site.bootstrap})  # without a name it would end before the answer
    admin.create_topics([NewTopic(name, 2, -1)])[name].result()
    return f"topic {name} is made anew, empty"


def source_made_anew(site: Site) -> str | None:
    """The source topic, deleted and recreated with at least as many records."""
    if newest(site.checkpoint / "commits") is None:
        return None
    name = f"{site.name}-in"
    messages = committed(site.bootstrap, name)
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    partitions = len(admin.list_topics(name, timeout=20).topics[name].partitions)
    admin.delete_topics([name], operation_timeout=20)[name].result()
    admin.create_topics([NewTopic(name, partitions, -1)])[name].result()
    producer = Producer({"bootstrap.servers": site.bootstrap})
    for message in [*messages, *messages, *messages[:1]][: len(messages) + site.chance.randrange(5)]:
        producer.produce(name, json.dumps({"id": -1}), message.key(), partition=message.partition())
    producer.flush(30)
    site.is_for_good = True
    return f"topic {name} is made anew"


def batch_folder(site: Site) -> Path | None:
    found = [each for each in site.folder.glob("*/ottla_batch=*") if each.parent.name != "state"]
    return max(found, key=lambda each: (each.parent.name, int(each.name.rpartition("=")[2])), default=None)


def in_batch_folder(site: Site, name: str) -> Path | None:
    folder = batch_folder(site)
    return folder / name if folder else None


def parent_of(path: Path | None) -> Path | None:
    return path.parent if path else None


def in_own(site: Site, pattern: str) -> Path | None:
    return site.pick(list(site.own.glob(pattern))) if site.own else None


NOTES = ("owner", "starting", "state-steps", "swept")
ACCIDENTS: dict[str, Accident] = {
    "checkpoint removed": lambda site: removed(site.checkpoint),
    "checkpoint renamed": lambda site: renamed(site.checkpoint, "checkpoint.old"),
    "checkpoint of another run": another_query,
    "checkpoint older": checkpoint_older,
    "stream's folder removed": lambda site: removed(site.kept),
    "stream's folder renamed": lambda site: renamed(site.kept, "elsewhere"),
    "stream's folder older": both_older,
    "all that is kept removed": lambda site: removed(site.kept.parent),
    "what the query kept removed": lambda site: removed(site.own),
    "what the query kept renamed": lambda site: renamed(site.own, f"query-{uuid.UUID(int=7)}"),
    "note removed": lambda site: removed(in_own(site, site.chance.choice(NOTES))),
    "note damaged": lambda site: damaged(site, in_own(site, site.chance.choice(NOTES))),
    "note older": lambda site: in_own_older(site, site.chance.choice(NOTES)),
    "staged rows older": lambda site: in_own_older(site, "sinks"),
    "staged rows removed": lambda site: removed(site.own and site.own / "sinks"),
    "manifest removed": lambda site: removed(in_own(site, "sinks/*/*/*/manifest.json")),
    "manifest damaged": lambda site: damaged(site, in_own(site, "sinks/*/*/*/manifest.json")),
    "letters' folder removed": lambda site: removed(site.own and site.own / "dead-letters"),
    "metadata removed": lambda site: removed(site.checkpoint / "metadata"),
    "offsets removed": lambda site: removed(site.checkpoint / "offsets"),
    "commits removed": lambda site: removed(site.checkpoint / "commits"),
    "newest offsets removed": lambda site: removed(newest(site.checkpoint / "offsets")),
    "newest offsets damaged": lambda site: damaged(site, newest(site.checkpoint / "offsets")),
    "older offsets removed": lambda site: removed(newest(site.checkpoint / "offsets", 1)),
    "newest commit removed": lambda site: removed(newest(site.checkpoint / "commits")),
    "newest commit damaged": lambda site: damaged(site, newest(site.checkpoint / "commits")),
    "older commit removed": lambda site: removed(newest(site.checkpoint / "commits", 1)),
    "newest batch removed": tail_removed,
    "state removed": state_removed,
    "state file removed": state_file_removed,
    "sources removed": lambda site: removed(site.checkpoint / "sources"),
    "ledger removed": ledger_removed,
    "ledger's newest row removed": ledger_row_removed,
    "ledger behind": ledger_behind,
    "table dropped": table_dropped,
    "database removed": lambda site: removed(site.folder / "rows.db"),
    "database older": database_older,
    "markers removed": markers_removed,
    "topic deleted": topic_deleted,
    "topic made anew": topic_made_anew,
    "source made anew": source_made_anew,
    "newest files removed": lambda site: removed(batch_folder(site)),
    "folder of files removed": lambda site: removed(parent_of(batch_folder(site))),
    "note of files removed": lambda site: removed(in_batch_folder(site, "_ottla")),
    "note of files damaged": lambda site: damaged(site, in_batch_folder(site, "_ottla")),
}
