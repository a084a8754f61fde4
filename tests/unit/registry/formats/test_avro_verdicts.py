"""Avro compatibility, by the schema resolution of Avro's specification."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.registry.formats.verdicts import Pair, judge

# Rows are writers, columns are readers.
PROMOTIONS = """
          null boolean int  long float double bytes string
null      yes  no      no   no   no    no     no    no
boolean   no   yes     no   no   no    no     no    no
int       no   no      yes  yes  yes   yes    no    no
long      no   no      no   yes  yes   yes    no    no
float     no   no      no   no   yes   yes    no    no
double    no   no      no   no   no    yes    no    no
bytes     no   no      no   no   no    no     yes   yes
string    no   no      no   no   no    no     yes   yes
"""


def promotions() -> dict[tuple[str, str], bool]:
    header, *rows = PROMOTIONS.strip("\n").splitlines()
    return {
        (row.split()[0], reader): verdict == "yes"
        for row in rows
        for reader, verdict in zip(header.split(), row.split()[1:], strict=True)
    }


@pytest.mark.parametrize(("writer", "reader"), promotions())
def test_a_reader_takes_what_can_be_turned_into_its_own_type(writer: str, reader: str) -> None:
    verdicts = promotions()
    backward = "" if verdicts[writer, reader] else "TYPE_MISMATCH"
    forward = "" if verdicts[reader, writer] else "TYPE_MISMATCH"
    judge("AVRO", json.dumps(writer), json.dumps(reader), backward, forward)


def record(*fields: dict[str, Any], name: str = "R", **rest: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **rest}


def field(name: str, kind: Any = "int", **rest: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **rest}


def enum(*symbols: str, name: str = "E", **rest: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **rest}


def fixed(size: int, name: str = "F", **rest: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **rest}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


MISSING = "READER_FIELD_MISSING_DEFAULT_VALUE"
TYPE, NAME, SIZE = "TYPE_MISMATCH", "NAME_MISMATCH", "FIXED_SIZE_MISMATCH"
SYMBOLS, BRANCH = "MISSING_ENUM_SYMBOLS", "MISSING_UNION_BRANCH"
A, B = field("a"), field("b", "string")
LIST = record(field("value"), field("next", ["null", "R"], default=None))

RECORDS = [
    Pair("nothing changes", record(A, B), record(A, B)),
    Pair("the order of fields", record(A, B), record(B, A)),
    Pair("a field with a default comes", record(A), record(A, field("b", default=1)), "", ""),
    Pair("a field without one comes", record(A), record(A, B), MISSING, ""),
    Pair("two fields without defaults come", record(A), record(A, B, field("c")), f"{MISSING} {MISSING}", ""),
    Pair("a field with a default goes", record(A, field("b", default=1)), record(A)),
    Pair("a field without one goes", record(A, B), record(A), "", MISSING),
    Pair("a default of null counts", record(A), record(A, field("b", ["null", "int"], default=None))),
    Pair("a union with null is no default", record(A), record(A, field("b", ["null", "int"])), MISSING, ""),
    Pair("a type is widened", record(A), record(field("a", "long")), "", TYPE),
    Pair("a type is narrowed", record(field("a", "double")), record(field("a", "float")), TYPE, ""),
    Pair("a type becomes another one", record(A), record(field("a", "string")), TYPE, TYPE),
    Pair("string and bytes read each other", record(B), record(field("b", "bytes"))),
    Pair("a field is renamed", record(A), record(field("x")), MISSING, MISSING),
    Pair("the new name tells the old one", record(A), record(field("x", aliases=["a"])), "", MISSING),
    Pair("a field of another name with a default", record(A), record(field("x", default=1)), "", MISSING),
    Pair("both tell each other's names", record(field("a", aliases=["x"])), record(field("x", aliases=["a"]))),
    Pair("the record is renamed", record(A), record(A, name="S"), NAME, NAME),
    Pair("its new name tells the old one", record(A), record(A, name="S", aliases=["R"]), "", NAME),
    Pair("the namespace does not count", record(A), record(A, namespace="elsewhere")),
    Pair("nor between two namespaces", record(A, namespace="here"), record(A, namespace="there")),
    Pair("documentation comes", record(A), record(field("a", doc="what it is"), doc="a record")),
    Pair("a default changes", record(field("a", default=1)), record(field("a", default=2))),
    Pair("the order of sorting", record(A), record(field("a", order="descending"))),
    Pair("properties that Avro does not know", record(A), record(field("a", owner="me"), team="us")),
    Pair("a logical type comes", record(A), record(field("a", {"type": "int", "logicalType": "date"}))),
    Pair("all fields go", record(A, B), record(), "", f"{MISSING} {MISSING}"),
    Pair("a record becomes a number", record(A), "int", TYPE, TYPE),
    Pair("a record becomes a map", record(A), mapping("int"), TYPE, TYPE),
    Pair(
        "a record inside gets a field",
        record(field("i", record(A, name="I"))),
        record(field("i", record(A, B, name="I"))),
        MISSING,
        "",
    ),
    Pair(
        "a record inside is renamed",
        record(field("i", record(A, name="I"))),
        record(field("i", record(A, name="J"))),
        NAME,
        NAME,
    ),
    Pair("a list of itself stays", LIST, LIST),
    Pair("a list of itself gets a field", LIST, record(*LIST["fields"], field("b")), MISSING, ""),
    Pair("a list of itself is widened", LIST, record(field("value", "long"), LIST["fields"][1]), "", TYPE),
    Pair(
        "field and record change", record(A), record(field("a", "string"), name="S"), f"{NAME} {TYPE}", f"{NAME} {TYPE}"
    ),
]

NAMED = [
    Pair("an enum gets a symbol", enum("A"), enum("A", "B"), "", SYMBOLS),
    Pair("an enum loses a symbol", enum("A", "B"), enum("A"), SYMBOLS, ""),
    Pair("symbols change their order", enum("A", "B"), enum("B", "A")),
    Pair("a symbol becomes another one", enum("A", "B"), enum("A", "C"), SYMBOLS, SYMBOLS),
    Pair("the default stands for symbols that went", enum("A", "B"), enum("A", default="A"), "", ""),
    Pair("the old default stands for new ones", enum("A", default="A"), enum("A", "B")),
    Pair("both have defaults", enum("A", "B", default="A"), enum("A", "C", default="A")),
    Pair("an enum is renamed", enum("A"), enum("A", name="G"), NAME, NAME),
    Pair("an enum tells its old name", enum("A"), enum("A", name="G", aliases=["E"]), "", NAME),
    Pair("an enum moves to a namespace", enum("A"), enum("A", namespace="n")),
    Pair("an enum becomes a string", enum("A"), "string", TYPE, TYPE),
    Pair("an enum becomes a number", enum("A"), "int", TYPE, TYPE),
    Pair(
        "an enum of a field gets a symbol",
        record(field("e", enum("A"))),
        record(field("e", enum("A", "B"))),
        "",
        SYMBOLS,
    ),
    Pair(
        "the default of an enum is none of its field",
        record(A),
        record(A, field("e", enum("A", default="A"))),
        TYPE,
        "",
    ),
    Pair("a fixed grows", fixed(4), fixed(8), SIZE, SIZE),
    Pair("a fixed is renamed", fixed(4), fixed(4, name="G"), NAME, NAME),
    Pair("a fixed is renamed and grows", fixed(4), fixed(8, name="G"), f"{NAME} {SIZE}", f"{NAME} {SIZE}"),
    Pair("a fixed tells its old name", fixed(4), fixed(4, name="G", aliases=["F"]), "", NAME),
    Pair("a fixed becomes bytes", fixed(4), "bytes", TYPE, TYPE),
    Pair("a fixed becomes an enum", fixed(4, name="E"), enum("A"), TYPE, TYPE),
]

COLLECTIONS = [
    Pair("items are widened", array("int"), array("long"), "", TYPE),
    Pair("items become others", array("int"), array("string"), TYPE, TYPE),
    Pair("values are widened", mapping("float"), mapping("double"), "", TYPE),
    Pair("values become others", mapping("int"), mapping("boolean"), TYPE, TYPE),
    Pair("an array becomes a map", array("int"), mapping("int"), TYPE, TYPE),
    Pair("an array becomes its item", array("int"), "int", TYPE, TYPE),
    Pair("arrays of arrays", array(array("int")), array(array("double")), "", TYPE),
    Pair("a map of records gets a field", mapping(record(A)), mapping(record(A, B)), MISSING, ""),
    Pair("an array of enums loses a symbol", array(enum("A", "B")), array(enum("A")), SYMBOLS, ""),
    Pair("items may be missing", array("int"), array(["null", "int"]), "", TYPE),
]

UNIONS = [
    Pair("a type becomes a union with itself", "int", ["null", "int"], "", TYPE),
    Pair("a union becomes one of its types", ["null", "int"], "int", TYPE, ""),
    Pair("a union of one type is that type", ["int"], "int"),
    Pair("a type becomes a union without it", "int", ["null", "string"], BRANCH, f"{TYPE} {TYPE}"),
    Pair("a union takes a narrower type", "int", ["null", "long"], "", f"{TYPE} {TYPE}"),
    Pair("a branch comes", ["null", "int"], ["null", "int", "string"], "", BRANCH),
    Pair("a branch goes", ["null", "int", "string"], ["null", "int"], BRANCH, ""),
    Pair("two branches go", ["null", "int", "string"], ["null"], f"{BRANCH} {BRANCH}", ""),
    Pair("branches change their order", ["null", "int"], ["int", "null"]),
    Pair("a branch is widened", ["null", "int"], ["null", "long"], "", BRANCH),
    Pair("a branch is narrowed", ["null", "double"], ["null", "float"], BRANCH, ""),
    Pair("a branch becomes another one", ["null", "int"], ["null", "boolean"], BRANCH, BRANCH),
    Pair("string and bytes as branches", ["null", "string"], ["null", "bytes"]),
    Pair("int has long and double to go to", ["int"], ["long", "double"], "", f"{BRANCH} {BRANCH}"),
    Pair(
        "a record of a union gets a field with a default",
        ["null", record(A)],
        ["null", record(A, field("b", default=1))],
    ),
    Pair("a record of a union gets a field without one", ["null", record(A)], ["null", record(A, B)], BRANCH, ""),
    Pair("a record of a union is renamed", ["null", record(A)], ["null", record(A, name="S")], BRANCH, BRANCH),
    Pair("an enum of a union gets a symbol", ["null", enum("A")], ["null", enum("A", "B")], "", BRANCH),
    Pair("a fixed of a union grows", ["null", fixed(1)], ["null", fixed(2)], BRANCH, BRANCH),
    Pair("an array of a union is widened", ["null", array("int")], ["null", array("long")], "", BRANCH),
    Pair("a map of a union becomes another", ["null", mapping("int")], ["null", mapping("string")], BRANCH, BRANCH),
    Pair("an empty union writes nothing", [], "int", "", BRANCH),
    Pair("a second record joins", [record(A)], [record(A), record(B, name="S")], "", BRANCH),
    Pair("the second record goes", [record(A), record(B, name="S")], [record(A)], BRANCH, ""),
    Pair("a record for each, by name", [record(A), record(B, name="S")], [record(B, name="S"), record(A)]),
    Pair("a field becomes optional", record(A), record(field("a", ["null", "int"], default=None)), "", TYPE),
    Pair("a field stops being optional", record(field("a", ["null", "int"])), record(A), TYPE, ""),
    Pair(
        "an optional field is widened",
        record(field("a", ["null", "int"])),
        record(field("a", ["null", "long"])),
        "",
        BRANCH,
    ),
    Pair(
        "an optional field is renamed",
        record(field("a", ["null", "int"], default=None)),
        record(field("b", ["null", "int"], default=None)),
    ),
    Pair("an optional list", LIST, record(field("value"), field("next", ["null", "R"], default=None, doc="the rest"))),
]

PAIRS = RECORDS + NAMED + COLLECTIONS + UNIONS


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.what)
def test_verdicts(pair: Pair) -> None:
    judge("AVRO", json.dumps(pair.old), json.dumps(pair.new), pair.backward, pair.forward)


def test_there_are_enough() -> None:
    assert len(promotions()) + len(PAIRS) > 150
