"""House rules on the tree's text: names of tests, leftovers, paths in documents."""

import re
import textwrap
from pathlib import Path

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
