"""The analysis of a config before a launch and without a GPU: free rules, and the compiler's results."""

from triton_ops.analysis.residents import with_residents as with_residents
from triton_ops.analysis.rules import Objection as Objection
from triton_ops.analysis.rules import foresee as foresee
from triton_ops.analysis.tiers import examine as examine
