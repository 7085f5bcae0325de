"""The model written down once more, slowly: the oracle for every backend.

Plain loops in float64, straight from the equations of the specification (section numbers in
the headings), independent of ``hybridstereo``. Only the innermost channel or label axis is
vectorised. Shapes: images and features (H, W, C), volumes (H, W, K), chains (N, K), kernels
(out, in, kh, kw) applied as true convolutions. Edge weights are (H, W): ``wx[y, x]`` belongs to
the edge to (y, x+1), ``wy[y, x]`` to the edge to (y+1, x); the last column of ``wx`` and the
last row of ``wy`` belong to no edge and are 0. The jump penalties satisfy 0 <= p1 <= p2.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]  # float32 is accepted, the results are float64
Labels = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Layer = tuple[Array, Array]  # kernel, bias
AnyLayer = tuple[Array, Array | None]
Padding = int | tuple[int, int]  # the same on all sides, or (top and left, bottom and right)

Function = TypeVar("Function", bound=Callable[..., Any])


def widen(value: Any) -> Any:
    """`value` with every floating point array in it as float64."""
    if isinstance(value, list | tuple):
        return type(value)(widen(item) for item in value)
    if isinstance(value, np.ndarray | np.floating) and value.dtype.kind == "f":
        return value.astype(np.float64, copy=False) if value.ndim else float(value)
    return value


def in_float64(function: Function) -> Function:
    """Compute in float64 whatever a backend's test passes in."""

    @functools.wraps(function)
    def widened(*args: Any, **kwargs: Any) -> Any:
        return function(*widen(args), **{name: widen(value) for name, value in kwargs.items()})

    return cast(Function, widened)


# ---------------------------------------------------------------- preprocessing (section 2)


def mirror(i: int, n: int) -> int:
    """Index into 0..n-1 with the border repeated: -1 -> 0, -2 -> 1, n -> n-1."""
    while not 0 <= i < n:
        i = -1 - i if i < 0 else 2 * n - 1 - i
    return i


def both_sides(p: Padding) -> tuple[int, int]:
    return (p, p) if isinstance(p, int) else p


@in_float64
def pad_mirror(image: Array, p: Padding) -> Array:
    H, W, C = image.shape
    before, after = both_sides(p)
    padded = np.empty((before + H + after, before + W + after, C))
    for y in range(padded.shape[0]):
        for x in range(padded.shape[1]):
            padded[y, x] = image[mirror(y - before, H), mirror(x - before, W)]
    return padded


@in_float64
def normalise(image: Array) -> Array:
    """Each channel to mean 0 and population standard deviation 1; a constant channel to 0."""
    result = np.zeros_like(image)
    for c in range(image.shape[2]):
        channel = image[:, :, c]
        # Not "std == 0": rounding of the mean can leave a constant channel a tiny deviation.
        if channel.min() < channel.max():
            result[:, :, c] = (channel - channel.mean()) / channel.std()
    return result


def xy_channels(Hp: int, Wp: int) -> Array:
    xy = np.empty((Hp, Wp, 2))
    for y in range(Hp):
        for x in range(Wp):
            xy[y, x] = (x - Wp / 2) / Wp, (y - Hp / 2) / Hp
    return xy


def unary_padding(layers: Sequence[AnyLayer]) -> tuple[int, int]:
    """Padding that gives features of the image's size: half of what the kernels consume.

    An odd total (not in the specification: an even number of layers, e.g. 3x3 then one 2x2)
    puts the extra pixel at the bottom and right.
    """
    total = sum(weight.shape[2] - 1 for weight, _ in layers)
    return total // 2, total - total // 2


@in_float64
def preprocess(image: Array, layers_pad: Padding, with_xy: bool) -> Array:
    padded = normalise(pad_mirror(image, layers_pad))
    if with_xy:
        padded = np.concatenate([padded, xy_channels(*padded.shape[:2])], axis=2)
    return padded


# ---------------------------------------------------------------- CNN (sections 1 and 3)


@in_float64
def conv(x: Array, weight: Array, bias: Array | None) -> Array:
    """Valid true convolution."""
    out, _, kh, kw = weight.shape
    y = np.zeros((x.shape[0] - kh + 1, x.shape[1] - kw + 1, out))
    if bias is not None:
        y += bias
    for a in range(kh):
        for b in range(kw):
            tap = np.ascontiguousarray(weight[:, :, a, b])
            for r in range(y.shape[0]):
                for c in range(y.shape[1]):
                    y[r, c] += tap @ x[r + (kh - 1) - a, c + (kw - 1) - b]
    return y


@in_float64
def conv_backward(x: Array, weight: Array, dy: Array) -> tuple[Array, Array, Array]:
    """dL/dy -> dL/dx, dL/dweight, dL/dbias: every product of `conv`, once for each factor."""
    _, _, kh, kw = weight.shape
    dx = np.zeros(x.shape)
    dweight = np.zeros(weight.shape)
    dbias = np.zeros(weight.shape[0])
    for r in range(dy.shape[0]):
        for c in range(dy.shape[1]):
            dbias += dy[r, c]
            for a in range(kh):
                for b in range(kw):
                    source = r + (kh - 1) - a, c + (kw - 1) - b
                    dx[source] += weight[:, :, a, b].T @ dy[r, c]
                    dweight[:, :, a, b] += np.outer(dy[r, c], x[source])
    return dx, dweight, dbias


@in_float64
def tanh(x: Array) -> Array:
    return np.tanh(x)


@in_float64
def conv_tanh(x: Array, weight: Array, bias: Array | None) -> Array:
    return tanh(conv(x, weight, bias))


@in_float64
def conv_tanh_backward(x: Array, weight: Array, y: Array, dy: Array) -> tuple[Array, Array, Array]:
    """With ``y = conv_tanh(x, weight, bias)``: dL/dy -> dL/dx, dL/dweight, dL/dbias."""
    return conv_backward(x, weight, dy * (1 - y**2))


@in_float64
def unary_features(image01: Array, layers: Sequence[Layer], with_xy: bool) -> Array:
    x = preprocess(image01, unary_padding(layers), with_xy)
    for weight, bias in layers:
        x = conv_tanh(x, weight, bias)
    return x


@in_float64
def unary_features_backward(
    image01: Array, layers: Sequence[Layer], with_xy: bool, dphi: Array
) -> list[Layer]:
    """dL/dphi -> (dL/dweight, dL/dbias) of each layer."""
    activations = [preprocess(image01, unary_padding(layers), with_xy)]
    for weight, bias in layers:
        activations.append(conv_tanh(activations[-1], weight, bias))
    gradients: list[Layer] = []
    dy = dphi
    for i in reversed(range(len(layers))):
        dy, dweight, dbias = conv_tanh_backward(
            activations[i], layers[i][0], activations[i + 1], dy
        )
        gradients.insert(0, (dweight, dbias))
    return gradients


# ---------------------------------------------------------------- matching (section 4)


def label_count(disp_min: float, disp_max: float, step: float) -> int:
    """Number of labels K: the next power of two, at most 256."""
    n = math.floor((disp_max - disp_min) / step) + 1
    power = 1
    while power < n:
        power *= 2
    return min(256, power)


def neighbours(position: float, W: int) -> list[tuple[int, float]]:
    """Columns and weights that interpolate linearly at `position`; none outside [0, W-1]."""
    if not 0 <= position <= W - 1:
        return []
    left = math.floor(position)
    t = position - left
    return [(left, 1.0)] if t == 0 else [(left, 1 - t), (left + 1, t)]


@in_float64
def scores(phi0: Array, phi1: Array, disparities: npt.ArrayLike) -> Array:
    disparities = np.asarray(disparities, np.float64)
    H, W, _ = phi0.shape
    s = np.zeros((H, W, len(disparities)))
    for y in range(H):
        for x in range(W):
            for k, d in enumerate(disparities):
                for column, share in neighbours(x - d, phi1.shape[1]):
                    s[y, x, k] += share * (phi0[y, x] @ phi1[y, column])
    return s


@in_float64
def scores_backward(
    phi0: Array, phi1: Array, disparities: npt.ArrayLike, ds: Array
) -> tuple[Array, Array]:
    """dL/ds -> dL/dphi0, dL/dphi1."""
    disparities = np.asarray(disparities, np.float64)
    H, W, _ = phi0.shape
    dphi0 = np.zeros(phi0.shape)
    dphi1 = np.zeros(phi1.shape)
    for y in range(H):
        for x in range(W):
            for k, d in enumerate(disparities):
                for column, share in neighbours(x - d, W):
                    dphi0[y, x] += ds[y, x, k] * share * phi1[y, column]
                    dphi1[y, column] += ds[y, x, k] * share * phi0[y, x]
    return dphi0, dphi1


@in_float64
def softmax(s: Array) -> Array:
    """Over the last axis."""
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@in_float64
def softmax_backward(p: Array, dp: Array) -> Array:
    """With ``p = softmax(s)``: dL/dp -> dL/ds."""
    return p * (dp - (p * dp).sum(axis=-1, keepdims=True))


@in_float64
def mutual_cost(s: Array, disparities: npt.ArrayLike, V: int) -> Array:
    """``-sqrt(p0 p1)``: p0 over the labels of a left pixel, p1 over those of a right one.

    Label k of left pixel x matches the right pixel nearest to x - d, the right one of two; where
    that is outside, ``-p0`` stays.
    """
    H, W, K = s.shape
    f = -softmax(s)
    for y in range(H):
        matches: dict[int, list[tuple[int, int]]] = {}
        for x, k in np.ndindex(W, K):
            r = math.floor(x - np.asarray(disparities, np.float64)[k] + 0.5)
            if 0 <= r < V:
                matches.setdefault(r, []).append((x, k))
        for of_right in matches.values():
            p1 = softmax(np.array([s[y, x, k] for x, k in of_right]))
            for (x, k), p in zip(of_right, p1, strict=True):
                f[y, x, k] = -math.sqrt(-f[y, x, k] * p)
    return f


@in_float64
def upsampled(coarse: Array, shape: tuple[int, int, int]) -> Array:
    """Costs (H', W', K') of a half-size level at the size (H, W, K) of the finer one.

    Pixel centres of the finer level lie at ``(i + 1/2) / 2 - 1/2`` of the coarse one, beyond whose
    border its last pixel is repeated; label k of the finer level reads k / 2.
    """

    def interpolated(values: Array, positions: Array, axis: int) -> Array:
        positions = np.clip(positions, 0, values.shape[axis] - 1)
        below = np.floor(positions).astype(int)
        above = np.minimum(below + 1, values.shape[axis] - 1)
        share = (positions - below).reshape([-1 if i == axis else 1 for i in range(3)])
        return (1 - share) * values.take(below, axis) + share * values.take(above, axis)

    for axis in (0, 1):
        coarse = interpolated(coarse, (np.arange(shape[axis]) + 0.5) / 2 - 0.5, axis)
    return interpolated(coarse, np.arange(shape[2]) / 2, 2)


def unary_cost(s: Array) -> Array:
    return -softmax(s)


@in_float64
def unary_cost_backward(
    phi0: Array, phi1: Array, disparities: npt.ArrayLike, df: Array
) -> tuple[Array, Array]:
    """dL/df of ``f = unary_cost(scores(...))`` -> dL/dphi0, dL/dphi1."""
    p = softmax(scores(phi0, phi1, disparities))
    return scores_backward(phi0, phi1, disparities, softmax_backward(p, -df))


# ---------------------------------------------------------------- edge weights (section 5)


@in_float64
def luma(image01: Array) -> Array:
    return 0.2989 * image01[:, :, 0] + 0.5870 * image01[:, :, 1] + 0.1140 * image01[:, :, 2]


@in_float64
def gaussian_smooth(grey: Array, sigma: float = 0.7) -> Array:
    """Normalised taps within ceil(3 sigma) (7 for sigma 0.7), borders clamped."""
    radius = math.ceil(3 * sigma)
    taps = [math.exp(-(i**2) / (2 * sigma**2)) for i in range(-radius, radius + 1)]
    H, W = grey.shape
    smooth = np.zeros((H, W))
    for y in range(H):
        for x in range(W):
            for i in range(-radius, radius + 1):
                for j in range(-radius, radius + 1):
                    row, column = min(max(y + i, 0), H - 1), min(max(x + j, 0), W - 1)
                    smooth[y, x] += taps[i + radius] * taps[j + radius] * grey[row, column]
    return smooth / sum(taps) ** 2


def grid_edges(H: int, W: int) -> Iterator[tuple[int, tuple[int, int], tuple[int, int]]]:
    """All edges as (0 for wx or 1 for wy, first pixel, second pixel)."""
    for y in range(H):
        for x in range(W):
            if x + 1 < W:
                yield 0, (y, x), (y, x + 1)
            if y + 1 < H:
                yield 1, (y, x), (y + 1, x)


@in_float64
def contrast_weights(image01: Array, lam: float, alpha: float, beta: float) -> tuple[Array, Array]:
    g = gaussian_smooth(luma(image01))
    w = np.zeros((2, *g.shape))
    for axis, p, q in grid_edges(*g.shape):
        w[(axis, *p)] = max(lam * math.exp(-alpha * abs(g[p] - g[q]) ** beta), 1e-6)
    return w[0], w[1]


@in_float64
def pairwise_input(image01: Array, p: Padding) -> Array:
    """The left image normalised for the Unary-CNN, padding `p` included, with 2 px of padding.

    Padding by mirroring the interior again equals cropping a wider padding, and also covers
    networks that pad by less than 2.
    """
    H, W, _ = image01.shape
    before, _ = both_sides(p)
    normalised = preprocess(image01, p, with_xy=False)
    return pad_mirror(normalised[before : before + H, before : before + W], 2)


@in_float64
def pairwise_cnn_weights(
    image01: Array, layers: Sequence[AnyLayer], lam: float, p: Padding
) -> tuple[Array, Array]:
    """Layers (V1, b1), (V2, b2), (V3, None); `p` is the padding of the Unary-CNN."""
    (V1, b1), (V2, b2), (V3, b3) = layers
    h2 = conv_tanh(conv_tanh(pairwise_input(image01, p), V1, b1), V2, b2)
    w = lam * np.abs(conv(h2, V3, b3))
    w[:, -1, 0] = 0  # no edge there
    w[-1, :, 1] = 0
    return w[:, :, 0], w[:, :, 1]


@in_float64
def pairwise_cnn_backward(
    image01: Array,
    layers: Sequence[AnyLayer],
    lam: float,
    p: Padding,
    dwx: Array,
    dwy: Array,
) -> list[AnyLayer]:
    """dL/dwx, dL/dwy -> (dL/dV1, dL/db1), (dL/dV2, dL/db2), (dL/dV3, None)."""
    (V1, b1), (V2, b2), (V3, b3) = layers
    x = pairwise_input(image01, p)
    h1 = conv_tanh(x, V1, b1)
    h2 = conv_tanh(h1, V2, b2)
    dw = np.stack([dwx, dwy], axis=2)
    dw[:, -1, 0] = 0  # no edge there
    dw[-1, :, 1] = 0
    dh2, dV3, _ = conv_backward(h2, V3, lam * np.sign(conv(h2, V3, b3)) * dw)
    dh1, dV2, db2 = conv_tanh_backward(h1, V2, h2, dh2)
    _, dV1, db1 = conv_tanh_backward(x, V1, h1, dh1)
    return [(dV1, db1), (dV2, db2), (dV3, None)]


@in_float64
def rho(n: int, p1: float, p2: float) -> float:
    """Penalty of a jump by `n` labels."""
    return 0.0 if n == 0 else p1 if abs(n) == 1 else p2


@in_float64
def energy(f: Array, wx: Array, wy: Array, p1: float, p2: float, labels: npt.ArrayLike) -> float:
    """``sum_i f_i(x_i) + sum_ij w_ij rho(|x_i - x_j|)`` of a labelling."""
    x = np.asarray(labels, np.int64)
    H, W, _ = f.shape
    total = 0.0
    for p in np.ndindex(H, W):
        total += f[(*p, x[p])]
    for axis, p, q in grid_edges(H, W):
        total += (wx, wy)[axis][p] * rho(x[p] - x[q], p1, p2)
    return float(total)


# ---------------------------------------------------------------- Dual_MM (section 6)


@in_float64
def message(a: Array, p1: float, p2: float) -> Array:
    """``min_s a(s) + rho(|s - t|)`` for all t; `p1`, `p2` include the edge weight."""
    K = len(a)
    smallest = a.min()
    result = np.minimum(a, p2 + smallest)
    result[1:] = np.minimum(result[1:], p1 + a[: K - 1])
    result[: K - 1] = np.minimum(result[: K - 1], p1 + a[1:])
    return result


@in_float64
def cut(A: Array, B: Array, r: float, p1: float, p2: float) -> tuple[Array, Array]:
    """Replace the edge (a, b) by unary terms (m at a, m' at b), the optimum split r : 1-r."""
    m1 = message(A, p1, p2)
    m = message(r * (m1 + B) - m1, p1, p2)
    return m, message(-m, p1, p2)


@in_float64
def chain_minorant(c: Array, w: Array, p1: float, p2: float) -> Array:
    """Separable F with ``sum_i F_i(x_i) <= chain(x)`` and every min F_i = chain optimum / N."""
    N = len(c)
    if N == 1:
        return c.copy()
    M = c.copy()
    F = np.full(c.shape, np.nan)

    def step(source: int, target: int) -> None:
        """Pass the message of a node on to the next."""
        v = w[min(source, target)]
        M[target] = c[target] + message(M[source], v * p1, v * p2)

    def cut_between(first: list[int], second: list[int]) -> None:
        """Cut the edge between first[0] and second[0], then solve both parts."""
        a, b = first[0], second[0]
        v = w[min(a, b)]
        m_a, m_b = cut(M[a], M[b], len(first) / (len(first) + len(second)), v * p1, v * p2)
        for nodes, m in (first, m_a), (second, m_b):
            end = nodes[0]
            if len(nodes) == 1:
                F[end] = M[end] + m  # M, not c: it holds what came from outside
            else:
                M[end] = c[end] + m
                recurse(nodes)

    def recurse(nodes: list[int]) -> None:
        """Interval from the fresh end to the far end; M of the far half comes from there."""
        h1 = math.ceil(len(nodes) / 2)
        for i in range(1, h1):
            step(nodes[i - 1], nodes[i])
        cut_between(nodes[:h1][::-1], nodes[h1:])

    a = (N - 1) // 2
    for i in range(1, a + 1):
        step(i - 1, i)
    for i in range(N - 2, a, -1):
        step(i + 1, i)
    cut_between(list(range(a, -1, -1)), list(range(a + 1, N)))
    return F


@in_float64
def dual_mm(
    f: Array,
    wx: Array,
    wy: Array,
    p1: float,
    p2: float,
    iterations: float,
    start: Array | None = None,
) -> tuple[Array, list[float]]:
    """Final minorant and the lower bound after each half-iteration.

    An iteration is one sweep over the rows and one over the columns; N + 1/2 ends on the rows.
    ``start``: costs that the rows have at first, instead of f.
    """
    H, W, _ = f.shape
    C = f.copy() if start is None else start.copy()
    F = f.copy()
    bounds = []
    for sweep in range(round(2 * iterations)):
        if sweep % 2 == 0:
            for y in range(H):
                F[y] = chain_minorant(C[y], wx[y, : W - 1], p1, p2)
        else:
            for x in range(W):
                F[:, x] = chain_minorant(C[:, x], wy[: H - 1, x], p1, p2)
        bounds.append(float(F.min(axis=2).sum()))
        C = f - C + F
    return F, bounds


def read_out(F: Array) -> Labels:
    """The lowest of the best labels."""
    labels = np.empty(F.shape[:2], np.int64)
    for p in np.ndindex(*labels.shape):
        labels[p] = F[p].argmin()
    return labels


@in_float64
def read_out_ties(F: Array) -> Labels:
    """Tie rule of the published GPU program."""
    labels = np.empty(F.shape[:2], np.int64)
    for p in np.ndindex(*labels.shape):
        best = F[p].min()
        tied = [k for k, cost in enumerate(F[p]) if cost <= best + 1e-6 * abs(best)]
        first_block = min(k // 8 for k in tied)
        labels[p] = max(k for k in tied if k // 8 == first_block)
    return labels


@in_float64
def refine(F: Array, labels: npt.ArrayLike, dmin: float, step: float) -> Array:
    """Disparities with the sub-label refinement of section 7."""
    z = np.asarray(labels, np.int64)
    K = F.shape[2]
    disparity = dmin + step * z.astype(np.float64)
    for p in np.ndindex(*z.shape):
        if 0 < z[p] < K - 1:
            below, here, above = F[p][z[p] - 1 : z[p] + 2]
            slope = (below - above) / (2 * step)
            shift = slope / max(1e-3, (below - 2 * here + above) / step**2)
            disparity[p] += min(max(shift, -step), step)
    return disparity


# ---------------------------------------------------------------- exact minimisers


@in_float64
def brute_force_map(f: Array, wx: Array, wy: Array, p1: float, p2: float) -> tuple[Labels, float]:
    """Best labelling and its energy by trying all K^(H W): tiny grids only."""
    H, W, K = f.shape
    best, best_energy = np.zeros((H, W), np.int64), math.inf
    for candidate in itertools.product(range(K), repeat=H * W):
        labels = np.array(candidate).reshape(H, W)
        value = energy(f, wx, wy, p1, p2, labels)
        if value < best_energy:
            best, best_energy = labels, value
    return best, best_energy


@in_float64
def viterbi_chain(c: Array, w: Array, p1: float, p2: float) -> tuple[Labels, float]:
    """Best labelling of a chain and its energy by dynamic programming."""
    N, K = c.shape
    cost = c[0]
    previous = []
    for i in range(1, N):
        jump = np.array(
            [[cost[s] + w[i - 1] * rho(s - t, p1, p2) for s in range(K)] for t in range(K)]
        )
        previous.append(jump.argmin(axis=1))
        cost = c[i] + jump.min(axis=1)
    labels = [int(cost.argmin())]
    for choice in reversed(previous):
        labels.insert(0, int(choice[labels[0]]))
    return np.array(labels), float(cost.min())


# ---------------------------------------------------------------- losses (docs/training.md)


def soft_target(position: float, K: int) -> Array:
    """Linear weights on the two labels next to a sub-label position in [0, K-1]."""
    target = np.zeros(K)
    for k, share in neighbours(position, K):
        target[k] = share
    return target


@in_float64
def cross_entropy(
    s: Array, target: npt.ArrayLike, valid: Mask, soft: bool = False
) -> tuple[float, Array]:
    """Sum over valid pixels and dL/ds.

    `target` are label positions, possibly fractional: the nearest label counts (x.5 goes up), or
    with `soft` the two neighbours. ``-sum_k q(k) log p(k)`` with the target distribution q.
    """
    positions = np.asarray(target, np.float64)
    K = s.shape[2]
    loss = 0.0
    ds = np.zeros(s.shape)
    for p in np.ndindex(*valid.shape):
        if valid[p]:
            position = float(positions[p])
            q = soft_target(position if soft else math.floor(position + 0.5), K)
            probability = softmax(s[p])
            log_sum = s[p].max() + math.log(np.exp(s[p] - s[p].max()).sum())
            loss -= float(q @ (s[p] - log_sum))
            ds[p] = probability - q
    return loss, ds


@in_float64
def error_rate(
    s: Array, position: npt.ArrayLike, valid: Mask, tolerance: float, exponent: float
) -> tuple[float, Array]:
    """Sum of ``(1 - P^q) / q`` over valid pixels and dL/ds, with the exponent q.

    P is the probability, by the softmax of `s`, of the labels within `tolerance` of `position`; it
    counts as at least 1e-37.
    """
    positions = np.asarray(position, np.float64)
    loss = 0.0
    ds = np.zeros(s.shape)
    for p in np.ndindex(*valid.shape):
        if valid[p]:
            near = np.array([abs(k - positions[p]) <= tolerance for k in range(s.shape[2])])
            probability = softmax(s[p])
            right = max(float(probability[near].sum()), 1e-37)
            loss += (1 - right**exponent) / exponent
            ds[p] = right ** (exponent - 1) * probability * (right - near)
    return loss, ds


@in_float64
def task_loss(labels: npt.ArrayLike, target: npt.ArrayLike, valid: Mask, tau: float) -> float:
    """``sum_valid min(|x_i - x*_i|, tau)``."""
    x, x_star = np.asarray(labels), np.asarray(target)
    return sum(min(abs(float(x[p] - x_star[p])), tau) for p in np.ndindex(*valid.shape) if valid[p])


@in_float64
def loss_augment(f: Array, target: npt.ArrayLike, valid: Mask, gamma: float, tau: float) -> Array:
    """Unaries ``f_i(k) - gamma min(|k - x*_i|, tau)`` on valid pixels."""
    x_star = np.asarray(target)
    augmented = f.copy()
    for p in np.ndindex(*valid.shape):
        if valid[p]:
            for k in range(f.shape[2]):
                augmented[(*p, k)] -= gamma * min(abs(k - float(x_star[p])), tau)
    return augmented


class CrfGradients(NamedTuple):
    df: Array
    dwx: Array
    dwy: Array
    dp1: float
    dp2: float


class Hinge(NamedTuple):
    loss: float
    bound: float  # of the loss-augmented problem
    xbar: Labels  # its labelling
    x_star: Labels  # the target, completed by xbar where it is unknown
    gradients: CrfGradients


@in_float64
def hinge_gradients(
    x_star: npt.ArrayLike,
    xbar: npt.ArrayLike,
    valid: Mask,
    f: Array,
    wx: Array,
    wy: Array,
    p1: float,
    p2: float,
) -> CrfGradients:
    """Subgradient at the minimiser `xbar`; pixels and edges without full target are left out."""
    good, bad = np.asarray(x_star, np.int64), np.asarray(xbar, np.int64)
    df, dw, dp1, dp2 = np.zeros(f.shape), np.zeros((2, *valid.shape)), 0.0, 0.0
    for p in np.ndindex(*valid.shape):
        if valid[p]:
            df[(*p, good[p])] += 1
            df[(*p, bad[p])] -= 1
    for axis, p, q in grid_edges(*valid.shape):
        if valid[p] and valid[q]:
            good_jump, bad_jump = abs(good[p] - good[q]), abs(bad[p] - bad[q])
            w = (wx, wy)[axis][p]
            dw[(axis, *p)] = rho(good_jump, p1, p2) - rho(bad_jump, p1, p2)
            dp1 += w * (int(good_jump == 1) - int(bad_jump == 1))
            dp2 += w * (int(good_jump > 1) - int(bad_jump > 1))
    return CrfGradients(df, dw[0], dw[1], float(dp1), float(dp2))


@in_float64
def hinge(
    f: Array,
    wx: Array,
    wy: Array,
    p1: float,
    p2: float,
    target: npt.ArrayLike,
    valid: Mask,
    gamma: float,
    tau: float,
    iterations: float,
    infer_unknown: bool = False,
) -> Hinge:
    """Structured hinge ``energy(x*) - bound of the augmented problem`` with Dual_MM.

    `target` are whole labels. Where it is unknown x* takes the label of xbar. The loss counts
    every edge, so it stays an upper bound and non-negative; its gradient leaves out the edges
    that touch an invalid pixel. With `infer_unknown` x* is the labelling read from the problem in
    which known pixels may not take another label, and every pixel and edge counts.
    """
    F, bounds = dual_mm(loss_augment(f, target, valid, gamma, tau), wx, wy, p1, p2, iterations)
    xbar = read_out(F)
    if infer_unknown:
        fixed = f.copy()
        for p in np.ndindex(*valid.shape):
            for k in range(f.shape[2]):
                if valid[p] and k != np.asarray(target)[p]:
                    fixed[(*p, k)] += 100.0
        elsewhere = read_out(dual_mm(fixed, wx, wy, p1, p2, iterations)[0])
    else:
        elsewhere = xbar
    x_star = np.where(valid, np.asarray(target), elsewhere).astype(np.int64)
    valid = valid | infer_unknown
    loss = energy(f, wx, wy, p1, p2, x_star) - bounds[-1]
    gradients = hinge_gradients(x_star, xbar, valid, f, wx, wy, p1, p2)
    return Hinge(loss, bounds[-1], xbar, x_star, gradients)


# ---------------------------------------------------------------- optimiser (docs/training.md)


def advance(
    W: Array, V: Array, G: Array, momentum: float, nesterov: bool, weight_decay: float
) -> tuple[Array, Array]:
    """The new velocity and the direction of the step."""
    G = G + weight_decay * W
    V = momentum * V + G
    return V, G + momentum * V if nesterov else V


@in_float64
def sgd_update(
    W: Array,
    V: Array,
    G: Array,
    lr: float,
    momentum: float,
    nesterov: bool,
    weight_decay: float,
) -> tuple[Array, Array]:
    """New parameters and velocity of SGD with momentum."""
    V, N = advance(W, V, G, momentum, nesterov, weight_decay)
    return W - lr * N, V


def product(A: Array, B: Array) -> Array:
    """The product of matrices (m, k) and (k, n)."""
    result = np.zeros((A.shape[0], B.shape[1]))
    for i, k in np.ndindex(*A.shape):
        result[i] += A[i, k] * B[k]
    return result


@in_float64
def orthogonal_factor(N: Array) -> Array:
    """Five Newton-Schulz steps from the matrix (m, n), its Frobenius norm brought to 1 before."""
    X = N / math.sqrt(sum(row @ row for row in N))
    for _ in range(5):
        A = product(X, X.T)
        X = 3.4445 * X + product(-4.7750 * A + 2.0315 * product(A, A), X)
    return X


@in_float64
def muon_update(
    W: Array,
    V: Array,
    G: Array,
    lr: float,
    momentum: float,
    nesterov: bool,
    weight_decay: float,
) -> tuple[Array, Array]:
    """New kernels (out, in, kh, kw) and velocity; the direction as a matrix (out, in*kh*kw)."""
    V, N = advance(W, V, G, momentum, nesterov, weight_decay)
    out, n = W.shape[0], W[0].size
    X = orthogonal_factor(N.reshape(out, n)).reshape(W.shape)
    return W - lr * math.sqrt(max(1, out / n)) * X, V


@in_float64
def normalised_update(
    b: Array, v: Array, g: Array, lr: float, momentum: float, nesterov: bool
) -> tuple[Array, Array]:
    """New biases (out,) and velocity; the direction divided by its root mean square."""
    v, n = advance(b, v, g, momentum, nesterov, 0.0)
    return b - lr * n / math.sqrt(sum(n * n) / len(n)), v
