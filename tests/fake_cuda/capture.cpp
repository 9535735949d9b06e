#include "tests/fake_cuda/capture.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace fake_cuda {
namespace {

constexpr int invalid_value = 1;
constexpr int illegal_state = 401;
constexpr int unsupported = 900, invalidated = 901, unmatched = 903, unjoined = 904, isolation = 905,
              implicit = 906, captured_event = 907;

thread_local int thread_mode = capture_global;

bool is_legacy(const void* stream) {
  return reinterpret_cast<std::uintptr_t>(stream) <= 1;  // cudaStreamLegacy is 1
}

}  // namespace

Captures& Captures::get() {
  static Captures& captures = *new Captures;
  return captures;
}

Captures::Capture* Captures::of_stream(void* stream) {
  const auto found = std::find_if(captures_.begin(), captures_.end(), [&](const Capture& capture) {
    return capture.origin == stream || capture.streams.contains(stream);
  });
  return found == captures_.end() ? nullptr : &*found;
}

Captures::Capture* Captures::of_event(void* event) {
  for (Capture& capture : captures_)
    if (std::any_of(capture.events.begin(), capture.events.end(),
                    [&](const auto& known) { return known.first == event; }))
      return &capture;
  return nullptr;
}

int Captures::invalidate(Capture& capture, int error) {
  capture.valid = false;
  return error;
}

int Captures::invalidate_for_legacy(void* stream) {
  int error = 0;
  for (Capture& capture : captures_)
    if (is_legacy(stream) && capture.blocking) error = invalidate(capture, implicit);
  return error;
}

int Captures::begin(void* stream, int mode, bool blocking) {
  if (mode < capture_global || mode > capture_relaxed) return invalid_value;
  const std::lock_guard lock(mutex_);
  if (is_legacy(stream)) return unsupported;
  if (of_stream(stream) != nullptr) return illegal_state;
  captures_.push_back({stream, mode, blocking, std::this_thread::get_id()});
  return 0;
}

int Captures::end(void* stream) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(captures_.begin(), captures_.end(),
                                  [&](const Capture& capture) { return capture.origin == stream; });
  if (found == captures_.end()) return of_stream(stream) == nullptr ? illegal_state : unmatched;
  const int error = !found->valid ? invalidated : found->unjoined.empty() ? 0 : unjoined;
  captures_.erase(found);
  return error;
}

int Captures::status(void* stream, int* status) {
  if (status == nullptr) return invalid_value;
  const std::lock_guard lock(mutex_);
  const bool waits_for_it = std::any_of(captures_.begin(), captures_.end(),
                                        [&](const Capture& capture) { return capture.blocking; });
  if (is_legacy(stream) && waits_for_it) return implicit;  // the capture goes on
  const Capture* const capture = of_stream(stream);
  *status = capture == nullptr ? not_captured : capture->valid ? capture_active : capture_invalidated;
  return 0;
}

int Captures::exchange_mode(int* mode) {
  if (mode == nullptr || *mode < capture_global || *mode > capture_relaxed) return invalid_value;
  std::swap(*mode, thread_mode);
  return 0;
}

bool Captures::holds(void* stream) {
  const std::lock_guard lock(mutex_);
  return of_stream(stream) != nullptr;
}

int Captures::forbids_unsafe_call() {
  const std::lock_guard lock(mutex_);
  int error = 0;
  for (Capture& capture : captures_) {
    const bool own = capture.thread == std::this_thread::get_id() && capture.mode != capture_relaxed;
    const bool others = capture.mode == capture_global && thread_mode == capture_global;
    if (thread_mode != capture_relaxed && (own || others)) error = invalidate(capture, unsupported);
  }
  return error;
}

int Captures::forbids_waiting_for_all() {
  const std::lock_guard lock(mutex_);
  int error = 0;
  for (Capture& capture : captures_) error = invalidate(capture, unsupported);
  return error;
}

int Captures::forbids_waiting_for(void* stream) {
  if (const int error = forbids_unsafe_call()) return error;
  const std::lock_guard lock(mutex_);
  Capture* const capture = of_stream(stream);
  return capture != nullptr ? invalidate(*capture, unsupported) : invalidate_for_legacy(stream);
}

int Captures::record(void* event, void* stream) {
  const std::lock_guard lock(mutex_);
  if (const int error = invalidate_for_legacy(stream)) return error;
  for (Capture& capture : captures_)
    std::erase_if(capture.events, [&](const auto& known) { return known.first == event; });
  if (Capture* const capture = of_stream(stream)) capture->events.emplace(event, stream);
  return 0;
}

int Captures::wait(void* stream, void* event) {
  const std::lock_guard lock(mutex_);
  if (const int error = invalidate_for_legacy(stream)) return error;
  Capture* const capture = of_stream(stream);
  Capture* const from = of_event(event);
  if (from == nullptr) return capture == nullptr ? 0 : invalidate(*capture, isolation);
  if (capture != nullptr && capture != from) return invalidate(*capture, isolation);
  if (stream != from->origin) {
    from->streams.insert(stream);
    from->unjoined.insert(stream);
    return 0;
  }
  for (const auto& [known, recorded_on] : from->events)
    if (known == event) from->unjoined.erase(recorded_on);
  return 0;
}

int Captures::ask(void* event) {
  if (const int error = forbids_unsafe_call()) return error;
  const std::lock_guard lock(mutex_);
  Capture* const capture = of_event(event);
  return capture == nullptr ? 0 : invalidate(*capture, captured_event);
}

void Captures::forget_event(void* event) {
  const std::lock_guard lock(mutex_);
  for (Capture& capture : captures_)
    std::erase_if(capture.events, [&](const auto& known) { return known.first == event; });
}

void Captures::clear() {
  const std::lock_guard lock(mutex_);
  captures_.clear();
  thread_mode = capture_global;
}

}  // namespace fake_cuda
