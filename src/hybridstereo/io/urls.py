"""Names of files that may be URLs: what is one, and how names are put together.

``file:///data/a.png`` is the file ``/data/a.png``.  Anything else with ``://`` is on storage that
`hybridstereo.io.url_files` reaches.
"""

from __future__ import annotations

import os
import posixpath
import re
from urllib.parse import urlsplit

# s3://bucket/key, simplecache::s3://bucket/key; not C:\images, C:/images or a::b.png.
_KIND = r"[A-Za-z][A-Za-z0-9+.\-]*"
_URL = re.compile(f"(?:{_KIND}::)*{_KIND}://")
_LOCAL = re.compile(r"(?:file|local)://")


def is_url(name: str | os.PathLike[str]) -> bool:
    """Whether a name is that of a file on storage elsewhere.

    Examples
    --------
    >>> is_url("s3://bucket/left.png"), is_url("file:///data/left.png"), is_url("data/left.png")
    (True, False, False)
    """
    text = os.fspath(name)
    return _URL.match(text) is not None and _LOCAL.match(text) is None


def local_name(name: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The path that a ``file://`` URL stands for; any other name as it is."""
    text = os.fspath(name)
    stated = _LOCAL.match(text)
    return name if stated is None else text[stated.end() :]


def joined(base: str | os.PathLike[str], name: str) -> str:
    """A name relative to a folder, either of which may be a URL.

    Examples
    --------
    >>> joined("s3://bucket/lists", "../left/1.png"), joined("lists", "s3://bucket/1.png")
    ('s3://bucket/left/1.png', 's3://bucket/1.png')
    >>> joined("/data", "file:///other/1.png"), joined("/data", "1.png")
    ('/other/1.png', '/data/1.png')
    """
    if is_url(name):
        return name
    whole = os.path.join(local_name(base), local_name(name))
    if not is_url(whole) or not {".", ".."} & set(name.split("/")):
        return whole
    # Stores take a key as it is written; only we know what the dots mean.
    scheme, _, place = whole.partition("://")
    return f"{scheme}://{posixpath.normpath(place)}"


def place_of(url: str) -> str:
    """What a URL says beside its kind, as a relative path: for the names of results.

    Examples
    --------
    >>> place_of("s3://bucket/seq/1.png"), place_of("https://host/1.png?key=5")
    ('bucket/seq/1.png', 'host/1.png')
    """
    if url.startswith(("http://", "https://")):
        parts = urlsplit(url)
        url = f"{parts.netloc}{parts.path}"
    path = re.sub("::|://", "/", url.partition("://")[2] or url)
    return posixpath.normpath("/" + path).lstrip("/")
