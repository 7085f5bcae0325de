"""Writes docs/cli.md from the commands themselves: python tools/write_cli_docs.py

The introduction and the examples are texts of this file; usage, descriptions, options and defaults
come from the click commands. ``tests/cli/test_docs.py`` fails while docs/cli.md says anything else.
"""

from __future__ import annotations

import argparse
import inspect
import re
from pathlib import Path
from typing import Any

import click
from mdtable import markdown_table

from hybridstereo.cli import cli

PROGRAM = "hstereo"
OUTPUT = Path(__file__).parents[1] / "docs" / "cli.md"

INTRODUCTION = """\
# The command line

<!-- Written by `python tools/write_cli_docs.py`. Change the text there, or the help of the options
in `src/hybridstereo/cli/`, not here. -->

`hstereo COMMAND --help` prints what this page says about a command. `python -m hybridstereo` is the
same program.

| command | what it does |
| --- | --- |
{commands}

## Conventions

**Disparities.** Left pixel `x` matches right pixel `x - d`. Disparities are positive for points in
front of infinity, are in pixels of the input, and are never scaled by 16. Both images must be
rectified: corresponding points lie on the same row.

**Images.** PNG, JPEG, WebP, TIFF, BMP, PPM or PGM; 8 or 16 bit, or floating point in [0, 1]; grey,
RGB or RGBA. Alpha is dropped. EXIF orientation is ignored, because calibration refers to the rows
of the sensor.

**Files.** Inputs must be regular files: a pipe, a device, a socket or a folder is refused at once
(`-` reads standard input where that is said). An image, a map or a mask whose header states more
than 100 million pixels is refused before it is decoded; `--max-pixels` allows more.

**Disparity maps.** The suffix picks the format, for reading and for writing:

| suffix | contents | invalid pixels |
| --- | --- | --- |
| `.pfm` | little-endian float32, rows from the bottom up | `inf` |
| `.png` | KITTI's 16-bit PNG: 256 times the disparity, fraction cut off, at least 1 | 0 |
| `.npy` | NumPy float32 (H, W) | `inf` |
| `.tif`, `.tiff` | float32, one channel | `inf` |

A PNG cannot hold negative disparities or disparities of 256 and more. Other tools may show a PFM
scaled or upside down; OpenCV 5 divides by the scale in the header, which Middlebury's files do not
mean. `hybridstereo.read_disparity` reads all of these formats.

**Standard streams.** Results go to standard output, messages and progress to standard error, so
that `--json` and `--csv` can be piped. Where a file is an input, `-` reads standard input (one of
the two images); `-o -` writes a PFM to standard output. Progress is one line that updates itself on
a terminal; elsewhere there are a few plain lines or none.

**Files appear complete or not at all.** Every output is written to a temporary name first and then
renamed. An existing file is replaced only by a complete one; `infer` says so on standard error.
What a killed command leaves behind, hidden files named `.<name>.<12 digits>.hstereo.<suffix>`, is
removed by the next one that writes into the folder.

**Defaults.** Every option can get another default in a TOML file or by an environment variable: the
command line beats `HSTEREO_<COMMAND>_<OPTION>`, which beats `HSTEREO_<OPTION>`, which beats the
command's table in the file, which beats the keys at its top. The file is that of
`hstereo --config FILE COMMAND`, or the one that `HSTEREO_CONFIG` names (none, if it is empty), or
`~/.config/hybridstereo/config.toml` (`~/Library/Application Support/hybridstereo` on macOS,
`%APPDATA%\\hybridstereo` on Windows). [`hstereo config`](#hstereo-config) shows what is in force. A
key that is no option is an error, and so is a value that its option does not take; of variables
that are no option, `hstereo config` says so. A switch without a `--no-` form, such as
`--fill`, is set by `fill = true` or `HSTEREO_FILL=1`, and what the file sets, `HSTEREO_FILL=0`
takes back.

**JSON.** What `--json` prints is described by a JSON Schema in the package,
`src/hybridstereo/cli/output.schema.json`, with one definition per command. In Python:
`importlib.resources.files("hybridstereo.cli").joinpath("output.schema.json")`.

**Exit codes.**

| code | meaning |
| --- | --- |
| 0 | success |
| 1 | failure; one sentence on standard error says why, and what helps |
| 2 | wrong usage: an unknown option, or options that exclude each other |
| 3 | some pairs of many failed (`infer`, `eval`), or a `stream` was damaged; the rest is done |
| 130 | interrupted (Ctrl-C); `train` has saved a checkpoint, `stream` has completed its video |
| 143, 129 | `train` was ended by SIGTERM or SIGHUP and has saved a checkpoint |

**Devices and threads.** `--device auto`, the default, takes the first GPU that works and says so on
standard error; without a usable GPU it takes the CPU. `--threads` limits the CPU threads; more
threads than cores need the environment variable `NUMBA_NUM_THREADS`. See [gpu.md](gpu.md) and
[performance.md](performance.md).

**The first run is slower.** Numba compiles the kernels when they are first used. They are kept in
the user's cache folder, or in `HSTEREO_CACHE_DIR`, so only the first run of a command takes some
seconds longer ([performance.md](performance.md#compilation)).
"""

NOTES = {
    "infer": """\
```sh
hstereo infer left.png right.png                      # left_disparity.pfm and a colour picture
hstereo infer left.png right.png -o map.png           # KITTI's 16-bit PNG
hstereo infer left.png right.png -o map.npy --disparities 200 --min-disparity -20
hstereo infer left.png right.png --json | jq .energy  # also files, labels, bounds, seconds, memory
ssh camera cat left.png | hstereo infer - right.png -o - > map.pfm
hstereo infer left.png right.png --save-volume before.npy --save-volume-crf after.npy
hstereo infer left.png --volume left.bin -o map.pfm   # costs of another matcher
```

How to run the CRF on the costs of another matcher is in
[recipes.md](recipes.md#the-crf-on-another-matchers-costs).""",
    "stream": """\
```sh
hstereo stream left.mp4 right.mp4 -o depth.mp4                    # a colour video
hstereo stream both.mp4 --side-by-side -o maps/%06d.png           # KITTI's 16-bit PNG per frame
hstereo stream 'frames/left_*.png' 'frames/right_*.png' -o maps/  # images
hstereo stream left.mp4 right.mp4 --iterations 2 --warm-start -o depth.mp4
hstereo stream 0 1 --show --drop                                  # two cameras, on the screen
```

[streams.md](streams.md) has more and figures; [recipes.md](recipes.md#ffmpeg) pipes to FFmpeg.""",
    "rectify": """\
```sh
hstereo rectify left.png right.png -o pair                                 # rectified roughly
hstereo rectify left.png right.png --calib stereo.yml --unit cm -o pair    # as cameras took them
hstereo infer pair/left.png pair/right.png
```

Which calibrations are understood is in [recipes.md](recipes.md#from-two-cameras-to-a-map), what is
computed in [model.md](model.md#15-rectification-with-a-calibration), and what messages mean in
[messages.md](messages.md#rectification-with-a-calibration).""",
    "check": """\
```sh
hstereo check left.png right.png                      # a line for each finding
hstereo check left.png right.png --strict || echo "not a good pair"
hstereo check left.png right.png --json | jq '.check[].code'
```

[messages.md](messages.md) explains each finding.""",
    "convert": """\
```sh
hstereo convert params.npz --config crf.cfg -o model.h5
```

None of the authors' parameters are shipped with this project.""",
    "synth": """\
```sh
hstereo synth scenes --count 10                       # scenes/scene_0000 to scenes/scene_0009
hstereo synth scenes --count 10 --seed 100 --photometric
```""",
    "train": """\
```sh
hstereo train synthetic -o run --minutes 30                    # generated scenes, needs no files
hstereo train kitti --root data/kitti2015 -o run              # complete images, all four stages
hstereo train middlebury --root data/middlebury --crop 192x320 --layers 7
hstereo train csv --root pairs.csv                             # your own pairs
hstereo train synthetic:1,middlebury:2 --root middlebury=data/middlebury
hstereo train kitti --root data/kitti2015 --init general      # your data, from a model that exists
hstereo train --resume -o run                                  # continue, bit for bit
hstereo infer left.png right.png --model run/best.h5
```

See [training.md](training.md) for what happens in each stage, and
[data/README.md](../data/README.md) for the files that each data set consists of.""",
    "eval": """\
```sh
hstereo eval middlebury --root data/MiddEval3 --baseline sgbm,sgbm-hh       # beside OpenCV
hstereo eval kitti --root data/kitti2015 --model a.h5 --model b.h5 --json   # two models
hstereo eval kitti --root data/kitti2015 --maps theirs=DIR                  # another program's maps
hstereo eval kitti --root data/kitti2015 --volumes mccnn=DIR --baseline argmax
hstereo eval middlebury --root data/MiddEval3 --report out                  # out/report.html
hstereo eval middlebury --root data/MiddEval3 --components --model run      # what each stage adds
hstereo eval --pred DIR --gt DIR                                            # no data set needed
hstereo eval prediction.pfm truth.pfm --mask mask.png
hstereo eval --submission kitti out --root data/kitti2015 --model kitti.h5
```

See [evaluation.md](evaluation.md) for the rules, the baselines and the report.""",
    "bench": """\
```sh
hstereo bench                                        # KITTI's size, 7 layers, 128 disparities
hstereo bench --size realtime                        # the paper's real-time setting
hstereo bench --width 960 --height 540 --disparities 64,128,256 --layers 3 --plot bench.png
hstereo bench --compare sgbm,torch --repeat 9        # OpenCV and PyTorch, in turns with ours
hstereo bench --scaling --json | jq .scaling.pixels.exponents
```

See [performance.md](performance.md) for what the columns mean.""",
    "info": """\
If CUDA cannot be used, `info` says why and what would help.""",
    "config": """\
```toml
# ~/.config/hybridstereo/config.toml
threads = 2              # for every command that has --threads
device = "cpu"

[infer]                  # for one command
model = "middlebury"
max-memory = "4G"
```

```sh
hstereo config                                        # what is set, and where
hstereo config infer --all                            # every option, its default and its variable
hstereo config --json | jq .options
```""",
    "completion": """\
```sh
hstereo completion bash                     # eval "$(hstereo completion bash)" in ~/.bashrc
hstereo completion zsh                      # the same in ~/.zshrc, after compinit
hstereo completion fish > hstereo.fish      # into ~/.config/fish/completions/
```

Completed are commands, options, their choices, names of models, and files. It takes a tenth of a
second: neither NumPy nor Numba is loaded.""",
    "cache": """\
```sh
hstereo cache                                         # folder, contents, whether it is used
hstereo cache --clear
```

Only files that hybridstereo has written are removed. A folder that belongs to another user, or that
others can write, is neither used nor cleared.""",
}

# Arguments have no help of their own in click.
ARGUMENTS = {
    ("infer", "left"): "Left image, or `-` for standard input.",
    ("infer", "right"): "Right image, or `-`; may be left out with `--volume`.",
    (
        "stream",
        "left",
    ): "Left view: a video, a folder or pattern of images, a camera's number, a URL; "
    "or both views in one.",
    ("stream", "right"): "Right view; not with `--side-by-side` or `--top-bottom`.",
    ("config", "command"): "Show its options only.",
    ("completion", "shell"): "`bash`, `zsh` or `fish`.",
    ("rectify", "left"): "Left image.",
    ("rectify", "right"): "Right image.",
    ("check", "left"): "Left image, or `-` for standard input.",
    ("check", "right"): "Right image, or `-`.",
    ("convert", "parameters"): "The authors' parameter file.",
    ("synth", "folder"): "Folder that receives the scenes.",
    ("train", "dataset"): "`kitti`, `middlebury`, `synthetic`, `csv` or a mixture; left out with "
    "`--resume`.",
    ("eval", "targets"): "A data set, or a map and its truth; neither with `--gt`.",
}

_DEFAULT_IN_HELP = re.compile(r"\s*\[default: (?P<text>[^\]]*)\]\s*$")
_PLACEHOLDERS = {"Path": "PATH"}


def escaped(text: str) -> str:
    """Plain text as a cell of a Markdown table."""
    plain = re.sub(r"([|<*])", r"\\\1", " ".join(text.split()))
    return re.sub(r"(?<![\w`-])(--?[a-z][a-z-]*)", r"`\1`", plain)


def code(text: str) -> str:
    """A code span as a cell of a Markdown table."""
    return f"`{text}`".replace("|", "\\|")


def paragraphs(text: str) -> str:
    """A help text without click's marks and with one line per paragraph."""
    parts = [part for part in inspect.cleandoc(text).split("\n\n") if part.strip()]
    return "\n\n".join(" ".join(part.replace("\b", "").split()) for part in parts)


def bounds(kind: dict[str, Any]) -> str:
    """The range of a number, or nothing."""
    low, high = kind.get("min"), kind.get("max")
    if low is not None and high is not None:
        left, right = "(" if kind["min_open"] else "[", ")" if kind["max_open"] else "]"
        return f" in {left}{low:.10g}, {high:.10g}{right}"
    if low is not None:
        return f" {'>' if kind['min_open'] else '≥'} {low:.10g}"
    return "" if high is None else f" {'<' if kind['max_open'] else '≤'} {high:.10g}"


def value_of(option: click.Option) -> str:
    """What follows the name of an option."""
    if option.is_flag or option.count:
        return ""
    kind = option.type.to_info_dict()
    if option.metavar is not None:
        shown = option.metavar
    elif kind["param_type"] == "Choice":
        shown = "|".join(map(str, kind["choices"]))
    elif (own := option.type.get_metavar(option, click.Context(cli))) is not None:
        shown = own.strip("[]")
    else:
        shown = _PLACEHOLDERS.get(kind["param_type"], kind["name"])
    return code(shown) + bounds(kind).replace("<", "\\<")


def default_of(option: click.Option) -> str:
    """The default, as the help text or the option states it."""
    if stated := _DEFAULT_IN_HELP.search(option.help or ""):
        return escaped(stated["text"])
    if option.required:
        return "required"
    default = option.to_info_dict()["default"]
    if option.is_flag:
        if not option.secondary_opts:
            return ""
        return (
            "" if default is None else code((option.opts if default else option.secondary_opts)[0])
        )
    unset = default is None or default == () or callable(default) or option.show_default is False
    return (
        ""
        if unset or "UNSET" in repr(default)
        else code(f"{default:g}" if isinstance(default, float) else str(default))
    )


def option_row(option: click.Option) -> list[str]:
    """An option as a line of its command's table."""
    names = ", ".join(f"`{name}`" for name in option.opts)
    if option.secondary_opts:
        names += " / " + ", ".join(f"`{name}`" for name in option.secondary_opts)
    meaning = escaped(_DEFAULT_IN_HELP.sub("", option.help or ""))
    if option.multiple and "repeat" not in meaning and "once per" not in meaning:
        meaning += " May be repeated."
    return [names, value_of(option), meaning, default_of(option)]


def argument_name(argument: click.Argument) -> str:
    """An argument as the usage shows it."""
    name = argument.metavar or (argument.name or "").upper()
    if argument.metavar is None and argument.nargs != 1:
        name += "..."
    return name if argument.required or name.startswith("[") else f"[{name}]"


def section(name: str, command: click.Command) -> str:
    """Everything about one command."""
    arguments = [x for x in command.params if isinstance(x, click.Argument)]
    options = [x for x in command.params if isinstance(x, click.Option) and not x.hidden]
    usage = " ".join([PROGRAM, name, "[OPTIONS]", *map(argument_name, arguments)])
    parts = [f"## {PROGRAM} {name}", f"```\n{usage}\n```", paragraphs(command.help or "")]
    if name in NOTES:
        parts.append(NOTES[name])
    if arguments:
        rows = [
            [code(argument_name(x).strip("[]")), ARGUMENTS.get((name, x.name or ""), "See above.")]
            for x in arguments
        ]
        parts.append(markdown_table(["argument", "meaning"], rows))
    rows = [option_row(x) for x in options]
    parts.append(markdown_table(["option", "value", "meaning", "default"], rows))
    return "\n\n".join(parts)


def document() -> str:
    """The whole page."""
    commands = "\n".join(
        f"| [`{PROGRAM} {name}`](#{PROGRAM}-{name}) | {escaped(command.short_help or '')} |"
        for name, command in cli.commands.items()
    )
    sections = [section(name, command) for name, command in cli.commands.items()]
    introduction = INTRODUCTION.replace("{commands}", commands).rstrip()
    return "\n\n".join([introduction, *sections]) + "\n"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.parse_args().output.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
