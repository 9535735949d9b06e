#include "tests/fake_cuda/nccl_group.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <map>
#include <utility>

namespace fake_nccl {
namespace {

// Before the bytes of each send in an outbox, from the first to the end mark.
struct SendHead {
  int peer = 0;
  std::size_t bytes = 0;
};
constexpr int end_mark = -1;

}  // namespace

std::shared_ptr<Group> Group::make() {
  const int file = memfd_create("fake_nccl", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  if (ftruncate(file, sizeof(Shared)) != 0) {
    ::close(file);
    return nullptr;
  }
  return map(file, "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file));
}

std::shared_ptr<Group> Group::open(const std::string& id) {
  const int file = ::open(id.c_str(), O_RDWR | O_CLOEXEC);
  return file < 0 ? nullptr : map(file, id);
}

// Takes over the file.
std::shared_ptr<Group> Group::map(int file, std::string id) {
  struct stat status {};
  const bool ours = fstat(file, &status) == 0 && status.st_size == static_cast<off_t>(sizeof(Shared));
  void* const at =
      ours ? mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0)
           : MAP_FAILED;
  if (at == MAP_FAILED) {
    ::close(file);
    return nullptr;
  }
  return std::shared_ptr<Group>(new Group(file, std::move(id), static_cast<Shared*>(at)));
}

Group::~Group() {
  munmap(shared_, sizeof(Shared));
  ::close(file_);
}

bool Group::fits(const Part& part) {
  std::size_t bytes = sizeof(SendHead);
  for (const Transfer& send : part.sends) bytes += sizeof(SendHead) + send.bytes;
  return bytes <= outbox_bytes;
}

void Group::collective(int rank, int size, const Part& part) {
  const auto own = static_cast<std::size_t>(rank);
  const std::uint32_t round = shared_->put[own] + 1;
  if (!await(rank, [&] { return all_reached(shared_->taken, size, round - 1); })) return;
  put(rank, part);
  shared_->put[own] = round;
  tell();
  if (!await(rank, [&] { return all_reached(shared_->put, size, round); })) return;
  take(rank, part);
  shared_->taken[own] = round;
  tell();
}

void Group::abort(int rank) {
  aborted_[static_cast<std::size_t>(rank)] = true;
  tell();
}

bool Group::all_reached(const std::array<Word, most_ranks>& rounds, int size, std::uint32_t round) const {
  return std::all_of(rounds.begin(), rounds.begin() + size, [&](const Word& word) { return word >= round; });
}

// False where the rank was aborted first.
template <class Done>
bool Group::await(int rank, Done done) {
  for (;;) {
    const std::uint32_t seen = shared_->changes;
    if (done()) return true;
    if (aborted_[static_cast<std::size_t>(rank)]) return false;
    syscall(SYS_futex, &shared_->changes, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  }
}

void Group::tell() {
  ++shared_->changes;
  syscall(SYS_futex, &shared_->changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// What a rank sends itself goes by no outbox.
void Group::put(int rank, const Part& part) {
  char* at = shared_->outboxes[static_cast<std::size_t>(rank)].data();
  const auto add_head = [&](const SendHead& head) {
    std::memcpy(at, &head, sizeof head);
    at += sizeof head;
  };
  for (const Transfer& send : part.sends) {
    if (send.peer == rank) continue;
    add_head({send.peer, send.bytes});
    if (send.bytes > 0) std::memcpy(at, send.data, send.bytes);
    at += send.bytes;
  }
  add_head({end_mark, 0});
}

// What is in place already stays untouched.
void Group::take(int rank, const Part& part) const {
  std::map<int, int> taken;  // by peer
  for (const Transfer& receive : part.receives) {
    int nth = taken[receive.peer]++;
    if (receive.peer == rank) {
      for (const Transfer& send : part.sends)
        if (send.peer == rank && nth-- == 0 && send.data != receive.data)
          std::memmove(receive.data, send.data, receive.bytes);
      continue;
    }
    const char* at = shared_->outboxes[static_cast<std::size_t>(receive.peer)].data();
    for (SendHead head;; at += head.bytes) {
      std::memcpy(&head, at, sizeof head);
      at += sizeof head;
      if (head.peer == end_mark) break;
      if (head.peer == rank && nth-- == 0) std::memcpy(receive.data, at, std::min(receive.bytes, head.bytes));
    }
  }
}

}  // namespace fake_nccl
