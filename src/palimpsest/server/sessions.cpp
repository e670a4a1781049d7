#include "palimpsest/server/sessions.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "palimpsest/core/error.h"
#include "palimpsest/core/new_file.h"
#include "palimpsest/core/sha256.h"

namespace palimpsest {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kSuffix = ".session";

// "story" of "story.session"; empty: not a session file.
std::string name_of(const std::string& file) {
  if (!file.ends_with(kSuffix)) return {};
  const std::string stem = file.substr(0, file.size() - kSuffix.size());
  return Sessions::is_name(stem) ? stem : std::string();
}

[[noreturn]] void not_found(const std::string& name) {
  throw ApiError(404, "invalid_request_error", fmt::format("there is no session '{}'", name), "session",
                 "session_not_found");
}

// The folder is another server's or a network's, too: it may be gone.
[[noreturn]] void cannot_read(const std::error_code& error) {
  throw ApiError(503, "server_error",
                 fmt::format("the folder of sessions cannot be read ({}): try again later", error.message()), "session",
                 "sessions_unavailable");
}

// Names of the folder's entries. Throws 503.
std::vector<std::string> entries(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  if (error) cannot_read(error);
  return names;
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
  try {
    for (const std::string& name : entries(folder_))
      if (name.find(kSuffix) != std::string::npos && NewFile::is_temporary(name))
        NewFile::remove_abandoned(folder_ + "/" + name);
  } catch (const ApiError& unreadable) {
    fail("--session-path {}: {}", folder_, unreadable.what());
  }
}

std::string Sessions::path(const std::string& name) const {
  return folder_ + "/" + name + std::string(kSuffix);
}

// null: the file was removed meanwhile, or is not a regular file.
Json Sessions::json(const std::string& name) const {
  std::error_code error;
  if (!fs::is_regular_file(path(name), error)) return nullptr;
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
  for (const std::string& file : entries(folder_))
    if (std::string name = name_of(file); !name.empty()) names.push_back(std::move(name));
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
            path(name), [&](ByteWriter& out) { sequence.write(out); }, left, "session '" + name + "'"))
      throw ApiError(507, "server_error",
                     fmt::format("the session needs more than {} bytes, others have {} and all may have {} "
                                 "(--session-space): delete some, or choose a smaller budget",
                                 left, others, max_bytes_),
                     "session.save", "session_space");
  } catch (const Error& error) {  // a disk error, not the client's
    throw ApiError(507, "server_error", error.what(), "session.save", "session_space");
  }
  Json saved = json(name);
  if (saved.is_null()) not_found(name);  // removed at once, by another server
  return saved;
}

void Sessions::require(const std::string& name) const {
  std::error_code error;
  if (fs::is_regular_file(path(name), error)) return;
  if (!fs::is_directory(folder_, error))
    cannot_read(error ? error : std::make_error_code(std::errc::no_such_file_or_directory));
  not_found(name);
}

std::shared_ptr<const Snapshot> Sessions::open(const std::string& name, const Model& model) const {
  require(name);
  try {
    return std::make_shared<const Snapshot>(path(name), model, "session '" + name + "'");
  } catch (const Error&) {
    require(name);  // removed meanwhile: 404
    throw;
  }
}

void Sessions::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  require(name);
  std::error_code error;
  if (!fs::remove(path(name), error)) not_found(name);
}

SessionFolders::SessionFolders(const std::string& folder, std::size_t max_bytes,
                               const std::vector<std::string>& api_keys, bool shared) {
  if (api_keys.empty() || shared) {
    all_.push_back(std::make_unique<Sessions>(folder, max_bytes));
    return;
  }
  for (const std::string& key : api_keys) {
    const fs::path of_key = fs::path(folder) / folder_of(key);
    std::error_code error;
    if (fs::is_directory(folder, error) && fs::create_directory(of_key, error))
      fs::permissions(of_key, fs::perms::owner_all, error);
    all_.push_back(std::make_unique<Sessions>(of_key.string(), max_bytes));
  }
}

std::string SessionFolders::folder_of(const std::string& api_key) {
  return "key-" + sha256_hex("palimpsest sessions " + api_key).substr(0, 32);
}

Sessions& sessions_of(SessionFolders* folders, int key) {
  if (folders == nullptr) fail_field("session", "sessions are disabled: start the server with --session-path DIR");
  return folders->of(key);
}

}  // namespace palimpsest
