#include "stowage/engine_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/expect_refused.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using namespace stowage::testing;
using ::testing::HasSubstr;

Graph graph_of(std::uint32_t rank, std::uint32_t ranks) {
  GraphBuilder builder;
  GptConfig config{.layers = 1, .width = 24, .heads = 2, .vocabulary = 13, .sequence = 4, .batch = 4};
  config.micro_batches = config.gradient_groups = 4;
  config.rank = rank;
  config.ranks = ranks;
  const Gpt model = gpt(builder, config);
  return builder.finish(model.loss, AdamW{});
}

// Four devices, each with room for all of its share.
class EngineGroupTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t size = 4;

  EngineGroupTest() {
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      ranks_.push_back(graph_of(rank, size));
      devices_.push_back(open_simulated_device({.capacity = plan_.device_peak_bytes}));
      all_.push_back(devices_.back().get());
    }
  }
  std::unique_ptr<EngineGroup> group() {
    return std::make_unique<EngineGroup>(all_, whole_, ranks_, plan_, EngineOptions{});
  }

  const Graph whole_ = graph_of(0, 1);
  const Plan plan_ = std::get<Plan>(make_plan(graph_of(0, size), {}, {}));
  std::vector<Graph> ranks_;
  std::vector<std::unique_ptr<SimulatedDevice>> devices_;
  std::vector<Device*> all_;
};

std::vector<std::byte> counted(Bytes bytes) {
  std::vector<std::byte> value(bytes);
  for (Bytes i = 0; i < bytes; ++i) value[i] = static_cast<std::byte>(i * 7 + i / 256);
  return value;
}

TEST_F(EngineGroupTest, ValuesAreWholeWhereverTheirSharesAre) {
  const auto group = this->group();
  EXPECT_EQ(group->size(), size);
  // 2,496 bytes in four shares of 1,024, and 96 bytes of one.
  for (const char* name :
       {"wte.weight", "h.0.mlp.c_proj.bias", "wte.weight.adam_v", "h.0.attn.c_attn.weight"}) {
    SCOPED_TRACE(name);
    const TensorId tensor = test::tensor_named(whole_, name);
    const std::vector<std::byte> value = counted(whole_.tensor(tensor).bytes());
    group->write(tensor, value);
    EXPECT_EQ(group->read(tensor), value);
    std::vector<std::byte> part(value.size() / 2);
    group->read(tensor, value.size() / 3, part);
    EXPECT_TRUE(
        std::equal(part.begin(), part.end(), value.begin() + static_cast<std::ptrdiff_t>(value.size() / 3)));
    const std::vector<std::byte> other(value.size() / 2, std::byte{0x5a});
    group->write(tensor, value.size() / 4, other);
    group->read(tensor, value.size() / 4, part);
    EXPECT_EQ(part, other);
    group->fill(tensor, [&](Bytes offset, std::span<std::byte> piece) {
      ASSERT_LE(offset + piece.size(), value.size());
      EXPECT_EQ(offset % 64, 0U);
      std::copy_n(value.begin() + static_cast<std::ptrdiff_t>(offset), piece.size(), piece.begin());
    });
    EXPECT_EQ(group->read(tensor), value);
  }
}

TEST_F(EngineGroupTest, BeginsWithTheParametersOfOneDevice) {
  const auto group = this->group();
  const auto device = open_simulated_device({});
  EngineGroup alone(*device, whole_, std::get<Plan>(make_plan(whole_, {}, {})));
  for (TensorId id = 0; id < whole_.tensors.size(); ++id)
    if (whole_.tensor(id).kind == TensorKind::parameter) {
      EXPECT_EQ(group->read(id), alone.read(id)) << whole_.tensor(id).name;
    }
}

TEST_F(EngineGroupTest, RefusesWhatIsNoValueOfTheModel) {
  const auto group = this->group();
  const TensorId tensor = test::tensor_named(whole_, "wte.weight");
  const Bytes bytes = whole_.tensor(tensor).bytes();
  std::vector<std::byte> value(bytes + 1);
  EXPECT_THROW(group->write(tensor, value), InvalidInput);
  EXPECT_THROW(group->read(tensor, 1, std::span(value).first(bytes)), InvalidInput);
  test::expect_refused([&] { group->read(whole_.loss); }, "keeps no value from step to step");
  test::expect_refused([&] { group->read(no_id); }, "keeps no value from step to step");
}

TEST_F(EngineGroupTest, RefusesGraphsThatAreNotItsRanks) {
  const auto refuse = [&](std::span<const Graph> ranks, const char* message) {
    test::expect_refused([&] { EngineGroup(all_, whole_, ranks, plan_, {}); }, message);
  };
  refuse({}, "0 graphs of ranks for 4 devices");
  std::swap(ranks_[1], ranks_[2]);
  refuse(ranks_, "graph 1 is that of rank 2 of 4");
  std::swap(ranks_[1], ranks_[2]);
  for (Tensor& tensor : ranks_[3].tensors)
    if (tensor.name == "wpe.weight") tensor.name = "other";
  refuse(ranks_, "rank 3 has no share of 'wpe.weight'");
  ranks_[3] = graph_of(3, size);
  ranks_[0].gradient_groups = 2;
  refuse(ranks_, "in 2 groups are not the 4 in 4 of the whole graph");
}

// Of a parameter that was not finite before, as one device says it.
TEST_F(EngineGroupTest, ANaNInAParameterIsFoundWhereItIsGathered) {
  const auto group = this->group();
  const TensorId tensor = test::tensor_named(whole_, "h.0.attn.c_attn.weight");
  std::vector<std::byte> value = group->read(tensor);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(value.data() + value.size() / 2, &nan, sizeof nan);
  group->write(tensor, value);
  StepInputs inputs(whole_, 2);
  try {
    group->step(inputs.of(0), {});
    ADD_FAILURE() << "the step was made";
  } catch (const NonFinite& error) {
    EXPECT_EQ(error.finding().origin, NonFinite::Origin::given);
    EXPECT_EQ(error.finding().tensor, "h.0.attn.c_attn.weight");
  }
}

// The error of the rank that failed, and no thread left behind.
TEST_F(EngineGroupTest, ThrowsTheErrorThatMadeTheOthersFail) {
  const auto group = this->group();
  StepInputs inputs(whole_, 2);
  group->step(inputs.of(0), {});
  group->drain();
  EXPECT_EQ(group->reports().size(), size);
  devices_[2]->set_fault({.index = 30, .kind = Fault::Kind::call});
  try {
    group->step(inputs.of(1), {});
    ADD_FAILURE() << "the step was made";
  } catch (const StepError& error) {
    EXPECT_THAT(error.what(), HasSubstr("injected"));
  }
  devices_[2]->clear_fault();
  EXPECT_EQ(group->completed_steps(), 1U);
  EXPECT_THROW(group->step(inputs.of(1), {}), Error);
  EXPECT_THROW(group->read(test::tensor_named(whole_, "wte.weight")), DeviceError);
}

}  // namespace
}  // namespace stowage
