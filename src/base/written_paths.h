// The files and folders that one command writes, as its flags name them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace stowage {

class WrittenPaths {
 public:
  enum class Kind : std::uint8_t { text, data, folder };

  // Throws InvalidInput that names the flag: for an empty path (such as an unset variable); for "-", the
  // standard output, unless the flag writes text; and for a file that another flag names, by whatever path.
  // Devices and pipes may have several flags.
  void add(const std::string& flag, const std::string& path, Kind kind);

 private:
  std::map<std::string, std::string> flags_;  // flags by the place that they write to
};

}  // namespace stowage
