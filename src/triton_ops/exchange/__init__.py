"""Tables of tuned configs as other engines keep them: written, read, and looked up by each engine's own rule."""

from triton_ops.exchange.forms import FORMS as FORMS
from triton_ops.exchange.forms import form_named as form_named
from triton_ops.exchange.table import Form as Form
from triton_ops.exchange.table import Row as Row
from triton_ops.exchange.table import Table as Table
