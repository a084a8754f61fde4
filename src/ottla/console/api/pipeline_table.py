"""The rows of the API's table that are about pipelines; table.py has the others."""

from __future__ import annotations

from ottla.console.api import dead_letters, letter_resends, pipeline_course, pipelines
from ottla.console.api.routing import GET, POST, Route
from ottla.console.people.rights import Role

PIPELINES = "/api/clusters/{cluster}/pipelines"
PIPELINE = f"{PIPELINES}/{{pipeline}}"
LETTERS = f"{PIPELINE}/dead-letters"
VIEWER, OPERATOR = Role.VIEWER, Role.OPERATOR

ROUTES = [
    Route(
        GET,
        PIPELINES,
        pipelines.list_pipelines,
        VIEWER,
        "the last run of each pipeline",
        pipelines.PipelineList,
        is_shared=False,
    ),
    Route(
        GET,
        PIPELINE,
        pipelines.show_pipeline,
        VIEWER,
        "a pipeline: its queries, and the rows at each step",
        pipelines.PipelineAnswer,
        is_shared=False,
    ),
    Route(
        GET,
        f"{PIPELINE}/course",
        pipeline_course.show_course,
        VIEWER,
        "the batches of its last run, as columns for plots",
        pipeline_course.Course,
        is_shared=False,
    ),
    Route(
        GET,
        f"{PIPELINE}/report",
        pipeline_course.make_report,
        VIEWER,
        "the report of its last run as a file, `format` png, svg or html",
    ),
    Route(
        GET,
        LETTERS,
        dead_letters.summarize,
        VIEWER,
        "its dead letters by step and reason, counted on at each call",
        dead_letters.LetterSummary,
        is_shared=False,
    ),
    Route(
        GET,
        f"{LETTERS}/letters",
        dead_letters.list_all,
        VIEWER,
        "dead letters, newest first: `step`, `reason`, `limit`, `cursor`",
        dead_letters.LetterList,
        is_shared=False,
    ),
    Route(
        GET,
        f"{LETTERS}/letters/{{partition}}/{{offset}}",
        dead_letters.show,
        VIEWER,
        "one dead letter, all of it, and whether its source record is still there",
        dead_letters.LetterRow,
        is_shared=False,
    ),
    Route(
        POST,
        f"{LETTERS}/resend-plans",
        letter_resends.plan,
        VIEWER,
        "how many letters would be sent again, and where to",
        letter_resends.ResendPlan,
        letter_resends.Selection,
        is_change=False,
    ),
    Route(
        POST,
        f"{LETTERS}/resends",
        letter_resends.send,
        OPERATOR,
        "send letters again, each at most once to a topic",
        letter_resends.ResendAnswer,
        letter_resends.Selection,
    ),
    Route(
        POST,
        f"{PIPELINE}/stops",
        pipelines.stop_pipeline,
        OPERATOR,
        "let it end its batch, then stop",
    ),
]
