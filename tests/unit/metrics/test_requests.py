"""What is kept of a request."""

from ottla.metrics.requests import PROBE_EVERY, WARMUP_REQUESTS, RequestMeter, SendProbe


def test_every_request_counts_under_its_version() -> None:
    meter = RequestMeter("Produce", 13)
    for version in (13, 13, 3):
        meter.count_request(version)
    assert (meter.count, meter.versions[13], meter.versions[3]) == (3, 2, 1)


def test_the_first_requests_are_all_measured_and_later_ones_in_part() -> None:
    meter = RequestMeter("Produce", 13)
    wanted = []
    for _ in range(WARMUP_REQUESTS + 10 * PROBE_EVERY):
        wanted.append((meter.wants_sample, meter.wants_probe))
        meter.count_request(9)
    assert all(sample and probe for sample, probe in wanted[:WARMUP_REQUESTS])
    assert sum(sample for sample, _ in wanted[WARMUP_REQUESTS:]) == 10 * PROBE_EVERY // 8
    assert sum(probe for _, probe in wanted[WARMUP_REQUESTS:]) == 10


def test_the_sample_stands_for_all() -> None:
    meter = RequestMeter("Produce", 13)
    for _ in range(WARMUP_REQUESTS + 8 * 1000):
        if meter.wants_sample:
            meter.record(received_ns=0, now_ns=40_000, weight=meter.weight)
        meter.count_request(13)
    assert meter.total_ns.total == meter.count
    assert meter.total_ns.sum == meter.count * 40_000


def test_a_parked_request_has_a_remote_time() -> None:
    meter = RequestMeter("Fetch", 18)
    meter.record_deferred(received_ns=1_000, parked_ns=3_000, now_ns=50_000)
    meter.record(received_ns=1_000, now_ns=2_000)
    assert (meter.parked_count, meter.remote_ns.sum, meter.total_ns.sum) == (1, 47_000, 49_000 + 1_000)


def test_a_probe_measures_waiting_and_sending_once_each() -> None:
    meter = RequestMeter("Fetch", 18)
    probe = SendProbe(meter, 1)
    probe.on_sending()
    probe.on_sending()
    probe.on_sent()
    assert (meter.response_queue_ns.total, meter.response_send_ns.total) == (1, 1)
