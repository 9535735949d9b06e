#include "src/communicator/mpi/mpi_session.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

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

bool MpiSession::end() {
  if (lost()) return false;
  const MutexLock lock(mutex_);
  int ended = 0;
  MPI_Finalized(&ended);
  if (begun_here_ && ended == 0) MPI_Finalize();
  return true;
}

void MpiSession::lose() {
  const MutexLock lock(state_);
  lost_ = true;
}

RankOfWorld MpiSession::rank() {
  const MutexLock lock(mutex_);
  RankOfWorld world;
  if (MPI_Comm_rank(MPI_COMM_WORLD, &world.rank) != MPI_SUCCESS ||
      MPI_Comm_size(MPI_COMM_WORLD, &world.size) != MPI_SUCCESS)
    throw InvalidInput("MPI does not say which rank this is: start the program by mpirun");
  return world;
}

// No call blocks within MPI: the wait for a dead rank ends when `look` throws.
std::string MpiSession::share(const std::string& text, const std::function<void()>& look) {
  constexpr std::size_t most = 4096;
  constexpr std::chrono::milliseconds pause{1}, between_looks{100};
  const auto buffer = std::make_shared<std::array<char, most>>();
  if (text.size() >= most) throw InvalidInput("rank 0 has too many addresses: name one in STOWAGE_HOST");
  std::copy(text.begin(), text.end(), buffer->begin());
  const auto expect_success = [](int answer) {
    if (answer != MPI_SUCCESS) throw InvalidInput("MPI hands out no text: see what it printed");
  };
  std::vector<MPI_Request> request(1, MPI_REQUEST_NULL);
  std::chrono::steady_clock::time_point next_look{};
  try {
    {
      const MutexLock lock(mutex_);
      expect_success(
          MPI_Ibcast(buffer->data(), static_cast<int>(most), MPI_BYTE, 0, MPI_COMM_WORLD, request.data()));
    }
    for (int done = 0;;) {
      {
        const MutexLock lock(mutex_);
        expect_success(MPI_Testall(1, request.data(), &done, MPI_STATUSES_IGNORE));
      }
      if (done != 0) break;
      if (const auto now = std::chrono::steady_clock::now(); now >= next_look) {
        look();
        next_look = now + between_looks;
      }
      std::this_thread::sleep_for(pause);
    }
  } catch (...) {
    keep(buffer);  // MPI may still write the buffer
    lose();
    throw;
  }
  return {buffer->begin(), std::find(buffer->begin(), buffer->end(), '\0')};
}

bool MpiSession::lost() {
  const MutexLock lock(state_);
  return lost_;
}

void MpiSession::keep(std::shared_ptr<void> memory) { new std::shared_ptr<void>(std::move(memory)); }

}  // namespace stowage::communication
