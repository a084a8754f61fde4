"""What samples told, as a `parse` step that can be pasted into a pipeline, with what did not fit as comments."""

from __future__ import annotations

import json
import re

from ottla.pipelines.model.inference import Guess, Inference

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLAIN_TYPE = re.compile(r"[a-z][a-z0-9_<>:,()]*")
YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def parse_step(topic: str, guess: Guess, found: Inference) -> str:
    """YAML, the remarks in front."""
    total = found.samples + sum(found.unread.values()) + found.empty
    head = [f"{topic}: {total} samples, {found.samples} of them read as {guess.format}"]
    head += [f"{found.empty} have no value; `tombstone` says what becomes of them"] if found.empty else []
    lines = [f"# {' '.join(line.split())}" for line in [*head, *found.remarks()]]
    lines += ["- parse:", f"    format: {guess.format}"]
    lines += [f"    encoding: {guess.encoding}"] if guess.encoding != "raw" else []
    lines += [f"    delimiter: {json.dumps(guess.delimiter)}"] if guess.format == "csv" else []
    if guess.format == "text":
        return "\n".join(lines) + "\n"
    lines.append("    schema:")
    for name, kind in found.schema.items():
        missing = found.samples - found.present.get(name, found.samples)
        remark = f"  # null or missing in {missing} of {found.samples}" if missing else ""
        lines.append(f"      {_key(name)}: {_type(kind)}{remark}")
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    is_plain = PLAIN_NAME.fullmatch(name) and name.lower() not in YAML_WORDS
    return name if is_plain else json.dumps(name)


def _type(kind: str) -> str:
    return kind if PLAIN_TYPE.fullmatch(kind) and not kind.endswith(":") else json.dumps(kind)
