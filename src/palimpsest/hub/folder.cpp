#include "palimpsest/hub/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "palimpsest/core/error.h"
#include "palimpsest/core/new_file.h"
#include "palimpsest/hub/names.h"

namespace palimpsest {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecord = "model.json";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    fail("{}: cannot make this folder ({}): set PALIMPSEST_MODELS to a folder that you may write", folder.string(),
         error.message());
}

int open_lock(const std::string& key) {
  const fs::path folder = models_folder() / ".locks";
  make_folder(folder);
  const fs::path path = folder / key;
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0)
    fail("{}: {}: set PALIMPSEST_MODELS to a folder that you may write", path.string(), std::strerror(errno));
  return file;
}

// "hf--USER--REPO--TAG" -> "hf:USER/REPO:TAG"; others are names.
std::string name_of_key(const std::string& key) {
  std::string out = key;
  if (!key.starts_with("hf--")) return out;
  std::size_t at = 0;
  for (const char* mark : {":", "/", ":"}) {
    at = out.find("--", at);
    if (at != std::string::npos) out.replace(at, 2, mark);
  }
  return out;
}

bool lock_now(int file) {
  return ::flock(file, LOCK_EX | LOCK_NB) == 0;
}

}  // namespace

std::optional<fs::path> models_folder_if_known() {
  if (const std::string given = variable("PALIMPSEST_MODELS"); !given.empty()) return given;
  if (const std::string data = variable("XDG_DATA_HOME"); !data.empty() && data.front() == '/')
    return fs::path(data) / "palimpsest" / "models";
  const std::string home = variable("HOME");
  if (home.empty()) return std::nullopt;
  return fs::path(home) / ".local" / "share" / "palimpsest" / "models";
}

fs::path models_folder() {
  if (auto folder = models_folder_if_known()) return *folder;
  fail("neither HOME nor PALIMPSEST_MODELS is set: name a folder for models in PALIMPSEST_MODELS");
}

std::uint64_t ModelRecord::bytes() const {
  return std::accumulate(files.begin(), files.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const ModelFile& each) { return sum + each.size; });
}

std::string key_of_hub(std::string_view user, std::string_view repo, std::string_view tag) {
  return fmt::format("hf--{}--{}--{}", user, repo, tag);
}

std::optional<PulledModel> pulled_model(const fs::path& folder) {
  std::ifstream in(folder / kRecord);
  if (!in) return std::nullopt;
  PulledModel model{.folder = folder, .record = {}};
  try {
    const auto json = nlohmann::json::parse(in);
    ModelRecord& record = model.record;
    record.name = json.at("name");
    record.source = json.at("source");
    record.licence = json.at("licence");
    for (const auto& each : json.at("files"))
      record.files.push_back({each.at("name"), each.at("size"), each.at("sha256")});
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // as if it were not there: pulling it again repairs it
  }
  std::error_code error;
  for (const ModelFile& file : model.record.files)
    if (!is_safe_file_name(file.name) || fs::file_size(folder / file.name, error) != file.size || error)
      return std::nullopt;
  if (model.record.files.empty()) return std::nullopt;
  return model;
}

std::vector<PulledModel> pulled_models() {
  std::vector<PulledModel> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(models_folder_if_known().value_or(fs::path()), error))
    if (is_safe_file_name(entry.path().filename().string()))
      if (auto model = pulled_model(entry.path())) out.push_back(std::move(*model));
  std::ranges::sort(out, {}, [](const PulledModel& each) { return each.record.name; });
  return out;
}

std::vector<PartOfModel> incomplete_models() {
  std::vector<PartOfModel> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(models_folder_if_known().value_or(fs::path()), error)) {
    const std::string key = entry.path().filename().string();
    if (!is_safe_file_name(key) || pulled_model(entry.path())) continue;
    PartOfModel part{.name = name_of_key(key)};
    std::error_code missing;
    for (const auto& file : fs::directory_iterator(entry.path(), missing))
      if (const auto size = file.file_size(missing); !missing) part.bytes += size;
    out.push_back(std::move(part));
  }
  std::ranges::sort(out, {}, &PartOfModel::name);
  return out;
}

void write_record(const fs::path& folder, const ModelRecord& record) {
  nlohmann::ordered_json json = {{"name", record.name}, {"source", record.source}, {"licence", record.licence}};
  for (const ModelFile& file : record.files)
    json["files"].push_back({{"name", file.name}, {"size", file.size}, {"sha256", file.sha256}});
  const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  NewFile out((folder / kRecord).string());
  out.write(std::as_bytes(std::span(text)));
  out.commit();
  // Others may use the model, too: a service with a user of its own.
  std::error_code ignored;
  fs::permissions(folder / kRecord, fs::perms::group_read | fs::perms::others_read, fs::perm_options::add, ignored);
}

ModelLock::ModelLock(const std::string& key, const std::function<void()>& wait) : file_(open_lock(key)) {
  if (lock_now(file_)) return;
  wait();
  while (::flock(file_, LOCK_EX) != 0)
    if (errno != EINTR) {
      const int error = errno;
      ::close(file_);
      fail("{}: cannot be locked ({}): set PALIMPSEST_MODELS to a folder on another disk", models_folder().string(),
           std::strerror(error));
    }
}

ModelLock::ModelLock(const std::string& key) : file_(open_lock(key)) {
  if (lock_now(file_)) return;
  ::close(file_);
  fail("another process pulls this model: wait for it, or stop it");
}

ModelLock::~ModelLock() {
  ::close(file_);
}

}  // namespace palimpsest
