#include "kernels/cpu/cross_entropy.h"

#include <string>

#include "stowage/error.h"
#include "tests/kernels/kernel_check.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

struct CrossEntropyCase {
  std::int64_t rows = 210, vocabulary = 259;

  // Every third is ignored.
  std::vector<std::int32_t> targets() const {
    std::mt19937 generator(7);
    std::vector<std::int32_t> result(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < result.size(); ++i) {
      const auto drawn = static_cast<std::int32_t>(generator() % static_cast<unsigned>(vocabulary));
      result[i] = i % 3 == 0 ? -1 : drawn;
    }
    return result;
  }

  // loss, log_sum_exp, dlogits times the targets that count (so that they are of size one)
  template <class T>
  std::vector<T> run() const {
    const std::vector<T> logits = numbers<T>(rows * vocabulary, 1, 10);
    std::vector<T> log_sum_exp = unwritten<T>(rows);
    std::vector<T> dlogits = unwritten<T>(rows * vocabulary);
    double loss = -1;
    cross_entropy({rows, vocabulary}, logits.data(), targets().data(), &loss, log_sum_exp.data());
    cross_entropy_backward({rows, vocabulary}, logits.data(), targets().data(), log_sum_exp.data(),
                           dlogits.data());
    for (T& value : dlogits) value *= static_cast<T>(140);
    return joined({{static_cast<T>(loss)}, log_sum_exp, dlogits});
  }

  std::vector<double> reference() const {
    const std::vector<double> logits = numbers<double>(rows * vocabulary, 1, 10);
    const std::vector<std::int32_t> wanted = targets();
    const auto v = static_cast<std::size_t>(vocabulary);
    double loss = 0;
    std::vector<double> log_sum_exp;
    std::vector<double> dlogits;
    for (std::size_t row = 0; row < wanted.size(); ++row) {
      const std::int32_t target = wanted[row];
      double sum = 0;
      for (std::size_t i = 0; i < v; ++i) sum += std::exp(logits[row * v + i]);
      log_sum_exp.push_back(std::log(sum));
      for (std::size_t i = 0; i < v; ++i) {
        const double probability = std::exp(logits[row * v + i]) / sum;
        const double gradient = probability - (static_cast<std::size_t>(target) == i ? 1 : 0);
        dlogits.push_back(target < 0 ? 0 : gradient);
      }
      if (target >= 0)
        loss -= std::log(std::exp(logits[row * v + static_cast<std::size_t>(target)]) / sum) / 140;
    }
    return joined({{loss}, log_sum_exp, dlogits});
  }
};

TEST(CrossEntropy, AgreesWithTheDefinition) {
  const CrossEntropyCase entropy;
  expect_close(entropy.run<double>(), entropy.reference(), 1e-12);
}

// Log-sum-exp is below 16: one rounding of it, one of the sum's logarithm, and the exponential's own
// enter probabilities below one.
TEST(CrossEntropy, WorkTypeAgrees) { expect_work_type_agrees(CrossEntropyCase{}, 48 * unit); }

TEST(CrossEntropy, HasTheSameBitsForAnyThreadCount) { expect_same_bits(CrossEntropyCase{}); }

TEST(CrossEntropy, IgnoredTargetsCountForNothing) {
  const std::vector<double> logits{1, 2, 3, 50, -50, 7};
  std::vector<double> log_sum_exp(2);
  double with = 0;
  double without = 0;
  const std::vector<std::int32_t> ignored{2, -100};
  cross_entropy({2, 3}, logits.data(), ignored.data(), &with, log_sum_exp.data());
  cross_entropy({1, 3}, logits.data(), ignored.data(), &without, log_sum_exp.data());
  EXPECT_EQ(with, without);
}

TEST(CrossEntropy, AllIgnoredGivesZero) {
  const std::vector<float> logits{1, 2, 3, 4};
  const std::vector<std::int32_t> targets{-1, -1};
  std::vector<float> log_sum_exp(2);
  std::vector<float> dlogits(4, 9.0F);
  double loss = 9;
  cross_entropy({2, 2}, logits.data(), targets.data(), &loss, log_sum_exp.data());
  cross_entropy_backward({2, 2}, logits.data(), targets.data(), log_sum_exp.data(), dlogits.data());
  EXPECT_EQ(loss, 0);
  EXPECT_EQ(dlogits, std::vector<float>(4, 0.0F));
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  const std::vector<float> logits{1e4F, 0, -1e4F};
  const std::vector<std::int32_t> targets{0};
  float log_sum_exp = 0;
  double loss = 9;
  cross_entropy({1, 3}, logits.data(), targets.data(), &loss, &log_sum_exp);
  EXPECT_EQ(log_sum_exp, 1e4F);
  EXPECT_EQ(loss, 0);
}

TEST(CrossEntropy, TargetOutsideTheVocabularyIsNamed) {
  const std::vector<float> logits(6);
  const std::vector<std::int32_t> targets{0, 3};
  std::vector<float> log_sum_exp(2);
  double loss = 0;
  try {
    cross_entropy({2, 3}, logits.data(), targets.data(), &loss, log_sum_exp.data());
    FAIL() << "target 3 of 3 was taken";
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("target 3 at position 1"), std::string::npos) << error.what();
  }
}

// One exponential for each logit, and then the same as two give.
TEST(CrossEntropy, InPlaceAgreesWithLossAndGradient) {
  const std::int64_t rows = 7, vocabulary = 37;
  const std::vector<double> logits = numbers<double>(rows * vocabulary, 1, 10);
  const std::vector<std::int32_t> targets{0, 36, -1, 5, 17, -1, 9};
  double loss = 0;
  std::vector<double> log_sum_exp(7), dlogits(logits.size()), in_place = logits;
  cross_entropy({rows, vocabulary}, logits.data(), targets.data(), &loss, log_sum_exp.data());
  cross_entropy_backward({rows, vocabulary}, logits.data(), targets.data(), log_sum_exp.data(),
                         dlogits.data());
  const double sum = cross_entropy_in_place({rows, vocabulary}, 5, 0, targets.data(), in_place.data());
  EXPECT_NEAR(sum / 5, loss, 1e-12);
  for (std::size_t i = 0; i < dlogits.size(); ++i) EXPECT_NEAR(in_place[i], dlogits[i], 1e-12) << i;
}

// Columns behind the vocabulary, however large, leave the same bits as logits without them.
TEST(CrossEntropy, PaddingCountsForNothing) {
  const std::int64_t rows = 7, vocabulary = 37, stored = 48;
  const std::vector<float> logits = numbers<float>(rows * vocabulary, 1, 10);
  const std::vector<std::int32_t> targets{0, 36, -1, 5, 17, -1, 9};
  std::vector<float> padded(static_cast<std::size_t>(rows * stored), 1e30F);
  for (std::int64_t row = 0; row < rows; ++row)
    std::copy_n(logits.begin() + row * vocabulary, vocabulary, padded.begin() + row * stored);
  double loss = 0;
  double padded_loss = 0;
  std::vector<float> log_sum_exp(7), padded_sums(7), dlogits = unwritten<float>(rows * vocabulary),
                                                     dpadded = unwritten<float>(rows * stored);
  cross_entropy({rows, vocabulary}, logits.data(), targets.data(), &loss, log_sum_exp.data());
  cross_entropy({rows, vocabulary, stored}, padded.data(), targets.data(), &padded_loss, padded_sums.data());
  EXPECT_EQ(padded_loss, loss);
  EXPECT_EQ(padded_sums, log_sum_exp);
  cross_entropy_backward({rows, vocabulary}, logits.data(), targets.data(), log_sum_exp.data(),
                         dlogits.data());
  cross_entropy_backward({rows, vocabulary, stored}, padded.data(), targets.data(), log_sum_exp.data(),
                         dpadded.data());
  std::vector<float> in_place = logits;
  EXPECT_EQ(cross_entropy_in_place({rows, vocabulary}, 5, 0, targets.data(), in_place.data()),
            cross_entropy_in_place({rows, vocabulary, stored}, 5, 0, targets.data(), padded.data()));
  for (std::int64_t i = 0; i < rows * stored; ++i) {
    const std::int64_t row = i / stored, column = i % stored;
    const float right =
        column < vocabulary ? dlogits[static_cast<std::size_t>(row * vocabulary + column)] : 0;
    ASSERT_EQ(dpadded[static_cast<std::size_t>(i)], right) << row << ' ' << column;
    const float right_in_place =
        column < vocabulary ? in_place[static_cast<std::size_t>(row * vocabulary + column)] : 0;
    ASSERT_EQ(padded[static_cast<std::size_t>(i)], right_in_place) << row << ' ' << column;
  }
}

TEST(CrossEntropy, ATargetInPaddingIsRefused) {
  const std::vector<float> logits(8);
  const std::vector<std::int32_t> targets{3};
  float log_sum_exp = 0;
  double loss = 0;
  EXPECT_THROW(cross_entropy({1, 3, 8}, logits.data(), targets.data(), &loss, &log_sum_exp), InvalidInput);
}

TEST(LossOfStatistics, IsNoNumberWhereNoBlockHadATarget) {
  const std::vector<std::int32_t> targets = {0, 4, -1};
  std::vector<float> statistics = {1, 2, 0, 3, 2, 1, 0.5F, -3e38F, 0};
  double loss = 0;
  loss_of_statistics(3, statistics.data(), targets.data(), 2, &loss);
  EXPECT_TRUE(std::isnan(loss));
  statistics[7] = 1.5F;
  loss_of_statistics(3, statistics.data(), targets.data(), 2, &loss);
  EXPECT_NEAR(loss, (1 + std::log(3.0) - 0.5 + 2 + std::log(2.0) - 1.5) / 2, 1e-6);
}

}  // namespace
}  // namespace stowage::cpu
