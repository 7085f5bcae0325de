"""The rules of the house that a reviewer would otherwise have to remember."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import hybridstereo
from hybridstereo import kernels

SOURCE = Path(hybridstereo.__file__).parent
KERNELS = Path(kernels.__file__).parent

# Lower layers first: a module may import from its own layer and from those before it.
LAYERS = [
    {"errors", "io", "metrics", "labels", "kernels", "synthetic"},
    {"features", "edges", "crf", "correlation", "disparity"},
    {"model"},
    {"models", "memory"},
]


def imported_modules(path: Path) -> set[str]:
    """Absolute names of everything a file imports, relative imports resolved."""
    package = ["hybridstereo"]
    inside = path.relative_to(KERNELS if KERNELS in path.parents else SOURCE)
    package += ["kernels"] if KERNELS in path.parents else []
    package += inside.parts[:-1]
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return names


def python_files() -> list[Path]:
    return sorted({*SOURCE.rglob("*.py"), *KERNELS.rglob("*.py")})


def test_kernels_import_nothing_from_the_package():
    for path in KERNELS.glob("*.py"):
        ours = {x for x in imported_modules(path) if x.startswith("hybridstereo")}
        assert all(x.startswith("hybridstereo.kernels") for x in ours), path


def test_only_cudalib_imports_cuda():
    importers = {
        path.name
        for path in python_files()
        if any(x.startswith(("numba.cuda", "numba_cuda")) for x in imported_modules(path))
    }
    assert importers == {"cudalib.py"}


def test_dependencies_point_down():
    level = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if own not in level:
            continue
        for module in imported_modules(path):
            parts = module.split(".")
            if parts[0] == "hybridstereo" and len(parts) > 1 and parts[1] != "__version__":
                assert level.get(parts[1], 99) <= level[own], f"{path.name} imports {module}"


def test_leaves_import_no_stage():
    for name in ("io", "metrics.py", "errors.py"):
        path = SOURCE / name
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            if not file.exists():
                continue
            ours = {x for x in imported_modules(file) if x.startswith("hybridstereo.")}
            allowed = ("hybridstereo.errors", "hybridstereo.io")
            assert all(x.startswith(allowed) for x in ours), file


def run_python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout


def test_help_loads_nothing_heavy():
    """What keeps `hstereo --help` fast on any machine; the seconds themselves are not timed."""
    heavy = "numpy", "numba", "cv2", "h5py", "llvmlite", "threadpoolctl"
    code = f"""
import sys
from hybridstereo.cli import cli
try:
    cli.main(["--help"])
except SystemExit:
    pass
print([name for name in {heavy} if name in sys.modules])
"""
    assert run_python(code).splitlines()[-1] == "[]"


def test_nothing_is_compiled_at_import():
    code = """
from numba.core import event
with event.install_recorder("numba:compile") as recorder:
    import hybridstereo.infer, hybridstereo.models.convert, hybridstereo.synthetic.write
    import hybridstereo.evaluation.compare, hybridstereo.system, hybridstereo.training.run
    from hybridstereo import kernels
    kernels.select("cpu")
print(len(recorder.buffer))
"""
    assert run_python(code).strip() == "0"
