"""Isolation forests: the scores of scikit-learn, from a file of plain numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sklearn.ensemble import IsolationForest

from ottla.pipelines.steps.anomalies import scored
from ottla.pipelines.steps.forest import grow_forest, load_forest

RNG = np.random.default_rng(5)
TRAINED = RNG.normal(size=(2000, 3))
ASKED = np.concatenate([RNG.normal(size=(500, 3)), RNG.normal(size=(20, 3)) * 10])


def test_scores_are_those_of_scikit_learn(tmp_path: Path) -> None:
    theirs = -IsolationForest(n_estimators=50, random_state=3).fit(TRAINED).score_samples(ASKED)
    forest = grow_forest(TRAINED, ["a", "b", "c"], trees=50, seed=3)
    assert forest.scores(ASKED) == pytest.approx(theirs, abs=1e-9)
    forest.save(tmp_path / "forest.npz")
    kept = load_forest(tmp_path / "forest.npz")
    assert np.array_equal(kept.scores(ASKED), forest.scores(ASKED))
    assert repr(kept) == "Forest(50 trees over a, b, c)"


def test_a_value_that_is_no_number_has_no_score(tmp_path: Path) -> None:
    grow_forest(TRAINED, ["a", "b", "c"], trees=5).save(tmp_path / "forest.npz")
    zeros = pa.array([0.0, 0.0, 0.0, 100.0])
    made = scored((tmp_path / "forest.npz").read_bytes(), (pa.array([0.0, None, float("nan"), 100.0]), zeros, zeros))
    ordinary, *nothing, strange = made.to_pylist()
    assert nothing == [None, None]
    assert ordinary < 0.5 < 0.7 < strange


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04K\x01.", b"{}"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "forest.npz").write_bytes(content)
    with pytest.raises(ValueError):
        load_forest(tmp_path / "forest.npz")


def test_a_forest_with_invalid_nodes_is_refused(tmp_path: Path) -> None:
    forest = grow_forest(TRAINED, ["a", "b", "c"], trees=2)
    forest.left[0] = 0
    forest.save(tmp_path / "circle.npz")
    forest.left[0] = 10**6
    forest.save(tmp_path / "nowhere.npz")
    for name in ("circle", "nowhere"):
        with pytest.raises(ValueError, match=r"its nodes form a cycle|invalid child"):
            load_forest(tmp_path / f"{name}.npz")
