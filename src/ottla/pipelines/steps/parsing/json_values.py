"""Types that Spark's JSON parser does not read as they are meant: it reads another one, and the value is made of that.

Times are read as text, for the parser guesses. A byte is read as a short, for 200 would become -56. Of equal keys of a
map the parser keeps all, and whoever asks gets the first: the last one counts, as in every object. A number that is too
large becomes infinite.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)

from ottla.pipelines.steps.parsing.times import Times, to_time


def as_written(wanted: T.StructType) -> T.StructType:
    """As the parser shall read it."""
    return T.StructType([T.StructField(entry.name, _written_type(entry.dataType)) for entry in wanted.fields])


def is_changed(wanted: T.DataType) -> bool:
    """A value of it has to be made of what was read."""
    return _has(wanted, T.TimestampType, T.DateType, T.ByteType, T.MapType)


def has_small(wanted: T.DataType) -> bool:
    return _has(wanted, T.ByteType)


def typed(raw: Column, wanted: T.DataType, name: str, times: Times) -> Column:
    """The value, made of what was read; all that is read as it is meant stays."""
    if not is_changed(wanted):
        return raw
    if isinstance(wanted, T.StructType):
        inner = [
            typed(raw.getField(entry.name), entry.dataType, f"{name}.{entry.name}", times).alias(entry.name)
            for entry in wanted.fields
        ]
        return F.when(raw.isNotNull(), F.struct(*inner))
    if isinstance(wanted, T.ArrayType):
        return F.transform(raw, lambda element: typed(element, wanted.elementType, name, times))
    if isinstance(wanted, T.MapType):
        entries = _last_of_equal_keys(raw)
        if not is_changed(wanted.valueType):
            return entries
        return F.transform_values(entries, lambda _, entry: typed(entry, wanted.valueType, name, times))
    if isinstance(wanted, T.ByteType):
        return raw.try_cast(wanted)
    return to_time(raw, wanted, times.of(name))


def fits(raw: Column, made: Column, wanted: T.DataType) -> Column:
    """Nothing that was written became null on the way."""
    if not is_changed(wanted):
        return F.lit(True)
    if isinstance(wanted, T.StructType):
        found = F.lit(True)
        for entry in wanted.fields:
            found = found & fits(raw.getField(entry.name), made.getField(entry.name), entry.dataType)
        return found
    if isinstance(wanted, T.ArrayType):
        pairs = F.zip_with(raw, made, lambda old, new: fits(old, new, wanted.elementType))
        return F.coalesce(F.forall(pairs, lambda same: same), F.lit(True))
    if isinstance(wanted, T.MapType):
        if not is_changed(wanted.valueType):
            return F.lit(True)
        values = F.map_values(_last_of_equal_keys(raw))
        pairs = F.zip_with(values, F.map_values(made), lambda old, new: fits(old, new, wanted.valueType))
        return F.coalesce(F.forall(pairs, lambda same: same), F.lit(True))
    return raw.isNull() | made.isNotNull()


def has_infinity(value: Column, kind: T.DataType) -> Column | None:
    """Whether a number in it is infinite, at any depth; None where there are no such numbers."""
    if isinstance(kind, T.DoubleType | T.FloatType):
        return F.abs(value) == float("inf")
    if not _has(kind, T.DoubleType, T.FloatType):
        return None
    if isinstance(kind, T.StructType):
        inner = [has_infinity(value.getField(entry.name), entry.dataType) for entry in kind.fields]
        return reduce(Column.__or__, [_is_true(found) for found in inner if found is not None])
    if isinstance(kind, T.ArrayType):
        return F.exists(value, lambda each: _is_true(has_infinity(each, kind.elementType)))
    assert isinstance(kind, T.MapType)
    return F.exists(F.map_values(value), lambda each: _is_true(has_infinity(each, kind.valueType)))


def _is_true(found: Column | None) -> Column:
    return F.lit(False) if found is None else F.coalesce(found, F.lit(False))


def _written_type(wanted: T.DataType) -> T.DataType:
    if isinstance(wanted, T.TimestampType | T.DateType):
        return T.StringType()
    if isinstance(wanted, T.ByteType):
        return T.ShortType()
    if isinstance(wanted, T.StructType):
        return as_written(wanted)
    if isinstance(wanted, T.ArrayType):
        return T.ArrayType(_written_type(wanted.elementType))
    if isinstance(wanted, T.MapType):
        return T.MapType(T.StringType(), _written_type(wanted.valueType))
    return wanted


def _has(kind: T.DataType, *kinds: type[T.DataType]) -> bool:
    if isinstance(kind, kinds):
        return True
    if isinstance(kind, T.StructType):
        return any(_has(entry.dataType, *kinds) for entry in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _has(kind.elementType, *kinds)
    return isinstance(kind, T.MapType) and _has(kind.valueType, *kinds)


def _last_of_equal_keys(entries: Column) -> Column:
    """Only a map with equal keys is made anew."""
    keys, values = F.map_keys(entries), F.map_values(entries)
    different = F.array_distinct(keys)
    last = F.transform(
        different, lambda key: F.get(values, F.size(keys) - F.array_position(F.reverse(keys), key).cast("int"))
    )
    return F.when(F.size(different) < F.size(keys), F.map_from_arrays(different, last)).otherwise(entries)
