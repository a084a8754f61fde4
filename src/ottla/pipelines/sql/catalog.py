"""Which tables there are: those that were declared, and every topic whose samples tell its columns.

Samples are the first and the last records of a topic, read without Spark. What they told is kept for the session; a
topic that was empty is looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ottla.pipelines.model.inference import Guess, Inference, guess_format, infer
from ottla.pipelines.model.pipeline import Head as PipelineHead
from ottla.pipelines.model.pipeline import TopicSource
from ottla.pipelines.model.problems import did_you_mean
from ottla.pipelines.running.source_options import source_options, starting_options
from ottla.pipelines.source.cluster import open_cluster
from ottla.pipelines.source.options import Options, read_options
from ottla.pipelines.source.sampling import sample_values
from ottla.pipelines.sql.documents import Head
from ottla.pipelines.sql.tables import Table
from ottla.pipelines.steps.sql_tokens import SqlError

SAMPLES = 1000


class Catalog:
    """Raises SqlError for what was asked wrongly, SourceError if the cluster cannot tell."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.declared: dict[str, Table] = {}  # by name in small letters
        self.sampled: dict[str, Table] = {}

    def __repr__(self) -> str:
        return f"<Catalog {self.head.bootstrap} declared={sorted(self.declared)}>"

    def topics(self) -> dict[str, int]:
        """With the number of partitions."""
        cluster = open_cluster(self._options(None))
        try:
            partitions = cluster.partitions(self._options(None).subscription)
        finally:
            cluster.close()
        found: dict[str, int] = {}
        for place in partitions:
            found[place.topic] = found.get(place.topic, 0) + 1
        return found

    def names(self) -> dict[str, str]:
        """In small letters, as SQL compares them -> as they are written; a declared table hides a topic."""
        found = {name.lower(): name for name in self.topics()}
        return found | {key: table.name for key, table in self.declared.items()}

    def declare(self, table: Table, or_replace: bool = False, if_not_exists: bool = False) -> bool:
        """Whether it was new."""
        key = table.name.lower()
        if key in self.declared and not or_replace:
            if if_not_exists:
                return False
            raise SqlError(f"declares {table.name}, which there is already: write CREATE OR REPLACE TABLE")
        _check_start(table)
        if table.topic not in self.topics():
            raise SqlError(f"reads the topic {table.topic!r}, which does not exist at {self.head.bootstrap}")
        self.declared[key] = self._compared(table)
        self.sampled.pop(key, None)
        return True

    def drop(self, name: str, if_exists: bool) -> None:
        self.sampled.pop(name.lower(), None)
        if self.declared.pop(name.lower(), None) is None and not if_exists:
            raise SqlError(f"drops {name}, which was not declared here (topics are deleted with ottla topics delete)")

    def table(self, name: str) -> Table:
        """With its columns: as declared, or as samples tell them."""
        key = name.lower()
        table = self.declared.get(key) or self._of_topic(key)
        if not table.needs_samples:
            return table
        if key not in self.sampled:
            self.sampled[key] = self._sampled(table)
        return self.sampled[key]

    def _of_topic(self, key: str) -> Table:
        topics = self.topics()
        found = [topic for topic in topics if topic.lower() == key]
        if len(found) > 1:
            raise SqlError(
                f"reads {key}, which may be {' or '.join(sorted(found))}: declare one, CREATE TABLE a WITH (topic = …)"
            )
        if not found:
            known = [*(table.name for table in self.declared.values()), *topics]
            raise SqlError(f"reads {key}, which is no table and no topic; {did_you_mean(key, known)}")
        return Table(found[0], found[0], is_inferred=True)

    def _sampled(self, table: Table) -> Table:
        values = sample_values(self._options(table.topic), SAMPLES)
        present = [value for value in values if value is not None]
        if not present:
            raise SqlError(
                f"reads {table.name}, whose topic is empty: nothing tells its columns; "
                f"declare them, CREATE TABLE {table.name} (…)"
            )
        guess = guess_format(present) if table.is_inferred else _declared_guess(table)
        if guess.format == "binary":
            raise SqlError(
                f"reads {table.name}, whose records are neither JSON nor CSV nor text: declare it with a schema, "
                f"CREATE TABLE {table.name} WITH (format = 'avro', schema = 'file.avsc')"
            )
        found = infer(values, guess)
        if not found.schema:
            raise SqlError(f"reads {table.name}, of whose samples no column can be made: {_why(found)}")
        return replace(
            table,
            format=guess.format,
            columns=found.schema,
            parsing={**_parsing(guess), **table.parsing},
            is_inferred=True,
            remarks=(*found.remarks(), *(_rounded(found, found.schema) if guess.format == "json" else ())),
        )

    def _compared(self, table: Table) -> Table:
        """A column that no sample has would be null in every row, without a word: ksqlDB finds names in any case, JSON
        has them in one."""
        if table.format != "json" or not table.columns:
            return table
        found = infer(sample_values(self._options(table.topic), SAMPLES), _declared_guess(table))
        return replace(table, remarks=tuple(compare(table, found)))

    def _options(self, topic: str | None) -> Options:
        head = PipelineHead(name="ottla-sql", bootstrap_servers=self.head.bootstrap, client=dict(self.head.client))
        source = TopicSource(topic=[topic]) if topic else TopicSource(pattern=".*")
        return read_options(source_options(head, source, "earliest", None, None))


def _check_start(table: Table) -> None:
    """Else only EMIT CHANGES would tell."""
    try:
        starting_options(table.starting or "latest")
    except ValueError as wrong:
        raise SqlError(f"says where {table.name} begins, but {wrong}") from None


def compare(table: Table, found: Inference) -> list[str]:
    """What is to be told about a declaration, beside samples of its records. Raises SqlError."""
    present = {*found.schema, *found.left_out}
    missing = {*table.columns} - {*present, table.in_record_key} if present else set()
    written = {name.lower(): name for name in present}
    for name in table.columns:
        if name in missing and name.lower() in written:
            raise SqlError(f"has the column {name}, which its records call {written[name.lower()]}: write it so")
    told = [f"{name}: in none of {found.samples} samples, NULL there" for name in table.columns if name in missing]
    declared = {name.lower(): name for name in table.columns}
    others = {other: name for other in sorted(present) if (name := declared.get(other.lower(), other)) != other}
    told += [f"{other}: so some samples write {name}, which is NULL there" for other, name in others.items()]
    return [*told, *_rounded(found, table.columns)]


def _rounded(found: Inference, columns: Mapping[str, str]) -> list[str]:
    """Spark reads a number with a fraction as a double before it makes text of it."""
    mixed = {each.path for each in found.conflicts if "double" in each.counts}
    as_text = [name for name, kind in columns.items() if kind == "string"]
    lossy = [name for name in as_text if name in mixed or found.schema.get(name) == "double"]
    return [f"{name}: numbers as text are rounded (1.10 is 1.1); DECIMAL(38, 18) keeps digits" for name in lossy]


def _declared_guess(table: Table) -> Guess:
    return Guess(
        "csv" if table.format == "csv" else "json",
        "confluent" if table.parsing.get("encoding") == "confluent" else "raw",
        str(table.parsing.get("delimiter", ",")),
    )


def _parsing(guess: Guess) -> dict[str, object]:
    if guess.format == "csv":
        return {"delimiter": guess.delimiter}
    return {"encoding": guess.encoding} if guess.encoding != "raw" else {}


def _why(found: Inference) -> str:
    return "; ".join(found.remarks()) or "all are empty"
