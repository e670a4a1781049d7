#include "palimpsest/pulling.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "palimpsest/core/error.h"
#include "palimpsest/core/letter_case.h"
#include "palimpsest/hub/catalogue.h"
#include "palimpsest/hub/models.h"
#include "palimpsest/hub/names.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/progress.h"
#include "palimpsest/text/visible_text.h"

namespace palimpsest::cli {
namespace {

namespace fs = std::filesystem;

// What a hub says of a model may hold control characters.
std::string about(const ModelRecord& record) {
  std::string out = record.name;
  if (record.bytes() != 0) out += ", " + decimal_bytes(record.bytes());
  if (!record.licence.empty()) out += ", licence: " + record.licence;
  const CatalogueEntry* entry = find_in_catalogue(record.name);
  if (entry != nullptr) out += fmt::format(" ({})", entry->licence_url);
  return visible_text(out + "; from " + record.source);
}

}  // namespace

Pulled pull_with_progress(const std::string& text, const std::string& name) {
  const auto start = std::chrono::steady_clock::now();
  interrupted();
  Progress progress("pulling", "MiB");
  std::uint64_t first = 0, last = 0;
  bool begun = false;
  PullOptions options;
  options.name = name;
  options.begin = [](const ModelRecord& record) { fmt::print(stderr, "palimpsest: {}\n", about(record)); };
  options.wait = [] { fmt::print(stderr, "palimpsest: another process pulls this model: waiting\n"); };
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (!begun) first = done, begun = true;
    last = done;
    progress.update(static_cast<long long>(done >> 20), static_cast<long long>(total >> 20));
    return !interrupted();
  };
  const Pulled pulled = pull_model(text, options);
  progress.clear();
  const ModelRecord& record = pulled.model.record;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (pulled.was_there)
    fmt::print(stderr, "palimpsest: {} is there already\n", visible_text(record.name));
  else if (pulled.linked && last == 0)
    fmt::print(stderr, "palimpsest: {} is in Hugging Face's cache already: linked\n", visible_text(record.name));
  else
    fmt::print(stderr, "palimpsest: {} in {:.1f} s; its name: -m {}\n", decimal_bytes(last - first), seconds.count(),
               visible_text(record.name));
  return pulled;
}

std::string hub_model_path(const std::string& text) {
  const std::string name = parse_hub_name(text).spelled();
  if (const auto path = find_model(name)) return path->string();
  return pull_with_progress(name).model.path().string();
}

std::string offer_first_model() {
  const std::string name(kFirstModel);
  if (const auto path = find_model(name)) return path->string();
  if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1) return {};
  const fs::path answered = models_folder() / ".chat-asked";
  std::error_code error;
  if (fs::exists(answered, error)) return {};
  const CatalogueEntry& entry = *find_in_catalogue(name);
  fmt::print(stderr,
             "No model was named (-m). Pull {} ({}, {}) into {} and chat with it?\n"
             "This is asked once; `palimpsest pull {}` does the same later. [Y/n] ",
             entry.title, decimal_bytes(entry.size), entry.licence, models_folder().string(), name);
  std::fflush(stderr);
  std::string line;
  if (!std::getline(std::cin, line)) return {};
  if (!line.empty() && line != "y" && line != "Y" && lower_case(line) != "yes") {
    fs::create_directories(models_folder(), error);
    std::ofstream(answered) << "no\n";
    return {};
  }
  try {
    return pull_with_progress(name).model.path().string();
  } catch (const Error& problem) {  // offline
    fmt::print(stderr, "palimpsest: {}\n", problem.what());
    return {};
  }
}

}  // namespace palimpsest::cli
