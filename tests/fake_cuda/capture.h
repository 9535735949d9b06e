// Stream captures, of runtime and driver alike: which streams are captured, and what that forbids.
//
// A call that may wait or allocate is refused to a thread in the default mode while it, or any other thread
// in that mode, captures; in the thread-local mode only its own capture counts, in the relaxed one none does.
// A refused call ends the captures that forbade it: they can only be ended, with an error. What is enqueued
// on a captured stream is not done. Another stream joins a capture by waiting for one of its events, and
// leaves it when the first stream waits for an event of its.
//
// Errors are values that cudaError_t and CUresult share; 0 is none. Used by host threads alone.
#pragma once

#include <list>
#include <mutex>
#include <set>
#include <thread>

namespace fake_cuda {

enum CaptureMode : int { capture_global, capture_thread_local, capture_relaxed };
enum CaptureStatus : int { not_captured, capture_active, capture_invalidated };

class Captures {
 public:
  static Captures& get();

  // `blocking`: the legacy default stream waits for the stream.
  int begin(void* stream, int mode, bool blocking);
  int end(void* stream);
  int status(void* stream, int* status);
  int exchange_mode(int* mode);

  bool holds(void* stream);
  int forbids_unsafe_call();
  // Before a wait for a device or a context, which holds the captured streams, too: no mode of a thread
  // permits it.
  int forbids_waiting_for_all();
  // Before any call on a stream that is not enqueueing: a captured one can do nothing else.
  int forbids_waiting_for(void* stream);
  int record(void* event, void* stream);
  int wait(void* stream, void* event);
  int ask(void* event);  // query, synchronise
  void forget_event(void* event);
  void clear();

 private:
  struct Capture {
    void* origin = nullptr;
    int mode = capture_global;
    bool blocking = false;
    std::thread::id thread = {};
    bool valid = true;
    std::set<void*> streams = {};                   // that joined
    std::set<void*> unjoined = {};                  // of them, those that the origin has not waited for since
    std::set<std::pair<void*, void*>> events = {};  // and the stream that each was recorded on
  };
  Capture* of_stream(void* stream);
  Capture* of_event(void* event);
  int invalidate(Capture& capture, int error);
  int invalidate_for_legacy(void* stream);

  std::mutex mutex_;
  std::list<Capture> captures_;
};

}  // namespace fake_cuda
