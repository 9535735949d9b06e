// A fuzz target: one parser of outside files, and what must hold whatever it is given.
//
// LLVMFuzzerTestOneInput is libFuzzer's entry; driver.cpp calls it too, where there is no libFuzzer. An input
// is either parsed or refused with InvalidInput. Anything else breaks the contract and ends the process, as a
// crash does.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace stowage::fuzz {

// Of each target: texts that it parses, made by the program itself so that they never grow stale, and words
// of its format.
std::vector<std::string> seeds();
std::vector<std::string> dictionary();

// How often parsed_or_refused has parsed something.
inline std::size_t parsed_parts = 0;

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

[[noreturn]] inline void broken(const std::string& what) {
  std::fprintf(stderr, "fuzz: contract broken: %s\n", what.c_str());
  std::abort();
}

// What `parse` returns; nothing where it refuses its input.
template <class Parse>
auto parsed_or_refused(Parse&& parse) -> std::optional<decltype(parse())> {
  try {
    std::optional<decltype(parse())> result = parse();
    ++parsed_parts;
    return result;
  } catch (const InvalidInput& error) {
    if (std::string_view(error.what()).empty()) broken("InvalidInput says nothing");
  } catch (const std::exception& error) {
    broken(std::string("neither parsed nor InvalidInput: ") + error.what());
  }
  return {};
}

// What was parsed is written, read and written again without a change.
template <class Value, class Write, class Read>
void check_round_trip(const Value& value, Write&& write, Read&& read) {
  const std::string text = write(value);
  const Value back = read(text);
  if (write(back) != text) broken("written, read and written again it differs:\n" + text);
}

}  // namespace stowage::fuzz
