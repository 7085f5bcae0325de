"""The documents: what the program writes is up to date, links and paths lead somewhere."""

from __future__ import annotations

import ast
import re
import shlex
import unicodedata
from collections import Counter
from pathlib import Path

import click
import pytest
import write_cli_docs

from hybridstereo.cli import cli

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "data/*.md")
    for path in ROOT.glob(pattern)
    if not path.is_symlink()
)
ROOMS = ("data", "docs", "kernels", "src", "tests", "tools", ".ci")

each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def text_of(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def prose(text: str) -> str:
    """The text without fenced blocks, and without lists of files that are no more."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return re.sub(r"<!-- old tree -->.*?<!-- /old tree -->", "", text, flags=re.S)


def anchors(document: Path) -> set[str]:
    """What GitHub calls the headings of a document."""
    found: Counter[str] = Counter()
    names: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *$", prose(text_of(document)), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        kept = (x for x in plain if x in " -_" or unicodedata.category(x)[0] in "LNM")
        anchor = "".join(kept).replace(" ", "-")
        names.add(f"{anchor}-{found[anchor]}" if found[anchor] else anchor)
        found[anchor] += 1
    return names


def command_lines(text: str) -> list[list[str]]:
    """The arguments of every call of hstereo in the shell blocks of a document."""
    calls: list[list[str]] = []
    for block in blocks(text, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
            lexer.whitespace_split = True
            words: list[str] = []
            for word in [*lexer, ";"]:
                if set(word) <= set("|&;<>"):
                    if words and words[0].rpartition("/")[2] == write_cli_docs.PROGRAM:
                        calls.append(words[1:])
                    words = []
                else:
                    words.append(word)
    return calls


def test_cli_page_is_what_the_tool_writes(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert text_of(ROOT / "docs/cli.md") == write_cli_docs.document(), (
        "docs/cli.md is out of date: run python tools/write_cli_docs.py"
    )


@pytest.mark.parametrize("name", list(cli.commands))
def test_every_command_and_option_is_explained(name):
    command = cli.commands[name]
    assert command.help
    assert command.short_help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.name}"
    section = write_cli_docs.section(name, command)
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or f"`{parameter.opts[-1]}`" in section


def test_readme_is_short_and_opens_with_the_two_commands():
    text = text_of(ROOT / "README.md")
    assert len(text.splitlines()) <= 130
    first, second = blocks(text, "sh")[:2]
    assert "hstereo infer data/sample/left.png data/sample/right.png --disparities 64" in first
    assert second.rstrip().endswith("pytest")


@each_document
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text_of(document))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        assert path.exists(), target
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), target


@each_document
def test_paths_exist(document):
    """Files and folders named in code spans, unless they hold a placeholder."""
    if document.name == "CHANGELOG.md":  # tells of old versions, too
        return
    for path in re.findall(r"`([\w.-]+/[\w./-]*)`", prose(text_of(document))):
        if path.startswith(tuple(f"{room}/" for room in ROOMS)):
            assert (ROOT / path).exists(), path


@each_document
def test_command_lines_can_be_parsed(document):
    for arguments in command_lines(text_of(document)):
        name, *rest = arguments
        if name in ("--help", "--version"):
            continue
        assert name in cli.commands, arguments
        try:
            cli.commands[name].make_context(f"hstereo {name}", rest)
        except click.exceptions.Exit:  # --help
            pass
        except click.UsageError as error:
            pytest.fail(f"hstereo {shlex.join(arguments)}: {error.message}")


@each_document
def test_python_blocks_are_python(document):
    for block in blocks(text_of(document), "python"):
        ast.parse(block)


@each_document
def test_no_path_of_one_machine(document):
    assert not re.search(r"(/home|/Users|/work|/root|/tmp)/\w", text_of(document))
