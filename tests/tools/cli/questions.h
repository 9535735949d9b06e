// Small questions for the tests of stowage plan.
#pragma once

#include "tests/support/chain_graph.h"
#include "tools/cli/plan_sweep.h"

namespace stowage::test {

// Three parameters of 4096 elements, 16 tokens.
inline PlanQuestion chain_question() {
  PlanQuestion question;
  question.graph = testing::chain_graph();
  question.source = "chain.json";
  return question;
}

// 59,328 parameters, two samples of 16 tokens.
inline PlanQuestion model_question() {
  PlanQuestion question;
  question.model =
      model_spec({.gpt = "1x64", .sequence = "16", .batch = "2", .vocabulary = "96"}, DataType::f32);
  question.graph = build(*question.model);
  question.source = "the model";
  return question;
}

// Two layers, four samples of 16 tokens, two devices.
inline PlanQuestion devices_question() {
  PlanQuestion question;
  question.model = model_spec(
      {.gpt = "2x64", .sequence = "16", .batch = "4", .vocabulary = "96", .devices = "2"}, DataType::f32);
  question.graph = build(*question.model);
  question.source = "the model";
  return question;
}

inline void silent(const std::string&) {}

}  // namespace stowage::test
