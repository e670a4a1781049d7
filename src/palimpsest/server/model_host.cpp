#include "palimpsest/server/model_host.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/server/log.h"

namespace palimpsest {
namespace {

using namespace std::chrono_literals;

constexpr auto kHostTick = 200ms;  // of checks while a request waits, and of models that have been idle for long

}  // namespace

ModelHost::ModelHost(std::shared_ptr<Service> only) : only_(std::move(only)) {}

ModelHost::ModelHost(ModelHostOptions options)
    : options_(std::move(options)), thread_([this](const std::stop_token& stop) { unload_idle(stop); }) {}

ModelHost::~ModelHost() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

std::string names_of_models(const std::vector<KnownModel>& models) {
  std::vector<std::string> names;
  for (const KnownModel& each : models) names.push_back(each.name);
  return names.empty()       ? "are none"
         : names.size() == 1 ? "is " + names.front()
                             : fmt::format("are {}", fmt::join(names, ", "));
}

KnownModel ModelHost::find(const std::string& name) const {
  const std::vector<KnownModel> all = options_.list();
  const auto found = std::ranges::find(all, name, &KnownModel::name);
  if (found != all.end()) return *found;
  throw ApiError(404, "invalid_request_error",
                 shortened(fmt::format("there is no model '{}': there {}", name, names_of_models(all))), "model",
                 "model_not_found");
}

std::shared_ptr<Service> ModelHost::lease_of(Entry& entry, bool uses) {
  ++entry.leases;
  return {entry.service.get(), [this, &entry, uses](Service*) {
            const std::lock_guard lock(mutex_);
            --entry.leases;
            if (uses) entry.used = Clock::now();
            changed_.notify_all();
          }};
}

std::shared_ptr<Service> ModelHost::lease(const std::string& name, const std::function<void()>& check) {
  if (only_ != nullptr) return only_;
  std::unique_lock lock(mutex_);
  auto at = entries_.find(name);
  if (at == entries_.end()) {
    lock.unlock();
    KnownModel model = find(name);
    lock.lock();
    at = entries_.try_emplace(name, Entry{.model = std::move(model)}).first;
  }
  Entry& entry = at->second;
  entry.unload = false;
  while (entry.status != Status::kLoaded) {
    const bool unloaded = entry.status == Status::kUnloaded || entry.status == Status::kFailed;
    if (unloaded && in_memory() < options_.max_loaded) {
      begin_load(entry, lock);
      continue;
    }
    if (Entry* const other = unloaded ? oldest_idle() : nullptr; other != nullptr) {
      end(*other, lock);
      continue;
    }
    changed_.wait_for(lock, kHostTick);
    lock.unlock();
    check();
    lock.lock();
  }
  return lease_of(entry, true);
}

int ModelHost::in_memory() const {
  return static_cast<int>(std::ranges::count_if(entries_, [](const auto& each) {
    return each.second.status != Status::kUnloaded && each.second.status != Status::kFailed;
  }));
}

ModelHost::Entry* ModelHost::oldest_idle() {
  Entry* oldest = nullptr;
  for (auto& [name, entry] : entries_)
    if (entry.status == Status::kLoaded && entry.leases == 0 && (oldest == nullptr || entry.used < oldest->used))
      oldest = &entry;
  return oldest;
}

// Throws ApiError.
void ModelHost::begin_load(Entry& entry, std::unique_lock<std::mutex>& lock) {
  entry.status = Status::kLoading;
  const KnownModel model = entry.model;
  std::shared_ptr<Service> service;
  std::string error;
  lock.unlock();
  const auto start = Clock::now();
  try {
    service = options_.load(model);
    if (closed_) service->close();
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  Json line = {{"model", model.name}, {"ms", std::llround(ms)}};
  if (!error.empty()) line["error"] = error;
  log_event("load", line, false);
  lock.lock();
  entry.service = std::move(service);
  entry.error = error;
  entry.used = Clock::now();
  entry.status = entry.service == nullptr ? Status::kFailed : Status::kLoaded;
  changed_.notify_all();
  if (!error.empty())
    throw ApiError(500, "server_error",
                   shortened(fmt::format("model '{}' cannot be loaded: {}", model.name, without_folders(error))),
                   "model", "model_not_loaded")
        .set_log_text(error);
}

// Requires: it is loaded, and no lease of it is held.
void ModelHost::end(Entry& entry, std::unique_lock<std::mutex>& lock) {
  entry.status = Status::kUnloading;
  entry.unload = false;
  std::shared_ptr<Service> service = std::move(entry.service);
  const std::string name = entry.model.name;
  lock.unlock();
  service.reset();  // waits for its threads
  log_event("unload", {{"model", name}}, false);
  lock.lock();
  entry.status = Status::kUnloaded;
  changed_.notify_all();
}

std::optional<ModelHost::Clock::time_point> ModelHost::ends_at(const Entry& entry) const {
  if (entry.unload) return entry.used;
  if (entry.keep_alive)
    return entry.keep_alive->count() < 0 ? std::nullopt : std::optional(entry.used + *entry.keep_alive);
  if (options_.keep_alive) return entry.used + *options_.keep_alive;
  return std::nullopt;
}

void ModelHost::unload_idle(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const auto now = Clock::now();
    const auto over = std::ranges::find_if(entries_, [&](const auto& each) {
      const Entry& entry = each.second;
      if (entry.status != Status::kLoaded || entry.leases > 0) return false;
      const auto ends = ends_at(entry);
      return ends && *ends <= now;
    });
    if (over != entries_.end())
      end(over->second, lock);
    else
      changed_.wait_for(lock, stop, kHostTick, [] { return false; });
  }
}

void ModelHost::set_keep_alive(const std::string& name, std::optional<std::chrono::milliseconds> keep_alive) {
  const std::lock_guard lock(mutex_);
  if (const auto at = entries_.find(name); at != entries_.end())
    at->second.keep_alive = keep_alive.value_or(std::chrono::milliseconds(-1));
}

void ModelHost::unload(const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = entries_.find(name); at != entries_.end()) {
      at->second.unload = at->second.status == Status::kLoaded || at->second.status == Status::kLoading;
      changed_.notify_all();
      return;
    }
  }
  find(name);
}

std::vector<ModelHost::Shown> ModelHost::show() {
  std::vector<Shown> all;
  if (only_ != nullptr)
    return {{.model = {.name = only_->model().name, .path = only_->model().vocabulary->path()},
             .status = Status::kLoaded,
             .error = {},
             .service = only_}};
  for (KnownModel& model : options_.list()) all.push_back({.model = std::move(model)});
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  for (auto& [name, entry] : entries_) {
    auto at = std::ranges::find(all, name, [](const Shown& shown) { return shown.model.name; });
    if (at == all.end()) {
      if (entry.status != Status::kLoaded) continue;  // its file is gone
      at = all.insert(all.end(), {.model = entry.model});
    }
    at->status = entry.status;
    at->error = entry.error;
    if (entry.status != Status::kLoaded) continue;
    if (const auto ends = ends_at(entry))
      at->left = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::max(entry.leases > 0 ? now + (*ends - entry.used) : *ends, now) - now);
    at->service = lease_of(entry, false);
  }
  return all;
}

Sessions& ModelHost::sessions(int key) const {
  if (only_ != nullptr) return only_->sessions(key);
  return sessions_of(options_.sessions.get(), key);
}

template <typename Do>
void ModelHost::for_each_loaded(Do action) {
  if (only_ != nullptr) return action(*only_);
  std::vector<std::shared_ptr<Service>> all;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [name, entry] : entries_)
      if (entry.status == Status::kLoaded) all.push_back(lease_of(entry, false));
  }
  for (const auto& service : all) action(*service);
}

void ModelHost::close_session(const std::string& session, int key) {
  for_each_loaded([&](Service& service) {
    if (service.encoder() == nullptr) service.scheduler().close_session(session, key);
  });
}

void ModelHost::close() {
  closed_ = true;
  for_each_loaded([](Service& service) { service.close(); });
}

bool ModelHost::failed() {
  bool any = false;
  for_each_loaded([&](Service& service) { any = any || service.failed(); });
  return any;
}

bool ModelHost::wait_until_idle(std::chrono::milliseconds patience) {
  const auto end = Clock::now() + patience;
  bool idle = true;
  for_each_loaded([&](Service& service) {
    idle = service.wait_until_idle(
               std::max(std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()), 0ms)) &&
           idle;
  });
  return idle;
}

void ModelHost::cancel_all() {
  for_each_loaded([](Service& service) { service.cancel_all(); });
}

}  // namespace palimpsest
