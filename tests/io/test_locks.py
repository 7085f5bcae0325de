from __future__ import annotations

import os

from hybridstereo.io.locks import try_lock


def test_a_lock_keeps_others_out_until_its_file_is_closed(tmp_path):
    path = tmp_path / "lock"
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    try:
        assert try_lock(first)
        assert not try_lock(second)
        os.close(first)
        assert try_lock(second)
    finally:
        os.close(second)
