"""The rules of the house that a reviewer would otherwise have to remember."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import hybridstereo
from hybridstereo import kernels
from hybridstereo.kernels.backend import FAMILIES

SOURCE = Path(hybridstereo.__file__).parent
KERNELS = Path(kernels.__file__).parent

# --- which modules there are, and what each may import ------------------------------------------

# The lowest first.  A module may import from its own layer and from those above it in this list;
# a package stands for all its modules.
LAYERS = (
    {"kernels"},
    {"errors"},
    {"limits"},
    {"io", "labels", "metrics", "charts", "tables", "opencv", "rectification"},
    {"kernelcache", "system", "synthetic", "clock", "device", "remapping", "scalebar", "engines"},
    {"rig", "display"},
    {"rectified_files", "depth"},
    {"bands"},
    {
        "features",
        "correlation",
        "pyramid",
        "edges",
        "crf",
        "disparity",
        "validity",
        "filling",
        "confidence",
        "search_range",
        "pair_rows",
        "pair_check",
    },  # the stages
    {"model", "datasets"},
    {"models", "memory", "options", "inputs", "faults", "result", "tiles", "work"},
    {"pipeline"},
    {"scout"},
    {"stereo"},
    {"overlap", "crew"},
    {"sequence", "opencv_matcher", "warmup"},
    {"evaluation", "bench", "batch", "streams"},
    {"training"},  # validates by the rules of the evaluation
    {"cli"},
    {"__main__", "__init__"},
)
LEAVES = {
    "errors",
    "limits",
    "io",
    "labels",
    "metrics",
    "charts",
    "tables",
    "opencv",
    "rectification",
}
"""These import nothing of ours but `errors`, `limits` and, through `opencv`, OpenCV."""

# The same inside kernels/, where the twins stand on the helpers of their engine.
KERNEL_LAYERS = (
    {"constants", "label_positions", "penalty", "bisection", "backend", "claims"},
    {"diskcache"},
    {"cpu", "cuda"},
    {f"{stem}_{engine}" for stem in FAMILIES for engine in ("cpu", "cuda")},
    {"__init__"},
)

# Pairs of importer and imported, and why.
UPWARD_IMPORTS: dict[tuple[str, str], str] = {}
BETWEEN_ENGINES = {
    ("optim_cuda", "optim_cpu"): "parameters may be on the host while a GPU computes",
}


def python_files() -> list[Path]:
    return sorted({*SOURCE.rglob("*.py"), *KERNELS.rglob("*.py")})


def module_of(path: Path) -> str:
    """``hybridstereo.io.images``; that of a package ends in ``__init__``."""
    below_kernels = path.is_relative_to(KERNELS)
    inside = path.relative_to(KERNELS if below_kernels else SOURCE).with_suffix("")
    return ".".join(["hybridstereo", *(["kernels"] if below_kernels else []), *inside.parts])


def imported_names(tree: ast.AST, module: str) -> set[str]:
    """Absolute names of everything that ``module`` imports, relative imports resolved.

    Imports inside functions and for type checkers count like all others.
    """
    package = module.split(".")[:-1]
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{origin}.{alias.name}" for alias in node.names}
    return names


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports_by_file() -> list[tuple[Path, str, set[str]]]:
    files = [(path, module_of(path)) for path in python_files()]
    return [(path, module, imported_names(parsed(path), module)) for path, module in files]


def level_of(layers: tuple[set[str], ...]) -> dict[str, int]:
    return {name: level for level, layer in enumerate(layers) for name in layer}


def direct_children(folder: Path) -> set[str]:
    return {
        path.stem
        for path in folder.iterdir()
        if path.suffix == ".py" or (path.is_dir() and any(path.rglob("*.py")))
    }


@pytest.mark.parametrize(
    ("there", "layers"),
    [
        # In a checkout, kernels/ lies outside the package's folder.
        (direct_children(SOURCE) | {"kernels"}, LAYERS),
        (direct_children(KERNELS), KERNEL_LAYERS),
    ],
    ids=["package", "kernels"],
)
def test_every_module_is_known(there, layers):
    listed = [name for layer in layers for name in layer]
    assert len(listed) == len(set(listed)), "a name stands in two layers"
    assert there - set(listed) == set(), "unknown: give it a layer"
    assert set(listed) - there == set(), "missing: take it out of its layer"


def upward_imports(
    module: str, names: set[str], prefix: str, layers: tuple[set[str], ...]
) -> set[tuple[str, str]]:
    """Imports of a higher layer by ``module``; both as the children of the package ``prefix``."""
    level = level_of(layers)
    own = module.removeprefix(f"{prefix}.").split(".")[0]
    found = set()
    for name in names:
        if name != prefix and not name.startswith(f"{prefix}."):
            continue
        child = name.removeprefix(prefix).removeprefix(".").split(".")[0]
        # What is not a module is a name of the package itself.
        if level.get(child, level["__init__"]) > level[own] and child != "__version__":
            found.add((own, child))
    return found


def test_dependencies_point_down():
    found = set()
    for _, module, names in imports_by_file():
        found |= upward_imports(module, names, "hybridstereo", LAYERS)
    assert found == UPWARD_IMPORTS.keys()


def test_dependencies_inside_kernels_point_down():
    for _, module, names in imports_by_file():
        if module.startswith("hybridstereo.kernels."):
            prefix = "hybridstereo.kernels"
            assert upward_imports(module, names, prefix, KERNEL_LAYERS) == set(), module


def test_upward_imports_are_found():
    tree = ast.parse("from .features import x\nfrom . import cli, __version__\nimport numpy")
    names = imported_names(tree, "hybridstereo.labels")
    assert upward_imports("hybridstereo.labels", names, "hybridstereo", LAYERS) == {
        ("labels", "features"), ("labels", "cli"),
    }  # fmt: skip
    assert upward_imports("hybridstereo.cli.x", names, "hybridstereo", LAYERS) == set()


def test_leaves_import_only_errors_limits_and_opencv():
    for _, module, names in imports_by_file():
        own = module.split(".")[1]
        if own in LEAVES:
            ours = {name.split(".")[1] for name in names if name.startswith("hybridstereo.")}
            assert ours <= {own, "errors", "limits", "opencv"}, module


def test_every_package_is_installed():
    """The list in pyproject.toml is explicit; an editable install would not miss one."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^packages = \[(.*?)\]", text, re.M | re.S)
    assert listed is not None
    found = {module_of(path) for path in python_files() if path.name == "__init__.py"}
    assert set(re.findall(r'"(.*?)"', listed[1])) == {x.removesuffix(".__init__") for x in found}


def test_kernels_import_nothing_from_the_package():
    for _, module, names in imports_by_file():
        if module.startswith("hybridstereo.kernels"):
            ours = {name for name in names if name.startswith("hybridstereo")}
            ours -= {"hybridstereo.__version__"}  # names the folder of compiled kernels
            assert all(name.startswith("hybridstereo.kernels") for name in ours), module


def engine_of(name: str) -> str | None:
    """``cpu`` or ``cuda``, for a helper or a twin of that engine."""
    return next((engine for engine in ("cpu", "cuda") if re.search(rf"(^|_){engine}$", name)), None)


def test_engines_do_not_import_each_other():
    found = set()
    for _, module, names in imports_by_file():
        own = module.removeprefix("hybridstereo.kernels.").split(".")[0]
        for name in names:
            child = name.removeprefix("hybridstereo.kernels.").split(".")[0]
            if engine_of(own) and engine_of(child) and engine_of(own) != engine_of(child):
                found.add((own, child))
    assert found == BETWEEN_ENGINES.keys()


def test_only_one_decorator_compiles_for_the_cpu():
    """`compiled` keeps kernels where users may write; Numba's own cache lies beside the sources."""
    importers = {
        module
        for _, module, names in imports_by_file()
        if names & {"numba.jit", "numba.njit", "numba.vectorize", "numba.guvectorize"}
    }
    assert importers == {"hybridstereo.kernels.cpu.jit"}


def test_only_one_module_imports_opencv():
    """It says what to install where that fails."""
    importers = {
        module
        for _, module, names in imports_by_file()
        if any(name.split(".")[0] == "cv2" for name in names)
    }
    assert importers == {"hybridstereo.opencv"}


@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("distributed", "engines.dask_workers"),
        ("dask", "engines.dask_workers"),
        ("mpi4py", "engines.mpi"),
        ("fsspec", "io.url_files"),
    ],
)
def test_each_extra_is_imported_by_one_module(package, module):
    """It says which extra to install where that fails; nobody else needs the extra."""
    importers = {
        importer
        for _, importer, names in imports_by_file()
        if any(name.split(".")[0] == package for name in names)
    }
    assert importers == {f"hybridstereo.{module}"}


def test_only_cudalib_imports_cuda():
    importers = {
        module
        for _, module, names in imports_by_file()
        if any(name.startswith(("numba.cuda", "numba_cuda")) for name in names)
    }
    assert importers == {"hybridstereo.kernels.cuda.cudalib"}


# --- no file can run code -----------------------------------------------------------------------

UNPICKLERS = {"hybridstereo.kernels.diskcache": "compiled kernels, from a folder of ours alone"}
"""Modules that unpickle, and what."""

STARTERS = {"hybridstereo.warmup": "the Python that runs us, with our own code, to compile kernels"}
"""Modules that start programs, and which; tests/test_warmup.py has what they are given."""

PROGRAM_STARTERS = {"subprocess", "multiprocessing", "runpy", "code"}
UNPICKLING = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "yaml"}


def runs_text(tree: ast.AST) -> bool:
    """Whether a module evaluates text, starts programs, or lets NumPy unpickle."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in ("eval", "exec", "os.system", "os.popen"):
            return True
        keywords = {x.arg: ast.unparse(x.value) for x in node.keywords}
        if called.split(".")[-1] == "load" and called.split(".")[0] in ("np", "numpy"):
            if keywords.get("allow_pickle") != "False":
                return True
        elif keywords.get("allow_pickle", "False") != "False":
            return True
    return False


def test_only_the_cache_of_kernels_is_unpickled():
    importers = {
        module
        for _, module, names in imports_by_file()
        if {name.split(".")[0] for name in names} & UNPICKLING
    }
    assert importers == UNPICKLERS.keys()


def test_no_file_is_executed():
    for path, module, names in imports_by_file():
        starts = {name.split(".")[0] for name in names} & PROGRAM_STARTERS
        assert not starts or module in STARTERS, module
        assert not runs_text(parsed(path)), module


@pytest.mark.parametrize(
    ("code", "runs"),
    [
        ("eval(text)", True),
        ("os.system(text)", True),
        ("np.load(path)", True),
        ("np.load(path, allow_pickle=True)", True),
        ("np.lib.format.read_array(file, allow_pickle=x)", True),
        ("np.load(path, allow_pickle=False); model.eval(); json.load(file)", False),
    ],
)
def test_running_of_text_is_found(code, runs):
    assert runs_text(ast.parse(code)) == runs


# --- one name per thing -------------------------------------------------------------------------

_CALLS_IT = "the stage, or the loss, that calls the operation"
# Modules that define the same names, which names, and why.  ``kernels`` stands for both twins.
NAMESAKES = {
    ("correlation", "kernels"): ({"correlation_forward", "softmax_backward"}, _CALLS_IT),
    ("crf", "kernels"): ({"energy"}, _CALLS_IT),
    ("features", "kernels"): ({"network_forward"}, _CALLS_IT),
    ("kernels", "training.losses"): ({"augment_costs", "cross_entropy", "task_loss"}, _CALLS_IT),
    ("kernels.cpu.direct", "kernels.cpu.winograd"): (
        {
            "backward_rows", "backward_scratch", "convolve_rows", "empty_sums",
            "kernels_from_sums", "prepare", "scratch", "tile_side",
        },
        "two ways to convolve with one interface",
    ),
    ("datasets.csvlist", "datasets.kitti", "datasets.middlebury"): (
        {"find_samples"},
        "what the table of data sets asks of each",
    ),
    ("datasets.kitti", "datasets.middlebury"): ({"_Layout"}, "private: each one's file names"),
    ("evaluation.report.page", "synthetic.render"): ({"render"}, "a page; a view of a scene"),
    ("kernels.backend", "synthetic.objects"): ({"table"}, "of operations; a piece of furniture"),
    ("kernels.backend", "synthetic.patterns", "synthetic.surfaces", "synthetic.textures"): (
        {"Array"},
        "of a device; NumPy's, of the floats that the module computes with",
    ),
    ("datasets.pair", "metrics"): ({"Disparity", "Mask"}, "the measures take more types"),
    ("datasets.pair", "synthetic.scene"): ({"FloatImage"}, "the generator knows no data sets"),
}  # fmt: skip


def defined_names(tree: ast.Module) -> set[str]:
    """Classes, public functions and names of types; the functions of commands do not count."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            if not any("click.command" in ast.unparse(x) for x in node.decorator_list):
                names.add(node.name)
        elif isinstance(node, ast.Assign):
            targets = {x.id for x in node.targets if isinstance(x, ast.Name)}
            names |= {name for name in targets if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name)}
    return names


def namesakes(defined: dict[str, set[str]]) -> dict[tuple[str, ...], set[str]]:
    """Names by the modules, more than one, that define them; one name in each engine is one."""
    found: dict[tuple[str, ...], set[str]] = {}
    for name in set().union(*defined.values()):
        modules = {module for module in defined if name in defined[module]}
        engines = {x: engine_of(x.split(".")[1]) for x in modules if x.startswith("kernels.")}
        twins = {module for module, engine in engines.items() if engine}
        if sorted(engines[x] for x in twins) == ["cpu", "cuda"]:
            modules = modules - twins | {"kernels"}
        if len(modules) > 1:
            found.setdefault(tuple(sorted(modules)), set()).add(name)
    return found


def test_one_name_is_one_thing():
    defined = {
        module_of(path).removeprefix("hybridstereo."): defined_names(parsed(path))
        for path in python_files()
    }
    assert namesakes(defined) == {modules: names for modules, (names, _) in NAMESAKES.items()}


def test_namesakes_are_found():
    tree = ast.parse(
        "class _A: pass\ndef b(): pass\ndef _c(): pass\nOnDay = int\nE = 1\nFG = 2\n"
        "@click.command()\ndef h(): pass"
    )
    assert defined_names(tree) == {"_A", "b", "OnDay"}
    defined = {
        "kernels.x_cpu": {"run", "two", "three"},
        "kernels.cuda.x": {"run", "two"},
        "kernels.cpu.y": {"three"},
        "z": {"two"},
    }
    assert namesakes(defined) == {
        ("kernels", "z"): {"two"}, ("kernels.cpu.y", "kernels.x_cpu"): {"three"},
    }  # fmt: skip


# --- documents that are cited exist -------------------------------------------------------------

# Working papers from before docs/model.md and docs/training.md.
FORMER_DOCUMENT = re.compile(r"\bSPEC(\.md)? \d|\bTRAINING\.md")


def test_nobody_cites_documents_of_the_past():
    root = Path(__file__).parents[1]
    folders = (SOURCE, KERNELS, root / "tests", root / "tools", root / "docs")
    suffixes = (".py", ".md", ".sh", ".html", ".css", ".js")
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in sorted({path for folder in folders for path in folder.rglob("*")})
        if path.suffix in suffixes
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if FORMER_DOCUMENT.search(line)
    ]
    assert found == []


# --- only the CLI talks to the user -------------------------------------------------------------

STANDARD_STREAMS = {
    "hybridstereo.io.disparity": "writes a map to '-'",
}
"""Modules outside cli/ that use standard output or standard error, and what for."""

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def library_files() -> Iterator[tuple[str, ast.Module]]:
    """All modules but those of the command line."""
    for path in python_files():
        module = module_of(path)
        if module.split(".")[1] not in ("cli", "__main__"):
            yield module, parsed(path)


def prints(tree: ast.AST) -> bool:
    """Whether a module prints or touches the standard output streams."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "print":
            return True
        if isinstance(node, ast.Attribute) and node.attr in (
            "stdout", "stderr", "__stdout__", "__stderr__"
        ) and isinstance(node.value, ast.Name) and node.value.id == "sys":  # fmt: skip
            return True
    return False


def spoken_strings(tree: ast.AST) -> list[str]:
    """All texts but docstrings, which only readers of the source see."""
    silent = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent
    ]


def names_flags(tree: ast.AST) -> bool:
    return any(FLAG.search(text) for text in spoken_strings(tree))


def test_only_the_cli_imports_click():
    for module, tree in library_files():
        assert not {n for n in imported_names(tree, module) if n.split(".")[0] == "click"}, module


def test_only_the_cli_prints():
    found = {module for module, tree in library_files() if prints(tree)}
    assert found == STANDARD_STREAMS.keys()


def test_only_the_cli_names_flags():
    """Messages of the library name Python arguments in backticks; see `cli.text.with_flags`."""
    found = {module for module, tree in library_files() if names_flags(tree)}
    assert found == set()


@pytest.mark.parametrize(
    ("code", "talks", "flags"),
    [
        ("print('x')", True, False),
        ("import sys; sys.stderr.write('x')", True, False),
        ("import sys; sys.argv", False, False),
        ("hint = 'Use --no-refine'", False, True),
        ("hint = f'Use --threads {n}'", False, True),
        ("hint = 'Use `threads`'; line = '-----'; range = '3--4'", False, False),
        ("'''About --threads.'''\ndef f():\n    '''And --threads here.'''", False, False),
    ],
)
def test_talking_is_found(code, talks, flags):
    tree = ast.parse(code)
    assert (prints(tree), names_flags(tree)) == (talks, flags)


OPTIONAL = {
    "hybridstereo.engines.dask_workers",
    "hybridstereo.engines.mpi",
    "hybridstereo.io.url_files",
}
"""What needs an extra; importing the second one starts MPI."""

# --- nothing happens too early ------------------------------------------------------------------


def run_python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout


def test_help_loads_nothing_heavy():
    """What keeps `hstereo --help` fast on any machine; the seconds themselves are not timed."""
    heavy = "numpy", "numba", "cv2", "h5py", "llvmlite", "threadpoolctl", "distributed"
    heavy += "mpi4py", "fsspec"
    code = f"""
import sys
from hybridstereo.cli import cli
for command in ([], *([name] for name in cli.commands)):
    try:
        cli.main([*command, "--help"])
    except SystemExit:
        pass
print([name for name in {heavy} if name in sys.modules])
"""
    assert run_python(code).splitlines()[-1] == "[]"


def test_nothing_is_compiled_at_import():
    modules = [module_of(path).removesuffix(".__init__") for path in python_files()]
    modules = [name for name in modules if name not in OPTIONAL]
    code = f"""
from importlib import import_module
from numba.core import event
with event.install_recorder("numba:compile") as recorder:
    for name in {[name for name in modules if not name.endswith(".__main__")]}:
        import_module(name)
    from hybridstereo import kernels
    kernels.select("cpu")
print(len(recorder.buffer))
"""
    assert run_python(code).strip() == "0"
