"""One config, checked against the reference, timed, and compared with the fastest ones."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.evaluation.cases import Subject as Subject
    from triton_ops.evaluation.contest import Contender as Contender
    from triton_ops.evaluation.contest import Contest as Contest
    from triton_ops.evaluation.expected import as_list as as_list
    from triton_ops.evaluation.expected import kept as kept
    from triton_ops.evaluation.expected import same_bits as same_bits
    from triton_ops.evaluation.finals import FinalRequest as FinalRequest
    from triton_ops.evaluation.idle_worker import drop_idle_workers as drop_idle_workers
    from triton_ops.evaluation.idle_worker import start_one_early as start_one_early
    from triton_ops.evaluation.isolated import Stations as Stations
    from triton_ops.evaluation.judges import Difference as Difference
    from triton_ops.evaluation.judges import Place as Place
    from triton_ops.evaluation.memory import TuneMemory as TuneMemory
    from triton_ops.evaluation.numbers import is_floating as is_floating
    from triton_ops.evaluation.numbers import is_numbers as is_numbers
    from triton_ops.evaluation.numbers import library_of as library_of
    from triton_ops.evaluation.outcome import Outcome as Outcome
    from triton_ops.evaluation.questions import StationFacts as StationFacts
    from triton_ops.evaluation.questions import TriesConfigs as TriesConfigs
    from triton_ops.evaluation.reference_results import ReferenceResults as ReferenceResults
    from triton_ops.evaluation.renewal import Renewal as Renewal
    from triton_ops.evaluation.station import Assignment as Assignment
