// Values written and read in parts, wherever they live.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "stowage/engine.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/tiny_step.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/quick_plan.h"

namespace stowage {
namespace {

using ::testing::Each;
using namespace stowage::testing;

constexpr Bytes size = tiny_elements * sizeof(float);

struct PieceCase {
  const char* name;
  Plan (*plan)();
  bool on_host;
};

class EnginePieces : public ::testing::TestWithParam<PieceCase> {
 protected:
  static EngineOptions options(bool initialise = true) {
    EngineOptions options;
    options.seed = run_seed;
    options.initialise = initialise;
    options.kernels = tiny_kernels();
    return options;
  }
  // The bytes that a filled value has: small numbers.
  static std::byte pattern(Bytes at) { return static_cast<std::byte>(at * 131 % 61); }
  static std::vector<std::byte> whole() {
    std::vector<std::byte> value(size);
    for (Bytes at = 0; at < size; ++at) value[at] = pattern(at);
    return value;
  }
  static void fill_pattern(Bytes offset, std::span<std::byte> piece) {
    for (Bytes i = 0; i < piece.size(); ++i) piece[i] = pattern(offset + i);
  }

  const Graph graph = tiny_graph();
  const Plan plan = GetParam().plan();
  std::unique_ptr<SimulatedDevice> device = open_simulated_device({.capacity = plan.device_peak_bytes});
};

TEST_P(EnginePieces, FillMakesTheWholeValueInOrder) {
  Engine engine(*device, graph, plan, options());
  Bytes next = 0;
  int pieces = 0;
  engine.fill(tiny_weight, [&](Bytes offset, std::span<std::byte> piece) {
    EXPECT_EQ(offset, next);
    EXPECT_EQ(offset % 64, 0U);
    EXPECT_GT(piece.size(), 0U);
    next += piece.size();
    ++pieces;
    fill_pattern(offset, piece);
  });
  EXPECT_EQ(next, size);
  if (GetParam().on_host) {
    EXPECT_EQ(pieces, 1) << "the bucket's own bytes";
  }
  EXPECT_EQ(engine.read(tiny_weight), whole());
}

// A parameter on the host is filled where the step's transfers take it from.
TEST_P(EnginePieces, FillHandsOutTheBytesThemselves) {
  Engine engine(*device, graph, plan, options());
  std::byte* first = nullptr;
  std::byte* second = nullptr;
  engine.fill(tiny_weight, [&](Bytes, std::span<std::byte> piece) {
    if (first == nullptr) first = piece.data();
    std::memset(piece.data(), 1, piece.size());
  });
  engine.fill(tiny_weight, [&](Bytes, std::span<std::byte> piece) {
    if (second == nullptr) second = piece.data();
    if (GetParam().on_host) {
      EXPECT_THAT(piece, Each(std::byte{1}));
    }
    std::memset(piece.data(), 2, piece.size());
  });
  if (GetParam().on_host) {
    EXPECT_EQ(first, second);
  }
  EXPECT_THAT(engine.read(tiny_weight), Each(std::byte{2}));
}

TEST_P(EnginePieces, FilledValuesTrainAsWrittenOnes) {
  Engine filled(*device, graph, plan, options());
  filled.fill(tiny_weight, fill_pattern);
  const TrainingRun run = run_engine(filled, graph, 3, 5);
  const auto other = open_simulated_device({.capacity = plan.device_peak_bytes});
  Engine written(*other, graph, plan, options());
  written.write(tiny_weight, whole());
  EXPECT_EQ(run, run_engine(written, graph, 3, 5));
}

TEST_P(EnginePieces, PartsAreReadAndWrittenByOffset) {
  Engine engine(*device, graph, plan, options());
  engine.fill(tiny_weight, fill_pattern);
  std::vector<std::byte> some(13);
  engine.read(tiny_weight, 7, some);
  for (Bytes i = 0; i < some.size(); ++i) EXPECT_EQ(some[i], pattern(7 + i));
  std::fill(some.begin(), some.end(), std::byte{9});
  engine.write(tiny_weight, size - some.size(), some);
  std::vector<std::byte> expected = whole();
  std::copy(some.begin(), some.end(), expected.end() - 13);
  EXPECT_EQ(engine.read(tiny_weight), expected);
}

TEST_P(EnginePieces, RefusesPartsOutsideAndOtherTensors) {
  Engine engine(*device, graph, plan, options());
  std::vector<std::byte> some(13);
  EXPECT_THROW(engine.read(tiny_weight, size - 12, some), InvalidInput);
  EXPECT_THROW(engine.write(tiny_weight, UINT64_MAX, some), InvalidInput);
  EXPECT_THROW(engine.read(tiny_input, 0, some), InvalidInput);
  EXPECT_THROW(engine.fill(tiny_input, fill_pattern), InvalidInput);
}

TEST_P(EnginePieces, WhatAPieceThrowsComesOut) {
  Engine engine(*device, graph, plan, options());
  EXPECT_THROW(
      engine.fill(tiny_weight, [](Bytes, std::span<std::byte>) { throw std::out_of_range("piece"); }),
      std::out_of_range);
  engine.fill(tiny_weight, fill_pattern);
  EXPECT_EQ(engine.read(tiny_weight), whole());
}

TEST_P(EnginePieces, WithoutInitialisersParametersAreZero) {
  Engine engine(*device, graph, plan, options(false));
  EXPECT_THAT(engine.read(tiny_weight), Each(std::byte{0}));
  EXPECT_THAT(engine.read(tiny_m), Each(std::byte{0}));
}

// A planner's own buckets, in all memory and in the least. The token table is larger than a piece.
TEST(EnginePiecesOfAPlan, ReachEveryParameter) {
  GraphBuilder builder;
  const BuiltModel model =
      gpt(builder, {.layers = 1, .width = 32, .heads = 2, .vocabulary = 33'000, .sequence = 16, .batch = 1});
  const Graph graph = builder.finish(model.loss, AdamW{});
  int most_pieces = 0;  // of one value
  for (const Bytes budget : {unlimited, minimum_bytes(graph, Machine{}, {})}) {
    const Plan plan = std::get<Plan>(quick_plan(graph, Machine{}, {.device = budget, .host = unlimited}));
    const auto train = [&](bool in_pieces) {
      const auto device = open_simulated_device({.capacity = plan.device_peak_bytes});
      const auto other_device = open_simulated_device({.capacity = plan.device_peak_bytes});
      EngineOptions options;
      options.seed = run_seed;
      Engine source(*other_device, graph, plan, options);
      options.initialise = !in_pieces;
      Engine engine(*device, graph, plan, options);
      for (TensorId id = 0; id < graph.tensors.size(); ++id) {
        if (!in_pieces || graph.tensor(id).kind != TensorKind::parameter) continue;
        const std::vector<std::byte> value = source.read(id);
        int pieces = 0;
        engine.fill(id, [&](Bytes offset, std::span<std::byte> piece) {
          std::memcpy(piece.data(), value.data() + offset, piece.size());
          most_pieces = std::max(most_pieces, ++pieces);
        });
        EXPECT_EQ(engine.read(id), value);
      }
      return run_engine(engine, graph, 2, 16);
    };
    EXPECT_EQ(train(true), train(false));
  }
  EXPECT_GT(most_pieces, 1);
}

INSTANTIATE_TEST_SUITE_P(Plans, EnginePieces,
                         ::testing::Values(PieceCase{"streamed", tiny_streamed_plan, true},
                                           PieceCase{"resident", tiny_resident_plan, false}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace stowage
