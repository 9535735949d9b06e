"""House rules: the scanners on planted breaches, then on the tree itself."""

import json
import os
import unittest
from pathlib import Path

import tree

ROOT = Path(__file__).resolve().parents[2]
# Documents that promise commands and paths to a reader today. docs/design.md also names what is to come.
DOCUMENTS = ["README.md", "CONTRIBUTING.md"]


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


class Scanner(unittest.TestCase):
    def test_finds_leftovers(self):
        for bad in ("// TO" "DO: later", "// place" "holder", "TEST(A, DIS" "ABLED_b) {"):
            self.assertEqual(tree.lines_matching(tree.LEFTOVERS, "a.cpp", f"int x;\n{bad}\n"), [f"a.cpp:2: {bad}"])
        self.assertEqual(tree.lines_matching(tree.LEFTOVERS, "a.cpp", "// what placeholders are for"), [])

    def test_finds_paths_of_one_machine(self):
        for bad in ("see /wo" "rk/main/x", 'open("/ho' 'me/me/a")', "/ro" "ot/.cache"):
            self.assertEqual(len(tree.lines_matching(tree.MACHINE_PATHS, "a.cpp", bad)), 1, bad)
        for good in ("src/work/x.h", "$HOME/home/x", "/usr/bin/env"):
            self.assertEqual(tree.lines_matching(tree.MACHINE_PATHS, "a.cpp", good), [], good)

    def test_finds_tests_in_files_of_another_name(self):
        texts = {"tests/a/helpers.cpp": "TEST(A, B) {", "tests/a/support.cpp": "int x;", "tests/a/b_test.cpp": "TEST(A, B) {"}
        self.assertEqual(tree.misnamed_tests(list(texts), texts.get), ["tests/a/helpers.cpp"])

    def test_finds_types_of_one_name(self):
        texts = {"a/x.h": "namespace stowage {\nstruct Range {\n  int a;\n};\nclass Later;\n}  // namespace stowage\n",
                 "b/y.h": "namespace stowage {\nclass GUARDED(\"x\") alignas(64) Range final : public Base {\n};\n}  // namespace stowage\n",
                 "b/z.h": "namespace stowage::inner {\nstruct Range {\n};\n}  // namespace stowage::inner\n",
                 "b/z.cpp": "namespace stowage {\nnamespace {\nstruct Range {\n};\n}  // namespace\nstruct Later::Range {\n};\n"
                            "struct Later made() {\n}\n}  // namespace stowage\n"}
        self.assertEqual(tree.types_defined_twice(list(texts), texts.get), {"stowage::Range": ["a/x.h", "b/y.h"]})

    def test_reads_commands_and_paths_of_a_document(self):
        document = ("Run `scripts/train --steps 5`, see [design](docs/design.md).\n"
                    "```sh\nscripts/test -R plan\nstowage run --limit 6GiB\n```\n"
                    "scripts/elsewhere is prose; `--seed N` is not.\n")
        self.assertEqual(tree.paths_named_in(document), ["docs/design.md", "scripts/test", "scripts/train"])
        self.assertEqual(tree.options_named_in(document, "scripts/train"), ["--seed", "--steps"])

    def test_reads_a_picture_wherever_it_is_drawn(self):
        drawn = "// Plan\n//\n//   position  0  1\n//   h2d   [ W0 ]\n//\n// Positions count\n"
        quoted = "text\n```\nposition  0  1\nh2d   [ W0 ]\n```\n"
        self.assertEqual(tree.picture_of(drawn), "position  0  1\nh2d   [ W0 ]")
        self.assertEqual(tree.picture_of(drawn), tree.picture_of(quoted))


class Tree(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.files = list(tree.text_files(ROOT))

    def test_holds_no_leftovers(self):
        own = {"tests/house/tree.py", "tests/house/tree_test.py"}
        self.assertEqual([line for f in self.files if f not in own
                          for line in tree.lines_matching(tree.LEFTOVERS, f, read(f))], [])

    def test_names_no_path_of_one_machine(self):
        self.assertEqual([line for f in self.files for line in tree.lines_matching(tree.MACHINE_PATHS, f, read(f))], [])

    def test_keeps_tests_in_files_that_are_called_tests(self):
        self.assertEqual(tree.misnamed_tests(self.files, read), [])

    def test_defines_every_type_once(self):
        self.assertEqual(tree.types_defined_twice(self.files, read), {})

    def test_registers_every_test_file(self):
        for f in self.files:
            if f.startswith("tests/") and f.endswith("_test.cpp"):
                lists = ROOT / Path(f).parent / "CMakeLists.txt"
                outer = ROOT / Path(f).parent.parent / "CMakeLists.txt"
                text = "".join(p.read_text(encoding="utf-8") for p in (lists, outer) if p.is_file())
                self.assertRegex(text, rf"\b{Path(f).stem.removesuffix('_test')}(_test)?\b", f"no CMakeLists.txt builds {f}")

    def test_documents_name_only_what_exists(self):
        for document in DOCUMENTS:
            for path in tree.paths_named_in(read(document)):
                self.assertTrue((ROOT / path).exists() or path.startswith("build"), f"{document} names {path}")

    def test_documents_name_only_options_that_exist(self):
        known = "".join(read(f) for f in self.files if f.startswith(("samples/", "scripts/")))
        for document in DOCUMENTS:
            for option in tree.options_named_in(read(document), "scripts/train"):
                self.assertIn(option, known, f"{document} names {option}")

    def test_readme_shows_the_picture_of_plan_h(self):
        self.assertEqual(tree.picture_of(read("README.md")), tree.picture_of(read("include/stowage/plan.h")))

    def test_mutants_can_be_planted(self):
        for mutant in json.loads(read("bench/mutants/mutants.json")):
            self.assertEqual(read(mutant["file"]).count(mutant["original"]), 1, f"{mutant['name']}: {mutant['original']}")

    def test_scripts_can_be_run(self):
        for script in [*sorted((ROOT / "scripts").iterdir()), ROOT / ".ci/run"]:
            self.assertTrue(os.access(script, os.X_OK), f"{script} is not executable")
            self.assertTrue(script.read_text(encoding="utf-8").startswith("#!"), f"{script} names no interpreter")


if __name__ == "__main__":
    unittest.main()
