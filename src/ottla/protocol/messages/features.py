"""Feature flags of the cluster: raise or lower the level that it runs at."""

from __future__ import annotations

from ottla.protocol.schema import Int8, Int16, Int32, message, part, wire


@part
class FeatureUpdateKey:
    """One feature: upgrade type 1 raises it, 2 lowers it if nothing is lost, 3 lowers it whatever is lost."""

    feature: str
    max_version_level: Int16  # 0 switches the feature off
    allow_downgrade: bool = wire(until=0, default=False)
    upgrade_type: Int8 = wire(since=1, default=1)


@message(api_key=57, versions="0-2", flexible=0)
class UpdateFeaturesRequest:
    """UpdateFeatures (key 57), v0-2 (KIP-584). v1 upgrade types and trial runs (KIP-778)."""

    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey] = wire(default_factory=list)
    validate_only: bool = wire(since=1, default=False)


@part
class UpdatableFeatureResult:
    feature: str
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)


@message(api_key=57, versions="0-2", flexible=0)
class UpdateFeaturesResponse:
    """UpdateFeatures (key 57), v0-2. v2 all or nothing: no results of single features any more (KIP-1022)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    results: list[UpdatableFeatureResult] = wire(until=1, default_factory=list)
