// Names: keeps one copy of every name it is given, at an address that stays. A name seen before
// costs no allocation. For the operations of a periodic program, which are few.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace stowage::simulated {

class Names {
 public:
  const std::string& intern(std::string_view name) {
    const auto found = names_.find(name);
    return found != names_.end() ? *found : *names_.emplace(name).first;
  }

 private:
  std::set<std::string, std::less<>> names_;
};

}  // namespace stowage::simulated
