#include "tests/fake_cuda/host_turn.h"

#include "tests/fake_cuda/futex.h"

namespace fake_cuda {
namespace {

FutexWord turns_asked_for = 0;
FutexWord turn = 0;

}  // namespace

HostTurn::HostTurn() {
  const std::uint32_t mine = turns_asked_for.fetch_add(1, std::memory_order_relaxed);
  for (std::uint32_t now = turn.load(std::memory_order_relaxed); now != mine;
       now = turn.load(std::memory_order_relaxed)) {
    sleep_patiently_while(
        turn, now,
        "a host function of one stream runs, and another stream's waits for its turn. Host functions "
        "may run one at a time, so that none may wait for what another does");
  }
}

HostTurn::~HostTurn() {
  turn.fetch_add(1, std::memory_order_relaxed);
  wake_all(turn);
}

}  // namespace fake_cuda
