// MPI in this process: begun with the first communicator, ended with the channel of the job, or when the
// process ends.
//
// MPI_THREAD_SERIALIZED is enough, and asked for: a communicator works for one thread at a time (a lane, or
// the caller at a barrier), and all calls of MPI are made under one mutex, which a thread that waits gives up
// between tests. A program that has begun MPI itself must have asked for it, too.
#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/mutex.h"
#include "src/communicator/communicator_module.h"

namespace stowage::communication {

class MpiSession {
 public:
  // Begins MPI. Throws InvalidInput where it was begun with less thread support.
  static MpiSession& get();
  ~MpiSession() { end(); }
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  Mutex& mutex() { return mutex_; }  // around each call of MPI
  // A rank is gone, or MPI may still touch memory that is not ours any more: MPI is not called again.
  void lose();
  bool lost();
  // As MpiModule::end. Ends nothing where others have begun MPI.
  bool end();
  RankOfWorld rank();
  // As MpiModule::share. Before the first communicator.
  std::string share(const std::string& text, const std::function<void()>& look);
  // Memory that work in vain may still write, and be it while MPI is ended, by whoever has begun it: never
  // released.
  static void keep(std::shared_ptr<void> memory);

 private:
  MpiSession();

  Mutex mutex_;
  Mutex state_;
  bool begun_here_ = false;
  bool lost_ STOWAGE_GUARDED_BY(state_) = false;
};

}  // namespace stowage::communication
