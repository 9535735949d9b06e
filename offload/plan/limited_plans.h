// Plans of a schedule that was made under a byte limit (limited_schedule.h): places for its lifetimes.
#pragma once

#include <functional>

#include "offload/plan/limited_schedule.h"

namespace stowage {

// Placement by position, as complete() does it; and by time, of few lifetimes. By time an arena of no more
// than the sketch's peak is looked for first, with prefetches as soon as they may start, or else as late; or
// else of other orders that take as long, and of choices that are one or two changes away. Where there is
// none, an arena of up to twice the peak, as small as is found, and schedules that take somewhat longer.
// Offers each plan within the sketch's limit: within it bytes are as scarce as they were for the schedule.
// By time the search ends with a plan of at most `most` bytes that takes as long as the sketch says; else it
// goes on, so what is offered for more bytes is no slower.
void complete_each(const LimitedScheduler& scheduler, const LimitedSketch& sketch, Bytes most,
                   const std::function<void(Plan)>& offer);

}  // namespace stowage
