#include "palimpsest/server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace palimpsest {
namespace {

// Metrics that vLLM has with the same meaning: routers read them by its names (docs/scale.md).
constexpr std::array<std::string_view, 10> kVllmNames = {
    "num_requests_running",         "num_requests_waiting",    "kv_cache_usage_perc",
    "prefix_cache_queries_total",   "prefix_cache_hits_total", "prompt_tokens_total",
    "generation_tokens_total",      "request_success_total",   "time_to_first_token_seconds",
    "time_per_output_token_seconds"};

std::string head(const std::string& name, const char* type, const std::string& help) {
  return fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

// A metric under our name, and under vLLM's if it has one. `samples`: the lines of values for a full name.
template <typename Samples>
std::string metric(const std::string& name, const char* type, const std::string& help, const Samples& samples) {
  const std::string ours = "palimpsest_" + name;
  std::string out = head(ours, type, help) + samples(ours);
  if (std::ranges::find(kVllmNames, name) == kVllmNames.end()) return out;
  const std::string theirs = "vllm:" + name;
  return out + head(theirs, type, help) + samples(theirs);
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

void Histogram::add(double seconds) {
  const auto at = std::ranges::lower_bound(bounds_, seconds) - bounds_.begin();
  counts_[static_cast<std::size_t>(at)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(seconds, std::memory_order_relaxed);
}

std::string Histogram::samples(const std::string& name, const std::string& labels) const {
  std::string out;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    sum += counts_[i].load(std::memory_order_relaxed);
    out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels,
                       i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf", sum);
  }
  return out + fmt::format("{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", name, labels,
                           sum_.load(std::memory_order_relaxed), sum);
}

std::string Metrics::text(const SchedulerLoad& load, const std::string& model_name) const {
  const std::string labels = fmt::format("model_name=\"{}\"", escaped(model_name));
  std::string out;
  const auto one = [&](const char* name, const char* type, const char* help, auto value) {
    out += metric(name, type, help,
                  [&](const std::string& full) { return fmt::format("{}{{{}}} {}\n", full, labels, value); });
  };
  const auto share = [&](std::size_t bytes) {
    return load.pool_bytes == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(load.pool_bytes);
  };
  one("num_requests_running", "gauge", "Running requests.", load.running);
  one("num_requests_waiting", "gauge", "Waiting requests.", load.waiting);
  one("kv_cache_usage_perc", "gauge", "Pages in use as a fraction of the pool, without kept prefixes and histories.",
      share(load.used_bytes));
  one("kv_cache_reserved_perc", "gauge", "Memory reserved by running requests as a fraction of the pool.",
      share(load.reserved_bytes));
  one("kv_cache_bytes", "gauge", "Bytes of pages in use.", load.used_bytes);
  one("prefix_cache_bytes", "gauge", "Bytes of kept prefixes and histories.", load.prefix_bytes);
  one("prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.", load.prefix_queries);
  one("prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.", load.prefix_hits);
  one("history_cache_queries_total", "counter", "Requests that looked for a history.", load.history_queries);
  one("history_cache_hits_total", "counter", "Requests that continued from a history.", load.history_hits);
  one("prefix_cache_copied_bytes_total", "counter", "Bytes of shared pages copied on write.", load.copied_bytes);
  if (load.disk_max_bytes > 0) {
    one("disk_cache_max_bytes", "gauge", "Max bytes of kept caches on disk (--disk-cache).", load.disk_max_bytes);
    one("disk_cache_hits_total", "counter", "Requests that continued from a kept cache on disk.", load.disk_hits);
    one("disk_cache_tokens_total", "counter", "Prompt tokens found in kept caches on disk.", load.disk_tokens);
    one("disk_cache_skipped_total", "counter", "Kept caches on disk that were slower than reading the prompt again.",
        load.disk_skipped);
    one("disk_cache_writes_total", "counter", "Kept caches written to disk.", load.disk_writes);
    one("disk_cache_read_bytes_total", "counter", "Bytes of kept caches read from disk.", load.disk_read_bytes);
    one("disk_cache_written_bytes_total", "counter", "Bytes of kept caches written to disk.", load.disk_written_bytes);
    one("disk_cache_errors_total", "counter", "Kept caches that could not be read from disk or written to it.",
        load.disk_errors);
  }
  one("prompt_tokens_total", "counter", "Prompt tokens processed.", load.prompt_tokens);
  one("generation_tokens_total", "counter", "Generated tokens.", load.tokens);
  one("evicted_tokens_total", "counter", "Evicted tokens.", load.evicted);
  one("steps_total", "counter", "Steps of the model.", load.steps);
  one("requests_rejected_total", "counter", "Requests refused with 429 because the queue was full.",
      rejected.load(std::memory_order_relaxed));

  const auto of = [&](Finish finish) { return load.finished[static_cast<int>(finish)]; };
  const std::array<std::pair<const char*, long long>, 5> ends = {{{"stop", of(Finish::kEnd) + of(Finish::kStopped)},
                                                                  {"length", of(Finish::kLength)},
                                                                  {"abort", of(Finish::kCancelled)},
                                                                  {"timeout", of(Finish::kDeadline)},
                                                                  {"error", of(Finish::kFailed)}}};
  out +=
      metric("request_success_total", "counter", "Finished requests by finish reason.", [&](const std::string& full) {
        std::string lines;
        for (const auto& [reason, count] : ends)
          lines += fmt::format("{}{{{},finished_reason=\"{}\"}} {}\n", full, labels, reason, count);
        return lines;
      });
  const auto histogram = [&](const char* name, const char* help, const Histogram& values) {
    out += metric(name, "histogram", help, [&](const std::string& full) { return values.samples(full, labels); });
  };
  histogram("time_to_first_token_seconds", "Time from a request's arrival to its first token.", time_to_first_token);
  histogram("time_per_output_token_seconds", "Time between two tokens of a request.", time_per_output_token);

  // What only vLLM has by a name of its own.
  out += head("vllm:gpu_cache_usage_perc", "gauge", "vllm:kv_cache_usage_perc, as older versions of vLLM name it.");
  out += fmt::format("vllm:gpu_cache_usage_perc{{{}}} {}\n", labels, share(load.used_bytes));
  out += head("vllm:inter_token_latency_seconds", "histogram",
              "vllm:time_per_output_token_seconds, as newer versions of vLLM name it.");
  out += time_per_output_token.samples("vllm:inter_token_latency_seconds", labels);
  out += head("vllm:cache_config_info", "gauge", "Tokens of a page, and how many the pool has for all heads.");
  return out + fmt::format("vllm:cache_config_info{{{},block_size=\"{}\",num_gpu_blocks=\"{}\"}} 1\n", labels,
                           load.page_size, load.blocks);
}

}  // namespace palimpsest
