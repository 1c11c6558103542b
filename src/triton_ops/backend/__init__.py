"""How a config becomes a callable."""

from triton_ops.backend.base import Arguments as Arguments
from triton_ops.backend.base import Artifact as Artifact
from triton_ops.backend.base import Kernel as Kernel
from triton_ops.backend.base import by_name as by_name
from triton_ops.backend.base import is_tensor as is_tensor
from triton_ops.backend.base import positional_names as positional_names
from triton_ops.backend.errors import CandidateError as CandidateError
from triton_ops.backend.errors import candidate_error as candidate_error
from triton_ops.backend.errors import one_line as one_line
from triton_ops.backend.function import FunctionKernel as FunctionKernel
from triton_ops.backend.operation import Operation as Operation
from triton_ops.backend.operation import operation as operation
from triton_ops.backend.protect import Protection as Protection
from triton_ops.backend.protect import private_copy as private_copy
from triton_ops.backend.triton import TritonKernel as TritonKernel
from triton_ops.backend.triton import without_ptxas_dumps as without_ptxas_dumps
