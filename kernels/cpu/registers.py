"""How wide the vector registers are that kernels should use, by the kind of CPU.

Kinds of CPU are those that Numba compiles for: this machine's, unless the environment
(``NUMBA_CPU_NAME``, ``NUMBA_CPU_FEATURES``) says otherwise.
"""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm
from numba.core.registry import cpu_target

__all__ = ["register_bytes"]

# They have registers of 64 bytes, but do every operation on them as two: wider vectors would only
# take more memory.
_HALVING = frozenset({"znver4"})

_WIDEST = 64
_COMMON = 32  # AVX2; where registers are narrower LLVM splits the vectors

_PROBE = """
define <16 x float> @probe(<16 x float> %a) {
  %b = fadd <16 x float> %a, %a
  ret <16 x float> %b
}
"""


@cache
def register_bytes() -> int:
    """Bytes of the vectors that kernels should use: 64 where AVX-512 is one operation, else 32.

    The CPU must have such registers by its name and by its features, as Numba adds those of this
    machine to another one's name.
    """
    triple, name, features = cpu_target.target_context.codegen().magic_tuple()
    if name in _HALVING or not triple.startswith("x86_64"):
        return _COMMON
    wide = all(_adds_widest(triple, name, given) for given in ("", features))
    return _WIDEST if wide else _COMMON


def _adds_widest(triple: str, name: str, features: str) -> bool:
    """Whether LLVM, which knows all kinds of CPU, adds 64 bytes in one register."""
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=name, features=features)
    with llvm.create_context() as context, llvm.parse_assembly(_PROBE, context) as module:
        return "zmm" in machine.emit_assembly(module)
