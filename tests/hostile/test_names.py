"""Names in the log folder that no writer should have made, and hints that lie."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from lakelog.core.errors import CorruptLogError, LakelogError, NotADeltaTableError
from lakelog.core.last_checkpoint import LastCheckpoint
from lakelog.core.log_files import checkpoint_name, commit_name
from lakelog.storage.local import LocalLogStore
from lakelog.storage.table_log import TableLog
from tests.hostile.hostile_json import DEEP
from tests.hostile.logs import log_with_checkpoint, simple_log
from tests.hostile.opening import environment, open_everything, open_log

ODD_NAMES = (
    *(
        "99999999999999999999.json",
        "-0000000000000000001.json",
        "0000000000000000001.json",
        "000000000000000000001.json",
        "1.json",
        ".json",
    ),
    *(
        "00000000000000000001.JSON",
        "00000000000000000001.json.tmp",
        "00000000000000000001.json ",
        "\u0660" * 20 + ".json",
        "+" + "0" * 19 + ".json",
    ),
    *("99999999999999999999.checkpoint.parquet", "00000000000000000001.checkpoint.0000000000.0000000000.parquet"),
    *("00000000000000000001.checkpoint.0000000002.0000000001.parquet", "00000000000000000001.checkpoint.0000000001.9999999999.parquet"),
    *("00000000000000000002.00000000000000000001.compacted.json", "00000000000000000000.00000000000000000001.compacted.json"),
    *("00000000000000000001.crc", "99999999999999999999.crc", "_last_checkpoint.tmp", "_commits", "_sidecars", "a\nb", "\u202e", "x" * 200),
    *("00000000000000000000.checkpoint.\u2028.json.x", "00000000000000000001.checkpoint..parquet"),
)
HINTS = (
    *(b"", b"{}", b"[]", b"null", b"3", b"{", b"\xff\xfe", b"\x00" * 100, DEEP.encode(), b'{"version":' + b"[" * 900 + b"]" * 900 + b"}"),
    *(
        b'{"version":%s,"size":1}' % version
        for version in (b"-1", b"0", b"2", b"4", b"99", b"1.0", b'"3"', b"true", b"null", b"1e3", b"NaN")
    ),
    *(b'{"version":%d,"size":1}' % version for version in (2**63 - 1, 2**63, 2**64)),
    b'{"version":' + b"9" * 5000 + b',"size":1}',
    *(b'{"version":3,"size":%s}' % size for size in (b"-1", b"%d" % 2**63, b"[]", b"1e999")),
    b'{"version":3,"version":4,"size":1}',
    b'{"version":3,"size":1,"parts":4}',
    b'{"version":3,"size":1,"checksum":"0"}',
    b'{"version":3,"size":1,"checksum":"0","a":"\\ud800"}',
    '{"version":3,"size":1}'.encode("utf-16"),
    b'\xef\xbb\xbf{"version":3,"size":1}',
)


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
@pytest.mark.parametrize("data", [b"", b"{", b"PAR1"], ids=["empty", "torn", "magic"])
def test_a_name_that_the_protocol_does_not_know_changes_nothing(name: str, data: bytes) -> None:
    outcomes = open_everything({**simple_log(2), name: data})
    assert set(outcomes.values()) == {None}


@pytest.mark.parametrize("data", HINTS, ids=lambda data: ascii(data[:60]))
def test_a_hint_that_lies_is_as_good_as_none(data: bytes) -> None:
    log = {**log_with_checkpoint(), "_last_checkpoint": data}
    honest = open_log(log_with_checkpoint())
    assert open_log(log).files.equals(honest.files)
    open_everything(log)


def test_a_hint_may_not_cost_more_than_the_listing_that_it_spares() -> None:
    long = '{"%s":' % ("k" * 17_000)
    nested = '{"version":3,"size":1,"checksum":"0","a":' + long * 900 + "1" + "}" * 900 + "}"
    with pytest.raises(CorruptLogError, match="absurdly long"):
        LastCheckpoint.from_bytes(nested.encode())
    wide = json.dumps({"version": 3, "checksum": "0", "k" * 60_000: dict.fromkeys(map(str, range(100_000)), 1)})
    with pytest.raises(CorruptLogError, match="absurdly large"):
        LastCheckpoint.from_bytes(wide.encode())
    with pytest.raises(CorruptLogError, match="bytes"):
        LastCheckpoint.from_bytes(b" " * 20_000_000)


@pytest.mark.parametrize("version", [7, 2**31, 2**63 - 1])
def test_a_commit_far_ahead_is_a_gap(version: int) -> None:
    log = {**simple_log(2), commit_name(version): simple_log(2)[commit_name(1)]}
    outcomes = open_everything(log)
    assert "lacks" in str(outcomes["newest"])
    assert outcomes["first"] is None


@pytest.mark.parametrize("version", [7, 2**31, 2**63 - 1])
def test_a_checkpoint_far_ahead_is_the_newest_version(version: int) -> None:
    log = dict(simple_log(2))
    log[checkpoint_name(version)] = log_with_checkpoint()[checkpoint_name(3)]
    assert open_log(log).version == version
    assert open_everything({**log, checkpoint_name(version): b"PAR1"})["first"] is None


@pytest.mark.parametrize("folder", ["00000000000000000001.json", "00000000000000000001.checkpoint.parquet", "_last_checkpoint"])
def test_a_folder_under_a_files_name_is_no_file(tmp_path: Path, folder: str) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / commit_name(0)).write_bytes(simple_log(1)[commit_name(0)])
    (log / folder).mkdir()
    table = TableLog(str(tmp_path), LocalLogStore(), environment())
    assert table.snapshot().version == 0
    assert len(table.history()) == 1


def test_a_log_that_is_a_file_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").write_bytes(b"")
    with pytest.raises(NotADeltaTableError):
        TableLog(str(tmp_path), LocalLogStore(), environment()).snapshot()


def test_names_that_are_no_utf_8_are_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / commit_name(0)).write_bytes(simple_log(1)[commit_name(0)])
    (Path(str(log)) / b"0000000000000000000\xff.json".decode(errors="surrogateescape")).write_bytes(b"")
    table = TableLog(str(tmp_path), LocalLogStore(), environment())
    assert (table.snapshot().version, table.clean_up()) == (0, [])


def test_no_mixture_of_parts_makes_a_checkpoint() -> None:
    """Parts of checkpoints of two and of three parts, some of them missing: only what is whole is used."""
    two, three = log_with_checkpoint(parts=2, hint=False), log_with_checkpoint(parts=3, hint=False)
    parts = sorted({name for name in (*two, *three) if ".checkpoint." in name})
    whole = open_log(two).files["key"].to_pylist()
    for chosen in itertools.chain.from_iterable(itertools.combinations(parts, size) for size in range(len(parts) + 1)):
        log = {name: data for name, data in two.items() if ".checkpoint." not in name}
        log |= {name: {**two, **three}[name] for name in chosen}
        is_whole = any(sum(name.endswith(f".{count:010d}.parquet") for name in chosen) == count for count in (2, 3))
        if is_whole:
            assert sorted(open_log(log).files["key"].to_pylist()) == sorted(whole)
        else:
            with pytest.raises(LakelogError):
                open_log(log)
