#include "tests/offload/oracle/search_bound.h"

namespace stowage::oracle {

double Bound::of(const Step& step, const Label& label, bool decided) {
  held_ = false;
  const double least = with_early(step, label, label.early);
  const UpdateMask open = decided ? 0 : step.undoable & ~label.early;
  if (!held_ || open == 0) return least;
  double best = least;
  for (UpdateMask more = open; more != 0; more = (more - 1) & open)
    best = std::min(best, with_early(step, label, label.early | more));
  return best;
}

double Bound::with_early(const Step& step, const Label& label, UpdateMask early) {
  double now = label.compute, h2d = label.h2d, d2h = label.d2h;
  double host = late_seconds(step, label.fetched & ~early);
  double least_load = no_time;
  ready_.assign(step.offloads.size(), 0);
  for (int i = 0; i < label.done; ++i)  // ended, but for the last
    for (int id : step.compute[static_cast<std::size_t>(i)].offloads) {
      const Offload& offload = step.offloads[static_cast<std::size_t>(id)];
      if (started(label.offloaded, id)) {
        ready_[static_cast<std::size_t>(id)] = id == label.last_offload ? label.d2h : 0;
        continue;
      }
      const double begin = std::max(label.d2h, i + 1 == label.done ? label.compute : 0);
      ready_[static_cast<std::size_t>(id)] = begin + offload.seconds;
      d2h = std::max(d2h, i + 1 == label.done ? label.compute : 0) + offload.seconds;
    }
  for (std::size_t i = static_cast<std::size_t>(label.done); i < step.compute.size(); ++i) {
    const Compute& job = step.compute[i];
    for (int id : job.prefetches) {
      if (started(label.prefetched, id)) {
        if (id == label.last_prefetch) now = std::max(now, label.h2d);
        continue;
      }
      const Prefetch& prefetch = step.prefetches[static_cast<std::size_t>(id)];
      h2d += prefetch.seconds;
      if (prefetch.offload >= 0)
        now = std::max(now, ready_[static_cast<std::size_t>(prefetch.offload)] + prefetch.seconds);
      now = std::max(now, h2d);
      if (prefetch.updates == 0) continue;
      host += late_seconds(step, prefetch.updates & ~early);
      least_load = std::min(least_load, prefetch.seconds);
      held_ |= host + least_load > now;
      now = std::max(now, host + least_load);
    }
    now += job.seconds;
    for (int id : job.offloads) {
      const Offload& offload = step.offloads[static_cast<std::size_t>(id)];
      ready_[static_cast<std::size_t>(id)] = std::max(now, label.d2h) + offload.seconds;
      d2h = std::max(d2h, now) + offload.seconds;
    }
  }
  return std::max({now, d2h, updates_end(step, label, early)}) + step.gate_seconds;
}

double Bound::updates_end(const Step& step, Label label, UpdateMask early) const {
  label.early = early;
  update_early(step, early, no_time, label, [&](const Update& update) {
    const auto prefetch = static_cast<std::size_t>(update.prefetch);
    const double fetched = !started(label.prefetched, update.prefetch)
                               ? label.h2d + step.prefetches[prefetch].seconds
                           : update.prefetch == label.last_prefetch ? label.h2d
                                                                    : 0;
    return std::max(fetched, ready_[static_cast<std::size_t>(update.offload)]);
  });
  return std::max(label.updated_end, late_seconds(step, ~early));
}

}  // namespace stowage::oracle
