"""Lists of pairs, from a file or a pipe."""

from __future__ import annotations

import io
import os

import pytest

from hybridstereo.batch.lists import listed_pairs, streamed_pairs
from hybridstereo.batch.pairs import Pair
from hybridstereo.errors import InputError


def listed(tmp_path, text):
    path = tmp_path / "list.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(listed_pairs(path))


def test_paths_are_relative_to_the_list(tmp_path):
    text = "# a comment\n\nleft/1.png,right/1.png\n/x/left.png, /x/right.png ,far/away\n"
    first, second = listed(tmp_path, text)
    assert first == Pair("left/1", f"{tmp_path}/left/1.png", f"{tmp_path}/right/1.png")
    assert second == Pair("far/away", "/x/left.png", "/x/right.png")


@pytest.mark.parametrize(
    "text",
    [
        "l a.png\tr,a.png\tn",
        '"l a.png","r,a.png",n',
        'name,left,disparity,right\nn,l a.png,t.pfm,"r,a.png"',
        "\ufeffleft\tright\tname\r\nl a.png\tr,a.png\tn\r\n",
    ],
)
def test_tabs_quotes_and_headers(tmp_path, text):
    assert listed(tmp_path, text) == [Pair("n", f"{tmp_path}/l a.png", f"{tmp_path}/r,a.png")]


def test_names_of_files_may_hold_any_bytes(tmp_path):
    (pair,) = listed(tmp_path, b"left\xff.png,right\xff.png\n")
    assert os.fsencode(pair.left).endswith(b"/left\xff.png")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a.png\n", "line 1: 'a.png' is not left,right,name"),
        ("a,b\na,,n\n", "line 2"),
        ("a,b,c,d\n", "line 1"),
        ("a.png,b.png,truth.pfm\n", "the name 'truth.pfm' ends as a map does"),
        ("a.png,b.png,truth.pfm,mask.png\n", "is not left,right,name"),
        ("a,b,../c\n", "'../c' is not a name for results"),
        ("a,b,/c\n", "'/c' is not a name for results"),
        ("a,b\0\n", "line 1 is not a line of a text file"),
        (f"a,{'b' * 70_000}\n", "line 1 is not a line of a text file"),
        ("a,b,n\nc,d,n\n", "Two pairs are called n"),
    ],
)
def test_what_is_no_list(tmp_path, text, problem):
    with pytest.raises(InputError, match=problem):
        listed(tmp_path, text)


def test_a_long_header_is_not_repeated_in_a_message(tmp_path):
    with pytest.raises(InputError, match="line 2: 'a' is not left,right,x") as refusal:
        listed(tmp_path, f"left,right,{'x' * 5000}\na\n")
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize("line", ["/,b.png", "/,/", ".,b.png", "a/..,b.png"])
def test_folders_that_have_no_name(tmp_path, line):
    with pytest.raises(InputError, match="is a folder, not an image"):
        listed(tmp_path, line)


def test_a_list_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        listed_pairs(tmp_path / "no.csv")


def test_a_pipe_is_read_line_by_line():
    lines = [b"left/1.png,right/1.png\n", b"left/2.png,right/2.png\n"]

    class Pipe(io.RawIOBase):
        taken = 0

        def readline(self, size=-1):
            self.taken += 1
            return lines[self.taken - 1] if self.taken <= len(lines) else b""

    pipe = Pipe()
    source = streamed_pairs(pipe)
    assert source.count() is None
    pairs = iter(source)
    assert next(pairs) == Pair("left/1", "left/1.png", "right/1.png")
    assert pipe.taken == 1
    assert [pair.name for pair in pairs] == ["left/2"]
