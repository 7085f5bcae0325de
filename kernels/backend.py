"""The contract of a device: every operation that the model and its training use, typed.

`Backend` is the only list of operations.  Each is a function of the same name and parameters in
two twin files, ``<family>_cpu.py`` and ``<family>_cuda.py``; `build` collects those of one engine.
To add an operation, add a method here and a function to both twins: a test compares the three.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

if TYPE_CHECKING:
    import numpy as np

# A NumPy array on the CPU, a `cudalib.DeviceArray` on a GPU.
Array = Any

Item = TypeVar("Item")
Result = TypeVar("Result")

# The stems of the twin files, in the order of the pipeline.
FAMILIES = ("conv", "correlation", "mutual", "pyramid", "edges", "dualmm", "losses", "optim")


class CrfGradients(NamedTuple):
    """Gradients of what the CRF depends on: costs (H, W, K), edge weights (H, W), penalties."""

    df: Array
    dwx: Array
    dwy: Array
    dp1: float
    dp2: float


class Runtime(Protocol):
    """Where arrays live and how work is scheduled.

    Arrays stay on the device between operations.  On the CPU, `to_device` and `to_host` return
    their argument.
    """

    @property
    def name(self) -> str:
        """The device, as `select` takes it."""

    def to_device(self, array: Array) -> Array:
        """Copy a NumPy array to the device; an array that is already there is returned as is."""

    def to_host(self, array: Array) -> np.ndarray:
        """Wait for the array and return it as a NumPy array."""

    def empty(self, shape: Sequence[int], dtype: Any) -> Array:
        """Uninitialised array on the device."""

    def synchronize(self) -> None:
        """Wait for all queued work."""

    def free_memory(self) -> int | None:
        """Bytes that can be allocated on the device; None on the CPU or if unknown."""

    def side_by_side(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> list[Result]:
        """``[function(item) for item in items]``, several at once where that is faster."""

    def calls_at_once(self, item_count: int) -> int:
        """How many of ``item_count`` calls `side_by_side` makes concurrently."""

    @property
    def queues(self) -> int:
        """How many threads gain from an `own_queue` at the same time; 1 on the CPU."""

    def own_queue(self) -> AbstractContextManager[None]:
        """Queue the work of this thread apart from that of others, inside the block.

        Arrays made inside are for this thread; those from outside must not be written.  On the CPU
        nothing is queued.
        """

    def network_bands(self, height: int, weights: Sequence[Array]) -> list[tuple[int, int]]:
        """Rows (first, last + 1) of a network's results that may be computed one by one."""


class Backend(Runtime, Protocol):
    """The operations of one device, in the order in which the model and its training use them.

    H, W: rows and columns; C: channels; K: number of labels.  Arguments and results are described
    in full in the CPU twins.
    """

    # ---------------------------------------------------------------- conv: both CNNs

    def conv_forward(self, x: Array, weight: Array, bias: Array | None, activate: bool) -> Array:
        """Valid convolution, bias and optional tanh: x (H, W, I), weight (O, I, kh, kw), bias (O,).

        Returns y (H - kh + 1, W - kw + 1, O).
        """

    def network_forward(
        self,
        images: Sequence[Array],
        layers: Sequence[tuple[Array, Array | None]],
        activate_last: bool,
        rows: tuple[int, int] | None = None,
    ) -> list[Array]:
        """`conv_forward` of all layers (weight, bias), with tanh in between, of images (H, W, I).

        ``rows`` of the results only, if given: one of `network_bands`.
        """

    def conv_backward(
        self,
        dy: Array,
        x: Array,
        weight: Array,
        y: Array | None,
        activate: bool,
        need_dx: bool = True,
    ) -> tuple[Array | None, Array, Array]:
        """dx (or None), dweight and dbias from dy; ``y`` is only needed with tanh."""

    # ---------------------------------------------------------------- correlation: unary costs

    def correlation_forward(
        self,
        left: Array,
        right: Array,
        disparities: np.ndarray,
        costs: Array | None = None,
        log_sums: Array | None = None,
    ) -> Array:
        """Costs f (H, W, K), the negated softmax of the scores: features (H, W, C), (H, V, C).

        ``disparities`` (K,), one per label, ascending and equally spaced.  If given, ``costs``
        receives the result, and ``log_sums`` (H, W) the logarithm of what the softmax divides by.
        """

    def softmax_backward(self, f: Array, df: Array) -> Array:
        """Gradient of the scores from that of the costs; all (H, W, K)."""

    def scores_backward(
        self, ds: Array, left: Array, right: Array, disparities: np.ndarray
    ) -> tuple[Array, Array]:
        """dleft and dright (H, W, C) from the gradient ds (H, W, K) of the scores."""

    # ---------------------------------------------------------------- mutual: both views' softmax

    def mutual_forward(
        self, f: Array, log_sums: Array, right_width: int, disparities: np.ndarray
    ) -> Array:
        """Bring the right view's softmax into f (H, W, K); right_log_sums (H, right_width)."""

    def mutual_backward(
        self,
        f: Array,
        df: Array,
        log_sums: Array,
        right_log_sums: Array,
        disparities: np.ndarray,
    ) -> Array:
        """Gradient of the scores from that of such costs; both (H, W, K)."""

    # ---------------------------------------------------------------- pyramid: coarse costs

    def upsample_forward(
        self, fine: Array, coarse: Array, weight: float, in_place: bool = True
    ) -> Array:
        """``fine + weight * up(coarse)``: fine (H, W, K), coarse (H / 2, W / 2, K // 2 + 1)."""

    def upsample_backward(self, dfine: Array, coarse: Array, weight: float) -> tuple[Array, float]:
        """dcoarse and dweight from the gradient dfine (H, W, K) of the sum."""

    # ---------------------------------------------------------------- edges: pairwise weights

    def contrast_weights(
        self, image: Array, scale: float, alpha: float, beta: float
    ) -> tuple[Array, Array]:
        """Weights wx, wy (H, W) from the contrast of the image (H, W, 3), RGB in [0, 1]."""

    def magnitude_forward(self, linear: Array, scale: float) -> tuple[Array, Array]:
        """Weights wx, wy (H, W), ``scale * |linear|`` of the network's output (H, W, 2)."""

    def magnitude_backward(self, dwx: Array, dwy: Array, linear: Array, scale: float) -> Array:
        """Gradient (H, W, 2) of ``linear`` from those of the weights."""

    # ---------------------------------------------------------------- dualmm: the CRF

    def dual_mm(
        self,
        f: Array,
        wx: Array,
        wy: Array,
        p1: float,
        p2: float,
        iterations: int,
        row_label_map: Array | None = None,
        costs: Array | None = None,
    ) -> tuple[Array, np.ndarray]:
        """Minorant (H, W, K) and lower bounds (2 * iterations,): f (H, W, K); wx, wy (H, W).

        ``row_label_map``, int32 (H, W), receives the argmin of the last row sweep; ``costs``
        (H, W, K), those of the rows to begin with, the costs of the last column sweep.
        """

    def dual_mm_backward(
        self,
        f: Array,
        wx: Array,
        wy: Array,
        p1: float,
        p2: float,
        iterations: int,
        dminorant: Array,
    ) -> CrfGradients:
        """Gradients of the arguments of `dual_mm` from that of the minorant (H, W, K)."""

    def carry_into(self, costs: Array, f: Array, minorant: Array, share: float) -> None:
        """``costs = f + share * (minorant - costs)``: a start for another problem with f."""

    def argmin(self, volume: Array) -> Array:
        """Label of smallest cost, the lowest on ties: (H, W, K) -> int32 (H, W)."""

    def read_out(self, minorant: Array) -> Array:
        """Dual_MM's solution, ties broken as the published program does: (H, W, K) -> (H, W)."""

    def energy(
        self, f: Array, wx: Array, wy: Array, p1: float, p2: float, label_map: Array
    ) -> float:
        """Energy of ``label_map``, int32 (H, W), in float64."""

    def refine(self, volume: Array, label_map: Array, step: float) -> Array:
        """Sub-label offsets in pixels, float32 (H, W); ``step`` is the disparity between labels."""

    # ---------------------------------------------------------------- losses: training
    # Ground truth, all (H, W): ``position``, the true label as a float; ``nearest``, rounded to
    # int32; ``valid``, where it is known.  ``valid_count`` is what gradients are divided by.

    def cross_entropy(
        self,
        f: Array,
        position: Array,
        nearest: Array,
        valid: Array,
        valid_count: int,
        soft: bool,
    ) -> tuple[float, Array]:
        """Mean cross-entropy and the gradient ds (H, W, K) of the scores: f (H, W, K).

        ``soft`` splits a sub-pixel truth between its two neighbouring labels.
        """

    def negated_softmax(self, volume: Array, factor: float) -> Array:
        """``-softmax(factor * volume)`` over the labels, as matching costs are: (H, W, K)."""

    def error_rate(
        self,
        f: Array,
        position: Array,
        valid: Array,
        valid_count: int,
        tolerance: float,
        exponent: float,
    ) -> tuple[float, Array]:
        """Mean of ``(1 - P^q) / q`` and the gradient ds (H, W, K) of the scores: f (H, W, K).

        P is the probability of the labels within the tolerance, q the exponent.
        """

    def augment_costs(
        self, f: Array, nearest: Array, valid: Array, gamma: float, tau: float
    ) -> Array:
        """Loss-augmented costs (H, W, K): ``f - gamma * min(|k - nearest|, tau)`` where valid."""

    def task_loss(self, label_map: Array, nearest: Array, valid: Array, tau: float) -> float:
        """Sum of ``min(|label_map - nearest|, tau)`` over valid pixels."""

    def count_bad_labels(
        self, label_map: Array, position: Array, valid: Array, threshold: float
    ) -> int:
        """Number of valid pixels whose label is off by more than ``threshold``."""

    def count_different(self, label_map: Array, other: Array) -> int:
        """Number of pixels at which two label maps (H, W) differ."""

    def complete_truth(self, nearest: Array, valid: Array, elsewhere: Array) -> Array:
        """``nearest`` where valid, the label map ``elsewhere`` at other pixels; int32 (H, W)."""

    def hinge_gradients(
        self,
        f: Array,
        wx: Array,
        wy: Array,
        p1: float,
        p2: float,
        truth: Array,
        worst: Array,
        active: Array,
        valid_count: int,
    ) -> CrfGradients:
        """Subgradients of the structured hinge between the label maps ``truth`` and ``worst``.

        ``active``, bool (H, W): pixels that contribute; edges do if both their pixels do.
        """

    # ---------------------------------------------------------------- optim: any shape, in place

    def squared_norm(self, array: Array) -> float:
        """Sum of the squares, in float64."""

    def scale_by(self, array: Array, factor: float) -> None:
        """``array *= factor``."""

    def divide_by(self, array: Array, divisor: float) -> None:
        """``array /= divisor``."""

    def add_to(self, target: Array, source: Array) -> None:
        """``target += source``."""

    def sgd_update(
        self,
        parameter: Array,
        velocity: Array,
        gradient: Array,
        lr: float,
        momentum: float,
        nesterov: bool,
        weight_decay: float,
    ) -> None:
        """One step of SGD with momentum; ``parameter`` and ``velocity`` change."""

    def muon_update(
        self,
        parameter: Array,
        velocity: Array,
        gradient: Array,
        lr: float,
        momentum: float,
        nesterov: bool,
        weight_decay: float,
    ) -> None:
        """`sgd_update` of kernels (O, I, kh, kw) along the orthogonal factor of the direction."""

    def normalised_update(
        self,
        parameter: Array,
        velocity: Array,
        gradient: Array,
        lr: float,
        momentum: float,
        nesterov: bool,
    ) -> None:
        """`sgd_update` along the direction divided by its root mean square."""


def operations() -> dict[str, Callable[..., Any]]:
    """The methods of `Backend` by name, in its order; those of `Runtime` are not operations."""
    return {
        name: member
        for name, member in vars(Backend).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }


class _Table:
    """The members of one backend, functions of modules as they are."""

    def __init__(self, members: dict[str, Any]) -> None:
        vars(self).update(members)

    def __repr__(self) -> str:
        return f"<backend {vars(self)['name']}>"


def table(members: dict[str, Any]) -> Backend:
    """A backend that consists of these members, by name."""
    return cast(Backend, _Table(members))


def build(engine: str, runtime: dict[str, Any]) -> Backend:
    """The backend of an engine, ``"cpu"`` or ``"cuda"``: its runtime and the twins' operations."""
    twins = [import_module(f".{family}_{engine}", __package__) for family in FAMILIES]
    found = {
        name: next(getattr(twin, name) for twin in twins if hasattr(twin, name))
        for name in operations()
    }
    return table(runtime | found)
