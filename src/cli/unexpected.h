// Words of a command line that no command takes.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace stowage {

// That of `names` which `word` begins, or else which takes the fewest changed letters; empty where those are
// more than half.
std::string nearest(const std::string& word, const std::vector<std::string>& names);

// What to say of the first word that `app`, or the command of its that was named, does not know. Empty where
// there is none. For after a parse that failed.
std::string unexpected_word(const CLI::App& app);

}  // namespace stowage
