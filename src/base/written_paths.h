// The files and folders that one command writes, as its flags name them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace stowage {

class WrittenPaths {
 public:
  enum class Kind : std::uint8_t { text, data, folder };

  // Throws InvalidInput that names the flag: for an empty path, as of a variable that is not set; for "-",
  // the standard output, of anything but text; and for a path that another flag has, by whatever name.
  // Devices and pipes take the text of several.
  void add(const std::string& flag, const std::string& path, Kind kind);

 private:
  std::map<std::string, std::string> flags_;  // by the place that is written to
};

}  // namespace stowage
