"""The YAML and XML that calibration programs write; damaged and malicious files."""

from __future__ import annotations

from contextlib import suppress

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridstereo.errors import InputError
from hybridstereo.io.storage import parse_storage


@pytest.mark.parametrize("suffix", ["yml", "xml"])
def test_what_opencv_writes(tmp_path, suffix):
    path = tmp_path / f"storage.{suffix}"
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE)
    matrix = np.array([[1.5, 0], [0, -2e-5]])
    storage.write("M", matrix)
    storage.write("long", np.arange(100.0).reshape(1, -1))
    storage.write("count", 3)
    storage.write("word", "yes")
    storage.startWriteStruct("size", cv2.FileNode_SEQ | cv2.FileNode_FLOW)
    storage.write("", 640)
    storage.write("", 480)
    storage.endWriteStruct()
    storage.startWriteStruct("list", cv2.FileNode_SEQ)
    storage.write("", "a.png")
    storage.write("", matrix)
    storage.endWriteStruct()
    storage.startWriteStruct("left", cv2.FileNode_MAP)
    storage.write("M", matrix)
    storage.endWriteStruct()
    storage.release()
    values = parse_storage(path.read_bytes(), "file")
    matrices = values["M"], values["left"]["M"], values["list"][1]
    for found in matrices:
        np.testing.assert_array_equal(np.array(found.pop("data"), float), matrix.ravel())
        assert found == {"rows": "2", "cols": "2", "dt": "d"}
    assert [float(x) for x in values["long"]["data"]] == list(range(100))
    assert (values["count"], values["word"], values["size"]) == ("3", "yes", ["640", "480"])
    assert values["list"][0] == "a.png"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%YAML:1.0\n---\na: 1\n...\n", {"a": "1"}),
        ("a: 1  # one\n\n# two\nb: 'x # y: z'\n", {"a": "1", "b": "x # y: z"}),
        ('"a b": "c: [d"\ne: ""\n', {"a b": "c: [d", "e": ""}),
        ("a:\n- 1\n- 2\nb: 3\n", {"a": ["1", "2"], "b": "3"}),
        ("a:\n  - [1, 2]\n  - [3,\n     4]\n", {"a": [["1", "2"], ["3", "4"]]}),
        ("a:\n  - x: 1\n    y: 2\n  - x: 3\n", {"a": [{"x": "1", "y": "2"}, {"x": "3"}]}),
        ("a:\n  b:\n    c: 1\nd:\n", {"a": {"b": {"c": "1"}}, "d": ""}),
        ("a: !!opencv-matrix\n  rows: 1\n", {"a": {"rows": "1"}}),
        ("\ufeffa: -1.5e3\n---\nb: 2\n", {"a": "-1.5e3"}),
        ("a: { b:1, c:2 }\n", {"a": "{ b:1, c:2 }"}),
    ],
)
def test_yaml(text, expected):
    assert parse_storage(text.encode(), "file") == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\n", "line 1: 'a' is not 'name: value'"),
        ("a: 1\na: 2\n", "line 2: 'a: 2' gives a a second time"),
        ("a: 1\n   b: 2\n", "line 2: 'b: 2' is indented"),
        ("- 1\n- 2\n", "values without names"),
        ("a: [1, 2\n", "ends inside brackets"),
        ("a: 1]\n", "closed that is not open"),
        ("a: [1] 2\n", "after the brackets"),
        ("a:\n\tb: 1\n", "line 2: a tab"),
        ("# nothing\n", "states nothing"),
        ("<a>", "damaged XML"),
        ("<a></a>", "states nothing"),
        ("<s><a>1</a><a>2</a></s>", "gives a a second time"),
        ('<!DOCTYPE s [<!ENTITY a "aa">]><s><b>&a;</b></s>', "declares a document type"),
        ("".join(f"{' ' * i}k:\n" for i in range(99)), "nested too deeply"),
        (f"a: {'[' * 99}{']' * 99}", "nested too deeply"),
        (f"{'<a>' * 99}{'</a>' * 99}", "nested too deeply"),
    ],
)
def test_what_is_refused(text, words):
    with pytest.raises(InputError, match=r"^file") as error:
        parse_storage(text.encode(), "file")
    assert words in str(error.value)


def test_binary_data_is_refused():
    with pytest.raises(InputError, match="not a text file"):
        parse_storage(b"\x89PNG\xff\xfe", "file")


@given(st.text("ab:-[]{}\"' \n#<>/!1,_", max_size=60))
def test_any_text_is_read_or_refused(text):
    with suppress(InputError):
        assert isinstance(parse_storage(text.encode(), "file"), dict)
