#include "tests/fake_cuda/state.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

namespace fake_cuda {
namespace {

unsigned number_of_environment(const char* name, unsigned otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(value, nullptr, 10));
}

std::optional<ThreadOrder> thread_order_of_environment() {
  const char* value = std::getenv("STOWAGE_FAKE_CUDA_ORDER");
  if (value == nullptr) return std::nullopt;
  const auto found = std::find(thread_order_names.begin(), thread_order_names.end(), std::string_view(value));
  if (found == thread_order_names.end()) {
    std::fprintf(stderr, "fake CUDA: STOWAGE_FAKE_CUDA_ORDER is %s; set it to forward, reversed or random\n",
                 value);
    std::abort();
  }
  return static_cast<ThreadOrder>(found - thread_order_names.begin());
}

// Where a test has failed, for a kernel's result may be wrong in some orders alone.
void name_thread_orders(int status, void*) {
  if (status != EXIT_FAILURE) return;
  std::fputs(
      "fake CUDA: each block's threads ran forward, reversed or in random order, by the numbers of block and "
      "launch; STOWAGE_FAKE_CUDA_ORDER=forward, reversed or random runs all of them in that order\n",
      stderr);
}

// As a card's runtime does: up to the first number that no card has.
void hide_cards(Settings& settings) {
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) return;
  for (char* end = nullptr;; text = end + 1) {
    const long card = std::strtol(text, &end, 10);
    if (end == text || card < 0 || card >= settings.cards) break;
    settings.visible.push_back(static_cast<int>(card));
    if (*end != ',') break;
  }
  settings.cards = static_cast<int>(settings.visible.size());
  if (settings.cards == 0) settings.driver = fake_cuda_no_device;
}

Settings settings_of_environment() {
  Settings settings;
  if (const char* driver = std::getenv("STOWAGE_FAKE_CUDA")) {
    if (std::string_view(driver) == "no-driver") settings.driver = fake_cuda_no_driver;
    if (std::string_view(driver) == "no-device") settings.driver = fake_cuda_no_device;
  }
  if (const char* memory = std::getenv("STOWAGE_FAKE_CUDA_MEMORY")) {
    settings.capacity = std::strtoull(memory, nullptr, 10);
  }
  if (const char* pinned = std::getenv("STOWAGE_FAKE_CUDA_PINNED")) {
    settings.most_pinned = std::strtoull(pinned, nullptr, 10);
  }
  settings.cards = static_cast<int>(
      number_of_environment("STOWAGE_FAKE_CUDA_CARDS", static_cast<unsigned>(settings.cards)));
  hide_cards(settings);
  settings.thread_order = thread_order_of_environment();
  settings.pending = number_of_environment("STOWAGE_FAKE_CUDA_PENDING", settings.pending);
  if (const char* tables = std::getenv("STOWAGE_FAKE_CUDA_PAGE_TABLES")) {
    if (std::string_view(tables) == "none") settings.per_pinned_gib = settings.per_mapping = 0;
  }
  return settings;
}

// "ncclBroadcast:3", or "cudaMalloc+ncclBroadcast:3".
std::vector<Fault> faults_of_environment() {
  const char* value = std::getenv("STOWAGE_FAKE_CUDA_FAIL");
  if (value == nullptr) return {};
  const std::string text = value;
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) {
    std::fprintf(stderr, "fake CUDA: STOWAGE_FAKE_CUDA_FAIL is %s; set it to CALL:N or FIRST+CALL:N\n",
                 value);
    std::abort();
  }
  const std::size_t plus = text.find('+');
  const std::size_t call = plus == std::string::npos ? 0 : plus + 1;
  return {{text.substr(call, colon - call), static_cast<unsigned>(std::stoul(text.substr(colon + 1))), 0,
           text.substr(0, call == 0 ? 0 : plus)}};
}

unsigned patience_of_environment() { return number_of_environment("STOWAGE_FAKE_CUDA_PATIENCE", 60'000); }

}  // namespace

State::State()
    : patience_in_milliseconds(patience_of_environment()),
      settings_(settings_of_environment()),
      faults_(faults_of_environment()) {}

State& State::get() {
  static State& state = *new State;  // outlives the streams' threads
  return state;
}

Settings State::settings() {
  const std::lock_guard lock(mutex_);
  return settings_;
}

int State::begin_call(const char* name, int unknown_error) {
  run_meanwhile(name);
  const std::lock_guard lock(mutex_);
  ++total_;
  if (++counts_[name] == 1) order_.push_back(name);
  int error = 0;
  // A program may go on where the mode of captures cannot be changed: such a fault has a name.
  const bool may_be_ignored = std::string_view(name).ends_with("ThreadExchangeStreamCaptureMode");
  for (Fault& fault : faults_) {
    if (fault.name.empty() ? may_be_ignored : fault.name != name) continue;
    if (!fault.behind.empty() && !counts_.contains(fault.behind)) continue;
    if (--fault.remaining == 0 && error == 0) error = fault.error == 0 ? unknown_error : fault.error;
  }
  std::erase_if(faults_, [](const Fault& fault) { return fault.remaining == 0; });
  return error;
}

void State::during_call(const char* name, std::function<void()> body) {
  const std::lock_guard lock(mutex_);
  meanwhile_[name] = std::move(body);
}

void State::run_meanwhile(const char* name) {
  std::function<void()> body;
  {
    const std::lock_guard lock(mutex_);
    const auto found = meanwhile_.find(name);
    if (found == meanwhile_.end()) return;
    body = std::move(found->second);
    meanwhile_.erase(found);
  }
  std::thread(body).join();
}

void State::fail_call(const char* name, unsigned nth, int error) {
  const std::lock_guard lock(mutex_);
  faults_.push_back({name == nullptr ? "" : name, std::max(nth, 1U), error});
}

unsigned State::calls(const char* name) {
  const std::lock_guard lock(mutex_);
  if (name == nullptr) return total_;
  const auto found = counts_.find(name);
  return found == counts_.end() ? 0 : found->second;
}

std::vector<const char*> State::called() {
  const std::lock_guard lock(mutex_);
  return order_;
}

void State::make_context(int card) {
  const std::lock_guard lock(mutex_);
  contexts_.insert(card);
}

bool State::has_context(int card) {
  const std::lock_guard lock(mutex_);
  return contexts_.contains(card);
}

unsigned State::pending_faults() {
  const std::lock_guard lock(mutex_);
  return static_cast<unsigned>(faults_.size()) +
         (kernels_to_fault_.load(std::memory_order_relaxed) > 0 ? 1U : 0U);
}

void State::forget_calls() {
  const std::lock_guard lock(mutex_);
  faults_.clear();
  meanwhile_.clear();
  counts_.clear();
  order_.clear();
  total_ = 0;
  virtual_nanoseconds = 0;
  kernels_to_fault_.store(0, std::memory_order_relaxed);
}

void State::reset() {
  forget_calls();
  lost_.store(0, std::memory_order_relaxed);
  calls_from_host_functions = 0;
  pageable_copies = 0;
  pages_pinned_unfaulted = 0;
  spinning_waits = 0;
  blas_objects = 0;
  driver_work_held = false;
  patience_in_milliseconds = patience_of_environment();
  const std::lock_guard lock(mutex_);
  launches_ = 0;
  contexts_.clear();
  settings_ = settings_of_environment();
  faults_ = faults_of_environment();
}

ThreadOrders State::next_orders() {
  static const int at_exit = on_exit(name_thread_orders, nullptr);
  static_cast<void>(at_exit);
  const std::lock_guard lock(mutex_);
  return {settings_.thread_order, launches_++};
}

void State::fault_kernel(unsigned nth, int error) {
  kernel_error_.store(error, std::memory_order_relaxed);
  kernels_to_fault_.store(std::max(nth, 1U), std::memory_order_relaxed);
}

bool State::kernel_may_start() {
  unsigned left = kernels_to_fault_.load(std::memory_order_relaxed);
  while (left > 0 && !kernels_to_fault_.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
  }
  if (left != 1) return true;
  lost_.store(kernel_error_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  return false;
}

}  // namespace fake_cuda
