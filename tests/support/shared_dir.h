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

// The repository's model, which answers questions about facts in its context (models/README.md). Every clone has it.
std::string default_model();

// A trained model of shared/models with a vocabulary of another kind; std::nullopt without the shared data. The test
// then skips: kNeedsStories260K.
std::optional<std::string> stories260k();
inline constexpr const char* kNeedsStories260K = "needs shared/models/stories260K (set PALIMPSEST_SHARED)";

// The root of the source tree.
std::filesystem::path source_dir();

}  // namespace palimpsest::testing
