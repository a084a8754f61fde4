"""All step classes by the name that a pipeline uses."""

from __future__ import annotations

from ottla.pipelines.steps.anomalies import Anomalies, Outliers
from ottla.pipelines.steps.associations import Associations
from ottla.pipelines.steps.columns import Cast, Derive, Drop, Explode, Flatten, Mask, Rename, Select
from ottla.pipelines.steps.deduplicate import Deduplicate
from ottla.pipelines.steps.enrich import Enrich
from ottla.pipelines.steps.event_time import Watermark
from ottla.pipelines.steps.filter import Filter, Rule, Sample
from ottla.pipelines.steps.join import Join, Union
from ottla.pipelines.steps.order import Order
from ottla.pipelines.steps.parse import Parse
from ottla.pipelines.steps.pattern import Pattern
from ottla.pipelines.steps.python import Python
from ottla.pipelines.steps.sql import Sql
from ottla.pipelines.steps.stateful import Stateful
from ottla.pipelines.steps.step import Step
from ottla.pipelines.steps.top import Top
from ottla.pipelines.steps.window import Window

STEPS: dict[str, type[Step]] = {
    "parse": Parse,
    "filter": Filter,
    "rule": Rule,
    "select": Select,
    "rename": Rename,
    "drop": Drop,
    "cast": Cast,
    "derive": Derive,
    "mask": Mask,
    "flatten": Flatten,
    "explode": Explode,
    "sample": Sample,
    "sql": Sql,
    "union": Union,
    "python": Python,
    "enrich": Enrich,
    "watermark": Watermark,
    "window": Window,
    "deduplicate": Deduplicate,
    "join": Join,
    "top": Top,
    "associations": Associations,
    "anomalies": Anomalies,
    "outliers": Outliers,
    "order": Order,
    "pattern": Pattern,
    "stateful": Stateful,
}
