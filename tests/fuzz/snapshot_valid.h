// Snapshots without faults, to be damaged: of every kind of policy, mechanism, position and cache type, small.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "palimpsest/engine/session.h"
#include "tests/fuzz/mutator.h"

namespace palimpsest::testing {

struct ValidSnapshot {
  std::string name;  // model, method and type, for messages
  std::shared_ptr<Decoder> decoder;
  SessionOptions options;
  Bytes bytes;  // without the checksum
  Layout layout;
};
std::vector<ValidSnapshot> valid_snapshots();

}  // namespace palimpsest::testing
