"""A model of the device and of the work: the expected time of a config before it runs."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.cost_model.gemm_tiles import AttentionTiles as AttentionTiles
    from triton_ops.cost_model.gemm_tiles import GemmTiles as GemmTiles
    from triton_ops.cost_model.in_words import differences as differences
    from triton_ops.cost_model.in_words import work_in_words as work_in_words
    from triton_ops.cost_model.inferred import Readings as Readings
    from triton_ops.cost_model.inferred_rows import least_bytes as least_bytes
    from triton_ops.cost_model.prediction import Forecast as Forecast
    from triton_ops.cost_model.prediction import Model as Model
    from triton_ops.cost_model.product_tiles import ProductTiles as ProductTiles
    from triton_ops.cost_model.rank_correlations import spearman as spearman
    from triton_ops.cost_model.recorded_works import recorded_model as recorded_model
    from triton_ops.cost_model.recorded_works import recorded_work as recorded_work
    from triton_ops.cost_model.recorded_works import textbook_work as textbook_work
    from triton_ops.cost_model.recorded_works import work_json as work_json
    from triton_ops.cost_model.resource_guess import MOST_REGISTERS as MOST_REGISTERS
    from triton_ops.cost_model.row_tiles import ElementTiles as ElementTiles
    from triton_ops.cost_model.row_tiles import RowTiles as RowTiles
    from triton_ops.cost_model.search_priors import InferredPrior as InferredPrior
    from triton_ops.cost_model.search_priors import ModelPrior as ModelPrior
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
