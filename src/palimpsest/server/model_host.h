// The models of a server: one, or many that are loaded when a request names them.
//
//   lease(name)   unloaded -> loading -> loaded            waits while all that may be loaded are in use
//   the last copy of a lease is destroyed: the model is idle. It is unloaded
//     - for another one, if max_loaded are loaded: the least recently used first
//     - after keep_alive without a request, or by unload()
//
// A request holds its lease until its answer ends, so no request is cut by an unload. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "palimpsest/server/service.h"

namespace palimpsest {

struct KnownModel {
  std::string name, path;
  std::uintmax_t bytes = 0;  // of the file
};

std::string names_of_models(const std::vector<KnownModel>& models);  // "is a", "are a, b", "are none"

struct ModelHostOptions {
  std::function<std::vector<KnownModel>()> list;                    // now, by name
  std::function<std::shared_ptr<Service>(const KnownModel&)> load;  // throws Error
  int max_loaded = 4;
  std::optional<std::chrono::milliseconds> keep_alive = {};  // nullopt: until another one is loaded
  std::shared_ptr<SessionFolders> sessions = {};             // that load() gives to each Service
  std::shared_ptr<ResponseStore> responses = {};             // likewise
};

class ModelHost {
 public:
  explicit ModelHost(std::shared_ptr<Service> only);
  explicit ModelHost(ModelHostOptions options);
  ~ModelHost();  // Requires: no lease is held

  bool has_one() const { return only_ != nullptr; }
  const std::shared_ptr<Service>& only() const { return only_; }  // nullptr: many

  // The service of a model, loaded; any name is the only one's. `check`: called while it waits; may throw. Throws
  // ApiError: 404 for an unknown name, 500 if it cannot be loaded.
  std::shared_ptr<Service> lease(const std::string& name, const std::function<void()>& check);
  // Instead of the host's, until the next call: how long the model stays loaded without a request. nullopt: for ever.
  void set_keep_alive(const std::string& name, std::optional<std::chrono::milliseconds> keep_alive);
  void unload(const std::string& name);  // when its last request has ended; throws ApiError (404)

  enum class Status { kUnloaded, kLoading, kLoaded, kUnloading, kFailed };
  struct Shown {
    KnownModel model;
    Status status = Status::kUnloaded;
    std::string error = {};                              // of kFailed
    std::shared_ptr<Service> service = {};               // of kLoaded: a lease that does not count as use
    std::optional<std::chrono::milliseconds> left = {};  // until it is unloaded; nullopt: not by time
  };
  std::vector<Shown> show();  // all models
  std::vector<KnownModel> known() const { return options_.list(); }
  KnownModel find(const std::string& name) const;  // throws ApiError (404)

  Sessions& sessions(int key) const;  // throws ApiError if there are none
  ResponseStore& responses() const { return only_ != nullptr ? only_->responses() : *options_.responses; }
  void close_session(const std::string& session, int key);  // of all loaded models

  // As Service's, of all loaded models.
  void close();
  bool closed() const { return only_ != nullptr ? only_->closed() : closed_.load(); }
  bool failed();
  bool wait_until_idle(std::chrono::milliseconds patience);
  void cancel_all();

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    KnownModel model;
    Status status = Status::kUnloaded;
    std::shared_ptr<Service> service = {};
    std::string error = {};
    int leases = 0;
    Clock::time_point used = {};
    std::optional<std::chrono::milliseconds> keep_alive = {};
    bool unload = false;  // when it is idle
  };
  // With the mutex; `lock` is released meanwhile.
  std::shared_ptr<Service> lease_of(Entry& entry, bool uses);
  void begin_load(Entry& entry, std::unique_lock<std::mutex>& lock);
  void end(Entry& entry, std::unique_lock<std::mutex>& lock);
  void unload_idle(const std::stop_token& stop);
  Entry* oldest_idle();
  int in_memory() const;
  std::optional<Clock::time_point> ends_at(const Entry& entry) const;
  template <typename Do>
  void for_each_loaded(Do action);

  std::shared_ptr<Service> only_;
  ModelHostOptions options_;
  std::atomic<bool> closed_ = false;
  mutable std::mutex mutex_;  // guards the entries
  std::condition_variable_any changed_;
  std::map<std::string, Entry> entries_;  // of models that were loaded once
  std::jthread thread_;                   // unload_idle()
};

}  // namespace palimpsest
