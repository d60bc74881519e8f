"""The error tree: drawn as it is, and every error arrives whole where it is copied or sent to another process."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lakelog.core import errors
from lakelog.core.errors import (
    CommitOutcomeUnknown,
    ConcurrentAppendException,
    DeltaConcurrentModificationException,
    LakelogError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)


def below(kind: type[LakelogError]) -> Iterator[type[LakelogError]]:
    """A class and all below it, of those that core defines: other layers add theirs."""
    yield kind
    for found in kind.__subclasses__():
        if found.__module__ == errors.__name__:
            yield from below(found)


CONFLICT = {"winner_version": 3, "rule": "what was read is gone", "partition": "day=2024-01-01"}
TOLD: dict[type[LakelogError], dict[str, Any]] = {
    VersionNotFoundError: {"asked": 7, "earliest": 2, "latest": 5},
    SchemaMismatchError: {"differences": ["column a", "column b"]},
    UnsupportedFeatureError: {"features": ["deletionVectors"]},
    CommitOutcomeUnknown: {"version": 4, "txn_id": "b0c1"},
    **dict.fromkeys(below(DeltaConcurrentModificationException), CONFLICT),
}

ROUTES: list[Callable[[LakelogError], LakelogError]] = [
    copy.copy,
    copy.deepcopy,
    *(lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)),
]


def test_the_tree_is_drawn_as_it_is() -> None:
    drawn = re.findall(r"(?m)^    ([ │]*)(?:[├└]── )?([A-Z]\w+)(?=\s|$)", errors.__doc__ or "")
    above: list[str] = []
    parents = {}
    for indent, name in drawn:
        depth = len(indent) // 4 + (name != "LakelogError")
        above[depth:] = [name]
        parents[name] = above[depth - 1] if depth else "Exception"
    assert parents == {kind.__name__: kind.__bases__[0].__name__ for kind in below(LakelogError)}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("kind", list(below(LakelogError)), ids=lambda kind: kind.__name__)
def test_every_error_arrives_whole(kind: type[LakelogError], route: Callable[[LakelogError], LakelogError]) -> None:
    error = kind("Delta table /t: it went wrong. Do this.", **TOLD.get(kind, {}))
    error.add_note("seen on node 7")
    arrived = route(error)
    assert type(arrived) is kind
    assert (str(arrived), arrived.args) == (str(error), error.args)
    for name, value in TOLD.get(kind, {}).items():
        assert getattr(arrived, name) == (tuple(value) if isinstance(value, list) else value)
    assert arrived.__notes__ == ["seen on node 7"]


def test_what_is_not_known_of_a_conflict_is_none() -> None:
    error = ConcurrentAppendException("Delta table /t: conflict.")
    assert (error.winner_version, error.rule, error.partition) == (None, None, None)


def test_builtin_co_parents_say_what_we_say() -> None:
    for kind in below(LakelogError):
        if issubclass(kind, OSError):
            error = pickle.loads(pickle.dumps(kind("Delta table /t: not there.")))
            assert (str(error), error.errno, error.filename) == ("Delta table /t: not there.", None, None)
