// Requests as clients would send them: lengths, and when they arrive.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

struct LoadRequest {
  std::vector<TokenId> prompt;  // tokens; or
  std::string text = {};        // words, if there are no tokens
  long long output = 128;       // tokens to write: all of them, past any end of text
  double at = 0;                // seconds after the load began
};

struct Lengths {
  long long input = 1024, output = 128;  // tokens
  long long prefix = 0;                  // before the input, the same of all requests (of random_load)
};

// `count` prompts of tokens drawn from [from, to).
std::vector<LoadRequest> random_load(int count, const Lengths& lengths, TokenId from, TokenId to, std::uint32_t seed);

// One JSON object a line:
//   {"prompt": "text" or [tokens], "output_len": 200, "at": 1.5}
//   {"input_len": 1024, "output_len": 200}                          as many random tokens
// What a line leaves out is that of `otherwise`; `at` stands in all lines or in none. Throws Error that names `path`
// and the line.
struct RecordedLoad {
  std::vector<LoadRequest> requests;
  bool timed = false;  // the lines say when
};
RecordedLoad recorded_load(std::string_view lines, const std::string& path, const Lengths& fallback, TokenId from,
                           TokenId to, std::uint32_t seed);

// A Poisson process of so many requests a second; infinity: all at once.
void arrive(std::vector<LoadRequest>& requests, double per_second, std::uint32_t seed);

}  // namespace palimpsest
