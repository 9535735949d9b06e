#include "kernels/cpu/attention.h"

#include <algorithm>
#include <limits>
#include <ostream>

#include "stowage/error.h"
#include "tests/kernels/kernel_check.h"
#include "tests/support/printed_name.h"

namespace stowage::cpu {

static void PrintTo(const AttentionShape& shape, std::ostream* out) {
  *out << shape.samples << " samples " << shape.heads << " heads " << shape.sequence << 'x' << shape.width
       << (shape.causal ? " causal" : "") << (shape.dropout > 0 ? " dropout" : "")
       << (shape.seen != nullptr ? " padding" : "");
  if (shape.key_heads > 0) *out << ' ' << shape.key_heads << " key heads";
  if (shape.window > 0) *out << " window " << shape.window;
  if (shape.begins != nullptr) *out << " documents";
}

namespace {

using namespace stowage::test;

// Scores and probabilities written out whole, one head at a time.
class Reference {
 public:
  explicit Reference(const AttentionShape& shape) : shape_(shape) {}

  std::size_t index(std::int64_t head, std::int64_t row, std::int64_t c, std::int64_t part) const {
    const std::int64_t n = head / shape_.heads * shape_.sequence + row;
    const std::int64_t key_heads = shape_.key_heads > 0 ? shape_.key_heads : shape_.heads;
    const std::int64_t of_query = head % shape_.heads;
    const std::int64_t key_head = of_query / (shape_.heads / key_heads);
    const std::int64_t place = part == 0 ? of_query : shape_.heads + (part - 1) * key_heads + key_head;
    return static_cast<std::size_t>((n * (shape_.heads + 2 * key_heads) + place) * shape_.head_width() + c);
  }
  std::size_t out_index(std::int64_t head, std::int64_t row, std::int64_t c) const {
    const std::int64_t n = head / shape_.heads * shape_.sequence + row;
    return static_cast<std::size_t>(n * shape_.width + head % shape_.heads * shape_.head_width() + c);
  }
  // 1 / (1 - p) or 0
  double kept(std::int64_t head, std::int64_t row, std::int64_t key) const {
    if (shape_.dropout == 0) return 1;
    const auto element = static_cast<std::uint64_t>((head * shape_.sequence + row) * shape_.sequence + key);
    const std::uint32_t word = random_words(shape_.random, element / 4).v[element % 4];
    return word < dropout_threshold(shape_.dropout) ? 0 : 1 / (1 - shape_.dropout);
  }
  std::int64_t seen(std::int64_t row) const { return shape_.causal ? row + 1 : shape_.sequence; }
  bool hidden(std::int64_t head, std::int64_t row, std::int64_t key) const {
    const std::int64_t first = head / shape_.heads * shape_.sequence;
    return (shape_.seen != nullptr && shape_.seen[first + key] == 0) ||
           (shape_.window > 0 && row - key >= shape_.window) ||
           (shape_.begins != nullptr && key < shape_.begins[first + row]);
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(shape_.head_width())); }

  std::vector<double> scores(const std::vector<double>& qkv, std::int64_t head, std::int64_t row) const {
    std::vector<double> result;
    for (std::int64_t key = 0; key < seen(row); ++key) {
      double sum = 0;
      for (std::int64_t c = 0; c < shape_.head_width(); ++c) {
        sum += qkv[index(head, row, c, 0)] * qkv[index(head, key, c, 1)];
      }
      result.push_back(hidden(head, row, key) ? -std::numeric_limits<double>::infinity() : sum * scale());
    }
    return result;
  }

  // out, log_sum_exp
  std::vector<double> forward(const std::vector<double>& qkv) const {
    std::vector<double> out(static_cast<std::size_t>(shape_.samples * shape_.sequence * shape_.width));
    std::vector<double> sums;
    for_rows([&](std::int64_t head, std::int64_t row) {
      const std::vector<double> s = scores(qkv, head, row);
      double sum = 0;
      for (double score : s) sum += std::exp(score);
      sums.push_back(std::log(sum));
      for (std::size_t key = 0; key < s.size(); ++key) {
        const auto k = static_cast<std::int64_t>(key);
        const double weight = std::exp(s[key]) / sum * kept(head, row, k);
        for (std::int64_t c = 0; c < shape_.head_width(); ++c) {
          out[out_index(head, row, c)] += weight * qkv[index(head, k, c, 2)];
        }
      }
    });
    return joined({out, sums});
  }

  // dqkv, by the chain rule through the softmax's Jacobian.
  std::vector<double> backward(const std::vector<double>& qkv, const std::vector<double>& dout) const {
    std::vector<double> dqkv(qkv.size());
    for_rows([&](std::int64_t head, std::int64_t row) {
      std::vector<double> p = scores(qkv, head, row);
      double sum = 0;
      for (double& score : p) sum += score = std::exp(score);
      for (double& weight : p) weight /= sum;
      std::vector<double> dp(p.size());
      double average = 0;
      for (std::size_t key = 0; key < p.size(); ++key) {
        const auto k = static_cast<std::int64_t>(key);
        for (std::int64_t c = 0; c < shape_.head_width(); ++c) {
          const double flow = dout[out_index(head, row, c)] * kept(head, row, k);
          dp[key] += flow * qkv[index(head, k, c, 2)];
          dqkv[index(head, k, c, 2)] += flow * p[key];
        }
        average += p[key] * dp[key];
      }
      for (std::size_t key = 0; key < p.size(); ++key) {
        const auto k = static_cast<std::int64_t>(key);
        const double ds = p[key] * (dp[key] - average) * scale();
        for (std::int64_t c = 0; c < shape_.head_width(); ++c) {
          dqkv[index(head, row, c, 0)] += ds * qkv[index(head, k, c, 1)];
          dqkv[index(head, k, c, 1)] += ds * qkv[index(head, row, c, 0)];
        }
      }
    });
    return dqkv;
  }

 private:
  template <class Body>
  void for_rows(Body body) const {
    for (std::int64_t head = 0; head < shape_.samples * shape_.heads; ++head) {
      for (std::int64_t row = 0; row < shape_.sequence; ++row) body(head, row);
    }
  }

  AttentionShape shape_;
};

struct AttentionCase {
  AttentionShape shape;

  std::int64_t elements() const { return shape.samples * shape.sequence * shape.width; }
  std::int64_t packed_elements() const { return shape.samples * shape.sequence * shape.packed_width(); }

  template <class T>
  std::vector<T> qkv() const {
    return numbers<T>(packed_elements(), 1, 2);
  }
  template <class T>
  std::vector<T> dout() const {
    return numbers<T>(elements(), 2);
  }

  // out, log_sum_exp
  template <class T>
  std::vector<T> forward(const std::vector<T>& from) const {
    std::vector<T> out = unwritten<T>(elements());
    std::vector<T> log_sum_exp = unwritten<T>(shape.samples * shape.heads * shape.sequence);
    attention(shape, from.data(), out.data(), log_sum_exp.data());
    return joined({out, log_sum_exp});
  }

  // out, log_sum_exp, dqkv
  template <class T>
  std::vector<T> run() const {
    const std::vector<T> made = forward(qkv<T>());
    std::vector<T> dqkv = unwritten<T>(packed_elements());
    attention_backward(shape, qkv<T>().data(), made.data(), made.data() + elements(), dout<T>().data(),
                       dqkv.data());
    return joined({made, dqkv});
  }

  std::vector<double> reference() const {
    const Reference of(shape);
    return joined({of.forward(qkv<double>()), of.backward(qkv<double>(), dout<double>())});
  }
};

class Attention : public ::testing::TestWithParam<AttentionShape> {
 protected:
  AttentionCase attention_case{GetParam()};
};

TEST_P(Attention, AgreesWithTheDefinition) {
  expect_close(attention_case.run<double>(), attention_case.reference(), 1e-11);
}

// Scores are sums over a head's width of products up to 4, thus of at most 20; their roundings, 20
// units or so, enter each probability relatively. Gradients of values add `sequence` of these for each query
// head of a group.
TEST_P(Attention, WorkTypeAgrees) {
  const auto terms = static_cast<double>(GetParam().group() * (20 + GetParam().head_width()));
  expect_work_type_agrees(attention_case, 8.0 * terms * unit);
}

TEST_P(Attention, HasTheSameBitsForAnyThreadCount) { expect_same_bits(attention_case); }

const RandomStream stream{11, 22, 33};

// Of two samples of 333: holes, a block of keys of which none is seen, the first one only; else the end alone
// is padding.
std::vector<std::int32_t> some_positions() {
  std::vector<std::int32_t> seen(2 * 333, 1);
  for (std::size_t i = 0; i < 333; ++i) seen[i] = i >= 260 && i % 3 != 0 ? 1 : 0;
  std::fill(seen.begin() + 333 + 200, seen.end(), 0);
  return seen;
}
const std::vector<std::int32_t> seen = some_positions();

// Documents of two samples of 333: of one token, up to a block's end, across blocks; and a single one.
std::vector<std::int32_t> some_documents() {
  std::vector<std::int32_t> begins(2 * 333, 0);
  for (const std::int32_t begin : {5, 6, 64, 100, 320})
    std::fill(begins.begin() + begin, begins.begin() + 333, begin);
  return begins;
}
const std::vector<std::int32_t> documents = some_documents();

AttentionShape grouped(AttentionShape shape, std::int64_t key_heads, std::int64_t window = 0,
                       const std::int32_t* begins = nullptr) {
  shape.key_heads = key_heads;
  shape.window = window;
  shape.begins = begins;
  return shape;
}

// Windows shorter than a block of queries, and longer than a block of keys.
INSTANTIATE_TEST_SUITE_P(
    Groups, Attention,
    ::testing::Values(grouped({2, 6, 70, 48, false}, 2), grouped({1, 2, 100, 16, true}, 2, 1),
                      grouped({1, 1, 333, 8, true, 0.2, stream}, 1, 300),
                      grouped({1, 1, 333, 8, true}, 0, 0, documents.data()),
                      grouped({2, 2, 333, 8, true, 0.2, stream}, 1, 70, documents.data())),
    stowage::test::printed_name);

INSTANTIATE_TEST_SUITE_P(
    Shapes, Attention,
    ::testing::Values(AttentionShape{1, 1, 1, 4, true}, AttentionShape{2, 3, 7, 15, true},
                      AttentionShape{2, 2, 70, 32, false}, AttentionShape{2, 2, 70, 32, false, 0.3, stream},
                      AttentionShape{1, 2, 333, 16, true}, AttentionShape{1, 2, 333, 16, false},
                      AttentionShape{1, 2, 333, 16, true, 0.2, stream}, AttentionShape{1, 1, 600, 8, true},
                      AttentionShape{2, 6, 64, 384, true},
                      AttentionShape{2, 2, 333, 16, false, 0, {}, seen.data()},
                      AttentionShape{2, 2, 333, 16, false, 0.2, stream, seen.data()},
                      AttentionShape{1, 2, 333, 16, true, 0, {}, seen.data() + 333}),
    stowage::test::printed_name);

TEST(AttentionPadding, WhatIsNotSeenChangesNothingAndGetsNoGradient) {
  const AttentionCase attention_case{{2, 2, 333, 16, false, 0, {}, seen.data()}};
  std::vector<float> qkv = attention_case.qkv<float>();
  const std::vector<float> made = attention_case.forward(qkv);
  std::vector<float> dqkv(qkv.size());
  attention_backward(attention_case.shape, qkv.data(), made.data(), made.data() + attention_case.elements(),
                     attention_case.dout<float>().data(), dqkv.data());
  for (std::size_t i = 0; i < qkv.size(); ++i) {
    if (i % 48 < 16 || seen[i / 48] != 0) continue;  // a query, or seen
    ASSERT_EQ(dqkv[i], 0) << i;
    qkv[i] += 3;
  }
  EXPECT_EQ(attention_case.forward(qkv), made);
}

TEST(AttentionPadding, ASampleOfPaddingAloneIsRefused) {
  const std::vector<std::int32_t> none{1, 1, 0, 0};
  const AttentionCase attention_case{{2, 1, 2, 4, false, 0, {}, none.data()}};
  try {
    attention_case.run<float>();
    FAIL() << "nothing to attend to was taken";
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("sample 1 are padding"), std::string::npos) << error.what();
  }
}

TEST(AttentionPadding, PaddingInFrontIsRefusedWhereItIsPromisedAtTheEnd) {
  const std::vector<std::int32_t> at_end{1, 0, 1, 1}, in_front{1, 1, 0, 1};
  AttentionCase attention_case{{2, 1, 2, 4, false, 0, {}, at_end.data(), true}};
  attention_case.run<float>();
  attention_case.shape.seen = in_front.data();
  try {
    attention_case.run<float>();
    FAIL() << "taken";
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("sample 1 has padding in front"), std::string::npos)
        << error.what();
  }
}

TEST(AttentionMask, AFutureTokenChangesNothingBefore) {
  const AttentionCase attention_case{{1, 2, 300, 16, true}};
  std::vector<float> qkv = attention_case.qkv<float>();
  const std::vector<float> before = attention_case.forward(qkv);
  const std::int64_t changed = 270;
  for (std::int64_t i = changed * 48; i < 300 * 48; ++i) qkv[static_cast<std::size_t>(i)] = 1e30F;
  const std::vector<float> after = attention_case.forward(qkv);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + changed * 16, after.begin()));
  EXPECT_NE(before[changed * 16], after[changed * 16]);
}

TEST(AttentionMask, WithoutItEveryTokenIsSeen) {
  const AttentionCase attention_case{{1, 2, 300, 16, false}};
  std::vector<float> qkv = attention_case.qkv<float>();
  const std::vector<float> before = attention_case.forward(qkv);
  for (std::int64_t i = 299 * 48; i < 300 * 48; ++i) qkv[static_cast<std::size_t>(i)] += 1;
  const std::vector<float> after = attention_case.forward(qkv);
  for (std::size_t i = 0; i < 300 * 16; ++i) ASSERT_NE(before[i], after[i]) << i;
}

TEST(AttentionSoftmax, LargeScoresDoNotOverflow) {
  const AttentionCase attention_case{{1, 1, 600, 4, false}};
  std::vector<float> qkv = attention_case.qkv<float>();
  for (float& value : qkv) value *= 1000;
  for (float value : attention_case.forward(qkv)) ASSERT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace stowage::cpu
