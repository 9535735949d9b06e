// The question of stowage_plan (stowage/c_plan.h), read and answered, and the machines that it may name.
#pragma once

#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace stowage {

struct NamedText {
  std::string name, text;
};

// Throws InvalidInput that names the question's member or the trace's line, and Cancelled where `stop` asks
// for it.
std::vector<NamedText> answer_texts(std::string_view trace, std::string_view question, std::stop_token stop);

// A machine file that comes with Stowage, as it is in the folder `machines` when this is built.
struct ShippedMachine {
  std::string_view name;
  std::string_view text;  // the machine file's JSON
};
// Returns the machine files, sorted by name.
std::span<const ShippedMachine> shipped_machines();

}  // namespace stowage
