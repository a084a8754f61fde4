"""Random Avro schemas, printed and compared by us and by Avro's Java, whose words the schema registry has to find.

Java's Avro comes with Spark's jars. It needs a compiler, which the Java of a package does not have.
"""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyspark
import pytest

from ottla.registry.formats import InvalidSchemaError
from ottla.registry.formats.avro.compatibility import AmbiguousFieldError, Comparison
from ottla.registry.formats.avro.schema import parse

PAIRS = 400
JARS = Path(pyspark.__file__).parent / "jars"
SOURCE = Path(__file__).parent / "java" / "AvroVerdicts.java"
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DEFAULTS = {"null": None, "boolean": True, "int": 1, "long": 2, "float": 1.5, "double": 2, "bytes": "x", "string": "s"}


class Schemas:
    """Makes schemas, and others that are nearly the same."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0
        self.names: list[str] = []

    def type(self, depth: int, namespace: str) -> Any:
        kind = self.random.random()
        if depth == 0 or kind < 0.4:
            if self.names and self.random.random() < 0.2:
                return self.random.choice(self.names)
            return self.random.choice((*PRIMITIVES, {"type": "int", "logicalType": "date", "unknown": 1}))
        if kind < 0.5:
            return {"type": "array", "items": self.type(depth - 1, namespace)}
        if kind < 0.6:
            return {"type": "map", "values": self.type(depth - 1, namespace)}
        if kind < 0.75:
            branches = {json.dumps(self.type(0, namespace)): None for _ in range(self.random.randint(1, 4))}
            return [json.loads(branch) for branch in branches]
        return self.named(depth, namespace)

    def named(self, depth: int, namespace: str) -> dict[str, Any]:
        self.count += 1
        result: dict[str, Any] = {"name": f"N{self.count}"}
        if self.random.random() < 0.3:
            result["namespace"] = namespace = self.random.choice(("a.b", "c"))
        if self.random.random() < 0.2:
            result["aliases"] = [self.random.choice(("N1", "N2", "a.b.N3", "X"))]
        result["type"] = self.random.choice(("record", "record", "enum", "fixed"))
        if namespace:
            self.names.append(f"{namespace}.{result['name']}")
        if result["type"] == "enum":
            result["symbols"] = self.random.sample("ABCD", self.random.randint(1, 4))
            if self.random.random() < 0.3:
                result["default"] = result["symbols"][0]
        elif result["type"] == "fixed":
            result["size"] = self.random.randint(1, 3)
        else:
            places = self.random.sample(range(6), self.random.randint(0, 4))
            result["fields"] = [self.field(f"f{place}", depth, namespace) for place in places]
        return result

    def field(self, name: str, depth: int, namespace: str) -> dict[str, Any]:
        result: dict[str, Any] = {"name": name, "type": self.type(depth - 1, namespace)}
        if isinstance(result["type"], str) and result["type"] in DEFAULTS and self.random.random() < 0.5:
            result["default"] = DEFAULTS[result["type"]]
        if self.random.random() < 0.2:
            result["aliases"] = [f"f{self.random.randint(0, 6)}"]
        return result

    def changed(self, value: Any) -> Any:
        chance = self.random.random()
        if isinstance(value, list):
            kept = [self.changed(each) for each in value]
            return kept[1:] if len(kept) > 1 and chance < 0.15 else kept
        if isinstance(value, dict):
            result = {key: self.changed(each) for key, each in value.items()}
            if chance < 0.08:
                result.pop("default", None)
            if chance < 0.04 and "name" in result:
                result["name"] += "x"
            if chance < 0.1 and "size" in result:
                result["size"] = 9
            return result
        return self.random.choice(PRIMITIVES) if value in PRIMITIVES and chance < 0.12 else value


def pairs() -> list[tuple[str, str]]:
    result = []
    for seed in range(PAIRS):
        schemas = Schemas(seed)
        reader = schemas.named(4, "")
        result.append((json.dumps(reader), json.dumps(schemas.changed(reader))))
    return result


def ours(reader: str, writer: str) -> list[str]:
    try:
        first, second = parse(reader, {}), parse(writer, {})
        found = Comparison().compare(first.root, second.root, ())
    except (InvalidSchemaError, AmbiguousFieldError):
        return ["refused"]
    return [first.text, second.text, *(f"{each.kind} {each.path} {each.message}" for each in found)]


def javas(asked: list[tuple[str, str]], folder: Path) -> list[list[str]]:
    jars = [path for name in ("avro-1", "jackson-", "slf4j-api") for path in JARS.glob(f"{name}*.jar")]
    questions, answers = folder / "questions", folder / "answers"
    questions.write_text("\n".join(" ".join(encoded(text) for text in pair) for pair in asked))
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, jars)), SOURCE, questions, answers]
    subprocess.run(command, check=True, capture_output=True)
    return [[base64.b64decode(each).decode() for each in line.split()] for line in answers.read_text().splitlines()]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a Java with its compiler")
def test_texts_and_verdicts_are_those_of_java(tmp_path: Path) -> None:
    asked = pairs()
    told = javas(asked, tmp_path)
    assert [ours(*pair) for pair in asked] == told
    assert sum(len(each) == 2 for each in told) > PAIRS // 10, "some fit"
    assert sum(len(each) > 2 for each in told) > PAIRS // 10, "some do not"
