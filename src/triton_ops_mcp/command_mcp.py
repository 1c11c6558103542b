"""`triton-ops mcp`: the server and its tools, each a command with few options."""

from __future__ import annotations

from inspect import getdoc
from typing import Annotated, Any, Literal, TypeAlias

from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult
from pydantic import Field

from triton_ops import __version__
from triton_ops_mcp.running import answer_of

_Value: TypeAlias = bool | int | float | str | None
Target = Annotated[str, Field(description="path/file.py:NAME, package.module:NAME, or a shipped kernel's name")]
Shape = Annotated[str, Field(description="Extents, as 4096x1024; of a function a part for each argument: 64x32,32")]
Dtype = Annotated[str, Field(description="Such as bf16, fp16, fp32")]
Arguments = Annotated[dict[str, str], Field(description="By name: 64x32:bf16 is a tensor, 1e-5 a number; or FILE.npy")]
Space = Annotated[dict[str, list[_Value]], Field(description="For each tunable the values to try")]
Config = Annotated[dict[str, _Value], Field(description="Values of tunables; the rest as in the default")]
Device = Annotated[str, Field(description="cpu, cuda or cuda:N")]
Gpu = Annotated[str, Field(description="A GPU that need not be here, such as H200 or sm_90")]
Seconds = Annotated[float, Field(gt=0, le=3600, description="After so many the call is ended")]
_NONE: dict[str, Any] = {}
_SHARE = 0.25  # of the seconds, to measure; the rest is for imports, and for turns of others on the device


async def check(
    candidate: Target, reference: Target, shape: Shape = "", dtype: Dtype = "", arguments: Arguments = _NONE,
    device: Device = "", numpy: Annotated[bool, Field(description="Give arrays in place of tensors")] = False,
    seconds: Seconds = 120,
) -> CallToolResult:  # fmt: skip
    """Judge a candidate that nobody trusts against a reference.

    The verdict is wrong, suspect, faster, slower, same or undecided.
    """
    return await answer_of(
        "check", candidate, seconds, against=reference, shape=shape, dtype=dtype, arg=arguments, device=device,
        numpy=numpy, seconds=_SHARE * seconds,
    )  # fmt: skip


async def tune(
    target: Target, space: Space = _NONE, shape: Shape = "", dtype: Dtype = "", arguments: Arguments = _NONE,
    device: Device = "", force: Annotated[bool, Field(description="Search again if it is known")] = False,
    seconds: Seconds = 120,
) -> CallToolResult:  # fmt: skip
    """Find the fastest config of a kernel or a function on this machine, or recall it.

    The parameters of a function after a `*` are its tunables, and need a `space`.
    """
    return await answer_of(
        "tune", target, seconds, shape=shape, dtype=dtype, arg=arguments, space=space, device=device, force=force,
        budget_s=_SHARE * seconds,
    )  # fmt: skip


async def explain(
    target: Target, view: Literal["rank", "spills", "cliffs"] = "rank", gpu: Gpu = "", shape: Shape = "",
    dtype: Dtype = "", arguments: Arguments = _NONE,
    space: Annotated[Space, Field(description="Of rank: for each tunable the values to rank")] = _NONE,
    config: Annotated[Config, Field(description="Of spills and cliffs: values of tunables")] = _NONE,
    vary: Annotated[str, Field(description="Of cliffs: the extent to vary, as M=128:4096:128")] = "",
    seconds: Seconds = 120,
) -> CallToolResult:  # fmt: skip
    """Say what to expect of a Triton kernel's configs, without running it.

    `rank` orders configs by expected times, `spills` looks for cures of a config's spills, and `cliffs` has the shapes
    at which a wave is added.
    """
    return await answer_of(
        f"explain {view}", target, seconds, gpu=gpu, shape=shape, dtype=dtype, arg=arguments, space=space,
        config=config, vary=vary,
    )  # fmt: skip


async def lint(
    target: Annotated[str, Field(description="FILE.py, a folder, FILE.py:NAME, or a shipped kernel's name")],
    gpu: Gpu = "", no_run: Annotated[bool, Field(description="For files of strangers: run nothing of them")] = False,
    seconds: Seconds = 120,
) -> CallToolResult:  # fmt: skip
    """Find pitfalls of Triton kernels, such as missing masks, without launching them."""
    return await answer_of("lint", target, seconds, gpu=gpu, no_run=no_run)


async def compile_kernel(
    target: Target, gpu: Gpu = "", space: Space = _NONE, shape: Shape = "", dtype: Dtype = "",
    arguments: Arguments = _NONE, seconds: Seconds = 120,
) -> CallToolResult:  # fmt: skip
    """Compile a Triton kernel's configs: registers, spills, shared memory. Name few values in `space`: each takes time.

    No GPU is needed.
    """
    return await answer_of("compile", target, seconds, gpu=gpu, shape=shape, dtype=dtype, arg=arguments, space=space)


async def why(
    target: Target, shape: Shape = "", dtype: Dtype = "", arguments: Arguments = _NONE, device: Device = "",
    seconds: Seconds = 60,
) -> CallToolResult:  # fmt: skip
    """Say which config a call of an operation or a decorated kernel would run, and where it comes from."""
    return await answer_of("why", target, seconds, shape=shape, dtype=dtype, arg=arguments, device=device)


def mcp_command() -> None:
    """Serve tools of the Model Context Protocol on stdin and stdout: check, tune, explain, lint, compile and why.

    Each call runs the command of that name in a process of its own, which ends with the call, or after its seconds.
    Calls that measure on one GPU take turns. Answers are the commands' JSON documents, of at most 8,000 characters:
    `left_out` says what is missing.
    """
    server = MCPServer("triton-ops", version=__version__, log_level="WARNING")
    for tool in (check, tune, explain, lint, compile_kernel, why):
        server.add_tool(tool, name=tool.__name__.partition("_")[0], description=getdoc(tool))
    server.run("stdio")
