"""A call of `tune`, checked before any work: its kernel, problem, device and effort."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.request.effort import Budget as Budget
    from triton_ops.request.effort import Effort as Effort
    from triton_ops.request.effort import Patience as Patience
    from triton_ops.request.known_calls import MISS as MISS
    from triton_ops.request.known_calls import KnownCall as KnownCall
    from triton_ops.request.known_calls import KnownCalls as KnownCalls
    from triton_ops.request.options import TuneOptions as TuneOptions
    from triton_ops.request.request import KernelProblem as KernelProblem
    from triton_ops.request.request import TuneProblem as TuneProblem
    from triton_ops.request.request import TuneRequest as TuneRequest
    from triton_ops.request.request import device_for as device_for
    from triton_ops.request.request import device_of as device_of
    from triton_ops.request.request import spec_of as spec_of
