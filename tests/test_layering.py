"""Imports point one way, spark -> storage -> core, and core does no input or output.

Read off the source with ``ast``, so a breach is found in a module that no test imports.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("core", "storage", "spark")
CORE_MAY_IMPORT = frozenset({"pyarrow", "pyroaring", "orjson", "lakelog.core"})
# Standard library that reaches the world outside: a file, a network, a clock, chance, another process.
CORE_MUST_NOT_IMPORT = frozenset(
    {
        "asyncio",
        "glob",
        "importlib",
        "io.open",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "shutil",
        "socket",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "urllib.request",
        "uuid.uuid1",
        "uuid.uuid4",
        # pyarrow's own ways to a file system; its memory and compute are core's to use.
        "pyarrow.csv",
        "pyarrow.dataset",
        "pyarrow.feather",
        "pyarrow.flight",
        "pyarrow.fs",
        "pyarrow.orc",
    }
)
CORE_MUST_NOT_CALL = frozenset({"open", "input", "print", "exec", "eval", "breakpoint", "__import__"})
# Whatever they hang on: a clock's reading, a drawn name, a file that Arrow opens.
CORE_MUST_NOT_CALL_METHODS = frozenset({"now", "today", "utcnow", "uuid1", "uuid4", "open", "OSFile", "memory_map", "create_memory_map"})
STORAGE_MUST_NOT_IMPORT = frozenset({"pyspark", "py4j", "lakelog.spark"})
# PySpark's handles on the JVM. Everything behind them differs between minors, so one module holds them all.
PRIVATE_SPARK = frozenset({"_gateway", "_jc", "_jconf", "_jdf", "_jrdd", "_jsc", "_jschema", "_jsparkSession", "_jvm"})
MAY_NAME_PRIVATE_SPARK = frozenset({"spark/lakelog/spark/jvm.py"})


def imported(node: ast.AST) -> Iterator[str]:
    """The dotted names that one import statement brings in; of ``from a import b`` both ``a`` and ``a.b``."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name
    elif isinstance(node, ast.ImportFrom):
        # A relative import hides which layer it reaches; it counts as reaching none that exists.
        module = "." * node.level + (node.module or "")
        yield module
        for alias in node.names:
            yield f"{module}.{alias.name}"


def imports_of(tree: ast.AST) -> set[str]:
    return {name for node in ast.walk(tree) for name in imported(node)}


def within(name: str, packages: frozenset[str]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def relative_imports(tree: ast.AST) -> set[str]:
    return {name for name in imports_of(tree) if name.startswith(".")}


def core_imports(tree: ast.AST) -> set[str]:
    names = imports_of(tree)
    foreign = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names and not within(name, CORE_MAY_IMPORT)}
    # ``from lakelog import core`` names the namespace and then the layer.
    return (foreign - {"lakelog"}) | {name for name in names if within(name, CORE_MUST_NOT_IMPORT)}


def core_calls(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CORE_MUST_NOT_CALL:
            found.add(node.func.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CORE_MUST_NOT_CALL_METHODS:
            found.add(node.func.attr)
    return found


def storage_imports(tree: ast.AST) -> set[str]:
    return {name for name in imports_of(tree) if within(name, STORAGE_MUST_NOT_IMPORT)}


def inner_imports(tree: ast.AST) -> set[str]:
    return {
        name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in imports_of(function)
        if within(name, frozenset({"lakelog"})) or name.startswith(".")
    }


def private_spark(tree: ast.AST) -> set[str]:
    """Private handles by attribute, by import, and by the string that a ``getattr`` would take."""
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return (attributes | strings | {name.rpartition(".")[2] for name in imports_of(tree)}) & PRIVATE_SPARK


def modules(*layers: str) -> list[Path]:
    return [path for layer in layers for path in sorted((ROOT / layer / "lakelog").rglob("*.py"))]


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def each_module(*layers: str) -> pytest.MarkDecorator:
    paths = [pytest.param(path, id=str(path.relative_to(ROOT))) for path in modules(*layers)]
    return pytest.mark.parametrize("path", paths)


def test_every_layer_has_modules() -> None:
    assert [layer for layer in LAYERS if not modules(layer)] == []


def test_lakelog_is_a_namespace_without_an_init() -> None:
    assert [layer for layer in LAYERS if (ROOT / layer / "lakelog" / "__init__.py").exists()] == []
    assert [layer for layer in LAYERS if [path.name for path in (ROOT / layer / "lakelog").iterdir() if path.is_file()]] == []


@each_module("core")
def test_core_imports_only_values_and_itself(path: Path) -> None:
    assert core_imports(parse(path)) == set()


@each_module("core")
def test_core_opens_nothing_and_asks_no_clock(path: Path) -> None:
    assert core_calls(parse(path)) == set()


@each_module("storage")
def test_storage_knows_no_spark(path: Path) -> None:
    assert storage_imports(parse(path)) == set()


@each_module(*LAYERS)
def test_imports_are_absolute_and_first_party_ones_stand_at_the_top(path: Path) -> None:
    tree = parse(path)
    assert relative_imports(tree) == set()
    assert inner_imports(tree) == set()


@each_module(*LAYERS)
def test_private_spark_is_named_in_one_place(path: Path) -> None:
    if path.relative_to(ROOT).as_posix() not in MAY_NAME_PRIVATE_SPARK:
        assert private_spark(parse(path)) == set()


def test_the_places_that_may_name_private_spark_do() -> None:
    assert [place for place in sorted(MAY_NAME_PRIVATE_SPARK) if not private_spark(parse(ROOT / place))] == []


def test_core_imports_where_fsspec_and_pyspark_are_absent() -> None:
    names = [".".join(path.relative_to(ROOT / "core").with_suffix("").parts).removesuffix(".__init__") for path in modules("core")]
    program = f"""
import importlib, sys
for absent in ("fsspec", "pyspark", "py4j", "pandas", "tenacity", "lakelog.storage", "lakelog.spark"):
    sys.modules[absent] = None
for name in {names!r}:
    importlib.import_module(name)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("rule", "source", "breaches"),
    [
        (core_imports, "import json, pyarrow.compute as pc\nfrom lakelog.core.errors import LakelogError", set()),
        (core_imports, "from lakelog import core", set()),
        (core_imports, "import fsspec.core", {"fsspec.core"}),
        (core_imports, "from lakelog import storage", {"lakelog.storage"}),
        (core_imports, "from lakelog.corelike import x", {"lakelog.corelike", "lakelog.corelike.x"}),
        (core_imports, "def f():\n    import os.path", {"os.path"}),
        (core_imports, "from pyarrow import fs", {"pyarrow.fs"}),
        (core_imports, "from uuid import UUID, uuid4", {"uuid.uuid4"}),
        (core_calls, "x = open('y')", {"open"}),
        (core_calls, "x = datetime.datetime.now(UTC)", {"now"}),
        (core_calls, "x = pa.OSFile('y')", {"OSFile"}),
        (core_calls, "x = now(1) + compute.opened(2)", set()),
        (storage_imports, "from lakelog import spark", {"lakelog.spark"}),
        (storage_imports, "import pyspark.sql", {"pyspark.sql"}),
        (storage_imports, "import pysparkling, lakelog.core", set()),
        (inner_imports, "import lakelog.core\ndef f():\n    import json", set()),
        (inner_imports, "class C:\n    async def f(self):\n        import lakelog.core", {"lakelog.core"}),
        (inner_imports, "def f():\n    from . import x", {".", "..x"}),
        (relative_imports, "from .errors import x", {".errors", ".errors.x"}),
        (private_spark, "frame._jdf", {"_jdf"}),
        (private_spark, "getattr(spark, '_jsparkSession')", {"_jsparkSession"}),
        (private_spark, "spark.jvm", set()),
    ],
)
def test_the_rules_find_what_they_are_for(rule: Callable[[ast.AST], set[str]], source: str, breaches: set[str]) -> None:
    assert rule(ast.parse(source)) == breaches
