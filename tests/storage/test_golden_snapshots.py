"""Every table of ../shared/golden loads at every version that its manifest lists, or is refused by the name of a feature."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.core.errors import LakelogError, UnsupportedFeatureError, VersionNotFoundError
from lakelog.storage.local import LocalLogStore
from lakelog.storage.table_log import TableLog
from tests.golden import GOLDEN, Table, tables

# Reader features that are not implemented yet: a table that needs one must be refused by that name. The list shrinks.
NOT_YET = {
    "deletionVectors",
    "v2Checkpoint",
    "variantShredding-preview",
    "variantType",
    "variantType-preview",
}


def commits_of(table: Table) -> list[Path]:
    folder = GOLDEN / str(table["folder"]) / "_delta_log"
    return sorted(path for path in folder.glob("*.json") if path.stem.isdigit()) if folder.is_dir() else []


def has_every_commit(table: Table) -> bool:
    versions = [int(commit.stem) for commit in commits_of(table)]
    return table["expect"] != "error" and versions == list(range(len(versions)))


def needed_not_yet(protocol: dict[str, object]) -> set[str]:
    features = protocol.get("readerFeatures") or []
    assert isinstance(features, list)
    return NOT_YET & set(features)


@pytest.mark.parametrize("table", tables())
def test_every_listed_version(table: Table) -> None:
    root = str(GOLDEN / str(table["folder"]))
    protocol = table.get("protocol")
    not_yet = needed_not_yet(protocol) if isinstance(protocol, dict) else set()
    if table["expect"] == "error":
        with pytest.raises(LakelogError):
            TableLog(root, LocalLogStore()).snapshot()
        return
    versions = table["versions"]
    assert isinstance(versions, dict)
    refused: set[str] = set()
    for version, expected in versions.items():
        try:
            snapshot = TableLog(root, LocalLogStore()).snapshot(int(version))
        except UnsupportedFeatureError as error:
            refused |= set(error.features)
            continue
        assert snapshot.version == int(version)
        assert (snapshot.num_files, snapshot.size_in_bytes) == (expected["num_files"], expected["size_in_bytes"]), f"version {version}"
        assert list(snapshot.partition_columns) == expected["partition_columns"], f"version {version}"
    assert refused <= not_yet
    assert bool(refused) == bool(not_yet), f"every version loads although {not_yet} are not implemented"


@pytest.mark.parametrize("table", tables(lambda table: table["latest_version"] is not None))
def test_versions_that_cannot_be_rebuilt(table: Table) -> None:
    latest = table["latest_version"]
    log = TableLog(str(GOLDEN / str(table["folder"])), LocalLogStore())
    ranges = table.get("unavailable_versions", [])
    assert isinstance(latest, int)
    assert isinstance(ranges, list)
    for version in [latest + 1, *(version for low, high in ranges for version in range(low, high + 1))]:
        with pytest.raises(VersionNotFoundError) as caught:
            log.snapshot(version)
        assert caught.value.latest == latest


@pytest.mark.parametrize("table", tables(has_every_commit))
def test_a_snapshot_that_grows_commit_by_commit_is_the_one_from_scratch(table: Table, tmp_path: Path) -> None:
    folder = tmp_path / "_delta_log"
    folder.mkdir()
    log = TableLog(str(tmp_path), LocalLogStore())
    for commit in commits_of(table):
        (folder / commit.name).write_bytes(commit.read_bytes())
        try:
            grown = log.snapshot()
        except UnsupportedFeatureError:
            return
        fresh = TableLog(str(tmp_path), LocalLogStore()).snapshot()
        assert sorted(grown.files.to_pylist(), key=str) == sorted(fresh.files.to_pylist(), key=str)
        assert sorted(grown.tombstones.to_pylist(), key=str) == sorted(fresh.tombstones.to_pylist(), key=str)
        assert grown.metadata == fresh.metadata
        assert grown.transactions == fresh.transactions
