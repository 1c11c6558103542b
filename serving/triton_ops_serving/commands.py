"""Commands on an engine's tables: `triton-ops engine list`, `check`, `tune` and `export`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from triton_ops.base import NamedFile, SealedFile, fingerprint, installed_version
from triton_ops.device import DeviceSpec, probe
from triton_ops.dispatch import LaunchedConfig
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records import Lockfile
from triton_ops.request import TuneOptions
from triton_ops.ship import Table
from triton_ops.terminal import ExitCode, Facts, only_data_on_stdout, option
from triton_ops_serving.formats import FormTable, file_text, form_of
from triton_ops_serving.model import EngineProblem, Model
from triton_ops_serving.pinned import rows_of, voted
from triton_ops_serving.tables import FOLDERS, Place
from triton_ops_serving.tuning import LIMITS, OPERATIONS, TunedTables

TritonVersion = Annotated[str | None, option("--triton", "Triton's version there; default the one here.", "X.Y.Z")]
Markdown = Annotated[bool, option("--markdown", "Print the table as Markdown, for a review.")]
LockOption = Annotated[Path, option("--lockfile", "The lockfile with the engine's rows.", "FILE")]


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model in an engine, or one rank's share of it, with the tables that the engine looks for."""

    engine: str
    path: Path  # of the model's config.json
    model: Model
    problems: Sequence[EngineProblem]

    @classmethod
    def of(
        cls,
        engine: Annotated[str, option("ENGINE", "vllm or sglang.")],
        model: Annotated[Path, option("--model", "The model's config.json, as Hugging Face's models have.", "FILE")],
        tp: Annotated[int, option("--tp", "Tensor-parallel ranks, one of whose shares is meant.", "T")] = 1,
        expert_parallel: Annotated[bool, option("--expert-parallel", "Ranks share experts, not their width.")] = False,
        lora_rank: Annotated[int, option("--lora-rank", "The largest rank of adapters; default 0, none.", "R")] = 0,
        max_loras: Annotated[int, option("--max-loras", "Adapters of a batch, as the engine has them.", "N")] = 1,
    ) -> ServedModel:
        """The model in a file, as the options of commands say."""
        read = Model.read(model, tp, expert_parallel=expert_parallel, adapters=(lora_rank, max_loras))
        return cls(engine=engine, path=model, model=read, problems=read.problems(engine))


Served = Annotated[ServedModel, ""]


def _place_of(gpu: str | None, triton: str | None) -> Place:
    """The device and the version of Triton that are named, else those of this machine; SettingsError for none."""
    called = DeviceSpec.called(gpu) if gpu else probe()
    if called is not None and called.is_cpu:
        raise SettingsError("there is no GPU here whose tables could be meant", hint="--gpu H200")
    version = triton or installed_version("triton")
    if version is None:
        raise SettingsError("Triton is not installed here", hint="name the server's version: --triton 3.9.0")
    return Place(device=called.name if called else str(gpu), triton=version)


def _facts(
    kind: str, served: ServedModel, items: Sequence[Mapping[str, Any]], columns: Sequence[str], *numbers: str,
    **more: Any,
) -> Facts:  # fmt: skip
    """The document of a command with its items, the table of some of their values, and what the model leaves out."""
    names = {"engine": served.engine, "model": served.model.name}
    facts = Facts(f"engine {kind}", {**names, **more, kind: items})
    facts.table(columns, [[_text(item[name]) for name in columns] for item in items], numbers)
    for remark in dict.fromkeys(served.model.remarks):
        facts.tell(remark, "not listed" if "left out" in remark else "note", "yellow")
    return facts


def _text(value: Any) -> str:
    """A value in a table: a number in short, a mapping as `name=value`, and nothing for None."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return " ".join(f"{name}={one}" for name, one in value.items())
    return "-" if value is None else str(value)


def list_command(
    served: Served,
) -> Facts:
    """List the tables that ENGINE looks for when it serves a model: of experts, state spaces, adapters, block-wise fp8.

    What of the model is not understood is said on stderr.
    """
    problems = served.problems
    rows = [f"{each.row}={each.sizes[0]}..{each.sizes[-1]}, {len(each.sizes)} in all" for each in problems]
    items = [{**asdict(each), "problem": each.label, "rows": text} for each, text in zip(problems, rows, strict=True)]
    return _facts("problems", served, items, ("form", "layer", "problem", "extents", "rows"))


def check_command(
    served: Served,
    gpu: str | None = None,
    triton: TritonVersion = None,
    lockfile: LockOption = Path(Lockfile.DEFAULT_NAME),
) -> Facts:
    """Say which table ENGINE finds for each problem of a model, by its own rules, and which rows a lockfile pins.

    Tables are looked for where the engine is installed, and in the folder that its variable names. The exit code is 5
    if one is missing, was found with another version of Triton, or lacks sizes, and the lockfile has no row for it; or
    if one is no table, which ends the engine.
    """
    place, lock = _place_of(gpu, triton), Lockfile.read(lockfile, or_empty=True)
    items = [_checked(place, lock, each) for each in served.problems]
    columns = ("form", "problem", "file", "pinned", "says")
    facts = _facts("tables", served, items, columns, "pinned", device=place.device, triton=place.triton)
    failed = any(each["rows"] is None or (each["says"] and not each["pinned"]) for each in items)
    facts.code = ExitCode.CHECK_FAILED if failed else ExitCode.DONE
    if not any(place.folders(each.form) for each in served.problems):
        variables = ", ".join(sorted({FOLDERS[each.form][1] for each in served.problems} - {""}))
        why = f"{variables} may name one" if variables else "it is not installed"
        facts.tell(f"no folder of {served.engine}'s tables is known here: {why}", "note", "yellow")
    return facts


def _checked(place: Place, lock: Lockfile, problem: EngineProblem) -> dict[str, Any]:
    pinned = rows_of(lock, problem.form, problem.facts, place.device)
    file: str | None = None
    count: int | None = 0
    says = "missing: the engine's default config serves"
    try:
        if table := place.find(problem):
            file, count, says = str(table.path), len(table.rows), table.says
    except CacheError as error:
        count, says = None, str(error)
    item = {"form": problem.form, "layer": problem.layer, "problem": problem.label, "file": file, "rows": count}
    return {**item, "pinned": len(pinned), "says": says}


def tune_command(
    served: Served,
    size: Annotated[list[int] | None, option("--size", "A row; repeat it. Default all of the engine's.", "M")] = None,
    only: Annotated[str, option("--only", "Only tables with this text in their form or problem.", "TEXT")] = "",
    routing: Annotated[str, option("--routing", "uniform, zipf:1.2, or a JSON file with loads.", "LOADS")] = "uniform",
    misses: Annotated[Path | None, option("--misses", "A report: only what nothing answered.", "FILE")] = None,
    each_s: Annotated[float | None, option("--each-s", "Most seconds of each row; default by effort.", "S")] = None,
    lockfile: LockOption = Path(Lockfile.DEFAULT_NAME),
    markdown: Markdown = False,
    *,
    options: Annotated[TuneOptions, " ".join(LIMITS)],
) -> Facts:
    """Tune ENGINE's own kernels on a model's problems, and pin the rows in a lockfile.

    Each row races with the one that the engine takes now, that of its table or its default. It stays unless another is
    proven faster. The exit code is 1 if a row could not be tuned.
    """
    problems, remarks = served.problems, served.model.remarks
    if misses is not None:
        missed = {(row.kernel, row.problem) for row in LaunchedConfig.read_report(misses) if row.rung == "default"}
        problems = [each for each in problems if (each.form, each.label) in missed]
    problems = [each for each in problems if only in f"{each.form} {each.label}"]
    mine = [each for each in problems if each.form in OPERATIONS]
    remarks += [f"{each.form} {each.label} is not tuned here: left out" for each in problems if each not in mine]
    Lockfile.read(lockfile, or_empty=True)  # one that is refused is no surprise after minutes
    if not lockfile.expanduser().absolute().parent.is_dir():
        raise SettingsError(f"{lockfile} cannot be written: there is no such folder", hint="make it, or name another")
    place = Place(device=probe().name, triton=installed_version("triton") or "")
    limits = {name: getattr(options, name) for name in LIMITS}
    tables = TunedTables(place, lockfile, served.model, routing, size or (), limits, each_s)
    only_data_on_stdout()
    tables.tune(mine)
    if not (rows := tables.rows):
        raise SettingsError("; ".join(["nothing is left to tune", *remarks]), hint="triton-ops engine list")
    columns = ("problem", "row", "was_ms", "ms", "verdict", "tried", "config")
    facts = _facts("rows", served, rows, columns, *columns[1:6], device=place.device, routing=routing)
    failed = ExitCode.INTERRUPTED if tables.interrupted else ExitCode.NONE_RAN
    facts.code = ExitCode.DONE if all(row["ms"] for row in rows) else failed
    facts.lines(f"{sum(bool(row['config']) for row in rows)} rows pinned in {lockfile}, in {tables.elapsed_s:.0f} s")
    return facts.as_markdown if markdown else facts


def export_command(
    served: Served,
    folder: Annotated[Path, option("FOLDER", "Where ENGINE looks for its tables.")],
    gpu: str | None = None,
    triton: TritonVersion = None,
    lockfile: Annotated[
        list[Path] | None, option("--lockfile", "The rows; of several, such as of ranks, by their vote.", "FILE")
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", "Only say what would change.")] = False,
    undo: Annotated[bool, option("--undo", "Put the tables back that the last export has replaced.")] = False,
    markdown: Markdown = False,
) -> Facts:
    """Write the rows that a lockfile pins as tables of ENGINE, and say what changes; other rows stay as they are.

    Each row is then looked up by the engine's own rule. The table that was there stays beside the new one, for --undo.
    A table that has the rows already is not written.
    """
    problems, place, rows = served.problems, _place_of(gpu, triton), []
    paths = lockfile or [Path(Lockfile.DEFAULT_NAME)]
    lock = Lockfile() if undo else voted([Lockfile.read(path) for path in paths])  # a torn one stops no undo
    known = [each for each in problems if undo or rows_of(lock, each.form, each.facts, place.device)]
    for path, sharing in _by_file(place, problems, folder).items():
        mine = [each for each in sharing if each in known]
        if undo:
            rows += _undone(path, dry_run=dry_run)
        elif mine:
            changes, tables = _changed(lock, place, mine, path)
            rows += changes
            if tables and not dry_run:
                _write(tables, sharing, folder, path)
    if not (rows if undo else known):
        what = "there is nothing to undo" if undo else f"{paths[0]} has no row for this model on {place.device}"
        command = f"export {served.engine} {folder}" if undo else f"tune {served.engine}"
        raise CacheError(what, hint=f"triton-ops engine {command} --model {served.path}")
    columns = ("file", "row", "was", "now", "ms", "source")
    facts = _facts("changes", served, rows, columns, "row", "ms", device=place.device)
    if not rows:
        facts.tell(f"the tables of {served.engine} have these rows already", "note", "yellow")
    return facts.as_markdown if markdown else facts


_BEFORE = ".before"
"""The ending of the file that has what an export replaced, None for no table, and the fingerprint of what it wrote."""
_BYTES = "latin-1"  # of any bytes as a text of JSON


def _by_file(place: Place, problems: Sequence[EngineProblem], folder: Path) -> dict[Path, list[EngineProblem]]:
    """The problems whose tables are in one file, by its path below a folder."""
    files: dict[Path, list[EngineProblem]] = {}
    for each in problems:
        path = form_of(each.form, each.facts).file_below(folder, place.facts(each))
        files.setdefault(path, []).append(each)
    return files


def _changed(
    lock: Lockfile, place: Place, problems: Sequence[EngineProblem], path: Path
) -> tuple[list[dict[str, Any]], list[FormTable]]:
    """What changes in the tables of a file, row by row, and all its tables; none where they are as they would be."""
    changes, tables, same = list[dict[str, Any]](), list[FormTable](), True
    for problem in problems:
        pinned, now = rows_of(lock, problem.form, problem.facts, place.device), place.find(problem, path)
        own = dict(now.rows) if now else {}
        rows = {**own, **{size: dict(entry.config) for size, entry in pinned.items()}}
        table = Table.by_size(place.facts(problem), ((size, row, None) for size, row in rows.items()))
        tables.append((form_of(problem.form, problem.facts), table))
        same = same and rows == own and now is not None and now.path.resolve() == path.resolve()
        changes += [
            {"file": path.name, "row": size, "was": own.get(size) and dict(sorted(own[size].items())),
             "now": dict(sorted(entry.config.items())), "ms": entry.measured and entry.measured.median_ms,
             "source": entry.origin.source}
            for size, entry in sorted(pinned.items()) if own.get(size) != dict(entry.config)
        ]  # fmt: skip
    return changes, [] if same else tables


def _write(tables: Sequence[FormTable], sharing: Sequence[EngineProblem], folder: Path, path: Path) -> None:
    """Write the tables of a file, with what was there beside it, and look every row up.

    What the engine cannot have is refused before anything is replaced.
    """
    forms = [form_of(each.form, each.facts) for each in sharing]
    with CacheError.when(f"{path.parent} cannot be written", "name another folder"):
        file_text(tables, _bytes_of(path), path, forms)
        path.parent.mkdir(parents=True, exist_ok=True)
        with Lockfile.editing(path):  # an export of another model may have written the file meanwhile
            before = _bytes_of(path)
            text = file_text(tables, before, path, forms)
            content = None if before is None else before.decode(_BYTES)
            SealedFile(path.with_name(path.name + _BEFORE)).write({"before": content, "exported": fingerprint(text)})
            NamedFile(path).write(text)
    for form, table in tables:
        for row in table.rows:
            answer = form.look_up(folder, table.facts, row.at)
            if answer is None or answer[1].config != row.config:
                raise CacheError(f"{path} is written, and the engine would not find {row.name} in it", hint="--undo")


def _bytes_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _undone(path: Path, *, dry_run: bool) -> list[dict[str, Any]]:
    """Put back, or only say, what the last export replaced; CacheError where the table is not the one that it wrote."""
    backup = path.with_name(path.name + _BEFORE)
    if not NamedFile(backup).exists:
        return []
    damages = (OSError, KeyError, AttributeError, UnicodeError)
    with CacheError.when(f"{path} cannot be put back", f"look at {backup}", *damages):
        content = SealedFile(backup).read()
        before = None if content["before"] is None else content["before"].encode(_BYTES)
        unchanged = fingerprint(NamedFile(path).read().decode(_BYTES)) == content["exported"]
    if not unchanged:
        raise CacheError(f"{path} has changed since it was exported: nothing is put back", hint=f"look at {backup}")
    if not dry_run:
        with CacheError.when(f"{path} cannot be put back", "have the folder writable"):
            path.unlink() if before is None else NamedFile(path).write(before)
            backup.unlink()
    now = "no table" if before is None else "the table that was there before"
    return [{"file": path.name, "row": "all", "was": "the exported table", "now": now, "ms": None, "source": "undo"}]
