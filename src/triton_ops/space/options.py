"""The one declaration of what a launch option of Triton may be where a file gives it, whatever kind of file that is.

Facts used, of the options of the CUDA and HIP backends of Triton 3.6 to 3.9: by some of them a compiler is given files
or flags. Triton itself accepts some misspelled names in silence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Allowed:
    """The values that a name of a config may have: whole numbers in a range, and others one by one."""

    low: int = 1
    high: int = 0  # below `low` where no range is allowed
    powers: bool = False  # of two, and no other number
    others: tuple[Any, ...] = ()

    def __contains__(self, value: object) -> bool:
        if type(value) is int and self.low <= value <= self.high:
            return not self.powers or value & (value - 1) == 0
        return any(type(value) is type(other) and value == other for other in self.others)

    def __str__(self) -> str:
        kind = "a power of two" if self.powers else "a whole number"
        spans = [f"{kind} from {self.low:,} to {self.high:,}"] if self.low <= self.high else []
        return " or ".join([*spans, *map(repr, self.others)])


CONFIG_FIELDS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None, "ir_override": None}
"""The fields of a `triton.Config` beside its tunables and its hook, with their defaults in Triton 3.4 to 3.9."""

_FLAG, _NOTHING = Allowed(others=(False, True)), Allowed(others=(None,))
LAUNCH_OPTIONS: Mapping[str, Allowed] = {
    "num_warps": Allowed(1, 64, powers=True), "num_stages": Allowed(1, 64), "num_ctas": Allowed(1, 16, powers=True),
    "maxnreg": Allowed(1, 256, others=(None,)), "enable_fp_fusion": _FLAG, "launch_cooperative_grid": _FLAG,
    "launch_pdl": _FLAG, "waves_per_eu": Allowed(0, 16), "matrix_instr_nonkdim": Allowed(others=(0, 4, 16, 32)),
    "kpack": Allowed(1, 2), "allow_flush_denorm": _FLAG,
    "schedule_hint": Allowed(others=(
        "none", "attention", "memory-bound-attention", "attention,memory-bound-attention", "local-prefetch",
        "llvm-iglp-0", "llvm-iglp-1",
    )),
    "ir_override": _NOTHING, "ptx_options": _NOTHING,
}  # fmt: skip
"""The launch options that a config may have, each with what a file may say of it."""

_OF_PROGRAMS = frozenset({
    "pre_hook", "extern_libs", "ptx_version", "arch", "backend_name", "debug", "sanitize_overflow", "warp_size",
    "instrumentation_mode", "enable_reflect_ftz", "supported_fp8_dtypes", "deprecated_fp8_dot_operand_dtypes",
    "default_dot_input_precision", "allowed_dot_input_precisions", "max_num_imprecise_acc_default",
})  # fmt: skip
"""Further options of the backends, which no config has."""


def why_not_of_a_file(config: Mapping[str, Any], parameters: Collection[str | None] = ()) -> str:
    """The reason why a file may not give these values to a launch; empty if it may. A kernel's parameters are free."""
    for name, value in config.items():
        allowed = LAUNCH_OPTIONS.get(name, _NOTHING if name in _OF_PROGRAMS else None)
        if allowed is not None and name not in parameters and value not in allowed:
            return f"{name} of a file is not used: it is {value!r:.60}, and may be {allowed}"
    return ""
