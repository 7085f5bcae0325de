"""Files behind URLs: fsspec's own memory, a server on this machine, and storage that fails."""

from __future__ import annotations

import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import cv2
import numpy as np
import pytest

from hybridstereo.errors import InputError, InstallError, OutputError, StereoError
from hybridstereo.io.atomic import atomic_write, check_distinct, check_writable
from hybridstereo.io.files import checked_size, is_file, open_stream, read_bytes
from hybridstereo.io.images import read_image, write_image

fsspec = pytest.importorskip("fsspec", reason="needs the extra remote")
PICTURE = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)


@pytest.fixture
def memory():
    """fsspec's files in memory, of which all tests of a process share one store."""
    store = fsspec.filesystem("memory")
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


def test_images_are_the_same_behind_a_url(memory, tmp_path):
    write_image("memory://scene/a.png", PICTURE)
    write_image(tmp_path / "a.png", PICTURE)
    assert memory.cat("/scene/a.png") == (tmp_path / "a.png").read_bytes()
    expected = read_image(tmp_path / "a.png")
    np.testing.assert_array_equal(read_image("memory://scene/a.png"), expected)
    np.testing.assert_array_equal(read_image(f"file://{tmp_path}/a.png"), expected)


def test_file_urls_need_no_fsspec(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.delitem(sys.modules, "hybridstereo.io.url_files", raising=False)
    write_image(f"file://{tmp_path}/a.png", PICTURE)
    assert is_file(f"file://{tmp_path}/a.png")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    with pytest.raises(InstallError, match=r"pip install 'hybridstereo\[remote\]'"):
        read_image("memory://a.png")


def test_sizes_are_checked_before_anything_is_read(memory, monkeypatch):
    memory.pipe("/large", bytes(1000))
    monkeypatch.setattr(type(memory), "_open", lambda *a, **k: pytest.fail("it was opened"))
    with pytest.raises(InputError, match="at most 999 bytes are read"):
        read_bytes("memory://large", 999)


def state_size(memory, monkeypatch, name, size):
    """Let storage state another size of one file; old versions of fsspec ask about folders, too."""
    info = type(memory).info

    def stated(self, path, **options):
        if path == name:
            return {"name": path, "type": "file", "size": size}
        return info(self, path, **options)

    monkeypatch.setattr(type(memory), "info", stated)


def test_a_size_that_nobody_states_is_bounded_too(memory, monkeypatch):
    memory.pipe("/large", bytes(1000))
    state_size(memory, monkeypatch, "/large", None)
    with pytest.raises(InputError, match="at most 999 bytes are read"):
        read_bytes("memory://large", 999)
    assert read_bytes("memory://large", 1000) == bytes(1000)


def test_pixels_are_counted_before_they_are_decoded(memory, monkeypatch):
    write_image("memory://a.png", PICTURE)
    monkeypatch.setattr(cv2, "imdecode", lambda *a: pytest.fail("it was decoded"))
    with pytest.raises(InputError, match=r"memory://a.png states 8x6 pixels, more than the 47"):
        read_image("memory://a.png", max_pixels=47)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("memory://missing.png", "memory://missing.png does not exist"),
        ("memory://scene", "memory://scene is a folder"),
        ("memory://empty", "memory://empty is empty"),
        ("nosuch://a/b.png", "nosuch://a/b.png cannot be used: Protocol not known: nosuch"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(memory, url, problem):
    memory.pipe({"/empty": b"", "/scene/x": b"x"})
    with pytest.raises(InputError) as caught:
        read_bytes(url, 100)
    assert str(caught.value).startswith(problem)
    assert "\n" not in str(caught.value)


def test_a_failing_network_may_be_tried_again(memory, monkeypatch):
    """It is no `InputError`, which would be final (`PairJob.is_final`)."""

    def cut(*arguments, **named):
        raise RuntimeError("connection reset\nby peer")

    memory.pipe("/a", b"a")
    monkeypatch.setattr(type(memory), "_open", cut)
    with pytest.raises(StereoError, match="memory://a cannot be read: connection reset") as caught:
        read_bytes("memory://a", 100)
    assert not isinstance(caught.value, InputError)


def test_a_file_that_comes_in_part_is_refused(memory, monkeypatch):
    memory.pipe("/a", b"only a part")
    state_size(memory, monkeypatch, "/a", 12)
    with pytest.raises(StereoError, match="only 11 of 12 bytes came"):
        read_bytes("memory://a", 100)


def test_nothing_is_sent_before_it_is_complete(memory):
    def stopped():
        with atomic_write("memory://out/a.npy") as temporary:
            temporary.write_bytes(b"half")
            folders.append(temporary.parent)
            raise ZeroDivisionError

    folders = []
    memory.pipe("/out/a.npy", b"old")
    with pytest.raises(ZeroDivisionError):
        stopped()
    assert memory.cat("/out/a.npy") == b"old"
    assert not folders[0].exists()
    with atomic_write("memory://out/a.npy") as temporary:
        assert temporary.suffix == ".npy"
        temporary.write_bytes(b"new")
    assert memory.cat("/out/a.npy") == b"new"
    assert memory.find("/") == ["/out/a.npy"]


def renaming(monkeypatch, memory, put_file=None):
    """Let the store rename, as servers of files do; returns what was sent, and renamed."""
    calls = []
    sends = put_file or type(memory).put_file

    def sent(self, local, remote, **named):
        calls.append(("put", remote))
        return sends(self, local, remote, **named)

    def moved(self, old, new, **named):
        calls.append(("mv", old, new))
        self.store[new] = self.store.pop(old)

    monkeypatch.setattr(type(memory), "put_file", sent)
    monkeypatch.setattr(type(memory), "mv", moved)
    return calls


def test_where_files_can_be_renamed_they_appear_complete(memory, monkeypatch):
    calls = renaming(monkeypatch, memory)
    write_image("memory://out/a.png", PICTURE)
    (_, temporary), moved = calls
    assert temporary.startswith("/out/.a.png.")
    assert moved == ("mv", temporary, "/out/a.png")
    assert memory.find("/") == ["/out/a.png"]


def test_a_failed_upload_leaves_nothing(memory, monkeypatch):
    def breaks(self, local, remote, **named):
        self.pipe(remote, b"half")
        raise OSError("quota")

    renaming(monkeypatch, memory, breaks)
    with pytest.raises(OutputError, match=r"memory://out/a\.png cannot be written: quota"):
        write_image("memory://out/a.png", PICTURE)
    assert memory.find("/") == []


def test_lines_of_a_list_are_read_in_parts(memory):
    memory.pipe("/list", b"".join(b"%d\n" % x for x in range(300_000)))
    with open_stream("memory://list") as stream:
        assert [int(line) for line in stream] == list(range(300_000))


def test_existence(memory):
    memory.pipe("/scene/a.png", b"x")
    assert is_file("memory://scene/a.png")
    assert not is_file("memory://scene")
    assert not is_file("memory://scene/b.png")


def test_outputs_and_inputs_are_told_apart(memory, tmp_path):
    with pytest.raises(OutputError, match="is an input already"):
        check_distinct(["memory://a.png"], ["memory://b.png", "memory://a.png"])
    with pytest.raises(OutputError, match="is an input already"):
        check_distinct([f"file://{tmp_path}/a.png"], [tmp_path / "a.png"])


def test_mapped_files_are_on_disks(memory):
    with pytest.raises(InputError, match="only read from a disk"):
        checked_size("memory://costs.npy", 100)


@pytest.fixture
def server(tmp_path):
    """A server of the files in a folder, which knows nothing of parts of files."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()


def test_http_is_read_and_not_written(server, tmp_path):
    pytest.importorskip("aiohttp", reason="fsspec needs it for HTTP")
    write_image(tmp_path / "a.png", PICTURE)
    np.testing.assert_array_equal(read_image(f"{server}/a.png"), read_image(tmp_path / "a.png"))
    size = (tmp_path / "a.png").stat().st_size
    with pytest.raises(InputError, match="too large"):
        read_bytes(f"{server}/a.png", size - 1)
    with pytest.raises(InputError, match="does not exist"):
        read_image(f"{server}/b.png")
    (tmp_path / "list").write_bytes(b"line\n" * 300_000)
    with open_stream(f"{server}/list") as stream:
        assert sum(1 for _ in stream) == 300_000
    with pytest.raises(OutputError, match="can be read but not written"):
        check_writable(f"{server}/a.png")
