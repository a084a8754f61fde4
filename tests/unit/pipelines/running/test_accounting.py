"""input = output + filtered + late + dead, for every step."""

from ottla.operations.pipeline_runs.snapshots import StepCount
from ottla.pipelines.model.pipeline import Stream
from ottla.pipelines.running.accounting import Account, Taken, dead_in, letters_in
from ottla.pipelines.steps.frame import AppliedStep

PARSE = AppliedStep("events", 1, "parse", 1, "marks", "ottla0")
FILTER = AppliedStep("events", 2, "filter", 2, "marks", "ottla0")
WINDOW = AppliedStep("views", 1, "window", 3, "merges", "ottla1", ("ottla0",))
RULE = AppliedStep("views", 2, "rule", 4, "marks", "ottla1")
BATCH = {
    "ottla0": {"in": 100, "out": 70, "filtered_1": 0, "dead_1": 10, "filtered_2": 20, "dead_2": 0},
    "ottla1": {"in": 7, "out": 6, "filtered_4": 0, "dead_4": 1},
}


def adds_up(step: StepCount) -> bool:
    return step.came == step.kept + step.filtered + step.late + step.dead


def test_each_step_gets_what_the_one_before_it_kept() -> None:
    account = Account([PARSE, FILTER, WINDOW, RULE])
    account.add(BATCH)
    account.add(BATCH)
    account.late[WINDOW] = 5
    parse, filtered, window, rule = account.steps()
    assert (parse.came, parse.kept, parse.dead) == (200, 180, 20)
    assert (filtered.came, filtered.kept, filtered.filtered) == (180, 140, 40)
    assert (window.came, window.kept, window.late, window.made) == (140, 135, 5, 14)
    assert (rule.came, rule.kept, rule.dead) == (14, 12, 2)
    assert all(adds_up(step) for step in account.steps())


def test_a_step_that_thins_counts_dropped_rows_as_filtered() -> None:
    thins = AppliedStep("views", 1, "deduplicate", 3, "thins", "ottla1", ("ottla0",))
    account = Account([PARSE, FILTER, thins])
    account.add(BATCH)
    account.late[thins] = 3
    step = account.steps()[-1]
    assert (step.came, step.kept, step.filtered, step.late) == (70, 7, 60, 3)
    assert adds_up(step)


def test_a_join_gets_the_rows_of_both_sides() -> None:
    join = AppliedStep("views", 1, "join", 3, "merges", "ottla2", ("ottla0", "ottla1"))
    account = Account([join])
    account.add(BATCH | {"ottla2": {"in": 4, "out": 4}})
    assert account.steps()[0].came == 76


def test_a_sink_that_refuses_rows_is_the_last_step_of_its_stream() -> None:
    account = Account([WINDOW])
    stream = Stream("views", "events", (("window", object()),), (), "append", ())
    account.add_taken(stream, [Taken(0, "topic big", 4, 0), Taken(1, "topic small", 4, 0)])
    assert [step.step for step in account.steps()] == ["window"]
    account.add_taken(stream, [Taken(1, "topic small", 1, 3), Taken(0, "topic big", 4, 0)])
    last = account.steps()[-1]
    assert last == StepCount("views", 3, "to topic small", came=8, kept=5, filtered=0, late=0, dead=3, made=5)
    assert adds_up(last)


def test_an_empty_batch_has_nulls_for_sums() -> None:
    account = Account([PARSE])
    account.add({"ottla0": {"in": 0, "out": None, "dead_1": None}})
    assert account.steps()[0].came == 0


def test_records_of_a_source_that_is_used_twice_count_once() -> None:
    account = Account([PARSE], [("events", "ottla0"), ("events", "ottla2"), ("users", "ottla1")])
    account.add({**BATCH, "ottla2": {"in": 100}})
    assert account.records() == {"events": 100, "users": 7}


def test_the_dead_of_one_batch() -> None:
    assert dead_in(BATCH) == 11


def test_dead_rows_of_a_step_with_new_rows_are_not_in_its_output() -> None:
    stateful = AppliedStep(
        "views", 1, "stateful", 3, "merges", "ottla1", ("ottla0",), filter_observations=("ottla2",), kills=True
    )
    account = Account([PARSE, FILTER, stateful, RULE])
    account.add(BATCH | {"ottla1": {"in": 9, "out": 6, "dead_3": 2, "dead_4": 1}, "ottla2": {"filtered": 4}})
    *_, step, rule = account.steps()
    assert step == StepCount("views", 1, "stateful", came=70, kept=64, filtered=4, late=0, dead=2, made=7)
    assert (rule.came, rule.kept, rule.dead) == (7, 6, 1)
    later = Account([stateful])  # a run that only releases rows that an earlier one has held
    later.add({"ottla1": {"in": 3, "out": 1, "dead_3": 2}})
    (step,) = later.steps()
    assert (step.came, step.kept, step.dead, step.made) == (2, 0, 2, 1)
    assert adds_up(step)


def test_dead_rows_of_lookups_are_sent_with_the_batch() -> None:
    asks = AppliedStep("events", 3, "enrich", 3, "asks", "ottla1", ("ottla0",))
    account = Account([PARSE, FILTER, asks, RULE])
    observed = BATCH | {"ottla1": {"in": 70, "out": 60, "filtered_3": 3, "dead_3": 5, "dead_4": 2}}
    account.add(observed)
    *_, step, rule = account.steps()
    assert (step.came, step.kept, step.filtered, step.dead) == (70, 62, 3, 5)
    assert (rule.came, rule.dead) == (62, 2)
    assert (dead_in(observed), letters_in(observed, account.passages, {"events", "views"})) == (17, 10)
