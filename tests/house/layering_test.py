"""The include and link rules: the scanner on planted breaches, then on the tree itself."""

import unittest
from pathlib import Path

import layering

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "include/stowage/plan.h",
    "include/stowage/engine.h",
    "src/base/parallel_for.h",
    "src/device/simulated/lane.h",
    "src/graph/graph_json.h",
    "src/placement/greedy.h",
    "kernels/scalar.h",
    "kernels/cuda/gelu.cuh",
    "allocator/arena.h",
    "offload/recompute/tracker.h",
    "offload/plan/schedule/lifetimes.h",
    "offload/plan/validate/unroll.h",
    "offload/engine/executor.h",
    "tools/console/text.h",
    "tools/report/tally.h",
    "tools/choices/model_spec.h",
    "tools/cli/files.h",
    "samples/data/text_data.h",
    "samples/options/options.h",
    "samples/run/training.h",
    "tests/support/graphs.h",
}


def breaches(path, *lines):
    return layering.breaches_of_file(path, "\n".join(f"#include {line}" for line in lines), FILES.__contains__)


class Scanner(unittest.TestCase):
    def assert_allowed(self, path, *lines):
        self.assertEqual(breaches(path, *lines), [])

    def assert_breach(self, path, line):
        self.assertEqual(len(breaches(path, line)), 1, f"{path} with {line}")

    def test_reads_every_spelling_of_an_include(self):
        text = '#pragma once\n#include <vector>\n  #  include "src/base/json.h"\n// see "include"\n'
        self.assertEqual(layering.includes(text), [("vector", False), ("src/base/json.h", True)])

    def test_allows_what_stands_above(self):
        self.assert_allowed("src/base/parallel_for_tbb.cpp", '"src/base/parallel_for.h"', "<tbb/parallel_for.h>")
        self.assert_allowed("offload/engine/engine.cpp", '"offload/plan/schedule/lifetimes.h"', '"allocator/arena.h"',
                            '"stowage/engine.h"', "<thread>")
        self.assert_allowed("offload/plan/schedule/schedule.cpp", '"offload/plan/schedule/lifetimes.h"', '"src/placement/greedy.h"',
                            '"offload/recompute/tracker.h"', '"stowage/plan.h"')
        self.assert_allowed("offload/plan/validate/validate.cpp", '"offload/plan/validate/unroll.h"',
                            '"stowage/plan.h"', '"src/graph/graph_json.h"')
        self.assert_allowed("src/device/topology.cpp", "<hwloc.h>")
        self.assert_allowed("kernels/cuda/gelu.cu", '"kernels/cuda/gelu.cuh"', '"kernels/scalar.h"',
                            "<cuda_runtime.h>")
        self.assert_allowed("tests/offload/plan/schedule/lifetimes_test.cpp", '"offload/plan/schedule/lifetimes.h"',
                            '"tests/support/graphs.h"', "<gtest/gtest.h>", "<thread>")
        self.assert_allowed("tests/samples/options/options_test.cpp", '"samples/options/options.h"')
        self.assert_allowed("tools/cli/plan_answer.cpp", '"tools/choices/model_spec.h"', '"offload/engine/executor.h"')
        self.assert_allowed("samples/run/training.cpp", '"samples/options/options.h"', '"tools/console/text.h"')
        self.assert_allowed("samples/train_gpt.cpp", '"samples/run/training.h"')
        self.assert_allowed("examples/consumer/main.cpp", "<stowage/engine.h>")

    def test_refuses_what_stands_below(self):
        self.assert_breach("src/base/bytes.cpp", '"src/graph/graph_json.h"')
        self.assert_breach("src/graph/graph.cpp", '"kernels/scalar.h"')
        self.assert_breach("kernels/cpu/gemm.cpp", '"offload/engine/executor.h"')
        self.assert_breach("allocator/arena.cpp", '"offload/recompute/tracker.h"')
        self.assert_breach("offload/engine/engine.cpp", '"tools/console/text.h"')
        self.assert_breach("offload/engine/engine.cpp", '"samples/options/options.h"')
        self.assert_breach("allocator/arena.cpp", '"tools/report/tally.h"')
        self.assert_breach("tools/report/summary.cpp", '"tools/console/text.h"')
        self.assert_breach("tools/choices/model_spec.cpp", '"tools/cli/files.h"')
        self.assert_breach("tools/cli/files.cpp", '"samples/options/options.h"')
        self.assert_breach("samples/data/text_data.cpp", '"samples/options/options.h"')
        self.assert_breach("samples/options/options.cpp", '"samples/run/training.h"')
        self.assert_breach("samples/options/options.cpp", '"tests/support/graphs.h"')

    def test_keeps_public_headers_public(self):
        self.assert_breach("include/stowage/plan.h", '"src/base/parallel_for.h"')
        self.assert_breach("examples/consumer/main.cpp", '"src/base/parallel_for.h"')

    def test_keeps_the_planner_pure(self):
        self.assert_breach("offload/plan/schedule/schedule.cpp", '"src/device/simulated/lane.h"')
        self.assert_breach("offload/plan/schedule/schedule.cpp", '"allocator/arena.h"')
        self.assert_breach("offload/plan/schedule/schedule.cpp", '"kernels/scalar.h"')
        self.assert_breach("offload/plan/schedule/schedule.cpp", "<chrono>")
        self.assert_breach("offload/plan/schedule/schedule.cpp", "<thread>")
        self.assert_breach("offload/recompute/tracker.cpp", '"stowage/engine.h"')

    def test_keeps_the_validator_apart(self):
        self.assert_breach("offload/plan/validate/validate.cpp", '"offload/plan/schedule/lifetimes.h"')
        self.assert_breach("offload/plan/validate/validate.cpp", '"src/placement/greedy.h"')
        self.assert_breach("offload/plan/validate/validate.cpp", '"offload/recompute/tracker.h"')

    def test_keeps_backends_apart(self):
        self.assert_breach("kernels/cpu/gelu.cpp", '"kernels/cuda/gelu.cuh"')
        self.assert_breach("src/device/simulated/lane.cpp", "<cuda_runtime.h>")
        self.assert_breach("src/device/device.cpp", "<hwloc.h>")
        self.assert_breach("src/nn/nn.cpp", "<oneapi/dnnl/dnnl.hpp>")
        self.assert_breach("kernels/cpu/gemm.cpp", "<gtest/gtest.h>")

    def test_keeps_locks_where_clang_sees_them(self):
        self.assert_breach("src/device/simulated/lane.cpp", "<mutex>")
        self.assert_breach("allocator/arena.cpp", "<condition_variable>")
        self.assert_allowed("src/base/mutex.h", "<mutex>", "<condition_variable>")

    def test_refuses_a_path_that_is_not_from_the_root(self):
        self.assert_breach("src/base/parallel_for_tbb.cpp", '"parallel_for.h"')
        self.assert_breach("offload/plan/schedule/schedule.cpp", '"../recompute/tracker.h"')

    def test_reads_links(self):
        text = ("stowage_library(stowage_plan\n  SOURCES make_plan.cpp\n"
                "  LINK stowage_recompute stowage_placement\n  PRIVATE fmt::fmt)\n"
                "stowage_library(stowage_other SOURCES a.cpp LINK stowage_base)\n")
        self.assertEqual(layering.libraries(text), {"stowage_plan": {"stowage_recompute", "stowage_placement"},
                                                    "stowage_other": {"stowage_base"}})

    def test_refuses_links_downwards_and_into_the_void(self):
        lists = {"src/base": "stowage_library(stowage_base SOURCES a.cpp)\n",
                 "src/graph": "stowage_library(stowage_graph SOURCES a.cpp LINK stowage_base)\n"}
        self.assertEqual(layering.link_breaches(lists), [])
        lists["src/base"] = "stowage_library(stowage_base SOURCES a.cpp LINK stowage_graph)\n"
        self.assertEqual(len(layering.link_breaches(lists)), 1)
        lists["src/base"] = "stowage_library(stowage_base SOURCES a.cpp LINK stowage_grahp)\n"
        self.assertEqual(len(layering.link_breaches(lists)), 1)


class Tree(unittest.TestCase):
    maxDiff = None

    def test_includes(self):
        self.assertGreater(len(list(layering.source_files(ROOT))), 20, "the scanner sees no sources")
        self.assertEqual(layering.include_breaches(ROOT), [])

    def test_links(self):
        lists = layering.cmake_lists(ROOT)
        found = [name for text in lists.values() for name in layering.libraries(text)]
        self.assertGreater(len(found), 10, "the scanner sees no libraries")
        self.assertEqual(layering.link_breaches(lists), [])

    def test_a_top_folder_lies_in_one_piece(self):
        tops = [folder.split("/")[0] for folder in layering.ORDER if folder != "kernels"]
        pieces = [top for top, before in zip(tops, [None, *tops]) if top != before]
        self.assertEqual(pieces, ["include", "src", "allocator", "offload", "tools", "samples", "bench", "tests"])

    def test_order_is_the_design_s(self):
        design = (ROOT / "docs/design.md").read_text(encoding="utf-8")
        table = design[design.index("### Folders"):design.index("One CMake target per folder")]
        position = [table.find(f"`{folder}/`") for folder in layering.ORDER]
        self.assertNotIn(-1, position, "a folder of the order is missing in docs/design.md")
        tests = layering.ORDER.index("tests")
        self.assertEqual(position[:layering.ORDER.index("bench")], sorted(position[:layering.ORDER.index("bench")]))
        self.assertGreater(position[tests], position[layering.ORDER.index("samples")])


if __name__ == "__main__":
    unittest.main()
