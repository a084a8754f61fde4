"""Decoders of the cluster's own topics: who committed what, groups, transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
