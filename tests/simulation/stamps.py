"""What in-commit timestamps and row ids promise, told from the log's bytes alone, commit after commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from tests.simulation.world import Row, Violation

TIMES, ROW_IDS = "inCommitTimestamp", "rowTracking"
TIMES_ON, ROW_IDS_ON = "delta.enableInCommitTimestamps", "delta.enableRowTracking"
SINCE, SINCE_MS = "delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp"
_DOMAIN, _PRESERVED = "delta.rowTracking", "delta.rowTracking.preserved"

_Actions = Sequence[tuple[str, Any]]
Ids = tuple[int | None, int | None]


class Stamps:
    """The commits seen so far.

    Attributes:
        ids: ``baseRowId`` and ``defaultRowCommitVersion`` of each live file that has any.
        mark: the text of the domain that tells the highest id; None before the first.
        time: the newest commit's in-commit timestamp.
    """

    def __init__(self, files: Mapping[str, Sequence[Row]]) -> None:
        self.ids: dict[str, Ids] = {}
        self.mark: str | None = None
        self.time: int | None = None
        self._files = files
        self._live: set[str] = set()
        self._highest = -1
        self._told_since: tuple[str | None, str | None] = (None, None)
        self._enabled = False

    def land(self, version: int, actions: _Actions, *, features: frozenset[str], configuration: Mapping[str, str], copies: bool) -> None:
        """Look at the next commit.

        Args:
            actions: kind and inner object of each, ``commitInfo`` first.
            features: of the protocol from this commit on.
            configuration: of the metadata from this commit on.
            copies: rows that were in the table before are in other files now.
        """
        self._check_time(version, actions[0][1], configuration)
        self._check_ids(version, actions, given=ROW_IDS in features)
        tags = actions[0][1].get("tags") or {}
        if ROW_IDS in features and configuration.get(ROW_IDS_ON) == "true":
            lacking = [path for path in self._live if None in self.ids.get(path, (None, None))]
            if lacking:
                raise Violation(f"version {version} has files whose rows have no ids: {sorted(lacking)}")
            if tags.get(_PRESERVED) not in ("true", "false") or (copies and tags[_PRESERVED] == "true"):
                raise Violation(f"version {version} tells of the rows it copies ({copies}) that they kept their ids: {tags}")
        elif tags:
            raise Violation(f"version {version} has the tags {tags}")

    def _check_time(self, version: int, info: Mapping[str, Any], configuration: Mapping[str, str]) -> None:
        time, enabled, told = info.get("inCommitTimestamp"), configuration.get(TIMES_ON) == "true", _since(configuration)
        if not enabled:
            if time is not None:
                raise Violation(f"version {version} has a time of its own, which the table does not ask for")
        elif type(time) is not int or next(iter(info)) != "inCommitTimestamp":
            raise Violation(f"version {version} does not begin with its time: {dict(info)}")
        elif self._enabled and self.time is not None and time <= self.time:
            raise Violation(f"version {version} was made at {time}, but version {version - 1} at {self.time}")
        if enabled:
            due = self._told_since if self._enabled else (None, None) if version == 0 else (str(version), str(time))
            if told != due:
                raise Violation(f"version {version} tells that commits have times since {told}, but that is {due}")
            self._told_since = told
        self.time, self._enabled = time, enabled

    def _check_ids(self, version: int, actions: _Actions, *, given: bool) -> None:
        fresh: list[tuple[int, int, str]] = []
        before, marks = dict(self.ids), []
        for kind, value in actions:
            if kind in ("add", "remove"):
                path, ids = value["path"], (value.get("baseRowId"), value.get("defaultRowCommitVersion"))
                if path in before and ids != before[path]:
                    raise Violation(f"version {version} has {ids} as ids of {path}, which was added with {before[path]}")
                if kind == "remove":
                    self._live.discard(path)
                    self.ids.pop(path, None)
                    continue
                self._live.add(path)
                base, since = ids
                if (base is not None) != given or (since is not None) != given:
                    raise Violation(f"version {version} adds {path} with the ids {ids}; ids are given: {given}")
                if base is not None:
                    self.ids[path] = ids
                    if path not in before:
                        fresh.append((base, base + len(self._files[path]) - 1, path))
                        if since != version:
                            raise Violation(f"version {version} adds {path} as of version {since}")
            elif kind == "domainMetadata" and value["domain"] == _DOMAIN:
                marks.append(value["configuration"])
        self._check_fresh(version, fresh, marks)

    def _check_fresh(self, version: int, fresh: Iterable[tuple[int, int, str]], marks: Sequence[str]) -> None:
        highest = self._highest
        for first, last, path in sorted(fresh):
            if first <= highest:
                raise Violation(f"version {version} gives {path} the row ids {first} to {last}, but {highest} was given already")
            highest = last
        if marks:
            self.mark = marks[-1]
        if self.mark is not None:
            told = orjson.loads(self.mark)["rowIdHighWaterMark"]
            if told < highest:
                raise Violation(f"version {version} tells {told} as the highest row id, but {highest} is")
            highest = told
        elif highest >= 0:
            raise Violation(f"version {version} does not tell the highest row id, {highest}")
        self._highest = highest


def _since(configuration: Mapping[str, str]) -> tuple[str | None, str | None]:
    return configuration.get(SINCE), configuration.get(SINCE_MS)


def without_marks(configuration: Mapping[str, str]) -> dict[str, str]:
    """What users set: without the properties that a commit writes for its version."""
    return {key: value for key, value in configuration.items() if key not in (SINCE, SINCE_MS)}
