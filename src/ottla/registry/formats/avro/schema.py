"""An Avro schema of the registry."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from ottla.registry.formats.avro.model import Type
from ottla.registry.formats.avro.parsing import Parser
from ottla.registry.formats.avro.printing import printed
from ottla.registry.formats.parsed import InvalidSchemaError, nodes_budget, read_json


class AvroSchema:
    kind = "AVRO"

    def __init__(self, root: Type, referenced: frozenset[str]) -> None:
        self.root = root
        self.referenced = referenced  # the full names that references define

    @cached_property
    def text(self) -> str:
        return printed(self.root, set(self.referenced))

    def normalized(self) -> str:
        return self.text


def parse(text: str, references: Mapping[str, str], *, is_new: bool = True) -> AvroSchema:
    parser = Parser(nodes_budget(), is_new=is_new)
    for name, reference in references.items():
        try:
            parser.type_of(read_json(reference, comments=True), "")
        except InvalidSchemaError as error:
            raise InvalidSchemaError(f"Reference {name}: {error}") from None
    referenced = frozenset(parser.types)
    root = parser.type_of(read_json(text, comments=True), "")
    return AvroSchema(root, referenced)
