"""What is known of a config before it is launched and without a GPU, and what to expect of it."""

from triton_ops.analysis.rules import foresee as foresee
from triton_ops.analysis.tiers import examine as examine
from triton_ops.analysis.verdict import Compiled as Compiled
from triton_ops.analysis.verdict import Verdict as Verdict
from triton_ops.analysis.verdict import with_residents as with_residents
