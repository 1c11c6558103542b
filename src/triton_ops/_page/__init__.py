"""What the HTML pages share: how one file is put together, their style, and the script that makes elements."""

from triton_ops._page.assembly import PageParts as PageParts
from triton_ops._page.assembly import assembled as assembled
from triton_ops._page.assembly import data_script as data_script
from triton_ops._page.assembly import json_text as json_text
from triton_ops._page.assembly import part as part
