#include "stowage/graph.h"

#include <gtest/gtest.h>

namespace stowage {
namespace {

TEST(Graph, SizesOfTypes) {
  EXPECT_EQ(size_of(DataType::f32), 4U);
  EXPECT_EQ(size_of(DataType::f64), 8U);
  EXPECT_EQ(size_of(DataType::i32), 4U);
}

TEST(Graph, NamesOfEnumerators) {
  EXPECT_EQ(to_string(DataType::f32), "f32");
  EXPECT_EQ(to_string(DataType::f64), "f64");
  EXPECT_EQ(to_string(DataType::i32), "i32");
  EXPECT_EQ(to_string(TensorKind::parameter), "parameter");
  EXPECT_EQ(to_string(TensorKind::gradient), "gradient");
  EXPECT_EQ(to_string(TensorKind::optimizer_state), "optimizer_state");
  EXPECT_EQ(to_string(TensorKind::activation), "activation");
  EXPECT_EQ(to_string(TensorKind::input), "input");
  EXPECT_EQ(to_string(TensorKind::workspace), "workspace");
  EXPECT_EQ(to_string(Phase::forward), "forward");
  EXPECT_EQ(to_string(Phase::backward), "backward");
  EXPECT_EQ(to_string(Phase::update), "update");
}

TEST(Graph, ElementsAndBytes) {
  Tensor tensor{"t", DataType::f64, {2, 3, 5}, TensorKind::activation, {}};
  EXPECT_EQ(tensor.elements(), 30);
  EXPECT_EQ(tensor.bytes(), 240U);
  tensor.shape = {};
  EXPECT_EQ(tensor.elements(), 1);
  EXPECT_EQ(tensor.bytes(), 8U);
}

}  // namespace
}  // namespace stowage
