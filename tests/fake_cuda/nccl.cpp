// libnccl: communicators of threads of one process or of several (nccl_group.h), collectives as work of their
// streams. Nothing blocks but that work, as NCCL where it is asked not to block: a communicator is in
// progress until all its ranks have come.
#include <nccl.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/nccl_group.h"
#include "tests/fake_cuda/state.h"

struct ncclComm {
  std::shared_ptr<fake_nccl::Group> group;
  int rank = 0;
  int size = 1;
};

namespace {

using fake_cuda::State;
using fake_nccl::Group;
using fake_nccl::Part;
using fake_nccl::Transfer;

std::mutex groups_mutex;
// That this process has made or joined, until the first of its communicators ends.
std::map<std::string, std::shared_ptr<Group>>& groups() {
  static auto* all = new std::map<std::string, std::shared_ptr<Group>>;
  return *all;
}

std::shared_ptr<Group> group_of(const std::string& id) {
  const std::lock_guard lock(groups_mutex);
  auto& group = groups()[id];
  if (!group) group = Group::open(id);
  return group;
}

void forget(const std::string& id) {
  const std::lock_guard lock(groups_mutex);
  groups().erase(id);
}

struct Collective {
  ncclComm communicator;
  Part part;
};

void run(void* context) {
  const std::unique_ptr<Collective> mine(static_cast<Collective*>(context));
  const auto& [group, rank, size] = mine->communicator;
  group->collective(rank, size, mine->part);
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
  if (!Group::fits(part)) return ncclInvalidUsage;  // as far as the fake goes
  auto collective = std::make_unique<Collective>(Collective{*communicator, std::move(part)});
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
    const std::shared_ptr<Group> group = Group::make();
    if (!group) return ncclSystemError;
    *id = {};
    std::memcpy(id->internal, group->id().c_str(), group->id().size());
    const std::lock_guard lock(groups_mutex);
    groups()[group->id()] = group;
    return ncclSuccess;
  });
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return call("ncclCommInitRankConfig", [&] {
    if (config->blocking != 0 || ranks > fake_nccl::most_ranks) return ncclInvalidUsage;
    const std::shared_ptr<Group> group = group_of(id.internal);
    if (!group) return ncclSystemError;
    *communicator = new ncclComm{group, rank, ranks};
    group->come();
    return ncclInProgress;
  });
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* answer) {
  return call("ncclCommGetAsyncError", [&] {
    *answer = communicator->group->complete(communicator->size) ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
  });
}
ncclResult_t ncclCommFinalize(ncclComm_t) {
  return call("ncclCommFinalize", [] { return ncclSuccess; });
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  forget(communicator->group->id());
  delete communicator;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  State::get().run_meanwhile("ncclCommAbort");
  communicator->group->abort(communicator->rank);
  forget(communicator->group->id());
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
    for (int other = 0; other < communicator->size; ++other) {
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
      for (int other = 0; other < communicator->size; ++other)
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
