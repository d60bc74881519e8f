"""Names of log files, to types and back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.log_files import (
    ChecksumFile,
    ClassicCheckpoint,
    CommitFile,
    CompactedFile,
    LastCheckpointFile,
    LogFile,
    MultiPartCheckpoint,
    OtherFile,
    V2Checkpoint,
    checkpoint_name,
    commit_name,
    parse_log_file,
    sort_key,
    version_prefix,
)

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
VERSION = st.integers(0, 2**63 - 1)
PARTS = st.tuples(st.integers(1, 10**10 - 1), st.integers(1, 10**10 - 1)).map(sorted)
FILES: st.SearchStrategy[LogFile] = st.one_of(
    st.builds(CommitFile, VERSION),
    st.builds(ClassicCheckpoint, VERSION),
    st.builds(lambda version, parts: MultiPartCheckpoint(version, *parts), VERSION, PARTS),
    st.builds(V2Checkpoint, VERSION, st.uuids().map(str), st.sampled_from(["json", "parquet"])),
    st.builds(lambda pair: CompactedFile(*pair), st.lists(VERSION, min_size=2, max_size=2, unique=True).map(sorted)),
    st.builds(ChecksumFile, VERSION),
    st.just(LastCheckpointFile()),
)


@given(FILES)
def test_every_file_is_read_back_from_its_name(file: LogFile) -> None:
    assert parse_log_file(file.name) == file


@given(st.text() | st.from_regex(r"[0-9]{18,21}\.[a-z.0-9]{0,40}", fullmatch=True))
def test_every_name_is_read_and_given_back(name: str) -> None:
    assert parse_log_file(name).name == name


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("00000000000000000007.json", CommitFile(7)),
        ("00000000000000000010.checkpoint.parquet", ClassicCheckpoint(10)),
        ("00000000000000000010.checkpoint.0000000001.0000000003.parquet", MultiPartCheckpoint(10, 1, 3)),
        (f"00000000000000000010.checkpoint.{UUID}.json", V2Checkpoint(10, UUID, "json")),
        ("00000000000000000004.00000000000000000006.compacted.json", CompactedFile(4, 6)),
        ("00000000000000000004.crc", ChecksumFile(4)),
        ("_last_checkpoint", LastCheckpointFile()),
    ],
)
def test_names_of_the_protocol(name: str, file: LogFile) -> None:
    assert parse_log_file(name) == file


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0.json",
        "7.json",
        "0000000000000000000.json",
        "000000000000000000000.json",
        "99999999999999999999.json",
        "\N{ARABIC-INDIC DIGIT ZERO}" * 20 + ".json",
        ".00000000000000000000.json.crc",
        "00000000000000000000.json.tmp",
        "00000000000000000000.json\n",
        f"00000000000000000000.{UUID}.json",
        "00000000000000000010.checkpoint.0000000000.0000000003.parquet",
        "00000000000000000010.checkpoint.0000000004.0000000003.parquet",
        "00000000000000000010.checkpoint.json",
        "00000000000000000006.00000000000000000006.compacted.json",
        "00000000000000000007.00000000000000000006.compacted.json",
        "_last_vacuum_info",
        "_sidecars",
    ],
)
def test_what_the_protocol_does_not_name_is_other(name: str) -> None:
    assert parse_log_file(name) == OtherFile(name)


def test_the_order_is_total_and_puts_the_preferred_checkpoint_of_a_version_last() -> None:
    ordered: list[LogFile] = [
        CommitFile(9),
        CommitFile(10),
        ChecksumFile(10),
        CompactedFile(10, 12),
        ClassicCheckpoint(10),
        MultiPartCheckpoint(10, 1, 2),
        MultiPartCheckpoint(10, 2, 2),
        MultiPartCheckpoint(10, 1, 3),
        V2Checkpoint(10, UUID, "json"),
        V2Checkpoint(10, UUID, "parquet"),
        CommitFile(11),
        LastCheckpointFile(),
        OtherFile("other"),
    ]
    shuffled = random.Random(7).sample(ordered, len(ordered))
    assert sorted(shuffled, key=sort_key) == ordered


def test_names_to_write() -> None:
    assert commit_name(7) == "00000000000000000007.json"
    assert checkpoint_name(10) == "00000000000000000010.checkpoint.parquet"
    assert commit_name(7).startswith(version_prefix(7))


def test_golden_logs_hold_the_kinds_they_were_made_for(golden: Path) -> None:
    kinds = {type(parse_log_file(file.name)) for file in golden.rglob("_delta_log/*") if file.is_file()}
    assert kinds == {CommitFile, ClassicCheckpoint, MultiPartCheckpoint, V2Checkpoint, ChecksumFile, LastCheckpointFile, OtherFile}
