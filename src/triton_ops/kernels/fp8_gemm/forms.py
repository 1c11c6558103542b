"""The form in Gluon of the product of 8-bit floats, where Triton has what it is made of."""

from __future__ import annotations

import importlib
import logging

from triton_ops.backend import TritonKernel

_log = logging.getLogger("triton_ops")


def gluon_form() -> dict[str, TritonKernel]:
    """The form by its name; empty, with a line in the log, where the installed Triton has no Gluon for Hopper."""
    try:
        own = importlib.import_module("triton_ops.kernels.fp8_gemm.gluon_kernel")
    except (ImportError, AttributeError) as error:  # a Triton of another vendor's may lack a module, or a name in it
        _log.info("fp8_gemm has no form in Gluon here: %s", error)
        return {}
    kernel = TritonKernel(own.gluon_fp8_kernel, own.gluon_grid, outputs=("c",), made=own.gluon_descriptors)
    return {"gluon": kernel}
