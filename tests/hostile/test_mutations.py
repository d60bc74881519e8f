"""Valid logs in which bytes, lines or values went wrong, opened in every way."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile.logs import log_with_checkpoint, simple_log
from tests.hostile.mutations import hostile_logs
from tests.hostile.opening import Log, open_everything

_SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(_SETTINGS, max_examples=150)
@given(hostile_logs(simple_log(3)))
def test_damaged_commits(log: Log) -> None:
    open_everything(log)


@settings(_SETTINGS, max_examples=80)
@given(st.one_of(hostile_logs(log_with_checkpoint()), hostile_logs(log_with_checkpoint(parts=3, hint=False))))
def test_damaged_checkpoints(log: Log) -> None:
    open_everything(log)
