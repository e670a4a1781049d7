#include "palimpsest/server/sessions.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string_view>

#include "palimpsest/core/error.h"
#include "palimpsest/core/new_file.h"

namespace palimpsest {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kSuffix = ".session";

// "story" of "story.session"; empty: not a session file.
std::string name_of(const fs::path& file) {
  const std::string name = file.filename().string();
  if (!name.ends_with(kSuffix)) return {};
  const std::string stem = name.substr(0, name.size() - kSuffix.size());
  return Sessions::is_name(stem) ? stem : std::string();
}

[[noreturn]] void not_found(const std::string& name) {
  throw ApiError(404, "invalid_request_error", fmt::format("there is no session '{}'", name), "session",
                 "session_not_found");
}

}  // namespace

bool Sessions::is_name(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= 64 && name.front() != '.' && std::ranges::all_of(name, allowed);
}

Sessions::Sessions(std::string folder, std::size_t max_bytes) : folder_(std::move(folder)), max_bytes_(max_bytes) {
  std::error_code error;
  if (!fs::is_directory(folder_, error) || ::access(folder_.c_str(), R_OK | W_OK | X_OK) != 0)
    fail("--session-path {}: must be a folder that this user may write", folder_);
  for (const auto& file : fs::directory_iterator(folder_))
    if (const std::string name = file.path().filename().string();
        name.find(kSuffix) != std::string::npos && NewFile::is_temporary(name))
      NewFile::remove_abandoned(file.path().string());
}

std::string Sessions::path(const std::string& name) const {
  return folder_ + "/" + name + std::string(kSuffix);
}

// null: the file was removed meanwhile.
Json Sessions::json(const std::string& name) const {
  std::error_code error;
  const auto bytes = fs::file_size(path(name), error);
  if (error) return nullptr;
  const auto written = fs::last_write_time(path(name), error);
  if (error) return nullptr;
  const auto time = std::chrono::file_clock::to_sys(written).time_since_epoch();
  return {{"id", name},
          {"object", "session"},
          {"created", std::chrono::duration_cast<std::chrono::seconds>(time).count()},
          {"bytes", bytes}};
}

Json Sessions::list() const {
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(folder_))
    if (std::string name = name_of(file.path()); !name.empty()) names.push_back(std::move(name));
  std::ranges::sort(names);
  Json all = Json::array();
  for (const std::string& name : names)
    if (Json one = json(name); !one.is_null()) all.push_back(std::move(one));
  return all;
}

Json Sessions::save(const std::string& name, const KeptSequence& sequence) {
  const std::lock_guard lock(mutex_);
  std::size_t others = 0;
  for (const Json& each : list())
    if (each["id"] != name) others += each["bytes"].get<std::size_t>();
  const std::size_t left = max_bytes_ - std::min(others, max_bytes_);
  try {
    if (!write_snapshot(
            path(name), [&](ByteWriter& out) { sequence.write(out); }, left))
      throw ApiError(507, "server_error",
                     fmt::format("the session needs more than {} bytes, others have {} and all may have {} "
                                 "(--session-space): delete some, or choose a smaller budget",
                                 left, others, max_bytes_),
                     "session.save", "session_space");
  } catch (const Error& error) {  // a disk error, not the client's
    throw ApiError(507, "server_error", error.what(), "session.save", "session_space");
  }
  return json(name);
}

std::shared_ptr<const Snapshot> Sessions::open(const std::string& name, const Model& model) const {
  std::error_code error;
  if (!fs::exists(path(name), error)) not_found(name);
  return std::make_shared<const Snapshot>(path(name), model, "session '" + name + "'");
}

void Sessions::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  std::error_code error;
  if (!fs::remove(path(name), error)) not_found(name);
}

}  // namespace palimpsest
