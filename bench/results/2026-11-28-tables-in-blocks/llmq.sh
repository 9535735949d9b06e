#!/usr/bin/env bash
# Qwen2.5 on one 4090 with steps of 65,536 tokens in samples of 1,024, at the data sheet's rate of products and at
# 157 TFLOP/s, which LLMQ's run of 7 B sustains. Usage: llmq.sh rtx4090.json
set -euo pipefail
sed 's/"flops_per_second": 115640000000000/"flops_per_second": 157000000000000/' "$1" >faster.json
for machine in "$1" faster.json; do
  for model in 3b:120 7b:120 14b:180; do
    for micro_batches in 4; do
      stowage plan --model qwen2.5-${model%:*} --sequence 1024 --batch 64 --micro-batches $micro_batches --moments bf16 \
        --machine "$machine" --host-memory "${model#*:}GiB" --device-memory 24GB --json >answer.json || true
      python3 - "$machine" "$model" $micro_batches <<'PY'
import json, sys
a = json.load(open("answer.json"))
step = a["step_seconds"]
print("|", *sys.argv[1:], "|", "does not fit" if step is None else f"{65536 / step:,.0f} tokens/s, gap {100 * a['gap']:.1f} %, host {a['host_bytes'] / 2**30:.1f} GiB, {a['bound_by']}", "|", flush=True)
PY
    done
  done
done
rm answer.json faster.json
