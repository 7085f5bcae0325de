"""Model files: what is written comes back, and nothing else is ever accepted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hybridstereo.errors import ModelError, OutputError
from hybridstereo.io import weights
from hybridstereo.io.weights import WeightFile, read_weights, write_weights

CONFIG: dict[str, str | int | float | bool] = {
    "variant": "cnn3-größer",
    "note": "",
    "layers": 3,
    "L2": 17.77788925,
    "with_xy": False,
    "trained": True,
}


def example_tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {
        "unary/0/weight": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "unary/0/bias": rng.normal(size=4).astype(np.float32),
        "momentum/unary/0/weight": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "training/loss": rng.normal(size=5),
        "training/step": np.array([12], np.int64),
        "training/rng": rng.integers(0, 2**63, 4, dtype=np.uint64),
        "training/done": np.array([0, 1, 255], np.uint8),
    }


def assert_same(
    file: WeightFile, config: dict[str, str | int | float | bool], tensors: dict[str, np.ndarray]
) -> None:
    assert file.config == config
    assert {k: type(v) for k, v in file.config.items()} == {k: type(v) for k, v in config.items()}
    assert file.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert file.tensors[name].dtype == tensor.dtype
        np.testing.assert_array_equal(file.tensors[name], tensor)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A valid model file, for tests that spoil it."""
    path = tmp_path / "model.h5"
    write_weights(path, CONFIG, example_tensors())
    return path


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("valid") / "model.h5"
    write_weights(path, CONFIG, example_tensors())
    return path.read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file for all examples of a property."""
    return tmp_path_factory.mktemp("scratch") / "model.h5"


# --- writing and reading back ------------------------------------------------------------------


def test_everything_comes_back(model: Path) -> None:
    assert_same(read_weights(model), CONFIG, example_tensors())


NAMES = st.from_regex(r"[a-z0-9_]{1,4}(/[a-z0-9_]{1,4}){0,5}", fullmatch=True)
VALUES = st.one_of(
    st.text(max_size=20).filter(lambda text: "\0" not in text),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)
TENSORS = st.sampled_from(["<f4", "<f8", "<i8", "<u8", "u1"]).flatmap(
    lambda dtype: hnp.arrays(
        dtype,
        hnp.array_shapes(max_dims=4, max_side=4),
        elements=(
            {"allow_nan": False, "allow_infinity": False} if dtype.startswith("<f") else None
        ),
    )
)


@settings(max_examples=60, deadline=None)
@given(
    config=st.dictionaries(st.from_regex(r"k[A-Za-z0-9_.-]{0,9}", fullmatch=True), VALUES),
    tensors=st.dictionaries(NAMES, TENSORS, max_size=12),
)
def test_round_trip(
    scratch: Path,
    config: dict[str, str | int | float | bool],
    tensors: dict[str, np.ndarray],
) -> None:
    groups = {name[:end] for name in tensors for end, c in enumerate(name) if c == "/"}
    tensors = {name: tensor for name, tensor in tensors.items() if name not in groups}
    write_weights(scratch, config, tensors)
    assert_same(read_weights(scratch), config, tensors)


def test_memory_layout_and_scalars_are_normalised(tmp_path: Path) -> None:
    swapped = np.arange(6, dtype=">f4").reshape(2, 3)
    transposed = np.arange(6, dtype=np.float32).reshape(2, 3).T
    scalar = np.array(0.5)
    write_weights(tmp_path / "m.h5", {}, {"a": swapped, "b": transposed, "c": scalar})
    tensors = read_weights(tmp_path / "m.h5").tensors
    assert all(t.flags.c_contiguous and t.dtype.byteorder in "=<" for t in tensors.values())
    np.testing.assert_array_equal(tensors["a"], swapped)
    np.testing.assert_array_equal(tensors["b"], transposed)
    assert tensors["c"].shape == (1,)
    assert tensors["c"][0] == 0.5


def test_equal_contents_give_equal_bytes(tmp_path: Path) -> None:
    tensors = example_tensors()
    write_weights(tmp_path / "a.h5", CONFIG, tensors)
    write_weights(
        tmp_path / "b.h5", dict(reversed(CONFIG.items())), dict(reversed(tensors.items()))
    )
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_no_object_carries_a_time_stamp(image: bytes) -> None:
    # An object header begins with this signature, its version and flags; bit 5: times follow.
    flags = [header[0] for header in image.split(b"OHDR\x02")[1:]]
    groups = ["/", "momentum", "momentum/unary", "momentum/unary/0", "training", "unary", "unary/0"]
    assert len(flags) == len(groups) + len(example_tensors())
    assert not any(flag & 0x20 for flag in flags)


def test_the_file_is_ordinary_hdf5_with_checksums(model: Path) -> None:
    with h5py.File(model) as file:
        assert file.attrs["format"] == b"hybridstereo-model"
        assert file.attrs["format_version"] == 1
        dataset = file["unary/0/weight"]
        assert dataset.fletcher32
        assert dataset.compression is None
        np.testing.assert_array_equal(dataset[...], example_tensors()["unary/0/weight"])
        # Version 3 of the superblock belongs to the variant whose metadata have checksums.
        assert model.read_bytes()[8] == 3


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", "A", "a.b", "../a", "a\n", "ä", "a/b/c/d/e/f/g"]
)
def test_bad_tensor_names_are_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a tensor"):
        write_weights(tmp_path / "m.h5", {}, {name: np.ones(1, np.float32)})
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "1st", "a b", "ä", "a\n", "format", "checksum", "x" * 65])
def test_bad_config_names_are_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a configuration value"):
        write_weights(tmp_path / "m.h5", {name: 1}, {})


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (float("nan"), ValueError),
        (float("-inf"), ValueError),
        (2**63, ValueError),
        ("a\0b", ValueError),
        ("x" * 20_000, ValueError),
        (None, TypeError),
        ([1], TypeError),
        (np.float32(1), TypeError),
    ],
)
def test_bad_config_values_are_not_written(
    tmp_path: Path, value: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        write_weights(tmp_path / "m.h5", {"key": value}, {})  # type: ignore[dict-item]
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.complex64, bool, object, "S3"])
def test_other_types_are_not_written(tmp_path: Path, dtype: object) -> None:
    with pytest.raises(TypeError, match="cannot be stored"):
        write_weights(tmp_path / "m.h5", {}, {"a": np.zeros(2, dtype)})  # type: ignore[call-overload]


def test_empty_and_ambiguous_tensors_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one element"):
        write_weights(tmp_path / "m.h5", {}, {"a": np.zeros((2, 0))})
    with pytest.raises(ValueError, match="a/b names both"):
        write_weights(tmp_path / "m.h5", {}, {"a/b": np.ones(1), "a/b/c": np.ones(1)})


def test_too_large_a_model_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "MAX_OBJECTS", 10)
    with pytest.raises(ValueError, match="too large"):
        write_weights(tmp_path / "m.h5", {}, {f"a/{n}": np.ones(1) for n in range(10)})
    write_weights(tmp_path / "m.h5", {}, {f"a/{n}": np.ones(1) for n in range(9)})
    assert len(read_weights(tmp_path / "m.h5").tensors) == 9


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_diverged_weights_do_not_replace_good_ones(model: Path, bad: float) -> None:
    before = model.read_bytes()
    with pytest.raises(ModelError, match=r"unary/0/bias contains NaN.*learning rate"):
        write_weights(model, CONFIG, {"unary/0/bias": np.array([1, bad], np.float32)})
    assert model.read_bytes() == before
    assert list(model.parent.iterdir()) == [model]


def test_missing_folder_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="absent"):
        write_weights(tmp_path / "absent" / "m.h5", {}, {})


# --- files that are refused --------------------------------------------------------------------


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent\.h5 does not exist"):
        read_weights(tmp_path / "absent.h5")


def test_folder_and_pipe(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder"):
        read_weights(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ModelError, match="is a pipe, not a file"):
            read_weights(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_impossible_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        read_weights(tmp_path / name)


def test_empty_and_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "m.h5"
    path.write_bytes(b"")
    with pytest.raises(ModelError, match="is empty"):
        read_weights(path)
    path.write_bytes(b"PK\x03\x04 a zip archive")
    with pytest.raises(ModelError, match="is not a model file"):
        read_weights(path)


def test_too_large_a_file(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "MAX_FILE_BYTES", 1000)
    with pytest.raises(ModelError, match="is too large"):
        read_weights(model)


def test_hdf5_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "keras.h5"
    with h5py.File(path, "w") as file:
        file["kernel"] = np.ones(3)
    with pytest.raises(ModelError, match="not one that hybridstereo wrote"):
        read_weights(path)
    with h5py.File(path, "a") as file:
        file.attrs["format"] = np.bytes_(b"keras")
        file.attrs["format_version"] = 1
    with pytest.raises(ModelError, match="not one that hybridstereo wrote"):
        read_weights(path)


@pytest.mark.parametrize(("version", "hint"), [(2, "Upgrade hybridstereo"), (0, None)])
def test_other_versions(model: Path, version: int, hint: str | None) -> None:
    with h5py.File(model, "a") as file:
        file.attrs["format_version"] = version
        file["layout/of/the/future"] = "anything"
    with pytest.raises(ModelError, match=f"has version {version}") as caught:
        read_weights(model)
    assert caught.value.hint == hint


def test_version_that_is_no_number(model: Path) -> None:
    with h5py.File(model, "a") as file:
        file.attrs["format_version"] = 1.0
    with pytest.raises(ModelError, match="version is not a number"):
        read_weights(model)


def replace(file: h5py.File, name: str, **storage: object) -> None:
    """Store a tensor again in another way."""
    values = file[name][...]
    del file[name]
    file.create_dataset(name, data=values, **storage)


def add_virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((3,), "<f4")
    layout[:] = h5py.VirtualSource("other.h5", "secret", (3,))
    file.create_virtual_dataset("virtual", layout)


def add_external(file: h5py.File) -> None:
    file.create_dataset("external", (3,), "<f4", external=[("secret.bin", 0, 12)])


def add_cycle(file: h5py.File) -> None:
    file["unary/again"] = file["unary"]


def add_many(file: h5py.File) -> None:
    for number in range(weights.MAX_OBJECTS + 1):
        file.create_group(f"g{number}")


SPOILERS: dict[str, tuple[Callable[[h5py.File], object], str]] = {
    "soft link": (lambda f: f.__setitem__("x", h5py.SoftLink("/unary")), "x is a link"),
    "external link": (
        lambda f: f.__setitem__("x", h5py.ExternalLink("other.h5", "/")),
        "x is a link",
    ),
    "second name": (
        lambda f: f.__setitem__("x", f["unary/0/bias"]),
        "stored under more than one name",
    ),
    "cycle": (add_cycle, "stored under more than one name"),
    "named type": (lambda f: f.__setitem__("x", np.dtype("<f4")), "x is neither a tensor"),
    "bad name": (lambda f: f.create_group("UPPER"), "'UPPER' cannot name a tensor"),
    "deep": (lambda f: f.create_group("a/b/c/d/e/f/g"), "cannot name a tensor"),
    "many": (add_many, "more than 4096 entries"),
    "external": (add_external, "external is not stored as a chunk inside the file"),
    "virtual": (add_virtual, "virtual is not stored as a chunk inside the file"),
    "contiguous": (lambda f: replace(f, "training/loss"), "not stored as a chunk"),
    "scalar": (lambda f: f.__setitem__("x", 1.0), "not stored as a chunk"),
    "null": (lambda f: f.__setitem__("x", h5py.Empty("<f4")), "not stored as a chunk"),
    "gzip": (
        lambda f: replace(f, "training/loss", compression="gzip", fletcher32=True),
        "is compressed",
    ),
    "no checksum": (lambda f: replace(f, "training/loss", chunks=(5,)), "has no checksum"),
    "two chunks": (
        lambda f: replace(f, "training/loss", chunks=(3,), fletcher32=True),
        "not stored in one piece",
    ),
    "growing": (
        lambda f: replace(f, "training/loss", chunks=(5,), maxshape=(None,), fletcher32=True),
        "not stored in one piece",
    ),
    "half floats": (
        lambda f: f.create_dataset("x", data=np.ones(2, "<f2"), chunks=(2,), fletcher32=True),
        "x has a data type",
    ),
    "big endian": (
        lambda f: f.create_dataset("x", data=np.ones(2, ">f4"), chunks=(2,), fletcher32=True),
        "x has a data type",
    ),
    "compound": (
        lambda f: f.create_dataset("x", (2,), [("a", "<f4")], chunks=(2,), fletcher32=True),
        "x has a data type",
    ),
    "a gigabyte of nothing": (
        lambda f: f.create_dataset("x", (1 << 28,), "<f4", chunks=(1 << 28,), fletcher32=True),
        "x declares more data",
    ),
    "terabytes": (
        lambda f: f.create_dataset("x", (1 << 40,), "<f4", chunks=(1 << 20,), fletcher32=True),
        "x is not stored in one piece",
    ),
    "changed tensor": (lambda f: f["training/step"].write_direct(np.array([13])), "checksum"),
    "renamed tensor": (lambda f: f.move("training/step", "training/stop"), "checksum"),
    "missing tensor": (lambda f: f.__delitem__("training/step"), "checksum"),
    "changed value": (lambda f: f.attrs.modify("layers", 7), "checksum"),
    "extra value": (lambda f: f.attrs.create("extra", 7), "checksum"),
    "no sum": (lambda f: f.attrs.__delitem__("checksum"), "checksum"),
    "array value": (lambda f: f.attrs.create("extra", [1, 2]), "attribute 'extra'"),
    "short integer": (lambda f: f.attrs.create("extra", 1, dtype="<i4"), "attribute 'extra'"),
    "text in the heap": (lambda f: f.attrs.create("extra", "text"), "attribute 'extra'"),
    "long text": (lambda f: f.attrs.create("extra", np.bytes_(b"x" * 20_000)), "'extra'"),
    "odd name": (lambda f: f.attrs.create("a b", 1), "attribute 'a b'"),
}


@pytest.mark.parametrize("kind", SPOILERS)
def test_whatever_we_would_not_write_is_refused(model: Path, kind: str) -> None:
    spoil, message = SPOILERS[kind]
    # Files that the storage tricks would read if they were followed.
    (model.parent / "secret.bin").write_bytes(np.ones(3, "<f4").tobytes())
    with h5py.File(model.parent / "other.h5", "w") as other:
        other["secret"] = np.ones(3, "<f4")
    with h5py.File(model, "a", libver=("v110", "v110")) as file:
        spoil(file)
    with pytest.raises(ModelError, match=message) as caught:
        read_weights(model)
    assert str(model) in caught.value.message


def test_more_data_than_the_file_can_hold(model: Path) -> None:
    with (
        h5py.File(model) as file,
        pytest.raises(weights._RefusedError, match="more data than it holds"),
    ):
        weights._decode(file, file_bytes=500)


def test_too_many_attributes(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "MAX_OBJECTS", 8)
    with pytest.raises(ModelError, match="more than 8 attributes"):
        read_weights(model)


def test_nan_is_refused_even_with_good_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(weights, "_is_finite", lambda tensor: True)
        write_weights(tmp_path / "m.h5", {}, {"a": np.array([1, np.nan])})
    with pytest.raises(ModelError, match="a contains NaN"):
        read_weights(tmp_path / "m.h5")


# --- damage ------------------------------------------------------------------------------------


def assert_intact_or_refused(path: Path, contents: bytes) -> None:
    path.write_bytes(contents)
    try:
        file = read_weights(path)
    except ModelError:
        return
    assert_same(file, CONFIG, example_tensors())


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_flipped_bits_change_nothing_silently(
    image: bytes, scratch: Path, data: st.DataObject
) -> None:
    damaged = bytearray(image)
    for position in data.draw(st.lists(st.integers(0, 8 * len(image) - 1), min_size=1, max_size=3)):
        damaged[position // 8] ^= 1 << position % 8
    assert_intact_or_refused(scratch, bytes(damaged))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_overwritten_pieces_change_nothing_silently(
    image: bytes, scratch: Path, data: st.DataObject
) -> None:
    piece = data.draw(st.binary(min_size=1, max_size=64))
    start = data.draw(st.integers(0, len(image) - len(piece)))
    assert_intact_or_refused(scratch, image[:start] + piece + image[start + len(piece) :])


def test_flipped_bit_in_a_tensor_is_called_damage(model: Path, image: bytes) -> None:
    tensor = example_tensors()["unary/0/weight"].tobytes()
    damaged = bytearray(image)
    damaged[image.index(tensor) + 17] ^= 4
    model.write_bytes(damaged)
    with pytest.raises(ModelError, match="is damaged"):
        read_weights(model)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_truncated_files_are_refused(image: bytes, scratch: Path, data: st.DataObject) -> None:
    scratch.write_bytes(image[: data.draw(st.integers(0, len(image) - 1))])
    with pytest.raises(ModelError):
        read_weights(scratch)


@settings(max_examples=100, deadline=None)
@given(noise=st.binary(max_size=300), signature=st.booleans())
def test_random_bytes_are_refused(scratch: Path, noise: bytes, signature: bool) -> None:
    scratch.write_bytes((b"\x89HDF\r\n\x1a\n" if signature else b"") + noise)
    with pytest.raises(ModelError):
        read_weights(scratch)
