"""The work of a config's launches: some figures for each loop, each product of tiles and each access to memory."""

from __future__ import annotations

from dataclasses import dataclass

DTYPES = {
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "tf32": "float32", "f64": "float64", "i8": "int8",
    "f8E4M3FN": "float8_e4m3fn", "f8E4M3FNUZ": "float8_e4m3fn", "f8E5M2": "float8_e5m2", "f8E5M2FNUZ": "float8_e5m2",
}  # fmt: skip

ACCUMULATED_BYTES = 4  # of an element of a product's result: sums are in float32 or int32


@dataclass(frozen=True, kw_only=True)
class Access:
    """One load, store or atomic operation, with figures of the average program.

    Attributes:
        kind: `load`, `store` or `atomic`.
        argument: The operand of the kernel that it goes to, counted from 0; -1 if that is unknown.
        element: Type of an element, as TTIR names it.
        item_bytes: Size of an element.
        loop: The loop around, by its place among the loops; -1 outside of loops.
        executions: How often a program reaches it.
        tile: Elements of one execution without a mask.
        elements: Elements that a program moves by it in all.
        distinct: Share of the elements of one execution that lie at different addresses.
        lines: 128-byte lines of one execution.
        sectors: 32-byte sectors of one execution, the least that L2 moves.
        run_bytes: Bytes that follow each other in memory.
        descriptor: Whether a tensor descriptor says where the block lies.
        still: Whether a turn of the loop around does not change where it goes.
        repeats: How often a program goes to the same places by it, because turns of loops around do not change them.
        known: Whether its addresses are known.
        again: The access that goes to the same places of the same argument, by its place, and is reached more often, or
            as often and earlier; -1 if none does.
        shared: Different places to which 1, 2, 4, … programs go that follow each other, when they first reach it; the
            last figure is that of the whole grid, or of the programs that were looked at.
    """

    kind: str
    argument: int
    element: str
    item_bytes: int
    loop: int
    executions: float
    tile: int
    elements: float
    distinct: float
    lines: float
    sectors: float
    run_bytes: float
    descriptor: bool
    still: bool
    repeats: float
    known: bool
    again: int
    shared: tuple[float, ...]

    @property
    def bytes(self) -> float:
        """Bytes that a program moves by it in all."""
        return self.elements * self.item_bytes


@dataclass(frozen=True, kw_only=True)
class Product:
    """One product of two tiles.

    Attributes:
        batch: Products of one execution.
        rows: Rows of the result.
        columns: Columns of the result.
        inner: Length of the sums.
        element: Type of the operands, as TTIR names it.
        loop: The loop around, by its place among the loops; -1 outside of loops.
        executions: How often a program reaches it.
        loads: For each operand the access that it comes from, by its place; -1 if it was computed.
        after: The products of the same turn of the loop around that its operands wait for, by their places.
        computed: Whether its operands are computed in the loop around, from products or from what was loaded.
    """

    batch: int
    rows: int
    columns: int
    inner: int
    element: str
    loop: int
    executions: float
    loads: tuple[int, int]
    after: tuple[int, ...] = ()
    computed: bool = False

    @property
    def dtype(self) -> str:
        """The long name of the operands' dtype, or TTIR's where there is none."""
        return DTYPES.get(self.element, self.element)

    @property
    def flops(self) -> float:
        """Floating-point operations of a program by it in all."""
        return 2.0 * self.batch * self.rows * self.columns * self.inner * self.executions


@dataclass(frozen=True, kw_only=True)
class LoopWork:
    """One loop.

    Attributes:
        parent: The loop around, by its place among the loops; -1 outside of loops.
        entries: How often a program enters it.
        turns: How often a program runs its body, over all entries.
        most: The same of the program that runs it most often.
        stages: Stages of its pipeline that the kernel asks for; None if it leaves them to the launch.
        flags: What else the kernel asks of it: `flatten`, `warp_specialize`.
        by_data: Whether its end depends on data.
        plain: Floating-point operations on single elements in its body, over all turns.
        special: The same of exponentials, divisions, square roots and the like.
        written: Whether its bounds are numbers in the text, so that the compiler knows its turns.
    """

    parent: int
    entries: float
    turns: float
    most: float
    stages: int | None
    flags: tuple[str, ...]
    by_data: bool
    plain: float
    special: float
    written: bool = False


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """One reduction of a tile along one of its axes.

    Attributes:
        shape: Extents of the tile.
        axis: The axis that is reduced.
        executions: How often a program reaches it.
    """

    shape: tuple[int, ...]
    axis: int
    executions: float


@dataclass(frozen=True)
class Argument:
    """One operand of the kernel.

    Attributes:
        name: The parameter's name; empty if it is not known.
        bytes: Of a tensor the bytes that it spans in memory; 0 if that is not known.
    """

    name: str = ""
    bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class LaunchWork:
    """The work of one launch; its figures are those of the average program.

    Attributes:
        grid: Programs along x, y and z.
        looked_at: Programs that follow each other and were looked at for what they share.
        arguments: The operands of the kernel that are known, in order.
        loops: The loops, in the order of the text.
        accesses: The accesses to memory, in the order of the text.
        products: The products of tiles, in the order of the text.
        plain: Floating-point operations on single elements outside of loops.
        special: The same of exponentials, divisions, square roots and the like.
        notes: What could not be told, in words.
        alive: 32-bit words that a block holds at once at a reduction or a product; 0 without one.
        reductions: How often a program reduces or scans a tile, in loops and outside of them.
        reduced: The reductions among these, in the order of the text; empty in summaries of before they were kept.
    """

    grid: tuple[int, int, int]
    looked_at: int
    arguments: tuple[Argument, ...]
    loops: tuple[LoopWork, ...]
    accesses: tuple[Access, ...]
    products: tuple[Product, ...]
    plain: float
    special: float
    notes: tuple[str, ...] = ()
    alive: float = 0.0
    reductions: float = 0.0
    reduced: tuple[Reduction, ...] = ()

    @property
    def programs(self) -> int:
        """Number of programs."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def flops(self) -> float:
        """Floating-point operations of all products of the launch."""
        return self.programs * sum(product.flops for product in self.products)

    def moved_bytes(self, *kinds: str) -> float:
        """Bytes that all programs move by accesses of these kinds, before any cache."""
        return self.programs * sum(access.bytes for access in self.accesses if access.kind in kinds)


@dataclass(frozen=True)
class KernelWork:
    """The work of one config: of each of its launches, or why it cannot be told.

    Attributes:
        launches: The launches in order; empty if the work cannot be told.
        silent: Why it cannot be told; empty if it can.
    """

    launches: tuple[LaunchWork, ...] = ()
    silent: str = ""

    @property
    def accumulator(self) -> tuple[int, int] | None:
        """Rows and columns of the largest result of a product; None without products, or if nothing is known."""
        products = [product for launch in self.launches for product in launch.products]
        largest = max(products, key=lambda each: each.batch * each.rows * each.columns, default=None)
        return None if largest is None else (largest.batch * largest.rows, largest.columns)
