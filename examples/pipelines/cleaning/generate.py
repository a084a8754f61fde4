"""Sign-ups as three older programs write them: CSV, with spaces, odd spellings, and invalid fields.

python generate.py --count 5000        # to the topic sign-ups-raw
python generate.py --expect            # what must come out
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ottla.pipelines.demo.generator import GeneratorSettings, Record, run_generator

COUNTRIES = ("DE", "FR", "US", "JP")
AGE_MAX = 130


def sign_ups(plan: GeneratorSettings) -> Iterator[Record]:
    """id, mail, country, age"""
    chance = plan.random_generator()
    number = 0
    while True:
        number += 1
        at_ms = plan.start_ms + int(number * 1000 / plan.rate)
        mail = f"person{number}@{chance.choice(('example.org', 'Example.COM', 'mail.example'))}"
        country = chance.choice(COUNTRIES)
        country = chance.choice((country, country, country.lower(), f" {country} "))
        age = chance.choice((str(chance.randint(16, 95)),) * 12 + ("abc", "999", "-3"))
        if chance.random() < 0.02:
            mail = mail.replace("@", " at ")
        line = f"{number},{mail},{country},{age}"
        yield Record(at_ms, str(number), (line if chance.random() > 0.01 else line.rpartition(",")[0]).encode())


def expected(records: Iterable[Record]) -> dict[str, Any]:
    """Sign-ups by country, unreadable lines, and lines that break a rule."""
    countries: Counter[str] = Counter()
    unreadable = broken = 0
    for record in records:
        fields = (record.value or b"").decode().split(",")
        if len(fields) != 4 or not fields[3].lstrip("-").isdigit():
            unreadable += 1
        elif "@" not in fields[1] or not 0 <= int(fields[3]) <= AGE_MAX:
            broken += 1
        else:
            countries[fields[2].strip().upper()] += 1
    return {"by_country": dict(countries), "unreadable": unreadable, "rules_broken": broken}


if __name__ == "__main__":
    sys.exit(run_generator("Sign-ups, written by older programs.", "sign-ups-raw", sign_ups, expected))
