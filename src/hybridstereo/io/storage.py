"""Named values of a YAML or XML file, as calibration programs write them.

Only what OpenCV's FileStorage and ROS's camera_info write is understood: mappings, sequences and
scalars; no anchors, no entities, no text over several lines.  Such files come from anywhere, so
everything is bounded, and neither OpenCV's parser nor a general one sees them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Union
from xml.etree.ElementTree import ParseError, XMLParser

from hybridstereo.errors import InputError, shortened

Node = Union[str, list["Node"], dict[str, "Node"]]  # noqa: UP007  (a string cannot be or-ed)
"""A scalar as it is written, a sequence, or a mapping."""

# A calibration is some kilobytes; with all points of its pictures it may be some hundred.
MOST_BYTES = 2_000_000
"""The size of a file that is worth reading."""
_DEEPEST = 12
_HINT = "Export the calibration again as OpenCV or ROS writes it"
# All expressions take time in proportion to the text, whatever it is.
_PAIR = re.compile(r"""(?P<key>"[^"]*"|'[^']*'|[^\s"'\[\]{},#&*!|>%@`-][^:]*):(?:\s+|$)""")
_QUOTED = re.compile(r""""(?:\\.|[^"\\])*(?:"|$)|'[^']*(?:'|$)""")
_TAG = re.compile(r"!\S*\s*")
_QUOTES = "\"'"


def parse_storage(data: bytes, name: str) -> dict[str, Node]:
    """The values of a YAML or XML file by their names.

    Parameters
    ----------
    data
        The contents of the file.
    name
        What to call the file in an error message.

    Raises
    ------
    InputError
        If the file is no text, or is written in another way.

    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not a text file", _HINT) from error
    if text.lstrip().startswith("<"):
        return _parse_xml(text, name)
    return _YamlText(name, _yaml_lines(text, name)).document()


# --- YAML -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Line:
    """A line of YAML without its comment, with those below it as far as brackets are open."""

    number: int
    indent: int
    text: str


def _yaml_lines(text: str, name: str) -> list[_Line]:
    """The lines of the first document that say something."""
    lines: list[_Line] = []
    parts: list[str] = []  # of a line whose brackets are still open
    begin = open_brackets = 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _without_comment(raw)
        if not parts and line.startswith(("---", "...")):
            if lines:
                break
            continue
        if not line or (line.startswith("%") and not lines and not parts):
            continue
        if "\t" in line[: len(line) - len(line.lstrip())]:
            raise InputError(f"{name}, line {number}: a tab indents the line", "Use spaces")
        begin = begin if parts else number
        parts.append(line if not parts else line.strip())
        open_brackets += _opened(line)
        if open_brackets < 0:
            raise InputError(f"{name}, line {number}: a bracket is closed that is not open", _HINT)
        if open_brackets == 0:
            whole = " ".join(parts)
            lines.append(_Line(begin, len(whole) - len(whole.lstrip()), whole.strip()))
            parts = []
    if parts:
        raise InputError(f"{name} ends inside brackets", _HINT)
    return lines


def _unquoted(line: str) -> str:
    """The line with everything in quotes replaced by as many letters."""
    return _QUOTED.sub(lambda found: "q" * len(found[0]), line)


def _without_comment(line: str) -> str:
    comment = re.search(r"(?:^|\s)#", _unquoted(line))
    return (line if comment is None else line[: comment.start()]).rstrip()


def _opened(line: str) -> int:
    """How many more brackets a line opens than it closes."""
    plain = _unquoted(line)
    return sum(map(plain.count, "[{")) - sum(map(plain.count, "]}"))


@dataclass
class _YamlText:
    """The lines of a file, and how many of them were read."""

    name: str
    lines: list[_Line]
    position: int = 0

    def document(self) -> dict[str, Node]:
        if not self.lines:
            raise InputError(f"{self.name} states nothing", _HINT)
        found = self._block(self.lines[0].indent, 0)
        if self.position < len(self.lines):
            raise self._error("is indented unlike the lines above it")
        if not isinstance(found, dict):
            raise InputError(f"{self.name} has values without names", _HINT)
        return found

    def _block(self, indent: int, depth: int) -> Node:
        """The mapping or sequence of the lines with this indentation."""
        if depth > _DEEPEST:
            raise self._error("is nested too deeply")
        is_sequence = self._is_item()
        mapping: dict[str, Node] = {}
        sequence: list[Node] = []
        while self.position < len(self.lines):
            line = self.lines[self.position]
            if line.indent != indent or self._is_item() != is_sequence:
                break
            if is_sequence:
                sequence.append(self._item(line, depth))
                continue
            pair = _PAIR.match(line.text)
            if pair is None:
                raise self._error("is not 'name: value'")
            key = pair["key"].strip().strip(_QUOTES)
            if key in mapping:
                raise self._error(f"gives {shortened(key)} a second time")
            self.position += 1
            mapping[key] = self._value(line, line.text[pair.end() :], depth)
        return sequence if is_sequence else mapping

    def _is_item(self) -> bool:
        return re.match(r"-(\s|$)", self.lines[self.position].text) is not None

    def _item(self, line: _Line, depth: int) -> Node:
        """What follows the dash of a sequence: a value, or a mapping that begins on this line."""
        rest = line.text[1:].lstrip()
        if _PAIR.match(rest) and not rest.startswith(tuple(_QUOTES)):
            indent = line.indent + len(line.text) - len(rest)
            self.lines[self.position] = _Line(line.number, indent, rest)
            return self._block(indent, depth + 1)
        self.position += 1
        return self._value(line, rest, depth)

    def _value(self, line: _Line, rest: str, depth: int) -> Node:
        """A scalar or sequence on the line itself, else the block below it."""
        rest = _TAG.sub("", rest, count=1) if rest.startswith("!") else rest
        if rest:
            return _flow(rest, f"{self.name}, line {line.number}")
        if self.position == len(self.lines):
            return ""
        below = self.lines[self.position]
        # The items of a sequence may stand right below the name.
        if below.indent > line.indent or (
            below.indent == line.indent and self._is_item() and not line.text.startswith("-")
        ):
            return self._block(below.indent, depth + 1)
        return ""

    def _error(self, problem: str) -> InputError:
        line = self.lines[self.position]
        return InputError(
            f"{self.name}, line {line.number}: '{shortened(line.text)}' {problem}", _HINT
        )


def _flow(text: str, place: str) -> Node:
    """A value that is written on one line: ``[1, 2]``, or a scalar; ``{}`` stays as it is."""
    if not text.startswith("["):
        return _scalar(text)
    outermost: list[Node] = []
    stack = [outermost]
    for word in re.findall(r"""[\[\],]|"[^"]*"|'[^']*'|[^\[\],"']+""", text):
        if word == "[":
            if len(stack) > _DEEPEST:
                raise InputError(f"{place}: brackets are nested too deeply", _HINT)
            inner: list[Node] = []
            stack[-1].append(inner)
            stack.append(inner)
        elif word == "]":
            stack.pop()
            if not stack:
                raise InputError(f"{place}: a bracket is closed that is not open", _HINT)
        elif word != "," and word.strip():
            stack[-1].append(_scalar(word))
    if len(outermost) != 1 or len(stack) != 1:
        raise InputError(f"{place}: there is something after the brackets", _HINT)
    return outermost[0]


def _scalar(text: str) -> str:
    text = text.strip()
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in _QUOTES
    return text[1:-1] if quoted else text


# --- XML ------------------------------------------------------------------------------------------


def _parse_xml(text: str, name: str) -> dict[str, Node]:
    tree = _XmlTree(name)
    parser = XMLParser(target=tree)
    try:
        parser.feed(text)
        parser.close()
    except ParseError as error:
        raise InputError(f"{name} is damaged XML: {shortened(str(error))}", _HINT) from error
    found = tree.root()
    if not isinstance(found, dict):
        raise InputError(f"{name} states nothing", _HINT)
    return found


class _XmlTree:
    """Elements as nodes: text is a scalar or, of several words, a sequence; ``<_>`` is an item."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[tuple[str, dict[str, Node], list[Node], list[str]]] = [("", {}, [], [])]

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        """Entities could expand without end, and no calibration declares any."""
        raise InputError(f"{self._name} declares a document type", _HINT)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self._open) > _DEEPEST:
            raise InputError(f"{self._name} is nested too deeply", _HINT)
        self._open.append((tag, {}, [], []))

    def data(self, text: str) -> None:
        self._open[-1][3].append(text)

    def end(self, tag: str) -> None:
        _, mapping, items, texts = self._open.pop()
        words: list[Node] = list("".join(texts).split())
        node: Node = mapping or [*words, *items]
        if not mapping and not items and len(words) <= 1:
            node = _scalar(str(words[0])) if words else ""
        _, parent, siblings, _ = self._open[-1]
        if tag == "_":
            siblings.append(node)
        elif tag in parent:
            raise InputError(f"{self._name} gives {shortened(tag)} a second time", _HINT)
        else:
            parent[tag] = node

    def root(self) -> Node:
        """The values below the only element of all, ``<opencv_storage>``."""
        return next(iter(self._open[0][1].values()), "")
