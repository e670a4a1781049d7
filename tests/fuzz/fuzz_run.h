// The loop of the fuzzers: input i follows from the seed and i alone; a crash names its input.
//
//   fuzz_X --runs 1000000 [--seed S]
//   fuzz_X --only I [--seed S] [--write FILE]    one input again, verbosely
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/fuzz/mutator.h"

namespace palimpsest::testing {

struct FuzzReport {
  bool accepted = false;  // and used
  std::string complaint;  // the first Error's message
};

struct FuzzTarget {
  std::string name;                                    // of the program
  std::vector<Mutator> files = {};                     // without faults
  std::function<void(Bytes&)> repair = [](Bytes&) {};  // after the damage: checksums
  // Input `i`, made of file `which`. Throws, but for Error, what is a fault of the program.
  std::function<FuzzReport(const Bytes&, std::size_t which, long long i)> load = {};
};

// The program: its exit code.
int fuzz_main(int count, char** arguments, const std::function<FuzzTarget()>& make);

}  // namespace palimpsest::testing
