"""A fuzzer of whole logs, guided by coverage: ``make fuzz``. Outside of that, atheris is needed by nothing.

    python -m tests.hostile.fuzz_log --seconds=600 --corpus=FOLDER --crashes=FOLDER
    python -m tests.hostile.fuzz_log FILE...          replay what a run has left among the crashes

An input is the files of a log one after the other, each after a line with its name. What comes out of `open_everything` other than an
error of our tree is a crash; so are more than ten seconds and more than three gigabytes.
"""

from __future__ import annotations

import argparse
import logging
import random
import subprocess
import sys
import zlib
from pathlib import Path

_IN_PROCESS = "--in-process"

if sys.argv[1:2] == [_IN_PROCESS]:
    import atheris

    # Before lakelog is imported: only what comes in through this hook tells the fuzzer which lines ran.
    with atheris.instrument_imports(include=["lakelog"]):
        import tests.hostile.opening  # noqa: F401

from tests.hostile.hostile_json import HOSTILE_TEXTS, with_hostile_value  # noqa: E402
from tests.hostile.logs import log_with_checkpoint, simple_log  # noqa: E402
from tests.hostile.opening import WAYS, Log, open_everything  # noqa: E402

_MARK = b"\n@@file "
_SECONDS_PER_INPUT = 10
_MEGABYTES = 3000
_LONGEST_INPUT = 65_536


def encode(log: Log) -> bytes:
    """The log as one input."""
    return b"".join(_MARK + name.encode() + b"\n" + data for name, data in sorted(log.items()))


def decode(data: bytes) -> Log:
    """The log of an input, whatever its bytes; names become such as a folder can hold."""
    log: dict[str, bytes] = {}
    for piece in data.split(_MARK)[1:]:
        name, _, content = piece.partition(b"\n")
        text = name[:100].decode(errors="replace").replace("/", "_").replace("\0", "_")
        log[text or "_"] = content
    return log


def open_input(data: bytes) -> None:
    """Open the newest version of an input's log, and the log in one way more, which the input decides."""
    open_everything(decode(data), ways=("newest", WAYS[zlib.crc32(data) % len(WAYS)]))


def replay(paths: list[str]) -> None:
    """Open the inputs in every way; the error of the first that crashes comes out."""
    for path in paths:
        print(f"{path}: {open_everything(decode(Path(path).read_bytes()))}")


def _fuzz(seconds: int, corpus: Path, crashes: Path) -> int:
    for number, log in enumerate((simple_log(1), simple_log(3), log_with_checkpoint(), log_with_checkpoint(parts=2))):
        (corpus / f"seed-{number}").write_bytes(encode(log))
    before = set(crashes.iterdir())
    # In a process of its own: libFuzzer ends the one it runs in.
    command = [sys.executable, "-m", "tests.hostile.fuzz_log", _IN_PROCESS, str(corpus), f"-max_total_time={seconds}"]
    limits = [f"-timeout={_SECONDS_PER_INPUT}", f"-rss_limit_mb={_MEGABYTES}", f"-max_len={_LONGEST_INPUT}", "-print_final_stats=1"]
    done = subprocess.run([*command, *limits, f"-artifact_prefix={crashes}/"], check=False)
    found = sorted(set(crashes.iterdir()) - before)
    for path in found:
        print(f"Replay with: {sys.executable} -m tests.hostile.fuzz_log {path}", file=sys.stderr)
    return 1 if found or done.returncode else 0


def _mutated(data: bytes, longest: int, seed: int) -> bytes:
    """Every other time a hostile value in a line of JSON, which bytes alone would take long to spell; else what libFuzzer does."""
    chance = random.Random(seed)
    log = dict(decode(data))
    names = sorted(name for name in log if not name.endswith(".parquet"))
    if names and chance.random() < 0.5:
        name = chance.choice(names)
        lines = log[name].splitlines(keepends=True) or [b""]
        place = chance.randrange(len(lines))
        lines[place] = with_hostile_value(lines[place], chance.randrange(1000), chance.choice(HOSTILE_TEXTS), twice=chance.random() < 0.3)
        mutated = encode({**log, name: b"".join(lines)})
        if len(mutated) <= longest:
            return mutated
    return bytes(atheris.Mutate(data, longest))


def _fuzz_in_process(arguments: list[str]) -> None:
    # One warning for each damaged checkpoint would cost more than reading it.
    logging.disable()
    atheris.Setup([sys.argv[0], *arguments], open_input, custom_mutator=_mutated)
    atheris.Fuzz()


def main() -> int:
    """Fuzz, or replay the files named."""
    if sys.argv[1:2] == [_IN_PROCESS]:
        _fuzz_in_process(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--crashes", type=Path)
    parser.add_argument("inputs", nargs="*")
    told = parser.parse_args()
    if told.inputs:
        replay(told.inputs)
        return 0
    if told.corpus is None or told.crashes is None:
        parser.error("name a folder for the --corpus and one for the --crashes, or files to replay")
    return _fuzz(told.seconds, told.corpus, told.crashes)


if __name__ == "__main__":
    sys.exit(main())
