// Flags of the benches that print JSON: `--name value`. Unknown flags are an error.
#pragma once

#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "palimpsest/cache/formats/formats.h"
#include "palimpsest/core/cache_type.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/parse.h"
#include "palimpsest/core/types.h"

namespace palimpsest::bench {

inline std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i <= text.size();) {
    const std::size_t end = std::min(text.find(at, i), text.size());
    parts.push_back(text.substr(i, end - i));
    i = end + 1;
  }
  return parts;
}

class Flags {
 public:
  Flags(int argc, char** argv) {
    for (int i = 1; i < argc; i += 2) {
      if (i + 1 == argc) fail("{}: a value is missing", argv[i]);
      given_[argv[i]] = argv[i + 1];
    }
  }

  std::string text(const std::string& name, const std::string& fallback) {
    const auto it = given_.find(name);
    if (it == given_.end()) return fallback;
    const std::string value = it->second;
    given_.erase(it);
    return value;
  }
  int number(const std::string& name, int fallback) {
    return static_cast<int>(parse_integer(text(name, std::to_string(fallback)), name, 0, 1'000'000));
  }
  CacheType type(const std::string& name, CacheType fallback) {
    const std::string value = text(name, "");
    if (value.empty()) return fallback;
    const CacheType type = parse_cache_type(value, name);
    if (!kv_format(type).elementwise()) fail("{} {}: use f32, f16 or bf16", name, value);
    return type;
  }
  void done(const char* where) const {
    if (!given_.empty()) fail("{}: unknown; see the head of {}", given_.begin()->first, where);
  }
  // "1x64x128,8x64x64"
  static std::vector<std::array<int, 3>> triples(const std::string& name, const std::string& text) {
    std::vector<std::array<int, 3>> out;
    for (const std::string& each : split(text, ',')) {
      const auto numbers = split(each, 'x');
      if (numbers.size() != 3) fail("{} {}: use NxNxN,...", name, each);
      out.emplace_back();
      for (std::size_t i = 0; i < 3; ++i) out.back()[i] = static_cast<int>(parse_integer(numbers[i], name, 1, 1 << 20));
    }
    return out;
  }

 private:
  std::map<std::string, std::string> given_;
};

// A bench's main(): `run` reads the flags and prints; an Error becomes one line and exit code 2.
template <typename Run>
int bench_main(const char* name, int argc, char** argv, Run run) {
  try {
    Flags flags(argc, argv);
    run(flags);
    return 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s: %s\n", name, e.what());
    return 2;
  }
}

}  // namespace palimpsest::bench
