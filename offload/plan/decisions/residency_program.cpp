#include "offload/plan/decisions/residency_program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "offload/plan/decisions/extreme_choices.h"

namespace stowage {
namespace {

std::vector<double> only(std::size_t option, std::size_t options) {
  std::vector<double> shares(options, 0);
  shares[option] = 1;
  return shares;
}

// Balanced rounding ignores options with a smaller fraction.
constexpr double least_share = 1e-3;

// Returns the index of the option in_slices, which the option resident follows; levels.size() if the members
// of the class are not cut.
std::size_t in_slices(const DecisionClasses::Class& of) {
  if (of.members.front().is_activation) return of.levels.size();
  const auto level = static_cast<std::uint8_t>(LoadChoice::in_slices);
  return static_cast<std::size_t>(std::find(of.levels.begin(), of.levels.end(), level) - of.levels.begin());
}

}  // namespace

ResidencyProgram::ResidencyProgram(const Problem& problem, const PlannerSettings& settings)
    : problem_(problem), settings_(settings), classes_(problem, settings) {
  make_table();
  if (!settings.cuts) return;
  const Bytes least = classes_.memory().serial_bytes(0);
  const Bytes most = least + classes_.memory().serial_bytes(static_cast<std::size_t>(LoadChoice::resident));
  for (const double share : settings.cut_shares) {
    classes_.add_cut(solve(least + share_of(most - least, share), unlimited).shares);
    make_table();
  }
}

std::map<std::size_t, std::size_t> ResidencyProgram::members_by_kind() const {
  std::map<std::size_t, std::size_t> members;
  for (const DecisionClasses::Class& each : classes_.all()) members[each.kind] += each.members.size();
  return members;
}

double ResidencyProgram::alone_share() const {
  double alone = 0, all = 0;
  for (const auto& [kind, members] : members_by_kind()) {
    alone += members == 1 ? 1 : 0;
    all += static_cast<double>(members);
  }
  return alone / std::max(1.0, all);
}

void ResidencyProgram::make_table() {
  std::vector<ShareDecision> decisions;
  for (const DecisionClasses::Class& each : classes_.all())
    decisions.push_back({each.options, static_cast<double>(each.members.size())});
  table_.emplace(classes_.fixed(), decisions, classes_.base().size() + 1);
}

ResidencyProgram::Mixture ResidencyProgram::solve(Bytes device, Bytes host,
                                                  const std::optional<GivenShares>& given) const {
  std::vector<double> room;
  for (const double base : classes_.base()) room.push_back(static_cast<double>(device) - base);
  room.push_back(host == unlimited ? static_cast<double>(most_host_bytes()) : static_cast<double>(host));
  return solve_for(room, 1, 0, given);
}

ResidencyProgram::Mixture ResidencyProgram::least_host(Bytes device) const {
  std::vector<double> room;
  for (const double base : classes_.base()) room.push_back(static_cast<double>(device) - base);
  room.push_back(static_cast<double>(most_host_bytes()));
  // With these weights one more host byte costs more than any time that it saves.
  return solve_for(room, 1e-3, 1, {});
}

ResidencyProgram::Mixture ResidencyProgram::solve_for(const std::vector<double>& room, double seconds_weight,
                                                      double host_weight,
                                                      const std::optional<GivenShares>& given) const {
  problem_.throw_if_cancelled();
  ShareTable::Question question;
  question.second = seconds_weight / classes_.step_seconds();
  question.byte = 1 / std::clamp(*std::max_element(room.begin(), room.end()), 1.0, classes_.total_bytes());
  question.last_row_price = host_weight;
  question.given = given;
  question.tolerance = settings_.program_tolerance;
  for (const double bytes : room) question.room.push_back(std::max(1e-3, bytes * question.byte));
  ShareAnswer answer = table_->solve(question);
  const double host = answer.memory.back() / question.byte;
  return {answer.value / question.second, answer.fits, static_cast<Bytes>(host), std::move(answer.shares),
          room};
}

std::vector<GivenShares> ResidencyProgram::divided(const Mixture& mixture, Bytes device) const {
  std::vector<GivenShares> choices;
  double most = settings_.undivided * static_cast<double>(device);
  for (std::size_t c = 0; c < classes_.all().size(); ++c) {
    if (classes_.all()[c].members.size() != 1) continue;
    const std::vector<double>& shares = mixture.shares[c];
    const double largest = *std::max_element(shares.begin(), shares.end());
    double bytes = 0;
    for (const ShareCost& option : classes_.all()[c].options)
      for (std::size_t m = 0; m < classes_.base().size(); ++m) bytes = std::max(bytes, option.memory[m]);
    if ((1 - largest) * bytes <= most) continue;
    most = (1 - largest) * bytes;
    choices.clear();
    for (std::size_t o = 0; o < shares.size(); ++o)
      if (shares[o] > 0.01) choices.push_back({c, only(o, shares.size())});
  }
  return choices;
}

std::vector<GivenShares> ResidencyProgram::sliced() const {
  std::vector<GivenShares> choices;
  for (std::size_t c = 0; c < classes_.all().size(); ++c) {
    const std::size_t options = classes_.all()[c].options.size(), option = in_slices(classes_.all()[c]);
    if (option == options || classes_.all()[c].members.size() != 1) continue;
    for (const double on_device : settings_.slice_shares) {
      std::vector<double> shares = only(option, options);
      shares[option] = 1 - on_device;
      shares[option + 1] = on_device;
      choices.push_back({c, std::move(shares)});
    }
  }
  return choices;
}

std::vector<double> ResidencyProgram::rows_of(const ShareCost& cost) const {
  std::vector<double> rows(cost.front.begin(), cost.front.end());
  rows.insert(rows.end(), cost.back.begin(), cost.back.end());
  rows.insert(rows.end(), cost.memory.begin(),
              cost.memory.begin() + static_cast<std::ptrdiff_t>(classes_.base().size() + 1));
  return rows;
}

std::vector<double> ResidencyProgram::weights(const Mixture& mixture) const {
  constexpr double full = 0.9;
  ShareCost sum = classes_.fixed();
  for (std::size_t c = 0; c < classes_.all().size(); ++c)
    for (std::size_t o = 0; o < mixture.shares[c].size(); ++o)
      if (mixture.shares[c][o] > 0)
        sum.add(classes_.all()[c].options[o],
                mixture.shares[c][o] * static_cast<double>(classes_.all()[c].members.size()));
  std::vector<double> most(2 * share_rows);
  std::fill_n(most.begin(), share_rows, *std::max_element(sum.front.begin(), sum.front.end()));
  std::fill_n(most.begin() + share_rows, share_rows, *std::max_element(sum.back.begin(), sum.back.end()));
  most.insert(most.end(), mixture.room.begin(), mixture.room.end());
  const std::vector<double> taken = rows_of(sum);
  std::vector<double> weights(most.size(), 0);
  for (std::size_t row = 0; row < most.size(); ++row)
    if (most[row] > 0 && taken[row] >= full * most[row]) weights[row] = 1 / most[row];
  return weights;
}

Choices ResidencyProgram::round(const Mixture& mixture, Rounding rounding) const {
  struct Turn {
    const DecisionClasses::Member* member = nullptr;
    const DecisionClasses::Class* of = nullptr;
    const std::vector<double>* shares = nullptr;
  };
  std::vector<Turn> turns;
  for (std::size_t c = 0; c < classes_.all().size(); ++c)
    for (const DecisionClasses::Member& member : classes_.all()[c].members)
      turns.push_back({&member, &classes_.all()[c], &mixture.shares[c]});
  std::sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) {
    return std::tuple(a.member->position, a.member->index) < std::tuple(b.member->position, b.member->index);
  });
  Choices choices = lowest_choices(problem_);
  std::map<std::size_t, std::vector<double>> owed;  // remainders of earlier decisions, by kind and option
  const bool is_balanced = rounding == Rounding::balanced;
  const std::map<std::size_t, std::size_t> of_kind = members_by_kind();
  const std::vector<double> weight = is_balanced ? weights(mixture) : std::vector<double>();
  // By row: bytes or seconds that the choices so far take beyond their mixtures.
  std::vector<double> beyond(weight.size(), 0);
  // Returns the option that keeps `beyond` smallest, and updates `beyond` for it.
  const auto balanced = [&](const Turn& turn) {
    std::vector<double> without = beyond;
    for (std::size_t o = 0; o < turn.shares->size(); ++o) {
      if ((*turn.shares)[o] <= 0) continue;
      const std::vector<double> rows = rows_of(turn.of->options[o]);
      for (std::size_t row = 0; row < rows.size(); ++row) without[row] -= (*turn.shares)[o] * rows[row];
    }
    std::size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t o = 0; o < turn.shares->size(); ++o) {
      if ((*turn.shares)[o] < least_share) continue;
      std::vector<double> with = rows_of(turn.of->options[o]);
      double squares = 0;
      for (std::size_t row = 0; row < with.size(); ++row) {
        with[row] += without[row];
        squares += with[row] * with[row] * weight[row] * weight[row];
      }
      if (squares >= least) continue;
      least = squares;
      best = o;
      beyond = std::move(with);
    }
    return best;
  };
  for (const Turn& turn : turns) {
    if (is_balanced && of_kind.at(turn.of->kind) == 1 && in_slices(*turn.of) == turn.of->levels.size()) {
      classes_.set(*turn.member, turn.of->levels[balanced(turn)], choices);
      continue;
    }
    std::vector<double>& due = owed[turn.of->kind];
    due.resize(turn.shares->size());
    for (std::size_t o = 0; o < due.size(); ++o) due[o] += (*turn.shares)[o];
    if (take_slices(*turn.of, *turn.member, due, choices)) continue;
    std::size_t most = 0;
    for (std::size_t o = 1; o < due.size(); ++o)
      if (due[o] > due[most] + 1e-9) most = o;
    due[most] -= 1;
    classes_.set(*turn.member, turn.of->levels[most], choices);
  }
  return choices;
}

double ResidencyProgram::seconds(const Choices& choices) const {
  ShareCost sum = classes_.fixed();
  for (const DecisionClasses::Class& of : classes_.all())
    for (const DecisionClasses::Member& member : of.members) {
      // Returns the option of the member's level, or of the next lower level, since levels of equal cost
      // share one option.
      const std::uint8_t level = classes_.level_of(member, choices);
      std::size_t option = 0;
      for (std::size_t o = 0; o < of.levels.size(); ++o)
        if (of.levels[o] == level || (of.levels[option] != level && of.levels[o] < level)) option = o;
      sum.add(of.options[option], 1);
    }
  return *std::max_element(sum.front.begin(), sum.front.end()) +
         *std::max_element(sum.back.begin(), sum.back.end()) + sum.price;
}

// Gives a parameter that is cut as many of its first slices on the device as are due there. Returns false if
// the parameter is to be moved as a whole.
bool ResidencyProgram::take_slices(const DecisionClasses::Class& of, const DecisionClasses::Member& member,
                                   std::vector<double>& due, Choices& choices) const {
  const std::size_t option = in_slices(of);
  if (option == of.levels.size()) return false;
  double& on_host = due[option];
  double& on_device = due[option + 1];
  if (on_host < 1e-3 ||
      *std::max_element(due.begin(), due.begin() + static_cast<std::ptrdiff_t>(option)) > on_host + on_device)
    return false;
  const auto slices = static_cast<double>(problem_.layout.slices[member.index].size());
  const double taken = std::floor(slices * std::clamp(on_device, 0.0, 1.0) + 1e-6);
  on_host -= 1 - taken / slices;
  on_device -= taken / slices;
  choices.loads[member.index] = taken == slices ? LoadChoice::resident : LoadChoice::in_slices;
  if (taken < slices) choices.device_slices[member.index] = static_cast<std::uint32_t>(taken);
  return true;
}

}  // namespace stowage
