#include "offload/plan/prices.h"

#include <gtest/gtest.h>

namespace stowage {
namespace {

TEST(Prices, ATransferCostsMoreWhereTheDeviceComputesWithTheHostsCores) {
  PlannerSettings settings;
  settings.transfer_risk = 0.5;
  settings.transfer_risk_on_cores = 4;
  Machine card;
  card.h2d.latency_seconds = 2;
  EXPECT_EQ(transfer_price(card, settings), 1);
  for (double Machine::*kept :
       {&Machine::compute_beside_copy, &Machine::compute_beside_host, &Machine::host_beside_compute}) {
    Machine on_cores = card;
    on_cores.*kept = 0.9;
    EXPECT_EQ(transfer_price(on_cores, settings), 8);
  }
}

}  // namespace
}  // namespace stowage
