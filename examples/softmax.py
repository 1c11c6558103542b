"""Softmax over rows, as an operation: a kernel, what may be tuned, and what it must compute.

    triton-ops compile examples/softmax.py:softmax --shape 8192x4096 --gpu sm_90     # anywhere
    triton-ops tune examples/softmax.py:softmax --shape 8192x4096 --dtype bf16          # on a GPU

docs/guides/kernel.md goes through it part by part.
"""

import triton
import triton.language as tl

from triton_ops import ConfigSpace, Constraint, Operation, PowerOfTwo, RowTiles, TensorSpec, TritonKernel, Work


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * columns
    out += row * columns
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        part = tl.load(x + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(part, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(part - higher), axis=0)
        top = higher
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        part = tl.load(x + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        tl.store(out + at, tl.exp(part - top) / total, mask=at < columns)


def grid(meta):
    """One program per row."""
    return (meta["x"].shape[0],)


def arguments(rows: int = 8192, columns: int = 4096, dtype: str = "float32"):
    """The kernel's arguments for x[rows, columns], by name, in its parameter order."""
    return {
        "x": TensorSpec((rows, columns), dtype),
        "out": TensorSpec((rows, columns), dtype, fill="empty"),
        "columns": columns,
    }


def space(problem):
    """Blocks up to the first power of two that holds a row, which the kernel can take at once."""
    widest = max(128, triton.next_power_of_2(problem["columns"]))
    return ConfigSpace(
        {"BLOCK": PowerOfTwo(128, 32768), "num_warps": PowerOfTwo(1, 16)},
        constraints=[
            Constraint("in_row", lambda BLOCK: widest >= BLOCK, f"a block of {{BLOCK}} is wider than {widest}"),
            Constraint("busy", lambda BLOCK, num_warps: 32 * num_warps <= BLOCK, "{num_warps} warps have no work"),
        ],
        default={"BLOCK": min(widest, 4096), "num_warps": 4},
    )


def reference(x, out, columns):
    """What `out` must hold."""
    return x.softmax(-1)


def work(problem):
    """Each element read and written once: the memory's bandwidth is what limits."""
    rows, columns = problem["x"].shape
    dtype = problem["x"].dtype
    moved = problem["x"].nbytes + problem["out"].nbytes
    tiles = RowTiles(rows, columns, dtype=dtype, out_dtype=dtype, tile_rows=1, tile_columns="BLOCK")
    return Work(bytes=moved, tiles=tiles)


softmax = Operation(
    name="softmax",
    kernel=TritonKernel(softmax_kernel, grid, outputs=("out",)),
    space=space,
    arguments=arguments,
    reference=reference,
    work=work,
    dtypes=("float32", "bfloat16", "float16"),
    device="cuda",
)
