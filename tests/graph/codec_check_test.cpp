// Codes of a graph: each `encode` has its `decode`, and sizes fit.
#include <gtest/gtest.h>

#include <string>

#include "stowage/coded_activations.h"
#include "stowage/models.h"
#include "stowage/trace.h"
#include "tests/support/expect_refused.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using test::expect_refused;
using test::op_named;

Graph coded_step() {
  GraphBuilder builder;
  ModelConfig config{.layers = 1, .width = 32, .heads = 2, .vocabulary = 16, .sequence = 64, .batch = 8};
  config.code_activations = CodeBits::four;
  return builder.finish(gpt(builder, config).loss, {});
}

class CodecCheck : public testing::Test {
 protected:
  Graph graph = coded_step();
  Op& encode = graph.ops[op_named(graph, "h.0.mlp.c_fc.pre.encode")];
  Op& decode = graph.ops[op_named(graph, "h.0.mlp.c_fc.pre.decode")];
  Tensor& codes = graph.tensors[encode.writes.front()];
  Tensor& values = graph.tensors[encode.reads.front()];
  Tensor& decoded = graph.tensors[decode.writes.front()];

  void expect_refusal(const std::string& words) {
    expect_refused([&] { check(graph); }, words);
    expect_refused([&] { graph_from_json(to_json(graph)); }, words);
  }
};

TEST_F(CodecCheck, AcceptsWhatFits) { EXPECT_EQ(graph_from_json(to_json(graph)), graph); }

TEST_F(CodecCheck, RefusesCodesWithoutDecode) {
  decode.kernel = "other";
  expect_refusal("makes codes that no `decode` reads");
}
TEST_F(CodecCheck, RefusesCodesWithoutEncode) {
  encode.kernel = "other";
  expect_refusal("which no `encode` made");
}
TEST_F(CodecCheck, RefusesOtherBits) {
  for (const Attribute& bits : {Attribute(std::int64_t{5}), Attribute(4.0), Attribute(std::string("4"))}) {
    decode.attributes["bits"] = bits;
    expect_refusal("no attribute `bits` of 4 or 8");
  }
  encode.attributes = {{"other", std::int64_t{4}}};
  expect_refusal("no attribute `bits` of 4 or 8");
}
TEST_F(CodecCheck, RefusesSizesThatDoNotFit) {
  --codes.shape.front();
  expect_refusal("bytes of u8 hold 'h.0.mlp.c_fc.pre' in 4 bits");
  ++codes.shape.front();
  encode.attributes["bits"] = std::int64_t{8};
  expect_refusal("bytes of u8 hold 'h.0.mlp.c_fc.pre' in 8 bits");
}
TEST_F(CodecCheck, RefusesOtherOperands) {
  encode.reads.push_back(encode.reads.front());
  expect_refusal("one operand each way");
}
TEST_F(CodecCheck, RefusesOtherTypes) {
  decoded.type = DataType::bf16;
  expect_refusal("decodes otherwise than 'h.0.mlp.c_fc.pre.encode'");
  decoded.type = DataType::i32;
  expect_refusal("codes are of f32, bf16 or f16");
}
TEST_F(CodecCheck, RefusesMoreElementsThanCanBeCounted) {
  values.shape = {std::int64_t{1} << 49};
  expect_refusal("codes 'h.0.mlp.c_fc.pre' of more than 2^48 elements");
}

// Ops of a trace have no attributes; the sizes say how many bits there are.
std::string trace_with(int bytes, const char* reader) {
  return R"({"stowage_trace": 1, "loss": "loss", "optimizer": {"name": "adamw"}}
{"tensor": "x", "kind": "input", "type": "f32", "shape": [8, 64]}
{"tensor": "w", "kind": "parameter", "type": "f32", "shape": [64, 64]}
{"tensor": "h", "kind": "activation", "type": "f32", "shape": [8, 64]}
{"op": "up", "phase": "forward", "unit": "up", "reads": ["x", "w"], "writes": ["h"]}
{"tensor": "codes", "kind": "activation", "type": "u8", "shape": [)" +
         std::to_string(bytes) + R"(]}
{"op": "keep", "phase": "forward", "unit": "up", "kernel": "encode", "reads": ["h"], "writes": ["codes"]}
{"tensor": "loss", "kind": "activation", "type": "f32", "shape": []}
{"op": "end", "phase": "forward", "unit": "end", "reads": ["h"], "writes": ["loss"]}
{"tensor": "again", "kind": "activation", "type": "f32", "shape": [8, 64]}
{"op": "take", "phase": "backward", "unit": "up", "kernel": ")" +
         reader + R"(", "reads": ["codes"], "writes": ["again"]}
{"tensor": "dw", "kind": "gradient", "of": "w", "type": "f32", "shape": [64, 64]}
{"op": "dw", "phase": "backward", "unit": "up", "reads": ["x", "again"], "writes": ["dw"]}
)";
}

TEST(CodecCheckOfTraces, GoesBySizes) {
  for (const int bits : {4, 8}) {
    const Graph graph = graph_from_trace(trace_with(bits == 4 ? 262 : 518, "decode"));
    for (const char* op : {"keep", "take"})
      EXPECT_EQ(graph.op(op_named(graph, op)).attributes.at("bits"), Attribute(std::int64_t{bits}));
  }
  expect_refused([] { graph_from_trace(trace_with(263, "decode")); }, "bytes of u8 hold 'h'");
  expect_refused([] { graph_from_trace(trace_with(262, "other")); }, "makes codes that no `decode` reads");
}

}  // namespace
}  // namespace stowage
