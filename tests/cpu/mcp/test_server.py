"""A client of the official SDK talks to `triton-ops mcp` over pipes, as an agent's program does."""

import json
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from mcp import Client, StdioServerParameters, stdio_client

from tests.limits import eventually
from triton_ops.cli.app import main
from triton_ops_mcp.answers import MOST

pytestmark = pytest.mark.processes
SOFTMAX = """
import numpy
from triton_ops import operation


def softmax(x, *, rows):
    x = numpy.asarray(x)
    out = numpy.empty_like(x)
    for at in range(0, len(x), rows):
        part = numpy.exp(x[at : at + rows])
        out[at : at + rows] = part / part.sum(axis=1, keepdims=True)
    return out


@operation(space={"rows": [64, 16]}, arguments=lambda n=256: {"n": n}, device="cpu")
def numbers(n, rows):
    return sum(range(n))


def slow(n, *, rows):
    import os, subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    with open("pids", "a") as file:
        file.write(f"{os.getpid()}\\n{child.pid}\\n")
    time.sleep(600)
"""
KERNELS = """
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 1024})], key=["n"])
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def doubled(x):
    out = x.new_empty(x.shape)
    double[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out
"""
OLD = """
import numpy


def softmax(x):
    for _ in range(20):
        numpy.exp(x)
    parts = numpy.exp(x)
    return parts / parts.sum(-1, keepdims=True)
"""
NEW = """
import numpy


def once(x):
    parts = numpy.exp(x)
    return parts / parts.sum(-1, keepdims=True)


def softmax(x):
    result = once(x)
    result[:, x.shape[1] // 8 * 8 :] = 0
    return result
"""
UNMASKED = """
import triton
import triton.language as tl


@triton.jit
def unmasked(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at))
"""
TOOLS = ["check", "tune", "explain", "lint", "compile", "why"]
MOST_OF_A_LISTING = 9_000  # characters, which an agent reads before it does anything
SLOW = {"target": "functions.py:slow", "space": {"rows": [1]}, "arguments": {"n": "3"}, "device": "cpu"}


class Agent:
    """A client, its server's folder, and its calls, each an answer's document or the text of an error."""

    def __init__(self, portal, client, folder):
        self.portal, self.client, self.folder = portal, client, folder

    def tools(self):
        return {tool.name: tool for tool in self.portal.call(self.client.list_tools).tools}

    async def asked(self, tool, **arguments):
        return await self.client.call_tool(tool, arguments)

    def call(self, tool, **arguments):
        answer = self.portal.call(lambda: self.asked(tool, **arguments))
        (content,) = answer.content
        assert len(content.text) <= MOST
        assert not answer.is_error, content.text
        assert json.loads(content.text) == answer.structured_content
        return answer.structured_content

    def error(self, tool, **arguments):
        answer = self.portal.call(lambda: self.asked(tool, **arguments))
        assert answer.is_error
        return answer.content[0].text


@contextmanager
def serving(folder):
    texts = {"functions": SOFTMAX, "kernels": KERNELS, "unmasked": UNMASKED, "old": OLD, "new": NEW}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "json.py").write_text("raise SystemExit('a file of the user')")
    words = ["-P", "-m", "triton_ops", "mcp"]
    environment = {**os.environ, "TRITON_OPS_CACHE_DIR": str(folder / "cache")}
    there = StdioServerParameters(command=sys.executable, args=words, env=environment, cwd=folder)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Client(stdio_client(there))) as client:
        yield Agent(portal, client, folder)


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("served")) as agent:
        yield agent


def test_an_agent_reads_little_to_know_the_tools(agent):
    tools = agent.tools()
    assert list(tools) == TOOLS
    assert sum(len(tool.model_dump_json(exclude_none=True)) for tool in tools.values()) <= MOST_OF_A_LISTING
    for tool in tools.values():
        types = {name: one.get("type") for name, one in tool.input_schema["properties"].items()}
        assert None not in types.values(), tool.name
        assert types["seconds"] == "number"


def test_a_function_of_numpy_is_tuned_and_then_recalled(agent):
    asked = {"target": "functions.py:softmax", "space": {"rows": [1, 256]}, "arguments": {"x": "256x64:fp32"}}
    found = agent.call("tune", **asked, device="cpu")
    assert (found["kind"], found["best_config"], found["from_cache"]) == ("triton-ops tune", {"rows": 256}, False)
    assert agent.call("tune", **asked, device="cpu")["from_cache"]


async def judged(agent, *candidates):
    """The documents of checks that run at the same time."""
    found = {}

    async def ask(candidate):
        asked = {"reference": "old.py:softmax", "shape": "64x200", "device": "cpu", "numpy": True, "seconds": 60}
        found[candidate] = (await agent.asked("check", candidate=f"new.py:{candidate}", **asked)).structured_content

    async with anyio.create_task_group() as calls:
        for candidate in candidates:
            calls.start_soon(ask, candidate)
    return found


def test_a_wrong_candidate_and_a_right_one_are_judged_at_the_same_time(agent):
    found = agent.portal.call(judged, agent, "softmax", "once")
    wrong, right = found["softmax"], found["once"]
    assert (wrong["kind"], wrong["verdict"], wrong["fault"]["shape"]) == ("triton-ops check", "wrong", "1x1")
    assert (right["fault"], right["candidate"]) == (None, "new.py:once")
    assert right["speedup"] > 2


def test_a_kernel_is_compiled_and_ranked_for_a_gpu_that_is_not_here(agent):
    asked = {"target": "kernels.py:double", "gpu": "sm_90", "shape": "4096"}
    compiled = agent.call("compile", **asked)["items"]
    assert [(one["config"]["BLOCK"], one["status"], one["spill_bytes"]) for one in compiled] == [
        (256, "ok", 0), (1024, "ok", 0),
    ]  # fmt: skip
    assert {one["config"]["BLOCK"] for one in agent.call("explain", **asked)["items"]} == {256, 1024}


def test_a_planted_fault_is_found(agent):
    (finding,) = agent.call("lint", target="unmasked.py")["findings"]
    assert (finding["rule"], finding["line"]) == ("missing-mask", 9)


def test_why_says_which_config_a_call_would_run(agent):
    told = agent.call("why", target="functions.py:numbers", device="cpu")
    assert (told["kind"], told["config"]) == ("triton-ops why", {"rows": 64})


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("tune", {"target": "absent.py:f"}, "TargetError: there is no file absent.py (hint: TARGET is"),
        ("lint", {"target": "absent.py"}, "there is no file absent.py (hint: name a file"),
        ("explain", {"target": "softmax", "shape": "4x", "gpu": "sm_90"}, "(hint: for example --shape 4096x4096)"),
        ("compile", {"target": "softmax", "gpu": "sm_9"}, "(hint: "),
        ("lint", {"target": "--sarif=written.json"}, "--sarif=written.json"),
        ("why", {"target": "softmax", "shape": 5}, "Input should be a valid string"),
        ("explain", {"target": "softmax", "view": "all"}, "Input should be 'rank', 'spills' or 'cliffs'"),
        ("why", {"target": "softmax", "seconds": 1e9}, "less than or equal to 3600"),
        ("no such tool", {}, "no such tool"),
    ],
)
def test_bad_input_is_an_error_with_its_hint(agent, tool, arguments, said):
    assert said in agent.error(tool, **arguments)
    assert not (agent.folder / "written.json").exists()


def started(folder):
    path = folder / "pids"
    eventually(lambda: path.exists() and len(path.read_text().split()) >= 2)
    return [int(pid) for pid in path.read_text().split()]


def ended(pids):
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), lambda: f"{pids} run on")


async def cancelled(agent):
    """A call that is given up as soon as the function runs."""
    async with anyio.create_task_group() as calls:
        calls.start_soon(lambda: agent.asked("tune", **SLOW))
        await anyio.to_thread.run_sync(started, agent.folder)
        calls.cancel_scope.cancel()


def test_a_call_that_is_cancelled_leaves_no_process(agent):
    (agent.folder / "pids").unlink(missing_ok=True)
    agent.portal.call(cancelled, agent)
    ended(started(agent.folder))
    assert agent.call("lint", target="kernels.py")["findings"] == []


def test_a_call_that_takes_too_long_is_ended_with_its_processes(agent):
    (agent.folder / "pids").unlink(missing_ok=True)
    assert agent.error("tune", **SLOW, seconds=6).endswith(
        "triton-ops tune did not end within 6 s (hint: ask for less, or give more seconds)"
    )
    ended(started(agent.folder))


def test_calls_end_with_the_server(tmp_path):
    with serving(tmp_path) as agent:
        call = agent.portal.start_task_soon(lambda: agent.asked("tune", **SLOW))
        pids = started(tmp_path)
        (server,) = (int(entry.name) for entry in Path("/proc").iterdir() if is_server(entry, tmp_path))
        os.kill(server, signal.SIGKILL)
        ended([server, *pids])
        call.cancel()


def is_server(entry, folder):
    try:
        return (
            entry.name.isdigit() and b"\0mcp\0" in (entry / "cmdline").read_bytes() and (entry / "cwd").samefile(folder)
        )
    except OSError:
        return False


def test_the_command_names_the_extra_that_it_needs(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("triton_ops_mcp.command")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules["triton_ops_mcp"].__dict__, "mcp_command", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert main(["mcp"]) == 3
    assert capsys.readouterr().err.endswith("not installed (hint: pip install 'triton-ops[mcp]')\n")
