#!/bin/sh
# keep_ptxas_report.sh COMPILER ARGUMENT… -o OBJECT …: compiles, and keeps in OBJECT.ptxas what ptxas says of each
# kernel (nvcc --resource-usage). All else that the compiler says goes on to the terminal.
for argument; do
  [ "$before" != -o ] || object=$argument
  before=$argument
done
"$@" 2>"$object.ptxas"
status=$?
grep -Ev '^ptxas info|bytes stack frame' "$object.ptxas" >&2
exit $status
