"""Compatibility of Avro schemas: whether data of the writer's schema can be read, by Avro's schema resolution.

Order of checks, paths and messages are those of Java's `SchemaCompatibility`, because the registry returns them. Each
pair of types is compared once, so recursive types terminate.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.registry.formats.avro.model import PRIMITIVES, Field, Type
from ottla.registry.formats.avro.printer import printed
from ottla.registry.formats.schema_format import StepLimit

STEPS_MAX = 200_000
# Writer types that a reader type accepts by promotion.
PROMOTIONS = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
DESCRIPTIONS = {
    "FIXED_SIZE_MISMATCH": (
        "The size of FIXED type field at path '{path}' in the %s schema does not match with the %s schema"
    ),
    "TYPE_MISMATCH": "The type (path '{path}') of a field in the %s schema does not match with the %s schema",
    "NAME_MISMATCH": "The name of the schema has changed (path '{path}')",
    "MISSING_ENUM_SYMBOLS": ("The %s schema is missing enum symbols '{message}' at path '{path}' in the %s schema"),
    "MISSING_UNION_BRANCH": ("The %s schema is missing a type inside a union field at path '{path}' in the %s schema"),
    "READER_FIELD_MISSING_DEFAULT_VALUE": (
        "The field '{message}' at path '{path}' in the %s schema has no default value and is missing in the %s schema"
    ),
}


@dataclass(frozen=True, slots=True)
class Difference:
    kind: str
    path: str
    message: str

    def told(self) -> str:
        # Two %s remain, for the caller that knows which schema is the new one.
        description = DESCRIPTIONS[self.kind].format(path=self.path, message=self.message)
        return f"{{errorType:'{self.kind}', description:'{description}', additionalInfo:'{self.message}'}}"


class AmbiguousFieldError(Exception):
    """A reader field matches several writer fields by name and aliases."""


def problems(reader: Type, writer: Type) -> list[str]:
    try:
        return [each.told() for each in Comparison().compare(reader, writer, ())]
    except AmbiguousFieldError as error:
        return [f"Unexpected exception during compatibility check: {error}"]


class Comparison:
    def __init__(self) -> None:
        self.known: dict[tuple[int, int], list[Difference]] = {}
        self.budget = StepLimit(STEPS_MAX, "The schemas are too large to be compared")

    def compare(self, reader: Type, writer: Type, path: tuple[str, ...]) -> list[Difference]:
        if reader.type == writer.type and reader.type in PRIMITIVES:
            return []
        pair = (id(reader), id(writer))
        if (found := self.known.get(pair)) is None:
            self.budget.consume()
            self.known[pair] = []  # recursion: assume compatible
            found = self.known[pair] = self.compare_types(reader, writer, path)
        return found

    def compare_types(self, reader: Type, writer: Type, path: tuple[str, ...]) -> list[Difference]:
        if reader.type == writer.type:
            return self.same_kind(reader, writer, path)
        if writer.type == "union":
            return [
                each
                for place, branch in enumerate(writer.branches)
                for each in self.compare(reader, branch, (*path, str(place)))
            ]
        if reader.type == "union":
            if any(not self.compare(branch, writer, path) for branch in reader.branches):
                return []
            return [missing_branch(writer, path)]
        if writer.type in PROMOTIONS.get(reader.type, ()):
            return []
        message = f"reader type: {reader.type.upper()} not compatible with writer type: {writer.type.upper()}"
        return [difference("TYPE_MISMATCH", path, message)]

    def same_kind(self, reader: Type, writer: Type, path: tuple[str, ...]) -> list[Difference]:
        match reader.type:
            case "array" | "map":
                assert reader.items is not None
                assert writer.items is not None
                part = "items" if reader.type == "array" else "values"
                return self.compare(reader.items, writer.items, (*path, part))
            case "union":
                return [
                    missing_branch(branch, (*path, str(place)))
                    for place, branch in enumerate(writer.branches)
                    if self.compare(reader, branch, (*path, str(place)))
                ]
            case "fixed":
                return names(reader, writer, path) + sizes(reader, writer, path)
            case "enum":
                self.budget.consume(len(writer.symbols) // 10)
                return names(reader, writer, path) + symbols(reader, writer, path)
            case "record":
                return names(reader, writer, path) + self.fields(reader, writer, path)
            case _:
                return []

    def fields(self, reader: Type, writer: Type, path: tuple[str, ...]) -> list[Difference]:
        result: list[Difference] = []
        written = writer.fields_by_name()
        self.budget.consume(len(reader.fields))
        for place, each in enumerate(reader.fields):
            other = writer_field(reader, place, written, writer) if each.aliases else written.get(each.name)
            if other is not None and other.type.type == each.type.type and each.type.type in PRIMITIVES:
                continue  # fast path for most fields
            here = (*path, "fields", str(place))
            if other is not None:
                result += self.compare(each.type, other.type, (*here, "type"))
            elif each.has_default:
                continue
            elif each.type.type == "enum" and each.type.default is not None:
                # An enum default applies to unknown symbols, not to a missing field. Java yields this difference.
                result += self.compare(each.type, writer, (*here, "type"))
            else:
                result.append(difference("READER_FIELD_MISSING_DEFAULT_VALUE", here, each.name))
        return result


def writer_field(reader: Type, place: int, written: dict[str, Field], writer: Type) -> Field | None:
    """The writer field with the reader field's name or one of its aliases."""
    field = reader.fields[place]
    found = [written[name] for name in (field.name, *field.aliases) if name in written]
    if len(found) > 1:
        raise AmbiguousFieldError(
            f"Reader record field {field.name} type:{field.type.type.upper()} pos:{place} "
            f"matches multiple fields in writer record schema {printed(writer, set())}"
        )
    return found[0] if found else None


def names(reader: Type, writer: Type, path: tuple[str, ...]) -> list[Difference]:
    """Namespaces may differ; an alias of the reader is a full name."""
    if reader.name == writer.name or writer.full_name in reader.aliases:
        return []
    return [difference("NAME_MISMATCH", (*path, "name"), f"expected: {writer.full_name}")]


def sizes(reader: Type, writer: Type, path: tuple[str, ...]) -> list[Difference]:
    if reader.size == writer.size:
        return []
    message = f"expected: {writer.size}, found: {reader.size}"
    return [difference("FIXED_SIZE_MISMATCH", (*path, "size"), message)]


def symbols(reader: Type, writer: Type, path: tuple[str, ...]) -> list[Difference]:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.default is not None:
        return []
    return [difference("MISSING_ENUM_SYMBOLS", (*path, "symbols"), f"[{', '.join(missing)}]")]


def missing_branch(writer: Type, path: tuple[str, ...]) -> Difference:
    return difference("MISSING_UNION_BRANCH", path, f"reader union lacking writer type: {writer.type.upper()}")


def difference(kind: str, path: tuple[str, ...], message: str) -> Difference:
    return Difference(kind, "/" + "/".join(path), message)
