"""The implementation and config that run when a kernel, an operation or a chooser is called, with the reason."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.dispatch.chooser import Chooser as Chooser
    from triton_ops.dispatch.chooser import choose as choose
    from triton_ops.dispatch.chooser import serve as serve
    from triton_ops.dispatch.comparing import measured as measured
    from triton_ops.dispatch.comparing import start_compilers as start_compilers
    from triton_ops.dispatch.comparing import start_worker as start_worker
    from triton_ops.dispatch.comparing import tune_call as tune_call
    from triton_ops.dispatch.compilable_functions import compilable as compilable
    from triton_ops.dispatch.decision import Decision as Decision
    from triton_ops.dispatch.decision import LaunchedConfig as LaunchedConfig
    from triton_ops.dispatch.decision import launches as launches
    from triton_ops.dispatch.decorator import autotune as autotune
    from triton_ops.dispatch.implementation import Implementation as Implementation
    from triton_ops.dispatch.in_place import tune_in_place as tune_in_place
    from triton_ops.dispatch.installing import install as install
    from triton_ops.dispatch.installing import uninstall as uninstall
    from triton_ops.dispatch.ladder import capturing as capturing
    from triton_ops.dispatch.ladder import on_miss as on_miss
    from triton_ops.dispatch.ladder import replaying as replaying
    from triton_ops.dispatch.ladder import use_lockfile as use_lockfile
    from triton_ops.dispatch.noted import NotedOperation as NotedOperation
    from triton_ops.dispatch.noted import operation_of as operation_of
    from triton_ops.dispatch.operations import config_for as config_for
    from triton_ops.dispatch.operations import tuning as tuning
    from triton_ops.dispatch.operations import would_run as would_run
    from triton_ops.dispatch.recorder import beside as beside
    from triton_ops.dispatch.torch_operators import Gradient as Gradient
