"""The pages of several brokers as one: each sample gets the label of its broker, and each family stands there once.

Pure. It understands Prometheus' text as far as prometheus.py writes it: the samples of a family follow its head.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

LABEL: Final = "broker"
RENAMED: Final = f"exported_{LABEL}"  # as Prometheus names a label whose name is taken
HELP: Final = "# HELP "


def merge_pages(pages: Mapping[int, str]) -> Iterator[str]:
    """Pieces of text, a family each; `pages` are by broker."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for broker, page in pages.items():
        family, is_new = "", False
        for line in page.split("\n"):  # nothing else ends a line there
            if line.startswith("#"):
                if line.startswith(HELP):
                    family = line.split(" ", 3)[2]
                    is_new = family not in heads
                    samples.setdefault(family, [])
                if is_new:
                    heads.setdefault(family, []).append(line)
            elif line:
                samples[family].append(labelled(line, broker))
    for family, lines in samples.items():
        yield "\n".join([*heads[family], *lines]) + "\n"


def labelled(line: str, broker: int) -> str:
    """A sample with the label of its broker before all others."""
    name, brace, rest = line.partition("{")
    if not brace:
        name, _, value = line.partition(" ")
        return f'{name}{{{LABEL}="{broker}"}} {value}'
    others = f",{rest}".replace(f',{LABEL}="', f',{RENAMED}="')  # a quote inside of a value has a backslash before it
    return f'{name}{{{LABEL}="{broker}"{others}'


def up_family(answers: Mapping[int, bool], urls: Mapping[int, str]) -> Iterable[str]:
    """Who of them is there, and where each tells its own numbers."""
    yield "# HELP ottla_process_up Whether this broker's own metrics could be read; if not they are left out.\n"
    yield "# TYPE ottla_process_up gauge\n"
    for broker, is_there in answers.items():
        yield f'ottla_process_up{{{LABEL}="{broker}",url="{urls[broker]}"}} {int(is_there)}\n'
