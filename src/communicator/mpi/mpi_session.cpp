#include "src/communicator/mpi/mpi_session.h"

#include <utility>

#include "stowage/error.h"

namespace stowage::communication {

MpiSession& MpiSession::get() {
  static MpiSession session;
  return session;
}

MpiSession::MpiSession() {
  int begun = 0, threads = MPI_THREAD_SINGLE;
  MPI_Initialized(&begun);
  if (begun == 0) {
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads) != MPI_SUCCESS)
      throw InvalidInput("MPI does not begin: start the program by mpirun, and see what it printed");
    begun_here_ = true;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  MPI_Query_thread(&threads);
  if (threads < MPI_THREAD_SERIALIZED)
    throw InvalidInput(
        "MPI was begun for one thread: begin it by MPI_Init_thread with MPI_THREAD_SERIALIZED or more");
}

MpiSession::~MpiSession() {
  int ended = 0;
  MPI_Finalized(&ended);
  if (begun_here_ && ended == 0 && !lost()) MPI_Finalize();
}

void MpiSession::lose() {
  const MutexLock lock(state_);
  lost_ = true;
}

void MpiSession::lose(const RankFailure& dead) {
  dead_.keep(dead);
  lose();
}

bool MpiSession::lost() {
  const MutexLock lock(state_);
  return lost_;
}

void MpiSession::keep(std::shared_ptr<void> memory) {
  const MutexLock lock(state_);
  kept_.push_back(std::move(memory));
}

}  // namespace stowage::communication
