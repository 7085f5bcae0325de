"""Data sets by name: KITTI, Middlebury, generated scenes, your own pairs, and mixtures of them.

Opening a data set finds its files; a pair is read when it is loaded::

    dataset = open_dataset("synthetic:1,middlebury:2", {"middlebury": "/data/middlebury"})
    training, validation = split(dataset, 0.2, seed=0)
    pair = dataset.load(training[0])
"""

from hybridstereo.datasets.pair import StereoPair
from hybridstereo.datasets.rectifying import rectified
from hybridstereo.datasets.registry import KINDS, NAMES, open_dataset, parse_roots
from hybridstereo.datasets.samples import Dataset, Sample
from hybridstereo.datasets.splits import split, split_named, take_out

__all__ = [
    "KINDS",
    "NAMES",
    "Dataset",
    "Sample",
    "StereoPair",
    "open_dataset",
    "parse_roots",
    "rectified",
    "split",
    "split_named",
    "take_out",
]
