"""How long a space takes to compile with CPUs of this host, and with those of other hosts beside them.

    python -m benchmarks.compile_hosts --configs 100 --cpus 1 --hosts 1

The other hosts are threads of this process with compiling processes and disk caches of their own, so that the machine
must have a CPU for each. Nothing is launched, and no GPU is needed. Each run begins with empty caches, and in the end
every config is looked up in this host's cache again: `again_s` is what one process takes for all of them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

from triton_ops.backend import AheadOfTime, Arguments
from triton_ops.compilation import CompileHost, CompilePool, OtherHost, OtherHosts, SharedCpus
from triton_ops.device import named_target
from triton_ops.kernels import load

SHAPE = (4096, 4096, 4096)


@contextmanager
def host_beside(name: str, cpus: int = 1) -> Iterator[OtherHost]:
    """A host that compiles in processes of this machine."""
    host = CompileHost()
    with ThreadPoolExecutor(cpus + 2) as threads:

        def ask(what, *given):
            return threads.submit(getattr(host, what), *given)

        yield OtherHost(name=name, cpus=cpus, ask=ask)
    host.end()


def seconds(configs, ahead, cpus: int, hosts: int) -> dict[str, object]:
    """What one run took, and what became of the configs."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as open_now:
        os.environ["TRITON_CACHE_DIR"] = folder
        others = OtherHosts([open_now.enter_context(host_beside(f"host {n}")) for n in range(hosts)])
        shared = SharedCpus(cpus, elsewhere=others)
        begun = time.perf_counter()
        with CompilePool(ahead, workers=cpus, shared_cpus=shared) as pool:
            pool.go_first()
            found = [future.result() for future in [pool.submit(config, anyway=True) for config in configs]]
            taken_s, notes = time.perf_counter() - begun, pool.notes
        begun = time.perf_counter()
        with CompilePool(ahead, workers=1) as pool:
            again = [future.result() for future in [pool.submit(config, anyway=True) for config in configs]]
        same = partial(map, lambda one: (one.config, one.status, one.reason, one.resources, one.launch))
        return {
            "cpus": cpus, "hosts": hosts, "configs": len(found), "seconds": round(taken_s, 2), "notes": notes,
            "launchable": sum(one.launchable for one in found), "same": list(same(found)) == list(same(again)),
            "again_s": round(time.perf_counter() - begun, 2),
        }  # fmt: skip


def main() -> None:
    """Measure, and print one line of JSON for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", type=int, default=100)
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=1, help="other hosts, with one CPU each")
    parser.add_argument("--repeats", type=int, default=1, help="in turn, where other programs disturb")
    parser.add_argument("--kernel", default="matmul")
    given = parser.parse_args()
    operation = load(given.kernel)
    problem = operation.problem(SHAPE if given.kernel == "matmul" else None)
    space = operation.space_for(problem)
    arguments = Arguments(keyword=dict(problem.arguments))
    ahead = AheadOfTime(operation.kernel.compiled_ahead, arguments, named_target("sm_90"), space.members)
    configs = list(itertools.islice(space, given.configs))
    for hosts in sorted({0, given.hosts}) * given.repeats:
        print(json.dumps(seconds(configs, ahead, given.cpus, hosts)), flush=True)


if __name__ == "__main__":
    main()
