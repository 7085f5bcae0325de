"""`hstereo infer` on the command line."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..limits import FACTOR
from .check import tell_findings
from .infer_depth import DepthRequest, depth_options, rig_report
from .infer_pairs import many_pairs
from .infer_report import closing_line, infer_report, tell_details, tell_range
from .infer_views import (
    ViewOptions,
    results_of_views,
    right_name,
    view_options,
    write_views,
)
from .options import (
    EXTRA_NAMES,
    SCALES,
    LabelCount,
    OutputOption,
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
    precision_option,
    refine_option,
    refuse_lone_colors,
    scale_option,
    step_option,
    threads_option,
)
from .progress import MapProgress

if TYPE_CHECKING:
    from ..pair_check import Finding
    from ..result import StereoResult


# Names that every scene of a benchmark has (Middlebury, ETH3D), and folders below a scene.
_ANY_SCENE = re.compile(r"(im|view)\d", re.IGNORECASE)
_INSIDE_SCENE = re.compile(r"(Illum|Exp)\d", re.IGNORECASE)


@click.command(
    short_help="Compute the disparity map of a rectified pair.", context_settings=EXTRA_NAMES
)
@click.argument("left", required=False)
@click.argument("right", required=False)
@click.option(
    "-o",
    "--output",
    "maps",
    metavar="FILE",
    multiple=True,
    help="Disparity map to write; the suffix picks the format: .pfm, .png (KITTI, 16 bit, x256), "
    ".npy or .tif (float). '-' writes PFM to standard output. May be repeated.  "
    "[default: <left>_disparity.pfm in this folder; Teddy_im0_disparity.pfm for Teddy/im0.png]",
)
@click.option(
    "--color",
    cls=OutputOption,
    metavar="FILE.png",
    help="Also write a colour picture.  [default: <left>_disparity.png, if -o is not given]",
)
@click.option(
    "--color-range",
    type=Span(),
    metavar="A:B",
    help="Disparities of the first and the last colour, so that pictures of a sequence can be "
    "compared.  [default: 1st and 99th percentile of the map]",
)
@click.option(
    "--scale-bar",
    is_flag=True,
    help="Draw which colour is which disparity beside the colour picture.",
)
@click.option(
    "--model",
    metavar="NAME|FILE|DIR",
    default="general",
    help="Built-in model (see 'hstereo info'), .h5 file, or run folder of 'hstereo train'.",
)
@click.option(
    "--disparities",
    type=LabelCount(),
    default="auto",
    metavar="N|auto",
    help="Number of disparity labels, exactly; auto finds the range in the pair itself and says "
    "what it took.",
)
@min_disparity_option
@step_option
@click.option(
    "--paper-labels",
    is_flag=True,
    help="Round the number of labels up to a power of two, at most 256, as the paper's program "
    "does: for comparing with published figures.",
)
@iterations_option
@method_option
@precision_option
@refine_option
@view_options
@click.option(
    "--rectify",
    is_flag=True,
    help="Correct rows of the right view that lie too high or too low: pairs that are rectified "
    "only roughly. Disparities stay those of the views as given.",
)
@click.option(
    "--check/--no-check",
    default=True,
    help="Look first whether this is a rectified pair, and say what is wrong; see 'hstereo check'.",
)
@click.option("--strict", is_flag=True, help="Compute nothing if the check finds anything.")
@scale_option
@max_memory_option
@click.option(
    "--volume",
    metavar="FILE",
    help="Matching costs of another program to use instead of the network's: .npy or .h5 (H, W, K) "
    "or (K, H, W), or MC-CNN's .bin; NaN = unknown. RIGHT is then not needed; edge weights and "
    "penalties are the model's. For many pairs with {name}, {dir} and {stem}, as for --calib.",
)
@click.option(
    "--volume-scale",
    type=number_type(FACTOR),
    default=1.0,
    metavar="S",
    help="Factor of those costs: the penalties suit costs that differ by up to about 1.",
)
@click.option(
    "--save-volume",
    cls=OutputOption,
    metavar="FILE",
    help="Write the costs before the CRF, low is good: .npy, .h5 (H, W, K) or .bin (K, H, W).",
)
@click.option(
    "--save-volume-crf",
    cls=OutputOption,
    metavar="FILE",
    help="Write the costs after the CRF, its minorant.",
)
@many_pairs
@depth_options
@max_pixels_option
@device_option
@threads_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object: files, labels, energy, lower bounds, seconds, memory; for many "
    "pairs one line for each.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing on standard error but errors.")
@click.option("-v", "--verbose", is_flag=True, help="Also say how the map was computed.")
def infer(
    left: str,
    right: str | None,
    maps: tuple[str, ...],
    color: str | None,
    color_range: tuple[float, float] | None,
    scale_bar: bool,
    model: str,
    depth_request: DepthRequest,
    view: str,
    confidence: str | None,
    valid: str | None,
    lr_check: bool,
    fill: bool,
    rectify: bool,
    check: bool,
    strict: bool,
    scale: str,
    max_memory: int | None,
    volume: str | None,
    volume_scale: float,
    save_volume: str | None,
    save_volume_crf: str | None,
    device: str,
    threads: int | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Compute the disparity map of the LEFT image of a rectified pair.

    Left pixel x matches right pixel x - d. --view right gives the map of the RIGHT image. LEFT or
    RIGHT may be '-' to read that image from standard input. Images may be 8 or 16 bit, or floating
    point in [0, 1]; grey or colour; PNG, JPEG, WebP, TIFF, BMP, PPM or PGM.

    With --out-dir, many pairs: LEFT and RIGHT are two folders, or two patterns in quotes
    ('left/*.png' 'right/*.png'), or --pairs says where the pairs are. A pair that fails is
    reported, the others go on, and the exit code is 3.

    The names of the written files go to standard output, everything else to standard error.
    """
    if right is None and volume is None:
        raise click.UsageError("Missing argument 'RIGHT': only --volume works without it.")
    if volume is not None and (options["disparities"] != "auto" or options["paper_labels"]):
        raise InputError(
            "A cost volume has a fixed number of labels",
            "Leave out `disparities` and `paper_labels`",
        )
    if volume is not None and rectify:
        raise click.UsageError("--rectify corrects RIGHT, which --volume does not use.")
    if strict and (volume is not None or not check):
        raise click.UsageError("--strict needs the check, which --no-check and --volume leave out.")
    if quiet and verbose:
        raise click.UsageError("--quiet and --verbose contradict each other.")
    views = ViewOptions(view, confidence, valid, lr_check, fill)
    if not maps:
        default_map, default_color = _default_outputs(str(right) if view == "right" else left)
        maps, color = (default_map,), color or default_color
    refuse_lone_colors(color)
    if as_json and "-" in maps:
        raise click.UsageError("--json and '-o -' both want standard output; write a file instead.")
    if maps.count("-") > 1:
        raise click.UsageError("'-o -' is given twice.")
    begun = time.monotonic()
    compile_beside(device, threads)
    from ..batch.work import optimise_stored
    from ..clock import StageClock
    from ..io.atomic import check_distinct
    from ..io.images import read_image, read_pair
    from ..io.volumes import write_volume
    from ..options import MatchOptions
    from ..stereo import Stereo

    views.check(maps, volume, depth_request.ply)
    pictures = [path for path in (*maps, color) if path is not None]
    if view == "both":
        pictures += [right_name(path) for path in pictures]
    others = (*views.outputs, save_volume, save_volume_crf, *depth_request.outputs)
    paths = (*pictures, *(x for x in others if x is not None))
    _check_outputs(maps, color, save_volume, save_volume_crf)
    depth_request.check_outputs()
    check_distinct(inputs=(left, right, volume, *depth_request.inputs), outputs=paths)
    progress = MapProgress(quiet=quiet)
    stereo = Stereo(model, device, threads)
    announce_device(device, progress.message)
    settings = MatchOptions(**options, **views.matching)
    method = str(settings.resolved(stereo.model.config).method)
    if save_volume_crf is not None and method != "crf":
        raise InputError(
            "There are no costs after the CRF with `method=argmax`",
            "Use `method=crf` or leave out `save_volume_crf`",
        )
    wants_volumes = save_volume is not None or save_volume_crf is not None
    findings: list[Finding] | None = None
    stated_by: str | None = None
    with progress:
        show = progress.stage
        clock = StageClock(show)
        if volume is None:
            show("reading")
            pair = read_pair(left, str(right))
            image = pair[0]
            rig = depth_request.read_rig(image.shape[1], image.shape[0], progress.message)
            if check:
                with clock.stage("check"):
                    findings = stereo.check(*pair, rectify=rectify)
                tell_findings(findings, strict, progress.message)
            height, width, _ = image.shape
            chosen, stated_by = depth_request.match_arguments(stereo, settings, width, height)
            result = stereo.match(
                *pair,
                **chosen,
                rectify=rectify,
                scale=SCALES[scale],
                max_memory=max_memory,
                volumes=wants_volumes,
                on_stage=show,
                on_tile=progress.tile,
                on_progress=progress.share,
            )
        else:
            show("reading")
            image = read_image(left)
            rig = depth_request.read_rig(image.shape[1], image.shape[0], progress.message)
            result = optimise_stored(
                stereo, image, volume, volume_scale, settings, wants_volumes, show
            )
        result = replace(result, seconds={**clock.seconds, **result.seconds})
        show("writing")
        replaced = [path for path in paths if path != "-" and os.path.exists(path)]
        outputs = _write_maps(result, maps, color, color_range, scale_bar)
        outputs |= write_views(result, views)
        outputs |= depth_request.write(result, rig, image, progress.message)
        for name, path, values in (
            ("volume", save_volume, result.costs),
            ("volume_crf", save_volume_crf, result.minorant),
        ):
            if path is not None and values is not None:
                label_range = result.label_range
                write_volume(path, values, label_range.minimum, label_range.step)
                outputs[name] = path
    files = [path for path in paths if path != "-"]
    tell = progress.message
    if result.rectification is not None:
        tell(f"hstereo: {result.rectification.describe()}.")
    tell_range(result, tell)
    for path in replaced:
        tell(f"hstereo: {path} was there already and has been replaced")
    if verbose:
        tell_details(stereo, result, model, method, tell)
    tell(closing_line(result, time.monotonic() - begun, files, stated_by))
    if as_json:
        report = infer_report(stereo, result, model, method, outputs, files, findings)
        report["rig"] = rig_report(rig)
        click.echo(json.dumps(report))
    else:
        for path in files:
            click.echo(path)


def _default_outputs(left: str) -> tuple[str, str]:
    """Map and picture in the working directory, named after the left image.

    Where every scene has an image of that name, the scene's folder comes first: the maps of Teddy
    and Cones would otherwise take turns as im0_disparity.pfm.
    """
    stem = "stdin" if left == "-" else Path(left).stem
    if left != "-" and _ANY_SCENE.fullmatch(stem):
        for folder in Path(os.path.abspath(left)).parents:
            stem = f"{folder.name}_{stem}" if folder.name else stem
            if not _INSIDE_SCENE.fullmatch(folder.name):
                break
    return f"{stem}_disparity.pfm", f"{stem}_disparity.png"


def _check_outputs(maps: Sequence[str], color: str | None, *volumes: str | None) -> None:
    """Refuse what can be refused before the work, not after it."""
    from ..io.disparity import check_output
    from ..io.images import check_image_output
    from ..io.volumes import check_volume_output

    for disparity in maps:
        check_output(disparity)
    if color is not None:
        check_image_output(color)
    for path in volumes:
        if path is not None:
            check_volume_output(path)


def _write_maps(
    result: StereoResult,
    maps: Sequence[str],
    color: str | None,
    color_range: tuple[float, float] | None,
    scale_bar: bool,
) -> dict[str, str]:
    """Write maps and their picture, of both views if there are both; returns what went where.

    Of several maps of one view it is the first.
    """
    from ..display import map_picture
    from ..io.images import write_image

    outputs: dict[str, str] = {}
    for suffix, of_view in results_of_views(result):
        for path in maps:
            name = right_name(path) if suffix else path
            of_view.save(name)
            if name != "-":
                outputs.setdefault("disparity" + suffix, name)
        if color is not None:
            name = right_name(color) if suffix else color
            write_image(name, map_picture(of_view.disparity, color_range, scale_bar))
            outputs["color" + suffix] = name
    return outputs
