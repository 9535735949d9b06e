// Ranks that are threads of this process, on simulated devices.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/communicator/communicator_conformance_fixture.h"

namespace stowage {

struct LocalRanks {
  LocalRanks(int size, const SimulatedOptions& options, const CommunicatorOptions& local = {}) {
    std::vector<Device*> pointers;
    for (int i = 0; i < size; ++i) {
      devices.push_back(open_simulated_device(options));
      pointers.push_back(devices.back().get());
    }
    communicators = make_local_communicators(pointers, local);
  }
  // `body(i)`, each in a thread of its own.
  template <class Body>
  void each(Body&& body) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < devices.size(); ++i) threads.emplace_back([&, i] { body(i); });
    for (std::thread& thread : threads) thread.join();
  }
  void run(const std::function<void(TestRank&)>& body) {
    each([&](std::size_t i) { run_rank(*devices[i], *communicators[i], body); });
  }
  std::vector<std::unique_ptr<SimulatedDevice>> devices;
  std::vector<std::unique_ptr<Communicator>> communicators;
};

}  // namespace stowage
