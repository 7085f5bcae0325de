"""Examples at the end of the help of every command; `tests/cli/test_examples.py` runs them."""

from __future__ import annotations

import click

EXAMPLES = {
    "infer": (
        "hstereo infer left.png right.png",
        "hstereo infer left.png right.png -o map.png --disparities 128",
        "hstereo infer left.png right.png --json",
    ),
    "stream": (
        "hstereo stream left.mp4 right.mp4 -o depth.mp4",
        "hstereo stream both.mp4 --side-by-side -o maps/%06d.png",
        "hstereo stream left.mp4 right.mp4 --iterations 2 --warm-start -o depth.mp4",
    ),
    "check": ("hstereo check left.png right.png",),
    "rectify": (
        "hstereo rectify left.png right.png -o pair",
        "hstereo rectify left.png right.png --calib stereo.yml -o pair",
    ),
    "convert": ("hstereo convert params.npz --config crf.cfg -o model.h5",),
    "synth": (
        "hstereo synth scenes --count 10",
        "hstereo synth scenes --width 640 --height 480 --photometric",
    ),
    "train": (
        "hstereo train synthetic -o run --minutes 30",
        "hstereo train csv --root pairs.csv --init general -o run",
    ),
    "eval": (
        "hstereo eval middlebury --root data/MiddEval3 --baseline sgbm",
        "hstereo eval prediction.pfm truth.pfm",
    ),
    "bench": (
        "hstereo bench --size realtime",
        "hstereo bench --width 640 --height 480 --disparities 64,128 --json",
        "hstereo bench --root kitti=data/kitti2015/training --compare sgbm,elas --plot plot.png",
    ),
    "info": ("hstereo info", "hstereo info --json"),
    "warmup": ("hstereo warmup", "hstereo warmup --no-training --timings"),
    "cache": ("hstereo cache",),
    "config": ("hstereo config", "hstereo config infer --all"),
    "completion": ("hstereo completion bash",),
}


def add_examples(name: str, command: click.Command) -> None:
    """Put the examples of a command below its options, a line each."""
    if name in EXAMPLES:
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  {x}" for x in EXAMPLES[name])
