// Plan JSON as older versions of the program wrote it.
#pragma once

#include <nlohmann/json.hpp>

#include "stowage/plan.h"

namespace stowage::testing {

// The plan as version 4 wrote it, which knew no updates in backward for good: the plan must have none.
inline nlohmann::json in_version_4(const Plan& plan) {
  nlohmann::json json = nlohmann::json::parse(to_json(plan));
  json["version"] = 4;
  for (const char* key : {"optimizer_in_backward", "ring_bytes"}) json.erase(key);
  return json;
}

// The plan as version 3 wrote it, which knew no speculated updates: the plan must have none.
inline nlohmann::json in_version_3(const Plan& plan) {
  nlohmann::json json = in_version_4(plan);
  json["version"] = 3;
  for (const char* key : {"undo_bytes", "half_clipped_seconds", "clipped_seconds"}) json.erase(key);
  return json;
}

inline nlohmann::json in_version_2(const Plan& plan) {
  nlohmann::json json = in_version_3(plan);
  json["version"] = 2;
  for (nlohmann::json& bucket : json["buckets"]) {
    const nlohmann::json places = bucket["places"];
    bucket.erase("places");
    bucket["on_host"] = !places.empty();
    bucket["pinned"] = !places.empty() && places[0]["pinned"] == true;
  }
  for (nlohmann::json& instruction : json["instructions"])
    if (instruction["kind"] == "gate" || instruction["kind"] == "commit")
      instruction["kind"] = instruction["lane"] == "host" ? "host_step" : "launch";
  return json;
}

}  // namespace stowage::testing
