"""What `hstereo infer` says about a result: notes on standard error, the object of ``--json``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .check import finding_reports

if TYPE_CHECKING:
    from ..pair_check import Finding
    from ..result import StereoResult
    from ..stereo import Stereo

# Of the pixels on the first or last label: above this the user hears of it.
MANY_AT_ENDS = 0.01
# Who chose the labels, as the closing line says it.
_ORIGINS = {
    "caller": "",
    "data set": ", from the data set",
    "pair": ", found in the pair",
    "model": ", the model's",
}


Tell = Callable[[str], None]
"""Prints a line on standard error."""


def tell_range(result: StereoResult, tell: Tell) -> None:
    """Say if the labels that were searched may be the wrong ones."""
    label_range = result.label_range
    labels = f"{label_range.minimum:g} to {label_range.maximum:g}"
    if result.range_from == "model":
        tell(
            f"hstereo: the views agree at too few points to find the range; searched {labels}, the "
            "model's default. If that is wrong, give --disparities and --min-disparity."
        )
    if result.at_range_ends > MANY_AT_ENDS:
        tell(
            f"hstereo: {100 * result.at_range_ends:.1f} % of the pixels have the first or the last "
            f"disparity of {labels}: the range may be too short. Give more --disparities, or "
            "another --min-disparity."
        )


def closing_line(
    result: StereoResult, seconds: float, files: Sequence[str], calib: str | None
) -> str:
    """Which disparities were searched and who says so, how long it took, and where the map is."""
    label_range = result.label_range
    origin = f", from {calib}" if calib is not None else _ORIGINS[result.range_from]
    labels = f"disparities {label_range.minimum:g} to {label_range.maximum:g}{origin}"
    where = ", ".join(files) or "standard output"
    return f"hstereo: {labels}; {seconds:.1f} s; {where}"


def tell_details(stereo: Stereo, result: StereoResult, model: str, method: str, tell: Tell) -> None:
    """What ``--verbose`` adds: how the map was computed, how much memory and time that took."""
    from ..system import format_bytes

    report = infer_report(stereo, result, model, method, {}, [], None)
    labels, memory = report["labels"], report["memory"]
    tell(
        f"hstereo: {report['width']}x{report['height']} pixels, {labels['count']} labels,"
        f" {labels['step']:g} px apart; model {model} by {method} on {report['device']} with"
        f" {report['threads']} threads"
    )
    peak = memory["peak_bytes"]
    tell(
        f"hstereo: {report['tiles']} {'tile' if report['tiles'] == 1 else 'tiles'}; the whole map"
        f" was estimated to need {format_bytes(memory['estimated_bytes'])}, the process took"
        f" {'an unknown amount' if peak is None else format_bytes(peak)} at most"
    )
    stages = ", ".join(
        f"{name.replace('_', ' ')} {seconds:.2f}" for name, seconds in report["seconds"].items()
    )
    tell(f"hstereo: seconds: {stages}")


def infer_report(
    stereo: Stereo,
    result: StereoResult,
    model: str,
    method: str,
    outputs: dict[str, str],
    files: Sequence[str],
    findings: Sequence[Finding] | None,
) -> dict[str, Any]:
    """The object that ``--json`` prints.

    Parameters
    ----------
    stereo, model, method
        What computed the map, by name.
    result
        What came of it.
    outputs
        The file of each kind; of several maps, the first.
    files
        All of them.
    findings
        Of the check; None: there was none.
    """
    from ..kernels import max_threads
    from ..memory import inference_memory
    from ..system import peak_memory
    from .infer_views import views_report

    height, width = result.disparity.shape
    label_range = result.label_range
    bounds = None if result.bounds is None else [float(x) for x in result.bounds]
    return {
        "outputs": outputs,
        "files": list(files),
        "model": model,
        "method": method,
        "precision": result.precision,
        "device": stereo.device,
        "threads": stereo.threads or max_threads(),
        "width": width,
        "height": height,
        "labels": {
            "count": label_range.count,
            "min_disparity": label_range.minimum,
            "max_disparity": label_range.maximum,
            "step": label_range.step,
            "from": result.range_from,
            "at_ends": result.at_range_ends,
        },
        **views_report(result),
        "rectification": None if result.rectification is None else result.rectification.as_dict(),
        "check": None if findings is None else finding_reports(findings),
        "tiles": result.tiles,
        "energy": result.energy,
        "lower_bounds": None if bounds is None else bounds[1::2],
        "lower_bounds_per_sweep": bounds,
        "seconds": {**result.seconds, "total": sum(result.seconds.values())},
        "memory": {
            "peak_bytes": peak_memory(),
            "volume_bytes": height * width * label_range.count * 4,
            "estimated_bytes": inference_memory(
                stereo.model,
                height,
                width,
                label_range.count,
                method,
                stereo.threads,
                views=1 if result.validity is None and result.right is None else 2,
                precision=result.precision,
            ),
        },
    }
