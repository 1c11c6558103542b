"""A server of the Model Context Protocol: six commands of `triton-ops` as tools for agents."""

from triton_ops._faces import TYPE_CHECKING, lazy_face

_NAMES = {".command_mcp": "mcp_command"}

if TYPE_CHECKING:
    from triton_ops_mcp.command_mcp import mcp_command as mcp_command
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__, _NAMES)
