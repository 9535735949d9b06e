#include "offload/engine/rank_threads.h"

#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "stowage/error.h"

namespace stowage {

void on_ranks(std::size_t ranks, const std::function<void(std::size_t)>& work,
              const std::function<void(const char* why)>& abandon) {
  std::vector<std::exception_ptr> errors(ranks);
  const auto guarded = [&](std::size_t rank) {
    try {
      work(rank);
    } catch (...) {
      errors[rank] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  try {
    for (std::size_t rank = 1; rank < ranks; ++rank) threads.emplace_back(guarded, rank);
    guarded(0);
  } catch (const std::system_error& error) {  // no thread could be started
    errors[0] = std::current_exception();
    abandon(error.what());
  }
  for (std::thread& thread : threads) thread.join();
  std::exception_ptr of_another;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const CommunicatorError&) {
      of_another = error;
    }
  }
  if (of_another) std::rethrow_exception(of_another);
}

}  // namespace stowage
