#include "src/device/simulated/event_table.h"

#include <gtest/gtest.h>

#include "stowage/error.h"

namespace stowage::simulated {
namespace {

TEST(EventTable, HoldsTheMostRecentSignalOnly) {
  Signals signals;
  EventTable events(signals);
  const EventId event = events.create();
  EXPECT_FALSE(events.signal(event, "query"));
  const SignalId first = signals.acquire(0), second = signals.acquire(0);
  events.set(event, first);
  EXPECT_EQ(events.signal(event, "query"), first);
  events.set(event, second);
  EXPECT_EQ(events.signal(event, "query"), second);
  EXPECT_EQ(signals.acquire(0), first);  // given back
  events.destroy(event, "destroy_event");
  EXPECT_EQ(signals.acquire(0), second);
}

TEST(EventTable, NamesTheCallAndTheUnknownEvent) {
  Signals signals;
  EventTable events(signals);
  const EventId event = events.create();
  events.destroy(event, "destroy_event");
  try {
    events.expect(event, "record");
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("record: there is no event 0"), std::string::npos);
  }
  EXPECT_THROW(events.destroy(event, "destroy_event"), InvalidInput);
  EXPECT_EQ(events.create(), event);
  EXPECT_FALSE(events.signal(event, "query"));  // fresh
}

}  // namespace
}  // namespace stowage::simulated
