"""Options of `hstereo infer` about the two views: whose map, how sure it is, what confirms it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .options import OutputOption

if TYPE_CHECKING:
    from ..result import StereoResult

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--view",
        type=click.Choice(["left", "right", "both"]),
        default="left",
        help="Whose map: right pixel x matches left pixel x + d. both also writes the right one, "
        "with _right in its name.",
    ),
    click.option(
        "--confidence",
        cls=OutputOption,
        metavar="FILE",
        help="Also write how likely each pixel is right (off by at most 2 px), from 0 to 1: .pfm, "
        ".npy or .tif (float), .png (16 bit, x65535).",
    ),
    click.option(
        "--valid",
        cls=OutputOption,
        metavar="FILE.png",
        help="Also write which pixels the other view confirms: 255 good, 128 occluded (it does "
        "not see them), 0 invalid (it contradicts).",
    ),
    click.option(
        "--lr-check",
        is_flag=True,
        help="Left-right check: pixels that the other view does not confirm become invalid in "
        "the map.",
    ),
    click.option(
        "--fill",
        is_flag=True,
        help="Fill the pixels that the other view does not confirm from the background.",
    ),
)


@dataclass(frozen=True)
class ViewOptions:
    """What these options say; all but ``--view`` need the maps of both views."""

    view: str
    confidence: str | None
    valid: str | None
    lr_check: bool
    fill: bool

    @property
    def given(self) -> list[str]:
        """The flags of those that were used."""
        used = [field.name for field in fields(self) if getattr(self, field.name)]
        if self.view == "left":
            used.remove("view")
        return ["--" + name.replace("_", "-") for name in used]

    @property
    def outputs(self) -> list[str]:
        """All files that `write_views` will write."""
        named = [path for path in (self.confidence, self.valid) if path is not None]
        return [*named, *(right_name(path) for path in named if self.view == "both")]

    @property
    def matching(self) -> dict[str, Any]:
        """The arguments of `Stereo.match`."""
        return {
            "view": self.view,
            "confidence": self.confidence is not None,
            "validity": self.valid is not None,
            "lr_check": self.lr_check,
            "fill": self.fill,
        }

    def check(self, maps: Sequence[str], volume: str | None, ply: str | None) -> None:
        """Refuse what can be refused before the work."""
        from ..io.confidence import check_confidence_output, check_validity_output

        self._check_volume(volume)
        if self.view == "both" and "-" in maps:
            raise click.UsageError("Standard output takes one map; write --view both to a file.")
        self._check_points(ply)
        if self.confidence is not None:
            check_confidence_output(self.confidence)
        if self.valid is not None:
            check_validity_output(self.valid)

    def check_many(self, volume: str | None, ply: str | None) -> None:
        """The same for many pairs, whose files are checked elsewhere."""
        self._check_volume(volume)
        self._check_points(ply)

    def _check_volume(self, volume: str | None) -> None:
        if volume is not None and self.given:
            raise click.UsageError(
                f"{self.given[0]} needs both views; --volume has the costs of the left one."
            )

    def _check_points(self, ply: str | None) -> None:
        if self.view == "right" and ply is not None:
            raise click.UsageError("--ply shows what the left camera sees: leave out --view right.")


def asked_views(params: dict[str, Any]) -> ViewOptions:
    """What the parameters of a command say about the views."""
    return ViewOptions(**{field.name: params[field.name] for field in fields(ViewOptions)})


def view_options(command: Command) -> Command:
    """Add the options; the command gets them as keyword arguments of `ViewOptions`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def right_name(path: str) -> str:
    """``map.pfm`` -> ``map_right.pfm``."""
    name = Path(path)
    return str(name.with_name(f"{name.stem}_right{name.suffix}"))


def results_of_views(result: StereoResult) -> Iterator[tuple[str, StereoResult]]:
    """A result and, if there is one, that of the right view, with what is added to their keys."""
    yield "", result
    if result.right is not None:
        yield "_right", result.right


def write_views(result: StereoResult, options: ViewOptions) -> dict[str, str]:
    """Write confidence and validity; returns what was written where."""
    from ..io.confidence import write_confidence, write_validity

    outputs = {}
    for suffix, of_view in results_of_views(result):
        for name, path, values, write in (
            ("confidence", options.confidence, of_view.confidence, write_confidence),
            ("valid", options.valid, of_view.validity, write_validity),
        ):
            if path is not None and values is not None:
                written = right_name(path) if suffix else path
                write(written, values)
                outputs[name + suffix] = written
    return outputs


def views_report(result: StereoResult) -> dict[str, object]:
    """What ``--json`` says about the views: whose map, mean confidence, shares of validity."""
    from ..validity import GOOD, INVALID, OCCLUDED

    report: dict[str, object] = {"view": "both" if result.right is not None else result.view}
    for suffix, of_view in results_of_views(result):
        confidence, validity = of_view.confidence, of_view.validity
        report["confidence" + suffix] = None if confidence is None else float(confidence.mean())
        report["validity" + suffix] = (
            None
            if validity is None
            else {
                name: float((validity == value).mean())
                for name, value in (("good", GOOD), ("occluded", OCCLUDED), ("invalid", INVALID))
            }
        )
    return report
