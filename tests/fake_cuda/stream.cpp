#include "tests/fake_cuda/stream.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/fake_cuda/capture.h"
#include "tests/fake_cuda/state.h"

namespace fake_cuda {
namespace {

constexpr unsigned non_blocking = 1;  // cudaStreamNonBlocking

bool is_default(const void* stream) {
  return stream == nullptr || stream == reinterpret_cast<const void*>(std::uintptr_t{1});  // cudaStreamLegacy
}

bool reached(Ticket now, Ticket ticket) { return static_cast<std::int32_t>(now - ticket) >= 0; }

std::int64_t now_in_nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Stream::Stream(unsigned flags, int priority) : flags_(flags), priority_(priority) {
  thread_ = std::thread([this] { run(); });
}

Ticket Stream::push(Node* node) {
  newest_->next.store(node, std::memory_order_release);
  newest_ = node;
  const Ticket ticket = enqueued_.load(std::memory_order_relaxed) + 1;
  enqueued_.store(ticket, std::memory_order_release);
  wake_all(enqueued_);
  return ticket;
}

void Stream::wait_for_room() const {
  const unsigned most = State::get().settings().pending;
  const auto is_full = [&](Ticket finished) { return last() - finished >= most; };
  if (!is_full(finished_.load(std::memory_order_relaxed))) return;
  ++State::get().waiting_callers;
  for (Ticket finished = 0; is_full(finished = finished_.load(std::memory_order_relaxed));) {
    sleep_patiently_while(
        finished_, finished,
        "a call waits for room in a stream, whose work does not end. A stream holds 1,024 pieces of "
        "work at most, so that none of it may wait for what the caller does later");
  }
  --State::get().waiting_callers;
}

Ticket Stream::enqueue(Work work, When when) {
  wait_for_room();
  Node* node = new Node;
  node->work = std::move(work);
  node->always = when == When::always;
  return push(node);
}

void Stream::stop() {
  Node* node = new Node;
  node->last = true;
  push(node);
  stopped_ = true;
}

void Stream::join_if_stopped() {
  if (stopped_ && thread_.joinable()) thread_.join();
}

void Stream::run() {
  bool last = false;
  for (Ticket ticket = 0; !last; ++ticket) {
    while (enqueued_.load(std::memory_order_acquire) == ticket) sleep_while(enqueued_, ticket);
    Node* node = oldest_->next.load(std::memory_order_acquire);
    delete oldest_;
    oldest_ = node;
    if (node->work && (node->always || State::get().lost() == 0)) node->work();
    node->work = nullptr;
    last = node->last;
    if (last) delete node;
    finished_.store(ticket + 1, std::memory_order_release);
    wake_all(finished_);
  }
}

bool Stream::done(Ticket ticket) const { return reached(finished_.load(std::memory_order_acquire), ticket); }

void Stream::wait_for(Ticket ticket) const {
  for (;;) {
    const Ticket finished = finished_.load(std::memory_order_acquire);
    if (reached(finished, ticket)) return;
    sleep_while(finished_, finished);
  }
}

Streams& Streams::get() {
  static Streams& streams = *new Streams;
  static const pid_t process = ::getpid();
  // A forked child has none of the threads, and a lock that one of them held is never released there.
  static const int at_exit = std::atexit([] {
    if (::getpid() == process) get().join_ended();
  });
  static_cast<void>(at_exit);
  return streams;
}

void Streams::join_ended() {
  const std::lock_guard lock(mutex_);
  for (const auto& stream : all_streams_) stream->join_if_stopped();
}

Stream* Streams::find_locked(void* stream) {
  if (is_default(stream)) {
    if (default_stream_ == nullptr) {
      default_stream_ = all_streams_.emplace_back(std::make_unique<Stream>(0U, 0)).get();
    }
    return default_stream_;
  }
  const auto found = std::find(streams_.begin(), streams_.end(), stream);
  return found == streams_.end() ? nullptr : *found;
}

Stream* Streams::find(void* stream) {
  const std::lock_guard lock(mutex_);
  return find_locked(stream);
}

void* Streams::create(unsigned flags, int priority) {
  const std::lock_guard lock(mutex_);
  return streams_.emplace_back(all_streams_.emplace_back(std::make_unique<Stream>(flags, priority)).get());
}

bool Streams::destroy(void* stream) {
  const std::lock_guard lock(mutex_);
  Stream* found = is_default(stream) ? nullptr : find_locked(stream);
  if (found == nullptr) return false;
  found->stop();
  std::erase(streams_, found);
  return true;
}

void Streams::add_implied_waits_locked(Stream* stream) {
  std::vector<Stream*> before;
  if (stream == default_stream_) {
    before = streams_;
    std::erase_if(before, [](const Stream* other) { return (other->flags() & non_blocking) != 0; });
  } else if (default_stream_ != nullptr && (stream->flags() & non_blocking) == 0) {
    before.push_back(default_stream_);
  }
  for (Stream* other : before) {
    if (other->last() == 0) continue;
    stream->enqueue([other, ticket = other->last()] { other->wait_for(ticket); }, When::always);
  }
}

Mark* Streams::enqueue_locked(Stream* stream, Work work, When when) {
  add_implied_waits_locked(stream);
  Mark* mark = &marks_.emplace_back();
  mark->stream = stream;
  mark->ticket = stream->enqueue(std::move(work), when);
  return mark;
}

// Of work that a capture has taken.
Mark* Streams::passed_locked(Stream* stream) {
  Mark* mark = &marks_.emplace_back();
  mark->stream = stream;
  return mark;
}

std::optional<Mark*> Streams::enqueue(void* handle, Work work, When when) {
  const std::lock_guard lock(mutex_);
  Stream* stream = find_locked(handle);
  if (stream == nullptr) return std::nullopt;
  if (Captures::get().holds(handle)) return passed_locked(stream);
  return enqueue_locked(stream, std::move(work), when);
}

bool Streams::synchronise(void* handle) {
  const auto mark = enqueue(handle, nullptr, When::always);
  if (mark) (*mark)->wait();
  return mark.has_value();
}

void Streams::synchronise_all() {
  std::vector<std::pair<Stream*, Ticket>> marks;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& stream : all_streams_) marks.emplace_back(stream.get(), stream->last());
  }
  for (const auto& [stream, ticket] : marks) stream->wait_for(ticket);
}

void* Streams::create_event(unsigned flags) {
  const std::lock_guard lock(mutex_);
  return events_.emplace_back(std::make_unique<Event>(Event{flags, nullptr})).get();
}

Event* Streams::find_event_locked(void* event) {
  const auto found = std::find_if(events_.begin(), events_.end(),
                                  [&](const auto& candidate) { return candidate.get() == event; });
  return found == events_.end() ? nullptr : found->get();
}

std::optional<Event> Streams::find_event(void* event) {
  const std::lock_guard lock(mutex_);
  const Event* found = find_event_locked(event);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

bool Streams::destroy_event(void* event) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(events_, [&](const auto& candidate) { return candidate.get() == event; }) > 0;
}

bool Streams::record(void* handle, void* stream_handle) {
  const std::lock_guard lock(mutex_);
  Event* event = find_event_locked(handle);
  Stream* stream = find_locked(stream_handle);
  if (event == nullptr || stream == nullptr) return false;
  if (Captures::get().holds(stream_handle)) return event->latest = passed_locked(stream), true;
  add_implied_waits_locked(stream);
  Mark* mark = &marks_.emplace_back();
  mark->stream = stream;
  mark->ticket = stream->enqueue(
      [mark] { mark->nanoseconds.store(now_in_nanoseconds(), std::memory_order_relaxed); }, When::always);
  event->latest = mark;
  return true;
}

bool Streams::wait(void* stream_handle, void* handle) {
  const std::lock_guard lock(mutex_);
  const Event* event = find_event_locked(handle);
  Stream* stream = find_locked(stream_handle);
  if (event == nullptr || stream == nullptr) return false;
  if (event->latest == nullptr || Captures::get().holds(stream_handle)) return true;
  enqueue_locked(
      stream, [mark = event->latest] { mark->wait(); }, When::always);
  return true;
}

std::size_t Streams::stream_count() {
  const std::lock_guard lock(mutex_);
  return streams_.size();
}

std::size_t Streams::event_count() {
  const std::lock_guard lock(mutex_);
  return events_.size();
}

void Streams::clear() {
  synchronise_all();
  const std::lock_guard lock(mutex_);
  for (Stream* stream : streams_) stream->stop();
  streams_.clear();
  events_.clear();
  marks_.clear();
}

}  // namespace fake_cuda
