// What memory there is: the card's account, and every range that a pointer may point into. Device and
// pinned memory come from malloc, so that the address sanitizer guards their ends. Fresh memory is
// filled with 0xff bytes (NaN in every floating type), its first 8 MiB at least.
//
// Used by host threads alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace fake_cuda {

enum class Kind { device, mapped, pinned, registered };

struct Range {
  std::uintptr_t start = 0;
  std::size_t bytes = 0;
  Kind kind = Kind::device;
  bool on_device() const { return kind == Kind::device || kind == Kind::mapped; }
};

class Memory {
 public:
  static Memory& get();

  // Null where the card's account, or the host, has no room.
  void* allocate(Kind kind, std::size_t bytes);
  bool release(Kind kind, void* address);
  enum class Registered { done, invalid, already, no_memory };
  Registered register_host(void* address, std::size_t bytes);
  bool unregister_host(void* address);

  // Memory that is allocated elsewhere: its share of the account, and ranges that appear and vanish.
  bool charge(std::size_t bytes);
  bool charge_mappings(std::size_t mappings);  // the tables of so many at a time
  void refund(std::size_t bytes);
  void add_mapped(void* address, std::size_t bytes);
  void remove_mapped(void* address);

  std::optional<Range> range_of(const void* address);
  // Whether all of it is inside one range, or inside neighbouring mapped ones.
  bool holds(const void* address, std::size_t bytes);

  std::size_t free_bytes();
  struct Count {
    std::size_t ranges = 0, bytes = 0;
  };
  Count count(Kind kind);
  void clear();  // frees all that `allocate` gave, forgets the rest

 private:
  std::optional<Range> range_of_locked(std::uintptr_t address);
  bool charge_locked(std::size_t bytes);
  bool charge_tables_locked(std::size_t pinned, std::size_t mappings);
  std::size_t pinned_bytes_locked() const;

  std::mutex mutex_;
  std::map<std::uintptr_t, Range> ranges_;
  std::size_t used_ = 0;  // the tables among it
  std::size_t pinned_tables_ = 0, mapping_tables_ = 0;
};

void fill_fresh(void* address, std::size_t bytes);

}  // namespace fake_cuda
