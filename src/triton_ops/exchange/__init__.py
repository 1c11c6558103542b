"""Tables of tuned configs as other engines keep them: written, read, and looked up by each engine's own rule."""

from triton_ops.exchange.formats import FORMATS as FORMATS
from triton_ops.exchange.formats import format_named as format_named
from triton_ops.exchange.table import Format as Format
from triton_ops.exchange.table import Row as Row
from triton_ops.exchange.table import Table as Table
