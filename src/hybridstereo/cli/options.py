"""Options and parameter types that several commands share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from ..limits import (
    CAMERA_NUMBER,
    DISPARITY,
    ITERATIONS,
    LABELS,
    MAX_PIXELS,
    PIXELS,
    STEP,
    THREADS,
    Limits,
    allow_pixels,
)
from .progress import Progress


class WholeRange(click.IntRange):
    """A range of whole numbers; click's calls itself "integer range" in help and messages."""

    name = "whole number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """What the help shows."""
        return "N"


class FiniteRange(click.FloatRange):
    """A range of numbers that NaN does not lie in; click's compares in vain."""

    name = "number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """What the help shows."""
        return "X"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Refuse what is not finite before the ends are compared."""
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a valid {self.name}.", param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return float(super().convert(number, param, ctx))


def number_type(limits: Limits) -> WholeRange | FiniteRange:
    """The type of an option that takes a number within limits; all numeric options have it."""
    if limits.whole:
        return WholeRange(int(limits.least), int(limits.most))
    return FiniteRange(limits.least, limits.most, limits.above, limits.below)


class OutputOption(click.Option):
    """Names the one file or folder that something is written to.

    Click would take the last one in silence, and the first would never be written.
    """

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser keep all values that are given."""
        names = [*self.opts, *self.secondary_opts]
        parser.add_option(self, names, self.name, action="append", nargs=self.nargs)

    def consume_value(self, ctx: click.Context, opts: Any) -> Any:
        """Refuse more than one."""
        given = opts.get(self.name) or []
        if len(given) > 1:
            raise click.UsageError(f"{self.opts[-1]} is given {len(given)} times, but takes one.")
        return super().consume_value(ctx, {**opts, self.name: given[0]} if given else opts)


class DeviceName(click.ParamType):
    """``auto``, ``cpu``, ``cuda`` or a certain GPU, ``cuda:1``."""

    name = "device"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """What the help shows."""
        return "[auto|cpu|cuda|cuda:N]"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names without the number of a GPU."""
        return fitting_names(("auto", "cpu", "cuda"), incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse names that no device has."""
        if ctx is not None and ctx.resilient_parsing:  # a shell completes: nothing is run
            return str(value)
        from ..kernels import is_device

        if not is_device(value):
            self.fail(f"'{value}' is not one of auto, cpu, cuda, cuda:N", param, ctx)
        return str(value)


def fitting_names(names: Iterable[str], begun: str) -> list[CompletionItem]:
    """What a shell offers for a word that is begun, of some names."""
    return [CompletionItem(name) for name in names if name.startswith(begun)]


_LONGEST_NUMBER = 20  # characters


class LabelCount(click.ParamType):
    """A number of labels, or ``auto``."""

    name = "labels"
    _number = number_type(LABELS)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        """Refuse numbers that are out of bounds."""
        if value == "auto":
            return "auto"
        try:
            return int(self._number.convert(value, param, ctx))
        except click.BadParameter:
            return self.fail(f"'{value}' is neither 'auto' nor {LABELS}", param, ctx)


class Span(click.ParamType):
    """Two numbers with a colon between them, the smaller one first: ``0:64``."""

    name = "span"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """Refuse what is no finite, ascending pair of disparities."""
        number = number_type(DISPARITY)
        low, colon, high = value.partition(":")
        if not colon:
            self.fail(f"'{value}' is not two numbers such as 0:64", param, ctx)
        ends = number.convert(low, param, ctx), number.convert(high, param, ctx)
        if ends[0] >= ends[1]:
            self.fail(f"'{value}' does not ascend", param, ctx)
        return ends


class ByteCount(click.ParamType):
    """An amount of memory: a number of bytes, or with a unit, ``500M`` or ``4GiB``."""

    name = "bytes"
    _pattern = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmgt]?)(?:i?b)?", re.IGNORECASE)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Units are powers of 1024, as free(1) counts."""
        if isinstance(value, int):
            return value
        match = self._pattern.fullmatch(value.strip())
        if match is None or len(value) > _LONGEST_NUMBER:
            self.fail(f"'{value}' is not an amount of memory such as 4G or 500M", param, ctx)
        power = " kmgt".index(match[2].lower() or " ")
        return int(float(match[1]) * 1024**power)


device_option = click.option(
    "--device",
    type=DeviceName(),
    default="auto",
    help="Where to compute; auto takes a GPU if there is one.",
)
threads_option = click.option(
    "--threads", type=number_type(THREADS), metavar="N", help="CPU threads.  [default: all cores]"
)


def refuse_lone_colors(color: str | None) -> None:
    """Of what a colour picture would show, if none is written; the user's settings may say it."""
    context = click.get_current_context()
    for name in ("color_range", "scale_bar"):
        if color is None and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{flag} belongs to a colour picture: give --color, too.")


EXTRA_NAMES = {"allow_extra_args": True}
"""Settings of a command that explains names beyond LEFT and RIGHT with `refuse_extra_names`."""


def refuse_extra_names() -> None:
    """Of a pattern without quotes, the shell gives a command all files: say what helps."""
    extra = click.get_current_context().args
    if extra:
        raise click.UsageError(
            f"LEFT and RIGHT are two names, but {len(extra) + 2} are given. A pattern needs "
            "quotes, or the shell gives all of its files: 'left/*.png'."
        )


def announce_device(device: str, tell: Callable[[str], None] | None = None) -> None:
    """Say on standard error what a user may wonder about before the work begins.

    That is what ``auto`` takes, where somebody could expect a GPU, and why the device's kernels are
    compiled again although an earlier run did so.  When kernels are compiled, that is said, too.
    """
    from ..kernelcache import explain_no_cache, tell_compiling
    from ..kernels import explain_choice, select

    tell = tell or Progress().message
    if device == "auto" and (note := explain_choice(select(device))):
        tell(note)
    if note := explain_no_cache():
        tell(f"hstereo: {note}.")
    telling = tell_compiling(lambda text: tell(f"hstereo: {text}"))
    click.get_current_context().with_resource(telling)


def compile_beside(device: str, threads: int | None) -> None:
    """Until the command ends, let other processes compile kernels that it comes to need.

    The earlier a command calls this, the sooner its first run is done.
    """
    from ..warmup import compiling_beside

    click.get_current_context().with_resource(compiling_beside(device, threads))


min_disparity_option = click.option(
    "--min-disparity",
    type=number_type(DISPARITY),
    metavar="M",
    help="Smallest disparity in pixels, may be negative.  [default: found with auto, else the "
    "model's]",
)
step_option = click.option(
    "--step",
    type=number_type(STEP),
    metavar="S",
    help="Pixels between labels, may be a fraction.  [default: the model's, usually 1]",
)
method_option = click.option(
    "--method",
    type=click.Choice(["crf", "argmax"]),
    help="CRF, or the best score of the network alone.  [default: the model's, usually crf]",
)
precision_option = click.option(
    "--precision",
    type=click.Choice(["single", "half"]),
    default="single",
    help="Costs in the CRF: floating point of 32 bits, or fixed point of 16, which needs half the "
    "memory and less time and gives nearly the same map; on the CPU.",
)
iterations_option = click.option(
    "--iterations",
    type=number_type(ITERATIONS),
    metavar="N",
    help="Iterations of the CRF solver.  [default: the model's, usually 5]",
)


def _allow_pixels(context: click.Context, option: click.Parameter, most: int) -> None:
    # Of the group, which is closed even where the options after this one cannot be parsed.
    context.find_root().with_resource(allow_pixels(most))


max_pixels_option = click.option(
    "--max-pixels",
    type=number_type(PIXELS),
    default=MAX_PIXELS,
    metavar="N",
    # For all readers, until the command ends; the command itself need not pass it on.
    expose_value=False,
    callback=_allow_pixels,
    help="Refuse an image whose header states more, before it is decoded.",
)
"""Belongs to every command that reads images, maps or masks."""
refine_option = click.option(
    "--refine/--no-refine",
    default=None,
    help="Refine labels to sub-pixel disparities.  [default: refine with crf]",
)


SCALES = {"1": 1, "1/2": 2, "1/4": 4}
"""What `--scale` may say, and the `scale` of `Stereo.match` that it stands for."""

scale_option = click.option(
    "--scale",
    type=click.Choice(list(SCALES)),
    default="1",
    help="Match smaller views and enlarge the map: much faster, or for very large images.",
)
max_memory_option = click.option(
    "--max-memory",
    type=ByteCount(),
    metavar="SIZE",
    help="Memory that hstereo may use, such as 4G; what needs more is computed in tiles.  "
    "[default: 80 % of what is free]",
)


class CommaSeparated(click.ParamType):
    """Several values of one type, such as ``128,256``."""

    def __init__(self, item: click.ParamType) -> None:
        self.item = item
        self.name = f"{item.name} list"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """Split at the commas and convert each part."""
        if isinstance(value, tuple):  # a default
            return value
        return tuple(self.item.convert(part.strip(), param, ctx) for part in value.split(","))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """What the last value may be, behind those that are there."""
        done, comma, begun = incomplete.rpartition(",")
        items = self.item.shell_complete(ctx, param, begun)
        return [CompletionItem(f"{done}{comma}{x.value}", x.type) for x in items]


class _CameraNumbers(CommaSeparated):
    """Two numbers, such as ``2,3``."""

    def __init__(self) -> None:
        super().__init__(number_type(CAMERA_NUMBER))

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """Refuse more and fewer than two."""
        numbers = super().convert(value, param, ctx)
        if len(numbers) != 2 or numbers[0] == numbers[1]:
            self.fail(f"'{value}' is not two different numbers, such as 2,3", param, ctx)
        return numbers


camera_numbers_option = click.option(
    "--cameras",
    type=_CameraNumbers(),
    metavar="L,R",
    help="Which cameras of the file took LEFT and RIGHT, for example 0,1 for KITTI's grey ones.  "
    "[default: 2,3 of KITTI's files, 1,2 of others]",
)
