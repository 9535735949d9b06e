#include "allocator/planned_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace stowage {
namespace {

constexpr std::uint64_t most_idle_shift = 6;  // at most 64 iterations

bool agrees(const PlannedRequest& request, Bytes bytes, std::uint64_t stream) {
  return request.bytes == bytes && request.stream == stream;
}

}  // namespace

void PlannedPool::begin_iteration() {
  if (is_marked_) {
    finish_iteration();
  } else {
    suspend();
    is_marked_ = true;
  }
  clear_log();
  forget_requests();
  is_planned_ = !plans_.empty();
  restart();
}

PlannedPool::Block PlannedPool::allocate(Bytes bytes, std::uint64_t stream) {
  if (!is_marked_ && !is_planned_ && log_.size() >= next_look_) look_for_period();
  Block block{new_ticket(bytes), std::nullopt};
  if (is_planned_) block.offset = serve(block.ticket, bytes, stream);
  if (is_marked_ || !is_planned_) record(block.ticket, stream);
  return block;
}

void PlannedPool::free(Ticket ticket) {
  TicketState& state = tickets_[ticket];
  if (is_marked_ || !is_planned_) {
    if (!log_is_full_) log_.free(state.log == log_number_ ? state.log_place : RequestLog::no_place);
  }
  if (state.has_offset) {
    if (state.request != none) {
      tickets_of_[state.request] = none;
    } else {
      overdue_.erase(state.offset);
    }
    if (!is_planned_ && state.end() == bytes_) update_bytes();
  }
  unused_.push_back(ticket);
}

void PlannedPool::decline(Ticket ticket) {
  TicketState& state = tickets_[ticket];
  if (state.request != none) {
    tickets_of_[state.request] = none;
  } else {
    overdue_.erase(state.offset);
  }
  state.request = none;
  state.has_offset = false;
  --statistics_.hits;
  count_miss();
}

void PlannedPool::reject_plan() {
  if (!is_planned_) return;
  if (is_marked_) plans_.pop_back();
  forget_requests();
  suspend();
}

void PlannedPool::drop_plans() {
  suspend();
  plans_.clear();
  update_bytes();
}

PlannedPool::Ticket PlannedPool::new_ticket(Bytes bytes) {
  Ticket ticket = static_cast<Ticket>(tickets_.size());
  if (unused_.empty()) {
    tickets_.emplace_back();
  } else {
    ticket = unused_.back();
    unused_.pop_back();
    tickets_[ticket] = {};
  }
  tickets_[ticket].bytes = bytes;
  return ticket;
}

std::optional<Bytes> PlannedPool::serve(Ticket ticket, Bytes bytes, std::uint64_t stream) {
  if (!is_marked_ && next_ == plan().requests.size()) restart();
  const std::uint32_t request = match(bytes, stream);
  if (request == none) {
    count_miss();
    return std::nullopt;
  }
  advance(request);
  ++agreed_;
  const PlannedRequest& planned = plan().requests[request];
  if (!planned.has_offset) {
    ++statistics_.unplanned;
    return std::nullopt;
  }
  if (meets_overdue(planned.offset, bytes)) {
    count_miss();
    return std::nullopt;
  }
  TicketState& state = tickets_[ticket];
  state.offset = planned.offset;
  state.request = request;
  state.has_offset = true;
  tickets_of_[request] = ticket;
  ++statistics_.hits;
  return planned.offset;
}

// The plan's request that this is: the next one, of this plan or of another that was the same so far; or one
// of those that follow.
std::uint32_t PlannedPool::match(Bytes bytes, std::uint64_t stream) {
  const std::vector<PlannedRequest>& requests = plan().requests;
  if (next_ < requests.size() && agrees(requests[next_], bytes, stream)) return next_;
  if (take_other_plan(bytes, stream)) return next_;
  in_step_ = false;
  const std::size_t end = std::min(requests.size(), next_ + 1 + options_.look_ahead);
  for (std::size_t i = std::size_t{next_} + 1; i < end; ++i) {
    if (agrees(requests[i], bytes, stream)) return static_cast<std::uint32_t>(i);
  }
  return none;
}

// To the moment at which the plan makes the request: what it has freed by then is overdue where it is there.
void PlannedPool::advance(std::uint32_t request) {
  next_ = request + 1;
  for (const std::uint32_t end = plan().frees_before[request]; freed_ < end; ++freed_)
    make_overdue(plan().frees[freed_]);
}

// What the plan takes for live is apart from a request by the plan itself.
bool PlannedPool::meets_overdue(Bytes offset, Bytes bytes) const {
  const auto above = overdue_.lower_bound(offset);
  if (above != overdue_.end() && above->first < offset + bytes) return true;
  return above != overdue_.begin() && tickets_[std::prev(above)->second].end() > offset;
}

void PlannedPool::make_overdue(std::uint32_t request) {
  const Ticket ticket = std::exchange(tickets_of_[request], none);
  if (ticket == none) return;
  tickets_[ticket].request = none;
  overdue_.emplace(tickets_[ticket].offset, ticket);
}

void PlannedPool::forget_requests() {
  for (std::uint32_t i = 0; i < tickets_of_.size(); ++i) make_overdue(i);
}

// From the first request of the plan on, if there is one.
void PlannedPool::restart() {
  forget_requests();
  tickets_of_.assign(is_planned_ ? plan().requests.size() : 0, none);
  next_ = freed_ = 0;
  misses_ = agreed_ = 0;
  in_step_ = true;
  update_bytes();
}

void PlannedPool::count_miss() {
  ++statistics_.misses;
  if (++misses_ > most_misses()) suspend();
}

bool PlannedPool::take_other_plan(Bytes bytes, std::uint64_t stream) {
  if (!in_step_) return false;
  const auto is_the_same = [](const PlannedRequest& a, const PlannedRequest& b) {
    return agrees(a, b.bytes, b.stream);
  };
  const auto begin = plan().requests.begin(), end = begin + next_;
  for (std::size_t i = plans_.size() - 1; i-- > 0;) {
    const std::vector<PlannedRequest>& other = plans_[i].requests;
    if (other.size() <= next_ || !agrees(other[next_], bytes, stream)) continue;
    if (!std::equal(begin, end, other.begin(), is_the_same)) continue;
    forget_requests();
    std::rotate(plans_.begin() + static_cast<std::ptrdiff_t>(i),
                plans_.begin() + static_cast<std::ptrdiff_t>(i) + 1, plans_.end());
    tickets_of_.assign(plan().requests.size(), none);
    freed_ = plan().frees_before[next_];
    return true;
  }
  return false;
}

// Blocks stay where they are; nothing new is put there until there is a plan again.
void PlannedPool::suspend() {
  if (!is_planned_) return;
  is_planned_ = false;
  forget_requests();
  if (!is_marked_) {
    plans_.clear();
    look_size_ = std::min(2 * look_size_, options_.most_recorded);
    clear_log();
  }
  update_bytes();
}

void PlannedPool::finish_iteration() {
  if (is_planned_) {
    failed_in_row_ = 0;
    return;
  }
  if (idle_iterations_ > 0) {
    --idle_iterations_;
    return;
  }
  if (log_is_full_) return;
  PoolPlan made = make_pool_plan(log_.window(), options_.alignment, options_.granule);
  if (made.empty()) return;
  if (++failed_in_row_ > options_.most_plans)
    idle_iterations_ = std::uint64_t{1} << std::min(failed_in_row_ - options_.most_plans, most_idle_shift);
  keep_plan(std::move(made));
}

void PlannedPool::keep_plan(PoolPlan plan) {
  if (plans_.size() == options_.most_plans) plans_.erase(plans_.begin());
  plans_.push_back(std::move(plan));
  ++statistics_.plans;
  is_planned_ = true;
  restart();
}

void PlannedPool::record(Ticket ticket, std::uint64_t stream) {
  if (log_.size() >= options_.most_recorded) {
    log_is_full_ = is_marked_;
    if (!is_marked_) clear_log();
  }
  if (log_is_full_) return;
  tickets_[ticket].log = log_number_;
  tickets_[ticket].log_place = log_.allocate(tickets_[ticket].bytes, stream);
}

// At sizes that double, so that all looks together take linear time; and where a period that was found begins
// anew: in its midst, what the plan holds would be there beside blocks of requests that it holds too.
void PlannedPool::look_for_period() {
  const bool was_awaited = std::exchange(is_awaited_, false);
  next_look_ = 2 * log_.size();
  const auto period = log_.period();
  if (!period) return;
  if (period->next_request > 0) {
    is_awaited_ = !was_awaited;
    if (is_awaited_) next_look_ = log_.size() + period->left;
    return;
  }
  PoolPlan made = make_pool_plan(period->requests, options_.alignment, options_.granule);
  if (made.empty()) return;
  keep_plan(std::move(made));
  clear_log();
}

void PlannedPool::clear_log() {
  log_.clear();
  ++log_number_;
  log_is_full_ = false;
  next_look_ = look_size_;
  is_awaited_ = false;
}

void PlannedPool::update_bytes() {
  bytes_ = 0;
  if (is_planned_) {
    for (const PoolPlan& kept : plans_) bytes_ = std::max(bytes_, kept.bytes);
  }
  if (!overdue_.empty()) bytes_ = std::max(bytes_, tickets_[overdue_.rbegin()->second].end());
}

}  // namespace stowage
