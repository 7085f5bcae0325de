"""Running `hstereo` in this process."""

from __future__ import annotations

import pytest

from hybridstereo.cli import main


def run(capsys, *arguments) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `hstereo ARGUMENTS` in this process."""
    with pytest.raises(SystemExit) as done:
        main([str(x) for x in arguments])
    captured = capsys.readouterr()
    return done.value.code or 0, captured.out, captured.err


def assert_one_sentence(code: int, out: str, err: str, *words: str) -> None:
    assert code == 1
    assert out == ""
    assert err.startswith("hstereo: ")
    assert len(err.strip().splitlines()) == 1
    assert err.strip().endswith(".")
    assert "Traceback" not in err
    for word in words:
        assert word in err
