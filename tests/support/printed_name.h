// Names of parameterised tests.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <string>

namespace stowage::test {

// For INSTANTIATE_TEST_SUITE_P: a test has the name that its parameter prints (PrintTo, operator<<), with '_'
// between words. Parameters must print differently.
inline constexpr auto printed_name = [](const auto& info) {
  std::string name;
  for (const char letter : ::testing::PrintToString(info.param)) {
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0)
      name += letter;
    else if (!name.empty() && name.back() != '_')
      name += '_';
  }
  if (name.ends_with('_')) name.pop_back();
  return name;
};

}  // namespace stowage::test
