"""How a config of a kernel becomes a launch, here or in another process, and what tells kernels apart."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops._faces import lazy_face as lazy_face
    from triton_ops.backend.command_doctor import doctor_command as doctor_command
    from triton_ops.backend.compilers import Compiler as Compiler
    from triton_ops.backend.compilers import CompilerNeeds as CompilerNeeds
    from triton_ops.backend.compilers import CompilesAhead as CompilesAhead
    from triton_ops.backend.compilers import PackedCompiler as PackedCompiler
    from triton_ops.backend.compilers import compiler_environment as compiler_environment
    from triton_ops.backend.compilers import compiler_of as compiler_of
    from triton_ops.backend.composed import FormsKernel as FormsKernel
    from triton_ops.backend.composed import StagedKernel as StagedKernel
    from triton_ops.backend.descriptors import matrix_descriptor as matrix_descriptor
    from triton_ops.backend.function_kernel import FunctionKernel as FunctionKernel
    from triton_ops.backend.function_kernel import as_kernel as as_kernel
    from triton_ops.backend.identity import is_kept as is_kept
    from triton_ops.backend.identity import source_of as source_of
    from triton_ops.backend.kernel_source import KernelSource as KernelSource
    from triton_ops.backend.kernel_source import last_name as last_name
    from triton_ops.backend.launcher import LauncherKernel as LauncherKernel
    from triton_ops.backend.offline import LaunchedKernel as LaunchedKernel
    from triton_ops.backend.operations import HasOperation as HasOperation
    from triton_ops.backend.operations import Operation as Operation
    from triton_ops.backend.operations import operation as operation
    from triton_ops.backend.origins import is_carried as is_carried
    from triton_ops.backend.origins import is_found_again as is_found_again
    from triton_ops.backend.origins import is_installed as is_installed
    from triton_ops.backend.origins import is_jit_function as is_jit_function
    from triton_ops.backend.origins import layers as layers
    from triton_ops.backend.origins import parameters_of as parameters_of
    from triton_ops.backend.origins import placed as placed
    from triton_ops.backend.origins import unwrap as unwrap
    from triton_ops.backend.portable import Packed as Packed
    from triton_ops.backend.private import ArgumentSet as ArgumentSet
    from triton_ops.backend.private import Protection as Protection
    from triton_ops.backend.roles import Arguments as Arguments
    from triton_ops.backend.roles import CandidateError as CandidateError
    from triton_ops.backend.roles import CompilesAtLaunch as CompilesAtLaunch
    from triton_ops.backend.roles import Executable as Executable
    from triton_ops.backend.roles import Kernel as Kernel
    from triton_ops.backend.roles import MayCrash as MayCrash
    from triton_ops.backend.roles import PreparedCall as PreparedCall
    from triton_ops.backend.roles import StandIn as StandIn
    from triton_ops.backend.triton_compiler import Built as Built
    from triton_ops.backend.triton_compiler import TritonCompiler as TritonCompiler
    from triton_ops.backend.triton_kernel import LAUNCH_OPTIONS as LAUNCH_OPTIONS
    from triton_ops.backend.triton_kernel import TritonKernel as TritonKernel
    from triton_ops.backend.triton_kernel import kernel_and_space as kernel_and_space
    from triton_ops.backend.triton_kernel import values_of as values_of
    from triton_ops.backend.triton_process import ScratchAllocator as ScratchAllocator
    from triton_ops.backend.triton_process import is_interpreted as is_interpreted
    from triton_ops.backend.triton_process import launcher_of as launcher_of
    from triton_ops.backend.triton_process import nothing_compiled as nothing_compiled
    from triton_ops.backend.triton_process import numpy_misfit as numpy_misfit
    from triton_ops.backend.triton_process import use_ptxas as use_ptxas
    from triton_ops.backend.triton_process import warm_up as warm_up
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
