"""How wide the vectors are that kernels use, and how they fetch, by the kind of CPU.

Kinds of CPU are those that Numba compiles for: this machine's, unless the environment
(``NUMBA_CPU_NAME``, ``NUMBA_CPU_FEATURES``) says otherwise.  Kept kernels are told apart by both
(``diskcache.py``).
"""

from __future__ import annotations

from llvmlite import binding
from numba import config
from numba.core.codegen import get_host_cpu_features

__all__ = [
    "AVX2_BYTES", "FETCHES_INTO_FIRST_LEVEL", "REGISTER_BYTES", "fetches_into_first_level",
    "register_bytes",
]  # fmt: skip

# What LLVM calls the CPUs that finish two multiply-adds of 64 bytes in a cycle: vectors of 32 bytes
# leave half of that unused.  Zen 4, and notebooks with AVX-512, finish as many numbers with either;
# there 32 bytes waste fewer lanes, take less memory and cross fewer cache lines.
_FULL_AVX512 = frozenset(
    ("skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "sapphirerapids",
     "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids", "znver5")
)  # fmt: skip

# On a Zen 5 the instruction that fetches a line into the second level brings lines beside it, and
# the line itself not: loading that takes 390 cycles afterwards, as if nothing had been fetched, and
# 45 after the instruction for the first level.
_NOT_INTO_SECOND_LEVEL = frozenset(("znver5",))

AVX2_BYTES = 32


def register_bytes(cpu: str, features: str) -> int:
    """Bytes of a vector on a CPU by LLVM's name, with features such as ``+avx2,-avx512f``.

    Where registers are narrower than AVX2's LLVM splits the vectors.
    """
    full = cpu in _FULL_AVX512 and "+avx512f" in features.split(",")
    return 2 * AVX2_BYTES if full else AVX2_BYTES


def fetches_into_first_level(cpu: str) -> bool:
    """Whether a CPU, by LLVM's name, must be told to fetch lines into its first level."""
    return cpu in _NOT_INTO_SECOND_LEVEL


_CPU = config.CPU_NAME or binding.get_host_cpu_name()

FETCHES_INTO_FIRST_LEVEL = fetches_into_first_level(_CPU)

REGISTER_BYTES = register_bytes(
    _CPU,
    get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES,
)
