"""What `hstereo infer` says about a result: notes on standard error, the object of ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..result import StereoResult
    from ..stereo import Stereo

# Of the pixels on the first or last label: above this the user hears of it.
MANY_AT_ENDS = 0.01


def tell_range(result: StereoResult) -> None:
    """Say which labels were searched if the user did not, and whether they were too few."""
    label_range = result.label_range
    labels = f"{label_range.minimum:g} to {label_range.maximum:g}"
    if result.range_from == "pair":
        click.echo(f"hstereo: disparities {labels}, found in the pair", err=True)
    elif result.range_from == "model":
        click.echo(
            f"hstereo: the views agree at too few points to find the range; searched {labels}, the "
            "model's default. If that is wrong, give --disparities and --min-disparity.",
            err=True,
        )
    if result.at_range_ends > MANY_AT_ENDS:
        click.echo(
            f"hstereo: {100 * result.at_range_ends:.1f} % of the pixels have the first or the last "
            f"disparity of {labels}: the range may be too short. Give more --disparities, or "
            "another --min-disparity.",
            err=True,
        )


def infer_report(
    stereo: Stereo, result: StereoResult, model: str, method: str, outputs: dict[str, str]
) -> dict[str, object]:
    """The object that ``--json`` prints."""
    from ..kernels import max_threads
    from ..memory import inference_memory
    from ..system import peak_memory
    from .infer_views import views_report

    height, width = result.disparity.shape
    label_range = result.label_range
    bounds = None if result.bounds is None else [float(x) for x in result.bounds]
    return {
        "outputs": outputs,
        "model": model,
        "method": method,
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
        "strips": result.strips,
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
                1 if result.validity is None and result.right is None else 2,
            ),
        },
    }
