// The functions that libstowage_plan.so exports.
#include "stowage/c_plan.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <stop_token>
#include <string>

#include "src/base/mutex.h"
#include "stowage/error.h"
#include "tools/c_plan/plan_question.h"

namespace {

using namespace stowage;

thread_local std::string last_error;

// The calls under way, and whether they are to end.
class Calls {
 public:
  void set_stop(bool stop) {
    const MutexLock lock(mutex_);
    stop_ = stop;
    if (!stop) return;
    for (std::stop_source* const call : under_way_) call->request_stop();
  }
  void begin(std::stop_source& call) {
    const MutexLock lock(mutex_);
    under_way_.insert(&call);
    if (stop_) call.request_stop();
  }
  void end(std::stop_source& call) {
    const MutexLock lock(mutex_);
    under_way_.erase(&call);
  }

 private:
  Mutex mutex_;
  bool stop_ STOWAGE_GUARDED_BY(mutex_) = false;
  std::set<std::stop_source*> under_way_ STOWAGE_GUARDED_BY(mutex_);
};

Calls& calls() {
  static auto& all = *new Calls;  // never destroyed: a thread may plan while the process ends
  return all;
}

class Call {
 public:
  Call() { calls().begin(source_); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() { calls().end(source_); }
  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
};

// Allocates one block for the text's head, its name and its data. Name and data each end with a 0.
stowage_text* text_from(const NamedText& from) {
  void* const block = std::malloc(sizeof(stowage_text) + from.name.size() + 1 + from.text.size() + 1);
  if (block == nullptr) throw std::bad_alloc();
  char* const name = static_cast<char*>(block) + sizeof(stowage_text);
  char* const data = name + from.name.size() + 1;
  std::memcpy(name, from.name.c_str(), from.name.size() + 1);
  std::memcpy(data, from.text.c_str(), from.text.size() + 1);
  return new (block) stowage_text{name, data, from.text.size(), nullptr};
}

struct FreeText {
  void operator()(stowage_text* text) const { stowage_text_free(text); }
};

stowage_text* texts_from(const std::vector<NamedText>& from) {
  std::unique_ptr<stowage_text, FreeText> first;
  stowage_text* last = nullptr;
  for (const NamedText& each : from) {
    stowage_text* const text = text_from(each);
    if (last == nullptr)
      first.reset(text);
    else
      last->next = text;
    last = text;
  }
  return first.release();
}

int failed(int status, const char* why) {
  last_error = why;
  return status;
}

}  // namespace

extern "C" {

int stowage_plan(const char* trace, size_t bytes, const char* question, stowage_text** answer) {
  try {
    last_error.clear();
    if (answer == nullptr) return failed(STOWAGE_INVALID_INPUT, "stowage_plan: 'answer' is null");
    *answer = nullptr;
    if ((trace == nullptr && bytes > 0) || question == nullptr)
      return failed(STOWAGE_INVALID_INPUT, "stowage_plan: 'trace' or 'question' is null");
    const Call call;
    *answer = texts_from(answer_texts({trace, bytes}, question, call.token()));
    return STOWAGE_OK;
  } catch (const Cancelled& error) {
    return failed(STOWAGE_STOPPED, error.what());
  } catch (const InvalidInput& error) {
    return failed(STOWAGE_INVALID_INPUT, error.what());
  } catch (const OutOfMemory& error) {
    return failed(STOWAGE_OUT_OF_MEMORY, error.what());
  } catch (const std::bad_alloc&) {
    return failed(STOWAGE_OUT_OF_MEMORY, "memory of the host ran out");
  } catch (const std::exception& error) {
    return failed(STOWAGE_FAILED, error.what());
  }
}

void stowage_text_free(stowage_text* text) {
  while (text != nullptr) {
    stowage_text* const next = text->next;
    std::free(text);
    text = next;
  }
}

void stowage_plan_stop(int stop) { calls().set_stop(stop != 0); }

const char* stowage_plan_last_error() { return last_error.c_str(); }

const char* stowage_plan_version() { return STOWAGE_VERSION; }

const char* stowage_plan_machines() {
  static const std::string names = [] {
    std::string text;
    for (const ShippedMachine& machine : shipped_machines()) text.append(machine.name).append("\n");
    return text;
  }();
  return names.c_str();
}

}  // extern "C"
