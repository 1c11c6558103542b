"""Searchers and priors, which choose the next configs and see configs and trials and nothing else."""

from triton_ops._faces import TYPE_CHECKING, lazy_face

_NAMES = {
    ".coordinate": "CoordinateDescent",
    ".promise": "chance_within_1pct",
    ".searchers": "AnySearch Prior ProblemPlace Search Searcher UsesPreviews make_searcher",
}

if TYPE_CHECKING:
    from triton_ops.search.coordinate import CoordinateDescent as CoordinateDescent
    from triton_ops.search.promise import chance_within_1pct as chance_within_1pct
    from triton_ops.search.searchers import AnySearch as AnySearch
    from triton_ops.search.searchers import Prior as Prior
    from triton_ops.search.searchers import ProblemPlace as ProblemPlace
    from triton_ops.search.searchers import Search as Search
    from triton_ops.search.searchers import Searcher as Searcher
    from triton_ops.search.searchers import UsesPreviews as UsesPreviews
    from triton_ops.search.searchers import make_searcher as make_searcher
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__, _NAMES)
