// Places that are free before a transfer needs them.
//
// Places decide which instructions wait for each other: a prefetch that could start early waits for what was
// last at its place. A placement goes as low as it can, whatever the order in time. Behind it each lifetime
// that a transfer fills or empties is moved, the largest first, to a place where nothing else is for some
// time before its prefetch may start, and behind its offload.
#pragma once

#include <vector>

#include "offload/plan/candidate.h"

namespace stowage {

// Offsets of the draft's lifetimes, from `offsets` that keep to `capacity`. The times for which places are to
// be free, in times of the transfer itself: `leads`, the most wanted one first. Where there is no place for
// the last of them either, a lifetime stays where it is. Residents, which are at the bottom, stay.
std::vector<Bytes> early_places(const Problem& problem, const Draft& draft, std::vector<Bytes> offsets,
                                Bytes capacity, const std::vector<double>& leads);

}  // namespace stowage
