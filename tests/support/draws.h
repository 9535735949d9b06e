// How many random cases a test draws. A program under a sanitizer takes five to twenty times as long and
// looks for other faults, so it draws few. With STOWAGE_FEWER_DRAWS, as in CI, every other program draws a
// quarter of its cases.
#pragma once

#include <algorithm>

namespace stowage::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#if defined(STOWAGE_FEWER_DRAWS)
inline constexpr bool fewer_draws = true;
#else
inline constexpr bool fewer_draws = sanitized;
#endif

// Returns the number of seeds, graphs or runs: `few` under a sanitizer; with STOWAGE_FEWER_DRAWS a quarter of
// `plain`, but no less than `few`; otherwise `plain`.
template <class Number>
constexpr Number draws(Number plain, Number few) {
  if (sanitized) return few;
  return fewer_draws ? std::max<Number>(few, plain / 4) : plain;
}

}  // namespace stowage::testing
