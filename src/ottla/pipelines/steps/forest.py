"""Isolation forests in files: trained with scikit-learn, stored as plain arrays, applied with NumPy alone.

The file is NumPy's .npz without pickled objects: loading it runs no code. Scores range from 0 to 1: the fewer random
cuts isolate a row, the closer to 1; about 0.5 is ordinary (Liu, Ting and Zhou 2008).
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE_BYTES_MAX = 256 << 20
ROWS_MAX = 200_000
LEAF = -1
ARRAYS = ("columns", "roots", "feature", "threshold", "left", "right", "length", "usual")

Array = Any  # numpy.ndarray; NumPy is imported with the first forest


@dataclass(frozen=True)
class Forest:
    """All trees in shared arrays; `roots` holds the start of each. `length` is the path length that a leaf
    represents."""

    columns: Array
    roots: Array
    feature: Array
    threshold: Array
    left: Array
    right: Array
    length: Array
    usual: Array  # the expected path length of an ordinary row

    def __repr__(self) -> str:
        return f"Forest({len(self.roots)} trees over {', '.join(self.columns)})"

    def save(self, file: str | Path) -> None:
        import numpy as np  # noqa: PLC0415

        with Path(file).open("wb") as out:
            np.savez_compressed(out, **{name: getattr(self, name) for name in ARRAYS})

    def scores(self, rows: Array) -> Array:
        """One score per row of a matrix with the forest's columns."""
        import numpy as np  # noqa: PLC0415

        # scikit-learn compares in single precision; a value at a cut must take the same branch
        exact = rows.astype(np.float32).astype(np.float64)
        total = np.zeros(len(rows))
        for root in self.roots:
            total += self.length[self._leaves(exact, root)]
        return np.exp2(-total / (len(self.roots) * self.usual))

    def _leaves(self, rows: Array, root: int) -> Array:
        """Walk all rows down one tree at once: one iteration per level."""
        import numpy as np  # noqa: PLC0415

        at = np.full(len(rows), root)
        walking = np.flatnonzero(self.feature[at] != LEAF)
        while walking.size:
            nodes = at[walking]
            goes_left = rows[walking, self.feature[nodes]] <= self.threshold[nodes]
            at[walking] = np.where(goes_left, self.left[nodes], self.right[nodes])
            walking = walking[self.feature[at[walking]] != LEAF]
        return at


def load_forest(file: str | Path) -> Forest:
    """Raises ValueError for an invalid forest, OSError for an unreadable file."""
    if Path(file).stat().st_size > FILE_BYTES_MAX:
        raise ValueError(f"larger than {FILE_BYTES_MAX >> 20} MiB")
    return read_forest(Path(file).read_bytes())


def read_forest(model: bytes) -> Forest:
    """Raises ValueError."""
    import numpy as np  # noqa: PLC0415

    try:
        with np.load(io.BytesIO(model), allow_pickle=False) as found:
            forest = Forest(**{name: found[name] for name in ARRAYS})
    except (KeyError, zipfile.BadZipFile, EOFError, AttributeError, TypeError) as problem:
        raise ValueError(f"not a forest: {problem}") from None
    nodes = len(forest.feature)
    links = [forest.roots, forest.left[forest.feature != LEAF], forest.right[forest.feature != LEAF]]
    if any(((each < 0) | (each >= nodes)).any() for each in links) or (forest.feature >= len(forest.columns)).any():
        raise ValueError("not a forest: a node has an invalid child")
    if (forest.left[forest.feature != LEAF] <= np.flatnonzero(forest.feature != LEAF)).any():
        raise ValueError("not a forest: its nodes form a cycle")
    return forest


def train_forest(
    rows: DataFrame, columns: list[str], trees: int = 100, rows_max: int = 20_000, seed: int = 0
) -> Forest:
    """Train on the rows of a batch, for example a topic's history; more than `rows_max` rows are sampled.

    history = read_topic(spark, "readings")                  # any DataFrame
    train_forest(history, ["temperature", "pressure"]).save("readings.npz")
    """
    import numpy as np  # noqa: PLC0415

    if not 1 <= rows_max <= ROWS_MAX:
        raise ValueError(f"rows_max must be from 1 to {ROWS_MAX}")
    numbers = rows.select(*(F.col(f"`{name}`").cast("double").alias(name) for name in columns))
    whole = numbers.dropna().filter(" AND ".join(f"abs(`{name}`) < double('inf')" for name in columns))
    sample = whole.orderBy(F.xxhash64(*(f"`{name}`" for name in columns), F.lit(seed))).limit(rows_max).collect()
    if len(sample) < 2:
        raise ValueError("too few rows with numbers in all columns")
    return grow_forest(np.array([tuple(row) for row in sample]), columns, trees, seed)


def grow_forest(matrix: Array, columns: list[str], trees: int = 100, seed: int = 0) -> Forest:
    import numpy as np  # noqa: PLC0415
    from sklearn.ensemble import IsolationForest  # noqa: PLC0415

    made = IsolationForest(n_estimators=trees, random_state=seed).fit(matrix)
    parts: dict[str, list[Array]] = {name: [] for name in ("feature", "threshold", "left", "right", "length")}
    roots: list[int] = []
    size = 0
    for estimator in made.estimators_:
        tree = estimator.tree_
        is_leaf = tree.children_left == LEAF
        roots.append(size)
        parts["feature"].append(np.where(is_leaf, LEAF, tree.feature))
        parts["threshold"].append(tree.threshold)
        parts["left"].append(tree.children_left + size)
        parts["right"].append(tree.children_right + size)
        parts["length"].append(_depths(tree) + _usual_length(tree.n_node_samples))
        size += tree.node_count
    arrays = {name: np.concatenate(each) for name, each in parts.items()}
    usual = _usual_length(np.array([made.max_samples_]))[0]
    return Forest(columns=np.array(columns), roots=np.array(roots), usual=np.array(usual), **arrays)


def _depths(tree: Any) -> Array:
    import numpy as np  # noqa: PLC0415

    depths = np.zeros(tree.node_count)
    for node in range(tree.node_count):  # children follow their parents
        for child in (tree.children_left[node], tree.children_right[node]):
            if child != LEAF:
                depths[child] = depths[node] + 1
    return depths


def _usual_length(counts: Array) -> Array:
    """The expected path length in a random tree over `counts` rows."""
    import numpy as np  # noqa: PLC0415

    many = np.maximum(counts, 3).astype(float)
    lengths = 2 * (np.log(many - 1) + np.euler_gamma) - 2 * (many - 1) / many
    return np.where(counts <= 1, 0.0, np.where(counts == 2, 1.0, lengths))
