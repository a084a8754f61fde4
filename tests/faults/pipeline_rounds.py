"""Rounds of kills over `ottla pipeline run`, and what its results must be: computed here, without Spark.

The input is fed while the command runs: clicks, some of them twice, some broken, and payments for some of them. One
query counts clicks in windows, with the country of a table; another joins clicks and payments. Event time goes on by a
second a click, and the watermark waits for ten minutes, so that nothing is ever late: whatever is missing was lost.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.pipelines.sink_helpers import committed

from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.groups import committed_offsets
from ottla.pipelines.spark.processes import children_of, command_of

START = 1_760_000_000
USERS = 20
COUNTRIES = ("fi", "se", "no")
PAGES = 5
WINDOW_S = 60
PARTITIONS = 2
RUN_SECONDS_MAX = 300.0
BATCHES_SECONDS_MAX = 90.0
QUIET_SECONDS_MAX = 15.0  # after a batch: then all that was fed is done

FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
streams:
  clicks:
    from: {{topic: {name}-clicks, max_per_batch: {per_batch}}}
    steps:
      - parse: {{format: json, schema: {{id: long, user: long, page: string, at: timestamp}}}}
      - rule: {{rules: {{known page: "page LIKE 'page-%'"}}}}
      - watermark: {{time: at, delay: 10 minutes}}
      - deduplicate: {{by: [id]}}
  payments:
    from: {{topic: {name}-payments, max_per_batch: {per_batch}}}
    steps:
      - parse: {{format: json, schema: {{click: long, amount: long, paid: timestamp}}}}
      - watermark: {{time: paid, delay: 10 minutes}}
  counts:
    from: clicks
    steps:
      - join: {{table: users.csv, on: [user]}}
      - window: {{size: {window} seconds, by: [country, page], count: clicks}}
    to:
      - {{topic: {name}-counts, key: page}}
      - {{sqlite: rows.db, table: counts}}
      - {{parquet: counts}}
  paid:
    from: clicks
    steps:
      - join: {{with_stream: payments, on: {{id: click}}, within: 5 minutes}}
    to:
      - {{topic: {name}-paid, key: page, columns: [id, amount]}}
      - {{sqlite: rows.db, table: paid, columns: [id, amount]}}
spark: {{spark.sql.shuffle.partitions: 2}}
"""

# It lives for seconds: what makes a JVM fast in the long run is not worth its start.
SHORT_LIVED = (
    "--set=spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "--set=spark.sql.codegen.wholeStage=false",
)

FORK_SERVER = "pipelines.spark.workers.server"
Victim = Literal["group", "driver", "java", "worker"]
Count = tuple[int, str, str, int]  # start of the window, country, page, clicks
Letter = tuple[str, int, int]  # topic, partition, offset


class Sent(NamedTuple):
    """A record, where it went, and what it is."""

    topic: str
    partition: int
    number: int
    value: str
    is_broken: bool


class PipelineRound:
    """One pipeline, its input, its starts and deaths, and the comparison at the end."""

    def __init__(self, bootstrap: str, folder: Path, clicks: int = 1200, seed: int = 1, per_batch: int = 300) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.name = f"round-{uuid.uuid4().hex[:8]}"
        self.chance = random.Random(seed)
        self.records = list(make_records(self.name, clicks, self.chance))
        self.starts = 0
        self.deaths: list[str] = []
        self.in_the_middle = 0  # of a batch that was planned and not done
        self.wanted = FILE.format(name=self.name, bootstrap=bootstrap, per_batch=per_batch, window=WINDOW_S)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "round.yaml").write_text(self.wanted)
        users = "".join(f"{user},{country_of(user)}\n" for user in range(USERS))
        (folder / "users.csv").write_text(f"user,country\n{users}")
        self._make_topics()
        self._feeder: threading.Thread | None = None

    def __repr__(self) -> str:
        deaths = f"{len(self.deaths)} deaths, {self.in_the_middle} in the middle of a batch"
        return f"PipelineRound({self.name}, {self.starts} starts, {deaths})"

    def _make_topics(self) -> None:
        wanted = [NewTopic(f"{self.name}-{kind}", PARTITIONS, -1) for kind in ("clicks", "payments")]
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for made in admin.create_topics(wanted).values():
            made.result()

    # feeding

    def feed(self, seconds: float = 0.0, part: int = 0, parts: int = 1) -> None:
        """Records in the order of time, all or one part of them, spread over so many seconds, while other things go on;
        a broker that is away is waited for."""
        if self._feeder is not None:
            self.fed()
        first, after = len(self.records) * part // parts, len(self.records) * (part + 1) // parts
        self._feeder = threading.Thread(target=self._feed, args=(self.records[first:after], seconds), daemon=True)
        self._feeder.start()

    def _feed(self, records: list[Sent], seconds: float) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "message.timeout.ms": 300_000}
        producer = Producer({**settings, "linger.ms": 5})
        for at, record in enumerate(records):
            producer.produce(record.topic, record.value, partition=record.partition)
            if at % 20 == 19:
                producer.flush(300)  # partitions stay close to each other
                time.sleep(20 * seconds / len(records))
        assert producer.flush(300) == 0

    def fed(self) -> None:
        assert self._feeder is not None
        self._feeder.join(600)
        assert not self._feeder.is_alive()

    # running

    def start(self, *words: str, master: str = "local[2]") -> subprocess.Popen[bytes]:
        self.starts += 1
        command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", "round.yaml", "--json"]
        command += ["--state", str(self.folder / "state"), "--master", master, *SHORT_LIVED, *words]
        with self.out.open("wb") as out, self.errors.open("wb") as errors:
            return subprocess.Popen(command, stdout=out, stderr=errors, cwd=self.folder, start_new_session=True)

    @property
    def out(self) -> Path:
        return self.folder / f"run-{self.starts}.out"

    @property
    def errors(self) -> Path:
        return self.folder / f"run-{self.starts}.err"

    def batches(self) -> int:
        """The number that the present run has reported."""
        return self.out.read_bytes().count(b'"event": "batch"')

    def kill(self, process: subprocess.Popen[bytes], victim: Victim, batches: int, delay_s: float) -> bool:
        """Kill -9 after so many batches and seconds, or when no more come; False if the run ended before."""
        deadline, seen = time.monotonic() + BATCHES_SECONDS_MAX, 0
        while (done := self.batches()) < batches and process.poll() is None and time.monotonic() < deadline:
            if done > seen:
                deadline, seen = time.monotonic() + QUIET_SECONDS_MAX, done
            time.sleep(0.01)
        time.sleep(delay_s)
        if process.poll() is not None:
            return False
        if not strike(process, victim):
            return True  # there was no process to kill: no worker is running
        self.deaths.append(victim)
        self.in_the_middle += self.has_open_batch()
        return True

    def has_open_batch(self) -> bool:
        """Whether a query has planned a batch that is not committed."""
        for checkpoint in (self.folder / "state" / self.name).glob("*/checkpoint"):
            planned, done = (
                {path.name for path in checkpoint.glob(f"{name}/[0-9]*")} for name in ("offsets", "commits")
            )
            if planned - done:
                return True
        return False

    def reap(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the end, which must come soon after the death of a part, then end what is left of the group."""
        try:
            return process.wait(RUN_SECONDS_MAX)
        finally:
            strike(process, "group")

    def killed_run(self, victim: Victim, batches: int, delay_s: float) -> None:
        """One start and one death; whatever it leaves behind, the next start begins at once."""
        process = self.start()
        try:
            self.kill(process, victim, batches, delay_s)
            process.wait(RUN_SECONDS_MAX)
            assert len(self.errors.read_text().splitlines()) <= 1, self.told()
        finally:
            if victim != "driver":
                strike(process, "group")

    def finish(self, runs: int = 1, master: str = "local[2]", words: tuple[str, ...] = ()) -> dict[str, Any]:
        """To the end of what is there: `--once`; what it said at the end."""
        self.fed()
        for _ in range(runs):
            process = self.start("--once", *words, master=master)
            if self.reap(process) == 0:
                break
        assert process.returncode == 0, self.told()
        assert "Traceback" not in self.errors.read_text(), self.told()
        return json.loads(self.out.read_text().splitlines()[-1])  # type: ignore[no-any-return]

    def told(self) -> str:
        return f"{self!r}\n{self.out.read_text()[-3000:]}\n{self.errors.read_text()[-3000:]}"

    # comparing

    def assert_exactly_once(self) -> None:
        """Row by row: what is missing, and what is there too often."""
        problems = [
            f"{name}: {(found - wanted).total()} of {wanted.total()} too many, such as {list(found - wanted)[:2]}, "
            f"{(wanted - found).total()} missing, such as {list(wanted - found)[:2]}"
            for name, found, wanted in self.compared()
            if found != wanted
        ]
        assert not problems, "\n".join([repr(self), *problems])

    def compared(self) -> Iterator[tuple[str, Counter[Any], Counter[Any]]]:
        counts, paid, letters = self.expected_counts(), self.expected_paid(), self.expected_letters()
        yield "topic of counts", Counter(map(count_of, self._values("counts"))), counts
        yield "table of counts", Counter(self._table("SELECT window_start, country, page, clicks FROM counts")), counts
        yield "files of counts", Counter(self._parquet()), counts
        yield "topic of paid", Counter((row["id"], row["amount"]) for row in self._values("paid")), paid
        yield "table of paid", Counter(self._table("SELECT id, amount FROM paid")), paid
        yield "dead letters", Counter(self._letters()), letters
        yield from ((f"group of {name}", *each) for name, each in self._groups().items())

    def expected_counts(self) -> Counter[Count]:
        counts: Counter[tuple[int, str, str]] = Counter()
        for click in self._clicks():
            if click["user"] < USERS:
                start = seconds_of(click["at"]) // WINDOW_S * WINDOW_S
                counts[start, country_of(click["user"]), click["page"]] += 1
        return Counter({(*key, number): 1 for key, number in counts.items() if key[0] < START + 50_000})

    def expected_paid(self) -> Counter[tuple[int, int]]:
        known = {click["id"] for click in self._clicks()}
        payments = [json.loads(each.value) for each in self._good("payments")]
        return Counter((each["click"], each["amount"]) for each in payments if each["click"] in known)

    def expected_letters(self) -> Counter[Letter]:
        return Counter((each.topic, each.partition, each.number) for each in self.records if each.is_broken)

    def _clicks(self) -> Iterable[dict[str, Any]]:
        """Each id once."""
        return {click["id"]: click for click in (json.loads(each.value) for each in self._good("clicks"))}.values()

    def _good(self, kind: str) -> Iterator[Sent]:
        return (each for each in self.records if each.topic.endswith(kind) and not each.is_broken)

    def _values(self, kind: str) -> list[dict[str, Any]]:
        return [json.loads(message.value()) for message in committed(self.bootstrap, f"{self.name}-{kind}")]

    def _letters(self) -> Iterator[Letter]:
        for message in committed(self.bootstrap, f"{self.name}-dead-letters"):
            headers = {key: value.decode() for key, value in message.headers()}
            yield headers["ottla.topic"], int(headers["ottla.partition"]), int(headers["ottla.offset"])

    def _table(self, query: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.folder / "rows.db") as database:
            rows = database.execute(query).fetchall()
        return [(seconds_of(row[0]), *row[1:]) if len(row) == 4 else row for row in rows]

    def _parquet(self) -> Iterator[Count]:
        import pyarrow.parquet as pq  # noqa: PLC0415 (takes time; not every round has files)

        for file in sorted((self.folder / "counts").rglob("*.parquet")):
            for row in pq.ParquetFile(file).read().to_pylist():
                yield int(row["window_start"].timestamp()), row["country"], row["page"], row["clicks"]

    def _groups(self) -> dict[str, tuple[Counter[TopicPartition], Counter[TopicPartition]]]:
        """The committed offsets of the groups, and the end offsets of the topics."""
        ends = Counter(TopicPartition(each.topic, each.partition) for each in self.records)
        clicks = Counter({place: end for place, end in ends.items() if place.topic.endswith("clicks")})
        found: dict[str, tuple[Counter[TopicPartition], Counter[TopicPartition]]] = {}
        with Client(self.bootstrap) as client:
            for stream, wanted in (("counts", clicks), ("paid", ends)):
                offsets = committed_offsets(client, f"ottla-pipeline-{self.name}.{stream}")
                found[stream] = Counter({place: each.offset for place, each in offsets.items()}), wanted
        return found


def make_records(name: str, clicks: int, chance: random.Random) -> Iterator[Sent]:
    """In the order in which they are sent. The last ones, of the next day, close every window."""
    numbers: Counter[tuple[str, int]] = Counter()

    def sent(kind: str, partition: int, value: str, is_broken: bool = False) -> Sent:
        numbers[kind, partition] += 1
        return Sent(f"{name}-{kind}", partition, numbers[kind, partition] - 1, value, is_broken)

    for at in range(clicks):
        user = chance.randrange(USERS + 2)  # two users that no table knows: the join drops them
        click = json.dumps({"id": at, "user": user, "page": f"page-{chance.randrange(PAGES)}", "at": text_of(at)})
        yield sent("clicks", at % PARTITIONS, click)
        if chance.random() < 0.1:
            yield sent("clicks", chance.randrange(PARTITIONS), click)  # the same once more
        if chance.random() < 0.05:
            yield sent("clicks", chance.randrange(PARTITIONS), f"broken {at}", is_broken=True)
        if chance.random() < 0.05:
            stranger = json.dumps({"id": -at, "user": user, "page": "elsewhere", "at": text_of(at)})
            yield sent("clicks", chance.randrange(PARTITIONS), stranger, is_broken=True)
        if chance.random() < 0.3:
            payment = json.dumps({"click": at, "amount": chance.randrange(1000), "paid": text_of(at + 5)})
            yield sent("payments", chance.randrange(PARTITIONS), payment)
        if chance.random() < 0.05:
            yield sent("payments", chance.randrange(PARTITIONS), f"[{at}", is_broken=True)
    for partition in range(PARTITIONS):
        at = 86_400 + partition
        last = json.dumps({"id": 10_000_000 + partition, "user": 0, "page": "page-0", "at": text_of(at)})
        yield sent("clicks", partition, last)
        yield sent("payments", partition, json.dumps({"click": -1, "amount": 0, "paid": text_of(at)}))


def strike(process: subprocess.Popen[bytes], victim: Victim) -> int:
    """Kill -9; how many processes were hit."""
    targets = victims(process.pid, victim) if process.poll() is None else []
    for pid in targets:
        _quietly(lambda pid=pid: os.kill(pid, signal.SIGKILL))  # type: ignore[misc]
    if victim == "group":  # what was started meanwhile
        _quietly(lambda: os.killpg(process.pid, signal.SIGKILL))
        process.wait(30)
    return len(targets)


def victims(driver: int, victim: Victim) -> list[int]:
    """`group` is everything that the command has started, in whatever process group it is, its parents first: Java and
    the fork server would else have time to notice, and so would their children."""
    if victim == "group":
        return family(driver)
    if victim == "driver":
        return [driver]
    if victim == "java":
        return [pid for pid in children_of(driver) if "java" in command_of(pid)]
    return python_workers(driver)


def family(pid: int) -> list[int]:
    """With all that descend from it."""
    return [pid, *(each for child in children_of(pid) for each in family(child))]


def python_workers(driver: int) -> list[int]:
    """The processes that work on tasks; their parents, split off from the fork server, wait for orders."""
    servers = [pid for pid in children_of(driver) if FORK_SERVER in command_of(pid)]
    return [pid for server in servers for daemon in children_of(server) for pid in children_of(daemon)]


def _quietly(kill: Callable[[], None]) -> None:
    with suppress(ProcessLookupError):  # it was faster
        kill()


def country_of(user: int) -> str:
    return COUNTRIES[user % len(COUNTRIES)]


def count_of(row: dict[str, Any]) -> Count:
    return seconds_of(row["window_start"]), row["country"], row["page"], row["clicks"]


def text_of(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START + second))


def seconds_of(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
