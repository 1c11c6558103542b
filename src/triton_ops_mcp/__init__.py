"""A server of the Model Context Protocol: six commands of `triton-ops` as tools for agents."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops_mcp.command_mcp import mcp_command as mcp_command
