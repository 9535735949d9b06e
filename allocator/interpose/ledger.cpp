#include "allocator/interpose/ledger.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

namespace stowage::interpose {
namespace {

constexpr int patience = 1000;  // attempts to take a lock that may be held for ever

bool counts(const Block& block) { return on_the_card(block.kind) && !block.spilled; }

struct Count {
  explicit Count(std::uint64_t count) {
    std::snprintf(text.data(), text.size(), "%llu", static_cast<unsigned long long>(count));
  }
  std::array<char, 21> text{};
};

}  // namespace

Ledger::Ledger(LedgerOptions options)
    : options_(std::move(options)), writer_(options_.record, options_.start_ns, options_.pending) {}

void Ledger::announce() {
  const MutexLock lock(mutex_);
  announce_locked();
  writer_.flush();
}

void Ledger::announce_locked() {
  if (announced_) return;
  announced_ = true;
  writer_.add({.event = "process", .detail = options_.program});
}

void Ledger::line(std::string_view event, std::uint64_t address, const Block& block, int result,
                  std::string_view detail) {
  announce_locked();
  if (event != "reset") ++calls_;
  const auto card = cards_.find(block.device);
  if (options_.every_call) {
    writer_.add({event, name_of(block.kind), block.device, number_of(block.stream), address, block.bytes,
                 card == cards_.end() ? 0 : card->second.live, result,
                 block.spilled ? "place=host" : detail});
  } else if (ended_ || calls_ == 1) {
    end_locked();  // records the totals so far, in case the process crashes
  }
}

std::uint64_t Ledger::number_of(std::uint64_t stream) {
  if (stream <= 2) return stream;
  const auto [found, added] = streams_.try_emplace(stream, next_stream_);
  if (added) ++next_stream_;
  return found->second;
}

bool Ledger::admit(const Block& block) {
  const MutexLock lock(mutex_);
  if (!on_the_card(block.kind)) return true;
  Card& card = cards_[block.device];
  if (card.live > options_.limit || block.bytes > options_.limit - card.live) return false;
  card.live += block.bytes;
  return true;
}

void Ledger::refused(const Block& block, std::string_view why) {
  const MutexLock lock(mutex_);
  line("refused", 0, block, 0, why);
  writer_.flush();  // a refused allocation often ends the program
}

void Ledger::give_back(const Block& block) {
  const MutexLock lock(mutex_);
  drop(block);
}

// Counts a block that needed no admission.
void Ledger::take_in(const Block& block) {
  if (!block.spilled) return;
  ++spills_;
  host_.live += block.bytes;
  host_.peak = std::max(host_.peak, host_.live);
}

void Ledger::drop(const Block& block) {
  if (counts(block)) cards_[block.device].live -= block.bytes;
  if (block.spilled) host_.live -= block.bytes;
}

void Ledger::granted(std::uint64_t address, const Block& block) {
  const MutexLock lock(mutex_);
  // Memory of a graph belongs to the graph: its address comes and goes with launches.
  if (block.kind != Kind::graph) {
    end_free(address);
    forget(address);
    Block& kept = blocks_[address] = block;
    kept.grant = ++grants_;
  }
  take_in(block);
  Card& card = cards_[block.device];
  card.peak = std::max(card.peak, card.live);
  line("alloc", address, block, 0);
}

void Ledger::failed(const Block& block, int result, std::string_view why) {
  const MutexLock lock(mutex_);
  drop(block);
  line("failed", 0, block, result, why);
}

// An address that is given out again was freed in a way that nobody saw.
void Ledger::forget(std::uint64_t address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return;
  drop(found->second);
  line("reset", address, found->second, 0);
  blocks_.erase(found);
}

std::optional<Block> Ledger::take(std::uint64_t address, std::uint64_t stream) {
  const MutexLock lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return std::nullopt;
  const Block block = found->second;
  blocks_.erase(found);
  leaving_[address] = block;
  leaving_[address].stream = stream;
  return block;
}

bool Ledger::end_free(std::uint64_t address) {
  const auto found = leaving_.find(address);
  if (found == leaving_.end()) return false;
  const Block block = found->second;
  leaving_.erase(found);
  drop(block);
  line("free", address, block, 0);
  return true;
}

void Ledger::freed(std::uint64_t address, const Block& block, std::uint64_t stream) {
  const MutexLock lock(mutex_);
  if (block.grant == 0) {  // no grant gave this address out
    Block shown = block;
    shown.stream = stream;
    line("free", address, shown, 0);
    return;
  }
  const auto found = leaving_.find(address);
  if (found != leaving_.end() && found->second.grant == block.grant) end_free(address);
}

void Ledger::not_freed(std::uint64_t address, const Block& block, int result) {
  const MutexLock lock(mutex_);
  if (block.grant != 0) {
    leaving_.erase(address);
    blocks_[address] = block;
  }
  line("not_freed", address, block, result);
}

void Ledger::created(std::uint64_t handle, const Block& block) {
  const MutexLock lock(mutex_);
  // A handle that is given out again ended by an unmapping that another thread has yet to account for.
  if (const auto ended = physical_.find(handle); ended != physical_.end()) {
    ended->second.handles = ended->second.mappings = 0;
    drop_if_unused(handle);
  }
  Physical& memory = physical_[handle] = {block, 1, 0};
  memory.block.grant = ++grants_;
  Card& card = cards_[block.device];
  card.peak = std::max(card.peak, card.live);
  line("alloc", handle, block, 0);
}

void Ledger::retained(std::uint64_t handle) {
  const MutexLock lock(mutex_);
  const auto found = physical_.find(handle);
  if (found != physical_.end()) ++found->second.handles;
}

void Ledger::drop_if_unused(std::uint64_t handle) {
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.handles > 0 || found->second.mappings > 0) return;
  const Block block = found->second.block;
  physical_.erase(found);
  drop(block);
  line("free", handle, block, 0);
}

void Ledger::released(std::uint64_t handle) {
  const MutexLock lock(mutex_);
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.handles == 0) return;
  --found->second.handles;
  drop_if_unused(handle);
}

void Ledger::mapped(std::uint64_t address, Bytes bytes, std::uint64_t handle) {
  const MutexLock lock(mutex_);
  const auto found = physical_.find(handle);
  if (found == physical_.end()) return;
  ++found->second.mappings;
  mappings_[address] = {bytes, handle, found->second.block.grant};
}

void Ledger::unmapped(std::uint64_t address, Bytes bytes) {
  const MutexLock lock(mutex_);
  const auto first = mappings_.lower_bound(address);
  for (auto at = first; at != mappings_.end() && at->first - address < bytes;) {
    const Mapping mapping = at->second;
    at = mappings_.erase(at);
    const auto memory = physical_.find(mapping.handle);
    if (memory == physical_.end() || memory->second.block.grant != mapping.grant) continue;
    --memory->second.mappings;
    drop_if_unused(mapping.handle);
  }
}

template <class Predicate>
void Ledger::forget_if(Predicate gone) {
  for (auto at = blocks_.begin(); at != blocks_.end();) {
    if (!gone(at->second)) {
      ++at;
      continue;
    }
    drop(at->second);
    line("reset", at->first, at->second, 0);
    at = blocks_.erase(at);
  }
}

void Ledger::context_gone(std::uint64_t context) {
  if (context == 0) return;
  const MutexLock lock(mutex_);
  forget_if([&](const Block& block) { return block.context == context; });
}

void Ledger::device_reset(int device, std::uint64_t primary_context) {
  const MutexLock lock(mutex_);
  forget_if([&](const Block& block) {
    const bool of_a_pool = block.kind == Kind::async || block.kind == Kind::pool;
    return (of_a_pool && block.device == device) ||
           (primary_context != 0 && block.context == primary_context);
  });
}

void Ledger::stream_gone(std::uint64_t stream) {
  const MutexLock lock(mutex_);
  streams_.erase(stream);
}

void Ledger::note(std::string_view event, std::uint64_t address, std::string_view detail, int result) {
  const MutexLock lock(mutex_);
  announce_locked();
  if (options_.every_call)
    writer_.add({.event = event, .address = address, .result = result, .detail = detail});
}

Bytes Ledger::live(int device) {
  const MutexLock lock(mutex_);
  const auto found = cards_.find(device);
  return found == cards_.end() ? 0 : found->second.live;
}

Bytes Ledger::spilled() {
  const MutexLock lock(mutex_);
  return host_.live;
}

Bytes Ledger::total_shown(Bytes total) const { return std::min(total, options_.limit); }

Bytes Ledger::free_shown(int device, Bytes free) {
  const Bytes taken = live(device);
  return taken >= options_.limit ? 0 : std::min(free, options_.limit - taken);
}

void Ledger::end_locked() {
  announce_locked();
  writer_.add({.event = "calls", .detail = Count(calls_).text.data()});
  for (const auto& [device, card] : cards_) {
    writer_.add({.event = "total", .device = device, .bytes = card.peak, .live = card.live});
  }
  if (spills_ > 0) {
    writer_.add(
        {.event = "spilled", .bytes = host_.peak, .live = host_.live, .detail = Count(spills_).text.data()});
  }
  writer_.flush();
}

void Ledger::end() {
  const MutexLock lock(mutex_);
  if (!writer_.in_own_process() || std::exchange(ended_, true)) return;
  end_locked();
  writer_.finish();
}

bool Ledger::try_lock_patiently() {
  for (int attempt = 0; !mutex_.try_lock(); ++attempt) {
    if (attempt == patience) return false;
    sched_yield();
  }
  return true;
}

void Ledger::note_leaving(std::string_view event, std::string_view detail) {
  if (!try_lock_patiently()) return;
  writer_.add({.event = event, .detail = detail});
  writer_.flush();
  mutex_.unlock();
}

int Ledger::open_record() {
  const MutexLock lock(mutex_);
  writer_.flush();
  return writer_.open_file();
}

void Ledger::user_changed(int record) {
  const MutexLock lock(mutex_);
  if (record < 0 || writer_.can_append()) return;
  writer_.put({.event = "unrecorded", .detail = options_.program});
  writer_.flush_to(record);
}

void Ledger::try_end() {
  if (!try_lock_patiently()) return;
  if (writer_.in_own_process() && !std::exchange(ended_, true)) {
    end_locked();
    writer_.finish();
  }
  mutex_.unlock();
}

void Ledger::before_fork() {
  mutex_.lock();
  writer_.flush();
}

void Ledger::after_fork_in_parent() { mutex_.unlock(); }

void Ledger::after_fork_in_child() {
  writer_.start_again();
  announced_ = false;
  ended_ = false;
  calls_ = 0;
  cards_.clear();
  host_ = {};
  spills_ = 0;
  blocks_.clear();
  leaving_.clear();
  physical_.clear();
  mappings_.clear();
  streams_.clear();
  mutex_.unlock();
}

}  // namespace stowage::interpose
