// Sleeping until another thread changes a word. std::atomic::wait shares counters between its users, which
// would order threads for the thread sanitizer; this orders nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace fake_cuda {

using FutexWord = std::atomic<std::uint32_t>;

// Returns at once where `word` is not `value`, else when it is woken; also without a reason.
void sleep_while(const FutexWord& word, std::uint32_t value);
// As `sleep_while`, but ends the program with `message` where nobody wakes it for STOWAGE_FAKE_CUDA_PATIENCE.
void sleep_patiently_while(const FutexWord& word, std::uint32_t value, const char* message);
void wake_all(FutexWord& word);

}  // namespace fake_cuda
