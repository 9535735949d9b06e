// PlannedPool: requests that come again in the same order get fixed offsets, without a search.
//
// For programs that were not written against the library. The first iterations are recorded: sizes, order,
// streams, lifetimes. Then the placement pass gives each request an offset, and the next iterations are
// served by their index. Which iteration it is the caller says (begin_iteration), or the pool finds the
// period itself. Requests that live beyond their iteration are not planned.
//
// Each request is checked: its size and stream against the plan's, its order (a few requests may be left out,
// others may come between), and its bytes against those of any block that was not freed when the plan says.
// One that does not pass gets no offset: the caching path serves it. After enough of these the plan is given
// up for the rest of the iteration, and its memory needs to be there no longer than the blocks in it; the
// iteration that did not fit is planned anew, and a few plans are kept for programs that go back and forth.
//
// Offsets alone: the owner backs the bytes of one region, wherever it is, as far as offsets reach. In most
// plans bytes go from one block to another of the same stream only, so that the stream's own order is enough;
// in others, and where plans change, the owner lets streams wait for each other. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "allocator/pool_plan.h"

namespace stowage {

struct PlannedPoolOptions {
  Bytes alignment = 512;                              // of offsets, a power of two
  Bytes granule = 2_MiB;                              // in which the owner backs bytes
  std::size_t look_ahead = 16;                        // requests of the plan that may be left out at once
  std::size_t most_recorded = std::size_t{1} << 20U;  // operations of an iteration
  std::size_t most_plans = 4;                         // that are kept
};

struct PlannedPoolStatistics {
  std::uint64_t plans = 0;      // made
  std::uint64_t hits = 0;       // requests that got an offset
  std::uint64_t unplanned = 0;  // as expected, but without an offset: they live beyond their iteration
  std::uint64_t misses = 0;     // while there was a plan
};

class PlannedPool {
 public:
  using Ticket = std::uint32_t;
  struct Block {
    Ticket ticket = 0;
    std::optional<Bytes> offset;  // nothing: the caching path serves it
  };

  explicit PlannedPool(const PlannedPoolOptions& options = {}) : options_(options) {}

  // Optional; once called, iterations are those that the caller names.
  void begin_iteration();
  // Every request, with bytes > 0, and every free go through here, those of the caching path too.
  Block allocate(Bytes bytes, std::uint64_t stream);
  void free(Ticket ticket);
  // Of a block without an offset that nothing could serve: it was never there.
  void cancel(Ticket ticket) { unused_.push_back(ticket); }
  // Of a block with an offset, right behind `allocate`: it cannot be had now. A miss; the caching path serves
  // it.
  void decline(Ticket ticket);
  // For an owner who would rather not have the plan in use, the latest made: it is forgotten.
  void reject_plan();
  // For an owner who cannot back bytes(): down to what the blocks in it reach. Plans are made again later.
  void drop_plans();

  // Of the plan in use; 0 without one.
  Bytes plan_bytes() const { return is_planned_ ? plan().bytes : 0; }
  // Of these, what has to be backed at once (PoolPlan::backed).
  Bytes backed_bytes() const { return is_planned_ ? plan().backed : 0; }
  // What offsets can reach, now: 0 without a plan and without blocks.
  Bytes bytes() const { return bytes_; }
  // Whether requests are compared with a plan.
  bool is_planned() const { return is_planned_; }
  const PlannedPoolStatistics& statistics() const { return statistics_; }

 private:
  static constexpr std::uint32_t none = 0xffffffffU;
  static constexpr std::size_t first_look = 16;  // operations
  struct TicketState {
    std::uint64_t log = 0;  // in which the request stands; 0: in none
    std::size_t log_place = 0;
    Bytes offset = 0, bytes = 0;
    std::uint32_t request = none;  // of the plan, until the block is overdue
    bool has_offset = false;

    Bytes end() const { return offset + bytes; }
  };

  const PoolPlan& plan() const { return plans_.back(); }
  Ticket new_ticket(Bytes bytes);
  std::optional<Bytes> serve(Ticket ticket, Bytes bytes, std::uint64_t stream);
  std::uint32_t match(Bytes bytes, std::uint64_t stream);
  void advance(std::uint32_t request);
  bool meets_overdue(Bytes offset, Bytes bytes) const;
  void make_overdue(std::uint32_t request);
  void forget_requests();
  void restart();
  void count_miss();
  bool take_other_plan(Bytes bytes, std::uint64_t stream);
  void suspend();
  void finish_iteration();
  void keep_plan(PoolPlan plan);
  void record(Ticket ticket, std::uint64_t stream);
  void look_for_period();
  void clear_log();
  std::uint64_t most_misses() const { return 8 + agreed_ / 16; }
  void update_bytes();

  PlannedPoolOptions options_;
  PlannedPoolStatistics statistics_;
  bool is_marked_ = false;  // begin_iteration was called

  std::vector<PoolPlan> plans_;  // by last use: the last one is in use where is_planned_
  bool is_planned_ = false;
  std::uint32_t next_ = 0;           // request that is expected
  std::uint32_t freed_ = 0;          // of the plan's frees, those whose time has passed
  std::uint64_t misses_ = 0;         // in this iteration
  std::uint64_t agreed_ = 0;         // requests of this iteration that were those of the plan
  bool in_step_ = true;              // each request of this iteration was the one expected
  std::vector<Ticket> tickets_of_;   // by request of the plan: what lies there, or none
  std::map<Bytes, Ticket> overdue_;  // by offset: blocks that the plan takes for freed, or does not know

  RequestLog log_;
  std::uint64_t log_number_ = 1;
  bool log_is_full_ = false;
  std::size_t next_look_ = first_look;  // size of the log at which a period is looked for
  std::size_t look_size_ = first_look;  // with which that starts
  bool is_awaited_ = false;             // a period was found, which begins anew at the next look
  std::uint64_t failed_in_row_ = 0;     // iterations
  std::uint64_t idle_iterations_ = 0;   // before the next plan is made

  std::vector<TicketState> tickets_;
  std::vector<Ticket> unused_;
  Bytes bytes_ = 0;
};

}  // namespace stowage
