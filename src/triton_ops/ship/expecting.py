"""Entries of a lockfile for a device that need not be here: the configs that the model of a kernel is sure of.

A config is chosen as by the effort `expected`, with what the compiler makes of it and of the default for the device.
Where the model is not sure there is no entry, and a launch runs the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from triton_ops import dispatch
from triton_ops.backend import Operation
from triton_ops.base import canonical_json
from triton_ops.device import DeviceSpec, Machine
from triton_ops.exceptions import KernelTypeError, SpaceError, TritonKernelError
from triton_ops.records import LockedDevice, LockEntry, Lockfile, NotedCall
from triton_ops.request import TuneOptions, TuneProblem, TuneRequest
from triton_ops.ship.command_loading import load_kernels
from triton_ops.ship.targets import BoundEntry, Targets, as_target, bound
from triton_ops.terminal import only_data_on_stdout, tell
from triton_ops.tuner import RequestedTune

_AS_TORCH = "cuda"  # the name of a GPU of any vendor


def expect_winners(
    device: LockedDevice, spec: DeviceSpec, wanted: Iterable[LockEntry], measured: Lockfile, kernels: Sequence[str]
) -> list[LockEntry]:
    """The entries of what is expected to be fast on a device; what the model is not sure of is told, with the reason.

    The problems are those of the `wanted` entries, whatever their device and config, and the named ones of KERNELS.
    None is looked at that a measured entry answers. Raises DeviceError if the model does not know the device.
    """
    Machine.known(spec)
    entries: list[LockEntry] = []
    with only_data_on_stdout():
        targets = Targets(loaded := list(load_kernels(kernels).values()))
        named = [entry for one in map(as_target, loaded) if isinstance(one, Operation) for entry in _named(one, spec)]
        unique: dict[tuple[str, str], LockEntry] = {}
        for each in (*wanted, *named):
            problem = each.kernel, canonical_json(dict(each.problem))
            unique.setdefault(problem, replace(each, device=device.alias, identity={}))
        for _, answer in bound(Lockfile((device,), tuple(unique.values())), targets):
            winner = answer if isinstance(answer, TritonKernelError) else _expected(answer, targets, spec, measured)
            if isinstance(winner, TritonKernelError):
                tell(winner.message, "note", "yellow")
            elif winner is not None:
                entries.append(winner)
    return entries


def _named(operation: Operation, spec: DeviceSpec) -> Iterable[LockEntry]:
    """The named problems of an operation, as entries without a config."""
    for shape, dtype in operation.problems.values():
        problem = TuneProblem(target=operation, shape=shape, dtype=dtype if operation.dtypes else None)
        yield LockEntry.asked(problem.request(_AS_TORCH, spec=spec).key)


def _expected(
    case: BoundEntry, targets: Targets, spec: DeviceSpec, measured: Lockfile
) -> LockEntry | TritonKernelError | None:
    """The entry, or the reason why there is none; None where a measured one answers."""
    pinned = measured.find(case.key_on(spec))
    if pinned is not None and not pinned.entry.origin.expected:
        return None
    try:
        options = TuneOptions(effort="expected", keep=False)
        expectation = RequestedTune(request=_request(case, targets, spec), options=options).expectation()
    except TritonKernelError as error:
        return error
    default, pick = expectation.pair
    entry = case.entry.expecting(pick, default, expectation.text, case.kernel.identity)
    refused = replace(case, entry=entry).why_invalid(Lockfile((case.device,), (entry,)))
    return entry if refused is None else SpaceError(refused)


def _request(case: BoundEntry, targets: Targets, spec: DeviceSpec) -> TuneRequest:
    """The request of a tune for an entry's problem, whose tensors are specs."""
    entry, operation, specs = case.entry, case.target, case.specs
    if isinstance(entry.call, NotedCall):
        operation = dispatch.NotedOperation.at(targets.decorated(entry.kernel), entry.call)
    elif specs is not None and isinstance(operation, Operation):
        operation = replace(operation, arguments=lambda: specs, dtypes=(), problems={})
    else:
        raise KernelTypeError(f"neither its space nor its call is known: {entry.call or 'no call was noted'}")
    request = TuneProblem(target=operation).request(_AS_TORCH, spec=spec)
    return replace(request, problem=replace(request.problem, label=entry.label))
