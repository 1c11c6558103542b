"""How Sphinx makes the site of the pages that `python -m website` has laid out."""

import re

import triton_ops

project = "triton-ops"
author = "the authors of triton-ops"
project_copyright = "the authors of triton-ops, Apache-2.0"
release = triton_ops.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
myst_heading_anchors = 6  # the anchors that hosts of Markdown give headings
highlight_language = "text"
smartquotes = False  # it would make a dash of the two of an option
default_role = "code"  # for code spans of docstrings that go on in the next line

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
maximum_signature_line_length = 90
python_use_unqualified_type_names = True
python_display_short_literal_types = True
add_module_names = False
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"triton-ops {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js", "names.js"]
html_favicon = "static/icon.svg"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#2f3f9e", "color-brand-content": "#2f3f9e"},
    "dark_css_variables": {"color-brand-primary": "#a9b6ff", "color-brand-content": "#a9b6ff"},
}


def code_spans(_app, _what, _name, _value, _options, lines):
    """Code spans of docstrings are Markdown's, with one backtick on each side and letters right after them."""
    lines[:] = [re.sub(r"(?<!`)`([^`]+)`(?!`)(?=(\w?))", _literal, line) for line in lines]


def _literal(found):
    return f"``{found[1]}``" + ("\\ " if found[2] else "")


def for_readers_of_all_kinds(_app, _page, _template, context, _doctree):
    """What the theme leaves out: what scrolls can be reached by keyboard, and headings say their level."""
    body = re.sub(r"<dl>\s*<dd>.*?</dl>", _parameters, context.get("body", ""), flags=re.DOTALL)
    body = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')
    body = body.replace('Variables<span class="colon">', 'Attributes<span class="colon">')  # as the docstrings say
    body = body.replace('<th class="head"><p></p></th>', "<td></td>")
    body = re.sub(r">[^<]+", lambda text: re.sub(r"\b\d{4}-\d\d-\d\d\b", _whole, text[0]), body)
    context["body"] = body.replace("<pre>", '<pre tabindex="0">')
    context["furo_navigation_tree"] = context["furo_navigation_tree"].replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )


def _whole(date):
    return f'<span class="date">{date[0]}</span>'


def _parameters(found):
    """The parameters of a long signature: Sphinx makes them a list of definitions without terms."""
    return re.sub(r"(</?)(?:dl|dd)>", lambda tag: f"{tag[1]}span{' class=line' if tag[1] == '<' else ''}>", found[0])


def setup(app):
    """Called by Sphinx before it reads the first page."""
    app.connect("html-page-context", for_readers_of_all_kinds, priority=900)  # after the theme
    app.connect("autodoc-process-docstring", code_spans, priority=400)  # before the sections of docstrings are read
