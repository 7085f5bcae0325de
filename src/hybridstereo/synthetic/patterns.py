"""Random periodic tiles for synthetic scenes: from plain paint to brick, wood, print and books."""

from __future__ import annotations

import colorsys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..opencv import cv2

Image = NDArray[np.float32]
Array = NDArray[np.float64]
Rng = np.random.Generator
Pattern = Callable[[Rng, int], Image]

_GRADIENT_STEPS = 1024


def fractal_noise(rng: Rng, size: int, slope: float = 1.0, stretch: float = 1.0) -> Image:
    """Periodic noise (size, size), mean 0, deviation 1, with amplitudes falling as 1/f^slope.

    ``slope = 1`` is the spectrum of natural images; ``stretch > 1`` draws the structures out
    along the columns, like the grain of wood.
    """
    frequency = np.hypot(np.fft.fftfreq(size)[:, None] * stretch, np.fft.rfftfreq(size))
    frequency[0, 0] = np.inf  # no constant part
    amplitude = frequency.astype(np.float32) ** np.float32(-slope)
    parts = rng.standard_normal((2, *amplitude.shape), np.float32) * amplitude
    field = np.fft.irfft2(parts[0] + 1j * parts[1], (size, size))
    return np.asarray(field / field.std(), np.float32)


def random_palette(rng: Rng, count: int) -> Image:
    """Colours (count, 3) that go together: neighbouring or opposite hues, mixed brightness."""
    # As in most rooms: often warm (wood, skin, brick), sometimes blue, now and then anything.
    low, high = ((0.0, 0.15), (0.0, 0.15), (0.53, 0.66), (0.0, 1.0))[rng.integers(4)]
    hue = rng.uniform(low, high)
    spread = (0.03, 0.08, 0.5)[rng.integers(3)]
    saturation = rng.beta(1.8, 3.2)
    colours = []
    for value in rng.permutation(
        np.linspace(rng.uniform(0.15, 0.5), rng.uniform(0.6, 0.95), count)
    ):
        hue_here = (hue + spread * rng.uniform(-1.0, 1.0)) % 1.0
        saturation_here = float(np.clip(saturation * rng.uniform(0.5, 1.3), 0.0, 0.8))
        colours.append(colorsys.hsv_to_rgb(hue_here, saturation_here, value))
    return np.array(colours, np.float32)


def _gradient(values: NDArray[np.floating], colours: Image) -> Image:
    """Colours (..., 3) of ``values`` in [0, 1] along the polyline through ``colours``."""
    steps = np.linspace(0.0, 1.0, _GRADIENT_STEPS)
    stops = np.linspace(0.0, 1.0, len(colours))
    table = np.stack([np.interp(steps, stops, channel) for channel in colours.T], axis=-1)
    index = np.clip(values * (_GRADIENT_STEPS - 1), 0, _GRADIENT_STEPS - 1).astype(np.intp)
    return table.astype(np.float32)[index]


def _grid(size: int) -> tuple[Array, Array]:
    """Coordinates x (1, size) and y (size, 1) in [0, 1)."""
    steps = np.arange(size) / size
    return steps[None, :], steps[:, None]


def _plain(rng: Rng, size: int) -> Image:
    colour = random_palette(rng, 2)[0]
    return np.broadcast_to(colour, (size, size, 3)).copy()


def _clouds(rng: Rng, size: int) -> Image:
    noise = fractal_noise(rng, size, rng.uniform(0.8, 1.4))
    return _gradient(0.5 + 0.22 * noise, random_palette(rng, int(rng.integers(2, 5))))


def _marble(rng: Rng, size: int) -> Image:
    x, y = _grid(size)
    kx, ky = rng.integers(-3, 4), rng.integers(1, 5)
    phase = kx * x + ky * y + rng.uniform(0.2, 0.6) * fractal_noise(rng, size, 1.5)
    veins = np.abs(np.sin(np.pi * phase)) ** rng.uniform(0.4, 1.5)
    return _gradient(veins, random_palette(rng, 3))


def _wood(rng: Rng, size: int) -> Image:
    hue, value = rng.uniform(0.04, 0.12), rng.uniform(0.45, 0.9)
    light = colorsys.hsv_to_rgb(hue, rng.uniform(0.3, 0.6), value)
    dark = colorsys.hsv_to_rgb(hue, rng.uniform(0.5, 0.75), 0.45 * value)
    grain = fractal_noise(rng, size, 0.9, stretch=rng.uniform(8.0, 20.0))
    planks = int(2 ** rng.integers(1, 4))
    width = size // planks
    tint = rng.uniform(-0.15, 0.15, planks)
    for plank in range(planks):
        columns = slice(plank * width, (plank + 1) * width)
        grain[:, columns] = np.roll(grain[:, columns], rng.integers(size), axis=0)
    wood = _gradient(
        0.5 + 0.18 * grain + np.repeat(tint, width), np.array([dark, light], np.float32)
    )
    gap = max(width // 40, 1)
    wood.reshape(size, planks, width, 3)[:, :, :gap] *= 0.45
    return wood


def _bricks(rng: Rng, size: int) -> Image:
    rows = int(2 ** rng.integers(2, 5))
    columns = max(rows // 2, 1)
    x, y = _grid(size)
    row = (y * rows).astype(int)
    along = x * columns + 0.5 * (row % 2)
    column = along.astype(int) % columns
    joint = rng.uniform(0.04, 0.12)
    mortar = ((y * rows) % 1.0 < joint) | (along % 1.0 < joint / 2)
    colours = random_palette(rng, 3)
    tone = rng.uniform(0.0, 1.0, (rows, columns))
    wall = _gradient(tone[row, column], colours[:2])
    wall *= (1.0 + 0.08 * fractal_noise(rng, size, 0.8))[..., None]
    wall[mortar] = colours[2]
    return wall


def _tiles(rng: Rng, size: int) -> Image:
    count = int(2 ** rng.integers(2, 5))
    x, y = _grid(size)
    row, column = (y * count).astype(int), (x * count).astype(int)
    joint = rng.uniform(0.02, 0.06)
    grout = ((y * count) % 1.0 < joint) | ((x * count) % 1.0 < joint)
    colours = random_palette(rng, 3)
    checker = np.broadcast_to((row + column) % 2, (size, size)) * float(rng.integers(2))
    jitter = rng.uniform(0.0, rng.uniform(0.05, 0.4), (count, count))[row, column]
    floor = _gradient(np.clip(0.8 * checker + jitter, 0.0, 1.0), colours[:2])
    floor[grout] = colours[2]
    return floor


def _stripes(rng: Rng, size: int) -> Image:
    colours = random_palette(rng, int(rng.integers(2, 6)))
    repeats = int(2 ** rng.integers(1, 4))
    edges = np.sort(rng.uniform(0.0, 1.0, len(colours) - 1))
    x, y = _grid(size)
    band = np.searchsorted(edges, (repeats * x + rng.integers(0, 2) * repeats * y) % 1.0)
    return colours[np.broadcast_to(band, (size, size))]


def _dots(rng: Rng, size: int) -> Image:
    count = int(2 ** rng.integers(2, 5))
    x, y = _grid(size)
    dy = (y * count) % 1.0 - 0.5
    shift = 0.5 * ((y * count).astype(int) % 2)
    dx = (x * count + shift) % 1.0 - 0.5
    inside = dx * dx + dy * dy < rng.uniform(0.2, 0.4) ** 2
    colours = random_palette(rng, 2)
    return colours[inside.astype(int)]


def _weave(rng: Rng, size: int) -> Image:
    threads = int(2 ** rng.integers(3, 6))
    x, y = _grid(size)
    over = np.sin(2 * np.pi * threads * x) * np.sin(2 * np.pi * threads * y)
    irregular = 0.25 * fractal_noise(rng, size, 0.6)
    return _gradient(0.5 + 0.3 * over + irregular, random_palette(rng, 2))


def _cells(rng: Rng, size: int) -> Image:
    """Cobbles: Voronoi cells with dark joints."""
    seeds = rng.uniform(0.0, 1.0, (int(rng.integers(20, 60)), 2)).astype(np.float32)
    x, y = (axis.astype(np.float32) for axis in _grid(128))
    nearest = np.full((128, 128), np.float32(np.inf))
    second = nearest.copy()
    owner = np.zeros((128, 128), int)
    for index, (cx, cy) in enumerate(seeds):
        dx, dy = np.abs(x - cx), np.abs(y - cy)
        distance = np.hypot(np.minimum(dx, 1.0 - dx), np.minimum(dy, 1.0 - dy))
        closer = distance < nearest
        second = np.where(closer, nearest, np.minimum(second, distance))
        nearest = np.where(closer, distance, nearest)
        owner[closer] = index
    colours = random_palette(rng, 3)
    stones = _gradient(rng.uniform(0.0, 1.0, len(seeds)), colours[:2])[owner]
    joint = np.clip((second - nearest) / rng.uniform(0.01, 0.04), 0.0, 1.0)[..., None]
    mixed = (joint * stones + (1.0 - joint) * colours[2]).astype(np.float32)
    return cv2.resize(mixed, (size, size), interpolation=cv2.INTER_LINEAR)


def _collage(rng: Rng, size: int) -> Image:
    """A poster: overlapping discs, bars and frames on a soft background."""
    colours = random_palette(rng, 6)
    picture = _gradient(0.5 + 0.15 * fractal_noise(rng, size, 1.8), colours[:2])
    for _ in range(int(rng.integers(12, 40))):
        colour = tuple(float(c) for c in colours[rng.integers(1, 6)] * rng.uniform(0.7, 1.2))
        centre = rng.integers(0, size, 2)
        reach = rng.integers(size // 40 + 1, size // 6 + 2, 2)
        thickness = int(rng.choice([-1, -1, max(size // 80, 1)]))
        if rng.uniform() < 0.5:
            cv2.circle(picture, centre.tolist(), int(reach[0]), colour, thickness)
        else:
            corners = (centre - reach).tolist(), (centre + reach).tolist()
            cv2.rectangle(picture, *corners, colour, thickness)
    return picture


def _print(rng: Rng, size: int) -> Image:
    """Lines of small marks, like print: strong, but similar everywhere."""
    colours = random_palette(rng, 2)
    paper, ink = colours[np.argsort(-colours.sum(axis=1))]
    line = max(size // int(2 ** rng.integers(4, 6)), 4)
    ink_map = np.zeros((size, size), bool)
    for top in range(0, size, line):
        strokes = np.repeat(rng.uniform(size=(line * 2 // 3, size // 2)) < 0.55, 2, axis=1)
        words = np.repeat(rng.uniform(size=size // 8) < 0.82, 8)
        ink_map[top : top + line * 2 // 3, : words.size] = strokes[:, : words.size] & words
    return np.where(ink_map[..., None], ink, paper)


def _books(rng: Rng, size: int) -> Image:
    """Book spines side by side, each with a title bar or two."""
    shelf = np.empty((size, size, 3), np.float32)
    colours = np.concatenate([random_palette(rng, 4) for _ in range(3)])
    start = 0
    while start < size:
        width = min(int(rng.integers(size // 24 + 2, size // 8 + 3)), size - start)
        book = shelf[:, start : start + width]
        book[:] = colours[rng.integers(len(colours))] * rng.uniform(0.7, 1.1)
        for _ in range(int(rng.integers(1, 4))):
            top = int(rng.integers(0, size))
            title = book[top : top + int(rng.integers(size // 40 + 1, size // 5 + 2)), 1:-1]
            title[:] = colours[rng.integers(len(colours))]
        book[:, :1] *= 0.5
        start += width
    return shelf


# How often each pattern occurs, on objects and on walls and floors.
_OBJECT_PATTERNS: dict[Pattern, float] = {
    _plain: 1.5,
    _clouds: 2.0,
    _marble: 1.5,
    _wood: 2.0,
    _bricks: 1.2,
    _tiles: 1.2,
    _stripes: 1.0,
    _dots: 0.6,
    _weave: 1.0,
    _cells: 1.0,
    _collage: 2.0,
    _print: 0.8,
    _books: 1.0,
}
_WALL_PATTERNS: dict[Pattern, float] = {
    _plain: 1.5,
    _clouds: 1.5,
    _marble: 0.7,
    _wood: 2.5,
    _bricks: 1.5,
    _tiles: 1.5,
    _stripes: 0.7,
    _weave: 1.0,
    _cells: 0.7,
    _collage: 0.4,
}


def random_tile(rng: Rng, size: int, wall: bool = False) -> Image:
    """A random periodic RGB tile (size, size, 3): pattern, wear and grain, any contrast.

    Parameters
    ----------
    rng
        Source of randomness.
    size
        Side in texels, a power of two of at least 32.
    wall
        Whether it is for a wall or a floor: calmer, paler patterns.

    """
    patterns = _WALL_PATTERNS if wall else _OBJECT_PATTERNS
    weights = np.array(list(patterns.values()))
    pattern = list(patterns)[rng.choice(len(weights), p=weights / weights.sum())]
    # The patterns have hard edges; a slight blur keeps them from aliasing.
    wrapped = cv2.copyMakeBorder(pattern(rng, size), 3, 3, 3, 3, cv2.BORDER_WRAP)
    tile = cv2.GaussianBlur(wrapped, (0, 0), rng.uniform(0.6, 0.9))[3:-3, 3:-3]
    contrast = rng.uniform(0.1, 0.5) if rng.uniform() < 0.25 else 1.0
    saturation, darkness = rng.uniform((0.3, 0.55), 1.0) if wall else (1.0, 1.0)
    tile = _faded(np.asarray(tile, np.float32), contrast, saturation, darkness)
    # Real surfaces are never uniform: stains (coarse) and grain (fine).
    wear = rng.uniform(0.01, 0.07) * fractal_noise(rng, size, 1.3)
    wear += (0.01, 0.03, 0.07)[rng.integers(3)] * rng.standard_normal((size, size), np.float32)
    tile *= 1.0 + wear[..., None]
    return np.clip(tile, 0.02, 1.0, out=tile)


def plain_tile(rng: Rng, size: int) -> Image:
    """A periodic RGB tile (size, size, 3) with hardly any texture: asphalt, concrete, plaster.

    Parameters
    ----------
    rng
        Source of randomness.
    size
        Side in texels, a power of two of at least 32.

    """
    hue, saturation = rng.uniform(0.05, 0.65), 0.25 * rng.uniform() ** 2
    colour = np.array(colorsys.hsv_to_rgb(hue, saturation, rng.uniform(0.25, 0.85)), np.float32)
    stains = rng.uniform(0.005, 0.04) * fractal_noise(rng, size, rng.uniform(1.3, 2.0))
    grain = rng.uniform(0.004, 0.03) * rng.standard_normal((size, size), np.float32)
    return np.clip(colour * (1.0 + (stains + grain)[..., None]), 0.02, 1.0).astype(np.float32)


def _faded(tile: Image, contrast: float, saturation: float, darkness: float) -> Image:
    """Pull colours towards their mean, then towards grey, then towards white; 1 leaves them."""
    mean = tile.reshape(-1, 3).mean(axis=0)
    matrix = darkness * (saturation * np.eye(3) + (1.0 - saturation) / 3.0)
    offset = (1.0 - contrast) * (matrix @ mean) + (1.0 - darkness)
    affine = np.column_stack([contrast * matrix, offset])
    return np.asarray(cv2.transform(tile, affine), np.float32)
