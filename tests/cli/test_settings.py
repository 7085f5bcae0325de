"""Defaults from a file and from the environment: which one wins, and what is refused."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from hybridstereo.cli import _run, cli, settings
from hybridstereo.errors import InputError


def loaded(tmp_path, text="", environment=None):
    path = tmp_path / "config.toml"
    path.write_text(text)
    return settings.load_settings(cli.commands, str(path), environment or {})


def value(found, command, parameter):
    setting = found.of[command].get(parameter)
    return None if setting is None else setting.value


def test_the_top_of_the_file_is_for_all_commands_and_a_table_for_one(tmp_path):
    found = loaded(tmp_path, 'threads = 2\ndevice = "cpu"\n[infer]\nthreads = 1\nmax-memory="1G"\n')
    assert value(found, "infer", "threads") == "1"
    assert value(found, "stream", "threads") == "2"
    assert value(found, "check", "device") == "cpu"
    assert value(found, "infer", "max_memory") == "1G"
    assert value(found, "synth", "device") is None  # has no such option
    assert found.of["infer"]["threads"].origin.endswith("config.toml: infer.threads")


def test_the_environment_beats_the_file_and_a_command_beats_all(tmp_path):
    environment = {"HSTEREO_THREADS": "3", "HSTEREO_INFER_THREADS": "4", "PATH": "/bin"}
    found = loaded(tmp_path, "threads = 2\n[infer]\nthreads = 1\n", environment)
    assert value(found, "infer", "threads") == "4"
    assert value(found, "check", "threads") == "3"
    assert found.of["check"]["threads"].origin == "HSTEREO_THREADS"
    assert found.unknown == []


def test_options_that_may_be_repeated(tmp_path):
    text = '[stream]\noutput = ["a.mp4", "maps/"]\n'
    assert value(loaded(tmp_path, text), "stream", "outputs") == ["a.mp4", "maps/"]
    found = loaded(tmp_path, "", {"HSTEREO_STREAM_OUTPUT": "a.mp4 'my maps/'"})
    assert value(found, "stream", "outputs") == ["a.mp4", "my maps/"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("thread = 2", "no command has an option 'thread'. Did you mean 'threads'?"),
        ("[infer]\nmodle = 'x'", "'hstereo infer' has no option 'modle'. Did you mean 'model'?"),
        ("[infr]\nmodel = 'x'", "there is no command 'infr'. Did you mean 'infer'?"),
        ("threads = ", "is not a TOML file: "),
        ("[infer]\nmodel = 2020-01-01", "infer.model is a date"),
    ],
)
def test_files_that_say_nothing_sensible(tmp_path, text, message):
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, text)
    assert message in str(caught.value)
    assert not str(caught.value).endswith("?.")


def test_a_file_that_is_named_must_be_there(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="does not exist"):
        settings.load_settings(cli.commands, str(tmp_path / "none.toml"), {})
    monkeypatch.setattr(settings, "default_file", lambda: tmp_path / "none.toml")
    found = settings.load_settings(cli.commands, None, {})
    assert not found.is_there
    assert settings.load_settings(cli.commands, None, {"HSTEREO_CONFIG": ""}).file is None


def test_variables_that_set_nothing_are_known(tmp_path):
    environment = {"HSTEREO_FOO": "1", "HSTEREO_CACHE_DIR": "x", "HSTEREO_CONFIG": ""}
    assert loaded(tmp_path, "", environment).unknown == ["HSTEREO_FOO"]


def test_a_wrong_value_says_where_it_comes_from(monkeypatch, capsys):
    monkeypatch.setenv("HSTEREO_INFER_ITERATIONS", "many")
    assert _run(["infer", "left.png", "right.png"]) == 1
    message = capsys.readouterr().err
    assert message.startswith("hstereo: HSTEREO_INFER_ITERATIONS is 'many', but --iterations of")


def test_the_command_line_beats_everything(monkeypatch, tmp_path):
    """Seen by the error of the value that counts."""
    monkeypatch.setenv("HSTEREO_INFER_VOLUME", "environment.npy")
    (tmp_path / "config.toml").write_text("[infer]\nvolume = 'file.npy'\nthreads = 1\n")
    left = ["infer", "left.png"]

    def names(*arguments):
        result = CliRunner().invoke(cli, ["--config", str(tmp_path / "config.toml"), *arguments])
        return result.output

    assert "left.png does not exist" in names(*left)  # a volume was set: RIGHT is not missed
    monkeypatch.delenv("HSTEREO_INFER_VOLUME")
    assert "left.png does not exist" in names(*left)
    (tmp_path / "config.toml").write_text("")
    assert "Missing argument 'RIGHT'" in names(*left)


def test_config_shows_what_is_in_force_and_where_it_comes_from(monkeypatch, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("[infer]\nmodel = 'census'\n")
    monkeypatch.setenv("HSTEREO_THREADS", "2")
    monkeypatch.setenv("HSTEREO_TYPO", "2")
    result = CliRunner().invoke(cli, ["--config", str(path), "config", "infer"])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == f"file: {path}"
    assert f"infer --model    census  [{path}: infer.model]" in lines
    assert "infer --threads  2  [HSTEREO_THREADS]" in lines
    assert "HSTEREO_TYPO is no option of any command" in result.stderr
    everything = CliRunner().invoke(cli, ["config", "infer", "--all", "--json"])
    options = {x["option"]: x for x in json.loads(everything.stdout)["options"]}
    assert options["--threads"]["origin"] == "HSTEREO_THREADS"
    assert options["--scale"] == {
        "command": "infer",
        "option": "--scale",
        "value": "1",
        "origin": "default",
        "variable": "HSTEREO_INFER_SCALE",
    }


def test_config_of_nothing_says_what_to_do():
    result = CliRunner().invoke(cli, ["config"])
    assert result.stdout.startswith("file: none\nnothing is set; for example, put 'threads = 2'")
    wrong = CliRunner().invoke(cli, ["config", "infr"])
    assert wrong.exit_code == 2
    assert "Did you mean 'infer'?" in wrong.output


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("infr", "Did you mean 'infer'?"),
        ("zzz", "Known are bench, "),
        ("help", "'hstereo --help' lists them"),
    ],
)
def test_a_mistyped_command_is_answered(word, answer):
    result = CliRunner().invoke(cli, [word, "left.png"])
    assert result.exit_code == 2
    assert f"There is no command '{word}'. {answer}" in result.output
