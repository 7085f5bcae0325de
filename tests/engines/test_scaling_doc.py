"""The files for SLURM and Kubernetes in docs/scaling.md, which cannot run here, are well formed."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

TEXT = Path(__file__, "../../../docs/scaling.md").resolve().read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
SCRIPTS = [text for kind, text in BLOCKS if text.startswith("#!/bin/bash")]
MANIFESTS = [text for kind, text in BLOCKS if kind == "yaml"]


def test_job_scripts_parse(tmp_path):
    assert SCRIPTS
    for text in SCRIPTS:
        (tmp_path / "job.sh").write_text(text)
        done = subprocess.run(["bash", "-n", tmp_path / "job.sh"], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_job_scripts_ask_for_what_they_start():
    """As many tasks and threads as `#SBATCH` gets, or SLURM would wait for ever."""
    (text,) = SCRIPTS
    asked = dict(re.findall(r"--(ntasks|cpus-per-task)=(\d+)", text))
    started = [int(x) for x in re.findall(r"^srun -n (\d+)", text, re.MULTILINE)]
    threads = re.findall(r"--nthreads (\d+)", text) + re.findall(r"NUM_THREADS=(\d+)", text)
    assert sum(started) == int(asked["ntasks"])
    assert set(threads) == {asked["cpus-per-task"]}


@pytest.mark.engines
def test_options_of_dask_exist():
    """Those that the files give to `dask scheduler` and `dask worker`."""
    pytest.importorskip("distributed", reason="needs the extra dask")
    yaml = pytest.importorskip("yaml", reason="comes with the extra dask")
    from distributed.cli import dask_scheduler, dask_worker

    known = {
        "scheduler": {x for option in dask_scheduler.main.params for x in option.opts},
        "worker": {x for option in dask_worker.main.params for x in option.opts},
    }
    (text,) = SCRIPTS
    given = {
        kind: shlex.split(re.search(rf"dask {kind} (.*?) &$", text, re.MULTILINE)[1])
        for kind in known
    }
    (cluster,) = map(yaml.safe_load, MANIFESTS)
    for kind in known:
        (container,) = cluster["spec"][kind]["spec"]["containers"]
        assert container["args"][0] == f"dask-{kind}"
        given[kind] += container["args"][1:]
    for kind, words in given.items():
        options = {word for word in words if word.startswith("--")}
        assert options <= known[kind], kind


@pytest.mark.engines
def test_the_kubernetes_manifest_is_consistent():
    yaml = pytest.importorskip("yaml", reason="comes with the extra dask")
    (cluster,) = map(yaml.safe_load, MANIFESTS)
    assert cluster["kind"] == "DaskCluster"
    name, spec = cluster["metadata"]["name"], cluster["spec"]
    (port,) = spec["scheduler"]["service"]["ports"]
    assert spec["scheduler"]["service"]["selector"]["dask.org/cluster-name"] == name
    assert f"--scheduler tcp://{name}-scheduler:{port['port']}" in TEXT
    (worker,) = spec["worker"]["spec"]["containers"]
    threads = worker["args"][worker["args"].index("--nthreads") + 1]
    assert int(threads) == worker["resources"]["limits"]["cpu"]
    assert {"name": "NUMBA_NUM_THREADS", "value": threads} in worker["env"]
    mounted = {mount["name"] for mount in worker["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["worker"]["spec"]["volumes"]}
