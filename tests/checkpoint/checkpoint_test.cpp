#include "stowage/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/checkpoint/state_json.h"
#include "tests/checkpoint/small_state.h"

namespace stowage {
namespace {

using testing::contents_of;
using ::testing::HasSubstr;
using testing::put;
using testing::SmallState;

class CheckpointFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    CheckpointFolder(folder_.path(), 1)
        .write(testing::small_checkpoint(graph_, 7), values_.values_of(graph_));
  }
  std::string refusal() const {
    try {
      const Checkpoint checkpoint(path_);
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "accepted";
  }
  template <class Action>
  std::string refusal_of(Action action) const {
    try {
      action();
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "accepted";
  }

  const Graph graph_ = testing::small_graph();
  SmallState values_{graph_, 1};
  testing::OwnFolder folder_;
  const std::string path_ = folder_.path() + "/step-000000000007";
  const std::string bin_ = path_ + "/tensors.bin";
  const std::string json_ = path_ + "/state.json";
};

// By any piece, also when the checkpoint has been removed.
TEST_F(CheckpointFiles, GiveSingleValues) {
  const Checkpoint checkpoint(path_);
  const CheckpointValues stored(checkpoint, graph_);
  std::filesystem::remove_all(path_);
  for (const TensorId id : lasting_tensors(graph_)) {
    std::vector<std::byte> expected(graph_.tensor(id).bytes());
    values_.access().read(id, 0, expected);
    EXPECT_EQ(stored.read(id), expected);
    if (expected.size() < 8) continue;
    std::vector<std::byte> part(3);
    stored.read(id, 5, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + 5));
  }
  std::vector<std::byte> part(3);
  EXPECT_THAT(refusal_of([&] { stored.read(1, 28, part); }), HasSubstr("beyond tensor \"w\" of 30 bytes"));
  EXPECT_THAT(refusal_of([&] { stored.read(0); }), HasSubstr("it has no tensor 0 of the graph"));
  EXPECT_THAT(refusal_of([&] { CheckpointValues(checkpoint, graph_); }), HasSubstr("tensors.bin"));
}

TEST_F(CheckpointFiles, BringEverythingBack) {
  const Checkpoint checkpoint(path_);
  CheckpointState expected = testing::small_checkpoint(graph_, 7);
  for (std::size_t i = 0; i < expected.tensors.size(); ++i)
    expected.tensors[i].checksum = checkpoint.state().tensors[i].checksum;
  EXPECT_EQ(checkpoint.state(), expected);
  SmallState other(graph_, 99);
  ASSERT_NE(other, values_);
  checkpoint.load(graph_, other.access());
  EXPECT_EQ(other, values_);
}

// Padding included.
TEST_F(CheckpointFiles, EveryFlippedByteOfTheValuesIsFoundAndItsTensorNamed) {
  const std::string whole = contents_of(bin_);
  ASSERT_EQ(whole.size(), 320U);
  const std::vector<std::string> names = {"\"w\"", "\"w.low\"", "\"scale\"", "\"w.first\"", "\"w.first\""};
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    put(bin_, damaged);
    ASSERT_THAT(refusal(), HasSubstr(bin_ + ": the bytes of tensor " + names[i / 64])) << i;
  }
}

TEST_F(CheckpointFiles, EveryOtherLengthOfTheValuesIsFound) {
  const std::string whole = contents_of(bin_);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put(bin_, whole.substr(0, size));
    ASSERT_THAT(refusal(), HasSubstr(bin_ + ": it has " + std::to_string(size) + " bytes"));
  }
  put(bin_, whole + '\0');
  EXPECT_THAT(refusal(), HasSubstr("it has 321 bytes, and 'tensors' in state.json takes 320"));
}

// Every one of them: state_json_test.
TEST_F(CheckpointFiles, AFlippedByteOrAnotherLengthOfTheStateIsFound) {
  const std::string whole = contents_of(json_);
  for (std::size_t i = 0; i < whole.size(); i += 7) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    put(json_, damaged);
    ASSERT_THAT(refusal(), HasSubstr(json_ + ": 'checksum'")) << i;
    put(json_, whole.substr(0, i));
    ASSERT_THAT(refusal(), HasSubstr(json_ + ": 'checksum'")) << i;
  }
}

TEST_F(CheckpointFiles, WhatTheStateClaimsTakesNoMemory) {
  CheckpointState state = testing::small_checkpoint(graph_, 7);
  state.tensors = {
      {"w", TensorKind::parameter, DataType::f32, {std::int64_t{1} << 58}, 0, Bytes{1} << 60, {}}};
  state.tensors[0].checksum = std::string(32, '0');
  put(json_, state_to_json(state));
  EXPECT_THAT(refusal(),
              HasSubstr("it has 320 bytes, and 'tensors' in state.json takes 1152921504606846976"));
}

TEST_F(CheckpointFiles, WhatIsMissingOrNoFileIsNamed) {
  std::filesystem::remove(bin_);
  EXPECT_THAT(refusal(), HasSubstr(bin_ + ": cannot be read"));
  std::filesystem::create_directory(bin_);
  EXPECT_THAT(refusal(), HasSubstr(bin_ + ": cannot be read"));
  std::filesystem::remove(json_);
  EXPECT_THAT(refusal(), HasSubstr(json_ + ": cannot be read"));
}

TEST_F(CheckpointFiles, AnotherRunIsNamedWithBothValues) {
  const Checkpoint checkpoint(path_);
  const auto same = testing::small_checkpoint(graph_, 7).configuration;
  checkpoint.require_configuration(same);
  const auto refused = [&](const std::map<std::string, std::string>& of) {
    return refusal_of([&] { checkpoint.require_configuration(of); });
  };
  auto other = same;
  other["model.layers"] = "3";
  EXPECT_THAT(refused(other),
              HasSubstr(json_ + ": 'configuration.model.layers' is \"2\", and that of this run is \"3\""));
  other = same;
  other["model.heads"] = "4";
  EXPECT_THAT(refused(other), HasSubstr("'configuration.model.heads' is missing"));
  other["model.layers"] = "3";
  EXPECT_THAT(refused(other),
              HasSubstr("'configuration.model.heads' is missing, and that of this run is \"4\" "
                        "(others too: \"model.layers\");"));
  for (int i = 0; i < 20; ++i) other[std::to_string(i)] = "";
  EXPECT_THAT(refused(other), HasSubstr(" and 13 more);"));
  other = same;
  other.erase("model.layers");
  EXPECT_THAT(refused(other),
              HasSubstr("'configuration.model.layers' is \"2\", and that of this run is missing"));
}

TEST_F(CheckpointFiles, AnotherGraphIsNamedBeforeAnythingIsWritten) {
  const Checkpoint checkpoint(path_);
  SmallState other(graph_, 99);
  const SmallState before = other;
  Graph graph = graph_;
  graph.tensors[6].shape = {4, 5};
  EXPECT_THAT(refusal_of([&] { checkpoint.load(graph, other.access()); }),
              HasSubstr("'tensors[4]' is optimizer_state \"w.first\" f32 [5, 4], and that of this run is "
                        "optimizer_state \"w.first\" f32 [4, 5]"));
  graph.tensors.pop_back();
  EXPECT_THAT(refusal_of([&] { checkpoint.load(graph, other.access()); }),
              HasSubstr("'tensors' is a list of 5, and that of this run is one of 4"));
  EXPECT_EQ(other, before);
}

TEST_F(CheckpointFiles, WhatIsChangedBeforeItIsLoadedIsFound) {
  const Checkpoint checkpoint(path_);
  std::string damaged = contents_of(bin_);
  damaged[70] = static_cast<char>(damaged[70] ^ 1);
  put(bin_, damaged);
  SmallState other(graph_, 99);
  EXPECT_THAT(refusal_of([&] { checkpoint.load(graph_, other.access()); }), HasSubstr("tensor \"w.low\""));
}

}  // namespace
}  // namespace stowage
