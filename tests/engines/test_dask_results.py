"""Where Dask's workers get images from and put results: object storage, or back to the client."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from hybridstereo.batch.lists import listed_pairs
from hybridstereo.batch.outputs import ColorFile, DisparityFile
from hybridstereo.batch.remote import PairJob, run_pairs_on
from hybridstereo.batch.run import run_pairs
from hybridstereo.batch.work import PairWork
from hybridstereo.stereo import Stereo

pytest.importorskip("distributed", reason="needs the extra dask")
fsspec = pytest.importorskip("fsspec", reason="needs the extra remote")
pytestmark = [pytest.mark.engines, pytest.mark.slow]
OUTPUTS = DisparityFile("{name}.pfm"), ColorFile("pictures/{name}.png")
COUNT = 6


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Pairs with a list, of which the last one has no right view."""
    folder = tmp_path_factory.mktemp("scenes")
    rng = np.random.default_rng(0)
    for index in range(COUNT):
        left = cv2.GaussianBlur(rng.integers(0, 256, (48, 80, 3), np.uint8), (0, 0), 1)
        cv2.imwrite(str(folder / f"{index}_left.png"), left)
        cv2.imwrite(str(folder / f"{index}_right.png"), np.roll(left, -3, axis=1))
    lines = [f"{index}_left.png,{index}_right.png,n{index}\n" for index in range(COUNT)]
    (folder / "pairs.csv").write_text("".join(lines) + "0_left.png,missing.png,missing\n")
    return folder


@pytest.fixture(scope="module")
def expected(scenes, tmp_path_factory):
    """The files as one process makes them."""
    out = tmp_path_factory.mktemp("single")
    work = PairWork(str(out), OUTPUTS)
    outcomes = list(run_pairs(Stereo("census", "cpu", 1), listed_pairs(scenes / "pairs.csv"), work))
    assert [outcome.status for outcome in outcomes] == ["done"] * COUNT + ["failed"]
    return {str(x.relative_to(out)): x.read_bytes() for x in out.rglob("*.p*") if x.is_file()}


@pytest.fixture(scope="module")
def bucket():
    """A bucket of an S3 server on this machine, which the workers find by the environment."""
    pytest.importorskip("s3fs", reason="needs s3fs")
    server = pytest.importorskip("moto.server", reason="needs moto[server]").ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        host, port = server.get_host_and_port()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "nobody")
        store = fsspec.filesystem("s3")
        store.mkdir("stereo")
        yield store
    server.stop()


@pytest.fixture(scope="module")
def engine(bucket):
    from hybridstereo.engines.dask_workers import DaskWorkers

    with DaskWorkers(workers=2, threads=1) as workers:
        yield workers


def stored(store, folder: str) -> dict[str, bytes]:
    found = store.find(folder)
    return {str(Path(path).relative_to(folder)): store.cat(path) for path in found}


def test_workers_return_what_the_client_writes(engine, scenes, expected):
    """Each process has a memory:// of its own: what is in the client's, the client has written."""
    work = PairWork("memory://returned", OUTPUTS)
    job = PairJob("census", "cpu", work, return_results=True)
    outcomes = list(run_pairs_on(engine, listed_pairs(scenes / "pairs.csv"), job))
    assert sorted(x.status for x in outcomes) == ["done"] * COUNT + ["failed"]
    done = next(x for x in outcomes if x.pair.name == "n0")
    assert done.files == {
        "disparity": ["memory://returned/n0.pfm"],
        "color": ["memory://returned/pictures/n0.png"],
    }
    assert stored(fsspec.filesystem("memory"), "/returned") == expected
    assert engine.most_in_flight <= 4


def test_workers_leave_it_to_the_client_to_say_what_is_missing(engine, scenes, expected, tmp_path):
    (tmp_path / "pictures").mkdir()
    for name in ("n1.pfm", "pictures/n1.png"):
        (tmp_path / name).write_bytes(b"an earlier run's")
    work = PairWork(str(tmp_path), OUTPUTS, skip_existing=True)
    job = PairJob("census", "cpu", work, return_results=True)
    outcomes = list(run_pairs_on(engine, listed_pairs(scenes / "pairs.csv"), job))
    assert [x.pair.name for x in outcomes if x.status == "skipped"] == ["n1"]
    assert (tmp_path / "n1.pfm").read_bytes() == b"an earlier run's"
    assert (tmp_path / "n2.pfm").read_bytes() == expected["n2.pfm"]


def test_what_the_client_cannot_write_fails_and_the_rest_is_done(engine, scenes, tmp_path):
    (tmp_path / "n3.pfm").mkdir()
    work = PairWork(str(tmp_path), OUTPUTS)
    job = PairJob("census", "cpu", work, return_results=True)
    outcomes = {
        x.pair.name: x for x in run_pairs_on(engine, listed_pairs(scenes / "pairs.csv"), job)
    }
    assert outcomes["n3"].status == "failed"
    assert "is a folder" in str(outcomes["n3"].error)
    assert [x for x in outcomes if outcomes[x].status == "done"] != []
    assert len(list(tmp_path.glob("pictures/*.png"))) == COUNT - 1


def test_object_storage_from_the_list_to_the_results(engine, bucket, scenes, expected):
    """Workers read from and write to S3; a second run does what is missing of the first."""
    bucket.put(str(scenes), "stereo/scenes", recursive=True)
    work = PairWork("s3://stereo/maps", OUTPUTS, skip_existing=True)
    pairs = listed_pairs("s3://stereo/scenes/pairs.csv")
    outcomes = list(run_pairs_on(engine, pairs, PairJob("census", "cpu", work)))
    assert sorted(x.status for x in outcomes) == ["done"] * COUNT + ["failed"]
    (failed,) = (x for x in outcomes if x.status == "failed")
    assert "s3://stereo/scenes/missing.png does not exist" in str(failed.error)
    bucket.invalidate_cache()
    assert stored(bucket, "stereo/maps") == expected
    bucket.rm("stereo/maps/n2.pfm")
    outcomes = list(run_pairs_on(engine, pairs, PairJob("census", "cpu", work)))
    assert [x.pair.name for x in outcomes if x.status == "done"] == ["n2"]
    bucket.invalidate_cache()
    assert stored(bucket, "stereo/maps") == expected
