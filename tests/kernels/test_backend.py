"""The Protocol of a backend and the twin files that implement it agree."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest

from hybridstereo import kernels
from hybridstereo.kernels.backend import FAMILIES, Runtime, operations, table

ENGINES = ("cpu", "cuda")
TWINS = [f"{family}_{engine}" for family in FAMILIES for engine in ENGINES]
RUNTIME = [name for name, x in vars(Runtime).items() if inspect.isfunction(x) and name[0] != "_"]


def twin(name):
    return importlib.import_module(f"hybridstereo.kernels.{name}")


def parameters(function):
    """Names, kinds and defaults, in their order; of a method without ``self``."""
    found = inspect.signature(function).parameters.values()
    return [(x.name, x.kind, x.default) for x in found if x.name != "self"]


def defined_functions(module):
    return {
        name
        for name, x in vars(module).items()
        if inspect.isfunction(x) and x.__module__ == module.__name__ and not name.startswith("_")
    }


def test_every_twin_file_belongs_to_a_family():
    folder = Path(kernels.__file__).parent
    assert {x.stem for x in folder.glob("*_c*.py") if x.stem.endswith(ENGINES)} == set(TWINS)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", operations())
def test_an_operation_is_in_one_twin_with_the_parameters_of_the_protocol(name, engine):
    modules = [twin(f"{family}_{engine}") for family in FAMILIES]
    (module,) = (x for x in modules if hasattr(x, name))
    assert parameters(getattr(module, name)) == parameters(operations()[name])


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_offers_nothing_but_operations(name):
    """A function that is not in the Protocol would exist on one engine only, or be unused."""
    assert defined_functions(twin(name)) <= set(operations())


@pytest.mark.parametrize("family", FAMILIES)
def test_twins_offer_the_same_operations(family):
    cpu, cuda = (set(operations()) & set(vars(twin(f"{family}_{x}"))) for x in ENGINES)
    assert cpu == cuda
    assert cpu


@pytest.mark.parametrize("name", RUNTIME)
def test_a_runtime_takes_the_arguments_of_the_protocol_by_name(name):
    names = [x for x, _, _ in parameters(getattr(Runtime, name))]
    for backend in (kernels.select("cpu"), kernels.cuda_backend("none")):
        inspect.signature(getattr(backend, name)).bind(**dict.fromkeys(names))


def test_every_method_is_documented_and_typed():
    for name, method in operations().items():
        assert method.__doc__, name
        signature = inspect.signature(method)
        annotations = [x.annotation for x in signature.parameters.values() if x.name != "self"]
        assert inspect.Signature.empty not in [*annotations, signature.return_annotation], name


def test_operations_are_called_by_name_or_by_position(backend, rng):
    volume = rng.random((3, 4, 5)).astype(np.float32)
    label_map = backend.argmin(volume=volume)
    np.testing.assert_array_equal(label_map, volume.argmin(axis=2))
    by_name = backend.refine(volume=volume, label_map=label_map, step=0.5)
    np.testing.assert_array_equal(by_name, backend.refine(volume, label_map, 0.5))


def test_a_table_has_its_members_and_says_its_name():
    assert repr(kernels.select("cpu")) == "<backend cpu>"
    assert table({"name": "other"}).name == "other"
