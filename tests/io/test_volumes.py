"""Cost volumes on disk: every format and arrangement, and every way to be unusable."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from hybridstereo.errors import InputError, OutOfMemoryError, OutputError
from hybridstereo.io.volumes import check_volume_output, fill_unknown, read_volume, write_volume

H, W, K = 4, 6, 3


@pytest.fixture
def costs(rng):
    return rng.standard_normal((H, W, K)).astype(np.float32)


@pytest.mark.parametrize("suffix", [".npy", ".h5", ".bin"])
def test_what_was_written_is_read_again(costs, tmp_path, suffix):
    path = tmp_path / f"v{suffix}"
    write_volume(path, costs, -2.0, 0.5)
    volume = read_volume(path, H, W)
    np.testing.assert_array_equal(volume.costs, costs)
    assert volume.costs.flags.c_contiguous
    assert volume.costs.flags.writeable
    expected = (-2.0, 0.5) if suffix == ".h5" else (0.0, 1.0)
    assert (volume.min_disparity, volume.step) == expected


def test_costs_are_scaled(costs, tmp_path):
    write_volume(tmp_path / "v.npy", costs, 0.0, 1.0)
    np.testing.assert_array_equal(read_volume(tmp_path / "v.npy", H, W, 2.0).costs, 2 * costs)


def test_bin_is_mc_cnns_layout(costs, tmp_path):
    write_volume(tmp_path / "v.bin", costs, 0, 1)
    raw = np.fromfile(tmp_path / "v.bin", "<f4").reshape(1, K, H, W)
    np.testing.assert_array_equal(raw[0, 2], costs[:, :, 2])


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("leading", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_arrangements_of_npy(costs, tmp_path, axes, leading, dtype):
    stored = costs.transpose(axes).astype(dtype)
    np.save(tmp_path / "v.npy", stored[np.newaxis] if leading else stored)
    read = read_volume(tmp_path / "v.npy", H, W).costs
    np.testing.assert_array_equal(read, costs.astype(dtype).astype(np.float32))


def test_any_single_dataset_of_an_h5_file(costs, tmp_path):
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_dataset("whatever", data=costs, compression="gzip")
    np.testing.assert_array_equal(read_volume(tmp_path / "v.h5", H, W).costs, costs)


def test_unknown_labels_are_nan(costs, tmp_path):
    costs[0, 0] = [np.nan, 1, np.inf]
    np.save(tmp_path / "v.npy", costs)
    read = read_volume(tmp_path / "v.npy", H, W).costs
    assert np.isnan(read[0, 0]).tolist() == [True, False, True]


def test_fill_unknown_takes_the_worst_known_cost_of_the_pixel():
    nan = np.nan
    costs = np.array([[[1, nan, 3], [nan, nan, nan], [4, 5, 6]]], np.float32)
    assert fill_unknown(costs).tolist() == [[[1, 3, 3], [0, 0, 0], [4, 5, 6]]]


def refused(path, *words):
    with pytest.raises(InputError) as failure:
        read_volume(path, H, W)
    for word in (path.name, *words):
        assert word in str(failure.value)


def test_missing_file(tmp_path):
    refused(tmp_path / "no.npy", "does not exist")


def test_other_suffix(tmp_path):
    refused(tmp_path / "v.txt", ".npy")
    with pytest.raises(OutputError, match=r"\.npy"):
        check_volume_output(tmp_path / "v.txt")


def test_missing_folder_is_noticed_before_the_work(tmp_path):
    with pytest.raises(OutputError, match="does not exist"):
        check_volume_output(tmp_path / "no" / "v.npy")


def test_wrong_size(tmp_path, rng):
    np.save(tmp_path / "v.npy", rng.standard_normal((H + 1, W, K)))
    refused(tmp_path / "v.npy", "6x4")


def test_whole_numbers(tmp_path):
    np.save(tmp_path / "v.npy", np.zeros((H, W, K), np.int32))
    refused(tmp_path / "v.npy", "int32")


def test_minus_infinity(costs, tmp_path):
    costs[1, 1, 1] = -np.inf
    np.save(tmp_path / "v.npy", costs)
    refused(tmp_path / "v.npy", "minus infinity")


def test_cut_bin(costs, tmp_path):
    write_volume(tmp_path / "v.bin", costs, 0, 1)
    whole = (tmp_path / "v.bin").read_bytes()
    for length in (1, 7, len(whole) - 4):
        (tmp_path / "v.bin").write_bytes(whole[:length])
        refused(tmp_path / "v.bin", "bytes")


@pytest.mark.parametrize("suffix", [".npy", ".h5"])
def test_cut_or_strange_files(costs, tmp_path, suffix):
    path = tmp_path / f"v{suffix}"
    write_volume(path, costs, 0, 1)
    whole = path.read_bytes()
    for data in (whole[: len(whole) // 2], b"", b"something else entirely"):
        path.write_bytes(data)
        refused(path)


def test_pickled_objects_are_never_loaded(tmp_path):
    np.save(tmp_path / "v.npy", np.array([{"a": 1}], object), allow_pickle=True)
    refused(tmp_path / "v.npy", "holds dtype('O')")


def test_h5_that_declares_terabytes(tmp_path):
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_dataset("costs", (H, W, 1 << 36), np.float32, chunks=(1, 1, 1024))
    refused(tmp_path / "v.h5", "68719476736")
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_dataset("costs", (H, W, 1 << 16), np.float32, chunks=(1, 1, 1024))
    refused(tmp_path / "v.h5", "declares more")


def test_h5_whose_chunk_is_far_larger_than_the_volume(tmp_path):
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_dataset(
            "costs", (H, W, 2), np.float32, chunks=(H, W, 1 << 20), maxshape=(H, W, None),
            compression="gzip", fillvalue=1,
        )[...] = 0  # fmt: skip
    assert (tmp_path / "v.h5").stat().st_size < 1 << 20
    refused(tmp_path / "v.h5", "declares more")


@pytest.mark.parametrize("suffix", [".npy", ".h5", ".bin"])
def test_more_than_the_memory_is_not_read(costs, tmp_path, suffix):
    path = tmp_path / f"v{suffix}"
    write_volume(path, costs, 0, 1)
    assert read_volume(path, H, W, max_bytes=costs.nbytes).costs.shape == costs.shape
    with pytest.raises(OutOfMemoryError, match=f"needs {costs.nbytes} bytes"):
        read_volume(path, H, W, max_bytes=costs.nbytes - 1)


@pytest.mark.parametrize("scale", [np.nan, np.inf, 0.0, -1.0, "2", True])
def test_factors_that_are_none(costs, tmp_path, scale):
    write_volume(tmp_path / "v.npy", costs, 0, 1)
    with pytest.raises(InputError, match="The factor of the costs is"):
        read_volume(tmp_path / "v.npy", H, W, scale)


def test_costs_beyond_float32_are_unknown_or_refused(tmp_path, recwarn):
    costs = np.zeros((H, W, K))
    costs[0, 0, 0] = 1e300
    np.save(tmp_path / "v.npy", costs)
    assert np.isnan(read_volume(tmp_path / "v.npy", H, W).costs[0, 0, 0])
    costs[0, 0, 0] = -3e38
    np.save(tmp_path / "v.npy", costs)
    with pytest.raises(InputError, match="minus infinity"):
        read_volume(tmp_path / "v.npy", H, W, 1e6)
    assert not recwarn.list


def test_h5_with_external_data(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(4 * H * W * K))
    with h5py.File(tmp_path / "v.h5", "w") as file:
        external = [(str(tmp_path / "secret"), 0, 4 * H * W * K)]
        file.create_dataset("costs", (H, W, K), np.float32, external=external)
    refused(tmp_path / "v.h5", "other files")


def test_h5_with_links(tmp_path):
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["costs"] = h5py.ExternalLink("other.h5", "/costs")
    refused(tmp_path / "v.h5", "links")


def test_h5_with_several_datasets(costs, tmp_path):
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["a"] = costs
        file["b"] = costs
    refused(tmp_path / "v.h5", "2 datasets", "costs")


@pytest.mark.parametrize("step", [0.0, np.nan, "wide"])
def test_h5_with_a_useless_attribute(costs, tmp_path, step):
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["costs"] = costs
        file["costs"].attrs["step"] = step
    refused(tmp_path / "v.h5", "step")
