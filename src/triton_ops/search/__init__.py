"""Searchers, which choose the configs to try next, without torch, a clock or a disk."""

from triton_ops.search.base import Prior as Prior
from triton_ops.search.base import Searcher as Searcher
from triton_ops.search.base import UsesPreviews as UsesPreviews
from triton_ops.search.base import expected_gain as expected_gain
from triton_ops.search.base import new_configs as new_configs
from triton_ops.search.place import Place as Place
from triton_ops.search.registry import SEARCHERS as SEARCHERS
from triton_ops.search.registry import USES_PRIORS as USES_PRIORS
from triton_ops.search.registry import AnySearch as AnySearch
from triton_ops.search.registry import SearcherFactory as SearcherFactory
from triton_ops.search.registry import begin_imports as begin_imports
from triton_ops.search.registry import checked_search as checked_search
from triton_ops.search.registry import make_searcher as make_searcher
from triton_ops.search.registry import make_transfer as make_transfer
from triton_ops.search.registry import search_name as search_name
