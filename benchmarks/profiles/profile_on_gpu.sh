#!/bin/sh
# Profiles kernels of known kind with Nsight Compute, and prints the report in every form that is read.
# Usage: sh benchmarks/profiles/profile_on_gpu.sh FOLDER [PYTHON]
# Clocks are left alone (--clock-control none). One full profile of ten launches takes about a minute.
set -u
out=$1
python=${2:-python3}
"$python" -m benchmarks.profiles.profiled_kinds > "$out/work.json"  # compiles, so that the profiled run only launches
ncu --version > "$out/version.txt"
timeout 80 ncu --clock-control none --target-processes all --set full --kernel-name 'regex:profiled_' \
    --force-overwrite --export "$out/kinds" "$python" -m benchmarks.profiles.profiled_kinds > "$out/ncu.log" 2>&1
for page in raw details; do
    ncu --import "$out/kinds.ncu-rep" --csv --page $page > "$out/$page.csv" 2> "$out/$page.err"
done
ncu --import "$out/kinds.ncu-rep" --csv --page raw --print-units base > "$out/raw_base.csv" 2>> "$out/raw.err"
ncu --import "$out/kinds.ncu-rep" --csv --page details --print-summary per-kernel > "$out/summary.csv" 2> "$out/summary.err"
rm -f "$out/kinds.ncu-rep"
ls -l "$out"
tail -5 "$out/ncu.log"
