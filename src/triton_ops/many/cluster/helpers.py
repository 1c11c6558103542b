"""Hosts of a Ray cluster on which nothing is measured: their CPUs compile for the others.

Facts of Ray that this relies on (2.60): an actor that needs more CPUs than are free waits for them, and its calls with
it; the methods of an actor with `max_concurrency` run in threads; an actor dies with its driver.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from triton_ops.compile_pool.compile_host import CompileHost
from triton_ops.compile_pool.other_hosts import OtherHost

_MOST_FOR_ONE = 16  # a config is measured in a tenth of the time in which it is compiled
_QUICK_CALLS = 4  # that wait for no compiler, such as for what was made


@dataclass(frozen=True, eq=False)
class Helper:
    """The actor of a host that compiles.

    Attributes:
        name: The host's name.
        cpus: How many of its CPUs compile.
        actor: The handle.
    """

    name: str
    cpus: int
    actor: Any


@dataclass(frozen=True)
class _Ask:
    """Calls a method of an actor, and returns at once."""

    actor: Any

    def __call__(self, what: str, *given: Any) -> Future[Any]:
        asked: Future[Any] = Future()
        getattr(self.actor, what).remote(*given).future().add_done_callback(lambda done: _pass_on(done, asked))
        return asked


def _pass_on(done: Future[Any], asked: Future[Any]) -> None:
    """Take over an answer; what the method has raised is raised as it was, and anything else says that it is gone."""
    error = done.exception()
    if error is None:
        asked.set_result(done.result())
        return
    cause = getattr(error, "cause", None)
    lines = str(error).strip().splitlines() or [type(error).__name__]
    asked.set_exception(cause if isinstance(cause, Exception) else ConnectionError(f"it is gone: {lines[0]}"))


def helpers_of(ray: Any, taken: Collection[str], measurers: int) -> list[Helper]:
    """An actor on each host that has CPUs and measures nothing; none of them is waited for.

    Args:
        ray: The module.
        taken: The nodes on which something is measured, by Ray's ids.
        measurers: How many measure.
    """
    here, found = ray.get_runtime_context().get_node_id(), []
    place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    for node_id, name, cpus in idle_nodes(ray.nodes(), here, taken):
        made = ray.remote(CompileHost).options(
            num_cpus=cpus, max_concurrency=cpus + _QUICK_CALLS, max_restarts=0, max_task_retries=0,
            scheduling_strategy=place(node_id, False),
        )  # fmt: skip
        found.append(Helper(name, cpus, made.remote(2 * measurers)))
    return found


def idle_nodes(nodes: Iterable[Mapping[str, Any]], here: str, taken: Collection[str]) -> list[tuple[str, str, int]]:
    """Id, host and CPUs of each node that lives and measures nothing; one CPU less where the run was started.

    Args:
        nodes: As `ray.nodes` describes them.
        here: The node of the driver, which needs a CPU with the keeper.
        taken: The nodes on which something is measured.
    """
    return [
        (node["NodeID"], node["NodeManagerHostname"], cpus)
        for node in nodes
        if node["Alive"] and node["NodeID"] not in taken
        and (cpus := int(node["Resources"].get("CPU", 0)) - (node["NodeID"] == here)) > 0
    ]  # fmt: skip


def shared_out(helpers: Sequence[Helper], measurers: int) -> list[list[OtherHost]]:
    """For each measurer the hosts that compile for it: each CPU is for one measurer, and each gets equally many."""
    places = [helper for helper in helpers for _ in range(helper.cpus)]
    found = []
    for at in range(measurers):
        own = places[at::measurers][:_MOST_FOR_ONE]
        found.append(
            [
                OtherHost(name=helper.name, cpus=own.count(helper), ask=_Ask(helper.actor))
                for helper in dict.fromkeys(own)
            ]
        )
    return found
