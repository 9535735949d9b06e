#include "src/model_files/strict_json.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "stowage/error.h"

namespace stowage {

nlohmann::json parse_strict_json(std::string_view text, const JsonSource& source) {
  using nlohmann::json;
  std::vector<std::set<std::string>> open;  // the names so far of each object that is not closed
  const auto note = [&](int, json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second) {
      throw InvalidInput(fmt::format("{}: {} stands twice in one object; {}", source.what,
                                     in_quotes(parsed.get<std::string>()), source.remedy));
    }
    return true;
  };
  try {
    return json::parse(text, note);
  } catch (const json::exception& error) {
    throw InvalidInput(fmt::format("{}: {}; {}", source.what, error.what(), source.remedy));
  }
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t most = 200;
  const bool cut = text.size() > most;
  const nlohmann::json value = std::string(text.substr(0, most)) + (cut ? "…" : "");
  return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace stowage
