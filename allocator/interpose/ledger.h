// Ledger: the account of one process, that is its live allocations by address and their bytes on each card.
// The ledger writes the record, and decides which allocations a limit refuses.
//
// Bytes are those that the program asked for: neither rows padded by cuMemAllocPitch nor the driver's own
// rounding. Managed memory can live on the host, so it is in the record but not in what a card holds.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "allocator/interpose/kind.h"
#include "allocator/interpose/record_writer.h"
#include "src/base/mutex.h"
#include "stowage/bytes.h"

namespace stowage::interpose {

struct Block {
  Kind kind = Kind::device;
  int device = 0;
  std::uint64_t context = 0;  // 0: memory of a pool, which outlives contexts
  std::uint64_t stream = 0;   // the stream's handle
  Bytes bytes = 0;
  bool spilled = false;     // the block is in host memory instead of the card's
  std::uint64_t grant = 0;  // number of the grant: the ledger may grant one address many times
};

struct LedgerOptions {
  Bytes limit = std::numeric_limits<Bytes>::max();  // memory limit of each card
  std::string record = {};                          // path of a file that exists; empty: no record
  bool every_call = true;      // the record has every call; false: only processes and totals
  std::uint64_t start_ns = 0;  // time 0 of the record, on CLOCK_MONOTONIC
  std::string pending = {};    // folder for lines that are not in the record yet
  std::string program = {};    // name of this process's program
};

// Thread-safe.
class Ledger {
 public:
  explicit Ledger(LedgerOptions options);

  // Steps of an allocation: `admit` takes its bytes (false: over the limit), then `granted` or `failed`. A
  // block that was not admitted, or gave its bytes back, may be granted as a spilled block; else it is
  // refused. `why` goes into the record.
  bool admit(const Block& block);
  void granted(std::uint64_t address, const Block& block);
  void failed(const Block& block, int result, std::string_view why = {});
  void refused(const Block& block, std::string_view why = {});
  void give_back(const Block& block);  // takes the bytes of an admitted block back

  // Steps of a free in the order of `stream`. `take` returns the block once, before the driver frees it,
  // since then the address may belong to another thread at once. The block's bytes count until it is freed,
  // or until its address is granted again: the grant writes the free's line first, so that the record has
  // each free before the next allocation of the address. `not_freed` puts the block back
  // if the driver refuses.
  std::optional<Block> take(std::uint64_t address, std::uint64_t stream = 0);
  void freed(std::uint64_t address, const Block& block, std::uint64_t stream);
  void not_freed(std::uint64_t address, const Block& block, int result);

  // cuMemCreate's memory lives while its handle or a mapping of it does.
  void created(std::uint64_t handle, const Block& block);
  void retained(std::uint64_t handle);
  void released(std::uint64_t handle);
  void mapped(std::uint64_t address, Bytes bytes, std::uint64_t handle);
  void unmapped(std::uint64_t address, Bytes bytes);

  // Removes the blocks that died with a context, or with a device reset (pools included).
  void context_gone(std::uint64_t context);
  void device_reset(int device, std::uint64_t primary_context);
  void stream_gone(std::uint64_t stream);

  // Writes a line without bytes of its own: "export", "not_exported", "open", "close", "missed".
  void note(std::string_view event, std::uint64_t address, std::string_view detail = {}, int result = 0);

  // Writes a line at once, because the process is about to leave the record's reach. Gives up after a while
  // if the lock is held, as try_end does.
  void note_leaving(std::string_view event, std::string_view detail) STOWAGE_NO_THREAD_SAFETY_ANALYSIS;
  // Called before and after a change of the process's user. open_record writes all lines so far and returns
  // the record's descriptor, which the caller closes (-1: no record); user_changed writes a line to it if the
  // new user cannot open the record.
  int open_record();
  void user_changed(int record);

  Bytes limit() const { return options_.limit; }
  bool records_to(std::string_view file) const { return options_.record == file; }
  Bytes live(int device);
  Bytes spilled();  // bytes spilled now
  // Memory sizes that the program is told under the limit.
  Bytes total_shown(Bytes total) const;
  Bytes free_shown(int device, Bytes free);

  void announce();  // records that this process has loaded the library
  void end();
  // Does the same as `end` where the calling thread itself may hold the lock: gives up after a while.
  void try_end() STOWAGE_NO_THREAD_SAFETY_ANALYSIS;
  // The lock is held while the process forks, so that the child finds whole maps.
  void before_fork() STOWAGE_NO_THREAD_SAFETY_ANALYSIS;
  void after_fork_in_parent() STOWAGE_NO_THREAD_SAFETY_ANALYSIS;
  void after_fork_in_child() STOWAGE_NO_THREAD_SAFETY_ANALYSIS;  // the child's account begins empty

 private:
  struct Physical {
    Block block;
    unsigned handles = 1;
    unsigned mappings = 0;
  };
  struct Mapping {
    Bytes bytes = 0;
    std::uint64_t handle = 0;
    std::uint64_t grant = 0;  // grant number of the mapped memory
  };
  struct Card {
    Bytes live = 0;
    Bytes peak = 0;
  };

  void line(std::string_view event, std::uint64_t address, const Block& block, int result,
            std::string_view detail = {}) STOWAGE_REQUIRES(mutex_);
  void announce_locked() STOWAGE_REQUIRES(mutex_);
  void end_locked() STOWAGE_REQUIRES(mutex_);
  bool try_lock_patiently() STOWAGE_NO_THREAD_SAFETY_ANALYSIS;
  void take_in(const Block& block) STOWAGE_REQUIRES(mutex_);
  void drop(const Block& block) STOWAGE_REQUIRES(mutex_);
  // Returns false if no free of the address is under way.
  bool end_free(std::uint64_t address) STOWAGE_REQUIRES(mutex_);
  void forget(std::uint64_t address) STOWAGE_REQUIRES(mutex_);
  template <class Predicate>
  void forget_if(Predicate gone) STOWAGE_REQUIRES(mutex_);
  void drop_if_unused(std::uint64_t handle) STOWAGE_REQUIRES(mutex_);
  std::uint64_t number_of(std::uint64_t stream) STOWAGE_REQUIRES(mutex_);

  const LedgerOptions options_;
  Mutex mutex_;
  RecordWriter writer_ STOWAGE_GUARDED_BY(mutex_);
  bool announced_ STOWAGE_GUARDED_BY(mutex_) = false;
  bool ended_ STOWAGE_GUARDED_BY(mutex_) = false;
  std::uint64_t calls_ STOWAGE_GUARDED_BY(mutex_) = 0;
  std::map<int, Card> cards_ STOWAGE_GUARDED_BY(mutex_);
  Card host_ STOWAGE_GUARDED_BY(mutex_);  // totals of spilled blocks
  std::uint64_t spills_ STOWAGE_GUARDED_BY(mutex_) = 0;
  std::uint64_t grants_ STOWAGE_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::uint64_t, Block> blocks_ STOWAGE_GUARDED_BY(mutex_);
  // Blocks that were taken and are not freed yet.
  std::unordered_map<std::uint64_t, Block> leaving_ STOWAGE_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Physical> physical_ STOWAGE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Mapping> mappings_ STOWAGE_GUARDED_BY(mutex_);
  // Maps a stream's handle to its number.
  std::unordered_map<std::uint64_t, std::uint64_t> streams_ STOWAGE_GUARDED_BY(mutex_);
  std::uint64_t next_stream_ STOWAGE_GUARDED_BY(mutex_) = 3;  // 0, 1 and 2 are the default streams
};

}  // namespace stowage::interpose
