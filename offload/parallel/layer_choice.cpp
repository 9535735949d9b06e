#include "offload/parallel/layer_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>

#include "offload/parallel/saturated.h"

namespace stowage {
namespace {

// Relative difference below which two sums of the same seconds, added in another order, count as equal.
constexpr double equal_totals = 1e-14;
constexpr int price_steps = 30;          // halvings of the interval in which the price of a byte lies
constexpr double largest_price = 1e300;  // seconds a byte

// The sums over the layers that a step wants small. The end is the larger of the last two.
enum Criterion { seconds_alone, seconds_and_exchange, beside_exchange, criteria };

double of_criterion(const VariantTotals& totals, int criterion) {
  if (criterion == seconds_alone) return totals.seconds;
  return criterion == seconds_and_exchange ? totals.seconds + totals.exchange : totals.beside;
}

VariantTotals operator+(const VariantTotals& a, const VariantTotals& b) {
  return {a.seconds + b.seconds, a.exchange + b.exchange, a.beside + b.beside};
}

// A question with its groups numbered from 0, and what is lost between them.
class GroupedQuestion {
 public:
  explicit GroupedQuestion(const LayerChoiceQuestion& question) : question(question) {
    std::map<int, int> numbers;
    for (const std::vector<LayerOption>& options : question.layers) {
      std::vector<int>& own = groups_.emplace_back();
      for (const LayerOption& option : options) {
        const auto [place, added] = numbers.try_emplace(option.group, static_cast<int>(numbers.size()));
        own.push_back(place->second);
        if (added) originals_.push_back(option.group);
      }
    }
    count_ = static_cast<int>(numbers.size());
    lost_.assign((static_cast<std::size_t>(count_) + 1) * static_cast<std::size_t>(count_), 0.0);
    for (int from = 0; from < count_; ++from) {
      for (int to = 0; to < count_; ++to)
        lost_[place(from, to)] = question.change_seconds(originals_[static_cast<std::size_t>(from)],
                                                         originals_[static_cast<std::size_t>(to)]);
    }
  }

  const LayerChoiceQuestion& question;

  int count() const { return count_; }
  int group(std::size_t layer, std::size_t option) const { return groups_[layer][option]; }
  // Returns the seconds lost between neighbours; `from` may be count(): there is no layer before.
  double lost(int from, int to) const { return lost_[place(from, to)]; }

 private:
  std::vector<std::vector<int>> groups_;  // of each layer's options
  std::vector<int> originals_;
  int count_ = 0;
  std::vector<double> lost_;

  std::size_t place(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(count_) + static_cast<std::size_t>(to);
  }
};

// For the layers from each one on, behind a layer of each group: the least sum of a criterion and of `price`
// for each byte, and the first layer's option in it.
class PricedLayers {
 public:
  PricedLayers() = default;
  PricedLayers(const GroupedQuestion& grouped, int criterion, double price)
      : width_(static_cast<std::size_t>(grouped.count()) + 1) {
    const auto& layers = grouped.question.layers;
    const std::size_t cells = (layers.size() + 1) * width_;
    values_.assign(cells, 0);
    bytes_.assign(cells, 0);
    options_.assign(cells, 0);
    for (std::size_t layer = layers.size(); layer-- > 0;) {
      for (std::size_t before = 0; before < width_; ++before)
        choose(grouped, criterion, price, layer, before);
    }
  }

  double value(std::size_t layer, int before) const {
    return values_[layer * width_ + static_cast<std::size_t>(before)];
  }
  // The value, the bytes and the options of all layers together.
  double whole() const { return values_[width_ - 1]; }
  Bytes bytes() const { return bytes_[width_ - 1]; }
  std::vector<int> chosen(const GroupedQuestion& grouped) const {
    std::vector<int> chosen;
    std::size_t before = width_ - 1;
    for (std::size_t layer = 0; layer < grouped.question.layers.size(); ++layer) {
      chosen.push_back(options_[layer * width_ + before]);
      before = static_cast<std::size_t>(grouped.group(layer, static_cast<std::size_t>(chosen.back())));
    }
    return chosen;
  }

 private:
  std::size_t width_ = 1;
  std::vector<double> values_;
  std::vector<Bytes> bytes_;
  std::vector<int> options_;

  void choose(const GroupedQuestion& grouped, int criterion, double price, std::size_t layer,
              std::size_t before) {
    const std::vector<LayerOption>& options = grouped.question.layers[layer];
    double least = infinite_seconds;
    const std::size_t at = layer * width_ + before;
    for (std::size_t i = 0; i < options.size(); ++i) {
      const int group = grouped.group(layer, i);
      const double lost = grouped.lost(static_cast<int>(before), group);
      if (lost == infinite_seconds) continue;
      const std::size_t next = (layer + 1) * width_ + static_cast<std::size_t>(group);
      // Changes come into the seconds, not into the micro-batch beside which gradients are exchanged.
      const double value = of_criterion(options[i].totals, criterion) +
                           price * static_cast<double>(options[i].bytes) +
                           (criterion == beside_exchange ? 0 : lost) + values_[next];
      const Bytes bytes = saturated_sum(options[i].bytes, bytes_[next]);
      if (value > least || (value == least && (value == infinite_seconds || bytes >= bytes_[at]))) continue;
      least = value;
      bytes_[at] = bytes;
      options_[at] = static_cast<int>(i);
    }
    values_[at] = least;
  }
};

// The price of a byte at which the relaxation of the limit is closest, and a choice that fits.
struct Price {
  double price = 0;
  double bound = 0;
  std::vector<int> fitting;  // number of each layer's option; empty: none was met
};

Price best_price(const GroupedQuestion& grouped, int criterion) {
  const Bytes limit = grouped.question.limit;
  const PricedLayers free(grouped, criterion, 0);
  if (free.whole() == infinite_seconds) return {0, infinite_seconds, {}};
  if (free.bytes() <= limit) return {0, free.whole(), free.chosen(grouped)};
  Price best{0, free.whole(), {}};
  const auto try_price = [&](double price) {
    const PricedLayers priced(grouped, criterion, price);
    if (const double value = priced.whole() - price * static_cast<double>(limit); value > best.bound) {
      best.bound = value;
      best.price = price;
    }
    if (priced.bytes() > limit) return false;
    best.fitting = priced.chosen(grouped);
    return true;
  };
  double low = 0;
  double high = (free.whole() + std::numeric_limits<double>::min()) / static_cast<double>(limit + 1);
  while (!try_price(high)) {
    low = high;
    high *= 16;
    if (high > largest_price) return best;  // only the fewest bytes of all fit, if any
  }
  for (int step = 0; step < price_steps; ++step) {
    const double middle = low + (high - low) / 2;
    (try_price(middle) ? high : low) = middle;
  }
  return best;
}

// The fewest and the most bytes that a choice can take.
struct Extremes {
  Bytes least = 0, most = 0;
};
// Returns nullopt if a layer has no option.
std::optional<Extremes> extremes_of(const LayerChoiceQuestion& question) {
  Extremes extremes;
  for (const std::vector<LayerOption>& options : question.layers) {
    if (options.empty()) return {};
    const auto [least, most] =
        std::minmax_element(options.begin(), options.end(),
                            [](const LayerOption& a, const LayerOption& b) { return a.bytes < b.bytes; });
    extremes.least = saturated_sum(extremes.least, least->bytes);
    extremes.most = saturated_sum(extremes.most, most->bytes);
  }
  return extremes;
}

bool fits_at_all(const LayerChoiceQuestion& question) {
  const std::optional<Extremes> extremes = extremes_of(question);
  return extremes && extremes->least <= question.limit;
}

// A choice for the layers so far.
struct ChoiceLabel {
  VariantTotals totals;
  Bytes bytes = 0;
  std::uint32_t parent = 0;  // in the labels of the layers before
  std::int32_t variant = 0, group = 0;
};

bool no_more(double a, double b) { return a <= b + equal_totals * b; }

// Labels of one group that come by rising seconds, and of which none dominates another.
class Front {
 public:
  // Returns whether no label before dominates this one.
  bool add(const ChoiceLabel& label) {
    return label.totals.exchange == 0 ? add_without_exchange(label) : add_with_exchange(label);
  }

 private:
  std::map<double, Bytes>
      least_bytes_;  // by `beside`, falling: the fewest bytes with no more of it; no exchange
  std::vector<ChoiceLabel> others_;

  bool add_without_exchange(const ChoiceLabel& label) {
    const auto more = least_bytes_.upper_bound(label.totals.beside * (1 + equal_totals));
    if (more != least_bytes_.begin() && std::prev(more)->second <= label.bytes) return false;
    auto next = least_bytes_.lower_bound(label.totals.beside);
    while (next != least_bytes_.end() && next->second >= label.bytes) next = least_bytes_.erase(next);
    least_bytes_.emplace(label.totals.beside, label.bytes);
    return true;
  }
  bool add_with_exchange(const ChoiceLabel& label) {
    const double with_exchange = label.totals.seconds + label.totals.exchange;
    const auto dominates = [&](const ChoiceLabel& other) {
      return other.bytes <= label.bytes && no_more(other.totals.seconds, label.totals.seconds) &&
             no_more(other.totals.seconds + other.totals.exchange, with_exchange) &&
             no_more(other.totals.beside, label.totals.beside);
    };
    if (std::any_of(others_.rbegin(), others_.rend(), dominates)) return false;
    others_.push_back(label);
    return true;
  }
};

class ChoiceSearch {
 public:
  explicit ChoiceSearch(const LayerChoiceQuestion& question) : question_(question), grouped_(question) {}

  LayerChoices choices() {
    const std::optional<Extremes> extremes = extremes_of(question_);
    if (!extremes || extremes->least > question_.limit) return {};
    bytes_count_ = extremes->most > question_.limit;
    for (int criterion = 0; criterion < criteria; ++criterion) take_bound(criterion);
    rows_.push_back(
        {ChoiceLabel{.totals = {}, .bytes = 0, .parent = 0, .variant = 0, .group = grouped_.count()}});
    for (std::size_t layer = 0; layer < question_.layers.size(); ++layer) extend(layer);
    for (std::size_t i = 0; i < rows_.back().size(); ++i) take(traced(i));
    return {std::move(found_), exact_, work_};
  }

 private:
  const LayerChoiceQuestion& question_;
  const GroupedQuestion grouped_;
  std::array<double, criteria> prices_{};
  std::array<PricedLayers, criteria> behind_;  // at these prices
  std::vector<LayerChoice> found_;             // that fit, none dominated, by rising seconds
  std::vector<std::vector<ChoiceLabel>> rows_;
  bool bytes_count_ = true;  // false: every choice fits
  bool exact_ = true;
  std::uint64_t work_ = 0;

  void take_bound(int criterion) {
    const Price price = best_price(grouped_, criterion);
    prices_[static_cast<std::size_t>(criterion)] = price.price;
    behind_[static_cast<std::size_t>(criterion)] = PricedLayers(grouped_, criterion, price.price);
    if (price.fitting.empty()) return;
    LayerChoice fitting;
    int before = grouped_.count();
    for (std::size_t layer = 0; layer < price.fitting.size(); ++layer) {
      const std::size_t chosen = static_cast<std::size_t>(price.fitting[layer]);
      const LayerOption& option = question_.layers[layer][chosen];
      const int group = grouped_.group(layer, chosen);
      fitting.totals = fitting.totals + option.totals;
      fitting.totals.seconds += grouped_.lost(before, group);
      fitting.variants.push_back(option.variant);
      before = group;
    }
    take(std::move(fitting));
  }

  void take(LayerChoice choice) {
    const auto beaten = [](const LayerChoice& by, const LayerChoice& of) {
      return by.totals.seconds <= of.totals.seconds && by.totals.to_end() <= of.totals.to_end();
    };
    if (std::any_of(found_.begin(), found_.end(),
                    [&](const LayerChoice& other) { return beaten(other, choice); }))
      return;
    std::erase_if(found_, [&](const LayerChoice& other) { return beaten(choice, other); });
    const auto place = std::find_if(found_.begin(), found_.end(), [&](const LayerChoice& other) {
      return other.totals.seconds > choice.totals.seconds;
    });
    found_.insert(place, std::move(choice));
  }

  // Returns whether no end of the label is better than what was found.
  bool ruled_out(const ChoiceLabel& label, std::size_t next_layer) const {
    std::array<double, criteria> least{};
    for (int criterion = 0; criterion < criteria; ++criterion) {
      const std::size_t at = static_cast<std::size_t>(criterion);
      const double left = static_cast<double>(question_.limit - label.bytes);
      least[at] = of_criterion(label.totals, criterion) + behind_[at].value(next_layer, label.group);
      if (prices_[at] > 0) least[at] -= prices_[at] * left;
    }
    const double to_end = std::max(least[seconds_and_exchange], least[beside_exchange]);
    // The last of the choices that take no longer is the one that ends first.
    const auto longer = std::partition_point(found_.begin(), found_.end(), [&](const LayerChoice& other) {
      return no_more(other.totals.seconds, least[seconds_alone]);
    });
    return longer != found_.begin() && no_more(std::prev(longer)->totals.to_end(), to_end);
  }

  void extend(std::size_t layer) {
    std::vector<ChoiceLabel> longer;
    const std::vector<ChoiceLabel>& before = rows_.back();
    work_ += before.size() * question_.layers[layer].size();
    for (std::size_t number = 0; number < question_.layers[layer].size(); ++number) {
      const LayerOption& option = question_.layers[layer][number];
      const int group = grouped_.group(layer, number);
      for (std::size_t i = 0; i < before.size(); ++i) {
        const double change = grouped_.lost(before[i].group, group);
        const Bytes bytes = bytes_count_ ? saturated_sum(before[i].bytes, option.bytes) : 0;
        if (change == infinite_seconds || bytes > question_.limit) continue;
        ChoiceLabel label{before[i].totals + option.totals, bytes, static_cast<std::uint32_t>(i),
                          option.variant, group};
        label.totals.seconds += change;
        if (!ruled_out(label, layer + 1)) longer.push_back(label);
      }
    }
    keep_best(longer);
    rows_.push_back(std::move(longer));
  }

  void keep_best(std::vector<ChoiceLabel>& labels) {
    std::sort(labels.begin(), labels.end(), [](const ChoiceLabel& a, const ChoiceLabel& b) {
      if (a.group != b.group) return a.group < b.group;
      if (a.totals.seconds != b.totals.seconds) return a.totals.seconds < b.totals.seconds;
      return a.bytes != b.bytes ? a.bytes < b.bytes : a.totals.to_end() < b.totals.to_end();
    });
    std::size_t kept = 0;
    Front front;
    for (const ChoiceLabel& label : labels) {
      if (kept > 0 && labels[kept - 1].group != label.group) front = {};
      if (front.add(label)) labels[kept++] = label;
    }
    labels.resize(kept);
    if (labels.size() <= question_.most_labels) return;
    exact_ = false;
    std::stable_sort(labels.begin(), labels.end(),
                     [](const ChoiceLabel& a, const ChoiceLabel& b) { return a.bytes < b.bytes; });
    labels.resize(question_.most_labels);
  }

  LayerChoice traced(std::size_t i) const {
    LayerChoice choice;
    choice.totals = rows_.back()[i].totals;
    choice.variants.resize(question_.layers.size());
    for (std::size_t layer = question_.layers.size(); layer-- > 0;) {
      const ChoiceLabel& label = rows_[layer + 1][i];
      choice.variants[layer] = label.variant;
      i = label.parent;
    }
    return choice;
  }
};

}  // namespace

VariantTotals bound_of_choices(const LayerChoiceQuestion& question) {
  const VariantTotals nothing{infinite_seconds, infinite_seconds, infinite_seconds};
  if (!fits_at_all(question)) return nothing;
  const GroupedQuestion grouped(question);
  const double seconds = best_price(grouped, seconds_alone).bound;
  if (seconds == infinite_seconds) return nothing;
  const double with_exchange = best_price(grouped, seconds_and_exchange).bound;
  // Rounding must not put the bound above what a choice takes.
  const auto lower = [](double value) { return std::max(0.0, value * (1 - 1e-12)); };
  return {lower(seconds), lower(std::max(0.0, with_exchange - seconds)),
          lower(best_price(grouped, beside_exchange).bound)};
}

LayerChoices best_choices(const LayerChoiceQuestion& question) { return ChoiceSearch(question).choices(); }

}  // namespace stowage
