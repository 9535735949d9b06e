// STOWAGE_CLONES: compiles a function once per x86-64 level and picks the machine's at start-up, so that a
// generic build uses AVX-512 if the machine has it. Clones round differently: bits are the same on machines
// of one kind. Off under the thread sanitizer, whose runtime is not up yet when the choice is made.
//
// A cloned function must be a plain one (no template, no lambda inside); what it calls is inlined.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define STOWAGE_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define STOWAGE_CLONES
#endif
