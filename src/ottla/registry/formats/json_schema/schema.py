"""A JSON Schema of the registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.registry.formats.java_json import in_order, java_json
from ottla.registry.formats.json_schema.differences import problems
from ottla.registry.formats.json_schema.documents import Documents
from ottla.registry.formats.json_schema.model import Node
from ottla.registry.formats.json_schema.parsing import Parser
from ottla.registry.formats.parsed import InvalidSchemaError, nodes_budget, read_json


class JsonSchema:
    kind = "JSON"

    def __init__(self, value: Any, documents: Documents, root: Node) -> None:
        self.value = value
        self.documents = documents  # nodes know each other by the identity of its objects
        self.root = root
        self.text = java_json(value)

    def normalized(self) -> str:
        return java_json(in_order(self.value))

    def problems_reading(self, writer: JsonSchema) -> list[str]:
        return problems(self.root, writer.root)


def parse(text: str, references: Mapping[str, str], *, is_new: bool = True) -> JsonSchema:
    value = read_json(text, exact=True)
    if not isinstance(value, dict | bool):
        raise InvalidSchemaError("Invalid JSON Schema: it is an object or a boolean")
    documents = Documents(value, references, nodes_budget())
    return JsonSchema(value, documents, Parser(documents, is_new=is_new).parsed(value))
