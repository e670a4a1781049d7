// Recorded sessions of agents, without their texts: lengths, times, and hashes of the blocks that repeat.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/load/load.h"

namespace palimpsest {

struct TraceOptions {
  double scale = 1;        // factor of the lengths of blocks, prompts and answers
  double think_scale = 1;  // factor of the pauses between an answer and the next request; 0: none
  int sessions = 0;        // only the first of the trace; 0: all
  long long max_len = 0;   // drops requests with more prompt and output tokens; 0: none
};

// Parses JSON lines, one session each (the format of kv-cache-tester):
//   {"block_size": 64, "hash_id_scope": "local" or "global",
//    "requests": [{"in": 150, "out": 20, "hash_ids": [1, 2], "think_time": 3.5}, {"requests": [of a sub-agent]}, ...]}
// A prompt has `in` tokens. `hash_ids` name its blocks: the same id in the session (local), or in the trace (global),
// is the same text, here tokens in [from, to) that depend on the id, the session and `seed`. Tokens behind the last
// block are the beginning of the block that a later prompt with the same blocks has there, else of none. Requests of a
// session are sent one after the other, those of sub-agents where they are recorded; fields that are not named here
// are ignored. Throws Error that names `path` and the line.
std::vector<LoadRequest> recorded_sessions(std::string_view lines, const std::string& path, const TraceOptions& options,
                                           TokenId from, TokenId to, std::uint32_t seed);

}  // namespace palimpsest
