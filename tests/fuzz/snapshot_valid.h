// Small valid snapshots to damage: every kind of policy, mechanism, positions and cache type.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "palimpsest/engine/sequence/session.h"
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
