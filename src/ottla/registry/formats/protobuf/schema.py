"""A Protobuf schema of the registry."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.registry.formats.parsed import NODES_MAX, TOO_LARGE, Budget, InvalidSchemaError, check_size, nodes_budget
from ottla.registry.formats.protobuf.checks import Checks
from ottla.registry.formats.protobuf.descriptors import from_base64
from ottla.registry.formats.protobuf.differences import Side, problems
from ottla.registry.formats.protobuf.known import known_file
from ottla.registry.formats.protobuf.model import File
from ottla.registry.formats.protobuf.names import Names
from ottla.registry.formats.protobuf.parsing import Parser
from ottla.registry.formats.protobuf.printing import printed, printed_normally

CHECKS_MAX = 10 * NODES_MAX


class ProtobufSchema:
    kind = "PROTOBUF"

    def __init__(self, file: File, names: Names) -> None:
        self.file = file
        self.names = names
        self.text = printed(file)

    def normalized(self) -> str:
        return printed_normally(self.file, self.names)

    def problems_reading(self, writer: ProtobufSchema) -> list[str]:
        return problems(Side(self.file, self.names), Side(writer.file, writer.names))


def parse(text: str, references: Mapping[str, str], *, is_new: bool = True) -> ProtobufSchema:
    budget = nodes_budget()
    file = read(text, budget)
    given = {name: read(reference, budget) for name, reference in references.items()}
    names = Names(file, imported(file, given))
    if not file.types:
        raise InvalidSchemaError("Protobuf schema definition contains no type definitions")
    if is_new:
        Checks(file, names, Budget(CHECKS_MAX, TOO_LARGE)).check()
    return ProtobufSchema(file, names)


def read(text: str, budget: Budget) -> File:
    check_size(text)
    try:
        return Parser(text, budget).parsed()
    except InvalidSchemaError:
        if (file := from_base64(text)) is None:
            raise
        return file


def imported(file: File, given: Mapping[str, File]) -> list[File]:
    """All files that may be needed, each once; what is neither given nor known is left out."""
    result: dict[str, File] = {}
    waiting = [*file.imports, *file.public_imports, *given]
    while waiting:
        name = waiting.pop()
        if name in result:
            continue
        found = given.get(name) or known_file(name)
        if found is not None:
            result[name] = found
            waiting += [*found.imports, *found.public_imports]
    return list(result.values())
