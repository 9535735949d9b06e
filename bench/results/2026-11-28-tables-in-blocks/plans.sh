#!/usr/bin/env bash
# Plans of the record in this folder: one line each, with the seconds that the command took.
set -euo pipefail
ask() {
  local begin=$EPOCHREALTIME
  stowage plan "$@" --machine rtx4090 --json >answer.json || true
  python3 - "$*" "$begin" "$EPOCHREALTIME" <<'PY'
import json, sys
a = json.load(open("answer.json"))
gib = lambda b: "-" if b is None else f"{b / 2**30:.2f}"
step = a["step_seconds"]
largest = a.get("largest", {})
print("|", sys.argv[1], "|", gib(a["minimum_device_bytes"]), "|", gib(a["host_bytes"]), "|",
      "does not fit" if step is None else f"{step:.2f} | {a['model']['batch'] * a['model']['sequence'] / step:,.0f} | {100 * a['gap']:.1f} % | {a['bound_by']}",
      "|", largest.get("batch", "-"), "|", f"{largest.get('most_tokens', 0):,}", "|", f"{float(sys.argv[3]) - float(sys.argv[2]):.1f} |")
PY
  rm answer.json
}
for rows in 16384 0; do
  for model in llama3-8b qwen3-8b; do
    for batch in 1 4; do ask --model $model --sequence 4096 --batch $batch --micro-batches 1 --host-memory 120GiB --table-rows $rows; done
  done
done
for rows in 4096 32768; do ask --model llama3-8b --sequence 4096 --batch 1 --host-memory 120GiB --table-rows $rows; done
ask --model llama3-8b --sequence 32768 --batch 1 --host-memory 120GiB --device-memory 24GB
ask --model llama3-8b --sequence 32768 --batch 1 --host-memory 120GiB --device-memory 8GiB
ask --model llama3-8b --sequence 4096 --batch 4 --host-memory 60GiB --moments 8bit
ask --model qwen2.5-14b --sequence 4096 --batch 1 --host-memory 180GiB
ask --model qwen2.5-14b --sequence 4096 --batch 1 --host-memory 180GiB --moments bf16
