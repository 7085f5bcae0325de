"""Names that may be URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybridstereo.io.urls import is_url, joined, local_name, place_of


@pytest.mark.parametrize(
    "name", ["s3://b/k.png", "http://h/a.png", "memory://a", "simplecache::s3://b/k", "abfs+x://a"]
)
def test_urls(name):
    assert is_url(name)
    assert local_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "a.png",
        "/a/b.png",
        "C:/a.png",
        "C:\\a.png",
        "a:b",
        "a::b.png",
        "1://a",
        "",
        "-",
        "file:///a",
    ],
)
def test_what_is_none(name):
    assert not is_url(name)


def test_files_of_this_machine():
    assert local_name("file:///a/b.png") == "/a/b.png"
    assert local_name("local:///a/b.png") == "/a/b.png"
    assert local_name(Path("a/b.png")) == Path("a/b.png")


@pytest.mark.parametrize(
    ("base", "name", "expected"),
    [
        ("s3://b/lists", "l/1.png", "s3://b/lists/l/1.png"),
        ("s3://b/lists", "../l/./1.png", "s3://b/l/1.png"),
        ("s3://b/lists", "s3://c/1.png", "s3://c/1.png"),
        ("s3://b/lists", "file:///c/1.png", "/c/1.png"),
        ("s3://b//odd", "1.png", "s3://b//odd/1.png"),  # a key as it is written
        ("file:///data", "1.png", "/data/1.png"),
        ("/data", "../1.png", "/data/../1.png"),
        ("", "1.png", "1.png"),
    ],
)
def test_joined(base, name, expected):
    assert joined(base, name) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://b/k/1.png", "b/k/1.png"),
        ("https://h:80/k/1.png?sig=a/b.c#d", "h:80/k/1.png"),
        ("memory:///k/1.png", "k/1.png"),
        ("s3://b/../../1.png", "1.png"),  # never out of the folder of the results
        ("simplecache::s3://b/1.png", "b/1.png"),
    ],
)
def test_place(url, expected):
    assert place_of(url) == expected
