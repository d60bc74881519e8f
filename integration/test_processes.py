"""Processes that append to one table on MinIO at once: every commit lands once, whatever befalls the answers, the writers and the clocks.

By default with few processes, so that CI has them all in a minute. ``make soak-s3`` runs the size that is promised:

    WRITERS  processes at once, 8 by default
    APPENDS  of each, 12 by default
    SEED     of what the proxy loses and of who is killed, 1 by default
"""

from __future__ import annotations

import logging
import os

import pytest

from integration.proxy import Fault, FaultProxy, Plan, Rule
from integration.servers import MinIO
from lakelog.core.actions import Protocol
from tests.processes.race import Race, check, make_table, race
from tests.processes.soak import report
from tests.processes.table import Table

WRITERS, APPENDS, SEED = (int(os.environ.get(name, default)) for name, default in (("WRITERS", "8"), ("APPENDS", "12"), ("SEED", "1")))
HOUR_MS = 60 * 60 * 1000

_LOGGER = logging.getLogger(__name__)


@pytest.fixture
def table(minio: MinIO, bucket: str) -> Table:
    """Where a table may be made, reached without a detour."""
    return Table(f"s3a://{bucket}/some folder/t", _settings(minio, minio.endpoint), {**minio.environment(), "AWS_ALLOW_HTTP": "true"})


def _settings(minio: MinIO, endpoint: str) -> dict[str, str]:
    options = {**minio.options(), "endpoint_url": endpoint, "logstore.class": "s3"}
    return {f"spark.lakelog.s3a.{name}": str(value) for name, value in options.items()}


def _through(proxy: FaultProxy, minio: MinIO, table: Table) -> Table:
    return Table(table.root, _settings(minio, proxy.url))


def _said(result: Race, proxy: FaultProxy | None = None) -> None:
    _LOGGER.info(report(result, WRITERS * APPENDS))
    if proxy is not None:
        _LOGGER.info("%s; %s", dict(proxy.counts), dict(proxy.struck))


def _check_all_landed(table: Table, result: Race) -> None:
    check(table, result, wanted=WRITERS * APPENDS)
    assert sorted(said.version for said in result.acknowledged.values()) == list(range(1, WRITERS * APPENDS + 1))


def test_every_append_of_every_process_lands_once(table: Table) -> None:
    make_table(table)
    result = race(table, writers=WRITERS, appends=APPENDS)
    _said(result)
    _check_all_landed(table, result)


def test_with_answers_lost_after_the_effect(table: Table, minio: MinIO) -> None:
    make_table(table)
    lost = Rule(Fault.LOSE_ANSWER, probability=0.05)
    with FaultProxy(minio.endpoint, Plan(lost, seed=SEED)) as proxy:
        result = race(_through(proxy, minio, table), writers=WRITERS, appends=APPENDS)
        _said(result, proxy)
    _check_all_landed(table, result)
    assert proxy.struck[Fault.LOSE_ANSWER.value] > 0


def test_with_every_fault_of_a_bad_day(table: Table, minio: MinIO) -> None:
    """Requests that arrive late or twice, answers lost, cut short or refused, listings with doubles."""
    make_table(table)
    faults = [
        Rule(Fault.LATE, kind="PUT commit", probability=0.02, seconds=0.2),
        Rule(Fault.TWICE, method="PUT", probability=0.02),
        Rule(Fault.LOSE_ANSWER, probability=0.02),
        Rule(Fault.RESET_BEFORE, probability=0.02),
        Rule(Fault.RESET_AFTER, probability=0.02),
        Rule(Fault.RESET_IN_BODY, method="PUT", probability=0.02),
        Rule(Fault.SLOW_DOWN, probability=0.02, seconds=0),
        Rule(Fault.TRUNCATE, method="GET", probability=0.02),
        Rule(Fault.SLOW_BODY, kind="GET", probability=0.02, seconds=0.2),
        Rule(Fault.LISTING_TWICE, kind="LIST", probability=0.02),
    ]
    with FaultProxy(minio.endpoint, Plan(*faults, seed=SEED)) as proxy:
        result = race(_through(proxy, minio, table), writers=WRITERS, appends=APPENDS)
        _said(result, proxy)
    _check_all_landed(table, result)
    assert sum(proxy.struck.values()) > 0


def test_what_a_killed_writer_acknowledged_is_there(table: Table) -> None:
    make_table(table, {"delta.checkpointInterval": "7"})
    result = race(table, writers=WRITERS, appends=APPENDS, kill_after=APPENDS // 2, seed=SEED)
    _said(result)
    check(table, result, wanted=WRITERS * APPENDS)
    assert result.kills > 0


@pytest.mark.parametrize("stamped", [False, True], ids=["file times", "in-commit timestamps"])
def test_with_writers_whose_clocks_differ_by_an_hour(table: Table, stamped: bool) -> None:
    if stamped:
        protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp",))
        make_table(table, {"delta.enableInCommitTimestamps": "true"}, protocol=protocol)
    else:
        make_table(table)
    result = race(table, writers=WRITERS, appends=APPENDS, clocks_apart_ms=HOUR_MS)
    _said(result)
    _check_all_landed(table, result)
