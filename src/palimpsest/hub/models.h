// Models on this machine by name: pulled ones, and those in Hugging Face's cache. Nothing here uses the network.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "palimpsest/hub/folder.h"

namespace palimpsest {

// The file of a model: `text` is a file's path, or a name (hub/names.h). nullopt: there is no such file or model.
std::optional<std::filesystem::path> find_model(const std::string& text);

// The same for what a user gave. A path goes through unchanged, so that the loader says what is wrong with it. Throws
// Error for a name: how to pull it, or the nearest one.
std::string resolve_model(const std::string& text);

// Removes a model, complete or not, with all files beside it; returns their bytes. Throws Error: no such model,
// several, or another process is pulling it. Files in Hugging Face's cache stay.
std::uint64_t remove_model(const std::string& text);

// The folders of what a name may mean, complete or not; the preferred one first.
std::vector<std::filesystem::path> folders_of(const std::string& text);

}  // namespace palimpsest
