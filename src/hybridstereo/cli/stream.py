"""`hstereo stream` on the command line."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from ..limits import COUNT, RATE
from .exits import EXIT_INCOMPLETE, EXIT_INTERRUPTED
from .options import (
    EXTRA_NAMES,
    SCALES,
    LabelCount,
    Span,
    announce_device,
    compile_beside,
    device_option,
    iterations_option,
    max_memory_option,
    max_pixels_option,
    method_option,
    min_disparity_option,
    number_type,
    refine_option,
    refuse_extra_names,
    scale_option,
    step_option,
    threads_option,
)
from .progress import Progress

if TYPE_CHECKING:
    from ..stereo import Stereo
    from ..streams.run import FrameReport, StreamSummary
    from ..streams.sources import Layout


@click.command(
    short_help="Match a video or live stream frame by frame.", context_settings=EXTRA_NAMES
)
@click.argument("left")
@click.argument("right", required=False)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="FILE|DIR|-",
    help="Where the maps go; may be repeated. A colour video (.mp4, .mov, .mkv, .avi); a folder or "
    "a name with a counter such as maps/%06d.png, for a file per map; '-' for raw frames on "
    "standard output, 16 bit little-endian (FFmpeg's gray16le), disparity x 256, 0 invalid.",
)
@click.option("--show", is_flag=True, help="Show the maps in a window; q or Esc ends.")
@click.option("--side-by-side", is_flag=True, help="LEFT holds both views, left first.")
@click.option("--top-bottom", is_flag=True, help="LEFT holds both views, left on top.")
@click.option(
    "--drop/--queue",
    default=False,
    help="Match the newest frame and drop those that came meanwhile; files play at their own pace.",
)
@click.option(
    "--at-once",
    type=number_type(COUNT),
    metavar="N",
    help="Frames matched at the same time, each on its share of the cores: more maps in a second, "
    "each of them later.  [default: as many as cores for files; 1 for cameras and with --drop, "
    "--show, --warm-start or a tracked range]",
)
@click.option("--frames", type=number_type(COUNT), metavar="N", help="End after N maps.")
@click.option(
    "--fps",
    type=number_type(RATE),
    metavar="F",
    help="Frames per second of a video that is written, and of images that are played with --drop."
    "  [default: the source's, else 25]",
)
@click.option(
    "--color-range",
    type=Span(),
    metavar="A:B",
    help="Disparities of the first and the last colour, for the whole sequence.  "
    "[default: 1st and 99th percentile of the first map]",
)
@click.option(
    "--model",
    metavar="NAME|FILE|DIR",
    default="general-fast",
    help="Built-in model (see 'hstereo info'), .h5 file, or run folder of 'hstereo train'.",
)
@click.option(
    "--disparities",
    type=LabelCount(),
    default="auto",
    metavar="N|auto",
    help="Number of disparity labels, exactly; auto finds the range in the frames.",
)
@min_disparity_option
@step_option
@click.option(
    "--range",
    "range_mode",
    type=click.Choice(["fixed", "tracked"]),
    default="fixed",
    help="Search the range of the first frame in all, or that of each frame.",
)
@click.option(
    "--warm-start/--cold-start",
    default=False,
    help="Start the CRF, and a tracked range, from the frame before: pays with still cameras. "
    "Frames that have to be matched in tiles start cold.",
)
@iterations_option
@method_option
@refine_option
@scale_option
@max_memory_option
@max_pixels_option
@device_option
@threads_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def stream(
    left: str,
    right: str | None,
    outputs: tuple[str, ...],
    show: bool,
    side_by_side: bool,
    top_bottom: bool,
    drop: bool,
    at_once: int | None,
    frames: int | None,
    fps: float | None,
    color_range: tuple[float, float] | None,
    model: str,
    range_mode: Any,
    warm_start: bool,
    scale: str,
    max_memory: int | None,
    device: str,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Match the frames of a rectified stereo video or of two live cameras.

    LEFT and RIGHT are video files, folders or patterns of images ('left_*.png', left_%04d.png),
    numbers of cameras (0, 1), or URLs that OpenCV opens. One stereo file, with --side-by-side or
    --top-bottom, needs no RIGHT.

    Every frame is matched, unless --drop is given. The stream ends with the shorter of the two,
    with Ctrl-C, after --frames, or where a file is damaged; what was done until then is complete.
    Frame rate and latency, the time from reading a frame to its finished map, go to standard error.
    """
    refuse_extra_names()
    if side_by_side and top_bottom:
        raise click.UsageError("--side-by-side and --top-bottom contradict each other.")
    layout: Layout = "side-by-side" if side_by_side else "top-bottom" if top_bottom else "two"
    if (right is None) == (layout == "two"):
        raise click.UsageError(
            "Give LEFT and RIGHT, or one stream and --side-by-side or --top-bottom."
        )
    if not outputs and not show:
        raise click.UsageError("Nothing to do: give -o FILE or --show.")
    if as_json and "-" in outputs:
        raise click.UsageError("--json and '-o -' both want standard output; write a file instead.")
    if at_once not in (None, 1) and (warm_start or range_mode == "tracked"):
        raise click.UsageError(
            "Frames that start from the one before are matched one after the other: leave out "
            "--at-once, or --warm-start and --range tracked."
        )
    compile_beside(device, threads)
    from ..io.atomic import check_distinct
    from ..sequence import StereoSequence
    from ..stereo import Stereo
    from ..streams.run import run_stream
    from ..streams.sinks import Colors, MapWindow, open_sink
    from ..streams.sources import open_pair

    check_distinct(inputs=(left, right), outputs=outputs)
    colors = Colors(color_range)
    source = open_pair(left, right, layout)
    try:
        source.rate = fps or source.rate
        raw = sys.stdout.buffer
        sinks = [open_sink(x, source.rate, colors, raw, source.files) for x in outputs]
        if show:
            sinks.append(MapWindow(colors))
        stereo = Stereo(model, device, threads)
        announce_device(device)
        sequence = StereoSequence(
            stereo,
            range_mode=range_mode,
            warm_start=warm_start,
            scale=SCALES[scale],
            max_memory=max_memory,
            **options,
        )
        if at_once is None and (source.live or drop or show or not sequence.independent):
            at_once = 1  # a map is wanted soon, or needs the one before
        with Progress() as progress:
            # With --drop, --frames counts maps, and nobody knows how many frames these take.
            limits = [x for x in (source.stated, None if drop else frames) if x is not None]
            follower = _Follower(progress, min(limits, default=None), "-" in outputs)
            summary = run_stream(
                source,
                sequence,
                sinks,
                drop=drop,
                at_once=at_once,
                limit=frames,
                on_frame=follower.after,
            )
    finally:
        source.close()
    for note in summary.notes:
        click.echo(f"hstereo: {note}.", err=True)
    click.echo(f"hstereo: {_summary_text(summary)}", err=True)
    if as_json:
        click.echo(json.dumps(_report(summary, stereo, model, outputs, follower.size)))
    elif "-" not in outputs and summary.frames:  # else the frames are there, or no file is
        for path in outputs:
            click.echo(path)
    codes = {"damaged": EXIT_INCOMPLETE, "interrupted": EXIT_INTERRUPTED}
    click.get_current_context().exit(codes.get(summary.ending, 0))


class _Follower:
    """Tells how far a stream is."""

    def __init__(self, progress: Progress, total: int | None, raw: bool) -> None:
        self._progress = progress
        self._total = total
        self._raw = raw
        self.size = (0, 0)

    def after(self, report: FrameReport) -> None:
        """Show frame rate and latency; once, also what is searched and how raw frames look."""
        result = report.result
        height, width = result.disparity.shape
        if report.done == 1:
            self.size = width, height
            labels = result.label_range
            self._progress.message(
                f"hstereo: {width}x{height}, disparities {labels.minimum:g} to {labels.maximum:g}"
            )
            if self._raw:
                self._progress.message(
                    "hstereo: raw frames on standard output, for ffmpeg: -f rawvideo -pixel_format"
                    f" gray16le -video_size {width}x{height} -i -"
                )
        dropped = f", {report.dropped} dropped" if report.dropped else ""
        text = (
            f"frame {report.number + 1}{f'/{self._total}' if self._total else ''}"
            f"  {report.rate:.2f} frames/s  latency {1000 * report.latency:.0f} ms{dropped}"
        )
        if self._total:
            self._progress.advance(min((report.number + 1) / self._total, 1.0), text)
        else:
            self._progress.stage(text)


def _summary_text(summary: StreamSummary) -> str:
    endings = {
        "interrupted": "interrupted; ",
        "closed": "window closed; ",
        "damaged": "ended early; ",
    }
    if summary.frames == 0:
        return f"{endings.get(summary.ending, '')}no frame was matched"
    return (
        f"{endings.get(summary.ending, '')}{summary.frames}"
        f" frame{'' if summary.frames == 1 else 's'} in {summary.seconds:.1f} s, "
        f"{summary.rate:.2f} frames/s, latency {1000 * summary.latency(0.5):.0f} ms"
        f" (95 % below {1000 * summary.latency(0.95):.0f} ms), {summary.dropped} dropped"
    )


def _report(
    summary: StreamSummary,
    stereo: Stereo,
    model: str,
    outputs: tuple[str, ...],
    size: tuple[int, int],
) -> dict[str, object]:
    """The object that ``--json`` prints."""
    return {
        "outputs": list(outputs) if summary.frames else [],
        "model": model,
        "device": stereo.device,
        "width": size[0],
        "height": size[1],
        "frames": summary.frames,
        "dropped": summary.dropped,
        "seconds": summary.seconds,
        "frames_per_second": summary.rate,
        "latency": {
            "median": summary.latency(0.5),
            "p95": summary.latency(0.95),
            "max": summary.latency(1.0),
        },
        "labels": [
            {"count": x.count, "min_disparity": x.minimum, "max_disparity": x.maximum}
            for x in summary.label_ranges
        ],
        "ending": summary.ending,
        "notes": summary.notes,
    }
