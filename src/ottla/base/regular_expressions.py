"""Regular expressions that come from outside: of clients, operators and files. No other module compiles those.

They are RE2's, whose time to match grows with the text and never faster. The time to compile is not bounded that way,
and RE2 holds the interpreter's lock meanwhile: a few characters may stand for a program of gigabytes. So a pattern is
measured before RE2 sees it (`check_size`), and the compiled program has a limit as well.

Rules:
1. A compiled pattern captures groups only if its user needs them: a match with groups costs their number as well.
2. Nothing is kept here. RE2's wrapper would keep the last 128 patterns with up to 8 MB each.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import re2

from typing import NamedTuple

__all__ = [
    "CLIENT",
    "OPERATOR",
    "AsciiPattern",
    "PatternError",
    "SizeLimits",
    "compile_java_pattern",
    "compile_pattern",
    "is_readable",
    "literal_pattern",
    "topic_pattern_problem",
]


# What RE2 needs to compile a pattern, counted before RE2 sees it: one look at each part, and no copies of any.
#
# Two things take time. Each character and class is copied as often as the repetitions around it say. And for each place
# where the program may stand, RE2 lists what may come next and looks at what leads there: n optional parts in a row are
# n lists of up to n entries, and n loops that end in one place are looked at n times each.
#
# A part is described by five numbers:
# - first: how many characters and classes may look at its beginning.
# - ends: from how many places what follows may begin.
# - can_be_empty: whether what follows may take its place.
# - exits: from how many places an optional part or a loop leads to its end.
# - cost: time to compile it, in steps of about two nanoseconds.
#
# What is no pattern at all is left to RE2, which has the words for it.
class SizeLimits(NamedTuple):
    """What a pattern may come to."""

    length: int  # in characters
    depth: int  # of brackets
    parts: int
    cost: int
    memory_bytes: int  # of RE2, for program and states together


CLIENT: Final = SizeLimits(32_768, 200, 3_000, 2_600_000, 8 << 20)  # some milliseconds: others wait meanwhile
OPERATOR: Final = SizeLimits(200_000, 1_000, 200_000, 100_000_000, 64 << 20)  # of who runs the process as well
LEAF_COST: Final = 100  # an instruction that looks at a character
ANY_LEAVES: Final = 8  # instructions for any character, if it may have several bytes
NARROW_LEAVES: Final = 2  # and if it has one
FOLDED_LEAVES: Final = 4  # for a letter in either case
UNICODE_COST: Final = 240_000  # a class such as \pL, which has hundreds of ranges

_CHARACTER: Final = r"(?:[^\\()\[\]{}*+?|^$]|\\[^a-zA-Z0-9])(?![*+?{])"
_REPETITION: Final = r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??"
_PART: Final = re.compile(
    rf"""(?P<names>(?:(?:{_CHARACTER})*+(?:\.[*+])?\|)+)
      | (?P<text>(?:{_CHARACTER})++)
      | (?P<flags>(?:\(\?[a-zA-Z-]*\)|\\Q\\E)++)(?P<again>{_REPETITION})?
      | (?P<opening>\((?:\?(?:P?<[^>]*>|[a-zA-Z-]*:))?)
      | (?P<bar>\|)
      | (?:(?P<one>\)
         | \[\^?\]?(?:\[:\^?\w*:\]|\\.|[^\]\\])*+\]?
         | \\[pP](?:\{{[^}}]*\}}?|.)?
         | \\Q.*?(?:\\E|\Z)
         | \\.|.)
        ) (?P<repetition>{_REPETITION})?""",
    re.VERBOSE | re.DOTALL,
)
_FOLDING: Final = re.compile(r"\(\?[a-zA-Z-]*i")


class PatternTooLargeError(ValueError):
    """What is too much about a pattern."""


class PatternExtent(NamedTuple):
    """The five numbers of a part."""

    first: int
    ends: int
    can_be_empty: bool
    exits: int
    cost: int


EMPTY: Final = PatternExtent(0, 0, True, 0, 0)


class _GroupExtent:
    """An open bracket: the branches that are complete, and the one that is read."""

    __slots__ = ("_branches", "_can_be_empty", "_ends", "_exits", "_first", "cost")

    def __init__(self) -> None:
        self._branches: PatternExtent | None = None
        self.cost = 0
        self._begin()

    def _begin(self) -> None:
        self._first = self._ends = self._exits = 0
        self._can_be_empty = True

    def follow(self, part: PatternExtent) -> None:
        """One part more in the branch. RE2 makes one repetition of equal ones in a row, so their exits add up."""
        first, ends, can_be_empty, exits, cost = part
        self.cost += cost + self._ends * first + 2 * self._exits * exits
        if self._can_be_empty:
            self._first += first
        self._can_be_empty = self._can_be_empty and can_be_empty
        self._ends = self._ends + ends if can_be_empty else ends
        self._exits = self._exits + exits if exits else 0

    def end_branch(self) -> None:
        self.add_branches(PatternExtent(self._first, self._ends, self._can_be_empty, self._exits, 0))
        self._begin()

    def add_branches(self, more: PatternExtent) -> None:
        """Branches end in one place: only what may end earlier in each of them counts for itself."""
        known = self._branches
        self.cost += more.cost
        if known is None:
            self._branches = more
            return
        self.cost += LEAF_COST + 2 * known.exits * more.exits
        self._branches = PatternExtent(
            known.first + more.first,
            1 + max(known.ends - 1, 0) + max(more.ends - 1, 0),
            known.can_be_empty or more.can_be_empty,
            known.exits + more.exits,
            0,
        )

    def whole(self) -> PatternExtent:
        self.end_branch()
        assert self._branches is not None
        return self._branches._replace(cost=self.cost)


def check_size(pattern: str, limits: SizeLimits = CLIENT, is_narrow: bool = False, is_case_blind: bool = False) -> None:
    """Raises PatternTooLargeError. A narrow pattern is compiled for characters of one byte."""
    if len(pattern) > limits.length:
        raise PatternTooLargeError(f"longer than {limits.length} characters")
    is_folding = not is_narrow and (is_case_blind or _FOLDING.search(pattern) is not None)
    letter_cost = LEAF_COST * FOLDED_LEAVES if is_folding else LEAF_COST
    reader = _ExtentReader(NARROW_LEAVES if is_narrow else ANY_LEAVES, letter_cost)
    for count, part in enumerate(_PART.finditer(pattern)):
        if reader.take(part) > limits.cost or count > limits.parts:
            raise PatternTooLargeError("pattern too large")
        if len(reader.groups) > limits.depth:
            raise PatternTooLargeError(f"nested deeper than {limits.depth}")
    if sum(group.whole().cost for group in reader.groups) > limits.cost:
        raise PatternTooLargeError("pattern too large")


class _ExtentReader:
    """Takes one part after the other."""

    def __init__(self, any_leaves: int, letter_cost: int) -> None:
        self.groups = [_GroupExtent()]
        self._any_leaves = any_leaves
        self._letter_cost = letter_cost
        self._known: dict[str, PatternExtent] = {}  # what was there before: most parts are
        self._last = EMPTY  # what a repetition behind flags is of

    def take(self, part: re.Match[str]) -> int:
        """The cost of the open group so far."""
        kind, text, group = part.lastgroup, part.group(), self.groups[-1]
        if kind == "text":
            group.follow(self._text(text))
            self._last = PatternExtent(1, 1, False, 0, self._any_leaves * self._letter_cost)
        elif kind == "names":
            self._take_names(group, text)
        elif kind == "bar":
            group.end_branch()
        elif kind == "opening":
            self.groups.append(_GroupExtent())
        elif kind == "again":  # RE2 repeats what stands before the flags
            self._last = _repeated(self._last, part["again"])
            group.follow(self._last)
        elif kind != "flags":
            self._take_one(text, part["repetition"] if kind == "repetition" else "")
        return self.groups[-1].cost

    def _take_one(self, text: str, repetition: str) -> None:
        extent = self._known.get(text)
        if extent is None:
            if text[0] != ")":
                extent = self._one(text.removesuffix(repetition))
            elif len(self.groups) > 1:
                extent = self.groups.pop().whole()
            else:  # RE2 says so
                return
            if repetition:
                extent = _repeated(extent, repetition)
            if text[0] != ")":
                self._known[text] = extent
        self.groups[-1].follow(extent)
        self._last = extent

    def _take_names(self, group: _GroupExtent, text: str) -> None:
        """Many branches at once, of which the first may have begun before: `one|two.*|`."""
        own, _, rest = text.partition("|")
        if own:
            group.follow(self._branches(own, 1))
        group.end_branch()
        if rest:
            group.add_branches(self._branches(rest, rest.count("|")))

    def _branches(self, text: str, count: int) -> PatternExtent:
        loops = text.count("*") + text.count("+")
        cost = self._text(text).cost + loops * loops
        return PatternExtent(count, 1 + loops, text[0] == "|" or "||" in text, loops, cost)

    def _text(self, text: str) -> PatternExtent:
        """Characters in a row."""
        cost = _byte_count(text) * self._letter_cost
        return PatternExtent(1, 1, False, 0, cost + text.count(".") * (self._any_leaves - 1) * LEAF_COST)

    def _one(self, text: str) -> PatternExtent:
        is_escaped = text[0] == "\\" and len(text) > 1
        if text in ("^", "$") or (is_escaped and text[1] in "AbBz"):
            return PatternExtent(0, 0, True, 0, LEAF_COST)
        if is_escaped and text[1] in "pP":
            return PatternExtent(1, 1, False, 0, UNICODE_COST)
        if text[0] == "[":
            classes = text.count("\\p") + text.count("\\P")
            is_wide = text[1:2] == "^" or "\\" in text or "[:" in text
            leaves = (self._any_leaves if is_wide else 1) + 2 * (_byte_count(text) - len(text))
            return PatternExtent(1, 1, False, 0, leaves * self._letter_cost + 10 * len(text) + classes * UNICODE_COST)
        is_any = text == "." or (is_escaped and text[1] != "Q")
        return PatternExtent(1, 1, False, 0, (self._any_leaves if is_any else _byte_count(text)) * self._letter_cost)


def _byte_count(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _repeated(part: PatternExtent, repetition: str) -> PatternExtent:
    first, ends, can_be_empty, exits, cost = part
    if repetition[0] != "{":
        again = 0 if repetition[0] == "?" else ends * first
        return PatternExtent(first, ends, can_be_empty or repetition[0] != "+", exits + 1, cost + LEAF_COST + again)
    lowest, comma, highest = repetition.rstrip("?").strip("{}").partition(",")
    least = int(lowest[:6])
    most = (int(highest[:6]) if highest else max(least, 1)) if comma else least
    if most <= 0 or least > most:
        return EMPTY
    is_endless = bool(comma and not highest)
    optional = most - least + is_endless
    pairs = ends * first
    exits = (exits + 1) * optional
    steps = exits * exits + LEAF_COST * optional + pairs * is_endless
    if can_be_empty:  # each copy may be followed by each one after it
        return PatternExtent(
            first * most, ends * most, True, exits, cost * most + steps + pairs * most * (most - 1) // 2
        )
    return PatternExtent(first, ends * (1 + most - least), least == 0, exits, cost * most + steps + pairs * (most - 1))


PROGRAM_MAX: Final = 1 << 15  # instructions of what a client sends
KAFKA_MESSAGES: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "unexpected )": "regexp/syntax: internal error",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "invalid repetition size": "invalid repeat count",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
}
UNKNOWN_SYNTAX: Final = ("invalid perl operator", "invalid escape sequence", "bad repetition operator")
_UNICODE_CLASS: Final = re.compile(r"\\[pP](?:\{[^}]*\}|[A-Z])")  # Python has none of them
_JAVA_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")
WIDE: Final = ("\\p", "\\P", "\\x{")  # may mean characters that Latin-1 lacks


class PatternError(ValueError):
    """Why a pattern cannot be used: in RE2's words, or because it is too large."""

    @property
    def kafka_message(self) -> str:
        """Kafka's Java library says the same things in other words than RE2."""
        reason = str(self).partition(":")[0]
        return KAFKA_MESSAGES.get(reason, reason)


def compile_pattern(
    text: str,
    *,
    limits: SizeLimits = CLIENT,
    has_groups: bool = False,
    is_case_blind: bool = False,
) -> re2._Regexp:
    """Raises PatternError."""
    options = _options(limits, has_groups, is_case_blind)
    return _compiled(text, options, limits)


class AsciiPattern:
    """A pattern for texts of ASCII characters: its program is a fraction of what all of Unicode needs."""

    __slots__ = ("_encoding", "_pattern")

    def __init__(self, text: str, limits: SizeLimits = CLIENT) -> None:
        """Raises PatternError."""
        import re2  # noqa: PLC0415 (no start of a broker needs it)

        options = _options(limits, False, False)
        is_narrow = text.isascii() and not any(escape in text for escape in WIDE)
        if is_narrow:
            options.encoding = re2.Options.Encoding.LATIN1
        self._pattern = _compiled(text.encode() if is_narrow else text, options, limits)

    def matches(self, text: str) -> bool:
        """Whether it is all of a text."""
        return self._pattern.fullmatch(text.encode()) is not None


def compile_java_pattern(text: str, *, has_groups: bool = False) -> Any:
    """The pattern of an operator in a place where Kafka's Java takes what RE2 does not know, as a look ahead.

    Only such a pattern runs in Python's own engine, whose time has no bound. Raises PatternError.
    """
    named = _JAVA_GROUP.sub("(?P<", text)
    try:
        return compile_pattern(named, limits=OPERATOR, has_groups=has_groups)
    except PatternError as problem:
        if not str(problem).startswith(UNKNOWN_SYNTAX):
            raise
        try:
            return re.compile(named)
        except (re.error, RecursionError, OverflowError) as error:
            raise PatternError(str(error)) from None


def topic_pattern_problem(text: str) -> str | None:
    """Why brokers refuse a pattern for topics, in Kafka's words."""
    try:
        AsciiPattern(text)
    except PatternError as problem:
        return problem.kafka_message
    return None


def is_readable(text: str) -> bool:
    """Whether it is a pattern of another engine, as one with a look ahead. It is not run."""
    try:
        re.compile(_UNICODE_CLASS.sub("a", text))
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def literal_pattern(text: str) -> str:
    """The pattern that matches this text and nothing else."""
    import re2  # noqa: PLC0415

    return str(re2.escape(text))


def _options(limits: SizeLimits, has_groups: bool, is_case_blind: bool) -> Any:
    import re2  # noqa: PLC0415

    options = re2.Options()
    options.log_errors = False  # the sender is answered; the library would write to stderr as well
    options.max_mem = limits.memory_bytes
    options.never_capture = not has_groups
    options.case_sensitive = not is_case_blind
    return options


def _compiled(text: str | bytes, options: Any, limits: SizeLimits) -> Any:
    import re2  # noqa: PLC0415

    is_narrow = isinstance(text, bytes)
    try:
        check_size(text.decode() if isinstance(text, bytes) else text, limits, is_narrow, not options.case_sensitive)
        compiled = re2.compile(text, options)
        re2.purge()
    except PatternTooLargeError as problem:
        raise PatternError(str(problem)) from None
    except UnicodeEncodeError:
        raise PatternError("half of a surrogate pair is no character") from None
    except re2.error as error:
        reason = error.args[0] if error.args else error
        raise PatternError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None
    if limits is CLIENT and compiled.programsize > PROGRAM_MAX:
        raise PatternError("pattern too large")
    return compiled
