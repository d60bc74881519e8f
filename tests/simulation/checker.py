"""What must be true of a run, told from the log's bytes and the clients' own accounts, without any of core's replay.

Every commit does to the table what its operation means, done to the version before it, and its caller was told the same. Under
WriteSerializable, done to the version before it without those rows that blind appends added unseen by it; they stay as they are.

Under WriteSerializable the whole is also some order of the writes. A blind append may come later there than its version says, behind
transactions that did not see it, so the order is sought as follows. Of two transactions the one that landed first comes first where one
of them read what the other wrote; but where the first is a blind append that the second did not see and would have read, the second
comes first. Transactions of which neither read what the other wrote may stand in either order. An order that obeys this is tried out:
all operations are done to an empty table, and every answer and the final state must be the same.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from tests.simulation.stamps import Stamps, without_marks
from tests.simulation.world import Facts, Intent, Row, State, Violation, column_names

LEGACY_FEATURES = frozenset({"appendOnly", "invariants"})


@dataclass(slots=True, kw_only=True)
class Landed:
    """A commit as its bytes tell it, with the table that it made."""

    version: int
    intent: Intent
    blind: bool
    facts: Facts
    state: State
    added: list[Row] = field(default_factory=list)
    removed: list[Row] = field(default_factory=list)
    changes_metadata: bool = False


def check(
    commits: Mapping[int, bytes],
    *,
    files: Mapping[str, Sequence[Row]],
    intents: Mapping[str, Intent],
    seen: Iterable[tuple[str, int, Facts]],
    serializable: bool,
) -> list[Landed]:
    """The history, when it is a good one.

    Args:
        commits: every commit file that ever was, by version.
        files: rows by data file, those deleted again left out.
        intents: every commit attempt by name.
        seen: what clients saw of which version.
        serializable: False for WriteSerializable.

    Raises:
        Violation: it is not.
    """
    history = _read(commits, files, intents)
    _check_outcomes(history, intents)
    for client, version, facts in seen:
        if version >= len(history):
            raise Violation(f"{client} saw version {version}, which is not in the log")
        check_facts(facts, history[version].facts, f"{client} at version {version}")
    passed_over = _check_versions(history, serializable=serializable)
    if passed_over:
        _check_order(history)
    return history


def check_facts(told: Facts, true: Facts, who: str) -> None:
    """Raises a `Violation` where a snapshot says something else than the log."""
    for name, one, other in zip(Facts._fields, told, true, strict=True):
        if one != other:
            raise Violation(f"the snapshot of {who} gives {name} as {_shown(one)}, but the log as {_shown(other)}")


def _read(commits: Mapping[int, bytes], files: Mapping[str, Sequence[Row]], intents: Mapping[str, Intent]) -> list[Landed]:
    if sorted(commits) != list(range(len(commits))):
        raise Violation(f"the versions are not contiguous: {sorted(commits)}")
    history: list[Landed] = []
    txn_ids: dict[str, int] = {}
    live: dict[str, None] = {}
    rows: dict[int, Row] = {}
    configuration: dict[str, str] = {}
    schema: str | None = None
    features: frozenset[str] = frozenset()
    transactions: dict[str, int] = {}
    stamps = Stamps(files)
    for version in range(len(commits)):
        actions = [next(iter(orjson.loads(line).items())) for line in commits[version].splitlines()]
        kind, info = actions[0]
        if kind != "commitInfo" or "txnId" not in info:
            raise Violation(f"version {version} does not begin with a commitInfo that has a txnId")
        if txn_ids.setdefault(info["txnId"], version) != version:
            raise Violation(f"versions {txn_ids[info['txnId']]} and {version} have one txnId: a commit was applied twice")
        intent = intents.get(info.get("userMetadata"))
        if intent is None:
            raise Violation(f"nobody tried the commit of version {version}")
        gone: list[Row] = []
        come: list[Row] = []
        changes_metadata = False
        for kind, value in actions[1:]:
            if kind == "remove":
                if value["path"] not in live:
                    raise Violation(f"version {version} ({intent.what}) removes {value['path']}, which is not in the table")
                del live[value["path"]]
                gone += files[value["path"]]
            elif kind == "add":
                if value["path"] not in files:
                    raise Violation(f"version {version} ({intent.what}) names the data file {value['path']}, which was deleted")
                if value["path"] in live and value.get("dataChange") is False and not any(other[0] == "remove" for other in actions):
                    # Something new of a file that is there: no row comes.
                    continue
                if value["path"] in live:
                    raise Violation(f"version {version} ({intent.what}) adds {value['path']} a second time")
                live[value["path"]] = None
                come += files[value["path"]]
            elif kind == "metaData":
                configuration, schema, changes_metadata = value["configuration"], value["schemaString"], True
            elif kind == "protocol":
                features, changes_metadata = frozenset(value.get("writerFeatures") or LEGACY_FEATURES), True
            elif kind == "txn":
                transactions = {**transactions, value["appId"]: value["version"]}
        for row in gone:
            del rows[row.uid]
        for row in come:
            if row.uid in rows:
                raise Violation(f"row {row.uid} is in the table twice since version {version} ({intent.what})")
            rows[row.uid] = row
        copies = not {row.uid for row in gone}.isdisjoint(row.uid for row in come)
        stamps.land(version, actions, features=features, configuration=configuration, copies=copies)
        state = State(dict(rows), without_marks(configuration), column_names(schema), features, transactions)
        facts = Facts(frozenset(live), configuration, schema, features, transactions, dict(stamps.ids), stamps.mark, stamps.time)
        old, new = set(gone), set(come)
        history.append(
            Landed(
                version=version,
                intent=intent,
                blind=intent.where is None and not gone,
                facts=facts,
                state=state,
                added=[row for row in come if row not in old],
                removed=[row for row in gone if row not in new],
                changes_metadata=changes_metadata,
            )
        )
    return history


def _check_outcomes(history: Sequence[Landed], intents: Mapping[str, Intent]) -> None:
    places: defaultdict[str, list[int]] = defaultdict(list)
    batches: dict[tuple[str, int], int] = {}
    for landed in history:
        intent = landed.intent
        places[intent.name].append(landed.version)
        if intent.application is not None and batches.setdefault(intent.application, landed.version) != landed.version:
            raise Violation(f"{intent.what} was applied in versions {batches[intent.application]} and {landed.version}")
    for name, intent in intents.items():
        found = places.get(name, [])
        if intent.outcome == "acknowledged" and found != [intent.version]:
            raise Violation(f"{name} of {intent.client} ({intent.what}) was acknowledged as version {intent.version}, but is in {found}")
        if intent.outcome == "refused" and found:
            raise Violation(f"{name} of {intent.client} ({intent.what}) was refused, but is in {found}")
        if len(found) > 1:
            raise Violation(f"{name} of {intent.client} ({intent.what}) was applied more than once: in {found}")


def _check_versions(history: Sequence[Landed], *, serializable: bool) -> list[tuple[Landed, Landed]]:
    """Check each version against the one before it; the blind appends that a transaction did not see and should have read, with it."""
    state = State()
    passed_over: list[tuple[Landed, Landed]] = []
    for landed in history:
        intent = landed.intent
        hidden: list[Row] = []
        if not serializable and intent.where is not None:
            for append in history[intent.read_version + 1 : landed.version]:
                rows = [row for row in append.added if intent.where.matches(row)] if append.blind else []
                hidden += (row for row in rows if state.rows.get(row.uid) == row)
                if rows:
                    passed_over.append((append, landed))
        for row in hidden:
            del state.rows[row.uid]
        answer = intent.apply(state)
        state.rows.update((row.uid, row) for row in hidden)
        what = _told(landed)
        if answer != intent.answer:
            raise Violation(f"{what} answered {intent.answer}, but on the table before it the answer is {answer}")
        _check_state(state, landed.state, what)
    return passed_over


def _check_order(history: Sequence[Landed]) -> None:
    state = State()
    for landed in _some_order(history):
        answer = landed.intent.apply(state)
        if answer != landed.intent.answer:
            raise Violation(f"{_told(landed)} answered {landed.intent.answer}, but in an order of the writes it is {answer}")
    _check_state(state, history[-1].state, f"the final version {len(history) - 1}, in an order of the writes,")


def _told(landed: Landed) -> str:
    intent = landed.intent
    return f"version {landed.version} ({intent.what} by {intent.client}, which read version {intent.read_version})"


def _check_state(model: State, true: State, what: str) -> None:
    if model.rows != true.rows:
        lost = sorted(model.rows.keys() - true.rows.keys())
        extra = sorted(true.rows.keys() - model.rows.keys())
        changed = sorted(uid for uid in model.rows.keys() & true.rows.keys() if model.rows[uid] != true.rows[uid])
        raise Violation(f"{what} should make another table: it lacks rows {lost}, has rows {extra} too many, and others in {changed}")
    for name in ("configuration", "columns", "features", "transactions"):
        if getattr(model, name) != getattr(true, name):
            raise Violation(f"{what} should leave {name} as {getattr(model, name)}, but it is {getattr(true, name)}")


def _some_order(history: Sequence[Landed]) -> list[Landed]:
    followers: list[list[int]] = [[] for _ in history]
    waits = [0] * len(history)
    for later in history:
        for earlier in history[: later.version]:
            first, second = earlier.version, later.version
            if earlier.blind and first and first > later.intent.read_version and not earlier.changes_metadata:
                if not _read_any(later, earlier):
                    continue
                first, second = second, first
            elif first and not _depend(earlier, later):
                continue
            followers[first].append(second)
            waits[second] += 1
    ready = [version for version, count in enumerate(waits) if not count]
    order: list[Landed] = []
    while ready:
        version = heapq.heappop(ready)
        order.append(history[version])
        for follower in followers[version]:
            waits[follower] -= 1
            if not waits[follower]:
                heapq.heappush(ready, follower)
    if len(order) < len(history):
        stuck = [version for version, count in enumerate(waits) if count]
        raise Violation(f"no order of the writes gives this history: each of the versions {stuck} must come before another of them")
    return order


def _depend(one: Landed, other: Landed) -> bool:
    if one.changes_metadata and other.changes_metadata:
        return True
    if one.intent.application and other.intent.application and one.intent.application[0] == other.intent.application[0]:
        return True
    return _read_any(one, other) or _read_any(other, one)


def _read_any(reader: Landed, writer: Landed) -> bool:
    where = reader.intent.where
    return where is not None and (any(map(where.matches, writer.added)) or any(map(where.matches, writer.removed)))


def _shown(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else value
