"""One config, checked against the reference, timed, and compared with the fastest ones."""

from triton_ops._faces import TYPE_CHECKING, lazy_face

_NAMES = {
    ".finals": "FinalRequest Outcome StationFacts",
    ".idle_worker": "start_one_early",
    ".isolated": "Isolated",
    ".reference_results": "ReferenceResults",
    ".station": "Assignment Stations",
    ".verify": "Subject",
    ".worker": "Attempt",
}

if TYPE_CHECKING:
    from triton_ops.evaluation.finals import FinalRequest as FinalRequest
    from triton_ops.evaluation.finals import Outcome as Outcome
    from triton_ops.evaluation.finals import StationFacts as StationFacts
    from triton_ops.evaluation.idle_worker import start_one_early as start_one_early
    from triton_ops.evaluation.isolated import Isolated as Isolated
    from triton_ops.evaluation.reference_results import ReferenceResults as ReferenceResults
    from triton_ops.evaluation.station import Assignment as Assignment
    from triton_ops.evaluation.station import Stations as Stations
    from triton_ops.evaluation.verify import Subject as Subject
    from triton_ops.evaluation.worker import Attempt as Attempt
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__, _NAMES)
