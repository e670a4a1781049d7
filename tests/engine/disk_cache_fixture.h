// A folder of kept caches, and the options of a scheduler that keeps some there.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/engine/chat_fixture.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {

class DiskCacheTest : public ::testing::Test {
 protected:
  DiskCacheTest() : folder_(own_file("caches")) { std::filesystem::remove_all(folder_); }
  ~DiskCacheTest() override { std::filesystem::remove_all(folder_); }

  SchedulerOptions options(std::size_t pool_bytes = std::size_t{8} << 20) {
    SchedulerOptions options = chat_options(pool_bytes);
    options.disk = {.folder = folder_,
                    .max_bytes = std::size_t{1} << 30,
                    .scopes = {},
                    .unused_for = std::chrono::hours(1),  // save_kept() writes
                    .skip_slow = false,
                    .on_error = [this](const std::string& text) { errors_.push_back(text); }};
    return options;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }
  // Removes the ends of prompts, which are found where the end of an answer is not.
  void keep_answers_only() const {
    for (const std::string& name : files())
      if (name.find(".e.") != std::string::npos) std::filesystem::remove(path(name));
  }
  // A turn of a chat: a scheduler answers, keeps the caches on disk, and ends. Appends the answer.
  void serve_turn(Tokens& all, const std::string& method) {
    Scheduler scheduler(small_decoder(), nullptr, options());
    append(all, ask(scheduler, chat_request(all, method, 8))->tokens);
    scheduler.save_kept();
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
  std::vector<std::string> errors_;
};

}  // namespace palimpsest::testing
