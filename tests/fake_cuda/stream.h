// A stream: a thread that does what it is given, in order.
//
// The only orders that it makes between threads are those of CUDA: who enqueues comes before the work;
// work comes before whoever waited for it. No lock and no reference count is shared with the thread: who
// enqueues learns nothing of what the stream has done, not even where it had to wait for room. So the thread
// sanitizer sees a missing wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "tests/fake_cuda/futex.h"

namespace fake_cuda {

using Work = std::function<void()>;
using Ticket = std::uint32_t;  // the number of a piece of work of one stream, from 1; wraps around

enum class When { unless_lost, always };  // whether work is skipped once the card is lost

class Stream {
 public:
  // Starts the thread, which uses the stream until it has done all and `stop` was called.
  Stream(unsigned flags, int priority);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // One caller at a time. Waits while the stream holds as many pieces of work as it may
  // (STOWAGE_FAKE_CUDA_PENDING), else returns at once.
  Ticket enqueue(Work work, When when = When::unless_lost);
  void stop();  // returns at once
  void join_if_stopped();

  Ticket last() const { return enqueued_.load(std::memory_order_relaxed); }
  bool done(Ticket ticket) const;
  void wait_for(Ticket ticket) const;
  unsigned flags() const { return flags_; }
  int priority() const { return priority_; }

 private:
  struct Node {
    Work work;
    bool always = false;
    bool last = false;
    std::atomic<Node*> next = nullptr;
  };
  void wait_for_room() const;
  Ticket push(Node* node);
  void run();

  const unsigned flags_;
  const int priority_;
  Node* newest_ = new Node;
  Node* oldest_ = newest_;  // the thread's
  FutexWord enqueued_ = 0;
  FutexWord finished_ = 0;
  bool stopped_ = false;
  std::thread thread_;
};

// A point in a stream's work, and when it was passed.
struct Mark {
  Stream* stream = nullptr;
  Ticket ticket = 0;
  std::atomic<std::int64_t> nanoseconds = 0;  // valid once done

  bool done() const { return stream->done(ticket); }
  void wait() const { stream->wait_for(ticket); }
};

struct Event {
  unsigned flags = 0;
  const Mark* latest = nullptr;  // of the most recent record
};

// All streams and events that are alive, by handle. The null handle is the legacy default stream, which
// waits for all blocking streams, and they for it. For a handle that is none: false, or nothing.
class Streams {
 public:
  static Streams& get();

  void* create(unsigned flags, int priority);
  bool destroy(void* stream);  // after its work; returns at once
  Stream* find(void* stream);
  std::optional<Mark*> enqueue(void* stream, Work work, When when = When::unless_lost);
  bool synchronise(void* stream);
  void synchronise_all();
  // Waits for the threads of destroyed streams: a leak check must not meet one that is just ending.
  void join_ended();

  void* create_event(unsigned flags);
  bool destroy_event(void* event);
  bool record(void* event, void* stream);
  bool wait(void* stream, void* event);
  std::optional<Event> find_event(void* event);

  std::size_t stream_count();
  std::size_t event_count();
  void clear();  // waits for the work, then destroys them all

 private:
  Stream* find_locked(void* stream);
  Event* find_event_locked(void* event);
  void add_implied_waits_locked(Stream* stream);
  Mark* enqueue_locked(Stream* stream, Work work, When when);
  Mark* passed_locked(Stream* stream);

  // Never taken by a stream's thread. Held by a call that waits for room in a stream: as with a driver, other
  // threads' calls wait behind it.
  std::mutex mutex_;
  Stream* default_stream_ = nullptr;
  std::vector<Stream*> streams_;
  std::vector<std::unique_ptr<Event>> events_;
  // Threads and work point at these, so they stay; marks until `clear`.
  std::vector<std::unique_ptr<Stream>> all_streams_;
  std::deque<Mark> marks_;
};

}  // namespace fake_cuda
