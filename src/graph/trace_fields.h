// What a trace's lines hold, field by field, and its first line (docs/trace.md).
#pragma once

#include <optional>
#include <string>

#include "src/graph/json_field.h"
#include "stowage/bytes.h"
#include "stowage/graph_builder.h"

namespace stowage {

inline constexpr Bytes most_trace_bytes = Bytes{1} << 60;  // of all tensors: sums stay far from 64 bits
inline constexpr double most_trace_seconds = 1e6;
inline constexpr const char* trace_remedy = "correct the line, docs/trace.md says what it may hold";

JsonSource source_of_trace_line(std::size_t line);

// InvalidInput that begins with the line.
[[noreturn]] void refuse_trace_line(std::size_t line, const std::string& why);

// Each throws InvalidInput that names line and field.
std::string trace_name(const JsonField& field);
double number_up_to(const JsonField& field, double most);
Bytes trace_bytes(const JsonField& field);  // from 1 to most_trace_bytes
std::int64_t trace_count(const JsonField& field);

inline constexpr std::int64_t typed_trace_version =
    2;  // knows "trained", "replayable", "type", "samples", "tokens"

struct TraceHeader {
  std::int64_t version = 1;
  std::string loss;
  std::string clip;  // empty: none
  std::optional<AdamW> optimizer;
  std::int64_t samples = 0, tokens = 0;  // of a step; 0: not known
};
TraceHeader read_trace_header(const JsonField& line);

}  // namespace stowage
