#include "allocator/replay/server.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace stowage::caching::replay {
namespace {

constexpr std::uint64_t most_idle_shift = 6;  // a suspended server idles for at most 2^6 iterations

bool agrees(const PlannedRequest& request, Bytes bytes, std::uint64_t stream) {
  return request.bytes == bytes && request.stream == stream;
}

}  // namespace

void Server::begin_iteration() {
  if (is_marked_) {
    finish_iteration();
  } else {
    suspend();
    is_marked_ = true;
  }
  clear_record();
  forget_requests();
  is_planned_ = !plans_.empty();
  restart();
}

Server::Answer Server::allocate(Bytes bytes, std::uint64_t stream) {
  if (!is_marked_ && !is_planned_ && recorder_.size() >= next_look_) look_for_period();
  Answer answer{new_ticket(bytes), std::nullopt};
  if (is_planned_) answer.offset = serve(answer.ticket, bytes, stream);
  if (is_recording()) record(answer.ticket, stream);
  return answer;
}

void Server::free(Ticket ticket) {
  TicketState& state = tickets_[ticket];
  if (is_recording() && !is_record_full_)
    recorder_.free(state.record == record_number_ ? state.record_place : Recorder::no_place);
  if (state.has_offset) {
    forget_place(state);
    if (!is_planned_ && state.end() == bytes_) update_bytes();
  }
  unused_.push_back(ticket);
}

void Server::decline(Ticket ticket) {
  TicketState& state = tickets_[ticket];
  forget_place(state);
  state.request = none;
  state.has_offset = false;
  --statistics_.hits;
  count_miss();
}

void Server::reject_plan() {
  if (!is_planned_) return;
  if (is_marked_) plans_.pop_back();
  forget_requests();
  suspend();
}

void Server::drop_plans() {
  suspend();
  plans_.clear();
  update_bytes();
}

Server::Ticket Server::new_ticket(Bytes bytes) {
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

std::optional<Bytes> Server::serve(Ticket ticket, Bytes bytes, std::uint64_t stream) {
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

// Returns the plan's request that agrees: the next one, of this plan or of another that was the same so far;
// or one of the `look_ahead` behind it. `none` if there is none.
std::uint32_t Server::match(Bytes bytes, std::uint64_t stream) {
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

// Moves the plan's time on to the request. Live blocks that the plan has freed by then become overdue.
void Server::advance(std::uint32_t request) {
  next_ = request + 1;
  for (const std::uint32_t end = plan().frees_before[request]; freed_ < end; ++freed_)
    make_overdue(plan().frees[freed_]);
}

// Blocks that are live in the plan too need no check: the plan places requests apart from them.
bool Server::meets_overdue(Bytes offset, Bytes bytes) const {
  const auto above = overdue_.lower_bound(offset);
  if (above != overdue_.end() && above->first < offset + bytes) return true;
  return above != overdue_.begin() && tickets_[std::prev(above)->second].end() > offset;
}

void Server::make_overdue(std::uint32_t request) {
  const Ticket ticket = std::exchange(tickets_of_[request], none);
  if (ticket == none) return;
  tickets_[ticket].request = none;
  overdue_.emplace(tickets_[ticket].offset, ticket);
}

void Server::forget_place(const TicketState& state) {
  if (state.request != none) {
    tickets_of_[state.request] = none;
  } else {
    overdue_.erase(state.offset);
  }
}

void Server::forget_requests() {
  for (std::uint32_t i = 0; i < tickets_of_.size(); ++i) make_overdue(i);
}

// Expects the first request of the plan, if there is one.
void Server::restart() {
  forget_requests();
  tickets_of_.assign(is_planned_ ? plan().requests.size() : 0, none);
  next_ = freed_ = 0;
  misses_ = agreed_ = 0;
  in_step_ = true;
  update_bytes();
}

void Server::count_miss() {
  ++statistics_.misses;
  if (++misses_ > most_misses()) suspend();
}

bool Server::take_other_plan(Bytes bytes, std::uint64_t stream) {
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

// Blocks stay where they are, and requests get no offsets until a plan is in use again.
void Server::suspend() {
  if (!is_planned_) return;
  is_planned_ = false;
  forget_requests();
  if (!is_marked_) {
    plans_.clear();
    look_size_ = std::min(2 * look_size_, options_.most_recorded);
    clear_record();
  }
  update_bytes();
}

void Server::finish_iteration() {
  if (is_planned_) {
    failed_in_row_ = 0;
    return;
  }
  if (idle_iterations_ > 0) {
    --idle_iterations_;
    return;
  }
  if (is_record_full_) return;
  Plan made = make_plan(recorder_.requests(), options_.alignment, options_.granule);
  if (made.empty()) return;
  if (++failed_in_row_ > options_.most_plans)
    idle_iterations_ = std::uint64_t{1} << std::min(failed_in_row_ - options_.most_plans, most_idle_shift);
  keep_plan(std::move(made));
}

void Server::keep_plan(Plan plan) {
  if (plans_.size() == options_.most_plans) plans_.erase(plans_.begin());
  plans_.push_back(std::move(plan));
  ++statistics_.plans;
  is_planned_ = true;
  restart();
}

void Server::record(Ticket ticket, std::uint64_t stream) {
  if (recorder_.size() >= options_.most_recorded) {
    is_record_full_ = is_marked_;
    if (!is_marked_) clear_record();
  }
  if (is_record_full_) return;
  tickets_[ticket].record = record_number_;
  tickets_[ticket].record_place = recorder_.allocate(tickets_[ticket].bytes, stream);
}

// The record is searched each time its size has doubled, so that all searches together take linear time. A
// plan is used from where its period begins anew: begun midway, the plan's memory would be mapped beside
// blocks of the same requests.
void Server::look_for_period() {
  const bool was_awaited = std::exchange(is_awaited_, false);
  next_look_ = 2 * recorder_.size();
  const auto period = recorder_.period();
  if (!period) return;
  if (period->next_request > 0) {
    is_awaited_ = !was_awaited;
    if (is_awaited_) next_look_ = recorder_.size() + period->left;
    return;
  }
  Plan made = make_plan(period->requests, options_.alignment, options_.granule);
  if (made.empty()) return;
  keep_plan(std::move(made));
  clear_record();
}

void Server::clear_record() {
  recorder_.clear();
  ++record_number_;
  is_record_full_ = false;
  next_look_ = look_size_;
  is_awaited_ = false;
}

void Server::update_bytes() {
  bytes_ = 0;
  if (is_planned_) {
    for (const Plan& kept : plans_) bytes_ = std::max(bytes_, kept.bytes);
  }
  if (!overdue_.empty()) bytes_ = std::max(bytes_, tickets_[overdue_.rbegin()->second].end());
}

}  // namespace stowage::caching::replay
