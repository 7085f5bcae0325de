"""`hstereo infer` on many pairs: which ones, where their results go, and who matches them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Generator, Iterable
from dataclasses import fields, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..limits import COUNT
from .engines import opened_engine, scheduler_option, wants_engine, workers_option
from .infer_depth import depth_request
from .infer_report import Tell, infer_report
from .infer_views import asked_views, right_name
from .options import (
    SCALES,
    CommaSeparated,
    OutputOption,
    announce_device,
    compile_beside,
    refuse_extra_names,
    refuse_lone_colors,
)
from .pairs_report import tell_pairs

if TYPE_CHECKING:
    from ..batch.outputs import Output
    from ..batch.pairs import PairSource
    from ..batch.work import PairOutcome, PairWork
    from ..result import StereoResult
    from ..stereo import Stereo


class _Shard(click.ParamType):
    """One of several parts: ``2/8``."""

    name = "shard"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Refuse what is no part of a whole."""
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", value)
        if match is None or not 1 <= int(match[1]) <= int(match[2]) in COUNT:
            self.fail(f"'{value}' is not a part such as 1/8, counted from 1", param, ctx)
        return int(match[1]), int(match[2])


_OPTIONS = (
    click.option(
        "--pairs",
        metavar="LIST|DIR|-",
        help="Match many pairs: those of a list with a line left,right or left,right,name for each "
        "('-' reads it from standard input), or all that are found in a folder (KITTI's and "
        "Middlebury's layouts, left and right folders, 0001_left.png beside 0001_right.png). A "
        "list, its images and --out-dir may be URLs such as s3://bucket/list.csv; docs/scaling.md.",
    ),
    click.option(
        "--out-dir",
        cls=OutputOption,
        metavar="DIR",
        help="Folder for the results of many pairs, which are called DIR/NAME.pfm after the pair; "
        "created if it does not exist. Other files are named with {name}: --color "
        "'{name}_color.png'.",
    ),
    click.option(
        "--format",
        "formats",
        type=CommaSeparated(click.Choice(["pfm", "png", "npy", "tif"])),
        metavar="FORMATS",
        help="Of the maps in --out-dir, one or several of pfm, png (KITTI, 16 bit), npy, tif.  "
        "[default: pfm]",
    ),
    click.option(
        "--skip-existing",
        is_flag=True,
        help="Leave out pairs whose files are all in --out-dir, to go on after an interruption.",
    ),
    click.option(
        "--shard",
        type=_Shard(),
        metavar="I/N",
        help="Take every N-th pair from the I-th on, counted from 1: one part for each job of an "
        "array.",
    ),
    scheduler_option,
    workers_option,
    click.option(
        "--return-results",
        is_flag=True,
        help="Have the workers of --scheduler or --workers return their files, and write them "
        "here: for workers that cannot write to --out-dir.",
    ),
)
_ONLY_FOR_MANY = {
    "formats": "--format",
    "skip_existing": "--skip-existing",
    "shard": "--shard",
    "scheduler": "--scheduler",
    "workers": "--workers",
    "return_results": "--return-results",
}
_OWN = ("pairs", "out_dir", *_ONLY_FOR_MANY)


def many_pairs(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options about many pairs to the command for one, and do what they ask for."""

    @wraps(command)
    def run(**params: Any) -> None:
        refuse_extra_names()
        if _wants_pairs(params):
            _infer_pairs(params)
        else:
            command(**{name: value for name, value in params.items() if name not in _OWN})

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def _wants_pairs(params: dict[str, Any]) -> bool:
    """Whether a command line asks for many pairs; refuses one that asks for half of it."""
    left, right = params["left"], params["right"]
    many = params["pairs"] is not None or params["out_dir"] is not None
    if not many:
        for name, flag in _ONLY_FOR_MANY.items():
            if params[name]:
                raise click.UsageError(f"{flag} is about many pairs and needs --out-dir.")
        if left is None:
            raise click.UsageError("Missing argument 'LEFT'.")
        from ..batch.folders import is_pattern

        several = [os.path.isdir(x) or is_pattern(x) for x in (left, right) if x is not None]
        if several == [True]:
            raise click.UsageError(
                f"Give a folder with pairs as --pairs {left}, and --out-dir for the results."
            )
        if several == [True, True]:  # one alone is a slip, which reading that image explains
            raise click.UsageError("Many pairs need --out-dir DIR, the folder of their results.")
        return False
    if params["out_dir"] is None:
        raise click.UsageError("--pairs needs --out-dir DIR, the folder of the results.")
    if (params["pairs"] is None) == (left is None) or (left is not None and right is None):
        raise click.UsageError(
            "Give --pairs, or LEFT and RIGHT: two folders or two patterns in quotes."
        )
    refuse_lone_colors(params["color"])
    if params["maps"] and params["formats"]:
        raise click.UsageError("Give --format, or --output with {name}, but not both.")
    volume = params["volume"]
    if params["strict"] and (volume is not None or not params["check"]):
        raise click.UsageError("--strict needs the check, which --no-check and --volume leave out.")
    if volume is not None:
        _check_volume(volume, params)
    return True


def _check_volume(volume: str, params: dict[str, Any]) -> None:
    """Refuse costs from files that cannot be meant."""
    if params["rectify"]:
        raise click.UsageError("--rectify corrects right views, which --volume does not use.")
    if params["disparities"] != "auto" or params["paper_labels"]:
        raise click.UsageError(
            "A cost volume has a fixed number of labels: leave out --disparities, --paper-labels."
        )
    if not any(place in volume for place in ("{name", "{stem", "{dir")):
        raise click.UsageError(
            f"'{volume}' would be the costs of all pairs: write {{name}} for the name of the pair."
        )


def _infer_pairs(params: dict[str, Any]) -> None:
    """Match many pairs, with the parameters of `hstereo infer`."""
    compile_beside(params["device"], params["threads"])
    from ..batch.pairs import sharded
    from ..batch.places import folder_of_results
    from ..batch.work import PairWork
    from ..options import MatchOptions
    from ..stereo import Stereo

    source = _source(params)
    outputs = _outputs(params)
    total = source.count()  # which finds a faulty line of a list before the work, not after it
    if total == 0:
        raise _nothing_found(params, source)
    folder = folder_of_results(params["out_dir"])
    for output in outputs:
        output.check(folder)
    remote = wants_engine(params["scheduler"], params["workers"])
    if params["return_results"] and not remote:
        raise click.UsageError("--return-results is about workers: give --scheduler or --workers.")
    stereo = Stereo(params["model"], params["device"], params["threads"])
    announce_device(params["device"])
    views = asked_views(params)
    views.check_many(params["volume"], params["ply"])
    others = [field.name for field in fields(MatchOptions) if field.name not in views.matching]
    options = MatchOptions(**{name: params[name] for name in others}, **views.matching)
    method = str(options.resolved(stereo.model.config).method)
    if params["save_volume_crf"] is not None and method != "crf":
        raise InputError(
            "There are no costs after the CRF with `method=argmax`",
            "Use `method=crf` or leave out `save_volume_crf`",
        )
    work = PairWork(
        folder,
        outputs,
        options,
        rectify=params["rectify"],
        scale=SCALES[params["scale"]],
        max_memory=params["max_memory"],
        check=params["check"],
        strict=params["strict"],
        skip_existing=params["skip_existing"],
        costs=params["volume"],
        costs_scale=params["volume_scale"],
        rig=depth_request(params).source,
        keep=partial(_kept, params["model"], method),
    )
    pairs: Iterable[Any] = source
    if params["shard"] is not None:
        index, count = params["shard"]
        pairs = sharded(source, index, count)
        total = None if total is None else len(range(index - 1, total, count))
    run = partial(_on_workers, params) if remote else partial(_here, stereo)
    tell_pairs(partial(run, pairs, work), total, params["as_json"], params["quiet"])


def _here(
    stereo: Stereo, pairs: Iterable[Any], work: PairWork, tell: Tell
) -> Generator[PairOutcome, None, None]:
    """Match pairs in this process."""
    from ..batch.run import run_pairs

    yield from run_pairs(stereo, pairs, work)


def _on_workers(
    params: dict[str, Any], pairs: Iterable[Any], work: PairWork, tell: Tell
) -> Generator[PairOutcome, None, None]:
    """Match pairs on the workers that the parameters name."""
    from ..batch.remote import PairJob, run_pairs_on

    job = PairJob(params["model"], params["device"], work, params["return_results"])
    with opened_engine(params["scheduler"], params["workers"], params["threads"], tell) as engine:
        assert engine is not None  # somebody asked for workers
        yield from run_pairs_on(engine, pairs, job)


def _source(params: dict[str, Any]) -> PairSource:
    """The pairs that the user means."""
    from ..batch import folders, lists

    pairs, left, right = params["pairs"], params["left"], params["right"]
    if pairs == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise InputError("standard input is a terminal, not a list", "Pipe a list into it")
        return lists.streamed_pairs(sys.stdin.buffer)
    if pairs is not None:
        if os.path.isdir(pairs):
            return folders.pairs_below(pairs, without=params["out_dir"])
        return lists.listed_pairs(pairs)
    if folders.is_pattern(left) or folders.is_pattern(right):
        return folders.pairs_of_patterns(left, right)
    if os.path.isdir(left) or os.path.isdir(right):
        return folders.pairs_of_folders(left, right)
    return lists.single_pair(left, right)


def _nothing_found(params: dict[str, Any], source: PairSource) -> InputError:
    from ..batch import folders, lists

    listed = params["pairs"] is not None and not os.path.isdir(params["pairs"])
    return InputError(
        f"There are no pairs in {source.described}",
        lists.EXPECTED if listed else folders.EXPECTED,
    )


def _outputs(params: dict[str, Any]) -> tuple[Output, ...]:
    """The files that every pair gets."""
    from ..batch.outputs import (
        NAME,
        ColorFile,
        ConfidenceFile,
        CostsFile,
        DepthFile,
        DisparityFile,
        MinorantFile,
        PointsFile,
        ValidityFile,
    )

    maps = list(params["maps"])
    if not maps:
        maps = [f"{NAME}.{suffix}" for suffix in dict.fromkeys(params["formats"] or ["pfm"])]
    outputs: list[Output] = [DisparityFile(pattern) for pattern in maps]
    if params["color"] is not None:
        outputs.append(ColorFile(params["color"], params["color_range"], params["scale_bar"]))
    if params["confidence"] is not None:
        outputs.append(ConfidenceFile(params["confidence"]))
    if params["valid"] is not None:
        outputs.append(ValidityFile(params["valid"]))
    if params["save_volume"] is not None:
        outputs.append(CostsFile(params["save_volume"]))
    if params["save_volume_crf"] is not None:
        outputs.append(MinorantFile(params["save_volume_crf"]))
    if params["depth"] is not None:
        outputs.append(DepthFile(params["depth"]))
    if params["ply"] is not None:
        outputs.append(PointsFile(params["ply"], params["max_depth"]))
    if params["view"] == "both":
        shown = (DisparityFile, ColorFile, ConfidenceFile, ValidityFile)
        outputs += [
            replace(output, pattern=right_name(output.pattern), of_right=True)
            for output in outputs
            if isinstance(output, shown)
        ]
    names = [output.pattern for output in outputs]
    if len(set(names)) < len(names):
        raise click.UsageError("Two outputs have the same name.")
    return tuple(outputs)


def _kept(model: str, method: str, stereo: Stereo, result: StereoResult) -> dict[str, Any]:
    """What is told of a result."""
    return infer_report(stereo, result, model, method, {}, [], None)
