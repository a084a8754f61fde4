"""A process that runs as plain Python reports it, with the reason."""

from ottla.base import clock
from ottla.base.compiled import is_compiled, plain_python_message


def test_one_line_reports_it_with_a_remedy() -> None:
    assert plain_python_message(is_plain=False, environment={}) is None
    told = plain_python_message(is_plain=True, environment={})
    assert told is not None
    assert "\n" not in told
    assert "C compiler" in told
    assert "OTTLA_PURE is set" in (plain_python_message(is_plain=True, environment={"OTTLA_PURE": "1"}) or "")


def test_it_is_seen_by_the_file_of_a_hot_module() -> None:
    assert is_compiled() is str(clock.__file__).endswith(".so")
