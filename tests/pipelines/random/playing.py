"""Plays a case with the real command and a real broker, and compares everything with the oracle after every run.

A run that ends with 0 must have made exactly what the oracle says. One that ends otherwise must say why in one line,
and must have written nothing if it was refused because of an accident; what the accident did is then undone, and the
next run must be right.
"""

from __future__ import annotations

import io
import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

import yaml
from confluent_kafka.admin import AdminClient, NewTopic
from tests.pipelines.random.accidents import ACCIDENTS, REMOVED, Site
from tests.pipelines.random.asking import CODE, make_plans
from tests.pipelines.random.cases import CITIES, Case, Query, Round
from tests.pipelines.random.changes import CHANGES
from tests.pipelines.random.failing import WORD, DiedError, failing, time_limit
from tests.pipelines.random.oracle import Ends, Evaluated, Logs, expected_dead
from tests.pipelines.random.places import World, differing, producer_for
from tests.pipelines.random.records import Record
from tests.pipelines.random.steps import CITIES as KNOWN_CITIES
from tests.pipelines.random.steps import FUNCTIONS
from tests.pipelines.sink_helpers import committed

from ottla.cli.main import main
from ottla.pipelines.running.checkpoint import parse_planned

RUN_SECONDS_MAX = 180
FATES = ("came", "kept", "filtered", "late", "dead", "made")


class Restarting(Protocol):
    """A broker that can die."""

    def kill9(self) -> None: ...
    def start(self) -> Any: ...


class Done(NamedTuple):
    """A run that has ended; `code` is None if it was killed."""

    code: int | None
    events: list[dict[str, Any]]
    errors: list[str]


class RefusedForGoodError(Exception):
    """The accident cannot be undone: a topic was deleted, or the batch was written by some sinks only."""


class WrongError(AssertionError):
    """A guarantee is broken."""


@dataclass
class Player:
    """One case. `run` is how the command is called; tests use a session of Spark that is there already."""

    case: Case
    world: World
    spark: Any
    broker: Restarting | None = None
    story: list[str] = field(default_factory=list)
    tally: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.logs: Logs = {topic: [[] for _ in range(count)] for topic, count in self.case.topics.items()}
        self.evaluated = [Evaluated(self.case, query) for query in self.case.queries]
        self.known: dict[str, int] = {}  # id of a query -> batches of it that the oracle has
        self.starts: set[tuple[str | None, int]] = set()  # id of a query, batch: with which runs began
        self.file = self.world.folder / "p.yaml"
        self.document = self.case.document(self.world)
        self.older: Path | None = None
        self.copies = 0
        self.is_cut = False  # the last run has died, and no other was since
        self.lasting: list[str] = []  # files that accidents removed without harm: a later run may need one of them

    def play(self) -> None:
        """Raises WrongError with all details of the failure."""
        try:
            self.prepare()
            for number, each in enumerate(self.case.rounds, start=1):
                self.story.append(f"round {number}: {each.told()}")
                self._play(each)
        except RefusedForGoodError:
            self.tally["refused for good"] += 1
        except (WrongError, TimeoutError) as wrong:
            raise WrongError(self.told(str(wrong))) from None
        finally:
            self._tally_rows()

    def _tally_rows(self) -> None:
        """What steps with state have made: one that never makes anything is not tested."""
        for each in self.evaluated:
            for stream, number, step in self.case.way(each.query):
                if step.has_state:
                    label = f"{stream} {number} {step.name}"
                    self.tally[f"rows of {type(step).__name__}"] += sum(counts[label].made for counts in each.counts)

    def told(self, wrong: str) -> str:
        text = yaml.safe_dump(self.document, sort_keys=False, allow_unicode=True, width=110)
        again = f"python -m tests.pipelines.random.play {self.case.seed} 1"
        return "\n".join([f"seed {self.case.seed}: {wrong}", text, *self.story, f"again: {again}"])

    def finish(self) -> None:
        """One run without accidents, and the comparison. Raises WrongError."""
        try:
            self._run_well("the last run")
        except (WrongError, TimeoutError) as wrong:
            raise WrongError(self.told(str(wrong))) from None

    def prepare(self) -> None:
        """Files and topics."""
        world = self.world
        world.folder.mkdir(parents=True, exist_ok=True)
        cities = "".join(f"{k},{city}\n" for k, city in KNOWN_CITIES.items())
        (world.folder / "cities.csv").write_text(f"k,city\n{cities}")
        (world.folder / "functions.py").write_text(FUNCTIONS + CODE)
        make_plans(world.folder / "plans.db")
        admin = AdminClient({"bootstrap.servers": world.bootstrap})
        wanted = [NewTopic(f"{world.name}-{topic}", count, -1) for topic, count in self.case.topics.items()]
        for made in admin.create_topics(wanted).values():
            made.result()
        if self.case.has_cities:
            records = [Record(0, k, json.dumps({"k": k, "city": city})) for k, city in KNOWN_CITIES.items()]
            self._produce({CITIES: records})

    def _produce(self, records: dict[str, list[Record]]) -> None:
        producer = producer_for(self.world.bootstrap)
        for topic, some in records.items():
            for record in some:
                producer.produce(f"{self.world.name}-{topic}", record.value, record.key, partition=record.partition)
        if producer.flush(60):
            raise TimeoutError("records are not taken")

    # a round

    def add(self, each: Round) -> None:
        """Produce its records."""
        records = {"in": each.records, **each.others}
        self._produce(records)
        for topic, some in records.items():
            for record in some:
                self.logs[topic][record.partition].append(record)
        for table in self.case.tables:
            for record in each.others.get(CITIES, []):
                table.known.pop(record.key or "", None)  # an unreadable record removes the row of its key
                if record.value is not None and record.value.startswith("{"):
                    table.known[record.key or ""] = json.loads(record.value)["city"]

    def _play(self, each: Round) -> None:
        self.add(each)
        if each.accident in CHANGES:
            self._change(each)
        elif each.accident:
            self._have_accident(each)
        elif each.point:
            self._fail(each)
        else:
            self._run_well("run")
        if not self.is_cut:
            self.older = self._copy()

    def _change(self, each: Round) -> None:
        assert each.accident is not None
        if self.is_cut:
            self._run_well("run before the change")
        what = CHANGES[each.accident](self.case, self.document, Random(each.dice))
        if what is None:
            self._run_well("run")
            return
        self.story.append(f"  {what}")
        before = self._contents()
        done = self._run()
        if done.code == 0:
            self._compare(done)
            return
        self._check_refusal(done, before, what)
        self.document = self.case.document(self.world)
        self._run_well("with the file as it was")

    def _have_accident(self, each: Round) -> None:
        assert each.accident is not None
        chance = Random(each.dice)
        query = chance.choice(self.case.queries)
        world = self.world
        kept = world.folder / "state" / world.name / query.name
        copy = self._copy()
        site = Site(world.name, world.bootstrap, world.folder, kept, self.older, chance)
        what = ACCIDENTS[each.accident](site)
        if what is None:
            self._run_well("run")
            return
        self.story.append(f"  {what}")
        self.tally[each.accident] += 1
        # What one query lacks in its state Spark finds out in its batch: the others may have done theirs.
        alone = query if each.accident == "state file removed" else None
        before = self._contents(alone) if "dropped" not in each.accident else None
        done = self._run()
        if done.code == 0:
            self.lasting += [what.removesuffix(REMOVED)] if what.endswith(REMOVED) else []
            self._compare(done)
            return
        self._check_refusal(done, None if site.is_for_good else before, what, alone)
        if site.is_for_good:
            raise RefusedForGoodError
        for undo in site.undoing:
            undo()
        self._put_back(copy, kept if alone else world.folder)
        self._run_well("after all was put back")

    def _fail(self, each: Round) -> None:
        assert each.point is not None
        with ExitStack() as stack:
            strike = stack.enter_context(self._broker_dying()) if each.kills_broker and self.broker else None
            reached = stack.enter_context(failing(each.point, each.hits, strike))
            done = self._run()
        self.tally["deaths" if reached[0] >= each.hits else "deaths that did not come"] += 1
        if done.code == 0:
            self._compare(done)
            return
        if strike is None and done.code is not None and not any(WORD in line for line in done.errors):
            raise WrongError(f"the run failed of itself: {done.errors}")
        self.is_cut = each.is_left
        if not each.is_left:
            self._run_well("next run")

    @contextmanager
    def _broker_dying(self) -> Iterator[Any]:
        broker = self.broker
        assert broker is not None
        threads: list[threading.Thread] = []

        def strike() -> None:
            broker.kill9()
            threads.append(threading.Thread(target=broker.start))
            threads[-1].start()

        yield strike
        for thread in threads:
            thread.join()

    def _run_well(self, what: str) -> None:
        done = self._run()
        if done.code != 0 and any(f"{path} is gone" in line for path in self.lasting for line in done.errors):
            raise RefusedForGoodError
        if done.code != 0:
            raise WrongError(f"{what}: ended with {done.code}: {done.errors}")
        self._compare(done)

    # running

    def _run(self) -> Done:
        self.file.write_text(yaml.safe_dump(self.document, sort_keys=False, allow_unicode=True))
        self.following = [self._following(each.query.name) for each in self.evaluated]
        self.starts.update(self.following)
        out, errors, begun = io.StringIO(), io.StringIO(), time.monotonic()
        words = ["pipeline", "run", str(self.file), "--once", "--json", "--state", str(self.world.folder / "state")]
        try:
            with redirect_stdout(out), redirect_stderr(errors), time_limit(RUN_SECONDS_MAX):
                code: int | None = main(words)
        except DiedError:
            code = None
        finally:
            for query in self.spark.streams.active:
                query.stop()
        told = errors.getvalue()
        if "Traceback" in told:
            raise WrongError(f"a traceback: {told}")
        events = [json.loads(line) for line in out.getvalue().splitlines()]
        self.story.append(f"  ran for {time.monotonic() - begun:.1f} s: {code} {told.strip()}")
        return Done(code, events, told.splitlines())

    def _following(self, stream: str) -> tuple[str | None, int]:
        """The id of the query, and the batch that it does next: the newest planned one, if that is not done."""
        folder = self.world.folder / "state" / self.world.name / stream / "checkpoint"
        done = max((int(each.name) for each in folder.glob("commits/[0-9]*")), default=-1)
        planned = max((int(each.name) for each in folder.glob("offsets/[0-9]*")), default=-1)
        try:
            identity = json.loads((folder / "metadata").read_text())["id"]
        except (OSError, ValueError, KeyError):
            identity = None
        return identity, planned if planned > done else planned + 1

    # comparing

    def _compare(self, done: Done) -> None:
        """Rows first: what is wrong in them matters more than a wrong account of them."""
        accounts = [
            account
            for each, before in zip(self.evaluated, self.following, strict=True)
            for account in self._follow(each, before, done)
        ]
        for each in self.evaluated:
            for place in each.query.places:
                problem = place.problem(self.world, each.batches)
                if problem:
                    raise WrongError(f"{each.query.name} to {place.label}: {problem}")
        world = self.world
        dead = expected_dead(self.evaluated) if self.case.sends_dead else Counter()
        self._compare_letters(f"{world.name}-dead-letters", dead)
        if self.case.sends_late:
            self._compare_letters(f"{world.name}-late", sum((each.late for each in self.evaluated), Counter()))
        if accounts:
            raise WrongError("; ".join(accounts))
        self.tally["comparisons"] += 1
        self.is_cut = False

    def _follow(self, each: Evaluated, before: tuple[str | None, int], done: Done) -> Iterator[str]:
        """Tell the oracle which batches were done; what is wrong in the account of the run."""
        folder = self.world.folder / "state" / self.world.name / each.query.name / "checkpoint"
        identity = json.loads((folder / "metadata").read_text())["id"]
        numbers = sorted(int(path.name) for path in folder.glob("offsets/[0-9]*"))
        for number in numbers:
            if number < self.known.get(identity, 0):
                continue
            if (identity, number) in self.starts:
                each.begin_run()
            self._add(each, (folder / "offsets" / str(number)).read_text(), number)
        self.known[identity] = max(self.known.get(identity, 0), numbers[-1] + 1)
        for topic in each.topics():
            wanted = {number: len(log) for number, log in enumerate(self.logs[topic]) if log}
            read = {number: end for number, end in each.ends.get(topic, {}).items() if end}
            if read != wanted:
                raise WrongError(f"{each.query.name} has read {topic} to {read}, and it ends at {wanted}")
        count = numbers[-1] + 1 - (before[1] if before[0] == identity else 0)
        expected = each.counted(count)
        query = next(query for query in done.events[-1]["queries"] if query["query"] == each.query.name)
        for step in query["steps"]:
            label = f"{step['stream']} {step['number']} {step['step']}"
            found, right = (
                {fate: step[fate] for fate in FATES},
                {fate: getattr(expected[label], fate) for fate in FATES},
            )
            if step["step"] == "sql" and 0 < found["late"] <= right["late"]:  # Spark counts groups there, not rows
                right |= {"late": found["late"], "kept": right["kept"] + right["late"] - found["late"]}
            if found != right:
                yield f"account of {each.query.name}, {label}, in {count} batches: {found}, not {right}"

    def _add(self, each: Evaluated, text: str, number: int) -> None:
        planned = parse_planned(number, text.splitlines())
        ends: Ends = {}
        for topic in each.topics():
            name = f"{self.world.name}-{topic}"
            ends[topic] = next((source[name] for source in planned.ends if source and name in source), {})
            before = each.ends.get(topic, {})
            if any(ends[topic].get(partition, 0) < end for partition, end in before.items()):
                raise WrongError(f"{each.query.name}: batch {number} goes back from {before} to {ends[topic]}")
        if number and planned.watermark_ms != each.following:
            raise WrongError(
                f"{each.query.name}: batch {number}: watermark {planned.watermark_ms}, not {each.following}"
            )
        each.add(self.logs, ends, self.world)

    def _compare_letters(self, topic: str, expected: Counter[Any]) -> None:
        found: Counter[Any] = Counter()
        known = AdminClient({"bootstrap.servers": self.world.bootstrap}).list_topics(timeout=20).topics
        for message in committed(self.world.bootstrap, topic) if topic in known else ():
            told = {key.removeprefix("ottla."): value.decode() for key, value in message.headers()}
            found[(told["topic"], int(told["partition"]), int(told["offset"])), told["step"]] += 1
        problem = differing(found - expected, expected - found, expected)
        if problem:
            raise WrongError(f"letters in {topic}: {problem}")

    def _contents(self, alone: Query | None = None) -> list[Counter[Any]]:
        found = []
        for query in [alone] if alone else self.case.queries:
            for place in query.places:
                try:
                    found.append(place.found(self.world))
                except Exception:  # noqa: BLE001 (the accident has taken it away)
                    found.append(Counter())
        return found

    def _check_refusal(
        self, done: Done, before: list[Counter[Any]] | None, what: str, alone: Query | None = None
    ) -> None:
        self.tally["refusals"] += 1
        if len(done.errors) != 1:
            raise WrongError(f"{what}: one line was expected: {done.errors}")
        if "Error" in done.errors[0] or "Exception" in done.errors[0] or len(done.errors[0]) > 900:
            raise WrongError(f"{what}: a line for a person was expected: {done.errors}")
        if before is not None and self._contents(alone) != before:
            if self.is_cut:
                raise RefusedForGoodError
            raise WrongError(f"{what}: the run was refused, and had written: {done.errors}")

    # copies of what is kept

    def _copy(self) -> Path:
        self.copies += 1
        target = self.world.folder.with_name(f"{self.world.folder.name}.{self.copies}")
        shutil.copytree(self.world.folder, target)
        return target

    def _put_back(self, copy: Path, folder: Path) -> None:
        shutil.rmtree(folder)
        shutil.copytree(copy / folder.relative_to(self.world.folder), folder)
