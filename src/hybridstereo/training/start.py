"""The model that a run starts with: a new one, or one that is there already, grown as asked."""

from __future__ import annotations

from ..errors import InputError
from ..model import PROVENANCE, PYRAMID, StereoModel, with_config
from ..models.zoo import load_model
from .grow import add_coordinates, deepen
from .options import TrainOptions
from .stages import new_model

_LAYERS = 3
# How much new levels of a pyramid count at first, beside the level before each.
_LEVEL_WEIGHTS = (0.25, 0.5)


def initial_model(options: TrainOptions) -> StereoModel:
    """The model before the first step.

    Raises
    ------
    StereoError
        If ``options.init`` cannot be read, or is not what the options need.
    """
    if options.init is not None:
        # The old model's description and provenance do not apply to the new one.
        unnamed = dict.fromkeys(("description", *PROVENANCE), "")
        model = with_config(load_model(options.init), **unnamed)
        if options.layers is not None:
            model = deepen(model, options.layers)
        if options.with_xy:
            model = add_coordinates(model)
        if options.keep_edges and not model.pairwise:
            raise InputError(
                f"{options.init} has no Pairwise-CNN whose edges could be kept",
                "Leave out `keep_edges`, or start from a result of stage full",
            )
        return _as_asked(model, options)
    if options.keep_edges:
        raise InputError(
            "A new model has no edges to keep", "Give `init`, or leave out `keep_edges`"
        )
    if options.stages[0] != "unary":
        raise InputError(
            f"Stage {options.stage} continues an earlier one",
            "Give the model to start from as `init`, or train with `stage=all`",
        )
    layers = _LAYERS if options.layers is None else options.layers
    model = new_model(layers, options.filters, options.with_xy, options.seed, options.iterations)
    return _as_asked(model, options)


def _as_asked(model: StereoModel, options: TrainOptions) -> StereoModel:
    """The model with the levels, the softmax and the labels that the options name."""
    if options.softmax is not None:
        model = with_config(model, softmax=options.softmax)
    return _with_labels(_with_levels(model, options.pyramid), options.disparities)


def _with_levels(model: StereoModel, levels: int | None) -> StereoModel:
    """The model with so many coarser levels; those that it has keep their weights."""
    if levels is None:
        return model
    weights = (*model.config.pyramid, *_LEVEL_WEIGHTS[len(model.config.pyramid) :])
    kept = (*weights[:levels], *(0.0 for _ in weights[levels:]))
    return with_config(model, **dict(zip(PYRAMID, kept, strict=True)))


def _with_labels(model: StereoModel, disparities: int | None) -> StereoModel:
    """The model, with the labels that it is trained with as its default, if they were given."""
    if disparities is None:
        return model
    trained = with_config(model, disparities=disparities)
    label_range = trained.config.label_range
    described = f"trained with the disparities {label_range.minimum:g} to {label_range.maximum:g}"
    return with_config(trained, description=described)
