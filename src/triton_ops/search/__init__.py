"""Searchers and priors, which choose the next configs and see configs and trials and nothing else."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.search.coordinate import CoordinateDescent as CoordinateDescent
    from triton_ops.search.promise import chance_within_1pct as chance_within_1pct
    from triton_ops.search.searchers import AnySearch as AnySearch
    from triton_ops.search.searchers import Prior as Prior
    from triton_ops.search.searchers import ProblemPlace as ProblemPlace
    from triton_ops.search.searchers import Search as Search
    from triton_ops.search.searchers import Searcher as Searcher
    from triton_ops.search.searchers import UsesPreviews as UsesPreviews
    from triton_ops.search.searchers import make_searcher as make_searcher
