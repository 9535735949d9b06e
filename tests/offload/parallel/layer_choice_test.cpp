#include "offload/parallel/layer_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/support/draws.h"

namespace stowage {
namespace {

double fraction(std::mt19937_64& random) { return static_cast<double>(random() >> 11U) * 0x1p-53; }

LayerChoiceQuestion random_question(std::mt19937_64& random) {
  LayerChoiceQuestion question;
  const std::size_t layers = 1 + random() % 6;
  const bool exchange = random() % 2 == 0, groups = random() % 2 == 0;
  Bytes most = 0;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    std::vector<LayerOption>& options = question.layers.emplace_back();
    if (layer > 0 && random() % 2 == 0) {
      options = question.layers[layer - 1];
      most += 100;
      continue;
    }
    for (std::size_t i = 0; i <= random() % 4; ++i) {
      const double seconds = fraction(random);
      const double exchanged = exchange ? 0.3 * fraction(random) : 0;
      options.push_back(
          {{seconds, exchanged, (random() % 2 == 0 ? seconds : seconds + fraction(random)) + exchanged},
           random() % 200,
           static_cast<int>(i),
           groups ? static_cast<int>(random() % 3) : 0});
    }
    most += 100;
  }
  if (random() % 4 != 0) question.limit = random() % (most + 1);
  if (groups) {
    question.change_seconds = [](int from, int to) {
      if (from == to) return 0.02 * from;
      return from + to == 3 ? std::numeric_limits<double>::infinity() : 0.1 * from + 0.01 * to;
    };
  }
  return question;
}

// All choices that fit, by trying them.
void try_all(const LayerChoiceQuestion& question, std::size_t layer, LayerOption so_far,
             std::vector<VariantTotals>& fitting) {
  if (layer == question.layers.size()) {
    fitting.push_back(so_far.totals);
    return;
  }
  for (const LayerOption& option : question.layers[layer]) {
    const double change = layer == 0 ? 0 : question.change_seconds(so_far.group, option.group);
    LayerOption longer = option;
    longer.bytes += so_far.bytes;
    if (longer.bytes > question.limit || std::isinf(change)) continue;
    longer.totals.seconds += so_far.totals.seconds + change;
    longer.totals.exchange += so_far.totals.exchange;
    longer.totals.beside += so_far.totals.beside;
    try_all(question, layer + 1, longer, fitting);
  }
}

TEST(LayerChoice, FindsAllBestChoices) {
  std::mt19937_64 random(17);
  int several = 0, none = 0;
  for (int draw = 0; draw < testing::draws(4000, 200); ++draw) {
    SCOPED_TRACE(draw);
    const LayerChoiceQuestion question = random_question(random);
    std::vector<VariantTotals> fitting;
    try_all(question, 0, {}, fitting);
    const LayerChoices found = best_choices(question);
    EXPECT_TRUE(found.exact);
    ASSERT_EQ(found.best.empty(), fitting.empty());
    none += fitting.empty();
    several += found.best.size() > 1;
    // Each choice that fits is beaten by one that was found, and each that was found fits.
    for (const VariantTotals& each : fitting) {
      EXPECT_TRUE(std::any_of(found.best.begin(), found.best.end(), [&](const LayerChoice& choice) {
        return choice.totals.seconds <= each.seconds * (1 + 1e-12) &&
               choice.totals.to_end() <= each.to_end() * (1 + 1e-12);
      }));
    }
    const VariantTotals bound = bound_of_choices(question);
    for (std::size_t i = 0; i < found.best.size(); ++i) {
      const LayerChoice& choice = found.best[i];
      VariantTotals sum;
      Bytes bytes = 0;
      int before = 0;
      ASSERT_EQ(choice.variants.size(), question.layers.size());
      for (std::size_t layer = 0; layer < choice.variants.size(); ++layer) {
        const LayerOption& option = question.layers[layer][static_cast<std::size_t>(choice.variants[layer])];
        sum.seconds +=
            option.totals.seconds + (layer == 0 ? 0 : question.change_seconds(before, option.group));
        sum.exchange += option.totals.exchange;
        sum.beside += option.totals.beside;
        bytes += option.bytes;
        before = option.group;
      }
      EXPECT_LE(bytes, question.limit);
      EXPECT_NEAR(choice.totals.seconds, sum.seconds, 1e-12);
      EXPECT_NEAR(choice.totals.to_end(), sum.to_end(), 1e-12);
      EXPECT_LE(bound.seconds, choice.totals.seconds);
      EXPECT_LE(bound.to_end(), choice.totals.to_end());
      if (i == 0) continue;
      EXPECT_GT(choice.totals.seconds, found.best[i - 1].totals.seconds);
      EXPECT_LT(choice.totals.to_end(), found.best[i - 1].totals.to_end());
    }
  }
  EXPECT_GT(several, 20);
  EXPECT_GT(none, 10);
}

TEST(LayerChoice, CountsAChangeBetweenLayersOfOneGroup) {
  LayerChoiceQuestion question;
  question.layers.assign(3, {{{1, 0, 1}, 10, 0, 4}});
  question.change_seconds = [](int from, int to) { return from == 4 && to == 4 ? 0.25 : 0.0; };
  const LayerChoices found = best_choices(question);
  ASSERT_EQ(found.best.size(), 1U);
  EXPECT_DOUBLE_EQ(found.best[0].totals.seconds, 3.5);
  EXPECT_NEAR(bound_of_choices(question).seconds, 3.5, 1e-11);
}

TEST(LayerChoice, SaysWhenItLeftChoicesOut) {
  std::mt19937_64 random(19);
  LayerChoiceQuestion question;
  for (int layer = 0; layer < 12; ++layer) {
    std::vector<LayerOption>& options = question.layers.emplace_back();
    for (int i = 0; i < 3; ++i) {
      const double seconds = fraction(random);
      options.push_back({{seconds, 0, seconds + fraction(random)}, 1 + random() % 1000, i, 0});
    }
  }
  question.limit = 5000;
  EXPECT_TRUE(best_choices(question).exact);
  question.most_labels = 2;
  const LayerChoices few = best_choices(question);
  EXPECT_FALSE(few.exact);
  EXPECT_FALSE(few.best.empty());
}

}  // namespace
}  // namespace stowage
