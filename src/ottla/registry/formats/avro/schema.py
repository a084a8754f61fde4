"""An Avro schema of the registry."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.registry.formats.avro.model import Type
from ottla.registry.formats.avro.parsing import Parser
from ottla.registry.formats.avro.printing import printed
from ottla.registry.formats.avro.reading import problems
from ottla.registry.formats.parsed import InvalidSchemaError, nodes_budget, read_json


class AvroSchema:
    kind = "AVRO"

    def __init__(self, root: Type, referenced: frozenset[str]) -> None:
        self.root = root
        self.referenced = referenced  # the full names of references
        self.text = printed(root, set(referenced))

    def normalized(self) -> str:
        return printed(self.root, set(self.referenced), is_normal=True)

    def problems_reading(self, writer: AvroSchema) -> list[str]:
        return problems(self.root, writer.root)


def parse(text: str, references: Mapping[str, str], *, is_new: bool = True) -> AvroSchema:
    parser = Parser(nodes_budget(), is_new=is_new)
    referenced: set[str] = set()
    for name, reference in references.items():
        try:
            # What stands inside of a reference is not told by its name: Java prints it again.
            referenced.add(parser.parsed(read_json(reference, comments=True)).full_name)
        except InvalidSchemaError as error:
            raise InvalidSchemaError(f"Reference {name}: {error}") from None
    return AvroSchema(parser.parsed(read_json(text, comments=True)), frozenset(referenced))
