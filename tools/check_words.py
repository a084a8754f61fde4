"""Words that this code base does not use; `make check` runs this. Prints one line for each occurrence.

REASONS applies to all files, BETTER to the files below PLAIN.

The register is that of Kafka's Javadoc, Python's standard library and the Google developer documentation style guide: a
broker, a client and a request are things, not people. See docs/glossary.md for the terms to use.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "docs", "bench", "examples", "tools", "deploy", "config")
FILES = ("README.md", "README.zh-CN.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "Dockerfile", "setup.py")
TEXT_SUFFIXES = {".md", ".js", ".css", ".html", ".sh", ".yaml", ".yml", ".toml", ".properties", ".service", ".txt"}
NOT_OURS = {"node_modules", "__pycache__", "data", "images", "build"}
REASONS = {
    "name the thing that acts: broker, client, caller, user, operator": (
        "whoever", "nobody", "somebody", "everybody", "anybody", "no one", "someone", "anyone", "everyone",
        "those who", "one who", "he", "him", "his", "she",
    ),
}  # fmt: skip
REASON_OF = {word: reason for reason, words in REASONS.items() for word in words}
BANNED = re.compile(
    r"(?<![\w'./-])(" + "|".join(sorted(REASON_OF, key=len, reverse=True)) + r")(?![\w/-]|\.\w)", re.IGNORECASE
)
# Unusual words and word orders, with the usual ones.
BETTER = {
    r"beside": "compared with, in addition to, next to, concurrently with",
    r"anew": "again, or a verb with re-: re-created, restarted",
    r"also (?:if|when|while|after|without)": "even if, including",
    r"(?<=[,;] )else(?= [a-z`])": "otherwise; for a chain: the first that is set of A, B, C",
    r"wins? over": "overrides, takes precedence over",
    r"(?:goes|go|going|went) on": "continues, resumes",
    r"(?:(?<=\")|(?<=[|] ))(?:most|fewest) (?!of)[a-z]+": "maximum number of",  # starts a text or a cell
    r"(?:bytes|records|requests|connections|events|rows|messages) (?:in )?an? (?:second|minute|hour)": "per second",
    r"leaderships": "leadership of its partitions",
    r"(?:Kafka|Java|librdkafka|Spark|Burrow)'s (?:own )?words": "Kafka's message, Kafka's name",
    r"log folders?": "log directory, as in Kafka",
    r"time-outs?": "timeout",
    r"for ever": "forever",
}
UNUSUAL = re.compile(
    "|".join(rf"(?<![\w'./-])(?P<n{number}>{word})(?![\w/-])" for number, word in enumerate(BETTER)), re.IGNORECASE
)
PLAIN = (
    "README.md", "CONTRIBUTING.md", "docs/", "src/ottla/base/broker_keys/", "tests/settings_page.py",
    "src/ottla/base/topic_keys.py", "src/ottla/base/resource_keys.py",
    *(f"src/ottla/{package}/" for package in (
        "broker", "controller", "coordination", "groups", "metrics", "network", "protocol", "quotas", "replication",
        "security", "storage", "transactions",
    )),
)  # fmt: skip
NOT_PLAIN = ("docs/zh/", "docs/pipeline", "docs/sql.md", "docs/decisions/pipeline-parsing.md")
# Quotations of other products, and test data. A line that contains one is not reported.
QUOTATIONS: tuple[str, ...] = (
    '"nobody"',  # the user without rights, as on Unix; tests use the name for groups and clients that do not exist
    '"anyone"',  # the id of ZooKeeper's scheme "world": org.apache.zookeeper.ZooDefs.Ids.ANYONE_ID_UNSAFE
)


def texts_of_python(text: str) -> Iterator[tuple[int, str]]:
    """Lines of comments and string literals, with their line numbers."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING}:
            yield from enumerate(token.string.splitlines(), token.start[0])


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text()
    return texts_of_python(text) if path.suffix == ".py" else enumerate(text.splitlines(), 1)


def paths() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            is_ours = NOT_OURS.isdisjoint(path.relative_to(ROOT).parts)
            if is_ours and path.is_file() and path.suffix in {".py", *TEXT_SUFFIXES}:
                yield path
    yield from (ROOT / name for name in FILES if (ROOT / name).exists())


def unusual_words(path: Path) -> Iterator[str]:
    """Yield the words of BETTER in a file below PLAIN; quoted output in Markdown is skipped."""
    name = path.relative_to(ROOT).as_posix()
    if not name.startswith(PLAIN) or name.startswith(NOT_PLAIN):
        return
    is_quoted = False
    for number, line in texts_of(path):
        is_quoted ^= path.suffix == ".md" and line.lstrip().startswith("```")
        for match in () if is_quoted else UNUSUAL.finditer(line):
            better = list(BETTER.values())[int(str(match.lastgroup)[1:])]
            yield f"{name}:{number}: {match[0]!r}: better: {better}: {line.strip():.100}"


def problems(path: Path) -> Iterator[str]:
    if path == Path(__file__):
        return
    yield from unusual_words(path)
    for number, line in texts_of(path):
        if any(quotation in line for quotation in QUOTATIONS):
            continue
        for match in BANNED.finditer(line):
            yield f"{path.relative_to(ROOT)}:{number}: {match[0]!r}: {REASON_OF[match[0].lower()]}: {line.strip():.100}"


def main() -> int:
    found = [problem for path in paths() for problem in problems(path)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
