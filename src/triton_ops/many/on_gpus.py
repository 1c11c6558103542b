"""Several GPUs of this machine as the executors of one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from triton_ops.compile_pool.shared_cpus import SharedCpus
from triton_ops.many.events import Follows
from triton_ops.many.executor import Executor, Job
from triton_ops.many.local import LocalExecutor


def executors_of_gpus(
    jobs: Iterable[Job], devices: Sequence[str], shared_cpus: SharedCpus, view: Follows
) -> Mapping[str, Executor]:
    """An executor for each GPU, and one for the CPU if a job is measured there."""
    elsewhere = {place for job in jobs for place in job.devices or ()}.difference(devices)
    return {name: LocalExecutor(shared_cpus, name, view.listener) for name in (*devices, *sorted(elsewhere))}
