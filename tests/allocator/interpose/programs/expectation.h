// What the programs here say of themselves on stdout, for the test to compare with the record.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>

// "kind bytes" for each allocation that a call asked for.
inline void asked(const char* kind, std::size_t bytes) {
  std::printf("%s %zu\n", kind, bytes);
  std::fflush(stdout);
}

// Ends the program with 1 where something is not as it must be.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}
