#include "stowage/engine_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/expect_refused.h"
#include "tests/support/graph_queries.h"
#include "tests/support/quick_plan.h"

namespace stowage {
namespace {

using namespace stowage::testing;
using ::testing::HasSubstr;

Graph graph_of(std::uint32_t rank, std::uint32_t ranks) {
  GraphBuilder builder;
  ModelConfig config{.layers = 1, .width = 24, .heads = 2, .vocabulary = 13, .sequence = 4, .batch = 4};
  config.micro_batches = config.gradient_groups = 4;
  config.rank = rank;
  config.ranks = ranks;
  const BuiltModel model = gpt(builder, config);
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
  const Plan plan_ = std::get<Plan>(quick_plan(graph_of(0, size), {}, {}));
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
  EngineGroup alone(*device, whole_, std::get<Plan>(quick_plan(whole_, {}, {})));
  for (TensorId id = 0; id < whole_.tensors.size(); ++id)
    if (whole_.tensor(id).kind == TensorKind::parameter) {
      EXPECT_EQ(group->read(id), alone.read(id)) << whole_.tensor(id).name;
    }
}

TEST_F(EngineGroupTest, ReportsWhatEachRankReceivesAndHowLongItsCollectivesTook) {
  double received = 0;
  for (const Instruction& instruction : plan_.instructions)
    if (instruction.op != no_id) received += ranks_[0].op(instruction.op).cost.peer_bytes;
  for (const Measurement measurement : {Measurement::step, Measurement::stalls, Measurement::timeline}) {
    EngineOptions options;
    options.measurement = measurement;
    EngineGroup group(all_, whole_, ranks_, plan_, options);
    StepInputs inputs(whole_, 13);
    for (int i = 0; i < 2; ++i) group.step(inputs.of(group.completed_steps()), {});
    ASSERT_EQ(group.reports().size(), size);
    for (const StepReport& report : group.reports()) {
      EXPECT_EQ(static_cast<double>(report.peer_bytes), received);
      EXPECT_EQ(report.collective_seconds > 0, measurement != Measurement::step);
    }
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

// The same where each rank has a group of its own, as in processes that a launcher starts: here in threads.
class EngineGroupOfProcesses : public EngineGroupTest {
 protected:
  using Body = std::function<void(EngineGroup& group, std::size_t rank)>;
  // Of each rank what it has thrown.
  std::vector<std::string> on_each(const Body& body) {
    const auto communicators = make_local_communicators(all_);
    std::vector<std::string> errors(size);
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        Communicator& own = *communicators[rank];
        try {
          EngineGroup group(*all_[rank], own, whole_, ranks_[rank], plan_, {});
          body(group, rank);
          own.barrier();
        } catch (const Error& error) {
          errors[rank] = error.what();
          own.abort(error.what());
        }
      });
    for (std::thread& thread : threads) thread.join();
    return errors;
  }
  void well_on_each(const Body& body) {
    for (const std::string& error : on_each(body)) EXPECT_EQ(error, "");
  }
};

TEST_F(EngineGroupOfProcesses, LeavesTheBitsOfOneProcess) {
  const auto train = [&](EngineGroup& group) {
    StepInputs inputs(whole_, 2);
    std::vector<double> numbers;
    for (std::uint64_t step = 0; step < 3; ++step) {
      const StepReport report = group.step(inputs.of(step), {});
      numbers.insert(numbers.end(), {report.loss, report.grad_norm});
    }
    std::vector<std::vector<std::byte>> values;
    for (TensorId id = 0; id < whole_.tensors.size(); ++id)
      if (whole_.tensor(id).kind == TensorKind::parameter) values.push_back(group.read(id));
    return std::pair(numbers, values);
  };
  const auto expected = train(*group());
  well_on_each([&](EngineGroup& group, std::size_t) {
    EXPECT_EQ(group.size(), size);
    EXPECT_EQ(train(group), expected);
  });
}

TEST_F(EngineGroupOfProcesses, ValuesAreWholeForEach) {
  const TensorId tensor = test::tensor_named(whole_, "wte.weight");
  const std::vector<std::byte> value = counted(whole_.tensor(tensor).bytes());
  const std::vector<std::byte> other(value.size() / 2, std::byte{0x5a});
  well_on_each([&](EngineGroup& group, std::size_t) {
    group.write(tensor, value);
    EXPECT_EQ(group.read(tensor), value);
    group.write(tensor, value.size() / 4, other);
    std::vector<std::byte> part(other.size());
    group.read(tensor, value.size() / 4, part);
    EXPECT_EQ(part, other);
    Bytes next = 0;  // each makes all of the value, in order
    group.fill(tensor, [&](Bytes offset, std::span<std::byte> piece) {
      EXPECT_EQ(offset, next);
      next += piece.size();
      std::copy_n(value.begin() + static_cast<std::ptrdiff_t>(offset), piece.size(), piece.begin());
    });
    EXPECT_EQ(next, value.size());
    EXPECT_EQ(group.read(tensor), value);
  });
}

// Where rank 0 alone knows what it reads, and how much.
TEST_F(EngineGroupOfProcesses, OneReadsWhatItLikes) {
  const TensorId tensor = test::tensor_named(whole_, "wte.weight");
  const std::vector<std::byte> value = counted(whole_.tensor(tensor).bytes());
  int calls = 0;
  well_on_each([&](EngineGroup& group, std::size_t rank) {
    group.write(tensor, value);
    const auto read_some = [&] {
      ++calls;
      for (int i = 0; i < calls; ++i) EXPECT_EQ(group.read(tensor), value);
      group.on_first([&] { EXPECT_EQ(group.read(tensor), value); });  // within is as without
    };
    group.on_first(read_some);
    group.on_first(read_some);
    const auto failing = [&] {
      EXPECT_EQ(group.read(tensor), value);
      throw InvalidInput("the disk is full");
    };
    if (rank == 0) {
      EXPECT_THROW(group.on_first(failing), InvalidInput);
    } else {
      EXPECT_NO_THROW(group.on_first(failing));
    }
    EXPECT_EQ(group.read(tensor), value);
  });
  EXPECT_EQ(calls, 2);
}

TEST_F(EngineGroupOfProcesses, AllEndWhereAValueCannotBeRead) {
  const TensorId tensor = test::tensor_named(whole_, "wte.weight");
  const auto errors = on_each([&](EngineGroup& group, std::size_t rank) {
    if (rank == 2) devices_[2]->set_fault({.index = 0, .kind = Fault::Kind::call});
    group.on_first([&] { group.read(tensor); });
    group.read(tensor);
  });
  devices_[2]->clear_fault();
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("injected"));
}

TEST_F(EngineGroupOfProcesses, RefusesAGraphOfAnotherRank) {
  std::swap(ranks_[1], ranks_[2]);
  const auto errors = on_each([](EngineGroup&, std::size_t) {});
  EXPECT_THAT(errors[1], HasSubstr("graph 1 is that of rank 2 of 4"));
  EXPECT_THAT(errors[2], HasSubstr("graph 2 is that of rank 1 of 4"));
}

}  // namespace
}  // namespace stowage
