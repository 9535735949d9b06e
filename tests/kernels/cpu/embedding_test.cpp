#include "kernels/cpu/embedding.h"

#include <string>

#include "stowage/error.h"
#include "tests/kernels/kernel_check.h"
#include "tests/support/printed_name.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

struct EmbeddingCase {
  EmbeddingShape shape{210, 131, 17, 70};
  bool positioned = true;

  std::vector<std::int32_t> tokens() const {
    std::mt19937 generator(7);
    std::vector<std::int32_t> result(static_cast<std::size_t>(shape.tokens));
    // Token 5 never comes: its gradient is zero.
    for (std::int32_t& token : result) {
      token = static_cast<std::int32_t>(generator() % static_cast<unsigned>(shape.vocabulary - 1));
      if (token == 5) token = static_cast<std::int32_t>(shape.vocabulary - 1);
    }
    return result;
  }

  // y, dtable, dpositions
  template <class T>
  std::vector<T> run() const {
    const std::vector<T> table = numbers<T>(shape.vocabulary * shape.width, 1);
    const std::vector<T> positions = numbers<T>(shape.sequence * shape.width, 2);
    const std::vector<T> dy = numbers<T>(shape.tokens * shape.width, 3);
    std::vector<T> y = unwritten<T>(shape.tokens * shape.width);
    std::vector<T> dtable = unwritten<T>(shape.vocabulary * shape.width);
    std::vector<T> dpositions = unwritten<T>(shape.sequence * shape.width);
    embedding(shape, tokens().data(), table.data(), positioned ? positions.data() : nullptr, y.data());
    embedding_backward(shape, tokens().data(), dy.data(), dtable.data());
    position_backward(shape, dy.data(), dpositions.data());
    return joined({y, dtable, dpositions});
  }

  std::vector<double> reference() const {
    const std::vector<double> table = numbers<double>(shape.vocabulary * shape.width, 1);
    const std::vector<double> positions = numbers<double>(shape.sequence * shape.width, 2);
    const std::vector<double> dy = numbers<double>(shape.tokens * shape.width, 3);
    const std::vector<std::int32_t> token = tokens();
    std::vector<double> y;
    std::vector<double> dtable(table.size());
    std::vector<double> dpositions(positions.size());
    const auto width = static_cast<std::size_t>(shape.width);
    for (std::size_t at = 0; at < dy.size(); ++at) {
      const std::size_t row = static_cast<std::size_t>(token[at / width]) * width + at % width;
      const std::size_t place = at / width % static_cast<std::size_t>(shape.sequence) * width + at % width;
      y.push_back(table[row] + (positioned ? positions[place] : 0));
      dtable[row] += dy[at];
      dpositions[place] += dy[at];
    }
    return joined({y, dtable, dpositions});
  }
};

class Embedding : public ::testing::TestWithParam<bool> {
 protected:
  EmbeddingCase embedding_case{.positioned = GetParam()};
};

TEST_P(Embedding, AgreesWithTheDefinition) {
  expect_close(embedding_case.run<double>(), embedding_case.reference(), 1e-13);
}

// About 13 of 210 tokens share a row; not more than 40 of them: so many roundings of a sum below 40.
TEST_P(Embedding, WorkTypeAgrees) { expect_work_type_agrees(embedding_case, 40 * 40 * unit); }

TEST_P(Embedding, HasTheSameBitsForAnyThreadCount) { expect_same_bits(embedding_case); }

INSTANTIATE_TEST_SUITE_P(Positions, Embedding, testing::Bool(), stowage::test::printed_name);

TEST(EmbeddingInput, TokenOutsideTheTableIsNamed) {
  const std::vector<float> table(6);
  std::vector<float> y(4);
  for (std::int32_t bad : {3, -1}) {
    const std::vector<std::int32_t> tokens{0, bad};
    try {
      embedding<float>({2, 2, 3}, tokens.data(), table.data(), nullptr, y.data());
      FAIL() << "token " << bad << " was taken";
    } catch (const InvalidInput& error) {
      EXPECT_NE(std::string(error.what()).find("token " + std::to_string(bad) + " at position 1"),
                std::string::npos)
          << error.what();
    }
    EXPECT_THROW(embedding_backward<float>({2, 2, 3}, tokens.data(), y.data(), std::vector<float>(6).data()),
                 InvalidInput);
  }
}

}  // namespace
}  // namespace stowage::cpu
