"""Every step by the name under which a pipeline uses it."""

from __future__ import annotations

from ottla.pipelines.steps.anomalies import Anomalies
from ottla.pipelines.steps.associations import Associations
from ottla.pipelines.steps.columns import Cast, Derive, Drop, Flatten, Rename, Select
from ottla.pipelines.steps.deduplicate import Deduplicate
from ottla.pipelines.steps.enrich import Enrich
from ottla.pipelines.steps.explode import Explode
from ottla.pipelines.steps.filter import Filter
from ottla.pipelines.steps.join import Join
from ottla.pipelines.steps.mask import Mask
from ottla.pipelines.steps.order import Order
from ottla.pipelines.steps.outliers import Outliers
from ottla.pipelines.steps.parse import Parse
from ottla.pipelines.steps.pattern import Pattern
from ottla.pipelines.steps.python import Python
from ottla.pipelines.steps.rule import Rule
from ottla.pipelines.steps.sample import Sample
from ottla.pipelines.steps.sql import Sql
from ottla.pipelines.steps.stateful import Stateful
from ottla.pipelines.steps.step import Step
from ottla.pipelines.steps.top import Top
from ottla.pipelines.steps.union import Union
from ottla.pipelines.steps.watermark import Watermark
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
