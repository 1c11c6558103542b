"""How a config of a kernel becomes a launch, here or in another process, and what tells kernels apart."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.backend.callables import FunctionKernel as FunctionKernel
    from triton_ops.backend.callables import Source as Source
    from triton_ops.backend.compilers import Compiler as Compiler
    from triton_ops.backend.compilers import CompilerNeeds as CompilerNeeds
    from triton_ops.backend.compilers import CompilesAhead as CompilesAhead
    from triton_ops.backend.compilers import PackedCompiler as PackedCompiler
    from triton_ops.backend.constant_roles import SourceRoles as SourceRoles
    from triton_ops.backend.descriptors import matrix_descriptor as matrix_descriptor
    from triton_ops.backend.kernel_source import KernelSource as KernelSource
    from triton_ops.backend.kernel_source import last_name as last_name
    from triton_ops.backend.launcher import LauncherKernel as LauncherKernel
    from triton_ops.backend.launcher import standing_in as standing_in
    from triton_ops.backend.offline import LaunchedKernel as LaunchedKernel
    from triton_ops.backend.operations import Operation as Operation
    from triton_ops.backend.operations import operation as operation
    from triton_ops.backend.origins import Layers as Layers
    from triton_ops.backend.origins import Origin as Origin
    from triton_ops.backend.portable import Packed as Packed
    from triton_ops.backend.private import ArgumentSet as ArgumentSet
    from triton_ops.backend.private import Protection as Protection
    from triton_ops.backend.private import fill_with_poison as fill_with_poison
    from triton_ops.backend.read_space import ReadSpace as ReadSpace
    from triton_ops.backend.roles import Arguments as Arguments
    from triton_ops.backend.roles import CandidateError as CandidateError
    from triton_ops.backend.roles import CompiledByTriton as CompiledByTriton
    from triton_ops.backend.roles import CompilesAtLaunch as CompilesAtLaunch
    from triton_ops.backend.roles import Executable as Executable
    from triton_ops.backend.roles import Kernel as Kernel
    from triton_ops.backend.roles import LaunchesAlone as LaunchesAlone
    from triton_ops.backend.roles import MayCrash as MayCrash
    from triton_ops.backend.roles import PreparedCall as PreparedCall
    from triton_ops.backend.roles import StandIn as StandIn
    from triton_ops.backend.taken import functions_taken as functions_taken
    from triton_ops.backend.taken import launches_are_taken as launches_are_taken
    from triton_ops.backend.taken import launches_taken as launches_taken
    from triton_ops.backend.taken import replaced as replaced
    from triton_ops.backend.triton_compiler import Built as Built
    from triton_ops.backend.triton_compiler import TritonCompiler as TritonCompiler
    from triton_ops.backend.triton_kernel import TritonKernel as TritonKernel
    from triton_ops.backend.triton_process import ScratchAllocator as ScratchAllocator
    from triton_ops.backend.triton_process import TritonProcess as TritonProcess
    from triton_ops.backend.triton_process import assembler_in_use as assembler_in_use
    from triton_ops.backend.triton_process import installed_assemblers as installed_assemblers
    from triton_ops.backend.triton_process import use_ptxas as use_ptxas
