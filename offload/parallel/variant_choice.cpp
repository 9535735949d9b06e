#include "offload/parallel/variant_choice.h"

#include <algorithm>

namespace stowage {

VariantChoice::VariantChoice(const ParallelCosts& costs, std::vector<StageLayout> layouts,
                             std::size_t most_labels)
    : costs_(costs), layouts_(std::move(layouts)), most_labels_(most_labels) {
  find_kinds();
  find_groups();
  find_sequences();
  least_.resize(parents_.size() * layouts_.size());
  solved_.resize(least_.size());
}

const LayerVariant& VariantChoice::variant(int kind, int number) const {
  const int layer = kind_layers_[static_cast<std::size_t>(kind)];
  return costs_.layers[static_cast<std::size_t>(layer)].variants[static_cast<std::size_t>(number)];
}

const std::vector<VariantChoice::Variant>& VariantChoice::allowed(int kind, int layout) const {
  return variants_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(layout)];
}

void VariantChoice::find_kinds() {
  for (std::size_t layer = 0; layer < costs_.layers.size(); ++layer) {
    const auto same = std::find_if(kind_layers_.begin(), kind_layers_.end(), [&](int other) {
      return costs_.layers[static_cast<std::size_t>(other)].variants == costs_.layers[layer].variants;
    });
    kinds_.push_back(static_cast<int>(same - kind_layers_.begin()));
    if (same == kind_layers_.end()) kind_layers_.push_back(static_cast<int>(layer));
  }
}

void VariantChoice::find_groups() {
  const auto number_of = [&](const std::string& name) {
    return names_.try_emplace(name, static_cast<int>(names_.size())).first->second;
  };
  // The one pair of parts and split that variants of a name have; (0, 0) if they differ.
  std::map<int, std::pair<int, int>> spread;
  for (const int layer : kind_layers_) {
    for (const LayerVariant& each : costs_.layers[static_cast<std::size_t>(layer)].variants) {
      const std::pair own{each.parts, each.split};
      const auto [place, added] = spread.try_emplace(number_of(each.name), own);
      if (!added && place->second != own) place->second = {0, 0};
    }
  }
  using Loss = std::pair<int, double>;
  std::map<int, std::vector<Loss>> before, behind;  // by name, what is lost next to others
  for (const VariantChange& change : costs_.changes) {
    const int from = number_of(change.from), to = number_of(change.to);
    changes_[{from, to}] = change.seconds;
    const auto a = spread.find(from), b = spread.find(to);
    const bool by_default = change.seconds == 0 && a != spread.end() && b != spread.end() &&
                            a->second == b->second && a->second.first > 0;
    if (by_default) continue;
    behind[from].push_back({to, change.seconds});
    before[to].push_back({from, change.seconds});
  }
  for (auto* losses : {&before, &behind}) {
    for (auto& [name, of] : *losses) std::sort(of.begin(), of.end());
  }
  std::map<std::tuple<int, int, std::vector<Loss>, std::vector<Loss>>, int> groups;
  variants_.resize(kind_layers_.size());
  for (std::size_t kind = 0; kind < kind_layers_.size(); ++kind) {
    variants_[kind].resize(layouts_.size());
    const auto& all = costs_.layers[static_cast<std::size_t>(kind_layers_[kind])].variants;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const int name = number_of(all[i].name);
      const auto [place, added] = groups.try_emplace({all[i].parts, all[i].split, before[name], behind[name]},
                                                     static_cast<int>(groups_.size()));
      if (added) groups_.push_back({name, all[i].parts, all[i].split});
      for (std::size_t layout = 0; layout < layouts_.size(); ++layout) {
        const StageLayout& of = layouts_[layout];
        const bool fits =
            of.mixed ? all[i].devices() == of.devices : all[i].parts == of.parts && all[i].split == of.split;
        if (fits) variants_[kind][layout].push_back({static_cast<int>(i), place->second});
      }
    }
  }
}

void VariantChoice::find_sequences() {
  std::map<std::pair<int, int>, int> known;  // by the sequence without its last layer, and that layer's kind
  sequences_.resize(kinds_.size());
  for (std::size_t first = 0; first < kinds_.size(); ++first) {
    int parent = -1;
    for (std::size_t last = first; last < kinds_.size(); ++last) {
      const auto [place, added] =
          known.try_emplace({parent, kinds_[last]}, static_cast<int>(parents_.size()));
      if (added) {
        parents_.push_back(parent);
        last_kinds_.push_back(kinds_[last]);
      }
      sequences_[first].push_back(place->second);
      parent = place->second;
    }
  }
}

double VariantChoice::change_seconds(int from_group, int to_group) const {
  const Group& from = groups_[static_cast<std::size_t>(from_group)];
  const Group& to = groups_[static_cast<std::size_t>(to_group)];
  if (const auto listed = changes_.find({from.name, to.name}); listed != changes_.end())
    return listed->second;
  return from.parts == to.parts && from.split == to.split ? 0 : infinite_seconds;
}

Bytes VariantChoice::bytes_of(const LayerVariant& variant, std::int64_t in_flight) const {
  if (costs_.memory == unlimited) return 0;
  return variant.bytes_with(in_flight);
}

VariantTotals VariantChoice::totals_of(const LayerVariant& variant) const {
  const double exchange = variant.exchanged_bytes == 0 ? 0
                                                       : static_cast<double>(variant.exchanged_bytes) /
                                                             costs_.exchange_bytes_per_second;
  return {variant.seconds(), exchange, variant.seconds_with_exchange.value_or(variant.seconds()) + exchange};
}

VariantChoice::Least VariantChoice::with_layer(Least before, int kind, int layout) const {
  VariantTotals best{infinite_seconds, infinite_seconds, infinite_seconds};
  double to_exchange = infinite_seconds;
  for (const Variant& each : allowed(kind, layout)) {
    const VariantTotals totals = totals_of(variant(kind, each.number));
    best.seconds = std::min(best.seconds, totals.seconds);
    best.exchange = std::min(best.exchange, totals.exchange);
    best.beside = std::min(best.beside, totals.beside);
    to_exchange = std::min(to_exchange, totals.seconds + totals.exchange);
  }
  const LayerVariant* best_of_all = nullptr;  // with the fewest bytes among equals, if there is a fewest
  bool unclear = false;
  for (const Variant& each : allowed(kind, layout)) {
    const LayerVariant& of = variant(kind, each.number);
    const VariantTotals totals = totals_of(of);
    if (totals.seconds > best.seconds || totals.seconds + totals.exchange > to_exchange ||
        totals.beside > best.beside)
      continue;
    unclear = unclear || best_of_all != nullptr;
    best_of_all = &of;
  }
  before.totals = {before.totals.seconds + best.seconds, before.totals.exchange + best.exchange,
                   before.totals.beside + best.beside};
  before.one_is_best = before.one_is_best && best_of_all != nullptr && !unclear;
  if (before.one_is_best) {
    before.bytes = saturated_sum(before.bytes, best_of_all->bytes);
    before.bytes_in_flight = saturated_sum(before.bytes_in_flight, best_of_all->bytes_in_flight);
  }
  return before;
}

const VariantChoice::Least& VariantChoice::least(int sequence, int layout) {
  std::vector<int> open;  // sequences that are not known, the longest first
  int at = sequence;
  for (; at >= 0 && !least_[place(at, layout)].known; at = parents_[static_cast<std::size_t>(at)])
    open.push_back(at);
  Least longer = at < 0 ? Least{} : least_[place(at, layout)];
  longer.known = true;
  for (auto next = open.rbegin(); next != open.rend(); ++next) {
    longer = with_layer(longer, last_kinds_[static_cast<std::size_t>(*next)], layout);
    least_[place(*next, layout)] = longer;
  }
  return least_[place(sequence, layout)];
}

bool VariantChoice::best_fits(const Least& least, std::int64_t in_flight) const {
  if (!least.one_is_best || !changes_.empty()) return false;
  return costs_.memory == unlimited ||
         saturated_sum(least.bytes, saturated_product(least.bytes_in_flight, in_flight)) <= costs_.memory;
}

std::vector<int> VariantChoice::kinds_of(int sequence) const {
  std::vector<int> kinds;
  for (; sequence >= 0; sequence = parents_[static_cast<std::size_t>(sequence)])
    kinds.push_back(last_kinds_[static_cast<std::size_t>(sequence)]);
  std::reverse(kinds.begin(), kinds.end());
  return kinds;
}

LayerChoiceQuestion VariantChoice::question(const std::vector<int>& kinds, int layout,
                                            std::int64_t in_flight) const {
  LayerChoiceQuestion question;
  for (const int kind : kinds) {
    std::vector<LayerOption>& options = question.layers.emplace_back();
    for (const Variant& each : allowed(kind, layout)) {
      const LayerVariant& of = variant(kind, each.number);
      options.push_back({totals_of(of), bytes_of(of, in_flight), each.number, each.group});
    }
  }
  question.limit = costs_.memory;
  question.change_seconds = [this](int from, int to) { return change_seconds(from, to); };
  question.most_labels = most_labels_;
  return question;
}

const VariantTotals& VariantChoice::bound(int sequence, int layout, std::int64_t in_flight) {
  const Least& best = least(sequence, layout);
  const bool without_limits = costs_.memory == unlimited && changes_.empty();
  if (without_limits || best.totals.seconds == infinite_seconds || best_fits(best, in_flight))
    return best.totals;
  if (costs_.memory == unlimited) in_flight = 0;
  Solved& solved = solved_[place(sequence, layout)][in_flight];
  if (!solved.bound_known) solved.bound = bound_of_choices(question(kinds_of(sequence), layout, in_flight));
  solved.bound_known = true;
  return solved.bound;
}

const std::vector<VariantTotals>& VariantChoice::choices(int sequence, int layout, std::int64_t in_flight) {
  if (costs_.memory == unlimited) in_flight = 0;
  Solved& solved = solved_[place(sequence, layout)][in_flight];
  if (solved.choices_known) return solved.choices;
  solved.choices_known = true;
  const Least& best = least(sequence, layout);
  if (best.totals.seconds == infinite_seconds) return solved.choices;
  if (best_fits(best, in_flight)) {
    solved.choices = {best.totals};
    return solved.choices;
  }
  const LayerChoices found = best_choices(question(kinds_of(sequence), layout, in_flight));
  exact_ = exact_ && found.exact;
  work_ += found.work;
  for (const LayerChoice& each : found.best) solved.choices.push_back(each.totals);
  return solved.choices;
}

std::vector<int> VariantChoice::variants(int first, int last, int layout, std::int64_t in_flight,
                                         std::size_t choice) const {
  const std::vector<int> kinds(kinds_.begin() + first, kinds_.begin() + last);
  return best_choices(question(kinds, layout, in_flight)).best.at(choice).variants;
}

std::vector<Bytes> VariantChoice::least_bytes(int first, int layout, std::int64_t in_flight) const {
  std::vector<Bytes> least;
  std::map<int, Bytes> by_group;  // of the last layer so far
  for (std::size_t layer = static_cast<std::size_t>(first); layer < kinds_.size(); ++layer) {
    std::map<int, Bytes> longer;
    for (const Variant& each : allowed(kinds_[layer], layout)) {
      const LayerVariant& of = variant(kinds_[layer], each.number);
      const Bytes own = of.bytes_with(in_flight);
      const auto add = [&](Bytes before) {
        Bytes& sum = longer.try_emplace(each.group, unlimited).first->second;
        sum = std::min(sum, saturated_sum(before, own));
      };
      if (least.empty()) add(0);
      for (const auto& [group, bytes] : by_group) {
        if (change_seconds(group, each.group) != infinite_seconds) add(bytes);
      }
    }
    if (longer.empty()) break;
    by_group = std::move(longer);
    least.push_back(std::min_element(by_group.begin(), by_group.end(), [](auto& a, auto& b) {
                      return a.second < b.second;
                    })->second);
  }
  return least;
}

}  // namespace stowage
