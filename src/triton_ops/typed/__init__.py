"""Texts of the command line, and of files, as what is tuned: TARGETs, problems, spaces and configs."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.typed.problem import TypedProblem as TypedProblem
    from triton_ops.typed.problem import named_function as named_function
    from triton_ops.typed.problem import named_object as named_object
    from triton_ops.typed.problem import parse_config as parse_config
    from triton_ops.typed.problem import parse_pairs as parse_pairs
    from triton_ops.typed.target import TypedTarget as TypedTarget
