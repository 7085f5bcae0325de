"""The report of a benchmark as text tables and as a bar chart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..charts import Bar, bar_chart
from ..system import cpu_name, format_bytes
from ..tables import aligned
from .report import COMPONENTS, BenchReport, PeerComparison, Run, Scaling, Timing, paper_seconds
from .throughput import Throughput

# How time should grow; the total is a mixture.  Labels do not concern the networks.
_EXPECTED_EXPONENTS = {
    "pixels": dict.fromkeys(COMPONENTS, 1.0),
    "disparities": {
        **dict.fromkeys(("input", "pairwise_cnn", "unary_cnn"), 0.0),
        "correlation": 1.0,
        "crf": 1.0,
    },
}


def format_report(report: BenchReport) -> str:
    """All tables, with a legend."""
    blocks = [f"{cpu_name()}: {report.device}, {_count(report.threads, 'thread')}"]
    for run in report.runs:
        blocks.append(f"{run.setting}, {_model(run)}\n\n{_component_table(run, report)}")
        blocks.append("\n".join(_remarks(run)))
    blocks.append("\n".join(_legend(report)))
    comparisons = [comparison for run in report.runs for comparison in run.comparisons]
    if comparisons:
        blocks.append(_comparison_table(comparisons))
    blocks += report.unavailable.values()
    if report.throughput is not None:
        blocks.append(_throughput_table(report.throughput))
    blocks += [_scaling_table(scaling) for scaling in report.scalings]
    return "\n\n".join(blocks)


def draw_report(report: BenchReport) -> NDArray[np.uint8]:
    """The times as a bar chart, uint8 RGB."""
    shown = {name for run in report.runs for name in run.timings}
    groups: dict[str, list[Bar]] = {x: [] for name, x in COMPONENTS.items() if name in shown}
    for run in report.runs:
        for name, timing in run.timings.items():
            groups[COMPONENTS[name]].append(_bar(f"ours, {_disparities(run)}", timing))
    for run in report.runs:
        for comparison in run.comparisons:
            if comparison.component != "total":
                bar = _bar(comparison.peer.label, comparison.theirs)
                groups[COMPONENTS[comparison.component]].append(bar)
    references = set()
    for run in report.runs:
        for name, seconds in paper_seconds(run.setting).items():
            series = f"GTX Titan X in the paper, {_disparities(run)}"
            references.add(series)
            groups[COMPONENTS[name]].append(Bar(series, 1e3 * seconds))
    setting = report.runs[0].setting
    title = f"hstereo bench, {setting.width} x {setting.height} pixels, {_model(report.runs[0])}"
    subtitle = (
        f"{cpu_name()}, {report.device}, {_count(report.threads, 'thread')};"
        f" median and range of {_count(report.repeat, 'repeat')}"
    )
    return bar_chart(title, subtitle, groups, "milliseconds", references)


def _bar(series: str, timing: Timing) -> Bar:
    low, high = timing.spread
    return Bar(series, 1e3 * timing.median, (1e3 * low, 1e3 * high))


def _disparities(run: Run) -> str:
    return f"{run.setting.disparities} disparities"


def _model(run: Run) -> str:
    setting = run.setting
    levels = f", {_count(setting.pyramid, 'coarser level')}" if setting.pyramid else ""
    return f"{_count(setting.layers, 'layer')}{levels}, {_count(setting.iterations, 'iteration')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f}"


def _component_table(run: Run, report: BenchReport) -> str:
    paper = paper_seconds(run.setting)
    peaks = report.peaks
    header = ["", "ms", "min .. max", "GFLOP/s", "GB/s"]
    if peaks is not None:
        header[4:4] = ["of SGEMM"]
        header.append("of copy")
    if paper:
        header.append("Titan X ms")
    rows = [header]
    for name, timing in run.timings.items():
        label = COMPONENTS[name]
        flop_rate, byte_rate = run.flop_rate(name), run.byte_rate(name)
        low, high = timing.spread
        row = [label, _ms(timing.median), f"{_ms(low)} .. {_ms(high)}"]
        row.append("-" if flop_rate is None else f"{flop_rate / 1e9:.1f}")
        if peaks is not None:
            row.append("-" if flop_rate is None else f"{flop_rate / peaks.flop_rate:.0%}")
        row.append(f"{byte_rate / 1e9:.1f}")
        if peaks is not None:
            row.append(f"{byte_rate / peaks.byte_rate:.0%}")
        if paper:
            row.append(_ms(paper[name]) if name in paper else "-")
        rows.append(row)
    if peaks is not None:
        row = ["peak, measured", "", "", f"{peaks.flop_rate / 1e9:.1f}", ""]
        row += [f"{peaks.byte_rate / 1e9:.1f}", ""]
        rows.append(row + [""] * bool(paper))
    return "\n".join(aligned(rows))


def _remarks(run: Run) -> list[str]:
    """Notes on a single table."""
    peak = "unknown" if run.peak_bytes is None else format_bytes(run.peak_bytes)
    lines = [
        f"memory: {peak} at the peak of this process;"
        f" one cost volume has {format_bytes(run.volume_bytes)}"
    ]
    paper = paper_seconds(run.setting)
    if paper:
        ratio = run.timings["total"].median / paper["total"]
        extra = "" if "pairwise_cnn" in paper else "; ours includes the Pairwise-CNN"
        lines.append(
            f"total:  {ratio:.2f} times the paper's {_ms(paper['total'])} ms on a GTX Titan X"
            f" with these settings{extra}"
        )
    return lines


def _legend(report: BenchReport) -> list[str]:
    """What the columns mean."""
    lines = [
        f"ms:       median of {_count(report.repeat, 'repeat')} after a warm-up;"
        " the total includes sub-label refinement",
        "GFLOP/s:  effective: convolutions count as direct ones, also where Winograd needs fewer",
        "GB/s:     arrays as large as the image or larger, once per layer or sweep",
    ]
    if report.peaks is not None:
        lines.append(
            f"peak:     matrix product (SGEMM) and copy with {_count(report.threads, 'thread')},"
            " best of this run"
        )
    if any(paper_seconds(run.setting) for run in report.runs):
        lines.append(
            "Titan X:  a GPU; figures from the paper, not measured here;"
            " KITTI's total is the sum of its rows"
        )
    return lines


def _comparison_table(comparisons: Sequence[PeerComparison]) -> str:
    rows = [["alternating in the same run", "ms", "ours", "ms", "ours is"]]
    for comparison in comparisons:
        speedup = comparison.speedup
        verdict = f"{speedup:.2f}x faster" if speedup >= 1 else f"{1 / speedup:.2f}x slower"
        ours = COMPONENTS[comparison.component]
        rows.append(
            [
                comparison.peer.label,
                _ms(comparison.theirs.median),
                ours,
                _ms(comparison.ours.median),
                verdict,
            ]
        )
    differences = {
        x.peer.label: x.peer.difference for x in comparisons if x.peer.difference is not None
    }
    notes = [
        f"{label}: the same network, features differ by at most {difference:.1e}"
        for label, difference in differences.items()
    ]
    return "\n".join([*aligned(rows), *notes])


def _throughput_table(throughput: Throughput) -> str:
    rows = [
        [f"{_count(throughput.pairs, 'pair')}, files in and out", "a second", "p50 ms", "p99 ms"],
        ["pairs, as infer runs many", f"{throughput.pairs_per_second:.3g}", "-", "-"],
        [
            "frames, as stream runs",
            f"{throughput.frames_per_second:.3g}",
            _ms(throughput.latency(0.5)),
            _ms(throughput.latency(0.99)),
        ],
    ]
    note = "p50, p99: latency, from when a frame was read, some frames ahead, to its file"
    return "\n".join([*aligned(rows), note])


def _scaling_table(scaling: Scaling) -> str:
    sizes = [f"{size:,}" for size in scaling.sizes]
    rows = [[f"ms, by {scaling.quantity}", *sizes, "exponent", "expected"]]
    expected = _EXPECTED_EXPONENTS[scaling.quantity]
    for name, exponent in scaling.exponents.items():
        times = [_ms(run.timings[name].median) for run in scaling.runs]
        rows.append(
            [
                COMPONENTS[name],
                *times,
                "-" if exponent is None else f"{exponent:.2f}",
                f"{expected[name]:.1f}" if name in expected else "-",
            ]
        )
    return "\n".join(aligned(rows))
