"""The TTIR, PTX, machine code and binary of a compiled kernel, read as text without a GPU."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.kernel_ir.bit_class import BitClass as BitClass
    from triton_ops.kernel_ir.evaluation import Operand as Operand
    from triton_ops.kernel_ir.expressions import PROGRAMS as PROGRAMS
    from triton_ops.kernel_ir.facts import AccessFact as AccessFact
    from triton_ops.kernel_ir.facts import Fact as Fact
    from triton_ops.kernel_ir.facts import ReductionFact as ReductionFact
    from triton_ops.kernel_ir.facts import SourcePlace as SourcePlace
    from triton_ops.kernel_ir.kernel_work import KernelWork as KernelWork
    from triton_ops.kernel_ir.kernel_work import LaunchWork as LaunchWork
    from triton_ops.kernel_ir.machine_code import PtxText as PtxText
    from triton_ops.kernel_ir.machine_code import binary_facts as binary_facts
    from triton_ops.kernel_ir.machine_code import loop_lines as loop_lines
    from triton_ops.kernel_ir.shared_memory import bank_conflicts as bank_conflicts
    from triton_ops.kernel_ir.shared_memory import bank_padding as bank_padding
    from triton_ops.kernel_ir.term_walk import KernelFacts as KernelFacts
    from triton_ops.kernel_ir.terms import Term as Term
    from triton_ops.kernel_ir.trace import Access as Access
    from triton_ops.kernel_ir.trace import Product as Product
    from triton_ops.kernel_ir.ttir_syntax import UntoldError as UntoldError
