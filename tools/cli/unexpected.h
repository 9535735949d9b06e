// Words of a command line that no command takes.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace stowage {

// Returns the name that `word` begins, or else the name that takes the fewest changed letters; empty if these
// are more than half of the word.
std::string nearest(const std::string& word, const std::vector<std::string>& names);

// Returns the message about the first word that is unknown to `app`, or to the command that the line names.
// Empty if every word is known. Call it when a parse has failed.
std::string unexpected_word(const CLI::App& app);

// Throws as WrittenPaths does for the files that the named command writes.
void check_written_paths(const CLI::App& app);

}  // namespace stowage
