// Stores that go around the cache, if the instruction set has them.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace stowage::bench {

#ifdef __SSE2__
inline constexpr bool can_stream = true;
// Requires that `from` and `to` are aligned to 16 bytes and that `bytes` is a multiple of 16.
inline void stream(const void* from, std::size_t bytes, void* to) {
  const auto* source = static_cast<const __m128i*>(from);
  auto* target = static_cast<__m128i*>(to);
  for (std::size_t i = 0; i < bytes / sizeof(__m128i); ++i)
    _mm_stream_si128(target + i, _mm_load_si128(source + i));
}
inline void end_of_stream() { _mm_sfence(); }
#else
inline constexpr bool can_stream = false;
inline void stream(const void*, std::size_t, void*) {}
inline void end_of_stream() {}
#endif

}  // namespace stowage::bench
