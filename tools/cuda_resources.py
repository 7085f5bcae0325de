"""What compiling says about the CUDA kernels: registers, spills, occupancy, per architecture."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

import cuda_emulator

from hybridstereo.kernels.backend import FAMILIES
from hybridstereo.kernels.cuda import cudalib

ARCHITECTURES = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))


@dataclasses.dataclass(frozen=True)
class Resources:
    """What ptxas says about a kernel."""

    registers: int
    shared: int
    spills: int
    stack: int


@dataclasses.dataclass(frozen=True)
class Multiprocessor:
    """Limits of an SM (CUDA C++ Programming Guide, table of compute capabilities)."""

    threads: int
    blocks: int
    shared_kilobytes: int
    registers: int = 65536


MULTIPROCESSORS = {
    (7, 5): Multiprocessor(1024, 16, 64),
    (8, 0): Multiprocessor(2048, 32, 164),
    (8, 6): Multiprocessor(1536, 16, 100),
    (8, 9): Multiprocessor(1536, 24, 100),
    (9, 0): Multiprocessor(2048, 32, 228),
    (10, 0): Multiprocessor(2048, 32, 228),
    (12, 0): Multiprocessor(1536, 24, 100),
}


def occupancy(resources: Resources, threads: int, architecture: tuple[int, int]) -> float:
    """Share of an SM's threads that can be resident, by registers, shared memory and blocks."""
    sm = MULTIPROCESSORS[architecture]
    warps = -(-threads // 32)
    registers_per_warp = -(-resources.registers * 32 // 256) * 256
    limits = [sm.blocks, sm.threads // (warps * 32)]
    limits.append(sm.registers // max(registers_per_warp * warps, 1))
    # The driver keeps 1 kB per block for itself.
    limits.append(sm.shared_kilobytes * 1024 // (resources.shared + 1024))
    return min(limits) * warps * 32 / sm.threads


def find_ptxas() -> str:
    """The assembler of the installed nvidia wheels."""
    import nvidia

    for folder in nvidia.__path__:
        for found in sorted(Path(folder).rglob("bin/ptxas")):
            return str(found)
    raise SystemExit("ptxas is not here: install numba-cuda[cu12] or [cu13]")


def load_kernels() -> list[cudalib.Kernel]:
    for family in FAMILIES:
        importlib.import_module(f"hybridstereo.kernels.{family}_cuda")
    return cudalib.registered_kernels()


def assemble(index: int) -> list[Resources | str]:
    """Compile kernel ``index`` for all architectures; a string is what went wrong."""
    from numba import cuda
    from numba.core import sigutils

    function = load_kernels()[index]
    types, _ = sigutils.normalize_signature(f"void({function.signature})")
    results: list[Resources | str] = []
    for major, minor in ARCHITECTURES:
        with (
            cuda_emulator.load_ptxemu().fake_device((major, minor)),
            tempfile.TemporaryDirectory() as folder,
        ):
            source = Path(folder) / "kernel.ptx"
            try:
                ptx, _ = cuda.compile_ptx(function.py_func, types, cc=(major, minor))
            except Exception as error:  # whatever the compiler raises belongs into the report
                results.append(f"Numba: {error}")
                continue
            source.write_text(ptx)
            done = subprocess.run(
                [find_ptxas(), "-v", f"-arch=sm_{major}{minor}", str(source), "-o", os.devnull],
                capture_output=True,
                text=True,
            )
        results.append(parse_ptxas(done.stderr) if done.returncode == 0 else done.stderr.strip())
    return results


def parse_ptxas(text: str) -> Resources:
    def number(pattern: str) -> int:
        found = re.search(pattern, text)
        return int(found.group(1)) if found else 0

    return Resources(
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes smem"),
        number(r"(\d+) bytes spill stores"),
        number(r"(\d+) bytes stack frame"),
    )
