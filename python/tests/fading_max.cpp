// What docs/write-a-policy.md's policy keeps, in C++: fading_max MODEL METHOD STEPS TOKEN... reads the tokens, writes
// STEPS more of the highest logits, and prints them, the positions that every head kept, and the time of a step.
#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {
PolicyEntry policy_entry_fading_max(std::string_view name);  // of the page; CMakeLists.txt copies it from there
}

using namespace palimpsest;

int main(int argc, char** argv) try {
  if (argc < 5) fail("usage: fading_max MODEL METHOD STEPS TOKEN...");
  register_policy(policy_entry_fading_max("fading-max"));
  std::vector<TokenId> prompt, written;
  for (int i = 4; i < argc; ++i) prompt.push_back(std::stoi(argv[i]));
  SessionOptions options;
  options.method = parse_method(argv[2]);
  Session session(std::make_shared<Decoder>(Model::load(argv[1]), 1), options);
  const auto best = [](std::span<const float> logits) {
    return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
  };
  TokenId token = best(session.prefill(prompt));
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < std::stoi(argv[3]); ++i) {
    written.push_back(token);
    token = best(session.decode(token));
  }
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  std::vector<std::vector<Position>> kept;
  for (int head = 0; head < session.cache().geometry().heads(); ++head) {
    const PositionView positions = session.cache().table(session.cache().table_of(head)).position();
    std::ranges::copy_if(positions, std::back_inserter(kept.emplace_back()),
                         [](Position p) { return p != kNoPosition; });
    std::ranges::sort(kept.back());
  }
  fmt::print("{{\"tokens\": [{}], \"kept\": {}, \"ms\": {}}}\n", fmt::join(written, ", "), kept,
             ms / static_cast<double>(written.size()));
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
