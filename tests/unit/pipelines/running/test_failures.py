"""What ended a query, in one line with a cure that is about it."""

from __future__ import annotations

from pyspark.errors import AnalysisException

from ottla.pipelines.running.failures import plain_failure

PLAN = "\n+- ~StreamingRelationV2 ottla, ottla, [failOnDataLoss=true, subscribe=orders], [key, value]"


def test_the_plan_of_a_query_says_nothing_about_its_failure() -> None:
    problem = plain_failure(AnalysisException(f"Distinct aggregations are not supported.;{PLAN}"), ())
    assert (problem.cause, problem.cure) == ("Distinct aggregations are not supported.", "")


def test_lost_records_have_their_cure() -> None:
    problem = plain_failure(RuntimeError("Some data may have been lost, see\nfailOnDataLoss"), ())
    assert "fail_on_data_loss: false" in problem.cure
