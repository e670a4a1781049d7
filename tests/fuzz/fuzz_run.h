// The loop of the fuzzers. Input i depends on the seed and i only; a crash names its input.
//
//   fuzz_X --runs 1000000 [--seed S]
//   fuzz_X --only I [--seed S] [--write FILE]    repeats one input, verbosely
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/fuzz/mutator.h"

namespace palimpsest::testing {

struct FuzzReport {
  bool accepted = false;  // loaded and used
  std::string complaint;  // the first Error's message
};

struct FuzzTarget {
  std::string name;                                    // of the program
  std::vector<Mutator> files = {};                     // valid
  std::function<void(Bytes&)> repair = [](Bytes&) {};  // repairs checksums after the damage
  // Runs input `i`, made from file `which`. Any exception that it throws is a fault of the program.
  std::function<FuzzReport(const Bytes&, std::size_t which, long long i)> load = {};
};

// The main program; returns its exit code.
int fuzz_main(int count, char** arguments, const std::function<FuzzTarget()>& make);

}  // namespace palimpsest::testing
