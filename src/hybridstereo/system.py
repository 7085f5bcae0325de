"""`hstereo info`: what is installed, what the machine offers, which models there are."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

from . import __version__, kernels
from .kernels.cuda.cudalib import probe
from .memory import available_memory, format_bytes, total_memory
from .model import PROVENANCE
from .models.zoo import DEFAULT_MODEL, available_models, load_model

_PACKAGES = ("numba", "llvmlite", "numpy", "opencv-python", "click", "h5py", "threadpoolctl")


def cpu_name() -> str:
    """The processor's marketing name where the system tells, else its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def package_version(name: str) -> str:
    """Version of an installed distribution."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def collect_info() -> dict[str, object]:
    """Everything that `hstereo info` shows, ready for JSON."""
    cuda = probe()
    models = {}
    for name in available_models():
        model = load_model(name)
        models[name] = {
            "description": model.config.description,
            "layers": len(model.unary),
            "parameters": model.parameter_count,
            **{name: getattr(model.config, name) for name in PROVENANCE},
            "default": name == DEFAULT_MODEL,
        }
    return {
        "hybridstereo": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: package_version(name) for name in _PACKAGES},
        "cpu": {
            "name": cpu_name(),
            "cores": os.cpu_count(),
            "threads": kernels.max_threads(),
        },
        "memory": {"total_bytes": total_memory(), "available_bytes": available_memory()},
        "cuda": {
            "usable": cuda.usable,
            "devices": cuda.devices,
            "reason": cuda.reason,
            "fix": cuda.fix,
        },
        "models": models,
    }


def _about(name: str, model: dict) -> list[str]:
    """The lines about a model: what it is, and where it comes from if that is known."""
    default = " (default)" if model["default"] else ""
    lines = [
        f"{name}{default}: {model['description']};"
        f" {model['layers']} layers, {model['parameters']:,} parameters"
    ]
    if model["trained_on"]:
        lines.append(f"  trained on {model['trained_on']} ({model['trained_date']})")
    if model["validation"]:
        lines.append(f"  on scenes it never saw: {model['validation']}")
    if model["licence"]:
        lines.append(f"  {model['licence']}")
    return lines


def format_info(info: dict) -> str:
    """`collect_info` as aligned text."""
    memory = info["memory"]
    sizes = [
        f"{format_bytes(memory[key])} {word}"
        for key, word in (("total_bytes", "in all"), ("available_bytes", "available"))
        if memory[key] is not None
    ]
    cuda = info["cuda"]
    rows = [
        ("hybridstereo", info["hybridstereo"]),
        ("python", f"{info['python']} on {info['platform']}"),
        ("packages", ", ".join(f"{k} {v}" for k, v in info["packages"].items())),
        ("cpu", f"{info['cpu']['name']}, {info['cpu']['cores']} cores"),
        ("threads", f"{info['cpu']['threads']} (change with --threads or NUMBA_NUM_THREADS)"),
        ("memory", ", ".join(sizes) or "unknown"),
    ]
    if cuda["devices"]:
        rows.append(("cuda devices", "; ".join(cuda["devices"])))
    rows.append(("cuda", "usable" if cuda["usable"] else f"not usable: {cuda['reason']}"))
    if not cuda["usable"]:
        rows.append(("", f"{cuda['fix']}."))
    about = [line for name, model in info["models"].items() for line in _about(name, model)]
    rows += [("" if index else "models", line) for index, line in enumerate(about)]
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{width}}  {value}" for label, value in rows)
