// Expects InvalidInput whose message contains the given words.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "stowage/error.h"

namespace stowage::test {

template <class Action>
void expect_refused(Action&& action, const std::string& words) {
  try {
    action();
    ADD_FAILURE() << "accepted, instead of refused with: " << words;
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(words));
  }
}

}  // namespace stowage::test
