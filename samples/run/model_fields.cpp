#include "samples/run/model_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "src/models/require_valid.h"
#include "stowage/error.h"

namespace stowage::samples {
namespace {

struct SizeField {
  const char* name;
  std::int64_t ModelConfig::*member;
  std::int64_t most = most_width;
};
constexpr std::array<SizeField, 4> size_fields = {
    {{table_rows_field, &ModelConfig::table_rows, most_of_others},
     {"model.key_heads", &ModelConfig::key_heads},
     {"model.head_width", &ModelConfig::head_width},
     {"model.inner", &ModelConfig::inner}}};

struct SwitchField {
  const char* name;
  bool ModelConfig::*member;
};
constexpr std::array<SwitchField, 3> switch_fields = {{{"model.tied", &ModelConfig::tied},
                                                       {"model.attention_bias", &ModelConfig::attention_bias},
                                                       {"model.head_norms", &ModelConfig::head_norms}}};

constexpr const char* theta_field = "model.rotary_theta";
constexpr const char* scaling_field = "model.rotary_scaling";  // factor, low, high, original positions
constexpr const char* windows_field = "model.windows";         // a number for each layer

// Reads fields, and refuses what is no value of them.
class FieldReader {
 public:
  FieldReader(const std::map<std::string, std::string>& configuration, const std::string& where)
      : configuration_(configuration), where_(where) {}

  // Calls `take` with the field's numbers, if it is there.
  template <class Take>
  void numbers(const char* field, Take take) const {
    const auto found = configuration_.find(field);
    if (found == configuration_.end()) return;
    std::vector<double> all;
    const char* at = found->second.data();
    const char* const end = at + found->second.size();
    while (at != end && all.size() <= static_cast<std::size_t>(most_layers)) {
      double value = 0;
      const auto [rest, error] = std::from_chars(at, end, value);
      if (error != std::errc() || !std::isfinite(value) || (rest != end && *rest != ',')) refuse(field);
      all.push_back(value);
      at = rest == end ? end : rest + 1;
    }
    if (all.empty() || !take(all)) refuse(field);
  }

  // Calls `take` with the field's whole number, if it is there and from 0 to `most`.
  template <class Take>
  void whole(const char* field, std::int64_t most, Take take) const {
    numbers(field, [&](const std::vector<double>& all) {
      if (all.size() != 1 || !is_whole(all[0], most)) return false;
      take(static_cast<std::int64_t>(all[0]));
      return true;
    });
  }

  static bool is_whole(double value, std::int64_t most) {
    return value >= 0 && value <= static_cast<double>(most) && value == std::floor(value);
  }

 private:
  [[noreturn]] void refuse(const char* field) const {
    throw InvalidInput(
        fmt::format("{}: 'configuration.{}' is \"{}\", which no model has; give a checkpoint "
                    "as it was written",
                    where_, field, configuration_.at(field).substr(0, 100)));
  }

  const std::map<std::string, std::string>& configuration_;
  const std::string& where_;
};

}  // namespace

std::map<std::string, std::string> family_fields(const ModelConfig& model) {
  const ModelConfig usual;
  std::map<std::string, std::string> fields;
  const auto put = [&](const char* name, const auto& value, const auto& otherwise) {
    if (value != otherwise) fields[name] = fmt::format("{}", value);
  };
  for (const auto& [name, member, most] : size_fields) put(name, model.*member, usual.*member);
  for (const auto& [name, member] : switch_fields)
    put(name, static_cast<int>(model.*member), static_cast<int>(usual.*member));
  put(theta_field, model.rotary_theta, usual.rotary_theta);
  put(keep_tokens_field, model.keep_tokens, usual.keep_tokens);
  if (const auto& scaling = model.rotary_scaling)
    fields[scaling_field] = fmt::format("{},{},{},{}", scaling->factor, scaling->low_frequency_factor,
                                        scaling->high_frequency_factor, scaling->original_positions);
  if (!model.windows.empty()) fields[windows_field] = fmt::format("{}", fmt::join(model.windows, ","));
  return fields;
}

bool is_family_field(std::string_view field) {
  const auto is_named = [&](const auto& each) { return each.name == field; };
  return std::any_of(size_fields.begin(), size_fields.end(), is_named) ||
         std::any_of(switch_fields.begin(), switch_fields.end(), is_named) || field == theta_field ||
         field == scaling_field || field == windows_field || field == keep_tokens_field;
}

void take_family_fields(const std::map<std::string, std::string>& configuration, const std::string& where,
                        ModelConfig& model) {
  const FieldReader reader(configuration, where);
  for (const auto& [name, member, most] : size_fields)
    reader.whole(name, most, [&, to = member](std::int64_t value) { model.*to = value; });
  for (const auto& [name, member] : switch_fields)
    reader.whole(name, 1, [&, to = member](std::int64_t value) { model.*to = value == 1; });
  reader.numbers(theta_field, [&](const std::vector<double>& all) {
    model.rotary_theta = all[0];
    return all.size() == 1;
  });
  reader.numbers(keep_tokens_field, [&](const std::vector<double>& all) {
    model.keep_tokens = all[0];
    return all.size() == 1 && all[0] > 0 && all[0] <= 1;
  });
  reader.numbers(scaling_field, [&](const std::vector<double>& all) {
    if (all.size() != 4 || !FieldReader::is_whole(all[3], most_of_others)) return false;
    model.rotary_scaling = {all[0], all[1], all[2], static_cast<std::int64_t>(all[3])};
    return true;
  });
  reader.numbers(windows_field, [&](const std::vector<double>& all) {
    for (const double window : all) {
      if (!FieldReader::is_whole(window, most_of_others)) return false;
      model.windows.push_back(static_cast<std::int64_t>(window));
    }
    return true;
  });
}

}  // namespace stowage::samples
