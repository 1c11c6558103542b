"""Which configs of a kernel give the same bits, each run on the same inputs.

    python -m benchmarks.correctness.same_bits --out FILE  # on a GPU; two minutes
    python -m benchmarks.correctness.same_bits --kernels softmax --texts FOLDER
    python -m benchmarks.correctness.same_bits --judge FILE --texts FOLDER  # without a GPU

Every config of the spaces of `same_bits_cases` is compiled by processes without a device, then run on six inputs, of
which some have outliers. A digest of all bits that it writes is kept for each, and the class that the compiled texts
give it. Two configs of one class with other bits are a false merge, two of other classes with equal bits a false split.
`--texts` keeps what was compiled, too; `--judge` reads it again, and counts how classes stand to the bits of that run.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.correctness.same_bits_cases import CASES, Case
from benchmarks.document import headed, parser_of, save
from triton_ops.backend import Arguments, CandidateError, Executable, TritonCompiler
from triton_ops.device import Target
from triton_ops.kernel_ir import BitClass

SEEDS = range(6)
TEXTS = ("ttir", "ttgir", "ptx", "cubin")
Job = tuple[str, int, str, "Path | None"]


def main(argv: list[str]) -> int:
    """Run the kernels that are named, and save after each."""
    parser = parser_of(__doc__, Path("same_bits.json"))
    parser.add_argument("--kernels", nargs="*", default=[*CASES], choices=[*CASES], help="which kernels")
    parser.add_argument("--texts", type=Path, help="folder for what was compiled")
    parser.add_argument("--target", default="sm_90", help="the GPU's architecture")
    parser.add_argument("--judge", type=Path, help="file of an earlier run, whose texts are in the folder")
    arguments = parser.parse_args(argv)
    if arguments.judge:
        return judge(arguments.judge, arguments.texts, arguments.out, arguments.commit)
    document = headed(f"python -m {__spec__.name}", arguments.commit, gpu=torch.cuda.get_device_name(), kernels={})
    jobs = [
        (name, at, arguments.target, arguments.texts)
        for name in arguments.kernels for at in range(len(CASES[name].configs))
    ]  # fmt: skip
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context) as pool:
        compiled = pool.map(compile_one, jobs)
        for name in arguments.kernels:
            case = CASES[name]
            facts = [next(compiled) for _ in case.configs]
            found = rows(case, facts)
            document["kernels"][name] = {**counted(found), "rows": found}
            save(arguments.out, document)
            print(name, counted(found), flush=True)
    return 0


def compile_one(job: Job) -> dict[str, Any]:
    """What is known of one config once it is compiled into the disk cache; its texts go to the folder."""
    name, at, target, folder = job
    case = CASES[name]
    kernel = case.kernel
    compiler = TritonCompiler(kernel, Arguments(keyword=case.arguments(0, "meta")), Target.named(target))
    start = time.perf_counter()
    try:
        (built,) = compiler.built(case.configs[at])
    except Exception as error:  # noqa: BLE001 - whatever Triton raises is told of the config
        return {"refused": f"{type(error).__name__}: {str(error).strip()[-200:]}"}
    took = time.perf_counter() - start
    if folder:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for kind in TEXTS:
            content = built.stages[kind]
            (folder / name / f"{at}.{kind}").write_bytes(content if isinstance(content, bytes) else content.encode())
    return {"compile_s": round(took, 3), "class": class_of(built.stages)}


def class_of(stages: Mapping[str, Any]) -> dict[str, Any]:
    """The class of a config, and the seconds that it took to read."""
    start = time.perf_counter()
    found = BitClass.of(stages)
    return {**asdict(found), "key": found.key, "class_s": round(time.perf_counter() - start, 4)}


def judge(file: Path, folder: Path, out: Path, commit: str | None) -> int:
    """Count how the classes that texts have now stand to the bits of the run that they are of."""
    run = json.loads(file.read_text("utf-8"))
    document = headed(
        f"python -m {__spec__.name} --judge", commit, run={**run, "kernels": [*run["kernels"]]}, kernels={}
    )
    for name, kernel in run["kernels"].items():
        for at, row in enumerate(kernel["rows"]):
            if "bits" in row:
                paths = {kind: folder / name / f"{at}.{kind}" for kind in TEXTS}
                row["class"] = class_of({
                    kind: path.read_bytes() if kind == "cubin" else path.read_text("utf-8")
                    for kind, path in paths.items()
                })  # fmt: skip
        document["kernels"][name] = counted(kernel["rows"])
        print(name, document["kernels"][name], flush=True)
    save(out, document)
    return 0


def rows(case: Case, facts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each config with what is known of it, and a digest of its bits for each input."""
    given = [Arguments(keyword=case.arguments(seed, "cuda")) for seed in SEEDS]
    found = [{"config": dict(config), **fact} for config, fact in zip(case.configs, facts, strict=True)]
    for config, row in zip(case.configs, found, strict=True):
        if "refused" not in row:
            try:
                executable = case.kernel.compile(config, given[0])
                row["bits"] = [digest(executable, one) for one in given]
            except CandidateError as error:
                row["refused"] = str(error)
    return found


def digest(executable: Executable, given: Arguments) -> str:
    """A digest of the bits that a launch of a config writes; of two launches where they differ."""
    launch = executable.bind(given)
    written = [given.keyword[name] for name in executable.outputs]
    found = []
    for _ in range(2):
        for one in written:
            one.zero_()
        launch()
        whole = b"".join(one.contiguous().view(torch.uint8).cpu().numpy().tobytes() for one in written)
        found.append(hashlib.blake2b(whole, digest_size=6).hexdigest())
    return found[0] if found[0] == found[1] else f"{found[0]} or {found[1]}"


def counted(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How the classes of configs that ran stand to their bits, by pairs of configs."""
    ran = [(row["class"]["key"] or f"alone {at}", tuple(row["bits"])) for at, row in enumerate(found) if "bits" in row]
    pairs = [(one[0] == other[0], one[1] == other[1]) for one, other in itertools.combinations(ran, 2)]
    equal = sum(bits for _, bits in pairs)
    return {
        "ran": len(ran), "results": len({bits for _, bits in ran}), "classes": len({key for key, _ in ran}),
        "false_merges": sum(same and not bits for same, bits in pairs),
        "false_splits": sum(bits and not same for same, bits in pairs), "equal_pairs": equal,
        "class_s": round(statistics.median(row["class"]["class_s"] for row in found if "class" in row), 4),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
