"""Work at a broker, and brokers that are slow: Kafka has no keys for either."""

from __future__ import annotations

from ottla.base.broker_keys.words import CLUSTER_WIDE, PER_BROKER
from ottla.base.settings import Long, Settings


class MaintenanceKeys(Settings):
    """Maintenance and slow brokers."""

    ottla_maintenance_until_ms = Long(
        0,
        at_least=0,
        mode=PER_BROKER,
        note="Until when somebody works at this broker, in milliseconds since 1970 by the controller's clock: as long "
        "it leads nothing that another in-sync replica can lead, and nothing that it holds is moved away because it is "
        "down. Set it while brokers run (`ottla cluster maintenance`); in a file it has no effect.",
    )
    ottla_heal_slow_after_ms = Long(
        300_000,
        at_least=-1,
        mode=CLUSTER_WIDE,
        note="How long a broker may be out of the ISR in half of what it holds, or have a disk that is too slow, until "
        "others lead instead of it; it leads again when it has kept up for as long. -1: it goes on leading.",
    )
    ottla_heal_slow_sync_ms = Long(
        500,
        at_least=-1,
        mode=CLUSTER_WIDE,
        note="A disk is too slow if even its fastest sync of ten seconds takes longer than this. -1: no disk is.",
    )
