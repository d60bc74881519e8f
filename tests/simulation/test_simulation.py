"""Whole transactions of several clients over a store that fails, each time in another way; and what the simulator itself promises."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog.storage.testing.faults import Fault
from tests.simulation import run
from tests.simulation.run import replay_command, run_block, story
from tests.simulation.simulation import COMMITS, MIXES, Simulation, simulate
from tests.simulation.stamps import SINCE

_SEEDS = 2000
_BLOCK = 100


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The commit loop warns of every unknown outcome, and pytest keeps each warning."""
    logger = logging.getLogger("lakelog")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.mark.parametrize("first", range(0, _SEEDS, _BLOCK))
def test_every_seed_keeps_its_promises(first: int) -> None:
    block = run_block(first, first + _BLOCK)

    assert block.failure is None, f"seed {block.failure[0]}: {block.failure[1]}; replay it with {replay_command(block.failure[0])}"
    assert block.seeds == _BLOCK
    # Faults take some of them, and a run that is short of commits has tried four times as many operations.
    assert block.commits > 0.95 * _BLOCK * COMMITS


def test_without_faults_a_run_has_all_its_commits() -> None:
    quiet_ones = [simulation for seed in range(60) if not (simulation := Simulation(seed)).has_faults]

    assert quiet_ones
    assert all(simulation.run().acknowledged >= COMMITS for simulation in quiet_ones)


def test_one_seed_is_one_history() -> None:
    for seed in range(12):
        first, second = simulate(seed, traced=True), simulate(seed, traced=True)

        assert first.trace == second.trace
        assert first == second
    assert simulate(1, traced=True).trace != simulate(2, traced=True).trace


def test_the_runs_reach_what_they_are_for() -> None:
    reached: Counter[str] = Counter()
    for seed in range(200):
        simulation = Simulation(seed, traced=True)
        report = simulation.run()
        reached["checkpoints"] += report.checkpoints
        reached["deleted commits"] += report.deleted
        reached["crashes"] += sum(line.endswith("CRASH") for line in report.trace)
        for version, data in simulation.recorder.commits.items():
            reached["own times"] += b'"inCommitTimestamp":' in data
            reached["row ids"] += b'"baseRowId":' in data
            reached["times turned on"] += version > 0 and data.count(SINCE.encode()) > 0
        for intent in simulation.world.intents.values():
            reached[intent.outcome] += 1
            if intent.outcome == "acknowledged":
                reached[intent.what.split()[0]] += 1
                reached["rebased"] += -1 < intent.read_version < (intent.version or 0) - 1
                reached["joined"] += intent.read_version < 0 < (intent.version or 0)

    wanted = ["checkpoints", "deleted commits", "crashes", "acknowledged", "refused", "unknown", "rebased", "joined"]
    wanted += ["own times", "row ids", "times turned on"]
    operations = ["append", "overwrite", "delete", "update", "replace", "rearrange", "set", "add", "upgrade", "create"]
    assert {name: reached[name] for name in [*wanted, *operations] if not reached[name]} == {}


def test_a_failure_is_told_in_steps_with_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose_a_row(simulation: Simulation) -> None:
        simulation.world.files.pop(next(iter(simulation.world.files)))

    checked = Simulation._check
    monkeypatch.setattr(Simulation, "_check", lambda simulation: (lose_a_row(simulation), checked(simulation)))

    assert run.main(["--seeds", "4:6"]) == 1
    told = capsys.readouterr().out
    assert "seed 4: Violation: " in told
    assert "python -m tests.simulation.run --seed 4 --trace" in told
    assert run.main(["--seed", "4", "--trace"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("seed 4: ")
    assert any("put_if_absent 00000000000000000000.json: Created()" in line for line in lines)
    assert "which was deleted" in lines[-1]


def test_a_run_that_was_cut_off_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "state" / "seeds.json"

    assert run.main(["--seeds", "0:3", "--state", str(state)]) == 0
    assert json.loads(state.read_text()) == {"next": 3}
    assert run.main(["--seeds", "0:5", "--state", str(state)]) == 0
    assert json.loads(state.read_text()) == {"next": 5}
    assert "up to seed 5: 2 seeds" in capsys.readouterr().out
    assert run.main(["--seeds", "0:5", "--state", str(state)]) == 0
    assert "0 seeds" in capsys.readouterr().out


def test_a_good_seed_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--seed", "3"]) == 0
    assert capsys.readouterr().out == "seed 3: all is well\n"
    assert story(3)[1] is None


def test_every_fault_is_drawn_in_some_mix() -> None:
    mixes = {Simulation(seed).mix for seed in range(60)}

    assert mixes == {name for name, _ in MIXES}
    assert {fault for _, rates in MIXES for fault in rates} == set(Fault)
