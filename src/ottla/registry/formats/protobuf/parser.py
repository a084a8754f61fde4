"""Parser of .proto files. Syntax only: validation.py checks names and numbers.

protoc cannot be used here: it resolves names and loses the original form, which the registry must return, and it reads
imports from files, which must not be reachable.
"""

from __future__ import annotations

import re

from ottla.registry.formats.protobuf.model import (
    ENUM_MAX,
    NUMBER_MAX,
    Call,
    Constant,
    Enum,
    Extend,
    Field,
    File,
    Group,
    Message,
    Oneof,
    Option,
    Service,
    Span,
    Value,
    Word,
)
from ottla.registry.formats.schema_format import DEPTH_MAX, InvalidSchemaError, StepLimit

# ---- tokens
TOKEN = re.compile(
    r"""
      (?P<space>    [\s\ufeff]+ | //[^\n]* | /\*(?s:.*?)\*/ )
    | (?P<text>     "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
    | (?P<name>     \.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)* )
    | (?P<number>   0[xX][0-9a-fA-F]+ | (?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]? )
    | (?P<symbol>   [{}\[\]()<>;,=:+/-] )
    """,
    re.VERBOSE,
)
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
END = ("end", "")


class Tokens:
    """A tokenizer; `kind` and `text` are those of the next token."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.place = 0
        self.kind, self.text = "", ""
        self.start = 0
        self.step()

    def step(self) -> None:
        while True:
            self.start = self.place
            if self.place == len(self.source):
                self.kind, self.text = END
                return
            found = TOKEN.match(self.source, self.place)
            if found is None:
                raise self.error(f"unexpected character {self.source[self.place]!r}")
            self.place = found.end()
            self.kind, self.text = found.lastgroup or "", found[0]
            if self.kind != "space":
                return

    def take(self, kind: str = "") -> str:
        if kind and self.kind != kind:
            raise self.error(f"expected a {kind} but was {self.text[:50]!r}")
        text = self.text
        self.step()
        return text

    def accept(self, text: str) -> bool:
        if self.text != text or self.kind == "text":
            return False
        self.step()
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected '{text}' but was {self.text[:50]!r}")

    def string(self) -> str:
        """Adjacent strings are concatenated."""
        parts = [unquoted(self.take("text"))]
        while self.kind == "text":
            parts.append(unquoted(self.take()))
        return "".join(parts)

    def integer(self) -> int:
        sign = -1 if self.accept("-") else 1
        text = self.take("number")
        try:
            if len(text) > 20:
                raise ValueError(text)
            if text[:2] in ("0x", "0X"):
                return sign * int(text, 16)
            return sign * int(text, 8 if text.startswith("0") else 10)
        except ValueError:
            raise self.error(f"expected an integer but was {text[:50]}") from None

    def error(self, problem: str) -> InvalidSchemaError:
        line = self.source.count("\n", 0, self.start) + 1
        column = self.start - self.source.rfind("\n", 0, self.start)
        return InvalidSchemaError(f"Could not parse Protobuf - Syntax error in :{line}:{column}: {problem}")


def unquoted(text: str) -> str:
    return ESCAPE.sub(unescaped, text[1:-1])


def unescaped(found: re.Match[str]) -> str:
    """An escaped byte above 0x7F becomes a lone surrogate, as in Python's surrogateescape."""
    code = found[1]
    if code[0] in "uU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number < 0x110000 else found[0]
    if code[0] == "x" or code[0] in "01234567":
        byte = int(code[1:], 16) if code[0] == "x" else int(code, 8) & 0xFF
        return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)
    return ESCAPED.get(code, code)


LABELS = ("required", "optional", "repeated")
SYNTAXES = ("proto2", "proto3")
NESTED_MAX = DEPTH_MAX // 4


class Parser:
    def __init__(self, text: str, budget: StepLimit) -> None:
        self.tokens = Tokens(text)
        self.budget = budget
        self.file = File()
        self.depth = 0

    def parsed(self) -> File:
        tokens, file = self.tokens, self.file
        is_first = True
        while tokens.kind != "end":
            self.budget.consume()
            if tokens.accept(";"):
                continue
            word = tokens.take("name")
            if word == "syntax":
                self.syntax(is_first=is_first)
            elif word == "package":
                if file.package:
                    raise tokens.error("too many package names")
                file.package = self.name()
                tokens.expect(";")
            elif word == "import":
                imports = file.public_imports if tokens.accept("public") else file.imports
                imports.append(tokens.string())
                tokens.expect(";")
            elif word == "option":
                file.options.append(self.option())
                tokens.expect(";")
            elif word == "message":
                file.types.append(self.message())
            elif word == "enum":
                file.types.append(self.enum())
            elif word == "extend":
                file.extends.append(self.extend())
            elif word == "service":
                file.services.append(self.service())
            else:
                raise tokens.error(f"unexpected label: {word}")
            is_first = False
        return file

    def syntax(self, *, is_first: bool) -> None:
        self.tokens.expect("=")
        syntax = self.tokens.string()
        if syntax not in SYNTAXES:
            raise self.tokens.error(f"unexpected syntax: {syntax[:50]}")
        if not is_first:
            raise self.tokens.error("'syntax' element must be the first declaration in a file")
        self.file.syntax = syntax
        self.tokens.expect(";")

    def name(self) -> str:
        name = self.tokens.take("name")
        if name.startswith("."):
            raise self.tokens.error(f"unexpected '.' in front of {name[1:50]}")
        return name

    def simple_name(self) -> str:
        name = self.tokens.take("name")
        if "." in name:
            raise self.tokens.error(f"expected a name without '.' but was {name[:50]}")
        return name

    def opened(self) -> None:
        self.tokens.expect("{")
        self.depth += 1
        if self.depth > NESTED_MAX:
            raise InvalidSchemaError(f"The schema is nested deeper than {NESTED_MAX}")

    def is_closed(self) -> bool:
        self.budget.consume()
        if not self.tokens.accept("}"):
            if self.tokens.kind == "end":
                raise self.tokens.error("unexpected end of file")
            return False
        self.depth -= 1
        return True

    def message(self, name: str = "") -> Message:
        result = Message(name or self.simple_name())
        self.opened()
        while not self.is_closed():
            if not self.tokens.accept(";"):
                self.member(result)
        return result

    def member(self, message: Message) -> None:
        tokens = self.tokens
        word = tokens.take("name")
        # Keywords may also be type names: a field continues with a name, these do not.
        if word == "message" and tokens.kind == "name":
            message.types.append(self.message())
        elif word == "enum" and tokens.kind == "name":
            message.types.append(self.enum())
        elif word == "option" and (tokens.kind == "name" or tokens.text == "("):
            message.options.append(self.option())
            tokens.expect(";")
        elif word == "oneof" and tokens.kind == "name":
            message.oneofs.append(self.oneof())
        elif word == "extend" and tokens.kind == "name":
            message.extends.append(self.extend())
        elif word == "reserved" and tokens.kind != "name":
            message.reserved.append(self.reserved(NUMBER_MAX))
        elif word == "extensions" and tokens.kind != "name":
            message.extensions.append(self.extensions())
        else:
            self.field(word, message.fields, message.groups)

    def field(self, word: str, fields: list[Field], groups: list[Group], *, in_oneof: bool = False) -> None:
        tokens = self.tokens
        label = ""
        if word in LABELS and (tokens.kind == "name" or tokens.text == "map"):
            label, word = word, tokens.take("name")
            if in_oneof:
                raise tokens.error(f"'{label}' label forbidden in a oneof")
            if label == "required" and self.file.syntax == "proto3":
                raise tokens.error("'required' label forbidden in proto3 field declarations")
        is_map = word == "map" and tokens.accept("<")
        if is_map:
            if label or in_oneof:
                raise tokens.error("a 'map' can neither have a label nor stand in a oneof")
            key = self.name()
            tokens.expect(",")
            word = f"map<{key}, {tokens.take('name')}>"
            tokens.expect(">")
        elif not label and not in_oneof and self.file.syntax != "proto3":
            raise tokens.error(f"unexpected label: {word[:50]}")
        name = self.simple_name()
        tokens.expect("=")
        number = tokens.integer()
        if word == "group" and tokens.text in ("{", "["):
            self.options()
            groups.append(Group(label, number, self.message(name)))
            return
        result = Field(label, word, name, number)
        self.field_options(result)
        tokens.expect(";")
        fields.append(result)

    def field_options(self, result: Field) -> None:
        for option in self.options():
            if option.name == "default" and not option.is_extension and not option.path:
                result.default = option.value
            elif option.name == "json_name" and not option.is_extension and not option.path:
                result.json_name = str(option.value)
            else:
                result.options.append(option)

    def oneof(self) -> Oneof:
        result = Oneof(self.simple_name())
        self.opened()
        while not self.is_closed():
            if self.tokens.accept(";"):
                continue
            word = self.tokens.take("name")
            if word == "option" and (self.tokens.kind == "name" or self.tokens.text == "("):
                result.options.append(self.option())
                self.tokens.expect(";")
            else:
                self.field(word, result.fields, result.groups, in_oneof=True)
        return result

    def enum(self) -> Enum:
        tokens = self.tokens
        result = Enum(self.simple_name())
        self.opened()
        while not self.is_closed():
            if tokens.accept(";"):
                continue
            word = self.simple_name()
            if word == "option" and (tokens.kind == "name" or tokens.text == "("):
                result.options.append(self.option())
            elif word == "reserved" and tokens.text != "=":
                result.reserved.append(self.reserved(ENUM_MAX))
                continue
            else:
                tokens.expect("=")
                result.constants.append(Constant(word, tokens.integer(), self.options()))
            tokens.expect(";")
        return result

    def extend(self) -> Extend:
        result = Extend(self.tokens.take("name"))
        self.opened()
        while not self.is_closed():
            if not self.tokens.accept(";"):
                self.field(self.tokens.take("name"), result.fields, result.groups)
        return result

    def service(self) -> Service:
        tokens = self.tokens
        result = Service(self.simple_name())
        self.opened()
        while not self.is_closed():
            if tokens.accept(";"):
                continue
            word = tokens.take("name")
            if word == "option":
                result.options.append(self.option())
                tokens.expect(";")
            elif word == "rpc":
                result.calls.append(self.call())
            else:
                raise tokens.error(f"unexpected label: {word[:50]}")
        return result

    def call(self) -> Call:
        tokens = self.tokens
        name = self.simple_name()
        request, is_request_stream = self.call_type()
        tokens.expect("returns")
        response, is_response_stream = self.call_type()
        result = Call(name, request, response, is_request_stream, is_response_stream)
        if tokens.text == "{":
            self.opened()
            while not self.is_closed():
                if not tokens.accept(";"):
                    tokens.expect("option")
                    result.options.append(self.option())
                    tokens.expect(";")
        else:
            tokens.expect(";")
        return result

    def call_type(self) -> tuple[str, bool]:
        self.tokens.expect("(")
        name = self.tokens.take("name")
        is_stream = name == "stream" and self.tokens.kind == "name"
        if is_stream:
            name = self.tokens.take("name")
        self.tokens.expect(")")
        return name, is_stream

    def reserved(self, limit: int) -> list[str | Span]:
        result: list[str | Span] = []
        while True:
            self.budget.consume()
            result.append(self.tokens.string() if self.tokens.kind == "text" else self.span(limit))
            if not self.tokens.accept(","):
                self.tokens.expect(";")
                return result

    def extensions(self) -> list[Span]:
        result: list[Span] = []
        while True:
            self.budget.consume()
            result.append(self.span(NUMBER_MAX))
            if not self.tokens.accept(","):
                break
        self.options()
        self.tokens.expect(";")
        return result

    def span(self, limit: int) -> Span:
        first = self.tokens.integer()
        if not self.tokens.accept("to"):
            return first, first
        return first, limit if self.tokens.accept("max") else self.tokens.integer()

    def options(self) -> list[Option]:
        """The bracketed options of a field; mostly there are none."""
        result: list[Option] = []
        if not self.tokens.accept("["):
            return result
        while True:
            result.append(self.option())
            if not self.tokens.accept(","):
                self.tokens.expect("]")
                return result

    def option(self) -> Option:
        tokens = self.tokens
        self.budget.consume()
        is_extension = tokens.accept("(")
        name = tokens.take("name")
        if is_extension:
            tokens.expect(")")
        path: list[str] = []
        if not is_extension and "." in name.lstrip("."):
            name, *path = name.split(".")
        while tokens.kind == "name" and tokens.text.startswith("."):
            path += tokens.take()[1:].split(".")
        tokens.expect("=")
        return Option(name, self.value(), is_extension, tuple(path))

    def value(self) -> Value:
        tokens = self.tokens
        self.budget.consume()
        if tokens.kind == "text":
            return tokens.string()
        if tokens.text in ("{", "<"):
            return self.map_value(tokens.take())
        if tokens.text == "[":
            return self.list_value()
        sign = "-" if tokens.accept("-") else ""
        tokens.accept("+")
        if tokens.kind not in ("name", "number"):
            raise tokens.error(f"expected a value but was {tokens.text[:50]!r}")
        return Word(sign + tokens.take())

    def map_value(self, opening: str) -> Value:
        """Repeated keys form a list of values."""
        tokens = self.tokens
        closing = "}" if opening == "{" else ">"
        self.enter_nesting()
        result: dict[str, Value] = {}
        lists: set[str] = set()
        while not tokens.accept(closing):
            key = self.key()
            has_colon = tokens.accept(":")
            if not has_colon and tokens.text not in ("{", "<", "["):
                raise tokens.error(f"expected ':' but was {tokens.text[:50]!r}")
            is_list = tokens.text == "["
            value = self.value()
            if key in result:
                if key not in lists:
                    result[key] = [result[key]]
                    lists.add(key)
                values = result[key]
                assert isinstance(values, list)
                values.extend(value if is_list and isinstance(value, list) else [value])
            else:
                result[key] = value
                if is_list:
                    lists.add(key)
            if not tokens.accept(","):
                tokens.accept(";")
        self.depth -= 1
        return result

    def key(self) -> str:
        tokens = self.tokens
        if not tokens.accept("["):
            return tokens.take("name")
        name = tokens.take("name")
        while tokens.accept("/"):
            name += "/" + tokens.take("name")
        tokens.expect("]")
        return f"[{name}]"

    def list_value(self) -> Value:
        tokens = self.tokens
        tokens.expect("[")
        self.enter_nesting()
        result: list[Value] = []
        while not tokens.accept("]"):
            result.append(self.value())
            if not tokens.accept(",") and tokens.text != "]":
                raise tokens.error(f"expected ',' or ']' but was {tokens.text[:50]!r}")
        self.depth -= 1
        return result

    def enter_nesting(self) -> None:
        self.depth += 1
        if self.depth > NESTED_MAX:
            raise InvalidSchemaError(f"The schema is nested deeper than {NESTED_MAX}")
