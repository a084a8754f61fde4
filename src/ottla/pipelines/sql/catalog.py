"""The catalog of tables: declared ones, and topics whose columns are inferred from samples.

Samples are the first and the last records of a topic, read without Spark. The result is cached for the session. An
empty topic is sampled again at the next use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.model.inference import FormatGuess, InferredSchema, guess_format, infer_schema
from ottla.pipelines.model.pipeline import PipelineFields as PipelineHead
from ottla.pipelines.model.pipeline import TopicSource
from ottla.pipelines.model.problems import did_you_mean
from ottla.pipelines.running.source_options import source_options, starting_options
from ottla.pipelines.source.cluster import open_cluster
from ottla.pipelines.source.options import Options, read_options
from ottla.pipelines.source.range_reader import sample_values
from ottla.pipelines.sql.documents import Head
from ottla.pipelines.sql.tables import Table

SAMPLES = 1000


class Catalog:
    """Find, declare and drop tables. Raises SqlError for a wrong statement, SourceError if the cluster does not
    answer."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.declared: dict[str, Table] = {}  # by lower-case name
        self.sampled: dict[str, Table] = {}

    def __repr__(self) -> str:
        return f"<Catalog {self.head.bootstrap} declared={sorted(self.declared)}>"

    def topics(self) -> dict[str, int]:
        """Return each topic with its number of partitions."""
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
        """Map names in lower case, as SQL compares them, to names as written. A declared table hides a topic of its
        name."""
        found = {name.lower(): name for name in self.topics()}
        return found | {key: table.name for key, table in self.declared.items()}

    def declare(self, table: Table, or_replace: bool = False, if_not_exists: bool = False) -> bool:
        """Declare a table. Return whether it was new."""
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
        """Return a table with its columns, as declared or as inferred from samples."""
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
            raise SqlError(f"reads {key}, which is neither a table nor a topic; {did_you_mean(key, known)}")
        return Table(found[0], found[0], is_inferred=True)

    def _sampled(self, table: Table) -> Table:
        values = sample_values(self._options(table.topic), SAMPLES)
        present = [value for value in values if value is not None]
        if not present:
            raise SqlError(
                f"reads {table.name}, whose topic is empty, so its columns are unknown: "
                f"declare them, CREATE TABLE {table.name} (…)"
            )
        guess = guess_format(present) if table.is_inferred else _declared_guess(table)
        if guess.format == "binary":
            raise SqlError(
                f"reads {table.name}, whose records are neither JSON nor CSV nor text: declare it with a schema, "
                f"CREATE TABLE {table.name} WITH (format = 'avro', schema = 'file.avsc')"
            )
        found = infer_schema(values, guess)
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
        """Compare a declaration with samples. A column that no sample has would silently be null in every row: ksqlDB
        matches names in any case, JSON is case-sensitive."""
        if table.format != "json" or not table.columns:
            return table
        found = infer_schema(sample_values(self._options(table.topic), SAMPLES), _declared_guess(table))
        return replace(table, remarks=tuple(compare(table, found)))

    def _options(self, topic: str | None) -> Options:
        head = PipelineHead(name="ottla-sql", bootstrap_servers=self.head.bootstrap, client=dict(self.head.client))
        source = TopicSource(topic=[topic]) if topic else TopicSource(pattern=".*")
        return read_options(source_options(head, source, "earliest", None, None))


def _check_start(table: Table) -> None:
    """Check the start here; otherwise only EMIT CHANGES would report the error."""
    try:
        starting_options(table.starting or "latest")
    except ValueError as wrong:
        raise SqlError(f"says where {table.name} begins, but {wrong}") from None


def compare(table: Table, found: InferredSchema) -> list[str]:
    """Return remarks on a declaration, compared with samples of the topic's records. Raises SqlError."""
    present = {*found.schema, *found.omitted}
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


def _rounded(found: InferredSchema, columns: Mapping[str, str]) -> list[str]:
    """Find text columns that hold fractions: Spark reads such a number as a double before it converts it to text."""
    mixed = {each.path for each in found.conflicts if "double" in each.counts}
    as_text = [name for name, kind in columns.items() if kind == "string"]
    lossy = [name for name in as_text if name in mixed or found.schema.get(name) == "double"]
    return [f"{name}: numbers as text are rounded (1.10 is 1.1); DECIMAL(38, 18) keeps digits" for name in lossy]


def _declared_guess(table: Table) -> FormatGuess:
    return FormatGuess(
        "csv" if table.format == "csv" else "json",
        "confluent" if table.parsing.get("encoding") == "confluent" else "raw",
        str(table.parsing.get("delimiter", ",")),
    )


def _parsing(guess: FormatGuess) -> dict[str, object]:
    if guess.format == "csv":
        return {"delimiter": guess.delimiter}
    return {"encoding": guess.encoding} if guess.encoding != "raw" else {}


def _why(found: InferredSchema) -> str:
    return "; ".join(found.remarks()) or "all are empty"
