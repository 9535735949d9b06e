// The turn of a host function. A driver may run the host functions of all streams on one thread: so here,
// too, only one runs at a time, and a host function that waits for another stream's never ends.
#pragma once

namespace fake_cuda {

// Held while a host function runs, on its stream's thread. Waits for the turns that were asked for before.
// Orders no memory: to the thread sanitizer, functions of two streams are as far apart as the streams are.
class HostTurn {
 public:
  HostTurn();
  HostTurn(const HostTurn&) = delete;
  HostTurn& operator=(const HostTurn&) = delete;
  ~HostTurn();
};

}  // namespace fake_cuda
