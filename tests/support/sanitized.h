// A program under a sanitizer takes five to twenty times as long and looks for other things: it draws fewer.
#pragma once

namespace stowage::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

// How many seeds, graphs or runs: `plain` of them, or `few` under a sanitizer.
template <class Number>
constexpr Number draws(Number plain, Number few) {
  return sanitized ? few : plain;
}

}  // namespace stowage::testing
