// Server: requests that come again in the same order get fixed offsets, without a search.
//
// The server works for programs that know nothing of plans. The first iterations are recorded (recorder.h):
// sizes, order, streams, lifetimes. The placement pass then gives an offset to each request that is freed
// within its iteration (plan.h), and the next iterations are served by index. The caller says where an
// iteration begins, or the server finds the period.
//
// A request gets its offset if
//   1. its size and stream are those of the plan's next request, or of one of the next `look_ahead`, and
//   2. its bytes overlap no block that was freed later than planned.
// Any other request is a miss, and the caching path serves it. After 8 misses and one in 16 of the requests
// that agreed, the plan is suspended: its blocks stay where they are, and the iteration, which did not fit,
// is planned anew. A few plans are kept for programs that go back and forth, and are told apart by their
// first differing request.
//
// The server knows offsets alone; their owner maps the bytes (region.h) up to bytes(). The owner lets one
// stream wait for another where blocks of both share bytes, as in some plans and when plans change. Not
// thread-safe: plans depend on the order of requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "allocator/replay/plan.h"
#include "stowage/caching_allocator.h"

namespace stowage::caching::replay {

struct ServerOptions {
  Bytes alignment = 512;                              // alignment of offsets, a power of two
  Bytes granule = 2_MiB;                              // unit in which the owner maps memory
  std::size_t look_ahead = 16;                        // planned requests that the program may skip at once
  std::size_t most_recorded = std::size_t{1} << 20U;  // longest record of an iteration, in operations
  std::size_t most_plans = 4;                         // number of plans kept
};

class Server {
 public:
  using Ticket = std::uint32_t;
  struct Answer {
    Ticket ticket = 0;
    std::optional<Bytes> offset;  // nullopt: the caching path serves the request
  };

  explicit Server(const ServerOptions& options = {}) : options_(options) {}

  // Once this was called, the caller's calls mark the iterations; before that the server finds the period.
  void begin_iteration();
  // Every request, with bytes > 0, and every free go through here, also those of the caching path. REQUIRES:
  // a ticket is freed or cancelled once.
  Answer allocate(Bytes bytes, std::uint64_t stream);
  void free(Ticket ticket);
  // Takes back a request without an offset that nobody could serve.
  void cancel(Ticket ticket) { unused_.push_back(ticket); }
  // Refuses the offset of the last request: the owner cannot have it now. Counts a miss; the caching path
  // serves it.
  void decline(Ticket ticket);
  // Forgets the latest plan.
  void reject_plan();
  // Forgets all plans, for an owner who cannot map bytes(). Plans are made again later.
  void drop_plans();

  bool is_planned() const { return is_planned_; }  // true while requests are compared with a plan
  // End of the highest offset that may be in use now: 0 without a plan and blocks.
  Bytes bytes() const { return bytes_; }
  // Plan::needed of the plan in use; 0 without one.
  Bytes needed_bytes() const { return is_planned_ ? plan().needed : 0; }
  // Returns true if the plan in use needs at one time less memory than its offsets span,
  // so that granules move.
  bool moves_granules() const { return is_planned_ && plan().needed + options_.granule <= plan().bytes; }
  // Counters; the fields of memory are 0.
  const PlanStatistics& statistics() const { return statistics_; }

 private:
  static constexpr std::uint32_t none = 0xffffffffU;
  // First length of the record, in operations, at which a period is sought.
  static constexpr std::size_t first_look = 16;
  struct TicketState {
    std::uint64_t record = 0;  // number of the record in which the request stands; 0: in none
    std::size_t record_place = 0;
    Bytes offset = 0, bytes = 0;
    std::uint32_t request = none;  // index of the request in the plan, until the block is overdue
    bool has_offset = false;

    Bytes end() const { return offset + bytes; }
  };

  const Plan& plan() const { return plans_.back(); }
  bool is_recording() const { return is_marked_ || !is_planned_; }
  Ticket new_ticket(Bytes bytes);
  std::optional<Bytes> serve(Ticket ticket, Bytes bytes, std::uint64_t stream);
  std::uint32_t match(Bytes bytes, std::uint64_t stream);
  void advance(std::uint32_t request);
  bool meets_overdue(Bytes offset, Bytes bytes) const;
  void make_overdue(std::uint32_t request);
  void forget_place(const TicketState& state);
  void forget_requests();
  void restart();
  void count_miss();
  bool take_other_plan(Bytes bytes, std::uint64_t stream);
  void suspend();
  void finish_iteration();
  void keep_plan(Plan plan);
  void record(Ticket ticket, std::uint64_t stream);
  void look_for_period();
  void clear_record();
  std::uint64_t most_misses() const { return 8 + agreed_ / 16; }
  void update_bytes();

  ServerOptions options_;
  PlanStatistics statistics_;
  bool is_marked_ = false;  // begin_iteration was called

  std::vector<Plan> plans_;  // the most recently used plan comes last, and is in use if is_planned_
  bool is_planned_ = false;
  std::uint32_t next_ = 0;           // the request of the plan that is expected next
  std::uint32_t freed_ = 0;          // number of the plan's frees whose time has passed
  std::uint64_t misses_ = 0;         // requests of this iteration that differ from the plan
  std::uint64_t agreed_ = 0;         // requests of this iteration that match the plan
  bool in_step_ = true;              // each request of this iteration was the expected one
  std::vector<Ticket> tickets_of_;   // by request of the plan: the ticket of its block, or none
  std::map<Bytes, Ticket> overdue_;  // by offset: live blocks that the plan has freed by now, or never had

  Recorder recorder_;
  std::uint64_t record_number_ = 1;
  bool is_record_full_ = false;
  std::size_t next_look_ = first_look;  // length of the record at which a period is sought next
  std::size_t look_size_ = first_look;  // next_look_ for an empty record
  bool is_awaited_ = false;             // a period was found, and its next repetition begins at next_look_
  // Consecutive iterations that ended without a plan in use, idle ones not counted.
  std::uint64_t failed_in_row_ = 0;
  std::uint64_t idle_iterations_ = 0;  // iterations to let pass before a plan is made

  std::vector<TicketState> tickets_;
  std::vector<Ticket> unused_;
  Bytes bytes_ = 0;
};

}  // namespace stowage::caching::replay
