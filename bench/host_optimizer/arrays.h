// Large arrays on huge pages, as pinned memory is, and ways to fill them.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

#include "src/base/parallel_for.h"

namespace stowage::bench {

inline constexpr std::int64_t chunk = 16384;  // elements that a thread takes at once, as in AdamW

template <class T>
class Array {
 public:
  explicit Array(std::int64_t count)
      : bytes_((static_cast<std::size_t>(count) * sizeof(T) + huge - 1) / huge * huge) {
    void* memory = mmap(nullptr, bytes_ + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mapped_ = memory;
    const auto address = (reinterpret_cast<std::uintptr_t>(memory) + huge - 1) / huge * huge;
    data_ = reinterpret_cast<T*>(address);
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::memset(static_cast<void*>(data_), 0, bytes_);
  }
  ~Array() { munmap(mapped_, bytes_ + huge); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  T* data() const { return data_; }

 private:
  static constexpr std::size_t huge = std::size_t{2} << 20;
  std::size_t bytes_;
  void* mapped_ = nullptr;
  T* data_ = nullptr;
};

// Fills `count` elements with `values`, repeated.
template <class T, class Values>
void fill(std::int64_t count, const Values& values, T* to) {
  const auto size = static_cast<std::int64_t>(values.size());
  parallel_for(count, size, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<void*>(to + begin), values.data(),
                static_cast<std::size_t>(end - begin) * sizeof(T));
  });
}

}  // namespace stowage::bench
