// The real cuDNN's word on the attention of our models, for an H100 that is only described (h100.json), under
// a driver without a device (cudnn_driver.cmake): what a shape needs is accepted, and fits what our graphs
// reserve.
#include "kernels/cuda/cudnn_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <ostream>
#include <vector>

#include "stowage/cuda_device.h"
#include "stowage/nn.h"
#include "tests/support/draws.h"
#include "tests/support/graph_queries.h"

namespace stowage::cuda {
namespace {

using ::testing::HasSubstr;

struct Asked {
  const char* by;
  std::int64_t samples, heads, sequence, head_width;
  bool causal = true;
  bool padded = false;
  std::int64_t key_heads = 0;  // 0: as many as heads
  std::int64_t window = 0;

  friend std::ostream& operator<<(std::ostream& out, const Asked& asked) { return out << asked.by; }
  AttentionShape shape() const {
    AttentionShape shape;
    shape.samples = samples;
    shape.heads = heads;
    shape.sequence = sequence;
    shape.width = heads * head_width;
    shape.causal = causal;
    shape.padded_at_end = padded;
    shape.key_heads = key_heads;
    shape.window = window;
    return shape;
  }
};

// Without dropout, in bf16. The first ones are looked at in CI too.
std::vector<Asked> all_asked() {
  std::vector<Asked> all = {
      {"GpuCheckGpt2", 64, 12, 1024, 64},
      {"PaddedBertLarge", 128, 16, 512, 64, false, true},
      {"KernelTestOddPadding", 2, 1, 70, 80, true, true},
      {"KernelTestWidestOdd", 1, 1, 37, 192, false},
      {"MistralWindow", 1, 32, 8192, 128, true, false, 8, 4096},
      {"GpuCheckBertLarge", 128, 16, 512, 64, false},
      {"GpuCheckGpt2Large", 8, 20, 1024, 64},
      {"GpuCheckBitsGpt", 16, 4, 256, 64},
      {"GpuCheckBitsBert", 16, 4, 128, 64, false},
      {"GpuCheckTrainer", 32, 8, 256, 64},
      {"ContestGpt15B", 4, 25, 1024, 64},
      {"ContestGpt34B", 16, 32, 1024, 128},
      {"TrainGptDefault", 16, 6, 256, 64},
      {"TrainGptOfSamples", 8, 6, 128, 32},
      {"TrainBertDefault", 32, 4, 32, 32, false, true},
      {"PaddedBertBase", 32, 12, 128, 64, false, true},
      {"PaddedBertBaseLong", 32, 12, 512, 64, false, true},
      {"PaddedMicroBatch", 1, 16, 512, 64, false, true},
      {"LongSequence", 1, 32, 8192, 128},
      {"KernelTestTwoHeads", 1, 2, 128, 64},
      {"KernelTestTwoHeadsOfBert", 1, 2, 128, 64, false},
      {"KernelTestOdd", 1, 1, 150, 32},
      {"KernelTestOddOfBert", 1, 1, 150, 32, false},
      {"KernelTestWide", 1, 1, 70, 80},
      {"KernelTestWideOfBert", 1, 1, 70, 80, false},
      {"KernelTestWidestOddCausal", 1, 1, 37, 192},
      {"KernelTestWorkspace", 1, 2, 64, 16},
      {"KernelTestLargeScores", 1, 1, 40, 8, false},
      {"KernelTestPadding", 2, 2, 150, 64, false, true},
      {"KernelTestWidestPadding", 1, 1, 37, 192, false, true},
      {"Llama8B", 4, 32, 2048, 128, true, false, 8},
      {"Llama8BLong", 1, 32, 8192, 128, true, false, 8},
      {"Llama70B", 1, 64, 4096, 128, true, false, 8},
      {"SmallLlama", 8, 9, 1024, 64, true, false, 3},
      {"OneKeyHead", 4, 8, 512, 64, true, false, 1},
      {"GroupsOfBert", 4, 8, 512, 64, false, false, 2},
      {"PaddedGroups", 4, 8, 512, 64, false, true, 2},
      {"Window", 4, 12, 1024, 64, true, false, 0, 256},
      {"KernelTestGroupedWindow", 2, 2, 70, 80, true, false, 1, 30},
  };
  all.resize(stowage::testing::draws<std::size_t>(all.size(), 5));
  return all;
}

std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What our graphs reserve for the shape's backward.
Bytes reserved(const Asked& asked) {
  GraphBuilder builder(DataType::bf16);
  const AttentionShape shape = asked.shape();
  const std::int64_t tokens = shape.samples * shape.sequence;
  nn::AttentionOptions options{.heads = shape.heads,
                               .sequence = shape.sequence,
                               .causal = shape.causal,
                               .key_heads = shape.key_heads,
                               .window = shape.window};
  if (asked.padded) {
    options.seen = builder.input("seen", {tokens});
    options.padding_at_end = true;
  }
  const Value qkv = builder.parameter("qkv", {tokens, shape.packed_width()}, {});
  const Value y = nn::attention(builder, "y", qkv, options);
  const Value loss = nn::cross_entropy(builder, "loss", y, builder.input("targets", {tokens}));
  const Graph graph = builder.finish_without_update(loss);
  return graph.tensor(graph.op(test::op_named(graph, "y.backward")).writes[1]).bytes();
}

std::string slice_text(const CudnnGraph& graph) {
  return std::to_string(graph.slice().samples) + " samples, " + std::to_string(graph.slice().heads) +
         " heads, " + std::to_string(graph.workspace_bytes()) + " bytes";
}

class CudnnOnH100 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("STOWAGE_CUDNN") == nullptr)
      GTEST_SKIP() << "no libcudnn.so.9 was found beside the toolkit";
    device_ = std::make_unique<CudnnDevice>(text_of(H100_JSON), 90);
    ASSERT_EQ(device_->missing(), "");
  }
  const CudnnDevice& device() const { return *device_; }

 private:
  std::unique_ptr<CudnnDevice> device_;
};

class CudnnTakes : public CudnnOnH100, public ::testing::WithParamInterface<Asked> {};

TEST_P(CudnnTakes, ForwardInALanesScratch) {
  const AttentionShape shape = GetParam().shape();
  const Bytes scratch = CudaOptions{}.scratch - 256;  // usable_scratch
  const CudnnAnswer answer = ask_cudnn(shape, DataType::bf16, false, scratch, device());
  ASSERT_NE(answer.graph, nullptr) << answer.refusal;
  EXPECT_EQ(answer.graph->slice().samples, shape.samples);
  EXPECT_LE(static_cast<Bytes>(answer.graph->workspace_bytes()) + lengths_bytes(shape), scratch);
}

// Whole, or in slices of at least half of the 512 tiles of queries that the graph reserves room for.
TEST_P(CudnnTakes, DeterministicBackwardInTheGraphsWorkspace) {
  const AttentionShape shape = GetParam().shape();
  const Bytes workspace = reserved(GetParam());
  const CudnnAnswer answer = ask_cudnn(shape, DataType::bf16, true, workspace, device());
  ASSERT_NE(answer.graph, nullptr) << answer.refusal;
  EXPECT_LE(static_cast<Bytes>(answer.graph->workspace_bytes()) + lengths_bytes(shape), workspace);
  const std::int64_t heads = answer.graph->slice().samples * answer.graph->slice().heads;
  const std::int64_t tiles = (shape.sequence + 127) / 128;
  EXPECT_GE(heads * tiles, std::min<std::int64_t>(shape.samples * shape.heads * tiles, 256))
      << slice_text(*answer.graph);
  RecordProperty("slice", slice_text(*answer.graph));
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudnnTakes, ::testing::ValuesIn(all_asked()),
                         [](const auto& info) { return std::string(info.param.by); });

// The first refusal is a word of the frontend's, the others are ours.
TEST_F(CudnnOnH100, RefusesWithTheStepAndTheMessage) {
  const CudnnAnswer narrow =
      ask_cudnn(Asked{"", 1, 2, 64, 12}.shape(), DataType::bf16, true, 1 << 20, device());
  EXPECT_EQ(narrow.graph, nullptr);
  EXPECT_THAT(narrow.refusal, HasSubstr("validate: code "));
  EXPECT_THAT(narrow.refusal, HasSubstr("multiple of 8"));
  const CudnnAnswer small = ask_cudnn(Asked{"", 2, 2, 128, 64}.shape(), DataType::bf16, true, 1000, device());
  EXPECT_EQ(small.graph, nullptr);
  EXPECT_THAT(small.refusal, HasSubstr("bytes of workspace for one head, there are 1000"));
  const CudnnAnswer group =
      ask_cudnn(Asked{"", 2, 4, 128, 64, true, false, 2}.shape(), DataType::bf16, true, 1000, device());
  EXPECT_THAT(group.refusal, HasSubstr("bytes of workspace for one group of heads, there are 1000"));
  const CudnnAnswer none = ask_cudnn(Asked{"", 2, 2, 128, 64}.shape(), DataType::bf16, false, 0, device());
  EXPECT_THAT(none.refusal, HasSubstr("its kernel wants 256 bytes of workspace for all heads"));
}

}  // namespace
}  // namespace stowage::cuda
