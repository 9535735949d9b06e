// From shares to whole items.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "offload/plan/extreme_choices.h"
#include "offload/plan/residency_program.h"

namespace stowage {
namespace {

std::vector<double> only(std::size_t option, std::size_t options) {
  std::vector<double> shares(options, 0);
  shares[option] = 1;
  return shares;
}

}  // namespace

std::vector<ResidencyProgram::Fixed> ResidencyProgram::divided(const Mixture& mixture, Bytes device) const {
  std::vector<Fixed> choices;
  double most = settings_.undivided * static_cast<double>(device);
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    if (classes_[c].members.size() != 1) continue;
    const std::vector<double>& shares = mixture.shares[c];
    const double largest = *std::max_element(shares.begin(), shares.end());
    double bytes = 0;
    for (const ShareCost& option : classes_[c].options)
      for (std::size_t m = 0; m < base_.size(); ++m) bytes = std::max(bytes, option.memory[m]);
    if ((1 - largest) * bytes <= most) continue;
    most = (1 - largest) * bytes;
    choices.clear();
    for (std::size_t o = 0; o < shares.size(); ++o)
      if (shares[o] > 0.01) choices.push_back({c, only(o, shares.size())});
  }
  return choices;
}

std::vector<ResidencyProgram::Fixed> ResidencyProgram::sliced() const {
  std::vector<Fixed> choices;
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    const std::size_t options = classes_[c].options.size(), option = in_slices(classes_[c]);
    if (option >= options || classes_[c].members.size() != 1) continue;
    for (const double on_device : settings_.slice_shares) {
      std::vector<double> shares = only(option, options);
      shares[option] = 1 - on_device;
      shares[option + 1] = on_device;
      choices.push_back({c, std::move(shares)});
    }
  }
  return choices;
}

// The option, and behind it `resident`; past the end where the class has none.
std::size_t ResidencyProgram::in_slices(const Class& of) {
  if (of.members.front().is_activation) return of.levels.size();
  const auto found =
      std::find(of.levels.begin(), of.levels.end(), static_cast<std::uint8_t>(LoadChoice::in_slices));
  return static_cast<std::size_t>(found - of.levels.begin());
}

// Of what is owed to one parameter in slices: so many of them on the device. Nothing where it is to be a
// whole.
std::optional<std::uint32_t> ResidencyProgram::owed_slices(const Class& of, const Member& member,
                                                           const std::vector<double>& owed) const {
  const std::size_t option = in_slices(of);
  if (option >= owed.size() || owed[option] < 1e-3) return std::nullopt;
  for (std::size_t o = 0; o < option; ++o)
    if (owed[o] > owed[option] + owed[option + 1]) return std::nullopt;
  const auto slices = static_cast<double>(problem_.layout.slices[member.index].size());
  return static_cast<std::uint32_t>(std::floor(slices * std::clamp(owed[option + 1], 0.0, 1.0) + 1e-6));
}

Choices ResidencyProgram::round(const Mixture& mixture, Rounding rounding) const {
  struct Turn {
    std::size_t kind = 0;
    const Member* member = nullptr;
    std::size_t of = 0;
  };
  std::vector<Turn> turns;
  for (std::size_t c = 0; c < classes_.size(); ++c)
    for (const Member& member : classes_[c].members) turns.push_back({classes_[c].kind, &member, c});
  std::sort(turns.begin(), turns.end(), [&](const Turn& a, const Turn& b) {
    const bool earlier =
        std::tuple(a.member->position, a.member->index) < std::tuple(b.member->position, b.member->index);
    const bool later =
        std::tuple(b.member->position, b.member->index) < std::tuple(a.member->position, a.member->index);
    if (a.kind != b.kind) return a.kind < b.kind;
    return rounding == Rounding::forward ? earlier : later;
  });
  Choices choices = lowest_choices(problem_);
  std::vector<double> owed;  // by option, of the kind at hand
  for (std::size_t t = 0; t < turns.size(); ++t) {
    const std::vector<double>& shares = mixture.shares[turns[t].of];
    if (t == 0 || turns[t].kind != turns[t - 1].kind) owed.assign(shares.size(), 0);
    for (std::size_t o = 0; o < shares.size(); ++o) owed[o] += shares[o];
    const Class& of = classes_[turns[t].of];
    if (const auto slices = owed_slices(of, *turns[t].member, owed)) {
      set_slices(turns[t].member->index, *slices, choices);
      const double on_device =
          *slices / static_cast<double>(problem_.layout.slices[turns[t].member->index].size());
      owed[in_slices(of)] -= 1 - on_device;
      owed[in_slices(of) + 1] -= on_device;
      continue;
    }
    std::size_t most = 0;
    for (std::size_t o = 1; o < owed.size(); ++o)
      if (owed[o] > owed[most] + 1e-9) most = o;
    owed[most] -= 1;
    set(*turns[t].member, of.levels[most], choices);
  }
  return choices;
}

void ResidencyProgram::set_slices(BucketId bucket, std::uint32_t on_device, Choices& choices) const {
  const bool all = on_device == problem_.layout.slices[bucket].size();
  choices.loads[bucket] = all ? LoadChoice::resident : LoadChoice::in_slices;
  if (!all) choices.device_slices[bucket] = on_device;
}

void ResidencyProgram::set(const Member& member, std::uint8_t level, Choices& choices) const {
  if (member.is_activation)
    choose(problem_.items[member.index], static_cast<ActivationChoice>(level), choices);
  else
    choices.loads[member.index] = static_cast<LoadChoice>(level);
}

}  // namespace stowage
