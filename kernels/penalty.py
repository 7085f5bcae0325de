"""rho, the penalty of a jump between neighbouring labels (docs/model.md 5c), for both engines.

Another penalty is written here, in the messages of Dual_MM (`_msg` in ``cpu/messages.py``,
`message` in ``cuda/chains.py``), in their gradients (``cpu/chain_gradients.py``, which has messages
of its own, and ``cuda/chain_gradients.py``) and in ``tests/naive.py``.
"""

from __future__ import annotations

from typing import Any

from numba.extending import register_jitable

__all__ = ["rho", "rho_slopes"]


@register_jitable
def rho(jump: Any, p1: Any, p2: Any) -> Any:
    """The penalty of labels that differ by ``jump`` >= 0."""
    return 0.0 if jump == 0 else p1 if jump == 1 else p2


@register_jitable
def rho_slopes(jump: Any) -> Any:
    """Whether rho contains p1 and whether it contains p2: its derivatives; also of arrays."""
    return jump == 1, jump > 1
