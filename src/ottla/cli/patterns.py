"""Regular expressions for names of topics, as Kafka's tools take them."""

from __future__ import annotations

import re

from ottla.cli.java.options import OptionError


def topic_pattern(text: str) -> re.Pattern[str]:
    """A comma means "or"; quotes and blanks around it are dropped."""
    try:
        return re.compile(re.sub(r"^[\"']+|[\"']+$", "", text.strip().replace(",", "|").replace(" ", "")))
    except re.error:
        raise OptionError(f"{text} is an invalid regex.") from None
