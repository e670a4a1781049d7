#pragma once

#include <filesystem>
#include <optional>

namespace palimpsest::testing {

// Where test data lies that is too large for the repository: $PALIMPSEST_SHARED, else the folder `shared` beside the
// clone. Nothing if there is none: the test skips by name,
//   const auto dir = shared_dir();
//   if (!dir) GTEST_SKIP() << "needs shared/models (set PALIMPSEST_SHARED)";
std::optional<std::filesystem::path> shared_dir();

// The root of the source tree.
std::filesystem::path source_dir();

}  // namespace palimpsest::testing
