"""The authors' parameter and configuration files: every variant, and whatever is none."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridstereo.errors import ModelError
from hybridstereo.models import published
from hybridstereo.models.published import (
    PublishedConfig,
    PublishedParameters,
    read_published_config,
    read_published_parameters,
)


def noise(*shape: int) -> np.ndarray:
    """Reproducible float32 values, different for each shape."""
    seed = sum(size << 8 * axis for axis, size in enumerate(shape))
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def unary(layers: int, inputs: int = 3) -> list[np.ndarray]:
    arrays = [noise(100, inputs, 3, 3), noise(100)]
    for number in range(layers - 1):
        arrays += [noise(100, 100, 2, 2) + np.float32(number), noise(100)]
    return arrays


def pairwise() -> list[np.ndarray]:
    return [noise(64, 3, 3, 3), noise(64), noise(64, 64, 3, 3), noise(64), noise(2, 64, 1, 1)]


PENALTIES = [np.array([0.5], np.float32), np.array([8.25], np.float32)]
LEGACY = [*unary(3), noise(2, 100, 3, 3), PENALTIES[0]]


def save(path: Path, arrays: list[np.ndarray]) -> Path:
    np.savez(path, *arrays)
    return path


def flatten(parameters: PublishedParameters) -> list[np.ndarray]:
    """Return the arrays in the order in which the file has them."""
    layers = [array for layer in parameters.unary for array in layer]
    layers += [array for layer in parameters.pairwise for array in layer if array is not None]
    return layers + [np.array([p], np.float32) for p in parameters.penalties or ()]


# --- parameters --------------------------------------------------------------------------------


@pytest.mark.parametrize("with_penalties", [False, True], ids=["no P", "P1 P2"])
@pytest.mark.parametrize("with_pairwise", [False, True], ids=["unary", "pairwise"])
@pytest.mark.parametrize(("layers", "inputs"), [(3, 3), (5, 3), (7, 3), (7, 5)])
def test_all_variants(
    tmp_path: Path, layers: int, inputs: int, with_pairwise: bool, with_penalties: bool
) -> None:
    arrays = unary(layers, inputs)
    arrays += pairwise() if with_pairwise else []
    arrays += PENALTIES if with_penalties else []
    parameters = read_published_parameters(save(tmp_path / "params.npz", arrays))

    assert len(parameters.unary) == layers
    assert parameters.unary[0][0].shape == (100, inputs, 3, 3)
    assert len(parameters.pairwise) == (3 if with_pairwise else 0)
    assert parameters.penalties == ((0.5, 8.25) if with_penalties else None)
    if with_pairwise:
        assert parameters.pairwise[2][1] is None
    read = flatten(parameters)
    assert len(read) == len(arrays)
    for ours, theirs in zip(read, arrays, strict=True):
        assert ours.dtype == np.float32
        assert ours.flags.c_contiguous
        np.testing.assert_array_equal(ours, theirs)


def test_the_order_is_that_of_the_numbers(tmp_path: Path) -> None:
    # A dictionary's order or the alphabet's would exchange layers of equal shape.
    arrays = unary(7)
    alphabetical = sorted(members(arrays))
    assert alphabetical[2][0] == "arr_10.npy"
    parameters = read_published_parameters(save_raw(tmp_path / "p.npz", alphabetical))
    for (weight, _), expected in zip(parameters.unary, arrays[::2], strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_other_floats_and_fortran_order_become_plain_float32(tmp_path: Path) -> None:
    arrays = unary(3)
    changed = [np.asfortranarray(array.astype(">f8")) for array in arrays]
    parameters = read_published_parameters(save(tmp_path / "p.npz", changed))
    for ours, theirs in zip(flatten(parameters), arrays, strict=True):
        assert ours.dtype == np.float32
        assert ours.flags.c_contiguous
        np.testing.assert_array_equal(ours, theirs)


def npy(header: str, data: bytes) -> bytes:
    """Build an .npy file with any header."""
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def save_raw(path: Path, members: list[tuple[str, bytes]], compression: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, contents in members:
            archive.writestr(name, contents)
    return path


def to_npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def members(arrays: list[np.ndarray]) -> list[tuple[str, bytes]]:
    return [(f"arr_{number}.npy", to_npy(array)) for number, array in enumerate(arrays)]


def test_headers_of_python_2(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    contents = members(unary(3))
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (100L,), }"
    contents[1] = ("arr_1.npy", npy(header, noise(100).tobytes()))
    parameters = read_published_parameters(save_raw(tmp_path / "p.npz", contents))
    np.testing.assert_array_equal(parameters.unary[0][1], noise(100))
    assert not recwarn.list


BAD_LAYOUTS: dict[str, tuple[list[np.ndarray], str]] = {
    "nothing": ([], "0 unary layers"),
    "legacy": (LEGACY, "single pairwise layer on top of the first unary layer"),
    "one penalty": ([*unary(3), PENALTIES[0]], "ends in 1 single numbers"),
    "three penalties": ([*unary(3), *PENALTIES, PENALTIES[0]], "ends in 3 single numbers"),
    "two layers": (unary(2), "2 unary layers"),
    "four layers": (unary(4), "4 unary layers"),
    "no bias": (unary(3)[:-1], "last unary layer has no bias"),
    "grey": (unary(3, inputs=1), "1 input channels"),
    "wrong kernel": (
        [*unary(3)[:4], noise(100, 100, 3, 3), noise(100)],
        r"unary layer 3 has the shape \(100, 100, 3, 3\) instead of \(100, 100, 2, 2\)",
    ),
    "broken chain": (
        [*unary(3)[:2], noise(100, 64, 2, 2), noise(100), *unary(3)[4:]],
        r"unary layer 2 has the shape \(100, 64, 2, 2\)",
    ),
    "short bias": (
        [*unary(3)[:5], noise(99)],
        r"the bias of unary layer 3 has the shape \(99,\), not \(100,\)",
    ),
    "64 features": ([noise(64, 3, 3, 3), noise(64)], "0 unary layers"),
    "pairwise cut": ([*unary(3), *pairwise()[:-1]], r"unknown purpose.*\(64, 64, 3, 3\)"),
    "pairwise first": ([*pairwise(), *unary(3)], "0 unary layers"),
    "pairwise with xy": (
        [*unary(3), noise(64, 5, 3, 3), *pairwise()[1:]],
        r"pairwise layer 1 has the shape \(64, 5, 3, 3\) instead of \(64, 3, 3, 3\)",
    ),
    "pairwise chain": (
        [*unary(3), *pairwise()[:2], noise(32, 32, 3, 3), noise(32), noise(2, 32, 1, 1)],
        r"pairwise layer 2 has the shape \(32, 32, 3, 3\) instead of \(32, 64, 3, 3\)",
    ),
    "pairwise outputs": (
        [*unary(3), *pairwise()[:-1], noise(3, 64, 1, 1)],
        r"pairwise layer 3 has the shape \(3, 64, 1, 1\) instead of \(2, 64, 1, 1\)",
    ),
    "scalars inside": (
        [*unary(3), np.ones(()), np.ones(()), *pairwise()[2:]],
        "pairwise layer 1 has the shape",
    ),
    "NaN": ([*unary(3)[:5], np.full(100, np.nan, np.float32)], "arr_5.npy .*NaN"),
    "beyond float32": ([*unary(3)[:5], np.full(100, 1e300)], "arr_5.npy .*infinite"),
    "empty": ([*unary(3)[:5], np.zeros((0, 100), np.float32)], "arr_5.npy is empty"),
    "integers": ([*unary(3)[:5], np.ones(100, np.int64)], "arr_5.npy holds int64"),
    "objects": ([*unary(3)[:5], np.array([None] * 100)], "arr_5.npy holds object"),
}


@pytest.mark.parametrize("kind", BAD_LAYOUTS)
def test_layouts_that_are_refused(tmp_path: Path, kind: str) -> None:
    arrays, message = BAD_LAYOUTS[kind]
    path = save(tmp_path / "params.npz", arrays)
    with pytest.raises(ModelError, match=message) as caught:
        read_published_parameters(path)
    assert str(path) in caught.value.message


@pytest.mark.parametrize("name", ["params.pkl", "PARAMS.PKL", "params.pickle"])
def test_pickles_are_refused_unopened(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match=r"is a pickle, and .* can run any code") as caught:
        read_published_parameters(tmp_path / name)  # does not even exist
    assert caught.value.hint is not None
    assert "numpy.savez" in caught.value.hint


def test_a_renamed_pickle_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "params.npz"
    path.write_bytes(pickle.dumps(unary(3)))
    with pytest.raises(ModelError, match=r"is not an \.npz file"):
        read_published_parameters(path)


def test_missing_empty_and_oversized_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "params.npz"
    with pytest.raises(ModelError, match="does not exist"):
        read_published_parameters(path)
    path.write_bytes(b"")
    with pytest.raises(ModelError, match="is empty"):
        read_published_parameters(path)
    save(path, unary(3))
    monkeypatch.setattr(published, "MAX_PARAMETER_BYTES", 1000)
    with pytest.raises(ModelError, match="is too large"):
        read_published_parameters(path)


def test_foreign_duplicate_and_missing_members(tmp_path: Path) -> None:
    good = members(unary(3))
    path = tmp_path / "params.npz"
    save_raw(path, [*good, ("readme.txt", b"hello")])
    with pytest.raises(ModelError, match=r"contains 'readme\.txt'"):
        read_published_parameters(path)
    with pytest.warns(UserWarning, match="Duplicate name"):
        save_raw(path, [*good, good[0]])
    with pytest.raises(ModelError, match=r"contains 'arr_0\.npy'"):
        read_published_parameters(path)
    save_raw(path, good[:2] + good[3:])
    with pytest.raises(ModelError, match=r"arrays are missing.*\[0, 1, 3, 4, 5\]"):
        read_published_parameters(path)


def test_a_directory_that_hides_entries_is_refused(tmp_path: Path) -> None:
    # The entry of arr_5 claims a comment that covers the entries of P1 and P2.
    path = save(tmp_path / "params.npz", [*unary(3), *PENALTIES])
    contents = bytearray(path.read_bytes())
    entries = [contents.index(b"PK\x01\x02")]
    while (following := contents.find(b"PK\x01\x02", entries[-1] + 1)) > 0:
        entries.append(following)
    struct.pack_into("<H", contents, entries[5] + 32, contents.index(b"PK\x05\x06") - entries[6])
    path.write_bytes(contents)
    with zipfile.ZipFile(path) as archive:
        assert len(archive.namelist()) == 6
    with pytest.raises(ModelError, match="list of contents is damaged"):
        read_published_parameters(path)


def test_compressed_files_are_refused(tmp_path: Path) -> None:
    path = save_raw(tmp_path / "p.npz", members(unary(3)), zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelError, match="is compressed"):
        read_published_parameters(path)


def test_members_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    path = save_raw(tmp_path / "p.npz", members([noise(5000), noise(5000)]))
    contents = path.read_bytes()
    # Let both entries of the directory declare 30 kB of the 40 kB that the archive holds.
    size = struct.pack("<I", len(to_npy(noise(5000))))
    directory = contents.index(b"PK\x01\x02")
    path.write_bytes(
        contents[:directory] + contents[directory:].replace(size, struct.pack("<I", 30_000))
    )
    with pytest.raises(ModelError, match="declares more data than it holds"):
        read_published_parameters(path)


@pytest.mark.parametrize("shape", ["(1099511627776,)", "(101,)", "(99,)", "(1000000000, 4000)"])
def test_headers_that_lie_are_refused(tmp_path: Path, shape: str) -> None:
    contents = members(unary(3))
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    contents[1] = ("arr_1.npy", npy(header, noise(100).tobytes()))
    with pytest.raises(ModelError, match="does not fit its size"):
        read_published_parameters(save_raw(tmp_path / "p.npz", contents))


@pytest.mark.parametrize(
    "array",
    [
        b"no magic at all",
        b"\x93NUMPY\x02\x00" + to_npy(noise(100))[8:],
        npy("__import__('os').abort()", b""),
        npy("(" * 5000, b""),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, -25), }", noise(100).tobytes()),
        npy("{'descr': '<f4,<f4', 'fortran_order': False, 'shape': (50,), }", bytes(400)),
    ],
    ids=["magic", "version", "code", "nesting", "negative", "fields"],
)
def test_broken_arrays_are_refused(tmp_path: Path, array: bytes) -> None:
    contents = members(unary(3))
    contents[1] = ("arr_1.npy", array)
    with pytest.raises(ModelError, match="cannot be used as a model"):
        read_published_parameters(save_raw(tmp_path / "p.npz", contents))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("valid") / "params.npz"
    return save(path, [*unary(3), *PENALTIES]).read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property."""
    return tmp_path_factory.mktemp("scratch")


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_flipped_bits_change_nothing_silently(
    archive: bytes, scratch: Path, data: st.DataObject
) -> None:
    # Half of the flips hit the directory at the end, where the structure is.
    start = data.draw(st.sampled_from([0, archive.index(b"PK\x01\x02")]))
    position = data.draw(st.integers(8 * start, 8 * len(archive) - 1))
    damaged = bytearray(archive)
    damaged[position // 8] ^= 1 << position % 8
    (scratch / "p.npz").write_bytes(damaged)
    try:
        read = flatten(read_published_parameters(scratch / "p.npz"))
    except ModelError:
        return
    for ours, theirs in zip(read, [*unary(3), *PENALTIES], strict=True):
        np.testing.assert_array_equal(ours, theirs)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_truncated_archives_are_refused(archive: bytes, scratch: Path, data: st.DataObject) -> None:
    (scratch / "p.npz").write_bytes(archive[: data.draw(st.integers(0, len(archive) - 1))])
    with pytest.raises(ModelError):
        read_published_parameters(scratch / "p.npz")


@settings(max_examples=100, deadline=None)
@given(contents=st.binary(max_size=300), signature=st.booleans())
def test_random_bytes_are_refused(scratch: Path, contents: bytes, signature: bool) -> None:
    (scratch / "p.npz").write_bytes((b"PK\x05\x06" if signature else b"") + contents)
    with pytest.raises(ModelError):
        read_published_parameters(scratch / "p.npz")


# --- configuration -----------------------------------------------------------------------------


def write_config(folder: Path, text: str) -> Path:
    path = folder / "crf.cfg"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_of_the_program(tmp_path: Path) -> None:
    config = read_published_config(write_config(tmp_path, "# nothing but a comment\n"))
    assert config == PublishedConfig(
        matching="COLORCNN",
        num_layers=7,
        inference="CRF",
        disp_min=1,
        disp_max=128,
        disp_step=1,
        lambda_=0.4,
        L1=1,
        L2=12,
        delta=2,
        alpha=20,
        beta=0.8,
        crf_iterations=4,
        with_xy=False,
        refinement="NONE",
        given=frozenset(),
        unknown={},
    )


def test_every_key_and_untidy_spacing(tmp_path: Path) -> None:
    text = (
        "\ufeff# KITTI\r\n\r\n  matching=ColorPair \r\nnum-layers   =  5\n\tinference = argmax\n"
        "disp-min = -2.5\ndisp-max = 1e2 # pixels\ndisp-step = .5\nlambda = 0\nL1 = +0.25\n"
        "L2 = 8.\ndelta = 2.0\nalpha = 10\nbeta = 0.9\ncrf-iterations = 5.0\nwith-xy = 1\n"
        "refinement = QuadDirect\n"
    )
    config = read_published_config(write_config(tmp_path, text))
    expected = {
        "matching": "COLORPAIR",
        "num_layers": 5,
        "inference": "ARGMAX",
        "disp_min": -2.5,
        "disp_max": 100.0,
        "disp_step": 0.5,
        "lambda_": 0.0,
        "L1": 0.25,
        "L2": 8.0,
        "delta": 2.0,
        "alpha": 10.0,
        "beta": 0.9,
        "crf_iterations": 5,
        "with_xy": True,
        "refinement": "QuadDirect",
    }
    assert {name: getattr(config, name) for name in expected} == expected
    assert type(config.crf_iterations) is int
    assert config.with_xy is True
    assert config.given == expected.keys()


def test_unknown_keys_are_recorded(tmp_path: Path) -> None:
    config = read_published_config(write_config(tmp_path, "gpu-id = 0\nL1 = 2\nl2 = x = y\n"))
    assert config.given == {"L1"}
    assert config.unknown == {"gpu-id": "0", "l2": "x = y"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nlambda", "line 2: 'lambda' is not of the form"),
        ("= 3", "line 1: '= 3' is not of the form"),
        ("lambda =", "line 1: lambda = , but it must be a number"),
        ("lambda = much", "lambda = much, but it must be a number"),
        ("lambda = nan", "it must be a number"),
        ("lambda = 1e999", "it must be a number"),
        ("lambda = 1_0", "it must be a number"),
        ("lambda = ٣", "it must be a number"),
        ("lambda = 0,5", "it must be a number"),
        ("lambda = -1", "it must not be negative"),
        ("disp-step = 0", "it must be positive"),
        ("delta = 3", "delta = 3, but only 2 can be used"),
        ("num-layers = 4", "only 3, 5, 7 can be used"),
        ("with-xy = 2", "only 0, 1 can be used"),
        ("matching = SAD", "only COLORCNN, COLORPAIR can be used"),
        ("inference = SGM", "only CRF, ARGMAX, NONE can be used"),
        ("crf-iterations = 0", "a whole number, at least 1"),
        ("crf-iterations = 4.5", "a whole number, at least 1"),
        ("L1 = 1\nL1 = 2", "line 2: L1 is set a second time"),
        ("disp-min = 200", "disp-max = 128 is below disp-min = 200"),
        ("L1 = 13", "L2 = 12 is below L1 = 13"),
    ],
)
def test_bad_settings_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = write_config(tmp_path, text)
    with pytest.raises(ModelError, match=message) as caught:
        read_published_config(path)
    assert str(path) in caught.value.message


def test_unreadable_configurations(tmp_path: Path) -> None:
    path = tmp_path / "crf.cfg"
    with pytest.raises(ModelError, match="does not exist"):
        read_published_config(path)
    with pytest.raises(ModelError, match="is a folder"):
        read_published_config(tmp_path)
    path.write_bytes(b"lambda = \xff\xfe")
    with pytest.raises(ModelError, match="is not a text file"):
        read_published_config(path)
    path.write_bytes(b"#" * 100_000)
    with pytest.raises(ModelError, match="is too large"):
        read_published_config(path)


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.lists(
            st.tuples(st.sampled_from([*published._KEYS, "other", ""]), st.text(max_size=8))
        ).map(lambda lines: "\n".join(f"{key} = {value}" for key, value in lines).encode()),
    )
)
def test_any_text_is_read_or_refused(scratch: Path, contents: bytes) -> None:
    (scratch / "crf.cfg").write_bytes(contents)
    try:
        config = read_published_config(scratch / "crf.cfg")
    except ModelError:
        return
    assert config.given <= vars(config).keys()
    assert config.L1 <= config.L2


# --- the real files ----------------------------------------------------------------------------


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "pairwise_layers", "penalties"),
    [
        ("middlebury-3-cnn", 0, None),
        ("middlebury-3-full", 3, None),
        ("kitti-3-joint", 0, (0.99709302, 17.77788925)),
    ],
)
def test_published_parameters(
    shared: Path, name: str, pairwise_layers: int, penalties: tuple[float, float] | None
) -> None:
    path = shared / "official" / name / "params.npz"
    parameters = read_published_parameters(path)
    assert len(parameters.unary) == 3
    assert len(parameters.pairwise) == pairwise_layers
    assert parameters.penalties == (pytest.approx(penalties) if penalties else None)
    with np.load(path, allow_pickle=False) as archive:
        expected = [archive[f"arr_{number}"] for number in range(len(archive.files))]
    for ours, theirs in zip(flatten(parameters), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("middlebury-3-cnn/argmax", ("COLORCNN", "ARGMAX", 1, 128, 0.4, 1, 12, 0.8, 4)),
        ("middlebury-3-cnn/crf", ("COLORCNN", "CRF", 1, 128, 0.2, 1, 5, 0.9, 5)),
        ("middlebury-3-full/crf", ("COLORPAIR", "CRF", 1, 128, 1, 1, 5, 0.9, 5)),
        (
            "kitti-3-joint/crf",
            ("COLORCNN", "CRF", 0, 255, 0.15, 0.99709302, 17.77788925, 0.9, 5),
        ),
    ],
)
def test_published_configurations(shared: Path, name: str, expected: tuple[object, ...]) -> None:
    config = read_published_config(shared / "official" / f"{name}.cfg")
    assert (config.matching, config.inference, config.disp_min, config.disp_max) == expected[:4]
    assert (config.lambda_, config.L1, config.L2, config.beta) == expected[4:8]
    assert config.crf_iterations == expected[8]
    assert (config.num_layers, config.delta, config.alpha, config.disp_step) == (3, 2, 20, 1)
    assert config.unknown == {}
    assert ("disp_min" in config.given) == name.startswith("kitti")
