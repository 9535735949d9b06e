"""House rules on the tree's text: names of tests, leftovers, paths in documents."""

import re
import textwrap
from pathlib import Path, PurePosixPath

# tests/<first part> holds the tests of these folders.
MIRRORED = {
    "base": ["src/base", "include/stowage"],
    "device": ["src/device", "include/stowage"],
    "communicator": ["src/communicator", "include/stowage"],
    "graph": ["src/graph", "include/stowage"],
    "placement": ["src/placement", "include/stowage"],
    "history": ["src/history"],
    "tokens": ["src/tokens", "include/stowage"],
    "kernels": ["kernels", "include/stowage"],
    "nn": ["src/nn", "include/stowage"],
    "models": ["src/models", "include/stowage"],
    "model_files": ["src/model_files", "include/stowage"],
    "checkpoint": ["src/checkpoint", "include/stowage"],
    "allocator": ["allocator", "include/stowage"],
    "offload/recompute": ["offload/recompute"],
    "offload/plan": ["offload/plan", "include/stowage"],
    "offload/oracle": ["tests/offload/oracle"],
    "offload/engine": ["offload/engine", "include/stowage"],
    "tools": ["tools"],
    "tools/calibrate": ["tools/calibrate", "include/stowage"],
    "tools/report": ["tools/report", "include/stowage"],
    "samples": ["samples"],
    "bench": ["bench"],
    "docs": ["docs"],
    "fake_cuda": ["tests/fake_cuda"],
    "fuzz": ["tests/fuzz"],
    "house": ["tests/house", "scripts"],
}

# Tests of a property that no single file has, and what they judge.
TESTS_OF_THE_WHOLE = {
    "tests/models/replay_test.cpp": "each op of GPT and BERT once more, and in place: the same bits",
    "tests/models/reference_test.cpp": "GPT-2 and BERT against PyTorch's results, in memory and in the least of it",
    "tests/models/micro_batches_test.cpp": "a batch in micro-batches: the whole batch's loss and gradients",
    "tests/offload/plan/ranks_test.cpp": "plans of one rank of several, which no one file of the planner makes",
    "tests/offload/plan/policies/ranks_test.cpp": "how often each emulated system gathers parameters on one of several ranks",
    "tests/models/ranks_test.cpp": "shares of a batch, added over their ranks: the bits of one device",
    "tests/kernels/cpu/narrow_types_test.cpp": "every kernel of the CPU in bf16 and f16: f32's results, rounded once",
    "tests/models/narrow_gradient_test.cpp": "gradients of GPT and BERT in bf16 and f16, near those in f64",
    "tests/samples/narrow_training_test.cpp": "both trainers in bf16 and fp16 from end to end, in memory and in the least of it",
    "tests/samples/rank_training_test.cpp": "trainers in ranks, by every way to start them: the bits of one device, mistakes, signals, ranks that die",
    "tests/samples/optimizer_in_backward_training_test.cpp": "updates for good in backward from end to end: the same bits, divergence, refusals",
    "tests/samples/tcp_training_test.cpp": "a trainer in processes without MPI: the bits of one, mistakes, ranks that die",
    "tests/samples/moments_training_test.cpp": "bf16 and 8-bit moments from end to end: any memory, resumed runs",
    "tests/offload/plan/micro_batches_test.cpp": "plans of both orders of micro-batches, and the choice between them",
    "tests/offload/plan/stop_test.cpp": "planning that is asked to stop, before it begins and between its passes",
    "tests/offload/plan/replays_test.cpp": "replays within blocks against replays of whole blocks",
    "tests/offload/plan/slices_test.cpp": "parameters in slices: what moves, what waits, and what the validator refuses",
    "tests/offload/engine/slices_test.cpp": "slices between device and host: the evaluator's bits, faults and checkpoints",
    "tests/offload/engine/mutated_ranks_test.cpp": "plans of several ranks broken at random: rejected, or shown to be harmless",
    "tests/offload/engine/micro_batches_test.cpp": "both orders of micro-batches: the evaluator's bits in every budget",
    "tests/offload/engine/allocations_test.cpp": "no allocation after the first step",
    "tests/offload/engine/decay_test.cpp": "which parameters decay, by an update written out, wherever it runs",
    "tests/offload/engine/gpt_test.cpp": "a small GPT: the evaluator's bits, the planned peak and the planned traffic",
    "tests/offload/engine/random_graph_test.cpp": "the same on random graphs",
    "tests/offload/engine/speculation_test.cpp": "updates before the gate: the evaluator's bits, clipped or not",
    "tests/offload/engine/speculation_failures_test.cpp": "the same where steps fail or are not finite",
    "tests/offload/engine/speculation_requests_test.cpp": "stops, checkpoints and models asked for meanwhile",
    "tests/offload/plan/speculation_test.cpp": "which updates plans begin before the gate, and what they say of it",
    "tests/offload/plan/optimizer_in_backward_test.cpp": "plans with updates for good before the gate: bytes, and what is wrong with one",
    "tests/offload/engine/optimizer_in_backward_test.cpp": "such updates: the evaluator's bits, and steps that fail",
    "tests/offload/plan/validate/speculations_test.cpp": "what is wrong with an update before the gate",
    "tests/offload/engine/cuda/cuda_engine_test.cpp": "the same on a CUDA device",
    "tests/offload/engine/cuda/cuda_ranks_test.cpp": "ranks with CUDA's kernels, on one card: the bits of one rank",
    "tests/offload/engine/cuda/cuda_faults_test.cpp": "CUDA calls of a step that fail",
    "tests/allocator/interpose/cached_programs_test.cpp": "programs served from what they freed, under --cache",
    "tests/allocator/interpose/programs_test.cpp": "programs under `stowage run`: all calls caught, bytes equal",
    "tests/allocator/interpose/spilling_programs_test.cpp": "programs that need more than the card has, under --spill",
    "tests/samples/train_gpt_cuda_test.cpp": "train_gpt on a CUDA device",
    "tests/samples/same_answer_test.cpp": "train_gpt and `stowage plan`: the same figures for the same question",
    "tests/docs/pages_test.py": "the commands of pages that show how a training is done",
    "tests/offload/engine/waits_test.cpp": "every wait of a plan, removed one at a time",
}

TEXT_SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".txt", ".cmake", ".in", ".md", ".json", ".sh", ""}
SKIPPED_FOLDERS = {"build", "install", "data", ".git"}

# Spelled in pieces, so that this file does not find itself.
LEFTOVERS = re.compile("|".join([r"\bTO" r"DO\b", r"\bFIX" r"ME\b", r"\bXX" r"X\b", r"\bHA" r"CK\b",
                                 r"// ?place" r"holder", r"\bDIS" r"ABLED_"]))
MACHINE_PATHS = re.compile(r"(?<![\w.$}~-])/(?:wo" r"rk|ro" r"ot|ho" r"me|us" r"ers|m" r"nt)/", re.IGNORECASE)


def text_files(root):
    root = Path(root)
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        skipped = relative.parts[0] in SKIPPED_FOLDERS or "__pycache__" in relative.parts
        if not skipped and path.is_file() and path.suffix in TEXT_SUFFIXES:
            yield relative.as_posix()


def lines_matching(pattern, path, text):
    return [f"{path}:{number}: {line.strip()}" for number, line in enumerate(text.splitlines(), 1)
            if pattern.search(line)]


def mirrored_folders(test_path):
    """The folders that a file under tests/ may be the test of."""
    inside = PurePosixPath(test_path).relative_to("tests").parent
    for parent in [inside, *inside.parents]:
        if str(parent) in MIRRORED:
            return [str(PurePosixPath(folder) / inside.relative_to(parent)) if inside != parent else folder
                    for folder in MIRRORED[str(parent)]]
    return []


def subject_of(test_path, files):
    """The files that a test is named after: x_test, or x_aspect_test, for an x in a mirrored folder."""
    words = PurePosixPath(test_path).stem.removesuffix("_test").split("_")
    names = {"_".join(words[:n]) for n in range(1, len(words) + 1)}
    folders = mirrored_folders(test_path)
    return [f for f in files
            if PurePosixPath(f).stem in names and PurePosixPath(f).suffix in {".h", ".cpp", ".py", ".cuh", ".cu", ""}
            and any(f.startswith(folder + "/") for folder in folders)]


def orphan_tests(files, exceptions):
    tests = [f for f in files if f.startswith("tests/") and re.search(r"_test\.(cpp|py)$", f)]
    return [t for t in tests if t not in exceptions and not subject_of(t, files)]


def misnamed_tests(files, texts):
    """Files under tests/ that define tests but are not called x_test."""
    return [f for f in files if f.startswith("tests/") and f.endswith(".cpp") and not f.endswith("_test.cpp")
            and re.search(r"^(TEST|TEST_F|TEST_P)\(", texts(f), re.MULTILINE)]


NAMESPACE = re.compile(r"^(?:inline )?namespace\s*([\w:]*)\s*\{")
NAMESPACE_END = re.compile(r"^\}\s*// *(?:inline )?namespace")
TYPE = re.compile(r"^(?:template <.*> )?(?:struct|class|union|enum class|enum) "
                  r"(?:(?:alignas\(.*?\)|\[\[\w+\]\]|__attribute__\(\(.*?\)\)|[A-Z_]{2,}(?:\(.*?\))?) )*"
                  r"(\w+)(?: final)?(?: : .*| *\{.*)?$")


def types_defined_in(text):
    """The types that a C++ file defines at the scope of a named namespace, by their full names: two of one name in a
    program, were they different, would be taken for one another by whatever is compiled for both."""
    scopes = []
    for line in text.splitlines():
        if opened := NAMESPACE.match(line):
            scopes.append(opened[1])
        elif NAMESPACE_END.match(line):
            scopes.pop()
        elif (found := TYPE.match(line)) and all(scopes):
            yield "::".join([*scopes, found[1]])


def types_defined_twice(files, texts):
    places = {}
    for f in files:
        if f.endswith((".h", ".cpp", ".cu", ".cuh")):
            for name in types_defined_in(texts(f)):
                places.setdefault(name, []).append(f)
    return {name: where for name, where in places.items() if len(where) > 1}


REPOSITORY_PATH = re.compile(
    r"(?<![\w/.-])((?:scripts|docs|include|src|kernels|allocator|offload|samples|tests|bench|examples|cmake|\.ci)"
    r"/[\w./-]*\w/?)")


def paths_named_in(document):
    """Paths of this repository that a document names in code spans, code blocks and links."""
    code = re.findall(r"```.*?```|`[^`\n]+`|\]\([^)\s]+\)", document, re.DOTALL)
    return sorted({path for span in code for path in REPOSITORY_PATH.findall(span)})


def options_named_in(document, program):
    """Command-line options that a document gives to `program`, or names alone in a code span."""
    alone = re.findall(r"`(--[a-z][\w-]*)[^`\n]*`", document)
    lines = [line for line in document.splitlines() if program in line]
    given = [option for line in lines for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", line)]
    return sorted({*alone, *given})


def picture_of(text):
    """The first timeline drawn in a text, without comment marks: from `position` to the next empty line or fence."""
    lines = [re.sub(r"^//", "", line).rstrip() for line in text.splitlines()]
    start = next(i for i, line in enumerate(lines) if re.match(r" *position  ", line))
    end = next(i for i, line in enumerate(lines[start:], start) if not line or line.startswith("```"))
    return textwrap.dedent("\n".join(lines[start:end]))
