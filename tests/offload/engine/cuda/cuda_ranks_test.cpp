// Ranks that train one model together with CUDA's kernels, on one card or over the fakes: losses, norms and
// every byte of parameters and state are those of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "stowage/cuda_device.h"
#include "stowage/planner.h"
#include "tests/offload/engine/cuda/one_card.h"
#include "tests/offload/engine/rank_training.h"
#include "tests/support/quick_plan.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using namespace stowage::testing;
using ::testing::AllOf;
using ::testing::Contains;

struct Case {
  std::string name;
  MakeGraph make;
  RankTraining training;
};

bool over_fakes() { return std::getenv("STOWAGE_FAKE_CUDA_KERNELS") != nullptr; }

class CudaRanks : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const CudaStatus status = cuda_status();
    if (status.available) return;
    if (over_fakes()) FAIL() << status.reason;
    GTEST_SKIP() << status.reason;
  }
  static void TearDownTestSuite() { devices_.clear(); }

  // The first so many; a card takes a second to open.
  static std::vector<Device*> devices(std::uint32_t ranks) {
    while (devices_.size() < ranks) devices_.push_back(open_cuda_device({.scratch = 8_MiB}));
    std::vector<Device*> first;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      devices_[rank]->reset_counters();
      first.push_back(devices_[rank].get());
    }
    return first;
  }

  static Machine machine() {
    Machine machine = random_machine(2);
    machine.peer = machine.h2d;
    return machine;
  }

  // Of the range from the least memory to all that is needed.
  static Plan plan_in(const Graph& graph, double part_of_range) {
    const Machine planned_for = machine();
    PlanOptions options{.bucket_bytes = 16_KiB};
    take_few_candidates(options);
    Planner planner(graph, planned_for, options);
    const Bytes least = planner.minimum_bytes(), need = planner.need_bytes();
    const auto budget = least + static_cast<Bytes>(part_of_range * static_cast<double>(need - least));
    return std::get<Plan>(planner.answer({.device = budget}).outcome);
  }

  static RankResult train_alone(double part_of_range) {
    const Graph graph = GetParam().make(GetParam().training, {});
    return train_rank(*devices(1).front(), graph, plan_in(graph, part_of_range), machine(), nullptr);
  }

  static std::vector<RankResult> train_together(std::uint32_t ranks, double part_of_range) {
    const Case& given = GetParam();
    const Plan plan = plan_in(given.make(given.training, {0, ranks}), part_of_range);
    const std::vector<Device*> all = devices(ranks);
    const auto communicators = make_one_card_communicators(all);
    std::vector<RankResult> results(ranks);
    on_ranks(ranks, [&](std::uint32_t rank) {
      try {
        const Graph graph = given.make(given.training, {rank, ranks});
        results[rank] = train_rank(*all[rank], graph, plan, machine(), communicators[rank].get());
        communicators[rank]->barrier();
      } catch (...) {
        communicators[rank]->abort("failed");  // the others would wait for it
        throw;
      }
    });
    return results;
  }

 private:
  inline static std::vector<std::unique_ptr<Device>> devices_;
};

// Over the fakes, whose kernels take a minute for all of that, one model and one way.
TEST_P(CudaRanks, LeaveTheBitsOfOne) {
  const bool fakes = over_fakes();
  if (fakes && GetParam().name != "gpt_f32") GTEST_SKIP() << "on cards";
  const RankResult alone = train_alone(1);
  EXPECT_THAT(alone.clipped, AllOf(Contains(0U), Contains(1U)));
  for (const std::uint64_t loss : alone.losses) EXPECT_TRUE(std::isfinite(std::bit_cast<double>(loss)));
  EXPECT_NE(alone.losses.front(), alone.losses.back());
  if (!fakes) {
    EXPECT_TRUE(train_alone(0) == alone);
  }
  for (const std::uint32_t ranks : {2U, 4U})
    for (const double part_of_range : {0.0, 0.4, 1.0}) {
      if (fakes && (ranks != 2 || part_of_range != 0.4)) continue;
      SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << part_of_range << " of the range");
      const std::vector<RankResult> results = train_together(ranks, part_of_range);
      for (const RankResult& result : results) {
        EXPECT_EQ(result.losses, alone.losses);
        EXPECT_EQ(result.norms, alone.norms);
      }
      EXPECT_TRUE(joined(results, alone).values == alone.values);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaRanks,
                         ::testing::Values(Case{"gpt_f32", rank_gpt, {}}, Case{"bert_f32", rank_bert, {}},
                                           Case{"gpt_bf16", rank_gpt, {.type = DataType::bf16}},
                                           Case{"bert_f16", rank_bert, {.type = DataType::f16}}),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace stowage
