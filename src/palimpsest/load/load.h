// The requests of a load benchmark: prompts, output lengths, arrival times.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

struct LoadRequest {
  std::vector<TokenId> prompt;  // token ids,
  std::string text = {};        // or text if there are none
  long long output = 128;       // tokens to generate, ignoring end-of-text tokens
  double at = 0;                // arrival, seconds after the start of the load
  // Requests of one session stand one after the other; each is sent `think` seconds after the answer before it, the
  // first at its arrival. -1: a session of its own.
  int session = -1;
  double think = 0;
  long long repeated = -1;  // prompt tokens that an earlier prompt of the session begins with; -1: unknown
};

struct Lengths {
  long long input = 1024, output = 128;  // tokens
  long long prefix = 0;                  // shared prefix of all prompts, before the input (random_load only)
};

// `count` prompts of random tokens in [from, to).
std::vector<LoadRequest> random_load(int count, const Lengths& lengths, TokenId from, TokenId to, std::uint32_t seed);

// Parses JSON lines:
//   {"prompt": "text" or [tokens], "output_len": 200, "at": 1.5}
//   {"input_len": 1024, "output_len": 200}                          1,024 random tokens
// `fallback` gives lengths that a line omits; `at` is in all lines or in none. Throws Error that names `path` and the
// line.
struct RecordedLoad {
  std::vector<LoadRequest> requests;
  bool timed = false;  // the lines have arrival times
};
RecordedLoad recorded_load(std::string_view lines, const std::string& path, const Lengths& fallback, TokenId from,
                           TokenId to, std::uint32_t seed);

// Whether a request begins a session.
bool begins_session(const std::vector<LoadRequest>& requests, std::size_t index);

// Sets arrival times of a Poisson process with `per_second` sessions per second; infinity: all at 0.
void set_arrival_times(std::vector<LoadRequest>& requests, double per_second, std::uint32_t seed);

}  // namespace palimpsest
