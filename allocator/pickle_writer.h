// PickleWriter: Python's pickle format, protocol 2, as far as plain data needs it (Python's
// Lib/pickletools.py describes it). Integers, floats, booleans, strings, pairs, lists and dictionaries; no
// class, so that any reader may load it. Keys and other short strings are written once and then referred to.
//
// Lists and dictionaries are handed over in batches of at most 1,000 items, as Python does: readers that push
// a batch as arguments of one call stay within their limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace stowage::caching {

class PickleWriter {
 public:
  PickleWriter();

  void integer(std::int64_t value);
  void real(double value);
  void boolean(bool value);
  void text(std::string_view value);
  void pair(std::int64_t first, std::int64_t second);

  // The values that follow, until end(), are its own; a dictionary's are key, value, key, value …
  void begin_list() { begin(']', 'e', 1); }
  void begin_dictionary() { begin('}', 'u', 2); }
  void end();

  // Ends the pickle, which must hold one value, and hands it over.
  std::string finish();

 private:
  static constexpr std::size_t batch = 1000;
  struct Open {
    char append = 'e';         // the opcode that ends a batch
    std::size_t per_item = 1;  // values of one item: 1, or 2 for a key with its value
    std::size_t values = 0;    // number of values in the batch so far
  };
  void begin(char empty, char append, std::size_t per_item);
  // Before each value: opens a batch where there is none, or the last one is full.
  void before_value();
  void little_endian(std::uint64_t value, int bytes);

  std::string out_;
  std::vector<Open> open_;
  std::map<std::string, std::uint32_t, std::less<>> known_;  // a string's number in the pickle's memo
};

}  // namespace stowage::caching
