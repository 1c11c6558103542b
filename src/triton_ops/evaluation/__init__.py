"""One config, checked against the reference, timed, and compared with the fastest ones."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.evaluation.expected import kept as kept
    from triton_ops.evaluation.expected import leaf_pairs as leaf_pairs
    from triton_ops.evaluation.finals import FinalRequest as FinalRequest
    from triton_ops.evaluation.finals import Outcome as Outcome
    from triton_ops.evaluation.golden import Referee as Referee
    from triton_ops.evaluation.isolated import Stations as Stations
    from triton_ops.evaluation.judges import LITTLE as LITTLE
    from triton_ops.evaluation.judges import Difference as Difference
    from triton_ops.evaluation.judges import Precision as Precision
    from triton_ops.evaluation.standard import ExpectedResults as ExpectedResults
    from triton_ops.evaluation.standard import Standard as Standard
    from triton_ops.evaluation.station import Assignment as Assignment
    from triton_ops.evaluation.station import StationFacts as StationFacts
    from triton_ops.evaluation.subject import ArgumentSet as ArgumentSet
    from triton_ops.evaluation.subject import Subject as Subject
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
