"""A command of `triton-ops` as the answer to a call: run in a process of its own, within its seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import anyio
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent

from triton_ops.exceptions import TritonKernelError
from triton_ops.processes import WorkerLostError, WorkerProcess
from triton_ops_mcp.answers import text_of

_PROGRAM = "triton_ops_mcp.command_child"
_LOOK_S = 0.02  # between two looks whether the command has ended
_TAKES_S = 10.0  # for an answer that has begun to be read
_BAD_INPUT = 2


async def answer_of(command: str, target: str, limit_s: float, **options: Any) -> CallToolResult:
    """The document of a command on a target, with options by their names; those that are empty are left out.

    However the call ends, so do all processes that it has started.

    Raises:
        ToolError: The command failed, or took longer than `limit_s`.
    """
    words = [*command.split(), "--json", *_typed(options), "--", target]  # what a client names is never an option
    try:
        code, document = await _ended(words, limit_s)
    except TimeoutError as error:
        message = f"triton-ops {command} did not end within {limit_s:g} s"
        raise ToolError(f"{message} (hint: ask for less, or give more seconds)") from error
    except (TritonKernelError, WorkerLostError) as error:
        raise ToolError(str(error)) from error
    if document["kind"] == "triton-ops error":
        hint = f" (hint: {document['hint']})" if document["hint"] else ""
        raise ToolError(f"{document['error']}: {document['message']}{hint}")
    text = TextContent(type="text", text=text_of(document))
    return CallToolResult(content=[text], structured_content=document, is_error=code == _BAD_INPUT)


async def _ended(words: list[str], limit_s: float) -> tuple[int, dict[str, Any]]:
    """The exit code of a command, and its document."""
    # Python then imports nothing from the current folder in place of its own modules.
    worker = WorkerProcess(program=_PROGRAM, changes={"PYTHONSAFEPATH": "1"})
    try:
        worker.begin(words)
        with anyio.fail_after(limit_s):
            while not worker.has_written:
                await anyio.sleep(_LOOK_S)
        code, document = worker.ask(words, _TAKES_S, {}, "command", lambda answer: isinstance(answer, tuple))
        return code, document
    finally:
        worker.kill()


def _typed(options: Mapping[str, Any]) -> Iterator[str]:
    """Options as words: a space is JSON, of another mapping each name is `NAME=VALUE`, and a truth value is a flag."""
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if name == "space" and value:
            yield f"{flag}={json.dumps(value)}"
        elif isinstance(value, Mapping):
            texts = {key: each if isinstance(each, str) else json.dumps(each) for key, each in value.items()}
            yield from (f"{flag}={key}={text}" for key, text in texts.items())
        elif value:
            yield flag if value is True else f"{flag}={value}"
