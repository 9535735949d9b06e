#!/usr/bin/env python3
"""Compares what ptxas says of each kernel with resource_usage.txt, and refuses spills and local memory.

    resource_usage.py --nvcc VERSION OBJECT…            compare
    resource_usage.py --nvcc VERSION --update OBJECT…   write the table anew

Beside each OBJECT, in OBJECT.ptxas, stands what nvcc --resource-usage printed (cmake/keep_ptxas_report.sh). Figures of another release of
nvcc than the table's are not compared: then only spills and local memory count. Architectures that were not built are
left out of the comparison, and those that the table does not have are not compared. Exits with 77 where nothing was
built for a real architecture.
"""
import argparse
import difflib
import pathlib
import re
import shlex
import subprocess
import sys

TABLE = pathlib.Path(__file__).with_name("resource_usage.txt")
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
HEADING = "# registers a thread; bytes of spill stores, spill loads, stack (local memory) and static shared memory"
ENTRY = re.compile(r"ptxas info\s+: Compiling entry function '(\w+)' for '(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"ptxas info\s+: Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def read_report(text):
    """Yields (mangled name, architecture, [registers, stores, loads, stack, shared]) of each kernel."""
    kernel = None
    for line in text.splitlines():
        if found := ENTRY.match(line):
            kernel, figures = found.groups(), [0] * 5
        elif found := STACK.search(line):  # of the kernel, and of each function that it calls
            for column, value in zip((3, 1, 2), found.groups()):
                figures[column] += int(value)
        elif found := USED.match(line):
            figures[0] = int(found[1])
            figures[4] = int(shared[1]) if (shared := SHARED.search(line)) else 0
            yield *kernel, figures
            kernel = None
    if kernel:
        sys.exit(f"resource_usage.py: the report ends within {kernel[0]}; build again")


def readable(mangled_names):
    """The names without result, parameters and the namespaces that all have."""
    text = subprocess.run(["c++filt", "-p"], input="\n".join(mangled_names), capture_output=True, text=True, check=True)
    names = [re.sub(r"\bstowage::(cuda::)?|^void ", "", name) for name in text.stdout.splitlines()]
    return dict(zip(mangled_names, names))


def read_kernels(objects):
    kernels = [kernel for path in objects for kernel in read_report(pathlib.Path(f"{path}.ptxas").read_text())]
    names = readable(sorted({name for name, _, _ in kernels}))
    if len(set(names.values())) < len(names):
        sys.exit("resource_usage.py: two kernels have one name: name them apart")
    return {(names[name], architecture): figures for name, architecture, figures in kernels}


def as_lines(kernels):
    order = sorted(kernels, key=lambda kernel: (kernel[0], int(kernel[1].removeprefix("sm_"))))
    return ["{:4} {:5} {:5} {:5} {:6}  {:6}  {}".format(*kernels[key], key[1], key[0]) for key in order]


def spilling(kernels):
    return as_lines({key: figures for key, figures in kernels.items() if any(figures[1:4])})


def differences(kernels, nvcc):
    heading, _, *table = TABLE.read_text().splitlines()
    if heading != f"# nvcc {nvcc}":
        print(f"The table is of {heading[2:]}, this is nvcc {nvcc}: figures are not compared")
        return []
    built = {architecture for _, architecture in kernels} & set(ARCHITECTURES)
    now = as_lines({key: figures for key, figures in kernels.items() if key[1] in built})
    before = [line for line in table if line.split()[5] in built]
    return list(difflib.unified_diff(before, now, "resource_usage.txt", "this build", n=0, lineterm=""))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvcc", required=True, metavar="VERSION")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("objects", nargs="+")
    arguments = parser.parse_args()
    kernels = read_kernels(arguments.objects)
    if not kernels:
        print("Nothing was built for a real architecture")
        return 77
    if arguments.update:
        lacking = set(ARCHITECTURES) - {architecture for _, architecture in kernels}
        if lacking:
            sys.exit(f"resource_usage.py: build for {', '.join(sorted(lacking))} too (CMAKE_CUDA_ARCHITECTURES)")
        lines = as_lines({key: figures for key, figures in kernels.items() if key[1] in ARCHITECTURES})
        TABLE.write_text("\n".join([f"# nvcc {arguments.nvcc}", HEADING, *lines, ""]))
    if lines := spilling(kernels):
        print("These kernels spill registers or use local memory. Mend them: launch bounds, fewer values at a time,\n"
              "loops over arrays unrolled.", HEADING, *lines, sep="\n")
        return 1
    if lines := [] if arguments.update else differences(kernels, arguments.nvcc):
        print(*lines, sep="\n")
        print("\nIf the new figures are as they should be, write the table anew:")
        print(shlex.join([sys.executable, *sys.argv, "--update"]))
        return 1
    print(f"{len(kernels)} kernels and architectures: no spills, no local memory")
    return 0


if __name__ == "__main__":
    sys.exit(main())
