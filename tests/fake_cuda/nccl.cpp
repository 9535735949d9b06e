// libnccl: communicators of threads of one process, collectives as work of their streams. Nothing blocks but
// that work, as NCCL where it is asked not to block: a communicator is in progress until all its ranks have
// come.
#include <nccl.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/state.h"

namespace fake_nccl {

struct Transfer {
  int peer = 0;
  char* data = nullptr;
  std::size_t bytes = 0;
};
// What a rank brings to a collective.
struct Part {
  std::vector<Transfer> sends, receives;
};

// The ranks of one id.
class Group {
 public:
  explicit Group(int ranks) : size(ranks), parts_(static_cast<std::size_t>(ranks)), aborted_(parts_.size()) {}
  const int size;
  int come = 0;  // under groups_mutex

  // Runs `body` with what all ranks brought, once all have come; returns once it has run on all. A rank that
  // is aborted before all have come waits no more, and the others wait on.
  template <class Body>
  void meet(int rank, Part part, Body body) {
    std::unique_lock lock(mutex_);
    const auto own = static_cast<std::size_t>(rank);
    if (aborted_[own]) return;
    const unsigned round = round_;
    parts_[own] = std::move(part);
    if (++come_ == size) {
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || aborted_[own]; });
    if (round_ == round) {
      --come_;
      return;
    }
    lock.unlock();
    body(parts_);
    lock.lock();
    const unsigned end = ends_;
    if (--come_ == 0) {
      ++ends_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return ends_ != end; });
  }
  void abort(int rank) {
    const std::lock_guard lock(mutex_);
    aborted_[static_cast<std::size_t>(rank)] = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Part> parts_;  // by rank, of this round
  std::vector<bool> aborted_;
  int come_ = 0;
  unsigned round_ = 0, ends_ = 0;
};

}  // namespace fake_nccl

struct ncclComm {
  std::shared_ptr<fake_nccl::Group> group;
  int rank = 0;
};

namespace {

using fake_cuda::State;
using fake_nccl::Group;
using fake_nccl::Part;
using fake_nccl::Transfer;

std::mutex groups_mutex;
std::map<std::string, std::shared_ptr<Group>>& groups() {
  static auto* all = new std::map<std::string, std::shared_ptr<Group>>;
  return *all;
}

struct Collective {
  std::shared_ptr<Group> group;
  int rank = 0;
  Part part;
};

// The kth receive from a rank takes the kth send of that rank to this one. What is in place already stays
// untouched.
void receive(const Collective& mine, const std::vector<Part>& all) {
  std::map<int, int> taken;
  for (const Transfer& to : mine.part.receives) {
    int nth = taken[to.peer]++;
    for (const Transfer& from : all[static_cast<std::size_t>(to.peer)].sends)
      if (from.peer == mine.rank && nth-- == 0 && from.data != to.data)
        std::memmove(to.data, from.data, to.bytes);
  }
}

void run(void* context) {
  const std::unique_ptr<Collective> mine(static_cast<Collective*>(context));
  mine->group->meet(mine->rank, mine->part, [&](const std::vector<Part>& all) { receive(*mine, all); });
}

thread_local int open_groups = 0;
thread_local Part grouped;
thread_local ncclComm_t grouped_communicator = nullptr;
thread_local cudaStream_t grouped_stream = nullptr;

template <class Body>
ncclResult_t call(const char* name, Body body) {
  const int planned = State::get().begin_call(name, ncclInternalError);
  return planned != 0 ? static_cast<ncclResult_t>(planned) : body();
}

ncclResult_t enqueue(ncclComm_t communicator, Part part, cudaStream_t stream) {
  auto collective =
      std::make_unique<Collective>(Collective{communicator->group, communicator->rank, std::move(part)});
  fake_cuda_enqueue_work(stream, run, collective.release());
  return ncclSuccess;
}

ncclResult_t grouped_transfer(std::vector<Transfer> Part::*list, const Transfer& transfer,
                              ncclComm_t communicator, cudaStream_t stream) {
  if (open_groups == 0) return ncclInvalidUsage;  // the fake knows them in groups alone
  (grouped.*list).push_back(transfer);
  grouped_communicator = communicator;
  grouped_stream = stream;
  return ncclSuccess;
}

char* bytes_of(const void* data) { return static_cast<char*>(const_cast<void*>(data)); }

}  // namespace

extern "C" {
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return call("ncclGetUniqueId", [&] {
    static unsigned count = 0;
    const std::lock_guard lock(groups_mutex);
    *id = {};
    const std::string text = "group " + std::to_string(++count);
    std::memcpy(id->internal, text.c_str(), text.size());
    return ncclSuccess;
  });
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return call("ncclCommInitRankConfig", [&] {
    if (config->blocking != 0) return ncclInvalidUsage;
    const std::lock_guard lock(groups_mutex);
    auto& group = groups()[id.internal];
    if (!group) group = std::make_shared<Group>(ranks);
    *communicator = new ncclComm{group, rank};
    ++group->come;
    return ncclInProgress;
  });
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* answer) {
  return call("ncclCommGetAsyncError", [&] {
    const std::lock_guard lock(groups_mutex);
    *answer = communicator->group->come < communicator->group->size ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
  });
}
ncclResult_t ncclCommFinalize(ncclComm_t) {
  return call("ncclCommFinalize", [] { return ncclSuccess; });
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  delete communicator;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  communicator->group->abort(communicator->rank);
  delete communicator;
  return ncclSuccess;
}
ncclResult_t ncclCommRegister(const ncclComm_t, void* data, std::size_t, void** handle) {
  return call("ncclCommRegister", [&] {
    *handle = data;
    return ncclSuccess;
  });
}
ncclResult_t ncclCommDeregister(const ncclComm_t, void*) {
  return call("ncclCommDeregister", [] { return ncclSuccess; });
}
ncclResult_t ncclAllGather(const void* send, void* to, std::size_t count, ncclDataType_t,
                           ncclComm_t communicator, cudaStream_t stream) {
  return call("ncclAllGather", [&] {
    Part part;
    for (int other = 0; other < communicator->group->size; ++other) {
      part.sends.push_back({other, bytes_of(send), count});
      part.receives.push_back({other, bytes_of(to) + static_cast<std::size_t>(other) * count, count});
    }
    return enqueue(communicator, std::move(part), stream);
  });
}
ncclResult_t ncclBroadcast(const void* send, void* to, std::size_t count, ncclDataType_t, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return call("ncclBroadcast", [&] {
    Part part{{}, {{root, bytes_of(to), count}}};
    if (communicator->rank == root)
      for (int other = 0; other < communicator->group->size; ++other)
        part.sends.push_back({other, bytes_of(send), count});
    return enqueue(communicator, std::move(part), stream);
  });
}
ncclResult_t ncclGroupStart() {
  return call("ncclGroupStart", [] {
    ++open_groups;
    return ncclSuccess;
  });
}
ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return call("ncclSend", [&] {
    return grouped_transfer(&Part::sends, {peer, bytes_of(data), count}, communicator, stream);
  });
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return call("ncclRecv", [&] {
    return grouped_transfer(&Part::receives, {peer, bytes_of(data), count}, communicator, stream);
  });
}
ncclResult_t ncclGroupEnd() {
  const ncclComm_t communicator = std::exchange(grouped_communicator, nullptr);
  Part part = std::exchange(grouped, {});
  open_groups = 0;
  return call("ncclGroupEnd", [&] {
    return communicator == nullptr ? ncclSuccess : enqueue(communicator, std::move(part), grouped_stream);
  });
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInternalError ? "internal error" : "an error";
}
}
