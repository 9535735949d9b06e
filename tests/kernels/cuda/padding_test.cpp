#include "kernels/cuda/cudnn_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "src/device/cuda/cuda_device.h"
#include "stowage/device.h"

namespace stowage::cuda {
namespace {

using testing::ElementsAre;

class CudaPadding : public ::testing::Test {
 protected:
  // Runs `work` on a copy of `values` on the device, and brings that back.
  template <class T, class Work>
  void on_device(std::vector<T>& values, Work work) {
    const DeviceMemory host(*device_, MemoryKind::pinned, values.size() * sizeof(T));
    const DeviceMemory memory(*device_, MemoryKind::device, values.size() * sizeof(T));
    const Lane up(*device_, LaneRole::h2d), compute(*device_, LaneRole::compute),
        down(*device_, LaneRole::d2h);
    std::memcpy(host.data(), values.data(), memory.bytes());
    device_->copy(up.id(), memory.data(), host.data(), memory.bytes(), "in");
    device_->synchronise_lane(up.id());
    work(reinterpret_cast<T*>(memory.data()), device_->native_stream(compute.id()));
    device_->synchronise_lane(compute.id());
    device_->copy(down.id(), host.data(), memory.data(), memory.bytes(), "out");
    device_->synchronise_lane(down.id());
    std::memcpy(static_cast<void*>(values.data()), host.data(), memory.bytes());
  }

 private:
  std::unique_ptr<Device> device_ = open_device({});
};

// Samples of 3 tokens and of more than a block has threads.
TEST_F(CudaPadding, CountsTheKeysOfEachSample) {
  for (const std::int64_t sequence : {3, 600}) {
    const auto tokens = static_cast<std::size_t>(2 * sequence);
    std::vector<std::int32_t> values(tokens + 4, -1);  // seen, then both results
    std::fill(values.begin(), values.begin() + 2, 1);
    std::fill(values.begin() + 2, values.begin() + sequence, 0);
    on_device(values, [&](std::int32_t* seen, void* stream) {
      count_lengths({2, sequence}, seen, seen + tokens, seen + tokens + 2, stream);
    });
    const auto length = static_cast<std::int32_t>(sequence);
    EXPECT_THAT(std::vector(values.end() - 4, values.end()), ElementsAre(length, length, 2, length));
  }
}

TEST_F(CudaPadding, ClearsKeysAndValuesOfPaddingAlone) {
  AttentionShape shape;
  shape.samples = 1;
  shape.sequence = 3;
  shape.width = 300;
  shape.heads = 2;
  shape.key_heads = 1;
  const std::vector<std::int32_t> seen = {1, 1, 0};
  constexpr std::size_t row = 2 * 300, seen_words = 6;  // as bf16
  std::vector<Bfloat16> values(seen_words + 3 * row, Bfloat16(2.0F));
  std::memcpy(static_cast<void*>(values.data()), seen.data(), sizeof(std::int32_t) * seen.size());
  on_device(values, [&](Bfloat16* all, void* stream) {
    shape.seen = reinterpret_cast<const std::int32_t*>(all);
    clear_padding(shape, all + seen_words, stream);
  });
  for (std::size_t i = 0; i < 3 * row; ++i) {
    const bool cleared = i >= 2 * row + 300;  // the last token's, behind its query
    ASSERT_EQ(static_cast<float>(values[seen_words + i]), cleared ? 0.0F : 2.0F) << i;
  }
}

}  // namespace
}  // namespace stowage::cuda
