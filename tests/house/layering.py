"""Which folder may include and link what: the table of docs/design.md, section 4, as code."""

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

# Bottom to top. A folder may include itself and whatever stands before it.
ORDER = [
    "include/stowage",
    "src/base",
    "src/device",
    "src/ranks",
    "src/communicator",
    "src/graph",
    "src/placement",
    "src/history",
    "src/machine",
    "src/tokens",
    "kernels",
    "src/nn",
    "src/models",
    "src/model_files",
    "src/checkpoint",
    "allocator",
    "offload/recompute",
    "offload/plan",
    "offload/parallel",
    "offload/engine",
    "tools/console",
    "tools/replay",
    "tools/report",
    "tools/answer",
    "tools/c_plan",
    "tools/calibrate",
    "tools/choices",
    "tools/cli",
    "samples/data",
    "samples/options",
    "samples/task",
    "samples/report",
    "samples/run",
    "samples",
    "bench",
    "tests",
]

PLANNER_BASE = ["include/stowage", "src/base", "src/graph", "src/placement", "offload/recompute"]
# The planner's rooms, bottom to top: each may include those before it.
PLANNER_ROOMS = [f"offload/plan/{room}" for room in ("problem", "schedule", "decisions", "bound", "search")]

# Folders that may include less than their place in the order says (and their own files).
NARROWER = {
    "offload/plan": [*PLANNER_BASE, *PLANNER_ROOMS, "offload/plan/policies", "offload/plan/validate"],
    **{room: [*PLANNER_BASE, *PLANNER_ROOMS[:i]] for i, room in enumerate(PLANNER_ROOMS)},
    "offload/plan/policies": [*PLANNER_BASE, "offload/plan/problem", "offload/plan/schedule"],
    "offload/plan/validate": ["include/stowage", "src/base", "src/graph"],
    "offload/parallel": ["include/stowage", "src/base", "src/graph", "src/machine"],
    "src/tokens": ["include/stowage", "src/base", "src/graph"],
    "tools/console": ["include/stowage", "src/base"],
    "tools/replay": ["include/stowage", "src/base", "src/graph", "src/placement", "src/history", "allocator"],
    "src/machine": ["include/stowage", "src/base", "src/graph"],
    "tools/answer": ["include/stowage", "src/base", "src/graph", "src/machine", "offload/plan", "offload/parallel", "tools/console",
                     "tools/report"],
    "tools/c_plan": ["include/stowage", "src/base", "src/graph", "src/machine", "tools/answer"],
    "tools/report": ["include/stowage", "src/base", "src/graph", "offload/plan"],
    "samples/data": ["include/stowage", "src/base", "src/checkpoint", "src/graph", "src/tokens", "tools/console"],
    "examples": ["include/stowage"],
    "src/device/simulated": ["include/stowage", "src/base", "src/device"],
    "src/device/cuda": ["include/stowage", "src/base", "src/device"],
    "src/ranks": ["include/stowage", "src/base"],
    "src/communicator/nccl": ["include/stowage", "src/base", "src/device", "src/communicator"],
    "src/communicator/mpi": ["include/stowage", "src/base", "src/device", "src/communicator"],
    "kernels/cpu": ["include/stowage", "src/base", "src/device", "src/graph", "src/placement", "kernels"],
    "kernels/cuda": ["include/stowage", "src/base", "src/device", "src/device/cuda", "src/graph", "src/placement",
                     "kernels"],
    "allocator/c_api": ["include/stowage", "src/base", "src/device", "allocator"],
    # It is put into other people's programs: as little as can be.
    "allocator/interpose": ["include/stowage", "src/base", "allocator"],
    # The parts of the CUDA module.
    "src/nn/cuda": ["include/stowage", "src/base", "src/device", "src/device/cuda", "src/graph", "src/nn", "kernels",
                    "kernels/cuda"],
    "src/nn/cuda_module": ["include/stowage", "src/device", "kernels/cuda", "src/device/cuda", "src/nn/cuda"],
}


@dataclass
class Restricted:
    """Headers that only some places may include."""

    headers: str  # regular expression on the text between the quotes or brackets
    allowed: list = field(default_factory=list)  # files, or folders with a closing slash
    reason: str = ""


RESTRICTED = [
    Restricted(r"(cuda|cublas|cudnn|curand|cupti|nvrtc|nvml|cub/|thrust/|cooperative_groups)",
               ["include/stowage/cuda_memory_resource.h", "tests/allocator/cuda_memory_resource_test.cpp",
                "tests/allocator/cuda_memory_resource_concepts.cu", "tests/allocator/c_api/",
                "src/device/cuda/", "kernels/cuda/", "src/nn/cuda/", "allocator/interpose/", "src/communicator/nccl/", "bench/gpu_check/cuda/", "tests/fake_cuda/",
                "tests/device/cuda/", "tests/kernels/cuda/", "tests/offload/engine/cuda/", "tests/allocator/interpose/"],
               "CUDA headers belong to the CUDA backend"),
    Restricted(r"nccl", ["src/communicator/nccl/", "tests/fake_cuda/"], "NCCL belongs to its module"),
    Restricted(r"mpi\.h$", ["src/communicator/mpi/", "tests/communicator/mpi/"], "MPI belongs to its module"),
    Restricted(r"sodium\.h$", ["src/ranks/greeting.cpp"], "only the greeting of ranks reads libsodium"),
    Restricted(r"hwloc", ["src/device/topology.cpp"], "only the topology reads hwloc"),
    Restricted(r"unicode/", ["src/tokens/unicode.cpp"], "only src/tokens/unicode.cpp reads ICU, whose answers it pins"),
    Restricted(r"(oneapi/)?(dnnl|tbb/)", ["kernels/cpu/", "src/base/"],
               "oneDNN belongs to the CPU kernels, oneTBB behind parallel_for"),
    Restricted(r"hwy/", ["kernels/cpu/"], "Highway's vectors belong to the CPU kernels"),
    Restricted(r"xxhash\.h$", ["src/checkpoint/checksum.cpp"], "checksums are those of src/checkpoint/checksum.h"),
    Restricted(r"(gtest|gmock)/", ["tests/"], "GoogleTest belongs to tests"),
    Restricted(r"benchmark/", ["bench/"], "Google Benchmark belongs to bench"),
    Restricted(r"(mutex|shared_mutex|condition_variable)$", ["src/base/mutex.h", "tests/"],
               "locks are those of src/base/mutex.h, which clang checks"),
    Restricted(r"CLI/", ["samples/options/", "tools/choices/plan_choice.cpp", "tools/cli/", "tests/tools/cli/", "bench/", "tests/offload/oracle/oracle_bench.cpp"], "only programs read a command line"),
]

# What a pure function from plain data to plain data has no use for.
PLANNER_FOLDERS = ["offload/plan/", "offload/parallel/", "offload/recompute/", "src/placement/", "src/graph/"]
NOT_IN_PLANNER = re.compile(
    r"(thread|mutex|shared_mutex|condition_variable|atomic|future|chrono|ctime|time\.h"
    r"|src/base/parallel_for\.h|src/base/mutex\.h"
    r"|stowage/(engine|simulated_device|launch_table|evaluate)\.h)$")

SOURCE_SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".in"}
SKIPPED_FOLDERS = {"build", "install", "data", ".git"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(<([^>]+)>|"([^"]+)")', re.MULTILINE)


def includes(text):
    """(spelling, is_quoted) of each include in the text of a file."""
    return [(m.group(2) or m.group(3), m.group(3) is not None) for m in INCLUDE.finditer(text)]


def folder_of(path):
    """The deepest folder of the table that holds `path`; None where the table has none."""
    known = set(ORDER) | set(NARROWER)
    for parent in PurePosixPath(path).parents:
        if str(parent) in known:
            return str(parent)
    return None


def within(folder, path):
    return path == folder or path.startswith(folder + "/")


def may_use(user, used):
    """Whether folder `user` may include or link folder `used`."""
    if within(user, used):
        return True
    if user == "tests":
        return used not in ("bench", "examples")
    if user in NARROWER:
        return used in NARROWER[user]
    top_used = next((f for f in ORDER if within(f, used)), None)
    if top_used is None or user not in ORDER:
        return False
    return ORDER.index(top_used) < ORDER.index(user)


def breaches_of_file(path, text, exists):
    """What the includes of one file break. `exists(path)` says whether the tree has a file."""
    found = []
    user = folder_of(path)
    for spelling, quoted in includes(text):
        for rule in RESTRICTED:
            if re.match(rule.headers, spelling) and not any(
                    path == a or (a.endswith("/") and path.startswith(a)) for a in rule.allowed):
                found.append(f"{path}: includes {spelling}: {rule.reason}")
        if any(path.startswith(f) for f in PLANNER_FOLDERS) and NOT_IN_PLANNER.match(spelling):
            found.append(f"{path}: includes {spelling}: planning is plain data in, plain data out")
        target = "include/" + spelling if spelling.startswith("stowage/") else spelling
        if exists(target):
            used = folder_of(target)
            if used is None or user is None or not may_use(user, used):
                found.append(f"{path}: includes {spelling}: {user} may not include {used}")
        elif quoted:
            found.append(f"{path}: includes \"{spelling}\": no such file from the root of the tree")
    return found


def source_files(root):
    for path in sorted(Path(root).rglob("*")):
        relative = path.relative_to(root)
        if relative.parts[0] in SKIPPED_FOLDERS or relative.parts[0].startswith("build"):
            continue
        if path.is_file() and path.suffix in SOURCE_SUFFIXES:
            yield relative.as_posix()


def include_breaches(root):
    root = Path(root)
    found = []
    for path in source_files(root):
        text = (root / path).read_text(encoding="utf-8")
        found += breaches_of_file(path, text, lambda p: (root / p).is_file())
    return found


LIBRARY = re.compile(r"stowage_library\s*\(\s*(\w+)([^#]*?)\n?\)\s*(?:\n|$)", re.DOTALL)


def libraries(cmake_text):
    """name -> linked stowage targets, from the stowage_library calls of a CMakeLists.txt."""
    return {m.group(1): set(re.findall(r"\bstowage_\w+", m.group(2)))
            for m in LIBRARY.finditer(cmake_text)}


def link_breaches(lists):
    """`lists`: folder -> text of its CMakeLists.txt. What the links between folders break."""
    folder_of_target, links = {}, {}
    for folder, text in lists.items():
        for name, linked in libraries(text).items():
            folder_of_target[name] = folder
            links[name] = linked
    found = []
    for name, linked in links.items():
        for other in sorted(linked):
            user, used = folder_of_target[name], folder_of_target.get(other)
            if used is None:
                found.append(f"{user}/CMakeLists.txt: {name} links {other}, which no folder defines")
            elif not may_use(user, used):
                found.append(f"{user}/CMakeLists.txt: {name} links {other}: {user} may not link {used}")
    return found


def cmake_lists(root):
    root = Path(root)
    return {path.parent.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
            for top in ("src", "kernels", "allocator", "offload", "tools", "samples")
            for path in sorted((root / top).rglob("CMakeLists.txt"))}
