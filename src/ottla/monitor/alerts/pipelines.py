"""What state folders tell about pipelines: failed, killed, late. Files may be damaged, of another version, or gone."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from ottla.monitor.alerts.observing import Findings
from ottla.monitor.alerts.rules import Rule
from ottla.operations.pipeline_runs.statuses import KILLED, Status, list_runs


def observe_pipelines(rule: Rule, folders: Iterable[Path]) -> Findings:
    """Blocking: reads files. `above` of the rule is the lag in records that is too much, 0: none is."""
    found: Findings = {}
    for folder in folders:
        for status in list_runs(folder):
            trouble = _trouble(rule, status) if fnmatchcase(status.name, rule.pipeline) else ""
            if trouble:
                found[f"pipeline {status.name}"] = trouble
    return found


def _trouble(rule: Rule, status: Status) -> str:
    if status.state == "failed":
        return f"failed: {status.reason or 'no reason was told'}"
    if status.state == KILLED:
        return "the process ended without a word"
    for query in status.queries:
        if query.error:
            return f"{query.query}: {query.error}"
    lags = [query.lag for query in status.queries if isinstance(query.lag, int)]
    if status.is_live and rule.above > 0 and max(lags, default=0) > rule.above:
        return f"{max(lags)} records behind, more than {rule.above:g}"
    return ""
