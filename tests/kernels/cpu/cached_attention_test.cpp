// Attention over a cache, judged by attention over the whole sequence at once.
#include "kernels/cpu/cached_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cpu/attention.h"
#include "tests/kernels/kernel_check.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

struct CacheCase {
  const char* name;
  std::int64_t heads, key_heads, width, window;
};

void PrintTo(const CacheCase& of, std::ostream* out) { *out << of.name; }

class CachedAttention : public ::testing::TestWithParam<CacheCase> {
 protected:
  static constexpr std::int64_t tokens = 37;

  AttentionShape whole_shape() const {
    AttentionShape shape;
    shape.samples = 1;
    shape.heads = GetParam().heads;
    shape.key_heads = GetParam().key_heads;
    shape.sequence = tokens;
    shape.width = GetParam().heads * GetParam().width;
    shape.window = GetParam().window;
    return shape;
  }

  // Computes the tokens in pieces of these lengths.
  template <class T>
  std::vector<T> in_pieces(const std::vector<T>& qkv, const std::vector<std::int64_t>& lengths) const {
    const AttentionShape whole = whole_shape();
    const std::int64_t positions = tokens + 3;
    const std::int64_t elements = positions * whole.key_width();
    std::vector<T> keys = unwritten<T>(elements), values = unwritten<T>(elements);
    std::vector<T> out = unwritten<T>(tokens * whole.width);
    CachedAttentionShape shape{.heads = GetParam().heads,
                               .key_heads = GetParam().key_heads,
                               .width = GetParam().width,
                               .window = GetParam().window};
    for (const std::int64_t length : lengths) {
      shape.tokens = length;
      cached_attention<T>(shape, qkv.data() + shape.before * whole.packed_width(),
                          {keys.data(), values.data(), positions}, out.data() + shape.before * whole.width);
      shape.before += length;
    }
    return out;
  }
};

INSTANTIATE_TEST_SUITE_P(Shapes, CachedAttention,
                         ::testing::Values(CacheCase{"plain", 3, 3, 8, 0}, CacheCase{"grouped", 6, 2, 10, 0},
                                           CacheCase{"window", 4, 1, 33, 5},
                                           CacheCase{"window_of_one", 2, 2, 16, 1}),
                         [](const auto& info) { return info.param.name; });

TEST_P(CachedAttention, IsThatOfTheWholeSequence) {
  const AttentionShape shape = whole_shape();
  const auto qkv = numbers<float>(tokens * shape.packed_width(), 1, 2);
  std::vector<float> right = unwritten<float>(tokens * shape.width);
  std::vector<float> log_sum_exp = unwritten<float>(tokens * shape.heads);
  attention(shape, qkv.data(), right.data(), log_sum_exp.data());
  for (const auto& lengths :
       {std::vector<std::int64_t>{tokens}, {20, 1, 16}, std::vector<std::int64_t>(tokens, 1)}) {
    const std::vector<float> found = in_pieces(qkv, lengths);
    for (std::size_t i = 0; i < right.size(); ++i) ASSERT_NEAR(found[i], right[i], 2e-6) << i;
  }
}

// No sum depends on how many tokens come at once.
TEST_P(CachedAttention, HasTheSameBitsInAnyPieces) {
  const auto wide_qkv = numbers<float>(tokens * whole_shape().packed_width(), 1, 2);
  std::vector<Bfloat16> qkv;
  for (const float value : wide_qkv) qkv.emplace_back(value);
  const auto at_once = in_pieces(qkv, {tokens});
  const auto by_one = in_pieces(qkv, std::vector<std::int64_t>(tokens, 1));
  for (std::size_t i = 0; i < at_once.size(); ++i) ASSERT_EQ(at_once[i].bits, by_one[i].bits);
}

TEST_P(CachedAttention, RoundsNarrowResultsOnce) {
  const auto check = [&]<class T>(T, double precision) {
    const auto drawn = numbers<float>(tokens * whole_shape().packed_width(), 1, 2);
    std::vector<T> narrow;
    std::vector<float> same;
    for (const float value : drawn) same.push_back(wide(narrow.emplace_back(value)));
    const auto found = in_pieces(narrow, {7, 30});
    const auto right = in_pieces(same, {7, 30});
    for (std::size_t i = 0; i < right.size(); ++i)
      ASSERT_NEAR(wide(found[i]), right[i], precision * std::abs(right[i]) + 1e-6);
  };
  check(Bfloat16{}, 0x1p-8);
  check(Float16{}, 0x1p-11);
}

}  // namespace
}  // namespace stowage::cpu
