#include "src/checkpoint/state_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/checkpoint/small_state.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;

CheckpointState state() {
  CheckpointState state = testing::small_checkpoint(testing::small_graph(), 120);
  for (CheckpointTensor& tensor : state.tensors) tensor.checksum = std::string(32, 'a');
  return state;
}

std::string refusal_of(const std::string& text) {
  try {
    state_from_json(text, "dir/state.json");
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

// The text of `state` with one part of it replaced, and the checksum of the result.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = state_to_json(state());
  text.resize(text.rfind(",\"checksum\""));
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return sealed(text.replace(at, from.size(), to));
}

TEST(StateJson, SaysAllThereIs) { EXPECT_EQ(state_from_json(state_to_json(state()), "x"), state()); }

TEST(StateJson, AScoreIsThereWhereItWasMeasured) {
  CheckpointState scored = state();
  scored.score = 0.1 + 0.2;
  EXPECT_EQ(state_from_json(state_to_json(scored), "x"), scored);
  EXPECT_THAT(state_to_json(state()), ::testing::Not(HasSubstr("score")));
}

TEST(StateJson, ALossScaleIsThereInHalfPrecision) {
  CheckpointState scaled = state();
  scaled.loss_scale = LossScale{0x1p20, 1999, 120};
  EXPECT_EQ(state_from_json(state_to_json(scaled), "x"), scaled);
  EXPECT_THAT(state_to_json(state()), ::testing::Not(HasSubstr("loss_scale")));
  for (const LossScale& bad : {LossScale{3}, LossScale{1, 2000, 0}, LossScale{1, 0, 121}}) {
    scaled.loss_scale = bad;
    EXPECT_THAT(refusal_of(state_to_json(scaled)), HasSubstr("'loss_scale' is no loss scale"));
  }
}

TEST(StateJson, ALeastScoreIsThereWhereARunMayEndEarly) {
  CheckpointState waiting = state();
  waiting.least_score = LeastScore{0.1 + 0.2, 100, 20};
  EXPECT_EQ(state_from_json(state_to_json(waiting), "x"), waiting);
  EXPECT_THAT(state_to_json(state()), ::testing::Not(HasSubstr("least_score")));
  for (const LeastScore& bad : {LeastScore{1, 121, 0}, LeastScore{1, 100, 21}}) {
    waiting.least_score = bad;
    EXPECT_THAT(refusal_of(state_to_json(waiting)), HasSubstr("'least_score' is no score of that many"));
  }
}

TEST(StateJson, IsJson) {
  const auto json = nlohmann::json::parse(state_to_json(state()));
  EXPECT_EQ(json["step"], 120);
  EXPECT_EQ(json["seed"], "18446744073709551615");
  EXPECT_EQ(json["tensors"][1]["shape"], nlohmann::json({5, 3}));
}

TEST(StateJson, EveryFlippedByteIsFound) {
  const std::string text = state_to_json(state());
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const int bit : {0, 5, 7}) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ 1 << bit);
      ASSERT_THAT(refusal_of(damaged), HasSubstr("dir/state.json: 'checksum'")) << i;
    }
  }
}

TEST(StateJson, EveryShorterTextIsFound) {
  const std::string text = state_to_json(state());
  for (std::size_t size = 0; size < text.size(); ++size)
    ASSERT_THAT(refusal_of(text.substr(0, size)), HasSubstr("dir/state.json: 'checksum'")) << size;
}

// Whoever makes a right checksum over it.
TEST(StateJson, WhatContradictsItselfIsNamed) {
  EXPECT_THAT(refusal_of(changed("stowage-checkpoint", "stowage-weights")), HasSubstr("'format' is not"));
  EXPECT_THAT(refusal_of(changed("\"version\":1", "\"version\":2")), HasSubstr("'version' is of a newer"));
  EXPECT_THAT(refusal_of(changed("\"step\":120", "\"step\":-1")), HasSubstr("'step' is not a count"));
  EXPECT_THAT(refusal_of(changed("\"step\":120,", "")), HasSubstr("'step' is not there"));
  EXPECT_THAT(refusal_of(changed("\"step\":120", "\"step\":1,\"step\":2")), HasSubstr("stands twice"));
  EXPECT_THAT(refusal_of(changed("\"18446744073709551615\"", "\"18446744073709551616\"")),
              HasSubstr("'seed' is not"));
  EXPECT_THAT(refusal_of(changed("\"epoch\":2", "\"epoch\":2.5")), HasSubstr("'data_position.epoch'"));
  EXPECT_THAT(refusal_of(changed("\"model.layers\":\"2\"", "\"model.layers\":2")),
              HasSubstr("'configuration.model.layers'"));
  EXPECT_THAT(refusal_of(changed("optimizer_state", "activation")), HasSubstr("'tensors[1].kind'"));
  EXPECT_THAT(refusal_of(changed("\"bf16\"", "\"bf17\"")), HasSubstr("'tensors[0].type'"));
  EXPECT_THAT(refusal_of(changed("[5,3]", "[5,-3]")), HasSubstr("'tensors[0].shape[1]'"));
  EXPECT_THAT(refusal_of(changed("[5,3]", "[4294967296,4294967296]")), HasSubstr("larger than any tensor"));
  EXPECT_THAT(refusal_of(changed("\"bytes\":30", "\"bytes\":31")), HasSubstr("'tensors[0].bytes' is 31"));
  EXPECT_THAT(refusal_of(changed("\"offset\":64", "\"offset\":0")), HasSubstr("'tensors[1].offset' is 0"));
  EXPECT_THAT(refusal_of(changed("\"w.low\"", "\"w\"")), HasSubstr("'tensors[1].name' stands there twice"));
  EXPECT_THAT(refusal_of(changed("aaaa", "AAAA")), HasSubstr("'tensors[0].checksum'"));
  EXPECT_THAT(refusal_of(changed("\"kind\"", "\"kinds\"")), HasSubstr("'tensors[0].kinds' is not a known"));
  EXPECT_THAT(refusal_of(sealed("{")), HasSubstr("dir/state.json: "));
  EXPECT_THAT(refusal_of(sealed("[")), HasSubstr("dir/state.json: "));
}

}  // namespace
}  // namespace stowage
