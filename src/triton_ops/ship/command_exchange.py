"""Commands that hand winners on: `triton-ops exchange` to tables of other engines and back, `lock portfolio` as few."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from triton_ops.base import canonical_json, counted, gain_text
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records import LockEntry, Lockfile, LockPlan
from triton_ops.ship.formats import FORMATS, format_named
from triton_ops.ship.portfolio import Portfolio, choose_portfolio
from triton_ops.ship.table import Format, Names, Table
from triton_ops.ship.targets import as_target
from triton_ops.space import Config
from triton_ops.terminal import ExitCode, Facts, folder_of, option, tell
from triton_ops.typed import named_object, parse_pairs

FormatName = Annotated[str, option("FORMAT", f"One of {', '.join(FORMATS)}.")]
Kernel = Annotated[str, option("--kernel", "The kernel's name in records.", "NAME")]
Rows = Annotated[list[str] | None, option("--row", "An extent that names rows, such as M; repeat it.", "EXTENT")]
TableFacts = Annotated[list[str] | None, option("--set", "A fact by which a table is found; repeat it.", "NAME=VALUE")]
Renamed = Annotated[list[str] | None, option("--rename", "The engine's name of a tunable; repeat it.", "OURS=THEIRS")]
_CONSTANTS = {"True": True, "False": False, "None": None}
LockOption = Annotated[Path, option("--lockfile", "The lockfile.", "FILE")]


def export_command(
    format_name: FormatName,
    folder: Annotated[Path, option("FOLDER", "Where the engine looks for its tables.")],
    kernel: Annotated[str | None, option("--kernel", "The kernel's name in records.", "NAME")] = None,
    lockfile: LockOption = Path(Lockfile.DEFAULT_NAME),
    run: Annotated[Path | None, option("--run", "A run log, all of whose configs are written.", "FILE")] = None,
    row: Rows = None,
    facts: TableFacts = None,
    rename: Renamed = None,
    device_alias: Annotated[str | None, option("--device-alias", "The device's alias in the lockfile.", "NAME")] = None,
) -> Facts:
    """Write the entries of a kernel as a table, and check that the engine would find each of them.

    Exit code 4: the engine's own rule does not find an entry.
    """
    if (kernel is None) == (run is None):
        raise SettingsError("export takes either --kernel or --run", hint="triton-ops exchange export --help")
    form = format_named(format_name)
    values, names = _facts(form, facts), _names(form, row, rename)
    tables: dict[str, Mapping[str, Any]] = {}
    first: list[Table] = []
    if kernel is not None:
        lock = Lockfile.read(lockfile)
        origins = [entry.origin for entry in lock.entries if entry.origin.form == format_name]
        tables = {origin.source: form.named(Path(origin.detail)) for origin in origins}
        table = Table.of_lockfile(lock, kernel, device_alias, names, values, tables)
        # The engine takes the second product's height from the first's table, which is therefore written along.
        partner = form.partner(table.facts)
        if any(partner.items() >= each.items() for each in tables.values()):
            first = [Table.of_lockfile(lock, kernel, device_alias, names, partner, tables)]
    else:
        table = Table.of_run(run or Path(), names, values)
    if not (best := table.best()):
        raise SettingsError(f"no config of {run} has a time", hint="export a run in which a config was right")
    paths = [_write(form, each, folder) for each in (*first, table)]
    is_named = any(table.facts["device_name"] == facts.get("device_name") for facts in (values, *tables.values()))
    if doubt := form.doubt(folder, table.facts, named=is_named):
        tell(doubt)
    lines = [
        f"{len(each.best())} rows to {path}, each found by the engine's own rule"
        for each, path in zip((*first, table), paths, strict=True)
    ]
    data = {"file": str(paths[-1]), "rows": len(best), "facts": dict(table.facts)}
    return Facts("exported table", data).lines(*lines)


def _write(form: Format, table: Table, folder: Path) -> Path:
    """Write a table, and look each of its rows up by the engine's own rule; what it replaces is told."""
    place, best = form.places(folder, table.facts)[0], table.best()
    before = form.read(place).best() if place.is_file() else ()
    path = form.write(table, folder)
    if before:
        gone = [row.name for row in before if row.at not in {each.at for each in best}]
        tell(f"replaced: a table of {len(before)} rows; no longer there: {', '.join(gone) or 'none'}")
    for each in best:
        answer = form.look_up(folder, table.facts, each.at)
        if answer is None or not each.launches_as(answer[1].config):
            instead = f": it takes ({answer[1].config}) of {answer[0]}" if answer else ""
            message = f"{path} is written, and the engine would not find {each.name} in it{instead}"
            raise CacheError(message, hint="correct the facts: --set NAME=VALUE")
    return path


def import_command(
    format_name: FormatName,
    file: Annotated[Path, option("FILE", "A table.")],
    kernel: Kernel,
    lockfile: LockOption = Path(Lockfile.DEFAULT_NAME),
    row: Rows = None,
    facts: TableFacts = None,
    rename: Renamed = None,
    argument: Annotated[
        list[str] | None,
        option("--argument", "An argument of each problem, or a fact; default those in the name.", "NAME[=VALUE]"),
    ] = None,
    bucket: Annotated[list[str] | None, option("--bucket", "As of `triton-ops lock`.", "EXTENT=RULE")] = None,
    replaces: Annotated[bool, option("--replace", "Replace entries that differ from the table.")] = False,
) -> Facts:
    """Take the fastest configs of a table into a lockfile; entries that are there already stay.

    What is not understood or left out is said on stderr with its number. Imported entries answer any source of the
    kernel. Exit code 4: nothing in the table can be called the best.
    """
    form = format_named(format_name)
    names, plan = _names(form, row, rename), LockPlan(buckets=parse_pairs(bucket, "--bucket", "M=measured@2"))
    table = form.read(file).for_rows(names)
    table = replace(table, facts={**table.facts, **_facts(form, facts)})
    for remark in table.notes:
        tell(f"{file.name}: {remark}")
    if not table.best():
        raise CacheError(f"{file} has no config that can be called the best", hint="name a table with times")
    if argument is None:
        others = (*names.rows, *Table.FACTS, "triton_version", "file", "folder", "mode")
        argument = [name for name in form.facts if name not in others and table.facts.get(name)]
    arguments = {text: form.needed(table.facts, text)[0] for text in argument if "=" not in text}
    arguments |= _values([text for text in argument if "=" in text], "--argument")
    new = table.lockfile(kernel, names.rows, arguments, file.name, form=format_name, plan=plan)
    places, source = {entry.place for entry in new.entries}, new.entries[0].origin.source
    there = [entry for entry in Lockfile.read(lockfile, or_empty=True).entries if entry.place in places]
    for other, number in Counter(entry.origin.source for entry in there if entry.origin.source != source).items():
        tell(f"{number} rows are there already, from {other}")
    count, differs = _add(new, lockfile, replaces=replaces)
    for was, now in differs:
        after = Config(dict(sorted(now.config.items()))) if now else "no longer in the table"  # in a lockfile's order
        tell(f"{'replaced' if replaces else 'differs'}: {was.label or was.kernel}: {was.config} | {after}")
    if differs and not replaces:
        tell(f"{len(differs)} entries of {lockfile} differ from the table, and stay (hint: --replace)")
    data = {
        "file": str(lockfile), "rows": len(new.entries), "added": count, "differ": len(differs), "replaced": replaces,
        "remarks": table.notes, "facts": dict(table.facts),
    }  # fmt: skip
    return Facts("imported table", data).lines(f"{len(new.entries)} rows read, {count} added to {lockfile}")


def _add(new: Lockfile, path: Path, *, replaces: bool) -> tuple[int, list[tuple[LockEntry, LockEntry | None]]]:
    """Add entries to a lockfile; return how many are new, and what differs, as it was there and as it is here.

    An entry differs if its config is another one here, whatever source of the kernel it is for, or if one of the
    same origin is no longer here. It stays as it was, unless it is to be replaced.
    """
    with Lockfile.editing(path):
        before = Lockfile.read(path, or_empty=True)
        by_problem = {_problem_of(entry): entry for entry in new.entries}
        origins = {(entry.kernel, entry.device, entry.origin.source) for entry in new.entries}
        pairs = [(old, by_problem.get(_problem_of(old))) for old in before.entries]
        differs = [
            (old, now)
            for old, now in pairs
            if (now and now.config != old.config)
            or (now is None and (old.kernel, old.device, old.origin.source) in origins)
        ]
        old_ones = [old for old, _ in differs] if replaces else []
        remainder = replace(before, entries=tuple(entry for entry in before.entries if entry not in old_ones))
        there = set(map(_problem_of, remainder.entries))
        # What is there already stays as it is, with its own origin.
        additions = tuple(entry for problem, entry in by_problem.items() if problem not in there)
        Lockfile.merged([remainder, replace(new, entries=additions)]).write(path)
    return len(by_problem.keys() - set(map(_problem_of, before.entries))), differs


def _problem_of(entry: LockEntry) -> tuple[Any, ...]:
    return entry.kernel, entry.device, canonical_json([dict(entry.problem), list(entry.ignored)])


def look_up_command(
    format_name: FormatName,
    folder: Annotated[Path, option("FOLDER", "Where the engine looks for tables; or a table.")],
    at: Annotated[list[str] | None, option("--at", "A value of the row's key, in order; repeat it.", "VALUE")] = None,
    facts: TableFacts = None,
) -> Facts:
    """Print the config that the engine would take, by its own rule.

    stderr says which row of which file it is. In place of FOLDER a table may stand, whose name says the facts.
    """
    form, key = format_named(format_name), [_key_value(text) for text in at or []]
    if (answer := form.look_up(folder, _facts(form, facts), key)) is None:
        raise CacheError(f"{format_name} finds nothing in {folder}", hint="check the facts: --set NAME=VALUE")
    path, row = answer
    data = {"config": dict(row.config), "row": list(row.at), "file": str(path)}
    which = f"for {row.name}" if row.at else "without a key"
    return Facts("looked up", data).lines(str(row.config)).tell(f"the row {which} of {path}")


def _names(form: Format, row: list[str] | None, rename: list[str] | None) -> Names:
    return Names(tuple(row or form.row), parse_pairs(rename, "--rename", "BM=BLOCK_SIZE_M"))


def _facts(form: Format, texts: list[str] | None) -> dict[str, Any]:
    values = _values(texts, "--set")
    if unknown := [name for name in values if name not in (*form.facts, *Table.FACTS)]:
        names = ", ".join(dict.fromkeys((*form.facts, *Table.FACTS)))
        raise SettingsError(f"--set {unknown[0]}: the format has no such fact", hint=f"it has {names}")
    return values


def _values(texts: list[str] | None, option: str) -> dict[str, Any]:
    return {name: _value(text) for name, text in parse_pairs(texts, option, "E=8").items()}


def _key_value(text: str) -> Any:
    """A value of a key as JSON or as Python prints it, else the text itself."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return _CONSTANTS.get(text, text)


def _value(text: str) -> Any:
    with suppress(ValueError):
        return int(text)
    if not text.isprintable():
        raise SettingsError(f"{text!r} has characters that are not printed", hint="write letters and digits")
    return {"true": True, "false": False}.get(text, text)


_CONFIGS = ("", "serves", "config")
_PROBLEMS = ("problem", "config", "regret", "vs default", "best there")
_NUMBERS = ("regret", "vs default", "serves")


def portfolio_command(
    kernel: Annotated[str, option("KERNEL", "A kernel's name in records, or a TARGET.", show_default=False)],
    most: Annotated[int, option("--most -k", "The most configs.", "K")] = 4,
    objective: Annotated[str, option("--objective", "worst or mean: which regret is made small.", "WORD")] = "worst",
    gpu: Annotated[str | None, option("--gpu", "A GPU, or a CPU's name; default that of the records.", "NAME")] = None,
    weight: Annotated[list[str] | None, option("--weight", "A problem's weight in the mean.", "LABEL=W")] = None,
    cache_dir: str | None = None,
) -> Facts:
    """Choose at most K configs for all problems of KERNEL that were tuned, from what was measured.

    Nothing is run. The regret of a config on a problem is the share by which it is slower than the best one there.

    Records that no comparison has decided do not count. Exit code 5: none of the configs is known to run on a problem;
    4: no record of the kernel counts.
    """
    weights = dict(_weight(text) for text in weight or [])
    name = as_target(named_object(kernel)).name if kernel.rpartition(":")[0].endswith(".py") else kernel
    folder = folder_of(cache_dir)
    portfolio = choose_portfolio(name, most, objective=objective, device=gpu, weights=weights, cache_dir=folder)
    problems = [
        {"label": each.label, "id": each.key, **Facts.members(each, "config", "regret", "gain", "best", "weight")}
        for each in portfolio.served
    ]
    plain = {name: value for name, value in vars(portfolio).items() if name != "served"}
    unmeasured = [{"config": config, "problems": labels} for config, labels in portfolio.unmeasured.items()]
    facts = Facts("portfolio", {**plain, "problems": problems, "unmeasured": unmeasured})
    facts.code = ExitCode.CHECK_FAILED if portfolio.unserved else ExitCode.DONE
    _add_tables(facts, portfolio)
    _tell(facts, portfolio)
    return facts


def _weight(text: str) -> tuple[str, float]:
    label, _, number = text.rpartition("=")
    with suppress(ValueError):
        if label and not math.isnan(value := float(number)):
            return label, value
    raise SettingsError(f"--weight {text!r} is not LABEL=NUMBER", hint="for example --weight '4096x4096 bfloat16=8'")


def _add_tables(facts: Facts, portfolio: Portfolio) -> None:
    numbers = {config: str(number) for number, config in enumerate(portfolio.configs, 1)}
    rows = [
        [number, str(sum(each.config == config for each in portfolio.served)), str(config)]
        for config, number in numbers.items()
    ]
    facts.table(_CONFIGS, rows, _NUMBERS).lines("")
    rows = [
        [
            each.label,
            *(["-", "-"] if each.config is None else [numbers[each.config], f"{each.regret:.1%}"]),
            gain_text(each.gain),
            str(each.best),
        ]
        for each in portfolio.served
    ]
    facts.table(_PROBLEMS, rows, _NUMBERS)


def _tell(facts: Facts, portfolio: Portfolio) -> None:
    proof = "none is better" if portfolio.exact else f"none has less than {portfolio.bound:.1%}"
    regrets = (
        "not all are served" if portfolio.unserved else f"worst regret {portfolio.worst:.1%}, mean {portfolio.mean:.1%}"
    )
    configs, problems = counted(len(portfolio.configs), "config"), counted(len(portfolio.served), "problem")
    facts.tell(
        f"{configs} for {problems} of {portfolio.kernel} on {portfolio.device}: "
        f"{regrets}; of the {portfolio.objective}, {proof} among "
        f"{portfolio.measured} of {portfolio.cells} pairs that were measured; configs within {portfolio.noise:.1%} "
        "count as equal"
    )
    for each in portfolio.unserved:
        facts.tell(
            f"{each.label}: none of these configs is known to run there; its best is ({each.best})", "warning", "yellow"
        )
    for config, labels in portfolio.unmeasured.items():
        facts.tell(f"({config}) was never tried on {len(labels)} problems, such as {labels[0]}")
    for why, count in portfolio.left_out.items():
        facts.tell(f"{count} records do not count: {why}")
