// MPI in this process: begun with the first communicator, ended with the channel of the job, or when the
// process ends.
//
// MPI_THREAD_SERIALIZED is enough, and asked for: a communicator works for one thread at a time (a lane, or
// the caller at a barrier), and all calls of MPI are made under one mutex, which a waiting thread gives up
// between tests. A program that begins MPI itself must ask for this level, too.
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
  // Begins MPI. Throws InvalidInput if MPI was begun with less thread support.
  static MpiSession& get();
  ~MpiSession() { end(); }
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  Mutex& mutex() { return mutex_; }  // held around each call of MPI
  // Gives MPI up: a rank has died, or MPI may still touch memory that its owner has released. MPI is not
  // called again.
  void lose();
  bool lost();
  // As MpiModule::end. Does not end MPI if the program has begun it.
  bool end();
  RankOfWorld rank();
  // As MpiModule::share. Called before the first communicator is opened.
  std::string share(const std::string& text, const std::function<void()>& look);
  // Never releases memory that abandoned work may still write, even while MPI ends.
  static void keep(std::shared_ptr<void> memory);

 private:
  MpiSession();

  Mutex mutex_;
  Mutex state_;
  bool begun_here_ = false;
  bool lost_ STOWAGE_GUARDED_BY(state_) = false;
};

}  // namespace stowage::communication
