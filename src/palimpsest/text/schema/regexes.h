// The compiled regular expressions of one schema.
#pragma once

#include <map>
#include <string>

#include "palimpsest/text/schema/regex.h"

namespace palimpsest::schema {

class Regexes {
 public:
  explicit Regexes(Work& work) : work_(work) {}
  // Throws Error for a pattern that is not supported, the same each time.
  const Dfa& get(const std::string& pattern) {
    const auto [at, made] = known_.try_emplace(pattern);
    if (made) {
      work_.spend(5000);
      try {
        at->second.dfa = compile_regex(pattern, work_);
      } catch (const Error& error) {
        at->second.error = error.what();
      }
    }
    if (!at->second.error.empty()) throw Error(at->second.error);
    return at->second.dfa;
  }
  Work& work() { return work_; }

 private:
  struct Entry {
    Dfa dfa;
    std::string error;
  };
  Work& work_;
  std::map<std::string, Entry> known_;
};

}  // namespace palimpsest::schema
