#include "samples/run/run_outputs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

Tensor tensor(const char* name, TensorKind kind, std::vector<std::int64_t> shape) {
  Tensor result;
  result.name = name;
  result.kind = kind;
  result.shape = std::move(shape);
  return result;
}

TEST(WeightsFile, IndexLineThenTheParametersBytes) {
  Graph graph;
  graph.tensors = {tensor("x", TensorKind::activation, {9}), tensor("w", TensorKind::parameter, {2, 3}),
                   tensor("m", TensorKind::optimizer_state, {2, 3}), tensor("b", TensorKind::parameter, {3})};
  const TemporaryFolder folder;
  OutputFile file("--weights", folder.file("weights"), Writing::whole);
  write_weights(file, graph, [&](TensorId id) {
    return std::vector<std::byte>(graph.tensor(id).bytes(), static_cast<std::byte>('0' + id));
  });

  const std::string contents = contents_of(folder.file("weights"));
  const std::size_t line = contents.find('\n');
  ASSERT_NE(line, std::string::npos);
  EXPECT_EQ(contents.substr(line + 1), std::string(24, '1') + std::string(12, '3'));
  const auto index = nlohmann::json::parse(contents.substr(0, line));
  EXPECT_EQ(index.at("format"), "stowage-weights");
  EXPECT_EQ(index.at("version"), 1);
  ASSERT_EQ(index.at("tensors").size(), 2U);
  const auto& bias = index.at("tensors").at(1);
  EXPECT_EQ(bias.at("name"), "b");
  EXPECT_EQ(bias.at("type"), "f32");
  EXPECT_EQ(bias.at("shape"), nlohmann::json({3}));
  EXPECT_EQ(bias.at("offset"), 24);
  EXPECT_EQ(bias.at("bytes"), 12);
}

}  // namespace
}  // namespace stowage::samples
