#include "tools/cli/unexpected.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "src/base/printable.h"
#include "src/base/written_paths.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// Returns the number of letters to add, remove or change (Levenshtein's distance), computed row by row.
std::size_t changes(const std::string& from, const std::string& to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t corner = row[0]++;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t changed = corner + (from[i] == to[j] ? 0 : 1);
      corner = row[j + 1];
      row[j + 1] = std::min({changed, corner + 1, row[j] + 1});
    }
  }
  return row.back();
}

// Returns the first command, of `app` and the commands named after it, that was given a word which it does
// not know.
const CLI::App* puzzled(const CLI::App& app) {
  if (!app.remaining().empty()) return &app;
  const std::vector<CLI::App*> named = app.get_subcommands();
  return named.empty() ? nullptr : puzzled(*named.front());
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) names.push_back(option->get_name());
  return names;
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& names) {
  const auto whole =
      std::find_if(names.begin(), names.end(), [&](const auto& name) { return name.starts_with(word); });
  if (whole != names.end()) return *whole;
  const auto best = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return changes(word, a) < changes(word, b);
  });
  return best == names.end() || 2 * changes(word, *best) > word.size() ? "" : *best;
}

std::string unexpected_word(const CLI::App& app) {
  const CLI::App* const found = puzzled(app);
  if (found == nullptr) return {};
  const CLI::App& command = *found;
  const std::vector<std::string> words = command.remaining();
  const auto is_flag = [](const std::string& word) { return word.starts_with("-"); };
  const std::vector<std::string> commands = commands_of(command);
  auto word = std::find_if(words.begin(), words.end(), is_flag);
  const auto name = std::find_if_not(words.begin(), words.end(), is_flag);
  if (word == words.end() || (name != words.end() && !commands.empty())) word = name;
  const bool names_command = word == name && !commands.empty();
  const std::string alike =
      nearest(word->substr(0, longest_shown_name), names_command ? commands : flags_of(command));
  const std::string remedy = !alike.empty()  ? fmt::format("did you mean {}?", alike)
                             : names_command ? fmt::format("give one of {};", fmt::join(commands, ", "))
                                             : "leave it out;";
  return fmt::format("{}: there is no such {}; {} {} --help lists them", printable(*word),
                     names_command    ? "command"
                     : is_flag(*word) ? "flag"
                                      : "argument",
                     remedy, command.get_parent() == nullptr ? "stowage" : "stowage " + command.get_name());
}

void check_written_paths(const CLI::App& app) {
  WrittenPaths paths;
  for (const char* flag : {"--output", "--plan-json", "--record", "--report"}) {
    const CLI::Option* const option = app.get_option_no_throw(flag);
    if (option != nullptr && option->count() > 0)
      paths.add(flag, option->as<std::string>(), WrittenPaths::Kind::text);
  }
  for (const CLI::App* const command : app.get_subcommands()) check_written_paths(*command);
}

}  // namespace stowage
