#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace palimpsest::testing {

// The folder of test data that is too large for the repository: $PALIMPSEST_SHARED, else the folder `shared` beside the
// clone. std::nullopt if there is none; then the test skips with the reason:
//   const auto dir = shared_dir();
//   if (!dir) GTEST_SKIP() << "needs shared/models (set PALIMPSEST_SHARED)";
std::optional<std::filesystem::path> shared_dir();

// A small trained model: stories260K if the shared data is there, else the one in the repository.
std::string small_model();

// The root of the source tree.
std::filesystem::path source_dir();

}  // namespace palimpsest::testing
