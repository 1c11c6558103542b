"""A model of the device and of the work: the expected time of a config before it runs."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.cost_model.attention_tiles import AttentionTiles as AttentionTiles
    from triton_ops.cost_model.inferred import Readings as Readings
    from triton_ops.cost_model.prediction import FirstPick as FirstPick
    from triton_ops.cost_model.prediction import Forecast as Forecast
    from triton_ops.cost_model.prediction import Model as Model
    from triton_ops.cost_model.product_tiles import GemmTiles as GemmTiles
    from triton_ops.cost_model.product_tiles import ProductTiles as ProductTiles
    from triton_ops.cost_model.row_tiles import ElementTiles as ElementTiles
    from triton_ops.cost_model.row_tiles import RowTiles as RowTiles
    from triton_ops.cost_model.work_words import work_in_words as work_in_words
